//! Entries of the object table whose common case is a few instructions: these stand in the code, the rest is a call.
//!
//! In: an entry and its arguments. Out: the entry's result; what the instructions do is what the entry does in that case,
//! to the last reference. Where the layout does not know an address (0), every case is a call.

use inkwell::basic_block::BasicBlock;
use inkwell::values::{BasicValueEnum, FloatValue, IntValue, PointerValue};
use inkwell::{FloatPredicate, IntPredicate};
use overdrive_base::flavour::Ty;
use overdrive_base::layout::{IntLayout, SMALL_INTS};
use overdrive_base::table::Entry;
use overdrive_ir::entities::{ExitId, Value};

use super::memory::Region;
use super::table::{INT_DIGITS, INT_SIZE};
use super::words::Touches;
use super::{Known, Lower, Result};

impl<'ctx> Lower<'_, 'ctx> {
    /// The entries of this file: whether it was one, with its result.
    pub(super) fn common(
        &mut self,
        entry: Entry,
        args: &[Value],
        fail: Option<ExitId>,
        result: Option<Value>,
    ) -> Result<Option<Option<BasicValueEnum<'ctx>>>> {
        let layout = self.target.layout;
        let value: BasicValueEnum<'ctx> = match (entry, fail) {
            (Entry::ListAppend, Some(exit)) => {
                self.list_append(args, exit)?;
                self.w.i64.const_zero().into()
            }
            (Entry::ListSetFloat, Some(exit)) => {
                self.list_set_float(args, exit)?;
                self.w.i64.const_zero().into()
            }
            (Entry::ListSetInt, Some(exit)) if layout.small_ints != 0 => {
                self.list_set_int(args, exit)?;
                self.w.i64.const_zero().into()
            }
            (Entry::FloatPow, Some(exit)) => self.float_pow(args, exit)?.into(),
            (Entry::BoxInt, Some(exit)) if layout.small_ints != 0 => self.box_int(args[0], exit)?.into(),
            (Entry::StrItem, Some(exit)) if layout.characters != 0 => self.str_item(args, exit)?.into(),
            (Entry::StrCompare, _) if layout.characters != 0 => {
                match self.int(args[0])?.get_sign_extended_constant() {
                    Some(op @ (2 | 3)) => self.str_equal(op == 3, args)?.into(),
                    _ => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        if entry.signature().result == Some(Ty::Obj) {
            self.learn(result, Known::NotNull);
        }
        Ok(Some(Some(value)))
    }

    /// Where a list has room the item goes there; its reference is the list's from then on. A list that is being sorted
    /// says that it has none.
    fn list_append(&mut self, args: &[Value], exit: ExitId) -> Result<()> {
        let (list, item) = (self.ptr(args[0])?, self.ptr(args[1])?);
        let (layout, w) = (self.target.layout, &self.w);
        let size_at = self.at(list, layout.var_size.into())?;
        let size = self.load_int(w.i64, size_at, 8, Region::ListHeader)?;
        let allocated = self.at(list, layout.list_allocated.into())?;
        let allocated = self.load_int(w.i64, allocated, 8, Region::ListHeader)?;
        let has_room = self.b.build_int_compare(IntPredicate::SGT, allocated, size, "")?;
        self.either(
            has_room,
            |lower| {
                let slot = lower.list_slot(list, size)?;
                lower.store(item, slot, 8, Region::ListItems)?;
                let more = lower.b.build_int_add(size, lower.w.i64.const_int(1, false), "")?;
                lower.store(more, size_at, 8, Region::ListHeader)
            },
            |lower| lower.negative(Entry::ListAppend, &[list.into(), item.into()], Region::Object, exit),
        )
    }

    /// Engine rule 4: a float that only this slot refers to is overwritten.
    fn list_set_float(&mut self, args: &[Value], exit: ExitId) -> Result<()> {
        let (list, index, value) = (self.ptr(args[0])?, self.int(args[1])?, self.float(args[2])?);
        let slot = self.list_slot(list, index)?;
        let old = self.load_ptr(slot, Region::ListItems)?;
        let (ty, align) = self.count_type();
        let count = self.load_int(ty, old, align, Region::Refcount)?;
        let is_unshared = self.b.build_int_compare(IntPredicate::EQ, count, ty.const_int(1, false), "")?;
        self.either(
            is_unshared,
            |lower| {
                let at = lower.at(old, lower.target.layout.float_value.into())?;
                lower.store(value, at, 8, Region::Float)
            },
            |lower| {
                let args = [list.into(), index.into(), value.into()];
                lower.negative(Entry::ListSetFloat, &args, Region::Contents, exit)
            },
        )
    }

    /// The same for ints of one digit that are not small; small ones exist once each, and take the slot over.
    fn list_set_int(&mut self, args: &[Value], exit: ExitId) -> Result<()> {
        let (list, index, value) = (self.ptr(args[0])?, self.int(args[1])?, self.int(args[2])?);
        let slot = self.list_slot(list, index)?;
        let old = self.load_ptr(slot, Region::ListItems)?;
        let (nth, is_small) = self.nth_small(value)?;
        let (small, other, place, call, done) =
            (self.new_block(), self.new_block(), self.new_block(), self.new_block(), self.new_block());
        self.b.build_conditional_branch(is_small, small, other)?;

        self.b.position_at_end(small);
        let int = self.small_int(nth)?;
        self.store(int, slot, 8, Region::ListItems)?;
        self.dec_ref(old, None)?;
        self.b.build_unconditional_branch(done)?;

        self.b.position_at_end(other);
        let (ty, align) = self.count_type();
        let count = self.load_int(ty, old, align, Region::Refcount)?;
        let is_unshared = self.b.build_int_compare(IntPredicate::EQ, count, ty.const_int(1, false), "")?;
        let (b, w) = (&self.b, &self.w);
        let word = |n: i64| w.i64.const_int(n as u64, true);
        let negative = b.build_int_compare(IntPredicate::SLT, value, word(0), "")?;
        let size_at = self.at(old, INT_SIZE)?;
        let size = self.load_int(w.i64, size_at, 8, Region::Value)?;
        // What tells a size of one digit, whatever the sign; and that size with the new sign.
        let (has_one_digit, new_size) = match self.target.layout.int {
            IntLayout::SignedSize => {
                let above = b.build_int_add(size, word(1), "")?;
                let rest = b.build_and(above, word(!2), "")?;
                (self.is_zero(rest)?, b.build_select(negative, word(-1), word(1), "")?)
            }
            IntLayout::Tagged => {
                let digits = b.build_and(size, word(!7), "")?;
                let one = b.build_int_compare(IntPredicate::EQ, digits, word(1 << 3), "")?;
                (one, b.build_select(negative, word(1 << 3 | 2), word(1 << 3), "")?)
            }
        };
        let minus = b.build_int_neg(value, "")?;
        let magnitude = b.build_select(negative, minus, value, "")?.into_int_value();
        let fits = b.build_int_compare(IntPredicate::ULT, magnitude, word(1 << 30), "")?;
        let in_place = b.build_and(b.build_and(is_unshared, has_one_digit, "")?, fits, "")?;
        self.mostly(in_place, place, call)?;

        self.b.position_at_end(place);
        let digit = self.b.build_int_truncate(magnitude, self.w.i32, "")?;
        self.store(digit, self.at(old, INT_DIGITS)?, 4, Region::Value)?;
        self.store(new_size, size_at, 8, Region::Value)?;
        self.b.build_unconditional_branch(done)?;

        self.b.position_at_end(call);
        let args = [list.into(), index.into(), value.into()];
        self.negative(Entry::ListSetInt, &args, Region::Contents, exit)?;
        self.b.build_unconditional_branch(done)?;
        self.b.position_at_end(done);
        Ok(())
    }

    /// Of a positive base, and far from overflow and underflow, nothing is special about a power: the C library's function
    /// is what CPython calls, and it reports nothing.
    fn float_pow(&mut self, args: &[Value], exit: ExitId) -> Result<FloatValue<'ctx>> {
        let (base, exponent) = (self.float(args[0])?, self.float(args[1])?);
        let w = &self.w;
        let (zero, infinity) = (w.f64.const_float(0.0), w.f64.const_float(f64::INFINITY));
        let least = w.f64.const_float(f64::NEG_INFINITY);
        let mut usual = self.b.build_float_compare(FloatPredicate::OGT, base, zero, "")?;
        for (x, predicate, limit) in [
            (base, FloatPredicate::OLT, infinity),
            (exponent, FloatPredicate::OLT, infinity),
            (exponent, FloatPredicate::OGT, least),
        ] {
            let within = self.b.build_float_compare(predicate, x, limit, "")?;
            usual = self.b.build_and(usual, within, "")?;
        }
        let (ask, special, done) = (self.new_block(), self.new_block(), self.new_block());
        self.mostly(usual, ask, special)?;
        self.b.position_at_end(ask);
        let address = self.entry_address(Entry::FastPow)?;
        let args = [base.into(), exponent.into()];
        let call = self.call(address, Some(self.w.f64.into()), &args, Touches::Nothing)?;
        let power = match call.try_as_basic_value().basic() {
            Some(BasicValueEnum::FloatValue(power)) => power,
            _ => return Err(self.malformed("a power that is no float")),
        };
        let (small, large) = (self.w.f64.const_float(1e-300), self.w.f64.const_float(1e300));
        let above = self.b.build_float_compare(FloatPredicate::OGT, power, small, "")?;
        let below = self.b.build_float_compare(FloatPredicate::OLT, power, large, "")?;
        let is_plain = self.b.build_and(above, below, "")?;
        self.mostly(is_plain, done, special)?;
        let asked = self.current()?;

        self.b.position_at_end(special);
        let args = vec![base.into(), exponent.into()];
        let value = self.declining(Entry::FloatPow, &Entry::FloatPow.signature(), args, exit)?;
        let behind_special = self.current()?;
        self.b.build_unconditional_branch(done)?;
        self.b.position_at_end(done);
        let phi = self.b.build_phi(self.w.f64, "")?;
        phi.add_incoming(&[(&power, asked), (&value, behind_special)]);
        Ok(phi.as_basic_value().into_float_value())
    }

    /// Small ints exist once each, in a row.
    fn box_int(&mut self, value: Value, exit: ExitId) -> Result<PointerValue<'ctx>> {
        let value = self.int(value)?;
        let (nth, is_small) = self.nth_small(value)?;
        self.one_of(
            is_small,
            |lower| lower.small_int(nth),
            |lower| lower.object_or_leave(Entry::BoxInt, &[value.into()], Region::Refcount, exit),
        )
    }

    /// Which small int it is, and whether it is one.
    pub(super) fn nth_small(&self, value: IntValue<'ctx>) -> Result<(IntValue<'ctx>, IntValue<'ctx>)> {
        let (first, last) = (*SMALL_INTS.start(), *SMALL_INTS.end());
        let nth = self.b.build_int_sub(value, self.w.i64.const_int(first as u64, true), "")?;
        let end = self.w.i64.const_int((last - first + 1) as u64, false);
        Ok((nth, self.b.build_int_compare(IntPredicate::ULT, nth, end, "")?))
    }

    /// A new reference to a small int.
    pub(super) fn small_int(&mut self, nth: IntValue<'ctx>) -> Result<PointerValue<'ctx>> {
        let layout = self.target.layout;
        let size = self.w.i64.const_int(layout.small_int_size as u64, false);
        let bytes = self.b.build_int_mul(nth, size, "")?;
        let int = self.add_bytes(self.address(layout.small_ints)?, bytes)?;
        // Where small ints are immortal their count says so, and is not even read.
        if !layout.immortal {
            self.inc_ref(int)?;
        }
        Ok(int)
    }

    /// Characters below 128 exist once each.
    fn str_item(&mut self, args: &[Value], exit: ExitId) -> Result<PointerValue<'ctx>> {
        let (text, position) = (self.ptr(args[0])?, self.int(args[1])?);
        let is_ascii = self.is_ascii(text)?;
        self.one_of(
            is_ascii,
            |lower| {
                let data = lower.at(text, lower.target.layout.str_ascii_data.into())?;
                let at = lower.add_bytes(data, position)?;
                let character = lower.load_int(lower.w.i8, at, 1, Region::Value)?;
                let character = lower.b.build_int_z_extend(character, lower.w.i64, "")?;
                let table = lower.address(lower.target.layout.characters)?;
                let object = lower.load_ptr(lower.slot(table, character)?, Region::Scratch)?;
                lower.note(object.into(), lower.w.kinds.invariant_load, lower.w.empty);
                if !lower.target.layout.immortal {
                    lower.inc_ref(object)?;
                }
                Ok(object)
            },
            |lower| {
                let args = [text.into(), position.into()];
                lower.object_or_leave(Entry::StrItem, &args, Region::Refcount, exit)
            },
        )
    }

    /// Two strings are equal when they are the same; they are not when their lengths differ, or when both have one
    /// character below 128, each its own.
    fn str_equal(&mut self, negated: bool, args: &[Value]) -> Result<IntValue<'ctx>> {
        let (a, b) = (self.ptr(args[1])?, self.ptr(args[2])?);
        let same = self.same_address(a, b)?;
        let size = |lower: &Self, text| -> Result<IntValue<'ctx>> {
            let at = lower.at(text, lower.target.layout.var_size.into())?;
            lower.load_int(lower.w.i64, at, 8, Region::Value)
        };
        let (size_of_a, size_of_b) = (size(self, a)?, size(self, b)?);
        let sizes_differ = self.b.build_int_compare(IntPredicate::NE, size_of_a, size_of_b, "")?;
        let one = self.w.i64.const_int(1, false);
        let is_one = self.b.build_int_compare(IntPredicate::EQ, size_of_a, one, "")?;
        let ascii = self.b.build_and(self.is_ascii(a)?, self.is_ascii(b)?, "")?;
        let is_pair = self.b.build_and(is_one, ascii, "")?;
        let first = |lower: &Self, text| -> Result<IntValue<'ctx>> {
            // Behind any string's head there is at least this byte.
            let at = lower.at(text, lower.target.layout.str_ascii_data.into())?;
            lower.load_int(lower.w.i8, at, 1, Region::Value)
        };
        let bytes_differ =
            self.b.build_int_compare(IntPredicate::NE, first(self, a)?, first(self, b)?, "")?;
        let differ = self.b.build_or(sizes_differ, self.b.build_and(is_pair, bytes_differ, "")?, "")?;
        let told = self.b.build_or(self.b.build_or(same, differ, "")?, is_pair, "")?;
        let (known, ask, done) = (self.new_block(), self.new_block(), self.new_block());
        let branch = self.b.build_conditional_branch(told, known, ask)?;
        self.w.annotate(branch, self.w.kinds.prof, self.w.often);
        self.b.position_at_end(known);
        let is_equal = self.b.build_not(differ, "")?;
        self.b.build_unconditional_branch(done)?;
        self.b.position_at_end(ask);
        let op = self.w.i64.const_int(2, false).into();
        let result = Some(self.w.i8.into());
        let call = self.call(
            self.entry_address(Entry::StrCompare)?,
            result,
            &[op, a.into(), b.into()],
            Touches::Reads,
        )?;
        let answer = self.int_result(call)?;
        let answer = self.b.build_int_compare(IntPredicate::NE, answer, self.w.i8.const_zero(), "")?;
        self.b.build_unconditional_branch(done)?;
        self.b.position_at_end(done);
        let phi = self.b.build_phi(self.w.i1, "")?;
        phi.add_incoming(&[(&is_equal, known), (&answer, ask)]);
        let equal = phi.as_basic_value().into_int_value();
        Ok(if negated { self.b.build_not(equal, "")? } else { equal })
    }

    fn is_ascii(&self, text: PointerValue<'ctx>) -> Result<IntValue<'ctx>> {
        let (layout, w) = (self.target.layout, &self.w);
        let state = self.load_int(w.i32, self.at(text, layout.str_state.into())?, 4, Region::Value)?;
        let form = self.b.build_and(state, w.i32.const_int(layout.str_state_mask.into(), false), "")?;
        let ascii = w.i32.const_int(layout.str_state_ascii.into(), false);
        Ok(self.b.build_int_compare(IntPredicate::EQ, form, ascii, "")?)
    }

    // --- words

    /// The one way when the condition holds, as it mostly does, else the other.
    fn either(
        &mut self,
        cond: IntValue<'ctx>,
        then: impl FnOnce(&mut Self) -> Result<()>,
        els: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let (yes, no, done) = (self.new_block(), self.new_block(), self.new_block());
        self.mostly(cond, yes, no)?;
        self.b.position_at_end(yes);
        then(self)?;
        self.b.build_unconditional_branch(done)?;
        self.b.position_at_end(no);
        els(self)?;
        self.b.build_unconditional_branch(done)?;
        self.b.position_at_end(done);
        Ok(())
    }

    /// As `either`, with a result.
    fn one_of(
        &mut self,
        cond: IntValue<'ctx>,
        then: impl FnOnce(&mut Self) -> Result<PointerValue<'ctx>>,
        els: impl FnOnce(&mut Self) -> Result<PointerValue<'ctx>>,
    ) -> Result<PointerValue<'ctx>> {
        let (yes, no, done) = (self.new_block(), self.new_block(), self.new_block());
        self.mostly(cond, yes, no)?;
        self.b.position_at_end(yes);
        let a = then(self)?;
        let behind_a = self.current()?;
        self.b.build_unconditional_branch(done)?;
        self.b.position_at_end(no);
        let b = els(self)?;
        let behind_b = self.current()?;
        self.b.build_unconditional_branch(done)?;
        self.b.position_at_end(done);
        let phi = self.b.build_phi(self.w.ptr, "")?;
        phi.add_incoming(&[(&a, behind_a), (&b, behind_b)]);
        Ok(phi.as_basic_value().into_pointer_value())
    }

    fn mostly(&mut self, cond: IntValue<'ctx>, yes: BasicBlock<'ctx>, no: BasicBlock<'ctx>) -> Result<()> {
        let branch = self.b.build_conditional_branch(cond, yes, no)?;
        self.w.annotate(branch, self.w.kinds.prof, self.w.often);
        Ok(())
    }

    /// Calls an entry that answers with a status.
    fn negative(
        &mut self,
        entry: Entry,
        args: &[BasicValueEnum<'ctx>],
        region: Region,
        exit: ExitId,
    ) -> Result<()> {
        let call = self.call(self.entry_address(entry)?, Some(self.w.i64.into()), args, Touches::Some)?;
        self.tag_call(call, region)?;
        let status = self.int_result(call)?;
        let failed = self.b.build_int_compare(IntPredicate::SLT, status, self.w.i64.const_zero(), "")?;
        self.leave_if(failed, exit)
    }

    /// Calls an entry that gives an object or null.
    pub(super) fn object_or_leave(
        &mut self,
        entry: Entry,
        args: &[BasicValueEnum<'ctx>],
        region: Region,
        exit: ExitId,
    ) -> Result<PointerValue<'ctx>> {
        let call = self.call(self.entry_address(entry)?, Some(self.w.ptr.into()), args, Touches::Some)?;
        self.tag_call(call, region)?;
        let object = match call.try_as_basic_value().basic() {
            Some(BasicValueEnum::PointerValue(object)) => object,
            _ => return Err(self.malformed(format!("{} gives no object", entry.name()))),
        };
        let failed = self.b.build_is_null(object, "")?;
        self.leave_if(failed, exit)?;
        Ok(object)
    }
}
