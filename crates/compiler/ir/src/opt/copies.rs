//! Copies of blocks with values and exits of their own: what the passes share that duplicate code.
//!
//! In: a function and blocks of it. Out: new blocks behind the old ones. A value that was not copied means itself, so
//! blocks are copied in an order in which definitions come before uses.

use std::collections::BTreeMap;

use crate::entities::{Block, ExitId, Value};
use crate::function::Function;
use crate::inst::{Inst, Terminator};
use crate::opt::rewrite::{each_operand, each_slot_value, each_terminator_operand};

/// Appends an instruction that has a result.
pub(super) fn push(f: &mut Function, block: Block, inst: Inst) -> Value {
    let result = f.push(block, inst);
    debug_assert!(result.is_some(), "an instruction without a result");
    result.unwrap_or(Value(0))
}

/// An empty block with the parameters of another.
pub(super) fn like(f: &mut Function, block: Block) -> Block {
    let new = f.add_block();
    f.blocks[new.index()].offset = f.blocks[block.index()].offset;
    for v in f.blocks[block.index()].params.clone() {
        let ty = f.ty(v);
        f.add_param(new, ty);
    }
    new
}

/// Edges to `from` lead to `to` instead, but for those of the blocks that `keeps` names.
pub(super) fn redirect(f: &mut Function, from: Block, to: Block, keeps: impl Fn(Block) -> bool) {
    for (at, block) in f.blocks.iter_mut().enumerate() {
        if keeps(Block(at as u32)) {
            continue;
        }
        match &mut block.terminator {
            Some(Terminator::Jump(target, _)) if *target == from => *target = to,
            Some(Terminator::Branch { then, els, .. }) => {
                for (target, _) in [then, els] {
                    if *target == from {
                        *target = to;
                    }
                }
            }
            _ => {}
        }
    }
}

/// What stands for old values and exits in copies.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    pub(super) map: BTreeMap<Value, Value>,
    exits: BTreeMap<ExitId, ExitId>,
}

impl Copies {
    pub(super) fn value(&self, v: Value) -> Value {
        self.map.get(&v).copied().unwrap_or(v)
    }

    /// The parameters of `old` mean those of `new`.
    pub(super) fn bind(&mut self, f: &Function, old: Block, new: Block) {
        let (old, new) = (&f.blocks[old.index()].params, &f.blocks[new.index()].params);
        self.map.extend(old.iter().copied().zip(new.iter().copied()));
    }

    /// Appends a copy of an instruction.
    pub(super) fn inst(&mut self, f: &mut Function, to: Block, mut inst: Inst, result: Option<Value>) {
        each_operand(&mut inst, &mut |v| *v = self.value(*v));
        if let Some(exit) = inst.exit_mut() {
            *exit = self.exit(f, *exit);
        }
        if let (Some(old), Some(new)) = (result, f.push(to, inst)) {
            f.places.copied(old, new);
            self.map.insert(old, new);
        }
    }

    /// Appends copies of a block's instructions, but for the one that makes `skip`.
    pub(super) fn insts(&mut self, f: &mut Function, from: Block, to: Block, skip: Option<Value>) {
        for (inst, result) in f.blocks[from.index()].insts.clone() {
            if result.is_none() || result != skip {
                self.inst(f, to, inst, result);
            }
        }
    }

    /// A copy of a block's end, going where `to` says.
    pub(super) fn end(
        &mut self,
        f: &mut Function,
        mut end: Terminator,
        to: impl Fn(Block) -> Block,
    ) -> Terminator {
        each_terminator_operand(&mut end, &mut |v| *v = self.value(*v));
        match end {
            Terminator::Jump(b, args) => Terminator::Jump(to(b), args),
            Terminator::Branch { cond, then, els } => {
                Terminator::Branch { cond, then: (to(then.0), then.1), els: (to(els.0), els.1) }
            }
            Terminator::Exit(exit) => Terminator::Exit(self.exit(f, exit)),
            Terminator::Return(v) => Terminator::Return(v),
        }
    }

    /// The exit with the copy's values.
    pub(super) fn exit(&mut self, f: &mut Function, old: ExitId) -> ExitId {
        if let Some(known) = self.exits.get(&old) {
            return *known;
        }
        let mut exit = f.exits[old.index()].clone();
        for slot in exit.locals.iter_mut().chain(&mut exit.stack) {
            each_slot_value(slot, &mut |v| *v = self.value(*v));
        }
        let new = f.add_exit(exit);
        self.exits.insert(old, new);
        new
    }
}
