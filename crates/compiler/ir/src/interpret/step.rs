//! One instruction of the interpreter.
//!
//! In: the instruction and the machine's registers, heap and table. Out: its result or the exit it leaves through. Checks
//! every precondition that `inst` states.

use overdrive_base::flavour::{Flavour, KnownType};
use overdrive_base::table::{Entry, Failure};

use crate::entities::{ExitId, Value};
use crate::inst::{Field, Inst, Seq};
use crate::interpret::heap::{HeapError, Object, Ref};
use crate::interpret::scalar::{Pointer, Scalar};
use crate::interpret::table::Reply;
use crate::interpret::{Arg, Flow, Machine, arith};

type Result<T> = std::result::Result<T, HeapError>;

impl Machine<'_> {
    pub(super) fn inst(&mut self, inst: &Inst) -> Result<Flow> {
        let value = match inst {
            Inst::IConst(n) => Scalar::I64(*n),
            Inst::FConst(bits) => Scalar::F64(f64::from_bits(*bits)),
            Inst::F32Const(bits) => Scalar::F32(f32::from_bits(*bits)),
            Inst::BConst(b) => Scalar::I1(*b),
            Inst::HasFrame => Scalar::I1(self.table.has_frame()),
            Inst::OConst(c) => Scalar::Obj(Some(self.consts[c.index()])),
            Inst::Null => Scalar::Obj(None),
            Inst::Int(op, a, b) => {
                let (a, b) = (self.int(*a)?, self.int(*b)?);
                Scalar::I64(arith::int(*op, a, b).ok_or_else(|| format!("{op:?} of {a} and {b}"))?)
            }
            Inst::Checked(op, a, b, exit) => {
                let result = arith::checked(*op, self.int(*a)?, self.int(*b)?);
                match (self.forced(*exit), result) {
                    (false, Some(n)) => Scalar::I64(n),
                    _ => return Ok(Flow::Leave(*exit)),
                }
            }
            Inst::ICmp(cmp, a, b) => Scalar::I1(arith::compare(*cmp, self.int(*a)?, self.int(*b)?)),
            Inst::ULt(a, b) => Scalar::I1((self.int(*a)? as u64) < self.int(*b)? as u64),
            Inst::Float(op, a, b) => match (self.read(*a)?, self.read(*b)?) {
                (Scalar::F64(a), Scalar::F64(b)) => Scalar::F64(arith::f64_binary(*op, a, b)),
                (Scalar::F32(a), Scalar::F32(b)) => Scalar::F32(arith::f32_binary(*op, a, b)),
                _ => return Err("floats of two sizes".to_owned()),
            },
            Inst::FloatUnary(op, a) => match self.read(*a)? {
                Scalar::F64(a) => Scalar::F64(arith::f64_unary(*op, a)),
                Scalar::F32(a) => Scalar::F32(arith::f32_unary(*op, a)),
                _ => return Err("not a float".to_owned()),
            },
            Inst::FCmp(cmp, a, b) => Scalar::I1(match (self.read(*a)?, self.read(*b)?) {
                (Scalar::F64(a), Scalar::F64(b)) => arith::compare(*cmp, a, b),
                (Scalar::F32(a), Scalar::F32(b)) => arith::compare(*cmp, a, b),
                _ => return Err("floats of two sizes".to_owned()),
            }),
            Inst::IntToFloat(a) => Scalar::F64(self.int(*a)? as f64),
            Inst::FloatToInt(a) => {
                let x = self.f64(*a)?;
                Scalar::I64(arith::float_to_int(x).ok_or_else(|| format!("{x:?} does not fit 64 bits"))?)
            }
            Inst::F32ToF64(a) => match self.read(*a)? {
                Scalar::F32(x) => Scalar::F64(x.into()),
                _ => return Err("not f32".to_owned()),
            },
            Inst::F64ToF32(a) => Scalar::F32(self.f64(*a)? as f32),
            Inst::Bool(op, a, b) => Scalar::I1(arith::bool(*op, self.bool(*a)?, self.bool(*b)?)),
            Inst::Not(a) => Scalar::I1(!self.bool(*a)?),
            Inst::BoolToInt(a) => Scalar::I64(self.bool(*a)?.into()),
            Inst::Select(cond, a, b) => self.read(if self.bool(*cond)? { *a } else { *b })?,
            Inst::Guard(cond, exit) => {
                let holds = self.bool(*cond)?;
                return Ok(if !self.forced(*exit) && holds { Flow::Next(None) } else { Flow::Leave(*exit) });
            }
            Inst::TypeIs(v, known) => Scalar::I1(self.heap.type_is(self.object(*v)?, *known)?),
            Inst::Same(a, b) => Scalar::I1(self.obj(*a)? == self.obj(*b)?),
            Inst::IsNull(a) => Scalar::I1(self.obj(*a)?.is_none()),
            Inst::ArrayIs { array, holder, dtype, ndim, writable } => {
                Scalar::I1(match self.heap.get(self.object(*array)?)? {
                    Object::NdArray(a) => {
                        a.holder == *holder
                            && a.dtype == *dtype
                            && a.shape.len() == usize::from(*ndim)
                            && (a.writable || !writable)
                    }
                    _ => false,
                })
            }
            Inst::Unbox(flavour, v) => self.unbox(*flavour, self.object(*v)?)?,
            Inst::Field(field, v) => self.field(*field, self.object(*v)?)?,
            Inst::ItemGet(seq, v, index) => {
                let r = self.object(*v)?;
                let items = match seq {
                    Seq::List => self.heap.list(r)?,
                    Seq::Tuple => self.heap.tuple(r)?,
                };
                Scalar::Obj(Some(items[checked_index(self.int(*index)?, items.len())?]))
            }
            Inst::ListSwap { list, index, item } => {
                let (list, index, item) = (self.object(*list)?, self.int(*index)?, self.object(*item)?);
                self.heap.get(item)?;
                let items = self.heap.list_mut(list)?;
                let index = checked_index(index, items.len())?;
                Scalar::Obj(Some(std::mem::replace(&mut items[index], item)))
            }
            Inst::VersionIs(v, version) => Scalar::I1(match self.heap.get(self.object(*v)?)? {
                Object::Instance { version: now, .. } => now == version,
                _ => false,
            }),
            Inst::KeepsValues { obj, .. } => Scalar::I1(self.heap.keeps_values(self.object(*obj)?)?),
            Inst::AttrGet(at, v) => Scalar::Obj(*self.heap.attr(self.object(*v)?, *at)?),
            Inst::AttrSwap { at, obj, item } => {
                let (obj, item) = (self.object(*obj)?, self.object(*item)?);
                self.heap.get(item)?;
                let old = self.heap.attr(obj, *at)?.replace(item);
                Scalar::Obj(Some(old.ok_or("an attribute that is not set is replaced")?))
            }
            Inst::AttrSet { at, obj, old, value, .. } => {
                let (obj, old) = (self.object(*obj)?, self.object(*old)?);
                if *self.heap.attr(obj, *at)? != Some(old) {
                    return Err("an attribute has another value than the one that is replaced".to_owned());
                }
                let is_digit = |n: i128| (1..1 << 30).contains(&n.abs());
                let (new, fits) = match (self.read(*value)?, self.heap.get(old)?) {
                    (Scalar::F64(x), Object::Float(_)) => (Object::Float(x), true),
                    (Scalar::I64(n), Object::Int(old)) => {
                        let n = i128::from(n);
                        (Object::Int(n), is_digit(*old) && is_digit(n) && n.abs() > 256)
                    }
                    (value, other) => return Err(format!("{other:?} is replaced by {value:?}")),
                };
                if fits && self.heap.ref_count(old) == 1 {
                    *self.heap.get_mut(old)? = new;
                } else {
                    let item = self.heap.add(new);
                    self.heap.attr(obj, *at)?.replace(item);
                    self.heap.release(old)?;
                }
                return Ok(Flow::Next(None));
            }
            Inst::Load(dtype, p) => self.heap.load(*dtype, self.pointer(*p)?)?,
            Inst::Store(dtype, p, v) => {
                self.heap.store(*dtype, self.pointer(*p)?, self.read(*v)?)?;
                return Ok(Flow::Next(None));
            }
            Inst::PtrAdd(p, n) => {
                let p = self.pointer(*p)?;
                Scalar::Ptr(Pointer { offset: p.offset.wrapping_add(self.int(*n)?), ..p })
            }
            Inst::IncRef(v) => {
                if let Some(r) = self.obj(*v)? {
                    self.heap.retain(r)?;
                }
                return Ok(Flow::Next(None));
            }
            Inst::DecRef { obj, pos } => {
                if let Some(r) = self.obj(*obj)? {
                    self.store_position(*pos);
                    self.heap.release(r)?;
                }
                return Ok(Flow::Next(None));
            }
            Inst::OwnArg(n) => match std::mem::replace(&mut self.frame[*n as usize], Arg::Taken) {
                Arg::Held(r) => Scalar::Obj(r),
                Arg::Taken => return Err(format!("argument {n} is taken twice")),
            },
            Inst::Table { entry, args, pos, fail } => return self.table_entry(*entry, args, *pos, *fail),
            Inst::CallRoutine { routine, args, fail, .. } => {
                let args = self.read_all(args)?;
                let result = if self.forced(*fail) { None } else { self.call_routine(*routine, args)? };
                return Ok(result.map_or(Flow::Leave(*fail), |value| Flow::Next(Some(value))));
            }
            Inst::Poll { pos, fail } => {
                self.store_position(Some(*pos));
                return Ok(match self.table.poll(self.heap)? {
                    true => Flow::Next(None),
                    false => Flow::Leave(*fail),
                });
            }
        };
        Ok(Flow::Next(Some(value)))
    }

    fn store_position(&mut self, pos: Option<u32>) {
        if pos.is_some() && self.f.needs_frame {
            self.heap.position = pos;
        }
    }

    fn pointer(&self, v: Value) -> Result<Pointer> {
        match self.read(v)? {
            Scalar::Ptr(p) => Ok(p),
            other => Err(format!("{v} is {other:?}, not ptr")),
        }
    }

    fn unbox(&self, flavour: Flavour, r: Ref) -> Result<Scalar> {
        match self.heap.get(r)? {
            Object::Float(x) if flavour == Flavour::Float => Ok(Scalar::F64(*x)),
            Object::Bool(b) if flavour == Flavour::Bool => Ok(Scalar::I1(*b)),
            Object::Np(f, value) if flavour == *f => Ok(*value),
            other => Err(format!("unbox {} of {other:?}", flavour.name())),
        }
    }

    fn field(&self, field: Field, r: Ref) -> Result<Scalar> {
        let wrong = |known: KnownType| format!("{field:?} of an object that is no {}", known.name());
        let len = |known: KnownType, n: usize| {
            self.heap.type_is(r, known)?.then_some(Scalar::I64(n as i64)).ok_or_else(|| wrong(known))
        };
        let axis = |list: &[i64], axis: u8| {
            list.get(usize::from(axis)).map(|n| Scalar::I64(*n)).ok_or("no such axis".to_owned())
        };
        let pointer = |known: KnownType| {
            if self.heap.type_is(r, known)? {
                self.heap.pointer(r).map(Scalar::Ptr)
            } else {
                Err(wrong(known))
            }
        };
        let n_items = match self.heap.get(r)? {
            Object::List(items) | Object::Tuple(items) => items.len(),
            Object::Bytes(data) | Object::ByteArray { data, .. } => data.len(),
            Object::Str(text) => text.chars().count(),
            _ => 0,
        };
        match field {
            Field::ListLen => len(KnownType::List, n_items),
            Field::TupleLen => len(KnownType::Tuple, n_items),
            Field::BytesLen => len(KnownType::Bytes, n_items),
            Field::StrLen => len(KnownType::Str, n_items),
            Field::InstanceNames => match self.heap.get(r)? {
                Object::Instance { attrs, .. } => Ok(Scalar::I64(attrs.len() as i64)),
                other => Err(format!("no instance: {other:?}")),
            },
            Field::ByteArrayLen => len(KnownType::ByteArray, n_items),
            Field::BytesData => pointer(KnownType::Bytes),
            Field::ByteArrayData => pointer(KnownType::ByteArray),
            Field::ArrayData => pointer(self.heap.array(r)?.holder.known_type()),
            Field::ArrayDim(n) => axis(&self.heap.array(r)?.shape, n),
            Field::ArrayStride(n) => axis(&self.heap.array(r)?.strides, n),
        }
    }

    fn table_entry(
        &mut self,
        entry: Entry,
        args: &[Value],
        pos: Option<u32>,
        fail: Option<ExitId>,
    ) -> Result<Flow> {
        let signature = entry.signature();
        let args = self.read_all(args)?;
        for arg in &args {
            if let Scalar::Obj(Some(r)) = arg {
                self.heap.get(*r)?;
            }
        }
        let leave = || fail.map(Flow::Leave).ok_or_else(|| format!("{} fails and has no exit", entry.name()));
        if signature.failure == Failure::Declines && fail.is_some_and(|exit| self.forced(exit)) {
            return leave();
        }
        self.store_position(pos);
        let reply = self.table.call(self.heap, entry, &args)?;
        match (signature.failure, reply) {
            (Failure::Null | Failure::Negative, Reply::Raised) if self.heap.pending.is_none() => {
                Err(format!("{} fails without an exception", entry.name()))
            }
            (Failure::Null | Failure::Negative, Reply::Raised) | (Failure::Declines, Reply::Declined) => {
                leave()
            }
            (_, Reply::Done(value)) if value.map(Scalar::ty) == signature.result => Ok(Flow::Next(value)),
            (_, reply) => Err(format!("{} can't reply {reply:?}", entry.name())),
        }
    }
}

/// An index inside a sequence.
fn checked_index(index: i64, len: usize) -> Result<usize> {
    usize::try_from(index).ok().filter(|i| *i < len).ok_or_else(|| format!("item {index} of {len}"))
}
