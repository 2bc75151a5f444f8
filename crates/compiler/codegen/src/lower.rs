//! One IR function to one LLVM function, and one more for each parallel loop.
//!
//! In: IR as the verifier accepts it; what it does not hold to is reported as `Malformed`, never a panic. Out: an LLVM
//! module with the function `SYMBOL`, not optimised. Blocks become blocks, their parameters phis; instructions that
//! may leave split their block, and all ways out share one tail. The instruction families have a file each.

mod words;
mod memory;
mod numbers;
mod objects;
mod attributes;
mod refs;
mod table;
mod common;
mod fast;
mod exits;
mod parallel;
mod routines;
mod places;

use std::collections::BTreeMap;

use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::builder::Builder;
use inkwell::context::Context;
use inkwell::module::{Linkage, Module};
use inkwell::values::{BasicValueEnum, FloatValue, FunctionValue, IntValue, PhiValue, PointerValue};
use overdrive_base::flavour::Ty;
use overdrive_ir::entities::{Block, ExitId, Value};
use overdrive_ir::function::Function;
use overdrive_ir::inst::{Inst, Terminator};
use overdrive_ir::parallel::Parallel;

use crate::abi::Target;
use crate::compile::{Forced, Options};
use crate::error::CodegenError;
use crate::symbols::Symbols;
use exits::Exits;
use memory::Region;
use places::{Debug, Scope};
use words::Words;

pub(crate) use fast::vector_forms_called;
pub(crate) use places::OUT;
pub(crate) use routines::ROUTINE;

/// Name of the function in its object.
pub(crate) const SYMBOL: &str = "od_native";

type Result<T> = std::result::Result<T, CodegenError>;

/// The module of `f`; with the place of each instruction on request.
pub(crate) fn module<'ctx>(
    context: &'ctx Context,
    f: &Function,
    target: &Target<'_>,
    options: &Options,
    with_places: bool,
) -> Result<Module<'ctx>> {
    let module = context.create_module(&f.name);
    let debug = with_places.then(|| Debug::new(context, &module));
    let words = Words::new(context);
    let ptr = words.ptr.into();
    let signature = words.ptr.fn_type(&[ptr, ptr, ptr, ptr], false);
    let function = module.add_function(SYMBOL, signature, Some(Linkage::External));
    words.describe_function(function);
    let symbols = Symbols::of(target);
    let parallel = parallel::loops(f)?;
    let mut order = reverse_postorder(f)?;
    // What is inside of them goes into functions of its own.
    order.retain(|b| parallel.values().all(|p| *b == p.header || !p.blocks.contains(b)));

    let builder = context.create_builder();
    let mut blocks = vec![None; f.blocks.len()];
    for block in &order {
        blocks[block.index()] = Some(context.append_basic_block(function, ""));
    }
    let param = |i| match function.get_nth_param(i) {
        Some(BasicValueEnum::PointerValue(p)) => p,
        _ => words.ptr.const_null(),
    };
    let mut lower = Lower {
        f,
        target,
        symbols: &symbols,
        forced: options.forced,
        context,
        module: &module,
        function,
        b: builder,
        values: vec![None; f.n_values()],
        known: vec![Known::Nothing; f.n_values()],
        phis: vec![vec![]; f.blocks.len()],
        blocks,
        args: param(0),
        frame: param(1),
        rt: param(2),
        breaker: param(3),
        exits: Exits::new(f.exits.len()),
        out: None,
        call_args: None,
        parallel,
        loop_context: None,
        routines: &f.routines,
        places: debug.as_ref().map(|debug| debug.enter(function)),
        w: words,
    };
    lower.stand_at(None);
    lower.declare_routines()?;
    lower.prologue(&order)?;
    for block in order {
        lower.block(block)?;
    }
    lower.emit_exits()?;
    lower.emit_routines()?;
    debug.iter().for_each(Debug::finish);
    Ok(module)
}

/// What is known of a reference from the way it was made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    NotNull,
    /// Counting its references does nothing.
    Immortal,
}

