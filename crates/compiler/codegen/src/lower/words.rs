//! LLVM's types, attributes and metadata that every function uses, made once per module.

use inkwell::AddressSpace;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::context::Context;
use inkwell::types::{BasicTypeEnum, FloatType, IntType, PointerType, VoidType};
use inkwell::values::{BasicValueEnum, CallSiteValue, FunctionValue, InstructionValue, MetadataValue};
use overdrive_base::flavour::Ty;

use super::memory::Regions;

pub(super) struct Words<'ctx> {
    context: &'ctx Context,
    pub(super) void: VoidType<'ctx>,
    pub(super) i1: IntType<'ctx>,
    pub(super) i8: IntType<'ctx>,
    pub(super) i32: IntType<'ctx>,
    pub(super) i64: IntType<'ctx>,
    pub(super) f32: FloatType<'ctx>,
    pub(super) f64: FloatType<'ctx>,
    pub(super) ptr: PointerType<'ctx>,
    pub(super) regions: Regions<'ctx>,
    pub(super) kinds: Kinds,
    /// Branch weights: the first way is as good as always taken, or never.
    pub(super) likely: MetadataValue<'ctx>,
    pub(super) unlikely: MetadataValue<'ctx>,
    /// Nine times in ten.
    pub(super) often: MetadataValue<'ctx>,
    /// Range of a length.
    pub(super) length: MetadataValue<'ctx>,
    pub(super) empty: MetadataValue<'ctx>,
    attributes: Attributes,
}

/// Numbers of metadata kinds.
pub(super) struct Kinds {
    pub(super) tbaa: u32,
    pub(super) prof: u32,
    pub(super) range: u32,
    pub(super) nonnull: u32,
    pub(super) invariant_load: u32,
}

struct Attributes {
    nounwind: Attribute,
    willreturn: Attribute,
    nosync: Attribute,
    nofree: Attribute,
    cold: Attribute,
    always_inline: Attribute,
    /// `memory(none)`, `memory(read)`, `memory(argmem: write)`, `memory(read, argmem: readwrite)`.
    memory_none: Attribute,
    memory_read: Attribute,
    memory_out: Attribute,
    memory_read_out: Attribute,
    /// Of an argument: what it points to is only read; the callee keeps no copy of the pointer.
    readonly: Attribute,
    captures_none: Attribute,
}

/// What a callee touches, as far as LLVM may know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Touches {
    /// Nothing.
    Nothing,
    /// Reads anything.
    Reads,
    /// Writes its result argument.
    Out,
    /// Reads anything, writes its result argument.
    ReadsOut,
    /// Anything (or what a region tag at the call says); returns, and runs no other code.
    Some,
    /// Anything, and any Python code may run.
    Everything,
}

