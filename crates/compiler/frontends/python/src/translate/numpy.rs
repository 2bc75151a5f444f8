//! Arithmetic of NumPy scalars by NumPy 2's promotion rules.
//!
//! In: two numbers, at least one a NumPy scalar. Out: the result's flavour and value. Where NumPy would warn (overflow,
//! invalid, division by zero, an int that does not fit) the operation leaves for CPython, which lets NumPy warn or raise as
//! the error state says. The integer and float kinds not listed are object operations.

use overdrive_base::flavour::{Flavour, Ty};
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::{Block, Value};
use overdrive_ir::inst::{BoolOp, CheckedOp, Cmp, FloatOp, FloatUnary, Inst, IntOp, Terminator};

use crate::op::BinaryKind;
use crate::translate::arithmetic::EXACT;
use crate::translate::emit::Tx;
use crate::translate::value::{Num, Val};

/// Result flavour of + − * of two scalars under NEP 50; Python's own numbers are weak.
fn promoted(a: Flavour, b: Flavour) -> Option<Flavour> {
    use Flavour::{Bool, Float, Int, NpBool, NpF32, NpF64, NpI32, NpI64, NpU8};
    Some(match (a, b) {
        (NpBool, _) | (_, NpBool) => return None,
        (NpF64, _) | (_, NpF64) => NpF64,
        // float32 with a 64-bit or 32-bit integer array scalar is float64 in NumPy; rare: left to NumPy.
        (NpF32, NpI64 | NpI32) | (NpI64 | NpI32, NpF32) => return None,
        (NpF32, NpF32 | Float | NpU8) | (Float | NpU8, NpF32) => NpF32,
        (NpF32, _) | (_, NpF32) => return None,
        (NpI64 | NpI32 | NpU8, Float) | (Float, NpI64 | NpI32 | NpU8) => NpF64,
        (NpI64, _) | (_, NpI64) => NpI64,
        (NpI32, NpI32 | NpU8 | Int | Bool) | (NpU8 | Int | Bool, NpI32) => NpI32,
        (NpU8, NpU8 | Int | Bool) | (Int | Bool, NpU8) => NpU8,
        _ => return None,
    })
}

/// Values of an integer flavour.
fn bounds(f: Flavour) -> (i64, i64) {
    match f {
        Flavour::NpU8 => (0, 255),
        Flavour::NpI32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    }
}

