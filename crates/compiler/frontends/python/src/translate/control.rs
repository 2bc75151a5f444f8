//! Edges and merges: in which order blocks are translated, and how values cross from one to the next.
//!
//! In: states at the ends of edges. Out: block parameters in the least common shape, and the conversions on each edge.
//! Either-values are split here too: an instruction that needs to know which alternative it has runs once for each.

use std::collections::HashSet;

use overdrive_base::flavour::Ty;
use overdrive_ir::entities::{Block, Value};
use overdrive_ir::inst::{Inst, Terminator};

use crate::cfg::Cfg;
use crate::facts::Refusal;
use crate::op::LocalIdx;
use crate::translate::emit::{Edge, Header, State, Tx};
use crate::translate::shape::{
    At, Hold, Shape, alternative_types, from_params, join, param_types, shape_of, share_value,
};
use crate::translate::value::{Num, Own, Val};
use crate::translate::{Step, Stop};

/// Reason of the exit behind a module's loop.
const LOOP_ENDED: &str = "the loop ended";

/// Blocks in the order of translation.
pub(crate) struct Order {
    pub(crate) blocks: Vec<usize>,
    /// Targets of edges that go back in this order.
    pub(crate) retreating: HashSet<usize>,
}

/// Reverse postorder of ordinary flow from a block: a running loop may be entered anywhere.
pub(crate) fn order_from(cfg: &Cfg, root: usize) -> Order {
    let mut seen = vec![false; cfg.blocks.len()];
    let mut post = Vec::new();
    let mut path = vec![(root, 0usize)];
    seen[root] = true;
    while let Some((block, done)) = path.last_mut() {
        let b = *block;
        let succ = [cfg.blocks[b].taken, cfg.blocks[b].next].get(*done).copied();
        *done += 1;
        match succ {
            None => {
                post.push(b);
                path.pop();
            }
            Some(Some(to)) if !seen[to] => {
                seen[to] = true;
                path.push((to, 0));
            }
            Some(_) => {}
        }
    }
    post.reverse();
    let mut place = vec![usize::MAX; cfg.blocks.len()];
    for (i, b) in post.iter().enumerate() {
        place[*b] = i;
    }
    let mut retreating = HashSet::new();
    for b in &post {
        for s in cfg.blocks[*b].succs() {
            if place[s] <= place[*b] {
                retreating.insert(s);
            }
        }
    }
    Order { blocks: post, retreating }
}

/// What an edge hands to its target's parameters, and what it does not.
#[derive(Default)]
struct Carried {
    args: Vec<Value>,
    /// Numbers whose boxes, if owned, are released.
    drops: Vec<Val>,
}

