//! Objects on the abstract stack: results of object operations, speculation on their types, what is known by identity.
//!
//! In: a reference. Out: the number or typed object it is expected to be, behind a guard. An item still in its container is
//! guarded *before* the instruction counts as done (CPython re-executes it); a result that exists already is guarded
//! *after* (CPython goes on behind it). Types not known yet are recorded for a later version.

use overdrive_base::flavour::{Flavour, Holder, KnownType};
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::{ExitId, Value};
use overdrive_ir::function::ConstRef;
use overdrive_ir::inst::{Field, Inst};

use crate::facts::{Fact, FactId, Meaning, Observed, Seen};
use crate::op::NameIdx;
use crate::translate::emit::{FactKey, Tx};
use crate::translate::value::{Checked, Obj, ObjTy, Own, Val};

impl Tx<'_> {
    /// Puts an owned result in the place of the top `n` entries, then speculates on its type.
    pub(crate) fn replace_top(&mut self, n: usize, v: Value) {
        self.replace_top_typed(n, v, ObjTy::Any);
        self.refine_top();
    }

    pub(crate) fn replace_top_typed(&mut self, n: usize, v: Value, ty: ObjTy) {
        // The result is in the state while the operands are released: that may run finalisers.
        let len = self.st.stack.len();
        self.push(Val::Obj(Obj::new(v, Own::Owned, ty)));
        self.st.stack[len - n..].rotate_right(1);
        self.drop_top(n);
    }

    /// Speculates on the owned object on top.
    pub(crate) fn refine_top(&mut self) {
        let Val::Obj(o) = self.peek(0).clone() else { return };
        if o.ty != ObjTy::Any || self.blocked() {
            return;
        }
        match self.oracle.observed(self.ins().op_offset) {
            Observed::Nothing => self.profile(o.v),
            Observed::Mixed
            | Observed::Member(_)
            | Observed::Instance(_)
            | Observed::Always(Seen::Other(_)) => {}
            Observed::Always(seen) => {
                let exit = self.exit_next(&format!("the result is no {}", seen_name(&seen)));
                if let Some(val) = self.narrow(&o, &seen, exit, None) {
                    self.pop();
                    // The number replaces its object; floats keep it for their identity.
                    let keeps = matches!(&val, Val::Num(n) if n.boxed.is_some());
                    if let Val::Num(_) = val
                        && !keeps
                        && o.own == Own::Owned
                    {
                        self.emit0(Inst::DecRef { obj: o.v, pos: None });
                    }
                    self.push(val);
                }
            }
        }
    }

    /// An item borrowed from a container, with the type its container suggests.
    pub(crate) fn item_val(&mut self, item: Value, own: Own, sample: Option<FactId>) -> Val {
        let first = |tx: &mut Self| sample.and_then(|s| tx.oracle.item(s));
        self.held_val(item, own, first)
    }

    /// A reference borrowed from what holds it, with the type that was seen there, or that a sample has.
    pub(crate) fn held_val(
        &mut self,
        item: Value,
        own: Own,
        sample: impl FnOnce(&mut Self) -> Option<Fact>,
    ) -> Val {
        let o = Obj { is_kept: true, ..Obj::new(item, own, ObjTy::Any) };
        if self.blocked() {
            return Val::Obj(o);
        }
        let (seen, sample) = match self.oracle.observed(self.ins().op_offset) {
            Observed::Always(seen) => (Some(seen), None),
            Observed::Mixed | Observed::Member(_) | Observed::Instance(_) => (None, None),
            Observed::Nothing => match sample(self) {
                Some(fact) => (Some(fact.seen), Some(fact.id)),
                None => {
                    self.profile(item);
                    (None, None)
                }
            },
        };
        match seen {
            None => Val::Obj(o),
            Some(Seen::Other(_)) => Val::Obj(Obj { sample, ..o }),
            Some(seen) => {
                let exit = self.exit_here(&format!("the item is no {}", seen_name(&seen)));
                self.narrow(&o, &seen, exit, sample).unwrap_or(Val::Obj(o))
            }
        }
    }

    /// Guards that an object is of a type and gives it as such.
    pub(crate) fn narrow(
        &mut self,
        o: &Obj,
        seen: &Seen,
        exit: ExitId,
        sample: Option<FactId>,
    ) -> Option<Val> {
        match seen {
            Seen::Exact(KnownType::NoneType) => {
                let none = self.none();
                let is = self.emit(Inst::Same(o.v, none));
                self.emit0(Inst::Guard(is, exit));
                // The reference stays with the object form, so that its count stays right.
                Some(Val::Obj(Obj { ty: ObjTy::Exact(KnownType::NoneType), ..o.clone() }))
            }
            Seen::Exact(known) => {
                let is = self.emit(Inst::TypeIs(o.v, *known));
                self.emit0(Inst::Guard(is, exit));
                Some(match known.flavour() {
                    Some(flavour) => {
                        let v = self.unbox(flavour, o.v, exit);
                        self.num_from(flavour, v, o)
                    }
                    None => Val::Obj(Obj { ty: ObjTy::Exact(*known), sample, ..o.clone() }),
                })
            }
            Seen::Array { holder, dtype, ndim } => {
                let is = self.emit(Inst::ArrayIs {
                    array: o.v,
                    holder: *holder,
                    dtype: *dtype,
                    ndim: *ndim,
                    writable: false,
                });
                self.emit0(Inst::Guard(is, exit));
                let checked = Some(Checked { epoch: self.st.epoch, writable: false, values: false });
                Some(Val::Obj(Obj {
                    ty: ObjTy::Array { holder: *holder, dtype: *dtype, ndim: *ndim, checked },
                    sample,
                    ..o.clone()
                }))
            }
            Seen::Other(_) => None,
        }
    }

    pub(crate) fn unbox(&mut self, flavour: Flavour, o: Value, exit: ExitId) -> Value {
        if flavour == Flavour::Int {
            return self.table_with(TableEntry::UnboxInt, vec![o], None, Some(exit)).unwrap_or(o);
        }
        self.emit(Inst::Unbox(flavour, o))
    }

    pub(crate) fn profile(&mut self, o: Value) {
        if self.inlined.is_some() {
            return;
        }
        let slot = self.profile_slot(self.ins().op_offset);
        self.table_with(TableEntry::Observe, vec![slot, o], None, None);
    }

    /// Number of the slot that an offset has.
    pub(crate) fn profile_slot(&mut self, offset: u32) -> Value {
        let slot = self.profile.iter().position(|x| *x == offset).unwrap_or_else(|| {
            self.profile.push(offset);
            self.profile.len() - 1
        });
        self.iconst(slot as i64)
    }

    /// Length of a container whose type is known, as I64.
    pub(crate) fn len_field(&mut self, o: &Obj) -> Option<Value> {
        let field = match o.ty {
            ObjTy::Exact(KnownType::List) => Field::ListLen,
            ObjTy::Exact(KnownType::Tuple) => Field::TupleLen,
            ObjTy::Exact(KnownType::Bytes) => Field::BytesLen,
            ObjTy::Exact(KnownType::Str) => Field::StrLen,
            ObjTy::Exact(KnownType::ByteArray) => Field::ByteArrayLen,
            _ => return None,
        };
        Some(self.emit(Inst::Field(field, o.v)))
    }

    /// Makes sure that an array still is what it was when it was first guarded.
    pub(crate) fn recheck(&mut self, o: &Obj, writable: bool) -> Option<Obj> {
        let ObjTy::Array { holder, dtype, ndim, checked } = o.ty else { return None };
        let epoch = self.st.epoch;
        if checked.is_some_and(|c| c.epoch == epoch && (c.writable || !writable)) {
            return Some(o.clone());
        }
        let is = self.emit(Inst::ArrayIs { array: o.v, holder, dtype, ndim, writable });
        let reason = if writable {
            "the array cannot be written or changed its layout"
        } else {
            "the array changed its layout"
        };
        self.guard(is, reason);
        let fresh = Obj {
            ty: ObjTy::Array {
                holder,
                dtype,
                ndim,
                checked: Some(Checked { epoch, writable, values: false }),
            },
            ..o.clone()
        };
        // Every place that holds this very reference profits.
        for val in self.st.locals.iter_mut().chain(self.st.stack.iter_mut()) {
            if let Val::Obj(x) = val
                && x.v == fresh.v
            {
                x.ty = fresh.ty.clone();
            }
        }
        Some(fresh)
    }

    // --- what is known by identity ---

    pub(crate) fn name(&mut self, name: NameIdx) -> Value {
        self.oconst(ConstRef::Name(name.0))
    }

    /// The value of an attribute of a known module, guarded.
    pub(crate) fn module_attr(&mut self, o: &Obj, name: NameIdx) -> Option<Obj> {
        let module = o.known.as_ref()?;
        if !matches!(module.meaning, Meaning::MathModule | Meaning::NumpyModule | Meaning::Module)
            || self.blocked()
        {
            return None;
        }
        let fact = self.oracle.attr(module.id, name.0)?;
        Some(self.known(FactKey::Attr(self.body, module.id, name.0), fact))
    }

    /// An object known by identity, behind its guard unless that was passed and nothing happened since.
    pub(crate) fn known(&mut self, key: FactKey, fact: Fact) -> Obj {
        let v = self.oconst(ConstRef::Fact(fact.id.0));
        if !self.is_given(key) {
            let ok = self.still(key, v);
            self.guard(ok, "a global or module attribute was rebound");
            self.st.facts.insert(key);
        }
        self.fact_obj(fact, v)
    }

    pub(crate) fn fact_obj(&mut self, fact: Fact, v: Value) -> Obj {
        let ty = match &fact.seen {
            Seen::Exact(k) => ObjTy::Exact(*k),
            Seen::Array { holder, dtype, ndim } => {
                ObjTy::Array { holder: *holder, dtype: *dtype, ndim: *ndim, checked: None }
            }
            Seen::Other(_) => ObjTy::Any,
        };
        Obj { sample: Some(fact.id), known: Some(fact), ..Obj::new(v, Own::Static, ty) }
    }

    /// A known object as a value: numbers are read out of it.
    pub(crate) fn fact_val(&mut self, o: Obj) -> Val {
        let ObjTy::Exact(known) = o.ty else { return Val::Obj(o) };
        match known.flavour() {
            // A big global int declines each time: the guard's exit then says so.
            Some(flavour) => {
                let exit = self.exit_here("int outside 64 bits");
                let v = self.unbox(flavour, o.v, exit);
                self.num_from(flavour, v, &o)
            }
            None => Val::Obj(o),
        }
    }
}

pub(crate) fn seen_name(seen: &Seen) -> String {
    match seen {
        Seen::Exact(k) => k.name().to_owned(),
        Seen::Array { holder: Holder::NdArray, dtype, ndim } => {
            format!("{ndim}-dimensional {} array", dtype.name())
        }
        Seen::Array { holder: Holder::Tensor, dtype, ndim } => {
            format!("{ndim}-dimensional {} tensor", dtype.name())
        }
        Seen::Other(name) => name.clone(),
    }
}
