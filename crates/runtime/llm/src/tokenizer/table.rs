//! Which token has these bytes: a hash table of ids, whose keys are the pieces themselves.
//!
//! The hash is keyed by a secret, so that no file can be made whose tokens all fall into one place. It is made for keys of a few
//! bytes: a tokenizer is built of several hundred thousand look-ups.

use std::hash::{BuildHasher, Hasher, RandomState};

use super::pieces::Pieces;

/// A place that holds no id.
const FREE: u32 = u32::MAX;

/// Open addressing, at most half full.
#[derive(Debug)]
pub(super) struct Table {
    places: Vec<u32>,
    secret: Secret,
}

impl Table {
    /// An empty table for at most `n_tokens` ids.
    pub(super) fn with_capacity(n_tokens: usize) -> Self {
        let n_places = (n_tokens * 2).next_power_of_two().max(2);
        Table { places: vec![FREE; n_places], secret: Secret::new() }
    }

    /// The id whose piece is `bytes`.
    pub(super) fn get(&self, bytes: &[u8], pieces: &Pieces) -> Option<u32> {
        let id = self.places[self.place(bytes, pieces)];
        (id != FREE).then_some(id)
    }

    /// Puts an id in, in place of another with the same bytes. Returns that one.
    pub(super) fn insert(&mut self, id: u32, pieces: &Pieces) -> Option<u32> {
        let place = self.place(pieces.get(id)?, pieces);
        let before = std::mem::replace(&mut self.places[place], id);
        (before != FREE).then_some(before)
    }

    /// Where `bytes` are, or the free place where they belong.
    fn place(&self, bytes: &[u8], pieces: &Pieces) -> usize {
        let mask = self.places.len() - 1;
        let mut place = self.secret.of_bytes(bytes) as usize & mask;
        loop {
            let id = self.places[place];
            if id == FREE || pieces.get(id) == Some(bytes) {
                return place;
            }
            place = (place + 1) & mask;
        }
    }
}

/// The key of a hash, another for each table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Secret {
    start: u64,
    /// Odd.
    factor: u64,
}

impl Secret {
    pub(super) fn new() -> Self {
        let random = RandomState::new();
        Secret { start: random.hash_one(0), factor: random.hash_one(1) | 1 }
    }

    fn of_bytes(self, bytes: &[u8]) -> u64 {
        let (words, rest) = bytes.as_chunks();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let mut hasher = self.build_hasher();
        words.iter().chain([&last]).for_each(|word| hasher.write_u64(u64::from_le_bytes(*word)));
        // Without it, zeros at the end would change nothing.
        hasher.write_u64(bytes.len() as u64);
        hasher.finish()
    }
}

impl BuildHasher for Secret {
    type Hasher = Folding;

    fn build_hasher(&self) -> Folding {
        Folding { state: self.start, factor: self.factor }
    }
}

/// Each word is multiplied in, and both halves of the product are kept.
pub(super) struct Folding {
    state: u64,
    factor: u64,
}

impl Hasher for Folding {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(self.factor);
        self.state = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::Secret;

    #[test]
    fn keys_that_differ_little_have_different_hashes_and_places() {
        let secret = Secret::new();
        let mut keys: Vec<Vec<u8>> = (0..20_000u32).map(|n| n.to_string().into_bytes()).collect();
        keys.extend((0..40).map(|n| vec![0; n]));
        keys.extend((0..40).map(|n| [&vec![b' '; n], &b"a"[..]].concat()));
        let hashes: HashSet<u64> = keys.iter().map(|key| secret.of_bytes(key)).collect();
        assert_eq!(hashes.len(), keys.len());
        // As random numbers would: 20,000 in 32,768 places take 15,000 or so.
        for shift in [0, 40] {
            let places: HashSet<u64> = hashes.iter().map(|hash| hash >> shift & 0x7fff).collect();
            assert!(places.len() > 14_000, "{}", places.len());
        }
        let pairs: HashSet<u64> = (0..200u32)
            .flat_map(|a| (0..200u32).map(move |b| (a, b)))
            .map(|pair| secret.hash_one(pair))
            .collect();
        assert_eq!(pairs.len(), 40_000);
        assert_ne!(secret.of_bytes(b"a"), Secret::new().of_bytes(b"a"));
    }
}