impl<'ctx> Words<'ctx> {
    pub(super) fn new(context: &'ctx Context) -> Words<'ctx> {
        let i32 = context.i32_type();
        let i64 = context.i64_type();
        let weights = |a: u64, b: u64| {
            let name = context.metadata_string("branch_weights");
            let (a, b) = (i32.const_int(a, false), i32.const_int(b, false));
            context.metadata_node(&[name.into(), a.into(), b.into()])
        };
        let kind = |name| context.get_kind_id(name);
        let attribute =
            |name, value| context.create_enum_attribute(Attribute::get_named_enum_kind_id(name), value);
        // Two bits (1 reads, 2 writes) for each of: arguments, inaccessible, errno, other, two of the target.
        let memory = |bits| attribute("memory", bits);
        Words {
            context,
            void: context.void_type(),
            i1: context.bool_type(),
            i8: context.i8_type(),
            i32,
            i64,
            f32: context.f32_type(),
            f64: context.f64_type(),
            ptr: context.ptr_type(AddressSpace::default()),
            regions: Regions::new(context),
            kinds: Kinds {
                tbaa: kind("tbaa"),
                prof: kind("prof"),
                range: kind("range"),
                nonnull: kind("nonnull"),
                invariant_load: kind("invariant.load"),
            },
            likely: weights(1 << 20, 1),
            unlikely: weights(1, 1 << 20),
            often: weights(9, 1),
            length: context.metadata_node(&[i64.const_zero().into(), i64.const_int(1 << 63, false).into()]),
            empty: context.metadata_node(&[]),
            attributes: Attributes {
                nounwind: attribute("nounwind", 0),
                willreturn: attribute("willreturn", 0),
                nosync: attribute("nosync", 0),
                nofree: attribute("nofree", 0),
                cold: attribute("cold", 0),
                always_inline: attribute("alwaysinline", 0),
                memory_none: memory(0),
                memory_read: memory(0b01_01_01_01_01_01),
                memory_out: memory(0b10),
                memory_read_out: memory(0b01_01_01_01_01_11),
                readonly: attribute("readonly", 0),
                captures_none: attribute("captures", 0),
            },
        }
    }

    /// Machine type of an IR type.
    pub(super) fn of(&self, ty: Ty) -> BasicTypeEnum<'ctx> {
        match ty {
            Ty::I1 => self.i1.into(),
            Ty::I64 => self.i64.into(),
            Ty::F32 => self.f32.into(),
            Ty::F64 => self.f64.into(),
            Ty::Obj | Ty::Ptr => self.ptr.into(),
        }
    }

    /// The function's own attributes. Without built-ins LLVM makes no calls to C's library out of loops.
    pub(super) fn describe_function(&self, function: FunctionValue<'ctx>) {
        function.add_attribute(AttributeLoc::Function, self.attributes.nounwind);
        let no_builtins = self.context.create_string_attribute("no-builtins", "");
        function.add_attribute(AttributeLoc::Function, no_builtins);
    }

    /// Attributes of a function that only passes on.
    pub(super) fn describe_forward(&self, function: FunctionValue<'ctx>) {
        let a = &self.attributes;
        for attribute in [a.nounwind, a.willreturn, a.nosync, a.nofree, a.memory_none, a.always_inline] {
            function.add_attribute(AttributeLoc::Function, attribute);
        }
    }

    /// What LLVM may assume of a call.
    pub(super) fn describe_call(&self, call: CallSiteValue<'ctx>, touches: Touches) {
        let a = &self.attributes;
        let memory = match touches {
            Touches::Nothing => Some(a.memory_none),
            Touches::Reads => Some(a.memory_read),
            Touches::Out => Some(a.memory_out),
            Touches::ReadsOut => Some(a.memory_read_out),
            Touches::Some | Touches::Everything => None,
        };
        let at = AttributeLoc::Function;
        call.add_attribute(at, a.nounwind);
        if let Some(memory) = memory {
            call.add_attribute(at, memory);
            call.add_attribute(at, a.nofree);
            call.add_attribute(at, a.nosync);
        }
        if touches != Touches::Everything {
            call.add_attribute(at, a.willreturn);
        }
    }

    /// Of a call that writes nothing but its result, through its last argument: the objects are only looked at.
    pub(super) fn describe_out(&self, call: CallSiteValue<'ctx>, args: &[BasicValueEnum<'ctx>]) {
        for (i, _) in args.iter().enumerate().filter(|(_, arg)| arg.is_pointer_value()) {
            call.add_attribute(AttributeLoc::Param(i as u32), self.attributes.captures_none);
            if i + 1 < args.len() {
                call.add_attribute(AttributeLoc::Param(i as u32), self.attributes.readonly);
            }
        }
    }

    /// The call is rarely made.
    pub(super) fn cold(&self, call: CallSiteValue<'ctx>) {
        call.add_attribute(AttributeLoc::Function, self.attributes.cold);
    }

    /// Metadata on an instruction. LLVM takes node metadata on any instruction, and these all are nodes.
    pub(super) fn annotate(&self, inst: InstructionValue<'ctx>, kind: u32, node: MetadataValue<'ctx>) {
        let set = inst.set_metadata(node, kind);
        debug_assert!(set.is_ok(), "metadata that is no node");
    }
}
