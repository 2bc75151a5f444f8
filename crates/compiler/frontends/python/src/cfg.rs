//! Basic blocks and the edges between them.
//!
//! In: normalised instructions and the exception table. Out: blocks in code
//! order, each with at most one handler, and an order to visit them. Ordinary
//! flow and exceptional flow are kept apart: native code holds no handlers, so
//! a block that only a handler reaches belongs to the interpreter.

use crate::code::CodeObject;
use crate::error::BytecodeError;
use crate::normalise::find;
use crate::op::{Instr, Offset, Op};
use crate::tables::{ExceptionEntry, exception_entries};
use std::ops::Range;

/// How execution can come to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// From the function's start without an exception being caught.
    Normal,
    /// Only after some handler of this function was entered.
    Handler,
    /// Not at all.
    Dead,
}

/// Where an exception in a block goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handler {
    /// The handler's first block.
    pub block: usize,
    /// Stack entries that stay.
    pub depth: u32,
    /// Whether the raising offset is pushed before the exception.
    pub lasti: bool,
}

/// Instructions that run one after the other.
#[derive(Clone, Debug)]
pub struct Block {
    /// Index of the first instruction.
    pub first: usize,
    /// Index behind the last.
    pub end: usize,
    /// The block execution falls into; `None` behind a jump, return or raise.
    pub next: Option<usize>,
    /// The block the last instruction jumps to.
    pub taken: Option<usize>,
    /// Handler of all its instructions.
    pub handler: Option<Handler>,
    /// How execution can come here.
    pub reach: Reach,
    /// Blocks with `next` or `taken` here, dead ones left out. A predecessor
    /// may be reached only by a handler while this block is `Normal`.
    pub preds: Vec<usize>,
    /// Blocks whose handler this is, dead ones left out.
    pub raising_preds: Vec<usize>,
}

impl Block {
    /// Its instructions' indices.
    pub fn instrs(&self) -> Range<usize> {
        self.first..self.end
    }

    /// Successors in ordinary flow: `next`, then `taken`.
    pub fn succs(&self) -> impl Iterator<Item = usize> + use<> {
        self.next.into_iter().chain(self.taken)
    }
}

/// The control-flow graph of one code object. Block 0 is the entry.
#[derive(Clone, Debug)]
pub struct Cfg {
    /// In code order.
    pub blocks: Vec<Block>,
    /// The block of each instruction.
    pub block_of: Vec<usize>,
    /// `Reach::Normal` blocks in reverse postorder of ordinary flow.
    pub order: Vec<usize>,
    /// `Reach::Handler` blocks, each handler's blocks in reverse postorder.
    pub handler_order: Vec<usize>,
}

impl Cfg {
    /// Builds the graph.
    ///
    /// # Errors
    /// `FallsOffEnd`, `BadTable`, and `BadJump` for a handler that is no
    /// instruction.
    pub fn build(code: &CodeObject, instrs: &[Instr]) -> Result<Cfg, BytecodeError> {
        let entries = exception_entries(code)?;
        let handler_of = covering_entries(instrs, &entries)?;
        let is_first = leaders(instrs, &entries, &handler_of);

        let mut cfg =
            Cfg { blocks: vec![], block_of: vec![0; instrs.len()], order: vec![], handler_order: vec![] };
        for (idx, first) in is_first.iter().enumerate() {
            if *first {
                cfg.blocks.push(Block {
                    first: idx,
                    end: idx,
                    next: None,
                    taken: None,
                    handler: None,
                    reach: Reach::Dead,
                    preds: vec![],
                    raising_preds: vec![],
                });
            }
            let at = cfg.blocks.len() - 1;
            cfg.blocks[at].end = idx + 1;
            cfg.block_of[idx] = at;
        }
        let block_at = |offset: Offset| -> Result<usize, BytecodeError> {
            let found = find(instrs, offset).map(|idx| cfg.block_of[idx]);
            found.ok_or(BytecodeError::BadJump { offset, target: i64::from(offset) })
        };
        let mut edges = Vec::with_capacity(cfg.blocks.len());
        for (at, block) in cfg.blocks.iter().enumerate() {
            let last = &instrs[block.end - 1].op;
            let next = (!last.never_falls_through()).then_some(at + 1);
            let taken = last.jump_target().map(block_at).transpose()?;
            let handler = match handler_of[block.first].map(|entry| entries[entry]) {
                Some(entry) if block.instrs().any(|idx| instrs[idx].op.can_raise()) => {
                    Some(Handler { block: block_at(entry.target)?, depth: entry.depth, lasti: entry.lasti })
                }
                _ => None,
            };
            edges.push((next, taken, handler));
        }
        for (block, (next, taken, handler)) in cfg.blocks.iter_mut().zip(edges) {
            (block.next, block.taken, block.handler) = (next, taken, handler);
        }
        cfg.visit()?;
        cfg.link_predecessors();
        Ok(cfg)
    }

