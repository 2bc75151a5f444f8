//! One instruction: which operations are native, which are object operations, which leave for the interpreter.
//!
//! In: a normalised instruction and the abstract state. Out: code, and the state behind it. The operations themselves are
//! in the files named after their family; here is the table of who does what, and what concerns only locals and stack.

use overdrive_base::flavour::{Flavour, KnownType};
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::function::ConstRef;
use overdrive_ir::inst::{Cmp, FloatOp, Inst, Terminator};

use crate::code::Const;
use crate::facts::{Named, Status};
use crate::op::{ConstIdx, GlobalNull, JumpIf, Op, UnaryKind};
use crate::translate::Step;
use crate::translate::emit::Tx;
use crate::translate::value::{Num, Obj, ObjTy, Own, Val};

impl Tx<'_> {
    pub(crate) fn instr(&mut self, idx: usize) -> Step {
        if idx < self.skip_until {
            return Ok(());
        }
        self.begin_instr(idx);
        self.remarks.entry(idx).or_insert((Status::Native, String::new()));
        self.op()
    }

    /// Operands that must be one thing or the other before the operation can be chosen.
    fn splits(&self) -> usize {
        match self.ins().op {
            Op::BinaryOp { .. } | Op::Compare { .. } | Op::BinarySubscr | Op::IsOp { .. } => 2,
            Op::StoreSubscr => 3,
            Op::UnaryOp(_) | Op::ToBool | Op::PopJumpIf { .. } | Op::JumpIfOrPop { .. } => 1,
            Op::Call { n_args, kw_names: None } if self.is_native_call(n_args as usize) => n_args as usize,
            _ => 0,
        }
    }

    /// The current instruction, in the current state.
    pub(crate) fn op(&mut self) -> Step {
        for n in 0..self.splits() {
            if matches!(self.peek(n), Val::Either { .. }) {
                return self.split(n);
            }
        }
        match self.ins().op.clone() {
            Op::Nop | Op::Resume(_) => {}
            Op::MakeCell(l) => self.make_cell(l.index()),
            Op::CopyFreeVars(_) => {}

            Op::LoadFast { local, .. } => return self.load_fast(local.index()),
            Op::StoreFast(local) => {
                self.release_local(local.index());
                let val = self.pop();
                let val = self.storable(val);
                self.set_local(local.index(), val);
            }
            Op::DeleteFast(local) => return self.delete_fast(local.index()),
            Op::LoadFastAndClear(local) => {
                let i = local.index();
                let leans = self.borrow_local(i);
                // The stack entry takes over what the local held.
                let mut moved = leans;
                moved.map_own(&|own| if own == Own::Local(i) { Own::Owned } else { own });
                self.unlean(i);
                self.st.locals[i] = Val::Unset;
                self.push(moved);
            }
            Op::LoadClosure(local) => {
                let v = self.borrow_local(local.index());
                self.push(v);
            }
            Op::LoadDeref(local) => self.load_deref(local.index()),
            Op::StoreDeref(local) => self.store_deref(local.index()),
            Op::LoadConst(c) => self.load_const(c),
            Op::LoadGlobal { name, null } => return self.load_global(name, null),
            Op::StoreGlobal(name) => self.store_global(name),
            Op::DeleteGlobal(name) => self.delete_global(name),
            Op::LoadName(name) => return self.load_global(name, GlobalNull::Absent),
            Op::StoreName(name) => self.store_global(name),
            Op::DeleteName(name) => self.delete_global(name),

            Op::LoadAttr(name) => return self.load_attr(name),
            Op::LoadMethod(name) => return self.load_method(name),
            Op::StoreAttr(name) => self.store_attr(name),
            Op::DeleteAttr(name) => self.delete_attr(name),
            Op::LoadSuperAttr { name, method, .. } => self.load_super_attr(name, method),
            Op::BinarySubscr => return self.binary_subscr(),
            Op::StoreSubscr => return self.store_subscr(),
            Op::DeleteSubscr => self.generic_effect(TableEntry::DelItem, 2, "item deletion"),
            Op::BinarySlice => self.binary_slice(),
            Op::StoreSlice => self.store_slice(),
            Op::BuildSlice { with_step } => self.build_slice(with_step),

            Op::BinaryOp { kind, inplace } => return self.binary(kind, inplace),
            Op::UnaryOp(UnaryKind::Not) => {
                let t = self.truth();
                let not = self.emit(Inst::Not(t));
                self.push(Val::num(Flavour::Bool, not));
            }
            Op::UnaryOp(kind) => self.unary(kind),
            Op::Compare { kind, to_bool } => return self.compare(kind, to_bool),
            Op::IsOp { invert } => self.is_op(invert),
            Op::ContainsOp { invert } => self.contains(invert),
            Op::ToBool => {
                let t = self.truth();
                self.push(Val::num(Flavour::Bool, t));
            }

            Op::Pop | Op::EndFor(1) => self.drop_top(1),
            Op::EndFor(n) => self.drop_top(n as usize),
            Op::Copy(n) => self.copy(n as usize),
            Op::Swap(n) => {
                let len = self.st.stack.len();
                self.st.stack.swap(len - 1, len - n as usize);
            }
            Op::PushNull => self.push(Val::Unset),

            Op::Jump { target, polls } => {
                let to = self.block_at(target);
                return self.go_back(to, polls);
            }
            Op::PopJumpIf { cond, target } => return self.pop_jump(cond, target),
            Op::JumpIfOrPop { jump_if_true, target } => return self.jump_or_pop(jump_if_true, target),
            Op::GetIter => return self.get_iter(),
            Op::ForIter { end } => return self.for_iter(end),
            Op::ReturnValue => self.return_value(),

            Op::Call { n_args, kw_names } => return self.call_op(n_args as usize, kw_names),
            Op::CallFunctionEx { has_kwargs } => self.call_ex(has_kwargs),
            Op::MakeFunction { flags } => return self.make_function(flags),

            Op::BuildTuple(n) => self.build_tuple(n as usize),
            Op::BuildList(n) => self.build(TableEntry::BuildList, n as usize, KnownType::List),
            Op::BuildSet(n) => self.build(TableEntry::BuildSet, n as usize, KnownType::Set),
            Op::BuildMap(n) => self.build(TableEntry::BuildMap, 2 * n as usize, KnownType::Dict),
            Op::BuildConstKeyMap(n) => self.build_const_key_map(n as usize),
            Op::BuildString(n) => self.build(TableEntry::BuildString, n as usize, KnownType::Str),
            Op::ListAppend(i) => self.list_append(i as usize),
            Op::ListExtend(i) => self.add_to(TableEntry::ListExtend, i as usize, 1),
            Op::SetAdd(i) => self.add_to(TableEntry::SetAdd, i as usize, 1),
            Op::SetUpdate(i) => self.add_to(TableEntry::SetUpdate, i as usize, 1),
            Op::MapAdd(i) => self.add_to(TableEntry::MapAdd, i as usize, 2),
            Op::DictUpdate(i) => self.add_to(TableEntry::DictUpdate, i as usize, 1),
            Op::DictMerge(i) => self.dict_merge(i as usize),
            Op::ListToTuple => self.generic(TableEntry::ListToTuple, vec![], 1, "list to tuple"),
            Op::UnpackSequence(n) => return self.unpack(n as usize),
            Op::UnpackEx { before, after } => self.unpack_ex(before as usize, after as usize),
            Op::FormatValue { conversion, with_spec } => self.format_value(conversion, with_spec),
            Op::ConvertValue(conversion) => self.convert_value(conversion),

            Op::BeforeWith => self.before_with(),
            Op::ImportName(name) => self.import_name(name),
            Op::ImportFrom(name) => self.import_from(name),
            Op::Raise(_) => self.leave("raise"),
            Op::LoadAssertionError => self.leave("assertion failure"),
            other => self.leave(&format!("{} runs in the interpreter", name_of(&other))),
        }
        Ok(())
    }

    pub(crate) fn block_at(&self, target: u32) -> usize {
        // Jump targets were verified by `Cfg::build`.
        self.f.instr_at(target).map_or(0, |i| self.f.cfg.block_of[i])
    }

    /// A jump that may be a loop's back edge.
    fn go_back(&mut self, to: usize, polls: bool) -> Step {
        if !self.is_header(to) && !polls {
            return self.edge_to(to);
        }
        if self.entered.contains_key(&to) {
            return self.poll_back(to);
        }
        self.poll();
        self.edge_to(to)
    }

    /// Gives CPython its turn at a loop's back edge.
    pub(crate) fn poll(&mut self) {
        self.clobber();
        self.needs_frame = true;
        let fail = self.exit_raise();
        let pos = self.ins().op_offset;
        self.emit0(Inst::Poll { pos, fail });
    }

    /// A virtual tuple becomes one object when it gets a name: it may be looked at twice.
    fn storable(&mut self, val: Val) -> Val {
        match val {
            Val::Tuple(_) | Val::RangeIter { .. } | Val::Range { .. } => Val::Obj(self.as_obj(val)),
            val => val,
        }
    }

    fn load_fast(&mut self, i: usize) -> Step {
        let val = self.st.locals[i].clone();
        self.tell_type(Named::Local(i as u32), &val);
        match val {
            Val::Unset => self.leave("local variable read before assignment"),
            Val::Either { tag, a, b } if matches!(*b, Val::Unset) => {
                self.guard(tag, "local variable read before assignment");
                // From here on it is set.
                self.st.locals[i] = *a;
                let v = self.borrow_local(i);
                self.push(v);
            }
            Val::Obj(o) if o.maybe_null => {
                let null = self.emit(Inst::IsNull(o.v));
                let set = self.emit(Inst::Not(null));
                self.guard(set, "local variable read before assignment");
                self.st.locals[i] = Val::Obj(Obj { maybe_null: false, ..o });
                let v = self.borrow_local(i);
                self.push(v);
            }
            _ => {
                let v = self.borrow_local(i);
                self.push(v);
            }
        }
        Ok(())
    }

    fn delete_fast(&mut self, i: usize) -> Step {
        match self.st.locals[i].clone() {
            Val::Unset => self.leave("deletion of an unset local"),
            Val::Either { tag, b, .. } if matches!(*b, Val::Unset) => {
                self.guard(tag, "deletion of an unset local");
                self.set_local(i, Val::Unset);
            }
            Val::Obj(o) if o.maybe_null => {
                let null = self.emit(Inst::IsNull(o.v));
                let set = self.emit(Inst::Not(null));
                self.guard(set, "deletion of an unset local");
                self.set_local(i, Val::Unset);
            }
            _ => self.set_local(i, Val::Unset),
        }
        Ok(())
    }

    /// Stack entries that lean on a local take their own references.
    fn unlean(&mut self, i: usize) {
        let mut stack = std::mem::take(&mut self.st.stack);
        for val in stack.iter_mut() {
            let mut todo = Vec::new();
            val.each_ref(&mut |v, own, _| {
                if *own == Own::Local(i) {
                    *own = Own::Owned;
                    todo.push(v);
                }
            });
            for v in todo {
                self.emit0(Inst::IncRef(v));
            }
        }
        self.st.stack = stack;
    }

    fn load_const(&mut self, c: ConstIdx) {
        let val = self.const_val(c.0, &self.f.code.consts[c.index()]);
        self.push(val);
    }

    /// A constant as a value; `idx` is its place in `co_consts`.
    pub(crate) fn const_val(&mut self, idx: u32, c: &Const) -> Val {
        match c {
            Const::None => Val::None,
            Const::Bool(b) => {
                let v = self.bconst(*b);
                Val::num(Flavour::Bool, v)
            }
            Const::Int(n) => {
                let v = self.iconst(*n);
                Val::num(Flavour::Int, v)
            }
            Const::Float(bits) => {
                let v = self.emit(Inst::FConst(*bits));
                Val::num(Flavour::Float, v)
            }
            other => {
                let ty = match other {
                    Const::Str(_) => ObjTy::Exact(KnownType::Str),
                    Const::Bytes(_) => ObjTy::Exact(KnownType::Bytes),
                    Const::Tuple(_) => ObjTy::Exact(KnownType::Tuple),
                    Const::BigInt(_) => ObjTy::Exact(KnownType::Int),
                    _ => ObjTy::Any,
                };
                let v = self.oconst(ConstRef::CodeConst(idx));
                Val::Obj(Obj { konst: Some(idx), ..Obj::new(v, Own::Static, ty) })
            }
        }
    }

    fn copy(&mut self, n: usize) {
        let is_tuple = matches!(self.peek(n - 1), Val::Tuple(_));
        let below_is_array = matches!(self.peek(n), Val::Obj(Obj { ty: ObjTy::Array { .. }, .. }));
        if is_tuple && !below_is_array {
            // Two users of one tuple object.
            let len = self.st.stack.len();
            let val = std::mem::replace(&mut self.st.stack[len - n], Val::Unset);
            let o = self.as_obj(val);
            self.st.stack[len - n] = Val::Obj(o);
        }
        let mut val = self.peek(n - 1).clone();
        // The copy may outlive the original: it takes its own references.
        let mut todo = Vec::new();
        val.each_ref(&mut |v, own, _| {
            if *own == Own::Owned {
                todo.push(v);
            }
        });
        for v in todo {
            self.emit0(Inst::IncRef(v));
        }
        self.push(val);
    }

    /// Pops the top and gives its truth value (I1).
    pub(crate) fn truth(&mut self) -> overdrive_ir::entities::Value {
        match self.peek(0).clone() {
            Val::Num(n) => {
                let t = self.num_truth(n);
                self.drop_top(1);
                t
            }
            Val::None | Val::Unset => {
                self.pop();
                self.bconst(false)
            }
            Val::Tuple(parts) => {
                let t = self.bconst(!parts.is_empty());
                self.drop_top(1);
                t
            }
            Val::Obj(o) if let Some(len) = self.len_field(&o) => {
                let zero = self.iconst(0);
                let t = self.icmp(Cmp::Ne, len, zero);
                self.drop_top(1);
                t
            }
            _ => {
                self.box_top(1);
                let args = self.top_refs(1);
                self.remark(Status::ThroughCPython, "truth value of an object");
                let r = self.call(TableEntry::IsTrue, args);
                let zero = self.iconst(0);
                let t = self.icmp(Cmp::Ne, r, zero);
                self.drop_top(1);
                t
            }
        }
    }

    fn num_truth(&mut self, n: Num) -> overdrive_ir::entities::Value {
        match n.flavour {
            Flavour::Bool | Flavour::NpBool => n.v,
            Flavour::Float | Flavour::NpF64 => {
                let zero = self.fconst(0.0);
                self.emit(Inst::FCmp(Cmp::Ne, n.v, zero))
            }
            Flavour::NpF32 => {
                let zero = self.emit(Inst::F32Const(0));
                self.emit(Inst::FCmp(Cmp::Ne, n.v, zero))
            }
            Flavour::Int | Flavour::NpI64 | Flavour::NpI32 | Flavour::NpU8 => {
                let zero = self.iconst(0);
                self.icmp(Cmp::Ne, n.v, zero)
            }
        }
    }

    fn pop_jump(&mut self, cond: JumpIf, target: u32) -> Step {
        let to = self.block_at(target);
        let next = self.f.cfg.block_of[self.idx] + 1;
        let c = match cond {
            JumpIf::True | JumpIf::False => self.truth(),
            JumpIf::None | JumpIf::NotNone => match self.peek(0).clone() {
                Val::None => {
                    self.pop();
                    self.bconst(true)
                }
                Val::Obj(o) => {
                    let none = self.none();
                    let c = self.emit(Inst::Same(o.v, none));
                    self.drop_top(1);
                    c
                }
                _ => {
                    self.drop_top(1);
                    self.bconst(false)
                }
            },
        };
        // A loop that goes back by a conditional jump polls on that side.
        if self.is_header(to) && self.entered.contains_key(&to) {
            let (taken, other) = (self.ir.add_block(), self.ir.add_block());
            let (t, e) = match cond {
                JumpIf::True | JumpIf::None => (taken, other),
                JumpIf::False | JumpIf::NotNone => (other, taken),
            };
            self.terminate(Terminator::Branch { cond: c, then: (t, vec![]), els: (e, vec![]) });
            let state = self.st.clone();
            self.cur = Some(taken);
            self.go_back(to, true)?;
            self.cur = Some(other);
            self.st = state;
            return self.edge_to(next);
        }
        match cond {
            JumpIf::True | JumpIf::None => self.branch_to(c, to, next),
            JumpIf::False | JumpIf::NotNone => self.branch_to(c, next, to),
        }
    }

    /// 3.11's `and` / `or`: one side keeps the value.
    fn jump_or_pop(&mut self, jump_if_true: bool, target: u32) -> Step {
        let to = self.block_at(target);
        let next = self.f.cfg.block_of[self.idx] + 1;
        // Test a copy; the original stays for the side that keeps it.
        self.copy(1);
        let c = self.truth();
        let (keep, drop) = (self.ir.add_block(), self.ir.add_block());
        let (t, e) = if jump_if_true { (keep, drop) } else { (drop, keep) };
        self.terminate(Terminator::Branch { cond: c, then: (t, vec![]), els: (e, vec![]) });
        let state = self.st.clone();
        self.cur = Some(keep);
        self.edge_to(to)?;
        self.cur = Some(drop);
        self.st = state;
        self.drop_top(1);
        self.edge_to(next)
    }

    fn return_value(&mut self) {
        if self.inlined.is_some() {
            return self.return_to_caller();
        }
        if self.is_loop_entry {
            // The frame goes on in CPython: it executes the return itself.
            let e = self.exit_here("return");
            self.terminate(Terminator::Exit(e));
            return;
        }
        // The locals are about to go. What a tuple holds twice is one object nevertheless.
        self.forgetting(|tx| tx.box_top(1));
        let Val::Obj(o) = self.pop() else { return };
        let v = self.owned_ref(&o);
        // Locals go in slot order, as a frame clears them; what remains on the stack goes with them.
        let locals = std::mem::take(&mut self.st.locals);
        let stack = std::mem::take(&mut self.st.stack);
        let all: Vec<Val> = locals.into_inner().into_iter().chain(stack.into_inner()).collect();
        for val in all {
            self.drop_val(val);
        }
        self.terminate(Terminator::Return(v));
    }

    /// Rounds an I64 to F64; exact when it is a constant.
    pub(crate) fn float_of(&mut self, v: overdrive_ir::entities::Value) -> overdrive_ir::entities::Value {
        if let Some(n) = self.const_of(v) {
            return self.fconst(n as f64);
        }
        self.emit(Inst::IntToFloat(v))
    }

    pub(crate) fn float_op(
        &mut self,
        op: FloatOp,
        a: overdrive_ir::entities::Value,
        b: overdrive_ir::entities::Value,
    ) -> overdrive_ir::entities::Value {
        self.emit(Inst::Float(op, a, b))
    }
}

/// The operation's name for people.
fn name_of(op: &Op) -> String {
    let text = format!("{op:?}");
    text.split([' ', '(', '{']).next().unwrap_or("operation").to_owned()
}
