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
use overdrive_ir::inst::{Attr, Cmp, Field, Inst, Terminator};

use crate::facts::{Access, Fact, Member, Observed, Seen, Status, receiver};
use crate::op::NameIdx;
use crate::translate::Step;
use crate::translate::emit::{Edge, Tx};
use crate::translate::value::{Checked, Num, Obj, ObjTy, Own, Val};

/// A store into an attribute that was tested, and is made when the body it stands in has returned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delayed {
    obj: Value,
    version: u32,
    at: Attr,
    /// What is replaced, and what type it has: one whose release shows nothing.
    old: Value,
    replaced: KnownType,
    value: Val,
}

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
        if let Val::Obj(o) = self.peek(0).clone()
            && let Some(method) = self.class_method(&o, name)
        {
            let receiver = self.pop();
            self.push(Val::Obj(method));
            self.push(receiver);
            return Ok(());
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

    /// Makes sure that an object is of a class and, if asked, keeps its attributes as that numbers them (and `writable`).
    fn instance(&mut self, o: &Obj, version: u32, class: &str, values: Option<bool>) {
        let epoch = self.st.epoch;
        let known = match &o.ty {
            ObjTy::Instance { version: v, checked: Some(c), .. } if *v == version && c.epoch == epoch => {
                Some(*c)
            }
            _ => None,
        };
        if known.is_none() {
            let is = self.emit(Inst::VersionIs(o.v, version));
            self.guard(is, &format!("the object is no {class}, or the class changed"));
        }
        let mut checked = known.unwrap_or(Checked { epoch, writable: false, values: false });
        if let Some(writable) = values
            && !(checked.values && (checked.writable || !writable))
        {
            let keeps = self.emit(Inst::KeepsValues { obj: o.v, writable });
            self.guard(keeps, "the attributes are in a dictionary");
            checked.values = true;
            checked.writable |= writable;
        }
        let ty = ObjTy::Instance { version, class: class.to_owned(), checked: Some(checked) };
        for val in self.st.locals.iter_mut().chain(self.st.stack.iter_mut()) {
            if let Val::Obj(x) = val
                && x.v == o.v
            {
                x.ty = ty.clone();
            }
        }
    }

    /// The function of an object's class that a name means, guarded.
    fn class_method(&mut self, o: &Obj, name: NameIdx) -> Option<Obj> {
        if !matches!(o.ty, ObjTy::Any | ObjTy::Instance { .. }) || o.maybe_null || self.blocked() {
            return None;
        }
        let (method, fact) = self.oracle.method(o.sample?, name.0)?;
        self.instance(o, method.version, &method.class, method.n_names.map(|_| false));
        if let Some(n) = method.n_names {
            let names = self.emit(Inst::Field(Field::InstanceNames, o.v));
            let n = self.iconst(n.into());
            let same = self.icmp(Cmp::Eq, names, n);
            self.guard(same, "the object may have an attribute of the method's name");
        }
        let v = self.oconst(ConstRef::Fact(fact.id.0));
        Some(self.fact_obj(fact, v))
    }

    fn of_class(&mut self, o: &Obj, member: &Member, writable: bool) {
        let is_value = matches!(member.at, Attr::Value(_));
        self.instance(o, member.version, &member.class, is_value.then_some(writable));
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
        self.of_class(o, member, false);
        if let Some(value) = self.delayed_value(o, member) {
            self.drop_top(1);
            self.push(value);
            return;
        }
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
        self.of_class(o, member, true);
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
        if self.inlined.is_some() {
            match seen {
                Some(Seen::Exact(known)) if plain => self.delay(o, member, old, known),
                _ => self.only_outside("it replaces an object, which may run a finaliser"),
            }
            return;
        }
        let replaced = if let Some(Seen::Exact(known)) = seen { Some(known) } else { None };
        if let Some(num) = self.in_place(1, replaced) {
            self.clobber_floats();
            self.set_number(o.v, member.at, old, num);
        } else {
            self.replace_attr(1, o.v, member.at, plain);
        }
        self.drop_top(2);
    }

    /// Puts the value `depth` entries below the top into an attribute and releases what was there. The entry is unset
    /// afterwards.
    fn replace_attr(&mut self, depth: usize, obj: Value, at: Attr, plain: bool) {
        // Box and take references before anything changes.
        let entry = self.st.stack.len() - depth - 1;
        let value = std::mem::replace(&mut self.st.stack[entry], Val::Unset);
        let boxed = self.as_obj(value);
        self.st.stack[entry] = Val::Obj(boxed.clone());
        if plain {
            self.clobber_floats();
        } else {
            self.clobber();
        }
        // The clobber may have made the entry owned.
        let item = match self.st.stack[entry].clone() {
            Val::Obj(b) => self.owned_ref(&b),
            _ => boxed.v,
        };
        self.st.stack[entry] = Val::Unset;
        let old = self.emit(Inst::AttrSwap { at, obj, item });
        self.decref(old, plain);
    }

    // --- stores of an inlined body ---

    /// In a body, where code may still leave for the CALL: the store waits. `[value, object]` are popped.
    fn delay(&mut self, o: &Obj, member: &Member, old: Value, replaced: KnownType) {
        let value = self.peek(1).clone();
        if !matches!(value, Val::Num(_) | Val::None | Val::Obj(_)) {
            self.only_outside("it makes an object");
        }
        let may_be_same = |d: &Delayed| d.obj != o.v && d.at == member.at && d.version == member.version;
        if self.st.delayed.iter().any(may_be_same) {
            self.only_outside("it may change an object twice");
        }
        let delayed = &mut self.st.delayed;
        let is_same = |d: &Delayed| d.obj == o.v && d.at == member.at;
        match delayed.iter_mut().find(|d| is_same(d)) {
            Some(before) => before.value = value,
            None => {
                let (obj, version, at) = (o.v, member.version, member.at);
                delayed.push(Delayed { obj, version, at, old, replaced, value });
            }
        }
        self.drop_top(2);
    }

    /// The stores that wait behind a merge.
    pub(crate) fn joined_delayed(&mut self, edges: &[Edge]) -> Vec<Delayed> {
        if edges.windows(2).any(|w| w[0].state.delayed != w[1].state.delayed) {
            self.only_outside("it changes an object on one of its ways");
        }
        edges.first().map(|e| e.state.delayed.clone()).unwrap_or_default()
    }

    /// What a body has stored into an attribute, if it has.
    fn delayed_value(&mut self, o: &Obj, member: &Member) -> Option<Val> {
        let mut found = None;
        let mut is_unclear = false;
        for d in &self.st.delayed {
            match (d.obj == o.v, d.at == member.at) {
                (true, true) => found = Some(d.value.clone()),
                // Another value may be the same object, if it is of the same class.
                (false, true) => is_unclear |= d.version == member.version,
                _ => {}
            }
        }
        if is_unclear {
            self.only_outside("it reads what it may have changed");
        }
        found
    }

    /// Makes the stores of a body that has returned. Its result is on the stack.
    pub(crate) fn make_delayed(&mut self, delayed: Vec<Delayed>) {
        // All objects first, so that little can fail when the first is stored: only memory for a float that is shared.
        let base = self.st.stack.len();
        self.st.stack.extend(delayed.iter().map(|d| d.value.clone()));
        let n = delayed.len();
        let in_place: Vec<Option<Num>> =
            (0..n).map(|i| self.in_place(n - 1 - i, Some(delayed[i].replaced))).collect();
        for i in 0..n {
            if in_place[i].is_some() {
                continue;
            }
            let value = std::mem::replace(&mut self.st.stack[base + i], Val::Unset);
            let o = self.as_obj(value);
            self.st.stack[base + i] = Val::Obj(o);
        }
        for (i, d) in delayed.iter().enumerate() {
            let depth = n - 1 - i;
            if let Some(num) = in_place[i] {
                self.clobber_floats();
                self.set_number(d.obj, d.at, d.old, num);
            } else {
                self.replace_attr(depth, d.obj, d.at, true);
            }
        }
        self.drop_top(n);
    }

    /// The computed number `depth` entries below the top, if it may overwrite an object of this type that nobody else holds
    /// (engine rule 4). Ints have no identity to keep; a float that lives on elsewhere must become one object for both.
    fn in_place(&self, depth: usize, replaced: Option<KnownType>) -> Option<Num> {
        let Val::Num(num @ Num { boxed: None, .. }) = *self.peek(depth) else { return None };
        let fits = match (num.flavour, replaced) {
            (Flavour::Float, Some(KnownType::Float)) => !self.is_held_elsewhere(depth),
            (Flavour::Int, Some(KnownType::Int)) => true,
            _ => false,
        };
        fits.then_some(num)
    }

    /// Writes a number over `old`, an exact object of its type.
    fn set_number(&mut self, obj: Value, at: Attr, old: Value, num: Num) {
        let (can, set, entry) = match num.flavour {
            Flavour::Int => {
                let fits = self.emit(Inst::IntFits(old, num.v));
                (fits, Inst::IntSet(old, num.v), TableEntry::BoxInt)
            }
            _ => {
                let alone = self.call(TableEntry::IsUnique, vec![old]);
                (alone, Inst::FloatSet(old, num.v), TableEntry::BoxFloat)
            }
        };
        let blocks = [self.ir.add_block(), self.ir.add_block(), self.ir.add_block()];
        let [in_place, anew, done] = blocks;
        self.terminate(Terminator::Branch { cond: can, then: (in_place, vec![]), els: (anew, vec![]) });
        self.cur = Some(in_place);
        self.emit0(set);
        self.terminate(Terminator::Jump(done, vec![]));
        self.cur = Some(anew);
        let item = self.call(entry, vec![num.v]);
        let old = self.emit(Inst::AttrSwap { at, obj, item });
        self.emit0(Inst::DecRef { obj: old, pos: None });
        self.terminate(Terminator::Jump(done, vec![]));
        self.cur = Some(done);
    }
}
