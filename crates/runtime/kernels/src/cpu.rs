//! What this processor can do, asked once, and what of it the kernels use.
//!
//! In: nothing but the machine. Out: a [`Level`]. Every kernel gives the same bits on each level, so the choice is never
//! seen in results, with one exception: products with BF16 weights on [`Level::Amx`].

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the system is asked for the tile registers")
)]

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Kinds of processors, each with all that the ones before it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Any: plain Rust, the truth for all others.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C: vectors of 8 numbers.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ, VL and VNNI: vectors of 16 numbers, dot products of bytes.
    Avx512,
    /// x86-64 with AMX (INT8 and BF16): tiles of 16 x 64 bytes. Linux grants them to a process that asks.
    Amx,
}

/// A level that this machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelError {
    /// What was asked for.
    pub asked: Level,
    /// The most there is.
    pub most: Level,
}

impl fmt::Display for LevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, most } = self;
        write!(f, "this processor does not have {}, only {}", asked.name(), most.name())
    }
}

impl std::error::Error for LevelError {}

impl Level {
    /// All, from the one that every machine has.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::Avx512, Self::Amx];

    /// A short name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        }
    }

    /// The level with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// One more than the level that was set, 0 when nobody has.
static SET: AtomicU8 = AtomicU8::new(0);

/// The level that kernels use: the most there is, or what [`set_level`] said.
pub fn level() -> Level {
    match SET.load(Ordering::Relaxed) {
        0 => most_level(),
        n => Level::ALL[usize::from(n) - 1],
    }
}

/// Makes kernels that begin later use this level: for tests, and to measure what a processor without the rest would do.
///
/// # Errors
/// `LevelError` when this machine does not have it.
pub fn set_level(level: Level) -> Result<(), LevelError> {
    if level > most_level() {
        return Err(LevelError { asked: level, most: most_level() });
    }
    SET.store(level as u8 + 1, Ordering::Relaxed);
    Ok(())
}

/// The most that this machine has. Asks the system for the tile registers when it is called first.
pub fn most_level() -> Level {
    static MOST: OnceLock<Level> = OnceLock::new();
    *MOST.get_or_init(detect)
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Scalar
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    let has_avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    let has_avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni");
    match (has_avx2, has_avx512) {
        (false, _) => Level::Scalar,
        (true, false) => Level::Avx2,
        (true, true) if has_tiles() && tiles_are_granted() => Level::Amx,
        (true, true) => Level::Avx512,
    }
}

/// AVX-VNNI: dot products of bytes in vectors of 8 numbers.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_avx_vnni() -> bool {
    #[cfg(test)]
    if WITHOUT_AVX_VNNI.load(Ordering::Relaxed) {
        return false;
    }
    is_x86_feature_detected!("avxvnni")
}

/// For tests of what processors without it do.
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) static WITHOUT_AVX_VNNI: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Tile registers and both kinds of products in them; no processor has one kind alone.
#[cfg(target_arch = "x86_64")]
fn has_tiles() -> bool {
    const TILE: u32 = 1 << 24;
    const INT8: u32 = 1 << 25;
    const BF16: u32 = 1 << 22;
    const ALL: u32 = TILE | INT8 | BF16;
    std::arch::x86_64::__cpuid(0).eax >= 7 && std::arch::x86_64::__cpuid_count(7, 0).edx & ALL == ALL
}

/// Linux saves the tile registers only of processes that have asked; threads and children inherit the permission.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn tiles_are_granted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;
    // SAFETY: sets a flag of the process, or fails.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 }
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn tiles_are_granted() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::{Level, level, most_level, set_level};

    #[test]
    fn a_level_that_is_there_can_be_set() {
        for wanted in Level::ALL {
            assert_eq!(Level::from_name(wanted.name()), Some(wanted));
            if wanted <= most_level() {
                set_level(wanted).unwrap();
                assert_eq!(level(), wanted);
            } else {
                let error = set_level(wanted).unwrap_err();
                assert_eq!((error.asked, error.most), (wanted, most_level()));
                assert!(error.to_string().contains(wanted.name()));
            }
        }
        set_level(most_level()).unwrap();
    }
}
