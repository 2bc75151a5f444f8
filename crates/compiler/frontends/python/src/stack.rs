//! The evaluation stack: what each operation takes and leaves, and what kind
//! of entry stands where before each instruction.
//!
//! In: normalised instructions and their graph. Out: one `Shape` per reachable
//! instruction, and `real_entries`, which says in which order an exit must lay
//! down the entries for the running CPython version. Every merge is verified:
//! paths that disagree are an error, never a guess.

use crate::cfg::Cfg;
use crate::code::{CodeObject, PyVersion};
use crate::error::BytecodeError;
use crate::op::{GlobalNull, Instr, LocalIdx, Op};

/// Entries that an operation removes from the top, then entries it adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Removed.
    pub pops: u32,
    /// Added.
    pub pushes: u32,
}

impl Effect {
    /// Change of depth.
    pub fn net(self) -> i64 {
        i64::from(self.pushes) - i64::from(self.pops)
    }
}

/// Which way a conditional operation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    /// To the next instruction.
    Next,
    /// To its jump target (`ForIter`: exhausted).
    Taken,
}

impl Op {
    /// The one table of stack effects.
    pub fn effect(&self, branch: Branch) -> Effect {
        let taken = branch == Branch::Taken;
        let (pops, pushes) = match *self {
            Op::Nop | Op::Resume(_) | Op::MakeCell(_) | Op::CopyFreeVars(_) => (0, 0),
            Op::LoadFast { .. } | Op::LoadFastAndClear(_) | Op::LoadClosure(_) | Op::LoadDeref(_) => (0, 1),
            Op::LoadConst(_) | Op::LoadName(_) | Op::LoadLocals => (0, 1),
            Op::StoreFast(_) | Op::StoreDeref(_) | Op::StoreGlobal(_) | Op::StoreName(_) => (1, 0),
            Op::DeleteFast(_) | Op::DeleteDeref(_) | Op::DeleteGlobal(_) | Op::DeleteName(_) => (0, 0),
            Op::LoadGlobal { null, .. } => (0, 1 + u32::from(null != GlobalNull::Absent)),
            Op::LoadFromDictOrDeref(_) | Op::LoadFromDictOrGlobals(_) => (1, 1),

            Op::LoadAttr(_) => (1, 1),
            Op::LoadMethod(_) => (1, 2),
            Op::StoreAttr(_) => (2, 0),
            Op::DeleteAttr(_) => (1, 0),
            Op::LoadSuperAttr { method, .. } => (3, 1 + u32::from(method)),
            Op::BinarySubscr => (2, 1),
            Op::StoreSubscr => (3, 0),
            Op::DeleteSubscr => (2, 0),
            Op::BinarySlice => (3, 1),
            Op::StoreSlice => (4, 0),
            Op::BuildSlice { with_step } => (2 + u32::from(with_step), 1),

            Op::BinaryOp { .. } | Op::Compare { .. } | Op::IsOp { .. } | Op::ContainsOp { .. } => (2, 1),
            Op::UnaryOp(_) | Op::ToBool => (1, 1),

            Op::Pop => (1, 0),
            Op::Copy(_) => (0, 1),
            Op::Swap(_) => (0, 0),
            Op::PushNull => (0, 1),

            Op::Jump { .. } => (0, 0),
            Op::PopJumpIf { .. } => (1, 0),
            Op::JumpIfOrPop { .. } => (1, u32::from(taken)),
            Op::GetIter => (1, 1),
            Op::ForIter { .. } => (1, if taken { 0 } else { 2 }),
            Op::EndFor(n) => (n, 0),
            Op::ReturnValue => (1, 0),

            // The kw_names constant is part of the operation, not of the stack.
            Op::Call { n_args, .. } => (n_args.saturating_add(2), 1),
            Op::CallFunctionEx { has_kwargs } => (3 + u32::from(has_kwargs), 1),
            Op::MakeFunction { flags } => (1 + flags.count_ones(), 1),
            Op::SetFunctionAttribute(_) => (2, 1),

            Op::BuildTuple(n) | Op::BuildList(n) | Op::BuildSet(n) | Op::BuildString(n) => (n, 1),
            Op::BuildMap(n) => (n.saturating_mul(2), 1),
            Op::BuildConstKeyMap(n) => (n.saturating_add(1), 1),
            Op::ListAppend(_) | Op::ListExtend(_) | Op::SetAdd(_) | Op::SetUpdate(_) => (1, 0),
            Op::DictUpdate(_) | Op::DictMerge(_) => (1, 0),
            Op::MapAdd(_) => (2, 0),
            Op::ListToTuple => (1, 1),
            Op::UnpackSequence(n) => (1, n),
            Op::UnpackEx { before, after } => (1, before.saturating_add(1).saturating_add(after)),
            Op::FormatValue { with_spec, .. } => (1 + u32::from(with_spec), 1),
            Op::ConvertValue(_) => (1, 1),

            Op::Raise(n) => (n, 0),
            Op::Reraise { .. } => (1, 0),
            Op::PushExcInfo => (1, 2),
            Op::PopExcept => (1, 0),
            Op::CheckExcMatch | Op::CheckEgMatch => (2, 2),
            Op::BeforeWith | Op::BeforeAsyncWith => (1, 2),
            Op::WithExceptStart => (0, 1),
            Op::LoadAssertionError | Op::LoadBuildClass => (0, 1),
            Op::PrepReraiseStar => (2, 1),

            Op::ImportName(_) => (2, 1),
            Op::ImportFrom(_) => (0, 1),
            Op::ImportStar { pushes_none } => (1, u32::from(pushes_none)),
            Op::SetupAnnotations => (0, 0),

            Op::GetLen | Op::MatchMapping | Op::MatchSequence => (0, 1),
            Op::MatchKeys => (0, 1),
            Op::MatchClass(_) => (3, 1),

            Op::ReturnGenerator => (0, 1),
            Op::YieldValue => (1, 1),
            Op::Send { pops_receiver, .. } => (2, if taken && pops_receiver { 1 } else { 2 }),
            Op::EndSend => (2, 1),
            Op::CleanupThrow => (3, 2),
            Op::GetYieldFromIter | Op::GetAwaitable(_) | Op::GetAiter => (1, 1),
            Op::GetAnext => (0, 1),
            Op::EndAsyncFor => (2, 0),
            Op::AsyncGenWrap | Op::StopIterationError => (1, 1),

            Op::Intrinsic1(_) => (1, 1),
            Op::Intrinsic2(_) => (2, 1),
            Op::PrintExpr => (1, 0),
            Op::Other(_) => (0, 0),
        };
        Effect { pops, pushes }
    }

