//! The exit fuzzer's switch: makes guards fail that did not fail, in every version compiled afterwards.
//!
//! In: `debug_force(k)` or `debug_force(("seed", n, rate))` from tests. Out: what machine code asks before each check.
//! Nothing of it is compiled into versions made while it is off.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use overdrive_codegen::{Forced, Rt};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::{Bound, PyAny, PyAnyMethods, PyResult};

const OFF: u8 = 0;
const ONE: u8 = 1;
const SEEDED: u8 = 2;

static MODE: AtomicU8 = AtomicU8::new(OFF);
/// The exit that fails, in mode `ONE`.
static EXIT: AtomicU64 = AtomicU64::new(0);
/// State of a xorshift generator, in mode `SEEDED`.
static STATE: AtomicU64 = AtomicU64::new(1);
/// Fails when the generator's 32 high bits are below this.
static LIMIT: AtomicU64 = AtomicU64::new(0);

/// `None`: off. A number: that exit fails whenever it is asked about. `("seed", n, rate)`: each check fails with
/// probability `rate`, the same ones for the same seed and program.
///
/// # Errors
/// `TypeError` for anything else.
pub(crate) fn force(what: &Bound<'_, PyAny>) -> PyResult<()> {
    if what.is_none() {
        MODE.store(OFF, Ordering::Relaxed);
    } else if let Ok(exit) = what.extract::<u32>() {
        EXIT.store(u64::from(exit), Ordering::Relaxed);
        MODE.store(ONE, Ordering::Relaxed);
    } else if let Ok((word, seed, rate)) = what.extract::<(String, u64, f64)>() {
        if word != "seed" {
            return Err(PyTypeError::new_err("expected None, an exit's number or (\"seed\", n, rate)"));
        }
        // The generator must not start at 0.
        STATE.store(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, Ordering::Relaxed);
        LIMIT.store((rate.clamp(0.0, 1.0) * 4_294_967_296.0) as u64, Ordering::Relaxed);
        MODE.store(SEEDED, Ordering::Relaxed);
    } else {
        return Err(PyTypeError::new_err("expected None, an exit's number or (\"seed\", n, rate)"));
    }
    Ok(())
}

/// Whether checks are made to fail: nothing is learned from exits then.
pub(crate) fn is_on() -> bool {
    MODE.load(Ordering::Relaxed) != OFF
}

/// How versions are compiled now.
pub(crate) fn forced() -> Forced {
    if is_on() { Forced::Ask } else { Forced::No }
}

/// The service that machine code asks.
pub(crate) extern "C" fn should_fail(_rt: *mut Rt, exit: u32) -> u8 {
    let fails = match MODE.load(Ordering::Relaxed) {
        ONE => EXIT.load(Ordering::Relaxed) == u64::from(exit),
        SEEDED => {
            let mut x = STATE.load(Ordering::Relaxed);
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            STATE.store(x, Ordering::Relaxed);
            (x >> 32) < LIMIT.load(Ordering::Relaxed)
        }
        _ => false,
    };
    u8::from(fails)
}
