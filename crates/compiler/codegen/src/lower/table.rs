//! Calls of the object table: arguments and results by the entry's signature, what LLVM may assume of the call, and where
//! control goes when it fails.

use inkwell::IntPredicate;
use inkwell::values::{BasicValueEnum, IntValue};
use overdrive_base::flavour::Ty;
use overdrive_base::layout::IntLayout;
use overdrive_base::table::{Effect, Entry, Failure, Signature};
use overdrive_ir::entities::{ExitId, Value};

use super::memory::Region;
use super::words::Touches;
use super::{Known, Lower, Result};
use crate::abi::RT_PROFILE;

/// Offsets inside an int; fixed by `IntLayout`.
pub(super) const INT_SIZE: i64 = 16;
pub(super) const INT_DIGITS: i64 = 24;

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn table(
        &mut self,
        entry: Entry,
        args: &[Value],
        pos: Option<u32>,
        fail: Option<ExitId>,
        result: Option<Value>,
    ) -> Result<Option<BasicValueEnum<'ctx>>> {
        let signature = entry.signature();
        self.check_arguments(entry, &signature, args)?;
        let fail = match (signature.failure, fail) {
            (Failure::Never, _) => None,
            (_, Some(exit)) => Some(exit),
            (_, None) => return Err(self.malformed(format!("{} has nowhere to fail to", entry.name()))),
        };
        if let (Failure::Declines, Some(exit)) = (signature.failure, fail) {
            self.ask(exit)?;
        }
        if let Some(pos) = pos {
            self.store_position(pos)?;
        }
        match (entry, signature.failure, fail) {
            // The word is at hand: no call.
            (Entry::PollPending, ..) => return self.poll_pending().map(|v| Some(v.into())),
            (Entry::Observe | Entry::ObserveAttr, ..) => {
                return self.observe(entry, args).map(|()| None);
            }
            (Entry::IsUnique, ..) => {
                let object = self.ptr(args[0])?;
                return self.is_unique(object).map(|v| Some(v.into()));
            }
            (Entry::UnboxInt, _, Some(exit)) => return self.unbox_int(args[0], exit).map(|v| Some(v.into())),
            _ => {}
        }
        if let Some(value) = self.common(entry, args, fail, result)? {
            return Ok(value);
        }
        let passed = self.arguments(&signature, args)?;
        if entry.fast_name().is_some() {
            return self.fast(entry, &passed).map(Some);
        }
        Ok(match (signature.failure, fail) {
            (Failure::Declines, Some(exit)) => {
                let value = self.declining(entry, &signature, passed, exit)?;
                self.learn(result.filter(|_| signature.result == Some(Ty::Obj)), Known::NotNull);
                Some(value)
            }
            (failure, exit) => {
                let ty = signature.result.map(|ty| match ty {
                    Ty::I1 => self.w.i8.into(),
                    ty => self.w.of(ty),
                });
                let (touches, region) = touches(entry, &signature);
                let call = self.call(self.entry_address(entry)?, ty, &passed, touches)?;
                if let Some(region) = region {
                    self.tag_call(call, region)?;
                }
                let Some(value) = call.try_as_basic_value().basic() else { return Ok(None) };
                match (failure, exit, value) {
                    (Failure::Null, Some(exit), BasicValueEnum::PointerValue(object)) => {
                        let failed = self.b.build_is_null(object, "")?;
                        self.leave_if(failed, exit)?;
                        self.learn(result, Known::NotNull);
                    }
                    (Failure::Negative, Some(exit), BasicValueEnum::IntValue(status)) => {
                        let zero = self.w.i64.const_zero();
                        let failed = self.b.build_int_compare(IntPredicate::SLT, status, zero, "")?;
                        self.leave_if(failed, exit)?;
                    }
                    _ => {}
                }
                match (signature.result, value) {
                    (Some(Ty::I1), BasicValueEnum::IntValue(byte)) => Some(
                        self.b.build_int_compare(IntPredicate::NE, byte, self.w.i8.const_zero(), "")?.into(),
                    ),
                    _ => Some(value),
                }
            }
        })
    }

    fn check_arguments(&self, entry: Entry, signature: &Signature, args: &[Value]) -> Result<()> {
        let fixed = signature.args.len();
        let count_fits = match signature.variadic {
            true => args.len() >= fixed,
            false => args.len() == fixed,
        };
        let types = signature.args.iter().copied().chain(std::iter::repeat(Ty::Obj));
        match count_fits && args.iter().zip(types).all(|(v, ty)| self.f.ty(*v) == ty) {
            true => Ok(()),
            false => Err(self.malformed(format!("arguments of {}", entry.name()))),
        }
    }

    /// Fixed arguments as they are, variable ones through memory.
    fn arguments(&mut self, signature: &Signature, args: &[Value]) -> Result<Vec<BasicValueEnum<'ctx>>> {
        let (fixed, variable) = args.split_at(signature.args.len());
        let mut passed = Vec::with_capacity(fixed.len() + 3);
        for v in fixed {
            passed.push(match self.f.ty(*v) {
                Ty::I1 => self.b.build_int_z_extend(self.int(*v)?, self.w.i8, "")?.into(),
                _ => self.value(*v)?,
            });
        }
        if signature.variadic {
            let Some(buffer) = self.call_args else { return Err(self.malformed("no room for arguments")) };
            let first = self.at(buffer, 8)?;
            for (i, v) in variable.iter().enumerate() {
                let slot = self.at(first, 8 * i as i64)?;
                self.store(self.ptr(*v)?, slot, 8, Region::Scratch)?;
            }
            passed.push(first.into());
            passed.push(self.w.i64.const_int(variable.len() as u64, false).into());
        }
        Ok(passed)
    }

    /// An entry that says whether it did anything, and puts its result into memory.
    pub(super) fn declining(
        &mut self,
        entry: Entry,
        signature: &Signature,
        mut passed: Vec<BasicValueEnum<'ctx>>,
        exit: ExitId,
    ) -> Result<BasicValueEnum<'ctx>> {
        let (Some(out), Some(ty)) = (self.out, signature.result) else {
            return Err(self.malformed(format!("{} has no result", entry.name())));
        };
        passed.push(out.into());
        let (touches, region) = touches(entry, signature);
        let call = self.call(self.entry_address(entry)?, Some(self.w.i8.into()), &passed, touches)?;
        match region {
            Some(region) => self.tag_call(call, region)?,
            None if matches!(touches, Touches::Out | Touches::ReadsOut) => self.w.describe_out(call, &passed),
            None => {}
        }
        let declined = self.is_zero(self.int_result(call)?)?;
        self.leave_if(declined, exit)?;
        let align = match ty {
            Ty::F32 => 4,
            Ty::I1 => 1,
            _ => 8,
        };
        match ty {
            Ty::I1 => {
                let byte = self.load_int(self.w.i8, out, align, Region::Scratch)?;
                Ok(self.b.build_int_compare(IntPredicate::NE, byte, self.w.i8.const_zero(), "")?.into())
            }
            _ => self.load(self.w.of(ty), out, align, Region::Scratch),
        }
    }

    /// Ints of at most one digit are read here, others by the table. Most are positive.
    fn unbox_int(&mut self, object: Value, exit: ExitId) -> Result<IntValue<'ctx>> {
        let object = self.ptr(object)?;
        let (b, w) = (&self.b, &self.w);
        let word = |n: u64| w.i64.const_int(n, false);
        let size = self.load_int(w.i64, self.at(object, INT_SIZE)?, 8, Region::Value)?;
        let (positive, small, sign) = match self.target.layout.int {
            IntLayout::SignedSize => {
                let above = b.build_int_add(size, word(1), "")?;
                (word(1), b.build_int_compare(IntPredicate::ULE, above, word(2), "")?, size)
            }
            IntLayout::Tagged => {
                let small = b.build_int_compare(IntPredicate::ULT, size, word(2 << 3), "")?;
                let sign = b.build_int_sub(word(1), b.build_and(size, word(3), "")?, "")?;
                (word(1 << 3), small, sign)
            }
        };
        let is_positive = b.build_int_compare(IntPredicate::EQ, size, positive, "")?;
        let (usual, other, inline, large, done) =
            (self.new_block(), self.new_block(), self.new_block(), self.new_block(), self.new_block());
        let digit = |lower: &Self| -> Result<IntValue<'ctx>> {
            let at = lower.at(object, INT_DIGITS)?;
            let digit = lower.load_int(lower.w.i32, at, 4, Region::Value)?;
            Ok(lower.b.build_int_z_extend(digit, lower.w.i64, "")?)
        };
        let branch = b.build_conditional_branch(is_positive, usual, other)?;
        w.annotate(branch, w.kinds.prof, w.often);

        b.position_at_end(usual);
        let as_is = digit(self)?;
        b.build_unconditional_branch(done)?;

        b.position_at_end(other);
        let branch = b.build_conditional_branch(small, inline, large)?;
        w.annotate(branch, w.kinds.prof, w.often);

        b.position_at_end(inline);
        let value = b.build_int_mul(digit(self)?, sign, "")?;
        b.build_unconditional_branch(done)?;

        b.position_at_end(large);
        let unboxed =
            self.declining(Entry::UnboxInt, &Entry::UnboxInt.signature(), vec![object.into()], exit)?;
        let in_large = self.current()?;
        self.b.build_unconditional_branch(done)?;

        self.b.position_at_end(done);
        let phi = self.b.build_phi(self.w.i64, "")?;
        phi.add_incoming(&[(&as_is, usual), (&value, inline), (&unboxed, in_large)]);
        Ok(phi.as_basic_value().into_int_value())
    }

    /// The profile remembers one type per slot; only another one is worth a call.
    fn observe(&mut self, entry: Entry, args: &[Value]) -> Result<()> {
        let (slot, object) = (self.int(args[0])?, self.ptr(args[1])?);
        let profile = self.load_ptr(self.at(self.rt, RT_PROFILE)?, Region::Scratch)?;
        self.note(profile.into(), self.w.kinds.invariant_load, self.w.empty);
        let seen = self.load_ptr(self.slot(profile, slot)?, Region::Profile)?;
        let known = self.same_address(seen, self.type_of(object)?)?;
        let new = self.b.build_not(known, "")?;
        self.when(new, true, |lower| {
            let mut passed = vec![lower.rt.into(), slot.into(), object.into()];
            for more in &args[2..] {
                passed.push(lower.value(*more)?);
            }
            let call = lower.call(lower.entry_address(entry)?, None, &passed, Touches::Some)?;
            lower.w.cold(call);
            lower.tag_call(call, Region::Profile)
        })
    }
}

/// What a call of the entry touches, and the region that holds all of it if there is one.
fn touches(entry: Entry, signature: &Signature) -> (Touches, Option<Region>) {
    let reads_objects = signature.variadic || signature.args.contains(&Ty::Obj);
    let declines = signature.failure == Failure::Declines;
    match signature.effect {
        // It drops the StopIteration that it finds.
        _ if entry == Entry::NextFailed => (Touches::Everything, None),
        // Other threads run in between.
        _ if matches!(entry, Entry::GilGive | Entry::GilTake) => (Touches::Everything, None),
        Effect::Opaque => (Touches::Everything, None),
        Effect::Local => (Touches::Some, Some(Region::Object)),
        Effect::AllocUntracked => (Touches::Some, Some(Region::Refcount)),
        // A new reference is counted.
        Effect::Pure if signature.result == Some(Ty::Obj) => (Touches::Some, Some(Region::Refcount)),
        Effect::Pure => match (reads_objects, declines) {
            (false, false) => (Touches::Nothing, None),
            (true, false) => (Touches::Reads, None),
            (false, true) => (Touches::Out, None),
            (true, true) => (Touches::ReadsOut, None),
        },
    }
}
