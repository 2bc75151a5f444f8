//! All stages before the translator, in order.
//!
//! In: a code object. Out: everything the translator asks about it.

use crate::cfg::Cfg;
use crate::code::CodeObject;
use crate::error::BytecodeError;
use crate::locals::Locals;
use crate::loops::Loops;
use crate::normalise::{find, normalise};
use crate::op::{Instr, Offset};
use crate::stack::Stacks;
use std::sync::Arc;

/// A code object, read and analysed.
#[derive(Clone, Debug)]
pub struct Function {
    /// Where it comes from; names and constants are looked up here.
    pub code: Arc<CodeObject>,
    /// In code order; indices below refer to it.
    pub instrs: Vec<Instr>,
    /// Blocks and edges.
    pub cfg: Cfg,
    /// Stack shape before each instruction.
    pub stacks: Stacks,
    /// Loops of ordinary flow.
    pub loops: Loops,
    /// Which variable slots are set, which are read again.
    pub locals: Locals,
}

impl Function {
    /// Reads a code object.
    ///
    /// # Errors
    /// `BytecodeError` for code that CPython's compiler does not make. The
    /// function is then left to the interpreter.
    pub fn analyse(code: Arc<CodeObject>) -> Result<Function, BytecodeError> {
        let instrs = normalise(&code)?;
        let cfg = Cfg::build(&code, &instrs)?;
        let stacks = Stacks::compute(&code, &instrs, &cfg)?;
        let loops = Loops::find(&cfg);
        let locals = Locals::compute(&code, &instrs, &cfg, &stacks);
        Ok(Function { code, instrs, cfg, stacks, loops, locals })
    }

    /// Index of the instruction at which CPython would continue from `offset`.
    pub fn instr_at(&self, offset: Offset) -> Option<usize> {
        find(&self.instrs, offset)
    }
}
