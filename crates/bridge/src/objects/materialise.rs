//! From an exit's recipe and the values that native code spilled to the objects of CPython's frame.
//!
//! Ownership: `values` holds the references that the exit owns. `materialise` takes them over whether it succeeds or
//! not, and `drop_owned` releases them; exactly one of the two is called per exit taken. Under an `Either` only the
//! taken branch exists: the other branch's values are skipped, so they must own nothing (the front end spills null
//! there, or spills the reference in a slot of its own).
#![expect(unsafe_code, reason = "reads spilled references and makes objects")]

use std::ptr;

use overdrive_ir::exit::{Exit, Own, Slot};
use pyo3::ffi::{self, Py_ssize_t, PyObject};

use super::boxing;
use super::iterate::seq_iter_at;
use super::python::{Owned, internal_error};

/// Objects for CPython's frame; every non-null pointer is an owned reference, null is an unset local or a null entry.
#[derive(Debug)]
pub struct State {
    pub locals: Vec<*mut PyObject>,
    /// Bottom first.
    pub stack: Vec<*mut PyObject>,
}

/// Builds the state, or gives `None` with an exception set. `consts`: address of every constant of the function.
///
/// # Safety
/// GIL held; `values` are those of `exit.values()`, 8 bytes each, and `consts` has an object for each `ConstId`.
pub unsafe fn materialise(exit: &Exit, values: *const u64, consts: &[*mut PyObject]) -> Option<State> {
    let mut builder = Builder { values, consts };
    // SAFETY: the caller's contract. First every slot gets new references, then the exit's own ones are released: that
    // never finalises what the state holds, and a failure on the way leaks nothing.
    unsafe {
        let locals: Option<Vec<_>> = exit.locals.iter().map(|slot| builder.top(slot)).collect();
        let stack: Option<Vec<_>> = match locals {
            Some(_) => exit.stack.iter().map(|slot| builder.top(slot)).collect(),
            None => None,
        };
        let failure = if stack.is_none() { super::python::take_raised() } else { None };
        drop_owned(exit, values);
        if let Some(failure) = failure {
            super::python::set_raised(failure);
        }
        let give = |slots: Vec<Option<Owned>>| slots.into_iter().map(super::python::or_null).collect();
        Some(State { locals: give(locals?), stack: give(stack?) })
    }
}

/// Releases what the exit owns, in the order in which a frame that raises does: the stack from its top, then the locals.
/// A pending exception stays.
///
/// # Safety
/// As [`materialise`].
pub unsafe fn drop_owned(exit: &Exit, values: *const u64) {
    let mut owned = Vec::new();
    let mut at = values;
    let mut ends = Vec::new();
    // SAFETY: the caller's contract.
    unsafe {
        for slot in exit.locals.iter().chain(&exit.stack) {
            at = collect_owned(slot, at, &mut owned);
            ends.push(owned.len());
        }
    }
    let n_of_locals = if exit.locals.is_empty() { 0 } else { ends[exit.locals.len() - 1] };
    let of_stack = owned.split_off(n_of_locals);
    for object in of_stack.into_iter().rev().chain(owned) {
        drop(object);
    }
}

/// Takes the references that a slot owns; gives the place of the next slot's values.
///
/// # Safety
/// As [`materialise`].
unsafe fn collect_owned(slot: &Slot, at: *const u64, owned: &mut Vec<Owned>) -> *const u64 {
    // SAFETY: the caller's contract, for all of the function.
    unsafe {
        let mut take = |bits: u64| owned.extend(Owned::new(bits as *mut PyObject));
        match slot {
            Slot::Obj(_, own) => {
                if *own == Own::Owned {
                    take(*at);
                }
                at.add(1)
            }
            Slot::Number { boxed, .. } => match boxed {
                Some((_, own)) => {
                    if *own == Own::Owned {
                        take(*at.add(1));
                    }
                    at.add(2)
                }
                None => at.add(1),
            },
            Slot::Either { then, els, .. } => {
                let taken = *at & 1 != 0;
                let at = at.add(1);
                if taken {
                    let at = collect_owned(then, at, owned);
                    at.add(n_values(els))
                } else {
                    collect_owned(els, at.add(n_values(then)), owned)
                }
            }
            Slot::Tuple(parts) | Slot::Zip(parts) => {
                parts.iter().fold(at, |at, part| collect_owned(part, at, owned))
            }
            Slot::SeqIter { seq, .. } => collect_owned(seq, at, owned).add(1),
            Slot::Enumerate { iter, .. } => collect_owned(iter, at.add(1), owned),
            Slot::Empty | Slot::None | Slot::Const(_) | Slot::RangeIter { .. } => at.add(n_values(slot)),
        }
    }
}

