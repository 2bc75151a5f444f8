//! Runs several iterations of a counted loop side by side through an inner loop that each leaves at its own time.
//!
//! `while x * x + y * y <= 4 and i < n` is one chain of operations that wait for each other, while the chains of
//! neighbouring outer iterations are independent. So LANES of them run in one loop until the last is done: each does its
//! own operations in its own order, hence to the same bits; what a lane computes after it has left is thrown away. What
//! follows the inner loop then runs for one iteration after the other.
//!
//! ```text
//! header ─┬─ enough iterations left? ── yes ── what precedes, LANES times ── inner loop of all ── rest ── rest … ── header
//!         │                    no │                 └───────────────┬──────────────┘ a check fails, CPython asks
//!         └─ done                 └── body as it was ◀──────────────┘
//! ```
//!
//! Taken where everything up to the rest only computes: then nothing has happened when a check fails or CPython asks for
//! its turn, and the iteration begins anew in the body as it was, which leaves with the exact state.

use std::collections::{BTreeMap, BTreeSet};

use overdrive_base::flavour::Ty;
use overdrive_base::table::Entry;

use crate::dominators::{Dominators, reverse_postorder, successors};
use crate::entities::{Block, Value};
use crate::function::Function;
use crate::inst::{BoolOp, Cmp, Inst, IntOp, Terminator};
use crate::loops::{self, Loop};
use crate::opt::copies::{Copies, like, push};
use crate::opt::counted::{counted, edges, made_by, step_of};
use crate::opt::limits;

/// As many as a vector of 256 bits holds numbers.
const LANES: usize = 4;
/// Fewer float operations around the inner loop do not make a chain worth waiting for.
const MIN_FLOATS: usize = 3;
/// Instructions before and in the inner loop, and after it.
const MAX_AHEAD: usize = 80;
const MAX_REST: usize = 60;

/// The pass.
pub fn run(f: &mut Function) {
    let dominators = Dominators::new(f);
    let all = loops::find(f, &dominators);
    let made_by = made_by(f);
    let found: Vec<Shape> = (0..all.len()).filter_map(|inner| shape(f, &made_by, &all, inner)).collect();
    for shape in found {
        f.has_neighbours = true;
        if let Some(offset) = f.blocks[shape.header.index()].offset {
            f.remarks.push((
                offset,
                format!("{LANES} iterations run side by side, until the last of them is done"),
            ));
        }
        build(f, &shape);
    }
}

/// What a lane does on its way.
enum Step {
    Do(Inst, Option<Value>),
    /// A condition and what it must be.
    Check(Value, bool),
    /// An operation without its check, the operand that decides and between what it must lie.
    Bounded(Inst, Option<Value>, Value, (i64, i64)),
    /// The lane leaves with these values when the condition is this.
    Leave(Value, bool, Vec<Value>),
}

/// An outer loop, what precedes its inner loop, the inner loop, and the rest.
struct Shape {
    header: Block,
    counter: Value,
    step: i64,
    bound: Value,
    /// First block of the body.
    body: Block,
    before: Vec<Step>,
    /// What the inner header gets at first.
    first: Vec<Value>,
    inner: Block,
    around: Vec<Step>,
    /// What it gets each time round.
    back: Vec<Value>,
    /// Where lanes leave to.
    join: Block,
    rest: Vec<Block>,
    /// What the rest reads of the inner loop beside what is passed to it.
    extras: Vec<Value>,
}

/// Blocks one after the other, to the inner header.
struct Line {
    steps: Vec<Step>,
    blocks: BTreeSet<Block>,
    /// What is passed at the end.
    args: Vec<Value>,
}

