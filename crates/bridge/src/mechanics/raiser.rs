//! An object on which every operation raises one prepared exception.
//!
//! In: the exception that native code got from the operation at some offset. Out: an operand for that operation. When
//! native code runs inside an event at a loop head, CPython looks for the handler of the *loop head*. Where the
//! operation that raised is covered by another handler, the frame is instead left in front of that operation with
//! one operand exchanged: the operation runs again, the operand raises at once, and no effect happens twice.
#![expect(unsafe_code, reason = "defines a C-level type whose slots all raise")]

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;

use super::bytecode::{Opcodes, Shape};
use super::raised::Raised;

#[repr(C)]
struct Raiser {
    head: ffi::PyObject,
    /// None once raised.
    raised: Raised,
}

static TYPE: OnceLock<Py<PyAny>> = OnceLock::new();

/// Position from the top of the stack (1 is the top) of the operand that the operation touches first, by the
/// opcode's name; calls are found by [`operand`] itself.
pub(super) fn operand_of(name: &str) -> u8 {
    match name {
        "UNARY_NEGATIVE" | "UNARY_POSITIVE" | "UNARY_INVERT" | "UNARY_NOT" | "TO_BOOL" | "GET_ITER"
        | "FOR_ITER" | "LOAD_ATTR" | "LOAD_METHOD" | "STORE_ATTR" | "DELETE_ATTR" | "UNPACK_SEQUENCE"
        | "UNPACK_EX" | "CONTAINS_OP" | "LIST_EXTEND" | "SET_UPDATE" | "SET_ADD" => 1,
        "BINARY_OP" | "BINARY_SUBSCR" | "COMPARE_OP" | "STORE_SUBSCR" | "DELETE_SUBSCR" | "MAP_ADD" => 2,
        "BINARY_SLICE" | "STORE_SLICE" | "LOAD_SUPER_ATTR" => 3,
        _ if name.contains("JUMP_") && (name.contains("IF_TRUE") || name.contains("IF_FALSE")) => 1,
        _ => 0,
    }
}

/// Index in a stack of `stack.len()` entries of the operand to exchange, `None` when this operation has none that serves.
pub(super) fn operand(
    ops: &Opcodes,
    shape: &Shape,
    unit: u32,
    is_null: impl Fn(usize) -> bool,
    depth: usize,
) -> Option<usize> {
    let op = shape.bytecode[2 * unit as usize];
    let from_top = if op == ops.call || Some(op) == ops.precall || Some(op) == ops.call_kw {
        let n_args = shape.arg_at(ops, unit) as usize + usize::from(Some(op) == ops.call_kw);
        // 3.11 and 3.12: [NULL, callable, args] or [method, self, args]; 3.13: [callable, self or NULL, args].
        let lower = depth.checked_sub(n_args + 2)?;
        if !cfg!(Py_3_13) && is_null(lower) { n_args + 1 } else { n_args + 2 }
    } else {
        usize::from(ops.raise_operand[usize::from(op)])
    };
    if from_top == 0 { None } else { depth.checked_sub(from_top) }
}

/// Makes the type, once.
///
/// # Errors
/// What `PyType_FromSpec` raises.
pub(super) fn prepare(py: Python<'_>) -> PyResult<()> {
    if TYPE.get().is_some() {
        return Ok(());
    }
    let object = |slot: c_int| ffi::PyType_Slot { slot, pfunc: raise_object as *mut c_void };
    let status = |slot: c_int| ffi::PyType_Slot { slot, pfunc: raise_status as *mut c_void };
    let mut slots = vec![
        ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: dealloc as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_hash, pfunc: raise_hash as *mut c_void },
    ];
    slots.extend(
        [
            ffi::Py_nb_add,
            ffi::Py_nb_subtract,
            ffi::Py_nb_multiply,
            ffi::Py_nb_matrix_multiply,
            ffi::Py_nb_remainder,
            ffi::Py_nb_power,
            ffi::Py_nb_lshift,
            ffi::Py_nb_rshift,
            ffi::Py_nb_and,
            ffi::Py_nb_or,
            ffi::Py_nb_xor,
            ffi::Py_nb_floor_divide,
            ffi::Py_nb_true_divide,
            ffi::Py_nb_negative,
            ffi::Py_nb_positive,
            ffi::Py_nb_invert,
            ffi::Py_mp_subscript,
            ffi::Py_tp_richcompare,
            ffi::Py_tp_getattro,
            ffi::Py_tp_iter,
            ffi::Py_tp_iternext,
            ffi::Py_tp_call,
        ]
        .map(object),
    );
    slots.extend(
        [ffi::Py_nb_bool, ffi::Py_mp_ass_subscript, ffi::Py_tp_setattro, ffi::Py_sq_contains].map(status),
    );
    slots.push(ffi::PyType_Slot { slot: 0, pfunc: std::ptr::null_mut() });
    let mut spec = ffi::PyType_Spec {
        name: c"overdrive._core.Raiser".as_ptr(),
        basicsize: size_of::<Raiser>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION) as _,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the slots are copied; each function ignores all arguments but the first, which every slot passes.
    let ty = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))? };
    let _ = TYPE.set(ty.unbind());
    Ok(())
}

/// A new object that raises `raised`; null without memory.
///
/// # Safety
/// The GIL is held.
pub(super) unsafe fn new(raised: Raised) -> *mut ffi::PyObject {
    let Some(ty) = TYPE.get() else { return std::ptr::null_mut() };
    // SAFETY: the type's basicsize is Raiser's.
    unsafe {
        let object = ffi::PyType_GenericAlloc(ty.as_ptr().cast(), 0);
        if !object.is_null() {
            (&raw mut (*object.cast::<Raiser>()).raised).write(raised);
        }
        object
    }
}

unsafe fn raise(object: *mut ffi::PyObject) {
    // SAFETY: a Raiser, the GIL is held; restored without touching context or traceback.
    unsafe {
        std::mem::replace(&mut (*object.cast::<Raiser>()).raised, Raised::none()).restore();
        if ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_SetString(ffi::PyExc_SystemError, c"overdrive: exception raised twice".as_ptr());
        }
    }
}

unsafe extern "C" fn raise_object(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a slot of Raiser.
    unsafe { raise(object) };
    std::ptr::null_mut()
}

unsafe extern "C" fn raise_status(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: a slot of Raiser.
    unsafe { raise(object) };
    -1
}

unsafe extern "C" fn raise_hash(object: *mut ffi::PyObject) -> ffi::Py_hash_t {
    // SAFETY: a slot of Raiser.
    unsafe { raise(object) };
    -1
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the last reference is gone.
    unsafe {
        let ty = ffi::Py_TYPE(object);
        std::ptr::drop_in_place(&raw mut (*object.cast::<Raiser>()).raised);
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(ty.cast());
    }
}
