//! Instructions of one CPython version → `op::Instr`, the same for all.
//!
//! In: a code object. Out: normalised instructions in code order, every index
//! and jump target checked, so that later stages may index without asking.
//! Superinstructions are split (`sub`), call set-up is folded into the call.
//! Specialised and instrumented opcodes never appear: `co_code` hides them.

use crate::code::{CodeObject, PyVersion};
use crate::decode::{RawInstr, UNIT, decode};
use crate::error::BytecodeError;
use crate::op::{
    BinaryKind, CompareKind, ConstIdx, Conversion, GlobalNull, Instr, JumpIf, LocalIdx, NameIdx, Offset, Op,
    UnaryKind,
};
use crate::opcodes::{self, Opcode};
use crate::tables;

/// All instructions of a code object, in code order.
///
/// # Errors
/// Everything but the stack errors of `BytecodeError`.
pub fn normalise(code: &CodeObject) -> Result<Vec<Instr>, BytecodeError> {
    let raw = decode(code.version, &code.code)?;
    let positions = tables::positions(code)?;
    let mut out = Vec::with_capacity(raw.len() + raw.len() / 4);
    let mut at = 0;
    while at < raw.len() {
        let (n_raw, working, ops) = translate(code, &raw[at..])?;
        let (offset, op_offset) = (raw[at].start, raw[at + working].offset);
        let next_offset = raw[at + n_raw - 1].next;
        let position = positions[(op_offset / UNIT) as usize];
        for (sub, op) in ops.into_iter().flatten().enumerate() {
            out.push(Instr { offset, op_offset, next_offset, sub: sub as u8, op, position });
        }
        at += n_raw;
    }
    check_targets(&out)?;
    Ok(out)
}

/// Up to two operations that one instruction (or a folded group) becomes.
type Ops = [Option<Op>; 2];

/// Translates the first instruction of `raw`, with those that are folded into
/// it. Returns how many were used, which of them does the work, and the result.
fn translate(code: &CodeObject, raw: &[RawInstr]) -> Result<(usize, usize, Ops), BytecodeError> {
    let first = raw[0];
    match first.opcode {
        // 3.11: [KW_NAMES] PRECALL CALL; 3.12: [KW_NAMES] CALL.
        Opcode::KwNames | Opcode::Precall => {
            let mut working = 0;
            let mut kw_names = None;
            if first.opcode == Opcode::KwNames {
                kw_names = Some(const_idx(code, first)?);
                working += 1;
            }
            if raw.get(working).is_some_and(|next| next.opcode == Opcode::Precall) {
                working += 1;
            }
            match raw.get(working) {
                Some(call) if call.opcode == Opcode::Call => {
                    Ok((working + 1, working, one(Op::Call { n_args: call.arg, kw_names })))
                }
                _ => Err(BytecodeError::UnpairedCall { offset: first.offset }),
            }
        }
        // 3.13: the names tuple is pushed right before CALL_KW.
        Opcode::LoadConst if raw.get(1).is_some_and(|next| next.opcode == Opcode::CallKw) => {
            let call = Op::Call { n_args: raw[1].arg, kw_names: Some(const_idx(code, first)?) };
            Ok((2, 1, one(call)))
        }
        _ => Ok((1, 0, translate_one(code, first)?)),
    }
}

