//! How a thread rounds and whether it flushes the smallest numbers: the asking thread's way holds for its whole job.
//!
//! In: the control word of one thread. Out: the same on another. Otherwise results would depend on who runs a chunk, in a
//! process that changed its first thread's (libraries built with `-ffast-math` do).

#![expect(unsafe_code, reason = "the processor's control word of floating-point arithmetic")]

use std::arch::asm;

/// This thread's control word.
#[cfg(target_arch = "x86_64")]
pub(crate) fn control() -> u64 {
    let mut word = 0u32;
    // SAFETY: stores four bytes there.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags)) };
    // Without the flags of what has happened.
    (word & !0x3f).into()
}

/// Makes a word of [`control`]'s this thread's.
#[cfg(target_arch = "x86_64")]
pub(crate) fn set_control(word: u64) {
    let word = word as u32;
    // SAFETY: loads four bytes, a word that the processor gave.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, preserves_flags, readonly)) };
}

/// This thread's control word.
#[cfg(target_arch = "aarch64")]
pub(crate) fn control() -> u64 {
    let word: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nomem, nostack, preserves_flags)) };
    word
}

/// Makes a word of [`control`]'s this thread's.
#[cfg(target_arch = "aarch64")]
pub(crate) fn set_control(word: u64) {
    // SAFETY: a word that the processor gave.
    unsafe { asm!("msr fpcr, {}", in(reg) word, options(nomem, nostack, preserves_flags)) };
}
