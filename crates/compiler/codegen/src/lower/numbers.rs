//! Numbers and truth values: exactly what the IR says, bit for bit. Only operations that are single IEEE instructions
//! become LLVM intrinsics, and nothing is contracted or reassociated unless the function has `fastmath`. NaNs and
//! infinities keep their meaning there too: checks look at them.

use inkwell::values::{BasicValueEnum, FastMathFlags, FloatValue, IntValue};
use inkwell::{FloatPredicate, IntPredicate};
use overdrive_ir::entities::ExitId;
use overdrive_ir::inst::{BoolOp, CheckedOp, Cmp, FloatOp, FloatUnary, Inst, IntOp};

use super::{Lower, Result};
use inkwell::intrinsics::Intrinsic;
use inkwell::types::BasicTypeEnum;

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn number(&mut self, inst: &Inst) -> Result<BasicValueEnum<'ctx>> {
        let (b, w) = (&self.b, &self.w);
        Ok(match inst {
            Inst::IConst(x) => w.i64.const_int(*x as u64, true).into(),
            Inst::FConst(bits) => b.build_bit_cast(w.i64.const_int(*bits, false), w.f64, "")?,
            Inst::F32Const(bits) => b.build_bit_cast(w.i32.const_int(u64::from(*bits), false), w.f32, "")?,
            Inst::BConst(x) => w.i1.const_int(u64::from(*x), false).into(),
            Inst::HasFrame if self.f.needs_frame => w.i1.const_int(1, false).into(),
            Inst::HasFrame => b.build_is_not_null(self.frame, "")?.into(),
            Inst::Int(op, x, y) => {
                let (x, y) = (self.int(*x)?, self.int(*y)?);
                self.int_op(*op, x, y)?.into()
            }
            Inst::Checked(op, x, y, exit) => {
                let (x, y) = (self.int(*x)?, self.int(*y)?);
                self.checked(*op, x, y, *exit)?.into()
            }
            Inst::ICmp(cmp, x, y) => {
                b.build_int_compare(int_predicate(*cmp), self.int(*x)?, self.int(*y)?, "")?.into()
            }
            Inst::ULt(x, y) => {
                b.build_int_compare(IntPredicate::ULT, self.int(*x)?, self.int(*y)?, "")?.into()
            }
            Inst::Float(op, x, y) => {
                let (x, y) = (self.float(*x)?, self.float(*y)?);
                match op {
                    FloatOp::Add => self.loosely(b.build_float_add(x, y, "")?)?.into(),
                    FloatOp::Sub => self.loosely(b.build_float_sub(x, y, "")?)?.into(),
                    FloatOp::Mul => self.loosely(b.build_float_mul(x, y, "")?)?.into(),
                    FloatOp::Div => self.loosely(b.build_float_div(x, y, "")?)?.into(),
                    FloatOp::CopySign => self.intrinsic("llvm.copysign", &[x, y])?.into(),
                }
            }
            Inst::FloatUnary(op, x) => {
                let x = self.float(*x)?;
                match op {
                    FloatUnary::Neg => b.build_float_neg(x, "")?.into(),
                    FloatUnary::Abs => self.intrinsic("llvm.fabs", &[x])?.into(),
                    FloatUnary::Sqrt => self.intrinsic("llvm.sqrt", &[x])?.into(),
                    FloatUnary::Floor => self.intrinsic("llvm.floor", &[x])?.into(),
                    FloatUnary::Ceil => self.intrinsic("llvm.ceil", &[x])?.into(),
                    FloatUnary::Trunc => self.intrinsic("llvm.trunc", &[x])?.into(),
                }
            }
            Inst::FCmp(cmp, x, y) => {
                b.build_float_compare(float_predicate(*cmp), self.float(*x)?, self.float(*y)?, "")?.into()
            }
            Inst::IntToFloat(x) => b.build_signed_int_to_float(self.int(*x)?, w.f64, "")?.into(),
            Inst::FloatToInt(x) => b.build_float_to_signed_int(self.float(*x)?, w.i64, "")?.into(),
            Inst::F32ToF64(x) => b.build_float_ext(self.float(*x)?, w.f64, "")?.into(),
            Inst::F64ToF32(x) => b.build_float_trunc(self.float(*x)?, w.f32, "")?.into(),
            Inst::Bool(op, x, y) => {
                let (x, y) = (self.int(*x)?, self.int(*y)?);
                match op {
                    BoolOp::And => b.build_and(x, y, "")?.into(),
                    BoolOp::Or => b.build_or(x, y, "")?.into(),
                    BoolOp::Xor => b.build_xor(x, y, "")?.into(),
                }
            }
            Inst::Not(x) => b.build_not(self.int(*x)?, "")?.into(),
            Inst::BoolToInt(x) => b.build_int_z_extend(self.int(*x)?, w.i64, "")?.into(),
            Inst::Select(cond, x, y) => {
                let (x, y) = (self.value(*x)?, self.value(*y)?);
                if x.get_type() != y.get_type() {
                    return Err(self.malformed("a select between two types"));
                }
                b.build_select(self.int(*cond)?, x, y, "")?
            }
            other => return Err(self.malformed(format!("{other:?} is not about numbers"))),
        })
    }

    /// Lets LLVM reassociate and contract an operation where the function allows it. No reciprocals: that of a tiny
    /// divisor is infinite where the quotient is not.
    fn loosely(&self, x: FloatValue<'ctx>) -> Result<FloatValue<'ctx>> {
        if self.f.fastmath
            && let Some(inst) = x.as_instruction()
        {
            let flags =
                FastMathFlags::AllowReassoc | FastMathFlags::AllowContract | FastMathFlags::NoSignedZeros;
            inst.set_fast_math_flags(flags).map_err(|e| self.malformed(format!("{e:?}")))?;
        }
        Ok(x)
    }

    fn int_op(&self, op: IntOp, x: IntValue<'ctx>, y: IntValue<'ctx>) -> Result<IntValue<'ctx>> {
        let b = &self.b;
        Ok(match op {
            IntOp::Add => b.build_int_add(x, y, "")?,
            IntOp::Sub => b.build_int_sub(x, y, "")?,
            IntOp::Mul => b.build_int_mul(x, y, "")?,
            IntOp::And => b.build_and(x, y, "")?,
            IntOp::Or => b.build_or(x, y, "")?,
            IntOp::Xor => b.build_xor(x, y, "")?,
            IntOp::Shl => b.build_left_shift(x, y, "")?,
            IntOp::Shr => b.build_right_shift(x, y, true, "")?,
            IntOp::FloorDiv | IntOp::FloorMod => self.floor_division(op, x, y)?,
        })
    }

    /// Division that rounds down. LLVM makes one machine division of quotient and remainder.
    fn floor_division(&self, op: IntOp, x: IntValue<'ctx>, y: IntValue<'ctx>) -> Result<IntValue<'ctx>> {
        let (b, zero) = (&self.b, self.w.i64.const_zero());
        // By a positive power of two a shift or mask rounds down by itself; LLVM does not see that in the general form.
        if let Some(c) = y.get_sign_extended_constant().filter(|c| *c > 0 && c.count_ones() == 1) {
            let constant = |c: i64| self.w.i64.const_int(c as u64, true);
            return Ok(match op {
                IntOp::FloorDiv => {
                    b.build_right_shift(x, constant(i64::from(c.trailing_zeros())), true, "")?
                }
                _ => b.build_and(x, constant(c - 1), "")?,
            });
        }
        let remainder = b.build_int_signed_rem(x, y, "")?;
        let inexact = b.build_int_compare(IntPredicate::NE, remainder, zero, "")?;
        let signs = b.build_xor(remainder, y, "")?;
        let differ = b.build_int_compare(IntPredicate::SLT, signs, zero, "")?;
        let below = b.build_and(inexact, differ, "")?;
        Ok(match op {
            IntOp::FloorDiv => {
                let quotient = b.build_int_signed_div(x, y, "")?;
                let correction = b.build_int_s_extend(below, self.w.i64, "")?;
                b.build_int_add(quotient, correction, "")?
            }
            _ => {
                let correction = b.build_select(below, y, zero, "")?.into_int_value();
                b.build_int_add(remainder, correction, "")?
            }
        })
    }

    fn checked(
        &mut self,
        op: CheckedOp,
        x: IntValue<'ctx>,
        y: IntValue<'ctx>,
        exit: ExitId,
    ) -> Result<IntValue<'ctx>> {
        self.ask(exit)?;
        let name = match op {
            CheckedOp::Add => "llvm.sadd.with.overflow",
            CheckedOp::Sub => "llvm.ssub.with.overflow",
            CheckedOp::Mul => "llvm.smul.with.overflow",
        };
        let function = self.declare(name, self.w.i64.into())?;
        let call = self.b.build_call(function, &[x.into(), y.into()], "")?;
        let pair = call.try_as_basic_value().basic();
        let Some(BasicValueEnum::StructValue(pair)) = pair else {
            return Err(self.malformed("an intrinsic of another LLVM"));
        };
        let result = self.b.build_extract_value(pair, 0, "")?.into_int_value();
        let overflow = self.b.build_extract_value(pair, 1, "")?.into_int_value();
        self.leave_if(overflow, exit)?;
        Ok(result)
    }

    fn intrinsic(&self, name: &str, args: &[FloatValue<'ctx>]) -> Result<FloatValue<'ctx>> {
        let function = self.declare(name, args[0].get_type().into())?;
        let args: Vec<_> = args.iter().map(|x| (*x).into()).collect();
        match self.b.build_call(function, &args, "")?.try_as_basic_value().basic() {
            Some(BasicValueEnum::FloatValue(x)) => Ok(x),
            _ => Err(self.malformed("an intrinsic of another LLVM")),
        }
    }

    fn declare(&self, name: &str, ty: BasicTypeEnum<'ctx>) -> Result<inkwell::values::FunctionValue<'ctx>> {
        Intrinsic::find(name)
            .and_then(|i| i.get_declaration(self.module, &[ty]))
            .ok_or_else(|| self.malformed(format!("LLVM has no {name}")))
    }
}

fn int_predicate(cmp: Cmp) -> IntPredicate {
    match cmp {
        Cmp::Lt => IntPredicate::SLT,
        Cmp::Le => IntPredicate::SLE,
        Cmp::Eq => IntPredicate::EQ,
        Cmp::Ne => IntPredicate::NE,
        Cmp::Gt => IntPredicate::SGT,
        Cmp::Ge => IntPredicate::SGE,
    }
}

/// Ordered comparisons, except that NaN is unequal to everything.
fn float_predicate(cmp: Cmp) -> FloatPredicate {
    match cmp {
        Cmp::Lt => FloatPredicate::OLT,
        Cmp::Le => FloatPredicate::OLE,
        Cmp::Eq => FloatPredicate::OEQ,
        Cmp::Ne => FloatPredicate::UNE,
        Cmp::Gt => FloatPredicate::OGT,
        Cmp::Ge => FloatPredicate::OGE,
    }
}
