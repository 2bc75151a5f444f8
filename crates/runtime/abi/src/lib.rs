//! The C ABI of kernels: what `include/overdrive.h` says, for kernels written in Rust and for the run time that calls them.
//!
//! In: nothing. Out: the structs and function types of the interface, and its numbers; the header states the rules (errors,
//! threads, who allocates). Both sides assert the same sizes and offsets when they are compiled. No code, no dependency.

#![forbid(unsafe_code)]
#![no_std]

use core::ffi::{c_char, c_void};
use core::mem::{offset_of, size_of};

/// Libraries with another major version are refused; minor versions add at the end of structs.
pub const MAJOR: u32 = 1;
pub const MINOR: u32 = 0;
/// Most axes of a tensor.
pub const MAX_NDIM: usize = 64;
/// The function that a library exports: a [`LibraryEntry`].
pub const ENTRY: &str = "od_library_v1";

/// 0, or one of the errors below.
pub type Status = i32;
pub const OK: Status = 0;
/// TypeError.
pub const TYPE_ERROR: Status = -1;
/// ValueError.
pub const VALUE_ERROR: Status = -2;
/// MemoryError.
pub const MEMORY_ERROR: Status = -3;
/// RuntimeError; so is every other status but `OK`.
pub const ERROR: Status = -4;

/// Flag of [`Tensor`]: must not be written.
pub const READ_ONLY: u64 = 1;
/// Flag of [`Kernel`]: inputs and outputs are row-major without gaps; others are refused before the call.
pub const DENSE: u32 = 1;
/// Flag of [`Parameter`]: has no default.
pub const REQUIRED: u32 = 1;

/// DLPack's device: the CPU is (1, 0).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    pub device_type: i32,
    pub device_id: i32,
}

/// DLPack's element type: 0 int, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool; bits; lanes (always 1).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

/// A tensor's descriptor; its first 48 bytes are DLPack's `DLTensor`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// First element; may be null when there is none.
    pub data: *mut c_void,
    pub device: Device,
    pub ndim: i32,
    pub dtype: DType,
    /// `ndim` lengths.
    pub shape: *mut i64,
    /// `ndim` strides in elements, never null.
    pub strides: *mut i64,
    /// Always 0 here.
    pub byte_offset: u64,
    pub flags: u64,
    /// Which memory of the machine: 0 is the only one of a machine without NUMA or GPUs.
    pub topology: u32,
    /// How elements are coded: 0 plainly; else the number of a schema, whose parameters follow and never change.
    pub quantisation: u32,
    pub quantisation_parameters: *const c_void,
    /// Bytes of the parameters.
    pub quantisation_size: u64,
}

/// The value of a parameter, by its kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Value {
    pub int64: i64,
    pub float64: f64,
    pub bytes: Bytes,
}

/// Bytes or UTF-8 text, valid during the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    pub data: *const c_char,
    pub size: u64,
}

pub const INT64: u32 = 0;
pub const FLOAT64: u32 = 1;
pub const BYTES: u32 = 2;

/// A parameter: as a kernel declares it, with its default, and as a context carries it, with its value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Parameter {
    /// Terminated by 0.
    pub name: *const c_char,
    /// `INT64`, `FLOAT64` or `BYTES`.
    pub kind: u32,
    pub flags: u32,
    pub value: Value,
}

/// What one call has for itself. Contexts share nothing.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Context {
    /// Different for every call in the process.
    pub id: u64,
    /// The device's stream; null on the CPU.
    pub stream: *mut c_void,
    /// Scratch memory, empty at the start of the call.
    pub scratch: *mut Arena,
    /// In the order in which the kernel declares them.
    pub parameters: *const Parameter,
    pub n_parameters: u64,
    pub api: *const Api,
}

/// An arena, seen by address only.
#[repr(C)]
pub struct Arena {
    _private: [u8; 0],
}

/// What the run time does for a kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Api {
    /// Bytes of this struct.
    pub size: u32,
    pub major: u32,
    pub minor: u32,
    pub _reserved: u32,
    /// Sets the message of an error (UTF-8, terminated by 0, copied) and returns the status.
    pub fail: unsafe extern "C" fn(*mut Context, Status, *const c_char) -> Status,
    /// Memory of the context's pool, aligned to 64 bytes; null when there is none left. Freed at the end of the call.
    pub pool_alloc: unsafe extern "C" fn(*mut Context, u64) -> *mut c_void,
    /// Frees it earlier.
    pub pool_free: unsafe extern "C" fn(*mut Context, *mut c_void),
    /// A new arena with room for so many bytes, held once; null when there is no memory.
    pub arena_create: unsafe extern "C" fn(u64) -> *mut Arena,
    pub arena_retain: unsafe extern "C" fn(*mut Arena),
    pub arena_release: unsafe extern "C" fn(*mut Arena),
    /// Memory of an arena, aligned to 64 bytes, until the arena is reset or goes; null when there is none left.
    pub arena_alloc: unsafe extern "C" fn(*mut Arena, u64) -> *mut c_void,
    /// Takes back everything that an arena handed out.
    pub arena_reset: unsafe extern "C" fn(*mut Arena),
}

/// Fills in the element type, number of axes and lengths of each output; `shape` has room for `MAX_NDIM`.
pub type Plan = unsafe extern "C" fn(*mut Context, inputs: *const Tensor, outputs: *mut Tensor) -> Status;
/// The work.
pub type Run = unsafe extern "C" fn(*mut Context, inputs: *const Tensor, outputs: *const Tensor) -> Status;

/// A kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Kernel {
    /// A Python identifier, terminated by 0.
    pub name: *const c_char,
    /// Its documentation, or null.
    pub doc: *const c_char,
    pub n_inputs: u32,
    pub n_outputs: u32,
    pub flags: u32,
    pub n_parameters: u32,
    pub parameters: *const Parameter,
    /// None: outputs are like the first input.
    pub plan: Option<Plan>,
    pub run: Run,
}

/// What a library holds, for ever.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Library {
    /// Version of the header that it was compiled with.
    pub major: u32,
    pub minor: u32,
    /// Bytes of a [`Kernel`] there.
    pub kernel_size: u32,
    pub n_kernels: u32,
    pub kernels: *const Kernel,
}

/// The function `od_library_v1`. It may keep the table of functions, which lives for ever.
pub type LibraryEntry = unsafe extern "C" fn(*const Api) -> *const Library;

const _: () = {
    assert!(size_of::<Tensor>() == 80);
    assert!(offset_of!(Tensor, byte_offset) == 40);
    assert!(offset_of!(Tensor, flags) == 48);
    assert!(offset_of!(Tensor, topology) == 56);
    assert!(offset_of!(Tensor, quantisation) == 60);
    assert!(offset_of!(Tensor, quantisation_parameters) == 64);
    assert!(size_of::<Parameter>() == 32);
    assert!(offset_of!(Parameter, value) == 16);
    assert!(size_of::<Context>() == 48);
    assert!(offset_of!(Context, scratch) == 16);
    assert!(offset_of!(Context, api) == 40);
    assert!(size_of::<Api>() == 80);
    assert!(offset_of!(Api, fail) == 16);
    assert!(size_of::<Kernel>() == 56);
    assert!(offset_of!(Kernel, parameters) == 32);
    assert!(offset_of!(Kernel, run) == 48);
    assert!(size_of::<Library>() == 24);
};