fn shape(f: &Function, made_by: &BTreeMap<Value, Inst>, all: &[Loop], inner: usize) -> Option<Shape> {
    let outer = &all[all[inner].parent?];
    let inner = &all[inner];
    if all.iter().filter(|l| outer.blocks.contains(&l.header)).count() != 2 {
        return None;
    }
    let (counter, bound, body, _) = counted(f, made_by, outer)?;
    let step = step_of(f, made_by, outer, counter)?;
    let mut join = None;
    let before = line(f, made_by, outer, body, inner.header, &mut join)?;
    let around = line(f, made_by, outer, inner.header, inner.header, &mut join)?;
    let join = join?;
    let rest = rest(f, outer, join)?;
    let is_ahead = |b: &Block| before.blocks.contains(b) || around.blocks.contains(b);
    if rest.iter().any(is_ahead) || rest.contains(&inner.header) {
        return None;
    }
    let extras = extras(f, &around, &f.blocks[inner.header.index()].params, &rest);
    let is_number = |v: &Value| matches!(f.ty(*v), Ty::I64 | Ty::F64 | Ty::F32 | Ty::I1);
    let params = |block: Block| &f.blocks[block.index()].params;
    let passed = params(join).iter().chain(params(inner.header)).chain(&extras);
    let n_floats = around.steps.iter().filter(|s| matches!(s, Step::Do(Inst::Float(..), _))).count();
    let n_ahead = before.steps.len() + around.steps.len();
    let n_rest: usize = rest.iter().map(|b| f.blocks[b.index()].insts.len()).sum();
    let has_leave = around.steps.iter().any(|s| matches!(s, Step::Leave(..)));
    if !passed.clone().all(is_number)
        || n_floats < MIN_FLOATS
        || n_ahead > MAX_AHEAD
        || n_rest > MAX_REST
        || !has_leave
    {
        return None;
    }
    // From outer iteration to outer iteration only the counter may go into it.
    let carried: Vec<Value> =
        f.blocks[outer.header.index()].params.iter().copied().filter(|v| *v != counter).collect();
    let reads = |steps: &[Step]| {
        steps.iter().any(|step| match step {
            Step::Do(inst, _) | Step::Bounded(inst, ..) => {
                inst.operands().iter().any(|v| carried.contains(v))
            }
            Step::Check(v, _) => carried.contains(v),
            Step::Leave(v, _, args) => carried.contains(v) || args.iter().any(|v| carried.contains(v)),
        })
    };
    if reads(&before.steps)
        || reads(&around.steps)
        || before.args.iter().chain(&around.args).any(|v| carried.contains(v))
    {
        return None;
    }
    Some(Shape {
        header: outer.header,
        counter,
        step,
        bound,
        body,
        before: before.steps,
        first: before.args,
        inner: inner.header,
        around: around.steps,
        back: around.args,
        join,
        rest,
        extras,
    })
}

/// The way from a block to the inner header, which nobody joins and which is left to one block only.
fn line(
    f: &Function,
    made_by: &BTreeMap<Value, Inst>,
    outer: &Loop,
    from: Block,
    to: Block,
    join: &mut Option<Block>,
) -> Option<Line> {
    let (mut steps, mut blocks, mut at) = (vec![], BTreeSet::new(), from);
    loop {
        let data = &f.blocks[at.index()];
        let is_first = at == from;
        if !blocks.insert(at) || !outer.blocks.contains(&at) || (!is_first && !data.params.is_empty()) {
            return None;
        }
        for (inst, result) in &data.insts {
            steps.extend(step(made_by, inst, *result)?);
        }
        let is_cold = |b: Block| f.blocks[b.index()].cold;
        let next = match data.terminator.as_ref()? {
            Terminator::Jump(next, args) => (*next, args.clone()),
            Terminator::Branch { cond, then, els } if is_cold(then.0) != is_cold(els.0) => {
                let usual = if is_cold(els.0) { then } else { els };
                // Whether CPython asks is looked at once, for all lanes.
                if !matches!(made_by.get(cond), Some(Inst::Table { entry: Entry::PollPending, .. })) {
                    steps.push(Step::Check(*cond, is_cold(els.0)));
                }
                usual.clone()
            }
            Terminator::Branch { cond, then, els } => {
                let (leave, when, stay) = match (leads_out(f, then, to), leads_out(f, els, to)) {
                    (Some(leave), None) => (leave, true, els),
                    (None, Some(leave)) => (leave, false, then),
                    _ => return None,
                };
                if *join.get_or_insert(leave.join) != leave.join {
                    return None;
                }
                steps.extend(leave.constants.into_iter().map(|(inst, result)| Step::Do(inst, result)));
                steps.push(Step::Leave(*cond, when, leave.args));
                stay.clone()
            }
            Terminator::Return(_) | Terminator::Exit(_) => return None,
        };
        if next.0 == to {
            return Some(Line { steps, blocks, args: next.1 });
        }
        if !next.1.is_empty() {
            return None;
        }
        at = next.0;
    }
}

