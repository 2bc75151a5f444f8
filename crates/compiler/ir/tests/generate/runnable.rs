//! Valid functions that can be run: arithmetic, guards, branches and counted loops over numbers, and references to tracked
//! objects that are taken, given away, observed and released.
//!
//! Arguments: an int, a float, a list of four tracked objects, a tracked object. Every check has an exit of its own, known
//! by its reason. References that the function owns at an exit are on its stack.

use overdrive_base::flavour::{Flavour, KnownType, Ty};
use overdrive_base::table::Entry;
use overdrive_ir::entities::{Block, ExitId, Value};
use overdrive_ir::exit::{Exit, ExitKind, Own, Slot};
use overdrive_ir::function::{ConstRef, Function};
use overdrive_ir::inst::{BoolOp, CheckedOp, Cmp, FloatOp, Inst, IntOp, Seq, Terminator};

use super::Random;

const INT: Value = Value(0);
const FLOAT: Value = Value(1);
const LIST: Value = Value(2);
const TRACKED: Value = Value(3);

/// A function of about `size` statements.
pub(crate) fn function(seed: u64, size: usize) -> Function {
    let mut f = Function::new("generated", 4);
    f.needs_frame = true;
    f.constant(ConstRef::Fact(0));
    let mut g = Generator {
        f,
        r: Random::new(seed),
        block: Block(0),
        owned: vec![],
        scope: Scope::default(),
        pos: 0,
    };
    g.prologue();
    g.statements(size, 2);
    g.epilogue();
    g.f
}

/// Values that may be used here, by type.
#[derive(Clone, Default)]
struct Scope {
    ints: Vec<Value>,
    floats: Vec<Value>,
    bools: Vec<Value>,
}

struct Generator {
    f: Function,
    r: Random,
    block: Block,
    /// References that the function owns here.
    owned: Vec<Value>,
    scope: Scope,
    pos: u32,
}

impl Generator {
    fn push(&mut self, inst: Inst) -> Value {
        // Instructions without a result give a value that nobody looks at.
        self.f.push(self.block, inst).unwrap_or(INT)
    }

    /// A constant from 0 to 3: an index of the list, a number of rounds.
    fn small(&mut self) -> Value {
        let n = self.r.below(4) as i64;
        self.push(Inst::IConst(n))
    }

    fn next_pos(&mut self) -> Option<u32> {
        self.pos += 2;
        Some(self.pos)
    }

    fn exit(&mut self, kind: ExitKind) -> ExitId {
        let offset = self.next_pos().unwrap_or(0);
        let borrowed = |v| Slot::Obj(v, Own::Borrowed);
        let mut locals = vec![borrowed(INT), borrowed(FLOAT), borrowed(LIST), borrowed(TRACKED)];
        let scope = &self.scope;
        for (flavour, values) in
            [(Flavour::Int, &scope.ints), (Flavour::Float, &scope.floats), (Flavour::Bool, &scope.bools)]
        {
            locals.push(match values.as_slice() {
                [] => Slot::Empty,
                values => Slot::Number { flavour, value: self.r.pick(values), boxed: None },
            });
        }
        let stack = self.owned.iter().map(|v| Slot::Obj(*v, Own::Owned)).collect();
        self.f.add_exit(Exit {
            kind,
            offset,
            origin: offset,
            locals,
            stack,
            reason: format!("check {offset}"),
        })
    }

    fn guard(&mut self, cond: Value) {
        let exit = self.exit(ExitKind::Resume);
        self.push(Inst::Guard(cond, exit));
    }

    fn table(&mut self, entry: Entry, args: Vec<Value>, kind: Option<ExitKind>) -> Value {
        let pos = self.next_pos();
        let fail = kind.map(|kind| self.exit(kind));
        self.push(Inst::Table { entry, args, pos, fail })
    }

    fn prologue(&mut self) {
        for (v, known) in [(INT, KnownType::Int), (FLOAT, KnownType::Float), (LIST, KnownType::List)] {
            let is = self.push(Inst::TypeIs(v, known));
            self.guard(is);
        }
        let int = self.table(Entry::UnboxInt, vec![INT], Some(ExitKind::Resume));
        let float = self.push(Inst::Unbox(Flavour::Float, FLOAT));
        let truth = self.push(Inst::ICmp(Cmp::Gt, int, int));
        self.scope = Scope { ints: vec![int], floats: vec![float], bools: vec![truth] };
    }

