//! Where the time of a forward pass goes: for each operator its calls, time, bytes of weights and operations.
//!
//! In: a profile handed to `Model::forward`; without one nothing is measured. Out: sums over all layers and pieces.

use std::time::{Duration, Instant};

/// The operators of a forward pass, in the order they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Rows of the embedding.
    Embedding,
    /// Root-mean-square norms, those before the head included.
    Norm,
    /// Queries, keys and values.
    Qkv,
    /// Rotations of queries and keys.
    Rope,
    /// Storing keys and values, and attention over them.
    Attention,
    /// What attention's output is multiplied with.
    Output,
    /// The two matrices that widen.
    GateUp,
    /// The gate.
    Swiglu,
    /// The matrix that narrows.
    Down,
    /// Sums with what flows past a block.
    Residual,
    /// Logits.
    Head,
    /// Choosing tokens, and their text.
    Sample,
}

impl Operator {
    /// All of them, in order.
    pub const ALL: [Self; 12] = [
        Self::Embedding,
        Self::Norm,
        Self::Qkv,
        Self::Rope,
        Self::Attention,
        Self::Output,
        Self::GateUp,
        Self::Swiglu,
        Self::Down,
        Self::Residual,
        Self::Head,
        Self::Sample,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Norm => "norm",
            Self::Qkv => "qkv",
            Self::Rope => "rope",
            Self::Attention => "attention",
            Self::Output => "output",
            Self::GateUp => "gate/up",
            Self::Swiglu => "swiglu",
            Self::Down => "down",
            Self::Residual => "residual",
            Self::Head => "head",
            Self::Sample => "sample",
        }
    }
}

/// What one operator took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Times it ran.
    pub n_calls: u64,
    /// Wall time.
    pub time: Duration,
    /// Bytes of weights, and of keys and values, that it read.
    pub n_bytes: u64,
    /// Additions and multiplications of the model's definition; a multiply-add counts two.
    pub n_operations: u64,
}

/// Costs by operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpProfile {
    costs: [Cost; Operator::ALL.len()],
}

impl OpProfile {
    /// With nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// What this operator took so far.
    pub fn cost(&self, operator: Operator) -> Cost {
        self.costs[operator as usize]
    }

    /// All operators with what they took, in the order they run.
    pub fn costs(&self) -> impl Iterator<Item = (Operator, Cost)> + '_ {
        Operator::ALL.into_iter().map(|operator| (operator, self.cost(operator)))
    }

    /// Wall time of all operators together.
    pub fn time(&self) -> Duration {
        self.costs.iter().map(|cost| cost.time).sum()
    }

    pub(crate) fn add(&mut self, operator: Operator, cost: Cost) {
        let sum = &mut self.costs[operator as usize];
        sum.n_calls += cost.n_calls;
        sum.time += cost.time;
        sum.n_bytes += cost.n_bytes;
        sum.n_operations += cost.n_operations;
    }
}

/// Measures where there is a profile, and costs one test where there is none.
pub(crate) struct Meter<'a>(pub(crate) Option<&'a mut OpProfile>);

impl Meter<'_> {
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Runs `work`, which reads `n_bytes` and does `n_operations`.
    pub(crate) fn time<T>(
        &mut self,
        operator: Operator,
        n_bytes: usize,
        n_operations: usize,
        work: impl FnOnce() -> T,
    ) -> T {
        let Some(profile) = &mut self.0 else { return work() };
        let begin = Instant::now();
        let result = work();
        profile.add(
            operator,
            Cost {
                n_calls: 1,
                time: begin.elapsed(),
                n_bytes: n_bytes as u64,
                n_operations: n_operations as u64,
            },
        );
        result
    }
}
