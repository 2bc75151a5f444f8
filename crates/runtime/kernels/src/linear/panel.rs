//! Many rows: the weights of some groups are unpacked once for a run of columns and then meet all rows.
//!
//! In: a product, groups of its matrix, groups of 16 rows. Out: its outputs; between two runs of columns they hold the sums so
//! far. How weights are unpacked and multiplied is the [`Engine`]'s.

#![expect(unsafe_code, reason = "kernels take addresses")]

use std::mem::MaybeUninit;
use std::ops::Range;

use super::Product;
use super::layout::{BLOCK, Codes, LANES, Packing, SPAN, Scales};
use super::rows::code_run;

/// Bytes for all unpacked weights; a part of the second cache.
const ROOM: usize = 144 << 10;

/// Unpacked weights of a run of some groups: most often cells of unpacked scales, with 8 code vectors for each block.
#[repr(C, align(64))]
struct Panels([MaybeUninit<u8>; ROOM]);

/// Rows from a row and a block on, as addresses of what [`super::Rows`] holds.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) codes: *const i8,
    pub(crate) steps: *const f32,
    pub(crate) totals: *const f32,
    /// Not to be read where the zero point is 0.
    pub(crate) bias: *const i32,
    /// Bytes from the codes of a row to those of the next.
    pub(crate) stride: usize,
}

impl Side {
    /// The same from a later lane on.
    pub(crate) fn lane(&self, lane: usize) -> Self {
        Self {
            codes: self.codes.wrapping_add(lane * self.stride),
            steps: self.steps.wrapping_add(lane),
            totals: self.totals.wrapping_add(lane),
            bias: self.bias.wrapping_add(lane),
            stride: self.stride,
        }
    }
}

/// Where the outputs of some rows go.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// The first output of the first row.
    pub(crate) start: *mut f32,
    /// Values from one row to the next.
    pub(crate) stride: usize,
    /// Outputs of a row, at most 16.
    pub(crate) n_lanes: usize,
    /// Rows, at most 16.
    pub(crate) n_rows: usize,
}

impl Target {
    /// From a later row on.
    pub(crate) fn row(&self, row: usize) -> Self {
        Self { start: self.start.wrapping_add(row * self.stride), n_rows: self.n_rows - row, ..*self }
    }
}

impl Product<'_> {
    /// Rows of a group, from a block on, for a quantised matrix.
    pub(crate) fn side(&self, row_group: usize, block: usize) -> Side {
        let scales = Packing::of(self.matrix.format()).map_or(Scales::Half, |packing| packing.scales);
        let coded = self.coded.expect("rows for quantised matrices have codes");
        let (codes, steps, totals, place) = coded.place(row_group, block);
        Side {
            codes,
            steps,
            totals,
            bias: self.bias.as_ptr().wrapping_add(place << u32::from(scales.has_halves())),
            stride: code_run(scales.span()),
        }
    }

    /// Outputs of a group of the matrix for a group of rows.
    pub(crate) fn target(&self, g: usize, row_group: usize) -> Target {
        let (lanes, stride) = (self.rows.lanes(), self.matrix.n_rows());
        Target {
            start: self.out.start().wrapping_add(row_group * lanes * stride + g * LANES),
            stride,
            n_lanes: LANES.min(stride - g * LANES),
            n_rows: lanes.min(self.rows.len() - row_group * lanes),
        }
    }
}

/// What a level does with a panel.
pub(crate) trait Engine {
    /// Blocks in a run, and groups that are unpacked at once: with the codes of 16 rows they fill the first cache. Whole cells.
    const RUN: usize = 32;
    const PANELS: usize = 2;
    /// Bytes of a run of a group.
    const PANEL_BYTES: usize =
        Self::RUN * Codes::Eight.bytes() + Self::RUN / SPAN * Scales::SpanMin.bytes(SPAN);

    /// Unpacks the blocks of a run of a group.
    ///
    /// # Safety
    /// The processor has the engine's level; `cells` and `panel` hold `n_blocks`.
    unsafe fn unpack(packing: Packing, cells: *const u8, n_blocks: usize, panel: *mut u8);

    /// Adds a panel's products to outputs, which count as zeros when it is the first. By reference: a copy of what was just
    /// written would wait for outputs on their way to memory.
    ///
    /// # Safety
    /// As above; `side` holds `n_blocks` of 16 rows, no other thread uses `target`.
    unsafe fn multiply(
        packing: Packing,
        panel: *const u8,
        n_blocks: usize,
        side: &Side,
        target: &Target,
        is_first: bool,
    );
}

/// Computes outputs of a quantised matrix.
///
/// # Safety
/// The processor has the engine's level; rows lie in groups of 16; no other thread computes these outputs.
pub(crate) unsafe fn compute<E: Engine>(
    product: &Product<'_>,
    groups: Range<usize>,
    row_groups: Range<usize>,
) {
    let Some(packing) = Packing::of(product.matrix.format()) else { return };
    let n_blocks = product.matrix.n_cols() / BLOCK;
    const { assert!(E::PANELS * E::PANEL_BYTES <= ROOM) };
    let mut panels = Panels([MaybeUninit::uninit(); ROOM]);
    let panels: *mut u8 = panels.0.as_mut_ptr().cast();
    for start in groups.clone().step_by(E::PANELS) {
        let groups = start..groups.end.min(start + E::PANELS);
        // Without columns there is one run of none: outputs are zeros.
        for first in (0..n_blocks.max(1)).step_by(E::RUN) {
            let n = E::RUN.min(n_blocks - first);
            for g in groups.clone() {
                let cells = product.matrix.group(g).as_ptr().wrapping_add(packing.cell_start(first));
                // SAFETY: the run begins at a cell and lies inside the group; there is room for the largest runs.
                unsafe { E::unpack(packing, cells, n, panels.add((g - start) * E::PANEL_BYTES)) };
            }
            for row_group in row_groups.clone() {
                let side = product.side(row_group, first);
                for g in groups.clone() {
                    let target = product.target(g, row_group);
                    let panel = panels.wrapping_add((g - start) * E::PANEL_BYTES);
                    // SAFETY: rows have as many blocks as the matrix; outputs are ours, as the caller promises.
                    unsafe { E::multiply(packing, panel, n, &side, &target, first == 0) };
                }
            }
        }
    }
}
