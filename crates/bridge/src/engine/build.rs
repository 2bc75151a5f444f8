//! Making versions: samples → facts → IR (under the GIL), IR → machine code (without it), installed under the GIL.
//!
//! In: a unit and the frame whose arguments or slots are the samples. Out: a version in the unit, or the reason why there
//! is none. Machine code is made on the compile thread: `jit` waits for it, promotion does not.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use overdrive_base::flavour::Holder;
use overdrive_base::layout::ObjectLayout;
use overdrive_base::table::Entry as TableEntry;
use overdrive_codegen::{CodegenError, Forced, Level, Line, Options, Services, Target};
use overdrive_frontend_python::code::CodeObject;
use overdrive_frontend_python::decode::decode;
use overdrive_frontend_python::facts::{Entry, Fact, Note, Seen, Status, Translation, Typed};
use overdrive_frontend_python::opcodes::Opcode;
use overdrive_frontend_python::translate::translate;
use overdrive_ir::function::{Function, Iterations};
use overdrive_ir::opt::nests::NOT_PARALLEL;
use overdrive_jit::{Cache, CompileRequest, JitError, News, Version as Code};
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::{Bound, PyAny, PyAnyMethods, PyErr, PyModuleMethods, PyResult, Python};
use pyo3::types::PyDict;

use super::consts::{Consts, Scope};
use super::oracle::{Lessons, LiveOracle};
use super::unit::Unit;
use super::version::{Parts, Place, Version};
use super::{cache, compiler, debug, parallel, run};
use crate::mechanics::activation::Activation;
use crate::objects;
use crate::promote::Progress;

/// A translation that waits for its machine code.
struct Prepared {
    place: Place,
    function: Function,
    parts: Parts,
    process: Process,
    /// Where machine code may come from, and be kept.
    cache: Option<Cache<'static>>,
}

/// What machine code is made for, copied so that it can be used without the GIL.
struct Process {
    layout: ObjectLayout,
    entries: Vec<usize>,
}

/// Why no version came out.
pub(crate) enum Stopped {
    /// The front end or the code generator said so.
    Refused(String),
    /// Python raised; it is reported and the function stays interpreted.
    Raised(PyErr),
}

impl From<PyErr> for Stopped {
    fn from(error: PyErr) -> Stopped {
        Stopped::Raised(error)
    }
}

/// Makes a version for the arguments in a stub's frame, as `Unit::wants_call_version` allowed.
///
/// # Safety
/// The activation's frame is live, entered by its stub, and no argument was taken out of it.
pub(crate) unsafe fn call_version(py: Python<'_>, unit: &Arc<Unit>, activation: &Activation<'_>) {
    let prepared = prepare(py, unit, |oracle, plain| {
        let n_args = plain.n_args() as usize;
        // SAFETY: by contract the first slots hold the arguments.
        let facts = (0..n_args)
            .map(|i| unsafe { sample(py, oracle, *activation.locals.add(i)) })
            .collect::<Option<_>>();
        facts.map(Entry::Call).ok_or_else(|| Stopped::Refused("an argument is missing".to_owned()))
    });
    finish(py, unit, Place::Call, prepared);
}

/// Makes a version for a running frame at a loop head, as `Unit::wants_loop_version` allowed, and waits for it.
///
/// # Safety
/// The activation's frame is live, with all its slots and its stack.
pub(crate) unsafe fn loop_version(
    py: Python<'_>,
    unit: &Arc<Unit>,
    activation: &Activation<'_>,
    offset: u32,
) {
    let prepared = prepare(py, unit, |oracle, plain| {
        // SAFETY: by contract; at a loop head the interpreter has saved its stack pointer.
        unsafe {
            let n_slots = activation.frame.n_locals_plus();
            let depth = activation.frame.depth();
            let slot = |i: usize| *activation.locals.add(i);
            let locals = (0..plain.localsplus.len()).map(|i| sample(py, oracle, slot(i))).collect();
            let stack = (0..depth).map(|i| sample(py, oracle, slot(n_slots + i))).collect();
            Ok(Entry::Loop { offset, locals, stack })
        }
    });
    finish(py, unit, Place::Loop(offset), prepared);
}

