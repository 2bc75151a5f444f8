//! What the mechanics must know about bytecode: opcode numbers, instruction boundaries, exception and line tables.
//!
//! In: a code object. Out: [`Opcodes`] (read once from the running version's own `opcode` module, so no number is
//! copied here) and [`Shape`], what entering and leaving one code object needs. It does not interpret operations;
//! the front end does.
#![expect(unsafe_code, reason = "reads fields of code objects that no API exposes")]

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::frame::code_int;
use super::{layout, raiser};

/// Numbers of the opcodes that stubs are made of or that move an exit.
#[derive(Debug)]
pub struct Opcodes {
    pub call: u8,
    pub call_function_ex: u8,
    /// 3.13 and later.
    pub call_kw: Option<u8>,
    pub copy_free_vars: u8,
    /// 3.12 and later; what an exhausted FOR_ITER skips.
    pub end_for: Option<u8>,
    pub extended_arg: u8,
    /// The opcodes from here on are instrumented ones: tools watch them. 3.11 has none.
    pub first_instrumented: u8,
    pub for_iter: u8,
    pub jump_forward: u8,
    /// 3.11 and 3.12: names of keyword arguments, held outside the stack until CALL.
    pub kw_names: Option<u8>,
    pub load_const: u8,
    pub make_cell: u8,
    pub pop_top: u8,
    /// 3.11 only.
    pub precall: Option<u8>,
    pub push_null: u8,
    pub resume: u8,
    pub return_value: u8,
    pub swap: u8,
    /// Whether an opcode jumps backwards by its argument, to a loop head.
    pub jumps_back: [bool; 256],
    /// See `raiser::operand_of`.
    pub raise_operand: [u8; 256],
    /// Number of inline cache units behind each opcode.
    pub caches: [u8; 256],
}

impl Opcodes {
    /// The table of the running version.
    ///
    /// # Errors
    /// Whatever importing `opcode` raises; `KeyError` when a needed opcode has another name.
    pub fn get(py: Python<'_>) -> PyResult<&'static Opcodes> {
        static TABLE: OnceLock<Opcodes> = OnceLock::new();
        if let Some(table) = TABLE.get() {
            return Ok(table);
        }
        let read = Opcodes::read(py)?;
        Ok(TABLE.get_or_init(|| read))
    }

    fn read(py: Python<'_>) -> PyResult<Opcodes> {
        let module = py.import("opcode")?;
        let map = module.getattr("opmap")?;
        let number = |name: &str| -> PyResult<u8> { map.get_item(name)?.extract() };
        let optional = |name: &str| number(name).ok();
        let (mut jumps_back, mut raise_operand) = ([false; 256], [0u8; 256]);
        let mut first_instrumented = u8::MAX;
        for (name, op) in map.cast::<PyDict>()?.iter() {
            let (name, op): (String, usize) = (name.extract()?, op.extract()?);
            if op < 256 {
                raise_operand[op] = raiser::operand_of(&name);
            }
            if op < 256 && name.starts_with("INSTRUMENTED_") {
                first_instrumented = first_instrumented.min(op as u8);
            }
            let is_loop = name.contains("JUMP_BACKWARD") && !name.contains("NO_INTERRUPT");
            if op < 256 && is_loop && !name.contains("INSTRUMENTED") {
                jumps_back[op] = true;
            }
        }
        let entries = module.getattr("_inline_cache_entries")?;
        let mut caches = [0u8; 256];
        if let Ok(by_name) = entries.cast::<PyDict>() {
            for (name, n_units) in by_name.iter() {
                if let Ok(op) = map.get_item(name).and_then(|op| op.extract::<usize>())
                    && op < 256
                {
                    caches[op] = n_units.extract()?;
                }
            }
        } else {
            for (op, n_units) in entries.try_iter()?.enumerate().take(256) {
                caches[op] = n_units?.extract()?;
            }
        }
        Ok(Opcodes {
            call: number("CALL")?,
            call_function_ex: number("CALL_FUNCTION_EX")?,
            call_kw: optional("CALL_KW"),
            copy_free_vars: number("COPY_FREE_VARS")?,
            end_for: optional("END_FOR"),
            extended_arg: number("EXTENDED_ARG")?,
            first_instrumented,
            for_iter: number("FOR_ITER")?,
            jump_forward: number("JUMP_FORWARD")?,
            kw_names: optional("KW_NAMES"),
            load_const: number("LOAD_CONST")?,
            make_cell: number("MAKE_CELL")?,
            pop_top: number("POP_TOP")?,
            precall: optional("PRECALL"),
            push_null: number("PUSH_NULL")?,
            resume: number("RESUME")?,
            return_value: number("RETURN_VALUE")?,
            swap: number("SWAP")?,
            jumps_back,
            raise_operand,
            caches,
        })
    }
}

/// One range of the exception table, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handler {
    pub start: u32,
    pub len: u32,
    pub target: u32,
    /// Stack depth that the handler keeps, times two, plus one when the raising offset is pushed.
    pub depth_lasti: u32,
}

