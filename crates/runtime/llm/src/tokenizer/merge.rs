//! The merging that both models share: neighbours become one token, the best pair first, of equal ones the leftmost.
//!
//! In: symbols in order, and a rule that says what two neighbours become and how good that is. Out: the symbols that
//! nothing merges any more. The time is that of a heap: n log n, for a word as for a whole book.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A token, and which of the first symbols it covers. Neighbours in the list are neighbours in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) id: u32,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// What two neighbours become, and when: the smallest order first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merge {
    pub(super) order: u32,
    pub(super) id: u32,
}

/// Memory of the merging, kept between words.
#[derive(Default)]
pub(super) struct Merger {
    symbols: Vec<Symbol>,
    /// Of each symbol, the one before and the one behind it.
    links: Vec<(usize, usize)>,
    heap: BinaryHeap<Reverse<Pair>>,
}

/// A pair that can merge, as it was found: (order, left symbol, where the left ends, where the right ends, new token).
/// It is stale when one of the two has changed since, which its ends tell.
type Pair = (u32, usize, usize, usize, u32);

const NONE: usize = usize::MAX;

impl Merger {
    /// Begins a word.
    pub(super) fn clear(&mut self) {
        self.symbols.clear();
    }

    /// Adds the next symbol of the word.
    pub(super) fn push(&mut self, id: u32) {
        let start = self.symbols.len();
        self.symbols.push(Symbol { id, start, end: start + 1 });
    }

    /// Merges all that can be merged, and gives what is left, from left to right.
    pub(super) fn merge(
        &mut self,
        rule: impl Fn(&Symbol, &Symbol) -> Option<Merge>,
    ) -> impl Iterator<Item = Symbol> + '_ {
        let n = self.symbols.len();
        self.links.clear();
        self.links.extend((0..n).map(|at| (at.wrapping_sub(1), if at + 1 < n { at + 1 } else { NONE })));
        self.heap.clear();
        for left in 0..n.saturating_sub(1) {
            self.offer(left, left + 1, &rule);
        }
        while let Some(Reverse((_, left, middle, end, id))) = self.heap.pop() {
            let right = self.links[left].1;
            if self.symbols[left].end != middle || right == NONE || self.symbols[right].end != end {
                continue;
            }
            self.symbols[left].id = id;
            self.symbols[left].end = end;
            // Covers nothing any more; no pair that was found earlier fits it.
            self.symbols[right].end = self.symbols[right].start;
            let behind = self.links[right].1;
            self.links[left].1 = behind;
            if behind != NONE {
                self.links[behind].0 = left;
                self.offer(left, behind, &rule);
            }
            let before = self.links[left].0;
            if before != NONE {
                self.offer(before, left, &rule);
            }
        }
        self.symbols.iter().filter(|symbol| symbol.end > symbol.start).copied()
    }

    fn offer(&mut self, left: usize, right: usize, rule: &impl Fn(&Symbol, &Symbol) -> Option<Merge>) {
        let (first, second) = (&self.symbols[left], &self.symbols[right]);
        if let Some(merge) = rule(first, second) {
            self.heap.push(Reverse((merge.order, left, first.end, second.end, merge.id)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Merge, Merger, Symbol};

    /// Merges letters by a list of pairs; a token's id is the character of its place in `names`.
    fn run(word: &str, merges: &[(&str, &str)]) -> Vec<String> {
        let text = |symbol: &Symbol| word[symbol.start..symbol.end].to_owned();
        let rule = |left: &Symbol, right: &Symbol| {
            let order = merges.iter().position(|(a, b)| (*a, *b) == (&text(left), &text(right)))?;
            Some(Merge { order: order as u32, id: 0 })
        };
        let mut merger = Merger::default();
        merger.clear();
        word.bytes().for_each(|_| merger.push(0));
        merger.merge(rule).map(|symbol| text(&symbol)).collect()
    }

    #[test]
    fn the_best_pair_goes_first_and_the_leftmost_of_equal_ones() {
        assert_eq!(run("abcb", &[("b", "c"), ("a", "b")]), ["a", "bc", "b"]);
        assert_eq!(run("aaaaa", &[("a", "a")]), ["aa", "aa", "a"]);
        assert_eq!(run("aaaaa", &[("a", "a"), ("aa", "aa")]), ["aaaa", "a"]);
        assert_eq!(run("aaaaa", &[("a", "a"), ("aa", "a")]), ["aa", "aaa"]);
        assert_eq!(run("", &[("a", "a")]), [""; 0]);
        assert_eq!(run("a", &[("a", "a")]), ["a"]);
    }
}
