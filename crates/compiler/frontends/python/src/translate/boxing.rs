//! Boxes: from unboxed and virtual values to objects.
//!
//! In: abstract values. Out: references, with their holder. A number that came from an object becomes that object again; a
//! computed float is boxed once and the locals that hold it keep the box, since identity decides `nan in [nan]`.

use overdrive_base::flavour::{Flavour, KnownType, Ty};
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::Value;
use overdrive_ir::function::ConstRef;
use overdrive_ir::inst::{Inst, Terminator};

use crate::op::LocalIdx;
use crate::translate::emit::Tx;
use crate::translate::value::{Boxed, Num, Obj, ObjTy, Own, Val};

impl Tx<'_> {
    /// The object of a number: its own box if it has one, else a new one.
    pub(crate) fn box_num(&mut self, n: Num) -> Obj {
        let ty = ObjTy::Exact(n.flavour.known_type());
        match n.boxed {
            Some(b) if !b.maybe_null => Obj::new(b.v, b.own, ty),
            Some(b) => {
                let (fresh, old, done) = (self.ir.add_block(), self.ir.add_block(), self.ir.add_block());
                let result = self.ir.add_param(done, Ty::Obj);
                let is_null = self.emit(Inst::IsNull(b.v));
                self.terminate(Terminator::Branch {
                    cond: is_null,
                    then: (fresh, vec![]),
                    els: (old, vec![]),
                });
                self.cur = Some(fresh);
                let made = self.box_fresh(n.flavour, n.v);
                // Who owns the old box owns null here.
                let (n_owners, n_others) = self.share(n, result);
                (0..n_owners + n_others).for_each(|_| self.emit0(Inst::IncRef(made)));
                self.terminate(Terminator::Jump(done, vec![made]));
                self.cur = Some(old);
                let n_taken = n_others + usize::from(b.own != Own::Owned);
                (0..n_taken).for_each(|_| self.emit0(Inst::IncRef(b.v)));
                self.terminate(Terminator::Jump(done, vec![b.v]));
                self.cur = Some(done);
                Obj::new(result, Own::Owned, ty)
            }
            None if matches!(n.flavour, Flavour::Bool | Flavour::NpBool) => {
                let v = self.box_fresh(n.flavour, n.v);
                Obj::new(v, Own::Static, ty)
            }
            None => {
                let v = self.box_fresh(n.flavour, n.v);
                self.remember_box(n, v);
                Obj::new(v, Own::Owned, ty)
            }
        }
    }

    /// A computed float is boxed once: the locals that hold it keep the object (identity decides `nan in [nan]`).
    pub(crate) fn remember_box(&mut self, n: Num, v: Value) {
        let (_, n_holders) = self.share(Num { boxed: None, ..n }, v);
        (0..n_holders).for_each(|_| self.emit0(Inst::IncRef(v)));
    }

    /// Gives the object `v` to all that hold the same float with the same box, or with none: how many owned that box, and
    /// how many did not. While boxes are not remembered, only the parts of the tuple that is being made are asked.
    fn share(&mut self, n: Num, v: Value) -> (usize, usize) {
        let (mut n_owners, mut n_others) = (0, 0);
        if !matches!(n.flavour, Flavour::Float | Flavour::NpF64) {
            return (n_owners, n_others);
        }
        let (n_locals, stack) = match (self.forgetful, self.tuple_at) {
            (false, _) => (self.f.code.localsplus.len(), 0),
            (true, Some(at)) => (0, at),
            (true, None) => return (n_owners, n_others),
        };
        let locals = self.st.locals.iter_mut().take(n_locals);
        for val in locals.chain(self.st.stack.iter_mut().skip(stack)) {
            val.each_num(&mut |held| {
                if held.v != n.v || held.flavour != n.flavour {
                    return;
                }
                match held.boxed {
                    None => n_others += 1,
                    Some(old) if old.maybe_null && n.boxed.is_some_and(|b| b.v == old.v) => {
                        if old.own == Own::Owned {
                            n_owners += 1;
                        } else {
                            n_others += 1;
                        }
                    }
                    Some(_) => return,
                }
                held.boxed = Some(Boxed { v, own: Own::Owned, maybe_null: false });
            });
        }
        (n_owners, n_others)
    }

    /// Whether the number `depth` entries below the top is held elsewhere too, where it is read again: then both must have
    /// one object.
    pub(crate) fn is_held_elsewhere(&self, depth: usize) -> bool {
        let Val::Num(n) = self.peek(depth) else { return false };
        let at = self.st.stack.len() - depth - 1;
        let n_locals = self.f.code.localsplus.len();
        let is_live = |i: usize| i >= n_locals || self.f.locals.is_live(self.idx + 1, LocalIdx(i as u32));
        let locals = self.st.locals.iter().enumerate().filter(|(i, _)| is_live(*i)).map(|(_, val)| val);
        let stack = self.st.stack.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, val)| val);
        locals.chain(stack).any(|val| val.holds(n.v))
    }

    /// The float `depth` entries below the top is `object` now, where it was stored and wherever else it is held. The entry
    /// is unset afterwards.
    pub(crate) fn remember_stored(&mut self, depth: usize, object: Value) {
        let at = self.st.stack.len() - depth - 1;
        if let Val::Num(num) = std::mem::replace(&mut self.st.stack[at], Val::Unset) {
            self.remember_box(num, object);
        }
    }

    /// Runs `f` while boxes are not remembered: where the state is being taken apart, or on one side of a branch.
    pub(crate) fn forgetting<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.forgetful, true);
        let result = f(self);
        self.forgetful = before;
        result
    }

    fn box_fresh(&mut self, flavour: Flavour, v: Value) -> Value {
        let entry = match flavour {
            Flavour::Int => TableEntry::BoxInt,
            Flavour::Float => TableEntry::BoxFloat,
            Flavour::NpF64 => TableEntry::BoxNpF64,
            Flavour::NpF32 => TableEntry::BoxNpF32,
            Flavour::NpI64 => TableEntry::BoxNpI64,
            Flavour::NpI32 => TableEntry::BoxNpI32,
            Flavour::NpU8 => TableEntry::BoxNpU8,
            Flavour::Bool | Flavour::NpBool => {
                let (t, f) = if flavour == Flavour::Bool {
                    (ConstRef::True, ConstRef::False)
                } else {
                    (ConstRef::NpTrue, ConstRef::NpFalse)
                };
                let (t, f) = (self.oconst(t), self.oconst(f));
                return self.emit(Inst::Select(v, t, f));
            }
        };
        self.call(entry, vec![v])
    }

    /// The object of any value. The state must not own parts of `val` any more; on failure what it owns would leak only
    /// for virtual tuples, whose parts are put on the stack first.
    pub(crate) fn as_obj(&mut self, val: Val) -> Obj {
        match val {
            Val::Obj(o) => o,
            Val::None => {
                let v = self.none();
                Obj::new(v, Own::Static, ObjTy::Exact(KnownType::NoneType))
            }
            Val::Num(n) => self.box_num(n),
            Val::Tuple(parts) => {
                let n = parts.len();
                let outer = self.tuple_at;
                self.tuple_at = outer.or(Some(self.st.stack.len()));
                self.st.stack.extend(parts);
                self.box_top(n);
                self.tuple_at = outer;
                let args = self.top_refs(n);
                let v = self.call(TableEntry::BuildTuple, args);
                self.push(Val::Obj(Obj::new(v, Own::Owned, ObjTy::Exact(KnownType::Tuple))));
                let len = self.st.stack.len();
                self.st.stack[len - n - 1..].rotate_right(1);
                self.drop_top(n);
                match self.pop() {
                    Val::Obj(o) => o,
                    _ => Obj::new(v, Own::Owned, ObjTy::Exact(KnownType::Tuple)),
                }
            }
            Val::Either { tag, a, b } => {
                let (then, els, done) = (self.ir.add_block(), self.ir.add_block(), self.ir.add_block());
                let result = self.ir.add_param(done, Ty::Obj);
                self.terminate(Terminator::Branch { cond: tag, then: (then, vec![]), els: (els, vec![]) });
                let maybe_null = matches!(*a, Val::Unset) || matches!(*b, Val::Unset);
                for (block, side) in [(then, *a), (els, *b)] {
                    self.cur = Some(block);
                    let v = if matches!(side, Val::Unset) {
                        self.null()
                    } else {
                        let o = self.forgetting(|tx| tx.as_obj(side));
                        self.owned_ref(&o)
                    };
                    self.terminate(Terminator::Jump(done, vec![v]));
                }
                self.cur = Some(done);
                let mut o = Obj::new(result, Own::Owned, ObjTy::Any);
                o.maybe_null = maybe_null;
                o
            }
            Val::RangeIter { next, stop, step, .. } => {
                let v = self.call(TableEntry::BoxRangeIter, vec![next, stop, step]);
                Obj::new(v, Own::Owned, ObjTy::Exact(KnownType::RangeIter))
            }
            // Loops keep their iterators below the operands, and `iter(...)` on anything else made a real iterator.
            Val::Unset | Val::Range { .. } | Val::SeqIter { .. } | Val::Enumerate { .. } | Val::Zip(_) => {
                self.impossible = true;
                let v = self.none();
                Obj::new(v, Own::Static, ObjTy::Any)
            }
        }
    }

    /// Turns the top `n` entries into objects, in place (null entries stay).
    pub(crate) fn box_top(&mut self, n: usize) {
        let len = self.st.stack.len();
        for i in len - n.min(len)..len {
            if matches!(self.st.stack[i], Val::Unset | Val::Obj(_)) {
                continue;
            }
            // Its references are taken out while the object is made.
            let val = std::mem::replace(&mut self.st.stack[i], Val::Unset);
            if let Val::Tuple(parts) = val {
                let o = self.as_obj(Val::Tuple(parts));
                self.st.stack[i] = Val::Obj(o);
            } else {
                let o = self.as_obj(val);
                self.st.stack[i] = Val::Obj(o);
            }
        }
    }

    /// A virtual tuple on its way into a container becomes an object before anything is tested: on 3.11, making it may run
    /// finalisers. `depth` counts from the top.
    pub(crate) fn settle(&mut self, depth: usize) {
        let at = self.st.stack.len() - depth - 1;
        if matches!(self.st.stack[at], Val::Tuple(_)) {
            let val = std::mem::replace(&mut self.st.stack[at], Val::Unset);
            let o = self.as_obj(val);
            self.st.stack[at] = Val::Obj(o);
            self.resnap();
        }
    }

    /// References of the top `n` entries, bottom first. They must be objects (null entries are left out).
    pub(crate) fn top_refs(&self, n: usize) -> Vec<Value> {
        let len = self.st.stack.len();
        self.st.stack[len - n..]
            .iter()
            .filter_map(|v| match v {
                Val::Obj(o) => Some(o.v),
                _ => None,
            })
            .collect()
    }

    /// A number that remembers the object it was read from; only floats need it (identity of NaN).
    pub(crate) fn num_from(&self, flavour: Flavour, v: Value, from: &Obj) -> Val {
        let keeps = matches!(flavour, Flavour::Float | Flavour::NpF64);
        let boxed = keeps.then_some(Boxed { v: from.v, own: from.own, maybe_null: false });
        Val::Num(Num { flavour, v, boxed })
    }
}
