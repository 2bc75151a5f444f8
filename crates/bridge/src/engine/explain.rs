//! What compiled code is, for people: data for `explain`, sentences for the report, texts of the stages.

use std::collections::{BTreeMap, BTreeSet};

use overdrive_frontend_python::code::CodeObject;
use overdrive_frontend_python::facts::{IN_PLACE, Named, Note, Status, Typed};
use pyo3::exceptions::{PyLookupError, PyValueError};
use pyo3::prelude::{Bound, PyAny, PyAnyMethods, PyResult, Python};
use pyo3::types::{PyDict, PyDictMethods, PyList, PyListMethods};

use super::unit::{Unit, all_units, units_of};
use super::version::{Place, Version};
use super::{build, input, jit, promotion};
use std::sync::Arc;

/// Lines that the report names; `explain` shows all.
const N_SENTENCES: usize = 8;

/// The whole of a function, as plain Python data.
///
/// # Errors
/// `TypeError` for what has no code object.
pub(crate) fn data<'py>(of: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let py = of.py();
    let code = promotion::original_code(py, of)?;
    let units = units_for(of, &code);
    let plain = input::code_object(&code)?;
    let line_of = LineOf::of(&plain);
    let out = PyDict::new(py);
    for (key, attribute) in
        [("name", "co_qualname"), ("file", "co_filename"), ("firstlineno", "co_firstlineno")]
    {
        out.set_item(key, code.getattr(attribute)?)?;
    }
    let versions: Vec<Arc<Version>> = units.iter().flat_map(|u| all_versions(u)).collect();
    let of_loops: Vec<Note> = versions.iter().flat_map(|v| loop_notes(v)).collect();
    out.set_item("lines", lines(py, versions.iter().flat_map(|v| &v.notes).chain(&of_loops))?)?;
    let shown = PyList::empty(py);
    for version in &versions {
        let one = one_version(py, version)?;
        one.set_item("line_types", line_types(py, &version.typed, &plain, &line_of)?)?;
        shown.append(one)?;
    }
    out.set_item("versions", shown)?;
    out.set_item("code_lines", code_lines(&code)?)?;
    let mut left: BTreeMap<(u32, String), u64> = BTreeMap::new();
    for unit in &units {
        unit.left().into_iter().for_each(|(place, n)| *left.entry(place).or_default() += n);
    }
    let exits = PyList::empty(py);
    for ((origin, why), count) in left {
        let row = PyDict::new(py);
        row.set_item("line", line_of.line(origin & !IN_PLACE))?;
        row.set_item("why", why)?;
        row.set_item("count", count)?;
        exits.append(row)?;
    }
    out.set_item("left", exits)?;
    let mut refused: Vec<String> = units.iter().filter_map(|u| u.why_closed()).collect();
    if refused.is_empty() && versions.is_empty() {
        refused.extend(promotion::refusal(&code)?);
    }
    if units.is_empty() && refused.is_empty() {
        // Nothing ran yet: what can be said without knowing types.
        match build::preview(&code) {
            Ok((notes, typed)) => {
                out.set_item("lines", lines(py, notes.iter())?)?;
                out.set_item("line_types", line_types(py, &typed, &plain, &line_of)?)?;
            }
            Err(why) => refused.push(why),
        }
    }
    out.set_item("refused", refused)?;
    let loops = PyDict::new(py);
    for unit in &units {
        for (offset, why) in &unit.state.borrow().closed_loops {
            loops.set_item(offset, why)?;
        }
    }
    out.set_item("refused_loops", loops)?;
    out.set_item("calls", units.iter().map(|u| u.n_calls()).sum::<u64>())?;
    out.set_item("exits", units.iter().map(|u| u.counters.exits.get()).sum::<u64>())?;
    out.set_item("loops_entered", units.iter().map(|u| u.n_loops_entered()).sum::<u64>())?;
    out.set_item("compiles", units.iter().map(|u| u.state.borrow().compiles).sum::<u32>())?;
    let timed: u64 = units.iter().map(|u| u.counters.timed_calls.get()).sum();
    let ns: u128 = units.iter().map(|u| u.counters.timed.get().as_nanos()).sum();
    out.set_item("ns_per_call", (timed > 0).then(|| ns as f64 / timed as f64))?;
    Ok(out)
}

/// A text of the latest version: `ir`, `llvm` or `asm`.
///
/// # Errors
/// `ValueError` for another stage, `LookupError` when nothing was compiled.
pub(crate) fn emit(of: &Bound<'_, PyAny>, stage: &str) -> PyResult<String> {
    let py = of.py();
    let code = promotion::original_code(py, of)?;
    let version = units_for(of, &code).iter().flat_map(|u| all_versions(u)).next();
    let version = version.ok_or_else(|| PyLookupError::new_err("nothing of this function was compiled"))?;
    match stage {
        "ir" => Ok(version.function().to_string()),
        "llvm" => Ok(build::texts(py, &version)?.0),
        "asm" => Ok(build::texts(py, &version)?.1),
        other => Err(PyValueError::new_err(format!("no stage {other:?}: there are ir, llvm and asm"))),
    }
}

