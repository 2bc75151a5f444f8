//! A function in the IR: blocks with parameters, instructions in order, constants, exits.
//!
//! In: built through `Function`'s own methods by a front end or by the text parser. Out: read by the verifier, the
//! interpreter and the code generator. The function does not know which code object or Python version it came from.

use overdrive_base::flavour::{Flavour, Ty};
use overdrive_base::table::Entry;

use crate::entities::{Block, ConstId, ExitId, Value};
use crate::exit::Exit;
use crate::inst::{Inst, Terminator};
use crate::places::Places;

/// An object that the function refers to; the bridge resolves it to an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConstRef {
    None,
    True,
    False,
    /// NumPy's two bools.
    NpTrue,
    NpFalse,
    /// `co_consts[n]`.
    CodeConst(u32),
    /// `co_names[n]`, interned.
    Name(u32),
    /// The function's globals and builtins dictionaries.
    Globals,
    Builtins,
    /// An object found when the version was made (a global's value, a callee), by the number the front end was given.
    Fact(u32),
}

/// What is known of the iterations of the loop whose header a block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Iterations {
    /// Each may depend on those before it.
    #[default]
    InOrder,
    /// The program says that none depends on another but through sums and products (`prange`). A promise, not a proof:
    /// the loop runs in order unless a pass makes a parallel one of it.
    Free,
    /// Any may run at any time, at once with others, on any thread: the loop has the shape that [`crate::parallel`]
    /// describes. What it means is the loop in order, to the last bit.
    Parallel,
}

/// Data of one block.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct BlockData {
    pub params: Vec<Value>,
    /// Instructions with their result.
    pub insts: Vec<(Inst, Option<Value>)>,
    pub terminator: Option<Terminator>,
    /// Bytecode offset that the block begins at, for people.
    pub offset: Option<u32>,
    /// Left only through exits or rarely run: laid out away from the hot path.
    pub cold: bool,
    /// Of a loop's header.
    pub iterations: Iterations,
}

/// One version of one code object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Function {
    pub name: String,
    pub blocks: Vec<BlockData>,
    /// Type of each value.
    pub types: Vec<Ty>,
    pub consts: Vec<ConstRef>,
    pub exits: Vec<Exit>,
    /// Number of argument references that the entry block's parameters stand for (all `Obj`, borrowed).
    pub n_args: u32,
    /// Needs the Python frame: has a loop or an operation that may run Python code.
    pub needs_frame: bool,
    /// Functions that only this one and they themselves call, by `Inst::CallRoutine`, with unboxed arguments (parameters of
    /// any type) and one unboxed result. They compute and have no effect; every exit of theirs, which has no state, makes
    /// the call give up. Their constants are the first of this function's.
    pub routines: Vec<Function>,
    /// Type of a routine's result; of any other function it is an owned reference.
    pub returns: Option<Ty>,
    /// What became of loops, for people: bytecode offset and a sentence. No part of the text form.
    pub remarks: Vec<(u32, String)>,
    /// Some loop computes the sums of neighbouring iterations side by side: they may become the parts of vectors.
    pub has_neighbours: bool,
    /// Float operations may be reassociated and contracted, signs of zeros may differ, and functions of `math` may be
    /// computed less exactly: the user asked for it. The interpreter stays exact.
    pub fastmath: bool,
    /// Loops over arrays that need nothing of CPython let other threads of the program run. No part of the text form.
    pub gives_gil: bool,
    /// Number of profile slots (`Entry::Observe`).
    pub n_profile: u32,
    /// Global variables (`co_names[n]`) that are held in registers: each exit's `locals` end with one slot for each of
    /// them, to be stored into the globals unless it is empty.
    pub global_slots: Vec<u32>,
    /// Which instruction of the program each value was made for. No part of the text form.
    pub places: Places,
}

impl Function {
    /// An empty function with an entry block that has `n_args` object parameters.
    pub fn new(name: &str, n_args: u32) -> Function {
        let mut f = Function { name: name.to_owned(), n_args, ..Function::default() };
        let entry = f.add_block();
        for _ in 0..n_args {
            f.add_param(entry, Ty::Obj);
        }
        f
    }

    pub fn add_block(&mut self) -> Block {
        self.blocks.push(BlockData::default());
        Block(self.blocks.len() as u32 - 1)
    }

