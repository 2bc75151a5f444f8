//! The pool under load: every chunk once, whatever is asked at the same time. Tests of one process share its pool.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

use overdrive_pool::{MOST_THREADS, OutOfRange, Panicked, rest, run, set_threads, threads};

/// The number of threads is the process's: one test at a time sets it.
static SETS_THREADS: Mutex<()> = Mutex::new(());

fn with_threads<R>(n: i64, test: impl FnOnce() -> R) -> R {
    let _guard = SETS_THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    set_threads(n).expect("in range");
    test()
}

/// How often each chunk was run.
fn counts(n: i64, also: impl Fn(i64) + Sync) -> Vec<u64> {
    let seen: Vec<AtomicU64> = (0..n).map(|_| AtomicU64::new(0)).collect();
    let result = run(n, &|range| {
        for chunk in range {
            seen[chunk as usize].fetch_add(1, Ordering::Relaxed);
            also(chunk);
        }
    });
    assert_eq!(result, Ok(()));
    seen.into_iter().map(AtomicU64::into_inner).collect()
}

#[test]
fn every_chunk_is_run_once() {
    for n_threads in [1, 2, 3, 8] {
        with_threads(n_threads, || {
            for n in [0, 1, 2, 7, 100, 10_007] {
                assert!(counts(n, |_| ()).iter().all(|n| *n == 1), "{n} chunks, {n_threads} threads");
            }
        });
    }
}

#[test]
fn several_threads_work_on_one_job() {
    with_threads(3, || {
        // Two chunks that each wait for the other are on two threads.
        let here = AtomicI64::new(0);
        let who: Mutex<Vec<ThreadId>> = Mutex::new(vec![]);
        assert_eq!(
            run(2, &|range| {
                for _ in range {
                    who.lock().expect("not poisoned").push(std::thread::current().id());
                    here.fetch_add(1, Ordering::AcqRel);
                    while here.load(Ordering::Acquire) < 2 {
                        std::thread::yield_now();
                    }
                }
            }),
            Ok(())
        );
        let who = who.into_inner().expect("not poisoned");
        assert_ne!(who[0], who[1]);
    });
}

#[test]
fn a_job_inside_another_runs_on_the_same_thread() {
    with_threads(4, || {
        counts(64, |_| {
            let outer = std::thread::current().id();
            assert!(counts(50, |_| assert_eq!(std::thread::current().id(), outer)).iter().all(|n| *n == 1));
        });
    });
}

#[test]
fn a_panic_is_told_and_the_pool_goes_on() {
    with_threads(4, || {
        for bad in [0, 31, 63] {
            let told = run(64, &|range| assert!(!range.contains(&bad), "on purpose"));
            assert_eq!(told, Err(Panicked));
        }
        assert!(counts(64, |_| ()).iter().all(|n| *n == 1));
    });
}

#[test]
fn many_small_jobs() {
    with_threads(3, || {
        let sum = AtomicI64::new(0);
        for _ in 0..100_000 {
            assert_eq!(
                run(3, &|range| {
                    sum.fetch_add(range.sum::<i64>(), Ordering::Relaxed);
                }),
                Ok(())
            );
        }
        assert_eq!(sum.into_inner(), 300_000);
    });
}

#[test]
fn many_ask_at_once() {
    with_threads(4, || {
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    for n in 0..200 {
                        assert!(counts(n, |_| ()).iter().all(|n| *n == 1));
                    }
                });
            }
        });
    });
}

#[test]
fn threads_end_and_start_again() {
    with_threads(4, || {
        rest();
        for _ in 0..50 {
            assert!(counts(100, |_| ()).iter().all(|n| *n == 1));
            rest();
        }
        // While others work.
        std::thread::scope(|scope| {
            scope.spawn(|| (0..200).for_each(|_| drop(counts(100, |_| ()))));
            (0..50).for_each(|_| rest());
        });
        assert!(counts(100, |_| ()).iter().all(|n| *n == 1));
    });
}

#[test]
fn numbers_of_threads_that_are_refused() {
    let most = MOST_THREADS as i64;
    for n in [0, -1, most + 1, i64::MAX, i64::MIN] {
        assert_eq!(set_threads(n), Err(OutOfRange(n)));
    }
    with_threads(most, || assert_eq!(threads(), MOST_THREADS));
    with_threads(1, || assert_eq!(threads(), 1));
}
