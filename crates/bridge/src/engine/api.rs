//! What the engine adds to `overdrive._core`.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::{
    Bound, Py, PyAny, PyAnyMethods, PyModule, PyModuleMethods, PyResult, Python, pyfunction,
};
use pyo3::types::{PyDict, PyFunction};
use pyo3::{ffi, wrap_pyfunction};

use super::run::UnitBody;
use super::unit::{Kind, Unit, Wants};
use super::{debug, errors, explain, jit, promotion, verify};
use crate::mechanics::{selftest, stub};
use crate::objects::vectors;
use crate::promote::When;

/// Registers the functions, and the engine with promotion.
///
/// # Errors
/// What adding to a module raises.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(jit_function, module)?)?;
    module.add_function(wrap_pyfunction!(promote, module)?)?;
    module.add_function(wrap_pyfunction!(demote, module)?)?;
    module.add_function(wrap_pyfunction!(explain_data, module)?)?;
    module.add_function(wrap_pyfunction!(emit, module)?)?;
    module.add_function(wrap_pyfunction!(listings, module)?)?;
    module.add_function(wrap_pyfunction!(explain_everything, module)?)?;
    module.add_function(wrap_pyfunction!(info, module)?)?;
    module.add_function(wrap_pyfunction!(debug_force, module)?)?;
    module.add_function(wrap_pyfunction!(debug_exit_count, module)?)?;
    module.add_function(wrap_pyfunction!(debug_enter_loops, module)?)?;
    verify::register(module)?;
    super::parallel::register(module)?;
    super::cache::register(module)?;
    crate::promote::register(module, Arc::new(promotion::Overdrive))
}

/// `overdrive.jit` without its decorator forms.
#[pyfunction]
#[pyo3(name = "jit", signature = (function, /, *, strict=false, fastmath=false, parallel=false, nogil=false, cache=true))]
fn jit_function<'py>(
    function: &Bound<'py, PyAny>,
    strict: bool,
    fastmath: bool,
    parallel: bool,
    nogil: bool,
    cache: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    if is_off(py)? {
        return Ok(function.clone());
    }
    jitted(function, strict, Wants { fastmath, parallel, nogil, is_uncached: !cache })
}

fn jitted<'py>(function: &Bound<'py, PyAny>, is_strict: bool, wants: Wants) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    if jit::is_jit_function(function.as_ptr()) {
        // Exact code and code that need not be exact are never the same callable, nor is what runs on several threads
        // and what does not.
        return match jit::original(function) {
            Some(original) if jit::wants(function) != wants => jitted(&original, is_strict, wants),
            _ => Ok(function.clone()),
        };
    }
    if let Some(wrapper) = descriptor(function) {
        let inner = jitted(&function.getattr("__func__")?, is_strict, wants)?;
        return wrapper.call1((inner,));
    }
    if !function.is_exact_instance_of::<PyFunction>() {
        if !function.is_callable() {
            return Err(PyTypeError::new_err(format!(
                "jit expects a function, not {}",
                super::input::type_name(function)
            )));
        }
        return unchanged(function, is_strict, "it is not a Python function");
    }
    let code = function.getattr("__code__")?;
    let code = stub::original_of(&code).unwrap_or(code);
    if let Some(why) = promotion::refusal(&code)? {
        return unchanged(function, is_strict, &why);
    }
    let (globals, builtins) = promotion::dictionaries(function);
    let unit = Unit::new(Kind::Jit, is_strict, wants, &code, globals, builtins);
    let stub = stub::build(&code, Box::new(UnitBody(Arc::clone(&unit))))?;
    unit.set_stub(&stub)?;
    let native =
        stub::native_of(&stub).ok_or_else(|| PyTypeError::new_err("a stub without its native object"))?;
    let twin = twin(function, &stub)?;
    let made = jit::new(
        function,
        Some(jit::Twin { function: twin, native: native.unbind(), unit: Arc::as_ptr(&unit) }),
    )?;
    Ok(made.into_bound(py))
}

/// The function whose code is the stub: everything else is shared with the original.
fn twin(function: &Bound<'_, PyAny>, stub: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let kind = function.get_type();
    let attribute = |name: &str| function.getattr(name);
    let twin = kind.call1((
        stub,
        attribute("__globals__")?,
        attribute("__name__")?,
        attribute("__defaults__")?,
        attribute("__closure__")?,
    ))?;
    for name in ["__kwdefaults__", "__qualname__"] {
        twin.setattr(name, attribute(name)?)?;
    }
    Ok(twin.unbind())
}

