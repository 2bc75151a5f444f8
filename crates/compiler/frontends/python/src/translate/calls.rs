//! Calls: of built-in and `math` functions with a native form, of everything else by vectorcall.
//!
//! In: the call pair and arguments on the abstract stack. Out: the result. What a callee *is* was guarded when it was loaded
//! (`names`, `objects`), so here its meaning counts.

use overdrive_base::flavour::{Flavour, KnownType};
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::Value;
use overdrive_ir::function::ConstRef;
use overdrive_ir::inst::{Cmp, Field, FloatOp, FloatUnary, Inst};

use crate::facts::{Builtin, Fact, MathFn, Meaning, Status};
use crate::op::{ConstIdx, Op};
use crate::translate::Step;
use crate::translate::emit::Tx;
use crate::translate::iterate::RANGE_LIMIT;
use crate::translate::value::{Boxed, Num, ObjTy, Own, Val};

impl Tx<'_> {
    /// What the call pair below `n` arguments calls, if known, and its receiver.
    fn callee(&self, n: usize) -> Option<(Meaning, Option<&Val>)> {
        let (fact, receiver) = self.callee_fact(n)?;
        Some((fact.meaning, receiver))
    }

    /// The object that the call pair below `n` arguments calls, if it is known, and its receiver.
    pub(crate) fn callee_fact(&self, n: usize) -> Option<(&Fact, Option<&Val>)> {
        let (a, b) = (self.peek(n + 1), self.peek(n));
        let (f, receiver) = match (a, b) {
            (Val::Unset, Val::Obj(f)) | (Val::Obj(f), Val::Unset) => (f, None),
            (Val::Obj(f), receiver) => (f, Some(receiver)),
            _ => return None,
        };
        Some((f.known.as_ref()?, receiver))
    }

    pub(crate) fn is_native_call(&self, n: usize) -> bool {
        matches!(
            self.callee(n),
            Some((Meaning::Builtin(_) | Meaning::Math(_), None))
                | Some((Meaning::ListAppend | Meaning::DictGet, Some(_)))
        ) && !self.blocked()
    }

    pub(crate) fn call_op(&mut self, n: usize, kw_names: Option<ConstIdx>) -> Step {
        if let Some((Meaning::Builtin(Builtin::FrameReader), _)) = self.callee(n) {
            return Err(
                self.refused("it reads its own frame (locals, vars, dir, eval, exec or sys.getrefcount)")
            );
        }
        if kw_names.is_none() && self.is_native_call(n) && self.native_call(n) {
            return Ok(());
        }
        if self.inline_call(n, kw_names)? {
            return Ok(());
        }
        self.generic_call(n, kw_names);
        Ok(())
    }

    fn generic_call(&mut self, n: usize, kw_names: Option<ConstIdx>) {
        let mut why = match self.callee_name(n) {
            Some(name) => format!("call of {name}"),
            None => "call".to_owned(),
        };
        if let Some(reason) = self.headers.not_inlined.get(&self.idx) {
            why = format!("{why}, not inlined: {reason}");
        }
        self.remark(Status::ThroughCPython, &why);
        self.box_top(n + 2);
        let names = match kw_names {
            Some(k) => self.oconst(ConstRef::CodeConst(k.0)),
            None => self.null(),
        };
        // Null entries of the pair are left out: callable, receiver if any, arguments.
        if self.is_seen_dying(n + 2) {
            let mut args = vec![names];
            args.extend(self.give_top(n + 2));
            let v = self.call(TableEntry::CallGiving, args);
            self.replace_top(n + 2, v);
            return;
        }
        let refs = self.top_refs(n + 2);
        let mut args = vec![refs.first().copied().unwrap_or(names), names];
        args.extend(refs.into_iter().skip(1));
        let v = self.call(TableEntry::Call, args);
        self.replace_top(n + 2, v);
    }

    /// Whether one of the top `n` entries is an object whose end can be seen, and that no local holds. A callee that
    /// drops it must find that we do not hold it.
    fn is_seen_dying(&self, n: usize) -> bool {
        let is_seen = |val: &Val| matches!(val, Val::Obj(o) if matches!(o.own, Own::Owned | Own::Fragile) && !o.is_plain());
        (0..n).any(|i| is_seen(self.peek(i)))
    }

    /// The references of the top `n` entries, bottom first, to give away. They must be objects (null entries are left
    /// out). The entries are None from here on, also for the exit of a call that fails: there the call may be made once
    /// more, of an object that raises, and CPython takes no null for an argument.
    fn give_top(&mut self, n: usize) -> Vec<Value> {
        let len = self.st.stack.len();
        let mut given = Vec::with_capacity(n);
        for i in len - n.min(len)..len {
            if let Val::Obj(o) = self.st.stack[i].clone() {
                given.push(self.owned_ref(&o));
                self.st.stack[i] = Val::None;
            }
        }
        given
    }

    /// The name under which the callee was loaded, for people.
    pub(crate) fn callee_name(&self, n: usize) -> Option<String> {
        let depth_before = self.st.stack.len().checked_sub(n + 2)?;
        let block = &self.f.cfg.blocks[self.f.cfg.block_of[self.idx]];
        let mut name = None;
        for i in (block.first..self.idx).rev() {
            let depth = self.f.stacks.depth(i)? as usize;
            match &self.f.instrs[i].op {
                Op::LoadGlobal { name: g, .. } | Op::LoadName(g) if depth <= depth_before + 1 => {
                    let base = self.code().names[g.index()].clone();
                    return Some(name.map_or(base.clone(), |attr: String| format!("{base}.{attr}")));
                }
                Op::LoadFast { local, .. } if depth <= depth_before + 1 => {
                    let base = self.code().localsplus[local.index()].name.clone();
                    return Some(name.map_or(base.clone(), |attr: String| format!("{base}.{attr}")));
                }
                Op::LoadMethod(m) | Op::LoadAttr(m) if depth <= depth_before + 2 && name.is_none() => {
                    name = Some(self.code().names[m.index()].clone());
                }
                _ if depth < depth_before => return name,
                _ => {}
            }
        }
        name
    }

    /// Replaces pair and arguments by a result that leans on none of them.
    fn finish_call(&mut self, n: usize, result: Val) -> bool {
        let result = self.own(result);
        let len = self.st.stack.len();
        self.push(result);
        self.st.stack[len - n - 2..].rotate_right(1);
        self.drop_top(n + 2);
        true
    }

    fn native_call(&mut self, n: usize) -> bool {
        let mut args: Vec<Val> = (0..n).rev().map(|i| self.peek(i).clone()).collect();
        if !self.is_iterable_call(n) {
            // The stack entries keep their references until the call is done; a result takes its own.
            args.iter_mut()
                .for_each(|a| a.map_own(&|own| if own == Own::Owned { Own::Fragile } else { own }));
        }
        match self.callee(n).map(|(m, r)| (m, r.cloned())) {
            Some((Meaning::Math(f), None)) => match self.math(f, &args) {
                Some(v) => self.finish_call(n, v),
                None => false,
            },
            Some((Meaning::Builtin(f), None)) => match f {
                Builtin::Range | Builtin::Prange | Builtin::Enumerate | Builtin::Zip => {
                    self.iterable(f, n, &args)
                }
                _ => match self.builtin(f, &args) {
                    Some(v) => self.finish_call(n, v),
                    None => false,
                },
            },
            Some((Meaning::ListAppend, Some(Val::Obj(list))))
                if n == 1 && list.ty == ObjTy::Exact(KnownType::List) =>
            {
                self.append_top(list.v);
                self.finish_call(1, Val::None)
            }
            Some((Meaning::DictGet, Some(Val::Obj(dict))))
                if matches!(n, 1 | 2)
                    && dict.ty == ObjTy::Exact(KnownType::Dict)
                    && !self.is_seen_dying(n + 2) =>
            {
                self.dict_get(n, dict.v)
            }
            _ => false,
        }
    }

    /// `dict.get(key)` or `dict.get(key, default)` of an exact dict; arguments that die here are left to `generic_call`,
    /// which releases them in CPython's order.
    fn dict_get(&mut self, n: usize, dict: Value) -> bool {
        self.remark(Status::ThroughCPython, "dict.get");
        self.box_top(n);
        let refs = self.top_refs(n);
        let (Some(key), default) = (refs.first().copied(), refs.get(1).copied()) else { return false };
        let default = default.unwrap_or_else(|| self.none());
        let v = self.call(TableEntry::DictGet, vec![dict, key, default]);
        self.replace_top(n + 2, v);
        true
    }

    fn is_iterable_call(&self, n: usize) -> bool {
        let meaning = self.callee(n).map(|(m, _)| m);
        matches!(
            meaning,
            Some(Meaning::Builtin(Builtin::Range | Builtin::Prange | Builtin::Enumerate | Builtin::Zip))
        )
    }

    /// `range`, `enumerate`, `zip` whose result goes straight into a loop.
    fn iterable(&mut self, f: Builtin, n: usize, args: &[Val]) -> bool {
        let consumed = matches!(self.next_op(), Some(Op::GetIter));
        // `enumerate(range(n))` and the like: the inner one is consumed by the outer call.
        let nested = f == Builtin::Range && self.feeds_iterator();
        if !consumed && !nested {
            return false;
        }
        let is_range = matches!(f, Builtin::Range | Builtin::Prange);
        if consumed && !is_range && self.iterator_escapes(2) {
            return false;
        }
        let result = match f {
            Builtin::Range => self.range(args),
            Builtin::Prange => {
                // GET_ITER and FOR_ITER follow, which begins a block: the loop's header.
                self.free.extend(self.f.cfg.block_of.get(self.idx + 2));
                self.range(args)
            }
            Builtin::Enumerate if args.len() == 1 => {
                let Some(iter) = self.iter_of(&args[0]) else { return false };
                let count = self.iconst(0);
                Some(Val::Enumerate { count, iter: Box::new(iter) })
            }
            Builtin::Zip if !args.is_empty() => {
                let mut parts = Vec::new();
                for a in args {
                    match self.iter_of(a) {
                        Some(iter) => parts.push(iter),
                        None => return false,
                    }
                }
                Some(Val::Zip(parts))
            }
            _ => None,
        };
        let Some(result) = result else { return false };
        // The iterator takes over the references of the arguments.
        for _ in 0..n {
            self.pop();
        }
        let result = self.own(result);
        self.push(result);
        let len = self.st.stack.len();
        self.st.stack[len - 3..].rotate_right(1);
        self.drop_top(2);
        true
    }

    /// The next operations only prepare one more call of `enumerate` or `zip` in front of a loop.
    fn feeds_iterator(&self) -> bool {
        let block = self.f.cfg.block_of[self.idx];
        let end = self.f.cfg.blocks[block].end;
        let rest: Vec<&Op> = (self.idx + 1..end).map(|i| &self.f.instrs[i].op).collect();
        match rest[..] {
            [Op::Call { .. }, Op::GetIter, Op::Call { .. }, ..] => false,
            [Op::Call { n_args: 1, kw_names: None }, Op::GetIter, ..] => {
                // Below the pair being called now lies the outer pair.
                let own = match self.ins().op {
                    Op::Call { n_args, .. } => n_args as usize + 2,
                    _ => return false,
                };
                let outer = (self.peek(own + 1), self.peek(own));
                let known = |v: &Val| match v {
                    Val::Obj(o) => o.known.as_ref().map(|k| k.meaning),
                    _ => None,
                };
                [known(outer.0), known(outer.1)].contains(&Some(Meaning::Builtin(Builtin::Enumerate)))
            }
            _ => false,
        }
    }

    fn range(&mut self, args: &[Val]) -> Option<Val> {
        let mut ints = Vec::new();
        for a in args {
            match a {
                // NumPy integers become Python ints in `range`, by __index__.
                Val::Num(n) if !matches!(n.flavour, Flavour::NpBool) => ints.push(self.as_int(*n)?),
                _ => return None,
            }
        }
        let (start, stop, step) = match ints[..] {
            [stop] => (self.iconst(0), stop, self.iconst(1)),
            [start, stop] => (start, stop, self.iconst(1)),
            [start, stop, step] => (start, stop, step),
            _ => return None,
        };
        let step_const = self.const_of(step);
        if step_const == Some(0) {
            return None;
        }
        for v in [start, stop, step] {
            if self.const_of(v).is_some_and(|n| (-RANGE_LIMIT..=RANGE_LIMIT).contains(&n)) {
                continue;
            }
            let off = self.iconst(RANGE_LIMIT);
            let moved = self.emit(Inst::Int(overdrive_ir::inst::IntOp::Add, v, off));
            // 2·LIMIT = 2⁶³ as an unsigned bound.
            let bound = self.iconst(i64::MIN);
            let ok = self.emit(Inst::ULt(moved, bound));
            self.guard(ok, "range bounds beyond 2**62");
        }
        if step_const.is_none() {
            let zero = self.iconst(0);
            let ok = self.icmp(Cmp::Ne, step, zero);
            self.guard(ok, "range step of zero");
        }
        Some(Val::Range { start, stop, step, step_const })
    }

    fn builtin(&mut self, f: Builtin, args: &[Val]) -> Option<Val> {
        match (f, args) {
            (Builtin::Len, [Val::Obj(o)]) => {
                let v = match o.ty {
                    ObjTy::Array { ndim, .. } if ndim > 0 => {
                        let o = self.recheck(o, false)?;
                        self.emit(Inst::Field(Field::ArrayDim(0), o.v))
                    }
                    _ => self.len_field(o)?,
                };
                Some(Val::num(Flavour::Int, v))
            }
            (Builtin::Len, [Val::Tuple(parts)]) => {
                let v = self.iconst(parts.len() as i64);
                Some(Val::num(Flavour::Int, v))
            }
            (Builtin::Abs, [Val::Num(n)]) => self.abs(*n),
            (Builtin::Min | Builtin::Max, [_, _, ..]) => self.min_max(f, args),
            (Builtin::Int, [Val::Num(n)]) => match n.flavour {
                Flavour::Float | Flavour::NpF64 | Flavour::NpF32 => {
                    let v = self.truncated(*n)?;
                    Some(Val::num(Flavour::Int, v))
                }
                _ => {
                    let v = self.as_int(*n)?;
                    Some(Val::num(Flavour::Int, v))
                }
            },
            (Builtin::Float, [Val::Num(n)]) => {
                if n.flavour == Flavour::Float {
                    return Some(Val::Num(*n));
                }
                let v = self.as_float(*n)?;
                Some(Val::num(Flavour::Float, v))
            }
            (Builtin::Bool, [Val::Num(_) | Val::None]) => {
                self.copy_top();
                let t = self.truth();
                Some(Val::num(Flavour::Bool, t))
            }
            (Builtin::Round, [Val::Num(n)]) => match n.flavour {
                Flavour::Float => {
                    let v = self.call(TableEntry::FloatRound, vec![n.v]);
                    Some(Val::num(Flavour::Int, v))
                }
                Flavour::Int => Some(Val::Num(*n)),
                _ => None,
            },
            _ => None,
        }
    }

    fn copy_top(&mut self) {
        let mut v = self.peek(0).clone();
        v.map_own(&|_| Own::Static);
        self.push(v);
    }

    fn abs(&mut self, n: Num) -> Option<Val> {
        match n.flavour {
            Flavour::Float | Flavour::NpF64 | Flavour::NpF32 => {
                let v = self.emit(Inst::FloatUnary(FloatUnary::Abs, n.v));
                Some(Val::num(n.flavour, v))
            }
            Flavour::Int | Flavour::NpI64 => {
                let min = self.iconst(i64::MIN);
                let ok = self.icmp(Cmp::Ne, n.v, min);
                self.guard(ok, "int leaves 64 bits");
                let zero = self.iconst(0);
                let negative = self.icmp(Cmp::Lt, n.v, zero);
                let minus = self.emit(Inst::Int(overdrive_ir::inst::IntOp::Sub, zero, n.v));
                let v = self.emit(Inst::Select(negative, minus, n.v));
                Some(Val::num(n.flavour, v))
            }
            Flavour::NpU8 => Some(Val::num(n.flavour, n.v)),
            _ => None,
        }
    }

    /// The first of the least (or greatest): a later one replaces it only when strictly beyond.
    fn min_max(&mut self, f: Builtin, args: &[Val]) -> Option<Val> {
        let mut nums = Vec::new();
        for a in args {
            match a {
                Val::Num(n) => nums.push(*n),
                _ => return None,
            }
        }
        let flavour = nums.first()?.flavour;
        if nums.iter().any(|n| n.flavour != flavour) || flavour == Flavour::NpF32 {
            return None;
        }
        let cmp = if f == Builtin::Min { Cmp::Lt } else { Cmp::Gt };
        let mut best = nums[0];
        for n in &nums[1..] {
            let (_, beyond) = self.num_compare(cmp, *n, best)?;
            let v = self.emit(Inst::Select(beyond, n.v, best.v));
            best = self.select_boxed(beyond, *n, best, v);
        }
        Some(Val::Num(best))
    }

    /// Keeps the object that a chosen float came from, if either has one.
    fn select_boxed(&mut self, cond: Value, a: Num, b: Num, v: Value) -> Num {
        let boxed = match (a.boxed, b.boxed) {
            (None, None) => None,
            (x, y) => {
                let null = self.null();
                let (p, q) = (x.map_or(null, |b| b.v), y.map_or(null, |b| b.v));
                let chosen = self.emit(Inst::Select(cond, p, q));
                // Borrowed from whichever holds it: the operands are still on the stack.
                Some(Boxed { v: chosen, own: Own::Fragile, maybe_null: true })
            }
        };
        Num { flavour: a.flavour, v, boxed }
    }

    fn math(&mut self, f: MathFn, args: &[Val]) -> Option<Val> {
        let mut xs = Vec::new();
        for a in args {
            match a {
                Val::Num(n) if n.flavour != Flavour::NpBool => xs.push(*n),
                _ => return None,
            }
        }
        // floor, ceil and trunc of an int go through its methods; of NumPy scalars through theirs.
        if matches!(f, MathFn::Floor | MathFn::Ceil | MathFn::Trunc) {
            return match xs[..] {
                [n] if n.flavour == Flavour::Float => {
                    let op = match f {
                        MathFn::Floor => FloatUnary::Floor,
                        MathFn::Ceil => FloatUnary::Ceil,
                        _ => FloatUnary::Trunc,
                    };
                    let r = self.emit(Inst::FloatUnary(op, n.v));
                    let v = self.truncated(Num { flavour: Flavour::Float, v: r, boxed: None })?;
                    Some(Val::num(Flavour::Int, v))
                }
                [n] if n.flavour == Flavour::Int => Some(Val::Num(n)),
                _ => None,
            };
        }
        let mut fs = Vec::new();
        for n in &xs {
            fs.push(self.as_float(*n)?);
        }
        let v = match (f, &fs[..]) {
            (MathFn::Sqrt, [x]) => {
                let zero = self.fconst(0.0);
                let negative = self.emit(Inst::FCmp(Cmp::Lt, *x, zero));
                let ok = self.emit(Inst::Not(negative));
                self.guard(ok, "square root of a negative number");
                self.emit(Inst::FloatUnary(FloatUnary::Sqrt, *x))
            }
            (MathFn::Fabs, [x]) => self.emit(Inst::FloatUnary(FloatUnary::Abs, *x)),
            (MathFn::Copysign, [x, y]) => self.float_op(FloatOp::CopySign, *x, *y),
            (MathFn::IsNan, [x]) => {
                let v = self.emit(Inst::FCmp(Cmp::Ne, *x, *x));
                return Some(Val::num(Flavour::Bool, v));
            }
            (MathFn::IsFinite, [x]) => {
                let v = self.is_finite(*x);
                return Some(Val::num(Flavour::Bool, v));
            }
            (MathFn::IsInf, [x]) => {
                let abs = self.emit(Inst::FloatUnary(FloatUnary::Abs, *x));
                let inf = self.fconst(f64::INFINITY);
                let v = self.emit(Inst::FCmp(Cmp::Eq, abs, inf));
                return Some(Val::num(Flavour::Bool, v));
            }
            (f, xs) => {
                let (entry, arity) = math_entry(f)?;
                if arity != xs.len() {
                    return None;
                }
                self.call(entry, xs.to_vec())
            }
        };
        Some(Val::num(Flavour::Float, v))
    }

    pub(crate) fn call_ex(&mut self, has_kwargs: bool) {
        self.remark(Status::ThroughCPython, "call with * or **");
        let n = 3 + usize::from(has_kwargs);
        self.box_top(n);
        // One entry of the pair is null: callable, arguments, keywords.
        let mut args = self.give_top(n);
        if !has_kwargs {
            args.push(self.null());
        }
        args.truncate(3);
        let v = self.call(TableEntry::CallEx, args);
        self.replace_top(n, v);
    }
}

