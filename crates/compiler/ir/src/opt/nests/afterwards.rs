//! Sums whose terms need no look at the elements: behind a strip the sums themselves tell. Only with `fastmath`, where a
//! second reading of the arrays would take as long as the sum.
//!
//! In: a plan for one loop that stores nothing and has no check left. Out: the sums that must be finite behind each strip.
//! A result that is not finite (what NumPy may warn about) makes the sum so, and it stays so. The loop with checks
//! then goes on from where the strip began: nothing but numbers has to be undone.

use std::collections::BTreeSet;

use super::elements::Asked;
use super::plan::Planner;
use crate::entities::{Block, Value};
use crate::inst::Terminator;
use crate::opt::quiet::hands_on;

impl Planner<'_, '_> {
    /// The header's parameters to look at behind a strip instead of at elements before it; `None` if these do not tell.
    pub(super) fn telling_sums(&self) -> Option<Vec<Value>> {
        let (hot, plan) = (self.hot, &self.plan);
        let is_clean = plan.open.is_empty() && plan.stays.is_empty() && plan.fast.is_empty();
        if !hot.f.fastmath || hot.loops.len() != 1 || !self.stores.is_empty() || !is_clean {
            return None;
        }
        let header = hot.loops[0].header;
        let later = self.later_blocks()?;
        let next = |param: Value| {
            let mut around = hot.incoming(param).iter().filter(|(from, _)| later.contains(from));
            around.next().map(|(_, v)| *v).filter(|v| around.all(|(_, other)| other == v))
        };
        let params = &hot.f.blocks[header.index()].params;
        let sums: Vec<(Value, Value)> = params
            .iter()
            .filter_map(|param| Some((*param, next(*param)?)))
            .filter(|(param, next)| param != next && self.reached(*param, &later).contains(next))
            .collect();
        let mut telling = BTreeSet::new();
        for check in &self.floats {
            let Asked::Branch { block, .. } = check.asked else { return None };
            if later.contains(&block) {
                let reached = self.reached(check.result, &later);
                telling.insert(sums.iter().find(|(_, next)| reached.contains(next))?.0);
            }
        }
        (!telling.is_empty()).then(|| telling.into_iter().collect())
    }

    /// The blocks of all iterations but a first one that differs; `None` unless each of these runs all of them.
    fn later_blocks(&self) -> Option<BTreeSet<Block>> {
        let hot = self.hot;
        let header = hot.loops[0].header;
        let params = &hot.f.blocks[header.index()].params;
        let flags: Vec<Value> =
            self.plan.flags.get(&0).map_or(vec![], |flags| flags.iter().map(|i| params[*i]).collect());
        let (mut later, mut work) = (BTreeSet::new(), vec![header]);
        while let Some(block) = work.pop() {
            if !hot.blocks.contains(&block) || !later.insert(block) {
                continue;
            }
            let ways = match &hot.f.blocks[block.index()].terminator {
                Some(Terminator::Branch { cond, els, .. }) if flags.contains(cond) => vec![els.0],
                _ => hot.usual_successors(block),
            };
            if block != header && ways.len() != 1 {
                return None;
            }
            work.extend(ways);
        }
        Some(later)
    }

    /// A value, and what is not finite in the same iteration whenever it is not.
    fn reached(&self, from: Value, later: &BTreeSet<Block>) -> BTreeSet<Value> {
        let hot = self.hot;
        let header = hot.loops[0].header;
        let mut reached = BTreeSet::from([from]);
        for block in hot.order.iter().filter(|block| later.contains(block)) {
            let data = &hot.f.blocks[block.index()];
            for param in data.params.iter().filter(|_| *block != header) {
                let mut incoming = hot.incoming(*param).iter().filter(|(from, _)| later.contains(from));
                if incoming.all(|(_, v)| reached.contains(v)) {
                    reached.insert(*param);
                }
            }
            for (inst, result) in &data.insts {
                let is_reached = hands_on(inst, |v| reached.contains(&v));
                reached.extend(result.filter(|_| is_reached));
            }
        }
        reached
    }
}
