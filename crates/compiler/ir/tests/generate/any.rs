//! Any function that the text form can hold, valid or not: ids exist, types of results are consistent, that is all.

use overdrive_base::flavour::{DType, Flavour, Holder, KnownType, Ty};
use overdrive_base::table::Entry;
use overdrive_ir::entities::{Block, ConstId, ExitId, Value};
use overdrive_ir::exit::{Exit, ExitKind, Own, Slot};
use overdrive_ir::function::{ConstRef, Function};
use overdrive_ir::inst::{BoolOp, CheckedOp, Cmp, Field, FloatOp, FloatUnary, Inst, IntOp, Seq, Terminator};

use super::Random;

const CMPS: [Cmp; 6] = [Cmp::Lt, Cmp::Le, Cmp::Eq, Cmp::Ne, Cmp::Gt, Cmp::Ge];
const TYPES: [Ty; 6] = [Ty::I1, Ty::I64, Ty::F32, Ty::F64, Ty::Obj, Ty::Ptr];

/// A function with about `size` instructions.
pub(crate) fn function(seed: u64, size: usize) -> Function {
    let mut r = Random::new(seed);
    let names = ["f", "", "a.<locals>.b", "quo\"te\\", "line\nbreak\tand\u{1}", "käse"];
    let mut f = Function::new(r.pick(&names), r.below(4) as u32);
    f.needs_frame = r.coin();
    f.has_neighbours = r.coin();
    f.fastmath = r.coin();
    f.n_profile = r.below(3) as u32;
    for _ in 0..=r.below(6) {
        let c = constant(&mut r);
        f.constant(c);
    }
    for _ in 0..r.below(6) {
        let block = f.add_block();
        f.blocks[block.index()].cold = r.coin();
        f.blocks[block.index()].offset = r.coin().then(|| r.below(1000) as u32);
        for _ in 0..r.below(3) {
            f.add_param(block, r.pick(&TYPES));
        }
    }
    // There is always a value to refer to.
    f.push(Block(0), Inst::Null);
    let n_exits = 1 + r.below(4);
    for _ in 0..n_exits {
        let exit = exit(&mut r, &f);
        f.add_exit(exit);
    }
    for _ in 0..size {
        let block = Block(r.below(f.blocks.len()) as u32);
        let inst = inst(&mut r, &f);
        f.push(block, inst);
    }
    for b in 0..f.blocks.len() {
        if r.below(8) != 0 {
            let t = terminator(&mut r, &f);
            f.terminate(Block(b as u32), t);
        }
    }
    f
}

fn constant(r: &mut Random) -> ConstRef {
    let n = r.below(100) as u32;
    match r.below(10) {
        0 => ConstRef::None,
        1 => ConstRef::True,
        2 => ConstRef::False,
        3 => ConstRef::CodeConst(n),
        4 => ConstRef::Name(n),
        5 => ConstRef::Globals,
        6 => ConstRef::Builtins,
        7 => ConstRef::NpTrue,
        8 => ConstRef::NpFalse,
        _ => ConstRef::Fact(n),
    }
}

fn value(r: &mut Random, f: &Function) -> Value {
    Value(r.below(f.n_values()) as u32)
}

fn values(r: &mut Random, f: &Function) -> Vec<Value> {
    (0..r.below(4)).map(|_| value(r, f)).collect()
}

fn exit_id(r: &mut Random, f: &Function) -> ExitId {
    ExitId(r.below(f.exits.len()) as u32)
}

fn exit(r: &mut Random, f: &Function) -> Exit {
    let offset = r.below(500) as u32;
    Exit {
        kind: r.pick(&[ExitKind::Resume, ExitKind::Raise, ExitKind::Entry]),
        offset,
        origin: if r.coin() { offset } else { r.below(500) as u32 },
        locals: slots(r, f, 3),
        stack: slots(r, f, 3),
        reason: r.pick(&["", "int leaves 64 bits", "\"quoted\" \\ and\nmore", "ü"]).to_owned(),
    }
}

fn slots(r: &mut Random, f: &Function, depth: u32) -> Vec<Slot> {
    (0..r.below(4)).map(|_| slot(r, f, depth)).collect()
}

fn slot(r: &mut Random, f: &Function, depth: u32) -> Slot {
    let own = r.pick(&[Own::Owned, Own::Borrowed]);
    let inner = |r: &mut Random| Box::new(slot(r, f, depth.saturating_sub(1)));
    match r.below(if depth == 0 { 6 } else { 11 }) {
        0 => Slot::Empty,
        1 => Slot::None,
        2 => Slot::Obj(value(r, f), own),
        3 => Slot::Number {
            flavour: r.pick(&Flavour::ALL),
            value: value(r, f),
            boxed: r.coin().then(|| (value(r, f), own)),
        },
        4 => Slot::Const(ConstId(r.below(f.consts.len()) as u32)),
        5 => Slot::RangeIter { next: value(r, f), stop: value(r, f), step: value(r, f) },
        6 => Slot::Either { cond: value(r, f), then: inner(r), els: inner(r) },
        7 => Slot::Tuple(slots(r, f, depth - 1)),
        8 => Slot::SeqIter { seq: inner(r), position: value(r, f) },
        9 => Slot::Enumerate { count: value(r, f), iter: inner(r) },
        _ => Slot::Zip(slots(r, f, depth - 1)),
    }
}

