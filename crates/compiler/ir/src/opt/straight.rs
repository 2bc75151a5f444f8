//! Makes one block of two that follow each other without a choice.
//!
//! Copies without checks are full of them; who compares what two ways do would have to look through them.

use crate::entities::Block;
use crate::function::Function;
use crate::inst::Terminator;
use crate::opt::rewrite::{replace_uses, resolve};
use crate::opt::unreachable;

/// The pass.
pub fn run(f: &mut Function) {
    let mut n_ways = vec![0u32; f.blocks.len()];
    n_ways[0] = 1; // the caller's
    for block in &f.blocks {
        for to in block.terminator.iter().flat_map(crate::dominators::successors) {
            n_ways[to.index()] += 1;
        }
    }
    let mut same = vec![None; f.n_values()];
    let mut found = false;
    for at in 0..f.blocks.len() {
        // What is appended may end in such a jump again.
        while let Some(next) = continuation(f, at, &n_ways) {
            let data = std::mem::take(&mut f.blocks[next.index()]);
            let Some(Terminator::Jump(_, args)) = f.blocks[at].terminator.take() else { break };
            for (param, arg) in data.params.iter().zip(args) {
                same[param.index()] = Some(arg);
            }
            let block = &mut f.blocks[at];
            block.insts.extend(data.insts);
            block.terminator = data.terminator;
            block.offset = block.offset.or(data.offset);
            found = true;
        }
    }
    if found {
        replace_uses(f, |v| resolve(&same, v));
        unreachable::run(f);
    }
}

/// The block that only this one leads to, as the only one.
fn continuation(f: &Function, at: usize, n_ways: &[u32]) -> Option<Block> {
    match &f.blocks[at].terminator {
        Some(Terminator::Jump(to, _))
            if n_ways[to.index()] == 1
                && to.index() != at
                && f.blocks[to.index()].cold == f.blocks[at].cold =>
        {
            Some(*to)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::opt::testing::check;

    #[test]
    fn chains_become_one_block_and_parameters_their_arguments() {
        check(
            run,
            "v1 = iconst 1 jump b2(v1) b1(v2: i64): v3 = iadd v2, v1 jump b3(v3) b2(v4: i64): v5 = iadd v4, v4 jump b1(v5)
             b3(v6: i64): v7 = iadd v6, v4 return v0",
            "v1 = iconst 1 v5 = iadd v1, v1 v3 = iadd v5, v1 v7 = iadd v3, v1 return v0",
        );
    }

    #[test]
    fn joins_loops_and_ways_aside_stay() {
        let text =
            "v1 = bconst true branch v1, b1, b2 b1: jump b3 b2: jump b3 b3: jump b4 b4: branch v1, b4, b5
                    b5 cold: return v0";
        check(run, text, text);
        let around = "jump b1 b1: jump b1";
        check(run, around, around);
    }
}
