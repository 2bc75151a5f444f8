//! Bytes of `co_code` → instructions of one CPython version.
//!
//! `EXTENDED_ARG` prefixes are folded into the argument and inline caches
//! skipped. Both offsets are kept: an exit jumps to `start`, so that the
//! prefixes run again, while the frame's position and the tables use `offset`.

use crate::code::PyVersion;
use crate::error::BytecodeError;
use crate::op::Offset;
use crate::opcodes::{self, Opcode};

/// Bytes of a code unit: an opcode or prefix with its argument byte, or a cache.
pub const UNIT: u32 = 2;

/// One instruction as CPython has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawInstr {
    /// First byte, `EXTENDED_ARG` prefixes included.
    pub start: Offset,
    /// The opcode's own byte.
    pub offset: Offset,
    /// First byte behind the inline caches.
    pub next: Offset,
    /// What it does.
    pub opcode: Opcode,
    /// The whole argument; its meaning depends on opcode and version.
    pub arg: u32,
}

/// All instructions in order.
///
/// # Errors
/// `UnknownOpcode`, `TruncatedCode`.
pub fn decode(version: PyVersion, code: &[u8]) -> Result<Vec<RawInstr>, BytecodeError> {
    if !code.len().is_multiple_of(UNIT as usize) || u32::try_from(code.len()).is_err() {
        return Err(BytecodeError::TruncatedCode);
    }
    let len = code.len() as u32;
    let mut instrs = Vec::with_capacity(code.len() / 4);
    let (mut offset, mut start, mut prefix) = (0, 0, 0u32);
    while offset < len {
        let (number, low) = (code[offset as usize], code[offset as usize + 1]);
        let info = opcodes::lookup(version, number).ok_or(BytecodeError::UnknownOpcode { offset, number })?;
        let arg = prefix << 8 | u32::from(low);
        let next = offset + UNIT * (1 + u32::from(info.n_caches));
        if next > len {
            return Err(BytecodeError::TruncatedCode);
        }
        if info.opcode == Opcode::ExtendedArg {
            prefix = arg;
        } else {
            instrs.push(RawInstr { start, offset, next, opcode: info.opcode, arg });
            prefix = 0;
            start = next;
        }
        offset = next;
    }
    if start != len {
        return Err(BytecodeError::TruncatedCode);
    }
    Ok(instrs)
}
