//! The interpreter: what a function of the IR means, on a mock heap.
//!
//! In: a function, constants, arguments, an object table. Out: the result or the exit with its state as objects, and a
//! trace of the checks that ran. It is the truth for native code. A broken precondition, a value used after its
//! object's end, a reference lost or given away twice is a `Fault`: the function (or the pass that made it) is wrong,
//! never the input.

pub mod scalar;
pub mod heap;
pub mod arith;
pub mod table;
pub mod mock;
mod numbers;
mod step;
mod exits;

use std::collections::BTreeSet;
use std::fmt;

use crate::entities::{Block, ExitId, Value};
use crate::exit::ExitKind;
use crate::function::Function;
use crate::inst::{Inst, Terminator};
use heap::{Heap, HeapError, Ref};
use scalar::Scalar;
use table::Table;

/// Which checks fail although their condition holds. A check is a guard, a checked operation or an entry that may
/// decline; exits that need an exception are never forced. Checks are counted as they run, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forced {
    No,
    /// The k-th check that runs.
    Guard(u32),
    /// Every check that leaves through this exit.
    Exit(ExitId),
    /// About one in sixteen, from a seed.
    Seeded(u64),
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub forced: Forced,
    /// Instructions until the run is given up as endless.
    pub fuel: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { forced: Forced::No, fuel: 1_000_000 }
    }
}

/// How a run ended. References are owned by whoever gets this.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Returned(Ref),
    /// CPython goes on at the exit's offset, or calls another version.
    Left(State),
    /// As `Left`, and the exception is set.
    Raised {
        state: State,
        exception: String,
    },
}

/// The state in which CPython goes on; `None` is an unset local or a null stack entry.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub exit: ExitId,
    pub locals: Vec<Option<Ref>>,
    pub stack: Vec<Option<Ref>>,
}

/// A check that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Check {
    pub block: Block,
    pub inst: usize,
    pub exit: ExitId,
}

/// What ran.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Every check in the order of running; the index is what `Forced::Guard` counts.
    pub checks: Vec<Check>,
    /// The exit that was taken.
    pub taken: Option<ExitId>,
    /// First words of all instructions that ran.
    pub mnemonics: BTreeSet<&'static str>,
}

/// The function did what no function may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub at: Option<(Block, usize)>,
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some((block, inst)) => write!(f, "{block}, instruction {inst}: {}", self.message),
            None => write!(f, "{}", self.message),
        }
    }
}

impl std::error::Error for Fault {}

/// Runs a function.
///
/// `consts` are held by the caller, one per constant. The frame takes the argument references over and lets go of those
/// that the function did not take, at the end.
///
/// # Errors
/// `Fault`: see the module. The heap is then in no useful state.
pub fn run(
    function: &Function,
    consts: &[Ref],
    args: Vec<Option<Ref>>,
    heap: &mut Heap,
    table: &mut dyn Table,
    options: Options,
) -> Result<(Outcome, Trace), Fault> {
    let mut machine = Machine {
        f: function,
        routines: &function.routines,
        depth: 0,
        consts,
        heap,
        table,
        options,
        values: vec![None; function.n_values()],
        frame: args.into_iter().map(Arg::Held).collect(),
        trace: Trace::default(),
        random: match options.forced {
            Forced::Seeded(seed) => seed | 1,
            _ => 1,
        },
        at: (Block(0), 0),
    };
    let outcome = machine
        .run()
        .and_then(|outcome| machine.clear_frame().map(|()| outcome))
        .map_err(|message| Fault { at: Some(machine.at), message })?;
    Ok((outcome, machine.trace))
}

/// An argument's slot in the frame.
enum Arg {
    Held(Option<Ref>),
    Taken,
}

