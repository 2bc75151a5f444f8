//! Attributes of ordinary classes, read and written where their instances keep them.
//!
//! In: an object and a name. Out: the attribute's place behind the guards that hold code to it. What a class says about a
//! name is looked up once, by the oracle or by the profile; it holds under the class's version, which changes with the class
//! and with those it derives from. That is the guard of CPython's own inline caches (PEP 659). A number that was read or
//! written is known until something may have changed it.

use overdrive_base::flavour::{Flavour, KnownType};
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::{Block, Value};
use overdrive_ir::function::ConstRef;
use overdrive_ir::inst::{Attr, Cmp, Field, Inst};

use crate::facts::{Access, Fact, FactId, Member, Observed, Seen, receiver};
use crate::op::NameIdx;
use crate::translate::Step;
use crate::translate::emit::{Edge, Tx};
use crate::translate::value::{Checked, Num, Obj, ObjTy, Own, Val};

/// A number that an attribute is known to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Known {
    obj: Value,
    at: Attr,
    flavour: Flavour,
    value: Value,
}

/// What is known behind a merge, and what each edge passes for it.
pub(crate) struct Joined {
    pub(crate) known: Vec<Known>,
    pub(crate) passed: Vec<Vec<Value>>,
}

impl Tx<'_> {
    /// Where objects like this one keep an attribute, as far as that is known.
    pub(crate) fn member(&mut self, o: &Obj, name: NameIdx, access: Access) -> Option<Member> {
        if !matches!(o.ty, ObjTy::Any | ObjTy::Instance { .. }) || o.maybe_null || self.blocked() {
            return None;
        }
        match self.oracle.observed(receiver(self.ins().op_offset)) {
            Observed::Member(member) => Some(member),
            Observed::Always(_) | Observed::Mixed | Observed::Instance(_) => None,
            Observed::Nothing => self.sampled(o, name, access).map(|(member, _)| member),
        }
    }

    fn sampled(&mut self, o: &Obj, name: NameIdx, access: Access) -> Option<(Member, Fact)> {
        o.sample.and_then(|sample| self.oracle.member(sample, name.0, access))
    }

    /// Remembers the class of the object `depth` entries below the top for a later version.
    pub(crate) fn watch_receiver(&mut self, depth: usize, name: NameIdx, access: Access) {
        self.watch_use(depth, name, (access == Access::Write).into());
    }

    /// Takes a picture of the object on top for a later version, which looks its method up.
    pub(crate) fn watch_method(&mut self, name: NameIdx) {
        self.watch_use(0, name, 2);
    }

    fn watch_use(&mut self, depth: usize, name: NameIdx, what: i64) {
        let offset = receiver(self.ins().op_offset);
        let Val::Obj(Obj { v, ty: ObjTy::Any, .. }) = *self.peek(depth) else { return };
        if self.inlined.is_some() || self.blocked() || self.oracle.observed(offset) != Observed::Nothing {
            return;
        }
        let slot = self.profile_slot(offset);
        let (name, what) = (self.name(name), self.iconst(what));
        self.table_with(TableEntry::ObserveAttr, vec![slot, v, name, what], None, None);
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
    pub(crate) fn class_method(&mut self, o: &Obj, name: NameIdx) -> Option<Obj> {
        if !matches!(o.ty, ObjTy::Any | ObjTy::Instance { .. }) || o.maybe_null || self.blocked() {
            return None;
        }
        let sample = match o.sample {
            Some(sample) => sample,
            None => self.pictured(o.v)?,
        };
        let (method, fact) = self.oracle.method(sample, name.0)?;
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

    /// Translates the function that reads a property in place, as a call of it with the object on top. False: the object is
    /// there as it was.
    pub(crate) fn read_property(&mut self, o: &Obj, name: NameIdx) -> Step<bool> {
        let is_other = !matches!(o.ty, ObjTy::Any | ObjTy::Instance { .. }) || o.maybe_null;
        if is_other || self.blocked() || self.headers.not_inlined.contains_key(&self.idx) {
            return Ok(false);
        }
        let sample = match o.sample {
            Some(sample) => Some(sample),
            None => self.pictured(o.v),
        };
        let Some(getter) = sample.and_then(|sample| self.oracle.getter(sample, name.0)) else {
            return Ok(false);
        };
        let function = self.oconst(ConstRef::Fact(getter.id.0));
        let key = self.name(name);
        let is = self.call(TableEntry::PropertyIs, vec![o.v, key, function]);
        self.guard(is, "the attribute is no property, or another one");
        let getter = self.fact_obj(getter, function);
        let object = self.pop();
        self.push(Val::Obj(getter));
        self.push(object);
        if self.inline_call(0, None)? {
            return Ok(true);
        }
        let object = self.pop();
        self.pop();
        self.push(object);
        Ok(false)
    }

    /// The sample that an earlier version took of the object whose method is looked up here.
    fn pictured(&mut self, object: Value) -> Option<FactId> {
        let sample = self.oracle.pictured(receiver(self.ins().op_offset))?;
        for val in self.st.locals.iter_mut().chain(self.st.stack.iter_mut()) {
            if let Val::Obj(x) = val
                && x.v == object
            {
                x.sample = Some(sample);
            }
        }
        Some(sample)
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

    pub(crate) fn read_member(&mut self, o: &Obj, name: NameIdx, member: &Member) {
        self.of_class(o, member, false);
        if let Some(value) = self.delayed_value(o, member) {
            self.drop_top(1);
            self.push(value);
            return;
        }
        let mut val = if let Some(known) = self.known_attr(o.v, member.at) {
            // The object is only needed where the number must be one.
            let item = self.emit(Inst::AttrGet(member.at, o.v));
            let ty = ObjTy::Exact(known.flavour.known_type());
            self.num_from(known.flavour, known.value, &Obj::new(item, Own::Fragile, ty))
        } else {
            let v = self.attr_value(o, member);
            let sample = |tx: &mut Self| tx.sampled(o, name, Access::Read).map(|(_, fact)| fact);
            self.held_val(v, Own::Fragile, sample)
        };
        self.know_attr(o.v, member.at, &val);
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
    pub(crate) fn write_member(&mut self, name: NameIdx, member: &Member) {
        self.settle(1);
        let Val::Obj(o) = &self.peek(0).clone() else { return };
        self.of_class(o, member, true);
        if let Some(known) = self.known_attr(o.v, member.at) {
            let old = self.emit(Inst::AttrGet(member.at, o.v));
            self.write_over(o, member, old, Some(known.flavour.known_type()));
            return;
        }
        let old = self.attr_value(o, member);
        // What is replaced decides whether its release can run code.
        let seen = match self.oracle.observed(self.ins().op_offset) {
            Observed::Always(seen) => Some(seen),
            Observed::Mixed | Observed::Member(_) | Observed::Instance(_) => None,
            Observed::Nothing => {
                let fact = self.sampled(o, name, Access::Write).map(|(_, fact)| fact);
                if fact.is_none() {
                    self.profile(old);
                }
                fact.map(|f| f.seen)
            }
        };
        let replaced = match seen {
            Some(Seen::Exact(k)) if k.is_plain() => {
                let is = self.emit(Inst::TypeIs(old, k));
                self.guard(is, &format!("the replaced value is no {}", k.name()));
                Some(k)
            }
            _ => None,
        };
        self.write_over(o, member, old, replaced);
    }

    /// Stores over `old`, which has the type `replaced`, or any. Pops value and object.
    fn write_over(&mut self, o: &Obj, member: &Member, old: Value, replaced: Option<KnownType>) {
        if self.inlined.is_some() {
            match replaced {
                Some(known) => self.delay(o, member, old, known),
                None => self.only_outside("it replaces an object, which may run a finaliser"),
            }
            return;
        }
        let value = self.peek(1).clone();
        if let Some(num) = self.in_place(1, replaced) {
            self.overwrite(1, o.v, member.at, old, num);
        } else {
            self.replace_attr(1, o.v, member.at, replaced.is_some());
        }
        self.forget_attr(member.at);
        if replaced.is_some() {
            self.know_attr(o.v, member.at, &value);
        }
        self.drop_top(2);
    }

    fn known_attr(&self, obj: Value, at: Attr) -> Option<Known> {
        self.st.members.iter().find(|known| known.obj == obj && known.at == at).copied()
    }

    /// Remembers what an attribute is, if it is a number.
    pub(crate) fn know_attr(&mut self, obj: Value, at: Attr, val: &Val) {
        if let Val::Num(Num { flavour: flavour @ (Flavour::Float | Flavour::Int), v: value, .. }) = *val
            && self.known_attr(obj, at).is_none()
        {
            self.st.members.push(Known { obj, at, flavour, value });
        }
    }

    /// A place was written, of this object or another that may be the same.
    pub(crate) fn forget_attr(&mut self, at: Attr) {
        self.st.members.retain(|known| known.at != at);
    }

    /// What is known behind a merge, in a block that gets parameters for numbers that differ. A loop changes what it likes
    /// before its header comes again.
    pub(crate) fn join_members(&mut self, block: Block, edges: &[Edge], is_header: bool) -> Joined {
        let mut joined = Joined { known: vec![], passed: vec![vec![]; edges.len()] };
        let Some((first, rest)) = edges.split_first().filter(|_| !is_header) else { return joined };
        for known in first.state.members.iter() {
            let is_same = |k: &&Known| (k.obj, k.at, k.flavour) == (known.obj, known.at, known.flavour);
            let others = rest.iter().map(|e| e.state.members.iter().find(is_same).map(|k| k.value));
            let Some(others) = others.collect::<Option<Vec<Value>>>() else { continue };
            if others.iter().all(|value| *value == known.value) {
                joined.known.push(*known);
                continue;
            }
            let value = self.ir.add_param(block, known.flavour.ty());
            joined.known.push(Known { value, ..*known });
            for (passed, value) in joined.passed.iter_mut().zip([known.value].into_iter().chain(others)) {
                passed.push(value);
            }
        }
        joined
    }

    /// Puts the value `depth` entries below the top into an attribute and releases what was there. The entry is unset
    /// afterwards.
    pub(crate) fn replace_attr(&mut self, depth: usize, obj: Value, at: Attr, plain: bool) {
        // Box and take references before anything changes.
        let entry = self.st.stack.len() - depth - 1;
        let value = std::mem::replace(&mut self.st.stack[entry], Val::Unset);
        let boxed = self.as_obj(value);
        self.st.stack[entry] = Val::Obj(boxed.clone());
        if plain {
            self.clobber_plain();
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

    /// The computed number `depth` entries below the top, if it may overwrite an object of this type that nobody else holds
    /// (engine rule 4). A float that came from an object is stored as that object; ints have no identity.
    pub(crate) fn in_place(&self, depth: usize, replaced: Option<KnownType>) -> Option<Num> {
        let Val::Num(num @ Num { boxed: None, .. }) = *self.peek(depth) else { return None };
        let fits = matches!(
            (num.flavour, replaced),
            (Flavour::Float, Some(KnownType::Float)) | (Flavour::Int, Some(KnownType::Int))
        );
        fits.then_some(num)
    }

    /// Stores the number `depth` entries below the top over `old`, an exact object of its type.
    pub(crate) fn overwrite(&mut self, depth: usize, obj: Value, at: Attr, old: Value, num: Num) {
        let is_held = num.flavour == Flavour::Float && self.is_held_elsewhere(depth);
        self.clobber_plain();
        let fail = self.exit_raise();
        self.emit0(Inst::AttrSet { at, obj, old, value: num.v, fail });
        if is_held {
            let now = self.emit(Inst::AttrGet(at, obj));
            self.remember_stored(depth, now);
        }
    }
}
