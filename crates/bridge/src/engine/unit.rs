//! A unit: everything known about the native code of one code object under one globals dictionary.
//!
//! In: what versions report (misses, exits, observed types). Out: which version runs next, and whether another is worth
//! making. Owned by the native object inside the stub's code, so it dies with its function; it owns nothing that leads
//! back to it. All fields are used under the GIL; no borrow is held while Python code can run.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ptr::null_mut;
use std::sync::{Arc, Weak};
use std::time::Duration;

use overdrive_codegen::{NativeFn, Rt};
use overdrive_frontend_python::code::{CodeObject, LocalKind};
use overdrive_frontend_python::facts::IN_PLACE;
use overdrive_ir::exit::ExitKind;
use pyo3::ffi;
use pyo3::prelude::{Bound, Py, PyAny, PyResult, Python};
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use super::hints::Hints;
use super::loops::{Loops, ResumedLoops};
use super::oracle::Lessons;
use super::rest::Rest;
use super::version::{MISS, Place, Version};
use super::{compiler, debug, input};
use crate::mechanics::frame::Frame;
use crate::mechanics::gil_cell::GilCell;
use crate::mechanics::layout;
use crate::mechanics::resume::Resumer;
use crate::objects;
use crate::promote::Ticket;

/// Versions of one entry that are kept; a call tries them in order of last use.
const MAX_VERSIONS: usize = 4;
/// Compiles of one unit, failed and replaced ones included.
const MAX_COMPILES: u32 = 12;
/// Recompiles for observed types.
const MAX_PROFILE_ROUNDS: u32 = 3;
/// Calls that no version took before another version is made.
const MISSES_BEFORE_COMPILE: u32 = 2;
/// An exit taken this often is not an accident …
const HOT_EXIT: u32 = 3;
/// … while the version is this young,
const YOUNG: u64 = 50;
/// … or when at least one entry in this many takes it.
const HOT_EXIT_ENTRIES: u64 = 50;

/// What `jit` was asked for beside compiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// Versions may differ from CPython in the last bits.
    pub(crate) fastmath: bool,
    /// Loops over `prange` may run on several threads.
    pub(crate) parallel: bool,
    /// Loops that need nothing of CPython let other threads run.
    pub(crate) nogil: bool,
    /// Machine code is neither read from the disk nor kept there.
    pub(crate) is_uncached: bool,
}

/// Who asked for native code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `jit`: the first call waits for the compile.
    Jit,
    /// Promotion: the program runs on meanwhile.
    Promoted,
}

/// The version that a vectorcall may enter without a frame. `n_args` matches nothing while there is none.
pub(crate) struct Leaf {
    pub(crate) n_args: Cell<usize>,
    pub(crate) entry: Cell<NativeFn>,
    pub(crate) rt: Cell<*mut Rt>,
    /// For calls straight from the jitted callable.
    pub(crate) vectorcall_rt: Cell<*mut Rt>,
    /// Where such calls are counted: in the version.
    pub(crate) calls: Cell<*const Cell<u64>>,
}