/// An instruction: its line in the source, if it has one, whether it is part of a way out into CPython, and its text.
pub(crate) type Listed = (Option<u32>, bool, String);

/// The machine code of each version, in the order of `data`: its types and size, as told there, and its instructions.
///
/// # Errors
/// `TypeError` for what has no code object, `RuntimeError` with the code generator's words.
pub(crate) fn listings(of: &Bound<'_, PyAny>) -> PyResult<Vec<(String, usize, Vec<Listed>)>> {
    let py = of.py();
    let code = promotion::original_code(py, of)?;
    let plain = input::code_object(&code)?;
    let line_of = LineOf::of(&plain);
    let versions: Vec<Arc<Version>> = units_for(of, &code).iter().flat_map(|u| all_versions(u)).collect();
    let one = |version: &Arc<Version>| {
        let routines = &version.function().routines;
        // A routine is a function that calls itself: often this very one, else all of it is somewhere else.
        let is_ours = |n: usize| routines.get(n).is_some_and(|routine| routine.name == plain.qualname);
        let listed = build::listing(py, version)?.into_iter().map(|line| {
            let place = line.place.filter(|_| line.routine.is_none_or(is_ours));
            let source = place.and_then(|offset| line_of.line(offset & !IN_PLACE));
            (source, line.is_way_out, line.text)
        });
        Ok((version.samples.join(", "), version.code.code.code_size(), listed.collect()))
    };
    versions.iter().map(one).collect()
}

/// `data` of everything in the process that was compiled, or was to be.
///
/// # Errors
/// What reading a code object raises.
pub(crate) fn everything(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let mut codes: Vec<Bound<'_, PyAny>> = Vec::new();
    for unit in all_units() {
        let code = unit.code.bind(py);
        if !codes.iter().any(|known| known.is(code)) {
            codes.push(code.clone());
        }
    }
    codes.iter().map(data).collect()
}

/// Number of exits of the latest version.
///
/// # Errors
/// `LookupError` when nothing was compiled.
pub(crate) fn n_exits(of: &Bound<'_, PyAny>) -> PyResult<usize> {
    let code = promotion::original_code(of.py(), of)?;
    let version = units_for(of, &code).iter().flat_map(|u| all_versions(u)).next();
    let version = version.ok_or_else(|| PyLookupError::new_err("nothing of this function was compiled"))?;
    Ok(version.function().exits.len())
}

/// One sentence per line that does not run natively, and why.
pub(crate) fn sentences(unit: &Unit) -> Vec<String> {
    if let Some(why) = unit.why_closed() {
        return vec![why];
    }
    let versions = all_versions(unit);
    let by_line = by_line(versions.iter().flat_map(|v| &v.notes));
    let sentences = by_line.into_iter().filter(|(_, (status, _))| *status != Status::Native);
    let say = |(line, (status, why)): (u32, (Status, Vec<String>))| {
        let how = if status == Status::Interpreted { "is interpreted" } else { "runs through CPython" };
        format!("line {line} {how}: {}", why.join(", "))
    };
    sentences.map(say).take(N_SENTENCES).collect()
}

/// Of a jitted callable its own unit (with and without `fastmath` there may be two for one code object), else all.
fn units_for(of: &Bound<'_, PyAny>, code: &Bound<'_, PyAny>) -> Vec<Arc<Unit>> {
    let mut units = units_of(code);
    if let Some(own) = jit::unit_of(of) {
        units.retain(|unit| std::ptr::eq(Arc::as_ptr(unit), own));
    }
    units
}

/// Calls first, latest first.
fn all_versions(unit: &Unit) -> Vec<Arc<Version>> {
    let state = unit.state.borrow();
    let loops: BTreeMap<_, _> = state.loops.iter().collect();
    state.calls.iter().chain(loops.into_values().flatten()).cloned().collect()
}

/// What became of loops, at their lines.
fn loop_notes(version: &Version) -> Vec<Note> {
    let at = |offset: u32| version.notes.iter().find(|note| note.offset >= offset).and_then(|note| note.line);
    let remarks = version.function().remarks.iter();
    let note = |(offset, why): &(u32, String)| Note {
        offset: *offset,
        line: at(*offset),
        status: Status::Native,
        why: why.clone(),
    };
    remarks.map(note).collect()
}

/// Lines of a code object by bytecode offset.
struct LineOf(Vec<(u32, Option<u32>)>);

impl LineOf {
    fn of(plain: &CodeObject) -> LineOf {
        let instrs = overdrive_frontend_python::function::Function::analyse(Arc::new(plain.clone()));
        // Code that cannot be read is not compiled either: nothing of it has a place.
        let mut lines: Vec<_> = instrs
            .map_or_else(|_| vec![], |f| f.instrs.iter().map(|i| (i.op_offset, i.position.line)).collect());
        lines.sort_unstable();
        LineOf(lines)
    }