/// What entering and leaving a code object needs to know about its original bytecode. Positions are in units and
/// relative to the original code.
#[derive(Debug)]
pub struct Shape {
    /// The bytecode without specialisation, two bytes a unit.
    pub bytecode: Vec<u8>,
    /// For each unit, where the instruction that holds it begins (its first EXTENDED_ARG).
    starts: Vec<u32>,
    /// The RESUME of the function's entry.
    pub resume: u32,
    /// Slots that become cells at entry, in the order of MAKE_CELL.
    pub cells: Vec<u32>,
    /// Targets of backward jumps, in ascending order.
    pub loop_heads: Vec<u32>,
    pub n_free: u32,
    pub n_locals_plus: u32,
    pub handlers: Vec<Handler>,
}

impl Shape {
    /// # Errors
    /// `ValueError` when the code object has no entry point (no RESUME).
    pub fn of(py: Python<'_>, code: &Bound<'_, PyAny>) -> PyResult<Shape> {
        let ops = Opcodes::get(py)?;
        let bytecode = code.getattr("co_code")?.cast_into::<PyBytes>()?.as_bytes().to_vec();
        let table = code.getattr("co_exceptiontable")?.cast_into::<PyBytes>()?;
        let mut loop_heads = Vec::new();
        let (mut starts, mut cells, mut resume) = (vec![0u32; bytecode.len() / 2], Vec::new(), None);
        let (mut unit, mut start, mut arg) = (0usize, None, 0u32);
        while unit < starts.len() {
            let (op, low) = (bytecode[2 * unit], u32::from(bytecode[2 * unit + 1]));
            let first = *start.get_or_insert(unit as u32);
            let end = starts.len().min(unit + 1 + usize::from(ops.caches[usize::from(op)]));
            starts[unit..end].fill(first);
            arg = arg << 8 | low;
            if op != ops.extended_arg {
                if resume.is_none() && op == ops.make_cell {
                    cells.push(arg);
                }
                if resume.is_none() && op == ops.resume {
                    resume = Some(unit as u32);
                }
                if ops.jumps_back[usize::from(op)] {
                    loop_heads.extend((end as u32).checked_sub(arg));
                }
                (start, arg) = (None, 0);
            }
            unit = end;
        }
        let resume = resume.ok_or_else(|| {
            pyo3::exceptions::PyValueError::new_err("this code object has no RESUME instruction")
        })?;
        // SAFETY: `code` is a code object: it answered to `co_code` and `co_exceptiontable` above.
        let (n_free, n_locals_plus) = unsafe {
            (
                code_int(code.as_ptr(), layout::code::NFREEVARS) as u32,
                code_int(code.as_ptr(), layout::code::NLOCALSPLUS) as u32,
            )
        };
        loop_heads.sort_unstable();
        loop_heads.dedup();
        let handlers = parse_exception_table(table.as_bytes());
        Ok(Shape { bytecode, starts, resume, cells, loop_heads, n_free, n_locals_plus, handlers })
    }

    /// The unit at which the operation at `unit` is started afresh: its first EXTENDED_ARG, and for a call with
    /// keywords the KW_NAMES that CPython keeps outside the stack.
    pub fn entry_of(&self, ops: &Opcodes, unit: u32) -> u32 {
        let Some(&at) = self.starts.get(unit as usize) else { return unit };
        let before = |at: u32| self.starts[at as usize - 1];
        let op = |at: u32| self.opcode_from(ops, at);
        let Some(kw_names) = ops.kw_names else { return at };
        if op(at) != ops.call && Some(op(at)) != ops.precall {
            return at;
        }
        let mut probe = at;
        if op(probe) == ops.call
            && ops.precall.is_some()
            && probe > 0
            && Some(op(before(probe))) == ops.precall
        {
            probe = before(probe);
        }
        if probe > 0 && op(before(probe)) == kw_names { before(probe) } else { at }
    }

    /// The opcode of the instruction that begins at `start`, behind its EXTENDED_ARGs.
    fn opcode_from(&self, ops: &Opcodes, start: u32) -> u8 {
        let mut at = start as usize;
        while self.bytecode[2 * at] == ops.extended_arg && at + 1 < self.starts.len() {
            at += 1;
        }
        self.bytecode[2 * at]
    }

    /// The unit of the opcode itself, behind the EXTENDED_ARGs of the instruction that holds `unit`.
    pub fn opcode_unit(&self, ops: &Opcodes, unit: u32) -> u32 {
        let mut at = self.starts.get(unit as usize).copied().unwrap_or(unit) as usize;
        while self.bytecode[2 * at] == ops.extended_arg && at + 1 < self.starts.len() {
            at += 1;
        }
        at as u32
    }

    /// The position to store so that an exception coming out of an inlined call is seen as raised by the
    /// instruction that holds `unit`. 3.13 looks for the handler one unit in front of that position: the second
    /// unit of the instruction serves, or when it has only one, the next where that makes a difference.
    pub fn raise_unit(&self, ops: &Opcodes, unit: u32) -> u32 {
        let at = self.opcode_unit(ops, unit);
        if !cfg!(Py_3_13) {
            return at;
        }
        let has_caches = ops.caches[usize::from(self.bytecode[2 * at as usize])] > 0;
        if has_caches || at == 0 || self.handler_at(at - 1) != self.handler_at(at) { at + 1 } else { at }
    }

