//! Global state that only the holder of the GIL touches.
//!
//! In: a value. Out: access by short closures that must not run Python (which could switch threads and come back).
#![expect(unsafe_code, reason = "shares a cell between threads that hold the GIL in turn")]

use std::cell::UnsafeCell;

/// A cell guarded by the GIL.
pub struct GilCell<T>(UnsafeCell<T>);

// SAFETY: `with` requires the GIL, which orders all accesses.
unsafe impl<T> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    pub const fn new(value: T) -> Self {
        GilCell(UnsafeCell::new(value))
    }

    /// Runs `action` on the value.
    ///
    /// # Safety
    /// The GIL is held, and `action` neither runs Python code nor calls `with` on the same cell.
    #[inline]
    pub unsafe fn with<R>(&self, action: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the caller's contract excludes any other access while `action` runs.
        action(unsafe { &mut *self.0.get() })
    }
}
