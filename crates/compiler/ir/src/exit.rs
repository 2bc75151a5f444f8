//! Exits: the complete state in which CPython goes on, when a guard fails, an operation declines or raises.
//!
//! In: values of the function. Out: a recipe from which the bridge (or the IR interpreter) rebuilds locals and evaluation
//! stack as objects. Reference rule: an owned value is handed over to CPython; a borrowed one gets a new reference first.
//! Because a recipe may name unboxed values, nothing is boxed on the fast path.

use overdrive_base::flavour::Flavour;

use crate::entities::{ConstId, Value};

/// How CPython goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExitKind {
    /// At `offset`, whose operation has had no effect yet (or, after an operation, at the next one).
    Resume,
    /// An exception is set and was raised by the operation at `offset`; the handler, if any, gets control.
    Raise,
    /// The arguments are not of the types that this version was made for: the bridge calls another version, or the
    /// original at offset 0. Nothing has happened yet.
    Entry,
    /// As `Resume`, where CPython asks for its turn and the call has no frame in which it could take it.
    Yield,
}

/// One exit.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Exit {
    pub kind: ExitKind,
    /// Bytecode offset (of the instruction's first prefix).
    pub offset: u32,
    /// Bytecode offset of the operation whose check this is (differs from `offset` when CPython goes on behind it).
    pub origin: u32,
    /// One per fast local (cells and free variables included), in slot order.
    pub locals: Vec<Slot>,
    /// Evaluation stack, bottom first, in the order of the running CPython version.
    pub stack: Vec<Slot>,
    /// Why code may leave here, for people ("int leaves 64 bits", "element is not a float").
    pub reason: String,
}

/// Where a reference comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Own {
    /// The exit takes the reference over.
    Owned,
    /// Somebody else holds it: the exit makes a new one.
    Borrowed,
}

/// How one local or stack entry is rebuilt.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Slot {
    /// An unset local, or a null entry of the stack.
    Empty,
    /// An object; a null reference means unset.
    Obj(Value, Own),
    /// An unboxed number. `boxed`: the object it came from, reused when not null (identity of NaN).
    Number { flavour: Flavour, value: Value, boxed: Option<(Value, Own)> },
    /// The object `None`.
    None,
    /// Another object that lives as long as the function.
    Const(ConstId),
    /// Depends on an `I1`: then-slot when true.
    Either { cond: Value, then: Box<Slot>, els: Box<Slot> },
    /// A tuple that exists only in parts.
    Tuple(Vec<Slot>),
    /// `range` iterator: next value, stop, step (an exhausted one has next = stop).
    RangeIter { next: Value, stop: Value, step: Value },
    /// Iterator over a list, tuple, bytes, bytearray or array, at a position; a negative one is exhausted for good, while
    /// one beyond the end goes on when the sequence grows.
    SeqIter { seq: Box<Slot>, position: Value },
    /// `enumerate` at a count over an iterator.
    Enumerate { count: Value, iter: Box<Slot> },
    /// `zip` of iterators.
    Zip(Vec<Slot>),
}

impl Slot {
    /// Calls `f` on every value in the order in which native code spills them (depth first, as declared).
    pub fn each_value(&self, f: &mut dyn FnMut(Value)) {
        match self {
            Slot::Empty | Slot::None | Slot::Const(_) => {}
            Slot::Obj(v, _) => f(*v),
            Slot::Number { value, boxed, .. } => {
                f(*value);
                if let Some((b, _)) = boxed {
                    f(*b);
                }
            }
            Slot::Either { cond, then, els } => {
                f(*cond);
                then.each_value(f);
                els.each_value(f);
            }
            Slot::Tuple(parts) | Slot::Zip(parts) => parts.iter().for_each(|p| p.each_value(f)),
            Slot::RangeIter { next, stop, step } => [next, stop, step].into_iter().for_each(|v| f(*v)),
            Slot::SeqIter { seq, position } => {
                seq.each_value(f);
                f(*position);
            }
            Slot::Enumerate { count, iter } => {
                f(*count);
                iter.each_value(f);
            }
        }
    }
}

impl Exit {
    /// All values in spill order: locals, then stack.
    pub fn values(&self) -> Vec<Value> {
        let mut out = Vec::new();
        self.each_value(&mut |v| out.push(v));
        out
    }

    /// Calls `f` on every value, in that order.
    pub fn each_value(&self, f: &mut dyn FnMut(Value)) {
        self.locals.iter().chain(&self.stack).for_each(|slot| slot.each_value(f));
    }
}
