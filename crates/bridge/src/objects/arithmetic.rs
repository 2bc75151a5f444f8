//! Operators on objects: binary, in place, unary, comparison, truth, membership.
//!
//! The numbers of operators are CPython's: `NB_ADD` … `NB_XOR` (0–12) of BINARY_OP, `Py_LT` … `Py_GE` (0–5).
#![expect(unsafe_code, reason = "entries of the object table: called by machine code, call CPython")]

use std::ffi::c_int;

use pyo3::ffi::{self, PyObject};

use super::python::internal_error;

unsafe extern "C" fn power(a: *mut PyObject, b: *mut PyObject) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe { ffi::PyNumber_Power(a, b, ffi::Py_None()) }
}

unsafe extern "C" fn inplace_power(a: *mut PyObject, b: *mut PyObject) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe { ffi::PyNumber_InPlacePower(a, b, ffi::Py_None()) }
}

type Operator = unsafe extern "C" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;

const BINARY: [Operator; 13] = [
    ffi::PyNumber_Add,
    ffi::PyNumber_And,
    ffi::PyNumber_FloorDivide,
    ffi::PyNumber_Lshift,
    ffi::PyNumber_MatrixMultiply,
    ffi::PyNumber_Multiply,
    ffi::PyNumber_Remainder,
    ffi::PyNumber_Or,
    power,
    ffi::PyNumber_Rshift,
    ffi::PyNumber_Subtract,
    ffi::PyNumber_TrueDivide,
    ffi::PyNumber_Xor,
];

const INPLACE: [Operator; 13] = [
    ffi::PyNumber_InPlaceAdd,
    ffi::PyNumber_InPlaceAnd,
    ffi::PyNumber_InPlaceFloorDivide,
    ffi::PyNumber_InPlaceLshift,
    ffi::PyNumber_InPlaceMatrixMultiply,
    ffi::PyNumber_InPlaceMultiply,
    ffi::PyNumber_InPlaceRemainder,
    ffi::PyNumber_InPlaceOr,
    inplace_power,
    ffi::PyNumber_InPlaceRshift,
    ffi::PyNumber_InPlaceSubtract,
    ffi::PyNumber_InPlaceTrueDivide,
    ffi::PyNumber_InPlaceXor,
];

pub(super) unsafe extern "C" fn binary(op: i64, a: *mut PyObject, b: *mut PyObject) -> *mut PyObject {
    match usize::try_from(op).ok().and_then(|op| BINARY.get(op)) {
        // SAFETY: the table's contract.
        Some(operator) => unsafe { operator(a, b) },
        None => internal_error(c"overdrive: unknown binary operator"),
    }
}

pub(super) unsafe extern "C" fn inplace(op: i64, a: *mut PyObject, b: *mut PyObject) -> *mut PyObject {
    match usize::try_from(op).ok().and_then(|op| INPLACE.get(op)) {
        // SAFETY: the table's contract.
        Some(operator) => unsafe { operator(a, b) },
        None => internal_error(c"overdrive: unknown in-place operator"),
    }
}

pub(super) unsafe extern "C" fn unary(op: i64, a: *mut PyObject) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe {
        match op {
            0 => ffi::PyNumber_Negative(a),
            1 => ffi::PyNumber_Positive(a),
            2 => ffi::PyNumber_Invert(a),
            _ => internal_error(c"overdrive: unknown unary operator"),
        }
    }
}

pub(super) unsafe extern "C" fn compare(op: i64, a: *mut PyObject, b: *mut PyObject) -> *mut PyObject {
    if !(0..6).contains(&op) {
        return internal_error(c"overdrive: unknown comparison");
    }
    // SAFETY: the table's contract; the operator is one of CPython's six.
    unsafe { ffi::PyObject_RichCompare(a, b, op as c_int) }
}

pub(super) unsafe extern "C" fn is_true(a: *mut PyObject) -> i64 {
    // SAFETY: the table's contract.
    i64::from(unsafe { ffi::PyObject_IsTrue(a) })
}

pub(super) unsafe extern "C" fn contains(container: *mut PyObject, item: *mut PyObject) -> i64 {
    // SAFETY: the table's contract.
    i64::from(unsafe { ffi::PySequence_Contains(container, item) })
}
