//! Time of a native allocation from an arena, against C's `malloc` and `free`: `cargo bench -p overdrive-tensor`.
#![expect(unsafe_code, reason = "measures C's allocator beside ours")]
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends when something fails"
)]

use std::hint::black_box;
use std::time::Instant;

use overdrive_tensor::arena::Arena;

const N: usize = 10_000;

fn best(mut round: impl FnMut()) -> f64 {
    let time = |round: &mut dyn FnMut()| {
        let began = Instant::now();
        round();
        began.elapsed().as_nanos() as f64 / N as f64
    };
    (0..2000).map(|_| time(&mut round)).fold(f64::INFINITY, f64::min)
}

fn main() {
    let mut arena = Arena::new(N * 64).unwrap();
    let start = arena.mark();
    let ours = best(|| {
        for _ in 0..N {
            black_box(arena.alloc(black_box(48)).unwrap());
        }
        arena.rewind(start);
    });
    let theirs = best(|| {
        for _ in 0..N {
            // SAFETY: freed at once, used by nobody.
            unsafe { libc::free(black_box(libc::malloc(black_box(48)))) };
        }
    });
    println!("Arena::alloc {ours:.2} ns, malloc and free {theirs:.2} ns");
}
