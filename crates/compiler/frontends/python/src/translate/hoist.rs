//! What is tested once and holds for a while: identities of globals and module attributes, layouts of arrays.
//!
//! In: states at the ends of edges. Out: what still holds behind a merge or around a loop. A fact ends with the epoch it was
//! tested in, that is at the next clobber. A loop without one keeps the facts from before it, so they are tested in front of
//! it; a poll that finds work tests them again on its own, rare path.

use std::collections::BTreeSet;

use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::{ExitId, Value};
use overdrive_ir::exit::ExitKind;
use overdrive_ir::function::ConstRef;
use overdrive_ir::inst::{Inst, Terminator};

use crate::facts::{Fact, Meaning};
use crate::function::Function;
use crate::op::{NameIdx, Op};
use crate::translate::emit::{Edge, FactKey, Header, State, Tx};
use crate::translate::shared::Shared;
use crate::translate::value::{Checked, Obj, ObjTy, Val};
use crate::translate::{Step, Stop};

impl Tx<'_> {
    /// Whether a name still means the object `v`, as I1.
    pub(crate) fn still(&mut self, key: FactKey, v: Value) -> Value {
        match key {
            FactKey::Global(body, name) => self.in_body(body, |tx| {
                let (globals, builtins) = tx.scopes();
                let name = tx.name(NameIdx(name));
                tx.call(TableEntry::GlobalIs, vec![globals, builtins, name, v])
            }),
            FactKey::Attr(body, module, name) => self.in_body(body, |tx| {
                let module = tx.oconst(ConstRef::Fact(module.0));
                let name = tx.name(NameIdx(name));
                tx.call(TableEntry::ModuleAttrIs, vec![module, name, v])
            }),
            FactKey::Callee(body) => self.still_runs(body, v),
        }
    }

    fn fact(&mut self, key: FactKey) -> Option<Fact> {
        match key {
            FactKey::Global(body, name) => self.in_body(body, |tx| tx.oracle.global(name)),
            FactKey::Attr(body, module, name) => self.in_body(body, |tx| tx.oracle.attr(module, name)),
            FactKey::Callee(body) => self.headers.bodies.get(&body).map(|known| known.callable.clone()),
        }
    }

    pub(crate) fn test(&mut self, key: FactKey, exit: ExitId) {
        if let Some(fact) = self.fact(key) {
            let v = self.oconst(ConstRef::Fact(fact.id.0));
            let ok = self.still(key, v);
            self.emit0(Inst::Guard(ok, exit));
        }
    }

    /// In front of a loop: tests the names that it reads, and the arrays that it writes.
    pub(crate) fn prepare_loop(&mut self, target: usize, edge: Edge) -> Edge {
        let head = &self.f.instrs[self.f.cfg.blocks[target].first];
        if self.oracle.blocked(head.op_offset) {
            return edge;
        }
        let saved = (self.cur.take(), std::mem::take(&mut self.st));
        self.cur = Some(edge.block);
        self.st = edge.state;
        let mut exit = None;
        let mut keys = self.names_read_in(target);
        keys.extend(self.headers.found.get(&target).into_iter().flatten());
        for key in keys {
            if !self.is_given(key) {
                let e = match exit {
                    Some(e) => e,
                    None => self.exit_block(target, "a global or module attribute was rebound"),
                };
                exit = Some(e);
                self.test(key, e);
                self.st.facts.insert(key);
            }
        }
        let epoch = self.st.epoch;
        for i in 0..self.st.locals.len() {
            let Val::Obj(o @ Obj { ty: ObjTy::Array { holder, dtype, ndim, checked }, .. }) =
                self.st.locals[i].clone()
            else {
                continue;
            };
            let writable = self.headers.written.contains(&(target, i));
            if o.maybe_null || checked.is_some_and(|c| c.epoch == epoch && (c.writable || !writable)) {
                continue;
            }
            let is = self.emit(Inst::ArrayIs { array: o.v, holder, dtype, ndim, writable });
            let e = self.exit_block(target, "the array cannot be written or changed its layout");
            self.emit0(Inst::Guard(is, e));
            let checked = Some(Checked { epoch, writable, values: false });
            self.st.locals[i] = Val::Obj(Obj { ty: ObjTy::Array { holder, dtype, ndim, checked }, ..o });
        }
        let edge = Edge { block: self.cur.unwrap_or(edge.block), state: std::mem::take(&mut self.st) };
        (self.cur, self.st) = saved;
        edge
    }

    /// Globals and attributes of known modules that a loop reads and does not rebind, and what it calls.
    fn names_read_in(&mut self, header: usize) -> BTreeSet<FactKey> {
        let mut keys = BTreeSet::new();
        let Some(l) = self.f.loops.with_header(header) else { return keys };
        let blocks = self.f.loops.loops[l].blocks.clone();
        let instrs = blocks.into_iter().flat_map(|b| self.f.cfg.blocks[b].instrs()).collect();
        self.add_names(self.f, instrs, Some(header), &mut keys);
        keys
    }

    /// The names that instructions read of the body at hand, and those of the bodies that they call.
    fn add_names(
        &mut self,
        f: &Function,
        instrs: Vec<usize>,
        header: Option<usize>,
        keys: &mut BTreeSet<FactKey>,
    ) {
        for i in instrs {
            let (Op::LoadGlobal { name, .. } | Op::LoadName(name)) = f.instrs[i].op else { continue };
            if header.is_some_and(|header| self.stored_in_loop(header, name))
                || self.oracle.blocked(f.instrs[i].op_offset)
            {
                continue;
            }
            let Some(mut fact) = self.oracle.global(name.0) else { continue };
            keys.insert(FactKey::Global(self.body, name.0));
            let is_module =
                matches!(fact.meaning, Meaning::MathModule | Meaning::NumpyModule | Meaning::Module);
            if let Some(next) = f.instrs.get(i + 1)
                && let Op::LoadAttr(attr) | Op::LoadMethod(attr) = next.op
                && is_module
                && !self.oracle.blocked(next.op_offset)
                && let Some(of_module) = self.oracle.attr(fact.id, attr.0)
            {
                keys.insert(FactKey::Attr(self.body, fact.id, attr.0));
                fact = of_module;
            }
            if let Some(known) = self.known_body(&fact)
                && let Ok(function) = &known.function
                && keys.insert(FactKey::Callee(known.body))
            {
                let all = (0..function.instrs.len()).collect();
                self.in_body(known.body, |tx| tx.add_names(function, all, None, keys));
            }
        }
    }

    /// Epoch and facts behind a merge.
    pub(crate) fn joined_facts(
        &mut self,
        edges: &[Edge],
        clobbered: bool,
    ) -> (u32, Shared<BTreeSet<FactKey>>) {
        let same = edges.windows(2).all(|w| w[0].state.epoch == w[1].state.epoch);
        match edges.split_first() {
            Some((first, rest)) if same && !clobbered => {
                let mut facts = first.state.facts.clone();
                for e in rest {
                    if e.state.facts != facts {
                        facts.retain(|k| e.state.facts.contains(k));
                    }
                }
                (first.state.epoch, facts)
            }
            _ => (self.new_epoch(), Shared::default()),
        }
    }

    /// For each entry of the state, the guard that all edges passed in this epoch. Instances are tested again in each round
    /// of a loop: that costs little, and nothing has to be done for them in front of it.
    pub(crate) fn joined_checks(&self, edges: &[Edge], epoch: u32, is_header: bool) -> Vec<Option<Checked>> {
        let Some(first) = edges.first() else { return vec![] };
        let n = first.state.locals.len() + first.state.stack.len();
        (0..n)
            .map(|i| {
                let mut all: Option<Checked> = None;
                for e in edges {
                    let val = e.state.entry(i);
                    let is_instance = matches!(val, Some(Val::Obj(Obj { ty: ObjTy::Instance { .. }, .. })));
                    let c = checked_of(val).filter(|c| c.epoch == epoch && !(is_header && is_instance))?;
                    all = Some(match all {
                        None => c,
                        Some(known) => Checked {
                            epoch,
                            writable: known.writable && c.writable,
                            values: known.values && c.values,
                        },
                    });
                }
                all
            })
            .collect()
    }

    pub(crate) fn apply_checks(&mut self, checks: &[Option<Checked>]) {
        for (val, check) in self.st.locals.iter_mut().chain(self.st.stack.iter_mut()).zip(checks) {
            if let Val::Obj(Obj {
                ty: ObjTy::Array { checked, .. } | ObjTy::Instance { checked, .. }, ..
            }) = val
            {
                *checked = *check;
            }
        }
    }

    /// A back edge must not lose what the header took for granted; else the translation starts again without it.
    pub(crate) fn still_holds(&mut self, target: usize, state: &State, header: &Header) -> Step {
        if self.headers.clobbered.contains(&target) {
            return Ok(());
        }
        if state.epoch != header.epoch {
            self.clobbers(target);
            return Err(Stop::Again);
        }
        let mut again = false;
        let head = &self.f.instrs[self.f.cfg.blocks[target].first];
        if !self.oracle.blocked(head.op_offset) {
            // What names do not tell: methods.
            let found = self.headers.found.entry(target).or_default();
            for key in state.facts.difference(&header.facts) {
                again |= found.insert(*key);
            }
        }
        for (i, check) in header.checked.iter().enumerate() {
            let now = checked_of(state.entry(i)).filter(|c| c.epoch == header.epoch);
            match (check, now) {
                (Some(_), None) => {
                    self.headers.clobbered.insert(target);
                    return Err(Stop::Again);
                }
                (Some(c), Some(now)) if c.writable && !now.writable => {
                    self.headers.clobbered.insert(target);
                    return Err(Stop::Again);
                }
                // Tested for writing in every round: better once, in front of the loop.
                (Some(c), Some(now)) if now.writable && !c.writable => {
                    again |= self.headers.written.insert((target, i));
                }
                _ => {}
            }
        }
        if again { Err(Stop::Again) } else { Ok(()) }
    }

    /// The body of a loop may change anything; so may those of the loops around it, which saves a round for each of them.
    pub(crate) fn clobbers(&mut self, header: usize) {
        let loops = &self.f.loops;
        let mut around = loops.with_header(header);
        self.headers.clobbered.insert(header);
        while let Some(l) = around {
            self.headers.clobbered.insert(loops.loops[l].header);
            around = loops.loops[l].parent;
        }
    }

    /// The rare path of a poll: CPython gets its turn, then everything that was tested is tested again.
    pub(crate) fn poll_and_retest(&mut self, target: usize) {
        let (epoch, facts) = (self.st.epoch, self.st.facts.clone());
        let arrays: Vec<(Value, ObjTy)> = self
            .st
            .locals
            .iter()
            .chain(self.st.stack.iter())
            .filter_map(|v| match v {
                Val::Obj(o) if checked_of(Some(v)).is_some_and(|c| c.epoch == epoch) => {
                    Some((o.v, o.ty.clone()))
                }
                _ => None,
            })
            .collect();
        self.flush_globals();
        // Whatever needs a frame for other reasons never comes without one.
        let framed = self.emit(Inst::HasFrame);
        let turn = self.exit_at(ExitKind::Yield, target, "CPython has its turn");
        self.emit0(Inst::Guard(framed, turn));
        let fail = self.exit_raise();
        let pos = self.ins().op_offset;
        self.emit0(Inst::Poll { pos, fail });
        let exit = self.exit_block(target, "something changed while CPython had its turn");
        for &key in facts.iter() {
            self.test(key, exit);
        }
        for (array, ty) in arrays {
            if let ObjTy::Array { holder, dtype, ndim, checked: Some(c) } = ty {
                let is = self.emit(Inst::ArrayIs { array, holder, dtype, ndim, writable: c.writable });
                self.emit0(Inst::Guard(is, exit));
            }
        }
    }

    /// A jump back to a loop's header: the common path only reads one word.
    pub(crate) fn poll_back(&mut self, to: usize) -> Step {
        if self.inlined.is_some() {
            return self.poll_in_body(to);
        }
        let pending = self.call(TableEntry::PollPending, vec![]);
        let (slow, fast) = (self.ir.add_block(), self.ir.add_block());
        self.ir.blocks[slow.index()].cold = true;
        self.terminate(Terminator::Branch { cond: pending, then: (slow, vec![]), els: (fast, vec![]) });
        let state = self.st.clone();
        self.cur = Some(slow);
        // References that only containers hold would not survive the rare path.
        let fragile = self.fragile_at(to);
        self.secure_all();
        self.poll_and_retest(to);
        self.give_back(to, &fragile);
        self.edge_to(to)?;
        self.cur = Some(fast);
        self.st = state;
        self.edge_to(to)
    }
}

fn checked_of(val: Option<&Val>) -> Option<Checked> {
    match val {
        Some(Val::Obj(Obj {
            ty: ObjTy::Array { checked, .. } | ObjTy::Instance { checked, .. }, ..
        })) => *checked,
        _ => None,
    }
}