unsafe fn sample<'py>(
    py: Python<'py>,
    oracle: &mut LiveOracle<'py>,
    object: *mut ffi::PyObject,
) -> Option<Fact> {
    // SAFETY: the slot holds a reference or null.
    let value = unsafe { Bound::from_borrowed_ptr_or_opt(py, object)? };
    Some(oracle.sample(&value))
}

/// What is said of each line, and the types of variables there.
pub(crate) type Preview = (Vec<Note>, Vec<Typed>);

/// What can be said of a code object that never ran: arguments and globals may be anything.
///
/// # Errors
/// Why nothing of it would be compiled.
pub(crate) fn preview(code: &Bound<'_, PyAny>) -> Result<Preview, String> {
    let py = code.py();
    let look = || -> PyResult<Result<Preview, String>> {
        let plain = Arc::new(super::input::code_object(code)?);
        let builtins = py.import("builtins")?.dict();
        let names = code.getattr("co_names")?.cast_into()?;
        let globals = PyDict::new(py);
        let mut oracle =
            LiveOracle::new(code.clone(), names, globals, builtins, Lessons::default(), false, false);
        let anything = py.import("builtins")?.getattr("object")?.call0()?;
        let args = (0..plain.n_args()).map(|_| oracle.sample(&anything)).collect();
        let translated = translate(&plain, &Entry::Call(args), &mut oracle);
        Ok(translated.map(|t| (t.notes, t.typed)).map_err(|refusal| refusal.why))
    };
    look().unwrap_or_else(|error| Err(error.to_string()))
}

/// Everything that needs the GIL before the code generator.
fn prepare<'py>(
    py: Python<'py>,
    unit: &Unit,
    entry: impl Fn(&mut LiveOracle<'py>, &CodeObject) -> Result<Entry, Stopped>,
) -> Result<Prepared, Stopped> {
    let begin = Instant::now();
    let plain = unit.plain(py)?;
    let code = unit.code.bind(py);
    // SAFETY: the calling function owns both dictionaries.
    let (globals, builtins): (Bound<'py, PyAny>, Bound<'py, PyAny>) =
        unsafe { (Bound::from_borrowed_ptr(py, unit.globals), Bound::from_borrowed_ptr(py, unit.builtins)) };
    let translated = |lessons: &Lessons| -> Result<(LiveOracle<'py>, Entry, Translation), Stopped> {
        let mut oracle = LiveOracle::new(
            code.clone(),
            code.getattr("co_names")?.cast_into().map_err(PyErr::from)?,
            globals.cast().map_err(PyErr::from)?.clone(),
            builtins.cast().map_err(PyErr::from)?.clone(),
            lessons.clone(),
            Unit::first_is_cell(&plain),
            unit.wants.fastmath,
        );
        let entry = entry(&mut oracle, &plain)?;
        let translation = translate(&plain, &entry, &mut oracle).map_err(|refusal| {
            let line = refusal.line.map(|line| format!("line {line}: ")).unwrap_or_default();
            Stopped::Refused(format!("{line}{}", refusal.why))
        })?;
        Ok((oracle, entry, translation))
    };
    // Asked for here: the environment, which says where it is, may change whenever nobody holds the GIL.
    let cache = if unit.wants.is_uncached || debug::is_on() { None } else { cache::cache(py) };
    let lessons = unit.state.borrow().lessons.clone();
    let mut made = translated(&lessons)?;
    // What strict functions are refused for must not depend on what ran before.
    let hinting = cache.filter(|_| !unit.is_strict);
    if let Some(cache) = hinting
        && unit.state.borrow().compiles == 1
        && lessons.observed.is_empty()
        && !made.2.profile.is_empty()
        && let Some(hinted) = unit.hints.borrow_mut().find(py, &made.2.function, cache)
        && let Ok(better) = translated(&hinted)
    {
        made = better;
        unit.state.borrow_mut().lessons = hinted;
    }
    let (oracle, entry, translation) = made;
    if unit.is_strict {
        all_native(&translation.notes)?;
    }
    let process = process(py).ok_or_else(|| Stopped::Refused(LAYOUT_UNKNOWN.to_owned()))?;
    let np_bools = (process.layout.np_true as *mut _, process.layout.np_false as *mut _);
    let scope = Scope {
        code,
        globals: &globals,
        builtins: &builtins,
        found: &oracle.found,
        bodies: &oracle.bodies,
        np_bools,
    };
    let Translation { mut function, notes, typed, profile, types } = translation;
    function.fastmath = unit.wants.fastmath;
    function.gives_gil = unit.wants.nogil;
    if !unit.wants.parallel {
        function.blocks.iter_mut().for_each(|block| block.iterations = Iterations::InOrder);
    }
    let consts = Consts::resolve(&function.consts, &scope)?;
    let is_plain = plain.n_args() == plain.arg_count;
    let parts = Parts {
        notes,
        typed,
        types,
        is_hasty: !profile.is_empty() && unit.is_learning(),
        n_learned: lessons.n_learned,
        watched: profile,
        n_positional: is_plain.then_some(plain.arg_count),
        consts,
        samples: describe(&entry, &plain),
        front_end: begin.elapsed(),
    };
    let place = match entry {
        Entry::Call(_) => Place::Call,
        Entry::Loop { offset, .. } => Place::Loop(offset),
    };
    Ok(Prepared { place, function, parts, process, cache })
}