fn translate_one(code: &CodeObject, raw: RawInstr) -> Result<Ops, BytecodeError> {
    let arg = raw.arg;
    let version = code.version;
    let name = |n: u32| name_idx(code, raw, n);
    let local = |n: u32| local_idx(code, raw, n);
    let forward = || jump_target(raw, true);
    let backward = || jump_target(raw, false);
    let jump_if = |cond, target: Result<Offset, BytecodeError>| {
        target.map(|target| one(Op::PopJumpIf { cond, target }))
    };
    let op = match raw.opcode {
        Opcode::Nop => Op::Nop,
        Opcode::Resume => Op::Resume(arg),
        Opcode::MakeCell => Op::MakeCell(local(arg)?),
        Opcode::CopyFreeVars => {
            if arg as usize > code.localsplus.len() {
                return Err(bad_argument(raw));
            }
            Op::CopyFreeVars(arg)
        }

        Opcode::LoadFast => return load_fast(code, raw, arg).map(one),
        Opcode::LoadFastCheck => Op::LoadFast { local: local(arg)?, check: true },
        Opcode::LoadFastLoadFast => {
            return Ok([Some(load_fast(code, raw, arg >> 4)?), Some(load_fast(code, raw, arg & 15)?)]);
        }
        Opcode::StoreFast => Op::StoreFast(local(arg)?),
        Opcode::StoreFastLoadFast => {
            return Ok([Some(Op::StoreFast(local(arg >> 4)?)), Some(load_fast(code, raw, arg & 15)?)]);
        }
        Opcode::StoreFastStoreFast => {
            return Ok([Some(Op::StoreFast(local(arg >> 4)?)), Some(Op::StoreFast(local(arg & 15)?))]);
        }
        Opcode::DeleteFast => Op::DeleteFast(local(arg)?),
        Opcode::LoadFastAndClear => Op::LoadFastAndClear(local(arg)?),
        Opcode::LoadClosure => Op::LoadClosure(local(arg)?),
        Opcode::LoadDeref => Op::LoadDeref(local(arg)?),
        Opcode::StoreDeref => Op::StoreDeref(local(arg)?),
        Opcode::DeleteDeref => Op::DeleteDeref(local(arg)?),
        Opcode::LoadConst => Op::LoadConst(const_idx(code, raw)?),
        Opcode::ReturnConst => {
            return Ok([Some(Op::LoadConst(const_idx(code, raw)?)), Some(Op::ReturnValue)]);
        }
        Opcode::LoadGlobal => {
            Op::LoadGlobal { name: name(arg >> 1)?, null: global_null(version, arg & 1 != 0) }
        }
        Opcode::StoreGlobal => Op::StoreGlobal(name(arg)?),
        Opcode::DeleteGlobal => Op::DeleteGlobal(name(arg)?),
        Opcode::LoadName => Op::LoadName(name(arg)?),
        Opcode::StoreName => Op::StoreName(name(arg)?),
        Opcode::DeleteName => Op::DeleteName(name(arg)?),
        Opcode::LoadLocals => Op::LoadLocals,
        Opcode::LoadClassderef => {
            return Ok([Some(Op::LoadLocals), Some(Op::LoadFromDictOrDeref(local(arg)?))]);
        }
        Opcode::LoadFromDictOrDeref => Op::LoadFromDictOrDeref(local(arg)?),
        Opcode::LoadFromDictOrGlobals => Op::LoadFromDictOrGlobals(name(arg)?),

        Opcode::LoadAttr => match version {
            PyVersion::V311 => Op::LoadAttr(name(arg)?),
            PyVersion::V312 | PyVersion::V313 if arg & 1 != 0 => Op::LoadMethod(name(arg >> 1)?),
            PyVersion::V312 | PyVersion::V313 => Op::LoadAttr(name(arg >> 1)?),
        },
        Opcode::LoadMethod => Op::LoadMethod(name(arg)?),
        Opcode::StoreAttr => Op::StoreAttr(name(arg)?),
        Opcode::DeleteAttr => Op::DeleteAttr(name(arg)?),
        Opcode::LoadSuperAttr => {
            Op::LoadSuperAttr { name: name(arg >> 2)?, method: arg & 1 != 0, two_args: arg & 2 != 0 }
        }
        Opcode::BinarySubscr => Op::BinarySubscr,
        Opcode::StoreSubscr => Op::StoreSubscr,
        Opcode::DeleteSubscr => Op::DeleteSubscr,
        Opcode::BinarySlice => Op::BinarySlice,
        Opcode::StoreSlice => Op::StoreSlice,
        Opcode::BuildSlice => match arg {
            2 => Op::BuildSlice { with_step: false },
            3 => Op::BuildSlice { with_step: true },
            _ => return Err(bad_argument(raw)),
        },

        Opcode::BinaryOp => binary_op(raw)?,
        Opcode::UnaryNegative => Op::UnaryOp(UnaryKind::Negative),
        Opcode::UnaryPositive => Op::UnaryOp(UnaryKind::Positive),
        Opcode::UnaryInvert => Op::UnaryOp(UnaryKind::Invert),
        Opcode::UnaryNot => Op::UnaryOp(UnaryKind::Not),
        Opcode::CompareOp => compare(version, raw)?,
        Opcode::IsOp => Op::IsOp { invert: arg != 0 },
        Opcode::ContainsOp => Op::ContainsOp { invert: arg != 0 },
        Opcode::ToBool => Op::ToBool,

        Opcode::PopTop => Op::Pop,
        Opcode::Copy if arg >= 1 => Op::Copy(arg),
        Opcode::Swap if arg >= 1 => Op::Swap(arg),
        Opcode::Copy | Opcode::Swap => return Err(bad_argument(raw)),
        Opcode::PushNull => Op::PushNull,

        Opcode::JumpForward => Op::Jump { target: forward()?, polls: false },
        Opcode::JumpBackward => Op::Jump { target: backward()?, polls: true },
        Opcode::JumpBackwardNoInterrupt => Op::Jump { target: backward()?, polls: false },
        Opcode::PopJumpIfTrue | Opcode::PopJumpForwardIfTrue => return jump_if(JumpIf::True, forward()),
        Opcode::PopJumpIfFalse | Opcode::PopJumpForwardIfFalse => return jump_if(JumpIf::False, forward()),
        Opcode::PopJumpIfNone | Opcode::PopJumpForwardIfNone => return jump_if(JumpIf::None, forward()),
        Opcode::PopJumpIfNotNone | Opcode::PopJumpForwardIfNotNone => {
            return jump_if(JumpIf::NotNone, forward());
        }
        Opcode::PopJumpBackwardIfTrue => return jump_if(JumpIf::True, backward()),
        Opcode::PopJumpBackwardIfFalse => return jump_if(JumpIf::False, backward()),
        Opcode::PopJumpBackwardIfNone => return jump_if(JumpIf::None, backward()),
        Opcode::PopJumpBackwardIfNotNone => return jump_if(JumpIf::NotNone, backward()),
        Opcode::JumpIfTrueOrPop => Op::JumpIfOrPop { jump_if_true: true, target: forward()? },
        Opcode::JumpIfFalseOrPop => Op::JumpIfOrPop { jump_if_true: false, target: forward()? },
        Opcode::GetIter => Op::GetIter,
        // 3.12 skips END_FOR when the iterator is exhausted, 3.13 also POP_TOP.
        Opcode::ForIter => match version {
            PyVersion::V311 => Op::ForIter { end: forward()? },
            PyVersion::V312 => Op::ForIter { end: forward()?.saturating_add(UNIT) },
            PyVersion::V313 => Op::ForIter { end: forward()?.saturating_add(2 * UNIT) },
        },
        Opcode::EndFor => Op::EndFor(match version {
            PyVersion::V311 | PyVersion::V312 => 2,
            PyVersion::V313 => 1,
        }),
        Opcode::ReturnValue => Op::ReturnValue,

        Opcode::Call => Op::Call { n_args: arg, kw_names: None },
        Opcode::CallFunctionEx => Op::CallFunctionEx { has_kwargs: arg & 1 != 0 },
        Opcode::MakeFunction => Op::MakeFunction {
            flags: match version {
                PyVersion::V311 | PyVersion::V312 => arg & 15,
                PyVersion::V313 => 0,
            },
        },
        Opcode::SetFunctionAttribute => Op::SetFunctionAttribute(arg),

        Opcode::BuildTuple => Op::BuildTuple(arg),
        Opcode::BuildList => Op::BuildList(arg),
        Opcode::BuildSet => Op::BuildSet(arg),
        Opcode::BuildMap => Op::BuildMap(arg),
        Opcode::BuildConstKeyMap => Op::BuildConstKeyMap(arg),
        Opcode::BuildString => Op::BuildString(arg),
        Opcode::ListAppend => Op::ListAppend(arg),
        Opcode::ListExtend => Op::ListExtend(arg),
        Opcode::SetAdd => Op::SetAdd(arg),
        Opcode::SetUpdate => Op::SetUpdate(arg),
        Opcode::MapAdd => Op::MapAdd(arg),
        Opcode::DictUpdate => Op::DictUpdate(arg),
        Opcode::DictMerge => Op::DictMerge(arg),
        Opcode::ListToTuple => Op::ListToTuple,
        Opcode::UnpackSequence => Op::UnpackSequence(arg),
        Opcode::UnpackEx => Op::UnpackEx { before: arg & 0xff, after: arg >> 8 },
        Opcode::FormatValue => {
            Op::FormatValue { conversion: conversion(raw, arg & 3)?, with_spec: arg & 4 != 0 }
        }
        Opcode::FormatSimple => Op::FormatValue { conversion: Conversion::None, with_spec: false },
        Opcode::FormatWithSpec => Op::FormatValue { conversion: Conversion::None, with_spec: true },
        Opcode::ConvertValue => Op::ConvertValue(conversion(raw, arg)?),

        Opcode::RaiseVarargs if arg <= 2 => Op::Raise(arg),
        Opcode::RaiseVarargs => return Err(bad_argument(raw)),
        Opcode::Reraise => Op::Reraise { lasti: arg },
        Opcode::PushExcInfo => Op::PushExcInfo,
        Opcode::PopExcept => Op::PopExcept,
        Opcode::CheckExcMatch => Op::CheckExcMatch,
        Opcode::CheckEgMatch => Op::CheckEgMatch,
        Opcode::BeforeWith => Op::BeforeWith,
        Opcode::WithExceptStart => Op::WithExceptStart,
        Opcode::LoadAssertionError => Op::LoadAssertionError,
        Opcode::PrepReraiseStar => Op::PrepReraiseStar,

        Opcode::ImportName => Op::ImportName(name(arg)?),
        Opcode::ImportFrom => Op::ImportFrom(name(arg)?),
        Opcode::ImportStar => Op::ImportStar { pushes_none: false },
        Opcode::LoadBuildClass => Op::LoadBuildClass,
        Opcode::SetupAnnotations => Op::SetupAnnotations,

        Opcode::GetLen => Op::GetLen,
        Opcode::MatchMapping => Op::MatchMapping,
        Opcode::MatchSequence => Op::MatchSequence,
        Opcode::MatchKeys => Op::MatchKeys,
        Opcode::MatchClass => Op::MatchClass(arg),

        Opcode::ReturnGenerator => Op::ReturnGenerator,
        Opcode::YieldValue => Op::YieldValue,
        Opcode::Send => Op::Send { target: forward()?, pops_receiver: version == PyVersion::V311 },
        Opcode::EndSend => Op::EndSend,
        Opcode::CleanupThrow => Op::CleanupThrow,
        Opcode::GetYieldFromIter => Op::GetYieldFromIter,
        Opcode::GetAwaitable => Op::GetAwaitable(arg),
        Opcode::GetAiter => Op::GetAiter,
        Opcode::GetAnext => Op::GetAnext,
        Opcode::BeforeAsyncWith => Op::BeforeAsyncWith,
        Opcode::EndAsyncFor => Op::EndAsyncFor,
        Opcode::AsyncGenWrap => Op::AsyncGenWrap,

        Opcode::CallIntrinsic1 => intrinsic_1(raw)?,
        Opcode::CallIntrinsic2 => match opcodes::intrinsic_2(arg).ok_or(bad_argument(raw))? {
            "INTRINSIC_PREP_RERAISE_STAR" => Op::PrepReraiseStar,
            other => Op::Intrinsic2(other),
        },
        Opcode::PrintExpr => Op::PrintExpr,
        // Folded above when they stand where the compiler puts them.
        Opcode::CallKw | Opcode::KwNames | Opcode::Precall => {
            return Err(BytecodeError::UnpairedCall { offset: raw.offset });
        }
        Opcode::ExtendedArg | Opcode::InterpreterExit | Opcode::ExitInitCheck | Opcode::EnterExecutor => {
            Op::Other(raw.opcode.name())
        }
    };
    Ok(one(op))
}

