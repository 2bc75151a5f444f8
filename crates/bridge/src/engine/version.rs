//! One version: machine code for a code object under assumptions, and everything that keeps it valid.
//!
//! In: a translation and its machine code. Out: an entry to call, counters, and what `explain` shows. Versions belong to
//! a unit and die with it; one that was replaced is kept until no activation is inside it.

use std::cell::Cell;
use std::sync::{Arc, Weak};
use std::time::Duration;

use overdrive_codegen::{NativeFn, Rt};
use overdrive_frontend_python::facts::{Note, Observed, Status, Typed};
use overdrive_ir::exit::ExitKind;
use overdrive_ir::function::Function;
use overdrive_ir::inst::Inst;
use overdrive_jit::Version as Code;
use pyo3::prelude::Python;

use super::consts::Consts;
use super::unit::{Left, Unit};
use crate::mechanics::Activation;
use crate::objects::Profile;

/// What native code answers when the arguments are not those it was made for. Never an object: nothing is at 1.
pub(crate) const MISS: *mut u8 = std::ptr::without_provenance_mut(1);

/// Runs without news after which a version's profile is not looked at any more.
const QUIET_RUNS: u32 = 3;

/// Where a version is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Call,
    /// The loop head at this bytecode offset.
    Loop(u32),
}

/// Machine code and its assumptions.
pub(crate) struct Version {
    pub(crate) unit: *const Unit,
    pub(crate) place: Place,
    /// Machine code and the IR that it was made from.
    pub(crate) code: Code,
    pub(crate) notes: Vec<Note>,
    pub(crate) typed: Vec<Typed>,
    pub(crate) types: Vec<(String, String)>,
    /// Bytecode offset of each profile slot.
    watched: Vec<u32>,
    pub(crate) consts: Consts,
    /// Type of each argument or local it was made for, for people.
    pub(crate) samples: Vec<String>,
    pub(crate) front_end: Duration,
    pub(crate) code_generation: Duration,
    /// May be called with the arguments of a vectorcall and no frame.
    pub(crate) is_leaf: Cell<bool>,
    /// Times that each exit was taken.
    pub(crate) taken: Box<[Cell<u32>]>,
    pub(crate) entered: Cell<u64>,
    /// Calls without a frame, misses included.
    pub(crate) leaf_calls: Cell<u64>,
    profile: Profile,
    /// Runs since the profile told something new.
    quiet_runs: Cell<u32>,
    /// Compiled in a hurry, because types are still being learned.
    pub(crate) is_hasty: bool,
    /// Lessons that it was translated with.
    pub(crate) n_learned: u32,
    /// Activations inside the code.
    active: Cell<u32>,
    /// For calls without a frame.
    leaf_run: Run,
    /// For calls straight from the jitted callable.
    vectorcall_run: Run,
}

/// What machine code gets as its `Rt`: the contract's fields first, then the activation.
#[repr(C)]
pub(crate) struct Run {
    pub(crate) rt: Rt,
    /// Null for a call without a frame.
    pub(crate) activation: *mut Activation<'static>,
    /// The jitted callable itself was called with these arguments: what the version does not take goes through its twin
    /// instead of being answered with `MISS`, so that the vectorcall can end in a jump to the machine code.
    pub(crate) is_vectorcall: bool,
}

/// What a translation leaves behind beside its IR.
pub(crate) struct Parts {
    pub(crate) notes: Vec<Note>,
    pub(crate) typed: Vec<Typed>,
    pub(crate) types: Vec<(String, String)>,
    pub(crate) watched: Vec<u32>,
    pub(crate) is_hasty: bool,
    pub(crate) n_learned: u32,
    /// Number of parameters when all of them are positional and there is no `*args` or `**kwargs`.
    pub(crate) n_positional: Option<u32>,
    pub(crate) consts: Consts,
    pub(crate) samples: Vec<String>,
    pub(crate) front_end: Duration,
}

impl Version {
    /// Puts the parts together; in an `Arc`, because machine code keeps its address.
    pub(crate) fn new(
        unit: *const Unit,
        place: Place,
        parts: Parts,
        code: Code,
        code_generation: Duration,
    ) -> Arc<Version> {
        let Parts {
            notes,
            typed,
            types,
            watched,
            is_hasty,
            n_learned,
            n_positional,
            consts,
            samples,
            front_end,
        } = parts;
        let function = &code.function;
        let is_leaf = place == Place::Call
            && !function.needs_frame
            && consts.is_unpinned()
            && n_positional == Some(function.n_args)
            && watched.is_empty()
            && !takes_arguments(function);
        let n_exits = function.exits.len();
        let frameless = |this: &Weak<Version>, is_vectorcall| Run {
            rt: Rt {
                code_base: std::ptr::null(),
                owner: this.as_ptr().cast_mut().cast(),
                profile: std::ptr::null_mut(),
            },
            activation: std::ptr::null_mut(),
            is_vectorcall,
        };
        Arc::new_cyclic(|this: &Weak<Version>| Version {
            unit,
            place,
            consts,
            samples,
            front_end,
            code_generation,
            is_leaf: Cell::new(is_leaf),
            taken: vec![Cell::new(0); n_exits].into_boxed_slice(),
            entered: Cell::new(0),
            leaf_calls: Cell::new(0),
            profile: Profile::new(watched.len() as u32),
            quiet_runs: Cell::new(if watched.is_empty() { QUIET_RUNS } else { 0 }),
            is_hasty,
            n_learned,
            active: Cell::new(0),
            leaf_run: frameless(this, false),
            vectorcall_run: frameless(this, true),
            code,
            notes,
            typed,
            types,
            watched,
        })
    }

