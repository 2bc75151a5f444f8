//! Copies between strided memory and dense memory.
//!
//! In: an address with shape and strides that the caller vouches for. Out: the same elements in row-major order, or the
//! other way round. Axes that continue each other are merged first, so dense parts are copied in one piece.

#![expect(unsafe_code, reason = "reads and writes raw memory that the caller describes")]

/// Up to this many axes the loop's counters live on the stack: all that a tensor may have.
const MAX: usize = crate::error::MAX_NDIM;

/// Copies the elements of a strided view to `target`, row by row.
///
/// # Safety
/// Every element that `shape` and `strides` reach from `source` is readable and `item_size` bytes long, `target` has
/// room for all of them, the two do not overlap, and `shape.len() == strides.len() <= 64`.
pub unsafe fn gather(
    source: *const u8,
    shape: &[isize],
    strides: &[isize],
    item_size: usize,
    target: *mut u8,
) {
    let mut written = 0;
    // SAFETY: each run lies in the view; runs come in row-major order, so together they fill the target.
    let mut each = |offset: isize, length: usize, step: isize| unsafe {
        let from = source.offset(offset);
        let to = target.add(written);
        written += length * item_size;
        move_run(from, step, to, item_size as isize, length, item_size);
    };
    for_each_run(shape, strides, item_size, &mut each);
}

/// Copies dense elements at `source` into a strided view.
///
/// # Safety
/// As for `gather`, with source and target changed over.
pub unsafe fn scatter(
    source: *const u8,
    target: *mut u8,
    shape: &[isize],
    strides: &[isize],
    item_size: usize,
) {
    let mut read = 0;
    // SAFETY: as in `gather`.
    let mut each = |offset: isize, length: usize, step: isize| unsafe {
        let from = source.add(read);
        read += length * item_size;
        move_run(from, item_size as isize, target.offset(offset), step, length, item_size);
    };
    for_each_run(shape, strides, item_size, &mut each);
}

/// Calls `each(offset, length, step)` for every run along the innermost axis, in row-major order. A dense innermost
/// axis has `step == item_size`.
fn for_each_run(
    shape: &[isize],
    strides: &[isize],
    item_size: usize,
    each: &mut dyn FnMut(isize, usize, isize),
) {
    if shape.contains(&0) {
        return;
    }
    let (mut lengths, mut steps, mut n) = ([0isize; MAX], [0isize; MAX], 0usize);
    for (&length, &stride) in shape.iter().zip(strides) {
        if length == 1 {
            continue;
        }
        if n > 0 && steps[n - 1] == stride.wrapping_mul(length) {
            lengths[n - 1] *= length;
            steps[n - 1] = stride;
        } else {
            (lengths[n], steps[n]) = (length, stride);
            n += 1;
        }
    }
    if n == 0 {
        return each(0, 1, item_size as isize);
    }
    let inner = n - 1;
    let (mut at, mut offset) = ([0isize; MAX], 0isize);
    loop {
        each(offset, lengths[inner] as usize, steps[inner]);
        let mut axis = inner;
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            at[axis] += 1;
            offset += steps[axis];
            if at[axis] < lengths[axis] {
                break;
            }
            offset -= steps[axis] * lengths[axis];
            at[axis] = 0;
        }
    }
}

/// Copies `length` elements between two runs.
///
/// # Safety
/// Both runs are valid for their steps and do not overlap.
unsafe fn move_run(
    from: *const u8,
    from_step: isize,
    to: *mut u8,
    to_step: isize,
    length: usize,
    item_size: usize,
) {
    let dense = item_size as isize;
    // SAFETY: by contract; widths are copied by unaligned moves, so no alignment is needed.
    unsafe {
        if from_step == dense && to_step == dense {
            return std::ptr::copy_nonoverlapping(from, to, length * item_size);
        }
        match item_size {
            1 => move_each::<u8>(from, from_step, to, to_step, length),
            2 => move_each::<u16>(from, from_step, to, to_step, length),
            4 => move_each::<u32>(from, from_step, to, to_step, length),
            8 => move_each::<u64>(from, from_step, to, to_step, length),
            16 => move_each::<u128>(from, from_step, to, to_step, length),
            _ => {
                for i in 0..length as isize {
                    std::ptr::copy_nonoverlapping(
                        from.offset(i * from_step),
                        to.offset(i * to_step),
                        item_size,
                    );
                }
            }
        }
    }
}

/// # Safety
/// As for `move_run`, with elements of the size of `T`.
unsafe fn move_each<T>(from: *const u8, from_step: isize, to: *mut u8, to_step: isize, length: usize) {
    for i in 0..length as isize {
        // SAFETY: element `i` of both runs, by contract.
        unsafe {
            let value = from.offset(i * from_step).cast::<T>().read_unaligned();
            to.offset(i * to_step).cast::<T>().write_unaligned(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{extent, row_major};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gather_then_scatter_gives_every_element_back(
            axes in proptest::collection::vec((0isize..5, -3isize..4), 0..5),
            item_size in prop_oneof![Just(1usize), Just(2), Just(3), Just(4), Just(8), Just(16)],
        ) {
            // Distinct elements: a row-major block, then each axis reversed, skipped or kept.
            let shape: Vec<isize> = axes.iter().map(|a| a.0).collect();
            let mut strides = vec![0; shape.len()];
            let padded: Vec<isize> = axes.iter().map(|a| a.0 * a.1.abs().max(1)).collect();
            row_major(&padded, item_size, &mut strides);
            for (stride, axis) in strides.iter_mut().zip(&axes) {
                *stride *= axis.1.abs().max(1) * if axis.1 < 0 { -1 } else { 1 };
            }
            let span = extent(&shape, &strides, item_size).unwrap();
            let bytes: Vec<u8> = (0..span.high - span.low).map(|i| (i * 7 + 3) as u8).collect();
            let mut offsets = vec![-span.low];
            for (&length, &stride) in shape.iter().zip(&strides) {
                offsets = offsets.iter().flat_map(|o| (0..length).map(move |i| o + i * stride)).collect();
            }
            let expected: Vec<u8> =
                offsets.iter().flat_map(|&o| bytes[o as usize..o as usize + item_size].to_vec()).collect();
            let mut dense = vec![0u8; expected.len()];
            let mut back = vec![0u8; bytes.len()];
            let first = usize::try_from(-span.low).unwrap();
            // SAFETY: `bytes` and `back` span the extent of the view, `dense` holds all elements.
            unsafe {
                gather(bytes.as_ptr().add(first), &shape, &strides, item_size, dense.as_mut_ptr());
                scatter(dense.as_ptr(), back.as_mut_ptr().add(first), &shape, &strides, item_size);
            }
            prop_assert_eq!(&dense, &expected);
            for offset in offsets {
                let range = offset as usize..offset as usize + item_size;
                prop_assert_eq!(&back[range.clone()], &bytes[range]);
            }
        }
    }
}
