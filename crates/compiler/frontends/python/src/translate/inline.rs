//! Calls translated in place: the callee's bytecode becomes a part of the caller's graph, so that arguments and result stay
//! unboxed.
//!
//! In: a call of a callable that is known by identity, and the code that it runs. Out: its result, behind a guard that the
//! callable still runs that code. Only a *body* that computes and does nothing else is translated: no effect, no reference
//! taken; stores into attributes wait until it has returned (`delayed`). So wherever it would leave or raise, and where
//! CPython asks for its turn in a loop of it, the caller leaves at its CALL, and CPython makes that call from its start,
//! frames and tracebacks included. A body that turns out to be another is taken out of the graph again.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use overdrive_base::table::{Effect, Entry as TableEntry};
use overdrive_ir::entities::{ExitId, Value};
use overdrive_ir::exit::{Exit, ExitKind};
use overdrive_ir::function::{ConstRef, Function as IrFunction};
use overdrive_ir::inst::{Inst, Terminator};

use crate::code::{CodeObject, Const};
use crate::facts::{Body, Callee, Fact, IN_PLACE, Meaning, Part, Status};
use crate::function::Function;
use crate::op::{ConstIdx, Op};
use crate::translate::control::order_from;
use crate::translate::emit::{Edge, FactKey, Headers, State, Tx};
use crate::translate::value::{Own, Val};
use crate::translate::{Step, Stop};

/// Instructions of a body, above which a call costs little beside what it calls.
const MAX_BODY: usize = 200;
/// Instructions of all bodies in one function.
const MAX_INLINED: usize = 2000;
/// The same, with those that were taken out again or translated anew, since a loop in them widened.
const MAX_TRIED: usize = 10 * MAX_INLINED;
/// Calls within calls.
const MAX_DEPTH: usize = 4;
/// Rounds in which the loops of one body widen.
const MAX_ROUNDS: usize = 20;

/// A callable whose code the oracle told.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) body: Body,
    pub(crate) callable: Fact,
    /// What a call runs; or why it is not inlined, whatever the arguments.
    pub(crate) function: Result<Function, String>,
    defaults: Option<Vec<Const>>,
}

/// What the translation of a body needs of the call around it.
#[derive(Clone)]
pub(crate) struct Inlined {
    /// The exit before the outermost call, without its reason; of a routine, one without state.
    pub(crate) exit: Exit,
    /// One for each reason.
    pub(crate) exits: HashMap<String, ExitId>,
    /// The body's name, for people.
    pub(crate) name: String,
    /// The bodies around, outermost first, and this one.
    pub(crate) path: Vec<Body>,
    /// Where it returns, with the value on the stack.
    pub(crate) returns: Vec<Edge>,
    /// Globals that the loop around the outermost call keeps in registers.
    pub(crate) registers: Rc<Vec<String>>,
    /// It does more than compute.
    pub(crate) why_not: Option<String>,
}

/// Why the translation of a body ended early.
pub(crate) enum Ended {
    /// A loop in it widened: once more.
    Again,
    Because(String),
}

impl From<Stop> for Ended {
    fn from(stop: Stop) -> Ended {
        match stop {
            Stop::Refused(refusal) => Ended::Because(refusal.why),
            Stop::Again => Ended::Again,
        }
    }
}

