//! Numbers for tests: the same in each run.

/// `n` numbers around 0, most of them between -2 and 2.
pub(crate) fn normal(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678_9ABC_DEF1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    // A sum of four even ones is bell-shaped enough.
    (0..n).map(|_| 1.7 * (next() + next() + next() + next())).collect()
}
