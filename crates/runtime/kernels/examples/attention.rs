//! How fast attention is: a prompt, and one token behind a long one, for each level that this machine has.
//!
//! In: `attention [threads [level]]`. Out: time, products per second, bytes of the cache per second; the memory's own speed first.

#![expect(clippy::print_stdout, reason = "the numbers are what it is for")]

use std::hint::black_box;
use std::time::Instant;

use overdrive_kernels::{KvCache, KvFormat, Level, most_level, set_level};

/// Name, layers, heads, heads of keys, size of a head.
const MODELS: [(&str, usize, usize, usize, usize); 3] =
    [("SmolLM2-135M", 30, 9, 3, 64), ("1B", 16, 32, 8, 64), ("8B", 32, 32, 8, 128)];
const PROMPT: usize = 512;
const LONG: usize = 2000;

fn main() {
    let n_threads = std::env::args().nth(1).map_or(1, |n| n.parse().expect("a number of threads"));
    overdrive_pool::set_threads(n_threads).expect("a number of threads that can be");
    let mut big = vec![1u64; 32 << 20];
    let time = fastest(3, || {
        black_box(big.iter().fold(0, |a: u64, b| a.wrapping_add(*b)));
    });
    println!("{n_threads} threads; one reads memory at {:.1} GB/s", big.len() as f64 * 8e-9 / time);
    big.clear();
    let only = std::env::args().nth(2).map(|name| Level::from_name(&name).expect("a level"));
    let levels = Level::ALL.into_iter().filter(|level| (Level::Avx2..=most_level()).contains(level));
    for level in levels.filter(|level| only.is_none_or(|only| only == *level)) {
        set_level(level).expect("it is there");
        for (name, n_layers, n_heads, n_kv_heads, dim) in MODELS {
            for format in [KvFormat::F16, KvFormat::Q8] {
                let scale = 1.0 / (dim as f32).sqrt();
                let noise = |n: usize| -> Vec<f32> {
                    (0..n).map(|i| (i * 7919 % 1009) as f32 / 504.5 - 1.0).collect()
                };
                let (queries, rows) = (noise(PROMPT * n_heads * dim), noise(LONG * n_kv_heads * dim));
                let mut out = vec![0.0; queries.len()];
                let mut cache = KvCache::new(n_layers, n_kv_heads, dim, format);
                let row = n_kv_heads * dim;
                let started = Instant::now();
                for layer in 0..n_layers {
                    cache.append(layer, &rows[..PROMPT * row], &rows[..PROMPT * row]);
                }
                let append = started.elapsed().as_secs_f64();
                let prompt = fastest(3, || {
                    for layer in 0..n_layers {
                        cache.attend(layer, 0, &queries, scale, None, &mut out);
                    }
                });
                let macs = (n_layers * n_heads * dim * PROMPT * (PROMPT + 1)) as f64;
                for layer in 0..n_layers {
                    cache.append(layer, &rows[PROMPT * row..], &rows[PROMPT * row..]);
                }
                let one = n_heads * dim;
                let token = fastest(5, || {
                    for layer in 0..n_layers {
                        cache.attend(layer, LONG - 1, &queries[..one], scale, None, &mut out[..one]);
                    }
                });
                println!(
                    "{:7} {name:12} {format:?}: append {:6.2} ms, prompt {:7.2} ms {:5.1} GMAC/s; token {:6.3} ms {:5.1} GB/s",
                    level.name(),
                    append * 1e3,
                    prompt * 1e3,
                    macs / prompt * 1e-9,
                    token * 1e3,
                    cache.n_bytes() as f64 * (LONG as f64 / LONG.next_multiple_of(64) as f64) / token * 1e-9,
                );
            }
        }
    }
}

/// Seconds that this thread ran: what others on the machine do counts less than by the clock.
fn processor_time() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse::<f64>().ok().map(|nanoseconds| nanoseconds * 1e-9)
}

/// Seconds of the fastest of `n` runs; on one thread those that it ran.
fn fastest(n: usize, mut body: impl FnMut()) -> f64 {
    let mut run = || {
        let (started, used) = (Instant::now(), processor_time());
        body();
        let time = started.elapsed().as_secs_f64();
        match (overdrive_pool::threads(), used, processor_time()) {
            (1, Some(before), Some(behind)) => behind - before,
            _ => time,
        }
    };
    (0..n).map(|_| run()).fold(f64::INFINITY, f64::min)
}
