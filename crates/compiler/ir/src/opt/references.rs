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
