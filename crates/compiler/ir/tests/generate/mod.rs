//! Random functions from a seed: any function at all for the text form, runnable ones for the optimiser.

pub(crate) mod any;
pub(crate) mod runnable;

/// A small generator of random numbers, the same on every machine.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `n` (which is not 0).
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % n
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// Any 64 bits, often interesting ones.
    pub(crate) fn bits(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(5) as u64,
            1 => u64::MAX - self.below(5) as u64,
            2 => (self.below(2047) as u64) << 52 | self.below(1000) as u64,
            _ => (self.below(1 << 32) as u64) << 32 | self.below(1 << 32) as u64,
        }
    }
}
