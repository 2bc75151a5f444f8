//! The shape of a parallel loop: what must hold so that its iterations may run at any time, on threads of their own.
//!
//! In: a header that is marked `parallel`. Out: its parts, for the code generator, or what is wrong with it. The header's
//! first parameter counts; every other one is a *reduction*, whose only use in the loop is one operation with a *part*
//! that the iteration made without it. So all parts can be made in any order, and combined in theirs: the loop means
//! what it means in order, to the last bit. An iteration cannot leave, touches no reference and asks nothing of CPython.
//!
//! ```text
//! header(counter, r, …) parallel:         header, body and latch belong to the loop; `end` and `stride` to what is
//!     more = icmp lt, counter, end        around it
//!     branch more, body, after
//! latch:
//!     s = iadd r, part                    or `imul`, `fadd`, `fmul`, with the operands in this order
//!     next = iadd counter, stride
//!     jump header(next, s, …)
//! ```

use std::collections::BTreeSet;

use overdrive_base::flavour::Ty;
use overdrive_base::table::{Effect, Entry, Failure};

use crate::dominators::{Dominators, successors};
use crate::entities::{Block, Value};
use crate::function::Function;
use crate::inst::{Cmp, FloatOp, Inst, IntOp, Terminator};
use crate::loops;

/// How the parts of a reduction are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    Int(IntOp),
    Float(FloatOp),
}

/// A value that is combined of parts, one from each iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// The header's parameter.
    pub param: Value,
    pub combine: Combine,
    pub part: Value,
    /// What the iteration hands to the next.
    pub result: Value,
}

/// A parallel loop.
#[derive(Clone, Debug)]
pub struct Parallel {
    pub header: Block,
    /// In an order in which definitions come before uses, the header first.
    pub blocks: Vec<Block>,
    pub body: Block,
    pub after: Block,
    pub latch: Block,
    pub counter: Value,
    pub end: Value,
    pub stride: Value,
    pub reductions: Vec<Reduction>,
    /// Values from around the loop that iterations read.
    pub live_in: Vec<Value>,
}

/// The parts of the loop at `header`.
///
/// # Errors
/// The first rule that it breaks, in words.
pub fn shape(f: &Function, dominators: &Dominators, header: Block) -> Result<Parallel, String> {
    let found = loops::find(f, dominators).into_iter().find(|l| l.header == header);
    let l = found.ok_or("it is no loop")?;
    let blocks: Vec<Block> = dominators.order.iter().copied().filter(|b| l.blocks.contains(b)).collect();
    let mut inside: BTreeSet<Value> = BTreeSet::new();
    for block in &blocks {
        let data = &f.blocks[block.index()];
        inside.extend(&data.params);
        inside.extend(data.insts.iter().filter_map(|(_, result)| *result));
    }
    let data = &f.blocks[header.index()];
    let made_by = |v: Value| {
        let mut insts = blocks.iter().flat_map(|b| &f.blocks[b.index()].insts);
        insts.find(|(_, result)| *result == Some(v)).map(|(inst, _)| inst)
    };
    let is_fixed = |v: Value| !inside.contains(&v) || matches!(made_by(v), Some(Inst::IConst(_)));

    let Some(Terminator::Branch { cond, then, els }) = &data.terminator else {
        return Err("its header does not ask whether it goes on".into());
    };
    let Some(Inst::ICmp(Cmp::Lt, counter, end)) = made_by(*cond) else {
        return Err("it does not go on while a counter is below its end".into());
    };
    if data.params.first() != Some(counter) || !is_fixed(*end) {
        return Err("its first parameter does not count to a fixed end".into());
    }
    if !l.blocks.contains(&then.0) || l.blocks.contains(&els.0) || !then.1.is_empty() {
        return Err("it does not go on with a body and else leave".into());
    }
    let (latch, args) = only_way_back(f, &blocks, header)?;
    let stride = match made_by(args[0]) {
        Some(Inst::Int(IntOp::Add, c, stride)) if c == counter && is_fixed(*stride) => *stride,
        _ => return Err("its counter does not take a fixed stride".into()),
    };
    let mut reductions = vec![];
    for (param, result) in data.params.iter().zip(&args).skip(1) {
        reductions.push(reduction(f, latch, *param, *result)?);
    }
    only_computes(f, &blocks, header)?;
    let live_in = uses(f, dominators, &blocks, &inside, *counter, &reductions)?;
    Ok(Parallel {
        header,
        blocks,
        body: then.0,
        after: els.0,
        latch,
        counter: *counter,
        end: *end,
        stride,
        reductions,
        live_in,
    })
}

