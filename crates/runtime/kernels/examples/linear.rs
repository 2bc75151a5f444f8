//! Speed of products: for each format, level and number of rows, multiply-adds and bytes of weights per second, the latter as a
//! share of what reading memory reaches in the same run.
//!
//! Arguments, each optional: `threads=1`, `cols=2048`, `megabytes=256` (of weights), `formats=Q4_0,Q6_K`, `levels=amx,avx512`,
//! `rows=1,4,512`, `outputs=256` (most for more than 16 rows). On one thread seconds are those on the processor, so that other work on the machine disturbs less.

#![expect(clippy::print_stdout, reason = "a program that prints what it measured")]

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use overdrive_kernels::{Format, Level, Matrix, Rows, most_level, multiply, set_level};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |name: &str| {
        arguments
            .iter()
            .find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
            .map(str::to_owned)
    };
    let number = |name: &str, default: usize| given(name).map_or(Ok(default), |text| text.parse());
    let threads = number("threads", 1)?;
    let n_cols = number("cols", 2048)?;
    let n_bytes = number("megabytes", 256)? << 20;
    let outputs = given("outputs").map(|text| text.parse()).transpose()?;
    let counts: Result<Vec<usize>, _> =
        given("rows").unwrap_or_else(|| "1,2,4,8,16,64,512".to_owned()).split(',').map(str::parse).collect();
    let counts = counts?;
    let formats: Vec<Format> = Format::ALL
        .into_iter()
        .filter(|format| {
            given("formats").is_none_or(|names| names.split(',').any(|name| name == format.name()))
        })
        .collect();
    let levels: Vec<Level> = Level::ALL
        .into_iter()
        .filter(|level| *level <= most_level())
        .filter(|level| match given("levels") {
            Some(names) => names.split(',').any(|name| name == level.name()),
            None => *level != Level::Scalar,
        })
        .collect();
    overdrive_pool::set_threads(threads as i64)?;
    let read = read_speed(threads);
    println!("reading: {read:.1} GB/s on {threads} threads; {n_cols} columns");
    for n in &counts {
        let values: Vec<f32> = (0..n * n_cols).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
        let per_value = 1e9 / values.len() as f64;
        let [floats, fine, coarse] = [Format::F32, Format::Q4_0, Format::Q4K]
            .map(|format| best(20, || drop(black_box(Rows::prepare(&values, n_cols, [format])))) * per_value);
        println!(
            "{n} rows: {fine:.2} ns for each value to prepare, {coarse:.2} for K formats, {floats:.2} for floats"
        );
    }
    println!(
        "{:7} {:7} {:>5} {:>10} {:>8} {:>8} {:>6}",
        "format", "level", "rows", "ms", "GMAC/s", "GB/s", "read"
    );
    for format in formats {
        let Some(row_bytes) = format.row_bytes(n_cols) else { continue };
        let n_rows = n_bytes / row_bytes;
        // Bits of ordinary numbers for what is not quantised, and small scales for the rest: tiny numbers take longer.
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let bytes: Vec<u8> = (0..row_bytes * n_rows)
            .map(|i| {
                if format.block_values() == 1 && i % format.block_bytes() + 1 == format.block_bytes() {
                    0x3c
                } else {
                    random() & 31
                }
            })
            .collect();
        let took = best(1, || drop(black_box(Matrix::new(format, n_rows, n_cols, &bytes))));
        let matrix = Matrix::new(format, n_rows, n_cols, &bytes)?;
        println!(
            "{:7} repacked at {:.1} GB/s; {:.3} of the bytes of the file",
            format.name(),
            bytes.len() as f64 / took / 1e9,
            matrix.n_bytes() as f64 / bytes.len() as f64
        );
        for level in &levels {
            set_level(*level)?;
            for n in &counts {
                let values: Vec<f32> =
                    (0..n * n_cols).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
                let rows = Rows::prepare(&values, n_cols, [format]);
                // Part of the matrix when rows are many: a short call has a chance not to be disturbed.
                let used = if *n > 16 {
                    let n_rows = outputs
                        .unwrap_or((1usize << 28).div_ceil(n * n_cols).next_multiple_of(16))
                        .min(n_rows);
                    Some(Matrix::new(format, n_rows, n_cols, &bytes[..row_bytes * n_rows])?)
                } else {
                    None
                };
                let matrix = used.as_ref().unwrap_or(&matrix);
                let mut out = vec![0.0; n * matrix.n_rows()];
                let n_calls = if *n > 16 { (50 * 256 / matrix.n_rows().max(1)).clamp(3, 50) } else { 7 };
                let took = best(n_calls, || multiply(&mut [(matrix, &mut out)], &rows));
                black_box(&out);
                let products = (matrix.n_rows() * n_cols * n) as f64;
                let speed = matrix.n_bytes() as f64 / took / 1e9;
                println!(
                    "{:7} {:7} {n:5} {:10.3} {:8.1} {speed:8.2} {:6.2}",
                    format.name(),
                    level.name(),
                    took * 1e3,
                    products / took / 1e9,
                    speed / read
                );
            }
        }
    }
    Ok(())
}

/// Seconds of the fastest of `n` calls, behind one that does not count.
fn best(n: usize, mut call: impl FnMut()) -> f64 {
    call();
    let took = (0..n).map(|_| {
        let (begin, on_processor) = (Instant::now(), seconds_on_processor());
        call();
        match (on_processor, seconds_on_processor()) {
            (Some(begin), Some(end)) => end - begin,
            _ => begin.elapsed().as_secs_f64(),
        }
    });
    took.fold(f64::INFINITY, f64::min)
}

/// Of this thread, where it is the only one and the kernel tells.
fn seconds_on_processor() -> Option<f64> {
    if overdrive_pool::threads() > 1 {
        return None;
    }
    // The kernel counts when it is called.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}

/// GB/s of adding up 512 MB.
fn read_speed(threads: usize) -> f64 {
    const CHUNK: usize = 1 << 17;
    let numbers = vec![1u64; 1 << 26];
    let n_chunks = numbers.len() / CHUNK;
    let sums: Vec<std::sync::atomic::AtomicU64> = (0..n_chunks).map(|_| Default::default()).collect();
    let took = best(5, || {
        overdrive_pool::run(n_chunks as i64, &|range| {
            for i in range {
                let i = i as usize;
                let sum: u64 = numbers[i * CHUNK..][..CHUNK].iter().fold(0, |sum, n| sum.wrapping_add(*n));
                sums[i].store(sum, std::sync::atomic::Ordering::Relaxed);
            }
        })
        .expect("adding does not panic");
    });
    black_box((&sums, threads));
    (numbers.len() * 8) as f64 / took / 1e9
}
