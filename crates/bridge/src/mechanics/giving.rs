//! Calls that give their arguments away, as the interpreter's own CALL does.
//!
//! Who calls a Python function through C holds the arguments until the call ends; the interpreter moves them into the
//! callee's frame instead, and a callee that rebinds or deletes one finalises it there and then. A function's vectorcall
//! begins by taking references of its own, for the frame. So ours are uncounted just before, and the frame's take their
//! place: nothing runs in between, and what fails later releases what the frame had.
//!
//! A jitted callable, which wraps a function, takes its arguments over in its own way ([`register`]).
//!
//! In: owned references. Out: the result of the call.
#![expect(
    unsafe_code,
    reason = "counts references by hand, reads CPython's structs, calls CPython from native code"
)]

use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use super::bytecode::Opcodes;
use super::frame::{Thread, code_int, field};
use super::layout;

unsafe extern "C" {
    static mut PyMethod_Type: ffi::PyTypeObject;
    /// Both borrowed.
    fn PyMethod_Function(method: *mut PyObject) -> *mut PyObject;
    fn PyMethod_Self(method: *mut PyObject) -> *mut PyObject;
}

/// The vectorcall of every function to which nobody gave another one; 0 before [`prepare`].
static VECTORCALL: AtomicUsize = AtomicUsize::new(0);

/// How objects of a type are called with owned references: [`call`]'s contract.
pub type GivingCall = unsafe fn(*mut PyObject, *mut *mut PyObject, usize, *mut PyObject) -> *mut PyObject;

/// The object that an object of a type calls at present, borrowed; null when there is none.
pub type Target = unsafe fn(*mut PyObject) -> *mut PyObject;

/// A type, by address, whose calls move arguments too. Types of our own live as long as the process.
static REGISTERED: OnceLock<(usize, GivingCall, Target)> = OnceLock::new();

/// Objects of `ty` are called by `call`, which calls what `target` says. Once per process.
pub fn register(ty: *mut ffi::PyTypeObject, call: GivingCall, target: Target) {
    REGISTERED.get_or_init(|| (ty as usize, call, target));
}

#[inline]
unsafe fn registered(callable: *mut PyObject) -> Option<GivingCall> {
    // SAFETY: a live object, by the callers' contracts.
    let ty = unsafe { ffi::Py_TYPE(callable) } as usize;
    REGISTERED.get().and_then(|(known, call, _)| (*known == ty).then_some(*call))
}

/// The Python function that a call of this runs: itself, or the one that a jitted callable wraps. Borrowed.
///
/// # Safety
/// A live object, the GIL is held.
pub unsafe fn function_behind(callable: *mut PyObject) -> Option<*mut PyObject> {
    // SAFETY: the caller's contract; a target is null or alive as long as the callable has it.
    unsafe {
        let ty = ffi::Py_TYPE(callable);
        let function = match REGISTERED.get() {
            Some((known, _, target)) if *known == ty as usize => target(callable),
            _ => callable,
        };
        (!function.is_null() && ffi::Py_TYPE(function) == &raw mut ffi::PyFunction_Type).then_some(function)
    }
}

/// Looks at a function.
///
/// # Errors
/// What evaluating a lambda raises.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    let function = super::evaluate(py, c"lambda: None")?;
    // SAFETY: a live function.
    let vectorcall: usize = unsafe { field(function.as_ptr().cast(), layout::function::VECTORCALL) };
    VECTORCALL.store(vectorcall, Ordering::Relaxed);
    Ok(())
}

/// Whether this is a bound method.
///
/// # Safety
/// A live object.
#[cfg(Py_3_12)]
#[inline]
pub unsafe fn is_method(callable: *mut PyObject) -> bool {
    // SAFETY: the caller's contract.
    unsafe { ffi::Py_TYPE(callable) == &raw mut PyMethod_Type }
}

/// Whether the interpreter would move the arguments of a call of this into a frame.
///
/// # Safety
/// A live object; the GIL is held.
#[inline]
pub unsafe fn moves(callable: *mut PyObject) -> bool {
    // SAFETY: the caller's contract; a method has a function.
    unsafe {
        let mut function = callable;
        if ffi::Py_TYPE(callable) == &raw mut PyMethod_Type {
            function = PyMethod_Function(callable);
        }
        if ffi::Py_TYPE(function) != &raw mut ffi::PyFunction_Type {
            return registered(function).is_some();
        }
        field::<usize>(function.cast(), layout::function::VECTORCALL) == VECTORCALL.load(Ordering::Relaxed)
    }
}

/// `callable(*args, **keywords)` with owned references: of the callable, and of `n` values, the last of them those of
/// `keywords` (borrowed: null or the tuple of their names). A new reference, or null with an exception.
///
/// # Safety
/// The GIL is held, the references are given away, [`moves`] holds; the slot in front of the first value is free.
pub unsafe fn call(
    callable: *mut PyObject,
    args: *mut *mut PyObject,
    n: usize,
    keywords: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the caller's contract. Each value is owned here, so no count falls below zero.
    unsafe {
        let (mut function, mut first, mut n) = (callable, args, n);
        if ffi::Py_TYPE(callable) == &raw mut PyMethod_Type {
            function = ffi::Py_NewRef(PyMethod_Function(callable));
            first = args.sub(1);
            *first = ffi::Py_NewRef(PyMethod_Self(callable));
            n += 1;
            ffi::Py_DECREF(callable);
        }
        if let Some(call) = registered(function) {
            return call(function, first, n, keywords);
        }
        let n_keywords = if keywords.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(keywords) as usize };
        for i in 0..n {
            uncount(*first.add(i));
        }
        let result = ffi::PyObject_Vectorcall(function, first, n - n_keywords, keywords);
        ffi::Py_DECREF(function);
        result
    }
}

/// One reference less, without a look at whether it was the last.
#[inline]
unsafe fn uncount(object: *mut PyObject) {
    // SAFETY: a live object begins with its count, from 3.12 on in the lower half of the word: negative when immortal.
    unsafe {
        #[cfg(not(Py_3_12))]
        {
            *object.cast::<isize>() -= 1;
        }
        #[cfg(Py_3_12)]
        {
            let count = object.cast::<i32>();
            if *count >= 0 {
                *count -= 1;
            }
        }
    }
}

/// Takes over the arguments of a call that the interpreter is making of `callable`, a C-level callable: what it would
/// hold until the call ends. `n` counts keyword values too. The values come behind a free slot, for [`call`]; `None` when
/// somebody else calls, who holds them.
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
        let mut taken = Vec::with_capacity(n + 1);
        taken.push(null_mut());
        for i in 0..n {
            taken.push(std::mem::replace(&mut *args.add(i), ffi::Py_NewRef(ffi::Py_None())));
        }
        Some(taken)
    }
}
