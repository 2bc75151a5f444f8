//! Running: from a stub's frame or a loop head into machine code, and out again.
//!
//! In: an activation (a frame whose first slots are the arguments, or whose slots and stack are live). Out: a value, or
//! the frame put into the state in which CPython goes on. Holds the services that machine code calls.

use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use overdrive_codegen::Rt;
use overdrive_ir::exit::ExitKind;
use pyo3::ffi;
use pyo3::prelude::{PyAnyMethods, Python};

use super::unit::{Kind, Unit};
use super::version::{MISS, Run, Version};
use super::{build, errors, jit, promotion};
use crate::mechanics::activation::{Activation, Exit};
use crate::mechanics::frame::{Frame, field};
use crate::mechanics::native::{Body, LoopOutcome, activation_of};
use crate::mechanics::raised::Raised;
use crate::mechanics::resume::State;
use crate::mechanics::{layout, poll};
use crate::objects;

/// One call in this many is timed …
const TIMED_EVERY: u64 = 64;
/// … and each one behind a call that took as long as this.
const LONG_CALL: Duration = Duration::from_micros(10);

/// What a stub's native object holds.
pub(crate) struct UnitBody(pub(crate) Arc<Unit>);

impl Body for UnitBody {
    #[inline]
    unsafe fn call(&self, activation: &mut Activation<'_>) -> *mut ffi::PyObject {
        let unit = &self.0;
        // SAFETY: by the trait's contract the frame is live; the tries are versions that the unit owns.
        unsafe {
            if !unit.serves(activation.frame) {
                return null_mut();
            }
            let n_calls = unit.counters.calls.get() + 1;
            unit.counters.calls.set(n_calls);
            // With a leaf version, one call in `TIMED_EVERY` comes here.
            if unit.leaf.is_there() || n_calls.is_multiple_of(TIMED_EVERY) || unit.counters.is_long.get() {
                timed_call(unit, activation)
            } else {
                call(unit, activation)
            }
        }
    }

    #[inline]
    unsafe fn call_lightly(&self, frame: Frame, eval_breaker: *const u8) -> Option<*mut ffi::PyObject> {
        // SAFETY: by the trait's contract; the arguments are in the frame's first slots.
        unsafe {
            let unit = &self.0;
            let n_lights = unit.counters.lights.get() + 1;
            unit.counters.lights.set(n_lights);
            if n_lights.is_multiple_of(TIMED_EVERY) || !unit.serves(frame) {
                return None;
            }
            unit.leaf.call(frame.locals(), unit.leaf.n_args.get(), frame, eval_breaker)
        }
    }

    #[inline]
    unsafe fn call_without_frame(
        &self,
        function: *mut ffi::PyObject,
        args: *mut *mut ffi::PyObject,
        n: usize,
        eval_breaker: *const u8,
    ) -> Option<*mut ffi::PyObject> {
        // SAFETY: by the trait's contract; the function has the dictionaries that its versions were made for.
        unsafe {
            let unit = &self.0;
            let is_ours = field::<*mut ffi::PyObject>(function.cast(), layout::function::GLOBALS)
                == unit.globals
                && field::<*mut ffi::PyObject>(function.cast(), layout::function::BUILTINS) == unit.builtins;
            if is_ours { unit.leaf.call(args, n, Frame(null_mut()), eval_breaker) } else { None }
        }
    }

    unsafe fn enter_loop(&self, activation: &mut Activation<'_>, offset: u32) -> LoopOutcome {
        // SAFETY: by the trait's contract.
        unsafe { enter_loop(&self.0, activation, offset) }
    }
}

/// Why a version was not entered; nothing has happened.
struct NotTaken;

