//! Bytes from front to back, none beyond the end.
//!
//! In: a slice and how much is wanted next. Out: that much, or how much was left. Lengths are compared before they are
//! added, so nothing wraps around.

use super::error::Problem;

/// What is left of a file, of which the first part is at hand.
#[derive(Clone)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    n_read: usize,
    /// Bytes of the file behind `bytes`.
    n_behind: u64,
}

impl<'a> Reader<'a> {
    /// `bytes` are the first of a file of `length`.
    pub(super) fn new(bytes: &'a [u8], length: u64) -> Self {
        Self { bytes, n_read: 0, n_behind: length.saturating_sub(bytes.len() as u64) }
    }

    /// Bytes that were read.
    pub(super) fn position(&self) -> usize {
        self.n_read
    }

    /// Bytes of the file that were not.
    fn left(&self) -> u64 {
        (self.bytes.len() as u64).saturating_add(self.n_behind)
    }

    /// Why `n` bytes are not at hand.
    fn lack(&self, n: u64) -> Problem {
        let has = self.left();
        if n > has { Problem::Cut { needs: n, has } } else { Problem::Unread }
    }

    /// The next `n` bytes.
    pub(super) fn take(&mut self, n: u64) -> Result<&'a [u8], Problem> {
        if n > self.bytes.len() as u64 {
            return Err(self.lack(n));
        }
        let (taken, rest) = self.bytes.split_at(n as usize);
        self.bytes = rest;
        self.n_read += taken.len();
        Ok(taken)
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let Some((taken, rest)) = self.bytes.split_first_chunk::<N>() else {
            return Err(self.lack(N as u64));
        };
        self.bytes = rest;
        self.n_read += N;
        Ok(*taken)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Problem> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Problem> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number of things, at most `most`, that take at least `least` bytes each, all of them still to come.
    pub(super) fn count(&mut self, least: u64, most: u64) -> Result<u64, Problem> {
        let count = self.u64()?;
        let has = self.left();
        if count > has / least {
            return Err(Problem::Count { count, least, has });
        }
        if count > most {
            return Err(Problem::TooMany { count, most });
        }
        Ok(count)
    }

    /// A number of things that take at least `least` bytes each, all of them at hand: memory for them may be asked for.
    pub(super) fn count_at_hand(&mut self, least: u64) -> Result<usize, Problem> {
        let count = self.count(least, u64::MAX)?;
        if count > self.bytes.len() as u64 / least {
            return Err(Problem::Unread);
        }
        Ok(count as usize)
    }

    /// Bytes behind their length.
    pub(super) fn string(&mut self) -> Result<&'a [u8], Problem> {
        let length = self.u64()?;
        self.take(length)
    }

    /// Text of at most `most` bytes behind its length.
    pub(super) fn name(&mut self, most: u64) -> Result<&'a str, Problem> {
        let length = self.u64()?;
        if length > most && length <= self.left() {
            return Err(Problem::TooLong { length, most });
        }
        std::str::from_utf8(self.take(length)?).map_err(|_| Problem::NotUtf8)
    }
}
