//! Items: of lists, tuples, bytes, bytearrays and arrays natively, of everything else through CPython.
//!
//! In: container and key on the abstract stack. Out: the item, or the store done. Negative indices wrap once; what is out of
//! range leaves for CPython, which raises.

use overdrive_base::flavour::{DType, Flavour, Holder, KnownType};
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::Value;
use overdrive_ir::inst::{Cmp, Field, FloatUnary, Inst, IntOp, Seq};

use crate::code::Const;
use crate::facts::{Observed, Seen, Status};
use crate::translate::Step;
use crate::translate::emit::Tx;
use crate::translate::value::{Num, Obj, ObjTy, Own, Val};

impl Tx<'_> {
    /// A key that is one integer (Python int or bool, NumPy integer), as I64.
    fn int_key(&mut self, key: &Val) -> Option<Value> {
        match key {
            Val::Num(n) if !matches!(n.flavour, Flavour::NpBool) => self.as_int(*n),
            _ => None,
        }
    }

    /// Wraps a negative index once and leaves when it is out of range.
    fn index_in(&mut self, i: Value, len: Value) -> Value {
        let wrapped = match self.const_of(i) {
            Some(n) if n >= 0 => i,
            Some(_) => self.int(IntOp::Add, i, len),
            None => {
                let zero = self.iconst(0);
                let negative = self.icmp(Cmp::Lt, i, zero);
                let sum = self.emit(Inst::Int(IntOp::Add, i, len));
                self.emit(Inst::Select(negative, sum, i))
            }
        };
        let ok = self.emit(Inst::ULt(wrapped, len));
        self.guard(ok, "index out of range");
        wrapped
    }

    pub(crate) fn binary_subscr(&mut self) -> Step {
        let (container, key) = (self.peek(1).clone(), self.peek(0).clone());
        let native = match container {
            Val::Obj(o) => self.native_item(&o, &key),
            Val::Tuple(parts) => self.virtual_item(&parts, &key),
            _ => None,
        };
        let Some(item) = native else {
            let why = format!("{}[{}]", self.peek(1).describe(), self.peek(0).describe());
            self.generic(TableEntry::GetItem, vec![], 2, &why);
            return Ok(());
        };
        // The item is in the state while container and key are released.
        let len = self.st.stack.len();
        let item = self.lean_on_nothing_popped(item);
        self.push(item);
        self.st.stack[len - 2..].rotate_right(1);
        self.drop_top(2);
        Ok(())
    }

    /// An item borrowed from a container that this instruction releases takes a reference of its own.
    fn lean_on_nothing_popped(&mut self, item: Val) -> Val {
        let container_owned = match self.peek(1) {
            Val::Obj(o) => o.own == Own::Owned,
            Val::Tuple(_) => true,
            _ => false,
        };
        if container_owned { self.own(item) } else { item }
    }

    fn virtual_item(&mut self, parts: &[Val], key: &Val) -> Option<Val> {
        let Val::Num(Num { v, .. }) = key else { return None };
        let i = self.const_of(*v)?;
        let i = if i < 0 { i.checked_add(parts.len() as i64)? } else { i };
        let mut val = parts.get(usize::try_from(i).ok()?)?.clone();
        // The tuple entry holds it until it is dropped.
        val.map_own(&|own| if own == Own::Owned { Own::Fragile } else { own });
        Some(val)
    }

    fn native_item(&mut self, o: &Obj, key: &Val) -> Option<Val> {
        match o.ty {
            ObjTy::Exact(KnownType::List) => {
                let i = self.int_key(key)?;
                let len = self.len_field(o)?;
                let i = self.index_in(i, len);
                let item = self.emit(Inst::ItemGet(Seq::List, o.v, i));
                Some(self.item_val(item, Own::Fragile, o.sample))
            }
            ObjTy::Exact(KnownType::Tuple) => {
                let i = self.int_key(key)?;
                let len = self.len_field(o)?;
                let i = self.index_in(i, len);
                let item = self.emit(Inst::ItemGet(Seq::Tuple, o.v, i));
                // A tuple never lets go of its items: they live as long as it does.
                let own = if o.own == Own::Static { Own::Static } else { Own::Fragile };
                Some(self.item_val(item, own, o.sample))
            }
            ObjTy::Exact(kind @ (KnownType::Bytes | KnownType::ByteArray)) => {
                let i = self.int_key(key)?;
                let len = self.len_field(o)?;
                let i = self.index_in(i, len);
                let v = self.byte_at(kind, o.v, i);
                Some(Val::num(Flavour::Int, v))
            }
            ObjTy::Exact(KnownType::Str) => {
                let i = self.int_key(key)?;
                let len = self.len_field(o)?;
                let i = self.index_in(i, len);
                Some(self.character_at(o.v, i))
            }
            ObjTy::Array { holder, dtype, ndim, .. } => {
                let keys = self.array_key(key, ndim)?;
                let o = self.recheck(o, false)?;
                let ptr = self.element(&o, &keys);
                Some(self.load_element(holder, dtype, ptr))
            }
            _ => None,
        }
    }

    /// Character of a `str` at a checked index: a string of its own.
    pub(crate) fn character_at(&mut self, s: Value, i: Value) -> Val {
        let v = self.call(TableEntry::StrItem, vec![s, i]);
        Val::Obj(Obj::new(v, Own::Owned, ObjTy::Exact(KnownType::Str)))
    }

    /// Byte of a `bytes` or `bytearray` at a checked index.
    pub(crate) fn byte_at(&mut self, kind: KnownType, o: Value, i: Value) -> Value {
        let field = if kind == KnownType::Bytes { Field::BytesData } else { Field::ByteArrayData };
        let data = self.emit(Inst::Field(field, o));
        let ptr = self.emit(Inst::PtrAdd(data, i));
        self.emit(Inst::Load(DType::U8, ptr))
    }

    /// One integer per axis, if the key selects an element. A bool selects something else in NumPy.
    fn array_key(&mut self, key: &Val, ndim: u8) -> Option<Vec<Value>> {
        let one = |tx: &mut Self, k: &Val| match k {
            Val::Num(n) if !matches!(n.flavour, Flavour::Bool | Flavour::NpBool) => tx.as_int(*n),
            _ => None,
        };
        match key {
            Val::Tuple(parts) if parts.len() == usize::from(ndim) => {
                parts.iter().map(|p| one(self, p)).collect()
            }
            Val::Obj(Obj { konst: Some(k), .. }) => match &self.code().consts[*k as usize] {
                Const::Tuple(parts) if parts.len() == usize::from(ndim) => parts
                    .iter()
                    .map(|c| match c {
                        Const::Int(n) => Some(self.iconst(*n)),
                        _ => None,
                    })
                    .collect(),
                _ => None,
            },
            key if ndim == 1 => one(self, key).map(|v| vec![v]),
            _ => None,
        }
    }

    /// The number at an element's address, as its holder gives it.
    pub(crate) fn load_element(&mut self, holder: Holder, dtype: DType, ptr: Value) -> Val {
        let v = self.emit(Inst::Load(dtype, ptr));
        let wide = holder == Holder::Tensor && dtype == DType::F32;
        let v = if wide { self.emit(Inst::F32ToF64(v)) } else { v };
        Val::num(dtype.element(holder), v)
    }

    /// Address of an element; leaves when an index is out of range.
    pub(crate) fn element(&mut self, o: &Obj, keys: &[Value]) -> Value {
        let mut wrapped = Vec::with_capacity(keys.len());
        for (axis, key) in keys.iter().enumerate() {
            let dim = self.emit(Inst::Field(Field::ArrayDim(axis as u8), o.v));
            wrapped.push(self.index_in(*key, dim));
        }
        self.element_unchecked(o, &wrapped)
    }

    pub(crate) fn element_unchecked(&mut self, o: &Obj, keys: &[Value]) -> Value {
        let mut ptr = self.emit(Inst::Field(Field::ArrayData, o.v));
        for (axis, key) in keys.iter().enumerate() {
            let stride = self.emit(Inst::Field(Field::ArrayStride(axis as u8), o.v));
            let bytes = self.emit(Inst::Int(IntOp::Mul, *key, stride));
            ptr = self.emit(Inst::PtrAdd(ptr, bytes));
        }
        ptr
    }

    /// `[value, container, key]`
    pub(crate) fn store_subscr(&mut self) -> Step {
        let (value, container, key) = (self.peek(2).clone(), self.peek(1).clone(), self.peek(0).clone());
        if let Val::Obj(o) = &container
            && !self.blocked()
            && self.native_store(&value, o, &key)
        {
            return Ok(());
        }
        let why = format!("{}[{}] = {}", container.describe(), key.describe(), value.describe());
        self.remark(Status::ThroughCPython, &why);
        let is_dict = matches!(&container, Val::Obj(o) if o.ty == ObjTy::Exact(KnownType::Dict));
        self.box_top(3);
        if let [value, container, key] = self.top_refs(3)[..] {
            let entry = if is_dict { TableEntry::DictSetItem } else { TableEntry::SetItem };
            self.table(entry, vec![container, key, value]);
        }
        self.drop_top(3);
        Ok(())
    }

    /// Emits the store and pops the operands, or does nothing.
    fn native_store(&mut self, value: &Val, o: &Obj, key: &Val) -> bool {
        match o.ty {
            ObjTy::Exact(KnownType::List) => {
                let Some(i) = self.int_key(key) else { return false };
                self.settle(2);
                self.list_store(o, i);
                true
            }
            ObjTy::Exact(KnownType::ByteArray) => {
                let Val::Num(n @ Num { flavour: Flavour::Int | Flavour::Bool, .. }) = value else {
                    return false;
                };
                let (Some(i), Some(v)) = (self.int_key(key), self.as_int(*n)) else { return false };
                let Some(len) = self.len_field(o) else { return false };
                let i = self.index_in(i, len);
                self.within(v, Flavour::NpU8, "byte outside 0..255");
                let data = self.emit(Inst::Field(Field::ByteArrayData, o.v));
                let ptr = self.emit(Inst::PtrAdd(data, i));
                self.emit0(Inst::Store(DType::U8, ptr, v));
                self.drop_top(3);
                true
            }
            ObjTy::Array { dtype, ndim, .. } => {
                let Val::Num(n) = value else { return false };
                if !storable(dtype, n.flavour) {
                    return false;
                }
                let Some(keys) = self.array_key(key, ndim) else { return false };
                let Some(o) = self.recheck(o, true) else { return false };
                let ptr = self.element(&o, &keys);
                let Some(v) = self.convert(dtype, *n) else { return false };
                self.emit0(Inst::Store(dtype, ptr, v));
                self.drop_top(3);
                true
            }
            _ => false,
        }
    }

    fn list_store(&mut self, o: &Obj, i: Value) {
        let Some(len) = self.len_field(o) else { return };
        let i = self.index_in(i, len);
        let old = self.emit(Inst::ItemGet(Seq::List, o.v, i));
        // What is replaced decides whether its release can run code.
        let seen = match self.oracle.observed(self.ins().op_offset) {
            Observed::Always(seen) => Some(seen),
            Observed::Mixed | Observed::Member(_) | Observed::Instance(_) => None,
            Observed::Nothing => {
                let fact = o.sample.and_then(|s| self.oracle.item(s));
                if fact.is_none() {
                    self.profile(old);
                }
                fact.map(|f| f.seen)
            }
        };
        let plain = match seen {
            Some(Seen::Exact(k)) if k.is_plain() => {
                let is = self.emit(Inst::TypeIs(old, k));
                self.guard(is, &format!("the replaced item is no {}", k.name()));
                true
            }
            _ => false,
        };
        // A fresh number over one of its type: in place when nobody else holds the old one (engine rule 4). A float that
        // came from an object is stored as that object; ints have no identity.
        if let Val::Num(Num { flavour, boxed: None, v }) = *self.peek(2) {
            let entry = match (flavour, seen) {
                (Flavour::Float, Some(Seen::Exact(KnownType::Float))) => Some(TableEntry::ListSetFloat),
                (Flavour::Int, Some(Seen::Exact(KnownType::Int))) => Some(TableEntry::ListSetInt),
                _ => None,
            };
            if let Some(entry) = entry {
                let is_held = flavour == Flavour::Float && self.is_held_elsewhere(2);
                self.clobber_plain();
                self.table(entry, vec![o.v, i, v]);
                if is_held {
                    let item = self.emit(Inst::ItemGet(Seq::List, o.v, i));
                    self.remember_stored(2, item);
                }
                self.drop_top(3);
                return;
            }
        }
        // Box and take references before anything changes.
        let len = self.st.stack.len();
        let value = std::mem::replace(&mut self.st.stack[len - 3], Val::Unset);
        let boxed = self.as_obj(value);
        self.st.stack[len - 3] = Val::Obj(boxed.clone());
        if plain {
            self.clobber_plain();
        } else {
            self.clobber();
        }
        // The clobber may have made the entry owned.
        let item = match self.st.stack[len - 3].clone() {
            Val::Obj(b) => self.owned_ref(&b),
            _ => boxed.v,
        };
        self.st.stack[len - 3] = Val::Unset;
        let old = self.emit(Inst::ListSwap { list: o.v, index: i, item });
        self.decref(old, plain);
        self.drop_top(3);
    }

    /// The number in the machine form that the element type stores; leaves where NumPy would warn or raise.
    fn convert(&mut self, dtype: DType, n: Num) -> Option<Value> {
        let integer = |f| {
            matches!(
                f,
                Flavour::Int
                    | Flavour::Bool
                    | Flavour::NpI64
                    | Flavour::NpI32
                    | Flavour::NpU8
                    | Flavour::NpBool
            )
        };
        Some(match dtype {
            DType::F64 => self.as_float(n)?,
            DType::F32 if n.flavour == Flavour::NpF32 => n.v,
            DType::F32 => {
                let wide = self.as_float(n)?;
                let narrow = self.emit(Inst::F64ToF32(wide));
                self.same_finiteness(wide, narrow);
                narrow
            }
            DType::I64 | DType::I32 | DType::U8 if integer(n.flavour) => {
                let v = self.as_int(n)?;
                // What does not fit wraps or raises in NumPy, depending on the pair: NumPy decides.
                match (dtype, n.flavour) {
                    (DType::I32, Flavour::Int | Flavour::NpI64) => {
                        self.within(v, Flavour::NpI32, "value outside int32");
                    }
                    (DType::U8, Flavour::Int | Flavour::NpI64 | Flavour::NpI32) => {
                        self.within(v, Flavour::NpU8, "value outside uint8");
                    }
                    _ => {}
                }
                v
            }
            DType::I64 => self.truncated(n)?,
            DType::Bool => match n.flavour {
                Flavour::Bool | Flavour::NpBool => n.v,
                _ => return None,
            },
            _ => return None,
        })
    }

    /// float → int64 toward zero; leaves for what does not fit.
    pub(crate) fn truncated(&mut self, n: Num) -> Option<Value> {
        let x = self.as_float(n)?;
        let t = self.emit(Inst::FloatUnary(FloatUnary::Trunc, x));
        let (low, high) =
            (self.fconst(-9_223_372_036_854_775_808.0), self.fconst(9_223_372_036_854_775_808.0));
        let (a, b) = (self.emit(Inst::FCmp(Cmp::Ge, t, low)), self.emit(Inst::FCmp(Cmp::Lt, t, high)));
        let ok = self.both(a, b);
        self.guard(ok, "float outside 64-bit ints");
        Some(self.emit(Inst::FloatToInt(t)))
    }
}

/// Pairs of element type and flavour whose store has a native form (engine rule 21).
fn storable(dtype: DType, f: Flavour) -> bool {
    use Flavour::{Bool, Float, Int, NpBool, NpF32, NpF64, NpI32, NpI64, NpU8};
    match dtype {
        DType::F64 => true,
        // int → float32 rounds once in NumPy; through float64 it might round twice.
        DType::F32 => matches!(f, Float | NpF64 | NpF32 | Bool | NpBool | NpU8),
        DType::I64 => true,
        DType::I32 | DType::U8 => matches!(f, Int | Bool | NpBool | NpI64 | NpI32 | NpU8),
        DType::Bool => matches!(f, Bool | NpBool),
    }
}