impl Leaf {
    /// Whether there is one.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.n_args.get() != usize::MAX
    }

    /// Counts a call and makes it; `None` when there is no version for that many arguments.
    ///
    /// # Safety
    /// As [`Leaf::call`]; `rt` is one of this leaf's two.
    #[inline]
    unsafe fn enter(
        &self,
        args: *mut *mut ffi::PyObject,
        n: usize,
        frame: Frame,
        rt: &Cell<*mut Rt>,
        eval_breaker: *const u8,
    ) -> Option<*mut u8> {
        if n != self.n_args.get() || !self.is_there() {
            return None;
        }
        // SAFETY: by contract. The fields belong together: they are set and reset as one, under the GIL.
        unsafe {
            let calls = &*self.calls.get();
            calls.set(calls.get() + 1);
            Some(self.entry.get()(args.cast(), frame.0, rt.get(), eval_breaker))
        }
    }

    /// Calls the version; `None` when there is none for these arguments, and nothing has happened.
    ///
    /// # Safety
    /// The GIL is held, `n` borrowed arguments lie at `args`, `frame` is null or the stub's frame that made the call,
    /// `eval_breaker` is that of this thread.
    #[inline]
    pub(crate) unsafe fn call(
        &self,
        args: *mut *mut ffi::PyObject,
        n: usize,
        frame: Frame,
        eval_breaker: *const u8,
    ) -> Option<*mut ffi::PyObject> {
        // SAFETY: by contract.
        let result = unsafe { self.enter(args, n, frame, &self.rt, eval_breaker)? };
        (result != MISS).then_some(result.cast())
    }

    /// As [`Leaf::call`] for the jitted callable's own vectorcall: arguments that the version does not take go through
    /// the twin, so this is the caller's last word and becomes a jump. `None` only when the count is another.
    ///
    /// # Safety
    /// As [`Leaf::call`]; the unit's `jitted` is the object called.
    #[inline]
    pub(crate) unsafe fn vectorcall(
        &self,
        args: *const *mut ffi::PyObject,
        n: usize,
        eval_breaker: *const u8,
    ) -> Option<*mut ffi::PyObject> {
        // SAFETY: by contract.
        let result =
            unsafe { self.enter(args.cast_mut(), n, Frame(null_mut()), &self.vectorcall_rt, eval_breaker)? };
        Some(result.cast())
    }
}

/// See the module's contract.
pub(crate) struct Unit {
    pub(crate) leaf: Leaf,
    /// The versions that a call tries, in order, up to the first null; all null: the slow path decides.
    tries: [Cell<*const Version>; MAX_VERSIONS],
    pub(crate) kind: Kind,
    /// The call that a version is made for waits for it, and is the first that it serves.
    pub(crate) waits: Cell<bool>,
    pub(crate) code: Py<PyAny>,
    /// Compared and baked in, never owned: a running function owns both.
    pub(crate) globals: *mut ffi::PyObject,
    pub(crate) builtins: *mut ffi::PyObject,
    pub(crate) counters: Counters,
    /// Makes the frame for an exit of a call without one.
    resumer: OnceCell<Resumer>,
    /// Not being compiled is an error.
    pub(crate) is_strict: bool,
    pub(crate) wants: Wants,
    /// The jitted callable, borrowed: it owns this unit. Null for promoted functions and after its life.
    pub(crate) jitted: Cell<*mut ffi::PyObject>,
    /// A weak reference to the stub code object, which owns the native object that owns this unit, and may die first.
    stub: RefCell<Option<Py<PyWeakrefReference>>>,
    plain: OnceCell<Arc<CodeObject>>,
    pub(crate) state: RefCell<State>,
    pub(crate) hints: RefCell<Hints>,
    pub(crate) rest: Rest,
    /// What was armed for the loops of code that is not a stub.
    pub(crate) loops: RefCell<Weak<Loops>>,
}

/// What `explain` and the report show.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) calls: Cell<u64>,
    pub(crate) timed_calls: Cell<u64>,
    /// Calls that asked for the leaf version, to time one now and then.
    pub(crate) lights: Cell<u64>,
    pub(crate) timed: Cell<Duration>,
    /// The last timed call took so long that all are timed: of those there are few.
    pub(crate) is_long: Cell<bool>,
    pub(crate) exits: Cell<u64>,
}

/// How often versions left, by the bytecode offset of the check that failed (see `Exit::origin`) and its reason.
pub(crate) type Left = BTreeMap<(u32, String), u64>;