/// The state of one lowering.
struct Lower<'a, 'ctx> {
    f: &'a Function,
    target: &'a Target<'a>,
    symbols: &'a Symbols,
    forced: Forced,
    context: &'ctx Context,
    module: &'a Module<'ctx>,
    function: FunctionValue<'ctx>,
    b: Builder<'ctx>,
    w: Words<'ctx>,
    /// LLVM value of each IR value that is defined so far.
    values: Vec<Option<BasicValueEnum<'ctx>>>,
    /// What is known of each reference from the way it was made.
    known: Vec<Known>,
    /// First LLVM block of each reachable IR block.
    blocks: Vec<Option<BasicBlock<'ctx>>>,
    phis: Vec<Vec<PhiValue<'ctx>>>,
    args: PointerValue<'ctx>,
    frame: PointerValue<'ctx>,
    rt: PointerValue<'ctx>,
    breaker: PointerValue<'ctx>,
    exits: Exits<'ctx>,
    /// Where declining entries put their result; 8 bytes.
    out: Option<PointerValue<'ctx>>,
    /// Arguments of variadic calls; one slot more than the longest call has.
    call_args: Option<PointerValue<'ctx>>,
    /// The function's parallel loops, by header.
    parallel: BTreeMap<Block, Parallel>,
    /// Where the threads that run a parallel loop find what it reads.
    loop_context: Option<PointerValue<'ctx>>,
    /// Functions that this one may call.
    routines: &'a [Function],
    /// Present when the place of each instruction is to be told.
    places: Option<Scope<'a, 'ctx>>,
}

