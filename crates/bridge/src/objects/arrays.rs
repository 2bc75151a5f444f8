//! What a loop nest asks about whole arrays before it runs without checks.
//!
//! In: exact arrays or tensors (their headers are laid out alike) of floats, whose memory machine code may read. Out:
//! whether two share memory, whether elements are small. Runs no Python code.
#![expect(unsafe_code, reason = "reads headers and elements of arrays; called by machine code")]

use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi::PyObject;

use overdrive_base::flavour::DType;

use super::layout::array;
use crate::pool;

/// Looking at an element costs a fraction of computing with it.
const LOOKS_PER_STEP: i64 = 4;

/// An array's header.
struct Header<'a> {
    data: *const u8,
    dims: &'a [i64],
    /// In bytes.
    strides: &'a [i64],
}

impl Header<'_> {
    /// # Safety
    /// A live array, and nothing runs while the header is used.
    unsafe fn read<'a>(object: *mut PyObject) -> Header<'a> {
        // SAFETY: the caller's contract; the layout is that of the self-test.
        unsafe {
            let at = |offset: i32| object.cast::<u8>().offset(offset as isize);
            let rank = *at(array::NDIM).cast::<i32>() as usize;
            let words = |offset: i32| match rank {
                0 => &[][..],
                _ => slice::from_raw_parts(*at(offset).cast::<*const i64>(), rank),
            };
            Header { data: *at(array::DATA).cast(), dims: words(array::DIMS), strides: words(array::STRIDES) }
        }
    }

    /// First byte and the one behind the last.
    fn extent(&self) -> (i128, i128) {
        let (mut low, mut high) = (self.data as i128, self.data as i128);
        for (dim, stride) in self.dims.iter().zip(self.strides) {
            let reach = i128::from(*stride) * i128::from((*dim - 1).max(0));
            if reach < 0 { low += reach } else { high += reach }
        }
        // An element has no more than 16 bytes.
        (low, high + 16)
    }
}

/// Whether the memory ranges of two arrays do not meet.
pub(super) unsafe extern "C" fn apart(a: *mut PyObject, b: *mut PyObject) -> u8 {
    // SAFETY: the table's contract.
    let (a, b) = unsafe { (Header::read(a).extent(), Header::read(b).extent()) };
    u8::from(a.1 <= b.0 || b.1 <= a.0)
}

/// Bounds that elements shall keep.
#[derive(Clone, Copy)]
struct Asked {
    /// Magnitudes are below 2^k.
    k: i32,
    /// Elements are at least 2^-k.
    is_positive: bool,
}

/// As [`within`], and all of them are at least 2^-k.
pub(super) unsafe extern "C" fn above(
    object: *mut PyObject,
    element: i64,
    k: i64,
    lo0: i64,
    hi0: i64,
    lo1: i64,
    hi1: i64,
    steps: i64,
) -> u8 {
    let asked = Asked { k: k as i32, is_positive: true };
    // SAFETY: the table's contract.
    unsafe { keep(object, element, asked, [(lo0, hi0), (lo1, hi1)], steps) }
}

/// Whether all elements with an index in `lo0..=hi0` on the first axis, in `lo1..=hi1` on the second if there is one, and
/// with any on others, are below 2^k in magnitude (so no NaN). False for indices outside, and when these are many more
/// elements than `steps`.
pub(super) unsafe extern "C" fn within(
    object: *mut PyObject,
    element: i64,
    k: i64,
    lo0: i64,
    hi0: i64,
    lo1: i64,
    hi1: i64,
    steps: i64,
) -> u8 {
    let asked = Asked { k: k as i32, is_positive: false };
    // SAFETY: the table's contract.
    unsafe { keep(object, element, asked, [(lo0, hi0), (lo1, hi1)], steps) }
}

unsafe fn keep(object: *mut PyObject, element: i64, asked: Asked, spans: [(i64, i64); 2], steps: i64) -> u8 {
    // SAFETY: the callers' contract.
    let header = unsafe { Header::read(object) };
    match part(&header, spans, steps) {
        // SAFETY: the indices are inside, the elements of that type.
        Part::Of(ranges, _) => u8::from(unsafe { look(&header, &ranges, element, asked) }),
        Part::Known(answer) => u8::from(answer),
    }
}

