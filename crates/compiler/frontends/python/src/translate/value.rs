//! Abstract values: what the translator knows about each local and stack entry while it emits code.
//!
//! In: SSA values of the function being built. Out: for each entry its flavour or type, who holds its reference, and how
//! it is rebuilt as an object. Numbers stay unboxed, tuples and iterators virtual, until something needs the object.

use overdrive_base::flavour::{DType, Flavour, Holder, KnownType};
use overdrive_ir::entities::Value;
use overdrive_ir::exit::{Own as ExitOwn, Slot};

use crate::facts::{Fact, FactId};

/// Who keeps an object alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// Something that outlives the call: a constant, an argument that is never rebound.
    Static,
    /// A container, until the next operation that may change it (a *clobber*); then a reference is taken.
    Fragile,
    /// The local with this number; a reference is taken before the local is rebound.
    Local(usize),
    /// This entry itself.
    Owned,
}

/// What is known of an object's type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ObjTy {
    Any,
    Exact(KnownType),
    /// Once an array (or tensor) of this element type and rank; `checked` names the epoch in which that still holds.
    Array {
        holder: Holder,
        dtype: DType,
        ndim: u8,
        checked: Option<Checked>,
    },
    /// Once an instance of the class that had this version; `checked` as for arrays.
    Instance {
        version: u32,
        class: String,
        checked: Option<Checked>,
    },
}

/// A guard that was passed, of an array or of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) epoch: u32,
    pub(crate) writable: bool,
    /// Of an instance: it keeps its attributes as its class numbers them.
    pub(crate) values: bool,
}

/// A reference.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Obj {
    pub(crate) v: Value,
    pub(crate) own: Own,
    pub(crate) ty: ObjTy,
    /// Null stands for "unset".
    pub(crate) maybe_null: bool,
    /// The very object this is.
    pub(crate) known: Option<Fact>,
    /// An object of the same kind, to sample its elements.
    pub(crate) sample: Option<FactId>,
    /// `co_consts[n]`.
    pub(crate) konst: Option<u32>,
    /// It came out of something that held it, and mostly does so still when this reference goes (see `last`).
    pub(crate) is_kept: bool,
}

impl Obj {
    pub(crate) fn new(v: Value, own: Own, ty: ObjTy) -> Obj {
        Obj { v, own, ty, maybe_null: false, known: None, sample: None, konst: None, is_kept: false }
    }

    /// True when dropping the last reference can run no Python code.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.ty, ObjTy::Exact(k) if k.is_plain())
    }

    /// Only what is known to be no plain object: any store of a number may release one of those.
    pub(crate) fn may_be_kept(&self) -> bool {
        self.ty != ObjTy::Any && !self.is_plain()
    }
}

/// The object that a number was read from, or null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Boxed {
    pub(crate) v: Value,
    pub(crate) own: Own,
    pub(crate) maybe_null: bool,
}

/// An unboxed number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Num {
    pub(crate) flavour: Flavour,
    pub(crate) v: Value,
    pub(crate) boxed: Option<Boxed>,
}

/// One local or stack entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Val {
    /// Unset local, null stack entry, or a number that nobody reads any more.
    Unset,
    None,
    Num(Num),
    Obj(Obj),
    /// One of two, by a flag (`a` when true). Alternatives are `Unset`, `None` or numbers; the boxes of the one that is
    /// not there are null.
    Either {
        tag: Value,
        a: Box<Val>,
        b: Box<Val>,
    },
    Tuple(Vec<Val>),
    /// The result of `range(…)` on its way to `iter`.
    Range {
        start: Value,
        stop: Value,
        step: Value,
        step_const: Option<i64>,
    },
    RangeIter {
        next: Value,
        stop: Value,
        step: Value,
        step_const: Option<i64>,
    },
    /// Over a list, tuple, bytes, bytearray or array.
    SeqIter {
        seq: Box<Obj>,
        pos: Value,
    },
    Enumerate {
        count: Value,
        iter: Box<Val>,
    },
    Zip(Vec<Val>),
}

impl Val {
    pub(crate) fn num(flavour: Flavour, v: Value) -> Val {
        Val::Num(Num { flavour, v, boxed: None })
    }

    /// Calls `f` on every reference inside: value, holder, whether it may be null.
    pub(crate) fn each_ref(&mut self, f: &mut dyn FnMut(Value, &mut Own, bool)) {
        match self {
            Val::Unset | Val::None | Val::Range { .. } | Val::RangeIter { .. } => {}
            Val::Num(n) => {
                if let Some(b) = &mut n.boxed {
                    f(b.v, &mut b.own, b.maybe_null);
                }
            }
            Val::Obj(o) => f(o.v, &mut o.own, o.maybe_null),
            Val::Either { a, b, .. } => {
                a.each_ref(f);
                b.each_ref(f);
            }
            Val::Tuple(parts) | Val::Zip(parts) => parts.iter_mut().for_each(|p| p.each_ref(f)),
            Val::SeqIter { seq, .. } => f(seq.v, &mut seq.own, seq.maybe_null),
            Val::Enumerate { iter, .. } => iter.each_ref(f),
        }
    }

