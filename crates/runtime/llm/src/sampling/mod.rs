//! Which token comes next.
//!
//! In: the logits of a vocabulary, the tokens so far, options. Out: a token, and how probable the model found it. The
//! steps, in this order: repetition penalty, temperature, top-k, top-p, min-p, one draw among what is left in order of
//! ids. A filter that filters nothing out changes no draw. The same seed draws the same tokens on every machine.
//! Must not know: models, text.

mod error;
mod exponential;
mod filter;
mod log_probs;
mod random;

use self::filter::Candidate;
use self::random::Random;

pub use error::SamplingError;
pub use log_probs::{LogProbs, log_probs};

/// How a token is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it. 0 takes the largest logit, of equal ones the lowest id.
    pub temperature: f64,
    /// Only so many of the largest logits stay, of equal ones those with the lowest ids; 0 turns the filter off.
    pub top_k: usize,
    /// Only the most probable tokens that together reach this probability stay, in [0, 1]; 1 turns the filter off.
    pub top_p: f64,
    /// Only tokens at least this part as probable as the most probable one stay, in [0, 1]; 0 turns the filter off.
    pub min_p: f64,
    /// Positive logits of tokens seen in the window are divided by it, others multiplied; 1 turns it off.
    pub repetition_penalty: f64,
    /// How many of the last tokens the penalty looks at; 0 for all of them.
    pub repetition_window: usize,
    /// The beginning of the random numbers; none takes one from the system.
    pub seed: Option<u64>,
}

impl Default for Sampling {
    /// Draws from what the model says, unchanged.
    fn default() -> Self {
        Sampling {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            repetition_window: 0,
            seed: None,
        }
    }
}

impl Sampling {
    /// The largest logit every time.
    pub fn greedy() -> Self {
        Sampling { temperature: 0.0, ..Sampling::default() }
    }

    /// Looks whether every option is in its range.
    ///
    /// # Errors
    /// `SamplingError::Option` with the name of the first that is not.
    pub fn check(&self) -> Result<(), SamplingError> {
        let unit = |value: f64| (0.0..=1.0).contains(&value);
        let options = [
            ("temperature", self.temperature, self.temperature.is_finite() && self.temperature >= 0.0),
            ("top_p", self.top_p, unit(self.top_p)),
            ("min_p", self.min_p, unit(self.min_p)),
            (
                "repetition_penalty",
                self.repetition_penalty,
                self.repetition_penalty.is_finite() && self.repetition_penalty > 0.0,
            ),
        ];
        match options.into_iter().find(|&(_, _, good)| !good) {
            Some((name, value, _)) => Err(SamplingError::Option { name, value }),
            None => Ok(()),
        }
    }
}

/// Chooses tokens one after another, for one sequence.
#[derive(Clone, Debug)]
pub struct Sampler {
    options: Sampling,
    random: Random,
    /// The logits of the step at hand, with penalties; kept for its memory.
    logits: Vec<f64>,
    /// The tokens still in question; kept for its memory.
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// A sampler at the beginning of its random numbers.
    ///
    /// # Errors
    /// `SamplingError::Option`, or `SamplingError::System` where no seed is given and the system has none.
    pub fn new(options: Sampling) -> Result<Self, SamplingError> {
        options.check()?;
        let random = match options.seed {
            Some(seed) => Random::from_seed(seed),
            None if options.temperature == 0.0 => Random::from_seed(0),
            None => {
                Random::from_system().map_err(|error| SamplingError::System { reason: error.to_string() })?
            }
        };
        Ok(Sampler { options, random, logits: Vec::new(), candidates: Vec::new() })
    }

    /// What it was made of.
    pub fn options(&self) -> &Sampling {
        &self.options
    }

    /// Chooses a token by `logits`, one for each token of the vocabulary; `-inf` forbids a token. `seen` are the tokens so
    /// far, oldest first; only a repetition penalty looks at them.
    ///
    /// # Errors
    /// `SamplingError` where the logits name no token: none, a NaN, +inf, all `-inf`. No random number is used then.
    pub fn sample<L: Copy + Into<f64>>(&mut self, logits: &[L], seen: &[u32]) -> Result<u32, SamplingError> {
        let mut logits_here = std::mem::take(&mut self.logits);
        let chosen = self.sample_with(logits, seen, &mut logits_here);
        self.logits = logits_here;
        chosen
    }

    fn sample_with<L: Copy + Into<f64>>(
        &mut self,
        given: &[L],
        seen: &[u32],
        logits: &mut Vec<f64>,
    ) -> Result<u32, SamplingError> {
        logits.clear();
        logits.extend(given.iter().map(|&logit| logit.into()));
        check_logits(logits)?;
        self.penalise(logits, seen);
        let (best, largest) = argmax(logits);
        if self.options.temperature == 0.0 {
            return Ok(best);
        }
        self.candidates.clear();
        let possible = (0..).zip(logits.iter()).filter(|&(_, &logit)| logit > f64::NEG_INFINITY);
        self.candidates.extend(possible.map(|(id, &logit)| Candidate { logit, weight: 0.0, id }));
        filter::keep_largest(&mut self.candidates, self.options.top_k);
        filter::weigh(&mut self.candidates, largest, self.options.temperature);
        filter::keep_mass(&mut self.candidates, self.options.top_p);
        filter::keep_likely(&mut self.candidates, self.options.min_p);
        Ok(filter::draw(&mut self.candidates, self.random.unit()))
    }

    /// Makes the tokens of the window less likely, each once.
    fn penalise(&self, logits: &mut [f64], seen: &[u32]) {
        let penalty = self.options.repetition_penalty;
        if penalty == 1.0 {
            return;
        }
        let n_window = match self.options.repetition_window {
            0 => seen.len(),
            window => window.min(seen.len()),
        };
        let mut window = seen[seen.len() - n_window..].to_vec();
        window.sort_unstable();
        window.dedup();
        for id in window {
            if let Some(logit) = logits.get_mut(id as usize) {
                let changed = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
                // A tiny or huge penalty may leave the finite numbers; the order of what it meant stays.
                *logit = if logit.is_finite() { changed.clamp(f64::MIN, f64::MAX) } else { *logit };
            }
        }
    }
}

/// Whether the logits name at least one token, and all are numbers.
fn check_logits(logits: &[f64]) -> Result<(), SamplingError> {
    if logits.is_empty() {
        return Err(SamplingError::Empty);
    }
    // One pass without a branch for each; the place is looked for only when there is one.
    let sound = |&logit: &f64| logit < f64::INFINITY;
    if !logits.iter().fold(true, |all, logit| all & sound(logit)) {
        let id = logits.iter().position(|logit| !sound(logit)).unwrap_or(0);
        let n_unsound = logits.iter().filter(|logit| !sound(logit)).count();
        return Err(SamplingError::NotANumber { id, value: logits[id], n_unsound, n_logits: logits.len() });
    }
    if logits.iter().all(|&logit| logit == f64::NEG_INFINITY) {
        return Err(SamplingError::NothingPossible { n_logits: logits.len() });
    }
    Ok(())
}

/// The largest logit with its lowest id.
fn argmax(logits: &[f64]) -> (u32, f64) {
    let mut best = (0, f64::NEG_INFINITY);
    for (id, &logit) in (0..).zip(logits) {
        if logit > best.1 {
            best = (id, logit);
        }
    }
    best
}

#[cfg(test)]
mod tests;
