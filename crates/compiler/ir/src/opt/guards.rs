//! Removes guards that can't fail: of the constant true, and of a value that an earlier guard on every way here has
//! already tested (a value never changes). A guard of the constant false ends its block.

use crate::dominators::Dominators;
use crate::entities::Block;
use crate::function::Function;
use crate::inst::{Inst, Terminator};
use crate::opt::unreachable;

/// The pass.
pub fn run(f: &mut Function) {
    let dominators = Dominators::new(f);
    let mut constant = vec![None; f.n_values()];
    for (inst, result) in f.blocks.iter().flat_map(|b| &b.insts) {
        if let (Inst::BConst(b), Some(v)) = (inst, result) {
            constant[v.index()] = Some(*b);
        }
    }
    // Blocks that hold a guard of the value.
    let mut tested: Vec<Vec<Block>> = vec![vec![]; f.n_values()];
    for b in dominators.order.clone() {
        let block = &mut f.blocks[b.index()];
        let mut fails = None;
        let mut kept = Vec::with_capacity(block.insts.len());
        for (inst, result) in block.insts.drain(..) {
            if let Inst::Guard(cond, exit) = inst {
                let places = &mut tested[cond.index()];
                match constant[cond.index()] {
                    Some(true) => continue,
                    Some(false) => {
                        fails = Some(exit);
                        break;
                    }
                    None if places.iter().any(|place| dominators.dominates(*place, b)) => continue,
                    None => places.push(b),
                }
            }
            kept.push((inst, result));
        }
        block.insts = kept;
        if let Some(exit) = fails {
            block.terminator = Some(Terminator::Exit(exit));
        }
    }
    // What stood behind a guard of the constant false was the only way to some blocks.
    unreachable::run(f);
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::opt::testing::check;

    #[test]
    fn certain_guards_go() {
        check(run, "v1 = bconst true guard v1, exit0 return v0", "v1 = bconst true return v0");
    }

    #[test]
    fn a_guard_that_always_fails_ends_the_function() {
        check(
            run,
            "v1 = bconst false v2 = bconst true branch v2, b1, b2 b1: guard v1, exit0 jump b2 b2: return v0",
            "v1 = bconst false v2 = bconst true branch v2, b1, b2 b1: leave exit0 b2: return v0",
        );
    }

    #[test]
    fn a_guard_covers_what_it_dominates_and_no_more() {
        check(
            run,
            "v1 = type_is v0, int branch v1, b1, b2 b1: guard v1, exit0 guard v1, exit0 jump b3 b2: jump b4
             b3: guard v1, exit0 jump b4 b4: guard v1, exit0 return v0",
            "v1 = type_is v0, int branch v1, b1, b2 b1: guard v1, exit0 jump b3 b2: jump b4
             b3: jump b4 b4: guard v1, exit0 return v0",
        );
    }
}