impl<'ctx> Lower<'_, 'ctx> {
    /// Scratch memory, arguments, and the phis of all blocks.
    fn prologue(&mut self, order: &[Block]) -> Result<()> {
        let entry = self.llvm_block(Block(0))?;
        self.b.position_at_end(entry);
        self.make_scratch()?;
        self.make_context()?;
        let params = &self.f.blocks[0].params;
        if self.f.returns.is_some() {
            self.routine_params()?;
        } else if params.len() != self.f.n_args as usize {
            return Err(self.malformed(format!(
                "{} entry parameters, {} arguments",
                params.len(),
                self.f.n_args
            )));
        }
        for (i, v) in params.iter().enumerate().filter(|_| self.f.returns.is_none()) {
            if self.f.ty(*v) != Ty::Obj {
                return Err(self.malformed(format!("argument {v} is not an object")));
            }
            let slot = self.at(self.args, 8 * i as i64)?;
            let arg = self.load(self.w.ptr, slot, 8, Region::Frame)?;
            self.values[v.index()] = Some(arg);
        }
        for block in order.iter().filter(|b| b.0 != 0) {
            let at = self.llvm_block(*block)?;
            self.b.position_at_end(at);
            for v in &self.f.blocks[block.index()].params {
                let phi = self.b.build_phi(self.w.of(self.f.ty(*v)), "")?;
                self.phis[block.index()].push(phi);
                self.values[v.index()] = Some(phi.as_basic_value());
            }
        }
        Ok(())
    }

    fn block(&mut self, block: Block) -> Result<()> {
        let at = self.llvm_block(block)?;
        self.b.position_at_end(at);
        self.stand_at(self.f.blocks[block.index()].offset);
        if let Some(p) = self.parallel.get(&block).cloned() {
            return self.parallel_loop(&p);
        }
        self.insts(block, &[])?;
        match &self.f.blocks[block.index()].terminator {
            Some(terminator) => self.terminator(terminator),
            None => Err(self.malformed(format!("{block} has no end"))),
        }
    }

    /// The instructions of a block, but for those that make one of `skip`.
    fn insts(&mut self, block: Block, skip: &[Value]) -> Result<()> {
        let f = self.f;
        for (inst, result) in &f.blocks[block.index()].insts {
            if result.is_some_and(|v| skip.contains(&v)) {
                continue;
            }
            if self.places.is_some()
                && let Some(place) = f.place(inst, *result)
            {
                self.stand_at(Some(place));
            }
            let value = self.inst(inst, *result)?;
            match (result, value) {
                (Some(v), Some(value)) => self.values[v.index()] = Some(value),
                (None, _) => {}
                (Some(v), None) => return Err(self.malformed(format!("{inst:?} gives no {v}"))),
            }
        }
        Ok(())
    }

    /// All instructions, by family.
    fn inst(&mut self, inst: &Inst, result: Option<Value>) -> Result<Option<BasicValueEnum<'ctx>>> {
        match inst {
            Inst::IConst(_)
            | Inst::FConst(_)
            | Inst::F32Const(_)
            | Inst::BConst(_)
            | Inst::HasFrame
            | Inst::Int(..)
            | Inst::Checked(..)
            | Inst::ICmp(..)
            | Inst::ULt(..)
            | Inst::Float(..)
            | Inst::FloatUnary(..)
            | Inst::FCmp(..)
            | Inst::IntToFloat(_)
            | Inst::FloatToInt(_)
            | Inst::F32ToF64(_)
            | Inst::F64ToF32(_)
            | Inst::Bool(..)
            | Inst::Not(_)
            | Inst::BoolToInt(_)
            | Inst::Select(..) => self.number(inst).map(Some),
            Inst::OConst(_)
            | Inst::Null
            | Inst::TypeIs(..)
            | Inst::Same(..)
            | Inst::IsNull(_)
            | Inst::ArrayIs { .. }
            | Inst::Unbox(..)
            | Inst::Field(..)
            | Inst::ItemGet(..)
            | Inst::ListSwap { .. }
            | Inst::VersionIs(..)
            | Inst::KeepsValues { .. }
            | Inst::AttrGet(..)
            | Inst::AttrSwap { .. }
            | Inst::AttrSet { .. }
            | Inst::Load(..)
            | Inst::Store(..)
            | Inst::PtrAdd(..) => self.object(inst, result),
            Inst::IncRef(_) | Inst::DecRef { .. } | Inst::OwnArg(_) | Inst::Poll { .. } => {
                self.reference(inst)
            }
            Inst::Guard(cond, exit) => {
                self.ask(*exit)?;
                let cond = self.int(*cond)?;
                self.leave_unless(cond, *exit)?;
                Ok(None)
            }
            Inst::CallRoutine { routine, args, fail, .. } => {
                self.call_routine(*routine, args, *fail).map(Some)
            }
            Inst::Table { entry, args, pos, fail } => self.table(*entry, args, *pos, *fail, result),
        }
    }

    fn terminator(&mut self, terminator: &Terminator) -> Result<()> {
        match terminator {
            Terminator::Jump(to, args) => {
                self.edge(*to, args)?;
                self.b.build_unconditional_branch(self.llvm_block(*to)?)?;
            }
            Terminator::Branch { cond, then, els } => {
                let cond = self.int(*cond)?;
                let cold = |b: Block| self.f.blocks[b.index()].cold;
                let weights = match (cold(then.0), cold(els.0)) {
                    (false, true) => Some(self.w.likely),
                    (true, false) => Some(self.w.unlikely),
                    _ => None,
                };
                let then_block = self.llvm_block(then.0)?;
                let mut els_block = self.llvm_block(els.0)?;
                if then.0 == els.0 && !then.1.is_empty() {
                    // A phi holds one value per predecessor, so the second edge gets a block of its own.
                    els_block = self.new_block();
                }
                let branch = self.b.build_conditional_branch(cond, then_block, els_block)?;
                if let Some(weights) = weights {
                    self.w.annotate(branch, self.w.kinds.prof, weights);
                }
                self.edge(then.0, &then.1)?;
                if then.0 == els.0 && !then.1.is_empty() {
                    self.b.position_at_end(els_block);
                    self.edge(els.0, &els.1)?;
                    self.b.build_unconditional_branch(then_block)?;
                } else if then.0 != els.0 {
                    self.edge(els.0, &els.1)?;
                }
            }
            Terminator::Return(v) if self.f.returns.is_some() => self.return_from_routine(*v)?,
            Terminator::Return(v) => {
                let v = self.ptr(*v)?;
                self.b.build_return(Some(&v))?;
            }
            Terminator::Exit(exit) => {
                let block = self.exit_block(*exit)?;
                self.b.build_unconditional_branch(block)?;
            }
        }
        Ok(())
    }

    /// Hands `args` to the parameters of `to`, on the edge from the current block.
    fn edge(&mut self, to: Block, args: &[Value]) -> Result<()> {
        let from = self.current()?;
        let params = &self.f.blocks[to.index()].params;
        if to.0 == 0 || params.len() != args.len() {
            return Err(self.malformed(format!("jump to {to} with {} values", args.len())));
        }
        for (i, (arg, param)) in args.iter().zip(params).enumerate() {
            if self.f.ty(*arg) != self.f.ty(*param) {
                return Err(self.malformed(format!("{arg} for {param} of {to}")));
            }
            let value = self.value(*arg)?;
            self.phis[to.index()][i].add_incoming(&[(&value, from)]);
        }
        Ok(())
    }

    // --- words for the families

    fn new_block(&self) -> BasicBlock<'ctx> {
        self.context.append_basic_block(self.function, "")
    }

    fn current(&self) -> Result<BasicBlock<'ctx>> {
        self.b.get_insert_block().ok_or_else(|| self.malformed("no current block"))
    }

    fn llvm_block(&self, block: Block) -> Result<BasicBlock<'ctx>> {
        self.blocks
            .get(block.index())
            .copied()
            .flatten()
            .ok_or_else(|| self.malformed(format!("{block} does not exist")))
    }

    fn value(&self, v: Value) -> Result<BasicValueEnum<'ctx>> {
        self.values
            .get(v.index())
            .copied()
            .flatten()
            .ok_or_else(|| self.malformed(format!("{v} is used before it is defined")))
    }

    fn int(&self, v: Value) -> Result<IntValue<'ctx>> {
        match self.value(v)? {
            BasicValueEnum::IntValue(i) => Ok(i),
            _ => Err(self.malformed(format!("{v} is not an integer"))),
        }
    }

    fn float(&self, v: Value) -> Result<FloatValue<'ctx>> {
        match self.value(v)? {
            BasicValueEnum::FloatValue(x) => Ok(x),
            _ => Err(self.malformed(format!("{v} is not a float"))),
        }
    }

    fn ptr(&self, v: Value) -> Result<PointerValue<'ctx>> {
        match self.value(v)? {
            BasicValueEnum::PointerValue(p) => Ok(p),
            _ => Err(self.malformed(format!("{v} is not a reference"))),
        }
    }

    /// Runs `then` in a block of its own when `cond` holds, and goes on behind it.
    fn when(
        &mut self,
        cond: IntValue<'ctx>,
        unlikely: bool,
        then: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let (yes, done) = (self.new_block(), self.new_block());
        let branch = self.b.build_conditional_branch(cond, yes, done)?;
        if unlikely {
            self.w.annotate(branch, self.w.kinds.prof, self.w.unlikely);
        }
        self.b.position_at_end(yes);
        then(self)?;
        self.b.build_unconditional_branch(done)?;
        self.b.position_at_end(done);
        Ok(())
    }

    /// Something whose address the target knows: a symbol of the object, which gets its address when it is loaded. LLVM
    /// may take two of them for two objects, as they are.
    fn address(&self, address: usize) -> Result<PointerValue<'ctx>> {
        if address == 0 {
            return Ok(self.w.ptr.const_null());
        }
        // All of them by one symbol: code that looks one up by its number must be seen to meet the others.
        let among = self.target.layout.among_small_ints(address).unwrap_or(0);
        let symbol = self.symbols.at(address - among);
        let symbol =
            symbol.ok_or_else(|| self.malformed(format!("{address:#x} is nothing of its target's")))?;
        let name = symbol.to_string();
        let global =
            self.module.get_global(&name).unwrap_or_else(|| self.module.add_global(self.w.i8, None, &name));
        let first = global.as_pointer_value();
        self.add_bytes(first, self.w.i64.const_int(among as u64, false))
    }

    fn is_zero(&self, x: IntValue<'ctx>) -> Result<IntValue<'ctx>> {
        Ok(self.b.build_int_compare(IntPredicate::EQ, x, x.get_type().const_zero(), "")?)
    }

    fn same_address(&self, a: PointerValue<'ctx>, b: PointerValue<'ctx>) -> Result<IntValue<'ctx>> {
        Ok(self.b.build_int_compare(IntPredicate::EQ, a, b, "")?)
    }

    fn malformed(&self, what: impl Into<String>) -> CodegenError {
        CodegenError::Malformed { function: self.f.name.clone(), what: what.into() }
    }

    fn exit_exists(&self, exit: ExitId) -> Result<()> {
        match self.f.exits.get(exit.index()) {
            Some(_) => Ok(()),
            None => Err(self.malformed(format!("{exit} does not exist"))),
        }
    }
}

