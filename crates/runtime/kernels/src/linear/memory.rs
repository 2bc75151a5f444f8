//! Memory that vectors are loaded from: aligned to 64 bytes, and large pages for what is large.
//!
//! In: a length. Out: zeros.

#![expect(unsafe_code, reason = "pages from the system, and views of their bytes")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// From here on pages come straight from the system, which gives large ones to those who ask.
const LARGE: usize = 2 << 20;
const ALIGN: usize = 64;

/// Owned bytes, aligned to 64.
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
    is_mapped: bool,
}

// SAFETY: owns its bytes as `Vec<u8>` does.
unsafe impl Send for Memory {}
// SAFETY: shared references only read.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeros for a short time: memory that was given back is used again.
    pub(crate) fn scratch(len: usize) -> Self {
        let Some(layout) = Self::layout(len) else { return Self::empty() };
        // SAFETY: `layout` never has the size 0.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, len, is_mapped: false }
    }

    /// Zeros that stay.
    pub(crate) fn lasting(len: usize) -> Self {
        if len < LARGE {
            return Self::scratch(len);
        }
        // SAFETY: new private pages, and advice about them.
        let start = unsafe {
            let start = libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if start == libc::MAP_FAILED {
                return Self::scratch(len);
            }
            #[cfg(target_os = "linux")]
            libc::madvise(start, len, libc::MADV_HUGEPAGE);
            start
        };
        let start = NonNull::new(start.cast()).expect("a mapping that did not fail is not null");
        Self { start, len, is_mapped: true }
    }

    fn empty() -> Self {
        Self { start: NonNull::dangling(), len: 0, is_mapped: false }
    }

    /// None for no bytes.
    fn layout(len: usize) -> Option<Layout> {
        (len > 0)
            .then(|| Layout::from_size_align(len, ALIGN).expect("lengths of tensors are far below the limit"))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes that we own, initialised with zeros.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(crate) fn signed(&self) -> &[i8] {
        // SAFETY: as in `bytes`; each byte is a signed one, too.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.is_mapped {
            // SAFETY: the mapping that `lasting` made; nobody borrows it.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        } else if let Some(layout) = Self::layout(self.len) {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

/// A slice that threads write disjoint parts of.
pub(crate) struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    lifetime: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: hands out parts only through `part` and `start`, whose callers keep them disjoint.
unsafe impl<T: Send> Send for Parts<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), lifetime: std::marker::PhantomData }
    }

    /// `n` values from `first` on.
    ///
    /// # Safety
    /// No two parts that are in use at a time may overlap.
    #[expect(clippy::mut_from_ref, reason = "disjoint parts, as the caller promises")]
    pub(crate) unsafe fn part(&self, first: usize, n: usize) -> &mut [T] {
        assert!(first <= self.len && n <= self.len - first, "a part inside the slice");
        // SAFETY: inside the slice, and only there, as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(first), n) }
    }

    /// The first value, for kernels that compute addresses themselves.
    pub(crate) fn start(&self) -> *mut T {
        self.start
    }
}
