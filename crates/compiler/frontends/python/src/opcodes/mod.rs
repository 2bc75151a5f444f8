//! Opcode numbers, inline caches and intrinsics of each version.
//!
//! In: a version and a byte of `co_code`. Out: which opcode it is. The tables
//! are generated from the interpreters themselves, and a test compares them
//! again with those that are installed.

mod generated;

pub use generated::Opcode;

use crate::code::PyVersion;

/// What the decoder must know about an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// Which one.
    pub opcode: Opcode,
    /// Inline cache units (two bytes each) behind it.
    pub n_caches: u8,
    /// Whether its argument means something (`dis` prints none otherwise).
    pub has_arg: bool,
}

/// The opcode with this number; `None` for numbers that `co_code` never holds.
pub fn lookup(version: PyVersion, number: u8) -> Option<OpcodeInfo> {
    let table: &[Option<OpcodeInfo>; 256] = match version {
        PyVersion::V311 => &V311,
        PyVersion::V312 => &V312,
        PyVersion::V313 => &V313,
    };
    table[usize::from(number)]
}

/// Name of `CALL_INTRINSIC_1`'s argument, as CPython spells it.
pub fn intrinsic_1(number: u32) -> Option<&'static str> {
    generated::INTRINSICS_1.get(number as usize).copied()
}

/// Name of `CALL_INTRINSIC_2`'s argument, as CPython spells it.
pub fn intrinsic_2(number: u32) -> Option<&'static str> {
    generated::INTRINSICS_2.get(number as usize).copied()
}

static V311: [Option<OpcodeInfo>; 256] = by_number(generated::V311);
static V312: [Option<OpcodeInfo>; 256] = by_number(generated::V312);
static V313: [Option<OpcodeInfo>; 256] = by_number(generated::V313);

const fn by_number(rows: &[(u8, OpcodeInfo)]) -> [Option<OpcodeInfo>; 256] {
    let mut table = [None; 256];
    let mut row = 0;
    while row < rows.len() {
        table[rows[row].0 as usize] = Some(rows[row].1);
        row += 1;
    }
    table
}
