//! Reference counts, the frame's arguments and position, and polls.

use inkwell::IntPredicate;
use inkwell::types::{BasicType, BasicTypeEnum, IntType};
use inkwell::values::{
    BasicMetadataValueEnum, BasicValue, BasicValueEnum, CallSiteValue, IntValue, PointerValue,
};
use overdrive_base::table::Entry;
use overdrive_ir::entities::{ExitId, Value};
use overdrive_ir::inst::Inst;

use super::memory::Region;
use super::words::Touches;
use super::{Known, Lower, Result};
use crate::abi::RT_CODE_BASE;
use crate::error::CodegenError;

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn reference(&mut self, inst: &Inst) -> Result<Option<BasicValueEnum<'ctx>>> {
        match inst {
            Inst::IncRef(object) => self.counted(*object, Self::inc_ref)?,
            Inst::DecRef { obj, pos } => self.counted(*obj, |lower, object| lower.dec_ref(object, *pos))?,
            Inst::OwnArg(n) => {
                if *n >= self.f.n_args {
                    return Err(self.malformed(format!("argument {n} of {}", self.f.n_args)));
                }
                let slot = self.at(self.args, 8 * i64::from(*n))?;
                let object = self.load_ptr(slot, Region::Frame)?;
                self.store(self.w.ptr.const_null(), slot, 8, Region::Frame)?;
                return Ok(Some(object.into()));
            }
            Inst::Poll { pos, fail } => self.poll(*pos, *fail)?,
            other => return Err(self.malformed(format!("{other:?} is not about references"))),
        }
        Ok(None)
    }

    /// Before anything that can run Python: the frame says where we are.
    pub(super) fn store_position(&self, pos: u32) -> Result<()> {
        if !self.f.needs_frame {
            return Ok(());
        }
        let base = self.load_ptr(self.at(self.rt, RT_CODE_BASE)?, Region::Scratch)?;
        self.note(base.into(), self.w.kinds.invariant_load, self.w.empty);
        let position = self.at(base, pos.into())?;
        let field = self.at(self.frame, self.target.layout.frame_instr.into())?;
        self.store(position, field, 8, Region::Frame)
    }

    /// Calls a function at a known address.
    pub(super) fn call(
        &self,
        address: usize,
        result: Option<BasicTypeEnum<'ctx>>,
        args: &[BasicValueEnum<'ctx>],
        touches: Touches,
    ) -> Result<CallSiteValue<'ctx>> {
        let types: Vec<_> = args.iter().map(|a| a.get_type().into()).collect();
        let signature = match result {
            Some(ty) => ty.fn_type(&types, false),
            None => self.w.void.fn_type(&types, false),
        };
        let args: Vec<BasicMetadataValueEnum<'ctx>> = args.iter().map(|a| (*a).into()).collect();
        let call = self.b.build_indirect_call(signature, self.address(address)?, &args, "")?;
        self.w.describe_call(call, touches);
        Ok(call)
    }

    pub(super) fn int_result(&self, call: CallSiteValue<'ctx>) -> Result<IntValue<'ctx>> {
        match call.try_as_basic_value().basic() {
            Some(BasicValueEnum::IntValue(i)) => Ok(i),
            _ => Err(self.malformed("a call without its integer result")),
        }
    }

    pub(super) fn entry_address(&self, entry: Entry) -> Result<usize> {
        match self.target.entries.get(entry as usize) {
            Some(address) if *address != 0 => Ok(*address),
            _ => Err(CodegenError::MissingEntry(entry)),
        }
    }

    fn counted(
        &mut self,
        object: Value,
        count: impl FnOnce(&mut Self, PointerValue<'ctx>) -> Result<()>,
    ) -> Result<()> {
        let pointer = self.ptr(object)?;
        match self.known[object.index()] {
            Known::Immortal => Ok(()),
            Known::NotNull => count(self, pointer),
            Known::Nothing => {
                let there = self.b.build_is_not_null(pointer, "")?;
                self.when(there, false, |lower| count(lower, pointer))
            }
        }
    }

    pub(super) fn inc_ref(&mut self, object: PointerValue<'ctx>) -> Result<()> {
        self.with_count(object, |lower, count| {
            let more = lower.b.build_int_add(count, count.get_type().const_int(1, false), "")?;
            lower.store_count(object, more)
        })
    }

    pub(super) fn dec_ref(&mut self, object: PointerValue<'ctx>, pos: Option<u32>) -> Result<()> {
        self.with_count(object, |lower, count| {
            let less = lower.b.build_int_sub(count, count.get_type().const_int(1, false), "")?;
            lower.store_count(object, less)?;
            let last = lower.is_zero(less)?;
            lower.when(last, false, |lower| {
                let touches = match pos {
                    Some(pos) => {
                        lower.store_position(pos)?;
                        Touches::Everything
                    }
                    None => Touches::Some,
                };
                let address = lower.entry_address(Entry::Dealloc)?;
                let call = lower.call(address, None, &[object.into()], touches)?;
                if pos.is_none() {
                    // A plain object: nothing but itself goes.
                    lower.tag_call(call, Region::Boxed)?;
                }
                Ok(())
            })
        })
    }

    /// Where objects can be immortal, the count is the low half of the word and immortal ones are negative there; only
    /// that half is ever changed.
    fn with_count(
        &mut self,
        object: PointerValue<'ctx>,
        change: impl FnOnce(&mut Self, IntValue<'ctx>) -> Result<()>,
    ) -> Result<()> {
        let (ty, align) = self.count_type();
        let count = self.load_int(ty, object, align, Region::Refcount)?;
        if !self.target.layout.immortal {
            return change(self, count);
        }
        let mortal = self.b.build_int_compare(IntPredicate::SGE, count, ty.const_zero(), "")?;
        self.when(mortal, false, |lower| change(lower, count))
    }

    /// Whether an object has one reference, as I1. An immortal one has many.
    pub(super) fn is_unique(&self, object: PointerValue<'ctx>) -> Result<IntValue<'ctx>> {
        let (ty, align) = self.count_type();
        let count = self.load_int(ty, object, align, Region::Refcount)?;
        Ok(self.b.build_int_compare(IntPredicate::EQ, count, ty.const_int(1, false), "")?)
    }

    fn store_count(&self, object: PointerValue<'ctx>, count: IntValue<'ctx>) -> Result<()> {
        let (_, align) = self.count_type();
        self.store(count, object, align, Region::Refcount)
    }

    /// Machine type and alignment of the count.
    pub(super) fn count_type(&self) -> (IntType<'ctx>, u32) {
        match self.target.layout.immortal {
            true => (self.w.i32, 4),
            false => (self.w.i64, 8),
        }
    }

    /// The eval breaker changes under our hands, so the load is atomic and never moved.
    fn poll(&mut self, pos: u32, fail: ExitId) -> Result<()> {
        let asked = self.poll_pending()?;
        self.when(asked, true, |lower| {
            let pos = lower.w.i32.const_int(pos.into(), false);
            let args = [lower.rt.into(), lower.frame.into(), pos.into()];
            let result = Some(lower.w.i32.into());
            let call = lower.call(lower.target.services.poll, result, &args, Touches::Everything)?;
            lower.w.cold(call);
            let status = lower.int_result(call)?;
            let failed =
                lower.b.build_int_compare(IntPredicate::SLT, status, lower.w.i32.const_zero(), "")?;
            lower.leave_if(failed, fail)
        })
    }

    /// Whether CPython asks for attention, as I1.
    pub(super) fn poll_pending(&mut self) -> Result<IntValue<'ctx>> {
        let layout = self.target.layout;
        let (ty, align) = match layout.breaker_bits {
            32 => (self.w.i32, 4),
            64 => (self.w.i64, 8),
            bits => return Err(self.malformed(format!("an eval breaker of {bits} bits"))),
        };
        let breaker = self.load_int(ty, self.breaker, align, Region::Scratch)?;
        if let Some(load) = breaker.as_instruction() {
            load.set_atomic_ordering(inkwell::AtomicOrdering::Monotonic)
                .map_err(|e| self.malformed(format!("the eval breaker's load: {e}")))?;
        }
        let asked = self.b.build_and(breaker, ty.const_int(layout.breaker_mask, false), "")?;
        Ok(self.b.build_int_compare(IntPredicate::NE, asked, ty.const_zero(), "")?)
    }

    /// Says of a call which memory it touches, if not all.
    pub(super) fn tag_call(&self, call: CallSiteValue<'ctx>, region: Region) -> Result<()> {
        let inst = match call.try_as_basic_value() {
            kind if kind.is_instruction() => kind.instruction(),
            kind => kind.basic().and_then(|v| v.as_instruction_value()),
        };
        let inst = inst.ok_or_else(|| self.malformed("a call that is no instruction"))?;
        self.tag_region(inst, region);
        Ok(())
    }
}