/// What changes rarely.
#[derive(Default)]
pub(crate) struct State {
    /// Entered by calls, last used first.
    pub(crate) calls: Vec<Arc<Version>>,
    /// Entered at loop heads.
    pub(crate) loops: HashMap<u32, Vec<Arc<Version>>>,
    /// Replaced, but perhaps still on some stack.
    retired: Vec<Arc<Version>>,
    buried_loop_entries: u64,
    /// How often freed versions left, see [`Unit::left`].
    buried_exits: Left,
    pub(crate) lessons: Lessons,
    pub(crate) compiles: u32,
    profile_rounds: u32,
    /// Types were watched long enough.
    is_settled: bool,
    misses: u32,
    /// The version that the next call's compile replaces.
    stale: Option<Arc<Version>>,
    /// A compile is under way, started in this process (see `compiler::epoch`).
    compiling: Option<u32>,
    /// No further compile: why.
    pub(crate) closed: Option<String>,
    /// Loop heads that are not compiled, and why.
    pub(crate) closed_loops: HashMap<u32, String>,
    pub(crate) ticket: Option<Ticket>,
}

// SAFETY: every access happens under the GIL (the module's contract); the compile thread only moves an `Arc` around.
unsafe impl Send for Unit {}
// SAFETY: as above.
unsafe impl Sync for Unit {}

static REGISTRY: GilCell<Option<HashMap<usize, Vec<Weak<Unit>>>>> = GilCell::new(None);

unsafe extern "C" fn no_entry(_: *mut *mut u8, _: *mut u8, _: *mut Rt, _: *const u8) -> *mut u8 {
    MISS
}

impl Unit {
    /// A unit for `code` run with the given dictionaries, findable by `units_of`.
    pub(crate) fn new(
        kind: Kind,
        is_strict: bool,
        wants: Wants,
        code: &Bound<'_, PyAny>,
        globals: *mut ffi::PyObject,
        builtins: *mut ffi::PyObject,
    ) -> Arc<Unit> {
        let unit = Arc::new(Unit {
            leaf: Leaf {
                n_args: Cell::new(usize::MAX),
                entry: Cell::new(no_entry),
                rt: Cell::new(null_mut()),
                vectorcall_rt: Cell::new(null_mut()),
                calls: Cell::new(std::ptr::null()),
            },
            tries: [const { Cell::new(std::ptr::null()) }; MAX_VERSIONS],
            kind,
            waits: Cell::new(kind == Kind::Jit),
            code: code.clone().unbind(),
            globals,
            builtins,
            counters: Counters::default(),
            resumer: OnceCell::new(),
            is_strict,
            wants,
            jitted: Cell::new(null_mut()),
            stub: RefCell::new(None),
            plain: OnceCell::new(),
            state: RefCell::new(State::default()),
            hints: RefCell::default(),
            rest: Rest::default(),
            loops: RefCell::new(Weak::new()),
        });
        // SAFETY: GIL held (`Bound`); the closure runs no Python.
        unsafe {
            REGISTRY.with(|registry| {
                let units = registry.get_or_insert_default().entry(code.as_ptr() as usize).or_default();
                units.retain(|unit| unit.strong_count() > 0);
                units.push(Arc::downgrade(&unit));
            });
        }
        unit
    }

    /// The code object as plain data, read once.
    ///
    /// # Errors
    /// What reading the code object raises.
    pub(crate) fn plain(&self, py: Python<'_>) -> PyResult<Arc<CodeObject>> {
        if let Some(plain) = self.plain.get() {
            return Ok(Arc::clone(plain));
        }
        let plain = Arc::new(input::code_object(self.code.bind(py))?);
        Ok(Arc::clone(self.plain.get_or_init(|| plain)))
    }

    /// How a call without a frame goes on in CPython.
    ///
    /// # Errors
    /// What building a code object raises.
    pub(crate) fn resumer(self: &Arc<Unit>, py: Python<'_>) -> PyResult<&Resumer> {
        if self.resumer.get().is_none() {
            let loops = Box::new(ResumedLoops(Arc::downgrade(self)));
            let made = Resumer::new(self.code.bind(py), Some(loops))?;
            // Another thread may have been faster while the code object was built.
            let _ = self.resumer.set(made);
        }
        self.resumer.get().ok_or_else(|| pyo3::exceptions::PyRuntimeError::new_err("no continuation"))
    }

