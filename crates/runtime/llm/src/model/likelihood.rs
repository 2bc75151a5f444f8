//! How probable a text is to a model: what perplexity is made of.
//!
//! In: tokens and a window. Out: the sum of the logarithms of their probabilities. The text is cut into windows that do not
//! overlap; in each, every token but the first is scored after those before it.

use super::Model;
use super::forward::Check;
use super::parts::{Part, Want};
use crate::error::Error;
use crate::profile::OpProfile;

/// Rows of logits that exist at a time.
const ROWS: usize = 256;

/// What a text got.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Likelihood {
    /// Sum of the natural logarithms of the probabilities.
    pub log_probability: f64,
    /// Tokens that were scored.
    pub n_scored: usize,
}

impl Likelihood {
    /// The perplexity: the exponential of the mean negative logarithm.
    pub fn perplexity(&self) -> f64 {
        (-self.log_probability / self.n_scored as f64).exp()
    }
}

impl Model {
    /// Scores a text in windows of `window` tokens. `progress` is called with the tokens done and their number.
    ///
    /// # Errors
    /// `Argument` for a window below 2 or beyond the context; `Interrupted` when `progress` says so; those of `forward`.
    pub fn log_likelihood(
        &self,
        tokens: &[u32],
        window: usize,
        progress: &mut super::Progress<'_>,
        mut profile: Option<&mut OpProfile>,
    ) -> Result<Likelihood, Error> {
        if window < 2 || window > self.n_ctx {
            let problem = format!("{window} is not between 2 and the context, {}", self.n_ctx);
            return Err(Error::Argument { name: "window", problem });
        }
        let mut sum = Likelihood::default();
        let mut n_done = 0;
        for window in tokens.chunks(window) {
            let mut sequence = self.sequence();
            // The last token is only scored: what follows it nobody asks.
            let n_inputs = window.len() - 1;
            for begin in (0..n_inputs).step_by(ROWS) {
                let inputs = &window[begin..n_inputs.min(begin + ROWS)];
                let check: &mut Check<'_> = &mut || progress((n_done + begin) as u64, tokens.len() as u64);
                let mut parts = [Part { sequence: &mut sequence, tokens: inputs, logits: Want::All }];
                let logits = self.forward(&mut parts, check, profile.as_deref_mut())?;
                let rows = logits.part(0).chunks_exact(logits.n_vocabulary());
                for (row, next) in rows.zip(&window[begin + 1..]) {
                    if *next as usize >= row.len() {
                        return Err(Error::Token { id: *next, n_vocabulary: row.len() });
                    }
                    sum.log_probability += f64::from(row[*next as usize]) - log_sum_exp(row);
                    sum.n_scored += 1;
                }
            }
            n_done += window.len();
        }
        let _ = progress(n_done as u64, tokens.len() as u64);
        Ok(sum)
    }
}

/// The logarithm of the sum of the exponentials, in double precision.
pub(crate) fn log_sum_exp(row: &[f32]) -> f64 {
    let most = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    most + row.iter().map(|x| (f64::from(*x) - most).exp()).sum::<f64>().ln()
}