/// Runs a version in a frame.
///
/// # Safety
/// The GIL is held, the version is kept alive by its unit, the activation's slots are as its entry expects.
#[inline]
unsafe fn enter(
    version: *const Version,
    activation: &mut Activation<'_>,
) -> Result<*mut ffi::PyObject, NotTaken> {
    // SAFETY: by contract. The version stays mapped while it is active.
    unsafe {
        let version = &*version;
        if !version.enter() {
            gone(version);
            return Err(NotTaken);
        }
        let mut run = Run {
            rt: Rt {
                code_base: activation.code_units.cast::<u8>(),
                owner: std::ptr::from_ref(version).cast_mut().cast(),
                profile: version.profile_words(),
            },
            activation: std::ptr::from_mut(activation).cast(),
            is_vectorcall: false,
        };
        // Counted first: the code may ask how often it was entered.
        version.entered.set(version.entered.get() + 1);
        let entry = version.entry();
        let result =
            entry(activation.locals.cast(), activation.frame.0, &raw mut run.rt, activation.eval_breaker);
        if result == MISS {
            version.entered.set(version.entered.get() - 1);
            version.leave();
            return Err(NotTaken);
        }
        if version.is_learning() {
            (*version.unit).learn(version);
        }
        version.leave();
        Ok(result.cast())
    }
}

/// # Safety
/// As `enter`.
#[cold]
unsafe fn gone(version: &Version) {
    // SAFETY: the unit owns the version.
    unsafe { (*version.unit).drop_version(version) };
}

/// # Safety
/// As `Body::call`; the unit serves the frame.
#[inline]
unsafe fn call(unit: &Arc<Unit>, activation: &mut Activation<'_>) -> *mut ffi::PyObject {
    let mut n = 0;
    loop {
        let version = unit.nth_try(n);
        // SAFETY: by contract.
        unsafe {
            if version.is_null() {
                return first_or_other_call(unit, activation);
            }
            if let Ok(value) = enter(version, activation) {
                return value;
            }
        }
        n += 1;
    }
}

#[cold]
unsafe fn timed_call(unit: &Arc<Unit>, activation: &mut Activation<'_>) -> *mut ffi::PyObject {
    let n_compiles = unit.state.borrow().compiles;
    let begin = Instant::now();
    // SAFETY: as for the untimed call.
    let value = unsafe { call(unit, activation) };
    let is_native = !value.is_null() && unit.state.borrow().compiles == n_compiles;
    if is_native {
        let elapsed = begin.elapsed();
        unit.counters.is_long.set(elapsed >= LONG_CALL);
        unit.counters.timed.set(unit.counters.timed.get() + elapsed);
        unit.counters.timed_calls.set(unit.counters.timed_calls.get() + 1);
    }
    value
}

/// The call that the current version does not serve: another version, a new one, or the original
/// from its start.
#[cold]
#[inline(never)]
unsafe fn first_or_other_call(unit: &Arc<Unit>, activation: &mut Activation<'_>) -> *mut ffi::PyObject {
    // SAFETY: called by `call`, under its contract.
    unsafe {
        for version in unit.call_versions() {
            if unit.is_stale(&version) {
                continue;
            }
            if let Ok(value) = enter(Arc::as_ptr(&version), activation) {
                unit.used(&version);
                return value;
            }
        }
        if unit.wants_call_version() {
            build::call_version(Python::assume_attached(), unit, activation);
        }
        // The new version, or the stale one while its successor is being compiled.
        for version in unit.call_versions() {
            if let Ok(value) = enter(Arc::as_ptr(&version), activation) {
                unit.used(&version);
                return value;
            }
        }
        if let Some(why) = unit.why_closed() {
            give_back(unit, activation, &why);
        }
        null_mut()
    }
}

/// Nothing will ever be compiled: the function gets its original code back, so that it costs nothing more; a strict one
/// raises.
unsafe fn give_back(unit: &Unit, activation: &Activation<'_>, why: &str) {
    // SAFETY: the frame is live and belongs to a function; swapping its code does not touch the running frame.
    unsafe {
        let py = Python::assume_attached();
        match unit.kind {
            Kind::Jit if unit.is_strict => errors::not_compiled(py, &unit.name(py), why).restore(py),
            Kind::Jit => jit::interpret(unit.jitted.get()),
            Kind::Promoted => {
                if let Some(function) = pyo3::Bound::from_borrowed_ptr_or_opt(py, activation.frame.function())
                    && let Err(error) = promotion::put_back(&function)
                {
                    error.write_unraisable(py, Some(&function));
                }
            }
        }
    }
}