/// Where a way leads that passes values on to where others join, perhaps through a block of constants; not around the
/// loop.
fn leads_out(f: &Function, (to, args): &(Block, Vec<Value>), inner: Block) -> Option<Way> {
    let data = &f.blocks[to.index()];
    let is_constant =
        |inst: &Inst| matches!(inst, Inst::IConst(_) | Inst::FConst(_) | Inst::F32Const(_) | Inst::BConst(_));
    let way = match &data.terminator {
        _ if !args.is_empty() => Way { join: *to, args: args.clone(), constants: vec![] },
        Some(Terminator::Jump(join, values))
            if data.params.is_empty() && data.insts.iter().all(|(inst, _)| is_constant(inst)) =>
        {
            Way { join: *join, args: values.clone(), constants: data.insts.clone() }
        }
        _ => return None,
    };
    (way.join != inner && !way.args.is_empty()).then_some(way)
}

/// A way out of the line.
struct Way {
    join: Block,
    args: Vec<Value>,
    constants: Vec<(Inst, Option<Value>)>,
}

/// An instruction that a lane may execute although the iteration would not have; `Some(None)` for what is left out.
fn step(made_by: &BTreeMap<Value, Inst>, inst: &Inst, result: Option<Value>) -> Option<Option<Step>> {
    let constant = |v: &Value| match made_by.get(v) {
        Some(Inst::IConst(n)) => Some(*n),
        _ => None,
    };
    let does = || Some(Some(Step::Do(inst.clone(), result)));
    match inst {
        Inst::Table { entry: Entry::PollPending, .. } => Some(None),
        Inst::Guard(cond, _) => Some(Some(Step::Check(*cond, true))),
        Inst::Checked(op, a, b, _) => {
            let (root, limits) = limits::of_one(*op, (*a, constant(a)), (*b, constant(b)))?;
            Some(Some(Step::Bounded(limits::unchecked(inst.clone()), result, root, limits)))
        }
        Inst::Int(IntOp::FloorDiv | IntOp::FloorMod, _, b) if !matches!(constant(b)?, 0 | -1) => does(),
        Inst::Int(IntOp::Shl | IntOp::Shr, _, b) if (0..64).contains(&constant(b)?) => does(),
        Inst::Int(IntOp::FloorDiv | IntOp::FloorMod | IntOp::Shl | IntOp::Shr, ..) => None,
        Inst::IConst(_)
        | Inst::FConst(_)
        | Inst::F32Const(_)
        | Inst::BConst(_)
        | Inst::OConst(_)
        | Inst::Int(..)
        | Inst::ICmp(..)
        | Inst::ULt(..)
        | Inst::Float(..)
        | Inst::FloatUnary(..)
        | Inst::FCmp(..)
        | Inst::IntToFloat(_)
        | Inst::F32ToF64(_)
        | Inst::F64ToF32(_)
        | Inst::Bool(..)
        | Inst::Not(_)
        | Inst::BoolToInt(_)
        | Inst::Select(..) => does(),
        _ => None,
    }
}

/// What follows the inner loop, the join first. It goes back to the header or ends; `None` if it leads elsewhere.
fn rest(f: &Function, outer: &Loop, join: Block) -> Option<Vec<Block>> {
    let (mut found, mut work) = (vec![], vec![join]);
    while let Some(at) = work.pop() {
        if at == outer.header || found.contains(&at) {
            continue;
        }
        if !outer.blocks.contains(&at) {
            return None;
        }
        found.push(at);
        work.extend(successors(f.blocks[at.index()].terminator.as_ref()?));
    }
    Some(found)
}

/// Values of the inner loop that the rest reads.
fn extras(f: &Function, around: &Line, params: &[Value], rest: &[Block]) -> Vec<Value> {
    let mut made: BTreeSet<Value> = params.iter().copied().collect();
    for step in &around.steps {
        if let Step::Do(_, result) | Step::Bounded(_, result, ..) = step {
            made.extend(result);
        }
    }
    let mut read = BTreeSet::new();
    for block in rest {
        let data = &f.blocks[block.index()];
        for (inst, _) in &data.insts {
            read.extend(inst.operands());
            read.extend(inst.exit().into_iter().flat_map(|exit| f.exits[exit.index()].values()));
        }
        match &data.terminator {
            Some(Terminator::Exit(exit)) => read.extend(f.exits[exit.index()].values()),
            Some(Terminator::Return(v)) => read.extend([*v]),
            Some(Terminator::Branch { cond, .. }) => read.extend([*cond]),
            _ => {}
        }
        let edges = data.terminator.iter().flat_map(edges);
        read.extend(edges.flat_map(|(_, args)| args.to_vec()));
    }
    made.intersection(&read).copied().collect()
}