    /// The argument of the operation whose opcode is at `unit`.
    pub fn arg_at(&self, ops: &Opcodes, unit: u32) -> u32 {
        let first = self.starts.get(unit as usize).copied().unwrap_or(unit);
        let prefixes = (first..unit).filter(|at| self.bytecode[2 * *at as usize] == ops.extended_arg);
        prefixes.chain([unit]).fold(0, |arg, at| arg << 8 | u32::from(self.bytecode[2 * at as usize + 1]))
    }

    /// Whether native code that was entered at the loop head `head` can have the operation at `unit` raise: both are
    /// covered by the same handler, or the operation has an operand that can raise in its place.
    pub fn raises_in_loop(&self, ops: &Opcodes, unit: u32, head: u32) -> bool {
        let at = self.opcode_unit(ops, unit);
        self.handler_at(at) == self.handler_at(head)
            || raiser::operand(ops, self, at, |_| false, usize::MAX).is_some()
    }

    /// The handler that an exception at `unit` goes to.
    pub fn handler_at(&self, unit: u32) -> Option<Handler> {
        self.handlers.iter().copied().find(|h| h.start <= unit && unit < h.start + h.len)
    }
}

/// Entries of `co_exceptiontable`.
fn parse_exception_table(table: &[u8]) -> Vec<Handler> {
    let mut numbers = Vec::new();
    let mut bytes = table.iter();
    while let Some(&first) = bytes.next() {
        let (mut byte, mut value) = (first, u32::from(first & 0x3f));
        while byte & 0x40 != 0 {
            byte = bytes.next().copied().unwrap_or(0);
            value = value << 6 | u32::from(byte & 0x3f);
        }
        numbers.push(value);
    }
    numbers
        .chunks_exact(4)
        .map(|n| Handler { start: n[0], len: n[1], target: n[2], depth_lasti: n[3] })
        .collect()
}

/// `co_exceptiontable` for the same handlers behind a prologue of `shift` units.
pub fn emit_exception_table(handlers: &[Handler], shift: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for handler in handlers {
        let numbers = [handler.start + shift, handler.len, handler.target + shift, handler.depth_lasti];
        for (position, value) in numbers.into_iter().enumerate() {
            let first = out.len();
            let n_groups = (1..).find(|n| value >> (6 * n) == 0).unwrap_or(1);
            for group in (0..n_groups).rev() {
                let more = if group > 0 { 0x40 } else { 0 };
                out.push((value >> (6 * group)) as u8 & 0x3f | more);
            }
            if position == 0 {
                out[first] |= 0x80;
            }
        }
    }
    out
}

/// Bytecode under construction.
#[derive(Default)]
pub struct Assembler {
    pub bytes: Vec<u8>,
}

impl Assembler {
    /// Number of units so far.
    pub fn n_units(&self) -> u32 {
        (self.bytes.len() / 2) as u32
    }

    /// Appends one instruction with its EXTENDED_ARGs and empty caches; returns the unit of its opcode.
    pub fn emit(&mut self, ops: &Opcodes, op: u8, arg: u32) -> u32 {
        for shift in [24, 16, 8] {
            if arg >> shift != 0 {
                self.bytes.extend([ops.extended_arg, (arg >> shift) as u8]);
            }
        }
        let at = self.n_units();
        self.bytes.extend([op, arg as u8]);
        self.bytes.resize(self.bytes.len() + 2 * usize::from(ops.caches[usize::from(op)]), 0);
        at
    }
}

/// Line table entries for `n_units` units that have no source location.
pub fn unlocated(mut n_units: u32) -> Vec<u8> {
    let mut out = Vec::new();
    while n_units > 0 {
        let chunk = n_units.min(8);
        out.push(0x80 | 15 << 3 | (chunk - 1) as u8);
        n_units -= chunk;
    }
    out
}

/// A source range as `co_positions` gives it; lines may be missing, columns too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub line: Option<i32>,
    pub end_line: Option<i32>,
    pub column: Option<i32>,
    pub end_column: Option<i32>,
}

/// The line table entry of one unit at `position`, `line` being the line of the entry before.
pub fn located(position: Position, line: i32) -> Vec<u8> {
    let Some(this) = position.line else { return unlocated(1) };
    let mut out = vec![0x80 | 14 << 3];
    let delta = this - line;
    push_varint(&mut out, if delta < 0 { (-delta as u32) << 1 | 1 } else { (delta as u32) << 1 });
    push_varint(&mut out, (position.end_line.unwrap_or(this) - this).max(0) as u32);
    push_varint(&mut out, position.column.map_or(0, |c| c as u32 + 1));
    push_varint(&mut out, position.end_column.map_or(0, |c| c as u32 + 1));
    out
}

fn push_varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 64 {
        out.push(0x40 | (value & 0x3f) as u8);
        value >>= 6;
    }
    out.push(value as u8);
}
