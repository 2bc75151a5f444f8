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
        let Some(mut edges) = self.pending.remove(&target) else { return Ok(false) };
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
        let at = if is_header { self.at_header() } else { At::Merge };
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
        let n_locals = self.f.code.localsplus.len() + self.cached.len();
        let dirty = self.joined_dirty(&edges, is_header);
        let block = self.ir.add_block();
        self.ir.blocks[block.index()].offset = self.offset_for_people(is_header);
        let mut types = Vec::new();
        shape.iter().for_each(|s| param_types(s, &mut types));
        let params: Vec<Value> = types.iter().map(|ty| self.ir.add_param(block, *ty)).collect();
        if is_header && !self.headers.clobbered.contains(&target) {
            edges = edges.into_iter().map(|e| self.prepare_loop(target, e)).collect();
        }
        let delayed = self.joined_delayed(&edges);
        let members = self.joined_members(&edges, is_header);
        let (epoch, facts) = self.joined_facts(&edges, is_header && self.headers.clobbered.contains(&target));
        let checked = self.joined_checks(&edges, epoch, is_header);
        for edge in edges {
            self.pass(edge, block, &shape)?;
        }
        let mut params = params.into_iter();
        let mut vals = Vec::with_capacity(shape.len());
        for s in &shape {
            vals.push(from_params(s, &mut params).unwrap_or(Val::Unset));
        }
        let stack = vals.split_off(n_locals);
        let (locals, stack) = (vals.into(), stack.into());
        self.st = State { locals, stack, epoch, dirty, facts, delayed, members };
        self.apply_checks(&checked);
        self.cur = Some(block);
        if is_header {
            self.headers.shapes.insert(target, shape.clone());
            self.entered
                .insert(target, Header { block, shape, epoch, checked, delayed: self.st.delayed.clone() });
        }
        Ok(true)
    }

    /// In an inlined body a loop goes back without a clobber: CPython's turn is an exit.
    fn at_header(&self) -> At {
        if self.inlined.is_some() { At::Merge } else { At::Header }
    }

    fn back_edge(&mut self, target: usize, edge: Edge, header: &Header) -> Step {
        let edge = self.with_globals(edge, &header.shape);
        let incoming = self.shapes(target, &edge.state, self.at_header());
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
        self.still_holds(target, &edge.state, header)?;
        if edge.state.delayed != header.delayed {
            self.only_outside("it changes an object in a loop");
        }
        self.pass(edge, header.block, &header.shape)
    }

    /// Converts an edge's state to the target's shape and jumps.
    fn pass(&mut self, edge: Edge, target: Block, shape: &[Shape]) -> Step {
        let saved = (self.cur.take(), std::mem::take(&mut self.st));
        self.cur = Some(edge.block);
        self.st = edge.state;
        self.flush_dropped(shape);
        self.hand_over(target, shape, std::iter::repeat(true))?;
        (self.cur, self.st) = saved;
        Ok(())
    }

    /// Jumps with the values that carry the state in `shape`, those of the entries that `is_passed` names.
    fn hand_over(&mut self, target: Block, shape: &[Shape], is_passed: impl Iterator<Item = bool>) -> Step {
        let mut carried = Carried::default();
        let vals: Vec<Val> = self.st.locals.iter().chain(self.st.stack.iter()).cloned().collect();
        for ((val, s), is_passed) in vals.into_iter().zip(shape).zip(is_passed) {
            if is_passed {
                self.forgetting(|tx| tx.coerce(val, s, &mut carried))?;
            }
        }
        // Last: what is dropped may have held what another value borrowed from it until just now.
        carried.drops.into_iter().for_each(|val| self.drop_val(val));
        self.terminate(Terminator::Jump(target, carried.args));
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
        let n_locals = open[0].state.locals.len();
        let first = &open[0].state;
        let all: Vec<Val> = first.locals.iter().chain(first.stack.iter()).cloned().collect();
        // What no alternative changed needs no parameter.
        let same: Vec<bool> = (0..all.len())
            .map(|i| {
                open.iter().all(|e| {
                    let v =
                        if i < n_locals { e.state.locals.get(i) } else { e.state.stack.get(i - n_locals) };
                    v == Some(&all[i])
                })
            })
            .collect();
        let delayed = self.joined_delayed(&open);
        let members = self.joined_members(&open, false);
        let (epoch, facts) = self.joined_facts(&open, false);
        let checked = self.joined_checks(&open, epoch, false);
        let dirty = self.joined_dirty(&open, false);
        let changed: Vec<Shape> =
            shape.iter().zip(&same).filter(|(_, same)| !**same).map(|(s, _)| s.clone()).collect();
        let block = self.ir.add_block();
        let mut types = Vec::new();
        changed.iter().for_each(|s| param_types(s, &mut types));
        let params: Vec<Value> = types.iter().map(|ty| self.ir.add_param(block, *ty)).collect();
        for edge in open {
            self.cur = Some(edge.block);
            self.st = edge.state;
            self.flush_dropped(&shape);
            let differs = same.iter().map(|same| !same);
            self.hand_over(block, &shape, differs)?;
        }
        let mut params = params.into_iter();
        let mut vals = Vec::with_capacity(shape.len());
        for ((s, same), val) in shape.iter().zip(&same).zip(all) {
            vals.push(if *same { val } else { from_params(s, &mut params).unwrap_or(Val::Unset) });
        }
        let stack = vals.split_off(n_locals);
        let (locals, stack) = (vals.into(), stack.into());
        self.st = State { locals, stack, epoch, dirty, facts, delayed, members };
        self.apply_checks(&checked);
        self.cur = Some(block);
        Ok(())
    }
}

/// A value can be carried by a shape without becoming an object.
fn fits(val: &Val, shape: &Shape) -> bool {
    match (val, shape) {
        (Val::Num(n), Shape::Num { flavour, .. }) => n.flavour == *flavour,
        (Val::None, Shape::None) | (Val::Unset, Shape::Unset) => true,
        _ => false,
    }
}