/// Reachable blocks, each before those it dominates.
fn reverse_postorder(f: &Function) -> Result<Vec<Block>> {
    let successors = |b: Block| -> Vec<Block> {
        match f.blocks.get(b.index()).and_then(|d| d.terminator.as_ref()) {
            Some(Terminator::Jump(to, _)) => vec![*to],
            Some(Terminator::Branch { then, els, .. }) => vec![els.0, then.0],
            _ => vec![],
        }
    };
    let mut seen = vec![false; f.blocks.len()];
    let mut postorder = Vec::with_capacity(f.blocks.len());
    let mut stack = vec![(Block(0), None::<std::vec::IntoIter<Block>>)];
    while let Some((block, rest)) = stack.last_mut() {
        let block = *block;
        let rest = match rest {
            Some(rest) => rest,
            None => {
                match seen.get_mut(block.index()) {
                    Some(seen @ false) => *seen = true,
                    Some(true) => {
                        stack.pop();
                        continue;
                    }
                    None => {
                        let what = format!("{block} does not exist");
                        return Err(CodegenError::Malformed { function: f.name.clone(), what });
                    }
                }
                rest.insert(successors(block).into_iter())
            }
        };
        match rest.next() {
            Some(next) => stack.push((next, None)),
            None => {
                postorder.push(block);
                stack.pop();
            }
        }
    }
    postorder.reverse();
    Ok(postorder)
}