fn target(r: &mut Random, f: &Function) -> (Block, Vec<Value>) {
    (Block(r.below(f.blocks.len()) as u32), values(r, f))
}

fn terminator(r: &mut Random, f: &Function) -> Terminator {
    match r.below(4) {
        0 => {
            let (block, args) = target(r, f);
            Terminator::Jump(block, args)
        }
        1 => Terminator::Branch { cond: value(r, f), then: target(r, f), els: target(r, f) },
        2 => Terminator::Return(value(r, f)),
        _ => Terminator::Exit(exit_id(r, f)),
    }
}

fn inst(r: &mut Random, f: &Function) -> Inst {
    let (a, b, c) = (value(r, f), value(r, f), value(r, f));
    let axis = r.below(4) as u8;
    let pos = r.coin().then(|| r.below(500) as u32);
    match r.below(39) {
        0 => Inst::IConst(r.bits() as i64),
        1 => Inst::FConst(r.bits()),
        2 => Inst::F32Const((r.bits() >> 32) as u32),
        3 => Inst::BConst(r.coin()),
        4 => Inst::OConst(ConstId(r.below(f.consts.len()) as u32)),
        5 => Inst::Null,
        6 => {
            let ops = [
                IntOp::Add,
                IntOp::Sub,
                IntOp::Mul,
                IntOp::And,
                IntOp::Or,
                IntOp::Xor,
                IntOp::Shl,
                IntOp::Shr,
                IntOp::FloorDiv,
                IntOp::FloorMod,
            ];
            Inst::Int(r.pick(&ops), a, b)
        }
        7 => {
            let op = r.pick(&[CheckedOp::Add, CheckedOp::Sub, CheckedOp::Mul]);
            Inst::Checked(op, a, b, exit_id(r, f))
        }
        8 => Inst::ICmp(r.pick(&CMPS), a, b),
        9 => Inst::ULt(a, b),
        10 => {
            let ops = [FloatOp::Add, FloatOp::Sub, FloatOp::Mul, FloatOp::Div, FloatOp::CopySign];
            Inst::Float(r.pick(&ops), a, b)
        }
        11 => {
            let ops = [
                FloatUnary::Neg,
                FloatUnary::Abs,
                FloatUnary::Sqrt,
                FloatUnary::Floor,
                FloatUnary::Ceil,
                FloatUnary::Trunc,
            ];
            Inst::FloatUnary(r.pick(&ops), a)
        }
        12 => Inst::FCmp(r.pick(&CMPS), a, b),
        13 => Inst::IntToFloat(a),
        14 => Inst::FloatToInt(a),
        15 => Inst::F32ToF64(a),
        16 => Inst::F64ToF32(a),
        17 => Inst::Bool(r.pick(&[BoolOp::And, BoolOp::Or, BoolOp::Xor]), a, b),
        18 => Inst::Not(a),
        19 => Inst::BoolToInt(a),
        20 => Inst::Select(a, b, c),
        21 => Inst::Guard(a, exit_id(r, f)),
        22 => Inst::TypeIs(a, r.pick(&KnownType::ALL)),
        23 => Inst::Same(a, b),
        24 => Inst::IsNull(a),
        25 => Inst::ArrayIs {
            array: a,
            holder: r.pick(&[Holder::NdArray, Holder::Tensor]),
            dtype: r.pick(&DType::ALL),
            ndim: axis,
            writable: r.coin(),
        },
        26 => Inst::Unbox(r.pick(&Flavour::ALL), a),
        27 => {
            let fields = [
                Field::ListLen,
                Field::TupleLen,
                Field::StrLen,
                Field::BytesLen,
                Field::ByteArrayLen,
                Field::BytesData,
                Field::ByteArrayData,
                Field::ArrayDim(axis),
                Field::ArrayStride(axis),
                Field::ArrayData,
            ];
            Inst::Field(r.pick(&fields), a)
        }
        28 => Inst::ItemGet(r.pick(&[Seq::List, Seq::Tuple]), a, b),
        29 => Inst::ListSwap { list: a, index: b, item: c },
        30 => Inst::Load(r.pick(&DType::ALL), a),
        31 => Inst::Store(r.pick(&DType::ALL), a, b),
        32 => Inst::PtrAdd(a, b),
        33 => Inst::IncRef(a),
        34 => Inst::DecRef { obj: a, pos },
        35 => Inst::OwnArg(axis.into()),
        36 => Inst::Poll { pos: pos.unwrap_or(0), fail: exit_id(r, f) },
        37 => {
            Inst::CallRoutine { routine: axis.into(), ty: f.ty(a), args: values(r, f), fail: exit_id(r, f) }
        }
        _ => {
            let fail = r.coin().then(|| exit_id(r, f));
            Inst::Table { entry: r.pick(Entry::ALL), args: values(r, f), pos, fail }
        }
    }
}