impl Tx<'_> {
    /// Ends the open IR block with a jump to a bytecode block, in the current state.
    pub(crate) fn edge_to(&mut self, target: usize) -> Step {
        let Some(block) = self.cur.take() else { return Ok(()) };
        let state = std::mem::take(&mut self.st);
        self.add_edge(target, Edge { block, state })
    }

    pub(crate) fn add_edge(&mut self, target: usize, edge: Edge) -> Step {
        if let Some(header) = self.entered.get(&target).cloned() {
            return self.back_edge(target, edge, &header);
        }
        if self.nest.as_ref().is_some_and(|nest| !nest.contains(&target)) {
            self.leave_nest(target, edge);
            return Ok(());
        }
        self.pending.entry(target).or_default().push(edge);
        Ok(())
    }

    /// The loop nest of a module is done: the rest of the module runs once, in CPython.
    fn leave_nest(&mut self, target: usize, edge: Edge) {
        let saved = (self.cur.take(), std::mem::take(&mut self.st));
        self.cur = Some(edge.block);
        self.st = edge.state;
        let exit = self.exit_block(target, LOOP_ENDED);
        self.terminate(Terminator::Exit(exit));
        (self.cur, self.st) = saved;
    }

    /// A conditional jump: each side gets a block of its own, so that conversions have a place.
    pub(crate) fn branch_to(&mut self, cond: Value, then: usize, els: usize) -> Step {
        let (t, e) = (self.ir.add_block(), self.ir.add_block());
        self.terminate(Terminator::Branch { cond, then: (t, vec![]), els: (e, vec![]) });
        let state = std::mem::take(&mut self.st);
        self.add_edge(then, Edge { block: t, state: state.clone() })?;
        self.add_edge(els, Edge { block: e, state })
    }

    fn shapes(&self, target: usize, state: &State, at: At) -> Vec<Shape> {
        let first = self.f.cfg.blocks[target].first;
        let n = self.f.code.localsplus.len();
        let locals = state.locals.iter().enumerate().map(|(i, v)| {
            let live = i >= n || self.f.locals.is_live(first, LocalIdx(i as u32));
            shape_of(v, live, at)
        });
        // A reference held by a local or a container does not survive a merge on the stack.
        let stack = state.stack.iter().map(|v| shape_of(v, true, at));
        locals.chain(stack).collect()
    }

    fn join_all(&self, a: &[Shape], b: &[Shape]) -> Step<Vec<Shape>> {
        if a.len() != b.len() {
            return Err(self.refused("paths disagree about the stack"));
        }
        let n = self.f.code.localsplus.len();
        let is_global = |i: usize| (n..n + self.cached.len()).contains(&i);
        let pairs = a.iter().zip(b).enumerate();
        pairs
            .map(|(i, (x, y))| {
                // A cached global is in its register on all paths, or on none.
                if is_global(i) && x != y {
                    return Ok(Shape::Unset);
                }
                join(x, y).ok_or_else(|| self.refused("one loop runs over iterators of different kinds"))
            })
            .collect()
    }

    pub(crate) fn refused(&self, why: &str) -> Stop {
        Stop::Refused(Refusal { line: self.ins().position.line, why: why.to_owned() })
    }

    /// Opens a bytecode block: merges what leads to it. False if nothing does.
    pub(crate) fn begin_block(&mut self, target: usize) -> Step<bool> {
        let Some(edges) = self.pending.remove(&target) else { return Ok(false) };
        self.idx = self.f.cfg.blocks[target].first;
        self.skip_until = 0;
        let is_header = self.is_header(target);
        if edges.len() == 1 && !is_header {
            for Edge { block, state } in edges {
                self.cur = Some(block);
                self.st = state;
            }
            return Ok(true);
        }
        let at = if is_header { self.at_header(target) } else { At::Merge };
        let mut shape: Option<Vec<Shape>> =
            if is_header { self.headers.shapes.get(&target).cloned() } else { None };
        for edge in &edges {
            let incoming = self.shapes(target, &edge.state, at);
            shape = Some(match shape {
                None => incoming,
                Some(known) => self.join_all(&known, &incoming)?,
            });
        }
        let shape = shape.unwrap_or_default();
        let mut edges: Vec<Edge> = edges.into_iter().map(|e| self.build_tuples(e, &shape)).collect();
        let n_locals = self.f.code.localsplus.len() + self.cached.len();
        let dirty = self.joined_dirty(&edges, is_header);
        let block = self.ir.add_block();
        self.ir.blocks[block.index()].offset = self.offset_for_people(is_header);
        // A loop changes what it likes before its header comes again.
        let same = if is_header { vec![None; shape.len()] } else { unchanged(&edges, &shape) };
        let mut types = Vec::new();
        let changed = shape.iter().zip(&same).filter(|(_, same)| same.is_none());
        changed.for_each(|(s, _)| param_types(s, &mut types));
        let params: Vec<Value> = types.iter().map(|ty| self.ir.add_param(block, *ty)).collect();
        if is_header && !self.headers.clobbered.contains(&target) {
            edges = edges.into_iter().map(|e| self.prepare_loop(target, e)).collect();
        }
        let delayed = self.joined_delayed(&edges);
        let (epoch, facts) = self.joined_facts(&edges, is_header && self.headers.clobbered.contains(&target));
        let checked = self.joined_checks(&edges, epoch, is_header);
        let members = self.join_members(block, &edges, is_header);
        for (edge, more) in edges.into_iter().zip(members.passed) {
            self.pass(edge, block, &shape, &same, more)?;
        }
        let mut params = params.into_iter();
        let mut vals = Vec::with_capacity(shape.len());
        for (s, same) in shape.iter().zip(same) {
            vals.push(match same {
                Some(val) => val,
                None => from_params(s, &mut params).unwrap_or(Val::Unset),
            });
        }
        let stack = vals.split_off(n_locals);
        let (locals, stack, members) = (vals.into(), stack.into(), members.known.into());
        self.st = State { locals, stack, epoch, dirty, facts, delayed, members };
        self.apply_checks(&checked);
        self.cur = Some(block);
        if is_header {
            self.headers.shapes.insert(target, shape.clone());
            let (facts, delayed) = (self.st.facts.clone(), self.st.delayed.clone());
            self.entered.insert(target, Header { block, shape, epoch, checked, facts, delayed });
        }
        Ok(true)
    }

    /// In an inlined body a loop goes back without a clobber: CPython's turn is an exit.
    fn at_header(&self, target: usize) -> At {
        match &self.inlined {
            Some(_) => At::Merge,
            None if self.headers.clobbered.contains(&target) => At::Header,
            None => At::Kept,
        }
    }

    fn back_edge(&mut self, target: usize, edge: Edge, header: &Header) -> Step {
        let edge = self.with_globals(edge, &header.shape);
        let incoming = self.shapes(target, &edge.state, self.at_header(target));
        let wide = self.join_all(&header.shape, &incoming)?;
        if wide != header.shape {
            // What is done to more general values changes no less. (What is done to None is another matter.)
            let mut widened = header.shape.iter().zip(&wide).filter(|(before, now)| before != now);
            if edge.state.epoch != header.epoch && widened.all(|(before, _)| *before != Shape::None) {
                self.clobbers(target);
            }
            self.headers.shapes.insert(target, wide);
            return Err(Stop::Again);
        }
        let edge = self.build_tuples(edge, &header.shape);
        self.still_holds(target, &edge.state, header)?;
        if edge.state.delayed != header.delayed {
            self.only_outside("it changes an object in a loop");
        }
        self.pass(edge, header.block, &header.shape, &vec![None; header.shape.len()], vec![])
    }

    /// Makes the virtual tuples that arrive as objects, before it is asked what holds behind the merge: on 3.11 their making
    /// may run finalisers.
    fn build_tuples(&mut self, edge: Edge, shape: &[Shape]) -> Edge {
        let arrives = |val: &Val, s: &Shape| matches!((val, s), (Val::Tuple(_), Shape::Obj(_)));
        let all = edge.state.locals.iter().chain(edge.state.stack.iter());
        let which: Vec<usize> =
            all.zip(shape).enumerate().filter(|(_, (val, s))| arrives(val, s)).map(|(i, _)| i).collect();
        if which.is_empty() {
            return edge;
        }
        let saved = (self.cur.replace(edge.block), std::mem::replace(&mut self.st, edge.state));
        for i in which {
            let Some(entry) = self.st.entry_mut(i) else { continue };
            // Its parts are taken out while the object is made.
            let val = std::mem::replace(entry, Val::Unset);
            let o = self.forgetting(|tx| tx.as_obj(val));
            if let Some(entry) = self.st.entry_mut(i) {
                *entry = Val::Obj(o);
            }
        }
        let edge = Edge { block: self.cur.unwrap_or(edge.block), state: std::mem::take(&mut self.st) };
        (self.cur, self.st) = saved;
        edge
    }

    /// Converts an edge's state to the target's shape and jumps, with the values of entries that are not the `same` on all
    /// edges, and with `more`.
    fn pass(
        &mut self,
        edge: Edge,
        target: Block,
        shape: &[Shape],
        same: &[Option<Val>],
        more: Vec<Value>,
    ) -> Step {
        let saved = (self.cur.take(), std::mem::take(&mut self.st));
        self.cur = Some(edge.block);
        self.st = edge.state;
        self.flush_dropped(shape);
        let mut carried = Carried::default();
        let vals: Vec<Val> = self.st.locals.iter().chain(self.st.stack.iter()).cloned().collect();
        for ((val, s), same) in vals.into_iter().zip(shape).zip(same) {
            if same.is_none() {
                self.forgetting(|tx| tx.coerce(val, s, &mut carried))?;
            }
        }
        carried.args.extend(more);
        // Last: what is dropped may have held what another value borrowed from it until just now.
        carried.drops.into_iter().for_each(|val| self.drop_val(val));
        self.terminate(Terminator::Jump(target, carried.args));
        (self.cur, self.st) = saved;
        Ok(())
    }

    fn hold(&mut self, v: Value, own: Own, hold: Hold) {
        if hold == Hold::Owned && own != Own::Owned {
            self.emit0(Inst::IncRef(v));
        }
    }

    /// Emits the values that carry `val` in `shape`.
    fn coerce(&mut self, val: Val, shape: &Shape, out: &mut Carried) -> Step {
        match (val, shape) {
            (val, Shape::Unset) => {
                // Only numbers that nobody reads: their boxes, if owned, are released.
                out.drops.push(val);
            }
            (Val::None, Shape::None) => {}
            (Val::Num(n), Shape::Num { flavour, boxed }) if n.flavour == *flavour => {
                self.coerce_num(n, *boxed, out)
            }
            (Val::Tuple(parts), Shape::Tuple(shapes)) | (Val::Zip(parts), Shape::Zip(shapes))
                if parts.len() == shapes.len() =>
            {
                for (p, s) in parts.into_iter().zip(shapes) {
                    self.coerce(p, s, out)?;
                }
            }
            (
                Val::RangeIter { next, stop, step, .. } | Val::Range { start: next, stop, step, .. },
                Shape::RangeIter { .. },
            ) => out.args.extend([next, stop, step]),
            (Val::SeqIter { seq, pos }, Shape::SeqIter(s)) => {
                self.hold(seq.v, seq.own, s.hold);
                out.args.extend([seq.v, pos]);
            }
            (Val::Enumerate { count, iter }, Shape::Enumerate(s)) => {
                out.args.push(count);
                self.coerce(*iter, s, out)?;
            }
            (Val::Either { tag, a, b }, Shape::Either(sa, sb)) if fits(&a, sa) && fits(&b, sb) => {
                out.args.push(tag);
                let (mut a, mut b) = (*a, *b);
                if let (Val::Num(x), Val::Num(y)) = (&mut a, &mut b)
                    && share_value(sa, sb)
                    && x.v != y.v
                {
                    x.v = self.emit(Inst::Select(tag, x.v, y.v));
                }
                self.coerce(a, sa, out)?;
                self.coerce_beside(b, sa, sb, out)?;
            }
            (val, Shape::Either(sa, sb)) => {
                if fits(&val, sa) {
                    let tag = self.bconst(true);
                    out.args.push(tag);
                    self.coerce(val, sa, out)?;
                    let mut types = Vec::new();
                    alternative_types(sa, sb, &mut types);
                    self.absent(&types, &mut out.args);
                } else if fits(&val, sb) {
                    let tag = self.bconst(false);
                    out.args.push(tag);
                    let mut types = Vec::new();
                    param_types(sa, &mut types);
                    if let Val::Num(n) = &val
                        && share_value(sa, sb)
                    {
                        out.args.push(n.v);
                        types.remove(0);
                    }
                    self.absent(&types, &mut out.args);
                    self.coerce_beside(val, sa, sb, out)?;
                } else {
                    return Err(self.refused("paths disagree about a value"));
                }
            }
            (Val::Unset, Shape::Obj(_)) => {
                let v = self.null();
                out.args.push(v);
            }
            (val, Shape::Obj(s)) => {
                let o = self.as_obj(val);
                self.hold(o.v, o.own, s.hold);
                out.args.push(o.v);
            }
            _ => return Err(self.refused("paths disagree about a value")),
        }
        Ok(())
    }

    /// Emits what carries the alternative `sb` beside `sa`.
    fn coerce_beside(&mut self, val: Val, sa: &Shape, sb: &Shape, out: &mut Carried) -> Step {
        match (val, sb) {
            (Val::Num(n), Shape::Num { boxed, .. }) if share_value(sa, sb) => self.coerce_box(n, *boxed, out),
            (val, sb) => self.coerce(val, sb, out)?,
        }
        Ok(())
    }

    fn coerce_num(&mut self, n: Num, boxed: Option<Hold>, out: &mut Carried) {
        out.args.push(n.v);
        self.coerce_box(n, boxed, out);
    }

    fn coerce_box(&mut self, n: Num, boxed: Option<Hold>, out: &mut Carried) {
        let Some(hold) = boxed else {
            out.drops.push(Val::Num(n));
            return;
        };
        match n.boxed {
            Some(b) => {
                self.hold(b.v, b.own, hold);
                out.args.push(b.v);
            }
            None => {
                let v = self.null();
                out.args.push(v);
            }
        }
    }

    /// Placeholders for the alternative that is not there.
    fn absent(&mut self, types: &[Ty], out: &mut Vec<Value>) {
        for ty in types {
            let v = match ty {
                Ty::I1 => self.bconst(false),
                Ty::I64 => self.iconst(0),
                Ty::F64 => self.fconst(0.0),
                Ty::F32 => self.emit(Inst::F32Const(0)),
                Ty::Obj | Ty::Ptr => self.null(),
            };
            out.push(v);
        }
    }

    /// Runs the current instruction once for each alternative of the entry `n` from the top, and merges what goes on.
    pub(crate) fn split(&mut self, n: usize) -> Step {
        let Some(entry) = self.peek_mut(n) else { return Ok(()) };
        let Val::Either { tag, a, b } = std::mem::replace(entry, Val::Unset) else { return Ok(()) };
        let (then, els) = (self.ir.add_block(), self.ir.add_block());
        self.terminate(Terminator::Branch { cond: tag, then: (then, vec![]), els: (els, vec![]) });
        let base = std::mem::take(&mut self.st);
        let mut open: Vec<Edge> = Vec::new();
        for (block, side) in [(then, *a), (els, *b)] {
            self.cur = Some(block);
            self.st = base.clone();
            if let Some(entry) = self.peek_mut(n) {
                *entry = side;
            }
            self.resnap();
            self.op()?;
            if let Some(block) = self.cur.take() {
                open.push(Edge { block, state: std::mem::take(&mut self.st) });
            }
        }
        self.here_clear();
        self.merge_open(open)
    }

    /// Merges alternatives of one instruction; the open block afterwards continues them.
    pub(crate) fn merge_open(&mut self, mut open: Vec<Edge>) -> Step {
        if open.len() <= 1 {
            if let Some(Edge { block, state }) = open.pop() {
                self.cur = Some(block);
                self.st = state;
            }
            return Ok(());
        }
        let take = |state: &State| -> Vec<Shape> {
            state.locals.iter().chain(state.stack.iter()).map(|v| shape_of(v, true, At::Merge)).collect()
        };
        let mut shape = take(&open[0].state);
        for edge in &open[1..] {
            shape = self.join_all(&shape, &take(&edge.state))?;
        }
        let open: Vec<Edge> = open.into_iter().map(|e| self.build_tuples(e, &shape)).collect();
        let n_locals = open[0].state.locals.len();
        // What no alternative changed needs no parameter.
        let same = unchanged(&open, &shape);
        let delayed = self.joined_delayed(&open);
        let (epoch, facts) = self.joined_facts(&open, false);
        let checked = self.joined_checks(&open, epoch, false);
        let dirty = self.joined_dirty(&open, false);
        let block = self.ir.add_block();
        let mut types = Vec::new();
        let changed = shape.iter().zip(&same).filter(|(_, same)| same.is_none());
        changed.for_each(|(s, _)| param_types(s, &mut types));
        let params: Vec<Value> = types.iter().map(|ty| self.ir.add_param(block, *ty)).collect();
        let members = self.join_members(block, &open, false);
        for (edge, more) in open.into_iter().zip(members.passed) {
            self.pass(edge, block, &shape, &same, more)?;
        }
        let mut params = params.into_iter();
        let mut vals = Vec::with_capacity(shape.len());
        for (s, same) in shape.iter().zip(same) {
            vals.push(match same {
                Some(val) => val,
                None => from_params(s, &mut params).unwrap_or(Val::Unset),
            });
        }
        let stack = vals.split_off(n_locals);
        let (locals, stack, members) = (vals.into(), stack.into(), members.known.into());
        self.st = State { locals, stack, epoch, dirty, facts, delayed, members };
        self.apply_checks(&checked);
        self.cur = Some(block);
        Ok(())
    }
}

