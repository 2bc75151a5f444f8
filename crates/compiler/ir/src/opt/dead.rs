//! Removes pure instructions whose result nobody reads, and block parameters that nobody reads.
//!
//! Read is what an instruction with an effect or an exit reads, a slot of an exit that can be taken, a branch, a return,
//! and whatever read values are computed from. An operation that may leave is kept even when its result is not read:
//! it may be the division by zero that the program is there for.

use overdrive_base::table::Effect;

use crate::entities::{ExitId, Value};
use crate::function::Function;
use crate::inst::{Inst, Terminator};
use crate::opt::params::drop_params;

/// The pass.
pub fn run(f: &mut Function) {
    let live = live(f);
    for block in &mut f.blocks {
        block.insts.retain(|(inst, result)| !is_removable(inst) || result.is_none_or(|v| live[v.index()]));
    }
    drop_params(f, |v| !live[v.index()]);
}

/// True when nothing but the result comes of it. The match is complete so that a new instruction must be judged.
fn is_removable(inst: &Inst) -> bool {
    match inst {
        Inst::IConst(_)
        | Inst::FConst(_)
        | Inst::F32Const(_)
        | Inst::BConst(_)
        | Inst::OConst(_)
        | Inst::Null
        | Inst::HasFrame
        | Inst::Int(..)
        | Inst::ICmp(..)
        | Inst::ULt(..)
        | Inst::Float(..)
        | Inst::FloatUnary(..)
        | Inst::FCmp(..)
        | Inst::IntToFloat(_)
        | Inst::FloatToInt(_)
        | Inst::F32ToF64(_)
        | Inst::F64ToF32(_)
        | Inst::Bool(..)
        | Inst::Not(_)
        | Inst::BoolToInt(_)
        | Inst::Select(..)
        | Inst::TypeIs(..)
        | Inst::Same(..)
        | Inst::IsNull(_)
        | Inst::ArrayIs { .. }
        | Inst::Unbox(..)
        | Inst::Field(..)
        | Inst::ItemGet(..)
        | Inst::VersionIs(..)
        | Inst::KeepsValues { .. }
        | Inst::AttrGet(..)
        | Inst::Load(..)
        | Inst::PtrAdd(..) => true,
        Inst::Table { entry, fail, .. } => {
            let signature = entry.signature();
            fail.is_none() && signature.effect == Effect::Pure && signature.result.is_some()
        }
        Inst::Checked(..)
        | Inst::Guard(..)
        | Inst::ListSwap { .. }
        | Inst::AttrSwap { .. }
        | Inst::AttrSet { .. }
        | Inst::Store(..)
        | Inst::IncRef(_)
        | Inst::DecRef { .. }
        | Inst::OwnArg(_)
        | Inst::CallRoutine { .. }
        | Inst::Poll { .. } => false,
    }
}

/// Marks what is read, from the effects backwards.
fn live(f: &Function) -> Vec<bool> {
    // What makes a value: the operands of a removable instruction, or the arguments for a parameter.
    let mut sources: Vec<Vec<Value>> = vec![vec![]; f.n_values()];
    let mut work: Vec<Value> = Vec::new();
    // Many instructions share an exit, which has many values.
    let mut is_read = vec![false; f.exits.len()];
    let mut exit = |e: ExitId, work: &mut Vec<Value>| {
        if !std::mem::replace(&mut is_read[e.index()], true) {
            f.exits[e.index()].each_value(&mut |v| work.push(v));
        }
    };
    for block in &f.blocks {
        for (inst, result) in &block.insts {
            match result {
                Some(v) if is_removable(inst) => sources[v.index()] = inst.operands(),
                _ => work.extend(inst.operands()),
            }
            inst.exit().into_iter().for_each(|e| exit(e, &mut work));
        }
        let mut edge = |to: usize, args: &[Value]| {
            for (param, arg) in f.blocks[to].params.iter().zip(args) {
                sources[param.index()].push(*arg);
            }
        };
        match &block.terminator {
            Some(Terminator::Jump(to, args)) => edge(to.index(), args),
            Some(Terminator::Branch { cond, then, els }) => {
                edge(then.0.index(), &then.1);
                edge(els.0.index(), &els.1);
                work.push(*cond);
            }
            Some(Terminator::Return(v)) => work.push(*v),
            Some(Terminator::Exit(e)) => exit(*e, &mut work),
            None => {}
        }
    }
    let mut live = vec![false; f.n_values()];
    while let Some(v) = work.pop() {
        if !std::mem::replace(&mut live[v.index()], true) {
            work.extend(&sources[v.index()]);
        }
    }
    live
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::opt::testing::check;

    #[test]
    fn unread_results_go_with_what_they_are_made_of() {
        check(
            run,
            "v1 = iconst 1 v2 = iadd v1, v1 v3 = list_len v0 v4 = table is_unique(v0) v5 = bconst true
             guard v5, exit0 return v0",
            "v5 = bconst true guard v5, exit0 return v0",
        );
    }

    #[test]
    fn what_may_leave_or_has_an_effect_stays() {
        let text = "v1 = iconst 1 v2 = checked_add v1, v1, exit0 v3 = table unbox_int(v0) else exit0
                    v4 = own_arg 0 v5 = table next(v0) at 2 v6 = iconst 0 table observe(v6, v0)
                    v7 = table next_failed() else exit1 return v0";
        let before = text.replace("v6 = iconst 0", "v6 = iconst 0 v8 = iconst 2");
        // No profile slot is declared, so the slot's number must not be a known constant.
        let unknown = |s: &str| s.replace("v6 = iconst 0", "v6 = list_len v0");
        check(run, &unknown(&before), &unknown(text));
    }

    #[test]
    fn parameters_that_only_feed_each_other_go() {
        check(
            run,
            "v1 = iconst 1 v2 = iconst 3 jump b1(v1, v2)
             b1(v3: i64, v4: i64): v5 = iadd v3, v1 v6 = isub v4, v1 v7 = icmp gt, v6, v1
             branch v7, b1(v5, v6), b2(v3) b2(v8: i64): return v0",
            "v1 = iconst 1 v2 = iconst 3 jump b1(v2)
             b1(v4: i64): v6 = isub v4, v1 v7 = icmp gt, v6, v1
             branch v7, b1(v6), b2 b2: return v0",
        );
    }
}
