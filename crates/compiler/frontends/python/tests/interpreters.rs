//! The front end agrees with the interpreter about code objects that the interpreter's compiler made.
//!
//! For each: decoding equals `dis`, positions equal `co_positions()`, handlers equal the exception table as
//! `dis` reads it, each operation's stack effect equals `dis.stack_effect`, the deepest stack fits
//! `co_stacksize`. The checked-in corpus always runs; the standard library where its interpreter is there.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod dumps;

use dumps::{Dump, corpus, for_each_dump, optional_u32, run_script, u32_of};
use overdrive_frontend_python::code::PyVersion;
use overdrive_frontend_python::decode::{RawInstr, decode};
use overdrive_frontend_python::function::Function;
use overdrive_frontend_python::op::Op;
use overdrive_frontend_python::opcodes::{self, Opcode};
use overdrive_frontend_python::stack::Branch;
use overdrive_frontend_python::tables::{exception_entries, positions};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Sums over many code objects, so that the checks are known to have had something to check.
#[derive(Default, Debug)]
struct Seen {
    n_instrs: usize,
    n_handlers: usize,
    n_loops: usize,
    n_exact_depths: usize,
    n_codes: usize,
    opcodes: BTreeSet<&'static str>,
}

fn check(dump: &Dump, seen: &mut Seen) {
    let code = &dump.code;
    let place = format!("{} {}:{} {}", code.version.as_str(), code.filename, code.first_line, code.qualname);
    let raw = decode(code.version, &code.code).unwrap_or_else(|error| panic!("{place}: {error}"));
    let truth = dump.truth["instructions"].as_array().unwrap();
    check_decoding(code.version, &raw, truth, &place);

    let rows = dump.truth["positions"].as_array().unwrap();
    let found = positions(code).unwrap();
    assert_eq!(found.len(), rows.len(), "{place}: positions");
    for (unit, (found, row)) in found.iter().zip(rows).enumerate() {
        let found = [found.line, found.end_line, found.col, found.end_col];
        let row: Vec<Option<u32>> = row.as_array().unwrap().iter().map(optional_u32).collect();
        assert_eq!(found[..], row[..], "{place}: position of unit {unit}");
    }

    let entries = exception_entries(code).unwrap();
    let rows = dump.truth["exceptions"].as_array().unwrap();
    assert_eq!(entries.len(), rows.len(), "{place}: exception entries");
    for (entry, row) in entries.iter().zip(rows) {
        let numbers = [entry.start, entry.end, entry.target, entry.depth];
        let expected: Vec<u32> = (0..4).map(|at| u32_of(&row[at])).collect();
        assert_eq!(numbers[..], expected[..], "{place}: exception entry");
        assert_eq!(Some(entry.lasti), row[4].as_bool(), "{place}: exception entry");
    }
    assert_eq!(code.n_args(), u32_of(&dump.truth["n_args"]), "{place}: arguments");

    let function = Function::analyse(Arc::new(code.clone())).unwrap_or_else(|e| panic!("{place}: {e}"));
    check_effects(&function, &raw, truth, &place);
    check_targets(&function, &dump.truth["jump_targets"], &place);
    let depth = function.stacks.max_depth;
    assert!(depth <= code.stack_size, "{place}: depth {depth} exceeds {}", code.stack_size);
    assert!(!function.loops.irreducible, "{place}: irreducible");

    seen.n_codes += 1;
    seen.n_instrs += raw.len();
    seen.n_handlers += entries.len();
    seen.n_loops += function.loops.loops.len();
    seen.n_exact_depths += usize::from(depth == code.stack_size);
    seen.opcodes.extend(raw.iter().map(|instr| instr.opcode.name()));
}

fn check_decoding(version: PyVersion, raw: &[RawInstr], truth: &[Value], place: &str) {
    assert_eq!(raw.len(), truth.len(), "{place}: number of instructions");
    for (instr, row) in raw.iter().zip(truth) {
        let number = u8::try_from(u32_of(&row[2])).unwrap();
        let info = opcodes::lookup(version, number).unwrap();
        let arg = info.has_arg.then_some(instr.arg);
        let found = (instr.start, instr.offset, instr.opcode, arg);
        let expected = (u32_of(&row[0]), u32_of(&row[1]), info.opcode, optional_u32(&row[3]));
        assert_eq!(found, expected, "{place}");
    }
}

