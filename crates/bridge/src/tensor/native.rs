//! Tensors as compiled code sees them: a header like that of NumPy's arrays, with a number where they have a dtype.
//!
//! In: a tensor's address, element type and strides. Out: its flags and tag, and for the object table which element type
//! a tag means. Weak tensors, misaligned memory and element types without a native form have no tag or no flag that a
//! guard asks for, so that they stay with CPython.
#![expect(unsafe_code, reason = "reads a tensor object through its C layout")]

use std::mem::offset_of;

use overdrive_base::flavour::DType as Native;
use overdrive_tensor::dtype::{DType, Kind};
use pyo3::ffi;

use super::object::{self, TensorObject};
use crate::objects::layout::array;

/// Flags with NumPy's values; both are what guards ask for.
pub(super) const ALIGNED: i32 = array::ALIGNED;
pub(super) const WRITEABLE: i32 = array::WRITEABLE;

const _: () = {
    assert!(offset_of!(TensorObject, data) == array::DATA as usize);
    assert!(offset_of!(TensorObject, ndim) == array::NDIM as usize);
    assert!(offset_of!(TensorObject, dims) == array::DIMS as usize);
    assert!(offset_of!(TensorObject, strides) == array::STRIDES as usize);
    assert!(offset_of!(TensorObject, tag) == array::DESCR as usize);
    assert!(offset_of!(TensorObject, flags) == array::FLAGS as usize);
};

/// The tag of each element type with a native form: its number and one, so that no tag is 0.
pub(crate) fn tags() -> [usize; Native::ALL.len()] {
    Native::ALL.map(|dtype| dtype as usize + 1)
}

/// The tag of an element type, 0 when it has no native form.
#[inline]
pub(super) fn tag_of(dtype: DType) -> usize {
    let native = match dtype.kind {
        _ if dtype.swapped => return 0,
        Kind::F64 => Native::F64,
        Kind::F32 => Native::F32,
        Kind::I64 => Native::I64,
        Kind::I32 => Native::I32,
        Kind::U8 => Native::U8,
        Kind::Bool => Native::Bool,
        _ => return 0,
    };
    native as usize + 1
}

/// Whether each element lies at a multiple of its words' size.
#[inline]
pub(super) fn is_aligned(data: *const u8, dtype: DType, strides: &[isize]) -> bool {
    let bits = strides.iter().fold(data.addr(), |bits, stride| bits | stride.cast_unsigned());
    bits & (dtype.word() - 1) == 0
}

/// Address of the type `Tensor`; 0 before it is made.
pub(crate) fn type_address() -> usize {
    object::type_object() as usize
}

/// Element type and rank of a tensor that compiled code may read.
///
/// # Safety
/// A live tensor.
pub(crate) unsafe fn seen(tensor: *mut ffi::PyObject) -> Option<(Native, u8)> {
    // SAFETY: by contract.
    let this = unsafe { &*tensor.cast::<TensorObject>() };
    let dtype = Native::ALL.into_iter().find(|dtype| *dtype as usize + 1 == this.tag)?;
    let is_readable = this.flags & ALIGNED != 0;
    is_readable.then_some((dtype, u8::try_from(this.ndim).ok()?))
}