impl Tx<'_> {
    pub(crate) fn np_binary(&mut self, kind: BinaryKind, a: Num, b: Num) -> Option<Val> {
        if a.flavour == Flavour::NpBool && b.flavour == Flavour::NpBool {
            let op = match kind {
                BinaryKind::And => BoolOp::And,
                BinaryKind::Or => BoolOp::Or,
                BinaryKind::Xor => BoolOp::Xor,
                _ => return None,
            };
            let v = self.emit(Inst::Bool(op, a.v, b.v));
            return Some(Val::num(Flavour::NpBool, v));
        }
        let result = promoted(a.flavour, b.flavour)?;
        match result {
            Flavour::NpF64 => self.np_float(kind, result, a, b),
            Flavour::NpF32 => self.np_float(kind, result, a, b),
            Flavour::NpI64 | Flavour::NpI32 | Flavour::NpU8 => self.np_int(kind, result, a, b),
            _ => None,
        }
    }

    fn np_float(&mut self, kind: BinaryKind, result: Flavour, a: Num, b: Num) -> Option<Val> {
        let op = match kind {
            BinaryKind::Add => FloatOp::Add,
            BinaryKind::Subtract => FloatOp::Sub,
            BinaryKind::Multiply => FloatOp::Mul,
            BinaryKind::TrueDivide => FloatOp::Div,
            _ => return None,
        };
        let convert = |tx: &mut Self, n: Num| -> Option<Value> {
            let wide = tx.as_float(n)?;
            if result == Flavour::NpF64 {
                return Some(wide);
            }
            if n.flavour == Flavour::NpF32 {
                return Some(n.v);
            }
            let narrow = tx.emit(Inst::F64ToF32(wide));
            // A Python float outside float32 warns in NumPy.
            if n.flavour == Flavour::Float {
                tx.same_finiteness(wide, narrow);
            }
            Some(narrow)
        };
        let (x, y) = (convert(self, a)?, convert(self, b)?);
        if op == FloatOp::Div {
            let zero = if result == Flavour::NpF64 { self.fconst(0.0) } else { self.emit(Inst::F32Const(0)) };
            let ok = self.emit(Inst::FCmp(Cmp::Ne, y, zero));
            self.guard(ok, "division by zero (NumPy warns)");
        }
        let v = self.float_op(op, x, y);
        self.quiet(op, v, x, y);
        Some(Val::num(result, v))
    }

    /// Leaves when a float64 became infinite by rounding to float32.
    pub(crate) fn same_finiteness(&mut self, wide: Value, narrow: Value) {
        let back = self.emit(Inst::F32ToF64(narrow));
        let (a, b) = (self.is_finite(wide), self.is_finite(back));
        let differ = self.emit(Inst::Bool(BoolOp::Xor, a, b));
        let ok = self.emit(Inst::Not(differ));
        self.guard(ok, "overflow in a conversion to float32 (NumPy warns)");
    }

    /// |x| < ∞ (false for NaN).
    pub(crate) fn is_finite(&mut self, x: Value) -> Value {
        let abs = self.emit(Inst::FloatUnary(FloatUnary::Abs, x));
        let max = if self.ir.ty(x) == Ty::F32 {
            self.emit(Inst::F32Const(f32::MAX.to_bits()))
        } else {
            self.fconst(f64::MAX)
        };
        self.emit(Inst::FCmp(Cmp::Le, abs, max))
    }

    /// Leaves when x ∘ y raised a floating-point flag that NumPy reports: a NaN from no NaN, an infinity from finite
    /// values, a product or quotient below the normal range (if the error state says so, which it rarely does).
    fn quiet(&mut self, op: FloatOp, v: Value, x: Value, y: Value) {
        let scales = matches!(op, FloatOp::Mul | FloatOp::Div);
        let (finite, tiny) = (self.is_finite(v), if scales { Some(self.is_tiny(v)) } else { None });
        let usual = match tiny {
            Some(tiny) => {
                let large = self.emit(Inst::Not(tiny));
                self.both(finite, large)
            }
            None => finite,
        };
        let (special, done) = (self.ir.add_block(), self.ir.add_block());
        self.terminate(Terminator::Branch { cond: usual, then: (done, vec![]), els: (special, vec![]) });
        self.cur = Some(special);
        self.ir.blocks[special.index()].cold = true;
        if let Some(tiny) = tiny {
            let (small, other) = (self.ir.add_block(), self.ir.add_block());
            self.terminate(Terminator::Branch { cond: tiny, then: (small, vec![]), els: (other, vec![]) });
            self.cur = Some(small);
            self.quiet_underflow(op, x, y, done);
            self.cur = Some(other);
        }
        // Quiet when an operand was NaN (no flag), or the result is an infinity that an infinite operand explains.
        let (nx, ny) = (self.emit(Inst::FCmp(Cmp::Ne, x, x)), self.emit(Inst::FCmp(Cmp::Ne, y, y)));
        let from_nan = self.emit(Inst::Bool(BoolOp::Or, nx, ny));
        let not_nan = self.emit(Inst::FCmp(Cmp::Eq, v, v));
        let (fx, fy) = (self.is_finite(x), self.is_finite(y));
        let finite_both = self.both(fx, fy);
        let inf_in = self.emit(Inst::Not(finite_both));
        let from_inf = self.both(not_nan, inf_in);
        let ok = self.emit(Inst::Bool(BoolOp::Or, from_nan, from_inf));
        self.guard(ok, "overflow or invalid value (NumPy warns)");
        self.terminate(Terminator::Jump(done, vec![]));
        self.cur = Some(done);
    }

    /// A result below the normal range: exact when an operand was zero (or the divisor infinite), else underflow.
    fn quiet_underflow(&mut self, op: FloatOp, x: Value, y: Value, done: Block) {
        let zero = self.zero_like(x);
        let mut exact = self.emit(Inst::FCmp(Cmp::Eq, x, zero));
        let other = if op == FloatOp::Mul {
            self.emit(Inst::FCmp(Cmp::Eq, y, zero))
        } else {
            let finite = self.is_finite(y);
            self.emit(Inst::Not(finite))
        };
        exact = self.emit(Inst::Bool(BoolOp::Or, exact, other));
        let ask = self.ir.add_block();
        self.terminate(Terminator::Branch { cond: exact, then: (done, vec![]), els: (ask, vec![]) });
        self.cur = Some(ask);
        self.ir.blocks[ask.index()].cold = true;
        let ignored = self.call(TableEntry::NpUnderIgnored, vec![]);
        self.guard(ignored, "underflow (NumPy's error state reports it)");
        self.terminate(Terminator::Jump(done, vec![]));
    }

    fn zero_like(&mut self, x: Value) -> Value {
        if self.ir.ty(x) == Ty::F32 { self.emit(Inst::F32Const(0)) } else { self.fconst(0.0) }
    }

    /// |x| below the smallest normal number (true for zero).
    fn is_tiny(&mut self, x: Value) -> Value {
        let abs = self.emit(Inst::FloatUnary(FloatUnary::Abs, x));
        let min = if self.ir.ty(x) == Ty::F32 {
            self.emit(Inst::F32Const(f32::MIN_POSITIVE.to_bits()))
        } else {
            self.fconst(f64::MIN_POSITIVE)
        };
        self.emit(Inst::FCmp(Cmp::Lt, abs, min))
    }

    fn np_int(&mut self, kind: BinaryKind, result: Flavour, a: Num, b: Num) -> Option<Val> {
        let (x, y) = (self.as_int(a)?, self.as_int(b)?);
        if kind == BinaryKind::TrueDivide {
            return self.np_int_div(a, b, x, y);
        }
        let supported = matches!(
            kind,
            BinaryKind::Add
                | BinaryKind::Subtract
                | BinaryKind::Multiply
                | BinaryKind::FloorDivide
                | BinaryKind::Remainder
                | BinaryKind::And
                | BinaryKind::Or
                | BinaryKind::Xor
        );
        if !supported {
            return None;
        }
        // A weak Python int must fit the scalar's type.
        for (n, v) in [(a, x), (b, y)] {
            if n.flavour == Flavour::Int && result != Flavour::NpI64 {
                self.within(v, result, "a Python int outside the scalar's type");
            }
        }
        let v = match kind {
            BinaryKind::Add => self.checked(CheckedOp::Add, x, y),
            BinaryKind::Subtract => self.checked(CheckedOp::Sub, x, y),
            BinaryKind::Multiply => self.checked(CheckedOp::Mul, x, y),
            BinaryKind::FloorDivide | BinaryKind::Remainder => {
                self.divisor_ok(x, y);
                let op = if kind == BinaryKind::FloorDivide { IntOp::FloorDiv } else { IntOp::FloorMod };
                self.int(op, x, y)
            }
            BinaryKind::And => self.int(IntOp::And, x, y),
            BinaryKind::Or => self.int(IntOp::Or, x, y),
            _ => self.int(IntOp::Xor, x, y),
        };
        if result != Flavour::NpI64 {
            self.within(v, result, "overflow of a NumPy integer (NumPy warns)");
        }
        Some(Val::num(result, v))
    }

    /// True division of integer scalars: float64 of each, then divided. 8-bit integers give float16 in NumPy's table only
    /// among themselves, so those are left to NumPy.
    fn np_int_div(&mut self, a: Num, b: Num, x: Value, y: Value) -> Option<Val> {
        let wide = |f: Flavour| matches!(f, Flavour::NpI64 | Flavour::NpI32);
        if !wide(a.flavour) && !wide(b.flavour) {
            return None;
        }
        let zero = self.iconst(0);
        let ok = self.icmp(Cmp::Ne, y, zero);
        self.guard(ok, "division by zero (NumPy warns)");
        let (p, q) = (self.float_of(x), self.float_of(y));
        let v = self.float_op(FloatOp::Div, p, q);
        Some(Val::num(Flavour::NpF64, v))
    }

    /// Leaves unless the integer is a value of the flavour.
    pub(crate) fn within(&mut self, v: Value, flavour: Flavour, reason: &str) {
        let (low, high) = bounds(flavour);
        if let Some(n) = self.const_of(v)
            && (low..=high).contains(&n)
        {
            return;
        }
        let low_v = self.iconst(low);
        let moved = self.emit(Inst::Int(IntOp::Sub, v, low_v));
        let span = self.iconst(high - low + 1);
        let ok = self.emit(Inst::ULt(moved, span));
        self.guard(ok, reason);
    }

    /// An int as a float64 operand of a comparison with a NumPy float; large ints are left to NumPy.
    pub(crate) fn exact_float(&mut self, v: Value) -> Value {
        if self.const_of(v).is_none_or(|n| !(-EXACT..=EXACT).contains(&n)) {
            let ok = self.is_exact(v);
            self.guard(ok, "an int beyond 2**53 in a comparison with a float");
        }
        self.float_of(v)
    }
}
