//! Where machine code comes from: debug locations, only of code that is made to be read.
//!
//! In: the places that the IR tells. Out: on each LLVM instruction a line, which is the bytecode offset plus one (0 where none
//! is known), and a column that tells the way on from the ways out. The assembler text names both again (`listing`).

use inkwell::context::Context;
use inkwell::debug_info::{
    AsDIScope, DICompileUnit, DIFlags, DIFlagsConstants, DISubprogram, DWARFEmissionKind,
    DWARFSourceLanguage, DebugInfoBuilder,
};
use inkwell::module::{FlagBehavior, Module};
use inkwell::values::FunctionValue;
use overdrive_ir::entities::ExitId;

use super::Lower;

/// Columns.
const ON: u32 = 1;
pub(crate) const OUT: u32 = 2;

/// Debug information of one module.
pub(super) struct Debug<'ctx> {
    context: &'ctx Context,
    builder: DebugInfoBuilder<'ctx>,
    unit: DICompileUnit<'ctx>,
}

/// That of one LLVM function in it.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a, 'ctx> {
    pub(super) debug: &'a Debug<'ctx>,
    function: DISubprogram<'ctx>,
}

impl<'ctx> Debug<'ctx> {
    pub(super) fn new(context: &'ctx Context, module: &Module<'ctx>) -> Debug<'ctx> {
        // Without this flag LLVM takes debug information for that of another version, and drops it.
        let version =
            context.i32_type().const_int(inkwell::debug_info::debug_metadata_version().into(), false);
        module.add_basic_value_flag("Debug Info Version", FlagBehavior::Warning, version);
        let (builder, unit) = module.create_debug_info_builder(
            true,
            DWARFSourceLanguage::C,
            "bytecode",
            "",
            "overdrive",
            true,
            "",
            0,
            "",
            DWARFEmissionKind::LineTablesOnly,
            0,
            false,
            false,
            "",
            "",
        );
        Debug { context, builder, unit }
    }

    /// Instructions of `function` may have places from now on.
    pub(super) fn enter<'a>(&'a self, function: FunctionValue<'ctx>) -> Scope<'a, 'ctx> {
        let file = self.unit.get_file();
        let name = function.get_name().to_string_lossy();
        let ty = self.builder.create_subroutine_type(file, None, &[], DIFlags::ZERO);
        let scope = self.unit.as_debug_info_scope();
        let made = self.builder.create_function(
            scope,
            &name,
            None,
            file,
            0,
            ty,
            false,
            true,
            0,
            DIFlags::ZERO,
            true,
        );
        function.set_subprogram(made);
        Scope { debug: self, function: made }
    }

    pub(super) fn finish(&self) {
        self.builder.finalize();
    }
}

impl<'a, 'ctx> Lower<'a, 'ctx> {
    /// What is built from now on is for the instruction at this offset.
    pub(super) fn stand_at(&self, place: Option<u32>) {
        self.locate(place, ON);
    }

    /// What is built from now on is a way out: of one exit, or of several.
    pub(super) fn stand_at_exit(&self, exit: Option<ExitId>) {
        let place = exit.and_then(|exit| self.f.exits.get(exit.index())).map(|exit| exit.origin);
        self.locate(place.filter(|_| self.f.returns.is_none()), OUT);
    }

    fn locate(&self, place: Option<u32>, column: u32) {
        let Some(Scope { debug, function }) = self.places else { return };
        let line = place.map_or(0, |offset| offset + 1);
        let scope = function.as_debug_info_scope();
        let at = debug.builder.create_debug_location(debug.context, line, column, scope, None);
        self.b.set_current_debug_location(at);
    }
}
