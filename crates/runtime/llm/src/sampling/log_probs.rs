//! How probable the model found a token, and what it found most probable.
//!
//! In: logits as the model gave them, before any option of sampling. Out: natural logarithms of probabilities.

use super::{SamplingError, check_logits};

/// Log-probabilities of one place in a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogProbs {
    /// Of the token that was chosen.
    pub chosen: f32,
    /// The most probable tokens with theirs, the best first, of equal ones the lower id.
    pub top: Vec<(u32, f32)>,
}

/// The log-probability of the token `chosen`, and of the `n_top` most probable ones.
///
/// # Errors
/// `SamplingError` for logits that name no token, or where `chosen` is outside of them.
pub fn log_probs<L: Copy + Into<f64>>(
    logits: &[L],
    chosen: u32,
    n_top: usize,
) -> Result<LogProbs, SamplingError> {
    let logits: Vec<f64> = logits.iter().map(|&logit| logit.into()).collect();
    check_logits(&logits)?;
    let Some(&logit_chosen) = logits.get(chosen as usize) else {
        return Err(SamplingError::Token { id: chosen, n_logits: logits.len() });
    };
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - largest).exp()).sum();
    let log_sum = largest + sum.ln();
    let mut top: Vec<(u32, f64)> = Vec::new();
    if n_top > 0 {
        top.extend((0..).zip(logits.iter().copied()));
        let by_rank = |a: &(u32, f64), b: &(u32, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if n_top < top.len() {
            top.select_nth_unstable_by(n_top - 1, by_rank);
            top.truncate(n_top);
        }
        top.sort_unstable_by(by_rank);
    }
    let top = top.into_iter().map(|(id, logit)| (id, (logit - log_sum) as f32)).collect();
    Ok(LogProbs { chosen: (logit_chosen - log_sum) as f32, top })
}