    /// Tells the unit which stub runs it.
    ///
    /// # Errors
    /// `MemoryError`.
    pub(crate) fn set_stub(&self, stub: &Bound<'_, PyAny>) -> PyResult<()> {
        *self.stub.borrow_mut() = Some(PyWeakrefReference::new(stub)?.unbind());
        Ok(())
    }

    /// The stub, while it lives.
    pub(crate) fn stub<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.stub.borrow().as_ref()?.bind(py).upgrade()
    }

    /// The continuations, if there are any.
    pub(crate) fn made_resumer(&self) -> Option<&Resumer> {
        self.resumer.get()
    }

    /// The qualified name, for people.
    pub(crate) fn name(&self, py: Python<'_>) -> String {
        self.plain(py).map_or_else(|_| "?".to_owned(), |plain| plain.qualname.clone())
    }

    /// The first argument is a cell variable.
    pub(crate) fn first_is_cell(plain: &CodeObject) -> bool {
        plain.localsplus.first().is_some_and(|slot| slot.kind == LocalKind::CellArg)
    }

    /// The version to try after `n` others, or null.
    #[inline]
    pub(crate) fn nth_try(&self, n: usize) -> *const Version {
        self.tries.get(n).map_or(std::ptr::null(), Cell::get)
    }

    /// Whether a frame's function has the dictionaries that this unit's versions were made for.
    ///
    /// # Safety
    /// The frame is live.
    #[inline]
    pub(crate) unsafe fn serves(&self, frame: Frame) -> bool {
        // SAFETY: by contract.
        unsafe {
            frame.globals() == self.globals
                && crate::mechanics::frame::field::<*mut ffi::PyObject>(frame.0, layout::frame::BUILTINS)
                    == self.builtins
        }
    }

    /// Calls so far, those without a frame included.
    pub(crate) fn n_calls(&self) -> u64 {
        let state = self.state.borrow();
        let leaves = state.calls.iter().chain(&state.retired).map(|v| v.leaf_calls.get());
        self.counters.calls.get() + leaves.sum::<u64>()
    }

    /// Loops entered in place so far.
    pub(crate) fn n_loops_entered(&self) -> u64 {
        let state = self.state.borrow();
        let retired = state.retired.iter().filter(|v| v.place != Place::Call);
        state.loops.values().flatten().chain(retired).map(|v| v.entered.get()).sum::<u64>()
            + state.buried_loop_entries
    }

    /// Where all versions left, those that were replaced included.
    pub(crate) fn left(&self) -> Left {
        let state = self.state.borrow();
        let mut left = state.buried_exits.clone();
        let versions = state.calls.iter().chain(state.loops.values().flatten()).chain(&state.retired);
        versions.for_each(|version| version.add_exits(&mut left));
        left
    }

    /// The versions that a call may enter now, in the order in which to try them.
    pub(crate) fn call_versions(&self) -> Vec<Arc<Version>> {
        self.state.borrow().calls.clone()
    }

    /// The versions for a loop head.
    pub(crate) fn loop_versions(&self, offset: u32) -> Vec<Arc<Version>> {
        self.state.borrow().loops.get(&offset).cloned().unwrap_or_default()
    }

    /// This version took a call: it is tried first from now on.
    pub(crate) fn used(&self, version: &Arc<Version>) {
        let mut state = self.state.borrow_mut();
        if let Some(at) = state.calls.iter().position(|v| Arc::ptr_eq(v, version)) {
            state.calls[..=at].rotate_right(1);
            state.misses = 0;
            if state.stale.is_none() {
                self.publish(&state);
            }
        }
    }

    /// A constant of this version is gone.
    pub(crate) fn drop_version(&self, version: *const Version) {
        let mut state = self.state.borrow_mut();
        if let Some(at) = state.calls.iter().position(|v| Arc::as_ptr(v) == version) {
            let old = state.calls.remove(at);
            state.retired.push(old);
        }
        let State { loops, buried_exits, .. } = &mut *state;
        for versions in loops.values_mut() {
            let gone = versions.iter().filter(|v| Arc::as_ptr(v) == version);
            gone.for_each(|v| v.add_exits(buried_exits));
            versions.retain(|v| Arc::as_ptr(v) != version);
        }
        self.publish(&state);
    }

    /// Whether this version is about to be replaced.
    pub(crate) fn is_stale(&self, version: &Arc<Version>) -> bool {
        self.state.borrow().stale.as_ref().is_some_and(|stale| Arc::ptr_eq(stale, version))
    }

    /// Whether calls will never be compiled.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.borrow().closed.is_some()
    }

    /// Why nothing is compiled any more.
    pub(crate) fn why_closed(&self) -> Option<String> {
        self.state.borrow().closed.clone()
    }

    /// Whether a loop head will never be compiled.
    pub(crate) fn is_loop_closed(&self, offset: u32) -> bool {
        let state = self.state.borrow();
        state.closed_loops.contains_key(&offset) || state.compiles >= 2 * MAX_COMPILES
    }

    /// Frees versions that nobody is inside; their counts are kept.
    fn bury(&self, state: &mut State) {
        let (kept, dead) = std::mem::take(&mut state.retired)
            .into_iter()
            .partition(|v: &Arc<Version>| v.is_active() || Arc::strong_count(v) > 1);
        state.retired = kept;
        for version in dead {
            version.add_exits(&mut state.buried_exits);
            match version.place {
                Place::Call => self.counters.calls.set(self.counters.calls.get() + version.leaf_calls.get()),
                Place::Loop(_) => state.buried_loop_entries += version.entered.get(),
            }
        }
    }

    /// Whether the call that no version took, or that found a stale one, should have a version made; if so, marks the
    /// compile as begun.
    pub(crate) fn wants_call_version(&self) -> bool {
        let mut state = self.state.borrow_mut();
        self.bury(&mut state);
        if state.closed.is_some() || state.compiling == Some(compiler::epoch()) {
            return false;
        }
        if state.compiles >= MAX_COMPILES {
            if state.calls.is_empty() {
                state.closed = Some(format!("no version held after {MAX_COMPILES} compiles"));
            }
            state.stale = None;
            self.publish(&state);
            return false;
        }
        let wanted = state.stale.is_some() || state.calls.is_empty() || {
            state.misses += 1;
            state.misses >= MISSES_BEFORE_COMPILE
        };
        if wanted {
            state.compiling = Some(compiler::epoch());
            state.compiles += 1;
        }
        wanted
    }

    /// Whether a loop head should have a version made; if so, marks the compile as begun.
    pub(crate) fn wants_loop_version(&self, offset: u32) -> bool {
        let mut state = self.state.borrow_mut();
        self.bury(&mut state);
        let n_versions = state.loops.get(&offset).map_or(0, Vec::len);
        let wanted = state.compiling != Some(compiler::epoch())
            && state.compiles < 2 * MAX_COMPILES
            && n_versions < MAX_VERSIONS
            && !state.closed_loops.contains_key(&offset);
        if wanted {
            state.compiling = Some(compiler::epoch());
            state.compiles += 1;
        }
        wanted
    }

    /// The compile did not begin after all; a later call may try again.
    pub(crate) fn not_now(&self) {
        let mut state = self.state.borrow_mut();
        state.compiling = None;
        state.compiles = state.compiles.saturating_sub(1);
    }

    /// A compile is done: the new version is tried first, and replaces the stale one.
    pub(crate) fn install(&self, version: Arc<Version>) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.compiling = None;
        match version.place {
            Place::Call => {
                state.misses = 0;
                if let Some(stale) = state.stale.take() {
                    state.calls.retain(|v| !Arc::ptr_eq(v, &stale));
                    state.retired.push(stale);
                }
                state.calls.insert(0, version);
                if state.calls.len() > MAX_VERSIONS {
                    state.retired.extend(state.calls.drain(MAX_VERSIONS..));
                }
            }
            Place::Loop(offset) => state.loops.entry(offset).or_default().insert(0, version),
        }
        self.publish(state);
    }

    /// A compile came to nothing.
    pub(crate) fn refuse(&self, place: Place, why: String) {
        let mut state = self.state.borrow_mut();
        state.compiling = None;
        state.stale = None;
        match place {
            Place::Call if state.calls.is_empty() => state.closed = Some(why),
            // What there is goes on; no further types are tried.
            Place::Call => state.compiles = MAX_COMPILES,
            Place::Loop(offset) => {
                state.closed_loops.insert(offset, why);
            }
        }
        self.publish(&state);
    }

    /// Counts an exit; when its guard fails too often, the guard goes and the version is made anew.
    pub(crate) fn exited(&self, version: &Version, exit: usize) {
        let n_taken = version.taken[exit].get().saturating_add(1);
        version.taken[exit].set(n_taken);
        self.counters.exits.set(self.counters.exits.get() + 1);
        let kind = version.function().exits[exit].kind;
        if debug::is_on() {
            return;
        }
        if kind == ExitKind::Yield {
            self.yielded(version, n_taken);
        }
        if kind != ExitKind::Resume {
            return;
        }
        // What gave up because CPython asks for its turn is no failed check.
        if version.function().exits[exit].origin & IN_PLACE != 0 && objects::is_turn_asked() {
            return;
        }
        let entered = version.n_entered() + 1;
        let is_hot =
            n_taken >= HOT_EXIT && (entered <= YOUNG || u64::from(n_taken) * HOT_EXIT_ENTRIES >= entered);
        if !is_hot || !version.is_speculative(exit) {
            return;
        }
        let offset = version.function().exits[exit].origin;
        let is_news = {
            let lessons = &mut self.state.borrow_mut().lessons;
            if lessons.hinted.remove(&offset) {
                // An earlier process saw another type: this one is to be learned.
                lessons.observed.remove(&offset);
                lessons.n_learned += 1;
                true
            } else {
                let is_new = lessons.blocked.insert(offset);
                lessons.n_learned += u32::from(is_new);
                // What the version before this one taught while this one was already being compiled.
                is_new || version.n_learned < lessons.n_learned
            }
        };
        if is_news {
            self.make_anew(version);
        }
    }

    /// A call without a frame got one in the middle of a loop. Where that is usual, calls are better made with one.
    fn yielded(&self, version: &Version, n_taken: u32) {
        if n_taken >= HOT_EXIT && u64::from(n_taken) * HOT_EXIT_ENTRIES >= version.leaf_calls.get() {
            version.is_leaf.set(false);
            self.publish(&self.state.borrow());
        }
    }

    /// Takes over what a version's profile slots saw. News make it stale; when none come, a version that was compiled in
    /// a hurry is made once more with all care.
    #[cold]
    pub(crate) fn learn(&self, version: &Version) {
        // SAFETY: called with the GIL held, like all of this.
        let py = unsafe { Python::assume_attached() };
        let news = version.observations(py);
        let (is_new, is_anew) = {
            let mut state = self.state.borrow_mut();
            let mut is_new = false;
            if state.profile_rounds < MAX_PROFILE_ROUNDS {
                for (offset, observed) in news {
                    state.lessons.hinted.remove(&offset);
                    is_new |= state.lessons.observed.insert(offset, observed.clone()) != Some(observed);
                }
            }
            state.profile_rounds += u32::from(is_new);
            state.lessons.n_learned += u32::from(is_new);
            let is_quiet = !is_new && version.is_quiet();
            if is_quiet {
                version.stop_learning();
                state.is_settled |= version.place == Place::Call;
            }
            (is_new, is_new || is_quiet && version.is_hasty)
        };
        if is_new {
            let lessons = self.state.borrow().lessons.clone();
            self.hints.borrow_mut().keep(py, &lessons);
        }
        if is_anew {
            self.make_anew(version);
        }
    }

    /// Whether a version that watches types will soon be replaced, so that little time should go into it.
    pub(crate) fn is_learning(&self) -> bool {
        let state = self.state.borrow();
        !state.is_settled && state.profile_rounds < MAX_PROFILE_ROUNDS
    }

    /// The next call compiles a version in this one's place; the next entry of a loop does likewise.
    fn make_anew(&self, version: &Version) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        match version.place {
            Place::Call => {
                if let Some(found) = state.calls.iter().find(|v| std::ptr::eq(Arc::as_ptr(v), version)) {
                    state.stale = Some(Arc::clone(found));
                }
            }
            Place::Loop(offset) => {
                if let Some(versions) = state.loops.get_mut(&offset)
                    && let Some(at) = versions.iter().position(|v| std::ptr::eq(Arc::as_ptr(v), version))
                {
                    let old = versions.remove(at);
                    state.retired.push(old);
                }
            }
        }
        self.publish(state);
    }

    /// Makes `tries` and `leaf` agree with the list. A stale version hides all: the slow path must see the next call.
    fn publish(&self, state: &State) {
        let is_open = state.stale.is_none();
        for (n, slot) in self.tries.iter().enumerate() {
            let version = state.calls.get(n).filter(|_| is_open);
            slot.set(version.map_or(std::ptr::null(), Arc::as_ptr));
        }
        let first = state.calls.first().filter(|_| is_open);
        let leaf = first.filter(|v| v.is_leaf.get());
        match leaf {
            Some(version) => {
                self.leaf.entry.set(version.entry());
                self.leaf.rt.set(version.leaf_rt());
                self.leaf.vectorcall_rt.set(version.vectorcall_rt());
                self.leaf.calls.set(&raw const version.leaf_calls);
                self.leaf.n_args.set(version.function().n_args as usize);
            }
            None => {
                self.leaf.n_args.set(usize::MAX);
                self.leaf.entry.set(no_entry);
                self.leaf.calls.set(std::ptr::null());
            }
        }
    }
}

