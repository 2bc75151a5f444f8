//! What a forward pass is asked for and what it gives; how its rows are cut into pieces.
//!
//! In: parts of several lengths. Out: pieces that have at most `PIECE` rows together, each a list of segments, and the logits
//! of all. Must not know: what happens to a piece.

use std::ops::Range;

use crate::sequence::Sequence;

/// Rows that go through the layers at a time: enough to be bound by arithmetic, few enough to be stopped soon.
const PIECE: usize = 256;

/// Of which tokens of a part logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// None.
    None,
    /// The last.
    Last,
    /// Each.
    All,
}

/// A sequence and what continues it.
pub struct Part<'a> {
    /// What came before; grows by the tokens.
    pub sequence: &'a mut Sequence,
    /// What comes now; may be none.
    pub tokens: &'a [u32],
    /// Of which tokens logits are wanted.
    pub logits: Want,
}

/// Rows of logits, those of the first part first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logits {
    pub(super) n_vocabulary: usize,
    /// `(rows, n_vocabulary)`
    pub(super) values: Vec<f32>,
    /// For each part the number of its first row, and behind them the number of all.
    pub(super) starts: Vec<usize>,
}

impl Logits {
    /// Those of one part: `(rows, n_vocabulary)`.
    ///
    /// # Panics
    /// When there was no such part.
    pub fn part(&self, part: usize) -> &[f32] {
        &self.values[self.starts[part] * self.n_vocabulary..self.starts[part + 1] * self.n_vocabulary]
    }

    /// The last row of a part; empty when it wanted none.
    ///
    /// # Panics
    /// When there was no such part.
    pub fn last(&self, part: usize) -> &[f32] {
        let rows = self.part(part);
        &rows[rows.len().saturating_sub(self.n_vocabulary)..]
    }

    /// Values in a row.
    pub fn n_vocabulary(&self) -> usize {
        self.n_vocabulary
    }

    /// All rows of all parts, `(rows, n_vocabulary)`.
    pub fn into_values(self) -> Vec<f32> {
        self.values
    }
}

/// Rows of one part within a piece, at positions that follow each other.
pub(super) struct Segment {
    pub(super) part: usize,
    /// Numbers of its tokens within the part.
    pub(super) tokens: Range<usize>,
    /// Position of its first token.
    pub(super) position: usize,
    /// How many of its rows, the last ones, logits are wanted of.
    pub(super) n_wanted: usize,
    /// How many of its tokens, the first ones, have no row any more.
    pub(super) n_dropped: usize,
}

impl Segment {
    pub(super) fn n_rows(&self) -> usize {
        self.tokens.len() - self.n_dropped
    }
}

/// Cuts the parts' tokens, one part behind the other, into pieces.
pub(super) fn pieces(parts: &[Part<'_>]) -> Vec<Vec<Segment>> {
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    let mut n_free = PIECE;
    for (number, part) in parts.iter().enumerate() {
        let mut begin = 0;
        while begin < part.tokens.len() {
            let end = part.tokens.len().min(begin + n_free);
            let is_end = end == part.tokens.len();
            let n_wanted = match part.logits {
                Want::None => 0,
                Want::Last => usize::from(is_end),
                Want::All => end - begin,
            };
            let position = part.sequence.len() + begin;
            piece.push(Segment { part: number, tokens: begin..end, position, n_wanted, n_dropped: 0 });
            n_free -= end - begin;
            begin = end;
            if n_free == 0 {
                pieces.push(std::mem::take(&mut piece));
                n_free = PIECE;
            }
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}