fn one(op: Op) -> Ops {
    [Some(op), None]
}

fn bad_argument(raw: RawInstr) -> BytecodeError {
    BytecodeError::BadArgument { offset: raw.offset, opcode: raw.opcode.name(), arg: raw.arg }
}

fn const_idx(code: &CodeObject, raw: RawInstr) -> Result<ConstIdx, BytecodeError> {
    if (raw.arg as usize) < code.consts.len() { Ok(ConstIdx(raw.arg)) } else { Err(bad_argument(raw)) }
}

fn name_idx(code: &CodeObject, raw: RawInstr, name: u32) -> Result<NameIdx, BytecodeError> {
    if (name as usize) < code.names.len() { Ok(NameIdx(name)) } else { Err(bad_argument(raw)) }
}

fn local_idx(code: &CodeObject, raw: RawInstr, local: u32) -> Result<LocalIdx, BytecodeError> {
    if (local as usize) < code.localsplus.len() { Ok(LocalIdx(local)) } else { Err(bad_argument(raw)) }
}

/// 3.13 has no LOAD_CLOSURE: it loads a cell slot like any local. `CellArg`
/// slots are read as plain values only before MAKE_CELL, which no compiler does.
fn load_fast(code: &CodeObject, raw: RawInstr, local: u32) -> Result<Op, BytecodeError> {
    let local = local_idx(code, raw, local)?;
    Ok(if code.localsplus[local.index()].kind.is_cell_or_free() {
        Op::LoadClosure(local)
    } else {
        Op::LoadFast { local, check: code.version == PyVersion::V311 }
    })
}

