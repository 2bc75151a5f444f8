//! Attention: near its formula, and the same for every level, cut and company.

use super::{Part, attend, attend_at};
use crate::cache::{KvCache, KvFormat};
use crate::cpu::{Level, level};
use crate::lanes::levels;
use crate::random::normal;

/// Heads of queries and of keys, and their size.
#[derive(Clone, Copy, Debug)]
struct Shape {
    n_heads: usize,
    n_kv_heads: usize,
    dim: usize,
}

const SHAPES: [Shape; 5] = [
    Shape { n_heads: 9, n_kv_heads: 3, dim: 64 },
    Shape { n_heads: 4, n_kv_heads: 4, dim: 32 },
    Shape { n_heads: 8, n_kv_heads: 1, dim: 128 },
    Shape { n_heads: 2, n_kv_heads: 2, dim: 80 },
    Shape { n_heads: 7, n_kv_heads: 1, dim: 5 },
];

/// Rows of `len` positions.
struct Rows {
    shape: Shape,
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Rows {
    fn new(shape: Shape, len: usize, seed: u64) -> Self {
        let Shape { n_heads, n_kv_heads, dim } = shape;
        let queries = normal(len * n_heads * dim, seed);
        let keys = normal(len * n_kv_heads * dim, seed + 1);
        let values = normal(len * n_kv_heads * dim, seed + 2);
        Self { shape, queries, keys, values }
    }

    fn cache(&self, format: KvFormat, len: usize) -> KvCache {
        let Shape { n_kv_heads, dim, .. } = self.shape;
        let mut cache = KvCache::new(1, n_kv_heads, dim, format);
        cache.append(0, &self.keys[..len * n_kv_heads * dim], &self.values[..len * n_kv_heads * dim]);
        cache
    }

    fn scale(&self) -> f32 {
        1.0 / (self.shape.dim as f32).sqrt()
    }

    /// Queries of the positions from `first` on.
    fn queries(&self, first: usize, len: usize) -> &[f32] {
        let row = self.shape.n_heads * self.shape.dim;
        &self.queries[first * row..len * row]
    }

    fn attended(&self, level: Level, cache: &KvCache, first: usize, window: Option<usize>) -> Vec<f32> {
        let queries = self.queries(first, cache.len());
        let mut out = vec![9.0; queries.len()];
        attend_at(level, &mut [Part { cache, first, queries, out: &mut out }], 0, self.scale(), window);
        out
    }

    /// The formula in double precision, without a cache.
    fn truth(&self, len: usize, window: Option<usize>) -> Vec<f64> {
        let Shape { n_heads, n_kv_heads, dim } = self.shape;
        let mut out = Vec::new();
        for position in 0..len {
            for head in 0..n_heads {
                let kv_head = head / (n_heads / n_kv_heads);
                let query = &self.queries[(position * n_heads + head) * dim..][..dim];
                let row = |rows: &'_ [f32], p: usize, d: usize| {
                    f64::from(rows[(p * n_kv_heads + kv_head) * dim + d])
                };
                let from = (position + 1).saturating_sub(window.unwrap_or(usize::MAX));
                let score = |p| (0..dim).map(|d| f64::from(query[d]) * row(&self.keys, p, d)).sum::<f64>();
                let scores: Vec<f64> =
                    (from..=position).map(|p| score(p) * f64::from(self.scale())).collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|s| (s - most).exp()).sum();
                out.extend((0..dim).map(|d| {
                    let parts = scores
                        .iter()
                        .zip(from..)
                        .map(|(s, p)| (s - most).exp() / total * row(&self.values, p, d));
                    parts.sum::<f64>()
                }));
            }
        }
        out
    }
}

/// `NaN`s are equal, whatever they carry.
#[track_caller]
fn assert_same(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    let differs =
        a.iter().zip(b).position(|(a, b)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan()));
    assert_eq!(differs, None, "{what}: {:?}", differs.map(|i| (a[i], b[i])));
}

#[test]
fn is_close_to_the_formula() {
    for shape in SHAPES {
        for len in [1, 2, 63, 64, 65, 129, 270] {
            for window in [None, Some(1), Some(64), Some(100)] {
                if len < 129 && window.is_some_and(|window| window > len) {
                    continue;
                }
                let rows = Rows::new(shape, len, 11);
                let truth = rows.truth(len, window);
                for (format, bound) in [(KvFormat::F16, 2e-3), (KvFormat::Q8, 3e-2)] {
                    let out = rows.attended(level(), &rows.cache(format, len), 0, window);
                    let worst =
                        out.iter().zip(&truth).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
                    assert!(worst < bound, "{shape:?} {len} {window:?} {format:?}: {worst}");
                }
            }
        }
    }
}

#[test]
fn every_level_gives_the_bits_of_scalar() {
    for (shape, len, window) in [
        (SHAPES[0], 1, None),
        (SHAPES[0], 257, None),
        (SHAPES[1], 330, Some(70)),
        (SHAPES[2], 70, Some(65)),
        (SHAPES[3], 140, None),
        (SHAPES[4], 530, Some(300)),
    ] {
        let mut rows = Rows::new(shape, len, 12);
        for strange in [false, true] {
            if strange && len > 60 {
                let row = shape.n_kv_heads * shape.dim;
                rows.values[30 * row] = f32::INFINITY;
                rows.keys[40 * row + 1] = f32::NAN;
                rows.keys[50 * row + 2] = f32::NEG_INFINITY;
            }
            for format in [KvFormat::F16, KvFormat::Q8] {
                let cache = rows.cache(format, len);
                let truth = rows.attended(Level::Scalar, &cache, 0, window);
                for level in levels().filter(|level| *level != Level::Scalar) {
                    let out = rows.attended(level, &cache, 0, window);
                    assert_same(&out, &truth, &format!("{level:?} {shape:?} {len} {window:?} {format:?}"));
                }
            }
        }
    }
}