/// # Safety
/// The contract of `Body::enter_loop`.
pub(crate) unsafe fn enter_loop(
    unit: &Arc<Unit>,
    activation: &mut Activation<'_>,
    offset: u32,
) -> LoopOutcome {
    // SAFETY: by contract; `leave` gets one owned reference.
    unsafe {
        if !unit.serves(activation.frame) {
            return LoopOutcome::NotEntered;
        }
        if unit.rest.is_over() {
            return LoopOutcome::NeverAgain;
        }
        for is_second_try in [false, true] {
            for version in unit.loop_versions(offset) {
                let begin = Instant::now();
                let Ok(value) = enter(Arc::as_ptr(&version), activation) else { continue };
                unit.rest.ran(Arc::as_ptr(unit), begin.elapsed());
                if !activation.is_left() {
                    if value.is_null() {
                        // An exit that could not build its state: the error is raised where the frame stands.
                        let position = activation.frame.position();
                        let at = position - activation.code_units.offset_from(activation.frame.first_unit());
                        activation.leave(2 * at.max(0) as u32, &[], &[], Exit::Raise);
                    } else {
                        return_from_loop(unit, activation, value);
                    }
                }
                return LoopOutcome::Left;
            }
            if is_second_try || !unit.rest.is_worth_a_version(offset) || !unit.wants_loop_version(offset) {
                break;
            }
            build::loop_version(Python::assume_attached(), unit, activation, offset);
        }
        if unit.is_loop_closed(offset) { LoopOutcome::NeverAgain } else { LoopOutcome::NotEntered }
    }
}

/// The function returned inside native code: the frame returns that value.
unsafe fn return_from_loop(unit: &Unit, activation: &mut Activation<'_>, value: *mut ffi::PyObject) {
    // SAFETY: the value is handed over; every slot stays as it is.
    unsafe {
        match build::way_to_return(Python::assume_attached(), unit, value) {
            Some(build::WayToReturn::Value(offset)) => {
                activation.leave(offset, &[], &[value], Exit::Reexecute);
            }
            Some(build::WayToReturn::Constant(offset)) => {
                ffi::Py_DECREF(value);
                activation.leave(offset, &[], &[], Exit::Reexecute);
            }
            None => {
                // No bytecode returns this value: the front end made it up.
                ffi::Py_DECREF(value);
                ffi::PyErr_SetString(
                    ffi::PyExc_SystemError,
                    c"overdrive: no way to return from a loop".as_ptr(),
                );
                let at = activation.frame.position()
                    - activation.code_units.offset_from(activation.frame.first_unit());
                activation.leave(2 * at.max(0) as u32, &[], &[], Exit::Raise);
            }
        }
    }
}

/// Machine code leaves: counts it, rebuilds the state as objects and puts the frame there.
pub(crate) unsafe extern "C" fn exit(
    rt: *mut Rt,
    frame: *mut u8,
    args: *mut *mut u8,
    exit_id: u32,
    values: *const u64,
) -> *mut u8 {
    // SAFETY: called by machine code of a live version with its own `rt`, which is a `Run`'s first field. A check inside a
    // nest that runs without the GIL leaves without it.
    unsafe {
        objects::gil::take();
        let run = rt.cast::<Run>();
        let version = &*(*rt).owner.cast::<Version>();
        let index = exit_id as usize;
        let exit = &version.function().exits[index];
        if exit.kind == ExitKind::Entry {
            return if (*run).is_vectorcall { through_twin(version, args) } else { MISS };
        }
        let _stays = version.stays();
        let unit = &*version.unit;
        unit.exited(version, index);
        let is_raise = exit.kind == ExitKind::Raise;
        let raised = if is_raise { Raised::take() } else { Raised::none() };
        let Some(mut built) = objects::materialise(exit, values, version.consts.objects()) else {
            // Out of memory while leaving: what was raised first is lost, the frame ends here.
            return null_mut();
        };
        let (mut locals, stack) = (std::mem::take(&mut built.locals), std::mem::take(&mut built.stack));
        let slots = &version.function().global_slots;
        let registers = locals.split_off(locals.len() - slots.len());
        give_back_globals(Python::assume_attached(), unit, slots, registers);
        if exit.kind == ExitKind::Yield {
            unit.rest.yielded(version.unit);
        } else if exit.kind == ExitKind::Resume
            && let Ok(plain) = unit.plain(Python::assume_attached())
        {
            unit.rest.left_at(version.unit, &plain, exit.offset);
        }
        let how = if is_raise { Exit::Raise } else { Exit::Reexecute };
        let mut state = State { offset: exit.offset, locals, stack, exit: how, raised };
        let mut own_activation = None;
        if (*run).activation.is_null() {
            own_activation = if frame.is_null() { None } else { activation_of(Frame(frame)) };
            if own_activation.is_none() {
                return without_frame(Python::assume_attached(), version.unit, state).cast();
            }
        }
        state.give_back_raised();
        let (locals, stack) = (std::mem::take(&mut state.locals), std::mem::take(&mut state.stack));
        match own_activation {
            Some(mut activation) => activation.leave(exit.offset, &locals, &stack, how).cast(),
            None => (*(*run).activation).leave(exit.offset, &locals, &stack, how).cast(),
        }
    }
}

