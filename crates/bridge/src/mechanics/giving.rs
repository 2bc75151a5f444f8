//! Calls that give their arguments away, as the interpreter's own CALL does.
//!
//! Who calls a Python function through C holds the arguments until the call ends; the interpreter moves them into the
//! callee's frame instead, and a callee that rebinds or deletes one finalises it there and then. So native code calls a
//! small trampoline, whose bytecode takes the callable and its arguments over from us, out of a tuple that nobody else
//! holds, and has the interpreter call them.
//!
//! In: owned references. Out: the result of the call. As the trampolines of exits (`trampoline`), these have no RESUME:
//! no traceback, trace or `sys._getframe` shows them.
#![expect(unsafe_code, reason = "defines a C-level type, calls CPython from native code")]

use std::ptr::{self, null_mut};
use std::sync::OnceLock;

use pyo3::IntoPyObjectExt;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::bytecode::{Assembler, Opcodes};
use super::frame::{Thread, code_int};
use super::gil_cell::GilCell;
use super::{layout, trampoline};

unsafe extern "C" {
    static mut PyMethod_Type: ffi::PyTypeObject;
    /// Both borrowed.
    fn PyMethod_Function(method: *mut PyObject) -> *mut PyObject;
    fn PyMethod_Self(method: *mut PyObject) -> *mut PyObject;
}

/// What is on its way from [`run`] to the trampoline: an owned tuple. Nothing runs in between but the evaluator's entry.
static PENDING: GilCell<*mut PyObject> = GilCell::new(null_mut());

struct Giving {
    /// The constant of every trampoline: an iterator whose next value is what is pending.
    giver: Py<PyAny>,
    /// The trampoline for `i` values without keywords.
    plain: [OnceLock<Py<PyAny>>; 8],
    /// The others: `(number of values, keyword names or None)`, or for CALL_FUNCTION_EX `with_keywords`, to the trampoline.
    functions: Py<PyDict>,
}

static GIVING: OnceLock<Giving> = OnceLock::new();

/// Makes the iterator's type, once.
///
/// # Errors
/// What creating a type or a dictionary raises.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    if GIVING.get().is_none() {
        let giver = new_giver(py)?.unbind();
        let plain = [const { OnceLock::new() }; 8];
        let _ = GIVING.set(Giving { giver, plain, functions: PyDict::new(py).unbind() });
    }
    Ok(())
}

/// Whether the interpreter would move the arguments of a call of this into a frame, and somebody could see it: when one
/// of them, or a method's object, may be finalised there.
///
/// # Safety
/// Live objects; the GIL is held.
pub unsafe fn moves_visibly(callable: *mut PyObject, args: &[*mut PyObject]) -> bool {
    // SAFETY: the caller's contract; a method has a function and an object.
    unsafe {
        let (mut function, mut receiver) = (callable, None);
        if ffi::Py_TYPE(callable) == &raw mut PyMethod_Type {
            (function, receiver) = (PyMethod_Function(callable), Some(PyMethod_Self(callable)));
        }
        ffi::Py_TYPE(function) == &raw mut ffi::PyFunction_Type
            && args.iter().copied().chain(receiver).any(|object| dies_visibly(object))
    }
}

/// Whether it can be seen when an object dies: not so for those that hold nothing and have no weak references.
unsafe fn dies_visibly(object: *mut PyObject) -> bool {
    // SAFETY: a live object; `None` is for ever.
    unsafe {
        let ty = ffi::Py_TYPE(object);
        let plain = [
            &raw mut ffi::PyFloat_Type,
            &raw mut ffi::PyLong_Type,
            &raw mut ffi::PyUnicode_Type,
            &raw mut ffi::PyBool_Type,
            &raw mut ffi::PyBytes_Type,
        ];
        !plain.contains(&ty) && object != ffi::Py_None()
    }
}