/// One of the iterations that run side by side.
struct Lane {
    copies: Copies,
    /// Whether it has not left yet.
    active: Value,
    /// What it leaves with; nothing before it could have left.
    results: Vec<Value>,
}

fn build(f: &mut Function, shape: &Shape) {
    let ahead = f.add_block();
    let enough = f.add_block();
    if let Some(Terminator::Branch { then, .. }) = &mut f.blocks[shape.header.index()].terminator {
        then.0 = enough;
    }
    // The counter and its bound are those of a range: below 2^62.
    let n = push(f, enough, Inst::IConst(shape.step * (LANES as i64 - 1)));
    let last = push(f, enough, Inst::Int(IntOp::Add, shape.counter, n));
    let fits = push(f, enough, Inst::ICmp(Cmp::Lt, last, shape.bound));
    let body = (shape.body, vec![]);
    f.terminate(enough, Terminator::Branch { cond: fits, then: (ahead, vec![]), els: body.clone() });

    // What precedes the inner loop.
    let mut lanes: Vec<Lane> = vec![];
    let mut all_fine = None;
    for lane in 0..LANES {
        let mut copies = Copies::default();
        if lane > 0 {
            let n = push(f, ahead, Inst::IConst(shape.step * lane as i64));
            copies.map.insert(shape.counter, push(f, ahead, Inst::Int(IntOp::Add, shape.counter, n)));
        }
        let active = push(f, ahead, Inst::BConst(true));
        let mut results = f.blocks[shape.join.index()].params.clone();
        results.extend(&shape.extras);
        let results = results.into_iter().map(|v| placeholder(f, ahead, v)).collect();
        let mut lane = Lane { copies, active, results };
        // Who leaves here has been nowhere near the inner loop's values.
        walk(f, ahead, &shape.before, &[], &mut lane, &mut all_fine);
        lanes.push(lane);
    }
    let inner = f.add_block();
    let mut args = vec![];
    for lane in &lanes {
        args.extend(shape.first.iter().map(|v| lane.copies.value(*v)));
        args.push(lane.active);
        args.extend(&lane.results);
    }
    let at = go_on_if(f, ahead, all_fine, &body);
    f.terminate(at, Terminator::Jump(inner, args));

    // The inner loop of all.
    let params = f.blocks[shape.inner.index()].params.clone();
    for lane in &mut lanes {
        for v in &params {
            let ty = f.ty(*v);
            lane.copies.map.insert(*v, f.add_param(inner, ty));
        }
        lane.active = f.add_param(inner, Ty::I1);
        for v in &mut lane.results {
            let ty = f.ty(*v);
            *v = f.add_param(inner, ty);
        }
    }
    let mut all_fine = None;
    let mut after: Vec<Lane> = vec![];
    for lane in &lanes {
        let mut lane =
            Lane { copies: lane.copies.clone(), active: lane.active, results: lane.results.clone() };
        walk(f, inner, &shape.around, &shape.extras, &mut lane, &mut all_fine);
        after.push(lane);
    }
    let at = go_on_if(f, inner, all_fine, &body);
    let any = after.iter().map(|lane| lane.active).reduce(|a, b| push(f, at, Inst::Bool(BoolOp::Or, a, b)));
    let (again, done) = (f.add_block(), f.add_block());
    let Some(any) = any else { return };
    f.terminate(at, Terminator::Branch { cond: any, then: (again, vec![]), els: (done, vec![]) });
    let asked =
        push(f, again, Inst::Table { entry: Entry::PollPending, args: vec![], pos: None, fail: None });
    let mut args = vec![];
    for lane in &after {
        args.extend(shape.back.iter().map(|v| lane.copies.value(*v)));
        args.push(lane.active);
        args.extend(&lane.results);
    }
    f.terminate(again, Terminator::Branch { cond: asked, then: body, els: (inner, args) });

    // The rest, one iteration after the other.
    let entries: Vec<Block> = (0..LANES).map(|_| like(f, shape.header)).collect();
    let params = f.blocks[shape.header.index()].params.clone();
    f.terminate(done, Terminator::Jump(entries[0], params));
    for (i, lane) in after.into_iter().enumerate() {
        let mut copies = lane.copies;
        let own_counter = copies.value(shape.counter);
        copies.bind(f, shape.header, entries[i]);
        copies.map.insert(shape.counter, own_counter);
        let next = entries.get(i + 1).copied().unwrap_or(shape.header);
        let mut results = lane.results;
        let extras = results.split_off(results.len() - shape.extras.len());
        copies.map.extend(shape.extras.iter().copied().zip(extras));
        copy_rest(f, shape, entries[i], next, copies, results);
    }
}

