//! Iteration, and what native code must know of an iterator that it finds in a running frame.
//!
//! The fields of range, list and tuple iterators are private to CPython; `layout::self_test` compares them with
//! behaviour before any of this is offered.
#![expect(unsafe_code, reason = "entries of the object table: called by machine code, call CPython")]

use std::ptr;

use pyo3::ffi::{self, Py_ssize_t, PyObject};

use super::python::{Owned, raised_is};

pub(super) unsafe extern "C" fn get_iter(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe { ffi::PyObject_GetIter(object) }
}

/// FOR_ITER's step. Null without exception, or with StopIteration: the end.
pub(super) unsafe extern "C" fn next(iterator: *mut PyObject) -> *mut PyObject {
    // SAFETY: the table's contract: the object came out of `iter`, so it has the slot; one without it (a class that
    // lost its `__next__`) is refused as CPython's own slot does.
    unsafe {
        match (*ffi::Py_TYPE(iterator)).tp_iternext {
            Some(step) => step(iterator),
            None => super::python::internal_error(c"overdrive: not an iterator"),
        }
    }
}

pub(super) unsafe extern "C" fn next_failed() -> i64 {
    // SAFETY: the table's contract.
    unsafe {
        if ffi::PyErr_Occurred().is_null() {
            return 0;
        }
        if raised_is(ffi::PyExc_StopIteration) {
            ffi::PyErr_Clear();
            return 0;
        }
        -1
    }
}

pub(super) unsafe extern "C" fn is_unique(object: *mut PyObject) -> u8 {
    // SAFETY: the table's contract.
    u8::from(unsafe { ffi::Py_REFCNT(object) } == 1)
}

/// `range_iterator`.
#[cfg(not(Py_3_12))]
#[repr(C)]
struct RangeIter {
    head: PyObject,
    index: i64,
    start: i64,
    step: i64,
    len: i64,
}

/// `range_iterator`: start and len change as it advances.
#[cfg(Py_3_12)]
#[repr(C)]
struct RangeIter {
    head: PyObject,
    start: i64,
    step: i64,
    len: i64,
}

impl RangeIter {
    fn next(&self) -> i64 {
        #[cfg(not(Py_3_12))]
        return self.start.wrapping_add(self.index.min(self.len).wrapping_mul(self.step));
        #[cfg(Py_3_12)]
        return self.start;
    }

    /// The first value that is not produced: for an exhausted one the same as `next`.
    fn stop(&self) -> i64 {
        self.start.wrapping_add(self.len.wrapping_mul(self.step))
    }
}

pub(super) unsafe extern "C" fn range_iter_next(iterator: *mut PyObject) -> i64 {
    // SAFETY: the table's contract: the exact type has been guarded.
    unsafe { (*iterator.cast::<RangeIter>()).next() }
}

pub(super) unsafe extern "C" fn range_iter_stop(iterator: *mut PyObject) -> i64 {
    // SAFETY: as above.
    unsafe { (*iterator.cast::<RangeIter>()).stop() }
}

pub(super) unsafe extern "C" fn range_iter_step(iterator: *mut PyObject) -> i64 {
    // SAFETY: as above.
    unsafe { (*iterator.cast::<RangeIter>()).step }
}

/// Iterators over list, tuple, bytes, bytearray, str, and the one over `__getitem__` that arrays use.
#[repr(C)]
pub(super) struct SeqIter {
    head: PyObject,
    /// Position of the next item; negative in an exhausted list iterator of 3.13.
    pub(super) index: Py_ssize_t,
    /// Null when exhausted.
    pub(super) seq: *mut PyObject,
}

pub(super) unsafe extern "C" fn seq_iter_seq(iterator: *mut PyObject, result: *mut *mut PyObject) -> u8 {
    // SAFETY: the table's contract: the exact type has been guarded.
    unsafe {
        let seq = (*iterator.cast::<SeqIter>()).seq;
        if seq.is_null() {
            return 0;
        }
        *result = Owned::share(seq).into_ptr();
        1
    }
}

pub(super) unsafe extern "C" fn seq_iter_pos(iterator: *mut PyObject) -> i64 {
    // SAFETY: as above.
    unsafe { (*iterator.cast::<SeqIter>()).index as i64 }
}

/// An iterator over `seq` whose next item is the one at `position`; a negative position means exhausted.
///
/// In a list or bytearray the position is written as it is, not clamped to the length as `__setstate__` would: it may have
/// shrunk and may grow again before the next step.
///
/// # Safety
/// GIL held, `seq` alive.
pub(super) unsafe fn seq_iter_at(seq: *mut PyObject, position: i64) -> Option<Owned> {
    // SAFETY: the caller's contract; the iterator is new and of a type that has these fields.
    unsafe {
        let iterator = Owned::new(ffi::PyObject_GetIter(seq))?;
        if ffi::PyUnicode_CheckExact(seq) != 0 {
            return super::strings::str_iter_at(iterator, position);
        }
        let known = [
            &raw mut ffi::PyListIter_Type,
            &raw mut ffi::PyTupleIter_Type,
            &raw mut ffi::PyBytesIter_Type,
            &raw mut ffi::PyByteArrayIter_Type,
            &raw mut ffi::PySeqIter_Type,
        ];
        if !known.contains(&ffi::Py_TYPE(iterator.as_ptr())) {
            super::python::internal_error(c"overdrive: no iterator with a position");
            return None;
        }
        if position >= 0 {
            let fixed = ffi::PyTuple_CheckExact(seq) != 0 || ffi::PyBytes_CheckExact(seq) != 0;
            let end = if fixed { ffi::Py_SIZE(seq) } else { Py_ssize_t::MAX };
            (*iterator.as_ptr().cast::<SeqIter>()).index = (position as Py_ssize_t).min(end);
        } else {
            let fields = &mut *iterator.as_ptr().cast::<SeqIter>();
            // From 3.13 on a list iterator says so by its index, and does not look at the sequence.
            if cfg!(Py_3_13) && ffi::PyList_CheckExact(seq) != 0 {
                fields.index = -1;
            }
            drop(Owned::new(ptr::replace(&mut fields.seq, ptr::null_mut())));
        }
        Some(iterator)
    }
}