/// Takes over the arguments of a call that the interpreter is making of `callable`, a C-level callable: what it would
/// hold until the call ends. `n` counts keyword values too. `None` when somebody else calls, who holds them.
///
/// They lie on the evaluation stack of the running frame, right behind the callable, and as many as its CALL says; the
/// interpreter releases afterwards what stands in those slots, which is None from here on. C code that passes arguments
/// on has them elsewhere, behind another callable, or in another number. A call that tools watch is left alone: they are
/// shown the first argument once more when it has returned.
///
/// # Safety
/// The GIL is held; `args` is what `callable`'s vectorcall got, at its beginning.
pub unsafe fn take_from_caller(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    n: usize,
) -> Option<Vec<*mut PyObject>> {
    // SAFETY: the caller's contract; the slots are looked at only inside the frame.
    unsafe {
        let frame = Thread::current().frame();
        if frame.0.is_null() || n == 0 {
            return None;
        }
        let bottom = frame.locals().add(frame.n_locals_plus());
        let top = bottom.add(code_int(frame.code(), layout::code::STACKSIZE));
        let args = args.cast_mut();
        if args <= bottom || args.add(n) > top {
            return None;
        }
        let next_to_it = *args.sub(1);
        let below = if args.sub(1) == bottom { null_mut() } else { *args.sub(2) };
        // A plain call, or one with the receiver as first argument, which CALL does not count.
        let is_plain =
            if cfg!(Py_3_13) { below == callable && next_to_it.is_null() } else { next_to_it == callable };
        let is_method = next_to_it == callable;
        let [opcode, counted] = (*frame.first_unit().offset(frame.position())).to_le_bytes();
        let counted = usize::from(counted);
        let ops = Opcodes::get(Python::assume_attached());
        if !ops.is_ok_and(|ops| opcode < ops.first_instrumented) {
            return None;
        }
        if !(is_plain && counted == n & 0xff || is_method && counted == (n - 1) & 0xff) {
            return None;
        }
        let slots = std::slice::from_raw_parts_mut(args, n);
        Some(slots.iter_mut().map(|slot| std::mem::replace(slot, ffi::Py_NewRef(ffi::Py_None()))).collect())
    }
}

/// `callable(*args, **keywords)` with owned references, one value at least among receiver and arguments; keyword values are the last arguments, as
/// in vectorcall, and `keywords` (borrowed) is null or the tuple of their names. A new reference, or null with an exception.
///
/// # Safety
/// The GIL is held, the references are given away, [`moves_visibly`] holds.
pub unsafe fn call(
    mut callable: *mut PyObject,
    args: &[*mut PyObject],
    keywords: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the caller's contract. The bytecode pops callable, receiver (here: the first argument), arguments.
    unsafe {
        let mut receiver = None;
        if ffi::Py_TYPE(callable) == &raw mut PyMethod_Type {
            let function = ffi::Py_NewRef(PyMethod_Function(callable));
            receiver = Some(ffi::Py_NewRef(PyMethod_Self(callable)));
            ffi::Py_DECREF(callable);
            callable = function;
        }
        // UNPACK_SEQUENCE puts the first item on top.
        let items = args.iter().rev().copied().chain(receiver).chain([callable]);
        let n_items = args.len() + 1 + usize::from(receiver.is_some());
        let names = if keywords.is_null() { ffi::Py_None() } else { keywords };
        run(items, n_items, |py| {
            let n = n_items - 1;
            let plain = GIVING.get().filter(|_| keywords.is_null()).and_then(|giving| giving.plain.get(n));
            if let Some(function) = plain.and_then(OnceLock::get) {
                return Ok(function.as_ptr());
            }
            let names = Bound::from_borrowed_ptr(py, names);
            let function = find(py, (n, &names), |py, giver| calling(py, n, &names, giver))?;
            if let Some(plain) = plain {
                let _ = plain.set(Bound::from_borrowed_ptr(py, function).unbind());
            }
            Ok(function)
        })
    }
}

/// CALL_FUNCTION_EX with owned references; `keywords` may be null. Not for 3.11, which holds the argument tuple itself.
///
/// # Safety
/// As [`call`].
#[cfg(Py_3_12)]
pub unsafe fn call_ex(
    callable: *mut PyObject,
    args: *mut PyObject,
    keywords: *mut PyObject,
) -> *mut PyObject {
    let has_keywords = !keywords.is_null();
    let items = [callable, args, keywords];
    // SAFETY: the caller's contract.
    unsafe {
        run(items.into_iter().take(2 + usize::from(has_keywords)), 2 + usize::from(has_keywords), |py| {
            find(py, has_keywords, |py, giver| calling_ex(py, has_keywords, giver))
        })
    }
}

