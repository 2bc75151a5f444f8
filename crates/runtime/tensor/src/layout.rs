//! Shape and strides: what bytes they span, whether they are contiguous, how many elements they have.
//!
//! In: lengths, and strides in bytes, of any sign. Out: numbers computed without wrap-around. An axis of length one has a
//! stride nobody uses, and with an axis of length zero nobody uses any; both are ignored, whatever they say.

use crate::error::{Error, MAX_NDIM};

/// The bytes that a layout touches, as offsets from its first element: `low` is not above 0, `high` is one behind the
/// last byte. Both are 0 when there is no element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub low: isize,
    pub high: isize,
}

/// Number of elements.
///
/// # Errors
/// `TooManyAxes`, `NegativeLength`, `TooLarge` when the elements at `item_size` bytes each do not fit an address.
#[inline]
pub fn count(shape: &[isize], item_size: usize) -> Result<usize, Error> {
    if shape.len() > MAX_NDIM {
        return Err(Error::TooManyAxes { ndim: shape.len() });
    }
    let mut n_items: usize = 1;
    let mut empty = false;
    for (axis, &length) in shape.iter().enumerate() {
        let length = usize::try_from(length).map_err(|_| Error::NegativeLength { axis, length })?;
        if length == 0 {
            empty = true;
        } else {
            n_items = n_items.checked_mul(length).ok_or(Error::TooLarge)?;
        }
    }
    let bytes = n_items.checked_mul(item_size).ok_or(Error::TooLarge)?;
    if isize::try_from(bytes).is_err() {
        return Err(Error::TooLarge);
    }
    Ok(if empty { 0 } else { n_items })
}

/// The bytes that are touched.
///
/// # Errors
/// As `count`, and `TooLarge` when an offset does not fit.
pub fn extent(shape: &[isize], strides: &[isize], item_size: usize) -> Result<Extent, Error> {
    if count(shape, item_size)? == 0 {
        return Ok(Extent { low: 0, high: 0 });
    }
    let (mut low, mut high) = (0isize, item_size as isize);
    for (&length, &stride) in shape.iter().zip(strides) {
        if length == 1 {
            continue;
        }
        let reach = stride.checked_mul(length - 1).ok_or(Error::TooLarge)?;
        let end = if reach < 0 { &mut low } else { &mut high };
        *end = end.checked_add(reach).ok_or(Error::TooLarge)?;
    }
    high.checked_sub(low).ok_or(Error::TooLarge)?;
    Ok(Extent { low, high })
}

/// Fills in the strides of an array whose last axis is dense.
#[inline]
pub fn row_major(shape: &[isize], item_size: usize, strides: &mut [isize]) {
    let mut step = item_size as isize;
    for (stride, &length) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        // Wraps only for a shape with a zero in it, whose strides nobody uses.
        step = step.wrapping_mul(length.max(1));
    }
}

/// The last axis is dense and the others follow.
#[inline]
pub fn is_row_major(shape: &[isize], strides: &[isize], item_size: usize) -> bool {
    let mut expected = item_size as isize;
    let mut dense = true;
    for (&length, &stride) in shape.iter().zip(strides).rev() {
        if length == 0 {
            return true;
        }
        dense &= length == 1 || stride == expected;
        expected = expected.wrapping_mul(length);
    }
    dense
}

/// The first axis is dense and the others follow.
#[inline]
pub fn is_column_major(shape: &[isize], strides: &[isize], item_size: usize) -> bool {
    let mut expected = item_size as isize;
    let mut dense = true;
    for (&length, &stride) in shape.iter().zip(strides) {
        if length == 0 {
            return true;
        }
        dense &= length == 1 || stride == expected;
        expected = expected.wrapping_mul(length);
    }
    dense
}

/// Largest power of two that divides an address, at most 4096.
#[inline]
pub fn alignment(address: usize) -> usize {
    1 << address.trailing_zeros().min(12)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_that_wrap_are_refused() {
        assert_eq!(count(&[1 << 33, 1 << 33], 1), Err(Error::TooLarge));
        assert_eq!(count(&[1 << 62, 2], 4), Err(Error::TooLarge));
        assert_eq!(count(&[0, 1 << 62, 1 << 62], 1), Err(Error::TooLarge));
        assert_eq!(count(&[3, -1], 1), Err(Error::NegativeLength { axis: 1, length: -1 }));
        assert_eq!(count(&[1; 65], 1), Err(Error::TooManyAxes { ndim: 65 }));
        assert_eq!(extent(&[3], &[isize::MAX], 1), Err(Error::TooLarge));
        assert_eq!(extent(&[2, 2], &[isize::MAX - 1, isize::MIN + 2], 8), Err(Error::TooLarge));
    }

    #[test]
    fn unused_strides_do_not_count() {
        assert!(is_row_major(&[3, 1], &[8, -8], 8));
        assert!(is_column_major(&[3, 1], &[8, isize::MIN], 8));
        assert!(is_row_major(&[0, 3], &[7, 7], 8));
        assert_eq!(extent(&[3, 1], &[8, -8], 8), Ok(Extent { low: 0, high: 24 }));
        assert_eq!(extent(&[], &[], 8), Ok(Extent { low: 0, high: 8 }));
        assert_eq!(extent(&[2, 0], &[-8, 8], 8), Ok(Extent { low: 0, high: 0 }));
    }

    proptest! {
        #[test]
        fn extent_is_what_the_elements_touch(
            axes in proptest::collection::vec((0isize..5, -40isize..40), 0..4),
        ) {
            let (shape, strides): (Vec<_>, Vec<_>) = axes.into_iter().unzip();
            let mut offsets = vec![0isize];
            for (&length, &stride) in shape.iter().zip(&strides) {
                offsets = offsets.iter().flat_map(|o| (0..length).map(move |i| o + i * stride)).collect();
            }
            let expected = match (offsets.iter().min(), offsets.iter().max()) {
                (Some(&low), Some(&high)) => Extent { low, high: high + 4 },
                _ => Extent { low: 0, high: 0 },
            };
            prop_assert_eq!(extent(&shape, &strides, 4).unwrap(), expected);
        }

        #[test]
        fn row_major_is_recognised(shape in proptest::collection::vec(0isize..5, 0..5)) {
            let mut strides = vec![0; shape.len()];
            row_major(&shape, 4, &mut strides);
            prop_assert!(is_row_major(&shape, &strides, 4));
        }
    }
}
