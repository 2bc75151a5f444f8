//! Recursion: a body that calls itself becomes a routine of the graph, a function of its own with unboxed arguments.
//!
//! In: a call inside an inlined body, of a callable whose body is being translated already. Out: a call of the routine with
//! these argument types. A routine holds to the rules of inlined bodies, so where one would leave, raise, run out of
//! levels or see CPython ask for its turn it gives up, and so does each around it, up to the exit of the caller's CALL.
//! The type of its result is found in rounds: a first one in which its calls of itself lead nowhere, then with what the
//! other ways returned, until that holds. Names and callees are tested before the outermost call of it, never inside.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use overdrive_base::flavour::{Flavour, Ty};
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::Value;
use overdrive_ir::exit::{Exit, ExitKind};
use overdrive_ir::function::Function as IrFunction;
use overdrive_ir::inst::{Cmp, Inst, IntOp, Terminator};

use crate::facts::Body;
use crate::translate::emit::{Edge, FactKey, Headers, State, Tx};
use crate::translate::inline::{Ended, Inlined, Known};
use crate::translate::shape::{At, Shape, from_params, join, param_types, shape_of};
use crate::translate::value::Val;

/// Routines of one function.
const MAX_ROUTINES: usize = 8;
/// Rounds in which the type of a result is found and loops widen.
const MAX_ROUNDS: usize = 20;
/// Values of a routine: a level of recursion must fit into 4 KiB of C stack.
const MAX_VALUES: usize = 400;

/// A routine of the graph, by number.
pub(crate) struct Routine {
    body: Body,
    args: Vec<Shape>,
    /// `None`: not known yet.
    result: Option<Shape>,
    /// What must hold when it is called.
    requires: BTreeSet<FactKey>,
    /// Other routines that it calls.
    calls: BTreeSet<usize>,
    /// The result may be an argument as it came, whose object would be lost.
    may_return_argument: bool,
    is_finished: bool,
}

/// Where a translation stands that is inside of a routine.
#[derive(Clone, Copy)]
pub(crate) struct Inside {
    routine: usize,
    /// Levels of calls that are left.
    levels: Value,
}

