//! Control flow of a function: predecessors, reverse postorder, dominators.
//!
//! In: a function whose branch targets exist (others are ignored). Out: `dominates` in time of the tree's depth.
//! The method is Cooper, Harvey and Kennedy's: few blocks, no extra structure. Unreachable blocks dominate nothing.

use crate::entities::Block;
use crate::function::Function;
use crate::inst::Terminator;

/// The blocks that a terminator may go to, in order (the same block twice when both ways lead there).
pub fn successors(terminator: &Terminator) -> Vec<Block> {
    match terminator {
        Terminator::Jump(b, _) => vec![*b],
        Terminator::Branch { then, els, .. } => vec![then.0, els.0],
        Terminator::Return(_) | Terminator::Exit(_) => vec![],
    }
}

/// Dominator tree of a function.
#[derive(Clone, Debug)]
pub struct Dominators {
    /// Reachable blocks in reverse postorder; the entry is first.
    pub order: Vec<Block>,
    /// Position in `order`, `None` when unreachable.
    rank: Vec<Option<usize>>,
    /// Immediate dominator by rank; the entry's is itself.
    idom: Vec<usize>,
}

impl Dominators {
    /// Cost: a few passes over the edges.
    pub fn new(f: &Function) -> Dominators {
        let order = reverse_postorder(f);
        let mut rank = vec![None; f.blocks.len()];
        for (i, b) in order.iter().enumerate() {
            rank[b.index()] = Some(i);
        }
        let mut preds = vec![vec![]; order.len()];
        for (i, b) in order.iter().enumerate() {
            for s in block_successors(f, *b) {
                if let Some(to) = rank[s.index()] {
                    preds[to].push(i);
                }
            }
        }
        // `order.len()` stands for "not known yet".
        let unknown = order.len();
        let mut idom = vec![unknown; order.len()];
        if let Some(entry) = idom.first_mut() {
            *entry = 0;
        }
        let mut changed = true;
        while changed {
            changed = false;
            for i in 1..order.len() {
                let known = preds[i].iter().copied().filter(|p| idom[*p] != unknown);
                let new = known.reduce(|a, b| meet(&idom, a, b)).unwrap_or(unknown);
                changed |= std::mem::replace(&mut idom[i], new) != new;
            }
        }
        Dominators { order, rank, idom }
    }

    /// True when control can get there at all.
    pub fn reachable(&self, block: Block) -> bool {
        self.rank.get(block.index()).copied().flatten().is_some()
    }

    /// True when every way from the entry to `b` leads through `a` (a block dominates itself).
    pub fn dominates(&self, a: Block, b: Block) -> bool {
        let (Some(Some(a)), Some(Some(mut b))) =
            (self.rank.get(a.index()).copied(), self.rank.get(b.index()).copied())
        else {
            return false;
        };
        while b > a {
            b = self.idom[b];
        }
        a == b
    }
}

/// Nearest common dominator of two ranks.
fn meet(idom: &[usize], mut a: usize, mut b: usize) -> usize {
    while a != b {
        if a > b {
            a = idom[a];
        } else {
            b = idom[b];
        }
    }
    a
}

fn block_successors(f: &Function, block: Block) -> Vec<Block> {
    let terminator = f.blocks[block.index()].terminator.as_ref();
    let mut out = terminator.map_or(vec![], successors);
    out.retain(|b| b.index() < f.blocks.len());
    out
}

fn reverse_postorder(f: &Function) -> Vec<Block> {
    let mut post = Vec::new();
    if f.blocks.is_empty() {
        return post;
    }
    let mut seen = vec![false; f.blocks.len()];
    seen[0] = true;
    let mut work = vec![(Block(0), block_successors(f, Block(0)))];
    while let Some((block, rest)) = work.last_mut() {
        match rest.pop() {
            Some(next) if !seen[next.index()] => {
                seen[next.index()] = true;
                work.push((next, block_successors(f, next)));
            }
            Some(_) => {}
            None => {
                post.push(*block);
                work.pop();
            }
        }
    }
    post.reverse();
    post
}