fn n_values(slot: &Slot) -> usize {
    let mut n = 0;
    slot.each_value(&mut |_| n += 1);
    n
}

/// Walks the spilled values; what it gives are new references.
struct Builder<'a> {
    values: *const u64,
    consts: &'a [*mut PyObject],
}

impl Builder<'_> {
    /// # Safety
    /// The next value belongs to the slot that is being built.
    unsafe fn next(&mut self) -> u64 {
        // SAFETY: the caller's contract.
        unsafe {
            let value = *self.values;
            self.values = self.values.add(1);
            value
        }
    }

    /// A local or stack entry: outer `None` is failure, inner `None` is unset.
    ///
    /// # Safety
    /// As [`materialise`].
    unsafe fn top(&mut self, slot: &Slot) -> Option<Option<Owned>> {
        // SAFETY: the caller's contract, for all of the function.
        unsafe {
            match slot {
                Slot::Empty => Some(None),
                Slot::None => Some(Some(Owned::share(ffi::Py_None()))),
                Slot::Obj(..) => {
                    let object = self.next() as *mut PyObject;
                    Some((!object.is_null()).then(|| Owned::share(object)))
                }
                Slot::Either { then, els, .. } => {
                    if self.next() & 1 != 0 {
                        let built = self.top(then)?;
                        self.values = self.values.add(n_values(els));
                        Some(built)
                    } else {
                        self.values = self.values.add(n_values(then));
                        self.top(els)
                    }
                }
                Slot::Number { flavour, boxed, .. } => {
                    let bits = self.next();
                    let object = if boxed.is_some() { self.next() as *mut PyObject } else { ptr::null_mut() };
                    let number = if object.is_null() {
                        Owned::new(boxing::box_spilled(*flavour, bits))?
                    } else {
                        Owned::share(object)
                    };
                    Some(Some(number))
                }
                Slot::Const(id) => match self.consts.get(id.index()) {
                    Some(object) if !object.is_null() => Some(Some(Owned::share(*object))),
                    _ => {
                        internal_error(c"overdrive: a constant without an object");
                        None
                    }
                },
                Slot::Tuple(parts) => self.tuple(parts).map(Some),
                Slot::RangeIter { .. } => {
                    let [next, stop, step] = [self.next(), self.next(), self.next()].map(|v| v as i64);
                    Owned::new(boxing::box_range_iter(next, stop, step)).map(Some)
                }
                Slot::SeqIter { seq, .. } => {
                    let seq = self.part(seq)?;
                    let position = self.next() as i64;
                    seq_iter_at(seq.as_ptr(), position).map(Some)
                }
                Slot::Enumerate { iter, .. } => {
                    let count = Owned::new(ffi::PyLong_FromLongLong(self.next() as i64))?;
                    let iter = self.part(iter)?;
                    Owned::new(ffi::PyObject_CallFunctionObjArgs(
                        (&raw mut ffi::PyEnum_Type).cast(),
                        iter.as_ptr(),
                        count.as_ptr(),
                        ptr::null_mut::<PyObject>(),
                    ))
                    .map(Some)
                }
                Slot::Zip(parts) => {
                    let iterators = self.tuple(parts)?;
                    let zip = (&raw mut ffi::PyZip_Type).cast();
                    Owned::new(ffi::PyObject_CallObject(zip, iterators.as_ptr())).map(Some)
                }
            }
        }
    }

    /// A slot inside another one, which can't be unset.
    ///
    /// # Safety
    /// As [`materialise`].
    unsafe fn part(&mut self, slot: &Slot) -> Option<Owned> {
        // SAFETY: the caller's contract.
        let built = unsafe { self.top(slot) }?;
        if built.is_none() {
            internal_error(c"overdrive: an unset part of a value");
        }
        built
    }

    /// # Safety
    /// As [`materialise`].
    unsafe fn tuple(&mut self, parts: &[Slot]) -> Option<Owned> {
        // SAFETY: the caller's contract; a tuple with empty slots may be released, but is seen by nobody.
        unsafe {
            let tuple = Owned::new(ffi::PyTuple_New(parts.len() as Py_ssize_t))?;
            for (i, part) in parts.iter().enumerate() {
                let item = self.part(part)?;
                ffi::PyTuple_SET_ITEM(tuple.as_ptr(), i as Py_ssize_t, item.into_ptr());
            }
            Some(tuple)
        }
    }
}