    /// Entries that must exist below those that `effect` pops, because the
    /// operation looks at them without removing them.
    pub fn peeks(&self) -> u32 {
        match *self {
            Op::Copy(n) | Op::Swap(n) => n,
            Op::ListAppend(i) | Op::ListExtend(i) | Op::SetAdd(i) | Op::SetUpdate(i) => i,
            Op::MapAdd(i) | Op::DictUpdate(i) => i,
            // Also the callable (and NULL) below `i - 1` entries below the dict.
            Op::DictMerge(i) => i.saturating_add(2),
            Op::Reraise { lasti } => lasti,
            Op::WithExceptStart => 4,
            Op::ImportFrom(_) | Op::GetLen | Op::MatchMapping | Op::MatchSequence | Op::GetAnext => 1,
            Op::MatchKeys => 2,
            _ => 0,
        }
    }
}

/// What an entry of the normalised stack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotKind {
    /// A reference, never NULL.
    Value,
    /// NULL, from `PushNull` or `LoadGlobal`.
    Null,
    /// Lower half of the pair that `LoadMethod` pushed: what to call. The upper
    /// half, `SelfOrNull`, stands right above.
    Callable,
    /// Upper half: the receiver, or NULL.
    SelfOrNull,
    /// What `LoadFastAndClear` took from a local: its value, its cell or NULL.
    /// `at` is the index of that instruction.
    Saved {
        /// The local it came from and goes back to.
        local: LocalIdx,
        /// Index of the instruction that saved it.
        at: u32,
    },
    /// The exception handled before, which `PopExcept` restores.
    PreviousException,
    /// The offset a handler entry pushed for `Reraise`, an `int`.
    Lasti,
}

/// A stack, bottom first.
pub type Shape = Vec<SlotKind>;