    /// The IR; exits refer to it.
    pub(crate) fn function(&self) -> &Function {
        &self.code.function
    }

    /// Whether it still watches types for a later version.
    #[inline]
    pub(crate) fn is_learning(&self) -> bool {
        self.quiet_runs.get() < QUIET_RUNS
    }

    /// One more run without news; says whether these were enough.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet_runs.set(self.quiet_runs.get() + 1);
        !self.is_learning()
    }

    /// Its slots are not looked at any more.
    pub(crate) fn stop_learning(&self) {
        self.quiet_runs.set(QUIET_RUNS);
    }

    /// The machine code.
    #[inline]
    pub(crate) fn entry(&self) -> NativeFn {
        self.code.code.entry()
    }

    /// The `Rt` of calls without a frame.
    pub(crate) fn leaf_rt(&self) -> *mut Rt {
        (&raw const self.leaf_run.rt).cast_mut()
    }

    /// The `Rt` of calls straight from the jitted callable.
    pub(crate) fn vectorcall_rt(&self) -> *mut Rt {
        (&raw const self.vectorcall_run.rt).cast_mut()
    }

    /// One word per profile slot, written by machine code.
    #[inline]
    pub(crate) fn profile_words(&self) -> *mut usize {
        self.profile.words()
    }

    /// Begins an activation; false when a constant is gone, and the version with it.
    ///
    /// # Safety
    /// The GIL is held.
    #[inline]
    pub(crate) unsafe fn enter(&self) -> bool {
        // SAFETY: by contract.
        if !unsafe { self.consts.hold() } {
            return false;
        }
        self.active.set(self.active.get() + 1);
        true
    }

    /// Ends an activation.
    ///
    /// # Safety
    /// The GIL is held, after a successful `enter`.
    #[inline]
    pub(crate) unsafe fn leave(&self) {
        self.active.set(self.active.get() - 1);
        // SAFETY: by contract. Last, because a finaliser may retire this version; the caller's unit outlives it.
        unsafe { self.consts.release() };
    }

    /// Whether code of this version is on some thread's stack.
    pub(crate) fn is_active(&self) -> bool {
        self.active.get() != 0
    }

    /// Keeps the version, whose code will be returned to, while Python code may run.
    pub(crate) fn stays(&self) -> Stays<'_> {
        self.active.set(self.active.get() + 1);
        Stays(self)
    }

    /// Times it was entered and took the arguments.
    pub(crate) fn n_entered(&self) -> u64 {
        self.entered.get() + self.leaf_calls.get()
    }

    /// Adds the exits that were taken.
    pub(crate) fn add_exits(&self, to: &mut Left) {
        for (exit, taken) in self.function().exits.iter().zip(&self.taken) {
            if taken.get() > 0 && exit.kind != ExitKind::Entry {
                *to.entry((exit.origin, exit.reason.clone())).or_default() += u64::from(taken.get());
            }
        }
    }

    /// Whether an exit is that of a check which another version could do without: its operation is native, not one
    /// that is left to the interpreter anyway.
    pub(crate) fn is_speculative(&self, exit: usize) -> bool {
        let origin = self.function().exits[exit].origin;
        let mut notes = self.notes.iter().filter(|n| n.offset == origin);
        notes.all(|n| n.status != Status::Interpreted)
    }

    /// What the slots saw, by bytecode offset; empty when nothing did.
    pub(crate) fn observations(&self, py: Python<'_>) -> Vec<(u32, Observed)> {
        let slots = self.watched.iter().zip(0..);
        let seen = slots.map(|(offset, slot)| (*offset, self.profile.observed(py, slot)));
        seen.filter(|(_, observed)| *observed != Observed::Nothing).collect()
    }
}

/// See [`Version::stays`].
pub(crate) struct Stays<'a>(&'a Version);

impl Drop for Stays<'_> {
    fn drop(&mut self) {
        self.0.active.set(self.0.active.get() - 1);
    }
}

/// Whether the code takes references out of its argument array, which a vectorcall's caller owns.
fn takes_arguments(function: &Function) -> bool {
    let insts = function.blocks.iter().flat_map(|b| &b.insts);
    insts.into_iter().any(|(inst, _)| matches!(inst, Inst::OwnArg(_)))
}