/// As [`within`], by as many threads as a parallel loop has: it is asked in front of one.
pub(super) unsafe extern "C" fn within_shared(
    object: *mut PyObject,
    element: i64,
    k: i64,
    lo0: i64,
    hi0: i64,
    lo1: i64,
    hi1: i64,
    steps: i64,
) -> u8 {
    let asked = Asked { k: k as i32, is_positive: false };
    // SAFETY: the table's contract.
    let header = unsafe { Header::read(object) };
    let (ranges, n) = match part(&header, [(lo0, hi0), (lo1, hi1)], steps) {
        Part::Of(ranges, n) => (ranges, n),
        Part::Known(answer) => return u8::from(answer),
    };
    // SAFETY: the GIL is held.
    if n < SHARED_FROM || !unsafe { pool::may_be_used() } {
        // SAFETY: as in `keep`.
        return u8::from(unsafe { look(&header, &ranges, element, asked) });
    }
    let Some((lo, hi)) = ranges.first().copied() else { return 0 };
    let n_parts = (hi - lo + 1).min(SHARED_PARTS);
    let is_small = AtomicBool::new(true);
    let header = Shared(header);
    let done = overdrive_pool::run(n_parts, &|parts| {
        let header = &header;
        for i in parts {
            let cut = |i: i64| lo + (hi - lo + 1) * i / n_parts;
            let mut ranges = ranges.clone();
            ranges[0] = (cut(i), cut(i + 1) - 1);
            // SAFETY: as in `keep`; the thread that holds the GIL waits for this one.
            if is_small.load(Ordering::Relaxed) && !unsafe { look(&header.0, &ranges, element, asked) } {
                is_small.store(false, Ordering::Relaxed);
            }
        }
    });
    u8::from(done.is_ok() && is_small.into_inner())
}

/// Elements below which a look is not worth another thread.
const SHARED_FROM: i64 = 1 << 15;
/// Parts of a look by several threads.
const SHARED_PARTS: i64 = 64;

/// A header that other threads read while the one that holds the GIL waits for them.
struct Shared<'a>(Header<'a>);
// SAFETY: nothing changes a header meanwhile.
unsafe impl Sync for Shared<'_> {}

/// What is to be looked at.
enum Part {
    /// First and last index on each axis, and how many elements that are.
    Of(Vec<(i64, i64)>, i64),
    /// The answer needs no look.
    Known(bool),
}

fn part(header: &Header<'_>, spans: [(i64, i64); 2], steps: i64) -> Part {
    let mut spans = spans.into_iter();
    let mut ranges = Vec::with_capacity(header.dims.len());
    let mut n: i64 = 1;
    for dim in header.dims {
        let (lo, hi) = spans.next().unwrap_or((0, *dim - 1));
        if hi < lo {
            // No iteration at all.
            return Part::Known(true);
        }
        if lo < 0 || hi >= *dim {
            return Part::Known(false);
        }
        n = n.saturating_mul(hi - lo + 1);
        ranges.push((lo, hi));
    }
    if n > steps.saturating_mul(LOOKS_PER_STEP).saturating_add(64) {
        return Part::Known(false);
    }
    Part::Of(ranges, n)
}

/// # Safety
/// The indices are inside, the elements of that type.
unsafe fn look(header: &Header<'_>, ranges: &[(i64, i64)], element: i64, asked: Asked) -> bool {
    let mut ranges = ranges.to_vec();
    let strides = join_rows(header.dims, header.strides, &mut ranges);
    let high = 2f64.powi(asked.k);
    // No element is below the smallest number that lets everything through.
    let low = if asked.is_positive { 2f64.powi(-asked.k) } else { f64::NEG_INFINITY };
    let narrow = |x: f64| if asked.is_positive { (x as f32).max(f32::MIN_POSITIVE) } else { x as f32 };
    let (wide, narrow) = ((low, high), (narrow(low), high as f32));
    // SAFETY: by contract.
    let test =
        |row: &dyn Fn(*const u8, i64, usize) -> bool| unsafe { small(&strides, &ranges, header.data, row) };
    if element == DType::F64.number() {
        test(&|at, stride, n| row_f64(at, stride, n, wide))
    } else if element == DType::F32.number() {
        test(&|at, stride, n| row_f32(at, stride, n, narrow))
    } else if element == DType::I64.number() {
        test(&|at, stride, n| row_i64(at, stride, n, 1 << asked.k.clamp(0, 62)))
    } else {
        false
    }
}