    fn line(&self, offset: u32) -> Option<u32> {
        let at = self.0.partition_point(|(begin, _)| *begin < offset);
        self.0.get(at).filter(|(begin, _)| *begin == offset)?.1
    }
}

/// Lines that hold instructions, ascending.
fn code_lines(code: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    let mut lines = BTreeSet::new();
    for entry in code.call_method0("co_lines")?.try_iter()? {
        let (_, _, line): (u32, u32, Option<u32>) = entry?.extract()?;
        lines.extend(line);
    }
    Ok(lines.into_iter().collect())
}

/// What is known of variables, by line and name: types in the order in which they come.
fn line_types<'py>(
    py: Python<'py>,
    typed: &[Typed],
    plain: &CodeObject,
    line_of: &LineOf,
) -> PyResult<Bound<'py, PyList>> {
    let mut all: BTreeMap<(u32, &str), Vec<&str>> = BTreeMap::new();
    let mut sorted: Vec<&Typed> = typed.iter().collect();
    sorted.sort_by_key(|t| t.offset);
    for Typed { offset, name, ty } in sorted {
        let name = match name {
            Named::Local(n) => plain.localsplus.get(*n as usize).map(|slot| slot.name.as_str()),
            Named::Global(n) => plain.names.get(*n as usize).map(String::as_str),
        };
        let (Some(line), Some(name)) = (line_of.line(*offset), name) else { continue };
        let types = all.entry((line, name)).or_default();
        if !types.contains(&ty.as_str()) {
            types.push(ty);
        }
    }
    let out = PyList::empty(py);
    for ((line, name), types) in all {
        let row = PyDict::new(py);
        row.set_item("line", line)?;
        row.set_item("name", name)?;
        row.set_item("types", types)?;
        out.append(row)?;
    }
    Ok(out)
}

type Lines = BTreeMap<u32, (Status, Vec<String>)>;

/// The worst status of each line, over all versions, with all reasons.
fn by_line<'a>(notes: impl Iterator<Item = &'a Note>) -> Lines {
    let mut lines = Lines::new();
    for Note { line, status, why, .. } in notes {
        let Some(line) = line else { continue };
        let entry = lines.entry(*line).or_insert((Status::Native, Vec::new()));
        entry.0 = entry.0.max(*status);
        if !why.is_empty() && !entry.1.contains(why) {
            entry.1.push(why.clone());
        }
    }
    lines
}

fn lines<'py, 'a>(py: Python<'py>, notes: impl Iterator<Item = &'a Note>) -> PyResult<Bound<'py, PyList>> {
    let out = PyList::empty(py);
    for (line, (status, why)) in by_line(notes) {
        let row = PyDict::new(py);
        row.set_item("line", line)?;
        row.set_item("status", status_name(status))?;
        row.set_item("why", why)?;
        out.append(row)?;
    }
    Ok(out)
}

fn status_name(status: Status) -> &'static str {
    match status {
        Status::Native => "native",
        Status::ThroughCPython => "cpython",
        Status::Interpreted => "not compiled",
    }
}

fn one_version<'py>(py: Python<'py>, version: &Version) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    match version.place {
        Place::Call => out.set_item("entry", "call")?,
        Place::Loop(offset) => {
            out.set_item("entry", "loop")?;
            out.set_item("loop_offset", offset)?;
        }
    }
    out.set_item("types", version.samples.join(", "))?;
    let locals = PyDict::new(py);
    for (name, ty) in &version.types {
        locals.set_item(name, ty)?;
    }
    out.set_item("locals", locals)?;
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    out.set_item("compile_ms", ms(version.front_end + version.code_generation))?;
    let stages = PyDict::new(py);
    stages.set_item("front end", ms(version.front_end))?;
    for (stage, time) in &version.code.timings {
        stages.set_item(stage, ms(*time))?;
    }
    out.set_item("stages", stages)?;
    let exits = PyList::empty(py);
    let taken = version.function().exits.iter().zip(&version.taken);
    for (exit, taken) in taken.filter(|(_, taken)| taken.get() > 0) {
        let row = PyDict::new(py);
        row.set_item("offset", exit.offset)?;
        let note = version.notes.iter().find(|n| n.offset == exit.origin & !IN_PLACE);
        row.set_item("line", note.and_then(|n| n.line))?;
        row.set_item("kind", format!("{:?}", exit.kind).to_lowercase())?;
        row.set_item("why", &exit.reason)?;
        row.set_item("count", taken.get())?;
        exits.append(row)?;
    }
    out.set_item("n_exits", version.function().exits.len())?;
    out.set_item("exits", exits)?;
    out.set_item("cached", version.code.is_cached)?;
    out.set_item("entered", version.n_entered())?;
    out.set_item("code_size", version.code.code.code_size())?;
    out.set_item("leaf", version.is_leaf.get())?;
    out.set_item("fastmath", version.function().fastmath)?;
    out.set_item("vector_functions", version.code.code.vector_functions())?;
    Ok(out)
}
