//! Caches: what they store, share, forget and write down.

use proptest::prelude::{any, prop};
use proptest::{prop_assert, prop_assert_eq, proptest};

use super::{CacheError, KvCache, KvFormat, KvShape, TILE};
use crate::cpu::Level;
use crate::lanes::{LANES, levels};
use crate::random::normal;

const FORMATS: [KvFormat; 2] = [KvFormat::F16, KvFormat::Q8];

fn filled(
    n_layers: usize,
    n_kv_heads: usize,
    dim: usize,
    format: KvFormat,
    len: usize,
    seed: u64,
) -> KvCache {
    let mut cache = KvCache::new(n_layers, n_kv_heads, dim, format);
    add(&mut cache, len, seed);
    cache
}

fn add(cache: &mut KvCache, n: usize, seed: u64) {
    let shape = cache.shape();
    for layer in 0..shape.n_layers {
        let seed = seed * 100 + layer as u64 * 2;
        cache.append(layer, &normal(n * shape.row(), seed), &normal(n * shape.row(), seed + 1));
    }
}

/// Keys and values of a layer, `(positions, kv_heads, head_dim)`, as attention sees them.
fn content(cache: &KvCache, layer: usize) -> (Vec<f32>, Vec<f32>) {
    let (shape, len) = (cache.shape(), cache.layer_len(layer));
    let (dim, padded) = (shape.head_dim, shape.padded_dim());
    let (mut keys, mut values) = (vec![0.0; len * shape.row()], vec![0.0; len * shape.row()]);
    let mut tile = vec![0.0; padded * TILE];
    for number in 0..len.div_ceil(TILE) {
        let n = TILE.min(len - number * TILE);
        for head in 0..shape.n_kv_heads {
            let place = |at: usize, d: usize| (number * TILE + at) * shape.row() + head * dim + d;
            let block = cache.block(layer, number);
            block.widen_keys(crate::lanes::Plain, shape, head, &mut tile);
            for (at, d) in (0..n).flat_map(|at| (0..dim).map(move |d| (at, d))) {
                keys[place(at, d)] = tile[d * TILE + at];
            }
            block.widen_values(crate::lanes::Plain, shape, head, 0, n, &mut tile);
            for (at, d) in (0..n).flat_map(|at| (0..dim).map(move |d| (at, d))) {
                values[place(at, d)] = tile[at * padded + d];
            }
        }
    }
    (keys, values)
}

fn bytes(cache: &KvCache) -> Vec<u8> {
    let mut bytes = Vec::new();
    cache.write(&mut bytes).unwrap();
    bytes
}

