//! What stands behind a tensor, and gives it back when the tensor dies.
//!
//! In: a block of ours, or what a foreign producer handed over. Out: its release, once, by `Drop`. A NumPy array or
//! another tensor needs none of this: the tensor's reference to the owner is enough.
#![expect(unsafe_code, reason = "calls the release functions of foreign producers")]

use std::sync::Arc;

use overdrive_tensor::block::Block;
use overdrive_tensor::mapped::MappedFile;
use overdrive_tensor::shm::ring::Message;
use overdrive_tensor::shm::segment::Piece;
use overdrive_tensor::{arrow, dlpack};
use pyo3::ffi;

use super::arena;

/// The holder. Dropped with the GIL held.
#[expect(dead_code, reason = "most variants are there to be dropped")]
pub(super) enum Memory {
    /// The owner object keeps it.
    Owner,
    /// Private memory of ours.
    Block(Block),
    /// Numbers that were computed.
    Floats(Vec<f32>),
    /// A buffer that an exporter lent. Boxed: its `shape` may point into it.
    Buffer(Box<ffi::Py_buffer>),
    /// A producer's DLPack tensor.
    Managed(Managed),
    /// A producer's Arrow array.
    Arrow(Box<ArrowArray>),
    /// A piece of an arena, which counts its views.
    Arena(arena::Lease),
    /// A block of shared memory that this process holds.
    Shared(Piece),
    /// A message in its slot.
    Slot(Message),
    /// Part of a file.
    Mapped(Arc<MappedFile>),
}

impl Memory {
    /// Whether the release runs no code of anybody's, which could touch a pending exception.
    pub(super) fn is_quiet(&self) -> bool {
        matches!(
            self,
            Memory::Owner | Memory::Block(_) | Memory::Floats(_) | Memory::Arena(_) | Memory::Mapped(_)
        )
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Memory::Buffer(view) = self {
            // SAFETY: filled in by PyObject_GetBuffer, released once, with the GIL held.
            unsafe { ffi::PyBuffer_Release(&mut **view) };
        }
    }
}

/// A DLPack tensor that we took out of its capsule and must delete.
pub(super) enum Managed {
    Old(*mut dlpack::Managed),
    Versioned(*mut dlpack::ManagedVersioned),
}

impl Managed {
    /// The description inside.
    pub(super) fn tensor(&self) -> &dlpack::Tensor {
        // SAFETY: the producer's struct lives until its deleter is called, in `drop`.
        unsafe {
            match self {
                Managed::Old(managed) => &(**managed).tensor,
                Managed::Versioned(managed) => &(**managed).tensor,
            }
        }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        // SAFETY: the consumer calls the deleter once; a null deleter means that there is nothing to do.
        unsafe {
            match self {
                Managed::Old(managed) => {
                    if let Some(deleter) = (**managed).deleter {
                        deleter(*managed);
                    }
                }
                Managed::Versioned(managed) => {
                    if let Some(deleter) = (**managed).deleter {
                        deleter(*managed);
                    }
                }
            }
        }
    }
}

/// An Arrow array that we moved out of its capsule and must release.
pub(super) struct ArrowArray(pub(super) arrow::Array);

impl Drop for ArrowArray {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: the consumer that moved the struct releases it once.
            unsafe { release(&mut self.0) };
        }
    }
}
