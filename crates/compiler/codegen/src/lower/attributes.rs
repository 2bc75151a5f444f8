//! Attributes of ordinary classes where their instances keep them, behind the class's version; floats and ints overwritten
//! in place.

use inkwell::IntPredicate;
use inkwell::values::{BasicValueEnum, IntValue, PointerValue};
use overdrive_base::layout::{InstanceLayout, IntLayout};
use overdrive_ir::inst::{Attr, Inst};

use super::memory::Region;
use super::table::{INT_DIGITS, INT_SIZE};
use super::{Lower, Result};

/// The first magnitude from which on CPython has no shared objects.
const SHARED: u64 = 257;

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn attribute(&mut self, inst: &Inst) -> Result<Option<BasicValueEnum<'ctx>>> {
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
                old.into()
            }
            Inst::FloatSet(object, value) => {
                let at = self.at(self.ptr(*object)?, self.target.layout.float_value.into())?;
                self.store(self.float(*value)?, at, 8, Region::Float)?;
                return Ok(None);
            }
            Inst::IntFits(object, value) => self.int_fits(self.ptr(*object)?, self.int(*value)?)?.into(),
            Inst::IntSet(object, value) => {
                self.set_int(self.ptr(*object)?, self.int(*value)?)?;
                return Ok(None);
            }
            other => return Err(self.malformed(format!("{other:?} is not about attributes"))),
        }))
    }

    /// |n| as an unsigned number.
    fn magnitude(&self, n: IntValue<'ctx>) -> Result<IntValue<'ctx>> {
        let b = &self.b;
        let negative = b.build_int_compare(IntPredicate::SLT, n, self.w.i64.const_zero(), "")?;
        Ok(b.build_select(negative, b.build_int_neg(n, "")?, n, "")?.into_int_value())
    }

    fn int_fits(&self, object: PointerValue<'ctx>, value: IntValue<'ctx>) -> Result<IntValue<'ctx>> {
        let (b, w) = (&self.b, &self.w);
        let word = |n: u64| w.i64.const_int(n, false);
        let size = self.load_int(w.i64, self.at(object, INT_SIZE)?, 8, Region::Value)?;
        let n_digits = match self.target.layout.int {
            IntLayout::SignedSize => self.magnitude(size)?,
            IntLayout::Tagged => b.build_right_shift(size, word(3), false, "")?,
        };
        let one_digit = b.build_int_compare(IntPredicate::EQ, n_digits, word(1), "")?;
        let beyond = b.build_int_sub(self.magnitude(value)?, word(SHARED), "")?;
        let in_range = b.build_int_compare(IntPredicate::ULT, beyond, word((1 << 30) - SHARED), "")?;
        let alone = self.is_unique(object)?;
        Ok(b.build_and(b.build_and(one_digit, in_range, "")?, alone, "")?)
    }

    fn set_int(&self, object: PointerValue<'ctx>, value: IntValue<'ctx>) -> Result<()> {
        let (b, w) = (&self.b, &self.w);
        let negative = b.build_int_compare(IntPredicate::SLT, value, w.i64.const_zero(), "")?;
        let (minus, plus) = match self.target.layout.int {
            IntLayout::SignedSize => (-1i64, 1),
            IntLayout::Tagged => (1 << 3 | 2, 1 << 3),
        };
        let word = |n: i64| w.i64.const_int(n as u64, true);
        let size = b.build_select(negative, word(minus), word(plus), "")?;
        self.store(size, self.at(object, INT_SIZE)?, 8, Region::Value)?;
        let digit = b.build_int_truncate(self.magnitude(value)?, w.i32, "")?;
        self.store(digit, self.at(object, INT_DIGITS)?, 4, Region::Value)
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
                b.build_is_not_null(self.load_ptr(at(values)?, Region::Attributes)?, "")?
            }
            InstanceLayout::Tagged { word } => {
                let word = self.load_int(w.i64, at(word)?, 8, Region::Attributes)?;
                b.build_int_truncate(word, w.i1, "")?
            }
            InstanceLayout::Inline { valid, dict, .. } => {
                let valid = self.load_int(w.i8, at(valid)?, 1, Region::Attributes)?;
                let valid = b.build_int_compare(IntPredicate::NE, valid, w.i8.const_zero(), "")?;
                if !writable {
                    return Ok(valid);
                }
                let alone = b.build_is_null(self.load_ptr(at(dict)?, Region::Attributes)?, "")?;
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
                let values = self.load_ptr(self.at(object, values.into())?, Region::Attributes)?;
                self.at(values, number)
            }
            InstanceLayout::Tagged { word } => {
                let tagged = self.load_ptr(self.at(object, word.into())?, Region::Attributes)?;
                self.at(tagged, number + 1)
            }
            InstanceLayout::Inline { values, .. } => self.at(object, i64::from(values) + number),
        }
    }
}
