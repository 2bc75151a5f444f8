//! The entry: arguments (or a running frame) to abstract state, behind the guards that hold the version to its types.
//!
//! In: samples of what was passed. Out: the state of the first block. A guard that fails here leaves by an `Entry` exit:
//! nothing has happened, another version may take the call.

use overdrive_base::flavour::KnownType;
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::{ExitId, Value};
use overdrive_ir::exit::{Exit, ExitKind, Own as ExitOwn, Slot};
use overdrive_ir::inst::Inst;

use crate::code::LocalKind;
use crate::facts::{Entry, Fact, Seen};
use crate::op::Op;
use crate::translate::Step;
use crate::translate::emit::{State, Tx};
use crate::translate::value::{Obj, ObjTy, Own, Val};

impl Tx<'_> {
    /// Emits the entry block and queues the edge into the first bytecode block, which it returns.
    pub(crate) fn enter(&mut self, entry: &Entry) -> Step<usize> {
        let params = self.ir.blocks[0].params.clone();
        match entry {
            Entry::Call(args) => self.enter_call(args, &params),
            Entry::Loop { offset, locals, stack } => self.enter_loop(*offset, locals, stack, &params),
        }
    }

    fn entry_exit(&mut self, offset: u32, n_locals: usize, params: &[Value]) -> ExitId {
        let slot = |i: usize| params.get(i).map_or(Slot::Empty, |v| Slot::Obj(*v, ExitOwn::Borrowed));
        let locals = (0..n_locals).map(slot).chain(self.cached.iter().map(|_| Slot::Empty)).collect();
        let stack = (n_locals..params.len().max(n_locals)).map(slot).collect();
        let reason = "arguments of other types".to_owned();
        self.ir.add_exit(Exit { kind: ExitKind::Entry, offset, origin: offset, locals, stack, reason })
    }

    /// Locals that the code assigns or deletes.
    fn rebound(&self) -> Vec<bool> {
        let mut rebound = vec![false; self.f.code.localsplus.len()];
        for i in &self.f.instrs {
            if let Op::StoreFast(l) | Op::DeleteFast(l) | Op::LoadFastAndClear(l) | Op::MakeCell(l) = i.op {
                rebound[l.index()] = true;
            }
        }
        rebound
    }

    fn enter_call(&mut self, args: &[Fact], params: &[Value]) -> Step<usize> {
        let n = self.f.code.localsplus.len();
        let exit = self.entry_exit(0, n, params);
        let rebound = self.rebound();
        let mut locals = vec![Val::Unset; n];
        let mut takes = Vec::new();
        for (i, fact) in args.iter().enumerate() {
            locals[i] = self.incoming(params[i], fact, exit);
            if rebound[i] && matches!(locals[i], Val::Obj(_)) {
                takes.push(i);
            }
        }
        for (i, slot) in self.f.code.localsplus.iter().enumerate() {
            if slot.kind == LocalKind::Free {
                self.needs_frame = true;
                locals[i] = Val::Obj(Obj::new(params[i], Own::Static, ObjTy::Any));
            } else if slot.kind.is_cell_or_free() {
                self.needs_frame = true;
            }
        }
        self.take(&mut locals, &takes);
        self.st = State { locals: locals.into(), ..State::default() };
        self.edge_to(0)?;
        Ok(0)
    }

    fn enter_loop(
        &mut self,
        offset: u32,
        locals: &[Option<Fact>],
        stack: &[Option<Fact>],
        params: &[Value],
    ) -> Step<usize> {
        let Some(at) = self.f.instr_at(offset) else {
            return Err(self.refused("no instruction at the loop's head"));
        };
        let block = self.f.cfg.block_of[at];
        if self.f.cfg.blocks[block].first != at {
            return Err(self.refused("the loop's head is inside a block"));
        }
        self.idx = at;
        let n = self.f.code.localsplus.len();
        self.choose_globals(block);
        let exit = self.entry_exit(offset, n, params);
        let rebound = self.rebound();
        let mut vals = Vec::with_capacity(params.len());
        let mut takes = Vec::new();
        for (i, (fact, param)) in locals.iter().chain(stack).zip(params).enumerate() {
            let is_cell = i < n && self.f.code.localsplus[i].kind.is_cell_or_free();
            let val = match fact {
                _ if is_cell => Val::Obj(Obj::new(*param, Own::Static, ObjTy::Any)),
                None => {
                    let null = self.emit(Inst::IsNull(*param));
                    self.emit0(Inst::Guard(null, exit));
                    Val::Unset
                }
                Some(fact) => {
                    let null = self.emit(Inst::IsNull(*param));
                    let set = self.emit(Inst::Not(null));
                    self.emit0(Inst::Guard(set, exit));
                    self.incoming(*param, fact, exit)
                }
            };
            if i < n && !is_cell && rebound[i] && matches!(val, Val::Obj(_)) {
                takes.push(i);
            }
            vals.push(val);
        }
        for val in vals.iter_mut().skip(n) {
            if let Val::Obj(o) = val
                && let Some(iter) = self.running_range(o, exit)
            {
                *val = iter;
            }
        }
        let globals = self.preload_globals(exit);
        // Last, since it takes a reference: after it no other version may be asked. Loops further out keep their real
        // iterators.
        if vals.len() > n
            && let Some(val) = vals.last_mut()
            && let Val::Obj(o) = val
            && let Some(iter) = self.running_sequence(o, exit)
        {
            *val = iter;
        }
        self.take(&mut vals, &takes);
        let stack = vals.split_off(n);
        vals.extend(globals);
        let dirty = vec![false; self.cached.len()];
        let (locals, stack, dirty) = (vals.into(), stack.into(), dirty.into());
        self.st = State { locals, stack, dirty, ..State::default() };
        self.edge_to(block)?;
        Ok(block)
    }

    /// Arguments that are rebound or deleted leave the frame, so that their finalisers run when they should.
    fn take(&mut self, vals: &mut [Val], which: &[usize]) {
        for i in which {
            if let Val::Obj(o) = &mut vals[*i] {
                o.v = self.emit(Inst::OwnArg(*i as u32));
                o.own = Own::Owned;
            }
        }
    }

    /// One argument, guarded.
    fn incoming(&mut self, param: Value, fact: &Fact, exit: ExitId) -> Val {
        let o = Obj { sample: Some(fact.id), ..Obj::new(param, Own::Static, ObjTy::Any) };
        match &fact.seen {
            Seen::Other(_) => Val::Obj(o),
            // Iterators are looked at separately.
            Seen::Exact(KnownType::RangeIter | KnownType::ListIter | KnownType::TupleIter) => {
                let known = match &fact.seen {
                    Seen::Exact(k) => *k,
                    _ => KnownType::RangeIter,
                };
                let is = self.emit(Inst::TypeIs(param, known));
                self.emit0(Inst::Guard(is, exit));
                Val::Obj(Obj { ty: ObjTy::Exact(known), ..o })
            }
            seen => self.narrow(&o, seen, exit, Some(fact.id)).unwrap_or(Val::Obj(o)),
        }
    }

    /// The range iterator of a running loop, if nobody else can hold it.
    fn running_range(&mut self, o: &Obj, exit: ExitId) -> Option<Val> {
        if o.ty != ObjTy::Exact(KnownType::RangeIter) {
            return None;
        }
        self.unshared(o, exit);
        let next = self.call(TableEntry::RangeIterNext, vec![o.v]);
        let stop = self.call(TableEntry::RangeIterStop, vec![o.v]);
        let step = self.call(TableEntry::RangeIterStep, vec![o.v]);
        Some(Val::RangeIter { next, stop, step, step_const: None })
    }

    /// The list or tuple iterator of a running loop, likewise.
    fn running_sequence(&mut self, o: &Obj, exit: ExitId) -> Option<Val> {
        let ty = match o.ty {
            ObjTy::Exact(KnownType::ListIter) => KnownType::List,
            ObjTy::Exact(KnownType::TupleIter) => KnownType::Tuple,
            _ => return None,
        };
        self.unshared(o, exit);
        let pos = self.call(TableEntry::SeqIterPos, vec![o.v]);
        let seq = self.table_with(TableEntry::SeqIterSeq, vec![o.v], None, Some(exit))?;
        let sample = o.sample.and_then(|s| self.oracle.item(s)).map(|f| f.id);
        let seq = Obj { sample, ..Obj::new(seq, Own::Owned, ObjTy::Exact(ty)) };
        Some(Val::SeqIter { seq: Box::new(seq), pos })
    }

    fn unshared(&mut self, o: &Obj, exit: ExitId) {
        let unique = self.call(TableEntry::IsUnique, vec![o.v]);
        self.emit0(Inst::Guard(unique, exit));
    }
}
