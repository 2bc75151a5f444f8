//! The translator's state and its basic moves: emitting, holding references, leaving.
//!
//! Reference discipline: a stack entry or local says who holds its reference (`Own`); moving a value into a place that
//! must hold it takes a reference; a clobber turns everything fragile into owned *before* it happens.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use overdrive_base::table::{Effect, Entry as TableEntry, Failure};
use overdrive_ir::entities::{Block, ExitId, Value};
use overdrive_ir::exit::{Exit, ExitKind, Slot};
use overdrive_ir::function::{ConstRef, Function as IrFunction};
use overdrive_ir::inst::{BoolOp, Cmp, Inst, IntOp, Terminator};

use crate::code::CodeObject;
use crate::facts::{Body, Entry, FactId, Named, Oracle, Part, Status, Typed};
use crate::function::Function;
use crate::op::{Instr, Op};
use crate::stack::{RealEntry, SlotKind, real_entries};
use crate::translate::delayed::Delayed;
use crate::translate::inline::{Inlined, Known};
use crate::translate::members;
use crate::translate::routine::{Inside, Routine};
use crate::translate::shape::Shape;
use crate::translate::shared::Shared;
use crate::translate::value::{Checked, Obj, ObjTy, Own, Val};

/// Locals and evaluation stack (normalised order).
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) locals: Shared<Vec<Val>>,
    pub(crate) stack: Shared<Vec<Val>>,
    /// Counts clobbers: array guards hold within one epoch.
    pub(crate) epoch: u32,
    /// For each cached global (see `globals`): its register is newer than the dictionary.
    pub(crate) dirty: Shared<Vec<bool>>,
    /// Names that were tested and that nothing can have rebound since.
    pub(crate) facts: Shared<BTreeSet<FactKey>>,
    /// In an inlined body: stores that are made when it has returned, in order.
    pub(crate) delayed: Shared<Vec<Delayed>>,
    /// Attributes whose values are known.
    pub(crate) members: Shared<Vec<members::Known>>,
}

impl State {
    /// Entry `n` of locals and stack together.
    pub(crate) fn entry(&self, n: usize) -> Option<&Val> {
        match n.checked_sub(self.locals.len()) {
            None => self.locals.get(n),
            Some(n) => self.stack.get(n),
        }
    }

    pub(crate) fn entry_mut(&mut self, n: usize) -> Option<&mut Val> {
        match n.checked_sub(self.locals.len()) {
            None => self.locals.get_mut(n),
            Some(n) => self.stack.get_mut(n),
        }
    }
}

/// What a fact is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FactKey {
    /// A global or builtin (`co_names[n]`) is the object it was.
    Global(Body, u32),
    /// An attribute (`co_names[n]`) of a known module is the object it was.
    Attr(Body, FactId, u32),
    /// The callable of an inlined body still runs that body.
    Callee(Body),
}

/// What the rounds of one translation learn about loop headers.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    /// Widened shapes.
    pub(crate) shapes: HashMap<usize, Vec<Shape>>,
    /// Loops whose body may rebind or change anything: nothing that was tested before them holds inside.
    pub(crate) clobbered: HashSet<usize>,
    /// Arrays (entries of the state) that a loop writes: tested for it once, before the loop.
    pub(crate) written: HashSet<(usize, usize)>,
    /// Bodies that the oracle told of.
    pub(crate) bodies: BTreeMap<Body, Rc<Known>>,
    /// What is tested in a loop's rounds and holds from one to the next: tested for it once, before the loop.
    pub(crate) found: HashMap<usize, BTreeSet<FactKey>>,
    /// Calls that cannot be inlined, and why.
    pub(crate) not_inlined: HashMap<usize, String>,
}

/// An edge waiting for its target: an open IR block and the state at its end.
#[derive(Clone)]
pub(crate) struct Edge {
    pub(crate) block: Block,
    pub(crate) state: State,
}

/// A loop header that was opened.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) block: Block,
    pub(crate) shape: Vec<Shape>,
    /// Epoch inside, and for each entry of the state what its array guard established.
    pub(crate) epoch: u32,
    pub(crate) checked: Vec<Option<Checked>>,
    pub(crate) facts: Shared<BTreeSet<FactKey>>,
    pub(crate) delayed: Shared<Vec<Delayed>>,
}

