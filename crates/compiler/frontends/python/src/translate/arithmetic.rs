//! Binary and unary operators on numbers, and what happens when an operand is none.
//!
//! In: two operands on the abstract stack. Out: the result with the flavour that CPython (or NumPy, see `numpy`) gives it.
//! What leaves 64 bits, divides by zero or has a rule of its own leaves for CPython before anything happened; what is no
//! number is one object operation. An operation whose speculation failed too often is an object operation too.

use overdrive_base::flavour::Flavour;
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::Value;
use overdrive_ir::inst::{CheckedOp, Cmp, FloatOp, FloatUnary, Inst, IntOp, Terminator};

use crate::facts::Status;
use crate::op::{BinaryKind, UnaryKind};
use crate::translate::Step;
use crate::translate::emit::Tx;
use crate::translate::value::{Num, Val};

/// Largest integer such that it and all smaller ones are exact in binary64.
pub(crate) const EXACT: i64 = 1 << 53;

impl Tx<'_> {
    pub(crate) fn blocked(&self) -> bool {
        self.oracle.blocked(self.ins().op_offset)
    }

    pub(crate) fn binary(&mut self, kind: BinaryKind, inplace: bool) -> Step {
        if let (Val::Num(a), Val::Num(b)) = (self.peek(1).clone(), self.peek(0).clone())
            && !self.blocked()
            && let Some(result) = self.num_binary(kind, a, b)
        {
            self.drop_top(2);
            self.push(result);
            return Ok(());
        }
        let entry = if inplace { TableEntry::Inplace } else { TableEntry::Binary };
        let why = format!("{} {} {}", self.peek(1).describe(), symbol(kind), self.peek(0).describe());
        let number = self.iconst(kind as i64);
        self.generic(entry, vec![number], 2, &why);
        Ok(())
    }

    /// The native result, or nothing emitted and `None`.
    fn num_binary(&mut self, kind: BinaryKind, a: Num, b: Num) -> Option<Val> {
        if a.flavour.is_numpy() || b.flavour.is_numpy() {
            return self.np_binary(kind, a, b);
        }
        if a.flavour == Flavour::Float || b.flavour == Flavour::Float {
            let (x, y) = (self.as_float(a)?, self.as_float(b)?);
            return self.float_binary(kind, x, y).map(|v| Val::num(Flavour::Float, v));
        }
        if a.flavour == Flavour::Bool && b.flavour == Flavour::Bool {
            use overdrive_ir::inst::BoolOp;
            let op = match kind {
                BinaryKind::And => Some(BoolOp::And),
                BinaryKind::Or => Some(BoolOp::Or),
                BinaryKind::Xor => Some(BoolOp::Xor),
                _ => None,
            };
            if let Some(op) = op {
                let v = self.emit(Inst::Bool(op, a.v, b.v));
                return Some(Val::num(Flavour::Bool, v));
            }
        }
        let (x, y) = (self.as_int(a)?, self.as_int(b)?);
        self.int_binary(kind, x, y)
    }

    /// A bool or int as I64.
    pub(crate) fn as_int(&mut self, n: Num) -> Option<Value> {
        match n.flavour {
            Flavour::Bool | Flavour::NpBool => Some(self.emit(Inst::BoolToInt(n.v))),
            Flavour::Int | Flavour::NpI64 | Flavour::NpI32 | Flavour::NpU8 => Some(n.v),
            Flavour::Float | Flavour::NpF64 | Flavour::NpF32 => None,
        }
    }

    /// Any number as F64, as `float()` converts it.
    pub(crate) fn as_float(&mut self, n: Num) -> Option<Value> {
        match n.flavour {
            Flavour::Float | Flavour::NpF64 => Some(n.v),
            Flavour::NpF32 => Some(self.emit(Inst::F32ToF64(n.v))),
            _ => {
                let i = self.as_int(n)?;
                Some(self.float_of(i))
            }
        }
    }

    fn float_binary(&mut self, kind: BinaryKind, x: Value, y: Value) -> Option<Value> {
        Some(match kind {
            BinaryKind::Add => self.float_op(FloatOp::Add, x, y),
            BinaryKind::Subtract => self.float_op(FloatOp::Sub, x, y),
            BinaryKind::Multiply => self.float_op(FloatOp::Mul, x, y),
            BinaryKind::TrueDivide => {
                let zero = self.fconst(0.0);
                let ok = self.emit(Inst::FCmp(Cmp::Ne, y, zero));
                self.guard(ok, "division by zero");
                self.float_op(FloatOp::Div, x, y)
            }
            BinaryKind::FloorDivide => self.call(TableEntry::FloatFloorDiv, vec![x, y]),
            BinaryKind::Remainder => self.call(TableEntry::FloatMod, vec![x, y]),
            BinaryKind::Power => self.call(TableEntry::FloatPow, vec![x, y]),
            _ => return None,
        })
    }

    fn int_binary(&mut self, kind: BinaryKind, x: Value, y: Value) -> Option<Val> {
        let v = match kind {
            BinaryKind::Add => self.checked(CheckedOp::Add, x, y),
            BinaryKind::Subtract => self.checked(CheckedOp::Sub, x, y),
            BinaryKind::Multiply => self.checked(CheckedOp::Mul, x, y),
            BinaryKind::FloorDivide => {
                self.divisor_ok(x, y);
                self.int(IntOp::FloorDiv, x, y)
            }
            BinaryKind::Remainder => {
                self.divisor_ok(x, y);
                self.int(IntOp::FloorMod, x, y)
            }
            BinaryKind::And => self.int(IntOp::And, x, y),
            BinaryKind::Or => self.int(IntOp::Or, x, y),
            BinaryKind::Xor => self.int(IntOp::Xor, x, y),
            BinaryKind::LeftShift => self.shift_left(x, y),
            BinaryKind::RightShift => self.shift_right(x, y),
            BinaryKind::Power => match self.const_of(y) {
                Some(2) => self.checked(CheckedOp::Mul, x, x),
                _ => self.call(TableEntry::IntPow, vec![x, y]),
            },
            BinaryKind::TrueDivide => {
                let v = self.int_true_div(x, y);
                return Some(Val::num(Flavour::Float, v));
            }
            BinaryKind::MatrixMultiply => return None,
        };
        Some(Val::num(Flavour::Int, v))
    }

    pub(crate) fn checked(&mut self, op: CheckedOp, x: Value, y: Value) -> Value {
        if let (Some(a), Some(b)) = (self.const_of(x), self.const_of(y)) {
            let exact = match op {
                CheckedOp::Add => a.checked_add(b),
                CheckedOp::Sub => a.checked_sub(b),
                CheckedOp::Mul => a.checked_mul(b),
            };
            if let Some(n) = exact {
                return self.iconst(n);
            }
        }
        let exit = self.exit_here("int leaves 64 bits");
        self.emit(Inst::Checked(op, x, y, exit))
    }

    /// Leaves for a zero divisor and for the one quotient outside 64 bits.
    pub(crate) fn divisor_ok(&mut self, x: Value, y: Value) {
        match self.const_of(y) {
            Some(0) | None => {
                let zero = self.iconst(0);
                let ok = self.icmp(Cmp::Ne, y, zero);
                self.guard(ok, "division by zero");
            }
            Some(_) => {}
        }
        if self.const_of(y).is_none_or(|n| n == -1) {
            let (min, minus) = (self.iconst(i64::MIN), self.iconst(-1));
            let (a, b) = (self.icmp(Cmp::Ne, x, min), self.icmp(Cmp::Ne, y, minus));
            let ok = self.emit(Inst::Bool(overdrive_ir::inst::BoolOp::Or, a, b));
            self.guard(ok, "int leaves 64 bits");
        }
    }

    fn shift_left(&mut self, x: Value, y: Value) -> Value {
        let limit = self.iconst(63);
        let ok = self.emit(Inst::ULt(y, limit));
        self.guard(ok, "shift count");
        let v = self.int(IntOp::Shl, x, y);
        let back = self.int(IntOp::Shr, v, y);
        let same = self.icmp(Cmp::Eq, back, x);
        self.guard(same, "int leaves 64 bits");
        v
    }

    fn shift_right(&mut self, x: Value, y: Value) -> Value {
        let zero = self.iconst(0);
        let ok = self.icmp(Cmp::Ge, y, zero);
        self.guard(ok, "negative shift count");
        let limit = self.iconst(63);
        let big = self.icmp(Cmp::Gt, y, limit);
        let count = self.emit(Inst::Select(big, limit, y));
        self.int(IntOp::Shr, x, count)
    }

    /// Correctly rounded: one division while both are exact in binary64, else the long way.
    fn int_true_div(&mut self, x: Value, y: Value) -> Value {
        let a = self.is_exact(x);
        let b = self.is_exact(y);
        let zero = self.iconst(0);
        let nonzero = self.icmp(Cmp::Ne, y, zero);
        let both = self.both(a, b);
        let quick = self.both(both, nonzero);
        let (fast, slow, done) = (self.ir.add_block(), self.ir.add_block(), self.ir.add_block());
        let result = self.ir.add_param(done, overdrive_base::flavour::Ty::F64);
        self.terminate(Terminator::Branch { cond: quick, then: (fast, vec![]), els: (slow, vec![]) });
        self.cur = Some(fast);
        let (p, q) = (self.float_of(x), self.float_of(y));
        let v = self.float_op(FloatOp::Div, p, q);
        self.terminate(Terminator::Jump(done, vec![v]));
        self.cur = Some(slow);
        self.ir.blocks[slow.index()].cold = true;
        let v = self.call(TableEntry::IntTrueDiv, vec![x, y]);
        self.terminate(Terminator::Jump(done, vec![v]));
        self.cur = Some(done);
        result
    }

    /// |x| ≤ 2⁵³.
    pub(crate) fn is_exact(&mut self, x: Value) -> Value {
        if let Some(n) = self.const_of(x) {
            return self.bconst((-EXACT..=EXACT).contains(&n));
        }
        let off = self.iconst(EXACT);
        let moved = self.emit(Inst::Int(IntOp::Add, x, off));
        let limit = self.iconst(2 * EXACT + 1);
        self.emit(Inst::ULt(moved, limit))
    }

    pub(crate) fn unary(&mut self, kind: UnaryKind) {
        // `+x` of an exact int or float is the very object.
        if kind == UnaryKind::Positive
            && matches!(self.peek(0), Val::Num(Num { flavour: Flavour::Int | Flavour::Float, .. }))
        {
            return;
        }
        if let Val::Num(n) = self.peek(0).clone()
            && !self.blocked()
            && let Some(v) = self.num_unary(kind, n)
        {
            self.drop_top(1);
            self.push(v);
            return;
        }
        let number = match kind {
            UnaryKind::Negative => 0,
            UnaryKind::Positive => 1,
            UnaryKind::Invert => 2,
            // `not` never comes here.
            UnaryKind::Not => 3,
        };
        let number = self.iconst(number);
        let why = format!("unary operator on {}", self.peek(0).describe());
        self.generic(TableEntry::Unary, vec![number], 1, &why);
    }

    fn num_unary(&mut self, kind: UnaryKind, n: Num) -> Option<Val> {
        match (kind, n.flavour) {
            (UnaryKind::Negative, Flavour::Float | Flavour::NpF64 | Flavour::NpF32) => {
                let v = self.emit(Inst::FloatUnary(FloatUnary::Neg, n.v));
                Some(Val::num(n.flavour, v))
            }
            (UnaryKind::Negative, Flavour::Int | Flavour::Bool) => {
                let x = self.as_int(n)?;
                let zero = self.iconst(0);
                let v = self.checked(CheckedOp::Sub, zero, x);
                Some(Val::num(Flavour::Int, v))
            }
            (UnaryKind::Negative, Flavour::NpI64) => {
                let zero = self.iconst(0);
                let v = self.checked(CheckedOp::Sub, zero, n.v);
                Some(Val::num(Flavour::NpI64, v))
            }
            (UnaryKind::Positive, Flavour::Bool) => {
                let v = self.as_int(n)?;
                Some(Val::num(Flavour::Int, v))
            }
            (UnaryKind::Invert, Flavour::Int | Flavour::NpI64) => {
                let ones = self.iconst(-1);
                let v = self.int(IntOp::Xor, n.v, ones);
                Some(Val::num(n.flavour, v))
            }
            _ => None,
        }
    }

    /// One object operation: `fixed` arguments, then the top `n` entries; the result replaces them.
    pub(crate) fn generic(&mut self, entry: TableEntry, fixed: Vec<Value>, n: usize, why: &str) {
        let v = self.generic_value(entry, fixed, n, why);
        self.replace_top(n, v);
    }

    /// The same, with the operands still there.
    pub(crate) fn generic_value(
        &mut self,
        entry: TableEntry,
        fixed: Vec<Value>,
        n: usize,
        why: &str,
    ) -> Value {
        self.remark(Status::ThroughCPython, why);
        self.box_top(n);
        let mut args = fixed;
        args.extend(self.top_refs(n));
        self.call(entry, args)
    }

    /// As `generic`, for operations without a result.
    pub(crate) fn generic_effect(&mut self, entry: TableEntry, n: usize, why: &str) {
        self.remark(Status::ThroughCPython, why);
        self.box_top(n);
        let args = self.top_refs(n);
        self.table(entry, args);
        self.drop_top(n);
    }
}

pub(crate) fn symbol(kind: BinaryKind) -> &'static str {
    match kind {
        BinaryKind::Add => "+",
        BinaryKind::And => "&",
        BinaryKind::FloorDivide => "//",
        BinaryKind::LeftShift => "<<",
        BinaryKind::MatrixMultiply => "@",
        BinaryKind::Multiply => "*",
        BinaryKind::Remainder => "%",
        BinaryKind::Or => "|",
        BinaryKind::Power => "**",
        BinaryKind::RightShift => ">>",
        BinaryKind::Subtract => "-",
        BinaryKind::TrueDivide => "/",
        BinaryKind::Xor => "^",
    }
}
