//! Stub code objects: the same function, entered through native code first.
//!
//! In: a code object and a [`Body`]. Out: a code object with the same signature, names, tables and bytecode, in front
//! of which stands a prologue that iterates a `Native`:
//!
//! ```text
//!         COPY_FREE_VARS n        only with free variables
//!         RESUME 0                shows the position of the original RESUME
//!         LOAD_CONST native
//!         FOR_ITER leave          the function's value …
//!         RETURN_VALUE            … is returned
//! leave:  LOAD_CONST native
//!         FOR_ITER start          how to leave, or from the start
//!         CALL 0                  never returns here: the frame goes on where native code left it
//! start:  MAKE_CELL …
//!         JUMP_FORWARD            behind the RESUME of the original bytecode
//! ```
//!
//! Everything behind the prologue is live: exits go on there, in the same frame.
#![expect(unsafe_code, reason = "replaces code objects inside a parent's tuple of constants")]

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use pyo3::{ffi, intern};

use super::bytecode::{Assembler, Opcodes, Position, Shape, emit_exception_table, located, unlocated};
use super::native::{self, Body};
use super::trampoline::{self, emit_loop_end};

/// Name of the slot that a stub of a function without any variables gets; it is never set.
const SPARE_SLOT: &str = ".overdrive";

const CO_OPTIMIZED: u32 = 0x1;
const CO_NEWLOCALS: u32 = 0x2;
/// Generators, coroutines, iterable coroutines, asynchronous generators.
const CO_SUSPENDS: u32 = 0x20 | 0x80 | 0x100 | 0x200;

/// Why a code object cannot have a stub, in words for `explain`; `None` when it can.
///
/// # Errors
/// `AttributeError` when `code` is no code object.
pub fn refusal(code: &Bound<'_, PyAny>) -> PyResult<Option<&'static str>> {
    let flags: u32 = code.getattr(intern!(code.py(), "co_flags"))?.extract()?;
    Ok(if original_of(code).is_some() {
        Some("it is a stub already")
    } else if flags & CO_SUSPENDS != 0 {
        Some("it is a generator or coroutine")
    } else if flags & (CO_OPTIMIZED | CO_NEWLOCALS) != CO_OPTIMIZED | CO_NEWLOCALS {
        Some("it is the body of a module or class")
    } else {
        None
    })
}

/// Why native code must not run this function although a stub can: it names something that looks into its frame.
///
/// # Errors
/// As [`refusal`].
pub fn frame_reader(code: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let names = code.getattr(intern!(code.py(), "co_names"))?;
    for name in names.try_iter()? {
        let name: String = name?.extract()?;
        if ["locals", "vars", "dir", "eval", "exec"].contains(&name.as_str()) {
            return Ok(Some(format!("it names {name}, which reads the local variables of its frame")));
        }
    }
    Ok(None)
}

/// Builds the stub of `code`, which owns `body`.
///
/// # Errors
/// `ValueError` with the words of [`refusal`]; what building a code object raises.
pub fn build<'py>(code: &Bound<'py, PyAny>, body: Box<dyn Body>) -> PyResult<Bound<'py, PyAny>> {
    if let Some(reason) = refusal(code)? {
        return Err(PyValueError::new_err(reason));
    }
    build_for_resume(code, body, 0)
}

/// As [`build`], with a RESUME argument: 0 polls for signals at entry, 2 does not.
///
/// # Errors
/// As [`build`].
pub(super) fn build_for_resume<'py>(
    code: &Bound<'py, PyAny>,
    body: Box<dyn Body>,
    resume_arg: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let py = code.py();
    trampoline::prepare(py)?;
    let ops = Opcodes::get(py)?;
    let native = native::new(py, code, body)?;
    let consts = code.getattr(intern!(py, "co_consts"))?.cast_into::<PyTuple>()?;
    let Some(shape) = native::of(&native).map(native::Native::shape) else {
        return Err(PyTypeError::new_err("not a Native"));
    };
    let prologue = Prologue::new(ops, shape, consts.len() as u32, resume_arg);
    let base = prologue.code.n_units();

    let fields = PyDict::new(py);
    fields.set_item("co_code", PyBytes::new(py, &[&prologue.code.bytes[..], &shape.bytecode].concat()))?;
    let mut all: Vec<Bound<'py, PyAny>> = consts.iter().collect();
    all.push(native.clone());
    fields.set_item("co_consts", PyTuple::new(py, all)?)?;
    fields.set_item("co_linetable", PyBytes::new(py, &prologue.line_table(code, shape)?))?;
    let handlers = emit_exception_table(&shape.handlers, base);
    fields.set_item("co_exceptiontable", PyBytes::new(py, &handlers))?;
    let stack_size: u32 = code.getattr("co_stacksize")?.extract()?;
    fields.set_item("co_stacksize", stack_size.max(4))?;
    if shape.n_locals_plus == 0 {
        fields.set_item("co_varnames", (SPARE_SLOT,))?;
        fields.set_item("co_nlocals", 1)?;
    }
    let stub = code.call_method(intern!(py, "replace"), (), Some(&fields))?;
    native::attach(&native, &stub, prologue.entry, prologue.exit, base);
    Ok(stub)
}

