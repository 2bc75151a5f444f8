//! Checks that a function keeps every rule of the IR. Run on what a front end made and, in debug builds, after each pass.
//!
//! Shape: there is an entry block, its parameters are `n_args` objects, nothing jumps to it; every block has a terminator;
//! every id exists. Values: each is defined once, its recorded type is its definition's; every use in a reachable block
//! is dominated by the definition, exit slots at the instruction that exits. Types: operands, block arguments, table
//! arguments (`Signature`), slots of exits (`Number` by its flavour). Exits: a guard, a checked operation and an entry
//! that declines leave by `resume` or `entry`; an entry that sets an exception and a poll leave by `raise`; an entry that
//! can't fail has no exit. An `entry` exit takes no reference over and comes before any effect on every way to it.
//! Exits that resume or raise describe one number of locals. Frame: opaque entries and polls need `needs_frame`,
//! opaque entries carry a position. Parallel loops have the shape of [`parallel`]. The GIL is given and taken as `gil`
//! says. `own_arg` and `observe` stay below `n_args` and `n_profile`. `dealloc` is the code generator's own. Not checked:
//! preconditions of instructions and the balance of references (the interpreter finds both on the paths that it runs).

use std::fmt;

use overdrive_base::flavour::Ty;
use overdrive_base::table::{Effect, Entry, Failure};

use crate::dominators::{Dominators, successors};
use crate::entities::{Block, ConstId, ExitId, Value};
use crate::exit::{Exit, ExitKind, Own, Slot};
use crate::function::{Function, Iterations};
use crate::gil;
use crate::inst::{Field, Inst, Seq, Terminator};
use crate::names::Word;
use crate::parallel;

/// A broken rule and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// `None`: the function as a whole.
    pub block: Option<Block>,
    /// Index of the instruction in its block; the number of instructions stands for the terminator.
    pub inst: Option<usize>,
    pub message: String,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.block, self.inst) {
            (Some(b), Some(i)) => write!(f, "{b}, instruction {i}: {}", self.message),
            (Some(b), None) => write!(f, "{b}: {}", self.message),
            (None, _) => write!(f, "{}", self.message),
        }
    }
}

/// Every broken rule, in the order of the text; empty when the function is well-formed.
pub fn verify(f: &Function) -> Vec<VerifyError> {
    let mut errors = verify_one(f, &f.routines);
    f.routines.iter().for_each(|routine| errors.extend(verify_one(routine, &f.routines)));
    errors
}

fn verify_one(f: &Function, routines: &[Function]) -> Vec<VerifyError> {
    let mut v = Verifier {
        f,
        routines,
        errors: vec![],
        defs: vec![None; f.types.len()],
        dominators: Dominators::new(f),
        at: (None, None),
        has_frame: false,
    };
    v.shape();
    v.definitions();
    for b in 0..f.blocks.len() {
        v.block(Block(b as u32));
    }
    v.early_exits();
    v.parallel_loops();
    v.gil();
    v.errors
}

/// Panics with the errors and the text when a function is not well-formed: for passes and tests, whose output is ours.
///
/// # Panics
/// See above.
pub fn assert_valid(f: &Function, after: &str) {
    let errors = verify(f);
    if !errors.is_empty() {
        let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
        panic!("invalid IR after {after}:\n{}\n{f}", list.join("\n"));
    }
}

struct Verifier<'a> {
    f: &'a Function,
    /// Those that the function may call.
    routines: &'a [Function],
    errors: Vec<VerifyError>,
    /// Block and instruction that define a value; parameters are defined at 0, instruction i at i + 1.
    defs: Vec<Option<(Block, usize)>>,
    dominators: Dominators,
    at: (Option<Block>, Option<usize>),
    /// A guard of this block says that there is a frame.
    has_frame: bool,
}

