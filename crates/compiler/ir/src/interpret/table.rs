//! The object table as the interpreter sees it.
//!
//! In: an entry and its arguments (borrowed). Out: what it replied; a result object is a new reference. `mock` implements
//! it for tests.

use overdrive_base::table::Entry;

use crate::interpret::heap::{Heap, HeapError};
use crate::interpret::scalar::Scalar;

/// What an entry replied.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Done, with a value of the signature's result type.
    Done(Option<Scalar>),
    /// An exception is set in the heap.
    Raised,
    /// Nothing happened: leave for CPython.
    Declined,
}

/// Operations on objects.
pub trait Table {
    /// Performs an entry.
    ///
    /// # Errors
    /// The entry is not implemented, or broke a rule of memory.
    fn call(&mut self, heap: &mut Heap, entry: Entry, args: &[Scalar]) -> Result<Reply, HeapError>;

    /// Lets signals and other threads run. False: an exception is set.
    ///
    /// # Errors
    /// Something broke a rule of memory.
    fn poll(&mut self, heap: &mut Heap) -> Result<bool, HeapError>;

    /// Whether the call has a frame.
    fn has_frame(&self) -> bool;
}