struct Machine<'a> {
    f: &'a Function,
    /// Those that it may call, and calls of them around this one.
    routines: &'a [Function],
    depth: u32,
    consts: &'a [Ref],
    heap: &'a mut Heap,
    table: &'a mut dyn Table,
    options: Options,
    values: Vec<Option<Scalar>>,
    frame: Vec<Arg>,
    trace: Trace,
    random: u64,
    at: (Block, usize),
}

/// What an instruction makes of control.
enum Flow {
    /// On to the next one, with this result.
    Next(Option<Scalar>),
    Leave(ExitId),
}

/// How control came to an end.
enum End {
    Return(Value),
    Leave(ExitId),
}

/// Routines in routines, above which a call gives up.
const MAX_DEPTH: u32 = 100;

impl Machine<'_> {
    /// Calls a routine; `None` when it gives up.
    fn call_routine(&mut self, routine: u32, args: Vec<Scalar>) -> Result<Option<Scalar>, HeapError> {
        let f = self.routines.get(routine as usize).ok_or("no such routine")?;
        if self.depth >= MAX_DEPTH {
            return Ok(None);
        }
        let mut inner = Machine {
            f,
            routines: self.routines,
            depth: self.depth + 1,
            consts: self.consts,
            heap: &mut *self.heap,
            table: &mut *self.table,
            options: self.options,
            values: vec![None; f.n_values()],
            frame: vec![],
            // Its checks have no numbers among those of the function.
            trace: Trace::default(),
            random: self.random,
            at: (Block(0), 0),
        };
        inner.options.forced = Forced::No;
        let end = inner.walk(args);
        let result = match &end {
            Ok(End::Return(v)) => Some(inner.read(*v)?),
            _ => None,
        };
        self.options.fuel = inner.options.fuel;
        self.trace.mnemonics.extend(inner.trace.mnemonics);
        end.map(|_| result)
    }

    fn run(&mut self) -> Result<Outcome, HeapError> {
        if self.frame.len() != self.f.n_args as usize || self.consts.len() != self.f.consts.len() {
            return Err("wrong number of arguments or constants".to_owned());
        }
        let args: Vec<Scalar> = self
            .frame
            .iter()
            .map(|arg| Scalar::Obj(if let Arg::Held(r) = arg { *r } else { None }))
            .collect();
        match self.walk(args)? {
            End::Return(v) => Ok(Outcome::Returned(self.obj(v)?.ok_or("returns the null reference")?)),
            End::Leave(exit) => self.leave(exit),
        }
    }

    /// From the entry block to a way out.
    fn walk(&mut self, args: Vec<Scalar>) -> Result<End, HeapError> {
        let mut next = (Block(0), args);
        loop {
            let (b, args) = next;
            let block = &self.f.blocks[b.index()];
            self.at = (b, 0);
            // All arguments were read before any parameter is written: they may be the same values.
            for (param, arg) in block.params.iter().zip(args) {
                self.values[param.index()] = Some(arg);
            }
            for (i, (inst, result)) in block.insts.iter().enumerate() {
                self.at = (b, i);
                self.burn()?;
                self.trace.mnemonics.insert(inst.mnemonic());
                match self.inst(inst)? {
                    Flow::Leave(exit) => return Ok(End::Leave(exit)),
                    Flow::Next(value) => {
                        if let Some(v) = result {
                            let value = value.filter(|x| x.ty() == self.f.ty(*v));
                            self.values[v.index()] = Some(value.ok_or("result of another type")?);
                        }
                    }
                }
            }
            self.at = (b, block.insts.len());
            self.burn()?;
            next = match block.terminator.as_ref().ok_or("block without terminator")? {
                Terminator::Jump(to, args) => (*to, self.read_all(args)?),
                Terminator::Branch { cond, then, els } => {
                    let (to, args) = if self.bool(*cond)? { then } else { els };
                    (*to, self.read_all(args)?)
                }
                Terminator::Return(v) => return Ok(End::Return(*v)),
                Terminator::Exit(exit) => return Ok(End::Leave(*exit)),
            };
        }
    }

    fn burn(&mut self) -> Result<(), HeapError> {
        self.options.fuel = self.options.fuel.checked_sub(1).ok_or("does not come to an end")?;
        Ok(())
    }

    /// Records a check and tells whether it is forced to fail.
    fn forced(&mut self, exit: ExitId) -> bool {
        let k = self.trace.checks.len();
        self.trace.checks.push(Check { block: self.at.0, inst: self.at.1, exit });
        match self.options.forced {
            Forced::No => false,
            Forced::Guard(n) => n as usize == k,
            Forced::Exit(e) => e == exit,
            Forced::Seeded(_) => {
                // xorshift64: enough to spread failures, and the same everywhere.
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                self.random >> 60 == 0
            }
        }
    }

    fn leave(&mut self, id: ExitId) -> Result<Outcome, HeapError> {
        self.trace.taken = Some(id);
        let exit = &self.f.exits[id.index()];
        let locals = self.rebuild_all(&exit.locals)?;
        let stack = self.rebuild_all(&exit.stack)?;
        let state = State { exit: id, locals, stack };
        match (exit.kind, self.heap.pending.take()) {
            (ExitKind::Raise, Some(exception)) => Ok(Outcome::Raised { state, exception }),
            (ExitKind::Raise, None) => Err("leaves through a raise exit and no exception is set".to_owned()),
            (ExitKind::Resume | ExitKind::Entry | ExitKind::Yield, None) => Ok(Outcome::Left(state)),
            (ExitKind::Resume | ExitKind::Entry | ExitKind::Yield, Some(e)) => {
                Err(format!("leaves with an exception set: {e}"))
            }
        }
    }

    fn clear_frame(&mut self) -> Result<(), HeapError> {
        for arg in std::mem::take(&mut self.frame) {
            if let Arg::Held(Some(r)) = arg {
                self.heap.release(r)?;
            }
        }
        match self.heap.pending.take() {
            Some(e) => Err(format!("returns with an exception set: {e}")),
            None => Ok(()),
        }
    }

    fn read(&self, v: Value) -> Result<Scalar, HeapError> {
        self.values[v.index()].ok_or_else(|| format!("{v} has no value yet"))
    }

    fn read_all(&self, values: &[Value]) -> Result<Vec<Scalar>, HeapError> {
        values.iter().map(|v| self.read(*v)).collect()
    }

    fn bool(&self, v: Value) -> Result<bool, HeapError> {
        match self.read(v)? {
            Scalar::I1(b) => Ok(b),
            other => Err(format!("{v} is {other:?}, not i1")),
        }
    }

    fn int(&self, v: Value) -> Result<i64, HeapError> {
        match self.read(v)? {
            Scalar::I64(n) => Ok(n),
            other => Err(format!("{v} is {other:?}, not i64")),
        }
    }

    fn f64(&self, v: Value) -> Result<f64, HeapError> {
        match self.read(v)? {
            Scalar::F64(x) => Ok(x),
            other => Err(format!("{v} is {other:?}, not f64")),
        }
    }

    fn obj(&self, v: Value) -> Result<Option<Ref>, HeapError> {
        match self.read(v)? {
            Scalar::Obj(r) => Ok(r),
            other => Err(format!("{v} is {other:?}, not obj")),
        }
    }

    /// A reference that must not be null.
    fn object(&self, v: Value) -> Result<Ref, HeapError> {
        self.obj(v)?.ok_or_else(|| format!("{v} is the null reference"))
    }
}

/// True for instructions that `Forced` counts.
pub fn is_check(inst: &Inst) -> bool {
    use overdrive_base::table::Failure;
    match inst {
        Inst::Guard(..) | Inst::Checked(..) | Inst::CallRoutine { .. } => true,
        Inst::Table { entry, .. } => matches!(entry.signature().failure, Failure::Declines),
        _ => false,
    }
}
