//! The contract between machine code and whoever runs it: how native code is called, and what it calls.
//!
//! Types at the boundary, for native code's own parameters and for every entry of the object table:
//! `I64` → `i64`, `F64` → `f64`, `F32` → `f32`, `I1` → `u8` (0 or 1), `Obj` and `Ptr` → pointer. Further:
//! * an entry that declines takes one more argument, the last, a pointer to the result, and returns `u8`;
//! * a variadic entry's arguments end in (pointer to the first of the variable arguments, count as `i64`); the slot
//!   before the first is free for the callee to use until it returns;
//! * `Entry::Observe` and `Entry::ObserveAttr` alone get `rt` in front of their arguments, and are called only when the profile slot
//!   holds another type than the object's: they shall store the object's type there, and may remember more elsewhere.
//!
//! No callee may unwind into machine code.

use std::mem::{offset_of, size_of};

use overdrive_base::layout::ObjectLayout;
use overdrive_base::table::Entry;

/// What native code gets from its caller beside the frame. Lives at least as long as the call.
#[repr(C)]
#[derive(Debug)]
pub struct Rt {
    /// Address of the code unit with bytecode offset 0 inside the frame's code object.
    pub code_base: *const u8,
    /// The version that runs, for the services; machine code does not look at it.
    pub owner: *mut u8,
    /// One word per profile slot of the function: the last type seen there, or null. May be null without slots.
    pub profile: *mut usize,
}

const _: () = assert!(size_of::<Rt>() == 24);
const _: () = assert!(offset_of!(Rt, code_base) == 0 && offset_of!(Rt, profile) == 16);

/// Offset of `Rt::code_base` in bytes.
pub(crate) const RT_CODE_BASE: i64 = offset_of!(Rt, code_base) as i64;
/// Offset of `Rt::profile` in bytes.
pub(crate) const RT_PROFILE: i64 = offset_of!(Rt, profile) as i64;

/// Native code.
///
/// `args[i]` are the entry block's parameters (the frame's fast locals, borrowed); `frame` is the Python frame in which
/// positions are stored (null when the function needs none); `breaker` is the eval breaker of the running thread.
/// The result is an owned reference, or null with a Python exception set.
pub type NativeFn =
    unsafe extern "C" fn(args: *mut *mut u8, frame: *mut u8, rt: *mut Rt, breaker: *const u8) -> *mut u8;

/// Addresses of the functions that machine code calls for its own sake.
#[derive(Clone, Copy, Debug)]
pub struct Services {
    /// `exit(rt: *mut Rt, frame: *mut u8, args: *mut *mut u8, exit_id: u32, values: *const u64) -> *mut u8`: goes on in
    /// CPython. Native code returns the result as it is. `values` are those of `Exit::values()`, in that order, 8 bytes
    /// each (`I1` and the bits of `F32` zero-extended).
    pub exit: usize,
    /// `poll(rt: *mut Rt, frame: *mut u8, pos: u32) -> i32`: negative when an exception is set. Stores the position itself.
    pub poll: usize,
    /// `should_fail(rt: *mut Rt, exit_id: u32) -> u8`: called with `Forced::Ask` only; nonzero means that the check must
    /// fail now.
    pub should_fail: usize,
    /// `parallel(body: Body, context: *mut u64, n: i64, n_parts: i64, gives_gil: u8)`: has `body` do the iterations 0 to
    /// `n`, on whatever threads, and returns behind the last. First it stores into `context[0]` the address of
    /// `n · n_parts` words for their parts, which are read until the next call on this thread. With `gives_gil` other
    /// threads may have the GIL meanwhile.
    pub parallel: usize,
}

/// Iterations of a parallel loop, from one number to before another. Any thread may call it.
pub type Body = unsafe extern "C" fn(context: *mut u64, first: i64, end: i64);

/// A function that takes and gives vectors of floats, by the C calling convention.
#[derive(Clone, Copy, Debug)]
pub struct VectorForm {
    /// One of the table's `Fast` entries.
    pub entry: Entry,
    /// Floats in a vector: 2, 4 or 8.
    pub lanes: u32,
    pub address: usize,
}

/// The process that the code will run in.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub layout: &'a ObjectLayout,
    /// Address of every entry of the object table, by `Entry as usize`; 0: does not exist here.
    pub entries: &'a [usize],
    pub services: Services,
    /// Vector forms of functions, all of which the processor that code is made for can run.
    pub vectors: &'a [VectorForm],
    /// Address of every constant of the function, by `ConstId`. They must outlive the code.
    pub consts: &'a [usize],
}
