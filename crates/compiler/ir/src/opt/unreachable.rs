//! Removes blocks that no way from the entry leads to; the others keep their order and move up.

use crate::dominators::reverse_postorder;
use crate::entities::Block;
use crate::function::Function;
use crate::inst::Terminator;

/// The pass.
pub fn run(f: &mut Function) {
    let order = reverse_postorder(f);
    if order.len() == f.blocks.len() {
        return;
    }
    let mut reachable = vec![false; f.blocks.len()];
    order.iter().for_each(|b| reachable[b.index()] = true);
    let mut new_number = vec![Block(0); f.blocks.len()];
    let mut kept = 0;
    for (i, number) in new_number.iter_mut().enumerate() {
        *number = Block(kept);
        kept += u32::from(reachable[i]);
    }
    let mut of_blocks = reachable.into_iter();
    f.blocks.retain(|_| of_blocks.next() == Some(true));
    // Successors of reachable blocks are reachable, so every number that is looked up was given.
    for block in &mut f.blocks {
        match &mut block.terminator {
            Some(Terminator::Jump(to, _)) => *to = new_number[to.index()],
            Some(Terminator::Branch { then, els, .. }) => {
                then.0 = new_number[then.0.index()];
                els.0 = new_number[els.0.index()];
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
    fn blocks_nobody_jumps_to_go_and_numbers_move_up() {
        check(
            run,
            "v1 = bconst true branch v1, b2, b4 b1: jump b3 b2: jump b4 b3: jump b1 b4: return v0",
            "v1 = bconst true branch v1, b1, b2 b1: jump b2 b2: return v0",
        );
    }

    #[test]
    fn loops_stay() {
        let text = "jump b1 b1: v1 = bconst true branch v1, b1, b2 b2: return v0";
        check(run, text, text);
    }
}
