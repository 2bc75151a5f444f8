//! Removes `incref v … decref v` inside a block.
//!
//! Proof rule. Let nothing between the two release a reference (`decref`, opaque entries, polls), read a count
//! (`is_unique`, opaque entries) or leave the function (guards, checked operations, entries that fail). At the
//! `incref` the object is alive by somebody's reference, and no reference ends before the `decref`; so without the pair
//! it stays alive as long, the `decref` would not have been the last, and the count, which is lower by one in between, is
//! read by nobody and is the same afterwards. References that are given away in between (`list_swap`) are given away
//! all the same. The null reference counts nothing. The order `decref … incref` is never touched: the first may free.

use overdrive_base::table::{Effect, Entry};

use crate::function::Function;
use crate::inst::Inst;

/// The pass. Cost: linear but for nested pairs.
pub fn run(f: &mut Function) {
    for block in &mut f.blocks {
        let mut kept = Vec::with_capacity(block.insts.len());
        for (inst, result) in block.insts.drain(..) {
            if let Inst::DecRef { obj, .. } = inst
                && let Some(i) = matching(&kept, |inst| *inst == Inst::IncRef(obj))
            {
                kept.remove(i);
                continue;
            }
            kept.push((inst, result));
        }
        block.insts = kept;
    }
}

/// The last instruction that fits, when only quiet ones follow it.
fn matching<T>(insts: &[(Inst, T)], fits: impl Fn(&Inst) -> bool) -> Option<usize> {
    for (i, (inst, _)) in insts.iter().enumerate().rev() {
        if fits(inst) {
            return Some(i);
        }
        if !is_quiet(inst) {
            return None;
        }
    }
    None
}

/// True when an instruction releases nothing, reads no count and can't leave.
fn is_quiet(inst: &Inst) -> bool {
    match inst {
        Inst::DecRef { .. } | Inst::Poll { .. } => false,
        Inst::Table { entry, fail, .. } => {
            fail.is_none() && entry.signature().effect == Effect::Pure && *entry != Entry::IsUnique
        }
        other => other.exit().is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::opt::testing::check;

    #[test]
    fn pairs_go_also_nested_ones() {
        check(
            run,
            "incref v0 v1 = list_len v0 v2 = list_get v0, v1 incref v2 v3 = is_null v2 decref v2 at 4 decref v0
             return v0",
            "v1 = list_len v0 v2 = list_get v0, v1 v3 = is_null v2 return v0",
        );
    }

    /// Texts that must stay as they are.
    #[track_caller]
    fn stays(text: &str) {
        check(run, text, text);
    }

    #[test]
    fn what_releases_in_between_keeps_the_pair() {
        stays("v1 = own_arg 0 incref v0 decref v1 decref v0 v2 = null return v2");
        stays("incref v0 v1 = null v2 = table call(v0, v1) at 2 else exit1 decref v0 return v2");
        stays("incref v0 poll at 2 else exit1 decref v0 return v0");
    }

    #[test]
    fn what_reads_the_count_keeps_the_pair() {
        stays("incref v0 v1 = table is_unique(v0) decref v0 return v0");
    }

    #[test]
    fn what_leaves_in_between_keeps_the_pair() {
        stays("incref v0 v1 = is_null v0 guard v1, exit0 decref v0 return v0");
        stays("incref v0 v1 = iconst 1 v2 = checked_add v1, v1, exit0 decref v0 return v0");
        stays("incref v0 v1 = table unbox_int(v0) else exit0 decref v0 return v0");
    }

    #[test]
    fn the_other_order_and_other_blocks_stay() {
        stays("decref v0 incref v0 return v0");
        stays("incref v0 jump b1 b1: decref v0 return v0");
    }

    #[test]
    fn a_reference_that_is_given_away_is_given_away_all_the_same() {
        check(
            run,
            "v1 = own_arg 0 v2 = list_len v0 incref v1 v3 = list_swap v0, v2, v1 decref v1 return v3",
            "v1 = own_arg 0 v2 = list_len v0 v3 = list_swap v0, v2, v1 return v3",
        );
    }
}
