//! Attributes: of ordinary classes where their instances keep them, of known modules and arrays natively, of everything else
//! through CPython.
//!
//! In: an object on the abstract stack and a name. Out: the value, or the store done. What a class says about a name is
//! looked up once, by the oracle or by the profile; code is held to it by the class's version, which changes with the class
//! and with those it derives from. That is the guard of CPython's own inline caches (PEP 659).

use overdrive_base::flavour::{Flavour, KnownType};
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::Value;
use overdrive_ir::function::ConstRef;
use overdrive_ir::inst::{Attr, Field, Inst, Terminator};

use crate::facts::{Access, Fact, Member, Observed, Seen, Status, receiver};
use crate::op::NameIdx;
use crate::translate::Step;
use crate::translate::emit::Tx;
use crate::translate::value::{Checked, Num, Obj, ObjTy, Own, Val};

impl Tx<'_> {
    pub(crate) fn load_attr(&mut self, name: NameIdx) -> Step {
        if let Val::Obj(o) = self.peek(0).clone() {
            if let Some(attr) = self.module_attr(&o, name) {
                let val = self.fact_val(attr);
                self.drop_top(1);
                self.push(val);
                return Ok(());
            }
            if let Some(member) = self.member(&o, name, Access::Read) {
                self.read_member(&o, name, &member);
                return Ok(());
            }
            if matches!(o.ty, ObjTy::Array { .. })
                && let Some(val) = self.array_attr(&o, name)
            {
                self.drop_top(1);
                self.push(val);
                return Ok(());
            }
        }
        let why = format!("attribute .{}", self.code().names[name.index()]);
        self.remark(Status::ThroughCPython, &why);
        self.box_top(1);
        self.watch_receiver(0, name, Access::Read);
        let mut args = self.top_refs(1);
        args.push(self.name(name));
        let v = self.call(TableEntry::GetAttr, args);
        self.replace_top(1, v);
        Ok(())
    }

    fn array_attr(&mut self, o: &Obj, name: NameIdx) -> Option<Val> {
        let text = self.code().names[name.index()].as_str();
        if !matches!(text, "shape" | "ndim" | "size") {
            return None;
        }
        let o = self.recheck(o, false)?;
        let ObjTy::Array { ndim, .. } = o.ty else { return None };
        match text {
            "ndim" => {
                let v = self.iconst(i64::from(ndim));
                Some(Val::num(Flavour::Int, v))
            }
            "shape" => {
                let dims = (0..ndim).map(|k| self.emit(Inst::Field(Field::ArrayDim(k), o.v)));
                let dims: Vec<Value> = dims.collect();
                Some(Val::Tuple(dims.into_iter().map(|v| Val::num(Flavour::Int, v)).collect()))
            }
            _ => {
                let mut size = self.iconst(1);
                for k in 0..ndim {
                    let dim = self.emit(Inst::Field(Field::ArrayDim(k), o.v));
                    size = self.int(overdrive_ir::inst::IntOp::Mul, size, dim);
                }
                Some(Val::num(Flavour::Int, size))
            }
        }
    }

    /// Pushes a call pair `[callable, self or null]`.
    pub(crate) fn load_method(&mut self, name: NameIdx) -> Step {
        if let Val::Obj(o) = self.peek(0).clone() {
            if let Some(attr) = self.module_attr(&o, name) {
                self.drop_top(1);
                self.push(Val::Obj(attr));
                self.push(Val::Unset);
                return Ok(());
            }
            let known = match o.ty {
                ObjTy::Exact(k) => Some(k),
                ObjTy::Array { holder, .. } => Some(holder.known_type()),
                ObjTy::Any | ObjTy::Instance { .. } => None,
            };
            // Built-in types are immutable: what they say now, they say always.
            if let Some(k) = known
                && let Some(fact) = self.oracle.type_attr(k, name.0)
            {
                let v = self.oconst(ConstRef::Fact(fact.id.0));
                let method = self.fact_obj(fact, v);
                let receiver = self.pop();
                self.push(Val::Obj(method));
                self.push(receiver);
                return Ok(());
            }
        }
        let why = format!("method .{}", self.code().names[name.index()]);
        self.remark(Status::ThroughCPython, &why);
        self.box_top(1);
        let mut args = self.top_refs(1);
        args.push(self.name(name));
        let v = self.call(TableEntry::GetAttr, args);
        self.replace_top_typed(1, v, ObjTy::Any);
        self.push(Val::Unset);
        Ok(())
    }

    pub(crate) fn store_attr(&mut self, name: NameIdx) {
        if let Val::Obj(o) = self.peek(0).clone()
            && let Some(member) = self.member(&o, name, Access::Write)
        {
            self.write_member(name, &member);
            return;
        }
        let why = format!("attribute .{}", self.code().names[name.index()]);
        self.remark(Status::ThroughCPython, &why);
        self.box_top(2);
        self.watch_receiver(0, name, Access::Write);
        if let [value, owner] = self.top_refs(2)[..] {
            let name = self.name(name);
            self.table(TableEntry::SetAttr, vec![owner, name, value]);
        }
        self.drop_top(2);
    }

    pub(crate) fn delete_attr(&mut self, name: NameIdx) {
        self.remark(Status::ThroughCPython, "attribute deletion");
        self.box_top(1);
        let mut args = self.top_refs(1);
        args.push(self.name(name));
        self.table(TableEntry::DelAttr, args);
        self.drop_top(1);
    }

    pub(crate) fn load_super_attr(&mut self, name: NameIdx, method: bool) {
        self.remark(Status::ThroughCPython, "super()");
        self.box_top(3);
        let mut args = self.top_refs(3);
        args.push(self.name(name));
        let v = self.call(TableEntry::SuperAttr, args);
        self.replace_top_typed(3, v, ObjTy::Any);
        if method {
            self.push(Val::Unset);
        }
    }

    // --- where instances keep them ---

    /// Where objects like this one keep an attribute, as far as that is known.
    fn member(&mut self, o: &Obj, name: NameIdx, access: Access) -> Option<Member> {
        if !matches!(o.ty, ObjTy::Any | ObjTy::Instance { .. }) || o.maybe_null || self.blocked() {
            return None;
        }
        match self.oracle.observed(receiver(self.ins().op_offset)) {
            Observed::Member(member) => Some(member),
            Observed::Always(_) | Observed::Mixed => None,
            Observed::Nothing => self.sampled(o, name, access).map(|(member, _)| member),
        }
    }

    fn sampled(&mut self, o: &Obj, name: NameIdx, access: Access) -> Option<(Member, Fact)> {
        o.sample.and_then(|sample| self.oracle.member(sample, name.0, access))
    }

    /// Remembers the class of the object `depth` entries below the top for a later version.
    fn watch_receiver(&mut self, depth: usize, name: NameIdx, access: Access) {
        let offset = receiver(self.ins().op_offset);
        let Val::Obj(Obj { v, ty: ObjTy::Any, .. }) = *self.peek(depth) else { return };
        if self.inlined.is_some() || self.blocked() || self.oracle.observed(offset) != Observed::Nothing {
            return;
        }
        let slot = self.profile_slot(offset);
        let (name, write) = (self.name(name), self.iconst((access == Access::Write).into()));
        self.table_with(TableEntry::ObserveAttr, vec![slot, v, name, write], None, None);
    }

    /// Makes sure that an object is of the class that keeps the attribute there.
    fn instance(&mut self, o: &Obj, member: &Member, writable: bool) {
        let epoch = self.st.epoch;
        let known = match &o.ty {
            ObjTy::Instance { version, checked: Some(c), .. }
                if *version == member.version && c.epoch == epoch =>
            {
                Some(*c)
            }
            _ => None,
        };
        if known.is_none() {
            let is = self.emit(Inst::VersionIs(o.v, member.version));
            self.guard(is, &format!("the object is no {}, or the class changed", member.class));
        }
        let mut checked = known.unwrap_or(Checked { epoch, writable: false, values: false });
        let is_value = matches!(member.at, Attr::Value(_));
        if is_value && !(checked.values && (checked.writable || !writable)) {
            let keeps = self.emit(Inst::KeepsValues { obj: o.v, writable });
            self.guard(keeps, "the attributes are in a dictionary");
            checked.values = true;
            checked.writable |= writable;
        }
        let ty =
            ObjTy::Instance { version: member.version, class: member.class.clone(), checked: Some(checked) };
        for val in self.st.locals.iter_mut().chain(self.st.stack.iter_mut()) {
            if let Val::Obj(x) = val
                && x.v == o.v
            {
                x.ty = ty.clone();
            }
        }
    }

    /// The attribute's value, borrowed from the object; leaves when it is not set.
    fn attr_value(&mut self, o: &Obj, member: &Member) -> Value {
        let v = self.emit(Inst::AttrGet(member.at, o.v));
        let null = self.emit(Inst::IsNull(v));
        let is_set = self.emit(Inst::Not(null));
        self.guard(is_set, "the attribute is not set");
        v
    }

    fn read_member(&mut self, o: &Obj, name: NameIdx, member: &Member) {
        self.instance(o, member, false);
        let v = self.attr_value(o, member);
        let sample = |tx: &mut Self| tx.sampled(o, name, Access::Read).map(|(_, fact)| fact);
        let mut val = self.held_val(v, Own::Fragile, sample);
        if o.own == Own::Owned {
            // The object is released by this instruction.
            val = self.own(val);
        }
        self.push(val);
        let len = self.st.stack.len();
        self.st.stack[len - 2..].rotate_right(1);
        self.drop_top(1);
    }

    /// `[value, object]`
    fn write_member(&mut self, name: NameIdx, member: &Member) {
        self.settle(1);
        let Val::Obj(o) = &self.peek(0).clone() else { return };
        self.instance(o, member, true);
        let old = self.attr_value(o, member);
        // What is replaced decides whether its release can run code.
        let seen = match self.oracle.observed(self.ins().op_offset) {
            Observed::Always(seen) => Some(seen),
            Observed::Mixed | Observed::Member(_) => None,
            Observed::Nothing => {
                let fact = self.sampled(o, name, Access::Write).map(|(_, fact)| fact);
                if fact.is_none() {
                    self.profile(old);
                }
                fact.map(|f| f.seen)
            }
        };
        let plain = match &seen {
            Some(Seen::Exact(k)) if k.is_plain() => {
                let is = self.emit(Inst::TypeIs(old, *k));
                self.guard(is, &format!("the replaced value is no {}", k.name()));
                true
            }
            _ => false,
        };
        // A fresh float over a float: in place when nobody else holds the old one (engine rule 4).
        if let Val::Num(Num { flavour: Flavour::Float, boxed: None, v }) = *self.peek(1)
            && seen == Some(Seen::Exact(KnownType::Float))
        {
            self.clobber_floats();
            self.set_float(o, member.at, old, v);
            self.drop_top(2);
            return;
        }
        // Box and take references before anything changes.
        let at = self.st.stack.len() - 2;
        let value = std::mem::replace(&mut self.st.stack[at], Val::Unset);
        let boxed = self.as_obj(value);
        self.st.stack[at] = Val::Obj(boxed.clone());
        if plain {
            self.clobber_floats();
        } else {
            self.clobber();
        }
        // The clobber may have made the entry owned.
        let item = match self.st.stack[at].clone() {
            Val::Obj(b) => self.owned_ref(&b),
            _ => boxed.v,
        };
        self.st.stack[at] = Val::Unset;
        let old = self.emit(Inst::AttrSwap { at: member.at, obj: o.v, item });
        self.decref(old, plain);
        self.drop_top(2);
    }

    /// Writes a float over the exact float `old`.
    fn set_float(&mut self, o: &Obj, at: Attr, old: Value, x: Value) {
        let unique = self.call(TableEntry::IsUnique, vec![old]);
        let blocks = [self.ir.add_block(), self.ir.add_block(), self.ir.add_block()];
        let [in_place, anew, done] = blocks;
        self.terminate(Terminator::Branch { cond: unique, then: (in_place, vec![]), els: (anew, vec![]) });
        self.cur = Some(in_place);
        self.emit0(Inst::FloatSet(old, x));
        self.terminate(Terminator::Jump(done, vec![]));
        self.cur = Some(anew);
        let item = self.call(TableEntry::BoxFloat, vec![x]);
        let old = self.emit(Inst::AttrSwap { at, obj: o.v, item });
        self.emit0(Inst::DecRef { obj: old, pos: None });
        self.terminate(Terminator::Jump(done, vec![]));
        self.cur = Some(done);
    }
}
