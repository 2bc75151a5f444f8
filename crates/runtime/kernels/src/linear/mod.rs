//! Matrices times rows of activations: cut into parts, which the pool's threads give to the kernels of this processor.
//!
//! In: matrices and rows, both prepared. Out: rows of `f32`. What an output is does not depend on the cut: each is summed by one
//! thread, in the order that `oracle` states.

#![expect(
    unsafe_code,
    reason = "threads write disjoint outputs; kernels run where the processor has their level"
)]

mod layout;
mod memory;
mod repack;
#[cfg(target_arch = "x86_64")]
mod quads;
mod matrix;
mod rows;
mod pieces;
mod oracle;
#[cfg(target_arch = "x86_64")]
mod panel;
#[cfg(target_arch = "x86_64")]
mod floats;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use matrix::{BuildError, Matrix, ShapeError, Source};
pub use memory::Room;
pub use rows::Rows;

use crate::cpu::Level;
use layout::{BLOCK, LANES, Packing};
use memory::Parts;
use rows::Coded;

/// Bytes of activations that stay in the second cache beside a panel of weights.
const TILE_BYTES: usize = 1 << 20;
/// Parts for each thread, so that one can help another.
const PARTS: usize = 4;

/// Each matrix times each row, in one job of the pool: `out` is `(rows.len(), matrix.n_rows())`. Several matrices at once cost
/// less than one after the other.
///
/// # Panics
/// When shapes do not fit, or rows were not prepared for the format of a matrix ([`Rows::suit`]).
pub fn multiply(products: &mut [(&Matrix, &mut [f32])], rows: &Rows) {
    for (matrix, out) in &*products {
        assert_eq!(matrix.n_cols(), rows.n_cols(), "columns of {matrix:?} and values of a row");
        assert_eq!(out.len(), rows.len() * matrix.n_rows(), "outputs of {matrix:?} for {} rows", rows.len());
        assert!(rows.suit(matrix.format()), "rows were not prepared for {matrix:?}");
    }
    if rows.is_empty() {
        return;
    }
    let products: Vec<Product<'_>> = products
        .iter_mut()
        .map(|(matrix, out)| {
            let packing = Packing::of(matrix.format());
            let coded = packing.and_then(|packing| rows.coded(packing.scales.span()));
            let bias = coded.zip(packing).map_or(&[][..], |(coded, packing)| coded.bias(packing.zero));
            Product { matrix, rows, coded, bias, out: Parts::new(out) }
        })
        .collect();
    let n_groups: usize = products.iter().map(|product| product.matrix.n_groups()).sum();
    let value_bytes = if products.iter().all(|product| product.matrix.is_quantised()) { 1 } else { 4 };
    let tile = tile_groups(rows, value_bytes, n_groups);
    let n_tiles = rows.n_groups().div_ceil(tile);
    overdrive_pool::run((n_groups * n_tiles) as i64, &|range| {
        let (mut next, end) = (range.start as usize, range.end as usize);
        while next < end {
            let (t, g) = (next / n_groups, next % n_groups);
            let tile = t * tile..rows.n_groups().min((t + 1) * tile);
            let n = (end - next).min(n_groups - g);
            for_each_product(&products, g..g + n, |product, groups| product.compute(groups, tile.clone()));
            next += n;
        }
    })
    .expect("kernels do not panic on shapes that were checked");
}

/// Groups of rows that are multiplied at a time.
fn tile_groups(rows: &Rows, value_bytes: usize, n_groups: usize) -> usize {
    let fits = TILE_BYTES / (rows.n_blocks() * rows.lanes() * BLOCK * value_bytes).max(1);
    let wanted = (overdrive_pool::threads() * PARTS).div_ceil(n_groups.max(1));
    fits.min(rows.n_groups().div_ceil(wanted)).max(1)
}

/// Groups counted through all products, as groups of each.
fn for_each_product<'a>(
    products: &'a [Product<'a>],
    groups: Range<usize>,
    compute: impl Fn(&'a Product<'a>, Range<usize>),
) {
    let mut first = 0;
    for product in products {
        let n = product.matrix.n_groups();
        let (from, to) = (groups.start.max(first), groups.end.min(first + n));
        if from < to {
            compute(product, from - first..to - first);
        }
        first += n;
    }
}

/// One matrix, and where its products go.
pub(crate) struct Product<'a> {
    matrix: &'a Matrix,
    rows: &'a Rows,
    /// The rows as codes; none where the matrix is not quantised.
    coded: Option<&'a Coded>,
    /// As [`Coded::bias`] gives it.
    bias: &'a [i32],
    /// `(rows, n_rows)`.
    out: Parts<'a, f32>,
}

impl Product<'_> {
    /// Outputs of groups of the matrix for groups of rows. No two threads get the same pair.
    fn compute(&self, groups: Range<usize>, row_groups: Range<usize>) {
        match self.rows.level() {
            // SAFETY: a level is only chosen where the processor has it; shapes were checked.
            #[cfg(target_arch = "x86_64")]
            Level::Amx => unsafe { amx::compute(self, groups, row_groups) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { avx512::compute(self, groups, row_groups) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { avx2::compute(self, groups, row_groups) },
            _ => self.compute_plainly(groups, row_groups),
        }
    }

    /// The rows as tiles of BF16 take them.
    #[cfg(target_arch = "x86_64")]
    fn pieces(&self) -> &pieces::Pieces {
        self.rows.pieces().expect("products ask for rows of the matrix's kind")
    }

    fn compute_plainly(&self, groups: Range<usize>, row_groups: Range<usize>) {
        let lanes = self.rows.lanes();
        for g in groups {
            let n = LANES.min(self.matrix.n_rows() - g * LANES);
            for row in row_groups.start * lanes..self.rows.len().min(row_groups.end * lanes) {
                let sums = oracle::product(self.matrix, g, self.rows, row);
                // SAFETY: this group's outputs of this row, which no other thread has.
                let out = unsafe { self.out.part(row * self.matrix.n_rows() + g * LANES, n) };
                out.copy_from_slice(&sums[..n]);
            }
        }
    }
}