    /// Calls `f` on every reference inside that may stay with its container around a loop.
    pub(crate) fn each_kept(&mut self, f: &mut dyn FnMut(Value, &mut Own, bool)) {
        match self {
            Val::Obj(o) if o.may_be_kept() => f(o.v, &mut o.own, o.maybe_null),
            Val::SeqIter { seq, .. } if seq.may_be_kept() => f(seq.v, &mut seq.own, seq.maybe_null),
            Val::Tuple(parts) | Val::Zip(parts) => parts.iter_mut().for_each(|p| p.each_kept(f)),
            Val::Enumerate { iter, .. } => iter.each_kept(f),
            _ => {}
        }
    }

    /// Calls `f` on the number this is, or on those that a virtual tuple holds.
    pub(crate) fn each_num(&mut self, f: &mut dyn FnMut(&mut Num)) {
        match self {
            Val::Num(n) => f(n),
            Val::Tuple(parts) => parts.iter_mut().for_each(|p| p.each_num(f)),
            _ => {}
        }
    }

    /// The same without what guards found out.
    pub(crate) fn unchecked(&self) -> Val {
        let bare = |o: &Obj| {
            let mut o = o.clone();
            if let ObjTy::Array { checked, .. } | ObjTy::Instance { checked, .. } = &mut o.ty {
                *checked = None;
            }
            o
        };
        match self {
            Val::Obj(o) => Val::Obj(bare(o)),
            Val::Tuple(parts) => Val::Tuple(parts.iter().map(Val::unchecked).collect()),
            Val::SeqIter { seq, pos } => Val::SeqIter { seq: Box::new(bare(seq)), pos: *pos },
            Val::Enumerate { count, iter } => {
                Val::Enumerate { count: *count, iter: Box::new(iter.unchecked()) }
            }
            Val::Zip(parts) => Val::Zip(parts.iter().map(Val::unchecked).collect()),
            other => other.clone(),
        }
    }

    /// Whether a number inside is this value.
    pub(crate) fn holds(&self, v: Value) -> bool {
        match self {
            Val::Num(n) => n.v == v,
            Val::Either { a, b, .. } => a.holds(v) || b.holds(v),
            Val::Tuple(parts) | Val::Zip(parts) => parts.iter().any(|p| p.holds(v)),
            Val::Enumerate { iter, .. } => iter.holds(v),
            Val::Unset
            | Val::None
            | Val::Obj(_)
            | Val::Range { .. }
            | Val::RangeIter { .. }
            | Val::SeqIter { .. } => false,
        }
    }

    /// Changes each reference's holder.
    pub(crate) fn map_own(&mut self, f: &dyn Fn(Own) -> Own) {
        self.each_ref(&mut |_, own, _| *own = f(*own));
    }

    /// The type, for people.
    pub(crate) fn describe(&self) -> String {
        match self {
            Val::Unset => "unset".into(),
            Val::None => "None".into(),
            Val::Num(n) => n.flavour.name().into(),
            Val::Obj(Obj { ty: ObjTy::Exact(k), .. }) => k.name().into(),
            Val::Obj(Obj { ty: ObjTy::Array { holder, dtype, ndim, .. }, .. }) => {
                format!("{}[{}, {ndim}d]", holder.known_type().name(), dtype.name())
            }
            Val::Obj(Obj { ty: ObjTy::Instance { class, .. }, .. }) => class.clone(),
            Val::Obj(_) => "object".into(),
            Val::Either { a, b, .. } => format!("{} or {}", a.describe(), b.describe()),
            Val::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(Val::describe).collect();
                format!("tuple[{}]", parts.join(", "))
            }
            Val::Range { .. } | Val::RangeIter { .. } => "range".into(),
            Val::SeqIter { .. } | Val::Enumerate { .. } | Val::Zip(_) => "iterator".into(),
        }
    }

    /// How an exit rebuilds it.
    pub(crate) fn slot(&self) -> Slot {
        match self {
            Val::Unset => Slot::Empty,
            Val::None => Slot::None,
            Val::Num(n) => {
                let boxed = n.boxed.map(|b| (b.v, exit_own(b.own)));
                Slot::Number { flavour: n.flavour, value: n.v, boxed }
            }
            Val::Obj(o) => Slot::Obj(o.v, exit_own(o.own)),
            Val::Either { tag, a, b } => {
                Slot::Either { cond: *tag, then: Box::new(a.slot()), els: Box::new(b.slot()) }
            }
            Val::Tuple(parts) => Slot::Tuple(parts.iter().map(Val::slot).collect()),
            // Consumed by the instruction that follows its making: no exit lies between.
            Val::Range { start, stop, step, .. } | Val::RangeIter { next: start, stop, step, .. } => {
                Slot::RangeIter { next: *start, stop: *stop, step: *step }
            }
            Val::SeqIter { seq, pos } => {
                Slot::SeqIter { seq: Box::new(Slot::Obj(seq.v, exit_own(seq.own))), position: *pos }
            }
            Val::Enumerate { count, iter } => Slot::Enumerate { count: *count, iter: Box::new(iter.slot()) },
            Val::Zip(parts) => Slot::Zip(parts.iter().map(Val::slot).collect()),
        }
    }
}

pub(crate) fn exit_own(own: Own) -> ExitOwn {
    match own {
        Own::Owned => ExitOwn::Owned,
        Own::Static | Own::Fragile | Own::Local(_) => ExitOwn::Borrowed,
    }
}