struct Prologue {
    code: Assembler,
    resume: u32,
    entry: u32,
    exit: u32,
}

impl Prologue {
    fn new(ops: &Opcodes, shape: &Shape, native_const: u32, resume_arg: u32) -> Prologue {
        let mut code = Assembler::default();
        if shape.n_free > 0 {
            code.emit(ops, ops.copy_free_vars, shape.n_free);
        }
        let resume = code.emit(ops, ops.resume, resume_arg);
        code.emit(ops, ops.load_const, native_const);
        let entry = code.emit(ops, ops.for_iter, 1);
        code.emit(ops, ops.return_value, 0);
        emit_loop_end(&mut code, ops);

        let mut leave = Assembler::default();
        leave.emit(ops, ops.push_null, 0);
        if !cfg!(Py_3_13) {
            leave.emit(ops, ops.swap, 2);
        }
        leave.emit(ops, ops.call, 0);
        leave.emit(ops, ops.return_value, 0);
        code.emit(ops, ops.load_const, native_const);
        let exit = code.emit(ops, ops.for_iter, leave.n_units());
        code.bytes.extend(leave.bytes);
        emit_loop_end(&mut code, ops);

        for &cell in &shape.cells {
            code.emit(ops, ops.make_cell, cell);
        }
        code.emit(ops, ops.jump_forward, shape.resume + 1);
        Prologue { code, resume, entry, exit }
    }

    /// The line table of the whole stub: only RESUME has a location in the prologue, that of the original's, so
    /// that tracers see the call on the line of the `def` and no further line before the body's first.
    fn line_table(&self, code: &Bound<'_, PyAny>, shape: &Shape) -> PyResult<Vec<u8>> {
        let py = code.py();
        let positions = code.call_method0(intern!(py, "co_positions"))?.try_iter()?;
        let (mut at_resume, first_line) = (Position::default(), code.getattr("co_firstlineno")?.extract()?);
        if let Some(found) = positions.into_iter().nth(shape.resume as usize) {
            let (line, end_line, column, end_column) = found?.extract()?;
            at_resume = Position { line, end_line, column, end_column };
        }
        let mut table = unlocated(self.resume);
        table.extend(located(at_resume, first_line));
        let mut rest = self.code.n_units() - self.resume - 1;
        if at_resume.line.is_some_and(|line| line != first_line) {
            // The original table counts from the first line: one unit goes back to it.
            let home = Position { line: Some(first_line), end_line: Some(first_line), ..Position::default() };
            table.extend(located(home, at_resume.line.unwrap_or(first_line)));
            rest -= 1;
        }
        table.extend(unlocated(rest));
        let original = code.getattr("co_linetable")?.cast_into::<PyBytes>()?;
        table.extend(original.as_bytes());
        Ok(table)
    }
}

/// The `Native` of a stub code object.
pub fn native_of<'py>(code: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let consts = code.getattr(intern!(code.py(), "co_consts")).ok()?.cast_into::<PyTuple>().ok()?;
    let last = consts.get_item(consts.len().checked_sub(1)?).ok()?;
    native::of(&last).is_some().then_some(last)
}

/// The code object that a stub stands for; `None` when `code` is not a stub.
pub fn original_of<'py>(code: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let native = native_of(code)?;
    Some(native::of(&native)?.original(code.py()))
}

/// Makes `function` run through `body`. Running calls are not affected.
///
/// # Errors
/// `ValueError` with the words of [`refusal`]; `TypeError` when it is no Python function.
pub fn swap(function: &Bound<'_, PyAny>, body: Box<dyn Body>) -> PyResult<()> {
    let code = function.getattr(intern!(function.py(), "__code__"))?;
    function.setattr(intern!(function.py(), "__code__"), build(&code, body)?)
}

/// Gives `function` its original code object back; says whether it had another.
///
/// # Errors
/// `TypeError` when it is no Python function.
pub fn unswap(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let name = intern!(function.py(), "__code__");
    let Some(original) = original_of(&function.getattr(name)?) else { return Ok(false) };
    function.setattr(name, original)?;
    Ok(true)
}

/// Puts `new` in the place of `old` among the constants of `parent`, so that functions created from now on (closures,
/// lambdas, methods of local classes) have that code. Says whether `old` was found. Running frames of `parent` see
/// it too. Changes the hash of `parent`.
///
/// # Errors
/// `TypeError` when `parent` is no code object.
pub fn replace_constant(
    parent: &Bound<'_, PyAny>,
    old: &Bound<'_, PyAny>,
    new: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let consts = parent.getattr(intern!(parent.py(), "co_consts"))?.cast_into::<PyTuple>()?;
    let Some(index) = consts.iter().position(|constant| constant.is(old)) else { return Ok(false) };
    // SAFETY: the GIL is held; the slot's reference is exchanged for another owned one, and the old object lives on
    // in `old`. The interpreter reads constants afresh at every LOAD_CONST.
    unsafe {
        let slot = consts
            .as_ptr()
            .cast::<u8>()
            .add(super::layout::tuple::ITEMS)
            .cast::<*mut ffi::PyObject>()
            .add(index);
        let before = *slot;
        *slot = ffi::Py_NewRef(new.as_ptr());
        ffi::Py_DECREF(before);
    }
    Ok(true)
}