/// The entries that are the same value on all edges, and go on as it is: what is known of an object is known by its value.
fn unchanged(edges: &[Edge], shape: &[Shape]) -> Vec<Option<Val>> {
    let Some((first, rest)) = edges.split_first() else { return vec![None; shape.len()] };
    let n_locals = first.state.locals.len();
    let mut same: Vec<Option<Val>> = Vec::with_capacity(shape.len());
    for (i, s) in shape.iter().enumerate() {
        let val = first.state.entry(i).filter(|_| *s != Shape::Unset);
        let others = || rest.iter().map(|e| e.state.entry(i));
        let mut found = match val {
            Some(val) if others().all(|other| other == Some(val)) => Some(val.clone()),
            Some(val) => {
                let bare = val.unchecked();
                others().all(|other| other.map(Val::unchecked).as_ref() == Some(&bare)).then_some(bare)
            }
            None => None,
        };
        // What leans on a local goes on as it is only with that local.
        let mut is_held = true;
        if let Some(val) = &mut found {
            val.each_ref(&mut |_, own, _| {
                if let Own::Local(local) = *own {
                    is_held &= i >= n_locals && same.get(local).is_some_and(Option::is_some);
                }
            });
        }
        same.push(found.filter(|_| is_held));
    }
    same
}

/// A value can be carried by a shape without becoming an object.
fn fits(val: &Val, shape: &Shape) -> bool {
    match (val, shape) {
        (Val::Num(n), Shape::Num { flavour, .. }) => n.flavour == *flavour,
        (Val::None, Shape::None) | (Val::Unset, Shape::Unset) => true,
        _ => false,
    }
}
