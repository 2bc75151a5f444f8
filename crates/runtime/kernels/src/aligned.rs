//! Arrays that begin at a cache line, so that no vector of theirs lies in two.
//!
//! In: a length. Out: that many zeros, from pages that the system hands out untouched.

use std::ops::{Deref, DerefMut};

/// A cache line, and the widest vector, in bytes.
const LINE: usize = 64;

/// Numbers of one size that divides 64 bytes; their count is fixed.
pub(crate) struct Aligned<T> {
    room: Vec<T>,
    skip: usize,
    len: usize,
}

impl<T: Copy + Default> Aligned<T> {
    pub(crate) fn new(len: usize) -> Self {
        let most = LINE / size_of::<T>() - 1;
        let room = vec![T::default(); len + most];
        let skip = room.as_ptr().align_offset(LINE).min(most);
        Self { room, skip, len }
    }

    /// At least `len` numbers; what they are is left over from earlier work.
    pub(crate) fn at_least(&mut self, len: usize) -> &mut [T] {
        if self.len < len {
            *self = Self::new(len);
        }
        &mut self[..len]
    }
}

impl<T: Copy + Default> Default for Aligned<T> {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<T: Copy + Default> Clone for Aligned<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.room[self.skip..][..self.len]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.room[self.skip..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::Aligned;

    #[test]
    fn begins_at_a_line_and_keeps_its_content_when_cloned() {
        for len in [0, 1, 31, 4096, 100_000] {
            let mut a = Aligned::<u16>::new(len);
            assert_eq!((a.as_ptr().addr() % 64, a.len()), (0, len));
            for (i, x) in a.iter_mut().enumerate() {
                *x = i as u16;
            }
            let b = a.clone();
            assert_eq!((b.as_ptr().addr() % 64, &a[..]), (0, &b[..]));
        }
        assert_eq!(Aligned::<f32>::new(5).at_least(3).len(), 3);
        assert_eq!(Aligned::<f32>::new(5).at_least(700), [0.0; 700]);
    }
}
