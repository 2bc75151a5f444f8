//! The translator: one version of a code object, from instructions and facts to typed IR.
//!
//! It walks the blocks in reverse postorder with an abstract state (`value`), emitting code as it goes; a merge point takes
//! the least common `shape` of its edges. A loop header's shape is a guess that the back edge may widen: then the whole
//! translation is done again, until it holds. In: `function::Function`, an `Entry`, an `Oracle`. Out: a `Translation`.
//! Every check precedes the first side effect of its instruction, so every exit re-executes that instruction in CPython.

mod arithmetic;
mod attributes;
mod boxing;
mod build;
mod calls;
mod compare;
mod control;
mod delayed;
mod emit;
mod entry;
mod globals;
mod hoist;
mod inline;
mod iterate;
mod last;
mod members;
mod names;
mod numpy;
mod objects;
mod routine;
mod shape;
mod shared;
mod step;
mod subscript;
mod value;

use std::sync::Arc;

use overdrive_ir::function::{Function as IrFunction, Iterations};

use crate::code::CodeObject;
use crate::facts::{Entry, Note, Oracle, Refusal, Status, Translation};
use crate::function::Function;
use crate::op::Op;
use emit::{Headers, Tx};

/// Rounds of widening after which a function is given up; each round widens at least one header.
const MAX_ROUNDS: usize = 60;

/// Instructions above which a function is left to the interpreter: compile time would not be paid back.
const MAX_INSTRS: usize = 6000;

/// Why a translation stopped early.
pub(crate) enum Stop {
    /// The function stays interpreted.
    Refused(Refusal),
    /// A loop header was widened: start again.
    Again,
}

type Step<T = ()> = Result<T, Stop>;

/// Translates one version of a code object.
///
/// # Errors
/// `Refusal` when nothing of the function is worth compiling or it must see its own frame: it then stays interpreted.
pub fn translate(
    code: &Arc<CodeObject>,
    entry: &Entry,
    oracle: &mut dyn Oracle,
) -> Result<Translation, Refusal> {
    let refuse = |why: &str| Refusal { line: Some(code.first_line), why: why.to_owned() };
    if code.is_generator() {
        return Err(refuse("generators and coroutines run in CPython"));
    }
    let is_module_loop = code.name == "<module>" && matches!(entry, Entry::Loop { .. });
    if !code.is_function() && !is_module_loop {
        return Err(refuse(
            "class bodies and module code run in CPython (loops of a module are entered while they run)",
        ));
    }
    let function =
        Function::analyse(Arc::clone(code)).map_err(|e| refuse(&format!("unreadable bytecode: {e}")))?;
    if function.instrs.len() > MAX_INSTRS {
        return Err(refuse("the function is too long to be compiled"));
    }
    if let Some(i) = function.instrs.iter().find(|i| matches!(i.op, Op::Other(_))) {
        return Err(Refusal { line: i.position.line, why: "unknown opcode".into() });
    }
    let mut headers = Headers::default();
    for _ in 0..MAX_ROUNDS {
        let mut tx = Tx::new(&function, oracle, &mut headers, entry);
        match tx.run(entry) {
            Ok(()) => return Ok(tx.finish()),
            Err(Stop::Again) => {}
            Err(Stop::Refused(r)) => return Err(r),
        }
    }
    Err(refuse("types do not settle"))
}

impl Tx<'_> {
    /// Translates everything that the entry reaches.
    fn run(&mut self, entry: &Entry) -> Step {
        let root = self.enter(entry)?;
        let order = control::order_from(&self.f.cfg, root);
        self.retreating = order.retreating;
        for block in order.blocks {
            if !self.begin_block(block)? {
                continue;
            }
            for idx in self.f.cfg.blocks[block].instrs() {
                self.instr(idx)?;
                if self.cur.is_none() {
                    break;
                }
            }
            if self.cur.is_some() {
                // Falls into the next block.
                if let Some(next) = self.f.cfg.blocks[block].next {
                    self.edge_to(next)?;
                }
            }
        }
        if self.impossible {
            return Err(self.refused("a loop's iterator is used as an object"));
        }
        Ok(())
    }

    fn finish(self) -> Translation {
        let mut notes: Vec<Note> = Vec::new();
        for (idx, (status, why)) in &self.remarks {
            let i = &self.f.instrs[*idx];
            notes.push(Note {
                offset: i.op_offset,
                line: i.position.line,
                status: *status,
                why: why.clone(),
            });
        }
        let mut types: Vec<(String, String)> = self.local_types.into_iter().collect();
        types.sort();
        let mut function: IrFunction = self.ir;
        for header in self.free.iter().filter_map(|target| self.entered.get(target)) {
            function.blocks[header.block.index()].iterations = Iterations::Free;
        }
        function.places.stand_at(None);
        function.needs_frame = self.needs_frame;
        function.n_profile = self.profile.len() as u32;
        function.global_slots = self.cached.iter().map(|c| c.name.0).collect();
        Translation { function, notes, typed: self.typed, profile: self.profile, types }
    }

    /// Remembers how an instruction runs; the least native of several wins.
    pub(crate) fn remark(&mut self, status: Status, why: &str) {
        let entry = self.remarks.entry(self.idx).or_insert((Status::Native, String::new()));
        if status > entry.0 || (status == entry.0 && entry.1.is_empty()) {
            *entry = (status, why.to_owned());
        }
    }
}
