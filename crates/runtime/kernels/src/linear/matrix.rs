//! A matrix of weights in the layout that products read.

#![expect(unsafe_code, reason = "threads fill disjoint groups")]

use std::fmt;

use super::layout::{BLOCK, LANES, group_bytes};
use super::memory::{Memory, Parts};
use super::oracle::{Unpacked, float_weight};
use super::repack::repack;
use crate::format::Format;

/// A matrix of weights, laid out for vectors. The layout is the same on each processor.
pub struct Matrix {
    format: Format,
    n_rows: usize,
    n_cols: usize,
    /// Bytes of 16 rows.
    group_bytes: usize,
    groups: Memory,
}

/// Bytes or rows that do not have the shape they were said to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeError(pub String);

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ShapeError {}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix({} x {} of {})", self.n_rows, self.n_cols, self.format.name())
    }
}

impl Matrix {
    /// From blocks as a file holds them: `n_rows` (outputs) rows of `n_cols` (inputs) values. Copies them into another order, on
    /// all threads of the pool; the bytes are read once, front to back.
    ///
    /// # Errors
    /// `ShapeError` when the bytes are not that.
    pub fn new(format: Format, n_rows: usize, n_cols: usize, bytes: &[u8]) -> Result<Self, ShapeError> {
        let misfit =
            || ShapeError(format!("{} bytes are not {n_rows} x {n_cols} of {}", bytes.len(), format.name()));
        let row_bytes = format.row_bytes(n_cols).ok_or_else(misfit)?;
        if row_bytes.checked_mul(n_rows) != Some(bytes.len()) {
            return Err(misfit());
        }
        let group_bytes = group_bytes(format, n_cols).ok_or_else(misfit)?;
        let n_groups = n_rows.div_ceil(LANES);
        let n_bytes =
            n_groups.checked_mul(group_bytes).filter(|n| *n < isize::MAX as usize).ok_or_else(misfit)?;
        let mut groups = Memory::lasting(n_bytes);
        if n_bytes > 0 {
            fill(format, n_cols, bytes, row_bytes, &mut groups, group_bytes)?;
        }
        Ok(Self { format, n_rows, n_cols, group_bytes, groups })
    }

    /// Outputs.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Inputs.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// How the weights were stored.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Bytes that one product reads; nearly those of the file.
    pub fn n_bytes(&self) -> usize {
        self.groups.len()
    }

    /// Decodes row `r` into `out`: the values that [`crate::decode`] gives for the row of the file.
    ///
    /// # Panics
    /// When there is no such row, or `out` is not `n_cols` long.
    pub fn row(&self, r: usize, out: &mut [f32]) {
        assert!(r < self.n_rows, "row {r} of {self:?}");
        assert_eq!(out.len(), self.n_cols, "values of a row of {self:?}");
        let (group, lane) = (self.group(r / LANES), r % LANES);
        if self.is_quantised() {
            for (b, out) in out.chunks_exact_mut(BLOCK).enumerate() {
                Unpacked::new(self.format, self.n_cols, group, b).decode(lane, out);
            }
        } else {
            for (k, out) in out.iter_mut().enumerate() {
                *out = float_weight(self.format, group, k, lane);
            }
        }
    }

    /// Whether products take 8-bit activations, not `f32`.
    pub fn is_quantised(&self) -> bool {
        self.format.block_values() > 1
    }

    pub(crate) fn n_groups(&self) -> usize {
        self.n_rows.div_ceil(LANES)
    }

    /// Bytes of rows `16 g` to `16 g + 15`.
    pub(crate) fn group(&self, g: usize) -> &[u8] {
        &self.groups.bytes()[g * self.group_bytes..][..self.group_bytes]
    }
}

/// All groups, on the pool.
fn fill(
    format: Format,
    n_cols: usize,
    bytes: &[u8],
    row_bytes: usize,
    groups: &mut Memory,
    group_bytes: usize,
) -> Result<(), ShapeError> {
    let n_groups = groups.len() / group_bytes;
    let parts = Parts::new(groups.bytes_mut());
    let sources: Vec<&[u8]> = bytes.chunks(row_bytes * LANES).collect();
    overdrive_pool::run(n_groups as i64, &|range| {
        for g in range {
            let g = g as usize;
            let rows: Vec<&[u8]> = sources[g].chunks_exact(row_bytes).collect();
            // SAFETY: each group is filled once.
            let group = unsafe { parts.part(g * group_bytes, group_bytes) };
            repack(format, n_cols, &rows, group);
        }
    })
    .map_err(|_| ShapeError(format!("weights of {} could not be brought into order", format.name())))
}
