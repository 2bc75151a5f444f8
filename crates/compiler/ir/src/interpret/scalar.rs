//! Values that the interpreter's registers hold, and their form in memory.
//!
//! A pointer knows the object it points into and how often that object had moved its memory, so that an access out of
//! range or after a resize is an error and never a read.

use std::ops::Range;

use overdrive_base::flavour::{DType, Flavour, Ty};

use crate::interpret::heap::{HeapError, Ref};

/// A value of the IR. Floats compare by their bits.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    I1(bool),
    I64(i64),
    F32(f32),
    F64(f64),
    /// `None`: the null reference.
    Obj(Option<Ref>),
    Ptr(Pointer),
}

/// A place inside an object's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    pub owner: Ref,
    pub generation: u32,
    /// In bytes; may be out of range as long as nothing is accessed there.
    pub offset: i64,
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        match (self, other) {
            (Scalar::I1(a), Scalar::I1(b)) => a == b,
            (Scalar::I64(a), Scalar::I64(b)) => a == b,
            (Scalar::F32(a), Scalar::F32(b)) => a.to_bits() == b.to_bits(),
            (Scalar::F64(a), Scalar::F64(b)) => a.to_bits() == b.to_bits(),
            (Scalar::Obj(a), Scalar::Obj(b)) => a == b,
            (Scalar::Ptr(a), Scalar::Ptr(b)) => a == b,
            _ => false,
        }
    }
}

impl Scalar {
    pub fn ty(self) -> Ty {
        match self {
            Scalar::I1(_) => Ty::I1,
            Scalar::I64(_) => Ty::I64,
            Scalar::F32(_) => Ty::F32,
            Scalar::F64(_) => Ty::F64,
            Scalar::Obj(_) => Ty::Obj,
            Scalar::Ptr(_) => Ty::Ptr,
        }
    }

    /// The value as a number of a flavour, held as the flavour prescribes: `NpI32` and `NpU8` wrap.
    pub fn in_flavour(self, flavour: Flavour) -> Scalar {
        match (flavour, self) {
            (Flavour::NpI32, Scalar::I64(n)) => Scalar::I64(i64::from(n as i32)),
            (Flavour::NpU8, Scalar::I64(n)) => Scalar::I64(i64::from(n as u8)),
            _ => self,
        }
    }

    /// Reads one element.
    pub(crate) fn from_bytes(dtype: DType, bytes: &[u8]) -> Scalar {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let n = i64::from_le_bytes(word);
        match dtype {
            DType::F64 => Scalar::F64(f64::from_bits(n as u64)),
            DType::F32 => Scalar::F32(f32::from_bits(n as u32)),
            DType::I64 => Scalar::I64(n),
            DType::I32 => Scalar::I64(i64::from(n as i32)),
            DType::U8 => Scalar::I64(n),
            DType::Bool => Scalar::I1(n != 0),
        }
    }

    /// The bytes of one element; `I64` is truncated to the element's size.
    pub(crate) fn to_bytes(self, dtype: DType) -> Result<Vec<u8>, HeapError> {
        let word = match (dtype, self) {
            (DType::F64, Scalar::F64(x)) => x.to_bits(),
            (DType::F32, Scalar::F32(x)) => u64::from(x.to_bits()),
            (DType::I64 | DType::I32 | DType::U8, Scalar::I64(n)) => n as u64,
            (DType::Bool, Scalar::I1(b)) => u64::from(b),
            _ => return Err(format!("{self:?} is not an element of {}", dtype.name())),
        };
        Ok(word.to_le_bytes()[..dtype.size() as usize].to_vec())
    }
}

impl Pointer {
    /// The bytes of one element, checked against the memory that is there now.
    pub(crate) fn range(self, dtype: DType, len: usize, generation: u32) -> Result<Range<usize>, HeapError> {
        if self.generation != generation {
            return Err("pointer into memory that was moved by a resize".to_owned());
        }
        let size = dtype.size();
        if self.offset < 0 || self.offset + size > len as i64 {
            return Err(format!("access of {size} bytes at {} of {len}", self.offset));
        }
        if self.offset % size != 0 {
            return Err(format!("unaligned access of {size} bytes at {}", self.offset));
        }
        Ok(self.offset as usize..(self.offset + size) as usize)
    }
}
