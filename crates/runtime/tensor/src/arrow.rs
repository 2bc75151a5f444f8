//! The C structs of the Arrow data interface, and which arrays are a tensor without a copy.
//!
//! In: a schema and an array that a producer filled in. Out: address, shape and element type, with the offset applied,
//! or the reason why a copy would be needed. Nulls are refused, since their slots hold junk; fixed-size lists become
//! axes. Must not know: who releases the structs.

#![expect(unsafe_code, reason = "follows the pointers of structs that a foreign producer filled in")]

use std::ffi::{CStr, c_char, c_void};

use crate::dtype::{DType, Kind};
use crate::error::{Error, MAX_NDIM};

/// `ArrowSchema`.
#[repr(C)]
#[derive(Debug)]
pub struct Schema {
    pub format: *const c_char,
    pub name: *const c_char,
    pub metadata: *const c_char,
    pub flags: i64,
    pub n_children: i64,
    pub children: *mut *mut Schema,
    pub dictionary: *mut Schema,
    pub release: Option<unsafe extern "C" fn(*mut Schema)>,
    pub private_data: *mut c_void,
}

/// `ArrowArray`.
#[repr(C)]
#[derive(Debug)]
pub struct Array {
    pub length: i64,
    pub null_count: i64,
    pub offset: i64,
    pub n_buffers: i64,
    pub n_children: i64,
    pub buffers: *mut *const c_void,
    pub children: *mut *mut Array,
    pub dictionary: *mut Array,
    pub release: Option<unsafe extern "C" fn(*mut Array)>,
    pub private_data: *mut c_void,
}

const _: () = {
    assert!(size_of::<Schema>() == 72);
    assert!(size_of::<Array>() == 80);
};

/// What an array is as a tensor. `bits` says that `data` are packed booleans from bit `first_bit` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub data: *const u8,
    pub dtype: DType,
    pub shape: Vec<isize>,
    pub bits: Option<usize>,
}

/// Reads an array. With `allow_bits`, packed booleans are described instead of refused.
///
/// # Errors
/// `UnknownType`, `Unsayable` for nulls and dictionaries, `TooManyAxes`, `TooLarge`.
///
/// # Safety
/// Both structs follow the Arrow C data interface and have not been released.
pub unsafe fn view(schema: &Schema, array: &Array, allow_bits: bool) -> Result<View, Error> {
    let mut shape = Vec::new();
    let (mut schema, mut array) = (schema, array);
    let mut n_items = length(array.length)?;
    let mut first = length(array.offset)?;
    shape.push(n_items);
    loop {
        // SAFETY: a schema's format is a string, by contract.
        let format = unsafe { CStr::from_ptr(schema.format) }.to_str().unwrap_or("not UTF-8");
        if !schema.dictionary.is_null() {
            return Err(refuse("dictionary-encoded values", "decode them: array.dictionary_decode()"));
        }
        // SAFETY: by contract, for the elements that the parents reach.
        if unsafe { has_nulls(array, first, n_items) } {
            return Err(refuse("nulls", "fill them: array.fill_null(0), or drop them: array.drop_null()"));
        }
        if let Some(width) = format.strip_prefix("+w:") {
            let width: isize = width.parse().ok().filter(|&n| n >= 0).ok_or(Error::TooLarge)?;
            if shape.len() == MAX_NDIM {
                return Err(Error::TooManyAxes { ndim: MAX_NDIM + 1 });
            }
            shape.push(width);
            if array.n_children != 1 || schema.n_children != 1 {
                return Err(refuse("a fixed-size list without its child", "it is malformed"));
            }
            // SAFETY: a fixed-size list has one child in both structs.
            (schema, array) = unsafe { (&**schema.children, &**array.children) };
            n_items = n_items.checked_mul(width).ok_or(Error::TooLarge)?;
            first = first.checked_mul(width).ok_or(Error::TooLarge)?;
            first = first.checked_add(length(array.offset)?).ok_or(Error::TooLarge)?;
            continue;
        }
        let bits = format == "b" && allow_bits;
        let dtype = if bits { DType::native(Kind::Bool) } else { DType::from_arrow(format)? };
        if array.n_buffers != 2 {
            return Err(refuse("a primitive array without its two buffers", "it is malformed"));
        }
        // SAFETY: two buffers, as just tested.
        let data = unsafe { *array.buffers.add(1) }.cast::<u8>();
        if data.is_null() && n_items > 0 {
            return Err(refuse("values at address 0", "it is malformed"));
        }
        crate::layout::count(&shape, dtype.size())?;
        if bits {
            return Ok(View { data, dtype, shape, bits: Some(first as usize) });
        }
        let skipped = first.checked_mul(dtype.size() as isize).ok_or(Error::TooLarge)?;
        let data = if data.is_null() { data } else { data.wrapping_offset(skipped) };
        return Ok(View { data, dtype, shape, bits: None });
    }
}

fn refuse(what: &str, hint: &'static str) -> Error {
    Error::Unsayable { target: "a tensor", what: format!("Arrow's {what}"), hint }
}

