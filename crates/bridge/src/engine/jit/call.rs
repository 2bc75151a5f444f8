//! The vectorcall of a jitted callable: the shortest way to a leaf version, else the twin.
//!
//! A leaf version (nothing in it may run Python code) needs no frame. It is entered when exactly its positional
//! arguments come and no keyword; when the types are others nothing has happened, and its exit makes the call through
//! the twin. A loop in it goes on in a frame when CPython asks for its turn.

use std::ptr::null_mut;

use pyo3::ffi;

use super::super::unit::Leaf;
use super::{JitFunction, starred};
use crate::mechanics::frame::{Frame, Thread, field, has_new_events, is_monitored};
use crate::mechanics::osr::own_tools;
use crate::mechanics::stack::{stack_low, stack_out};
use crate::mechanics::{giving, layout};

/// Count without the flag that the slot before the first argument may be used.
const COUNT: usize = !ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;

pub(super) unsafe extern "C" fn vectorcall(
    callable: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargsf: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this on our own objects, with `nargsf` arguments at `args`.
    unsafe {
        if let Some((leaf, thread)) = leaf_for(callable, keywords)
            && let Some(result) = leaf.vectorcall(args, nargsf & COUNT, thread.eval_breaker())
        {
            return result;
        }
        through_twin(callable, args, nargsf, keywords)
    }
}

/// A call by machine code, under the contract of [`giving::call`].
pub(super) unsafe fn call_giving(
    callable: *mut ffi::PyObject,
    args: *mut *mut ffi::PyObject,
    n: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: by contract the references are ours: the leaf version borrows them, the twin gets them. The callable is
    // released last, as the interpreter does.
    unsafe {
        let result = if let Some((leaf, thread)) = leaf_for(callable, keywords)
            && let Some(result) = leaf.call(args, n, Frame(null_mut()), thread.eval_breaker())
        {
            (0..n).for_each(|i| ffi::Py_DECREF(*args.add(i)));
            result
        } else if let Some(target) = Target::of(callable) {
            target.call(|target| {
                if giving::moves(target) {
                    return giving::call(ffi::Py_NewRef(target), args, n, keywords);
                }
                let result = ffi::PyObject_Vectorcall(target, args, n - n_keywords(keywords), keywords);
                (0..n).for_each(|i| ffi::Py_DECREF(*args.add(i)));
                result
            })
        } else {
            (0..n).for_each(|i| ffi::Py_DECREF(*args.add(i)));
            null_mut()
        };
        ffi::Py_DECREF(callable);
        result
    }
}

/// The leaf version's place, unless keywords come or somebody watches calls, who must see this one.
#[inline]
unsafe fn leaf_for<'a>(
    callable: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> Option<(&'a Leaf, Thread)> {
    // SAFETY: a live jitted callable, the GIL is held. As long as there is a unit the target is a function, whose code
    // is the stub.
    unsafe {
        let this = callable.cast::<JitFunction>();
        let unit = (*this).unit.as_ref()?;
        let thread = Thread::current();
        let stub = field((*this).target.cast(), layout::function::CODE);
        let is_seen = !keywords.is_null()
            || thread.has_tracer()
            || has_new_events(thread, stub)
            || is_monitored(stub, own_tools());
        (!is_seen).then_some((&unit.leaf, thread))
    }
}

unsafe fn n_keywords(keywords: *mut ffi::PyObject) -> usize {
    // SAFETY: null or a tuple of names.
    if keywords.is_null() { 0 } else { unsafe { ffi::PyTuple_GET_SIZE(keywords) as usize } }
}

/// The call as the twin makes it, a Python function.
///
/// # Safety
/// As for a vectorcall of `callable`, a jitted callable.
#[inline(never)]
pub(crate) unsafe fn through_twin(
    callable: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargsf: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: by contract.
    unsafe {
        let Some(target) = Target::of(callable) else { return null_mut() };
        target.call(|target| {
            let n = (nargsf & COUNT) + n_keywords(keywords);
            if giving::moves(target)
                && let Some(mut taken) = giving::take_from_caller(callable, args, n)
                    .or_else(|| starred::take_from_caller(callable, args, n, keywords))
            {
                giving::call(ffi::Py_NewRef(target), taken.as_mut_ptr().add(1), n, keywords)
            } else {
                ffi::PyObject_Vectorcall(target, args, nargsf, keywords)
            }
        })
    }
}

/// What a jitted callable calls when no leaf version does. The call's frame owns it: the callee may drop the last other
/// reference to the callable.
struct Target(*mut ffi::PyObject);

impl Target {
    /// `None` with an exception for an object that the collector has emptied.
    unsafe fn of(callable: *mut ffi::PyObject) -> Option<Target> {
        // SAFETY: a live jitted callable, the GIL is held.
        unsafe {
            let target = (*callable.cast::<JitFunction>()).target;
            if target.is_null() {
                ffi::PyErr_SetString(
                    ffi::PyExc_ReferenceError,
                    c"the jitted function was already destroyed".as_ptr(),
                );
                return None;
            }
            Some(Target(target))
        }
    }

    /// A call of a Python function uses up none of 3.12's limit for C calls; neither does one of ours, as long as there
    /// is C stack. (3.11 has one limit for both, and counts the twin's frame once, as it should.)
    unsafe fn call(self, call: impl FnOnce(*mut ffi::PyObject) -> *mut ffi::PyObject) -> *mut ffi::PyObject {
        // SAFETY: the GIL is held.
        unsafe {
            if stack_out() {
                // The interpreter cannot make this call without C stack, as it could one of a plain function.
                let text =
                    c"maximum recursion depth exceeded: a jitted function that calls itself needs C stack";
                ffi::PyErr_SetString(ffi::PyExc_RecursionError, text.as_ptr());
                return null_mut();
            }
            let thread = Thread::current();
            let is_free = cfg!(Py_3_12) && !stack_low();
            if is_free {
                thread.enter_python_call();
            }
            let result = call(self.0);
            if is_free {
                thread.leave_python_call();
            }
            result
        }
    }
}