impl Verifier<'_> {
    fn error(&mut self, message: impl Into<String>) {
        self.errors.push(VerifyError { block: self.at.0, inst: self.at.1, message: message.into() });
    }

    fn shape(&mut self) {
        let f = self.f;
        let Some(entry) = f.blocks.first() else {
            return self.error("no entry block");
        };
        self.at = (Some(Block(0)), None);
        if f.returns.is_none() && entry.params.len() != f.n_args as usize {
            self.error(format!("{} parameters for {} arguments", entry.params.len(), f.n_args));
        }
        for (b, block) in f.blocks.iter().enumerate() {
            self.at = (Some(Block(b as u32)), Some(block.insts.len()));
            let Some(t) = &block.terminator else {
                self.error("no terminator");
                continue;
            };
            for target in successors(t) {
                if target == Block(0) {
                    self.error("jumps to the entry block");
                } else if target.index() >= f.blocks.len() {
                    self.error(format!("{target} does not exist"));
                }
            }
        }
        self.at = (None, None);
        let mut n_locals = None;
        for (i, exit) in f.exits.iter().enumerate().filter(|(_, e)| e.kind != ExitKind::Entry) {
            if *n_locals.get_or_insert(exit.locals.len()) != exit.locals.len() {
                self.error(format!(
                    "{} has another number of locals than the exits before it",
                    ExitId(i as u32)
                ));
            }
        }
    }

    fn definitions(&mut self) {
        for (b, block) in self.f.blocks.iter().enumerate() {
            let b = Block(b as u32);
            self.at = (Some(b), None);
            for v in &block.params {
                let ty = self.f.types.get(v.index()).copied();
                self.define(*v, (b, 0), ty);
                if b == Block(0) && ty != Some(Ty::Obj) && self.f.returns.is_none() {
                    self.error(format!("the argument {v} is not an object"));
                }
            }
            for (i, (inst, result)) in block.insts.iter().enumerate() {
                self.at = (Some(b), Some(i));
                if inst.operands().iter().any(|v| v.index() >= self.f.types.len()) {
                    continue; // reported where the operand is read
                }
                match (result, self.f.result_type(inst)) {
                    (Some(v), Some(ty)) => self.define(*v, (b, i + 1), Some(ty)),
                    (None, None) => {}
                    (Some(v), None) => {
                        self.error(format!("{v} is the result of an instruction that has none"))
                    }
                    (None, Some(_)) => self.error("the result has no value"),
                }
            }
        }
    }

    fn define(&mut self, v: Value, place: (Block, usize), ty: Option<Ty>) {
        if v.index() >= self.f.types.len() {
            return self.error(format!("{v} has no type"));
        }
        if self.defs[v.index()].replace(place).is_some() {
            self.error(format!("{v} is defined twice"));
        }
        if let Some(ty) = ty.filter(|ty| *ty != self.f.ty(v)) {
            self.error(format!("{v} is recorded as {} and defined as {}", self.f.ty(v).word(), ty.word()));
        }
    }

    fn block(&mut self, b: Block) {
        let block = &self.f.blocks[b.index()];
        self.has_frame = self.f.needs_frame;
        for (i, (inst, _)) in block.insts.iter().enumerate() {
            self.at = (Some(b), Some(i));
            self.inst(inst);
        }
        self.at = (Some(b), Some(block.insts.len()));
        match &block.terminator {
            None => {}
            Some(Terminator::Jump(to, args)) => self.target(*to, args),
            Some(Terminator::Branch { cond, then, els }) => {
                self.operand(*cond, Ty::I1);
                self.target(then.0, &then.1);
                self.target(els.0, &els.1);
            }
            Some(Terminator::Return(v)) => self.operand(*v, self.f.returns.unwrap_or(Ty::Obj)),
            Some(Terminator::Exit(e)) => {
                self.exit(*e, &[ExitKind::Resume, ExitKind::Raise, ExitKind::Entry, ExitKind::Yield])
            }
        }
    }

    fn target(&mut self, to: Block, args: &[Value]) {
        let Some(block) = self.f.blocks.get(to.index()) else { return };
        if block.params.len() != args.len() {
            self.error(format!("{} arguments for {} parameters of {to}", args.len(), block.params.len()));
        }
        for (arg, param) in args.iter().zip(&block.params) {
            match self.f.types.get(param.index()) {
                Some(ty) => self.operand(*arg, *ty),
                None => self.used(*arg),
            }
        }
    }

    /// The definition is there and dominates the current place.
    fn used(&mut self, v: Value) {
        let (Some(b), Some(i)) = self.at else { return };
        match self.defs.get(v.index()).copied().flatten() {
            None => self.error(format!("{v} is not defined")),
            Some((block, place)) => {
                let before = if block == b { place <= i } else { self.dominators.dominates(block, b) };
                if !before && self.dominators.reachable(b) {
                    self.error(format!("{v} is not defined on every way here"));
                }
            }
        }
    }

    fn operand(&mut self, v: Value, ty: Ty) {
        self.used(v);
        // An undefined value has no type worth an error of its own.
        if !matches!(self.defs.get(v.index()), Some(Some(_))) {
            return;
        }
        if let Some(found) = self.f.types.get(v.index()).filter(|found| **found != ty) {
            self.error(format!("{v} is {}, not {}", found.word(), ty.word()));
        }
    }

    fn operands(&mut self, operands: &[(Value, Ty)]) {
        for (v, ty) in operands {
            self.operand(*v, *ty);
        }
    }

    /// Both are floats of one size.
    fn floats(&mut self, values: &[Value]) {
        let ty = self.f.types.get(values[0].index()).copied();
        if !matches!(ty, Some(Ty::F32 | Ty::F64) | None) {
            self.error(format!("{} is not a float", values[0]));
        }
        self.same_type(values);
    }

    fn same_type(&mut self, values: &[Value]) {
        match self.f.types.get(values[0].index()).copied() {
            Some(ty) => values.iter().for_each(|v| self.operand(*v, ty)),
            None => values.iter().for_each(|v| self.used(*v)),
        }
    }

    fn inst(&mut self, inst: &Inst) {
        use Ty::{F32, F64, I1, I64, Obj, Ptr};
        match inst {
            Inst::IConst(_)
            | Inst::FConst(_)
            | Inst::F32Const(_)
            | Inst::BConst(_)
            | Inst::Null
            | Inst::HasFrame => {}
            Inst::OConst(c) => self.constant(*c),
            Inst::Int(_, a, b) | Inst::ICmp(_, a, b) | Inst::ULt(a, b) => {
                self.operands(&[(*a, I64), (*b, I64)])
            }
            Inst::Checked(_, a, b, exit) => {
                self.operands(&[(*a, I64), (*b, I64)]);
                self.exit(*exit, &[ExitKind::Resume, ExitKind::Entry]);
            }
            Inst::Float(_, a, b) | Inst::FCmp(_, a, b) => self.floats(&[*a, *b]),
            Inst::FloatUnary(_, a) => self.floats(&[*a]),
            Inst::IntToFloat(a) => self.operand(*a, I64),
            Inst::FloatToInt(a) | Inst::F64ToF32(a) => self.operand(*a, F64),
            Inst::F32ToF64(a) => self.operand(*a, F32),
            Inst::Bool(_, a, b) => self.operands(&[(*a, I1), (*b, I1)]),
            Inst::Not(a) | Inst::BoolToInt(a) => self.operand(*a, I1),
            Inst::Select(cond, a, b) => {
                self.operand(*cond, I1);
                self.same_type(&[*a, *b]);
            }
            Inst::Guard(cond, exit) => {
                self.operand(*cond, I1);
                self.exit(*exit, &[ExitKind::Resume, ExitKind::Entry, ExitKind::Yield]);
                self.has_frame |= self.is_has_frame(*cond);
            }
            Inst::TypeIs(a, _)
            | Inst::VersionIs(a, 1..)
            | Inst::KeepsValues { obj: a, .. }
            | Inst::AttrGet(_, a)
            | Inst::IsNull(a)
            | Inst::Unbox(_, a)
            | Inst::IncRef(a) => self.operand(*a, Obj),
            Inst::VersionIs(_, 0) => self.error("no class has version 0"),
            Inst::AttrSwap { obj, item, .. } => self.operands(&[(*obj, Obj), (*item, Obj)]),
            Inst::AttrSet { obj, old, value, fail, .. } => {
                self.operands(&[(*obj, Obj), (*old, Obj)]);
                if !matches!(self.f.ty(*value), I64 | F64) {
                    self.error(format!("{value} is no int and no float"));
                }
                self.operand(*value, self.f.ty(*value));
                self.exit(*fail, &[ExitKind::Raise]);
            }
            Inst::Same(a, b) => self.operands(&[(*a, Obj), (*b, Obj)]),
            Inst::ArrayIs { array, .. } => self.operand(*array, Obj),
            Inst::Field(field, a) => {
                self.operand(*a, Obj);
                if let Field::ArrayDim(axis) | Field::ArrayStride(axis) = field
                    && *axis >= 32
                {
                    self.error("no array has that many axes");
                }
            }
            Inst::ItemGet(Seq::List | Seq::Tuple, a, i) => self.operands(&[(*a, Obj), (*i, I64)]),
            Inst::ListSwap { list, index, item } => {
                self.operands(&[(*list, Obj), (*index, I64), (*item, Obj)])
            }
            Inst::Load(_, p) => self.operand(*p, Ptr),
            Inst::Store(dtype, p, v) => self.operands(&[(*p, Ptr), (*v, dtype.scalar().ty())]),
            Inst::PtrAdd(p, n) => self.operands(&[(*p, Ptr), (*n, I64)]),
            Inst::DecRef { obj, .. } => self.operand(*obj, Obj),
            Inst::OwnArg(n) => {
                if *n >= self.f.n_args {
                    self.error(format!("there are only {} arguments", self.f.n_args));
                }
            }
            Inst::CallRoutine { routine, ty, args, fail } => {
                self.routine(*routine, *ty, args);
                self.exit(*fail, &[ExitKind::Resume]);
            }
            Inst::Table { entry, args, pos, fail } => self.table(*entry, args, *pos, *fail),
            Inst::Poll { fail, .. } => {
                if !self.has_frame {
                    self.error("a poll needs a frame");
                }
                self.exit(*fail, &[ExitKind::Raise]);
            }
        }
    }

    fn routine(&mut self, routine: u32, ty: Ty, args: &[Value]) {
        let Some(callee) = self.routines.get(routine as usize) else {
            return self.error(format!("there is no routine {routine}"));
        };
        if callee.returns != Some(ty) {
            self.error(format!("routine {routine} does not give {}", ty.word()));
        }
        let params = callee.blocks.first().map(|b| b.params.as_slice()).unwrap_or_default();
        if params.len() != args.len() {
            self.error(format!("{} arguments for {} parameters of a routine", args.len(), params.len()));
        }
        for (arg, param) in args.iter().zip(params) {
            self.operand(*arg, callee.ty(*param));
        }
    }

    fn table(&mut self, entry: Entry, args: &[Value], pos: Option<u32>, fail: Option<ExitId>) {
        let (name, signature) = (entry.name(), entry.signature());
        let fixed = signature.args.len();
        if args.len() < fixed || (args.len() > fixed && !signature.variadic) {
            let least = if signature.variadic { "at least " } else { "" };
            self.error(format!("{name} takes {least}{fixed} arguments, not {}", args.len()));
        }
        for (i, v) in args.iter().enumerate() {
            self.operand(*v, signature.args.get(i).copied().unwrap_or(Ty::Obj));
        }
        let kinds: &[ExitKind] = match signature.failure {
            Failure::Never => &[],
            Failure::Null | Failure::Negative => &[ExitKind::Raise],
            Failure::Declines => &[ExitKind::Resume, ExitKind::Entry],
        };
        match fail {
            Some(_) if kinds.is_empty() => self.error(format!("{name} can't fail and has an exit")),
            Some(exit) => self.exit(exit, kinds),
            None if !kinds.is_empty() => self.error(format!("{name} can fail and has no exit")),
            None => {}
        }
        if signature.effect == Effect::Opaque {
            if !self.f.needs_frame {
                self.error(format!("{name} may run Python code and needs a frame"));
            } else if pos.is_none() {
                self.error(format!("{name} may run Python code and has no position"));
            }
        }
        if entry.fast_name().is_some() && !self.f.fastmath {
            self.error(format!("{name} belongs to functions with fastmath"));
        }
        if entry == Entry::Dealloc {
            self.error("dealloc belongs to the code generator: write decref");
        }
        if matches!(entry, Entry::Observe | Entry::ObserveAttr)
            && let Some(slot) = args.first().and_then(|v| self.known_int(*v))
            && !(0..i64::from(self.f.n_profile)).contains(&slot)
        {
            self.error(format!("there are only {} profile slots", self.f.n_profile));
        }
    }

    /// The value of an `iconst`.
    fn is_has_frame(&self, v: Value) -> bool {
        let place = self.defs.get(v.index()).copied().flatten();
        let inst =
            place.and_then(|(block, place)| self.f.blocks[block.index()].insts.get(place.checked_sub(1)?));
        matches!(inst, Some((Inst::HasFrame, _)))
    }

    fn known_int(&self, v: Value) -> Option<i64> {
        let (block, place) = (*self.defs.get(v.index())?)?;
        match self.f.blocks[block.index()].insts.get(place.checked_sub(1)?)?.0 {
            Inst::IConst(n) => Some(n),
            _ => None,
        }
    }

    fn constant(&mut self, c: ConstId) {
        if c.index() >= self.f.consts.len() {
            self.error(format!("{c} does not exist"));
        }
    }

    /// An exit of an allowed kind, taken at the current instruction.
    fn exit(&mut self, id: ExitId, kinds: &[ExitKind]) {
        let f = self.f;
        let Some(exit) = f.exits.get(id.index()) else {
            return self.error(format!("{id} does not exist"));
        };
        if !kinds.contains(&exit.kind) {
            let words: Vec<&str> = kinds.iter().map(|k| k.word()).collect();
            self.error(format!("{id} is a {} exit, not {}", exit.kind.word(), words.join(" or ")));
        }
        for slot in slots(exit) {
            self.slot(id, exit.kind, slot);
        }
    }

    fn slot(&mut self, id: ExitId, kind: ExitKind, slot: &Slot) {
        let own = |this: &mut Self, own: Own| {
            if kind == ExitKind::Entry && own == Own::Owned {
                this.error(format!("{id} is an entry exit and takes a reference over"));
            }
        };
        match slot {
            Slot::Empty | Slot::None => {}
            Slot::Obj(v, o) => {
                self.operand(*v, Ty::Obj);
                own(self, *o);
            }
            Slot::Number { flavour, value, boxed } => {
                self.operand(*value, flavour.ty());
                if let Some((b, o)) = boxed {
                    self.operand(*b, Ty::Obj);
                    own(self, *o);
                }
            }
            Slot::Const(c) => self.constant(*c),
            Slot::Either { cond, then, els } => {
                self.operand(*cond, Ty::I1);
                self.slot(id, kind, then);
                self.slot(id, kind, els);
            }
            Slot::Tuple(parts) | Slot::Zip(parts) => parts.iter().for_each(|p| self.slot(id, kind, p)),
            Slot::RangeIter { next, stop, step } => {
                self.operands(&[(*next, Ty::I64), (*stop, Ty::I64), (*step, Ty::I64)]);
            }
            Slot::SeqIter { seq, position } => {
                self.operand(*position, Ty::I64);
                self.slot(id, kind, seq);
            }
            Slot::Enumerate { count, iter } => {
                self.operand(*count, Ty::I64);
                self.slot(id, kind, iter);
            }
        }
    }

    /// Nothing has happened before an `entry` exit, on any way to it.
    fn early_exits(&mut self) {
        let f = self.f;
        let mut dirty = vec![false; f.blocks.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for b in &self.dominators.order {
                let block = &f.blocks[b.index()];
                let leaves_dirty = dirty[b.index()] || block.insts.iter().any(|(inst, _)| has_effect(inst));
                for s in block.terminator.iter().flat_map(successors).filter(|s| s.index() < f.blocks.len()) {
                    changed |= leaves_dirty && !std::mem::replace(&mut dirty[s.index()], true);
                }
            }
        }
        for (b, block) in f.blocks.iter().enumerate() {
            let mut happened = dirty[b];
            for (i, (inst, _)) in block.insts.iter().enumerate() {
                self.at = (Some(Block(b as u32)), Some(i));
                if happened && let Some(e) = inst.exit() {
                    self.early_exit(e);
                }
                happened |= has_effect(inst);
            }
            self.at = (Some(Block(b as u32)), Some(block.insts.len()));
            if happened && let Some(Terminator::Exit(e)) = &block.terminator {
                self.early_exit(*e);
            }
        }
    }

    /// Has a meaning only where the rest is right: shapes are read along definitions.
    fn parallel_loops(&mut self) {
        if !self.errors.is_empty() {
            return;
        }
        for (b, block) in self.f.blocks.iter().enumerate() {
            let header = Block(b as u32);
            if block.iterations != Iterations::Parallel || !self.dominators.reachable(header) {
                continue;
            }
            self.at = (Some(header), None);
            if let Err(why) = parallel::shape(self.f, &self.dominators, header) {
                self.error(format!("no parallel loop: {why}"));
            }
        }
    }

    fn gil(&mut self) {
        for (block, inst, message) in gil::broken(self.f) {
            self.at = (Some(block), Some(inst));
            self.error(message);
        }
    }

    fn early_exit(&mut self, id: ExitId) {
        if self.f.exits.get(id.index()).is_some_and(|e| e.kind == ExitKind::Entry) {
            self.error(format!("{id} is an entry exit, and something may have happened before it"));
        }
    }
}

fn slots(exit: &Exit) -> impl Iterator<Item = &Slot> {
    exit.locals.iter().chain(&exit.stack)
}

/// True when an instruction changes anything but its result (reference counts included).
fn has_effect(inst: &Inst) -> bool {
    match inst {
        Inst::ListSwap { .. }
        | Inst::AttrSwap { .. }
        | Inst::AttrSet { .. }
        | Inst::Store(..)
        | Inst::IncRef(_)
        | Inst::DecRef { .. }
        | Inst::OwnArg(_)
        | Inst::Poll { .. } => true,
        // `observe` writes only into the profile, which no program sees.
        Inst::Table { entry, .. } => entry.signature().effect != Effect::Pure,
        _ => false,
    }
}
