//! The bytes that tokens stand for, one behind the other.

/// Bytes of each token, by id: one piece of memory in place of one for each token.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    bytes: Vec<u8>,
    /// Where each ends in `bytes`.
    ends: Vec<u32>,
}

impl Pieces {
    pub(super) fn with_capacity(n_tokens: usize) -> Self {
        Pieces { bytes: Vec::with_capacity(n_tokens * 8), ends: Vec::with_capacity(n_tokens) }
    }

    /// Adds the bytes of the next id. More than 4 GiB together are cut; no file of a model has them.
    pub(super) fn push(&mut self, bytes: impl IntoIterator<Item = u8>) {
        self.bytes.extend(bytes);
        self.ends.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }

    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    pub(super) fn get(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let end = *self.ends.get(id)?;
        let start = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start as usize..end as usize])
    }
}
