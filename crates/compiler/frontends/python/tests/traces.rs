//! Stack shapes and local states hold in frames that really ran.
//!
//! `scripts/trace_stacks.py` recorded, before each instruction of `tests/corpus/sample.py`, which locals and
//! which stack entries were NULL. Every record must fit what the analyses say about that instruction.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod dumps;

use dumps::{Dump, corpus, script_dumps, u32_of};
use overdrive_frontend_python::code::PyVersion;
use overdrive_frontend_python::function::Function;
use overdrive_frontend_python::locals::SlotState;
use overdrive_frontend_python::op::LocalIdx;
use overdrive_frontend_python::stack::{RealEntry, real_entries};
use std::sync::Arc;

/// Records that were compared, and how many of their facts were certain.
#[derive(Default, Debug)]
struct Seen {
    n_records: usize,
    n_certain_locals: usize,
    n_maybe_locals: usize,
    n_entries: usize,
    n_nulls: usize,
    n_pairs: usize,
}

fn check(dump: &Dump, seen: &mut Seen) {
    let function = Function::analyse(Arc::new(dump.code.clone())).unwrap();
    for record in dump.trace.as_ref().unwrap().as_array().unwrap() {
        let offset = u32_of(&record[0]);
        let bits = |at: usize| record[at].as_str().unwrap().chars().map(|bit| bit == '1');
        let (locals, entries): (Vec<bool>, Vec<bool>) = (bits(1).collect(), bits(2).collect());
        // An offset within a folded call has no instruction of its own.
        let Some(idx) = function.instr_at(offset) else { continue };
        let place = format!("{} {} at {offset}", dump.code.version.as_str(), dump.code.qualname);

        let shape = function.stacks.before[idx].as_ref().unwrap_or_else(|| panic!("{place}: unreachable"));
        assert_eq!(shape.len(), entries.len(), "{place}: {shape:?}");
        let real = real_entries(dump.code.version, shape);
        for (at, (real, is_null)) in real.iter().zip(&entries).enumerate() {
            match *real {
                RealEntry::Null => assert!(is_null, "{place}: entry {at} of {shape:?}"),
                // The kind that matters is that of the normalised entry it names.
                RealEntry::Slot(slot) if !shape[slot as usize].may_be_null() => {
                    assert!(!is_null, "{place}: entry {at} of {shape:?}");
                }
                RealEntry::PairLow { callable } => assert_eq!(callable as usize, at),
                // The upper one is what is called, or its receiver.
                RealEntry::PairHigh { .. } => assert!(!is_null, "{place}: entry {at} of {shape:?}"),
                RealEntry::Slot(_) => {}
            }
            seen.n_entries += 1;
            seen.n_nulls += usize::from(*is_null);
            seen.n_pairs += usize::from(matches!(real, RealEntry::PairLow { .. }));
        }
        for (slot, is_null) in locals.iter().enumerate() {
            let state = function.locals.state(idx, LocalIdx(slot as u32)).unwrap();
            let name = &dump.code.localsplus[slot].name;
            match state {
                SlotState::Set => assert!(!is_null, "{place}: {name} is unset"),
                SlotState::Unset => assert!(is_null, "{place}: {name} is set"),
                SlotState::Maybe => seen.n_maybe_locals += 1,
            }
            seen.n_certain_locals += usize::from(state != SlotState::Maybe);
        }
        seen.n_records += 1;
    }
}

fn check_all(version: PyVersion, dumps: &[Dump]) {
    let mut seen = Seen::default();
    for dump in dumps {
        check(dump, &mut seen);
    }
    assert!(seen.n_records > 1500 && seen.n_nulls > 50, "{seen:?}");
    assert!(seen.n_certain_locals > 5 * seen.n_maybe_locals, "{seen:?}");
    assert!((seen.n_pairs > 50) == (version != PyVersion::V313), "{seen:?}");
}

#[test]
fn recorded_frames_fit() {
    for version in PyVersion::ALL {
        check_all(version, &corpus(version));
    }
}

#[test]
fn frames_of_this_machines_interpreters_fit() {
    for version in PyVersion::ALL {
        let sample = "tests/corpus/sample.py";
        if let Some(dumps) = script_dumps(version, "scripts/trace_stacks.py", &[sample]) {
            check_all(version, &dumps);
        }
    }
}