#[test]
fn what_is_stored_is_near_what_was_given() {
    for format in FORMATS {
        for dim in [5, 32, 64, 80] {
            let len = 150;
            let mut cache = KvCache::new(1, 2, dim, format);
            let (keys, values) = (normal(len * 2 * dim, 1), normal(len * 2 * dim, 2));
            cache.append(0, &keys, &values);
            let stored = content(&cache, 0);
            for (given, stored) in [(&keys, stored.0), (&values, stored.1)] {
                for (given, stored) in given.chunks_exact(dim).zip(stored.chunks_exact(dim)) {
                    for (given, stored) in given.chunks(32).zip(stored.chunks(32)) {
                        let most = given.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                        for (a, b) in given.iter().zip(stored) {
                            let bound = match format {
                                // Half a unit in the last place; below 2⁻¹⁴ units do not shrink.
                                KvFormat::F16 => (a.abs() / 2048.0).max(2f32.powi(-25)),
                                // Half a step, and its rounding.
                                KvFormat::Q8 => most / 253.9,
                            };
                            assert!((a - b).abs() <= bound, "{format:?} {dim}: {a} {b}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn strange_values_stay_strange_and_zeros_stay_zero() {
    for format in FORMATS {
        let mut cache = KvCache::new(1, 1, 64, format);
        let mut row = normal(64, 3);
        row[40] = f32::NAN;
        cache.append(0, &row, &[0.0; 64]);
        row[40] = f32::INFINITY;
        cache.append(0, &[1e-42; 64], &row);
        let (keys, values) = content(&cache, 0);
        assert!(keys[40].is_nan() && keys[..32].iter().all(|x| x.is_finite()));
        assert!(!values[64 + 40].is_finite() && values[64..96].iter().all(|x| x.is_finite()));
        assert!(values[..64].iter().all(|x| *x == 0.0) && keys[64..].iter().all(|x| *x == 0.0));
    }
}

#[test]
fn every_level_stores_the_same() {
    for format in FORMATS {
        for dim in [5, 64, 80] {
            let shape = KvShape { n_layers: 1, n_kv_heads: 3, head_dim: dim };
            let (keys, values) = (normal(40 * shape.row(), 4), normal(40 * shape.row(), 5));
            let stored = |level: Level| {
                let mut cache = filled(1, 3, dim, format, 64, 0);
                let block = std::sync::Arc::make_mut(&mut cache.layers[0].blocks[0]);
                block.put(level, shape, 7, &keys, &values);
                bytes(&cache)
            };
            assert!(levels().all(|level| stored(level) == stored(Level::Scalar)), "{format:?} {dim}");
        }
    }
}

#[test]
fn clones_share_blocks_until_they_write() {
    for format in FORMATS {
        let mut cache = filled(2, 2, 32, format, 130, 6);
        let before = content(&cache, 1);
        let mut other = cache.clone();
        let is_shared = |a: &KvCache, b: &KvCache, tile| std::ptr::eq(a.block(1, tile), b.block(1, tile));
        assert!((0..3).all(|tile| is_shared(&cache, &other, tile)));
        add(&mut other, 3, 7);
        assert!(
            is_shared(&cache, &other, 0) && is_shared(&cache, &other, 1) && !is_shared(&cache, &other, 2)
        );
        assert_eq!((content(&cache, 1), cache.len(), other.len()), (before.clone(), 130, 133));
        assert_eq!(content(&other, 1).0[..130 * 64], before.0[..]);
        // Cut into a shared block, then written there.
        other.truncate(20);
        add(&mut other, 5, 8);
        assert!(!is_shared(&cache, &other, 0));
        add(&mut cache, 1, 9);
        assert_eq!(content(&cache, 1).0[..130 * 64], before.0[..]);
        assert_eq!(
            (content(&other, 1).0[..20 * 64].to_vec(), other.len()),
            (before.0[..20 * 64].to_vec(), 25)
        );
    }
}

#[test]
fn truncating_takes_back_an_unfinished_step() {
    let mut cache = filled(3, 1, 16, KvFormat::F16, 64, 10);
    let before = bytes(&cache);
    cache.append(0, &[1.0; 16 * 70], &[1.0; 16 * 70]);
    cache.append(1, &[1.0; 16 * 70], &[1.0; 16 * 70]);
    assert_eq!((cache.len(), cache.layer_len(0), cache.layer_len(2)), (64, 134, 64));
    assert_eq!(bytes(&cache), before);
    cache.truncate(cache.len());
    assert_eq!((cache.layer_len(0), cache.n_bytes()), (64, cache.block_bytes()));
    assert_eq!(bytes(&cache), before);
    cache.truncate(1000);
    assert_eq!(cache.len(), 64);
    cache.truncate(0);
    assert!(cache.is_empty() && cache.n_bytes() == 0);
    assert_eq!(KvCache::new(0, 1, 1, KvFormat::F16).len(), 0);
}

#[test]
fn memory_is_what_the_formats_say() {
    let f16 = filled(3, 2, 64, KvFormat::F16, 65, 11);
    assert_eq!((f16.n_bytes(), f16.block_bytes()), (2 * 3 * 64 * 2 * 64 * 2 * 2, 3 * 64 * 2 * 64 * 2 * 2));
    let q8 = filled(3, 2, 64, KvFormat::Q8, 64, 12);
    assert_eq!(q8.n_bytes() * 32, 3 * 64 * 2 * 64 * 2 * 36);
}

#[test]
fn bytes_become_the_same_cache() {
    for format in FORMATS {
        for (len, dim) in [(0, 64), (1, 64), (64, 80), (65, 5), (200, 32)] {
            let cache = filled(2, 3, dim, format, len, 13);
            let mut bytes = bytes(&cache);
            bytes.extend(b"behind");
            let mut rest = &bytes[..];
            let mut read = KvCache::read(&mut rest, cache.shape()).unwrap();
            assert_eq!((rest, read.len(), read.format()), (&b"behind"[..], len, format));
            assert!((0..2).all(|layer| content(&read, layer) == content(&cache, layer)));
            // What lay behind the last position does not show.
            let mut longer = cache.clone();
            add(&mut longer, 9, 14);
            longer.truncate(len);
            assert_eq!(super::tests::bytes(&longer), super::tests::bytes(&read));
            add(&mut read, 30, 15);
            assert_eq!(read.len(), len + 30);
        }
    }
}

#[test]
fn foreign_bytes_are_named() {
    let cache = filled(2, 1, 16, KvFormat::Q8, 70, 16);
    let (shape, good) = (cache.shape(), bytes(&cache));
    let read = |bytes: &[u8], shape| KvCache::read(&mut &bytes[..], shape).map(|cache| cache.len());
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        read(&bytes, shape)
    };
    assert!(matches!(with(0, b'X'), Err(CacheError::NotACache)));
    assert!(matches!(with(4, 9), Err(CacheError::Version(9))));
    assert!(matches!(with(8, 7), Err(CacheError::Format(7))));
    assert!(matches!(with(12, 3), Err(CacheError::Shape { .. })));
    assert!(matches!(with(31, 1), Err(CacheError::Cut)), "more positions than there are bytes");
    assert!(matches!(with(100, good[100] ^ 1), Err(CacheError::Damaged)));
    assert!(matches!(with(good.len() - 1, good[good.len() - 1] ^ 1), Err(CacheError::Damaged)));
    let wanted = KvShape { n_layers: 4, ..shape };
    let error = read(&good, wanted).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the cache holds 2 layers of 1 heads of 16 values, the model has 4 of 1 of 16"
    );
    for len in (0..good.len()).step_by(37) {
        assert!(matches!(read(&good[..len], shape), Err(CacheError::Cut)), "{len} bytes");
    }
}

proptest! {
    #[test]
    fn changed_bytes_are_an_error(at in any::<prop::sample::Index>(), bit in 0..8u32) {
        let cache = filled(1, 1, 16, KvFormat::F16, 65, 17);
        let mut bytes = bytes(&cache);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(KvCache::read(&mut &bytes[..], cache.shape()).is_err());
    }

    #[test]
    fn any_steps_give_the_positions_of_one(steps in prop::collection::vec(1..100usize, 1..6)) {
        let (len, row) = (steps.iter().sum::<usize>(), 2 * 2 * LANES);
        let (keys, values) = (normal(len * row, 18), normal(len * row, 19));
        for format in FORMATS {
            let mut whole = KvCache::new(1, 2, 2 * LANES, format);
            whole.append(0, &keys, &values);
            let mut pieces = KvCache::new(1, 2, 2 * LANES, format);
            for n in &steps {
                let at = pieces.len() * row..(pieces.len() + n) * row;
                pieces.append(0, &keys[at.clone()], &values[at]);
            }
            prop_assert_eq!(bytes(&pieces), bytes(&whole));
        }
    }
}
