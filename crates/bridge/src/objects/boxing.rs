//! Unboxed values into objects, and exact ints back.
//!
//! NumPy scalars are allocated by their type and get their value written, which is what NumPy does itself.
#![expect(unsafe_code, reason = "entries of the object table: called by machine code, call CPython")]

use std::ptr;

use overdrive_base::flavour::Flavour;
use pyo3::ffi::{self, PyObject, PyTypeObject};

use super::layout::{NP_SCALAR_VALUE, numpy};
use super::python::{Owned, internal_error, or_null};

/// A NumPy scalar of this flavour with this value.
///
/// # Safety
/// GIL held; `T` is the flavour's C type.
unsafe fn np_scalar<T>(flavour: Flavour, value: T) -> *mut PyObject {
    let Some(numpy) = numpy() else {
        return internal_error(c"overdrive: numpy is not loaded");
    };
    let ty = numpy.type_of(flavour.known_type()) as *mut PyTypeObject;
    // SAFETY: the caller's contract; NumPy's scalar types are static types whose value follows the object's head.
    unsafe {
        let Some(allocate) = (*ty).tp_alloc else {
            return internal_error(c"overdrive: a NumPy type without allocator");
        };
        let scalar = allocate(ty, 0);
        if !scalar.is_null() {
            scalar.cast::<u8>().add(NP_SCALAR_VALUE as usize).cast::<T>().write(value);
        }
        scalar
    }
}

pub(super) unsafe extern "C" fn box_np_f64(value: f64) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe { np_scalar(Flavour::NpF64, value) }
}

pub(super) unsafe extern "C" fn box_np_f32(value: f32) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe { np_scalar(Flavour::NpF32, value) }
}

pub(super) unsafe extern "C" fn box_np_i64(value: i64) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe { np_scalar(Flavour::NpI64, value) }
}

pub(super) unsafe extern "C" fn box_np_i32(value: i64) -> *mut PyObject {
    // SAFETY: the table's contract; the value is held sign-extended.
    unsafe { np_scalar(Flavour::NpI32, value as i32) }
}

pub(super) unsafe extern "C" fn box_np_u8(value: i64) -> *mut PyObject {
    // SAFETY: the table's contract; the value is held zero-extended.
    unsafe { np_scalar(Flavour::NpU8, value as u8) }
}

/// `iter(range(start, stop, step))`; step ≠ 0.
pub(super) unsafe extern "C" fn box_range_iter(start: i64, stop: i64, step: i64) -> *mut PyObject {
    // SAFETY: the table's contract; all references are owned or null, the list of arguments ends in null.
    unsafe {
        let ints = [start, stop, step].map(|v| Owned::new(ffi::PyLong_FromLongLong(v)));
        let [Some(start), Some(stop), Some(step)] = ints else { return ptr::null_mut() };
        let range = Owned::new(ffi::PyObject_CallFunctionObjArgs(
            (&raw mut ffi::PyRange_Type).cast(),
            start.as_ptr(),
            stop.as_ptr(),
            step.as_ptr(),
            ptr::null_mut::<PyObject>(),
        ));
        or_null(range.and_then(|range| Owned::new(ffi::PyObject_GetIter(range.as_ptr()))))
    }
}

pub(super) unsafe extern "C" fn unbox_int(object: *mut PyObject, result: *mut i64) -> u8 {
    // SAFETY: the table's contract; an exact int converts without running Python code.
    unsafe {
        if ffi::PyLong_CheckExact(object) == 0 {
            return 0;
        }
        let mut overflow = 0;
        let value = ffi::PyLong_AsLongLongAndOverflow(object, &mut overflow);
        if overflow != 0 {
            return 0;
        }
        *result = value;
        1
    }
}

/// A new reference to the object of this flavour for a spilled value (`Exit::values`), or null with an exception.
///
/// # Safety
/// GIL held; `bits` holds the flavour's machine type as the code generator spills it.
pub(super) unsafe fn box_spilled(flavour: Flavour, bits: u64) -> *mut PyObject {
    // SAFETY: the caller's contract.
    unsafe {
        match flavour {
            Flavour::Int => ffi::PyLong_FromLongLong(bits as i64),
            Flavour::Float => ffi::PyFloat_FromDouble(f64::from_bits(bits)),
            Flavour::Bool => {
                let singleton = if bits & 1 != 0 { ffi::Py_True() } else { ffi::Py_False() };
                Owned::share(singleton).into_ptr()
            }
            Flavour::NpF64 => box_np_f64(f64::from_bits(bits)),
            Flavour::NpF32 => box_np_f32(f32::from_bits(bits as u32)),
            Flavour::NpI64 => box_np_i64(bits as i64),
            Flavour::NpI32 => box_np_i32(bits as i64),
            Flavour::NpU8 => box_np_u8(bits as i64),
            Flavour::NpBool => match numpy() {
                Some(numpy) => {
                    let singleton = if bits & 1 != 0 { numpy.true_ } else { numpy.false_ };
                    Owned::share(singleton as *mut PyObject).into_ptr()
                }
                None => internal_error(c"overdrive: numpy is not loaded"),
            },
        }
    }
}
