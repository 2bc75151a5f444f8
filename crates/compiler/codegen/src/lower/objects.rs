//! Looking at and into objects: types, fields, items, elements. Offsets and addresses come from the layout.

use inkwell::IntPredicate;
use inkwell::values::{BasicValueEnum, IntValue, PointerValue};
use overdrive_base::flavour::{DType, Flavour, Holder, KnownType};
use overdrive_ir::entities::{ConstId, Value};
use overdrive_ir::inst::{Field, Inst, Seq};

use super::memory::Region;
use super::{Known, Lower, Result};
use crate::error::CodegenError;

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn object(
        &mut self,
        inst: &Inst,
        result: Option<Value>,
    ) -> Result<Option<BasicValueEnum<'ctx>>> {
        Ok(Some(match inst {
            Inst::OConst(id) => self.constant(*id, result)?.into(),
            Inst::Null => self.w.ptr.const_null().into(),
            Inst::TypeIs(object, ty) => self.type_is(self.ptr(*object)?, *ty)?.into(),
            Inst::Same(a, b) => self.same_address(self.ptr(*a)?, self.ptr(*b)?)?.into(),
            Inst::IsNull(a) => self.b.build_is_null(self.ptr(*a)?, "")?.into(),
            Inst::ArrayIs { array, holder, dtype, ndim, writable } => {
                self.array_is(self.ptr(*array)?, *holder, *dtype, *ndim, *writable)?.into()
            }
            Inst::Unbox(flavour, object) => self.unbox(*flavour, self.ptr(*object)?)?,
            Inst::Field(field, object) => self.field(*field, self.ptr(*object)?)?,
            Inst::ItemGet(seq, object, index) => {
                let (object, index) = (self.ptr(*object)?, self.int(*index)?);
                let (slot, region) = match seq {
                    Seq::List => (self.list_slot(object, index)?, Region::ListItems),
                    Seq::Tuple => {
                        let items = self.at(object, self.target.layout.tuple_items.into())?;
                        (self.slot(items, index)?, Region::Value)
                    }
                };
                let item = self.load_ptr(slot, region)?;
                self.note(item.into(), self.w.kinds.nonnull, self.w.empty);
                self.learn(result, Known::NotNull);
                item.into()
            }
            Inst::ListSwap { list, index, item } => {
                let slot = self.list_slot(self.ptr(*list)?, self.int(*index)?)?;
                let old = self.load_ptr(slot, Region::ListItems)?;
                self.store(self.ptr(*item)?, slot, 8, Region::ListItems)?;
                old.into()
            }
            Inst::VersionIs(..)
            | Inst::KeepsValues { .. }
            | Inst::AttrGet(..)
            | Inst::AttrSwap { .. }
            | Inst::AttrSet { .. } => return self.attribute(inst, result),
            Inst::Load(dtype, at) => self.load_element(*dtype, self.ptr(*at)?)?,
            Inst::Store(dtype, at, value) => {
                self.store_element(*dtype, self.ptr(*at)?, *value)?;
                return Ok(None);
            }
            Inst::PtrAdd(base, bytes) => self.add_bytes(self.ptr(*base)?, self.int(*bytes)?)?.into(),
            other => return Err(self.malformed(format!("{other:?} is not about objects"))),
        }))
    }

    pub(super) fn learn(&mut self, result: Option<Value>, known: Known) {
        if let Some(v) = result {
            self.known[v.index()] = known;
        }
    }

    fn constant(&mut self, id: ConstId, result: Option<Value>) -> Result<PointerValue<'ctx>> {
        let (consts, layout) = (self.target.consts, self.target.layout);
        let address = *consts
            .get(id.index())
            .ok_or(CodegenError::MissingConst { index: id.index(), given: consts.len() })?;
        let singleton = [layout.none, layout.true_, layout.false_].contains(&address);
        if layout.immortal && singleton {
            self.learn(result, Known::Immortal);
        } else if address != 0 {
            self.learn(result, Known::NotNull);
        }
        self.address(address)
    }

    /// The type of an object.
    pub(super) fn type_of(&self, object: PointerValue<'ctx>) -> Result<PointerValue<'ctx>> {
        let at = self.at(object, self.target.layout.ob_type.into())?;
        self.load_ptr(at, Region::Type)
    }

    fn type_is(&self, object: PointerValue<'ctx>, ty: KnownType) -> Result<IntValue<'ctx>> {
        match self.target.layout.type_address(ty) {
            Some(address) => self.same_address(self.type_of(object)?, self.address(address)?),
            None => Ok(self.w.i1.const_zero()),
        }
    }

    /// The header is read only once the type is known.
    fn array_is(
        &mut self,
        array: PointerValue<'ctx>,
        holder: Holder,
        dtype: DType,
        ndim: u8,
        writable: bool,
    ) -> Result<IntValue<'ctx>> {
        let (layout, no) = (self.target.layout, self.w.i1.const_zero());
        let Some(tag) = layout.element_tag(holder, dtype) else { return Ok(no) };
        if layout.type_address(holder.known_type()).is_none() {
            return Ok(no);
        }
        let is_array = self.type_is(array, holder.known_type())?;
        let from = self.current()?;
        let mut header = None;
        self.when(is_array, false, |lower| {
            let (b, w) = (&lower.b, &lower.w);
            let field = |offset: i32| lower.at(array, offset.into());
            let found = lower.load_ptr(field(layout.array_descr)?, Region::ArrayHeader)?;
            let same_dtype = lower.same_address(found, lower.address(tag)?)?;
            let rank = lower.load_int(w.i32, field(layout.array_ndim)?, 4, Region::ArrayHeader)?;
            let rank_wanted = w.i32.const_int(ndim.into(), false);
            let same_rank = b.build_int_compare(IntPredicate::EQ, rank, rank_wanted, "")?;
            let mask = match writable {
                true => layout.array_flags_read | layout.array_flags_write,
                false => layout.array_flags_read,
            };
            let mask = w.i32.const_int(mask as u32 as u64, false);
            let flags = lower.load_int(w.i32, field(layout.array_flags)?, 4, Region::ArrayHeader)?;
            let flags_set = b.build_and(flags, mask, "")?;
            let flags_fit = b.build_int_compare(IntPredicate::EQ, flags_set, mask, "")?;
            let all = b.build_and(same_dtype, same_rank, "")?;
            header = Some((b.build_and(all, flags_fit, "")?, lower.current()?));
            Ok(())
        })?;
        let (fits, in_header) = header.ok_or_else(|| self.malformed("no array test"))?;
        let phi = self.b.build_phi(self.w.i1, "")?;
        phi.add_incoming(&[(&no, from), (&fits, in_header)]);
        Ok(phi.as_basic_value().into_int_value())
    }

    fn unbox(&self, flavour: Flavour, object: PointerValue<'ctx>) -> Result<BasicValueEnum<'ctx>> {
        let (b, w, layout) = (&self.b, &self.w, self.target.layout);
        let scalar = || self.at(object, layout.np_scalar_value.into());
        Ok(match flavour {
            Flavour::Int => return Err(self.malformed("unbox int is the table's unbox_int")),
            Flavour::Float => {
                self.load(w.f64, self.at(object, layout.float_value.into())?, 8, Region::Float)?
            }
            Flavour::Bool => self.same_address(object, self.address(layout.true_)?)?.into(),
            Flavour::NpBool => self.same_address(object, self.address(layout.np_true)?)?.into(),
            Flavour::NpF64 => self.load(w.f64, scalar()?, 8, Region::Value)?,
            Flavour::NpF32 => self.load(w.f32, scalar()?, 4, Region::Value)?,
            Flavour::NpI64 => self.load(w.i64, scalar()?, 8, Region::Value)?,
            Flavour::NpI32 => {
                let value = self.load_int(w.i32, scalar()?, 4, Region::Value)?;
                b.build_int_s_extend(value, w.i64, "")?.into()
            }
            Flavour::NpU8 => {
                let value = self.load_int(w.i8, scalar()?, 1, Region::Value)?;
                b.build_int_z_extend(value, w.i64, "")?.into()
            }
        })
    }

    fn field(&self, field: Field, object: PointerValue<'ctx>) -> Result<BasicValueEnum<'ctx>> {
        let layout = self.target.layout;
        let at = |offset: i32| self.at(object, offset.into());
        // Per-axis values lie in an array of their own that the header points to.
        let axis = |offset: i32, axis: u8| {
            let table = self.load_ptr(at(offset)?, Region::ArrayHeader)?;
            let slot = self.at(table, 8 * i64::from(axis))?;
            self.load_int(self.w.i64, slot, 8, Region::ArrayHeader)
        };
        let length = |region| self.load_int(self.w.i64, at(layout.var_size)?, 8, region);
        let (value, is_length): (BasicValueEnum<'ctx>, bool) = match field {
            Field::ListLen => (length(Region::ListHeader)?.into(), true),
            Field::TupleLen | Field::BytesLen | Field::StrLen => (length(Region::Value)?.into(), true),
            Field::InstanceNames => {
                let names = self.at(self.type_of(object)?, layout.class_names.into())?;
                let names = self.load_ptr(names, Region::Class)?;
                let used = self.at(names, layout.class_names_used.into())?;
                (self.load_int(self.w.i64, used, 8, Region::Values)?.into(), true)
            }
            Field::ByteArrayLen => (length(Region::ByteArray)?.into(), true),
            Field::BytesData => (at(layout.bytes_data)?.into(), false),
            Field::ByteArrayData => {
                (self.load_ptr(at(layout.bytearray_start)?, Region::ByteArray)?.into(), false)
            }
            Field::ArrayDim(n) => (axis(layout.array_dims, n)?.into(), true),
            Field::ArrayStride(n) => (axis(layout.array_strides, n)?.into(), false),
            Field::ArrayData => (self.load_ptr(at(layout.array_data)?, Region::ArrayHeader)?.into(), false),
        };
        if is_length {
            self.note(value, self.w.kinds.range, self.w.length);
        }
        Ok(value)
    }

    pub(super) fn list_slot(
        &self,
        list: PointerValue<'ctx>,
        index: IntValue<'ctx>,
    ) -> Result<PointerValue<'ctx>> {
        let items = self.at(list, self.target.layout.list_items.into())?;
        let items = self.load_ptr(items, Region::ListHeader)?;
        self.slot(items, index)
    }

    fn load_element(&self, dtype: DType, at: PointerValue<'ctx>) -> Result<BasicValueEnum<'ctx>> {
        let (b, w) = (&self.b, &self.w);
        let int = |ty, align| self.load_int(ty, at, align, Region::Element);
        Ok(match dtype {
            DType::F64 => self.load(w.f64, at, 8, Region::Element)?,
            DType::F32 => self.load(w.f32, at, 4, Region::Element)?,
            DType::I64 => int(w.i64, 8)?.into(),
            DType::I32 => b.build_int_s_extend(int(w.i32, 4)?, w.i64, "")?.into(),
            DType::U8 => b.build_int_z_extend(int(w.i8, 1)?, w.i64, "")?.into(),
            DType::Bool => {
                let byte = int(w.i8, 1)?;
                b.build_int_compare(IntPredicate::NE, byte, w.i8.const_zero(), "")?.into()
            }
        })
    }

    fn store_element(&self, dtype: DType, at: PointerValue<'ctx>, value: Value) -> Result<()> {
        let (b, w) = (&self.b, &self.w);
        let element: BasicValueEnum<'ctx> = match dtype {
            DType::F64 | DType::F32 => self.float(value)?.into(),
            DType::I64 => self.int(value)?.into(),
            DType::I32 => b.build_int_truncate(self.int(value)?, w.i32, "")?.into(),
            DType::U8 => b.build_int_truncate(self.int(value)?, w.i8, "")?.into(),
            DType::Bool => b.build_int_z_extend(self.int(value)?, w.i8, "")?.into(),
        };
        if self.f.ty(value) != dtype.scalar().ty() {
            return Err(self.malformed(format!("{value} stored as {}", dtype.name())));
        }
        self.store(element, at, dtype.size() as u32, Region::Element)
    }
}
