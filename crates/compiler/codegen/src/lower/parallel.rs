//! Parallel loops: the iterations become a function of their own, which the run time's threads call.
//!
//! In: a header that is marked `parallel`, with the loop behind it. Out: in place of the loop a call of
//! `Services::parallel`, and a second function in the module, `body(context, first, end)`, that does the iterations with
//! these numbers. `context` is an array of 8-byte words: address of the parts, the counter's first value, its stride,
//! then what iterations read of the function around them. Each iteration leaves its parts of the reductions at
//! `parts[number · n_reductions + i]`; behind the call they are combined in ascending order.

use std::collections::BTreeMap;

use inkwell::IntPredicate;
use inkwell::module::Linkage;
use inkwell::values::{BasicValueEnum, FunctionValue, IntValue, PhiValue, PointerValue};
use overdrive_base::flavour::Ty;
use overdrive_ir::dominators::Dominators;
use overdrive_ir::entities::{Block, Value};
use overdrive_ir::function::{Function, Iterations};
use overdrive_ir::inst::{FloatOp, Inst, IntOp};
use overdrive_ir::parallel::{self, Combine, Parallel};

use super::exits::Exits;
use super::memory::Region;
use super::words::{Touches, Words};
use super::{Known, Lower, Result};
use crate::error::CodegenError;

/// Words of a context before those that the function around the loop gives.
const PARTS: i64 = 0;
const FIRST: i64 = 1;
const STRIDE: i64 = 2;
const LIVE_IN: i64 = 3;

/// All parallel loops of a function, by header.
pub(super) fn loops(f: &Function) -> Result<BTreeMap<Block, Parallel>> {
    let mut found = BTreeMap::new();
    if f.blocks.iter().all(|b| b.iterations != Iterations::Parallel) {
        return Ok(found);
    }
    let dominators = Dominators::new(f);
    for header in dominators.order.iter().filter(|b| f.blocks[b.index()].iterations == Iterations::Parallel) {
        match parallel::shape(f, &dominators, *header) {
            Ok(shape) => found.insert(*header, shape),
            Err(what) => return Err(CodegenError::Malformed { function: f.name.clone(), what }),
        };
    }
    Ok(found)
}

