//! The C library's mathematics: the very symbols that CPython calls, and errno, by which they report.
//!
//! Never Rust's own methods for these: they may become intrinsics, and an optimiser may replace those by something that
//! rounds differently.
#![expect(unsafe_code, reason = "calls the C library")]

use std::ffi::c_int;

macro_rules! functions {
    ($($name:ident($($arg:ident),+)),* $(,)?; $($other:ident($($other_arg:ident),+)),*) => {
        /// The symbols themselves, for machine code.
        pub(super) mod c {
            #[link(name = "m")]
            unsafe extern "C" {
                $(pub(in crate::objects) fn $name($($arg: f64),+) -> f64;)*
                $(pub(in crate::objects) fn $other($($other_arg: f64),+) -> f64;)*
            }
        }
        $(
            #[inline]
            pub(super) fn $name($($arg: f64),+) -> f64 {
                // SAFETY: a function of floats; it has no other effect than errno and the floating-point flags.
                unsafe { c::$name($($arg),+) }
            }
        )*
    };
}

functions! {
    exp(x), expm1(x), log(x), log2(x), log10(x), log1p(x),
    sin(x), cos(x), tan(x), asin(x), acos(x), atan(x), sinh(x), cosh(x), tanh(x), erf(x), erfc(x),
    atan2(y, x), fmod(x, y), pow(x, y);
    hypot(x, y)
}

#[cfg(target_os = "linux")]
fn errno_location() -> *mut c_int {
    // SAFETY: gives the address of this thread's errno.
    unsafe { libc::__errno_location() }
}

#[cfg(target_os = "macos")]
fn errno_location() -> *mut c_int {
    // SAFETY: gives the address of this thread's errno.
    unsafe { libc::__error() }
}

pub(super) fn errno() -> c_int {
    // SAFETY: this thread's errno.
    unsafe { *errno_location() }
}

pub(super) fn set_errno(value: c_int) {
    // SAFETY: this thread's errno.
    unsafe { *errno_location() = value };
}
