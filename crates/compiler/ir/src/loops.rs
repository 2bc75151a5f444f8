//! Natural loops of a function.
//!
//! In: a function and its dominators. Out: every loop with one header, outer loops before those inside them. The front
//! end makes no other kind; a cycle that is entered at two places is no loop here.

use std::collections::BTreeSet;

use crate::dominators::{Dominators, successors};
use crate::entities::Block;
use crate::function::Function;

/// A loop.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The only block that is entered from outside.
    pub header: Block,
    /// All blocks, those of inner loops and the header included.
    pub blocks: BTreeSet<Block>,
    /// The smallest loop around it, by its index.
    pub parent: Option<usize>,
}

/// All loops.
pub fn find(f: &Function, dominators: &Dominators) -> Vec<Loop> {
    let mut predecessors: Vec<Vec<Block>> = vec![vec![]; f.blocks.len()];
    let mut back: Vec<(Block, Block)> = vec![];
    for from in &dominators.order {
        for to in f.blocks[from.index()].terminator.as_ref().map_or(vec![], successors) {
            predecessors[to.index()].push(*from);
            if dominators.dominates(to, *from) {
                back.push((to, *from));
            }
        }
    }
    let mut loops: Vec<Loop> = vec![];
    for header in &dominators.order {
        let latches: Vec<Block> = back.iter().filter(|(h, _)| h == header).map(|(_, from)| *from).collect();
        if latches.is_empty() {
            continue;
        }
        let mut blocks = BTreeSet::from([*header]);
        let mut work = latches;
        while let Some(block) = work.pop() {
            if blocks.insert(block) {
                work.extend(&predecessors[block.index()]);
            }
        }
        loops.push(Loop { header: *header, blocks, parent: None });
    }
    loops.sort_by_key(|l| std::cmp::Reverse(l.blocks.len()));
    for inner in 0..loops.len() {
        let header = loops[inner].header;
        loops[inner].parent = (0..inner).rev().find(|outer| loops[*outer].blocks.contains(&header));
    }
    loops
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::dominators::Dominators;
    use crate::entities::Block;

    #[test]
    fn nested_loops_and_two_ways_back() {
        let text = "function \"f\" args 1 { b0(v0: obj): v1 = bconst true jump b1
            b1: branch v1, b2, b6 b2: branch v1, b3, b4 b3: branch v1, b2, b2 b4: branch v1, b1, b5 b5: jump b1
            b6: jump b7 b7: branch v1, b7, b8 b8: return v0 }";
        let f = crate::parse::parse(text).expect("parses");
        let loops = find(&f, &Dominators::new(&f));
        let found: Vec<_> = loops.iter().map(|l| (l.header.0, l.blocks.len(), l.parent)).collect();
        assert_eq!(found, [(1, 5, None), (2, 2, Some(0)), (7, 1, None)]);
        assert!(!loops[0].blocks.contains(&Block(6)));
    }
}