fn global_null(version: PyVersion, pushed: bool) -> GlobalNull {
    match version {
        _ if !pushed => GlobalNull::Absent,
        PyVersion::V311 | PyVersion::V312 => GlobalNull::Below,
        PyVersion::V313 => GlobalNull::Above,
    }
}

fn jump_target(raw: RawInstr, forward: bool) -> Result<Offset, BytecodeError> {
    let distance = i64::from(raw.arg) * i64::from(UNIT);
    let target = i64::from(raw.next) + if forward { distance } else { -distance };
    Offset::try_from(target).map_err(|_| BytecodeError::BadJump { offset: raw.offset, target })
}

fn binary_op(raw: RawInstr) -> Result<Op, BytecodeError> {
    // The order of CPython's NB_* constants; in-place ones follow in the same order.
    const KINDS: [BinaryKind; 13] = [
        BinaryKind::Add,
        BinaryKind::And,
        BinaryKind::FloorDivide,
        BinaryKind::LeftShift,
        BinaryKind::MatrixMultiply,
        BinaryKind::Multiply,
        BinaryKind::Remainder,
        BinaryKind::Or,
        BinaryKind::Power,
        BinaryKind::RightShift,
        BinaryKind::Subtract,
        BinaryKind::TrueDivide,
        BinaryKind::Xor,
    ];
    let number = raw.arg as usize;
    let kind = *KINDS.get(number % KINDS.len()).ok_or(bad_argument(raw))?;
    match number / KINDS.len() {
        0 => Ok(Op::BinaryOp { kind, inplace: false }),
        1 => Ok(Op::BinaryOp { kind, inplace: true }),
        _ => Err(bad_argument(raw)),
    }
}

