//! What compiled code is, for people: data for `explain`, sentences for the report, texts of the stages.

use std::collections::BTreeMap;

use overdrive_frontend_python::facts::{IN_PLACE, Note, Status};
use pyo3::exceptions::{PyLookupError, PyValueError};
use pyo3::prelude::{Bound, PyAny, PyAnyMethods, PyResult, Python};
use pyo3::types::{PyDict, PyDictMethods, PyList, PyListMethods};

use super::unit::{Unit, units_of};
use super::version::{Place, Version};
use super::{build, jit, promotion};
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
        shown.append(one_version(py, version)?)?;
    }
    out.set_item("versions", shown)?;
    let mut refused: Vec<String> = units.iter().filter_map(|u| u.why_closed()).collect();
    if refused.is_empty() && versions.is_empty() {
        refused.extend(promotion::refusal(&code)?);
    }
    if units.is_empty() && refused.is_empty() {
        // Nothing ran yet: what can be said without knowing types.
        match build::preview(&code) {
            Ok(notes) => out.set_item("lines", lines(py, notes.iter())?)?,
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
