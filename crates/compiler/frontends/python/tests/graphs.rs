//! Loops, blocks, handlers and split instructions of known functions, and damaged code.
//!
//! The functions are those of `tests/corpus/sample.py`, on all three versions: what is asserted is what a
//! reader of that file would say.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod dumps;

use dumps::corpus;
use overdrive_frontend_python::cfg::Reach;
use overdrive_frontend_python::code::{Const, LocalKind, PyVersion};
use overdrive_frontend_python::function::Function;
use overdrive_frontend_python::locals::SlotState;
use overdrive_frontend_python::op::{BinaryKind, GlobalNull, LocalIdx, Op, UnaryKind};
use overdrive_frontend_python::stack::{RealEntry, SlotKind, real_entries};
use std::sync::Arc;

fn function(version: PyVersion, qualname: &str) -> Function {
    let dump = corpus(version).into_iter().find(|dump| dump.code.qualname == qualname).unwrap();
    Function::analyse(Arc::new(dump.code)).unwrap()
}

fn local(function: &Function, name: &str) -> LocalIdx {
    LocalIdx(function.code.localsplus.iter().position(|slot| slot.name == name).unwrap() as u32)
}

#[test]
fn nested_loops_have_headers_depths_and_back_edges() {
    for version in PyVersion::ALL {
        let function = function(version, "loops");
        let loops = &function.loops.loops;
        let for_loops: Vec<_> = loops
            .iter()
            .filter(|l| {
                let header = &function.cfg.blocks[l.header];
                function.instrs[header.instrs()].iter().any(|i| matches!(i.op, Op::ForIter { .. }))
            })
            .collect();
        assert_eq!(for_loops.len(), 2, "{version:?}");
        let (outer, inner) = (for_loops[0], for_loops[1]);
        assert_eq!((outer.depth, inner.depth), (1, 2));
        assert_eq!(loops[inner.parent.unwrap()].header, outer.header);
        assert!(inner.blocks.iter().all(|block| outer.blocks.contains(block)));
        // `continue`, and both ends of the inner loop: its `else`, its `break`.
        assert!(outer.back_edges.len() >= 2, "{version:?}: {outer:?}");
        // Exhausted, and `break`.
        assert_eq!(inner.exits.len(), 2, "{version:?}: {inner:?}");
        // Two `while` loops stand beside the `for` loops.
        let outermost = loops.iter().filter(|l| l.depth == 1).count();
        assert!(outermost >= 3, "{version:?}: {loops:?}");
        for (idx, l) in loops.iter().enumerate() {
            assert_eq!(function.loops.with_header(l.header), Some(idx));
            for back in &l.back_edges {
                assert!(function.loops.dominates(l.header, *back));
                assert!(function.cfg.blocks[*back].succs().any(|to| to == l.header));
            }
        }
    }
}

#[test]
fn an_exhausted_iterator_is_gone_on_every_version() {
    for version in PyVersion::ALL {
        let function = function(version, "loops");
        let mut n = 0;
        for (idx, instr) in function.instrs.iter().enumerate() {
            if let Op::ForIter { end } = instr.op {
                let depth = function.stacks.depth(idx).unwrap();
                let at_end = function.instr_at(end).unwrap();
                assert_eq!(function.stacks.depth(at_end), Some(depth - 1));
                assert_eq!(function.stacks.depth(idx + 1), Some(depth + 1));
                assert!(!matches!(function.instrs[at_end].op, Op::EndFor(_)));
                n += 1;
            }
        }
        assert_eq!(n, 2);
    }
}

