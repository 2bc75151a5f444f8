//! A live code object, copied into the front end's plain form.
//!
//! In: `types.CodeType`. Out: `code::CodeObject`, which owns no reference. Reads only public attributes: `co_code` is
//! neither specialised nor instrumented, whatever the interpreter has done to the running copy.

use std::sync::Arc;

use overdrive_frontend_python::code::{self, Const, LocalKind, LocalsPlusName, PyVersion};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::{Bound, PyAny, PyAnyMethods, PyErr, PyResult, PyTypeMethods, Python};
use pyo3::types::{
    PyBool, PyBytes, PyCode, PyComplex, PyComplexMethods, PyFloat, PyFrozenSet, PyInt, PyString,
    PyStringMethods, PyTuple, PyTupleMethods,
};

/// The bytecode that this interpreter runs.
///
/// # Errors
/// `RuntimeError` for a CPython that the front end does not read.
pub(crate) fn running_version(py: Python<'_>) -> PyResult<PyVersion> {
    let v = py.version_info();
    PyVersion::from_major_minor(u32::from(v.major), u32::from(v.minor))
        .ok_or_else(|| PyRuntimeError::new_err(format!("CPython {}.{} is not supported", v.major, v.minor)))
}

/// Copies a code object, nested ones included.
///
/// # Errors
/// Whatever reading an attribute raises; an object that is no code object gives `TypeError`.
pub(crate) fn code_object(code: &Bound<'_, PyAny>) -> PyResult<code::CodeObject> {
    let py = code.py();
    let version = running_version(py)?;
    convert(code.cast::<PyCode>().map_err(PyErr::from)?, version)
}

fn convert(code: &Bound<'_, PyCode>, version: PyVersion) -> PyResult<code::CodeObject> {
    let py = code.py();
    let consts = code.getattr(intern!(py, "co_consts"))?.cast_into::<PyTuple>()?;
    let consts = consts.iter().map(|c| constant(&c, version)).collect::<PyResult<Vec<_>>>()?;
    let var_names: Vec<String> = names(code, "co_varnames")?;
    let cell_names: Vec<String> = names(code, "co_cellvars")?;
    let free_names: Vec<String> = names(code, "co_freevars")?;
    let n_locals = var_names.len() as u32;
    Ok(code::CodeObject {
        version,
        name: text(code, "co_name")?,
        qualname: text(code, "co_qualname")?,
        filename: text(code, "co_filename")?,
        first_line: number(code, "co_firstlineno")?,
        arg_count: number(code, "co_argcount")?,
        pos_only: number(code, "co_posonlyargcount")?,
        kw_only: number(code, "co_kwonlyargcount")?,
        flags: number(code, "co_flags")?,
        n_locals,
        stack_size: number(code, "co_stacksize")?,
        code: bytes(code, "co_code")?,
        consts,
        names: names(code, "co_names")?,
        localsplus: locals_plus(var_names, cell_names, free_names),
        exception_table: bytes(code, "co_exceptiontable")?,
        line_table: bytes(code, "co_linetable")?,
    })
}

/// The compiler lays the frame out as variables, then cells that are no variable, then free variables; a variable that
/// an inner function captures is named in both lists and has one slot.
fn locals_plus(vars: Vec<String>, cells: Vec<String>, free: Vec<String>) -> Vec<LocalsPlusName> {
    let mut out: Vec<LocalsPlusName> = Vec::with_capacity(vars.len() + cells.len() + free.len());
    let extra: Vec<&String> = cells.iter().filter(|c| !vars.contains(c)).collect();
    let extra: Vec<String> = extra.into_iter().cloned().collect();
    for name in vars {
        let kind = if cells.contains(&name) { LocalKind::CellArg } else { LocalKind::Local };
        out.push(LocalsPlusName { name, kind });
    }
    out.extend(extra.into_iter().map(|name| LocalsPlusName { name, kind: LocalKind::Cell }));
    out.extend(free.into_iter().map(|name| LocalsPlusName { name, kind: LocalKind::Free }));
    out
}

