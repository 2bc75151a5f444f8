//! One row of the tensor table: name, lengths, format, and where the data lie.
//!
//! In: a reader, and the file's alignment and data. Out: a `TensorInfo` whose range lies inside the file and has exactly the
//! bytes that its lengths need in its format.

use std::fmt;
use std::ops::Range;

use overdrive_kernels::Format;

use super::error::Problem;
use super::reader::Reader;

/// Where a tensor lies and how it is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Lengths of its axes, one to four of them, none 0, outermost first as in NumPy: `[n_rows, n_cols]` for a matrix. (Files
    /// have them the other way round.) Blocks lie along the last.
    pub shape: Vec<usize>,
    /// How its values are stored.
    pub format: Format,
    /// Its bytes in the file.
    pub range: Range<usize>,
}

impl TensorInfo {
    /// Length of a row: the last axis.
    pub fn n_cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(0)
    }

    /// How many rows there are: the product of all axes but the last.
    pub fn n_rows(&self) -> usize {
        self.shape.iter().rev().skip(1).product()
    }

    /// How many values there are.
    pub fn n_values(&self) -> usize {
        self.shape.iter().product()
    }

    /// How many bytes they take in the file.
    pub fn n_bytes(&self) -> usize {
        self.range.len()
    }
}

/// A number of the table's type column that no format here has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownFormat {
    /// The number.
    pub number: u32,
}

impl UnknownFormat {
    /// GGUF's name for it, where it has one.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(number, _)| *number == self.number).map(|(_, name)| *name)
    }

    /// Whether GGUF defines it, or did.
    pub fn is_known(self) -> bool {
        self.name().is_some()
    }
}

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} (type {}), which is not supported; these are: ", self.number)?,
            None => {
                write!(f, "type {}, which is none that GGUF is known to have; supported are: ", self.number)?;
            }
        }
        for (i, format) in Format::ALL.into_iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, format.name())?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownFormat {}

/// Types that GGUF files have, or had, and that are not decoded here.
const NAMES: [(u32, &str); 32] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
    (42, "Q2_0"),
];

/// The format with this number.
///
/// # Errors
/// `UnknownFormat`, which says GGUF's name for it.
pub fn format_of(number: u32) -> Result<Format, UnknownFormat> {
    Format::from_ggml(number).ok_or(UnknownFormat { number })
}

/// The format with this name, upper or lower case.
///
/// # Errors
/// `Some(UnknownFormat)` for a name that GGUF has and that is not decoded here, `None` for any other.
pub fn format_named(name: &str) -> Result<Format, Option<UnknownFormat>> {
    if let Some(format) = Format::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(name)) {
        return Ok(format);
    }
    let known = NAMES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name));
    Err(known.map(|(number, _)| UnknownFormat { number: *number }))
}

/// A row of the table as it stands in the file.
pub(super) struct Row {
    /// In the file's order.
    lengths: Vec<u64>,
    format: u32,
    offset: u64,
}

impl Row {
    /// The fewest bytes that a row takes with its name.
    const LEAST_BYTES: u64 = 8 + 4 + 8 + 4 + 8;

    /// Tensors that a file may have. The largest models have thousands.
    const MOST: u64 = 1 << 20;

    /// Reads the number of rows.
    pub(super) fn count(reader: &mut Reader<'_>) -> Result<u64, Problem> {
        reader.count(Self::LEAST_BYTES, Self::MOST)
    }

    /// Reads what stands behind a name.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Problem> {
        let n_axes = reader.u32()?;
        if !(1..=4).contains(&n_axes) {
            return Err(Problem::Axes(n_axes));
        }
        let lengths = (0..n_axes).map(|_| reader.u64()).collect::<Result<_, _>>()?;
        Ok(Self { lengths, format: reader.u32()?, offset: reader.u64()? })
    }

    /// Checks it against the file's alignment and its data, which begin at `data_start` and have `has` bytes.
    pub(super) fn check(
        self,
        name: &str,
        alignment: u64,
        data_start: usize,
        has: usize,
    ) -> Result<TensorInfo, Problem> {
        let format = format_of(self.format).map_err(Problem::Format)?;
        if let Some(axis) = self.lengths.iter().position(|length| *length == 0) {
            return Err(Problem::EmptyAxis { axis });
        }
        let too_large = || Problem::TooLarge { lengths: self.lengths.clone() };
        let length = self.lengths[0];
        if !length.is_multiple_of(format.block_values() as u64) {
            return Err(Problem::Row { length, format });
        }
        let n_blocks = self.lengths[1..]
            .iter()
            .try_fold(length / format.block_values() as u64, |n, length| n.checked_mul(*length));
        let bytes = n_blocks
            .and_then(|n| n.checked_mul(format.block_bytes() as u64))
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .ok_or_else(too_large)?;
        if !self.offset.is_multiple_of(alignment) {
            return Err(Problem::Unaligned { offset: self.offset, alignment });
        }
        // Both are at most `has` behind this line, so they and their sum fit.
        if self.offset > has as u64 || bytes > has as u64 - self.offset {
            return Err(Problem::Outside { offset: self.offset, bytes, has: has as u64 });
        }
        let shape =
            self.lengths.iter().rev().map(|length| usize::try_from(*length)).collect::<Result<_, _>>();
        let start = data_start + self.offset as usize;
        Ok(TensorInfo {
            name: name.into(),
            shape: shape.map_err(|_| too_large())?,
            format,
            range: start..start + bytes as usize,
        })
    }
}
