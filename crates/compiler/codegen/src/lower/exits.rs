//! Ways out into CPython. Each exit has one block, however many checks lead there: it spills the exit's values and joins
//! the common tail, which calls the service and returns its result. All of it lies behind the hot code.
//!
//! Exits near each other share most of their locals, so they also share the blocks that spill them: the value lists form
//! a tree by their common beginnings, an exit's block spills what is its own and goes on to the node above. A value of a
//! node is available there because it is so at every check below it.

use inkwell::basic_block::BasicBlock;
use inkwell::values::{BasicValueEnum, IntValue, PhiValue, PointerValue};
use overdrive_base::flavour::Ty;
use overdrive_base::table::{Entry, Failure};
use overdrive_ir::entities::{ExitId, Value};
use overdrive_ir::exit::ExitKind;
use overdrive_ir::inst::Inst;

use super::words::Touches;
use super::{Lower, Result};
use crate::compile::Forced;

pub(super) struct Exits<'ctx> {
    /// Block of each exit that some check uses.
    blocks: Vec<Option<BasicBlock<'ctx>>>,
    /// Spilled values; as many as the largest exit has.
    spill: Option<PointerValue<'ctx>>,
}

/// An exit and what it spills, in order.
struct Leaf<'ctx> {
    id: u64,
    block: BasicBlock<'ctx>,
    values: Vec<Value>,
}

impl Exits<'_> {
    pub(super) fn new(n: usize) -> Self {
        Exits { blocks: vec![None; n], spill: None }
    }
}