fn only_way_back(f: &Function, blocks: &[Block], header: Block) -> Result<(Block, Vec<Value>), String> {
    let back = |b: &&Block| {
        f.blocks[b.index()].terminator.as_ref().is_some_and(|end| successors(end).contains(&header))
    };
    let mut ways = blocks.iter().filter(back);
    match (ways.next(), ways.next()) {
        (Some(latch), None) => match &f.blocks[latch.index()].terminator {
            Some(Terminator::Jump(_, args)) if !args.is_empty() => Ok((*latch, args.clone())),
            _ => Err("its way back is no jump with a counter".into()),
        },
        _ => Err("it has several ways back".into()),
    }
}

fn reduction(f: &Function, latch: Block, param: Value, result: Value) -> Result<Reduction, String> {
    let mut insts = f.blocks[latch.index()].insts.iter();
    let (combine, part) = match insts.find(|(_, r)| *r == Some(result)) {
        Some((Inst::Int(op @ (IntOp::Add | IntOp::Mul), p, part), _)) if *p == param => {
            (Combine::Int(*op), *part)
        }
        Some((Inst::Float(op @ (FloatOp::Add | FloatOp::Mul), p, part), _)) if *p == param => {
            (Combine::Float(*op), *part)
        }
        _ => return Err(format!("{param} is no sum or product of parts")),
    };
    Ok(Reduction { param, combine, part, result })
}

/// No way out but at the header, nothing but computing on numbers and array elements.
fn only_computes(f: &Function, blocks: &[Block], header: Block) -> Result<(), String> {
    for block in blocks {
        let data = &f.blocks[block.index()];
        for (inst, _) in &data.insts {
            let is_fine = match inst {
                Inst::Table { entry, .. } => {
                    let signature = Entry::signature(*entry);
                    signature.effect == Effect::Pure
                        && signature.failure == Failure::Never
                        && signature.result != Some(Ty::Obj)
                }
                Inst::IncRef(_)
                | Inst::DecRef { .. }
                | Inst::OwnArg(_)
                | Inst::Poll { .. }
                | Inst::ListSwap { .. }
                | Inst::AttrSwap { .. }
                | Inst::AttrSet { .. }
                | Inst::HasFrame => false,
                inst => inst.exit().is_none(),
            };
            if !is_fine {
                return Err(format!("an iteration does more than compute: {inst:?}"));
            }
        }
        let leaves = match &data.terminator {
            Some(Terminator::Return(_) | Terminator::Exit(_)) | None => true,
            Some(end) => *block != header && successors(end).iter().any(|to| !blocks.contains(to)),
        };
        if leaves {
            return Err("an iteration leaves".into());
        }
    }
    Ok(())
}

/// Checks who reads what the loop makes; gives what the loop reads of what is made around it.
fn uses(
    f: &Function,
    dominators: &Dominators,
    blocks: &[Block],
    inside: &BTreeSet<Value>,
    counter: Value,
    reductions: &[Reduction],
) -> Result<Vec<Value>, String> {
    let mut live_in = BTreeSet::new();
    let params: BTreeSet<Value> = reductions.iter().map(|r| r.param).chain([counter]).collect();
    for block in &dominators.order {
        let data = &f.blocks[block.index()];
        let is_inside = blocks.contains(block);
        let of_insts = data
            .insts
            .iter()
            .flat_map(|(inst, result)| inst.operands().into_iter().map(move |v| (v, *result)));
        let of_end = data.terminator.iter().flat_map(end_operands).map(|v| (v, None));
        for (v, by) in of_insts.chain(of_end) {
            if !is_inside {
                if inside.contains(&v) && !params.contains(&v) {
                    return Err(format!("{v} is read behind it"));
                }
                continue;
            }
            if !inside.contains(&v) {
                live_in.insert(v);
            }
            let mine =
                |r: &Reduction| (v == r.param && by != Some(r.result)) || (v == r.result && by.is_some());
            if reductions.iter().any(mine) {
                return Err(format!("an iteration reads {v}"));
            }
        }
        if !is_inside {
            for exit in data.insts.iter().filter_map(|(inst, _)| inst.exit()) {
                let read = f.exits.get(exit.index()).map_or(vec![], crate::exit::Exit::values);
                if let Some(v) = read.iter().find(|v| inside.contains(v) && !params.contains(v)) {
                    return Err(format!("{v} is read by an exit behind it"));
                }
            }
        }
    }
    for r in reductions {
        if reductions.iter().any(|other| other.part == r.param || other.part == r.result) {
            return Err(format!("an iteration reads {} for a part", r.param));
        }
        if reductions.iter().filter(|other| other.result == r.result).count() > 1 {
            return Err(format!("{} is handed on twice", r.result));
        }
    }
    Ok(live_in.into_iter().collect())
}