/// An entry of the real stack, to be rebuilt from the normalised one. Numbers
/// are indices into the normalised stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RealEntry {
    /// The same entry; it may be NULL where its kind says so.
    Slot(u32),
    /// NULL.
    Null,
    /// Lower entry of a method pair on 3.11 and 3.12. With `c = callable` and
    /// `s` the entry above it: NULL if `s` is NULL, else `c`.
    PairLow {
        /// Index of the `Callable`; `SelfOrNull` is the next.
        callable: u32,
    },
    /// Upper entry of that pair: `c` if `s` is NULL, else `s`.
    PairHigh {
        /// Index of the `Callable`.
        callable: u32,
    },
}

/// How the running version lays out a stack of this shape, bottom first. Always
/// as many entries as `shape` has.
pub fn real_entries(version: PyVersion, shape: &[SlotKind]) -> Vec<RealEntry> {
    let null_below = match version {
        PyVersion::V311 | PyVersion::V312 => true,
        PyVersion::V313 => false,
    };
    let entry = |(at, kind): (usize, &SlotKind)| {
        let at = at as u32;
        match kind {
            SlotKind::Null => RealEntry::Null,
            SlotKind::Callable if null_below => RealEntry::PairLow { callable: at },
            SlotKind::SelfOrNull if null_below => RealEntry::PairHigh { callable: at - 1 },
            _ => RealEntry::Slot(at),
        }
    };
    shape.iter().enumerate().map(entry).collect()
}

/// The stack before each instruction.
#[derive(Clone, Debug)]
pub struct Stacks {
    /// By instruction index; `None` where execution cannot come.
    pub before: Vec<Option<Shape>>,
    /// The deepest stack on any path. Never more than `co_stacksize`, if the
    /// code object is a compiler's.
    pub max_depth: u32,
}

impl Stacks {
    /// Follows all paths, exceptional ones included.
    ///
    /// # Errors
    /// `StackMismatch`, `StackUnderflow`, `StackOverflow`, `BrokenCallPair`.
    pub fn compute(code: &CodeObject, instrs: &[Instr], cfg: &Cfg) -> Result<Stacks, BytecodeError> {
        // One more than CPython reserves, for the inside of RETURN_CONST.
        let limit = code.stack_size as usize + 1;
        let mut at_entry: Vec<Option<Shape>> = vec![None; cfg.blocks.len()];
        let mut stacks = Stacks { before: vec![None; instrs.len()], max_depth: 0 };
        let mut pending = vec![];
        if let Some(entry) = at_entry.first_mut() {
            *entry = Some(Shape::new());
            pending.push(0);
        }
        while let Some(block_idx) = pending.pop() {
            let block = &cfg.blocks[block_idx];
            let Some(mut shape) = at_entry[block_idx].clone() else { continue };
            let mut flow = |to: usize, shape: Shape| -> Result<(), BytecodeError> {
                let offset = instrs[cfg.blocks[to].first].offset;
                if merge(&mut at_entry[to], shape, offset)? {
                    pending.push(to);
                }
                Ok(())
            };
            for idx in block.instrs() {
                let instr = &instrs[idx];
                // Within a split instruction CPython's stack may not be as deep.
                if instr.is_reentrant() {
                    stacks.max_depth = stacks.max_depth.max(shape.len() as u32);
                }
                stacks.before[idx] = Some(shape.clone());
                if let Some(handler) = block.handler
                    && instr.op.can_raise()
                {
                    let kept = shape.get(..handler.depth as usize);
                    let mut caught =
                        kept.ok_or(BytecodeError::StackUnderflow { offset: instr.op_offset })?.to_vec();
                    if handler.lasti {
                        caught.push(SlotKind::Lasti);
                    }
                    caught.push(SlotKind::Value);
                    flow(handler.block, caught)?;
                }
                if let Some(target) = block.taken
                    && idx + 1 == block.end
                {
                    let mut taken = shape.clone();
                    apply(instr, idx, Branch::Taken, limit, &mut taken)?;
                    flow(target, taken)?;
                }
                apply(instr, idx, Branch::Next, limit, &mut shape)?;
            }
            stacks.max_depth = stacks.max_depth.max(shape.len() as u32);
            if let Some(next) = block.next {
                flow(next, shape)?;
            }
        }
        Ok(stacks)
    }