impl<'ctx> Lower<'_, 'ctx> {
    /// Memory for exits, variadic calls and declining entries, as much as the function needs.
    pub(super) fn make_scratch(&mut self) -> Result<()> {
        let (mut n_args, mut declines) = (None, false);
        for (inst, _) in self.f.blocks.iter().flat_map(|b| &b.insts) {
            if let Inst::Table { entry, args, .. } = inst {
                let signature = Entry::signature(*entry);
                declines |= signature.failure == Failure::Declines;
                if signature.variadic {
                    n_args = n_args.max(Some(args.len().saturating_sub(signature.args.len())));
                }
            }
        }
        let words = |n: usize| self.w.i64.array_type(n as u32);
        if declines {
            self.out = Some(self.b.build_alloca(self.w.i64, "")?);
        }
        if let Some(n) = n_args {
            self.call_args = Some(self.b.build_alloca(words(n + 1), "")?);
        }
        let n_spilled = self.f.exits.iter().map(|e| e.values().len()).max().unwrap_or(0);
        if n_spilled > 0 {
            self.exits.spill = Some(self.b.build_alloca(words(n_spilled), "")?);
        }
        Ok(())
    }

    /// In the exit fuzzer's mode: leaves if it says so. Exits that need an exception cannot be forced.
    pub(super) fn ask(&mut self, exit: ExitId) -> Result<()> {
        self.exit_exists(exit)?;
        if self.forced == Forced::No || self.f.exits[exit.index()].kind == ExitKind::Raise {
            return Ok(());
        }
        let id = self.w.i32.const_int(exit.0.into(), false);
        let result = Some(self.w.i8.into());
        let args = [self.rt.into(), id.into()];
        let call = self.call(self.target.services.should_fail, result, &args, Touches::Everything)?;
        let keep = self.is_zero(self.int_result(call)?)?;
        self.leave_unless(keep, exit)
    }

    pub(super) fn leave_unless(&mut self, cond: IntValue<'ctx>, exit: ExitId) -> Result<()> {
        let (stay, leave) = (self.new_block(), self.exit_block(exit)?);
        let branch = self.b.build_conditional_branch(cond, stay, leave)?;
        self.w.annotate(branch, self.w.kinds.prof, self.w.likely);
        self.b.position_at_end(stay);
        Ok(())
    }

    pub(super) fn leave_if(&mut self, cond: IntValue<'ctx>, exit: ExitId) -> Result<()> {
        let (stay, leave) = (self.new_block(), self.exit_block(exit)?);
        let branch = self.b.build_conditional_branch(cond, leave, stay)?;
        self.w.annotate(branch, self.w.kinds.prof, self.w.unlikely);
        self.b.position_at_end(stay);
        Ok(())
    }

    /// The block of an exit; filled at the end, when all its values are known.
    pub(super) fn exit_block(&mut self, exit: ExitId) -> Result<BasicBlock<'ctx>> {
        self.exit_exists(exit)?;
        if let Some(block) = self.exits.blocks[exit.index()] {
            return Ok(block);
        }
        let block = self.new_block();
        self.exits.blocks[exit.index()] = Some(block);
        Ok(block)
    }

    pub(super) fn emit_exits(&mut self) -> Result<()> {
        let used: Vec<_> =
            self.exits.blocks.iter().enumerate().filter_map(|(i, b)| Some((i, (*b)?))).collect();
        if used.is_empty() {
            return Ok(());
        }
        if self.f.returns.is_some() {
            return used.into_iter().try_for_each(|(_, block)| self.give_up(block));
        }
        let (tail, id) = self.node()?;
        let mut leaves: Vec<Leaf<'ctx>> = used
            .into_iter()
            .map(|(i, block)| Leaf { id: i as u64, block, values: self.f.exits[i].values() })
            .collect();
        leaves.sort_by(|a, b| a.values.cmp(&b.values));
        self.spill_tree(&leaves, 0, (tail, id))?;
        self.b.position_at_end(tail);
        self.stand_at_exit(None);
        let values = self.exits.spill.unwrap_or_else(|| self.w.ptr.const_null());
        let args = [self.rt.into(), self.frame.into(), self.args.into(), id.as_basic_value(), values.into()];
        let result = Some(self.w.ptr.into());
        let call = self.call(self.target.services.exit, result, &args, Touches::Everything)?;
        self.w.cold(call);
        let value = call.try_as_basic_value().basic();
        let value = value.ok_or_else(|| self.malformed("an exit without a result"))?;
        self.b.build_return(Some(&value))?;
        Ok(())
    }

    /// A block that exits join, with the number of the exit that came.
    fn node(&mut self) -> Result<(BasicBlock<'ctx>, PhiValue<'ctx>)> {
        let block = self.new_block();
        self.b.position_at_end(block);
        self.stand_at_exit(None);
        Ok((block, self.b.build_phi(self.w.i32, "")?))
    }

    /// Spills of sorted exits that agree on their first `done` values, which `above` spills.
    fn spill_tree(
        &mut self,
        leaves: &[Leaf<'ctx>],
        done: usize,
        above: (BasicBlock<'ctx>, PhiValue<'ctx>),
    ) -> Result<()> {
        let (Some(first), Some(last)) = (leaves.first(), leaves.last()) else { return Ok(()) };
        if leaves.len() == 1 {
            let id = self.w.i32.const_int(first.id, false);
            self.b.position_at_end(first.block);
            self.stand_at_exit(Some(ExitId(first.id as u32)));
            return self.spill_and_join(&first.values, done, id, above);
        }
        // Of sorted lists, the first and the last have the shortest common beginning.
        let common = first.values.iter().zip(&last.values).take_while(|(a, b)| a == b).count();
        let mut above = above;
        if common > done {
            let (block, id) = self.node()?;
            self.spill_and_join(&first.values[..common], done, id.as_basic_value().into_int_value(), above)?;
            above = (block, id);
        }
        for group in leaves.chunk_by(|a, b| a.values.get(common) == b.values.get(common)) {
            match group.first().and_then(|leaf| leaf.values.get(common)) {
                Some(_) => self.spill_tree(group, common, above)?,
                None => group.iter().try_for_each(|leaf| {
                    let id = self.w.i32.const_int(leaf.id, false);
                    self.b.position_at_end(leaf.block);
                    self.stand_at_exit(Some(ExitId(leaf.id as u32)));
                    self.spill_and_join(&leaf.values, common, id, above)
                })?,
            }
        }
        Ok(())
    }

    /// Spills `values[done..]` in the current block and ends it.
    fn spill_and_join(
        &mut self,
        values: &[Value],
        done: usize,
        id: IntValue<'ctx>,
        (above, ids): (BasicBlock<'ctx>, PhiValue<'ctx>),
    ) -> Result<()> {
        for (n, v) in values.iter().enumerate().skip(done) {
            self.spill(n, *v)?;
        }
        ids.add_incoming(&[(&id, self.current()?)]);
        self.b.build_unconditional_branch(above)?;
        Ok(())
    }

    fn spill(&mut self, n: usize, v: Value) -> Result<()> {
        let Some(buffer) = self.exits.spill else { return Err(self.malformed("no room to spill")) };
        let slot = self.at(buffer, 8 * n as i64)?;
        let word: BasicValueEnum<'ctx> = match self.f.ty(v) {
            Ty::I1 => self.b.build_int_z_extend(self.int(v)?, self.w.i64, "")?.into(),
            Ty::F32 => {
                let bits = self.b.build_bit_cast(self.float(v)?, self.w.i32, "")?.into_int_value();
                self.b.build_int_z_extend(bits, self.w.i64, "")?.into()
            }
            Ty::I64 | Ty::F64 | Ty::Obj | Ty::Ptr => self.value(v)?,
        };
        // Volatile: exits hold most of a function's stores, and no pass shall spend time on them.
        let store = self.b.build_store(slot, word)?;
        store.set_volatile(true).map_err(|e| self.malformed(format!("a spill: {e}")))
    }
}