impl Tx<'_> {
    /// Whether a fact holds here; in a routine it is made to hold before the call.
    pub(crate) fn is_given(&mut self, key: FactKey) -> bool {
        if self.st.facts.contains(&key) {
            return true;
        }
        let Some(inside) = self.routine else { return false };
        self.routines[inside.routine].requires.insert(key);
        self.st.facts.insert(key);
        true
    }

    /// Some routine's result has no type yet.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.routines.iter().any(|routine| routine.result.is_none())
    }

    /// Calls the routine of a body. The one edge that goes on has the result on its stack; none does as long as the type of
    /// the result is not known.
    pub(crate) fn call_routine(&mut self, known: &Rc<Known>, args: Vec<Val>) -> Result<Vec<Edge>, String> {
        if !self.st.delayed.is_empty() {
            return Err("it calls itself after it changed an object".to_owned());
        }
        let shapes: Option<Vec<Shape>> = args.iter().map(argument_shape).collect();
        let shapes = shapes.ok_or("it calls itself with an argument that is no plain value")?;
        let n = self.routine_for(known, shapes)?;
        let has_boxes = args.iter().any(|val| matches!(val, Val::Num(n) if n.boxed.is_some()));
        let routine = &self.routines[n];
        if has_boxes && (routine.may_return_argument || !routine.is_finished) {
            return Err("it calls itself and may return an argument".to_owned());
        }
        let result = routine.result.clone();
        let levels = self.levels_for(n);
        let Some(result) = result else {
            let exit = self.exit_at_call(ExitKind::Resume, "the type of a result is not known");
            self.terminate(Terminator::Exit(exit));
            return Ok(vec![]);
        };
        let mut passed = vec![levels];
        args.iter().for_each(|val| flatten(val, &mut passed));
        let fail = self.exit_at_call(ExitKind::Resume, "a call of itself gave up");
        let call = Inst::CallRoutine { routine: n as u32, ty: result_type(&result), args: passed, fail };
        let v = self.emit(call);
        let value = match result {
            Shape::Num { flavour, .. } => Val::num(flavour, v),
            _ => Val::None,
        };
        let (epoch, facts, members) = (self.st.epoch, self.st.facts.clone(), self.st.members.clone());
        let state = State { stack: vec![value].into(), epoch, facts, members, ..State::default() };
        Ok(self.cur.take().map(|block| Edge { block, state }).into_iter().collect())
    }

    /// Before a call of a routine: makes hold what it takes for granted, and says how deep it may go.
    fn levels_for(&mut self, n: usize) -> Value {
        if let Some(Inside { routine, levels }) = self.routine {
            if routine != n {
                self.routines[routine].calls.insert(n);
            }
            // Each level looks where an interpreted call would.
            let one = self.iconst(1);
            let left = self.int(IntOp::Sub, levels, one);
            let zero = self.iconst(0);
            let is_some = self.icmp(Cmp::Gt, left, zero);
            self.guard(is_some, "calls of itself are nested too deeply");
            let pending = self.call(TableEntry::PollPending, vec![]);
            let quiet = self.emit(Inst::Not(pending));
            self.guard(quiet, "CPython has its turn");
            return left;
        }
        let mut requires = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut todo = vec![n];
        while let Some(n) = todo.pop() {
            if seen.insert(n) {
                requires.extend(self.routines[n].requires.iter().copied());
                todo.extend(self.routines[n].calls.iter().copied());
            }
        }
        for key in requires {
            if !self.st.facts.contains(&key) {
                let exit = self.exit_at_call(ExitKind::Resume, "a name or a callee was changed");
                self.test(key, exit);
                self.st.facts.insert(key);
            }
        }
        self.call(TableEntry::CallLevels, vec![])
    }

    /// The routine of a body for arguments of these shapes; made now if there is none.
    fn routine_for(&mut self, known: &Rc<Known>, args: Vec<Shape>) -> Result<usize, String> {
        let is_it = |routine: &Routine| routine.body == known.body && routine.args == args;
        if let Some(n) = self.routines.iter().position(is_it) {
            return Ok(n);
        }
        let n = self.routines.len();
        if n >= MAX_ROUTINES {
            return Err("it calls itself with arguments of too many types".to_owned());
        }
        self.routines.push(Routine {
            body: known.body,
            args,
            result: None,
            requires: BTreeSet::new(),
            calls: BTreeSet::new(),
            may_return_argument: false,
            is_finished: false,
        });
        self.ir.routines.push(IrFunction::default());
        let made = self.make_routine(known, n);
        if made.is_err() {
            self.routines.truncate(n);
            self.ir.routines.truncate(n);
        }
        made.map(|()| n)
    }

    fn make_routine(&mut self, known: &Rc<Known>, n: usize) -> Result<(), String> {
        let mut headers = Headers { bodies: std::mem::take(&mut self.headers.bodies), ..Headers::default() };
        let mut outcome = Err(Ended::Again);
        for _ in 0..MAX_ROUNDS {
            self.routines.truncate(n + 1);
            self.ir.routines.truncate(n + 1);
            self.routines[n].requires.clear();
            self.routines[n].calls.clear();
            outcome = self.routine_round(known, n, &mut headers);
            if !matches!(outcome, Err(Ended::Again)) {
                break;
            }
        }
        self.headers.bodies = headers.bodies;
        match outcome {
            Ok(()) => Ok(()),
            Err(Ended::Again) => Err("it calls itself, and its types do not settle".to_owned()),
            Err(Ended::Because(why)) => Err(why),
        }
    }

    /// Translates a routine once; `Again` when the type of its result was another.
    fn routine_round(&mut self, known: &Rc<Known>, n: usize, headers: &mut Headers) -> Result<(), Ended> {
        let function = known.function.as_ref().map_err(|why| Ended::Because(why.clone()))?;
        self.try_more(function.instrs.len())?;
        let mut ir = IrFunction {
            name: function.code.qualname.clone(),
            consts: std::mem::take(&mut self.ir.consts),
            routines: std::mem::take(&mut self.ir.routines),
            ..IrFunction::default()
        };
        let block = ir.add_block();
        let levels = ir.add_param(block, Ty::I64);
        let mut types = vec![];
        self.routines[n].args.iter().for_each(|shape| param_types(shape, &mut types));
        let params: Vec<Value> = types.into_iter().map(|ty| ir.add_param(block, ty)).collect();
        let mut params = params.into_iter();
        let args = self.routines[n].args.iter();
        let mut locals: Vec<Val> =
            args.map(|shape| from_params(shape, &mut params).unwrap_or(Val::Unset)).collect();
        locals.resize(function.code.localsplus.len(), Val::Unset);
        let exit = Exit {
            kind: ExitKind::Resume,
            offset: 0,
            origin: 0,
            locals: vec![],
            stack: vec![],
            reason: String::new(),
        };
        let (name, path) = (function.code.name.clone(), vec![known.body]);
        let (exits, registers) = (HashMap::new(), self.registers());
        let inlined = Inlined { exit, exits, name, path, returns: vec![], registers, why_not: None };
        let around = self.oracle.enter(known.body);
        let mut inner = Tx::inside(function, &mut *self.oracle, headers, known.body, inlined);
        inner.ir = ir;
        inner.routines = std::mem::take(&mut self.routines);
        inner.routine = Some(Inside { routine: n, levels });
        (inner.n_tried, inner.n_inlined) = (self.n_tried, self.n_inlined);
        inner.cur = Some(block);
        inner.st = State { locals: locals.into(), ..State::default() };
        let outcome = inner.run_body().and_then(|()| inner.finish_routine(n));
        self.n_tried = inner.n_tried;
        self.routines = std::mem::take(&mut inner.routines);
        let mut made = std::mem::take(&mut inner.ir);
        self.oracle.enter(around);
        self.ir.routines = std::mem::take(&mut made.routines);
        // The routine's constants are the first of the function's.
        self.ir.consts = made.consts.clone();
        outcome?;
        made.places.stand_at(None);
        self.ir.routines[n] = made;
        Ok(())
    }

    /// Ends the ways that return.
    fn finish_routine(&mut self, n: usize) -> Result<(), Ended> {
        let because = |why: &str| Ended::Because(why.to_owned());
        let returns = self.inlined.as_mut().map(|inlined| std::mem::take(&mut inlined.returns));
        let returns = returns.unwrap_or_default();
        let mut result: Option<Shape> = self.routines[n].result.clone();
        for edge in &returns {
            if !edge.state.delayed.is_empty() {
                return Err(because("it calls itself and changes an object"));
            }
            let shape = edge.state.stack.first().and_then(result_shape);
            let shape = shape.ok_or_else(|| because("it calls itself and returns no plain value"))?;
            result = match result {
                None => Some(shape),
                Some(known) => {
                    let joined = join(&known, &shape).filter(is_one);
                    Some(
                        joined
                            .ok_or_else(|| because("it calls itself and returns values of several types"))?,
                    )
                }
            };
        }
        let Some(result) = result else { return Err(because("it calls itself and never returns")) };
        if self.routines[n].result.as_ref() != Some(&result) {
            self.routines[n].result = Some(result);
            return Err(Ended::Again);
        }
        if self.ir.n_values() > MAX_VALUES {
            return Err(because("it calls itself and is too long"));
        }
        for Edge { block, state } in returns {
            self.cur = Some(block);
            let v = match state.stack.first() {
                Some(Val::Num(num)) => {
                    let is_float = matches!(num.flavour, Flavour::Float | Flavour::NpF64);
                    self.routines[n].may_return_argument |= is_float && may_be_argument(&self.ir, num.v);
                    num.v
                }
                _ => self.bconst(false),
            };
            self.terminate(Terminator::Return(v));
        }
        self.ir.returns = Some(result_type(&result));
        self.routines[n].is_finished = true;
        Ok(())
    }
}