/// What one instruction, or the group that was folded into a call, does to the depth.
fn check_effects(function: &Function, raw: &[RawInstr], truth: &[Value], place: &str) {
    let mut rows = raw.iter().zip(truth).peekable();
    let mut at = 0;
    while let Some(first) = function.instrs.get(at) {
        let group: Vec<_> = function.instrs[at..].iter().take_while(|i| i.offset == first.offset).collect();
        at += group.len();
        let last = &group[group.len() - 1].op;
        let (mut next, mut taken) = (0, 0);
        let mut opcode = Opcode::Nop;
        while let Some((instr, row)) = rows.next_if(|(instr, _)| instr.start < first.next_offset) {
            next += row[4].as_i64().unwrap();
            taken += row[5].as_i64().unwrap();
            opcode = instr.opcode;
        }
        // `dis` describes the way to END_FOR; ours leads behind it, two entries lower. And it leaves out
        // the value that a resumed generator finds on the stack.
        match (opcode, function.code.version) {
            (Opcode::ForIter, PyVersion::V312 | PyVersion::V313) => taken -= 2,
            (Opcode::ReturnGenerator, PyVersion::V311 | PyVersion::V312) => next += 1,
            _ => {}
        }
        let sum = |branch| group.iter().map(|instr| instr.op.effect(branch).net()).sum::<i64>();
        assert_eq!(sum(Branch::Next), next, "{place}: {last:?} at {}", first.offset);
        if last.jump_target().is_some() {
            assert_eq!(sum(Branch::Taken), taken, "{place}: {last:?} at {}, jumping", first.offset);
        }
    }
}

fn check_targets(function: &Function, truth: &Value, place: &str) {
    let skipped = match function.code.version {
        PyVersion::V311 => 0,
        PyVersion::V312 => 2,
        PyVersion::V313 => 4,
    };
    let target = |op: &Op| match op {
        Op::ForIter { end } => Some(end - skipped),
        other => other.jump_target(),
    };
    let found: BTreeSet<u32> = function.instrs.iter().filter_map(|instr| target(&instr.op)).collect();
    let expected: BTreeSet<u32> = truth.as_array().unwrap().iter().map(u32_of).collect();
    assert_eq!(found, expected, "{place}: jump targets");
}

fn check_library(version: PyVersion, every: &str) {
    let mut seen = Seen::default();
    for dump in corpus(version) {
        check(&dump, &mut seen);
    }
    assert!(seen.n_codes > 30 && seen.n_instrs > 1500, "{seen:?}");
    let Some(n) = for_each_dump(version, &["--stdlib", every], |dump| check(&dump, &mut seen)) else {
        return;
    };
    assert!(n > 1000 && seen.n_handlers > 1000 && seen.n_loops > 500, "{seen:?}");
    // Not all: the compiler also counts paths that it later removed, and the names tuple that we fold into
    // the call. A wrong effect would show as a depth that rarely fits.
    assert!(seen.n_exact_depths * 100 > seen.n_codes * 90, "{seen:?}");
}

#[test]
fn agrees_with_cpython_311() {
    check_library(PyVersion::V311, "6");
}

#[test]
fn agrees_with_cpython_312() {
    check_library(PyVersion::V312, "6");
}

#[test]
fn agrees_with_cpython_313() {
    check_library(PyVersion::V313, "6");
}

#[test]
#[ignore = "a minute for each version"]
fn agrees_with_cpython_about_the_whole_library() {
    for version in PyVersion::ALL {
        check_library(version, "1");
    }
}

#[test]
fn opcode_tables_are_those_of_the_interpreters() {
    for version in PyVersion::ALL {
        let Some(child) = run_script(version, "scripts/gen_opcodes.py", &["--table"]) else { continue };
        let output = child.wait_with_output().unwrap();
        let table: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut numbers = BTreeSet::new();
        for row in table["ops"].as_array().unwrap() {
            let number = u8::try_from(u32_of(&row[0])).unwrap();
            let info = opcodes::lookup(version, number).unwrap();
            assert_eq!(Some(info.opcode.name()), row[1].as_str());
            assert_eq!(u32::from(info.n_caches), u32_of(&row[2]), "{}", info.opcode.name());
            assert_eq!(Some(info.has_arg), row[3].as_bool(), "{}", info.opcode.name());
            numbers.insert(number);
        }
        assert!(numbers.len() > 90);
        let known: BTreeSet<u8> = (0..=255).filter(|n| opcodes::lookup(version, *n).is_some()).collect();
        assert_eq!(known, numbers);
        // The operators' order is written out in `normalise`.
        let names = ["<", "<=", "==", "!=", ">", ">="];
        assert_eq!(table["compare_ops"].as_array().unwrap()[..6], names.map(Value::from));
        let binary = table["binary_ops"].as_array().unwrap();
        assert_eq!((binary.len(), &binary[10]), (26, &Value::from("NB_SUBTRACT")));
        for (key, lookup) in [
            ("intrinsics_1", opcodes::intrinsic_1 as fn(u32) -> Option<&'static str>),
            ("intrinsics_2", opcodes::intrinsic_2),
        ] {
            for (number, name) in table[key].as_array().unwrap().iter().enumerate() {
                assert_eq!(lookup(number as u32), name.as_str());
            }
        }
    }
}
