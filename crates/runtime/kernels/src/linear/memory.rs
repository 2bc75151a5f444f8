//! Memory that vectors are loaded from: aligned to 64 bytes, and large pages for what is large.
//!
//! In: a length. Out: zeros. The matrices of a model share one piece of memory, so that each but its ends is large pages: the
//! system gives them one by one otherwise, of 4 KiB, which takes longer than to fill them.

#![expect(unsafe_code, reason = "pages from the system, and views of their bytes")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

/// From here on pages come straight from the system, which gives large ones to those who ask.
const LARGE: usize = 2 << 20;
const ALIGN: usize = 64;

/// Owned bytes, aligned to 64.
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
    owner: Owner,
}

/// Whose bytes they are.
enum Owner {
    /// The allocator's.
    Allocated,
    /// A mapping of so many bytes at this address, in which they lie.
    Mapped(NonNull<u8>, usize),
    /// A part of a room's, which lives as long as one of its parts; the room gives out no byte twice.
    Part(#[expect(dead_code, reason = "keeps the room alive")] Arc<Memory>),
}

/// Memory for several matrices, given back with the last of them.
pub struct Room {
    memory: Arc<Memory>,
    n_used: usize,
}

impl Room {
    /// Room for so many bytes; none where the system has no place for them. What is not used takes no memory.
    pub fn new(n_bytes: usize) -> Option<Self> {
        let memory = if n_bytes < LARGE { Memory::scratch(n_bytes) } else { Memory::mapped(n_bytes)? };
        Some(Self { memory: Arc::new(memory), n_used: 0 })
    }

    /// The next bytes, whole vectors of them; none where too few are left.
    pub(crate) fn take(&mut self, len: usize) -> Option<Memory> {
        let end = self.n_used.checked_add(len.checked_next_multiple_of(ALIGN)?)?;
        if end > self.memory.len {
            return None;
        }
        // SAFETY: inside the memory, whose end was compared with.
        let start = unsafe { self.memory.start.add(self.n_used) };
        self.n_used = end;
        Some(Memory { start, len, owner: Owner::Part(Arc::clone(&self.memory)) })
    }
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
        Self { start, len, owner: Owner::Allocated }
    }

    /// Zeros that stay.
    pub(crate) fn lasting(len: usize) -> Self {
        let mapped = if len < LARGE { None } else { Self::mapped(len) };
        mapped.unwrap_or_else(|| Self::scratch(len))
    }

    /// Pages of our own; none where the system has no place for them.
    fn mapped(len: usize) -> Option<Self> {
        // Large pages lie at multiples of their size.
        let n_mapped = len.checked_next_multiple_of(LARGE)?.checked_add(LARGE)?;
        // SAFETY: new private pages, and advice about them; the next multiple of the size of a large page and `len` bytes behind it
        // lie in them.
        unsafe {
            let mapped = libc::mmap(
                std::ptr::null_mut(),
                n_mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if mapped == libc::MAP_FAILED {
                return None;
            }
            #[cfg(target_os = "linux")]
            libc::madvise(mapped, n_mapped, libc::MADV_HUGEPAGE);
            let mapped = NonNull::new(mapped.cast::<u8>()).expect("a mapping that did not fail is not null");
            let start = mapped.add(mapped.addr().get().wrapping_neg() % LARGE);
            Some(Self { start, len, owner: Owner::Mapped(mapped, n_mapped) })
        }
    }

    fn empty() -> Self {
        Self { start: NonNull::dangling(), len: 0, owner: Owner::Allocated }
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
        match self.owner {
            Owner::Mapped(mapped, n_mapped) => {
                // SAFETY: the mapping that `lasting` made; nobody borrows it.
                unsafe { libc::munmap(mapped.as_ptr().cast(), n_mapped) };
            }
            Owner::Allocated => {
                if let Some(layout) = Self::layout(self.len) {
                    // SAFETY: allocated with this layout.
                    unsafe { dealloc(self.start.as_ptr(), layout) };
                }
            }
            Owner::Part(_) => {}
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