#[test]
fn a_position_gets_the_same_alone_and_among_many() {
    for (shape, len, window) in [
        (SHAPES[0], 530, None),
        (SHAPES[0], 530, Some(257)),
        (SHAPES[2], 300, Some(3)),
        (SHAPES[4], 1030, None),
    ] {
        let rows = Rows::new(shape, len, 13);
        let row = shape.n_heads * shape.dim;
        let all = rows.attended(level(), &rows.cache(KvFormat::F16, len), 0, window);
        // Positions are added behind those of the cache, which are what they were when each was the last.
        let mut cache = rows.cache(KvFormat::F16, 0);
        let mut first = 0;
        for n in [1, 1, 7, 55, 1, 64, 128, 2, 200, 71, 500].into_iter().cycle() {
            let end = len.min(first + n);
            let kv_row = shape.n_kv_heads * shape.dim;
            cache.append(
                0,
                &rows.keys[first * kv_row..end * kv_row],
                &rows.values[first * kv_row..end * kv_row],
            );
            let some = rows.attended(level(), &cache, first, window);
            assert_same(&some, &all[first * row..end * row], &format!("{shape:?} {window:?} {first}..{end}"));
            first = end;
            if first == len {
                break;
            }
        }
    }
}

#[test]
fn threads_and_other_parts_change_nothing() {
    let shape = SHAPES[0];
    let lens = [1, 64, 700, 1500, 65, 300];
    let firsts = [0, 63, 699, 1498, 0, 40];
    let rows: Vec<Rows> = lens.iter().map(|len| Rows::new(shape, *len, *len as u64)).collect();
    let caches: Vec<KvCache> =
        rows.iter().zip(lens).map(|(rows, len)| rows.cache(KvFormat::Q8, len)).collect();
    let alone: Vec<Vec<f32>> =
        (0..lens.len()).map(|i| rows[i].attended(level(), &caches[i], firsts[i], Some(1400))).collect();
    for n_threads in [1, 2, 3] {
        overdrive_pool::set_threads(n_threads).unwrap();
        let mut outs: Vec<Vec<f32>> = alone.iter().map(|out| vec![0.0; out.len()]).collect();
        let mut parts: Vec<Part<'_>> = (0..lens.len())
            .zip(&mut outs)
            .map(|(i, out)| Part {
                cache: &caches[i],
                first: firsts[i],
                queries: rows[i].queries(firsts[i], lens[i]),
                out,
            })
            .collect();
        attend(&mut parts, 0, rows[0].scale(), Some(1400));
        for (out, alone) in outs.iter().zip(&alone) {
            assert_same(out, alone, &format!("{n_threads} threads"));
        }
    }
}

#[test]
fn a_query_knows_nothing_of_what_it_does_not_see() {
    let shape = SHAPES[0];
    let (len, kv_row, row) = (200, 3 * 64, 9 * 64);
    let clean = Rows::new(shape, len, 14);
    let mut dirty = Rows::new(shape, len, 14);
    for (i, strange) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].into_iter().enumerate() {
        dirty.keys[(100 + i) * kv_row..(101 + i) * kv_row].fill(strange);
        dirty.values[(100 + i) * kv_row..(101 + i) * kv_row].fill(strange);
    }
    let window = Some(20);
    for format in [KvFormat::F16, KvFormat::Q8] {
        let good = clean.attended(level(), &clean.cache(format, len), 0, window);
        let bad = dirty.attended(level(), &dirty.cache(format, len), 0, window);
        assert_same(&bad[..100 * row], &good[..100 * row], "before");
        assert_same(&bad[122 * row..], &good[122 * row..], "behind the window");
        assert!(bad[100 * row..122 * row].iter().all(|x| x.is_nan()));
        // Positions that were forgotten are seen by nobody, though their places in the block still hold them.
        let mut cut = dirty.cache(format, len);
        cut.truncate(100);
        let cut = dirty.attended(level(), &cut, 90, window);
        assert_same(&cut, &good[90 * row..100 * row], "forgotten");
    }
}

#[test]
fn huge_scores_do_not_overflow() {
    let shape = Shape { n_heads: 1, n_kv_heads: 1, dim: 16 };
    let mut rows = Rows::new(shape, 600, 15);
    rows.keys.iter_mut().chain(&mut rows.queries).for_each(|x| *x *= 100.0);
    let (out, truth) =
        (rows.attended(level(), &rows.cache(KvFormat::F16, 600), 0, None), rows.truth(600, None));
    assert!(out.iter().all(|x| x.is_finite()));
    // Where one score is far above the others, its value is the result.
    let last = |out: &[f64]| out[599 * 16..].to_vec();
    let out: Vec<f64> = out.iter().map(|x| f64::from(*x)).collect();
    assert!(last(&out).iter().zip(last(&truth)).all(|(a, b)| (a - b).abs() < 2e-3));
}

#[test]
fn no_positions_are_no_work() {
    let rows = Rows::new(SHAPES[0], 3, 16);
    assert_eq!(rows.attended(level(), &rows.cache(KvFormat::F16, 3), 3, None), []);
    attend(&mut [], 0, 1.0, None);
}

#[test]
#[should_panic(expected = "queries")]
fn queries_that_do_not_fit_are_refused() {
    let rows = Rows::new(SHAPES[0], 3, 17);
    let cache = rows.cache(KvFormat::F16, 3);
    cache.attend(0, 1, rows.queries(0, 3), 1.0, None, &mut vec![0.0; 3 * 9 * 64 + 1]);
}
