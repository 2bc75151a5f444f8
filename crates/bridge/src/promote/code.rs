//! What promotion needs to know of a code object: its size, kind, lines, and which lines lie in loops.
//!
//! In: a code object, read through its public attributes. Out: [`CodeFacts`], plain data.

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// What kind of thing a code object is the body of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeKind {
    /// A function or lambda.
    Function,
    /// A module, class body or `exec`: run once, has no arguments.
    Once,
    /// A generator, coroutine or asynchronous generator.
    Generator,
}

/// Plain facts of one code object.
#[derive(Clone, Debug)]
pub(super) struct CodeFacts {
    /// Bytes of bytecode.
    pub(super) bytes: usize,
    /// Function, run once, or generator.
    pub(super) kind: CodeKind,
    /// `co_firstlineno`.
    pub(super) first_line: i32,
    /// All lines that have instructions.
    pub(super) lines: HashSet<i32>,
    /// The lines from a loop's head to its backward jump.
    pub(super) loop_lines: HashSet<i32>,
}

/// Backward jumps that loops make; `await` and `yield from` use another one.
#[cfg(not(Py_3_12))]
const BACKWARD_JUMPS: &[u8] = &[140, 173, 174, 175, 176];
#[cfg(all(Py_3_12, not(Py_3_13)))]
const BACKWARD_JUMPS: &[u8] = &[140];
#[cfg(Py_3_13)]
const BACKWARD_JUMPS: &[u8] = &[77];
#[cfg(not(Py_3_13))]
const EXTENDED_ARG: u8 = 144;
#[cfg(Py_3_13)]
const EXTENDED_ARG: u8 = 71;
/// Cache units behind a backward jump, in front of which its distance is counted.
const JUMP_CACHES: usize = if cfg!(Py_3_13) { 1 } else { 0 };

const CO_OPTIMIZED: u32 = 0x1;
const CO_GENERATOR: u32 = 0x20 | 0x80 | 0x200;

impl CodeFacts {
    /// Reads `code`.
    pub(super) fn of(code: &Bound<'_, PyAny>) -> PyResult<Self> {
        let bytecode = code.getattr("co_code")?;
        let bytecode = bytecode.cast::<PyBytes>()?.as_bytes();
        let flags: u32 = code.getattr("co_flags")?.extract()?;
        let loops = loops(bytecode);
        let (mut lines, mut loop_lines) = (HashSet::new(), HashSet::new());
        for entry in code.call_method0("co_lines")?.try_iter()? {
            let (start, end, line): (usize, usize, Option<i32>) = entry?.extract()?;
            let Some(line) = line else { continue };
            lines.insert(line);
            if loops.iter().any(|&(head, jump)| start < jump && head < end) {
                loop_lines.insert(line);
            }
        }
        let kind = match flags {
            _ if flags & CO_GENERATOR != 0 => CodeKind::Generator,
            _ if flags & CO_OPTIMIZED != 0 => CodeKind::Function,
            _ => CodeKind::Once,
        };
        let first_line = code.getattr("co_firstlineno")?.extract()?;
        Ok(Self { bytes: bytecode.len(), kind, first_line, lines, loop_lines })
    }
}

/// Loops as byte ranges from the head to behind the backward jump.
fn loops(bytecode: &[u8]) -> Vec<(usize, usize)> {
    let (mut found, mut extended, mut skip) = (Vec::new(), 0usize, 0usize);
    for (unit, instruction) in bytecode.chunks_exact(2).enumerate() {
        if skip > 0 {
            skip -= 1;
            continue;
        }
        let argument = extended << 8 | usize::from(instruction[1]);
        extended = if instruction[0] == EXTENDED_ARG { argument } else { 0 };
        if BACKWARD_JUMPS.contains(&instruction[0]) {
            let next = unit + 1 + JUMP_CACHES;
            skip = JUMP_CACHES;
            found.push((2 * next.saturating_sub(argument), 2 * next));
        }
    }
    found
}
