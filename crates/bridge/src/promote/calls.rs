//! Counts the calls of a few functions for a while, and times some of them.
//!
//! In: code objects (and function objects on 3.11). Out: [`Counts`]. On 3.12 and later a local `sys.monitoring`
//! event calls a C function at each start and return, on those code objects alone; the frame's address pairs
//! them, so recursion, other threads and exceptions do not mix up times. 3.11 has no such events: the function
//! runs a copy of its code behind a prologue that counts; times are then estimated from the samples.

#![expect(unsafe_code, reason = "C callbacks that the interpreter calls at every start of a function")]

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

#[cfg(not(Py_3_12))]
mod first_calls;
#[cfg(Py_3_12)]
mod monitoring;
#[cfg(not(Py_3_12))]
mod prologue;

use crate::mechanics::gil_cell::GilCell;

/// What was counted for one code object.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) calls: u64,
    pub(super) timed_calls: u64,
    pub(super) timed: Duration,
}

/// At most this many functions are counted at a time; `Policy.max_counted` is lower or equal.
pub(super) const SLOTS: usize = 64;

#[derive(Clone, Copy)]
struct Slot {
    /// Identity of the counted code, 0 when free. The counter holds a reference to it.
    code: usize,
    counts: Counts,
    /// Frame being timed, 0 for none.
    #[cfg(Py_3_12)]
    frame: usize,
    #[cfg(Py_3_12)]
    since: Option<Instant>,
}

const FREE: Slot = Slot {
    code: 0,
    counts: Counts { calls: 0, timed_calls: 0, timed: Duration::ZERO },
    #[cfg(Py_3_12)]
    frame: 0,
    #[cfg(Py_3_12)]
    since: None,
};

static COUNTED: GilCell<[Slot; SLOTS]> = GilCell::new([FREE; SLOTS]);

/// The slot of `code`.
fn slot_of(slots: &mut [Slot; SLOTS], code: usize) -> Option<&mut Slot> {
    slots.iter_mut().take_while(|slot| slot.code != 0).find(|slot| slot.code == code)
}

/// A function whose calls are counted until this is stopped.
pub(super) struct Counter {
    code: Py<PyAny>,
    #[cfg(not(Py_3_12))]
    swapped: prologue::Swapped,
}

impl Counter {
    /// Starts to count. `None` when it is not possible now: no slot or no tool id is free, or the function
    /// has another code object by now.
    pub(super) fn start(
        code: &Bound<'_, PyAny>,
        function: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Counter>> {
        let identity = code.as_ptr() as usize;
        // SAFETY: the GIL is held and the closure runs no Python.
        let taken = unsafe {
            COUNTED.with(|slots| {
                let free = slots.iter_mut().find(|slot| slot.code == 0 || slot.code == identity);
                free.map(|slot| *slot = Slot { code: identity, ..FREE }).is_some()
            })
        };
        if !taken {
            return Ok(None);
        }
        match Self::attach(code, function) {
            Ok(Some(counter)) => Ok(Some(counter)),
            other => {
                release(identity);
                other
            }
        }
    }

    /// What was counted so far.
    pub(super) fn read(&self) -> Counts {
        let identity = self.code.as_ptr() as usize;
        // SAFETY: the caller holds the GIL (it has the session), and the closure runs no Python.
        unsafe { COUNTED.with(|slots| slot_of(slots, identity).map(|slot| slot.counts)) }.unwrap_or_default()
    }

    /// Stops counting.
    pub(super) fn stop(self, py: Python<'_>) -> PyResult<Counts> {
        let counts = self.read();
        release(self.code.as_ptr() as usize);
        self.detach(py)?;
        Ok(counts)
    }

    #[cfg(Py_3_12)]
    fn attach(code: &Bound<'_, PyAny>, _function: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Counter>> {
        if !monitoring::set(code, true)? {
            return Ok(None);
        }
        Ok(Some(Counter { code: code.clone().unbind() }))
    }

    #[cfg(Py_3_12)]
    fn detach(self, py: Python<'_>) -> PyResult<()> {
        monitoring::set(self.code.bind(py), false).map(|_| ())
    }

    #[cfg(not(Py_3_12))]
    fn attach(code: &Bound<'_, PyAny>, function: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Counter>> {
        let Some(function) = function else { return Ok(None) };
        let swapped = prologue::swap_in(code, function)?;
        Ok(swapped.map(|swapped| Counter { code: code.clone().unbind(), swapped }))
    }

    #[cfg(not(Py_3_12))]
    fn detach(self, py: Python<'_>) -> PyResult<()> {
        self.swapped.swap_out(py, &self.code)
    }
}

/// What counting adds to the time that is measured for one call: nothing is learnt about a function of 50 ns from a
/// measurement that takes 100. Measured once, on a function that does nothing.
pub(super) fn overhead(py: Python<'_>) -> Duration {
    static OVERHEAD: PyOnceLock<Duration> = PyOnceLock::new();
    *OVERHEAD.get_or_init(py, || measure_overhead(py).unwrap_or_default())
}

fn measure_overhead(py: Python<'_>) -> PyResult<Duration> {
    const CALLS: u32 = 400;
    let nothing = crate::mechanics::evaluate(py, c"lambda: None")?;
    let code = nothing.getattr("__code__")?;
    let time = || -> PyResult<Duration> {
        let since = Instant::now();
        for _ in 0..CALLS {
            nothing.call0()?;
        }
        Ok(since.elapsed() / CALLS)
    };
    let mut least = Duration::MAX;
    for _ in 0..5 {
        let plain = time()?.min(time()?);
        let Some(counter) = Counter::start(&code, Some(&nothing))? else { return Ok(Duration::ZERO) };
        let counted = time();
        let counts = counter.stop(py)?;
        let this = match u32::try_from(counts.timed_calls) {
            Ok(n @ 1..) => counts.timed / n,
            _ => counted?.saturating_sub(plain),
        };
        least = least.min(this);
    }
    Ok(least)
}

/// Frees the slot and closes the gap, because look-ups stop at the first free one.
fn release(identity: usize) {
    // SAFETY: the GIL is held by the callers above, and the closure runs no Python.
    unsafe {
        COUNTED.with(|slots| {
            let used = slots.iter().take_while(|slot| slot.code != 0).count();
            if let Some(at) = slots.iter().position(|slot| slot.code == identity)
                && used > 0
            {
                slots.swap(at, used - 1);
                slots[used - 1] = FREE;
            }
        })
    }
}

/// Reports the first call of each function to `eager`, or stops it.
pub(super) fn watch_starts(py: Python<'_>, on: bool) -> PyResult<()> {
    #[cfg(Py_3_12)]
    return monitoring::set_global(py, on);
    #[cfg(not(Py_3_12))]
    first_calls::watch(py, on)
}

/// The code object that `code` stands for: the original of a copy that counts or reports; else itself.
pub(super) fn original<'py>(code: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    #[cfg(Py_3_12)]
    return code.clone();
    #[cfg(not(Py_3_12))]
    prologue::original(code)
}