    /// Returns a mixture of everything that can be seen, so that no difference gets lost.
    fn epilogue(&mut self) {
        let mut mix = self.push(Inst::IConst(0));
        let three = self.push(Inst::IConst(3));
        for v in self.scope.bools.clone() {
            let n = self.push(Inst::BoolToInt(v));
            self.scope.ints.push(n);
        }
        for v in self.scope.ints.clone() {
            let scaled = self.push(Inst::Int(IntOp::Mul, mix, three));
            mix = self.push(Inst::Int(IntOp::Xor, scaled, v));
        }
        let result = self.table(Entry::BoxInt, vec![mix], Some(ExitKind::Raise));
        self.f.terminate(self.block, Terminator::Return(result));
    }

    fn int(&mut self) -> Value {
        self.r.pick(&self.scope.ints)
    }

    fn float(&mut self) -> Value {
        self.r.pick(&self.scope.floats)
    }

    fn truth(&mut self) -> Value {
        self.r.pick(&self.scope.bools)
    }

    /// Statements that leave no more references owned than there were.
    fn statements(&mut self, size: usize, depth: u32) {
        let before = self.owned.len();
        for _ in 0..size {
            match self.r.below(if depth == 0 { 13 } else { 15 }) {
                0..=4 => self.number(),
                5 => self.checked(),
                6 => {
                    let cond = self.truth();
                    // A guard that usually holds.
                    let yes = self.push(Inst::BConst(true));
                    let cond = if self.r.below(4) == 0 {
                        cond
                    } else {
                        self.push(Inst::Bool(BoolOp::Or, cond, yes))
                    };
                    self.guard(cond);
                }
                7 | 8 => self.take(),
                9 if self.owned.len() > before => self.release(before),
                10 => self.observe(),
                11 if self.owned.len() > before => self.swap(before),
                12 => self.hold(),
                13 => self.branch(size / 2, depth - 1),
                14 => self.repeat(size / 2, depth - 1),
                _ => {}
            }
        }
        while self.owned.len() > before {
            self.release(before);
        }
    }

    fn number(&mut self) {
        let (a, b, x, y) = (self.int(), self.int(), self.float(), self.float());
        let (p, q) = (self.truth(), self.truth());
        let cmp = self.r.pick(&[Cmp::Lt, Cmp::Le, Cmp::Eq, Cmp::Ne, Cmp::Gt, Cmp::Ge]);
        let int_op = self.r.pick(&[IntOp::Add, IntOp::Sub, IntOp::Mul, IntOp::And, IntOp::Or, IntOp::Xor]);
        let small = self.r.below(7) as i64 - 3;
        let inst = match self.r.below(15) {
            0 | 1 => Inst::IConst(small),
            2 | 3 => Inst::Int(int_op, a, b),
            4 => Inst::ICmp(cmp, a, b),
            5 => Inst::ULt(a, b),
            6 => Inst::Select(p, a, b),
            7 => Inst::Bool(self.r.pick(&[BoolOp::And, BoolOp::Or, BoolOp::Xor]), p, q),
            8 => Inst::Not(p),
            9 => Inst::BoolToInt(p),
            10 => Inst::BConst(self.r.coin()),
            11 => Inst::IntToFloat(a),
            12 => Inst::Float(self.r.pick(&[FloatOp::Add, FloatOp::Mul]), x, y),
            13 => Inst::FCmp(cmp, x, y),
            _ => Inst::Same(self.r.pick(&[INT, FLOAT, LIST]), self.r.pick(&[INT, TRACKED, LIST])),
        };
        let v = self.push(inst);
        match self.f.ty(v) {
            Ty::I64 => self.scope.ints.push(v),
            Ty::F64 => self.scope.floats.push(v),
            _ => self.scope.bools.push(v),
        }
    }

    fn checked(&mut self) {
        let (a, b) = (self.int(), self.int());
        let exit = self.exit(ExitKind::Resume);
        let op = self.r.pick(&[CheckedOp::Add, CheckedOp::Sub, CheckedOp::Mul]);
        let v = self.push(Inst::Checked(op, a, b, exit));
        self.scope.ints.push(v);
    }

    /// Takes a reference: to an argument, to something owned already, to an item of the list, to a new object.
    fn take(&mut self) {
        let v = match self.r.below(4) {
            0 => self.r.pick(&[INT, FLOAT, LIST, TRACKED]),
            1 if !self.owned.is_empty() => self.r.pick(&self.owned.clone()),
            2 => {
                let index = self.small();
                self.push(Inst::ItemGet(Seq::List, LIST, index))
            }
            _ => {
                let x = self.float();
                let v = self.table(Entry::BoxFloat, vec![x], Some(ExitKind::Raise));
                self.owned.push(v);
                return;
            }
        };
        self.push(Inst::IncRef(v));
        self.owned.push(v);
    }

    fn release(&mut self, before: usize) {
        let i = before + self.r.below(self.owned.len() - before);
        let obj = self.owned.remove(i);
        let pos = self.next_pos();
        self.push(Inst::DecRef { obj, pos });
    }

