//! What one call of a kernel has for itself, and the functions that the run time lends kernels.
//!
//! In: parameters. Out: the C context. Contexts are isolated: pool memory belongs to one and is freed with it; scratch
//! memory is an arena of this thread's that is empty when the call begins. A kernel that retains the arena keeps it, and
//! the thread takes another.
#![expect(unsafe_code, reason = "functions that C calls, with addresses that C hands back")]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use overdrive_abi as abi;
use overdrive_tensor::arena::Arena;
use overdrive_tensor::block::{ALIGN, Block};

/// An arena that C holds by address. Its holders are counted by the `Arc`.
type Shared = Mutex<Arena>;

thread_local! {
    /// Arenas between calls; more than one when a kernel's callback calls another.
    static SCRATCH: RefCell<Vec<Arc<Shared>>> = const { RefCell::new(Vec::new()) };
}

/// The context of a call. The public part comes first: C's pointer to it is a pointer to this.
#[repr(C)]
pub(super) struct CallContext<'a> {
    public: abi::Context,
    _parameters: &'a [abi::Parameter],
    scratch: Arc<Shared>,
    message: RefCell<Option<String>>,
    pool: RefCell<Vec<Block>>,
    /// Only the thread of the call, or one that it waits for, uses a context.
    _not_sync: Cell<()>,
}

impl<'a> CallContext<'a> {
    pub(super) fn new(parameters: &'a [abi::Parameter]) -> CallContext<'a> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let scratch = SCRATCH.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
            // Nothing is allocated for an arena of no bytes, so this cannot fail.
            let arena = Arena::new(0).unwrap_or_else(|_| unreachable!("an empty arena allocates nothing"));
            Arc::new(Mutex::new(arena))
        });
        let public = abi::Context {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            stream: null_mut(),
            scratch: Arc::as_ptr(&scratch).cast_mut().cast(),
            parameters: parameters.as_ptr(),
            n_parameters: parameters.len() as u64,
            api: api(),
        };
        CallContext {
            public,
            _parameters: parameters,
            scratch,
            message: RefCell::new(None),
            pool: RefCell::new(Vec::new()),
            _not_sync: Cell::new(()),
        }
    }

    /// What kernels get.
    pub(super) fn as_c(&mut self) -> *mut abi::Context {
        (&raw mut *self).cast()
    }

    /// What the kernel said of its error.
    pub(super) fn take_message(&self) -> Option<String> {
        self.message.borrow_mut().take()
    }
}

impl Drop for CallContext<'_> {
    fn drop(&mut self) {
        // The thread's list may be gone when the process ends.
        if Arc::strong_count(&self.scratch) == 1 && lock(&self.scratch).reset().is_ok() {
            let scratch = self.scratch.clone();
            let _ = SCRATCH.try_with(|kept| kept.borrow_mut().push(scratch));
        }
    }
}

fn lock(arena: &Shared) -> std::sync::MutexGuard<'_, Arena> {
    arena.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The table that every library gets.
pub(super) fn api() -> *const abi::Api {
    static API: abi::Api = abi::Api {
        size: size_of::<abi::Api>() as u32,
        major: abi::MAJOR,
        minor: abi::MINOR,
        _reserved: 0,
        fail,
        pool_alloc,
        pool_free,
        arena_create,
        arena_retain,
        arena_release,
        arena_alloc,
        arena_reset,
    };
    &raw const API
}

/// # Safety
/// A context that a kernel got, during its call.
unsafe fn call<'a>(context: *mut abi::Context) -> &'a CallContext<'a> {
    // SAFETY: by contract; everything behind the public part has interior mutability.
    unsafe { &*context.cast::<CallContext<'a>>() }
}

unsafe extern "C" fn fail(
    context: *mut abi::Context,
    status: abi::Status,
    message: *const c_char,
) -> abi::Status {
    if !message.is_null() {
        // SAFETY: the header's contract: a context, and a string that ends with 0.
        unsafe {
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            *call(context).message.borrow_mut() = Some(text);
        }
    }
    if status == abi::OK { abi::ERROR } else { status }
}

unsafe extern "C" fn pool_alloc(context: *mut abi::Context, bytes: u64) -> *mut c_void {
    let Ok(block) = Block::new(usize::try_from(bytes).unwrap_or(usize::MAX), ALIGN, false) else {
        return null_mut();
    };
    let data = block.data();
    // SAFETY: the header's contract.
    unsafe { call(context).pool.borrow_mut().push(block) };
    data.cast()
}

unsafe extern "C" fn pool_free(context: *mut abi::Context, memory: *mut c_void) {
    // SAFETY: the header's contract.
    let mut pool = unsafe { call(context).pool.borrow_mut() };
    if let Some(at) = pool.iter().rposition(|block| block.data().cast() == memory) {
        pool.swap_remove(at);
    }
}

unsafe extern "C" fn arena_create(bytes: u64) -> *mut abi::Arena {
    match Arena::new(usize::try_from(bytes).unwrap_or(usize::MAX)) {
        Ok(arena) => Arc::into_raw(Arc::new(Mutex::new(arena))).cast_mut().cast(),
        Err(_) => null_mut(),
    }
}

unsafe extern "C" fn arena_retain(arena: *mut abi::Arena) {
    // SAFETY: the header's contract: an arena that somebody holds.
    unsafe { Arc::increment_strong_count(arena.cast_const().cast::<Shared>()) }
}

unsafe extern "C" fn arena_release(arena: *mut abi::Arena) {
    if !arena.is_null() {
        // SAFETY: the header's contract: the caller gives up a hold of its own.
        unsafe { Arc::decrement_strong_count(arena.cast_const().cast::<Shared>()) }
    }
}

unsafe extern "C" fn arena_alloc(arena: *mut abi::Arena, bytes: u64) -> *mut c_void {
    // SAFETY: the header's contract: an arena that somebody holds.
    let arena = unsafe { &*arena.cast::<Shared>() };
    match lock(arena).alloc(usize::try_from(bytes).unwrap_or(usize::MAX)) {
        Ok(data) => with_exposed_provenance_mut(data.expose_provenance()),
        Err(_) => null_mut(),
    }
}

unsafe extern "C" fn arena_reset(arena: *mut abi::Arena) {
    // SAFETY: as above. No views are counted in such an arena, so this always succeeds.
    let _ = lock(unsafe { &*arena.cast::<Shared>() }).reset();
}
