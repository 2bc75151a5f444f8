//! Which variable slots hold something, and which values are still needed.
//!
//! In: graph and stack shapes. Out: for each instruction the state of every
//! slot of `localsplus` (set, unset, either) over *all* paths, exceptional ones
//! and those of the interpreter included, so that it also holds where a running
//! frame is entered; and the slots whose value some path still reads.
//! A debugger that clears a local behind the program's back is not seen.

use crate::cfg::Cfg;
use crate::code::{CodeObject, LocalKind};
use crate::op::{Instr, LocalIdx, Op};
use crate::stack::{SlotKind, Stacks};

/// Whether a slot is NULL. For cells: the slot itself, not the cell's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotState {
    /// Never NULL here.
    Set,
    /// Always NULL here.
    Unset,
    /// Depends on the path.
    Maybe,
}

impl SlotState {
    fn join(self, other: SlotState) -> SlotState {
        if self == other { self } else { SlotState::Maybe }
    }
}

/// Facts about variable slots, by instruction index.
#[derive(Clone, Debug)]
pub struct Locals {
    /// State of every slot before the instruction; `None` where execution
    /// cannot come.
    before: Vec<Option<Box<[SlotState]>>>,
    /// Slots that some path reads before it writes them.
    live: Vec<Box<[bool]>>,
}

impl Locals {
    /// Solves both problems. Cost: instructions × slots, a few times over.
    pub fn compute(code: &CodeObject, instrs: &[Instr], cfg: &Cfg, stacks: &Stacks) -> Locals {
        Locals { before: states(code, instrs, cfg, stacks), live: liveness(code, instrs, cfg) }
    }

    /// State of a slot before an instruction; `None` where execution cannot come.
    pub fn state(&self, instr_idx: usize, local: LocalIdx) -> Option<SlotState> {
        self.before[instr_idx].as_ref().map(|slots| slots[local.index()])
    }

    /// All slots before an instruction, in frame order.
    pub fn states(&self, instr_idx: usize) -> Option<&[SlotState]> {
        self.before[instr_idx].as_deref()
    }

    /// Whether some path from here reads the slot before writing it. A dead
    /// value must still be released where CPython would, and travels in exits.
    pub fn is_live(&self, instr_idx: usize, local: LocalIdx) -> bool {
        self.live[instr_idx][local.index()]
    }
}

type States = Box<[SlotState]>;

fn states(code: &CodeObject, instrs: &[Instr], cfg: &Cfg, stacks: &Stacks) -> Vec<Option<States>> {
    let n_args = code.n_args() as usize;
    let at_start = |at: usize| if at < n_args { SlotState::Set } else { SlotState::Unset };
    let mut at_entry: Vec<Option<States>> = vec![None; cfg.blocks.len()];
    let mut before: Vec<Option<States>> = vec![None; instrs.len()];
    if let Some(entry) = at_entry.first_mut() {
        *entry = Some((0..code.localsplus.len()).map(at_start).collect());
    }
    // A restored slot depends on its state where it was saved, which is no
    // neighbour in the graph; so whole rounds run until nothing changes.
    let mut changed = true;
    while changed {
        changed = false;
        for &block_idx in cfg.order.iter().chain(&cfg.handler_order) {
            let block = &cfg.blocks[block_idx];
            let Some(mut slots) = at_entry[block_idx].clone() else { continue };
            for idx in block.instrs() {
                if before[idx].as_ref() != Some(&slots) {
                    before[idx] = Some(slots.clone());
                    changed = true;
                }
                if let Some(handler) = block.handler
                    && instrs[idx].op.can_raise()
                {
                    changed |= join(&mut at_entry[handler.block], &slots);
                }
                step(code, instrs, stacks, &before, idx, &mut slots);
            }
            for succ in block.succs() {
                changed |= join(&mut at_entry[succ], &slots);
            }
        }
    }
    before
}

fn join(known: &mut Option<States>, new: &States) -> bool {
    let Some(known) = known else {
        *known = Some(new.clone());
        return true;
    };
    let mut changed = false;
    for (known, new) in known.iter_mut().zip(new) {
        let joined = known.join(*new);
        changed |= joined != *known;
        *known = joined;
    }
    changed
}

/// The slots behind an instruction that did not raise.
fn step(
    code: &CodeObject,
    instrs: &[Instr],
    stacks: &Stacks,
    before: &[Option<States>],
    idx: usize,
    slots: &mut States,
) {
    match instrs[idx].op {
        // It would have raised otherwise.
        Op::LoadFast { local, .. } | Op::MakeCell(local) => slots[local.index()] = SlotState::Set,
        Op::StoreFast(local) => {
            let top = stacks.before[idx].as_ref().and_then(|shape| shape.last());
            slots[local.index()] = match top {
                Some(SlotKind::Saved { local, at }) => {
                    let saved = before[*at as usize].as_ref().map(|slots| slots[local.index()]);
                    saved.unwrap_or(SlotState::Maybe)
                }
                _ => SlotState::Set,
            };
        }
        Op::DeleteFast(local) | Op::LoadFastAndClear(local) => slots[local.index()] = SlotState::Unset,
        Op::CopyFreeVars(_) => {
            for (state, slot) in slots.iter_mut().zip(&code.localsplus) {
                if slot.kind == LocalKind::Free {
                    *state = SlotState::Set;
                }
            }
        }
        _ => {}
    }
}

fn liveness(code: &CodeObject, instrs: &[Instr], cfg: &Cfg) -> Vec<Box<[bool]>> {
    let none: Box<[bool]> = vec![false; code.localsplus.len()].into();
    let mut live = vec![none.clone(); instrs.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for &block_idx in cfg.order.iter().chain(&cfg.handler_order).rev() {
            let block = &cfg.blocks[block_idx];
            let mut now = none.clone();
            for succ in block.succs() {
                unite(&mut now, &live[cfg.blocks[succ].first]);
            }
            for idx in block.instrs().rev() {
                match instrs[idx].op {
                    Op::StoreFast(local) => now[local.index()] = false,
                    Op::LoadFast { local, .. }
                    | Op::LoadFastAndClear(local)
                    | Op::DeleteFast(local)
                    | Op::LoadClosure(local)
                    | Op::MakeCell(local)
                    | Op::LoadDeref(local)
                    | Op::StoreDeref(local)
                    | Op::DeleteDeref(local)
                    | Op::LoadFromDictOrDeref(local) => now[local.index()] = true,
                    _ => {}
                }
                if let Some(handler) = block.handler
                    && instrs[idx].op.can_raise()
                {
                    let at_handler = cfg.blocks[handler.block].first;
                    unite(&mut now, &live[at_handler].clone());
                }
                if live[idx] != now {
                    live[idx] = now.clone();
                    changed = true;
                }
            }
        }
    }
    live
}

fn unite(now: &mut [bool], other: &[bool]) {
    for (now, other) in now.iter_mut().zip(other) {
        *now |= other;
    }
}