/// Calls the trampoline that `find` gives with the items: owned references, in the order of the tuple.
unsafe fn run(
    items: impl Iterator<Item = *mut PyObject>,
    n_items: usize,
    find: impl FnOnce(Python<'_>) -> PyResult<*mut PyObject>,
) -> *mut PyObject {
    // SAFETY: the GIL is held. The tuple owns the items from here on, and is released by whoever has it last. The
    // trampoline's frame is given back to the recursion counter, by the giver, as soon as it exists.
    unsafe {
        let tuple = ffi::PyTuple_New(n_items as isize);
        if tuple.is_null() {
            items.for_each(|item| ffi::Py_DECREF(item));
            return null_mut();
        }
        for (i, item) in items.enumerate() {
            ffi::PyTuple_SET_ITEM(tuple, i as isize, item);
        }
        let function = match find(Python::assume_attached()) {
            Ok(function) => function,
            Err(error) => {
                error.restore(Python::assume_attached());
                ffi::Py_DECREF(tuple);
                return null_mut();
            }
        };
        PENDING.with(|pending| *pending = tuple);
        let result = ffi::PyObject_Vectorcall(function, ptr::null(), 0, null_mut());
        let left =
            PENDING.with(
                |pending| if *pending == tuple { std::mem::replace(pending, null_mut()) } else { null_mut() },
            );
        if left.is_null() {
            Thread::current().add_py_recursion(-1);
        } else {
            // RecursionError at the trampoline's own frame.
            ffi::Py_DECREF(left);
        }
        result
    }
}

unsafe extern "C" fn giver_next(_giver: *mut PyObject) -> *mut PyObject {
    // SAFETY: called by the interpreter with the GIL held; elsewhere than in a trampoline nothing is pending.
    unsafe {
        let tuple = PENDING.with(|pending| std::mem::replace(pending, null_mut()));
        if !tuple.is_null() {
            Thread::current().add_py_recursion(1);
        }
        tuple
    }
}

/// The trampoline of a kind (borrowed: kept for ever), made at its first call.
fn find<'py>(
    py: Python<'py>,
    key: impl IntoPyObject<'py>,
    make: impl FnOnce(Python<'py>, &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<*mut PyObject> {
    let Some(giving) = GIVING.get() else {
        return Err(pyo3::exceptions::PyRuntimeError::new_err("overdrive's calls are not prepared"));
    };
    let functions = giving.functions.bind(py);
    let key = key.into_bound_py_any(py)?;
    if let Some(function) = functions.get_item(&key)? {
        return Ok(function.as_ptr());
    }
    let function = make(py, giving.giver.bind(py))?;
    functions.set_item(key, &function)?;
    Ok(function.as_ptr())
}

/// CALL or CALL_KW of a callable with `n` arguments, the first in the receiver's place, `names` for the last of them.
fn calling<'py>(
    py: Python<'py>,
    n: usize,
    names: &Bound<'py, PyAny>,
    giver: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let ops = Opcodes::get(py)?;
    let mut code = Assembler::default();
    code.emit(ops, ops.unpack_sequence, n as u32 + 1);
    let n_behind = n as u32 - 1;
    match (names.is_none(), ops.kw_names, ops.call_kw) {
        (false, _, Some(call_kw)) => {
            code.emit(ops, ops.load_const, 1);
            code.emit(ops, call_kw, n_behind);
        }
        (is_plain, kw_names, _) => {
            if let (false, Some(kw_names)) = (is_plain, kw_names) {
                code.emit(ops, kw_names, 1);
            }
            if let Some(precall) = ops.precall {
                code.emit(ops, precall, n_behind);
            }
            code.emit(ops, ops.call, n_behind);
        }
    }
    function(py, ops, &code, &[giver, names], n + 3)
}

/// CALL_FUNCTION_EX of callable, argument tuple and perhaps keywords: on top in this order, the giver below them.
#[cfg(Py_3_12)]
fn calling_ex<'py>(
    py: Python<'py>,
    has_keywords: bool,
    giver: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let ops = Opcodes::get(py)?;
    let mut code = Assembler::default();
    let n = 2 + u32::from(has_keywords);
    code.emit(ops, ops.unpack_sequence, n);
    // giver, [keywords,] arguments, callable → callable, [keywords,] arguments
    code.emit(ops, ops.swap, n + 1);
    code.emit(ops, ops.pop_top, 0);
    if has_keywords {
        code.emit(ops, ops.swap, 2);
    }
    // The null belongs below the callable, or between it and the arguments: it is pushed last and sinks.
    code.emit(ops, ops.push_null, 0);
    let depth = if cfg!(Py_3_13) { n } else { n + 1 };
    for below in (2..=depth).rev() {
        code.emit(ops, ops.swap, below);
    }
    code.emit(ops, ops.call_function_ex, u32::from(has_keywords));
    function(py, ops, &code, &[giver], n as usize + 2)
}

/// Takes over what is pending, runs `body` and returns its value. When nothing is pending, because somebody found the
/// function and called it, it returns the giver.
fn function<'py>(
    py: Python<'py>,
    ops: &Opcodes,
    body: &Assembler,
    consts: &[&Bound<'py, PyAny>],
    stack_size: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let mut code = Assembler::default();
    code.emit(ops, ops.load_const, 0);
    let return_value = 1;
    code.emit(ops, ops.for_iter, body.n_units() + return_value);
    code.bytes.extend(&body.bytes);
    code.emit(ops, ops.return_value, 0);
    trampoline::emit_loop_end(&mut code, ops);
    code.emit(ops, ops.load_const, 0);
    code.emit(ops, ops.return_value, 0);
    trampoline::function(py, &code, consts, stack_size, "<call>")
}

fn new_giver(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let mut slots = [
        ffi::PyType_Slot { slot: ffi::Py_tp_iter, pfunc: ffi::PyObject_SelfIter as *mut _ },
        ffi::PyType_Slot { slot: ffi::Py_tp_iternext, pfunc: giver_next as *mut _ },
        ffi::PyType_Slot { slot: 0, pfunc: null_mut() },
    ];
    trampoline::singleton(py, c"overdrive._core.Giver", &mut slots)
}