impl<'ctx> Lower<'_, 'ctx> {
    /// Memory for the context of one loop at a time.
    pub(super) fn make_context(&mut self) -> Result<()> {
        if let Some(n) = self.parallel.values().map(|p| p.live_in.len()).max() {
            let words = self.w.i64.array_type((LIVE_IN as usize + n) as u32);
            self.loop_context = Some(self.b.build_alloca(words, "")?);
        }
        Ok(())
    }

    /// In place of a loop: hands its iterations out, combines their parts and goes on behind it.
    pub(super) fn parallel_loop(&mut self, p: &Parallel) -> Result<()> {
        let Some(context) = self.loop_context else { return Err(self.malformed("no room for a context")) };
        let body = self.body_of(p)?;
        let (first, end, stride) = (self.int(p.counter)?, self.fixed(p.end)?, self.fixed(p.stride)?);
        let b = &self.b;
        let zero = self.w.i64.const_zero();
        let is_some = b.build_int_compare(IntPredicate::SLT, first, end, "")?;
        let span = b.build_int_add(b.build_int_sub(end, first, "")?, stride, "")?;
        let span = b.build_int_sub(span, self.w.i64.const_int(1, false), "")?;
        let n = b.build_int_unsigned_div(span, stride, "")?;
        let n = b.build_select(is_some, n, zero, "")?.into_int_value();

        self.store(first, self.at(context, 8 * FIRST)?, 8, Region::Scratch)?;
        self.store(stride, self.at(context, 8 * STRIDE)?, 8, Region::Scratch)?;
        for (i, v) in p.live_in.iter().enumerate() {
            if self.number_known(*v).is_none() {
                let value = self.value(*v)?;
                self.store(
                    value,
                    self.at(context, 8 * (LIVE_IN + i as i64))?,
                    align(self.f.ty(*v)),
                    Region::Scratch,
                )?;
            }
        }
        let n_parts = self.w.i64.const_int(p.reductions.len() as u64, false);
        let gives = self.w.i8.const_int(self.f.gives_gil.into(), false);
        let body = body.as_global_value().as_pointer_value();
        let args = [body.into(), context.into(), n.into(), n_parts.into(), gives.into()];
        self.call(self.target.services.parallel, None, &args, Touches::Everything)?;
        self.combine(p, context, n)?;
        let last = self.b.build_int_add(first, self.b.build_int_mul(n, stride, "")?, "")?;
        self.values[p.counter.index()] = Some(last.into());
        match &self.f.blocks[p.header.index()].terminator {
            Some(overdrive_ir::inst::Terminator::Branch { els, .. }) => self.edge(els.0, &els.1)?,
            _ => return Err(self.malformed("a parallel loop without a question")),
        }
        self.b.build_unconditional_branch(self.llvm_block(p.after)?)?;
        Ok(())
    }

    /// The parts in ascending order; from here on the reductions' parameters mean the results.
    fn combine(&mut self, p: &Parallel, context: PointerValue<'ctx>, n: IntValue<'ctx>) -> Result<()> {
        if p.reductions.is_empty() {
            return Ok(());
        }
        let parts = self.load_ptr(self.at(context, 8 * PARTS)?, Region::Scratch)?;
        let before = self.current()?;
        let (head, one, done) = (self.new_block(), self.new_block(), self.new_block());
        self.b.build_unconditional_branch(head)?;
        self.b.position_at_end(head);
        let number = self.b.build_phi(self.w.i64, "")?;
        number.add_incoming(&[(&self.w.i64.const_zero(), before)]);
        let mut sums: Vec<PhiValue<'ctx>> = vec![];
        for r in &p.reductions {
            let phi = self.b.build_phi(self.w.of(self.f.ty(r.param)), "")?;
            phi.add_incoming(&[(&self.value(r.param)?, before)]);
            sums.push(phi);
        }
        let k = number.as_basic_value().into_int_value();
        let more = self.b.build_int_compare(IntPredicate::ULT, k, n, "")?;
        self.b.build_conditional_branch(more, one, done)?;
        self.b.position_at_end(one);
        for (i, (r, sum)) in p.reductions.iter().zip(&sums).enumerate() {
            let at = self.part(parts, k, p, i)?;
            let ty = self.f.ty(r.param);
            let part = self.load(self.w.of(ty), at, align(ty), Region::Scratch)?;
            let (b, sum) = (&self.b, sum.as_basic_value());
            let new: BasicValueEnum<'ctx> = match (r.combine, sum, part) {
                (Combine::Int(IntOp::Add), BasicValueEnum::IntValue(a), BasicValueEnum::IntValue(x)) => {
                    b.build_int_add(a, x, "")?.into()
                }
                (Combine::Int(IntOp::Mul), BasicValueEnum::IntValue(a), BasicValueEnum::IntValue(x)) => {
                    b.build_int_mul(a, x, "")?.into()
                }
                (
                    Combine::Float(FloatOp::Add),
                    BasicValueEnum::FloatValue(a),
                    BasicValueEnum::FloatValue(x),
                ) => b.build_float_add(a, x, "")?.into(),
                (
                    Combine::Float(FloatOp::Mul),
                    BasicValueEnum::FloatValue(a),
                    BasicValueEnum::FloatValue(x),
                ) => b.build_float_mul(a, x, "")?.into(),
                _ => return Err(self.malformed(format!("{:?} of parts", r.combine))),
            };
            sums[i].add_incoming(&[(&new, one)]);
        }
        let next = self.b.build_int_add(k, self.w.i64.const_int(1, false), "")?;
        number.add_incoming(&[(&next, one)]);
        self.b.build_unconditional_branch(head)?;
        self.b.position_at_end(done);
        for (r, sum) in p.reductions.iter().zip(sums) {
            self.values[r.param.index()] = Some(sum.as_basic_value());
        }
        Ok(())
    }

    /// Address of the part that iteration `k` has of reduction `i`.
    fn part(
        &self,
        parts: PointerValue<'ctx>,
        k: IntValue<'ctx>,
        p: &Parallel,
        i: usize,
    ) -> Result<PointerValue<'ctx>> {
        let row = self.b.build_int_mul(k, self.w.i64.const_int(p.reductions.len() as u64, false), "")?;
        let index = self.b.build_int_add(row, self.w.i64.const_int(i as u64, false), "")?;
        self.slot(parts, index)
    }

    /// The instruction that makes a number known now: it is made again where it is read.
    fn number_known(&self, v: Value) -> Option<&Inst> {
        let mut insts = self.f.blocks.iter().flat_map(|b| &b.insts);
        let inst = insts.find(|(_, result)| *result == Some(v)).map(|(inst, _)| inst)?;
        matches!(inst, Inst::IConst(_) | Inst::FConst(_) | Inst::F32Const(_) | Inst::BConst(_))
            .then_some(inst)
    }

    /// An end or a stride, which may be a constant inside the loop.
    fn fixed(&self, v: Value) -> Result<IntValue<'ctx>> {
        match self.number_known(v) {
            Some(Inst::IConst(n)) => Ok(self.w.i64.const_int(*n as u64, true)),
            _ => self.int(v),
        }
    }

    /// The function of the loop's iterations.
    fn body_of(&self, p: &Parallel) -> Result<FunctionValue<'ctx>> {
        let w = Words::new(self.context);
        let signature = w.void.fn_type(&[w.ptr.into(), w.i64.into(), w.i64.into()], false);
        let name = format!("od_body_{}", p.header.0);
        let function = self.module.add_function(&name, signature, Some(Linkage::Internal));
        w.describe_function(function);
        let entry = self.context.append_basic_block(function, "");
        let mut blocks = vec![None; self.f.blocks.len()];
        for block in &p.blocks {
            blocks[block.index()] = Some(self.context.append_basic_block(function, ""));
        }
        let null = w.ptr.const_null();
        let mut body = Lower {
            f: self.f,
            target: self.target,
            symbols: self.symbols,
            forced: self.forced,
            context: self.context,
            module: self.module,
            function,
            b: self.context.create_builder(),
            values: vec![None; self.f.n_values()],
            known: vec![Known::Nothing; self.f.n_values()],
            phis: vec![vec![]; self.f.blocks.len()],
            blocks,
            args: null,
            frame: null,
            rt: null,
            breaker: null,
            exits: Exits::new(self.f.exits.len()),
            out: None,
            call_args: None,
            parallel: BTreeMap::new(),
            loop_context: None,
            routines: self.routines,
            places: self.places.map(|places| places.debug.enter(function)),
            w,
        };
        body.b.position_at_end(entry);
        body.stand_at(self.f.blocks[p.header.index()].offset);
        body.iterations(p)?;
        Ok(function)
    }

    /// Fills the function of iterations.
    fn iterations(&mut self, p: &Parallel) -> Result<()> {
        let (context, first, end) = match self.function.get_params()[..] {
            [
                BasicValueEnum::PointerValue(context),
                BasicValueEnum::IntValue(first),
                BasicValueEnum::IntValue(end),
            ] => (context, first, end),
            _ => return Err(self.malformed("a body with other parameters")),
        };
        for (i, v) in p.live_in.iter().enumerate() {
            let value = match self.number_known(*v).cloned() {
                Some(inst) => self.number(&inst)?,
                None => {
                    let (at, ty) = (self.at(context, 8 * (LIVE_IN + i as i64))?, self.f.ty(*v));
                    self.load(self.w.of(ty), at, align(ty), Region::Scratch)?
                }
            };
            self.values[v.index()] = Some(value);
        }
        let parts = self.load_ptr(self.at(context, 8 * PARTS)?, Region::Scratch)?;
        let from = self.load_int(self.w.i64, self.at(context, 8 * FIRST)?, 8, Region::Scratch)?;
        let stride = self.load_int(self.w.i64, self.at(context, 8 * STRIDE)?, 8, Region::Scratch)?;
        let (entry, head, done) = (self.current()?, self.llvm_block(p.header)?, self.new_block());
        self.b.build_unconditional_branch(head)?;
        for block in &p.blocks[1..] {
            self.b.position_at_end(self.llvm_block(*block)?);
            for v in &self.f.blocks[block.index()].params {
                let phi = self.b.build_phi(self.w.of(self.f.ty(*v)), "")?;
                self.phis[block.index()].push(phi);
                self.values[v.index()] = Some(phi.as_basic_value());
            }
        }

        self.b.position_at_end(head);
        let number = self.b.build_phi(self.w.i64, "")?;
        number.add_incoming(&[(&first, entry)]);
        let k = number.as_basic_value().into_int_value();
        let counter = self.b.build_int_add(from, self.b.build_int_mul(k, stride, "")?, "")?;
        self.values[p.counter.index()] = Some(counter.into());
        self.insts(p.header, &[])?;
        let more = self.b.build_int_compare(IntPredicate::SLT, k, end, "")?;
        self.b.build_conditional_branch(more, self.llvm_block(p.body)?, done)?;
        self.b.position_at_end(done);
        self.b.build_return(None)?;

        let combined: Vec<Value> = p.reductions.iter().map(|r| r.result).collect();
        for block in &p.blocks[1..] {
            self.b.position_at_end(self.llvm_block(*block)?);
            self.insts(*block, &combined)?;
            if *block == p.latch {
                for (i, r) in p.reductions.iter().enumerate() {
                    let at = self.part(parts, k, p, i)?;
                    self.store(self.value(r.part)?, at, align(self.f.ty(r.part)), Region::Scratch)?;
                }
                let next = self.b.build_int_add(k, self.w.i64.const_int(1, false), "")?;
                number.add_incoming(&[(&next, self.current()?)]);
                self.b.build_unconditional_branch(head)?;
            } else {
                let terminator = self.f.blocks[block.index()].terminator.as_ref();
                self.terminator(terminator.ok_or_else(|| self.malformed(format!("{block} has no end")))?)?;
            }
        }
        Ok(())
    }
}

/// Of a word of that type in memory.
fn align(ty: Ty) -> u32 {
    match ty {
        Ty::F32 => 4,
        Ty::I1 => 1,
        _ => 8,
    }
}