pub(crate) struct Tx<'a> {
    pub(crate) f: &'a Function,
    pub(crate) oracle: &'a mut dyn Oracle,
    pub(crate) headers: &'a mut Headers,
    pub(crate) ir: IrFunction,
    /// Open IR block; `None` once control has left.
    pub(crate) cur: Option<Block>,
    pub(crate) st: State,
    /// State at the start of the current instruction: what an exit restores.
    pub(crate) snap: State,
    pub(crate) idx: usize,
    snap_idx: usize,
    here_exits: HashMap<String, ExitId>,
    pub(crate) pending: BTreeMap<usize, Vec<Edge>>,
    /// Headers already entered: their IR block and shape.
    pub(crate) entered: HashMap<usize, Header>,
    /// Targets of backward edges, as seen from the entry.
    pub(crate) retreating: HashSet<usize>,
    pub(crate) remarks: BTreeMap<usize, (Status, String)>,
    pub(crate) profile: Vec<u32>,
    pub(crate) needs_frame: bool,
    pub(crate) local_types: HashMap<String, String>,
    pub(crate) typed: Vec<Typed>,
    pub(crate) skip_until: usize,
    /// Boxes of computed floats are not remembered at present.
    pub(crate) forgetful: bool,
    /// Where on the stack the parts of the outermost virtual tuple begin that is being made an object.
    pub(crate) tuple_at: Option<usize>,
    /// A virtual iterator was needed as an object: the translation must not be used.
    pub(crate) impossible: bool,
    /// Of module code only the loop nest at the entry is translated: its blocks.
    pub(crate) nest: Option<HashSet<usize>>,
    pub(crate) cached: Vec<super::globals::Cached>,
    pub(crate) is_loop_entry: bool,
    /// Headers of loops over `prange`.
    pub(crate) free: BTreeSet<usize>,
    /// Whose names and constants `oconst` refers to.
    pub(crate) body: Body,
    /// Present while a callee's body is translated in place.
    pub(crate) inlined: Option<Inlined>,
    /// Instructions of other bodies so far.
    pub(crate) n_inlined: usize,
    /// The same, with those that were taken out again.
    pub(crate) n_tried: usize,
    /// What is known of the graph's routines, and which of them this is the body of, or is inlined into.
    pub(crate) routines: Vec<Routine>,
    pub(crate) routine: Option<Inside>,
    pub(crate) iconsts: HashMap<Value, i64>,
    pub(crate) epochs: u32,
}

