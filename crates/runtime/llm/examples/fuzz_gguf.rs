//! Many hostile GGUF files: `cargo run -p overdrive-llm --example fuzz_gguf -- COUNT [SEED]`.
//!
//! Out: how many were read, how many refused, how fast, the slowest, and the most memory for its size. It ends with a
//! panic at the first that breaks a promise, after writing it to the directory for temporary files.
#![expect(clippy::print_stdout, reason = "a program that reports")]

#[path = "../tests/support/counting.rs"]
mod counting;
#[path = "../tests/support/hostile.rs"]
mod hostile;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use hostile::{Corpus, Random};
use overdrive_llm::gguf::File;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().as_deref().unwrap_or("1000000").parse()?;
    let seed: u64 = arguments.next().as_deref().unwrap_or("0").parse()?;
    let mut random = Random::new(seed);
    let mut corpus = Corpus::new(500, &mut random);
    let mut bytes = Vec::new();
    let (mut n_read, mut n_bytes, mut slowest, mut most) = (0_u64, 0, Duration::ZERO, 0.0_f64);
    let start = Instant::now();
    for i in 0..count {
        if i % 100_000 == 99_999 {
            corpus = Corpus::new(500, &mut random);
        }
        corpus.mutate(&mut random, &mut bytes);
        let tried = catch_unwind(AssertUnwindSafe(|| {
            let begin = Instant::now();
            let (result, allocated) = counting::most_allocated(|| File::parse(&bytes));
            let took = begin.elapsed();
            hostile::check(&result, &bytes, allocated);
            (result.is_ok(), allocated, took)
        }));
        let (is_read, allocated, took) = tried.unwrap_or_else(|panic| {
            let path = std::env::temp_dir().join(format!("hostile-{seed}-{i}.gguf"));
            let kept = std::fs::write(&path, &bytes);
            println!("input {i} of seed {seed} is in {}: {kept:?}", path.display());
            resume_unwind(panic)
        });
        n_read += u64::from(is_read);
        n_bytes += bytes.len();
        slowest = slowest.max(took);
        most = most.max(allocated as f64 / (bytes.len() + 128) as f64);
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{count} files of {} bytes in the mean, seed {seed}: {n_read} read",
        n_bytes as u64 / count.max(1)
    );
    println!("{:.0} a second; the slowest took {slowest:?}", count as f64 / seconds);
    println!("at most {most:.1} bytes allocated for each of a file (with 128 added to its size)");
    Ok(())
}