#[test]
fn handlers_stay_out_of_ordinary_flow() {
    for version in PyVersion::ALL {
        let function = function(version, "handlers");
        let mut n_handler_blocks = 0;
        for (at, block) in function.cfg.blocks.iter().enumerate() {
            let ops = || function.instrs[block.instrs()].iter().map(|instr| &instr.op);
            if ops().any(|op| matches!(op, Op::PushExcInfo | Op::PopExcept | Op::CheckExcMatch)) {
                assert_eq!(block.reach, Reach::Handler, "{version:?}: block {at}");
                n_handler_blocks += 1;
            }
            assert_eq!(block.reach == Reach::Normal, function.cfg.order.contains(&at));
            assert_eq!(block.reach == Reach::Handler, function.cfg.handler_order.contains(&at));
            if let Some(handler) = block.handler {
                assert_ne!(function.cfg.blocks[handler.block].reach, Reach::Normal);
            }
        }
        assert!(n_handler_blocks > 8, "{version:?}: {n_handler_blocks}");
        // The loop goes on after a caught exception, but that way is not native.
        let header = function.loops.loops[0].header;
        let preds = &function.cfg.blocks[header].preds;
        assert!(preds.iter().any(|pred| function.cfg.blocks[*pred].reach == Reach::Handler));
        assert!(function.loops.loops[0].back_edges.iter().all(|b| function.cfg.order.contains(b)));
    }
}

#[test]
fn a_variable_is_set_unset_or_either() {
    for version in PyVersion::ALL {
        let function = function(version, "maybe_unset");
        let value = local(&function, "value");
        let at = |wanted: fn(&Op) -> bool| {
            let mut found = function.instrs.iter().enumerate().filter(|(_, instr)| wanted(&instr.op));
            found.next().map(|(idx, _)| idx).unwrap()
        };
        assert_eq!(function.locals.state(0, value), Some(SlotState::Unset));
        let delete = at(|op| matches!(op, Op::DeleteFast(_)));
        assert_eq!(function.locals.state(delete, value), Some(SlotState::Maybe));
        let after = function.instrs.iter().position(|instr| matches!(instr.op, Op::GetIter)).unwrap();
        assert_eq!(function.locals.state(after, value), Some(SlotState::Maybe), "{version:?}");
        let flag = local(&function, "flag");
        assert!(function.locals.states(after).unwrap()[flag.index()] == SlotState::Set);
        assert!(function.locals.is_live(0, flag) && !function.locals.is_live(after, flag));
        assert!(function.locals.is_live(after, value));
    }
}

#[test]
fn inlined_comprehensions_save_and_restore_the_variable() {
    for version in [PyVersion::V312, PyVersion::V313] {
        let function = function(version, "comprehensions");
        let z = local(&function, "z");
        let saves = function.instrs.iter().enumerate();
        let saves: Vec<usize> =
            saves.filter(|(_, i)| i.op == Op::LoadFastAndClear(z)).map(|(idx, _)| idx).collect();
        assert_eq!(saves.len(), 2, "`z = [… z …]`, and `again` behind `del z`");
        for save in saves {
            let saved = SlotKind::Saved { local: z, at: save as u32 };
            assert!(function.stacks.before[save + 2].as_ref().unwrap().contains(&saved), "{version:?}");
            // It was unset before, so it is unset again behind the restoring store.
            let restore = (save..function.instrs.len()).find(|idx| {
                let top = function.stacks.before[*idx].as_ref().and_then(|shape| shape.last());
                function.instrs[*idx].op == Op::StoreFast(z) && top == Some(&saved)
            });
            let after = restore.unwrap() + 1;
            assert_eq!(function.locals.state(after, z), Some(SlotState::Unset), "{version:?}");
        }
    }
}

#[test]
fn split_instructions_are_re_entered_only_at_their_first_part() {
    let function = function(PyVersion::V313, "containers");
    let pair = function.instrs.windows(2).find(|pair| pair[1].sub == 1).unwrap();
    assert_eq!((pair[0].offset, pair[0].sub), (pair[1].offset, 0));
    assert!(pair[0].is_reentrant() && !pair[1].is_reentrant());
    let first = function.instr_at(pair[0].offset).unwrap();
    assert_eq!(function.instrs[first].sub, 0);
}

