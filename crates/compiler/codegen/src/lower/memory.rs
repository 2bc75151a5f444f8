//! Loads and stores, and what they may alias.
//!
//! Memory falls into regions that no valid pointer of another region reaches (LLVM's TBAA). Array elements of all types
//! are one region, since views of different type may share memory. A call that is known to touch only some regions
//! carries the tag of their common parent.
//!
//! ```text
//! all ─┬─ object ─┬─ contents ─┬─ boxed ─┬─ refcount      plain dealloc: boxed; allocation: refcount (small ints are shared)
//!      │          │            │         ├─ type
//!      │          │            │         └─ value ── float  (numbers, and lengths of tuple and bytes; floats in lists change)
//!      │          │            └─ list items               a float in a list replaced: contents
//!      │          ├─ list header                           append: object
//!      │          ├─ attributes
//!      │          └─ values                                (what tells where attributes are)
//!      ├─ bytearray header, array header, element, frame, profile, class (its version)
//! ```

#![expect(unsafe_code, reason = "LLVM's address computation is unsafe in inkwell")]

use inkwell::context::Context;
use inkwell::types::BasicType;
use inkwell::values::{BasicValue, BasicValueEnum, InstructionValue, IntValue, MetadataValue, PointerValue};

use super::{Lower, Result};

/// A part of memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Region {
    Object,
    Contents,
    Boxed,
    Refcount,
    Type,
    Value,
    Float,
    ListHeader,
    ListItems,
    Attributes,
    Values,
    ByteArray,
    ArrayHeader,
    Element,
    Frame,
    Profile,
    Class,
    /// Memory of the machine code's own frame: no tag.
    Scratch,
}

/// TBAA tags by region.
pub(super) struct Regions<'ctx> {
    tags: [MetadataValue<'ctx>; Region::Scratch as usize],
}

impl<'ctx> Regions<'ctx> {
    pub(super) fn new(context: &'ctx Context) -> Regions<'ctx> {
        let zero = context.i64_type().const_zero();
        let node = |name: &str, parent: MetadataValue<'ctx>| {
            context.metadata_node(&[context.metadata_string(name).into(), parent.into(), zero.into()])
        };
        let root = context.metadata_node(&[context.metadata_string("overdrive").into()]);
        let object = node("object", root);
        let contents = node("contents", object);
        let boxed = node("boxed", contents);
        let value = node("value", boxed);
        let types = [
            object,
            contents,
            boxed,
            node("refcount", boxed),
            node("type", boxed),
            value,
            node("float", value),
            node("list header", object),
            node("list items", contents),
            node("attributes", object),
            node("values", object),
            node("bytearray", root),
            node("array header", root),
            node("element", root),
            node("frame", root),
            node("profile", root),
            node("class", root),
        ];
        Regions { tags: types.map(|t| context.metadata_node(&[t.into(), t.into(), zero.into()])) }
    }
}

impl<'ctx> Lower<'_, 'ctx> {
    /// `base + offset`, inside the object that `base` points to.
    pub(super) fn at(&self, base: PointerValue<'ctx>, offset: i64) -> Result<PointerValue<'ctx>> {
        if offset == 0 {
            return Ok(base);
        }
        let offset = self.w.i64.const_int(offset as u64, true);
        // SAFETY: emits an instruction; that the result stays inside the object is the layout's promise.
        Ok(unsafe { self.b.build_in_bounds_gep(self.w.i8, base, &[offset], "") }?)
    }

    /// `base[index]` of 8-byte slots, in range.
    pub(super) fn slot(&self, base: PointerValue<'ctx>, index: IntValue<'ctx>) -> Result<PointerValue<'ctx>> {
        // SAFETY: emits an instruction; every user's precondition is that the index is in range.
        Ok(unsafe { self.b.build_in_bounds_gep(self.w.i64, base, &[index], "") }?)
    }

    /// `base + bytes`, which may lie anywhere.
    pub(super) fn add_bytes(
        &self,
        base: PointerValue<'ctx>,
        bytes: IntValue<'ctx>,
    ) -> Result<PointerValue<'ctx>> {
        // SAFETY: emits an instruction without any claim about the result.
        Ok(unsafe { self.b.build_gep(self.w.i8, base, &[bytes], "") }?)
    }

    pub(super) fn load(
        &self,
        ty: impl BasicType<'ctx>,
        at: PointerValue<'ctx>,
        align: u32,
        region: Region,
    ) -> Result<BasicValueEnum<'ctx>> {
        let value = self.b.build_load(ty, at, "")?;
        if let Some(inst) = value.as_instruction_value() {
            self.tag(inst, align, region)?;
        }
        Ok(value)
    }

    pub(super) fn load_int(
        &self,
        ty: inkwell::types::IntType<'ctx>,
        at: PointerValue<'ctx>,
        align: u32,
        region: Region,
    ) -> Result<IntValue<'ctx>> {
        Ok(self.load(ty, at, align, region)?.into_int_value())
    }

    pub(super) fn load_ptr(&self, at: PointerValue<'ctx>, region: Region) -> Result<PointerValue<'ctx>> {
        Ok(self.load(self.w.ptr, at, 8, region)?.into_pointer_value())
    }

    pub(super) fn store(
        &self,
        value: impl BasicValue<'ctx>,
        at: PointerValue<'ctx>,
        align: u32,
        region: Region,
    ) -> Result<()> {
        let inst = self.b.build_store(at, value)?;
        self.tag(inst, align, region)
    }

    /// Says on a call, load or store what memory it touches.
    pub(super) fn tag_region(&self, inst: InstructionValue<'ctx>, region: Region) {
        if let Some(tag) = self.w.regions.tags.get(region as usize) {
            self.w.annotate(inst, self.w.kinds.tbaa, *tag);
        }
    }

    /// Metadata on the instruction that made a value, if one did (constants fold).
    pub(super) fn note(&self, value: BasicValueEnum<'ctx>, kind: u32, node: MetadataValue<'ctx>) {
        if let Some(inst) = value.as_instruction_value() {
            self.w.annotate(inst, kind, node);
        }
    }

    fn tag(&self, inst: InstructionValue<'ctx>, align: u32, region: Region) -> Result<()> {
        inst.set_alignment(align).map_err(|e| self.malformed(format!("alignment {align}: {e}")))?;
        self.tag_region(inst, region);
        Ok(())
    }
}