    /// Something that sees counts, or runs code that could.
    fn observe(&mut self) {
        let obj = self.r.pick(&[TRACKED, LIST]);
        if self.r.coin() {
            let unique = self.table(Entry::IsUnique, vec![obj], None);
            self.scope.bools.push(unique);
            return;
        }
        self.observe_object(obj);
    }

    /// A call that sees the object's count.
    fn observe_object(&mut self, obj: Value) {
        let callable = self.push(Inst::OConst(overdrive_ir::entities::ConstId(0)));
        let null = self.push(Inst::Null);
        let result = self.table(Entry::Call, vec![callable, null, obj], Some(ExitKind::Raise));
        self.owned.push(result);
    }

    /// Gives an owned reference to the list and gets the old item's.
    fn swap(&mut self, before: usize) {
        let i = before + self.r.below(self.owned.len() - before);
        // A list inside itself would never be freed: the mock has no cycle collector.
        if self.owned[i] == LIST {
            return;
        }
        let item = self.owned.remove(i);
        let index = self.small();
        let old = self.push(Inst::ListSwap { list: LIST, index, item });
        self.owned.push(old);
    }

    /// Holds something while things happen that may end its other references: the pairs that the optimiser looks at.
    fn hold(&mut self) {
        let index = self.small();
        let item = self.push(Inst::ItemGet(Seq::List, LIST, index));
        let held = self.r.pick(&[item, item, TRACKED, FLOAT]);
        // Only references from here on may end here: the other ways of a branch own the earlier ones, too.
        let base = self.owned.len();
        // There is a reference to give away before the pair begins.
        self.push(Inst::IncRef(TRACKED));
        self.owned.push(TRACKED);
        self.push(Inst::IncRef(held));
        self.owned.push(held);
        for _ in 0..self.r.below(3) {
            match self.r.below(4) {
                0 => self.number(),
                1 => self.observe_object(held),
                2 => {
                    // The item's place in the list goes to another object, and the list's reference ends.
                    let Some(i) = self.owned.iter().rposition(|v| *v == TRACKED).filter(|i| *i >= base)
                    else {
                        continue;
                    };
                    let item = self.owned.remove(i);
                    let old = self.push(Inst::ListSwap { list: LIST, index, item });
                    let pos = self.next_pos();
                    self.push(Inst::DecRef { obj: old, pos });
                }
                _ => {
                    let unique = self.table(Entry::IsUnique, vec![held], None);
                    self.scope.bools.push(unique);
                }
            }
        }
        if let Some(i) = self.owned.iter().rposition(|v| *v == held).filter(|i| *i >= base) {
            self.owned.remove(i);
            let pos = self.next_pos();
            self.push(Inst::DecRef { obj: held, pos });
        }
    }

    fn branch(&mut self, size: usize, depth: u32) {
        let cond = self.truth();
        let (then, els, join) = (self.f.add_block(), self.f.add_block(), self.f.add_block());
        self.f.terminate(self.block, Terminator::Branch { cond, then: (then, vec![]), els: (els, vec![]) });
        let (int, float) = (self.f.add_param(join, Ty::I64), self.f.add_param(join, Ty::F64));
        let outer = self.scope.clone();
        for block in [then, els] {
            self.block = block;
            self.scope = outer.clone();
            self.statements(size, depth);
            let args = vec![self.int(), self.float()];
            self.f.terminate(self.block, Terminator::Jump(join, args));
        }
        self.block = join;
        self.scope = outer;
        self.scope.ints.push(int);
        self.scope.floats.push(float);
    }

    /// A loop of at most three rounds.
    fn repeat(&mut self, size: usize, depth: u32) {
        let (head, body, done) = (self.f.add_block(), self.f.add_block(), self.f.add_block());
        let counter = self.f.add_param(head, Ty::I64);
        let carried = self.f.add_param(head, Ty::I64);
        let unchanged = self.f.add_param(head, Ty::F64);
        let start = self.small();
        let first = vec![start, self.int(), self.float()];
        self.f.terminate(self.block, Terminator::Jump(head, first));
        self.block = head;
        self.scope.ints.extend([counter, carried]);
        self.scope.floats.push(unchanged);
        let zero = self.push(Inst::IConst(0));
        let more = self.push(Inst::ICmp(Cmp::Gt, counter, zero));
        self.f.terminate(head, Terminator::Branch { cond: more, then: (body, vec![]), els: (done, vec![]) });
        let outer = self.scope.clone();
        self.block = body;
        self.statements(size, depth);
        let one = self.push(Inst::IConst(1));
        let next = self.push(Inst::Int(IntOp::Sub, counter, one));
        let args = vec![next, self.int(), unchanged];
        self.f.terminate(self.block, Terminator::Jump(head, args));
        self.block = done;
        self.scope = outer;
    }
}
