//! Random numbers that are the same on every machine.
//!
//! In: a seed, or none. Out: numbers in [0, 1). The generator is SplitMix64: one 64-bit counter, mixed well enough that
//! neighbouring seeds have nothing in common. Not for secrets.

/// A generator, in its whole state.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// The generator of a seed.
    pub(crate) fn from_seed(seed: u64) -> Self {
        Random { state: seed }
    }

    /// A generator that nobody can foresee, in a forked child neither.
    pub(crate) fn from_system() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)?;
        Ok(Random { state: u64::from_le_bytes(bytes) })
    }

    /// The next number, uniform in [0, 1), with 53 random bits.
    pub(crate) fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1u64 << 53) as f64;
        (self.next() >> 11) as f64 * STEP
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn the_numbers_of_a_seed_are_these() {
        // The published test values of SplitMix64 for the seed 1234567.
        let mut random = Random::from_seed(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn neighbouring_seeds_fill_the_unit_interval() {
        let mut n_in = [0; 10];
        for seed in 0..10_000 {
            let drawn = Random::from_seed(seed).unit();
            assert!((0.0..1.0).contains(&drawn));
            n_in[(drawn * 10.0) as usize] += 1;
        }
        assert!(n_in.iter().all(|n| (850..1150).contains(n)), "{n_in:?}");
    }

    #[test]
    fn no_two_of_the_system_are_alike() {
        let mut drawn: Vec<u64> =
            (0..20).map(|_| Random::from_system().expect("the system has random numbers").next()).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 20);
    }
}
