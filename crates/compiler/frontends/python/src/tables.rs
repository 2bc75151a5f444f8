//! The two tables beside the bytecode: source positions and exception handlers.
//!
//! In: `co_linetable` and `co_exceptiontable`. Out: a position per code unit,
//! as `co_positions()` gives it, and the handler entries. The formats are those
//! of CPython's `Objects/locations.md` and `exception_handling_notes.txt`, the
//! same in 3.11, 3.12 and 3.13.

use crate::code::CodeObject;
use crate::decode::UNIT;
use crate::error::BytecodeError;
use crate::op::{Offset, Position};

/// One row of the exception table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExceptionEntry {
    /// First covered byte.
    pub start: Offset,
    /// First byte that is covered no longer.
    pub end: Offset,
    /// The handler.
    pub target: Offset,
    /// Stack entries that stay; then come the offset (if `lasti`) and the exception.
    pub depth: u32,
    /// Whether the raising instruction's offset is pushed, for `RERAISE`.
    pub lasti: bool,
}

/// Handlers in the order of the table; ranges do not overlap and ascend.
///
/// # Errors
/// `BadTable`.
pub fn exception_entries(code: &CodeObject) -> Result<Vec<ExceptionEntry>, BytecodeError> {
    let bad = BytecodeError::BadTable("exception");
    let mut bytes = code.exception_table.iter().copied();
    let mut entries = Vec::new();
    while bytes.len() > 0 {
        let mut next = || big_endian_varint(&mut bytes).ok_or(bad.clone());
        let (start, length, target, depth_lasti) = (next()?, next()?, next()?, next()?);
        let unit = |n: u32| n.checked_mul(UNIT).ok_or(bad.clone());
        entries.push(ExceptionEntry {
            start: unit(start)?,
            end: unit(start.checked_add(length).ok_or(bad.clone())?)?,
            target: unit(target)?,
            depth: depth_lasti >> 1,
            lasti: depth_lasti & 1 != 0,
        });
    }
    Ok(entries)
}

/// Source position of every code unit, caches included.
///
/// # Errors
/// `BadTable`.
pub fn positions(code: &CodeObject) -> Result<Vec<Position>, BytecodeError> {
    let bad = BytecodeError::BadTable("line");
    let n_units = code.code.len() / UNIT as usize;
    let mut positions = Vec::with_capacity(n_units);
    let mut bytes = code.line_table.iter().copied();
    let mut line = i64::from(code.first_line);
    while let Some(head) = bytes.next() {
        if head & 0x80 == 0 {
            return Err(bad);
        }
        let n = usize::from(head & 7) + 1;
        let mut position = Position::default();
        let kind = (head >> 3) & 15;
        let mut columns = None;
        match kind {
            // Nothing is known.
            15 => {
                positions.extend(std::iter::repeat_n(position, n));
                continue;
            }
            // A line of its own, columns given in full.
            14 => {
                line += signed_varint(&mut bytes).ok_or(bad.clone())?;
                let mut next = || little_endian_varint(&mut bytes).ok_or(bad.clone());
                let end_line = line + i64::from(next()?);
                // Columns are stored plus one; nought is "unknown".
                let (col, end_col) = (next()?, next()?);
                position.end_line = u32::try_from(end_line).ok();
                position.col = col.checked_sub(1);
                position.end_col = end_col.checked_sub(1);
            }
            // No columns.
            13 => line += signed_varint(&mut bytes).ok_or(bad.clone())?,
            // One line, columns of a byte each, up to two lines further.
            10..=12 => {
                line += i64::from(kind - 10);
                let mut next = || bytes.next().map(u32::from).ok_or(bad.clone());
                columns = Some((next()?, next()?));
            }
            // Same line, short columns.
            0..=9 => {
                let low = u32::from(bytes.next().ok_or(bad.clone())?);
                let col = u32::from(kind) << 3 | low >> 4;
                columns = Some((col, col + (low & 15)));
            }
            _ => return Err(bad),
        }
        position.line = u32::try_from(line).ok();
        if kind != 14 {
            position.end_line = position.line;
        }
        if let Some((col, end_col)) = columns {
            position.col = Some(col);
            position.end_col = Some(end_col);
        }
        positions.extend(std::iter::repeat_n(position, n));
    }
    positions.resize(n_units, Position::default());
    Ok(positions)
}

/// Exception table: six bits a byte, high ones first; bit 6 continues.
fn big_endian_varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut value = 0u32;
    loop {
        let byte = bytes.next()?;
        value = value.checked_mul(64)? | u32::from(byte & 63);
        if byte & 64 == 0 {
            return Some(value);
        }
    }
}

/// Line table: six bits a byte, low ones first; bit 6 continues.
fn little_endian_varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let (mut value, mut shift) = (0u32, 0);
    loop {
        let byte = bytes.next()?;
        value |= u32::from(byte & 63).checked_shl(shift)?;
        if byte & 64 == 0 {
            return Some(value);
        }
        shift += 6;
    }
}

/// The lowest bit is the sign.
fn signed_varint(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = i64::from(little_endian_varint(bytes)?);
    Some(if value & 1 != 0 { -(value >> 1) } else { value >> 1 })
}