/// Strict functions leave no line to CPython.
fn all_native(notes: &[Note]) -> Result<(), Stopped> {
    let mut reasons: Vec<String> = Vec::new();
    for note in notes.iter().filter(|note| note.status != Status::Native) {
        let line = note.line.map_or_else(|| "?".to_owned(), |line| line.to_string());
        let reason = format!("line {line}: {}", note.why);
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    if reasons.is_empty() { Ok(()) } else { Err(Stopped::Refused(reasons.join("\n"))) }
}

/// Why loops over `prange` run in order, those that do.
fn all_parallel(function: &Function, notes: &[Note]) -> Vec<String> {
    let remarks = function.remarks.iter().filter(|(_, why)| why.starts_with(NOT_PARALLEL));
    let line = |offset: u32| notes.iter().find(|note| note.offset >= offset).and_then(|note| note.line);
    remarks
        .map(|(offset, why)| {
            let line = line(*offset).map_or_else(|| "?".to_owned(), |line| line.to_string());
            format!("line {line}: {why}")
        })
        .collect()
}

const LAYOUT_UNKNOWN: &str = "this interpreter's objects are not laid out as expected (see `overdrive info`)";

fn process(py: Python<'_>) -> Option<Process> {
    let layout = objects::object_layout(py)?;
    Some(Process { layout, entries: TableEntry::ALL.iter().map(|e| objects::address(*e)).collect() })
}

/// Hands the rest to the compile thread; some units, and loops, wait for it.
fn finish(py: Python<'_>, unit: &Arc<Unit>, place: Place, prepared: Result<Prepared, Stopped>) {
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(stopped) => return refuse(py, unit, place, stopped),
    };
    let waits = unit.waits.get() || place != Place::Call;
    let outcome = if waits { compile_and_wait(py, prepared) } else { compile_behind(py, unit, prepared) };
    match outcome {
        Ok(Some(made)) => install(py, unit, made),
        // Under way, or too much in flight.
        Ok(None) => {}
        Err(error) => refuse(py, unit, place, Stopped::Raised(error)),
    }
}

/// A finished compile: what it was for, the code, and how long it took.
struct Made {
    place: Place,
    parts: Parts,
    code: Result<Code, JitError>,
    time: Duration,
}

/// The stages that need no GIL. Runs on the compile thread. Whoever waits for the code comes first, then `keep`.
fn make(prepared: Prepared) -> (Made, Unkept) {
    let begin = Instant::now();
    let Prepared { place, function, parts, process, cache } = prepared;
    let level = if parts.is_hasty { Level::Quick } else { Level::Full };
    let consts = parts.consts.addresses();
    let mut code = compiler::outside_fork(|| generate(function, &process, consts, level, cache));
    let news = code.as_mut().ok().and_then(Code::take_news);
    if let Ok(code) = &code
        && (code.is_cached || news.is_some())
    {
        cache::count(code.is_cached);
    }
    (Made { place, parts, code, time: begin.elapsed() }, news.zip(cache))
}