/// `classmethod` or `staticmethod` around a function: the wrapper to put around the jitted one.
fn descriptor<'py>(function: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let ty = function.get_type();
    let is = |known: *mut ffi::PyTypeObject| ty.as_ptr() == known.cast::<ffi::PyObject>();
    (is(&raw mut ffi::PyClassMethod_Type) || is(&raw mut ffi::PyStaticMethod_Type)).then(|| ty.into_any())
}

fn unchanged<'py>(function: &Bound<'py, PyAny>, is_strict: bool, why: &str) -> PyResult<Bound<'py, PyAny>> {
    if is_strict {
        Err(errors::not_compiled(function.py(), &name_of(function), why))
    } else {
        Ok(function.clone())
    }
}

fn name_of(function: &Bound<'_, PyAny>) -> String {
    let name = function.getattr("__qualname__").and_then(|name| name.extract());
    name.unwrap_or_else(|_| super::input::type_name(function))
}

/// Whether `OVERDRIVE=0` switched everything off.
fn is_off(py: Python<'_>) -> PyResult<bool> {
    let environ = py.import("os")?.getattr("environ")?;
    environ.call_method1("get", ("OVERDRIVE",))?.eq("0")
}

/// Swaps native code into a function; returns the function. One that cannot be compiled stays as it is.
#[pyfunction]
#[pyo3(signature = (function, /))]
fn promote<'py>(function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if !is_off(function.py())? && !jit::is_jit_function(function.as_ptr()) {
        // Why it was refused is for `explain` to say.
        promotion::promote(function, When::Behind)?;
    }
    Ok(function.clone())
}

/// Gives a function its original code back; returns the function.
#[pyfunction]
#[pyo3(signature = (function, /))]
fn demote<'py>(function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if function.is_exact_instance_of::<PyFunction>() {
        promotion::put_back(function)?;
        return Ok(function.clone());
    }
    Ok(jit::original(function).unwrap_or_else(|| function.clone()))
}

/// Everything about the compiled code of a function, as plain data.
#[pyfunction]
#[pyo3(signature = (function, /))]
fn explain_data<'py>(function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    explain::data(function)
}

/// A text of the latest version of a function: stage `ir`, `llvm` or `asm`.
#[pyfunction]
fn emit(function: &Bound<'_, PyAny>, stage: &str) -> PyResult<String> {
    explain::emit(function, stage)
}

/// The machine code of each version of a function: its types and size as `explain_data` tells them, and rows of (line of
/// the source, part of a way out, text).
#[pyfunction]
#[pyo3(signature = (function, /))]
fn listings(function: &Bound<'_, PyAny>) -> PyResult<Vec<(String, usize, Vec<explain::Listed>)>> {
    explain::listings(function)
}

/// `explain_data` of everything that was compiled in this process, or was to be.
#[pyfunction]
fn explain_everything(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    explain::everything(py)
}

/// What code is made for, by what, and what the self-test of this interpreter found.
#[pyfunction]
fn info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    /// Instruction sets that decide how wide loops over arrays can get.
    const TOLD: [&str; 7] = ["sse4.2", "avx", "avx2", "fma", "avx512f", "avx512vnni", "amx-int8"];
    let (processor, features) = overdrive_codegen::processor();
    let told: Vec<&str> = TOLD.into_iter().filter(|feature| features.contains(feature)).collect();
    let out = PyDict::new(py);
    out.set_item("processor", processor)?;
    out.set_item("instruction sets", told)?;
    out.set_item("llvm", overdrive_codegen::llvm_version())?;
    out.set_item("vector functions", vectors::describe())?;
    let tests = PyDict::new(py);
    for finding in selftest::findings(py) {
        tests.set_item(finding.feature, finding.problem.as_deref().unwrap_or("as expected"))?;
    }
    out.set_item("self-test", tests)?;
    Ok(out)
}

/// For tests: makes a guard fail in every version compiled from now on.
#[pyfunction]
#[pyo3(signature = (what, /))]
fn debug_force(what: &Bound<'_, PyAny>) -> PyResult<()> {
    debug::force(what)
}

/// For tests: number of exits of the latest version.
#[pyfunction]
#[pyo3(signature = (function, /))]
fn debug_exit_count(function: &Bound<'_, PyAny>) -> PyResult<usize> {
    explain::n_exits(function)
}

/// For tests: offers the loops of a code object, or of a function's present code, to native code from now on.
#[pyfunction]
#[pyo3(signature = (code, /))]
fn debug_enter_loops(code: &Bound<'_, PyAny>) -> PyResult<()> {
    let code =
        if code.is_exact_instance_of::<PyFunction>() { code.getattr("__code__")? } else { code.clone() };
    super::loops::arm(&code).map(drop)
}