/// Makes one axis of the last two as long as whole rows follow each other in memory; gives the strides.
fn join_rows(dims: &[i64], strides: &[i64], ranges: &mut Vec<(i64, i64)>) -> Vec<i64> {
    let (mut dims, mut strides) = (dims.to_vec(), strides.to_vec());
    while let ([.., rows, dim], [.., outer, inner], [.., (lo, hi), row]) =
        (&dims[..], &strides[..], &ranges[..])
        && *row == (0, dim - 1)
        && *outer == dim.wrapping_mul(*inner)
    {
        let (all, range, inner) = (rows * dim, (lo * dim, hi * dim + dim - 1), *inner);
        for one in [&mut dims, &mut strides] {
            one.truncate(one.len() - 2);
        }
        ranges.truncate(ranges.len() - 2);
        dims.push(all);
        strides.push(inner);
        ranges.push(range);
    }
    strides
}

/// Tests rows along the last axis.
unsafe fn small(
    strides: &[i64],
    ranges: &[(i64, i64)],
    at: *const u8,
    row: &dyn Fn(*const u8, i64, usize) -> bool,
) -> bool {
    let ([(lo, hi), inner @ ..], [stride, inner_strides @ ..]) = (ranges, strides) else {
        return row(at, 0, 1);
    };
    let from = at.wrapping_offset((lo * stride) as isize);
    if inner.is_empty() {
        return row(from, *stride, (hi - lo + 1) as usize);
    }
    (0..=hi - lo).all(|i| {
        // SAFETY: as the caller's.
        unsafe { small(inner_strides, inner, from.wrapping_offset((i * stride) as isize), row) }
    })
}

macro_rules! row_test {
    ($name:ident, $plain:ident, $wide:ident, $ty:ty, $limits:ty, $all:ty, $fits:expr) => {
        /// Whether `n` elements, `stride` bytes apart, keep the limits.
        fn $name(at: *const u8, stride: i64, n: usize, limits: $limits) -> bool {
            if stride != size_of::<$ty>() as i64 {
                return (0..n as i64).all(|i| {
                    // SAFETY: elements of the array, aligned.
                    let x = unsafe { *at.wrapping_offset((i * stride) as isize).cast::<$ty>() };
                    $fits(x, limits) < 0
                });
            }
            // SAFETY: as above; side by side.
            let row = unsafe { slice::from_raw_parts(at.cast::<$ty>(), n) };
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has it.
                return unsafe { $wide(row, limits) };
            }
            $plain(row, limits)
        }

        /// What is negative for every element is so for all of them. No comparison, so any vectors do.
        #[inline(always)]
        fn $plain(row: &[$ty], limits: $limits) -> bool {
            row.iter().fold(-1, |all: $all, x| all & $fits(*x, limits)) < 0
        }

        /// The same for wider vectors.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2")]
        unsafe fn $wide(row: &[$ty], limits: $limits) -> bool {
            $plain(row, limits)
        }
    };
}

macro_rules! float_fits {
    ($ty:ty, $bits:ty) => {
        // Negative for an element that is, in magnitude, below the second limit and, unless that is negative, at least the
        // first. Magnitudes are ordered as their bits are, infinities and NaNs last.
        |x: $ty, (low, high): ($ty, $ty)| {
            let below = (x.abs().to_bits() as $bits).wrapping_sub(high.to_bits() as $bits);
            if low < 0.0 {
                return below;
            }
            // The number before the lowest minus one that is large enough is negative; so is a clear sign turned round.
            let (bits, before) = (x.to_bits() as $bits, low.to_bits() as $bits - 1);
            below & before.wrapping_sub(bits) & !bits
        }
    };
}

row_test!(row_f64, plain_f64, wide_f64, f64, (f64, f64), i64, float_fits!(f64, i64));
row_test!(row_f32, plain_f32, wide_f32, f32, (f32, f32), i32, float_fits!(f32, i32));
// The complement of a negative one is below the limit if that itself is not below it: -2^k counts as small.
row_test!(row_i64, plain_i64, wide_i64, i64, i64, i64, |x: i64, limit: i64| (x ^ (x >> 63))
    .wrapping_sub(limit));

