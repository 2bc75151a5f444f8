//! Routines: functions inside the module that a function and they themselves call with unboxed arguments.
//!
//! In: `Function::routines`. Out: for each an LLVM function `od_routine_n(breaker, parameters …) -> { result, i1 }`, whose
//! second part is false where it gave up. It has no frame and no way out into CPython, so its exits are that answer.

use inkwell::basic_block::BasicBlock;
use inkwell::module::Linkage;
use inkwell::types::{BasicMetadataTypeEnum, StructType};
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, FunctionValue};
use overdrive_base::flavour::Ty;
use overdrive_ir::entities::{ExitId, Value};
use overdrive_ir::function::Function;

use super::exits::Exits;
use super::words::Words;
use super::{Known, Lower, Result, reverse_postorder};
use crate::compile::Forced;

impl<'ctx> Lower<'_, 'ctx> {
    /// Says that they exist, so that they can call each other.
    pub(super) fn declare_routines(&self) -> Result<()> {
        for (n, routine) in self.routines.iter().enumerate() {
            let params = routine.blocks.first().map(|b| b.params.as_slice()).unwrap_or_default();
            let mut types: Vec<BasicMetadataTypeEnum<'ctx>> = vec![self.w.ptr.into()];
            types.extend(params.iter().map(|v| BasicMetadataTypeEnum::from(self.w.of(routine.ty(*v)))));
            let signature = self.answer(routine)?.fn_type(&types, false);
            let function = self.module.add_function(&symbol(n), signature, Some(Linkage::Internal));
            self.w.describe_function(function);
        }
        Ok(())
    }

    pub(super) fn emit_routines(&self) -> Result<()> {
        for (n, f) in self.routines.iter().enumerate() {
            let w = Words::new(self.context);
            let function = self.routine(n)?;
            let order = reverse_postorder(f)?;
            let mut blocks = vec![None; f.blocks.len()];
            for block in &order {
                blocks[block.index()] = Some(self.context.append_basic_block(function, ""));
            }
            let null = w.ptr.const_null();
            let breaker = match function.get_first_param() {
                Some(BasicValueEnum::PointerValue(breaker)) => breaker,
                _ => return Err(self.malformed("a routine without the eval breaker")),
            };
            let mut lower = Lower {
                f,
                target: self.target,
                symbols: self.symbols,
                forced: Forced::No,
                context: self.context,
                module: self.module,
                function,
                b: self.context.create_builder(),
                values: vec![None; f.n_values()],
                known: vec![Known::Nothing; f.n_values()],
                phis: vec![vec![]; f.blocks.len()],
                blocks,
                args: null,
                frame: null,
                rt: null,
                breaker,
                exits: Exits::new(f.exits.len()),
                out: None,
                call_args: None,
                parallel: Default::default(),
                loop_context: None,
                routines: self.routines,
                places: self.places.map(|places| places.debug.enter(function)),
                w,
            };
            lower.stand_at(None);
            lower.prologue(&order)?;
            for block in order {
                lower.block(block)?;
            }
            lower.emit_exits()?;
        }
        Ok(())
    }

    /// The entry block's parameters, in a routine.
    pub(super) fn routine_params(&mut self) -> Result<()> {
        let given = self.function.get_params();
        for (v, param) in self.f.blocks[0].params.iter().zip(given.into_iter().skip(1)) {
            self.values[v.index()] = Some(param);
        }
        Ok(())
    }

    pub(super) fn call_routine(
        &mut self,
        routine: u32,
        args: &[Value],
        fail: ExitId,
    ) -> Result<BasicValueEnum<'ctx>> {
        self.ask(fail)?;
        let function = self.routine(routine as usize)?;
        let params = self.routines[routine as usize].blocks[0].params.iter();
        let types = params.map(|v| self.routines[routine as usize].ty(*v));
        if !types.eq(args.iter().map(|v| self.f.ty(*v))) {
            return Err(self.malformed(format!("arguments of routine {routine}")));
        }
        let mut passed: Vec<BasicMetadataValueEnum<'ctx>> = vec![self.breaker.into()];
        for v in args {
            passed.push(self.value(*v)?.into());
        }
        let call = self.b.build_call(function, &passed, "")?;
        let Some(BasicValueEnum::StructValue(answer)) = call.try_as_basic_value().basic() else {
            return Err(self.malformed(format!("routine {routine} gives no answer")));
        };
        let is_there = self.b.build_extract_value(answer, 1, "")?.into_int_value();
        self.leave_unless(is_there, fail)?;
        Ok(self.b.build_extract_value(answer, 0, "")?)
    }

    pub(super) fn return_from_routine(&mut self, v: Value) -> Result<()> {
        let value = self.value(v)?;
        let answer = self.answer(self.f)?.const_zero();
        let answer = self.b.build_insert_value(answer, value, 0, "")?;
        let yes = self.w.i1.const_int(1, false);
        let answer = self.b.build_insert_value(answer, yes, 1, "")?;
        self.b.build_return(Some(&answer))?;
        Ok(())
    }

    /// What an exit is in a routine.
    pub(super) fn give_up(&mut self, block: BasicBlock<'ctx>) -> Result<()> {
        self.b.position_at_end(block);
        self.stand_at_exit(None);
        let answer = self.answer(self.f)?.const_zero();
        self.b.build_return(Some(&answer))?;
        Ok(())
    }

    fn answer(&self, f: &Function) -> Result<StructType<'ctx>> {
        let result: Ty = f.returns.ok_or_else(|| self.malformed("a routine without a result"))?;
        Ok(self.context.struct_type(&[self.w.of(result), self.w.i1.into()], false))
    }

    fn routine(&self, n: usize) -> Result<FunctionValue<'ctx>> {
        self.module.get_function(&symbol(n)).ok_or_else(|| self.malformed(format!("there is no routine {n}")))
    }
}

/// Beginning of the routines' names, before their numbers.
pub(crate) const ROUTINE: &str = "od_routine_";

fn symbol(n: usize) -> String {
    format!("{ROUTINE}{n}")
}