    /// Depth before an instruction; `None` where execution cannot come.
    pub fn depth(&self, instr_idx: usize) -> Option<u32> {
        self.before[instr_idx].as_ref().map(|shape| shape.len() as u32)
    }
}

/// Compares a path's stack with what is known. True if nothing was known.
fn merge(known: &mut Option<Shape>, shape: Shape, offset: u32) -> Result<bool, BytecodeError> {
    match known {
        None => {
            *known = Some(shape);
            Ok(true)
        }
        Some(known) if *known == shape => Ok(false),
        Some(known) if known.len() == shape.len() => Err(BytecodeError::BrokenCallPair { offset }),
        Some(known) => {
            let (first, second) = (known.len() as u32, shape.len() as u32);
            Err(BytecodeError::StackMismatch { offset, first, second })
        }
    }
}

/// The stack behind an instruction.
fn apply(
    instr: &Instr,
    idx: usize,
    branch: Branch,
    limit: usize,
    shape: &mut Shape,
) -> Result<(), BytecodeError> {
    let effect = instr.op.effect(branch);
    let underflow = BytecodeError::StackUnderflow { offset: instr.op_offset };
    let broken = BytecodeError::BrokenCallPair { offset: instr.op_offset };
    let depth = shape.len();
    let needed = u64::from(effect.pops) + u64::from(instr.op.peeks());
    if needed > depth as u64 {
        return Err(underflow);
    }
    if depth - effect.pops as usize + effect.pushes as usize > limit {
        return Err(BytecodeError::StackOverflow { offset: instr.op_offset });
    }
    match instr.op {
        Op::Copy(n) => {
            let kind = shape[depth - n as usize];
            if !kind.may_move() {
                return Err(broken);
            }
            shape.push(kind);
        }
        Op::Swap(n) => {
            let other = depth - n as usize;
            if !shape[other].may_move() || !shape[depth - 1].may_move() {
                return Err(broken);
            }
            shape.swap(other, depth - 1);
        }
        _ => {
            let kept = depth - effect.pops as usize;
            let is_call = matches!(instr.op, Op::Call { .. } | Op::CallFunctionEx { .. });
            // Half a pair cannot be rebuilt; only calls take pairs, and whole ones.
            let for_calls = |kind: &SlotKind| kind.is_pair() || *kind == SlotKind::Null;
            if !is_call && shape[kept..].iter().any(for_calls) {
                return Err(broken);
            }
            shape.truncate(kept);
            let pushed = kept + effect.pushes as usize;
            match instr.op {
                Op::PushNull => shape.push(SlotKind::Null),
                Op::LoadGlobal { null: GlobalNull::Below, .. } => shape.push(SlotKind::Null),
                Op::LoadGlobal { null: GlobalNull::Above, .. } => {
                    shape.extend([SlotKind::Value, SlotKind::Null]);
                }
                Op::LoadMethod(_) | Op::LoadSuperAttr { method: true, .. } => {
                    shape.extend([SlotKind::Callable, SlotKind::SelfOrNull]);
                }
                Op::LoadFastAndClear(local) => shape.push(SlotKind::Saved { local, at: idx as u32 }),
                Op::PushExcInfo => shape.extend([SlotKind::PreviousException, SlotKind::Value]),
                _ => {}
            }
            shape.resize(pushed, SlotKind::Value);
        }
    }
    Ok(())
}

impl SlotKind {
    /// Part of a pair that must stay adjacent.
    pub fn is_pair(self) -> bool {
        match self {
            SlotKind::Callable | SlotKind::SelfOrNull => true,
            SlotKind::Value
            | SlotKind::Null
            | SlotKind::Saved { .. }
            | SlotKind::PreviousException
            | SlotKind::Lasti => false,
        }
    }

    fn may_move(self) -> bool {
        !self.is_pair()
    }

    /// Whether the entry can be NULL.
    pub fn may_be_null(self) -> bool {
        match self {
            SlotKind::Null | SlotKind::SelfOrNull | SlotKind::Saved { .. } => true,
            SlotKind::Value | SlotKind::Callable | SlotKind::PreviousException | SlotKind::Lasti => false,
        }
    }
}