/// Code that the cache does not have yet.
type Unkept = Option<(News, Cache<'static>)>;

/// Puts it there. A fork waits for it: a child could not go on with half a file.
fn keep(unkept: Unkept) {
    if let Some((news, cache)) = unkept {
        compiler::outside_fork(|| news.keep(cache.store));
    }
}

fn compile_and_wait(py: Python<'_>, prepared: Prepared) -> PyResult<Option<Made>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let job: compiler::Job = Box::new(move || {
        let (made, unkept) = make(prepared);
        // The receiver is gone only when the waiting thread is.
        let _ = sender.send(made);
        keep(unkept);
    });
    compiler::submit_first(py, job)?;
    match py.detach(move || receiver.recv()) {
        Ok(made) => Ok(Some(made)),
        // The process is ending, the job was dropped: the original runs.
        Err(_) if compiler::closing() => Ok(None),
        Err(_) => Err(PyRuntimeError::new_err("the compile did not finish")),
    }
}

/// `None` when under way. A refused job is tried again by a later call.
fn compile_behind(py: Python<'_>, unit: &Arc<Unit>, prepared: Prepared) -> PyResult<Option<Made>> {
    let theirs = Arc::clone(unit);
    let job: compiler::Job = Box::new(move || {
        let (made, unkept) = make(prepared);
        if compiler::closing() {
            // References cannot be dropped without the interpreter; the process is about to end.
            std::mem::forget((theirs, made));
            return;
        }
        Python::attach(|py| {
            install(py, &theirs, made);
            drop(theirs);
        });
        keep(unkept);
    });
    if compiler::submit(py, job)?.is_some() {
        unit.not_now();
    }
    Ok(None)
}

fn generate(
    function: Function,
    process: &Process,
    consts: &[usize],
    level: Level,
    cache: Option<Cache<'_>>,
) -> Result<Code, JitError> {
    let target = target(process, consts, function.fastmath);
    let options = Options { forced: debug::forced(), level, ..Options::default() };
    // What is made to fail is a test's.
    let cache = cache.filter(|_| options.forced == Forced::No);
    overdrive_jit::compile(CompileRequest { function, options }, &target, cache)
}

/// LLVM IR and assembly of a version: it is compiled once more, and thrown away.
///
/// # Errors
/// `RuntimeError` with the code generator's words.
pub(crate) fn texts(py: Python<'_>, version: &Version) -> PyResult<(String, String)> {
    let keep = |level| Options { keep: true, level, forced: debug::forced(), ..Options::default() };
    let code = once_more(py, version, |function, target, level| {
        overdrive_codegen::compile(function, target, &keep(level))
    })?;
    let text = |t: Option<&str>| t.unwrap_or_default().to_owned();
    Ok((text(code.llvm_ir()), text(code.asm())))
}

/// The instructions of a version's machine code, with the places they come from: they are generated once more.
///
/// # Errors
/// `RuntimeError` with the code generator's words.
pub(crate) fn listing(py: Python<'_>, version: &Version) -> PyResult<Vec<Line>> {
    once_more(py, version, |function, target, level| {
        let options = Options { level, forced: debug::forced(), ..Options::default() };
        overdrive_codegen::listing(function, target, &options)
    })
}

