//! The vectorcall of a jitted callable: the shortest way to a leaf version, else the twin.
//!
//! A leaf version (nothing in it may run Python code) needs no frame. It is entered when exactly its positional
//! arguments come and no keyword; its guards answer with `MISS` when the types are others, and nothing has happened. A
//! loop in it goes on in a frame when CPython asks for its turn.

use std::ptr::null_mut;

use pyo3::ffi;

use super::JitFunction;
use crate::mechanics::frame::{Frame, Thread, field, has_new_events, is_monitored};
use crate::mechanics::osr::own_tools;
use crate::mechanics::stack::stack_low;
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
        let this = callable.cast::<JitFunction>();
        if let Some(unit) = (*this).unit.as_ref() {
            let thread = Thread::current();
            // The twin's code: the target is a function as long as there is a unit.
            let stub = field((*this).target.cast(), layout::function::CODE);
            if keywords.is_null()
                // Whoever watches calls must see this one.
                && !thread.has_tracer()
                && !has_new_events(thread, stub)
                && !is_monitored(stub, own_tools())
                && let Some(result) = unit.leaf.call(args.cast_mut(), nargsf & COUNT, Frame(null_mut()), thread.eval_breaker())
            {
                return result;
            }
        }
        through_twin(this, args, nargsf, keywords)
    }
}

#[inline(never)]
unsafe fn through_twin(
    this: *mut JitFunction,
    args: *const *mut ffi::PyObject,
    nargsf: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as in `vectorcall`. The target is kept alive over the call: the callee may drop the last other reference
    // to this object.
    unsafe {
        let target = (*this).target;
        if target.is_null() {
            ffi::PyErr_SetString(
                ffi::PyExc_ReferenceError,
                c"the jitted function was already destroyed".as_ptr(),
            );
            return null_mut();
        }
        // A call of a Python function uses up none of 3.12's limit for C calls; neither does one of ours, as long as
        // there is C stack. (3.11 has one limit for both, and counts the twin's frame once, as it should.)
        let thread = Thread::current();
        let is_free = cfg!(Py_3_12) && !stack_low();
        if is_free {
            thread.enter_python_call();
        }
        let n_keywords = if keywords.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(keywords) as usize };
        let n = (nargsf & COUNT) + n_keywords;
        let result = if giving::moves(target)
            && let Some(mut taken) = giving::take_from_caller(this.cast(), args, n)
        {
            giving::call(ffi::Py_NewRef(target), taken.as_mut_ptr().add(1), n, keywords)
        } else {
            ffi::PyObject_Vectorcall(target, args, nargsf, keywords)
        };
        if is_free {
            thread.leave_python_call();
        }
        result
    }
}