fn constant(value: &Bound<'_, PyAny>, version: PyVersion) -> PyResult<Const> {
    if value.is_none() {
        return Ok(Const::None);
    }
    if value.is_exact_instance_of::<PyBool>() {
        return Ok(Const::Bool(value.extract()?));
    }
    if value.is_exact_instance_of::<PyInt>() {
        return Ok(match value.extract::<i64>() {
            Ok(small) => Const::Int(small),
            // Decimal conversion of huge ints is limited and quadratic; beyond 2000 bits only the index counts.
            Err(_) if value.call_method0(intern!(value.py(), "bit_length"))?.extract::<u64>()? > 2000 => {
                Const::Opaque
            }
            Err(_) => Const::BigInt(value.str()?.to_string()),
        });
    }
    if value.is_exact_instance_of::<PyFloat>() {
        return Ok(Const::Float(value.extract::<f64>()?.to_bits()));
    }
    if let Ok(z) = value.cast_exact::<PyComplex>() {
        return Ok(Const::Complex(z.real().to_bits(), z.imag().to_bits()));
    }
    if let Ok(s) = value.cast_exact::<PyString>() {
        // Lone surrogates have no plain form.
        return Ok(s.extract::<String>().map_or(Const::Opaque, Const::Str));
    }
    if let Ok(b) = value.cast_exact::<PyBytes>() {
        return Ok(Const::Bytes(b.extract::<&[u8]>()?.to_vec()));
    }
    if let Ok(t) = value.cast_exact::<PyTuple>() {
        return Ok(Const::Tuple(t.iter().map(|c| constant(&c, version)).collect::<PyResult<_>>()?));
    }
    if let Ok(f) = value.cast_exact::<PyFrozenSet>() {
        let items = f.try_iter()?.map(|c| constant(&c?, version)).collect::<PyResult<_>>()?;
        return Ok(Const::FrozenSet(items));
    }
    if let Ok(c) = value.cast_exact::<PyCode>() {
        return Ok(Const::Code(Arc::new(convert(c, version)?)));
    }
    let ellipsis = value.py().Ellipsis();
    Ok(if value.is(&ellipsis) { Const::Ellipsis } else { Const::Opaque })
}

/// A tuple of nothing but numbers and `None`, as constants; else `None`.
///
/// # Errors
/// Whatever reading them raises.
pub(crate) fn plain_numbers(values: &Bound<'_, PyTuple>) -> PyResult<Option<Vec<Const>>> {
    let version = running_version(values.py())?;
    let all = values.iter().map(|value| constant(&value, version)).collect::<PyResult<Vec<_>>>()?;
    let is_number = |c: &Const| matches!(c, Const::None | Const::Bool(_) | Const::Int(_) | Const::Float(_));
    Ok(all.iter().all(is_number).then_some(all))
}

fn text(code: &Bound<'_, PyCode>, name: &str) -> PyResult<String> {
    let value = code.getattr(name)?;
    // A file name may hold surrogate escapes; it is only shown to people.
    Ok(value.cast::<PyString>()?.to_string_lossy().into_owned())
}

fn number(code: &Bound<'_, PyCode>, name: &str) -> PyResult<u32> {
    // `co_firstlineno` may be 0 or negative in code made by tools.
    Ok(code.getattr(name)?.extract::<i64>()?.clamp(0, i64::from(u32::MAX)) as u32)
}

fn bytes(code: &Bound<'_, PyCode>, name: &str) -> PyResult<Vec<u8>> {
    Ok(code.getattr(name)?.cast::<PyBytes>()?.extract::<&[u8]>()?.to_vec())
}

fn names(code: &Bound<'_, PyCode>, name: &str) -> PyResult<Vec<String>> {
    let tuple = code.getattr(name)?.cast_into::<PyTuple>()?;
    tuple.iter().map(|n| Ok(n.cast::<PyString>()?.to_string_lossy().into_owned())).collect()
}

/// The name of a value's type, for people.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "?".to_owned(), |n| n.to_string())
}