fn length(value: i64) -> Result<isize, Error> {
    if value < 0 {
        return Err(Error::NegativeLength { axis: 0, length: value as isize });
    }
    Ok(value as isize)
}

/// True when one of the elements in use is null. `null_count` may be unknown (-1), and may count nulls outside.
///
/// # Safety
/// The array follows the interface and has a validity bit for each of these elements, if it has any.
unsafe fn has_nulls(array: &Array, first: isize, n_items: isize) -> bool {
    if array.null_count == 0 || n_items == 0 || array.n_buffers < 1 {
        return false;
    }
    // SAFETY: there is a first buffer; a missing bitmap means that nothing is null.
    let bitmap = unsafe { *array.buffers }.cast::<u8>();
    if bitmap.is_null() {
        return false;
    }
    // SAFETY: one bit for each element up to `first + n_items`, by contract.
    (first..first + n_items).any(|i| unsafe { *bitmap.offset(i / 8) } >> (i % 8) & 1 == 0)
}

/// Unpacks `count` bits from bit `first` on into bytes of 0 and 1.
///
/// # Safety
/// The bits are readable and `target` has `count` bytes.
pub unsafe fn unpack_bits(bits: *const u8, first: usize, count: usize, target: *mut u8) {
    for i in 0..count {
        let at = first + i;
        // SAFETY: by contract.
        unsafe { *target.add(i) = *bits.add(at / 8) >> (at % 8) & 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    fn schema(format: &CStr) -> Schema {
        Schema {
            format: format.as_ptr(),
            name: std::ptr::null(),
            metadata: std::ptr::null(),
            flags: 0,
            n_children: 0,
            children: null_mut(),
            dictionary: null_mut(),
            release: None,
            private_data: null_mut(),
        }
    }

    fn array(length: i64, offset: i64, null_count: i64, buffers: &mut [*const c_void]) -> Array {
        Array {
            length,
            null_count,
            offset,
            n_buffers: buffers.len() as i64,
            n_children: 0,
            buffers: buffers.as_mut_ptr(),
            children: null_mut(),
            dictionary: null_mut(),
            release: None,
            private_data: null_mut(),
        }
    }

    fn read(format: &CStr, array: &Array) -> Result<View, Error> {
        // SAFETY: the structs are built by these tests, complete.
        unsafe { view(&schema(format), array, true) }
    }

    #[test]
    fn offset_is_applied_and_only_nulls_in_use_count() {
        let values = [1i32, 2, 3, 4];
        let valid = [0b1101u8];
        let mut buffers = [valid.as_ptr().cast(), values.as_ptr().cast()];
        let seen = read(c"i", &array(2, 2, -1, &mut buffers)).unwrap();
        assert_eq!(seen.data, values[2..].as_ptr().cast());
        assert_eq!(seen.shape, [2]);
        assert!(read(c"i", &array(3, 1, 1, &mut buffers)).is_err());
        assert!(read(c"i", &array(0, 1, 1, &mut buffers)).is_ok());
    }

    #[test]
    fn a_fixed_size_list_is_an_axis() {
        let values = [0f32; 12];
        let mut own = [std::ptr::null()];
        let mut buffers = [std::ptr::null(), values.as_ptr().cast()];
        let mut child = array(11, 1, 0, &mut buffers);
        let mut child_schema = schema(c"f");
        let mut parent = array(2, 1, 0, &mut own);
        let mut parent_schema = schema(c"+w:3");
        let (mut children, mut schemas) = ([&raw mut child], [&raw mut child_schema]);
        (parent.n_children, parent.children) = (1, children.as_mut_ptr());
        (parent_schema.n_children, parent_schema.children) = (1, schemas.as_mut_ptr());
        // SAFETY: complete structs, as above.
        let seen = unsafe { view(&parent_schema, &parent, false) }.unwrap();
        assert_eq!(seen.shape, [2, 3]);
        assert_eq!(seen.data, values[4..].as_ptr().cast());
    }

    #[test]
    fn malformed_and_packed_arrays() {
        let mut none = [std::ptr::null(), std::ptr::null()];
        assert!(read(c"i", &array(1, 0, 0, &mut none)).is_err());
        assert!(read(c"i", &array(0, 0, 0, &mut none)).is_ok());
        assert!(read(c"i", &array(-1, 0, 0, &mut none)).is_err());
        assert!(read(c"i", &array(1, i64::MAX, 0, &mut none)).is_err());
        let bits = [0b0110u8];
        let mut packed = [std::ptr::null(), bits.as_ptr().cast()];
        let seen = read(c"b", &array(3, 1, 0, &mut packed)).unwrap();
        assert_eq!(seen.bits, Some(1));
        let mut out = [9u8; 3];
        // SAFETY: three bits from bit 1 on, and room for three bytes.
        unsafe { unpack_bits(bits.as_ptr(), 1, 3, out.as_mut_ptr()) };
        assert_eq!(out, [1, 1, 0]);
    }
}