/// The jitted callable was called with arguments that this version does not take; nothing has happened.
#[inline(never)]
unsafe fn through_twin(version: &Version, args: *mut *mut u8) -> *mut u8 {
    // SAFETY: the callable is alive at the beginning of its call; the machine code that returns from here must be to the
    // end.
    unsafe {
        let unit = kept(version.unit);
        let _stays = version.stays();
        let n = version.function().n_args as usize;
        jit::through_twin(unit.jitted.get(), args.cast(), n, null_mut()).cast()
    }
}

/// # Safety
/// `unit` lives.
unsafe fn kept(unit: *const Unit) -> Arc<Unit> {
    // SAFETY: units live in an `Arc`.
    unsafe {
        Arc::increment_strong_count(unit);
        Arc::from_raw(unit)
    }
}

/// Stores the globals that the version kept in registers (null: the dictionary is up to date). A store that finds no
/// memory keeps the old value, as CPython's own would.
unsafe fn give_back_globals(py: Python<'_>, unit: &Unit, slots: &[u32], registers: Vec<*mut ffi::PyObject>) {
    if registers.iter().all(|o| o.is_null()) {
        return;
    }
    let names = unit.code.bind(py).getattr("co_names");
    for (slot, value) in slots.iter().zip(registers) {
        if value.is_null() {
            continue;
        }
        if let Ok(Ok(name)) = names.as_ref().map(|n| n.get_item(*slot as usize)) {
            // SAFETY: the running function owns its globals, an exact dictionary; the register's reference is ours.
            unsafe {
                if ffi::PyDict_SetItem(unit.globals, name.as_ptr(), value) < 0 {
                    ffi::PyErr_Clear();
                }
            }
        }
        // SAFETY: as above.
        unsafe { ffi::Py_DECREF(value) };
    }
}

/// Goes on behind a call without a frame.
unsafe fn without_frame(py: Python<'_>, unit: *const Unit, state: State) -> *mut ffi::PyObject {
    // SAFETY: machine code of the unit is running. This reference keeps the continuation while it runs.
    let unit = unsafe { kept(unit) };
    match unit.resumer(py) {
        // SAFETY: the state is that of an exit of this code; leaf versions have no free variables.
        Ok(resumer) => unsafe { resumer.resume(py, unit.globals, null_mut(), state) },
        Err(error) => {
            error.restore(py);
            null_mut()
        }
    }
}

/// Machine code saw the eval breaker.
pub(crate) unsafe extern "C" fn poll_service(rt: *mut Rt, frame: *mut u8, pos: u32) -> i32 {
    // SAFETY: machine code passes its own `rt` and its live frame.
    unsafe {
        let run = rt.cast::<Run>();
        debug_assert!(!frame.is_null());
        if !(*run).activation.is_null() {
            (*(*run).activation).set_position(pos);
            return poll::run();
        }
        if let Some(activation) = activation_of(Frame(frame)) {
            activation.set_position(pos);
        }
        let _stays = (*(*rt).owner.cast::<Version>()).stays();
        poll::run()
    }
}
