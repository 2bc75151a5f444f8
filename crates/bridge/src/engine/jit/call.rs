//! The vectorcall of a jitted callable: the shortest way to a leaf version, else the twin.
//!
//! A leaf version (no loop, nothing that may run Python code) needs no frame. It is entered when exactly its positional
//! arguments come and no keyword; its guards answer with `MISS` when the types are others, and nothing has happened.

use std::ptr::null_mut;

use pyo3::ffi;

use super::JitFunction;
use crate::engine::version::MISS;
use crate::mechanics::frame::Thread;
use crate::mechanics::stack::stack_low;

/// Count without the flag that the slot before the first argument may be used.
const COUNT: usize = !ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;

pub(super) unsafe extern "C" fn vectorcall(
    callable: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargsf: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this on our own objects, with `nargsf` arguments at `args`. The leaf's fields
    // belong together: they are set and reset as one by the unit, under the GIL.
    unsafe {
        let this = callable.cast::<JitFunction>();
        if let Some(unit) = (*this).unit.as_ref() {
            let leaf = unit.leaf();
            let is_exact = nargsf & COUNT == leaf.n_args.get() && keywords.is_null();
            // A tracer must see the call.
            if is_exact && !Thread::current().has_tracer() {
                let calls = &*leaf.calls.get();
                calls.set(calls.get() + 1);
                let entry = leaf.entry.get();
                let result = entry(args as *mut *mut u8, null_mut(), leaf.rt.get(), std::ptr::null());
                if result != MISS {
                    return result.cast();
                }
            }
        }
        through_twin(this, args, nargsf, keywords)
    }
}

#[cold]
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
        let result = ffi::PyObject_Vectorcall(target, args, nargsf, keywords);
        if is_free {
            thread.leave_python_call();
        }
        result
    }
}
