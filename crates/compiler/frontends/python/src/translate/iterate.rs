//! Loops over ranges, sequences, arrays, `enumerate`, `zip` natively; over everything else by the real iterator.
//!
//! In: an iterable or iterator on the abstract stack. Out: a virtual iterator (rebuilt at exits), or the next item. Only
//! iterators that nobody else can hold are virtual: those made by `for` itself or found unshared in a running frame.

use overdrive_base::flavour::{Flavour, KnownType};
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::Value;
use overdrive_ir::inst::{Cmp, Field, Inst, IntOp, Seq, Terminator};

use crate::facts::Status;
use crate::op::Op;
use crate::translate::Step;
use crate::translate::emit::Tx;
use crate::translate::value::{Obj, ObjTy, Own, Val};

/// Ranges beyond this are left to CPython, so that stepping never overflows.
pub(crate) const RANGE_LIMIT: i64 = 1 << 62;

impl Tx<'_> {
    pub(crate) fn get_iter(&mut self) -> Step {
        let val = self.peek(0).clone();
        if let Val::RangeIter { .. } | Val::SeqIter { .. } | Val::Enumerate { .. } | Val::Zip(_) = val {
            return Ok(());
        }
        // 3.11's comprehensions and all generator expressions hand the iterator to a call: that one must be real.
        if self.iterator_escapes(1) {
            if let Val::Range { start, stop, step, step_const } = val {
                self.pop();
                self.push(Val::RangeIter { next: start, stop, step, step_const });
                self.box_top(1);
                return Ok(());
            }
        } else if let Some(iter) = self.iter_of(&val) {
            self.pop();
            self.push(iter);
            return Ok(());
        }
        let why = format!("iteration over {}", val.describe());
        self.remark(Status::ThroughCPython, &why);
        self.box_top(1);
        let args = self.top_refs(1);
        let v = self.call(TableEntry::GetIter, args);
        self.replace_top_typed(1, v, ObjTy::Any);
        Ok(())
    }

    /// Whether the operation `ahead` instructions on calls something with the iterator.
    pub(crate) fn iterator_escapes(&self, ahead: usize) -> bool {
        matches!(self.f.instrs.get(self.idx + ahead).map(|i| &i.op), Some(Op::Call { .. }))
    }

    /// A virtual iterator that takes over the entry, if there is one for it.
    pub(crate) fn iter_of(&mut self, val: &Val) -> Option<Val> {
        match val {
            Val::Range { start, stop, step, step_const } => {
                Some(Val::RangeIter { next: *start, stop: *stop, step: *step, step_const: *step_const })
            }
            Val::RangeIter { .. } | Val::SeqIter { .. } | Val::Enumerate { .. } | Val::Zip(_) => {
                Some(val.clone())
            }
            Val::Obj(o) => {
                let fits = match o.ty {
                    ObjTy::Exact(k) => {
                        matches!(
                            k,
                            KnownType::List
                                | KnownType::Tuple
                                | KnownType::Bytes
                                | KnownType::ByteArray
                                | KnownType::Str
                        )
                    }
                    ObjTy::Array { ndim, .. } => ndim == 1,
                    ObjTy::Any | ObjTy::Instance { .. } => false,
                };
                if !fits {
                    return None;
                }
                let o = match o.ty {
                    ObjTy::Array { .. } => self.recheck(o, false)?,
                    _ => o.clone(),
                };
                let pos = self.iconst(0);
                Some(Val::SeqIter { seq: Box::new(o), pos })
            }
            _ => None,
        }
    }

    /// Pushes the next item, or goes to `end` without the iterator.
    pub(crate) fn for_iter(&mut self, end: u32) -> Step {
        let end = self.block_at(end);
        let next = self.f.cfg.block_of[self.idx] + 1;
        if matches!(
            self.peek(0),
            Val::Obj(_) | Val::Num(_) | Val::None | Val::Either { .. } | Val::Tuple(_) | Val::Unset
        ) {
            return self.for_iter_object(end, next);
        }
        let iter = self.peek(0).clone();
        let Some(more) = self.has_more(&iter) else {
            return Err(self.refused("an iterator of a kind that is not supported"));
        };
        let (body, done) = (self.ir.add_block(), self.ir.add_block());
        self.terminate(Terminator::Branch { cond: more, then: (body, vec![]), els: (done, vec![]) });
        let state = self.st.clone();
        self.cur = Some(done);
        match &iter {
            Val::SeqIter { seq, .. } if self.release_kept(seq) => drop(self.pop()),
            _ => self.drop_top(1),
        }
        self.edge_to(end)?;
        self.cur = Some(body);
        self.st = state;
        let (iter, item) = self.advance(iter);
        self.pop();
        self.push(iter);
        self.push(item);
        self.edge_to(next)
    }

    fn for_iter_object(&mut self, end: usize, next: usize) -> Step {
        self.remark(Status::ThroughCPython, "iterator protocol");
        self.box_top(1);
        let args = self.top_refs(1);
        let item = self.call(TableEntry::Next, args);
        let null = self.emit(Inst::IsNull(item));
        let (body, stop) = (self.ir.add_block(), self.ir.add_block());
        self.terminate(Terminator::Branch { cond: null, then: (stop, vec![]), els: (body, vec![]) });
        let state = self.st.clone();
        self.cur = Some(stop);
        self.call(TableEntry::NextFailed, vec![]);
        self.drop_top(1);
        self.edge_to(end)?;
        self.cur = Some(body);
        self.st = state;
        self.push(Val::Obj(Obj::new(item, Own::Owned, ObjTy::Any)));
        self.refine_top();
        self.edge_to(next)
    }

    /// Whether a virtual iterator has another item.
    fn has_more(&mut self, iter: &Val) -> Option<Value> {
        Some(match iter {
            Val::RangeIter { next, stop, step, step_const } => match step_const {
                Some(s) if *s > 0 => self.icmp(Cmp::Lt, *next, *stop),
                Some(_) => self.icmp(Cmp::Gt, *next, *stop),
                None => {
                    let zero = self.iconst(0);
                    let up = self.icmp(Cmp::Gt, *step, zero);
                    let (a, b) = (self.icmp(Cmp::Lt, *next, *stop), self.icmp(Cmp::Gt, *next, *stop));
                    self.emit(Inst::Select(up, a, b))
                }
            },
            Val::SeqIter { seq, pos } => {
                let len = match seq.ty {
                    ObjTy::Array { .. } => {
                        let seq = self.recheck(seq, false)?;
                        self.emit(Inst::Field(Field::ArrayDim(0), seq.v))
                    }
                    _ => self.len_field(seq)?,
                };
                self.icmp(Cmp::Lt, *pos, len)
            }
            Val::Enumerate { iter, .. } => self.has_more(iter)?,
            Val::Zip(parts) => {
                let mut all: Option<Value> = None;
                for p in parts {
                    let more = self.has_more(p)?;
                    all = Some(match all {
                        None => more,
                        Some(known) => self.both(known, more),
                    });
                }
                all?
            }
            _ => return None,
        })
    }

    /// The iterator behind its next item, and the item. It has one.
    fn advance(&mut self, iter: Val) -> (Val, Val) {
        match iter {
            Val::RangeIter { next, stop, step, step_const } => {
                let after = self.emit(Inst::Int(IntOp::Add, next, step));
                (Val::RangeIter { next: after, stop, step, step_const }, Val::num(Flavour::Int, next))
            }
            Val::SeqIter { seq, pos } => {
                let item = self.item_at(&seq, pos);
                let one = self.iconst(1);
                let after = self.emit(Inst::Int(IntOp::Add, pos, one));
                (Val::SeqIter { seq, pos: after }, item)
            }
            Val::Enumerate { count, iter } => {
                let (iter, item) = self.advance(*iter);
                let one = self.iconst(1);
                let after = self.emit(Inst::Int(IntOp::Add, count, one));
                let item = Val::Tuple(vec![Val::num(Flavour::Int, count), item]);
                (Val::Enumerate { count: after, iter: Box::new(iter) }, item)
            }
            Val::Zip(parts) => {
                let (iters, items) = parts.into_iter().map(|p| self.advance(p)).unzip();
                (Val::Zip(iters), Val::Tuple(items))
            }
            other => (other, Val::Unset),
        }
    }

    fn item_at(&mut self, seq: &Obj, pos: Value) -> Val {
        match seq.ty {
            ObjTy::Exact(kind @ (KnownType::Bytes | KnownType::ByteArray)) => {
                let v = self.byte_at(kind, seq.v, pos);
                Val::num(Flavour::Int, v)
            }
            ObjTy::Exact(KnownType::Str) => self.character_at(seq.v, pos),
            ObjTy::Array { holder, dtype, .. } => {
                let ptr = self.element_unchecked(seq, &[pos]);
                self.load_element(holder, dtype, ptr)
            }
            ObjTy::Exact(KnownType::Tuple) => {
                let item = self.emit(Inst::ItemGet(Seq::Tuple, seq.v, pos));
                self.item_val(item, Own::Fragile, seq.sample)
            }
            _ => {
                let item = self.emit(Inst::ItemGet(Seq::List, seq.v, pos));
                self.item_val(item, Own::Fragile, seq.sample)
            }
        }
    }
}
