//! Rebuilds the state of an exit: the same recipe that the bridge follows on real objects.
//!
//! In: slots and the values of the moment. Out: owned references. An owned value is handed over, a borrowed one gets a
//! new reference, an unboxed one is boxed unless the box that it came from is still there.

use overdrive_base::flavour::Flavour;

use crate::entities::Value;
use crate::exit::{Own, Slot};
use crate::interpret::Machine;
use crate::interpret::heap::{Heap, HeapError, Object, Ref};
use crate::interpret::scalar::Scalar;

impl Machine<'_> {
    pub(super) fn rebuild_all(&mut self, slots: &[Slot]) -> Result<Vec<Option<Ref>>, HeapError> {
        slots.iter().map(|slot| self.rebuild(slot)).collect()
    }

    fn rebuild(&mut self, slot: &Slot) -> Result<Option<Ref>, HeapError> {
        let object = match slot {
            Slot::Empty => return Ok(None),
            Slot::Obj(v, own) => return self.hand_over(*v, *own),
            Slot::Number { flavour, value, boxed } => {
                if let Some((b, own)) = boxed
                    && let Some(r) = self.hand_over(*b, *own)?
                {
                    return Ok(Some(r));
                }
                boxed_number(*flavour, self.read(*value)?)?
            }
            Slot::None => Object::None,
            Slot::Const(c) => return self.heap.retain(self.consts[c.index()]).map(Some),
            Slot::Either { cond, then, els } => {
                return self.rebuild(if self.bool(*cond)? { then } else { els });
            }
            Slot::Tuple(parts) => Object::Tuple(self.rebuild_set(parts)?),
            Slot::RangeIter { next, stop, step } => {
                Object::RangeIter { next: self.int(*next)?, stop: self.int(*stop)?, step: self.int(*step)? }
            }
            Slot::SeqIter { seq, position } => {
                let position = self.int(*position)?;
                let seq = self.rebuild(seq)?.ok_or("an iterator over nothing")?;
                seq_iter(self.heap, seq, position)?
            }
            Slot::Enumerate { count, iter } => Object::Enumerate {
                count: self.int(*count)?,
                iter: self.rebuild(iter)?.ok_or("enumerate over nothing")?,
            },
            Slot::Zip(parts) => Object::Zip(self.rebuild_set(parts)?),
        };
        Ok(Some(self.heap.add(object)))
    }

    /// Parts that must all be there.
    fn rebuild_set(&mut self, parts: &[Slot]) -> Result<Vec<Ref>, HeapError> {
        let parts = self.rebuild_all(parts)?;
        parts.into_iter().map(|p| p.ok_or_else(|| "a part of a tuple or zip is empty".to_owned())).collect()
    }

    fn hand_over(&mut self, v: Value, own: Own) -> Result<Option<Ref>, HeapError> {
        match (self.obj(v)?, own) {
            (None, _) => Ok(None),
            (Some(r), Own::Owned) => self.heap.get(r).map(|_| Some(r)),
            (Some(r), Own::Borrowed) => self.heap.retain(r).map(Some),
        }
    }
}

/// An iterator at a position; at or beyond the end, or before the start, it is exhausted and lets go of the sequence.
fn seq_iter(heap: &mut Heap, seq: Ref, position: i64) -> Result<Object, HeapError> {
    let len = match heap.get(seq)? {
        Object::List(items) | Object::Tuple(items) => items.len(),
        Object::Bytes(data) | Object::ByteArray { data, .. } => data.len(),
        Object::Str(text) => text.chars().count(),
        Object::NdArray(array) => array.shape.first().map_or(0, |n| *n as usize),
        other => return Err(format!("no iterator over {other:?}")),
    };
    if position < 0 || position >= len as i64 {
        heap.release(seq)?;
        return Ok(Object::SeqIter { seq: None, position: 0 });
    }
    Ok(Object::SeqIter { seq: Some(seq), position })
}

/// The object for a number of a flavour.
pub(super) fn boxed_number(flavour: Flavour, value: Scalar) -> Result<Object, HeapError> {
    Ok(match (flavour, value) {
        (Flavour::Int, Scalar::I64(n)) => Object::Int(n.into()),
        (Flavour::Float, Scalar::F64(x)) => Object::Float(x),
        (Flavour::Bool, Scalar::I1(b)) => Object::Bool(b),
        (f, value) if f.is_numpy() && f.ty() == value.ty() => Object::Np(f, value.in_flavour(f)),
        (f, value) => return Err(format!("{value:?} is not of flavour {}", f.name())),
    })
}
