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
        let preds = Predecessors::new(f, &order, &rank);
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
                let known = preds.of(i).iter().copied().filter(|p| idom[*p] != unknown);
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

/// Predecessors by rank, all in one vector: the tree is made for every pass anew, and small vectors would cost more than it.
struct Predecessors {
    /// Where those of each rank begin, and at last where they end.
    starts: Vec<usize>,
    all: Vec<usize>,
}

impl Predecessors {
    fn new(f: &Function, order: &[Block], rank: &[Option<usize>]) -> Predecessors {
        let edges = || {
            let from = order.iter().enumerate();
            from.flat_map(|(i, b)| targets(f, *b).into_iter().flatten().map(move |to| (i, to)))
                .filter_map(|(i, to)| Some((i, rank[to.index()]?)))
        };
        let mut starts = vec![0; order.len() + 1];
        edges().for_each(|(_, to)| starts[to + 1] += 1);
        for i in 0..order.len() {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut all = vec![0; starts[order.len()]];
        for (from, to) in edges() {
            all[next[to]] = from;
            next[to] += 1;
        }
        Predecessors { starts, all }
    }

    fn of(&self, rank: usize) -> &[usize] {
        &self.all[self.starts[rank]..self.starts[rank + 1]]
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

/// As `successors`, those that exist.
fn targets(f: &Function, block: Block) -> [Option<Block>; 2] {
    let targets = match &f.blocks[block.index()].terminator {
        Some(Terminator::Jump(b, _)) => [Some(*b), None],
        Some(Terminator::Branch { then, els, .. }) => [Some(then.0), Some(els.0)],
        Some(Terminator::Return(_) | Terminator::Exit(_)) | None => [None, None],
    };
    targets.map(|to| to.filter(|b| b.index() < f.blocks.len()))
}

/// Reachable blocks, each before those that it dominates.
pub fn reverse_postorder(f: &Function) -> Vec<Block> {
    let mut post = Vec::with_capacity(f.blocks.len());
    if f.blocks.is_empty() {
        return post;
    }
    let mut seen = vec![false; f.blocks.len()];
    seen[0] = true;
    let mut work = vec![(Block(0), targets(f, Block(0)))];
    while let Some((block, [first, second])) = work.last_mut() {
        match second.take().or_else(|| first.take()) {
            Some(next) if !seen[next.index()] => {
                seen[next.index()] = true;
                work.push((next, targets(f, next)));
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