fn end_operands(end: &Terminator) -> Vec<Value> {
    match end {
        Terminator::Jump(_, args) => args.clone(),
        Terminator::Branch { cond, then, els } => {
            [*cond].into_iter().chain(then.1.iter().copied()).chain(els.1.iter().copied()).collect()
        }
        Terminator::Return(v) => vec![*v],
        Terminator::Exit(_) => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::{Combine, Parallel, shape};
    use crate::dominators::Dominators;
    use crate::entities::Block;
    use crate::inst::{FloatOp, IntOp};
    use crate::parse::parse;
    use crate::verify::verify;

    /// The loop of a function whose header is `b1`, around a body.
    fn of(header: &str, body: &str, after: &str) -> Result<Parallel, String> {
        let text = format!(
            "function \"f\" args 1 {{ exit0 = resume 2 [borrow v0] [] \"\"
             b0(v0: obj): v1 = iconst 0 v2 = iconst 10 v3 = iconst 2 v4 = fconst 1.5 v5 = bconst true jump b1(v1, v1, v4)
             b1(v10: i64, v11: i64, v12: f64) parallel: {header} branch v13, b2, b3
             b2: {body}
             b3: {after} return v0 }}"
        );
        let f = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let found = shape(&f, &Dominators::new(&f), Block(1));
        // The verifier says the same.
        assert_eq!(verify(&f).is_empty(), found.is_ok(), "{:?}", verify(&f));
        found
    }

    const ASKS: &str = "v13 = icmp lt, v10, v2";
    const GOOD: &str = "v20 = int_to_float v10 v21 = iadd v11, v10 v22 = fmul v12, v20 v23 = iadd v10, v3 jump b1(v23, v21, v22)";

    #[test]
    fn parts_of_a_parallel_loop() {
        let p = of(ASKS, GOOD, "").expect("it is one");
        let found: Vec<_> =
            p.reductions.iter().map(|r| (r.param.0, r.combine, r.part.0, r.result.0)).collect();
        assert_eq!(
            found,
            [(11, Combine::Int(IntOp::Add), 10, 21), (12, Combine::Float(FloatOp::Mul), 20, 22)]
        );
        assert_eq!((p.counter.0, p.end.0, p.stride.0), (10, 2, 3));
        assert_eq!(p.live_in.iter().map(|v| v.0).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn what_is_refused() {
        let refused = |header: &str, body: &str, after: &str, why: &str| {
            let told = of(header, body, after).expect_err(why);
            assert!(told.contains(why), "{told}");
        };
        let instead = |part: &str, by: &str| GOOD.replace(part, by);
        refused(ASKS, &instead("jump", "guard v5, exit0 jump"), "", "more than compute");
        refused(ASKS, &instead("v20 =", "incref v0 v20 ="), "", "more than compute");
        refused(ASKS, &instead("v20 =", "v30 = has_frame v20 ="), "", "more than compute");
        refused(ASKS, &instead("fmul v12, v20", "fmul v20, v12"), "", "no sum or product");
        refused(ASKS, &instead("fmul v12, v20", "fsub v12, v20"), "", "no sum or product");
        refused(ASKS, &instead("jump", "v30 = iadd v11, v10 jump"), "", "reads v11");
        refused(ASKS, &instead("jump", "v30 = iadd v21, v10 jump"), "", "reads v21");
        refused(ASKS, &instead("fmul v12, v20", "fmul v12, v12"), "", "reads v12 for a part");
        refused(ASKS, &instead("iadd v10, v3", "iadd v10, v10"), "", "fixed stride");
        refused(
            ASKS,
            &instead("jump b1(v23, v21, v22)", "branch v5, b1(v23, v21, v22), b1(v23, v21, v22)"),
            "",
            "no jump",
        );
        refused(ASKS, GOOD, "v30 = iadd v13, v13", "v13 is");
        refused("v13 = icmp le, v10, v2", GOOD, "", "while a counter");
        refused("v13 = icmp lt, v11, v2", GOOD, "", "first parameter");
        refused("v14 = iadd v10, v3 v13 = icmp lt, v10, v14", GOOD, "", "first parameter");
        refused(ASKS, "return v0", "", "no loop");
    }
}