/// How an argument is passed: unboxed, or borrowed from the caller.
fn argument_shape(val: &Val) -> Option<Shape> {
    match val {
        Val::Num(n) => Some(Shape::Num { flavour: n.flavour, boxed: None }),
        Val::None | Val::Obj(_) => Some(shape_of(val, true, At::Merge)),
        Val::Tuple(parts) => Some(Shape::Tuple(parts.iter().map(argument_shape).collect::<Option<_>>()?)),
        _ => None,
    }
}

/// What a routine may return.
fn result_shape(val: &Val) -> Option<Shape> {
    match val {
        Val::Num(n) if n.boxed.is_none() => Some(Shape::Num { flavour: n.flavour, boxed: None }),
        Val::None => Some(Shape::None),
        _ => None,
    }
}

fn is_one(shape: &Shape) -> bool {
    matches!(shape, Shape::Num { .. } | Shape::None)
}

fn result_type(shape: &Shape) -> Ty {
    match shape {
        Shape::Num { flavour, .. } => flavour.ty(),
        _ => Ty::I1,
    }
}

/// Whether a value is a parameter of the entry, by any way through the parameters of blocks.
fn may_be_argument(ir: &IrFunction, v: Value) -> bool {
    let mut seen = BTreeSet::new();
    let mut todo = vec![v];
    while let Some(v) = todo.pop() {
        if !seen.insert(v) {
            continue;
        }
        let place = ir.blocks.iter().enumerate().find_map(|(b, block)| {
            let at = block.params.iter().position(|param| *param == v)?;
            Some((b, at))
        });
        let Some((b, at)) = place else { continue };
        if b == 0 {
            return true;
        }
        for terminator in ir.blocks.iter().filter_map(|block| block.terminator.as_ref()) {
            let edges = match terminator {
                Terminator::Jump(to, args) => vec![(to, args)],
                Terminator::Branch { then, els, .. } => vec![(&then.0, &then.1), (&els.0, &els.1)],
                Terminator::Return(_) | Terminator::Exit(_) => vec![],
            };
            let to_here = edges.into_iter().filter(|(to, _)| to.index() == b);
            todo.extend(to_here.filter_map(|(_, args)| args.get(at)));
        }
    }
    false
}

/// The values that carry an argument, as `param_types` lists their types.
fn flatten(val: &Val, out: &mut Vec<Value>) {
    match val {
        Val::Num(n) => out.push(n.v),
        Val::Obj(o) => out.push(o.v),
        Val::Tuple(parts) => parts.iter().for_each(|part| flatten(part, out)),
        _ => {}
    }
}