#[cfg(test)]
mod tests {
    use super::{join_rows, row_f32, row_f64, row_i64};

    #[test]
    fn rows_that_follow_each_other_are_one() {
        let joined = |dims: &[i64], strides: &[i64], ranges: &[(i64, i64)]| {
            let mut ranges = ranges.to_vec();
            (join_rows(dims, strides, &mut ranges), ranges)
        };
        assert_eq!(joined(&[5, 7], &[56, 8], &[(1, 3), (0, 6)]), (vec![8], vec![(7, 27)]));
        assert_eq!(joined(&[2, 5, 7], &[280, 56, 8], &[(1, 1), (0, 4), (0, 6)]), (vec![8], vec![(35, 69)]));
        assert_eq!(joined(&[2, 5, 7], &[280, 56, 8], &[(0, 1), (2, 3), (0, 6)]).1, [(0, 1), (14, 27)]);
        for (strides, ranges) in [
            ([56, 8], [(1, 3), (1, 6)]),
            ([64, 8], [(1, 3), (0, 6)]),
            ([8, 40], [(0, 4), (0, 6)]),
            ([-56, 8], [(0, 4), (0, 6)]),
        ] {
            assert_eq!(joined(&[5, 7], &strides, &ranges), (strides.to_vec(), ranges.to_vec()));
        }
        assert_eq!(joined(&[9], &[8], &[(0, 8)]), (vec![8], vec![(0, 8)]));
    }

    const ANY: f64 = f64::NEG_INFINITY;

    #[test]
    fn rows_of_all_lengths_and_strides() {
        for n in 1..600usize {
            let mut row = vec![1.0f64; n];
            let at = row.as_ptr().cast();
            assert!(row_f64(at, 8, n, (ANY, 2.0)) && !row_f64(at, 8, n, (ANY, 1.0)));
            assert!(row_f64(at, 8, n, (1.0, 2.0)) && !row_f64(at, 8, n, (1.5, 2.0)));
            assert!(row_f64(at, -8, 1, (ANY, 2.0)) && row_f64(at, 0, n, (1.0, 2.0)));
            assert!(
                row_f64(at, 16, n.div_ceil(2), (0.5, 2.0)) && !row_f64(at, 16, n.div_ceil(2), (1.5, 2.0))
            );
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -2.0] {
                row[n - 1] = bad;
                assert!(!row_f64(row.as_ptr().cast(), 8, n, (ANY, 2.0)));
                let narrow: Vec<f32> = row.iter().map(|x| *x as f32).collect();
                assert!(!row_f32(narrow.as_ptr().cast(), 4, n, (f32::NEG_INFINITY, 2.0)));
            }
            for bad in [f64::NAN, -f64::NAN, -1.0, -0.0, 0.0, 5e-324, 0.2499, 2.0, f64::INFINITY, -3.0] {
                row[n - 1] = bad;
                let at = row.as_ptr().cast();
                assert!(
                    !row_f64(at, 8, n, (0.25, 2.0))
                        && !row_f64(at.wrapping_add(8 * n - 8), 0, 1, (0.25, 2.0))
                );
                let narrow: Vec<f32> = row.iter().map(|x| *x as f32).collect();
                assert!(!row_f32(narrow.as_ptr().cast(), 4, n, (0.25, 2.0)));
            }
            row[n - 1] = 0.25;
            assert!(row_f64(row.as_ptr().cast(), 8, n, (0.25, 2.0)));
        }
    }

    #[test]
    fn rows_of_integers() {
        for n in 1..70usize {
            let mut row = vec![-3i64; n];
            let limit = 1 << 60;
            assert!(row_i64(row.as_ptr().cast(), 8, n, limit) && row_i64(row.as_ptr().cast(), -8, 1, 4));
            assert!(!row_i64(row.as_ptr().cast(), 8, n, 2) && !row_i64(row.as_ptr().cast(), 0, n, 2));
            for (x, small) in [
                (limit, false),
                (limit - 1, true),
                (-limit, true),
                (-limit - 1, false),
                (i64::MIN, false),
                (i64::MAX, false),
                (0, true),
            ] {
                row[n - 1] = x;
                assert_eq!(row_i64(row.as_ptr().cast(), 8, n, limit), small, "{x}");
            }
        }
    }
}
