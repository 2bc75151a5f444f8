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

#[cfg(test)]
mod tests {
    use super::run;
    use crate::opt::testing::check;

    #[test]
    fn one_value_over_all_edges() {
        check(
            run,
            "v1 = bconst true branch v1, b1(v0), b1(v0) b1(v2: obj): return v2",
            "v1 = bconst true branch v1, b1, b1 b1: return v0",
        );
    }

    #[test]
    fn unchanged_around_loops_also_through_another_parameter() {
        check(
            run,
            "v1 = iconst 1 v2 = bconst true jump b1(v1)
             b1(v3: i64): branch v2, b2(v3), b3 b2(v4: i64): jump b1(v4) b3: v5 = iadd v3, v3 return v0",
            "v1 = iconst 1 v2 = bconst true jump b1
             b1: branch v2, b2, b3 b2: jump b1 b3: v5 = iadd v1, v1 return v0",
        );
    }

    #[test]
    fn two_values_stay() {
        let text = "v1 = null v2 = bconst true branch v2, b1(v0), b1(v1) b1(v3: obj): leave exit0";
        check(run, text, text);
    }

    #[test]
    fn slots_of_exits_are_uses() {
        use crate::exit::Slot;
        let text = "function \"f\" args 1 { exit0 = resume 2 [borrow v1] [] \"\" b0(v0: obj): jump b1(v0) b1(v1: obj): leave exit0 }";
        let mut f = crate::parse::parse(text).expect("parses");
        run(&mut f);
        assert!(matches!(f.exits[0].locals[0], Slot::Obj(crate::entities::Value(0), _)));
    }
}
