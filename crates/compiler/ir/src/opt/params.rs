//! Replaces block parameters that always get one and the same value by that value.
//!
//! The value (or the parameter itself, around a loop) comes in over every edge, so it dominates every predecessor and
//! with them the block. Replacements form no cycle: one of its parameters would have to be entered first, with a value
//! that does not exist yet; hence unreachable blocks go first.

use crate::entities::Value;
use crate::function::Function;
use crate::inst::Terminator;
use crate::opt::rewrite::{replace_uses, resolve};
use crate::opt::unreachable;

/// The pass.
pub fn run(f: &mut Function) {
    unreachable::run(f);
    while round(f) {}
}

/// What comes in over the edges that were seen so far.
#[derive(Clone, Copy, PartialEq)]
enum Incoming {
    Nothing,
    One(Value),
    Several,
}

/// Removes all parameters that are trivial now; true if there were any (then others may have become trivial).
fn round(f: &mut Function) -> bool {
    let mut incoming: Vec<Vec<Incoming>> =
        f.blocks.iter().map(|b| vec![Incoming::Nothing; b.params.len()]).collect();
    for block in &f.blocks {
        for (to, args) in block.terminator.iter().flat_map(edges) {
            let params = &f.blocks[to].params;
            for ((arg, param), seen) in args.iter().zip(params).zip(&mut incoming[to]) {
                *seen = match *seen {
                    same if arg == param => same,
                    Incoming::Nothing => Incoming::One(*arg),
                    Incoming::One(v) if v == *arg => *seen,
                    _ => Incoming::Several,
                };
            }
        }
    }
    let mut map = vec![None; f.n_values()];
    let mut found = false;
    for (b, seen) in incoming.iter().enumerate().skip(1) {
        for (i, seen) in seen.iter().enumerate().rev() {
            if let Incoming::One(v) = seen {
                map[f.blocks[b].params[i].index()] = Some(*v);
                found = true;
            }
        }
    }
    if !found {
        return false;
    }
    drop_params(f, |v| map[v.index()].is_some());
    replace_uses(f, |v| resolve(&map, v));
    true
}

/// The targets of a terminator with their arguments.
fn edges(t: &Terminator) -> Vec<(usize, &[Value])> {
    match t {
        Terminator::Jump(to, args) => vec![(to.index(), args)],
        Terminator::Branch { then, els, .. } => {
            vec![(then.0.index(), &then.1), (els.0.index(), &els.1)]
        }
        Terminator::Return(_) | Terminator::Exit(_) => vec![],
    }
}

/// Removes parameters, and the arguments for them on every edge. The entry block keeps all its own.
pub(super) fn drop_params(f: &mut Function, drop: impl Fn(Value) -> bool) {
    let keep: Vec<Vec<bool>> = f
        .blocks
        .iter()
        .enumerate()
        .map(|(b, block)| block.params.iter().map(|v| b == 0 || !drop(*v)).collect())
        .collect();
    let retain = |values: &mut Vec<Value>, keep: &[bool]| {
        let mut flags = keep.iter();
        values.retain(|_| flags.next().is_none_or(|k| *k));
    };
    for (b, block) in f.blocks.iter_mut().enumerate() {
        retain(&mut block.params, &keep[b]);
        match &mut block.terminator {
            Some(Terminator::Jump(to, args)) => retain(args, &keep[to.index()]),
            Some(Terminator::Branch { then, els, .. }) => {
                retain(&mut then.1, &keep[then.0.index()]);
                retain(&mut els.1, &keep[els.0.index()]);
            }
            Some(Terminator::Return(_) | Terminator::Exit(_)) | None => {}
        }
    }
}