/// The low bits hold what the specialised forms test; 3.13's bit 4 asks for a bool.
fn compare(version: PyVersion, raw: RawInstr) -> Result<Op, BytecodeError> {
    let (number, to_bool) = match version {
        PyVersion::V311 => (raw.arg, false),
        PyVersion::V312 => (raw.arg >> 4, false),
        PyVersion::V313 => (raw.arg >> 5, raw.arg & 16 != 0),
    };
    let kind = match number {
        0 => CompareKind::Lt,
        1 => CompareKind::Le,
        2 => CompareKind::Eq,
        3 => CompareKind::Ne,
        4 => CompareKind::Gt,
        5 => CompareKind::Ge,
        _ => return Err(bad_argument(raw)),
    };
    Ok(Op::Compare { kind, to_bool })
}

fn conversion(raw: RawInstr, number: u32) -> Result<Conversion, BytecodeError> {
    match number {
        0 => Ok(Conversion::None),
        1 => Ok(Conversion::Str),
        2 => Ok(Conversion::Repr),
        3 => Ok(Conversion::Ascii),
        _ => Err(bad_argument(raw)),
    }
}

fn intrinsic_1(raw: RawInstr) -> Result<Op, BytecodeError> {
    Ok(match opcodes::intrinsic_1(raw.arg).ok_or(bad_argument(raw))? {
        "INTRINSIC_UNARY_POSITIVE" => Op::UnaryOp(UnaryKind::Positive),
        "INTRINSIC_LIST_TO_TUPLE" => Op::ListToTuple,
        "INTRINSIC_IMPORT_STAR" => Op::ImportStar { pushes_none: true },
        "INTRINSIC_STOPITERATION_ERROR" => Op::StopIterationError,
        "INTRINSIC_ASYNC_GEN_WRAP" => Op::AsyncGenWrap,
        other => Op::Intrinsic1(other),
    })
}

/// Every jump must lead to the start of an instruction.
fn check_targets(instrs: &[Instr]) -> Result<(), BytecodeError> {
    for instr in instrs {
        if let Some(target) = instr.op.jump_target()
            && find(instrs, target).is_none()
        {
            return Err(BytecodeError::BadJump { offset: instr.op_offset, target: i64::from(target) });
        }
    }
    Ok(())
}

/// Index of the instruction that starts at `offset` (its first operation).
/// Takes logarithmic time.
pub fn find(instrs: &[Instr], offset: Offset) -> Option<usize> {
    let at = instrs.partition_point(|instr| instr.offset < offset);
    instrs.get(at).filter(|instr| instr.offset == offset).map(|_| at)
}
