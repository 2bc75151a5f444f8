//! Removes pure instructions whose result nobody reads, and block parameters that nobody reads.
//!
//! Read is what an instruction with an effect or an exit reads, a slot of an exit that can be taken, a branch, a return,
//! and whatever read values are computed from. An operation that may leave is kept even when its result is not read:
//! it may be the division by zero that the program is there for.

use overdrive_base::table::Effect;

use crate::entities::Value;
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
        | Inst::Load(..)
        | Inst::PtrAdd(..) => true,
        Inst::Table { entry, fail, .. } => {
            let signature = entry.signature();
            fail.is_none() && signature.effect == Effect::Pure && signature.result.is_some()
        }
        Inst::Checked(..)
        | Inst::Guard(..)
        | Inst::ListSwap { .. }
        | Inst::Store(..)
        | Inst::IncRef(_)
        | Inst::DecRef { .. }
        | Inst::OwnArg(_)
        | Inst::Poll { .. } => false,
    }
}

/// Marks what is read, from the effects backwards.
fn live(f: &Function) -> Vec<bool> {
    // What makes a value: the operands of a removable instruction, or the arguments for a parameter.
    let mut sources: Vec<Vec<Value>> = vec![vec![]; f.n_values()];
    let mut work: Vec<Value> = Vec::new();
    for block in &f.blocks {
        for (inst, result) in &block.insts {
            match result {
                Some(v) if is_removable(inst) => sources[v.index()] = inst.operands(),
                _ => work.extend(inst.operands()),
            }
            work.extend(inst.exit().into_iter().flat_map(|e| f.exits[e.index()].values()));
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
            Some(Terminator::Exit(e)) => work.extend(f.exits[e.index()].values()),
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