/// Live units of a code object.
pub(crate) fn units_of(code: &Bound<'_, PyAny>) -> Vec<Arc<Unit>> {
    // SAFETY: GIL held (`Bound`); the closure runs no Python.
    let units = unsafe {
        REGISTRY.with(|registry| {
            let units = registry.as_ref().and_then(|r| r.get(&(code.as_ptr() as usize)));
            units.map(|u| u.iter().filter_map(Weak::upgrade).collect::<Vec<_>>())
        })
    };
    // An address may be used again by another code object.
    units.unwrap_or_default().into_iter().filter(|u| u.code.as_ptr() == code.as_ptr()).collect()
}

/// All live units of the process.
pub(crate) fn all_units() -> Vec<Arc<Unit>> {
    // SAFETY: called with the GIL held, like all of this; the closure runs no Python.
    unsafe {
        REGISTRY.with(|registry| {
            let units = registry.iter().flat_map(HashMap::values).flatten();
            units.filter_map(Weak::upgrade).collect()
        })
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let key = self.code.as_ptr() as usize;
        // SAFETY: units are dropped under the GIL: by the native object's end, or by a compile that holds it.
        unsafe {
            REGISTRY.with(|registry| {
                if let Some(registry) = registry
                    && let Some(units) = registry.get_mut(&key)
                {
                    units.retain(|unit| unit.strong_count() > 0);
                    if units.is_empty() {
                        registry.remove(&key);
                    }
                }
            });
        }
    }
}