/// Generates code of a version again, of the IR that its own was made of, without the GIL.
fn once_more<T: Send>(
    py: Python<'_>,
    version: &Version,
    generate: impl Fn(&Function, &Target<'_>, Level) -> Result<T, CodegenError> + Send + Sync,
) -> PyResult<T> {
    let process = process(py).ok_or_else(|| PyRuntimeError::new_err(LAYOUT_UNKNOWN))?;
    let function = version.function().clone();
    let consts = version.consts.addresses().to_vec();
    let level = if version.is_hasty { Level::Quick } else { Level::Full };
    let made = py.detach(|| {
        compiler::outside_fork(|| generate(&function, &target(&process, &consts, function.fastmath), level))
    });
    made.map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// What code is made for in this process.
fn target<'a>(process: &'a Process, consts: &'a [usize], fastmath: bool) -> Target<'a> {
    // The vector library is loaded for those who asked for it only: that takes a good part of a call from the cache.
    let vectors = if fastmath { &objects::vectors::library().forms[..] } else { &[] };
    Target { layout: &process.layout, entries: &process.entries, services: services(), vectors, consts }
}

fn services() -> Services {
    Services {
        exit: run::exit as *const () as usize,
        poll: run::poll_service as *const () as usize,
        should_fail: debug::should_fail as *const () as usize,
        parallel: parallel::parallel as *const () as usize,
    }
}

fn install(py: Python<'_>, unit: &Arc<Unit>, made: Made) {
    let Made { place, parts, code, time } = made;
    match code {
        Ok(code)
            if unit.is_strict
                && !parts.is_hasty
                && !all_parallel(&code.function, &parts.notes).is_empty() =>
        {
            let why = all_parallel(&code.function, &parts.notes);
            refuse(py, unit, place, Stopped::Refused(why.join("\n")));
        }
        Ok(code) => {
            unit.install(Version::new(Arc::as_ptr(unit), place, parts, code, time));
            report(unit, Progress::Done(Instant::now()));
        }
        Err(error) => {
            refuse(py, unit, place, Stopped::Refused(format!("internal error, please report: {error}")))
        }
    }
}

fn refuse(py: Python<'_>, unit: &Arc<Unit>, place: Place, stopped: Stopped) {
    let why = match stopped {
        Stopped::Refused(why) => why,
        Stopped::Raised(error) => {
            let why = format!("internal error, please report: {error}");
            error.write_unraisable(py, None);
            why
        }
    };
    unit.refuse(place, why.clone());
    if unit.call_versions().is_empty() {
        report(unit, Progress::Refused(vec![why]));
    }
}

fn report(unit: &Unit, progress: Progress) {
    if let Some(ticket) = &unit.state.borrow().ticket {
        ticket.set(progress);
    }
}

/// What each argument or local was, for people.
fn describe(entry: &Entry, plain: &CodeObject) -> Vec<String> {
    let name = |i: usize| plain.localsplus.get(i).map_or("?", |slot| slot.name.as_str()).to_owned();
    match entry {
        Entry::Call(facts) => {
            facts.iter().enumerate().map(|(i, f)| format!("{}: {}", name(i), seen_name(&f.seen))).collect()
        }
        Entry::Loop { locals, .. } => {
            let set = locals.iter().enumerate().filter_map(|(i, f)| Some((i, f.as_ref()?)));
            set.map(|(i, f)| format!("{}: {}", name(i), seen_name(&f.seen))).collect()
        }
    }
}

fn seen_name(seen: &Seen) -> String {
    match seen {
        Seen::Exact(ty) => ty.name().to_owned(),
        Seen::Array { holder, dtype, ndim } => {
            let of = if *holder == Holder::Tensor { "Tensor " } else { "" };
            format!("{of}{}[{}]", dtype.name(), vec![":"; usize::from(*ndim)].join(", "))
        }
        Seen::Other(name) => name.clone(),
    }
}

/// Where a frame can be sent to return.
pub(crate) enum WayToReturn {
    /// A RETURN_VALUE, with the value on the stack.
    Value(u32),
    /// A RETURN_CONST of `None`: all that a function without RETURN_VALUE returns is its constants.
    Constant(u32),
}

/// Finds a return in the bytecode of a unit that hands over `value`.
pub(crate) fn way_to_return(py: Python<'_>, unit: &Unit, value: *mut ffi::PyObject) -> Option<WayToReturn> {
    let plain = unit.plain(py).ok()?;
    let consts = unit.code.bind(py).getattr("co_consts").ok()?;
    let instrs = decode(plain.version, &plain.code).ok()?;
    if let Some(found) = instrs.iter().find(|i| i.opcode == Opcode::ReturnValue) {
        return Some(WayToReturn::Value(found.start));
    }
    let is_it = |index: u32| consts.get_item(index).is_ok_and(|c| c.as_ptr() == value);
    let found = instrs.iter().find(|i| i.opcode == Opcode::ReturnConst && is_it(i.arg))?;
    Some(WayToReturn::Constant(found.start))
}
