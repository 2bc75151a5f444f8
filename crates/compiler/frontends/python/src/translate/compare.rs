//! Comparisons, identity, membership.
//!
//! In: two operands on the abstract stack. Out: a bool of the flavour that CPython or NumPy gives. Ints and floats compare
//! exactly, not by conversion.

use overdrive_base::flavour::{Flavour, KnownType};
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::Value;
use overdrive_ir::inst::{Cmp, Inst};

use crate::facts::Status;
use crate::op::CompareKind;
use crate::translate::Step;
use crate::translate::arithmetic::EXACT;
use crate::translate::emit::Tx;
use crate::translate::value::{Num, ObjTy, Val};

fn cmp_of(kind: CompareKind) -> Cmp {
    match kind {
        CompareKind::Lt => Cmp::Lt,
        CompareKind::Le => Cmp::Le,
        CompareKind::Eq => Cmp::Eq,
        CompareKind::Ne => Cmp::Ne,
        CompareKind::Gt => Cmp::Gt,
        CompareKind::Ge => Cmp::Ge,
    }
}

impl Tx<'_> {
    pub(crate) fn compare(&mut self, kind: CompareKind, to_bool: bool) -> Step {
        let cmp = cmp_of(kind);
        if let (Val::Num(a), Val::Num(b)) = (self.peek(1).clone(), self.peek(0).clone())
            && let Some((flavour, v)) = self.num_compare(cmp, a, b)
        {
            self.drop_top(2);
            let flavour = if to_bool { Flavour::Bool } else { flavour };
            self.push(Val::num(flavour, v));
            return Ok(());
        }
        if let (Val::Obj(a), Val::Obj(b)) = (self.peek(1), self.peek(0))
            && [a, b].iter().all(|o| o.ty == ObjTy::Exact(KnownType::Str))
        {
            let (a, b) = (a.v, b.v);
            let number = self.iconst(cmp.number());
            let v = self.call(TableEntry::StrCompare, vec![number, a, b]);
            self.drop_top(2);
            self.push(Val::num(Flavour::Bool, v));
            return Ok(());
        }
        let why = format!("comparison of {} with {}", self.peek(1).describe(), self.peek(0).describe());
        let number = self.iconst(cmp.number());
        if !to_bool {
            self.generic(TableEntry::Compare, vec![number], 2, &why);
            return Ok(());
        }
        // CPython goes on behind this with a bool and nothing else, so nobody may leave with what was compared to.
        let v = self.generic_value(TableEntry::Compare, vec![number], 2, &why);
        self.replace_top_typed(2, v, ObjTy::Any);
        let t = self.truth();
        self.push(Val::num(Flavour::Bool, t));
        Ok(())
    }

    /// The comparison's result and its flavour.
    pub(crate) fn num_compare(&mut self, cmp: Cmp, a: Num, b: Num) -> Option<(Flavour, Value)> {
        let np = a.flavour.is_numpy() || b.flavour.is_numpy();
        let flavour = if np { Flavour::NpBool } else { Flavour::Bool };
        let is_float = |f: Flavour| matches!(f, Flavour::Float | Flavour::NpF64 | Flavour::NpF32);
        let v = match (is_float(a.flavour), is_float(b.flavour)) {
            (false, false) => {
                let (x, y) = (self.as_int(a)?, self.as_int(b)?);
                self.icmp(cmp, x, y)
            }
            (true, true) => {
                // A float32 scalar rounds a weak Python float to float32 before comparing: left to NumPy.
                let mixed = (a.flavour == Flavour::NpF32) != (b.flavour == Flavour::NpF32);
                if mixed && (a.flavour == Flavour::Float || b.flavour == Flavour::Float) {
                    return None;
                }
                let (x, y) = (self.as_float(a)?, self.as_float(b)?);
                self.emit(Inst::FCmp(cmp, x, y))
            }
            (false, true) => self.int_float(cmp, a, b)?,
            (true, false) => self.int_float(cmp.swapped(), b, a)?,
        };
        Some((flavour, v))
    }

    /// i cmp x.
    fn int_float(&mut self, cmp: Cmp, i: Num, x: Num) -> Option<Value> {
        if x.flavour == Flavour::NpF32 {
            return None;
        }
        let int = self.as_int(i)?;
        let small = matches!(i.flavour, Flavour::Bool | Flavour::NpBool | Flavour::NpU8 | Flavour::NpI32)
            || self.const_of(int).is_some_and(|n| (-EXACT..=EXACT).contains(&n));
        if small {
            let f = self.float_of(int);
            return Some(self.emit(Inst::FCmp(cmp, f, x.v)));
        }
        if i.flavour.is_numpy() || x.flavour.is_numpy() {
            let f = self.exact_float(int);
            return Some(self.emit(Inst::FCmp(cmp, f, x.v)));
        }
        let number = self.iconst(cmp.number());
        Some(self.call(TableEntry::IntFloatCompare, vec![number, int, x.v]))
    }

    pub(crate) fn is_op(&mut self, invert: bool) {
        let same = match (self.peek(1).clone(), self.peek(0).clone()) {
            (Val::None, Val::None) => self.bconst(true),
            (Val::Num(_), Val::None) | (Val::None, Val::Num(_)) => self.bconst(false),
            (Val::Num(a), Val::Num(b)) if a.flavour == Flavour::Bool && b.flavour == Flavour::Bool => {
                let differ = self.emit(Inst::Bool(overdrive_ir::inst::BoolOp::Xor, a.v, b.v));
                self.emit(Inst::Not(differ))
            }
            _ => {
                self.box_top(2);
                let args = self.top_refs(2);
                match args[..] {
                    [a, b] => self.emit(Inst::Same(a, b)),
                    _ => self.bconst(false),
                }
            }
        };
        let v = if invert { self.emit(Inst::Not(same)) } else { same };
        self.drop_top(2);
        self.push(Val::num(Flavour::Bool, v));
    }

    /// `[item, container]`.
    pub(crate) fn contains(&mut self, invert: bool) {
        self.remark(Status::ThroughCPython, "membership test");
        self.box_top(2);
        let args = match self.top_refs(2)[..] {
            [item, container] => vec![container, item],
            _ => return,
        };
        let r = self.call(TableEntry::Contains, args);
        let zero = self.iconst(0);
        let cmp = if invert { Cmp::Eq } else { Cmp::Ne };
        let v = self.icmp(cmp, r, zero);
        self.drop_top(2);
        self.push(Val::num(Flavour::Bool, v));
    }
}
