//! Building and taking apart containers, functions, slices, strings; context managers.
//!
//! In: parts on the abstract stack. Out: the container, or its parts. Tuples stay virtual until something needs the object.

use overdrive_base::flavour::KnownType;
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::Value;
use overdrive_ir::function::ConstRef;
use overdrive_ir::inst::{Cmp, Inst, Seq};

use crate::code::Const;
use crate::facts::Status;
use crate::op::{Conversion, Op, function_flags};
use crate::translate::Step;
use crate::translate::emit::Tx;
use crate::translate::value::{Obj, ObjTy, Own, Val};

/// Longest tuple that is kept in parts.
const MAX_VIRTUAL: usize = 8;

impl Tx<'_> {
    pub(crate) fn build_tuple(&mut self, n: usize) {
        let virtual_ok = n <= MAX_VIRTUAL
            && (0..n).all(|i| !matches!(self.peek(i), Val::Unset | Val::Either { .. } | Val::Tuple(_)));
        if !virtual_ok {
            self.build(TableEntry::BuildTuple, n, KnownType::Tuple);
            return;
        }
        let at = self.st.stack.len() - n;
        let parts = self.st.stack.split_off(at);
        self.push(Val::Tuple(parts));
    }

    pub(crate) fn build(&mut self, entry: TableEntry, n: usize, ty: KnownType) {
        if entry != TableEntry::BuildTuple {
            self.remark(Status::ThroughCPython, &format!("building a {}", ty.name()));
        }
        self.box_top(n);
        let args = self.top_refs(n);
        let v = self.call(entry, args);
        self.replace_top_typed(n, v, ObjTy::Exact(ty));
    }

    pub(crate) fn build_const_key_map(&mut self, n: usize) {
        self.remark(Status::ThroughCPython, "building a dict");
        self.box_top(n + 1);
        let refs = self.top_refs(n + 1);
        let Some((keys, values)) = refs.split_last() else { return };
        let mut args = vec![*keys];
        args.extend(values);
        let v = self.call(TableEntry::BuildConstKeyMap, args);
        self.replace_top_typed(n + 1, v, ObjTy::Exact(KnownType::Dict));
    }

    fn ref_at(&self, depth: usize) -> Option<Value> {
        match self.peek(depth) {
            Val::Obj(o) => Some(o.v),
            _ => None,
        }
    }

    /// `list_append` of a comprehension: the list is `i` entries below the item.
    pub(crate) fn list_append(&mut self, i: usize) {
        if let Some(list) = self.ref_at(i) {
            self.append_top(list);
        }
        self.drop_top(1);
    }

    /// Appends the top entry to an exact list, which takes it over: the entry is unset afterwards.
    pub(crate) fn append_top(&mut self, list: Value) {
        self.box_top(1);
        let Val::Obj(item) = self.peek(0).clone() else { return };
        let item = self.owned_ref(&item);
        if let Some(top) = self.peek_mut(0) {
            *top = Val::Unset;
        }
        self.table(TableEntry::ListAppend, vec![list, item]);
    }

    /// Adds the top `n` entries to the container `i` entries below the last of them.
    pub(crate) fn add_to(&mut self, entry: TableEntry, i: usize, n: usize) {
        self.remark(Status::ThroughCPython, "adding to a container");
        self.box_top(n);
        if let Some(container) = self.ref_at(i + n - 1) {
            let mut args = vec![container];
            args.extend(self.top_refs(n));
            self.table(entry, args);
        }
        self.drop_top(n);
    }

    pub(crate) fn dict_merge(&mut self, i: usize) {
        self.remark(Status::ThroughCPython, "call with **");
        self.box_top(1);
        // Below the dict: the argument tuple, then the call pair.
        let callable = [i + 2, i + 3].into_iter().find_map(|d| self.ref_at(d));
        if let (Some(callable), Some(dict), Some(update)) = (callable, self.ref_at(i), self.ref_at(0)) {
            self.table(TableEntry::DictMerge, vec![callable, dict, update]);
        }
        self.drop_top(1);
    }

    pub(crate) fn unpack(&mut self, n: usize) -> Step {
        match self.peek(0).clone() {
            Val::Tuple(parts) if parts.len() == n => {
                self.pop();
                self.st.stack.extend(parts.into_iter().rev());
            }
            Val::Obj(Obj { konst: Some(k), .. }) if self.const_len(k) == Some(n) => {
                self.pop();
                self.unpack_const(k, n);
            }
            Val::Obj(o) if matches!(o.ty, ObjTy::Exact(KnownType::Tuple | KnownType::List)) => {
                let seq = if o.ty == ObjTy::Exact(KnownType::List) { Seq::List } else { Seq::Tuple };
                let Some(len) = self.len_field(&o) else { return Ok(()) };
                let want = self.iconst(n as i64);
                let ok = self.icmp(Cmp::Eq, len, want);
                self.guard(ok, "unpacking a sequence of another length");
                // Items share one sample, so a sequence of mixed types is left untyped.
                let mut items = Vec::with_capacity(n);
                for i in 0..n {
                    let i = self.iconst(i as i64);
                    let v = self.emit(Inst::ItemGet(seq, o.v, i));
                    items.push(self.unpacked(v, &o));
                }
                let owned = o.own == Own::Owned;
                if owned {
                    items = items.into_iter().map(|v| self.own(v)).collect();
                }
                let len = self.st.stack.len();
                self.st.stack.extend(items.into_iter().rev());
                // The sequence goes below its items, then away.
                let seq = self.st.stack.remove(len - 1);
                self.drop_val(seq);
            }
            _ => {
                let why = format!("unpacking of {}", self.peek(0).describe());
                self.remark(Status::ThroughCPython, &why);
                self.box_top(1);
                let mut args = self.top_refs(1);
                args.push(self.iconst(n as i64));
                let v = self.call(TableEntry::Unpack, args);
                self.replace_top_typed(1, v, ObjTy::Exact(KnownType::Tuple));
                self.spread(n);
            }
        }
        Ok(())
    }

    fn unpacked(&mut self, v: Value, o: &Obj) -> Val {
        let own = if o.own == Own::Static && o.ty == ObjTy::Exact(KnownType::Tuple) {
            Own::Static
        } else {
            Own::Fragile
        };
        if o.sample.is_none() {
            return Val::Obj(Obj::new(v, own, ObjTy::Any));
        }
        self.item_val(v, own, o.sample)
    }

    /// An exact tuple of `n` items on top becomes its items, first one on top.
    fn spread(&mut self, n: usize) {
        let Some(tuple) = self.ref_at(0) else { return };
        let mut items = Vec::with_capacity(n);
        for i in 0..n {
            let i = self.iconst(i as i64);
            let v = self.emit(Inst::ItemGet(Seq::Tuple, tuple, i));
            self.emit0(Inst::IncRef(v));
            items.push(Val::Obj(Obj::new(v, Own::Owned, ObjTy::Any)));
        }
        let tuple = self.pop();
        self.st.stack.extend(items.into_iter().rev());
        self.drop_val(tuple);
    }

    fn const_len(&self, k: u32) -> Option<usize> {
        match &self.code().consts[k as usize] {
            // Only items that can be made here again: their identity must not matter.
            Const::Tuple(parts)
                if parts
                    .iter()
                    .all(|c| matches!(c, Const::None | Const::Bool(_) | Const::Int(_) | Const::Float(_))) =>
            {
                Some(parts.len())
            }
            _ => None,
        }
    }

    fn unpack_const(&mut self, k: u32, n: usize) {
        if let Const::Tuple(parts) = &self.code().consts[k as usize] {
            for c in parts.iter().take(n).rev() {
                let val = self.const_val(k, c);
                self.push(val);
            }
        }
    }

    pub(crate) fn unpack_ex(&mut self, before: usize, after: usize) {
        self.remark(Status::ThroughCPython, "starred unpacking");
        self.box_top(1);
        let mut args = self.top_refs(1);
        args.push(self.iconst(before as i64));
        args.push(self.iconst(after as i64));
        let v = self.call(TableEntry::UnpackEx, args);
        self.replace_top_typed(1, v, ObjTy::Exact(KnownType::Tuple));
        self.spread(before + 1 + after);
    }

    pub(crate) fn build_slice(&mut self, with_step: bool) {
        self.remark(Status::ThroughCPython, "slice");
        let n = 2 + usize::from(with_step);
        self.box_top(n);
        let mut args = self.top_refs(n);
        if !with_step {
            args.push(self.null());
        }
        let v = self.call(TableEntry::BuildSlice, args);
        self.replace_top_typed(n, v, ObjTy::Exact(KnownType::Slice));
    }

    /// `[container, start, stop] -> [value]`
    pub(crate) fn binary_slice(&mut self) {
        self.remark(Status::ThroughCPython, "slice");
        self.build_slice(false);
        self.box_top(2);
        let args = self.top_refs(2);
        let v = self.call(TableEntry::GetItem, args);
        self.replace_top(2, v);
    }

    /// `[value, container, start, stop] -> []`
    pub(crate) fn store_slice(&mut self) {
        self.build_slice(false);
        self.box_top(3);
        if let [value, container, key] = self.top_refs(3)[..] {
            self.table(TableEntry::SetItem, vec![container, key, value]);
        }
        self.drop_top(3);
    }

    pub(crate) fn format_value(&mut self, conversion: Conversion, with_spec: bool) {
        self.remark(Status::ThroughCPython, "formatting");
        let n = 1 + usize::from(with_spec);
        self.box_top(n);
        let refs = self.top_refs(n);
        let number = self.iconst(conversion_number(conversion));
        let spec = match refs.get(1) {
            Some(s) => *s,
            None => self.null(),
        };
        let v = self.call(TableEntry::Format, vec![refs[0], number, spec]);
        self.replace_top_typed(n, v, ObjTy::Any);
    }

    /// 3.13 converts in an instruction of its own; the result is formatted (or joined) later.
    pub(crate) fn convert_value(&mut self, conversion: Conversion) {
        self.format_value(conversion, false);
    }

    pub(crate) fn before_with(&mut self) {
        self.remark(Status::ThroughCPython, "with");
        self.box_top(1);
        let args = self.top_refs(1);
        let v = self.call(TableEntry::BeforeWith, args);
        self.replace_top_typed(1, v, ObjTy::Exact(KnownType::Tuple));
        self.spread(2);
        // `[exit, result]`: the first item, `__exit__`, lies below.
        let len = self.st.stack.len();
        self.st.stack.swap(len - 1, len - 2);
    }

    pub(crate) fn make_function(&mut self, flags: u32) -> Step {
        self.remark(Status::ThroughCPython, "function definition");
        // 3.13 sets the attributes one by one behind it: they become part of it here.
        let block = self.f.cfg.block_of[self.idx];
        let mut later = Vec::new();
        let mut i = self.idx + 1;
        while i < self.f.cfg.blocks[block].end {
            let Op::SetFunctionAttribute(flag) = self.f.instrs[i].op else { break };
            later.push(flag);
            i += 1;
        }
        self.skip_until = i.max(self.skip_until);
        let n = flags.count_ones() as usize + later.len();
        self.box_top(n + 1);
        let refs = self.top_refs(n + 1);
        let Some((code, values)) = refs.split_last() else { return Ok(()) };
        let of = |flag: u32, order: &[u32]| order.iter().position(|f| *f == flag).map(|i| values[i]);
        let order: Vec<u32> = if later.is_empty() {
            [1, 2, 4, 8].into_iter().filter(|f| flags & f != 0).collect()
        } else {
            // The last attribute set is the lowest on the stack.
            later.iter().rev().copied().collect()
        };
        let parts = [
            of(function_flags::DEFAULTS, &order),
            of(function_flags::KW_DEFAULTS, &order),
            of(function_flags::ANNOTATIONS, &order),
            of(function_flags::CLOSURE, &order),
        ];
        let code = *code;
        let globals = self.oconst(ConstRef::Globals);
        let null = self.null();
        let mut args = vec![code, globals];
        // 3.11 passes the qualified name in the code object.
        args.push(null);
        args.extend(parts.map(|p| p.unwrap_or(null)));
        let v = self.call(TableEntry::MakeFunction, args);
        self.replace_top_typed(n + 1, v, ObjTy::Exact(KnownType::Function));
        Ok(())
    }
}

fn conversion_number(c: Conversion) -> i64 {
    match c {
        Conversion::None => 0,
        Conversion::Str => 1,
        Conversion::Repr => 2,
        Conversion::Ascii => 3,
    }
}
