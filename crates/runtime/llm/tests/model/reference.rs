//! A Llama in double precision, as plainly as it can be written: no cache, no pieces, no formats.

use std::f64::consts::PI;

use crate::tiny::{BASE, EPSILON, Scaling, Shape, Tiny};

/// Logits of every token, `(tokens, n_vocabulary)`.
pub(crate) fn logits(tiny: &Tiny, tokens: &[u32]) -> Vec<Vec<f64>> {
    let Shape { n_embed, n_heads, n_kv_heads, head_dim, window, .. } = tiny.shape;
    let weight = |name: &str| &tiny.weights[name];
    let mut stream: Vec<Vec<f64>> = tokens
        .iter()
        .map(|id| weight("token_embd.weight")[*id as usize * n_embed..][..n_embed].to_vec())
        .collect();
    for layer in 0..tiny.shape.n_layers {
        let weight = |part: &str| weight(&format!("blk.{layer}.{part}.weight"));
        let normed: Vec<_> = stream.iter().map(|row| norm(row, weight("attn_norm"))).collect();
        let project = |part: &str| normed.iter().map(|row| times(weight(part), row)).collect::<Vec<_>>();
        let (mut queries, mut keys, values) = (project("attn_q"), project("attn_k"), project("attn_v"));
        for (position, row) in queries.iter_mut().enumerate().chain(keys.iter_mut().enumerate()) {
            row.chunks_exact_mut(head_dim).for_each(|head| rotate(&tiny.shape, position, head));
        }
        for position in 0..tokens.len() {
            let mut attended = Vec::new();
            for head in 0..n_heads {
                let query = &queries[position][head * head_dim..][..head_dim];
                let kv = head / (n_heads / n_kv_heads) * head_dim;
                let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
                let scores = keys[first..=position]
                    .iter()
                    .map(|key| dot(query, &key[kv..][..head_dim]) / (head_dim as f64).sqrt());
                let weights: Vec<f64> = scores.map(f64::exp).collect();
                let sum: f64 = weights.iter().sum();
                attended.extend((0..head_dim).map(|i| {
                    let values = values[first..=position].iter().map(|value| value[kv + i]);
                    values.zip(&weights).map(|(value, weight)| value * weight / sum).sum::<f64>()
                }));
            }
            add(&mut stream[position], &times(weight("attn_output"), &attended));
        }
        for row in &mut stream {
            let normed = norm(row, weight("ffn_norm"));
            let up = times(weight("ffn_up"), &normed);
            let gate = times(weight("ffn_gate"), &normed);
            let gated: Vec<f64> = gate.iter().zip(&up).map(|(g, up)| g / (1.0 + (-g).exp()) * up).collect();
            add(row, &times(weight("ffn_down"), &gated));
        }
    }
    let head = weight(if tiny.shape.is_tied { "token_embd.weight" } else { "output.weight" });
    stream.iter().map(|row| times(head, &norm(row, weight("output_norm.weight")))).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Rows of a matrix times a vector.
fn times(matrix: &[f64], x: &[f64]) -> Vec<f64> {
    matrix.chunks_exact(x.len()).map(|row| dot(row, x)).collect()
}

fn add(sum: &mut [f64], x: &[f64]) {
    sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
}

fn norm(x: &[f64], weight: &[f64]) -> Vec<f64> {
    let root = (dot(x, x) / x.len() as f64 + f64::from(EPSILON)).sqrt();
    x.iter().zip(weight).map(|(x, weight)| x / root * weight).collect()
}

/// Pairs of neighbours; values behind the rotated ones stay.
fn rotate(shape: &Shape, position: usize, head: &mut [f64]) {
    let n = shape.n_rope as f64;
    for pair in 0..shape.n_rope / 2 {
        let plain = f64::from(BASE).powf(-(2.0 * pair as f64) / n);
        let (frequency, magnitude) = match shape.scaling {
            Scaling::None => (plain, 1.0),
            Scaling::Linear(factor) => (plain / factor, 1.0),
            Scaling::Divisors => (plain / (1.0 + pair as f64 / 4.0), 1.0),
            Scaling::Yarn(factor, original) => {
                // As the method's authors have it: between the dimensions that turn 32 times and once.
                let dimension = |turns: f64| {
                    n * (original as f64 / (turns * 2.0 * PI)).ln() / (2.0 * f64::from(BASE).ln())
                };
                let (low, high) = (dimension(32.0).floor().max(0.0), dimension(1.0).ceil().min(n - 1.0));
                let keep = 1.0 - ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
                (plain / factor * (1.0 - keep) + plain * keep, 0.1 * factor.ln() + 1.0)
            }
        };
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        let (a, b) = (head[2 * pair], head[2 * pair + 1]);
        head[2 * pair] = (a * cos - b * sin) * magnitude;
        head[2 * pair + 1] = (a * sin + b * cos) * magnitude;
    }
}