#[test]
fn keyword_calls_start_at_their_set_up_and_stand_at_the_call() {
    for version in PyVersion::ALL {
        let function = function(version, "calls");
        let mut n = 0;
        for instr in &function.instrs {
            if let Op::Call { n_args, kw_names: Some(names) } = instr.op {
                let Const::Tuple(names) = &function.code.consts[names.index()] else { panic!("no tuple") };
                assert!(!names.is_empty() && names.len() <= n_args as usize);
                assert!(instr.offset < instr.op_offset && instr.op_offset < instr.next_offset);
                n += 1;
            }
        }
        // `key=3`, `end="" sep=""`, and `x=…`, which some compilers copy into both branches.
        assert!(n == 3 || n == 4, "{version:?}: {n}");
    }
}

#[test]
fn an_exit_lays_down_call_pairs_in_the_version_s_order() {
    let shape = [SlotKind::Value, SlotKind::Callable, SlotKind::SelfOrNull, SlotKind::Null];
    let (low, high) = (RealEntry::PairLow { callable: 1 }, RealEntry::PairHigh { callable: 1 });
    let old = vec![RealEntry::Slot(0), low, high, RealEntry::Null];
    assert_eq!(real_entries(PyVersion::V311, &shape), old);
    assert_eq!(real_entries(PyVersion::V312, &shape), old);
    let new = [RealEntry::Slot(0), RealEntry::Slot(1), RealEntry::Slot(2), RealEntry::Null];
    assert_eq!(real_entries(PyVersion::V313, &shape), new);
}

#[test]
fn one_vocabulary_for_all_versions() {
    for version in PyVersion::ALL {
        let ops: Vec<Op> = function(version, "arithmetic").instrs.into_iter().map(|i| i.op).collect();
        for wanted in [
            Op::BinaryOp { kind: BinaryKind::FloorDivide, inplace: false },
            Op::BinaryOp { kind: BinaryKind::RightShift, inplace: true },
            Op::BinaryOp { kind: BinaryKind::Power, inplace: false },
            Op::UnaryOp(UnaryKind::Positive),
            Op::UnaryOp(UnaryKind::Not),
            Op::IsOp { invert: true },
            Op::ContainsOp { invert: false },
            Op::ReturnValue,
        ] {
            assert!(ops.contains(&wanted), "{version:?}: {wanted:?}");
        }
        let closure = function(version, "closures");
        let cell = local(&closure, "a");
        assert_eq!(closure.code.localsplus[cell.index()].kind, LocalKind::CellArg);
        let n = closure.instrs.iter().filter(|instr| instr.op == Op::LoadClosure(cell)).count();
        assert_eq!(n, 1, "{version:?}");
        let place = match version {
            PyVersion::V311 | PyVersion::V312 => GlobalNull::Below,
            PyVersion::V313 => GlobalNull::Above,
        };
        let calls = function(version, "handlers");
        let found = calls.instrs.iter().filter_map(|instr| match instr.op {
            Op::LoadGlobal { null, .. } => Some(null),
            _ => None,
        });
        let found: Vec<GlobalNull> = found.collect();
        assert!(found.contains(&place) && found.contains(&GlobalNull::Absent), "{version:?}");
        assert!(found.iter().all(|null| *null == place || *null == GlobalNull::Absent));
    }
}

/// Damaged code is an error or another function, never a panic.
#[test]
fn damage_does_no_harm() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let (mut n_errors, mut n_fine) = (0, 0);
    for version in PyVersion::ALL {
        for dump in corpus(version) {
            for _ in 0..200 {
                let mut code = dump.code.clone();
                for _ in 0..=random(3) {
                    let table = match random(8) {
                        0 => &mut code.exception_table,
                        1 => &mut code.line_table,
                        _ => &mut code.code,
                    };
                    match table.len() {
                        0 => {}
                        len if random(16) == 0 => table.truncate(random(len)),
                        len => table[random(len)] = random(256) as u8,
                    }
                }
                match Function::analyse(Arc::new(code)) {
                    Ok(_) => n_fine += 1,
                    Err(error) => n_errors += usize::from(!error.to_string().is_empty()),
                }
            }
        }
    }
    assert!(n_errors > 1000 && n_fine > 1000, "{n_errors} errors, {n_fine} fine");
}