    pub fn add_param(&mut self, block: Block, ty: Ty) -> Value {
        let v = self.add_value(ty);
        self.blocks[block.index()].params.push(v);
        v
    }

    fn add_value(&mut self, ty: Ty) -> Value {
        self.types.push(ty);
        let v = Value(self.types.len() as u32 - 1);
        self.places.made(v);
        v
    }

    /// Appends an instruction; gives its result if it has one.
    pub fn push(&mut self, block: Block, inst: Inst) -> Option<Value> {
        let result = self.result_type(&inst).map(|ty| self.add_value(ty));
        self.blocks[block.index()].insts.push((inst, result));
        result
    }

    /// Ends a block.
    pub fn terminate(&mut self, block: Block, terminator: Terminator) {
        self.blocks[block.index()].terminator = Some(terminator);
    }

    /// The constant's id; equal constants share one.
    pub fn constant(&mut self, c: ConstRef) -> ConstId {
        let found = self.consts.iter().position(|x| *x == c);
        ConstId(found.unwrap_or_else(|| {
            self.consts.push(c);
            self.consts.len() - 1
        }) as u32)
    }

    pub fn add_exit(&mut self, exit: Exit) -> ExitId {
        self.exits.push(exit);
        ExitId(self.exits.len() as u32 - 1)
    }

    pub fn ty(&self, v: Value) -> Ty {
        self.types[v.index()]
    }

    /// Bytecode offset that an instruction was made for, for people, as far as it can be told.
    pub fn place(&self, inst: &Inst, result: Option<Value>) -> Option<u32> {
        let of_exit = |exit: ExitId| self.exits.get(exit.index()).map(|exit| exit.origin);
        let pointer = if let Inst::Store(_, pointer, _) = inst { Some(*pointer) } else { None };
        let of_value = result.or(pointer).and_then(|v| self.places.of(v));
        // Exits of a routine have no state, and no origin.
        of_value.or_else(|| inst.exit().filter(|_| self.returns.is_none()).and_then(of_exit))
    }

    pub fn n_values(&self) -> usize {
        self.types.len()
    }

    /// Result type of an instruction, from its own form and its operands' types.
    pub fn result_type(&self, inst: &Inst) -> Option<Ty> {
        Some(match inst {
            Inst::IConst(_)
            | Inst::Int(..)
            | Inst::Checked(..)
            | Inst::FloatToInt(_)
            | Inst::BoolToInt(_) => Ty::I64,
            Inst::FConst(_) | Inst::IntToFloat(_) | Inst::F32ToF64(_) => Ty::F64,
            Inst::F32Const(_) | Inst::F64ToF32(_) => Ty::F32,
            Inst::BConst(_)
            | Inst::HasFrame
            | Inst::ICmp(..)
            | Inst::ULt(..)
            | Inst::FCmp(..)
            | Inst::Bool(..)
            | Inst::Not(_)
            | Inst::TypeIs(..)
            | Inst::Same(..)
            | Inst::IsNull(_)
            | Inst::VersionIs(..)
            | Inst::KeepsValues { .. }
            | Inst::ArrayIs { .. } => Ty::I1,
            Inst::OConst(_)
            | Inst::Null
            | Inst::ItemGet(..)
            | Inst::ListSwap { .. }
            | Inst::AttrGet(..)
            | Inst::AttrSwap { .. }
            | Inst::OwnArg(_) => Ty::Obj,
            Inst::Float(_, a, _) | Inst::FloatUnary(_, a) => self.ty(*a),
            Inst::Select(_, a, _) => self.ty(*a),
            Inst::Unbox(flavour, _) => Flavour::ty(*flavour),
            Inst::Field(field, _) => field.ty(),
            Inst::Load(dtype, _) => dtype.scalar().ty(),
            Inst::PtrAdd(..) => Ty::Ptr,
            Inst::CallRoutine { ty, .. } => *ty,
            Inst::Table { entry, .. } => return Entry::signature(*entry).result,
            Inst::Guard(..)
            | Inst::Store(..)
            | Inst::AttrSet { .. }
            | Inst::IncRef(_)
            | Inst::DecRef { .. }
            | Inst::Poll { .. } => {
                return None;
            }
        })
    }
}
