//! By which angles queries and keys are rotated at a position.
//!
//! In: the model's configuration of rotary embeddings. Out: for each pair of values of a head the cosine and sine at a
//! position. Everything is computed in double precision and rounded once. Pairs are neighbours, as GGUF files of Llama
//! models have them.

use std::f64::consts::PI;

/// How a model that was trained on short texts is stretched to long ones.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Positions are divided by the factor.
    Linear {
        /// How much longer texts become.
        factor: f64,
    },
    /// Slow pairs as `Linear`, fast ones as `None`, a ramp between; cosine and sine are made larger.
    Yarn {
        /// How much longer texts become.
        factor: f64,
        /// Positions of a text before that.
        original_n_ctx: usize,
        /// Pairs that turn more often than this in the original context stay.
        beta_fast: f64,
        /// Pairs that turn less often than this are stretched.
        beta_slow: f64,
        /// What cosine and sine are multiplied with.
        magnitude: f64,
    },
}

/// What the file says about rotations.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Values of a head that are rotated; even. The others stay as they are.
    pub n_dims: usize,
    /// Base of the frequencies.
    /// Frequencies fall from 1 to one over this.
    pub base: f64,
    /// How it is stretched.
    pub scaling: RopeScaling,
}

/// Frequencies of the pairs.
pub(crate) struct Rope {
    /// Radians for each position, `(n_dims / 2,)`.
    frequencies: Vec<f64>,
    magnitude: f64,
}

impl Rope {
    /// `divisors`, when the file has them (Llama 3): each pair's frequency is divided by its own, before any scaling.
    pub(crate) fn new(config: &RopeConfig, divisors: Option<&[f32]>) -> Self {
        let n_dims = config.n_dims as f64;
        let plain = |pair: usize| {
            let divisor = divisors.map_or(1.0, |divisors| f64::from(divisors[pair]));
            config.base.powf(-2.0 * pair as f64 / n_dims) / divisor
        };
        let pairs = 0..config.n_dims / 2;
        let (frequencies, magnitude) = match config.scaling {
            RopeScaling::None => (pairs.map(plain).collect(), 1.0),
            RopeScaling::Linear { factor } => (pairs.map(|pair| plain(pair) / factor).collect(), 1.0),
            RopeScaling::Yarn { factor, original_n_ctx, beta_fast, beta_slow, magnitude } => {
                // The pair that turns `turns` times within the original context.
                let pair_of = |turns: f64| {
                    n_dims * (original_n_ctx as f64 / (turns * 2.0 * PI)).ln() / (2.0 * config.base.ln())
                };
                let low = pair_of(beta_fast).floor().max(0.0);
                let high = pair_of(beta_slow).ceil().min(n_dims - 1.0);
                let frequency = |pair: usize| {
                    let ramp = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                    plain(pair) * (ramp / factor + (1.0 - ramp))
                };
                (pairs.map(frequency).collect(), magnitude)
            }
        };
        Self { frequencies, magnitude }
    }

    /// Appends cosine and sine of each pair at this position.
    pub(crate) fn push(&self, position: usize, table: &mut Vec<(f32, f32)>) {
        table.extend(self.frequencies.iter().map(|frequency| {
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            ((cos * self.magnitude) as f32, (sin * self.magnitude) as f32)
        }));
    }

    /// Pairs.
    pub(crate) fn n_pairs(&self) -> usize {
        self.frequencies.len()
    }
}
