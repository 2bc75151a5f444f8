//! Why a code object could not be read.
//!
//! None of these can come from CPython's compiler; a tool that writes bytecode
//! can cause each. The function then stays interpreted.

use crate::op::Offset;
use std::fmt;

/// A code object that this front end cannot follow. Offsets are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BytecodeError {
    /// A byte that is no opcode of this version.
    UnknownOpcode {
        /// Where it stands.
        offset: Offset,
        /// The byte.
        number: u8,
    },
    /// The code ends inside an instruction or its caches.
    TruncatedCode,
    /// A jump into the middle of an instruction or out of the code.
    BadJump {
        /// The jump.
        offset: Offset,
        /// Where it would lead.
        target: i64,
    },
    /// An index into constants, names or locals, or an operator number, that is
    /// out of range.
    BadArgument {
        /// The instruction.
        offset: Offset,
        /// Its name in CPython.
        opcode: &'static str,
        /// Its argument.
        arg: u32,
    },
    /// `KW_NAMES` or `PRECALL` without its call.
    UnpairedCall {
        /// The instruction.
        offset: Offset,
    },
    /// Execution can run over the end of the code.
    FallsOffEnd,
    /// The line table or exception table is damaged.
    BadTable(&'static str),
    /// Two paths reach an instruction with different stacks.
    StackMismatch {
        /// The instruction.
        offset: Offset,
        /// Entries by the first path.
        first: u32,
        /// Entries by the second.
        second: u32,
    },
    /// The pair that a call takes is torn apart, or differs between two paths.
    BrokenCallPair {
        /// The instruction.
        offset: Offset,
    },
    /// An instruction pushes more than `co_stacksize` reserves.
    StackOverflow {
        /// The instruction.
        offset: Offset,
    },
    /// An instruction takes more entries than the stack has.
    StackUnderflow {
        /// The instruction.
        offset: Offset,
    },
}

impl fmt::Display for BytecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BytecodeError::UnknownOpcode { offset, number } => {
                write!(f, "unknown opcode {number} at offset {offset}")
            }
            BytecodeError::TruncatedCode => write!(f, "the code ends inside an instruction"),
            BytecodeError::BadJump { offset, target } => {
                write!(f, "the jump at offset {offset} leads to {target}, which is no instruction")
            }
            BytecodeError::BadArgument { offset, opcode, arg } => {
                write!(f, "{opcode} at offset {offset} has the invalid argument {arg}")
            }
            BytecodeError::UnpairedCall { offset } => {
                write!(f, "the call set-up at offset {offset} has no call")
            }
            BytecodeError::FallsOffEnd => write!(f, "execution can run over the end of the code"),
            BytecodeError::BadTable(table) => write!(f, "the {table} table is damaged"),
            BytecodeError::StackMismatch { offset, first, second } => {
                write!(f, "offset {offset} is reached with {first} and with {second} stack entries")
            }
            BytecodeError::BrokenCallPair { offset } => {
                write!(f, "the callable and its receiver are separated at offset {offset}")
            }
            BytecodeError::StackOverflow { offset } => {
                write!(f, "the instruction at offset {offset} pushes more than the code object reserves")
            }
            BytecodeError::StackUnderflow { offset } => {
                write!(f, "the instruction at offset {offset} takes more than the stack holds")
            }
        }
    }
}

impl std::error::Error for BytecodeError {}
