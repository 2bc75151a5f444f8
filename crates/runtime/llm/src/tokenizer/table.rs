//! Which token has these bytes: a hash table of ids, whose keys are the pieces themselves.
//!
//! The hash is keyed by a secret of the process, so that no file can be made whose tokens all fall into one place.

use std::hash::{BuildHasher, RandomState};

use super::pieces::Pieces;

/// A place that holds no id.
const FREE: u32 = u32::MAX;

/// Open addressing, at most half full.
#[derive(Debug)]
pub(super) struct Table {
    places: Vec<u32>,
    hasher: RandomState,
}

impl Table {
    /// An empty table for at most `n_tokens` ids.
    pub(super) fn with_capacity(n_tokens: usize) -> Self {
        let n_places = (n_tokens * 2).next_power_of_two().max(2);
        Table { places: vec![FREE; n_places], hasher: RandomState::new() }
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
        let mut place = self.hasher.hash_one(bytes) as usize & mask;
        loop {
            let id = self.places[place];
            if id == FREE || pieces.get(id) == Some(bytes) {
                return place;
            }
            place = (place + 1) & mask;
        }
    }
}
