//! Rows of one array, shared out to the threads of the pool.
//!
//! In: the array and what to do with a range of its rows. Out: it was done to each row once. Small work stays on the
//! thread that asks.

#![expect(unsafe_code, reason = "hands disjoint pieces of one array to several threads")]

use std::marker::PhantomData;
use std::ops::Range;

/// An array of which several threads change pieces that do not overlap.
pub(crate) struct Pieces<'a, T> {
    base: *mut T,
    len: usize,
    borrowed: PhantomData<&'a mut [T]>,
}

// SAFETY: as `&mut [T]`, of which each thread takes pieces of its own.
unsafe impl<T: Send> Sync for Pieces<'_, T> {}
// SAFETY: as `&mut [T]`.
unsafe impl<T: Send> Send for Pieces<'_, T> {}

impl<'a, T> Pieces<'a, T> {
    pub(crate) fn new(all: &'a mut [T]) -> Self {
        Self { base: all.as_mut_ptr(), len: all.len(), borrowed: PhantomData }
    }

    /// The elements of a range.
    ///
    /// # Panics
    /// When the range is not inside.
    ///
    /// # Safety
    /// No two pieces that are in use at the same time overlap.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that pieces do not overlap")]
    pub(crate) unsafe fn piece(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "a piece outside of its array");
        // SAFETY: inside the array, which is borrowed for as long as `self`; not used elsewhere, as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(range.start), range.len()) }
    }
}

/// Calls `body(rows, elements of these rows)` until every row of `row` elements was in one call; the last may be shorter.
/// With `few` elements or less there is one call, on this thread.
///
/// # Panics
/// When `body` does.
pub(crate) fn spread<T: Send>(
    all: &mut [T],
    row: usize,
    few: usize,
    body: &(dyn Fn(Range<usize>, &mut [T]) + Sync),
) {
    let len = all.len();
    let n_rows = len.div_ceil(row);
    if len <= few {
        return body(0..n_rows, all);
    }
    let pieces = Pieces::new(all);
    let done = overdrive_pool::run(n_rows as i64, &|rows: Range<i64>| {
        let rows = rows.start as usize..rows.end as usize;
        // SAFETY: the pool hands out each row once, and rows do not overlap.
        let piece = unsafe { pieces.piece(rows.start * row..(rows.end * row).min(len)) };
        body(rows, piece);
    });
    done.expect("a kernel panics only where its caller broke its contract");
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn every_row_is_in_one_call() {
        for (len, row) in [(0, 3), (1, 3), (100, 7), (10_000, 16), (10_001, 16)] {
            for few in [0, 100_000] {
                let mut all = vec![0usize; len];
                spread(&mut all, row, few, &|rows, piece| {
                    assert_eq!(piece.len(), (rows.end * row).min(len) - rows.start * row);
                    for (i, x) in piece.iter_mut().enumerate() {
                        *x += rows.start * row + i + 1;
                    }
                });
                assert!(all.iter().enumerate().all(|(i, x)| *x == i + 1), "{len} {row} {few}");
            }
        }
    }
}