    /// Fills `reach`, `order` and `handler_order`.
    fn visit(&mut self) -> Result<(), BytecodeError> {
        if self.blocks.is_empty() {
            return Err(BytecodeError::FallsOffEnd);
        }
        self.order = self.depth_first(0, Reach::Normal)?;
        let mut seen = 0;
        let mut all = self.order.clone();
        while seen < all.len() {
            let handler = self.blocks[all[seen]].handler;
            if let Some(handler) = handler
                && self.blocks[handler.block].reach == Reach::Dead
            {
                let found = self.depth_first(handler.block, Reach::Handler)?;
                all.extend(&found);
                self.handler_order.extend(found);
            }
            seen += 1;
        }
        Ok(())
    }

    /// Marks what `root` reaches and was not marked; returns it in reverse postorder.
    fn depth_first(&mut self, root: usize, reach: Reach) -> Result<Vec<usize>, BytecodeError> {
        let mut postorder = vec![];
        let mut path = vec![(root, 0)];
        self.blocks[root].reach = reach;
        while let Some((block, n_done)) = path.last_mut() {
            // The taken edge first, so that the fall-through block comes right
            // behind its predecessor in the reversed order.
            let succ = [self.blocks[*block].taken, self.blocks[*block].next].get(*n_done).copied();
            *n_done += 1;
            match succ {
                None => postorder.push(path.pop().map_or(root, |(block, _)| block)),
                Some(None) => {}
                Some(Some(to)) => {
                    let to_block = self.blocks.get_mut(to).ok_or(BytecodeError::FallsOffEnd)?;
                    if to_block.reach == Reach::Dead {
                        to_block.reach = reach;
                        path.push((to, 0));
                    }
                }
            }
        }
        postorder.reverse();
        Ok(postorder)
    }

    fn link_predecessors(&mut self) {
        for at in 0..self.blocks.len() {
            if self.blocks[at].reach == Reach::Dead {
                // A dead block may lead over the end of the code.
                self.blocks[at].next = self.blocks[at].next.filter(|next| *next < self.blocks.len());
                continue;
            }
            for succ in self.blocks[at].succs() {
                if !self.blocks[succ].preds.contains(&at) {
                    self.blocks[succ].preds.push(at);
                }
            }
            if let Some(handler) = self.blocks[at].handler {
                self.blocks[handler.block].raising_preds.push(at);
            }
        }
    }
}

/// For each instruction the exception-table row that covers it.
fn covering_entries(
    instrs: &[Instr],
    entries: &[ExceptionEntry],
) -> Result<Vec<Option<usize>>, BytecodeError> {
    if entries.windows(2).any(|pair| pair[0].end > pair[1].start) {
        return Err(BytecodeError::BadTable("exception"));
    }
    let covering = |instr: &Instr| {
        let at = entries.partition_point(|entry| entry.end <= instr.op_offset);
        (entries.get(at)?.start <= instr.op_offset).then_some(at)
    };
    Ok(instrs.iter().map(covering).collect())
}

/// Which instructions start a block.
fn leaders(instrs: &[Instr], entries: &[ExceptionEntry], handler_of: &[Option<usize>]) -> Vec<bool> {
    let mut is_first = vec![false; instrs.len()];
    let targets = instrs.iter().filter_map(|instr| instr.op.jump_target());
    for target in targets.chain(entries.iter().map(|entry| entry.target)) {
        if let Some(idx) = find(instrs, target) {
            is_first[idx] = true;
        }
    }
    for (idx, first) in is_first.iter_mut().enumerate() {
        // Never between the parts of a split instruction: they have the same
        // position, and only a last part can leave the line of flow.
        *first |= idx == 0 || instrs[idx - 1].op.ends_block() || handler_of[idx] != handler_of[idx - 1];
    }
    is_first
}

impl Op {
    /// Where it can jump to; `ForIter`: when exhausted.
    pub fn jump_target(&self) -> Option<Offset> {
        match *self {
            Op::Jump { target, .. }
            | Op::PopJumpIf { target, .. }
            | Op::JumpIfOrPop { target, .. }
            | Op::ForIter { end: target }
            | Op::Send { target, .. } => Some(target),
            _ => None,
        }
    }

    /// Execution does not go on with the next instruction.
    pub fn never_falls_through(&self) -> bool {
        matches!(self, Op::Jump { .. } | Op::ReturnValue | Op::Raise(_) | Op::Reraise { .. } | Op::Other(_))
    }

    fn ends_block(&self) -> bool {
        self.jump_target().is_some() || self.never_falls_through()
    }

    /// Whether CPython can raise here. A decref does not count: what a
    /// finaliser raises is printed, not raised. True when in doubt.
    pub fn can_raise(&self) -> bool {
        !matches!(
            self,
            Op::Nop
                | Op::LoadFast { check: false, .. }
                | Op::LoadFastAndClear(_)
                | Op::StoreFast(_)
                | Op::LoadClosure(_)
                | Op::LoadConst(_)
                | Op::StoreDeref(_)
                | Op::Pop
                | Op::Copy(_)
                | Op::Swap(_)
                | Op::PushNull
                | Op::Jump { polls: false, .. }
                | Op::ReturnValue
                | Op::PushExcInfo
                | Op::PopExcept
                | Op::EndFor(_)
                | Op::IsOp { .. }
                | Op::MakeCell(_)
                | Op::CopyFreeVars(_)
        )
    }
}