fn math_entry(f: MathFn) -> Option<(TableEntry, usize)> {
    Some(match f {
        MathFn::Exp => (TableEntry::MathExp, 1),
        MathFn::Expm1 => (TableEntry::MathExpm1, 1),
        MathFn::Log => (TableEntry::MathLog, 1),
        MathFn::Log2 => (TableEntry::MathLog2, 1),
        MathFn::Log10 => (TableEntry::MathLog10, 1),
        MathFn::Log1p => (TableEntry::MathLog1p, 1),
        MathFn::Sin => (TableEntry::MathSin, 1),
        MathFn::Cos => (TableEntry::MathCos, 1),
        MathFn::Tan => (TableEntry::MathTan, 1),
        MathFn::Asin => (TableEntry::MathAsin, 1),
        MathFn::Acos => (TableEntry::MathAcos, 1),
        MathFn::Atan => (TableEntry::MathAtan, 1),
        MathFn::Atan2 => (TableEntry::MathAtan2, 2),
        MathFn::Sinh => (TableEntry::MathSinh, 1),
        MathFn::Cosh => (TableEntry::MathCosh, 1),
        MathFn::Tanh => (TableEntry::MathTanh, 1),
        MathFn::Erf => (TableEntry::MathErf, 1),
        MathFn::Erfc => (TableEntry::MathErfc, 1),
        MathFn::Fmod => (TableEntry::MathFmod, 2),
        MathFn::Pow => (TableEntry::MathPow, 2),
        MathFn::Hypot => (TableEntry::MathHypot, 2),
        MathFn::Sqrt
        | MathFn::Fabs
        | MathFn::Floor
        | MathFn::Ceil
        | MathFn::Trunc
        | MathFn::Copysign
        | MathFn::IsNan
        | MathFn::IsInf
        | MathFn::IsFinite => return None,
    })
}
