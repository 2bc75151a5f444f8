//! Removes choices between two ways that do the same.
//!
//! A value that is now a `float`, now an `np.float64` is handled twice. Where the checks and warnings that tell the two
//! apart are gone, as in a nest's copy, both ways compute the same from the same values, and it no longer matters which
//! of the two the value is. What differs in the end (a flavour) is selected.

use std::collections::BTreeMap;

use crate::entities::{Block, Value};
use crate::function::Function;
use crate::inst::{Inst, Terminator};
use crate::opt::rewrite::each_operand;
use crate::opt::{copies, fold, straight, unreachable};

/// Removing one choice may show the next, around it.
const MAX_ROUNDS: usize = 12;
/// So many values may differ at the end of the two ways.
const MAX_SELECTS: usize = 2;

/// The pass.
pub fn run(f: &mut Function) {
    for _ in 0..MAX_ROUNDS {
        straight::run(f);
        fold::run(f);
        if !round(f) {
            break;
        }
    }
}

fn round(f: &mut Function) -> bool {
    let mut n_ways = vec![0u32; f.blocks.len()];
    for block in &f.blocks {
        for to in block.terminator.iter().flat_map(crate::dominators::successors) {
            n_ways[to.index()] += 1;
        }
    }
    let mut found = false;
    for at in 0..f.blocks.len() {
        let Some(Terminator::Branch { cond, then, els }) = &f.blocks[at].terminator else { continue };
        let is_arm = |(to, args): &(Block, Vec<Value>)| args.is_empty() && n_ways[to.index()] == 1;
        if then.0 == els.0 || !is_arm(then) || !is_arm(els) {
            continue;
        }
        let (cond, then, els) = (*cond, then.0, els.0);
        let Some((to, args)) = same_end(f, then, els) else { continue };
        let insts = std::mem::take(&mut f.blocks[then.index()].insts);
        f.blocks[at].insts.extend(insts);
        let at = Block(at as u32);
        let args = args
            .into_iter()
            .map(|(x, y)| if x == y { x } else { copies::push(f, at, Inst::Select(cond, x, y)) })
            .collect();
        f.terminate(at, Terminator::Jump(to, args));
        found = true;
    }
    if found {
        unreachable::run(f);
    }
    found
}

/// Where both ways lead, with the values that each passes (the second's in terms of the first), if they do the same.
fn same_end(f: &Function, then: Block, els: Block) -> Option<(Block, Vec<(Value, Value)>)> {
    let (a, b) = (&f.blocks[then.index()], &f.blocks[els.index()]);
    let (Some(Terminator::Jump(to, args)), Some(Terminator::Jump(other, other_args))) =
        (&a.terminator, &b.terminator)
    else {
        return None;
    };
    if to != other || a.cold != b.cold || a.insts.len() != b.insts.len() {
        return None;
    }
    let mut first: BTreeMap<Value, Value> = BTreeMap::new();
    for ((x, of_x), (y, of_y)) in a.insts.iter().zip(&b.insts) {
        let mut y = y.clone();
        each_operand(&mut y, &mut |v| *v = first.get(v).copied().unwrap_or(*v));
        // Exits tell which way was taken.
        if *x != y || x.exit().is_some() {
            return None;
        }
        if let (Some(of_x), Some(of_y)) = (of_x, of_y) {
            first.insert(*of_y, *of_x);
        }
    }
    let pairs: Vec<(Value, Value)> =
        args.iter().zip(other_args).map(|(x, y)| (*x, first.get(y).copied().unwrap_or(*y))).collect();
    (pairs.iter().filter(|(x, y)| x != y).count() <= MAX_SELECTS).then_some((*to, pairs))
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::opt::testing::check;

    #[test]
    fn two_ways_that_do_the_same_become_one() {
        check(
            run,
            "v1 = type_is v0, int v2 = iconst 5 branch v1, b1, b2
             b1: v3 = iadd v2, v2 v4 = imul v3, v2 jump b3(v4, v3)
             b2: v5 = iadd v2, v2 v6 = imul v5, v2 jump b3(v6, v2)
             b3(v7: i64, v8: i64): v9 = icmp lt, v7, v8 branch v9, b4, b5 b4: leave exit0 b5: return v0",
            "v1 = type_is v0, int v2 = iconst 5 v3 = iconst 10 v4 = iconst 50 v10 = select v1, v3, v2
             v9 = icmp lt, v4, v10 branch v9, b1, b2 b1: leave exit0 b2: return v0",
        );
    }

    #[test]
    fn choices_inside_go_first() {
        check(
            run,
            "v1 = type_is v0, int v2 = type_is v0, float branch v1, b1, b5
             b1: branch v2, b2, b3 b2: v3 = not v2 jump b4(v3) b3: v4 = not v2 jump b4(v4) b4(v5: i1): jump b6(v5)
             b5: v6 = not v2 jump b6(v6)
             b6(v7: i1): branch v7, b7, b8 b7: leave exit0 b8: return v0",
            "v1 = type_is v0, int v2 = type_is v0, float v3 = not v2 branch v3, b1, b2 b1: leave exit0 b2: return v0",
        );
    }

    #[test]
    fn ways_that_differ_or_leave_stay() {
        for (a, b) in [
            ("v3 = iadd v2, v2", "v4 = isub v2, v2"),
            ("v3 = checked_add v2, v2, exit0", "v4 = checked_add v2, v2, exit0"),
        ] {
            let text = format!(
                "v1 = type_is v0, int v2 = list_len v0 branch v1, b1, b2 b1: {a} jump b3(v3) b2: {b} jump b3(v4)
                 b3(v5: i64): v6 = icmp lt, v5, v2 branch v6, b4, b5 b4: leave exit0 b5: return v0"
            );
            check(run, &text, &text);
        }
    }
}