/// A number of the type of a value.
fn placeholder(f: &mut Function, at: Block, like: Value) -> Value {
    let inst = match f.ty(like) {
        Ty::F64 => Inst::FConst(0),
        Ty::F32 => Inst::F32Const(0),
        Ty::I1 => Inst::BConst(false),
        _ => Inst::IConst(0),
    };
    push(f, at, inst)
}

/// Emits a lane's steps. Its checks count as long as it is active.
fn walk(
    f: &mut Function,
    at: Block,
    steps: &[Step],
    extras: &[Value],
    lane: &mut Lane,
    all_fine: &mut Option<Value>,
) {
    let mut check = |f: &mut Function, active: Value, fine: Value| {
        let left = push(f, at, Inst::Not(active));
        let fine = push(f, at, Inst::Bool(BoolOp::Or, fine, left));
        *all_fine = Some(match *all_fine {
            Some(known) => push(f, at, Inst::Bool(BoolOp::And, known, fine)),
            None => fine,
        });
    };
    for step in steps {
        match step {
            Step::Do(inst, result) => lane.copies.inst(f, at, inst.clone(), *result),
            Step::Check(cond, expected) => {
                let cond = lane.copies.value(*cond);
                let fine = if *expected { cond } else { push(f, at, Inst::Not(cond)) };
                check(f, lane.active, fine);
            }
            Step::Bounded(inst, result, root, limits) => {
                let fine = limits::within(f, at, lane.copies.value(*root), *limits);
                check(f, lane.active, fine);
                lane.copies.inst(f, at, inst.clone(), *result);
            }
            Step::Leave(cond, when, args) => {
                // While it stays it takes them along; the last time counts.
                for (i, arg) in args.iter().chain(extras).enumerate() {
                    let arg = lane.copies.value(*arg);
                    let known = f.blocks[at.index()].insts.iter().any(|(inst, result)| {
                        *result == Some(lane.results[i]) && matches!(inst, Inst::Select(_, a, _) if *a == arg)
                    });
                    if !known {
                        lane.results[i] = push(f, at, Inst::Select(lane.active, arg, lane.results[i]));
                    }
                }
                let cond = lane.copies.value(*cond);
                let stays = if *when { push(f, at, Inst::Not(cond)) } else { cond };
                lane.active = push(f, at, Inst::Bool(BoolOp::And, lane.active, stays));
            }
        }
    }
}

/// The block in which it goes on when all checks succeed; else to the body as it was.
fn go_on_if(f: &mut Function, at: Block, fine: Option<Value>, body: &(Block, Vec<Value>)) -> Block {
    let Some(cond) = fine else { return at };
    let next = f.add_block();
    f.terminate(at, Terminator::Branch { cond, then: (next, vec![]), els: body.clone() });
    next
}

/// What follows the inner loop, of one iteration; goes on at `next` with what the outer header would get.
fn copy_rest(
    f: &mut Function,
    shape: &Shape,
    entry: Block,
    next: Block,
    mut copies: Copies,
    results: Vec<Value>,
) {
    let blocks: BTreeMap<Block, Block> = shape.rest.iter().map(|b| (*b, like(f, *b))).collect();
    for (old, new) in &blocks {
        copies.bind(f, *old, *new);
        f.blocks[new.index()].cold = f.blocks[old.index()].cold;
    }
    f.terminate(entry, Terminator::Jump(blocks[&shape.join], results));
    let order: Vec<Block> = reverse_postorder(f).into_iter().filter(|b| shape.rest.contains(b)).collect();
    for old in order {
        let new = blocks[&old];
        copies.insts(f, old, new, None);
        let Some(end) = f.blocks[old.index()].terminator.clone() else { continue };
        let end = copies.end(f, end, |b| blocks.get(&b).copied().unwrap_or(next));
        f.terminate(new, end);
    }
}
