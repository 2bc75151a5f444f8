//! Attributes of ordinary classes where their instances keep them, behind the class's version; floats and ints overwritten
//! in place.

use inkwell::IntPredicate;
use inkwell::values::{BasicValueEnum, FloatValue, IntValue, PointerValue};
use overdrive_base::flavour::Ty;
use overdrive_base::layout::{InstanceLayout, IntLayout};
use overdrive_base::table::Entry;
use overdrive_ir::entities::{ExitId, Value};
use overdrive_ir::inst::{Attr, Inst};

use super::memory::Region;
use super::table::{INT_DIGITS, INT_SIZE};
use super::{Known, Lower, Result};

/// The first magnitude from which on CPython has no shared objects.
const SHARED: u64 = 257;

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn attribute(
        &mut self,
        inst: &Inst,
        result: Option<Value>,
    ) -> Result<Option<BasicValueEnum<'ctx>>> {
        Ok(Some(match inst {
            Inst::VersionIs(object, version) => self.version_is(self.ptr(*object)?, *version)?.into(),
            Inst::KeepsValues { obj, writable } => self.keeps_values(self.ptr(*obj)?, *writable)?.into(),
            Inst::AttrGet(at, object) => {
                let slot = self.attribute_slot(*at, self.ptr(*object)?)?;
                self.load_ptr(slot, Region::Attributes)?.into()
            }
            Inst::AttrSwap { at, obj, item } => {
                let slot = self.attribute_slot(*at, self.ptr(*obj)?)?;
                let old = self.load_ptr(slot, Region::Attributes)?;
                self.store(self.ptr(*item)?, slot, 8, Region::Attributes)?;
                // It was set.
                self.learn(result, Known::NotNull);
                old.into()
            }
            Inst::AttrSet { at, obj, old, value, fail } => {
                let slot = self.attribute_slot(*at, self.ptr(*obj)?)?;
                let old = self.ptr(*old)?;
                match self.f.ty(*value) {
                    Ty::I64 => self.set_int(slot, old, self.int(*value)?, *fail)?,
                    _ => self.set_float(slot, old, self.float(*value)?, *fail)?,
                }
                return Ok(None);
            }
            other => return Err(self.malformed(format!("{other:?} is not about attributes"))),
        }))
    }

    /// A float is mostly its attribute's alone.
    fn set_float(
        &mut self,
        slot: PointerValue<'ctx>,
        old: PointerValue<'ctx>,
        value: FloatValue<'ctx>,
        fail: ExitId,
    ) -> Result<()> {
        let alone = self.is_unique(old)?;
        let (place, anew, done) = (self.new_block(), self.new_block(), self.new_block());
        let branch = self.b.build_conditional_branch(alone, place, anew)?;
        self.w.annotate(branch, self.w.kinds.prof, self.w.likely);

        self.b.position_at_end(place);
        let at = self.at(old, self.target.layout.float_value.into())?;
        self.store(value, at, 8, Region::Float)?;
        self.b.build_unconditional_branch(done)?;

        self.b.position_at_end(anew);
        let item = self.object_or_leave(Entry::BoxFloat, &[value.into()], Region::Refcount, fail)?;
        self.exchange(slot, old, item)?;
        self.b.build_unconditional_branch(done)?;
        self.b.position_at_end(done);
        Ok(())
    }

    /// In this order: small ints, which exist once each; a positive int of one digit over another, where the digit is all that
    /// changes; one of any sign; everything else.
    fn set_int(
        &mut self,
        slot: PointerValue<'ctx>,
        old: PointerValue<'ctx>,
        value: IntValue<'ctx>,
        fail: ExitId,
    ) -> Result<()> {
        let word = |lower: &Self, n: i64| lower.w.i64.const_int(n as u64, true);
        let done = self.new_block();
        if self.target.layout.small_ints != 0 {
            let (nth, is_small) = self.nth_small(value)?;
            let (small, other) = (self.new_block(), self.new_block());
            self.b.build_conditional_branch(is_small, small, other)?;
            self.b.position_at_end(small);
            let item = self.small_int(nth)?;
            self.exchange(slot, old, item)?;
            self.b.build_unconditional_branch(done)?;
            self.b.position_at_end(other);
        }
        let (digit, rest) = (self.new_block(), self.new_block());
        let (signed, anew) = (self.new_block(), self.new_block());
        let (minus, plus) = match self.target.layout.int {
            IntLayout::SignedSize => (-1, 1),
            IntLayout::Tagged => (1 << 3 | 2, 1 << 3),
        };
        let (size_at, digit_at) = (self.at(old, INT_SIZE)?, self.at(old, INT_DIGITS)?);
        let size = self.load_int(self.w.i64, size_at, 8, Region::Value)?;
        let alone = self.is_unique(old)?;
        let is_positive = self.b.build_int_compare(IntPredicate::EQ, size, word(self, plus), "")?;
        let fits = self.is_one_digit(value)?;
        let fits = self.b.build_and(self.b.build_and(is_positive, fits, "")?, alone, "")?;
        let branch = self.b.build_conditional_branch(fits, digit, rest)?;
        self.w.annotate(branch, self.w.kinds.prof, self.w.often);

        self.b.position_at_end(digit);
        self.store(self.b.build_int_truncate(value, self.w.i32, "")?, digit_at, 4, Region::Value)?;
        self.b.build_unconditional_branch(done)?;

        self.b.position_at_end(rest);
        let is_negative = self.b.build_int_compare(IntPredicate::EQ, size, word(self, minus), "")?;
        let has_digit = self.b.build_or(is_positive, is_negative, "")?;
        let negative = self.b.build_int_compare(IntPredicate::SLT, value, word(self, 0), "")?;
        let magnitude = self.b.build_select(negative, self.b.build_int_neg(value, "")?, value, "")?;
        let magnitude = magnitude.into_int_value();
        let fits = self.is_one_digit(magnitude)?;
        let fits = self.b.build_and(self.b.build_and(has_digit, fits, "")?, alone, "")?;
        self.b.build_conditional_branch(fits, signed, anew)?;

        self.b.position_at_end(signed);
        let size = self.b.build_select(negative, word(self, minus), word(self, plus), "")?;
        self.store(size, size_at, 8, Region::Value)?;
        self.store(self.b.build_int_truncate(magnitude, self.w.i32, "")?, digit_at, 4, Region::Value)?;
        self.b.build_unconditional_branch(done)?;

        self.b.position_at_end(anew);
        let item = self.object_or_leave(Entry::BoxInt, &[value.into()], Region::Refcount, fail)?;
        self.exchange(slot, old, item)?;
        self.b.build_unconditional_branch(done)?;
        self.b.position_at_end(done);
        Ok(())
    }

    /// Whether a number is an int of one digit that is not shared, and positive.
    fn is_one_digit(&self, value: IntValue<'ctx>) -> Result<IntValue<'ctx>> {
        let word = |n: u64| self.w.i64.const_int(n, false);
        let beyond = self.b.build_int_sub(value, word(SHARED), "")?;
        Ok(self.b.build_int_compare(IntPredicate::ULT, beyond, word((1 << 30) - SHARED), "")?)
    }

    /// Puts a new number into a slot and releases the old one.
    fn exchange(
        &mut self,
        slot: PointerValue<'ctx>,
        old: PointerValue<'ctx>,
        item: PointerValue<'ctx>,
    ) -> Result<()> {
        self.store(item, slot, 8, Region::Attributes)?;
        self.dec_ref(old, None)
    }

    fn version_is(&self, object: PointerValue<'ctx>, version: u32) -> Result<IntValue<'ctx>> {
        let at = self.at(self.type_of(object)?, self.target.layout.type_version.into())?;
        let now = self.load_int(self.w.i32, at, 4, Region::Class)?;
        let wanted = self.w.i32.const_int(version.into(), false);
        Ok(self.b.build_int_compare(IntPredicate::EQ, now, wanted, "")?)
    }

    fn keeps_values(&self, object: PointerValue<'ctx>, writable: bool) -> Result<IntValue<'ctx>> {
        let (b, w) = (&self.b, &self.w);
        let at = |offset: i32| self.at(object, offset.into());
        Ok(match self.target.layout.instance {
            InstanceLayout::Pointed { values } => {
                b.build_is_not_null(self.load_ptr(at(values)?, Region::Values)?, "")?
            }
            InstanceLayout::Tagged { word } => {
                let word = self.load_int(w.i64, at(word)?, 8, Region::Values)?;
                b.build_int_truncate(word, w.i1, "")?
            }
            InstanceLayout::Inline { valid, dict, .. } => {
                let valid = self.load_int(w.i8, at(valid)?, 1, Region::Values)?;
                let valid = b.build_int_compare(IntPredicate::NE, valid, w.i8.const_zero(), "")?;
                if !writable {
                    return Ok(valid);
                }
                let alone = b.build_is_null(self.load_ptr(at(dict)?, Region::Values)?, "")?;
                b.build_and(valid, alone, "")?
            }
        })
    }

    fn attribute_slot(&self, at: Attr, object: PointerValue<'ctx>) -> Result<PointerValue<'ctx>> {
        let number = match at {
            Attr::Offset(offset) => return self.at(object, offset.into()),
            Attr::Value(number) => 8 * i64::from(number),
        };
        match self.target.layout.instance {
            InstanceLayout::Pointed { values } => {
                let values = self.load_ptr(self.at(object, values.into())?, Region::Values)?;
                self.at(values, number)
            }
            InstanceLayout::Tagged { word } => {
                let tagged = self.load_ptr(self.at(object, word.into())?, Region::Values)?;
                self.at(tagged, number + 1)
            }
            InstanceLayout::Inline { values, .. } => self.at(object, i64::from(values) + number),
        }
    }
}