impl Tx<'_> {
    /// Translates a call in place of making it. False: nothing was emitted.
    pub(crate) fn inline_call(&mut self, n: usize, kw_names: Option<ConstIdx>) -> Step<bool> {
        let Some((fact, receiver)) = self.callee_fact(n) else { return Ok(false) };
        // The object of a method lies below the arguments.
        let n_values = n + usize::from(receiver.is_some());
        let fact = fact.clone();
        let is_own = self.inlined.is_none();
        if is_own && self.headers.not_inlined.contains_key(&self.idx) {
            return Ok(false);
        }
        let Some(known) = self.known_body(&fact) else { return Ok(false) };
        let tried = if self.oracle.blocked(self.ins().op_offset | IN_PLACE) {
            Err("it left often".to_owned())
        } else {
            self.arguments(&known, n_values, kw_names).and_then(|args| self.try_call(&known, args))
        };
        match tried {
            Ok(returns) => self.finish_inlined(&known, n, returns).map(|()| true),
            Err(why) => {
                if is_own {
                    self.headers.not_inlined.insert(self.idx, why);
                } else {
                    self.only_outside(&why);
                }
                Ok(false)
            }
        }
    }

    /// What a known object runs when it is called.
    pub(crate) fn known_body(&mut self, callable: &Fact) -> Option<Rc<Known>> {
        if callable.meaning != Meaning::PythonFunction {
            return None;
        }
        let callee = self.oracle.callee(callable.id)?;
        if let Some(known) = self.headers.bodies.get(&callee.body) {
            return Some(Rc::clone(known));
        }
        let Callee { body, code, defaults } = callee;
        let known =
            Rc::new(Known { body, callable: callable.clone(), function: self.readable(&code), defaults });
        self.headers.bodies.insert(body, Rc::clone(&known));
        Some(known)
    }

    /// The body, if it may be inlined as far as can be told without types.
    fn readable(&self, code: &Arc<CodeObject>) -> Result<Function, String> {
        if !code.is_function() || code.is_generator() {
            return Err("it is no plain function".to_owned());
        }
        if code.n_args() != code.arg_count {
            return Err("it has *, ** or keyword-only parameters".to_owned());
        }
        if code.localsplus.iter().any(|slot| slot.kind.is_cell_or_free()) {
            return Err("it shares variables with another function".to_owned());
        }
        // Two bytes an instruction, inline caches included.
        if code.code.len() > 16 * MAX_BODY {
            return Err("it is too long".to_owned());
        }
        let function =
            Function::analyse(Arc::clone(code)).map_err(|e| format!("unreadable bytecode: {e}"))?;
        if function.instrs.len() > MAX_BODY {
            return Err("it is too long".to_owned());
        }
        let registers = self.registers();
        for i in &function.instrs {
            match &i.op {
                Op::Other(_) => return Err("unknown opcode".to_owned()),
                // The loop at hand keeps the newest value in a register.
                Op::LoadGlobal { name, .. } if registers.contains(&code.names[name.index()]) => {
                    return Err("it reads a variable that the loop around it rebinds".to_owned());
                }
                _ => {}
            }
        }
        Ok(function)
    }

    /// Globals of which the loop at hand may have a newer value than their dictionary.
    pub(crate) fn registers(&self) -> Rc<Vec<String>> {
        match &self.inlined {
            Some(around) => Rc::clone(&around.registers),
            None => {
                let names = self.cached.iter().map(|c| self.code().names[c.name.index()].clone());
                Rc::new(names.collect())
            }
        }
    }

    /// Emits whether a callable still runs a body, and a call of it would be allowed and seen by nobody, as I1.
    pub(crate) fn still_runs(&mut self, body: Body, callable: Value) -> Value {
        let has_defaults = self
            .headers
            .bodies
            .get(&body)
            .is_some_and(|known| known.defaults.as_ref().is_some_and(|defaults| !defaults.is_empty()));
        let code = self.part(body, Part::Code);
        let defaults = if has_defaults { self.part(body, Part::Defaults) } else { self.null() };
        let depth = self.iconst(MAX_DEPTH as i64);
        self.call(TableEntry::CalleeIs, vec![callable, code, defaults, depth])
    }

    fn part(&mut self, body: Body, part: Part) -> Value {
        let id = self.oracle.part(body, part);
        self.oconst(ConstRef::Fact(id.0))
    }

    /// Runs `f` with the names, constants and offsets of a body.
    pub(crate) fn in_body<T>(&mut self, body: Body, f: impl FnOnce(&mut Self) -> T) -> T {
        let around = (std::mem::replace(&mut self.body, body), self.oracle.enter(body));
        let result = f(self);
        self.body = around.0;
        self.oracle.enter(around.1);
        result
    }

    /// The callee's parameters. The entries of the stack keep their references until the call is done.
    fn arguments(&mut self, known: &Known, n: usize, kw_names: Option<ConstIdx>) -> Result<Vec<Val>, String> {
        let code = Arc::clone(&known.function.as_ref().map_err(Clone::clone)?.code);
        let names: Vec<String> = match kw_names.map(|k| &self.code().consts[k.index()]) {
            None => vec![],
            Some(Const::Tuple(names)) => names
                .iter()
                .map(|name| if let Const::Str(name) = name { Some(name.clone()) } else { None })
                .collect::<Option<_>>()
                .unwrap_or_default(),
            Some(_) => vec![],
        };
        let n_params = code.arg_count as usize;
        let does_not_fit = || "the arguments do not fit its parameters".to_owned();
        let Some(n_positional) = n.checked_sub(names.len()).filter(|p| *p <= n_params) else {
            return Err(does_not_fit());
        };
        if kw_names.is_some() && names.is_empty() {
            return Err(does_not_fit());
        }
        let mut params: Vec<Option<Val>> = vec![None; n_params];
        for i in 0..n {
            let val = self.peek(n - 1 - i).clone();
            if dies(&val) {
                return Err("an argument may be the last reference to an object".to_owned());
            }
            let at = match i.checked_sub(n_positional) {
                None => i,
                Some(k) => {
                    let mut by_name =
                        (code.pos_only as usize..n_params).filter(|p| code.localsplus[*p].name == names[k]);
                    by_name.next().filter(|p| params[*p].is_none()).ok_or_else(does_not_fit)?
                }
            };
            let mut val = val;
            val.map_own(&|own| if own == Own::Static { own } else { Own::Fragile });
            params[at] = Some(val);
        }
        let mut vals = Vec::with_capacity(n_params);
        for (i, param) in params.into_iter().enumerate() {
            vals.push(match param {
                Some(val) => val,
                None => {
                    let defaults = known.defaults.as_ref().ok_or("a default value is no number")?;
                    let at = (i + defaults.len()).checked_sub(n_params).ok_or_else(does_not_fit)?;
                    // Only numbers and `None`, so its place in the constants does not count.
                    self.const_val(0, &defaults[at])
                }
            });
        }
        Ok(vals)
    }

    /// The body in place, or a call of the routine that it becomes when it calls itself.
    fn try_call(&mut self, known: &Rc<Known>, args: Vec<Val>) -> Result<Vec<Edge>, String> {
        if self.inlined.as_ref().is_some_and(|around| around.path.contains(&known.body)) {
            return self.call_routine(known, args);
        }
        self.try_body(known, args)
    }

    /// Counts what is translated.
    pub(crate) fn try_more(&mut self, n_instrs: usize) -> Result<(), Ended> {
        self.n_tried += n_instrs;
        if self.n_tried > MAX_TRIED {
            return Err(Ended::Because("too much was inlined around it".to_owned()));
        }
        Ok(())
    }

    /// Translates the body where the caller stands. On an error the graph is as it was.
    fn try_body(&mut self, known: &Known, args: Vec<Val>) -> Result<Vec<Edge>, String> {
        let function = known.function.as_ref().map_err(Clone::clone)?;
        let mut path = self.inlined.as_ref().map(|around| around.path.clone()).unwrap_or_default();
        if path.len() >= MAX_DEPTH || self.n_inlined + function.instrs.len() > MAX_INLINED {
            return Err("too much was inlined around it".to_owned());
        }
        path.push(known.body);
        let Some(here) = self.cur else { return Err("it is never called".to_owned()) };
        let before = Mark::of(&self.ir, here);
        let exit = match &self.inlined {
            Some(around) => around.exit.clone(),
            None => {
                let exit = self.exit_before();
                Exit { origin: exit.origin | IN_PLACE, ..exit }
            }
        };
        let key = FactKey::Callee(known.body);
        let is_given = self.is_given(key);
        let mut facts = self.st.facts.clone();
        if !is_given {
            let callable = self.oconst(ConstRef::Fact(known.callable.id.0));
            let ok = self.still_runs(known.body, callable);
            let reason = "the callee was changed, or must be called with a frame".to_owned();
            let other = self.ir.add_exit(Exit { reason, ..exit.clone() });
            self.emit0(Inst::Guard(ok, other));
            facts.insert(key);
        }
        let inlined = Inlined {
            exit,
            exits: HashMap::new(),
            name: function.code.name.clone(),
            path,
            returns: vec![],
            registers: self.registers(),
            why_not: None,
        };
        let mut locals = args;
        locals.resize(function.code.localsplus.len(), Val::Unset);
        // The body sees what the one around it has stored.
        let delayed = self.st.delayed.clone();
        let members = self.st.members.clone();
        let epoch = self.st.epoch;
        let state = State { locals: locals.into(), epoch, facts, delayed, members, ..State::default() };
        let begin = Mark::of(&self.ir, here);
        let mut headers = Headers { bodies: std::mem::take(&mut self.headers.bodies), ..Headers::default() };
        let mut outcome = Err(Ended::Again);
        for _ in 0..MAX_ROUNDS {
            begin.restore(self, here);
            outcome = self.round(known.body, function, inlined.clone(), state.clone(), &mut headers);
            if !matches!(outcome, Err(Ended::Again)) {
                break;
            }
        }
        self.headers.bodies = headers.bodies;
        let why = match outcome {
            Ok(returns) if !returns.is_empty() || self.is_unfinished() => {
                self.n_inlined += function.instrs.len();
                return Ok(returns);
            }
            Ok(_) => "it always leaves for the interpreter".to_owned(),
            Err(Ended::Again) => "its types do not settle".to_owned(),
            Err(Ended::Because(why)) => why,
        };
        before.restore(self, here);
        Err(why)
    }

    /// Translates a body once.
    fn round(
        &mut self,
        body: Body,
        function: &Function,
        inlined: Inlined,
        state: State,
        headers: &mut Headers,
    ) -> Result<Vec<Edge>, Ended> {
        self.try_more(function.instrs.len())?;
        let around = self.oracle.enter(body);
        let mut inner = Tx::inside(function, &mut *self.oracle, headers, body, inlined);
        inner.routines = std::mem::take(&mut self.routines);
        inner.routine = self.routine;
        inner.ir = std::mem::take(&mut self.ir);
        inner.iconsts = std::mem::take(&mut self.iconsts);
        (inner.epochs, inner.n_tried) = (self.epochs, self.n_tried);
        inner.n_inlined = self.n_inlined + function.instrs.len();
        (inner.cur, inner.st) = (self.cur.take(), state);
        let outcome = inner.run_body();
        let returns = inner.inlined.take().map(|inlined| inlined.returns).unwrap_or_default();
        self.routines = std::mem::take(&mut inner.routines);
        self.ir = std::mem::take(&mut inner.ir);
        self.iconsts = std::mem::take(&mut inner.iconsts);
        (self.epochs, self.n_tried) = (inner.epochs, inner.n_tried);
        self.oracle.enter(around);
        outcome.map(|()| returns)
    }

    /// All that the body's first instruction reaches.
    pub(crate) fn run_body(&mut self) -> Result<(), Ended> {
        let order = order_from(&self.f.cfg, 0);
        self.retreating = order.retreating;
        self.edge_to(0)?;
        let returning = self.returning();
        for block in order.blocks {
            if !self.begin_block(block)? {
                continue;
            }
            if !returning.contains(&block) {
                self.begin_instr(self.f.cfg.blocks[block].first);
                self.leave("it raises");
                continue;
            }
            for idx in self.f.cfg.blocks[block].instrs() {
                self.instr(idx)?;
                self.computes_only()?;
                if self.cur.is_none() {
                    break;
                }
            }
            if self.cur.is_some()
                && let Some(next) = self.f.cfg.blocks[block].next
            {
                self.edge_to(next)?;
            }
        }
        self.computes_only()?;
        if self.impossible {
            return Err(Ended::Because("a loop's iterator is used as an object".to_owned()));
        }
        Ok(())
    }

    fn computes_only(&mut self) -> Result<(), Ended> {
        let Some(why) = self.inlined.as_mut().and_then(|inlined| inlined.why_not.take()) else {
            return Ok(());
        };
        Err(Ended::Because(match self.ins().position.line {
            Some(line) => format!("line {line}: {why}"),
            None => why,
        }))
    }

    /// Blocks from which a return can be reached: the others end in an exception, whatever else they do.
    fn returning(&self) -> HashSet<usize> {
        let cfg = &self.f.cfg;
        let returns = |block: &usize| {
            cfg.blocks[*block].instrs().any(|i| matches!(self.f.instrs[i].op, Op::ReturnValue))
        };
        let mut found: HashSet<usize> = (0..cfg.blocks.len()).filter(returns).collect();
        loop {
            let before = found.len();
            let leads = |block: &usize| cfg.blocks[*block].succs().any(|to| found.contains(&to));
            let more: Vec<usize> = (0..cfg.blocks.len()).filter(leads).collect();
            found.extend(more);
            if found.len() == before {
                return found;
            }
        }
    }

    /// RETURN_VALUE of a body.
    pub(crate) fn return_to_caller(&mut self) {
        let value = self.pop();
        let Some(block) = self.cur.take() else { return };
        let State { epoch, facts, delayed, members, .. } = std::mem::take(&mut self.st);
        let stack = vec![value].into();
        let state = State { stack, epoch, facts, delayed, members, ..State::default() };
        if let Some(inlined) = &mut self.inlined {
            inlined.returns.push(Edge { block, state });
        }
    }

    /// Merges what the body returned, and puts it in the place of the call pair and the arguments.
    fn finish_inlined(&mut self, known: &Known, n: usize, returns: Vec<Edge>) -> Step {
        let base = std::mem::take(&mut self.st);
        let mut open = Vec::with_capacity(returns.len());
        for Edge { block, mut state } in returns {
            let mut value = state.stack.pop().unwrap_or(Val::None);
            self.cur = Some(block);
            if self.inlined.is_none() {
                // It may lean on an argument, whose entry goes. A body around this one still has its own.
                value = self.own(value);
            }
            let mut after = base.clone();
            after.epoch = state.epoch;
            after.facts = state.facts;
            after.members = state.members;
            after.stack.push(value);
            if self.inlined.is_some() {
                after.delayed = state.delayed;
                open.extend(self.cur.take().map(|block| Edge { block, state: after }));
                continue;
            }
            self.st = after;
            self.make_delayed(state.delayed.into_inner());
            let after = std::mem::take(&mut self.st);
            open.extend(self.cur.take().map(|block| Edge { block, state: after }));
        }
        if open.is_empty() {
            // The type of a routine's result is not known yet: nothing follows in this round.
            return Ok(());
        }
        self.merge_open(open)?;
        let len = self.st.stack.len();
        self.st.stack[len - n - 3..].rotate_right(1);
        let result = self.st.stack[len - n - 3].clone();
        self.drop_top(n + 2);
        let name = self.callee_name_of(known);
        let what = result.describe();
        self.remark(Status::Native, &format!("call of {name} inlined, its result is {what}"));
        Ok(())
    }

    fn callee_name_of(&self, known: &Known) -> String {
        known.function.as_ref().map_or_else(|_| "?".to_owned(), |function| function.code.qualname.clone())
    }

    /// The exit of a body: CPython makes the outermost call.
    pub(crate) fn exit_at_call(&mut self, kind: ExitKind, reason: &str) -> ExitId {
        let Some(inlined) = &mut self.inlined else { return ExitId(0) };
        if let Some(known) = inlined.exits.get(reason) {
            return *known;
        }
        let exit = Exit { kind, reason: format!("in {}: {reason}", inlined.name), ..inlined.exit.clone() };
        let id = self.ir.add_exit(exit);
        inlined.exits.insert(reason.to_owned(), id);
        id
    }

    /// What is said of a block at hand, by the offset of an instruction: of loops in a body, at the CALL.
    pub(crate) fn offset_for_people(&self, is_header: bool) -> Option<u32> {
        match &self.inlined {
            None => Some(self.ins().offset),
            Some(inlined) => is_header.then_some(inlined.exit.offset),
        }
    }

    /// Where the loop of a body goes back: CPython takes its turn in the call that it makes.
    pub(crate) fn poll_in_body(&mut self, to: usize) -> Step {
        let pending = self.call(TableEntry::PollPending, vec![]);
        let (turn, on) = (self.ir.add_block(), self.ir.add_block());
        self.ir.blocks[turn.index()].cold = true;
        self.terminate(Terminator::Branch { cond: pending, then: (turn, vec![]), els: (on, vec![]) });
        let exit = self.exit_at_call(ExitKind::Yield, "CPython has its turn");
        self.ir.terminate(turn, Terminator::Exit(exit));
        self.cur = Some(on);
        self.edge_to(to)
    }

    /// Whatever is emitted in a body must be safe to do again, and must leave nothing behind when code leaves.
    pub(crate) fn watch(&mut self, inst: &Inst) {
        if self.inlined.is_none() {
            return;
        }
        match inst {
            Inst::IncRef(_) | Inst::DecRef { .. } | Inst::OwnArg(_) => {
                self.only_outside("it makes an object")
            }
            Inst::Store(..) | Inst::ListSwap { .. } | Inst::AttrSwap { .. } | Inst::AttrSet { .. } => {
                self.only_outside("it changes an object");
            }
            Inst::Poll { .. } => self.only_outside("it has a loop that is entered in its middle"),
            // They only look.
            Inst::Table { entry: TableEntry::PollPending | TableEntry::NpUnderIgnored, .. } => {}
            Inst::Table { entry, .. } if entry.signature().effect != Effect::Pure => {
                let why = match entry.signature().effect {
                    Effect::AllocUntracked => "it makes an object",
                    _ => "it needs the run time",
                };
                self.only_outside(why);
            }
            _ => {}
        }
    }

    /// A body that does this is not inlined. The reason that came first is kept.
    pub(crate) fn only_outside(&mut self, why: &str) {
        if let Some(inlined) = &mut self.inlined {
            inlined.why_not.get_or_insert_with(|| why.to_owned());
        }
    }
}

