//! Shapes: the static part of an abstract value, which all paths into a block must agree on.
//!
//! In: values at the ends of the incoming edges. Out: their least common shape, and for each the block parameters that
//! carry it. The lattice has finite height (number → either of two numbers → object), so headers stop widening.

use overdrive_base::flavour::{Flavour, Ty};
use overdrive_ir::entities::Value;

use crate::facts::{Fact, FactId};
use crate::translate::value::{Boxed, Num, Obj, ObjTy, Own, Val};

/// Holder of a reference across an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hold {
    Static,
    Fragile,
    Owned,
}

impl Hold {
    pub(crate) fn own(self) -> Own {
        match self {
            Hold::Static => Own::Static,
            Hold::Fragile => Own::Fragile,
            Hold::Owned => Own::Owned,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObjShape {
    pub(crate) hold: Hold,
    pub(crate) ty: ObjTy,
    pub(crate) maybe_null: bool,
    pub(crate) known: Option<Fact>,
    pub(crate) sample: Option<FactId>,
    pub(crate) konst: Option<u32>,
    pub(crate) is_kept: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    Unset,
    None,
    Num { flavour: Flavour, boxed: Option<Hold> },
    Obj(ObjShape),
    Either(Box<Shape>, Box<Shape>),
    Tuple(Vec<Shape>),
    RangeIter { step_const: Option<i64> },
    SeqIter(ObjShape),
    Enumerate(Box<Shape>),
    Zip(Vec<Shape>),
}

/// How references are treated where the shape is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// An ordinary merge.
    Merge,
    /// The header of a loop with a clobber: nothing stays fragile.
    Header,
    /// Of a loop that may have none: what is no plain object stays with its container, also over the poll, which asks for
    /// that (see `last`). A plain one may be released by any store of a number.
    Kept,
}

/// Shape of a value; `live` is false for a local that nobody reads again.
pub(crate) fn shape_of(val: &Val, live: bool, at: At) -> Shape {
    let hold = |own: Own| match own {
        Own::Static => Hold::Static,
        Own::Fragile if at == At::Merge => Hold::Fragile,
        Own::Fragile | Own::Local(_) | Own::Owned => Hold::Owned,
    };
    let obj = |o: &Obj| ObjShape {
        hold: match o.own {
            Own::Fragile if at == At::Kept && o.may_be_kept() => Hold::Fragile,
            own => hold(own),
        },
        ty: match &o.ty {
            ObjTy::Array { holder, dtype, ndim, .. } => {
                ObjTy::Array { holder: *holder, dtype: *dtype, ndim: *ndim, checked: None }
            }
            ObjTy::Instance { version, class, .. } => {
                ObjTy::Instance { version: *version, class: class.clone(), checked: None }
            }
            ty => ty.clone(),
        },
        maybe_null: o.maybe_null,
        known: o.known.clone(),
        sample: o.sample,
        konst: o.konst,
        is_kept: o.is_kept,
    };
    // A dead number is dropped, with its box: releasing a number early or late shows nothing. Objects stay until the
    // local is rebound, since finalisers can tell.
    if !live && !matches!(val, Val::Obj(_) | Val::Tuple(_)) {
        return Shape::Unset;
    }
    match val {
        Val::Unset => Shape::Unset,
        Val::None => Shape::None,
        Val::Num(n) => Shape::Num { flavour: n.flavour, boxed: n.boxed.map(|b| hold(b.own)) },
        Val::Obj(o) => Shape::Obj(obj(o)),
        Val::Either { a, b, .. } => {
            Shape::Either(Box::new(shape_of(a, true, at)), Box::new(shape_of(b, true, at)))
        }
        Val::Tuple(parts) => Shape::Tuple(parts.iter().map(|p| shape_of(p, true, at)).collect()),
        Val::Range { step_const, .. } | Val::RangeIter { step_const, .. } => {
            Shape::RangeIter { step_const: *step_const }
        }
        Val::SeqIter { seq, .. } => Shape::SeqIter(obj(seq)),
        Val::Enumerate { iter, .. } => Shape::Enumerate(Box::new(shape_of(iter, true, at))),
        Val::Zip(parts) => Shape::Zip(parts.iter().map(|p| shape_of(p, true, at)).collect()),
    }
}

/// An object of which nothing is known.
fn any(maybe_null: bool) -> Shape {
    Shape::Obj(ObjShape {
        hold: Hold::Owned,
        ty: ObjTy::Any,
        maybe_null,
        known: None,
        sample: None,
        konst: None,
        is_kept: false,
    })
}

fn join_obj(a: &ObjShape, b: &ObjShape) -> ObjShape {
    let ty = match (&a.ty, &b.ty) {
        (x, y) if x == y => x.clone(),
        _ => ObjTy::Any,
    };
    ObjShape {
        hold: a.hold.max(b.hold),
        ty,
        maybe_null: a.maybe_null || b.maybe_null,
        known: a.known.clone().filter(|k| b.known.as_ref().is_some_and(|x| x.id == k.id)),
        sample: a.sample.or(b.sample),
        konst: a.konst.filter(|k| b.konst == Some(*k)),
        is_kept: a.is_kept && b.is_kept,
    }
}

fn join_boxed(a: Option<Hold>, b: Option<Hold>) -> Option<Hold> {
    match (a, b) {
        (Some(x), Some(y)) => Some(x.max(y)),
        (x, y) => x.or(y),
    }
}

/// Least shape that both fit; `None` when there is none (iterators of different kinds).
pub(crate) fn join(a: &Shape, b: &Shape) -> Option<Shape> {
    if a == b {
        return Some(a.clone());
    }
    Some(match (a, b) {
        (Shape::Num { flavour: f, boxed: x }, Shape::Num { flavour: g, boxed: y }) if f == g => {
            Shape::Num { flavour: *f, boxed: join_boxed(*x, *y) }
        }
        (Shape::Num { flavour: f, .. }, Shape::Num { flavour: g, .. }) => {
            let (first, second) = if f < g { (a, b) } else { (b, a) };
            Shape::Either(Box::new(first.clone()), Box::new(second.clone()))
        }
        (Shape::Num { .. }, Shape::None | Shape::Unset) => {
            Shape::Either(Box::new(a.clone()), Box::new(b.clone()))
        }
        (Shape::None | Shape::Unset, Shape::Num { .. }) => {
            Shape::Either(Box::new(b.clone()), Box::new(a.clone()))
        }
        (Shape::None, Shape::Unset) | (Shape::Unset, Shape::None) => {
            Shape::Either(Box::new(Shape::None), Box::new(Shape::Unset))
        }
        (Shape::Either(x, y), Shape::Either(p, q)) => match (side(x, p), side(y, q)) {
            (Some(l), Some(r)) => Shape::Either(Box::new(l), Box::new(r)),
            _ => any(has_unset(a) || has_unset(b)),
        },
        (Shape::Either(x, y), other) | (other, Shape::Either(x, y)) => {
            if let Some(l) = side(x, other) {
                Shape::Either(Box::new(l), y.clone())
            } else if let Some(r) = side(y, other) {
                Shape::Either(x.clone(), Box::new(r))
            } else if is_iter(other) {
                return None;
            } else {
                any(has_unset(a) || has_unset(b))
            }
        }
        (Shape::Obj(x), Shape::Obj(y)) => Shape::Obj(join_obj(x, y)),
        (Shape::Obj(x), Shape::Unset) | (Shape::Unset, Shape::Obj(x)) => {
            Shape::Obj(ObjShape { maybe_null: true, ..x.clone() })
        }
        (Shape::Tuple(x), Shape::Tuple(y)) if x.len() == y.len() => {
            Shape::Tuple(x.iter().zip(y).map(|(p, q)| join(p, q)).collect::<Option<_>>()?)
        }
        (Shape::RangeIter { .. }, Shape::RangeIter { .. }) => Shape::RangeIter { step_const: None },
        (Shape::SeqIter(x), Shape::SeqIter(y)) if x.ty == y.ty => Shape::SeqIter(join_obj(x, y)),
        (Shape::Enumerate(x), Shape::Enumerate(y)) => Shape::Enumerate(Box::new(join(x, y)?)),
        (Shape::Zip(x), Shape::Zip(y)) if x.len() == y.len() => {
            Shape::Zip(x.iter().zip(y).map(|(p, q)| join(p, q)).collect::<Option<_>>()?)
        }
        (x, y) if is_iter(x) || is_iter(y) => return None,
        _ => any(has_unset(a) || has_unset(b)),
    })
}

/// Joins an alternative with another shape if the result is no wider than one alternative.
fn side(a: &Shape, b: &Shape) -> Option<Shape> {
    match (a, b) {
        (Shape::Num { flavour: f, .. }, Shape::Num { flavour: g, .. }) if f == g => join(a, b),
        (Shape::None, Shape::None) | (Shape::Unset, Shape::Unset) => Some(a.clone()),
        _ => None,
    }
}

fn is_iter(s: &Shape) -> bool {
    matches!(s, Shape::RangeIter { .. } | Shape::SeqIter(_) | Shape::Enumerate(_) | Shape::Zip(_))
}

fn has_unset(s: &Shape) -> bool {
    match s {
        Shape::Unset => true,
        Shape::Obj(o) => o.maybe_null,
        Shape::Either(a, b) => has_unset(a) || has_unset(b),
        _ => false,
    }
}

/// Whether one machine value carries both alternatives (`float` and `np.float64`): code that does the same with either
/// then reads the same value, and it does not matter to it which of the two is there.
pub(crate) fn share_value(a: &Shape, b: &Shape) -> bool {
    matches!((a, b), (Shape::Num { flavour: f, .. }, Shape::Num { flavour: g, .. }) if f.ty() == g.ty())
}

/// Whether a reference inside is taken: it does not stay with its container.
pub(crate) fn is_owned(shape: &Shape) -> bool {
    match shape {
        Shape::Obj(o) | Shape::SeqIter(o) => o.hold == Hold::Owned,
        Shape::Tuple(parts) | Shape::Zip(parts) => parts.iter().any(is_owned),
        Shape::Enumerate(iter) => is_owned(iter),
        Shape::Unset | Shape::None | Shape::Num { .. } | Shape::Either(..) | Shape::RangeIter { .. } => false,
    }
}

/// Machine types of the block parameters that carry a shape.
pub(crate) fn param_types(shape: &Shape, out: &mut Vec<Ty>) {
    match shape {
        Shape::Unset | Shape::None => {}
        Shape::Num { flavour, boxed } => {
            out.push(flavour.ty());
            out.extend(boxed.map(|_| Ty::Obj));
        }
        Shape::Obj(_) => out.push(Ty::Obj),
        Shape::Either(a, b) => {
            out.push(Ty::I1);
            param_types(a, out);
            alternative_types(a, b, out);
        }
        Shape::Tuple(parts) | Shape::Zip(parts) => parts.iter().for_each(|p| param_types(p, out)),
        Shape::RangeIter { .. } => out.extend([Ty::I64; 3]),
        Shape::SeqIter(_) => out.extend([Ty::Obj, Ty::I64]),
        Shape::Enumerate(iter) => {
            out.push(Ty::I64);
            param_types(iter, out);
        }
    }
}

/// Those of an alternative `b` beside `a`.
pub(crate) fn alternative_types(a: &Shape, b: &Shape, out: &mut Vec<Ty>) {
    match b {
        Shape::Num { boxed, .. } if share_value(a, b) => out.extend(boxed.map(|_| Ty::Obj)),
        b => param_types(b, out),
    }
}

/// The value that block parameters of a shape stand for.
pub(crate) fn from_params(shape: &Shape, params: &mut dyn Iterator<Item = Value>) -> Option<Val> {
    let obj = |s: &ObjShape, v: Value| Obj {
        v,
        own: s.hold.own(),
        ty: s.ty.clone(),
        maybe_null: s.maybe_null,
        known: s.known.clone(),
        sample: s.sample,
        konst: s.konst,
        is_kept: s.is_kept,
    };
    Some(match shape {
        Shape::Unset => Val::Unset,
        Shape::None => Val::None,
        Shape::Num { flavour, boxed } => {
            let v = params.next()?;
            number(*flavour, v, *boxed, params)?
        }
        Shape::Obj(s) => Val::Obj(obj(s, params.next()?)),
        Shape::Either(a, b) => {
            let tag = params.next()?;
            let first = from_params(a, params)?;
            let second = match (&first, &**b) {
                (Val::Num(n), Shape::Num { flavour, boxed }) if share_value(a, b) => {
                    number(*flavour, n.v, *boxed, params)?
                }
                _ => from_params(b, params)?,
            };
            Val::Either { tag, a: Box::new(first), b: Box::new(second) }
        }
        Shape::Tuple(parts) => {
            Val::Tuple(parts.iter().map(|p| from_params(p, params)).collect::<Option<_>>()?)
        }
        Shape::Zip(parts) => Val::Zip(parts.iter().map(|p| from_params(p, params)).collect::<Option<_>>()?),
        Shape::RangeIter { step_const } => Val::RangeIter {
            next: params.next()?,
            stop: params.next()?,
            step: params.next()?,
            step_const: *step_const,
        },
        Shape::SeqIter(s) => {
            let seq = Box::new(obj(s, params.next()?));
            Val::SeqIter { seq, pos: params.next()? }
        }
        Shape::Enumerate(iter) => {
            let count = params.next()?;
            Val::Enumerate { count, iter: Box::new(from_params(iter, params)?) }
        }
    })
}

/// A number whose box, if the shape has one, is the next parameter.
fn number(
    flavour: Flavour,
    v: Value,
    boxed: Option<Hold>,
    params: &mut dyn Iterator<Item = Value>,
) -> Option<Val> {
    let boxed = match boxed {
        Some(h) => Some(Boxed { v: params.next()?, own: h.own(), maybe_null: true }),
        None => None,
    };
    Some(Val::Num(Num { flavour, v, boxed }))
}