impl<'a> Tx<'a> {
    pub(crate) fn new(
        f: &'a Function,
        oracle: &'a mut dyn Oracle,
        headers: &'a mut Headers,
        entry: &Entry,
    ) -> Tx<'a> {
        let (n_args, is_loop_entry) = match entry {
            Entry::Call(_) if f.code.localsplus.iter().any(|s| s.kind.is_cell_or_free()) => {
                (f.code.localsplus.len() as u32, false)
            }
            Entry::Call(args) => (args.len() as u32, false),
            Entry::Loop { locals, stack, .. } => ((locals.len() + stack.len()) as u32, true),
        };
        let ir = IrFunction::new(&f.code.qualname, n_args);
        Tx {
            f,
            oracle,
            headers,
            ir,
            cur: Some(Block(0)),
            st: State::default(),
            snap: State::default(),
            idx: 0,
            snap_idx: 0,
            here_exits: HashMap::new(),
            pending: BTreeMap::new(),
            entered: HashMap::new(),
            retreating: HashSet::new(),
            remarks: BTreeMap::new(),
            profile: Vec::new(),
            needs_frame: is_loop_entry,
            local_types: HashMap::new(),
            typed: Vec::new(),
            skip_until: 0,
            forgetful: false,
            tuple_at: None,
            impossible: false,
            nest: None,
            cached: Vec::new(),
            is_loop_entry,
            free: BTreeSet::new(),
            body: Body::OWN,
            inlined: None,
            n_inlined: 0,
            n_tried: 0,
            routines: Vec::new(),
            routine: None,
            iconsts: HashMap::new(),
            epochs: 0,
        }
    }

    /// For the body of a callee; the caller lends its graph.
    pub(crate) fn inside(
        f: &'a Function,
        oracle: &'a mut dyn Oracle,
        headers: &'a mut Headers,
        body: Body,
        inlined: Inlined,
    ) -> Tx<'a> {
        let mut tx = Tx::new(f, oracle, headers, &Entry::Call(vec![]));
        (tx.body, tx.inlined) = (body, Some(inlined));
        tx
    }

    pub(crate) fn code(&self) -> &'a CodeObject {
        &self.f.code
    }

    pub(crate) fn ins(&self) -> &'a Instr {
        &self.f.instrs[self.idx]
    }

    // --- instructions ---

    pub(crate) fn emit0(&mut self, inst: Inst) {
        self.watch(&inst);
        if let Some(b) = self.cur {
            self.ir.push(b, inst);
        }
    }

    /// Emits an instruction that has a result.
    pub(crate) fn emit(&mut self, inst: Inst) -> Value {
        self.watch(&inst);
        // Code after control has left goes to a block nobody reaches; it is dropped later.
        let b = match self.cur {
            Some(b) => b,
            None => {
                let b = self.ir.add_block();
                self.cur = Some(b);
                b
            }
        };
        // Callers emit through this only what has a result.
        self.ir.push(b, inst).unwrap_or(Value(0))
    }

    pub(crate) fn iconst(&mut self, n: i64) -> Value {
        let v = self.emit(Inst::IConst(n));
        self.iconsts.insert(v, n);
        v
    }

    pub(crate) fn fconst(&mut self, x: f64) -> Value {
        self.emit(Inst::FConst(x.to_bits()))
    }

    pub(crate) fn bconst(&mut self, b: bool) -> Value {
        self.emit(Inst::BConst(b))
    }

    pub(crate) fn oconst(&mut self, c: ConstRef) -> Value {
        let part = match c {
            _ if self.body == Body::OWN => None,
            ConstRef::CodeConst(n) => Some(Part::Const(n)),
            ConstRef::Name(n) => Some(Part::Name(n)),
            ConstRef::Globals => Some(Part::Globals),
            ConstRef::Builtins => Some(Part::Builtins),
            _ => None,
        };
        let c = part.map_or(c, |part| ConstRef::Fact(self.oracle.part(self.body, part).0));
        let id = self.ir.constant(c);
        self.emit(Inst::OConst(id))
    }

    pub(crate) fn none(&mut self) -> Value {
        self.oconst(ConstRef::None)
    }

    pub(crate) fn null(&mut self) -> Value {
        self.emit(Inst::Null)
    }

    /// The constant an integer value is, if it is one.
    pub(crate) fn const_of(&self, v: Value) -> Option<i64> {
        self.iconsts.get(&v).copied()
    }

    pub(crate) fn icmp(&mut self, cmp: Cmp, a: Value, b: Value) -> Value {
        self.emit(Inst::ICmp(cmp, a, b))
    }

    pub(crate) fn int(&mut self, op: IntOp, a: Value, b: Value) -> Value {
        if let (Some(x), Some(y)) = (self.const_of(a), self.const_of(b)) {
            let folded = match op {
                IntOp::Add => x.checked_add(y),
                IntOp::Sub => x.checked_sub(y),
                IntOp::Mul => x.checked_mul(y),
                _ => None,
            };
            if let Some(n) = folded {
                return self.iconst(n);
            }
        }
        self.emit(Inst::Int(op, a, b))
    }

    pub(crate) fn both(&mut self, a: Value, b: Value) -> Value {
        self.emit(Inst::Bool(BoolOp::And, a, b))
    }

    pub(crate) fn guard(&mut self, cond: Value, reason: &str) {
        let exit = self.exit_here(reason);
        self.emit0(Inst::Guard(cond, exit));
    }

    pub(crate) fn terminate(&mut self, t: Terminator) {
        if let Some(b) = self.cur.take() {
            self.ir.terminate(b, t);
        }
    }

    // --- leaving ---

    /// Marks the start of an instruction: exits of it restore the state as it is now.
    pub(crate) fn begin_instr(&mut self, idx: usize) {
        self.idx = idx;
        if self.speaks_for_itself() {
            let offset = self.ins().op_offset;
            self.ir.places.stand_at(Some(offset));
        }
        if self.f.instrs[idx].sub == 0 {
            self.snap = self.st.clone();
            self.snap_idx = idx;
        }
        self.here_exits.clear();
    }

    /// Whether the instructions are those of the graph's own function. In a body that is translated in place of a call,
    /// everything is that CALL's.
    fn speaks_for_itself(&self) -> bool {
        self.inlined.as_ref().is_none_or(|inlined| self.routine.is_some() && inlined.path.len() == 1)
    }

    /// Remembers what a variable of the function itself is here, for people.
    pub(crate) fn tell_type(&mut self, name: Named, val: &Val) {
        if self.inlined.is_none() && !matches!(val, Val::Unset) {
            self.typed.push(Typed { offset: self.ins().op_offset, name, ty: val.describe() });
        }
    }

    /// After a split, exits of the same instruction must restore another state.
    pub(crate) fn resnap(&mut self) {
        if self.ins().sub == 0 {
            self.snap = self.st.clone();
        }
        self.here_exits.clear();
    }

    pub(crate) fn here_clear(&mut self) {
        self.here_exits.clear();
    }

    /// The exit that executes the current instruction in CPython. Only before its first side effect.
    pub(crate) fn exit_here(&mut self, reason: &str) -> ExitId {
        if let Some(e) = self.here_exits.get(reason) {
            return *e;
        }
        let offset = self.f.instrs[self.snap_idx].offset;
        let snap = self.snap.clone();
        let e = self.make_exit(ExitKind::Resume, offset, &snap, self.snap_idx, reason);
        self.here_exits.insert(reason.to_owned(), e);
        e
    }

    /// The exit that goes on at the next instruction, with the state as it is now.
    pub(crate) fn exit_next(&mut self, reason: &str) -> ExitId {
        let offset = self.ins().next_offset;
        let next = self.f.instr_at(offset).unwrap_or(self.idx + 1);
        let st = self.st.clone();
        self.make_exit(ExitKind::Resume, offset, &st, next, reason)
    }

    /// The exit that goes on at the target of the current jump, with the state as it is now.
    pub(crate) fn exit_jump(&mut self, reason: &str) -> ExitId {
        let target = self.ins().op.jump_target().unwrap_or(self.ins().next_offset);
        let at = self.f.instr_at(target).unwrap_or(self.idx);
        self.exit_block(self.f.cfg.block_of[at], reason)
    }

    /// The exit that goes on at the first instruction of a block, with the state as it is now.
    pub(crate) fn exit_block(&mut self, block: usize, reason: &str) -> ExitId {
        self.exit_at(ExitKind::Resume, block, reason)
    }

    /// As `exit_block`, of a kind.
    pub(crate) fn exit_at(&mut self, kind: ExitKind, block: usize, reason: &str) -> ExitId {
        let at = self.f.cfg.blocks[block].first;
        let st = self.st.clone();
        self.make_exit(kind, self.f.instrs[at].offset, &st, at, reason)
    }

    /// The exit for an exception raised by the current instruction; operands may still be on the stack.
    pub(crate) fn exit_raise(&mut self) -> ExitId {
        let st = self.st.clone();
        let offset = self.ins().op_offset;
        self.make_exit(ExitKind::Raise, offset, &st, self.idx, "an exception was raised")
    }

    fn make_exit(
        &mut self,
        kind: ExitKind,
        offset: u32,
        st: &State,
        shape_at: usize,
        reason: &str,
    ) -> ExitId {
        if self.inlined.is_some() {
            return self.exit_at_call(ExitKind::Resume, reason);
        }
        let exit = self.build_exit(kind, offset, st, shape_at, reason);
        self.ir.add_exit(exit)
    }

    /// The exit before the current instruction, to be copied.
    pub(crate) fn exit_before(&mut self) -> Exit {
        let offset = self.f.instrs[self.snap_idx].offset;
        self.build_exit(ExitKind::Resume, offset, &self.snap, self.snap_idx, "")
    }

    fn build_exit(&self, kind: ExitKind, offset: u32, st: &State, shape_at: usize, reason: &str) -> Exit {
        let n = self.f.code.localsplus.len();
        let clean = |i: usize| i >= n && !st.dirty.get(i - n).copied().unwrap_or(false);
        let slots = st.locals.iter().enumerate();
        let locals = slots.map(|(i, v)| if clean(i) { Slot::Empty } else { v.slot() }).collect();
        let mut kinds: Vec<SlotKind> =
            self.f.stacks.before.get(shape_at).cloned().flatten().unwrap_or_default();
        kinds.truncate(st.stack.len());
        while kinds.len() < st.stack.len() {
            kinds.push(SlotKind::Value);
        }
        let is_null = |i: u32| matches!(st.stack.get(i as usize), Some(Val::Unset) | None);
        let slot = |i: u32| st.stack.get(i as usize).map_or(Slot::Empty, Val::slot);
        let stack = real_entries(self.f.code.version, &kinds)
            .into_iter()
            .map(|entry| match entry {
                RealEntry::Slot(i) => slot(i),
                RealEntry::Null => Slot::Empty,
                RealEntry::PairLow { callable } if is_null(callable + 1) => Slot::Empty,
                RealEntry::PairLow { callable } => slot(callable),
                RealEntry::PairHigh { callable } if is_null(callable + 1) => slot(callable),
                RealEntry::PairHigh { callable } => slot(callable + 1),
            })
            .collect();
        let origin = self.ins().op_offset;
        Exit { kind, offset, origin, locals, stack, reason: reason.to_owned() }
    }

    /// Leaves for CPython at the current instruction, always.
    pub(crate) fn leave(&mut self, why: &str) {
        self.remark(Status::Interpreted, why);
        let e = self.exit_here(why);
        self.terminate(Terminator::Exit(e));
    }

    // --- references ---

    /// Before an operation that may run Python code or change any container.
    pub(crate) fn clobber(&mut self) {
        self.only_outside("an operation that may run Python code");
        self.flush_globals();
        self.secure_all();
        let mut st = std::mem::take(&mut self.st);
        self.epochs += 1;
        st.epoch = self.epochs;
        st.facts.clear();
        st.members.clear();
        self.st = st;
    }

    /// Takes references for everything that only its container holds.
    pub(crate) fn secure_all(&mut self) {
        let mut st = std::mem::take(&mut self.st);
        for val in st.locals.iter_mut().chain(st.stack.iter_mut()) {
            self.secure(val, |own| own == Own::Fragile);
        }
        self.st = st;
    }

    /// A store into a list of numbers may free, or change, a number that something fragile refers to.
    pub(crate) fn clobber_plain(&mut self) {
        let mut st = std::mem::take(&mut self.st);
        for val in st.locals.iter_mut().chain(st.stack.iter_mut()) {
            let plain = match val {
                Val::Obj(o) => o.is_plain() || o.ty == ObjTy::Any,
                _ => true,
            };
            if plain {
                self.secure(val, |own| own == Own::Fragile);
            }
        }
        self.st = st;
    }

    pub(crate) fn new_epoch(&mut self) -> u32 {
        self.epochs += 1;
        self.epochs
    }

    /// Takes a reference for every part whose holder matches.
    fn secure(&mut self, val: &mut Val, which: impl Fn(Own) -> bool) {
        let mut todo = Vec::new();
        val.each_ref(&mut |v, own, _| {
            if which(*own) {
                *own = Own::Owned;
                todo.push(v);
            }
        });
        for v in todo {
            self.emit0(Inst::IncRef(v));
        }
    }

    /// Makes a value independent of everything but itself and what is static.
    pub(crate) fn own(&mut self, mut val: Val) -> Val {
        if self.inlined.is_some() {
            // Nothing dies before the call is done, and the arguments are held by the caller.
            return val;
        }
        self.secure(&mut val, |own| matches!(own, Own::Fragile | Own::Local(_)));
        val
    }

    /// A reference that the caller may give away.
    pub(crate) fn owned_ref(&mut self, o: &Obj) -> Value {
        if o.own != Own::Owned {
            self.emit0(Inst::IncRef(o.v));
        }
        o.v
    }

    /// Releases what a value owns. The state must no longer contain it.
    pub(crate) fn drop_val(&mut self, mut val: Val) {
        if let Val::Obj(o) = &val {
            if o.own == Own::Owned {
                let (v, plain) = (o.v, o.is_plain());
                self.decref(v, plain);
            }
            return;
        }
        let plain = !matches!(val, Val::SeqIter { .. } | Val::Tuple(_) | Val::Enumerate { .. } | Val::Zip(_));
        let mut todo = Vec::new();
        val.each_ref(&mut |v, own, _| {
            if *own == Own::Owned {
                todo.push(v);
            }
        });
        for v in todo {
            self.decref(v, plain);
        }
    }

    pub(crate) fn decref(&mut self, v: Value, plain: bool) {
        if plain {
            self.emit0(Inst::DecRef { obj: v, pos: None });
        } else {
            self.clobber();
            self.needs_frame = true;
            let pos = Some(self.ins().op_offset);
            self.emit0(Inst::DecRef { obj: v, pos });
        }
    }

    // --- stack and locals ---

    pub(crate) fn push(&mut self, val: Val) {
        self.st.stack.push(val);
    }

    pub(crate) fn pop(&mut self) -> Val {
        // Depths were verified by `Stacks`.
        self.st.stack.pop().unwrap_or(Val::Unset)
    }

    /// Entry `n` from the top; 0 is the top.
    pub(crate) fn peek(&self, n: usize) -> &Val {
        self.st.stack.len().checked_sub(n + 1).map_or(&Val::Unset, |i| &self.st.stack[i])
    }

    pub(crate) fn peek_mut(&mut self, n: usize) -> Option<&mut Val> {
        let i = self.st.stack.len().checked_sub(n + 1)?;
        self.st.stack.get_mut(i)
    }

    /// Removes the top `n` entries and releases them, top first.
    pub(crate) fn drop_top(&mut self, n: usize) {
        for _ in 0..n {
            let v = self.pop();
            self.drop_val(v);
        }
    }

    /// A copy of a local for the stack: the local keeps the reference.
    pub(crate) fn borrow_local(&self, i: usize) -> Val {
        let mut val = self.st.locals[i].clone();
        val.map_own(&|own| if own == Own::Owned { Own::Local(i) } else { own });
        val
    }

    /// Rebinds a local and releases what it held, in CPython's order (new value first).
    pub(crate) fn set_local(&mut self, i: usize, val: Val) {
        // Stack entries that lean on the old binding take their own references.
        let leans = |own: Own| own == Own::Local(i);
        let mut st = std::mem::take(&mut self.st);
        let mut val = val;
        for v in st.stack.iter_mut() {
            self.secure(v, leans);
        }
        self.secure(&mut val, |own| matches!(own, Own::Local(_)));
        let old = std::mem::replace(&mut st.locals[i], val);
        self.st = st;
        if !matches!(self.st.locals[i], Val::Unset) {
            let name = &self.f.code.localsplus[i].name;
            let ty = self.st.locals[i].describe();
            if self.inlined.is_none() {
                let (offset, name) = (self.ins().op_offset, Named::Local(i as u32));
                self.typed.push(Typed { offset, name, ty: ty.clone() });
            }
            match self.local_types.get_mut(name) {
                Some(known) if *known != ty && !known.split(" or ").any(|k| k == ty) => {
                    known.push_str(" or ");
                    known.push_str(&ty);
                }
                Some(_) => {}
                None => {
                    self.local_types.insert(name.clone(), ty);
                }
            }
        }
        self.drop_val(old);
    }

    // --- the object table ---

    /// Calls an entry. `Null`/`Negative` entries raise from the current state; `Declines` leaves at this instruction.
    pub(crate) fn table(&mut self, entry: TableEntry, args: Vec<Value>) -> Option<Value> {
        let sig = entry.signature();
        let mut pos = None;
        if sig.effect == Effect::Opaque {
            self.clobber();
            self.needs_frame = true;
            pos = Some(self.ins().op_offset);
        }
        let fail = match sig.failure {
            Failure::Never => None,
            Failure::Null | Failure::Negative => Some(self.exit_raise()),
            Failure::Declines => Some(self.exit_here(decline_reason(entry))),
        };
        self.table_with(entry, args, pos, fail)
    }

    pub(crate) fn table_with(
        &mut self,
        entry: TableEntry,
        args: Vec<Value>,
        pos: Option<u32>,
        fail: Option<ExitId>,
    ) -> Option<Value> {
        let inst = Inst::Table { entry, args, pos, fail };
        if entry.signature().result.is_some() {
            Some(self.emit(inst))
        } else {
            self.emit0(inst);
            None
        }
    }

    /// As `table`, for entries with a result.
    pub(crate) fn call(&mut self, entry: TableEntry, args: Vec<Value>) -> Value {
        self.table(entry, args).unwrap_or(Value(0))
    }

    pub(crate) fn is_header(&self, block: usize) -> bool {
        self.retreating.contains(&block)
    }

    /// The operation that follows in the code, if it is in the same block.
    pub(crate) fn next_op(&self) -> Option<&'a Op> {
        let block = self.f.cfg.block_of[self.idx];
        let i = self.idx + 1;
        (i < self.f.cfg.blocks[block].end).then(|| &self.f.instrs[i].op)
    }
}

fn decline_reason(entry: TableEntry) -> &'static str {
    match entry {
        TableEntry::UnboxInt => "int outside 64 bits",
        TableEntry::LoadCell => "unset closure variable",
        TableEntry::IntPow => "int power outside 64 bits or with a negative exponent",
        TableEntry::IntTrueDiv | TableEntry::FloatFloorDiv | TableEntry::FloatMod => "division by zero",
        TableEntry::FloatRound => "round of a value that is no 64-bit int",
        _ => "a value that CPython treats specially",
    }
}
