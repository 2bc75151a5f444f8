//! The interpreted rest of a loop: native code left in the middle of it and is asked back.
//!
//! In: exits inside loops. Out: the code object armed, so that the frame is offered again at a loop head; after entries
//! that were not worth it, disarmed for good. Arming runs Python code, which must not happen while native code is
//! leaving, so it is done by a pending call, at the interpreter's next look at the eval breaker.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use overdrive_frontend_python::code::CodeObject;
use overdrive_frontend_python::decode::decode;
use overdrive_frontend_python::opcodes::Opcode;
use pyo3::ffi;
use pyo3::prelude::{PyResult, Python};

use super::unit::Unit;
use super::{debug, loops};
use crate::mechanics::osr;

/// Exits inside loops before the code is armed: the first ones teach, and blocked guards may make it needless.
const EXITS_BEFORE_ARMING: u32 = 3;
/// Offers of one loop head before a version is made for it, where each back edge is an offer.
const OFFERS_BEFORE_COMPILE: u32 = if cfg!(Py_3_12) { 200 } else { 1 };
/// An entry shorter than this does not pay for being offered …
const SHORT: Duration = Duration::from_micros(20);
/// … and after this many of them in a row no more are.
const MAX_SHORTS: u32 = 32;

/// State of one unit.
#[derive(Default)]
pub(crate) struct Rest {
    /// Bytecode from a loop's head to behind its backward jump.
    loops: OnceCell<Vec<(u32, u32)>>,
    n_exits: Cell<u32>,
    is_armed: Cell<bool>,
    /// The same of the frames that calls without one got.
    is_resumer_armed: Cell<bool>,
    is_over: Cell<bool>,
    shorts: Cell<u32>,
    offers: RefCell<HashMap<u32, u32>>,
}

impl Rest {
    /// Native code left for CPython at `offset`.
    ///
    /// # Safety
    /// The GIL is held; `unit` lives in an `Arc` and owns this.
    pub(crate) unsafe fn left_at(&self, unit: *const Unit, plain: &CodeObject, offset: u32) {
        if self.is_over.get() || self.is_armed.get() || debug::is_on() {
            return;
        }
        let loops = self.loops.get_or_init(|| find_loops(plain));
        if !loops.iter().any(|(head, end)| (*head..*end).contains(&offset)) {
            return;
        }
        self.n_exits.set(self.n_exits.get() + 1);
        if self.n_exits.get() < EXITS_BEFORE_ARMING {
            return;
        }
        // SAFETY: by contract.
        self.is_armed.set(unsafe { ask_for_arming(unit) });
    }

    /// A call without a frame got one, in the middle of a loop that may be long.
    ///
    /// # Safety
    /// As `left_at`.
    pub(crate) unsafe fn yielded(&self, unit: *const Unit) {
        if !self.is_over.get() && !self.is_resumer_armed.get() && !debug::is_on() {
            // SAFETY: by contract.
            self.is_resumer_armed.set(unsafe { ask_for_arming(unit) });
        }
    }

    /// A loop head without a version was offered; says whether one may be made now.
    pub(crate) fn is_worth_a_version(&self, offset: u32) -> bool {
        if !self.is_armed.get() && !self.is_resumer_armed.get() {
            // Offered because somebody asked for this loop.
            return true;
        }
        let mut offers = self.offers.borrow_mut();
        let n_offers = offers.entry(offset).or_default();
        *n_offers += 1;
        *n_offers >= OFFERS_BEFORE_COMPILE
    }

    /// The stub is not armed any more: an exit in a loop may arm it again.
    pub(crate) fn disarmed(&self) {
        self.is_armed.set(false);
        self.n_exits.set(0);
    }

    /// Whether entries proved too short to be worth an offer.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// A loop version ran this long.
    ///
    /// # Safety
    /// As `left_at`.
    pub(crate) unsafe fn ran(&self, unit: *const Unit, time: Duration) {
        if cfg!(not(Py_3_12)) {
            // One offer for each arming.
            self.is_armed.set(false);
            self.is_resumer_armed.set(false);
        }
        self.shorts.set(if time < SHORT { self.shorts.get() + 1 } else { 0 });
        let is_armed = self.is_armed.get() || self.is_resumer_armed.get();
        if self.shorts.get() > MAX_SHORTS && !self.is_over.replace(true) && is_armed {
            // SAFETY: by contract. Where it cannot be asked for, offers go on being turned down.
            unsafe { ask_for_arming(unit) };
        }
    }
}

/// Has `arm_now` called soon.
///
/// # Safety
/// As `Rest::left_at`.
unsafe fn ask_for_arming(unit: *const Unit) -> bool {
    // SAFETY: by contract; the pending call takes the reference over, or it is given back here.
    unsafe {
        Arc::increment_strong_count(unit);
        let is_asked = ffi::Py_AddPendingCall(Some(arm_now), unit.cast_mut().cast()) == 0;
        if !is_asked {
            Arc::decrement_strong_count(unit);
        }
        is_asked
    }
}

/// Arms the unit's stub and the frames of its calls without one, or disarms them when entries were not worth it.
extern "C" fn arm_now(unit: *mut c_void) -> c_int {
    // SAFETY: called by the interpreter with the GIL held and the reference that `left_at` made.
    let unit = unsafe { Arc::from_raw(unit.cast_const().cast::<Unit>()) };
    // Attached in PyO3's sense too: only then are references that are dropped in here released at once.
    Python::attach(|py| {
        if let Err(error) = arm(py, &unit) {
            error.write_unraisable(py, None);
        }
        drop(unit);
    });
    0
}

fn arm(py: Python<'_>, unit: &Unit) -> PyResult<()> {
    let rest = &unit.rest;
    if rest.is_resumer_armed.get() {
        let resumer = unit.made_resumer();
        rest.is_resumer_armed.set(resumer.map_or(Ok(false), |resumer| resumer.arm(py, !rest.is_over()))?);
    }
    if !rest.is_armed.get() {
        return Ok(());
    }
    // A function that was put back has none to arm.
    let stub = unit.stub(py);
    let loops = unit.loops.borrow().upgrade();
    let is_armed = match (stub, loops) {
        (Some(stub), _) if rest.is_over() => osr::disarm(&stub).map(|_| false)?,
        (Some(stub), _) => osr::arm(&stub, None)?,
        (None, Some(loops)) if !rest.is_over() => loops::arm_again(py, loops)?,
        (None, _) => false,
    };
    rest.is_armed.set(is_armed);
    Ok(())
}

fn find_loops(plain: &CodeObject) -> Vec<(u32, u32)> {
    let instrs = decode(plain.version, &plain.code).unwrap_or_default();
    let backward = |op: Opcode| {
        matches!(
            op,
            Opcode::JumpBackward
                | Opcode::PopJumpBackwardIfFalse
                | Opcode::PopJumpBackwardIfTrue
                | Opcode::PopJumpBackwardIfNone
                | Opcode::PopJumpBackwardIfNotNone
        )
    };
    instrs.iter().filter(|i| backward(i.opcode)).map(|i| (i.next.saturating_sub(2 * i.arg), i.next)).collect()
}
