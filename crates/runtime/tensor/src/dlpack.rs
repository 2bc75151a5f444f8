//! The C structs of DLPack (1.x and the older unversioned one), and a view's layout in its terms.
//!
//! In: shape and strides in bytes. Out: the structs that a capsule carries, with strides in elements, or the reason why
//! DLPack cannot say it. Sizes are asserted, since both sides are compiled apart. Must not know: capsules.

use std::ffi::c_void;

use crate::dtype::DType;
use crate::error::{Error, MAX_NDIM};

/// `kDLCPU`.
pub const CPU: i32 = 1;
/// `kDLCUDAHost`: pinned, and an ordinary address for the CPU.
pub const CUDA_HOST: i32 = 3;
/// `kDLROCMHost`, the same on the other vendor's.
pub const ROCM_HOST: i32 = 11;

/// The version that is written. Any 1.x is read: minor versions add only.
pub const VERSION: Version = Version { major: 1, minor: 0 };
/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
pub const READ_ONLY: u64 = 1;
/// `DLPACK_FLAG_BITMASK_IS_COPIED`.
pub const IS_COPIED: u64 = 2;
/// `DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED`.
pub const SUBBYTE_PADDED: u64 = 4;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    pub device_type: i32,
    pub device_id: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct Tensor {
    pub data: *mut c_void,
    pub device: Device,
    pub ndim: i32,
    pub dtype: DataType,
    /// `ndim` lengths.
    pub shape: *mut i64,
    /// `ndim` strides in elements; null means row-major.
    pub strides: *mut i64,
    /// From `data` to the first element.
    pub byte_offset: u64,
}

/// `DLManagedTensor`, in a capsule named `dltensor`.
#[repr(C)]
#[derive(Debug)]
pub struct Managed {
    pub tensor: Tensor,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLManagedTensorVersioned`, in a capsule named `dltensor_versioned`.
#[repr(C)]
#[derive(Debug)]
pub struct ManagedVersioned {
    pub version: Version,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    pub flags: u64,
    pub tensor: Tensor,
}

const _: () = {
    assert!(size_of::<Tensor>() == 48);
    assert!(size_of::<Managed>() == 64);
    assert!(size_of::<ManagedVersioned>() == 80);
};

/// `"cpu"`, `"cuda"` and so on, for messages.
pub fn device_name(device_type: i32) -> &'static str {
    match device_type {
        1 => "cpu",
        2 => "cuda",
        3 => "cuda_host",
        4 => "opencl",
        7 => "vulkan",
        8 => "metal",
        9 => "vpi",
        10 => "rocm",
        11 => "rocm_host",
        12 => "ext_dev",
        13 => "cuda_managed",
        14 => "oneapi",
        15 => "webgpu",
        16 => "hexagon",
        17 => "maia",
        18 => "trn",
        _ => "unknown",
    }
}

/// True when an ordinary load reaches the memory.
pub fn is_host(device_type: i32) -> bool {
    matches!(device_type, CPU | CUDA_HOST | ROCM_HOST)
}

/// Strides in elements.
///
/// # Errors
/// `Unsayable` when a stride in use is no whole number of elements.
#[inline]
pub fn element_strides(
    shape: &[isize],
    strides: &[isize],
    dtype: DType,
    out: &mut [i64],
) -> Result<(), Error> {
    let size = dtype.size() as isize;
    let unused = shape.contains(&0);
    for (axis, out) in out.iter_mut().enumerate().take(shape.len()) {
        let stride = strides[axis];
        if stride % size != 0 && shape[axis] != 1 && !unused {
            return Err(Error::Unsayable {
                target: "DLPack",
                what: format!("a stride of {stride} bytes between elements of {size}"),
                hint: "copy it: tensor(x, copy=True)",
            });
        }
        *out = (stride / size) as i64;
    }
    Ok(())
}

/// Shape and strides in bytes of a foreign tensor, into buffers of `MAX_NDIM`.
///
/// # Errors
/// `TooManyAxes`, `TooLarge` when a stride in bytes does not fit.
pub fn byte_layout(
    lengths: &[i64],
    element_strides: Option<&[i64]>,
    dtype: DType,
    shape: &mut [isize; MAX_NDIM],
    strides: &mut [isize; MAX_NDIM],
) -> Result<(), Error> {
    let ndim = lengths.len();
    if ndim > MAX_NDIM {
        return Err(Error::TooManyAxes { ndim });
    }
    for (out, &length) in shape.iter_mut().zip(lengths) {
        *out = length as isize;
    }
    crate::layout::count(&shape[..ndim], dtype.size())?;
    match element_strides {
        None => crate::layout::row_major(&shape[..ndim], dtype.size(), &mut strides[..ndim]),
        Some(given) => {
            for axis in 0..ndim {
                let bytes = (given[axis] as isize).checked_mul(dtype.size() as isize);
                strides[axis] = match bytes {
                    Some(bytes) => bytes,
                    None if lengths[axis] <= 1 => 0,
                    None => return Err(Error::TooLarge),
                };
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Kind;

    #[test]
    fn strides_go_there_and_back() {
        let dtype = DType::native(Kind::F64);
        let mut out = [0; 2];
        element_strides(&[4, 3], &[-48, 16], dtype, &mut out).unwrap();
        assert_eq!(out, [-6, 2]);
        let (mut shape, mut strides) = ([0; MAX_NDIM], [0; MAX_NDIM]);
        byte_layout(&[4, 3], Some(&out), dtype, &mut shape, &mut strides).unwrap();
        assert_eq!((&shape[..2], &strides[..2]), (&[4, 3][..], &[-48, 16][..]));
        byte_layout(&[4, 3], None, dtype, &mut shape, &mut strides).unwrap();
        assert_eq!(&strides[..2], &[24, 8]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let dtype = DType::native(Kind::F64);
        assert!(element_strides(&[2], &[12], dtype, &mut [0]).is_err());
        assert!(element_strides(&[1], &[12], dtype, &mut [0]).is_ok());
        assert!(element_strides(&[2, 0], &[12, 3], dtype, &mut [0; 2]).is_ok());
        let (mut shape, mut strides) = ([0; MAX_NDIM], [0; MAX_NDIM]);
        assert_eq!(
            byte_layout(&[2], Some(&[i64::MAX]), dtype, &mut shape, &mut strides),
            Err(Error::TooLarge)
        );
        assert!(byte_layout(&[-2], None, dtype, &mut shape, &mut strides).is_err());
        assert!(byte_layout(&[1; 65], None, dtype, &mut shape, &mut strides).is_err());
    }
}