/// An argument whose last reference may go with the call, where somebody can tell when.
fn dies(val: &Val) -> bool {
    match val {
        Val::Obj(o) => o.own == Own::Owned && !o.is_plain(),
        Val::Tuple(parts) => parts.iter().any(dies),
        Val::Num(_) | Val::None | Val::Either { .. } => false,
        // No values: iterators on their way into a loop.
        Val::Unset
        | Val::Range { .. }
        | Val::RangeIter { .. }
        | Val::SeqIter { .. }
        | Val::Enumerate { .. }
        | Val::Zip(_) => true,
    }
}

/// The end of a graph that is only appended to.
struct Mark {
    n_blocks: usize,
    n_values: usize,
    n_consts: usize,
    n_exits: usize,
    n_routines: usize,
    n_insts: usize,
}

impl Mark {
    fn of(ir: &IrFunction, open: overdrive_ir::entities::Block) -> Mark {
        Mark {
            n_blocks: ir.blocks.len(),
            n_values: ir.types.len(),
            n_consts: ir.consts.len(),
            n_exits: ir.exits.len(),
            n_routines: ir.routines.len(),
            n_insts: ir.blocks[open.index()].insts.len(),
        }
    }

    /// Takes out what came behind the mark; the block that was open then is open again.
    fn restore(&self, tx: &mut Tx<'_>, open: overdrive_ir::entities::Block) {
        let ir = &mut tx.ir;
        ir.blocks.truncate(self.n_blocks);
        ir.types.truncate(self.n_values);
        ir.consts.truncate(self.n_consts);
        ir.exits.truncate(self.n_exits);
        ir.routines.truncate(self.n_routines);
        tx.routines.truncate(self.n_routines);
        let block = &mut ir.blocks[open.index()];
        block.insts.truncate(self.n_insts);
        block.terminator = None;
        tx.iconsts.retain(|v, _| v.index() < self.n_values);
        tx.cur = Some(open);
        // The guard of the callee may have been the first with its exit.
        tx.here_clear();
    }
}
