//! Dominators and natural loops of ordinary flow.
//!
//! In: the graph. Out: for each block its immediate dominator and innermost
//! loop, for each loop its header, blocks, back edges and parent. Only
//! `Reach::Normal` blocks take part: a way back through a handler is the
//! interpreter's, which enters the loop again at its header.

use crate::cfg::{Cfg, Reach};

/// A natural loop. Back edges to one header make one loop.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The only block through which ordinary flow enters.
    pub header: usize,
    /// All its blocks, header and inner loops included, ascending.
    pub blocks: Vec<usize>,
    /// Blocks whose last instruction goes back to the header.
    pub back_edges: Vec<usize>,
    /// Edges `(from, to)` that leave it in ordinary flow.
    pub exits: Vec<(usize, usize)>,
    /// Index of the loop around it.
    pub parent: Option<usize>,
    /// 1 for an outermost loop.
    pub depth: u32,
}

/// All loops of a function.
#[derive(Clone, Debug)]
pub struct Loops {
    /// Outer loops before inner ones.
    pub loops: Vec<Loop>,
    /// By block: the innermost loop around it.
    pub innermost: Vec<Option<usize>>,
    /// By block: immediate dominator in ordinary flow; the entry's is itself,
    /// `None` for blocks that are not `Normal`.
    pub dominator: Vec<Option<usize>>,
    /// An edge goes back to a block that does not dominate its origin. No
    /// compiler makes one; such a function is left to the interpreter.
    pub irreducible: bool,
}

impl Loops {
    /// Finds them. Never fails.
    pub fn find(cfg: &Cfg) -> Loops {
        let position = positions(cfg);
        let dominator = dominators(cfg, &position);
        let mut found =
            Loops { loops: vec![], innermost: vec![None; cfg.blocks.len()], dominator, irreducible: false };
        // In reverse postorder an outer header precedes the inner ones.
        for &header in &cfg.order {
            let normal_preds = cfg.blocks[header].preds.iter().copied();
            let retreating = normal_preds.filter(|pred| position[*pred] >= position[header]);
            let (back_edges, other): (Vec<usize>, Vec<usize>) = retreating
                .filter(|pred| cfg.blocks[*pred].reach == Reach::Normal)
                .partition(|pred| found.dominates(header, *pred));
            found.irreducible |= !other.is_empty();
            if !back_edges.is_empty() {
                found.add(cfg, header, back_edges);
            }
        }
        found
    }

    /// Whether every path of ordinary flow to `below` passes through `above`.
    pub fn dominates(&self, above: usize, below: usize) -> bool {
        let mut at = below;
        loop {
            if at == above {
                return true;
            }
            match self.dominator[at] {
                Some(up) if up != at => at = up,
                _ => return false,
            }
        }
    }

    /// How many loops are around a block.
    pub fn depth(&self, block: usize) -> u32 {
        self.innermost[block].map_or(0, |at| self.loops[at].depth)
    }

    /// The loop with this header.
    pub fn with_header(&self, block: usize) -> Option<usize> {
        self.innermost[block].filter(|at| self.loops[*at].header == block)
    }

    fn add(&mut self, cfg: &Cfg, header: usize, back_edges: Vec<usize>) {
        let mut inside = vec![false; cfg.blocks.len()];
        inside[header] = true;
        let mut pending = back_edges.clone();
        while let Some(block) = pending.pop() {
            if !std::mem::replace(&mut inside[block], true) {
                let preds = cfg.blocks[block].preds.iter().copied();
                pending.extend(preds.filter(|pred| cfg.blocks[*pred].reach == Reach::Normal));
            }
        }
        let blocks: Vec<usize> = (0..inside.len()).filter(|block| inside[*block]).collect();
        let leaving = |from: usize| cfg.blocks[from].succs().map(move |to| (from, to));
        let exits = blocks.iter().flat_map(|from| leaving(*from)).filter(|(_, to)| !inside[*to]).collect();
        let parent = self.innermost[header];
        let depth = 1 + parent.map_or(0, |at| self.loops[at].depth);
        for block in &blocks {
            self.innermost[*block] = Some(self.loops.len());
        }
        self.loops.push(Loop { header, blocks, back_edges, exits, parent, depth });
    }
}

/// By block: its place in `Cfg::order`; `usize::MAX` for the others.
fn positions(cfg: &Cfg) -> Vec<usize> {
    let mut position = vec![usize::MAX; cfg.blocks.len()];
    for (at, block) in cfg.order.iter().enumerate() {
        position[*block] = at;
    }
    position
}

/// Cooper, Harvey, Kennedy: "A Simple, Fast Dominance Algorithm".
fn dominators(cfg: &Cfg, position: &[usize]) -> Vec<Option<usize>> {
    let mut dominator: Vec<Option<usize>> = vec![None; cfg.blocks.len()];
    let Some(&entry) = cfg.order.first() else { return dominator };
    dominator[entry] = Some(entry);
    let mut changed = true;
    while changed {
        changed = false;
        for &block in &cfg.order[1..] {
            let mut common = None;
            for &pred in &cfg.blocks[block].preds {
                // Not yet visited, or not in ordinary flow.
                if dominator[pred].is_none() {
                    continue;
                }
                common = Some(match common {
                    None => pred,
                    Some(other) => intersect(&dominator, position, pred, other),
                });
            }
            changed |= dominator[block] != common;
            dominator[block] = common;
        }
    }
    dominator
}

fn intersect(dominator: &[Option<usize>], position: &[usize], first: usize, second: usize) -> usize {
    let (mut a, mut b) = (first, second);
    while a != b {
        let later = if position[a] > position[b] { &mut a } else { &mut b };
        // Every visited block but the entry has a dominator closer to the entry.
        match dominator[*later] {
            Some(up) if up != *later => *later = up,
            _ => return *later,
        }
    }
    a
}
