//! Visits every use of a value for writing: what all passes share.

use crate::entities::Value;
use crate::exit::Slot;
use crate::function::Function;
use crate::inst::{Inst, Terminator};

/// Replaces every use of a value (operands, block arguments, exit slots) by what `replace` gives; definitions stay.
pub(super) fn replace_uses(f: &mut Function, mut replace: impl FnMut(Value) -> Value) {
    let mut visit = |v: &mut Value| *v = replace(*v);
    for block in &mut f.blocks {
        for (inst, _) in &mut block.insts {
            each_operand(inst, &mut visit);
        }
        if let Some(t) = &mut block.terminator {
            each_terminator_operand(t, &mut visit);
        }
    }
    for exit in &mut f.exits {
        for slot in exit.locals.iter_mut().chain(&mut exit.stack) {
            each_slot_value(slot, &mut visit);
        }
    }
}

/// Follows a chain of replacements to its end. Chains have no cycles: each replaces a value by one that was there before.
pub(super) fn resolve(map: &[Option<Value>], mut v: Value) -> Value {
    while let Some(Some(next)) = map.get(v.index()) {
        v = *next;
    }
    v
}

pub(super) fn each_operand(inst: &mut Inst, visit: &mut dyn FnMut(&mut Value)) {
    match inst {
        Inst::IConst(_)
        | Inst::FConst(_)
        | Inst::F32Const(_)
        | Inst::BConst(_)
        | Inst::OConst(_)
        | Inst::Null
        | Inst::HasFrame
        | Inst::OwnArg(_)
        | Inst::Poll { .. } => {}
        Inst::Int(_, a, b)
        | Inst::Checked(_, a, b, _)
        | Inst::ICmp(_, a, b)
        | Inst::ULt(a, b)
        | Inst::Float(_, a, b)
        | Inst::FCmp(_, a, b)
        | Inst::Bool(_, a, b)
        | Inst::Same(a, b)
        | Inst::ItemGet(_, a, b)
        | Inst::Store(_, a, b)
        | Inst::AttrSwap { obj: a, item: b, .. }
        | Inst::PtrAdd(a, b) => [a, b].into_iter().for_each(visit),
        Inst::FloatUnary(_, a)
        | Inst::IntToFloat(a)
        | Inst::FloatToInt(a)
        | Inst::F32ToF64(a)
        | Inst::F64ToF32(a)
        | Inst::Not(a)
        | Inst::BoolToInt(a)
        | Inst::Guard(a, _)
        | Inst::TypeIs(a, _)
        | Inst::VersionIs(a, _)
        | Inst::KeepsValues { obj: a, .. }
        | Inst::AttrGet(_, a)
        | Inst::IsNull(a)
        | Inst::Unbox(_, a)
        | Inst::Field(_, a)
        | Inst::Load(_, a)
        | Inst::IncRef(a)
        | Inst::ArrayIs { array: a, .. }
        | Inst::DecRef { obj: a, .. } => visit(a),
        Inst::Select(a, b, c)
        | Inst::ListSwap { list: a, index: b, item: c }
        | Inst::AttrSet { obj: a, old: b, value: c, .. } => {
            [a, b, c].into_iter().for_each(visit);
        }
        Inst::Table { args, .. } | Inst::CallRoutine { args, .. } => args.iter_mut().for_each(visit),
    }
}

pub(super) fn each_terminator_operand(t: &mut Terminator, visit: &mut dyn FnMut(&mut Value)) {
    match t {
        Terminator::Jump(_, args) => args.iter_mut().for_each(visit),
        Terminator::Branch { cond, then, els } => {
            visit(cond);
            then.1.iter_mut().chain(&mut els.1).for_each(visit);
        }
        Terminator::Return(v) => visit(v),
        Terminator::Exit(_) => {}
    }
}

pub(super) fn each_slot_value(slot: &mut Slot, visit: &mut dyn FnMut(&mut Value)) {
    match slot {
        Slot::Empty | Slot::None | Slot::Const(_) => {}
        Slot::Obj(v, _) => visit(v),
        Slot::Number { value, boxed, .. } => {
            visit(value);
            if let Some((b, _)) = boxed {
                visit(b);
            }
        }
        Slot::Either { cond, then, els } => {
            visit(cond);
            each_slot_value(then, visit);
            each_slot_value(els, visit);
        }
        Slot::Tuple(parts) | Slot::Zip(parts) => parts.iter_mut().for_each(|p| each_slot_value(p, visit)),
        Slot::RangeIter { next, stop, step } => [next, stop, step].into_iter().for_each(visit),
        Slot::SeqIter { seq, position } => {
            each_slot_value(seq, visit);
            visit(position);
        }
        Slot::Enumerate { count, iter } => {
            visit(count);
            each_slot_value(iter, visit);
        }
    }
}
