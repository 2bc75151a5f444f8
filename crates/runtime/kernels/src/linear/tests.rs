//! Every level gives the bits of the oracle, and the oracle is the product that the formats define.

mod brains;

use super::layout::{BLOCK, LANES, Packing, SPAN};
use super::pieces::takes_pieces;
use super::{Matrix, Rows, multiply, oracle};
use crate::cpu::{Level, most_level};
use crate::format::{Format, decode};

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Around 0, at most 1.
    fn number(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() >> 32) as u8).collect()
    }
}

/// Where a block of the format holds halves that scale it.
fn halves(format: Format) -> &'static [usize] {
    match format {
        Format::F32 | Format::F16 | Format::BF16 => &[],
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => &[0, 2],
        Format::Q6K => &[208],
    }
}

/// Weights of ordinary size.
fn weights(format: Format, n_rows: usize, n_cols: usize, random: &mut Random) -> Vec<u8> {
    let n_bytes = format.row_bytes(n_cols).unwrap() * n_rows;
    match format {
        Format::F32 => (0..n_bytes / 4).flat_map(|_| random.number().to_le_bytes()).collect(),
        Format::F16 => {
            (0..n_bytes / 2).flat_map(|_| half::f16::from_f32(random.number()).to_le_bytes()).collect()
        }
        Format::BF16 => {
            (0..n_bytes / 2).flat_map(|_| half::bf16::from_f32(random.number()).to_le_bytes()).collect()
        }
        _ => {
            let mut bytes = random.bytes(n_bytes);
            for block in bytes.chunks_exact_mut(format.block_bytes()) {
                for at in halves(format) {
                    let scale = half::f16::from_f32(random.number() / 32.0);
                    block[*at..][..2].copy_from_slice(&scale.to_le_bytes());
                }
            }
            bytes
        }
    }
}

fn activations(n_rows: usize, n_cols: usize, random: &mut Random) -> Vec<f32> {
    (0..n_rows * n_cols).map(|_| random.number() * 4.0).collect()
}

fn product(matrix: &Matrix, rows: &Rows) -> Vec<f32> {
    let mut out = vec![f32::from_bits(0x7fa5_a5a5); rows.len() * matrix.n_rows()];
    multiply(&mut [(matrix, &mut out)], rows);
    out
}

/// The product of one row after the other, as the oracle states it for the rows' level.
fn truth(level: Level, matrix: &Matrix, values: &[f32]) -> Vec<f32> {
    let mut out = Vec::new();
    for row in values.chunks_exact(matrix.n_cols()) {
        let rows = Rows::prepare_at(level, row, matrix.n_cols(), [matrix.format()]);
        for g in 0..matrix.n_groups() {
            let n = LANES.min(matrix.n_rows() - g * LANES);
            out.extend_from_slice(&oracle::product(matrix, g, &rows, 0)[..n]);
        }
    }
    out
}

fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|level| *level <= most_level())
}

/// Which NaN it is does not matter.
fn bits(value: f32) -> u32 {
    if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() }
}

/// Every level, all rows at once, against the oracle, row by row.
fn check(format: Format, n_rows: usize, n_cols: usize, bytes: &[u8], values: &[f32]) {
    let matrix = Matrix::new(format, n_rows, n_cols, bytes).unwrap();
    let common = truth(Level::Scalar, &matrix, values);
    for level in levels() {
        let rows = Rows::prepare_at(level, values, n_cols, [format]);
        let found = product(&matrix, &rows);
        let own = takes_pieces(level, format).then(|| truth(level, &matrix, values));
        for (i, (found, expected)) in found.iter().zip(own.as_ref().unwrap_or(&common)).enumerate() {
            assert_eq!(
                bits(*found),
                bits(*expected),
                "{found} is not {expected}: {} on {level:?}, {n_rows} x {n_cols}, row {} of {}, output {}",
                format.name(),
                i / n_rows,
                rows.len(),
                i % n_rows
            );
        }
    }
}

#[test]
fn levels_agree_for_any_number_of_rows() {
    let mut random = Random(1);
    for format in Format::ALL {
        let n_cols = if format.block_values() == 256 { 512 } else { 96 };
        let bytes = weights(format, 35, n_cols, &mut random);
        for n in (1..=20).chain([31, 32, 33, 40, 100]) {
            check(format, 35, n_cols, &bytes, &activations(n, n_cols, &mut random));
        }
    }
}

#[test]
fn levels_agree_for_odd_shapes() {
    let mut random = Random(2);
    for format in Format::ALL {
        for n_cols in [1, 7, 32, 64, 100, 256, 576, 1056, 1536, 2304] {
            if n_cols % format.block_values() != 0 {
                continue;
            }
            for n_rows in if n_cols < 500 { &[1, 15, 16, 17, 48, 130][..] } else { &[35] } {
                let n_rows = *n_rows;
                let bytes = weights(format, n_rows, n_cols, &mut random);
                for n in [1, 3, 17] {
                    check(format, n_rows, n_cols, &bytes, &activations(n, n_cols, &mut random));
                }
            }
        }
    }
}

/// The other tests take AVX-VNNI for [`Level::Avx2`] where it is there.
#[cfg(target_arch = "x86_64")]
#[test]
fn avx2_without_vnni_agrees() {
    crate::cpu::WITHOUT_AVX_VNNI.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut random = Random(9);
    for format in Format::ALL {
        let bytes = weights(format, 35, 512, &mut random);
        for n in [1, 2, 3, 4, 5, 18] {
            check(format, 35, 512, &bytes, &activations(n, 512, &mut random));
        }
    }
    adversarial();
    crate::cpu::WITHOUT_AVX_VNNI.store(false, std::sync::atomic::Ordering::Relaxed);
}

#[test]
fn levels_agree_on_adversarial_blocks() {
    adversarial();
}

fn adversarial() {
    let mut random = Random(3);
    let extremes = [
        0.0,
        -0.0,
        1e-45,
        1e-38,
        -3e-37,
        3.4e38,
        -3.4e38,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1.0,
        127.5,
    ];
    for format in Format::ALL {
        let n_cols = 256;
        let n_bytes = format.row_bytes(n_cols).unwrap() * 17;
        let mut scaled = vec![0xff; n_bytes];
        for block in scaled.chunks_exact_mut(format.block_bytes()) {
            for at in halves(format) {
                let scale = half::f16::from_bits((random.next() >> 20) as u16);
                block[*at..][..2].copy_from_slice(&scale.to_le_bytes());
            }
        }
        let contents = [vec![0xff; n_bytes], vec![0; n_bytes], random.bytes(n_bytes), scaled];
        for bytes in &contents {
            for n in [1, 2, 5, 18] {
                let mut values = activations(n, n_cols, &mut random);
                check(format, 17, n_cols, bytes, &values);
                for value in &mut values {
                    if random.next().is_multiple_of(50) {
                        *value = extremes[(random.next() % extremes.len() as u64) as usize];
                    }
                }
                check(format, 17, n_cols, bytes, &values);
                values.fill(0.0);
                check(format, 17, n_cols, bytes, &values);
                values.fill(-1.0);
                check(format, 17, n_cols, bytes, &values);
                values.fill(3.0e38);
                check(format, 17, n_cols, bytes, &values);
            }
        }
    }
}

/// Against the product in `f64` of decoded weights and of the activations as they were quantised.
#[test]
fn the_oracle_is_the_product_of_what_was_decoded() {
    let mut random = Random(4);
    for format in Format::ALL {
        let (n_rows, n_cols, n) = (33, 768, 3);
        let bytes = weights(format, n_rows, n_cols, &mut random);
        let values = activations(n, n_cols, &mut random);
        let rows = Rows::prepare_at(Level::Scalar, &values, n_cols, [format]);
        let matrix = Matrix::new(format, n_rows, n_cols, &bytes).unwrap();
        let found = product(&matrix, &rows);
        let mut decoded = vec![0.0; n_rows * n_cols];
        decode(format, &bytes, &mut decoded).unwrap();
        for row in 0..n {
            let activation = |k: usize| {
                if matrix.is_quantised() {
                    let span = Packing::of(format).unwrap().scales.span();
                    let (codes, step) = rows.coded(span).unwrap().block(row, k / BLOCK);
                    f64::from(step) * f64::from(codes[k % BLOCK])
                } else {
                    f64::from(values[row * n_cols + k])
                }
            };
            for r in 0..n_rows {
                let terms = (0..n_cols).map(|k| f64::from(decoded[r * n_cols + k]) * activation(k));
                let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                // A sum loses half a unit in the last place for each addition, and a product two; a decoded weight, a sum
                // of two, one that is not lost here.
                let bound = size * f64::from(f32::EPSILON) * (n_cols as f64);
                let found = f64::from(found[row * n_rows + r]);
                assert!((found - sum).abs() <= bound, "{}: {found} is not {sum} +- {bound}", format.name());
            }
        }
    }
}

#[test]
fn activations_lose_at_most_half_a_step() {
    let mut random = Random(5);
    let values = activations(37, 160, &mut random);
    let rows = Rows::prepare(&values, 160, [Format::Q8_0, Format::Q4K]);
    for span in [1, SPAN] {
        let coded = rows.coded(span).unwrap();
        for (i, value) in values.iter().enumerate() {
            let (codes, step) = coded.block(i / 160, i % 160 / BLOCK);
            let error = (f32::from(codes[i % BLOCK]) * step - value).abs();
            assert!(error <= step * 0.500_1, "{value} became {} steps of {step}", codes[i % BLOCK]);
        }
        for row in 0..37 {
            let blocks: Vec<&[i8; BLOCK]> = (0..5).map(|b| coded.block(row, b).0).collect();
            for codes in blocks.chunks(span) {
                assert!(codes.iter().copied().flatten().any(|code| code.unsigned_abs() == 127));
            }
        }
    }
}

#[test]
fn rows_decode_as_in_the_file() {
    let mut random = Random(6);
    for format in Format::ALL {
        for n_cols in [256, 768] {
            let n_rows = 21;
            let bytes = random.bytes(format.row_bytes(n_cols).unwrap() * n_rows);
            let matrix = Matrix::new(format, n_rows, n_cols, &bytes).unwrap();
            let mut expected = vec![0.0; n_rows * n_cols];
            decode(format, &bytes, &mut expected).unwrap();
            let mut found = vec![0.0; n_cols];
            for (r, expected) in expected.chunks_exact(n_cols).enumerate() {
                matrix.row(r, &mut found);
                for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
                    assert_eq!(bits(*found), bits(*expected), "{} {r} {k}", format.name());
                }
            }
        }
    }
}

/// The only test that says how many threads there are.
#[test]
fn threads_and_company_change_nothing() {
    let mut random = Random(7);
    let formats = [Format::Q4_1, Format::Q6K, Format::F16, Format::Q8_0, Format::BF16];
    let matrices: Vec<Matrix> = formats
        .into_iter()
        .zip([16, 100, 33, 257, 145])
        .map(|(format, n_rows)| {
            let bytes = weights(format, n_rows, 512, &mut random);
            Matrix::new(format, n_rows, 512, &bytes).unwrap()
        })
        .collect();
    for n in [1, 4, 70] {
        let values = activations(n, 512, &mut random);
        for level in levels() {
            let rows = Rows::prepare_at(level, &values, 512, formats);
            let alone: Vec<Vec<f32>> = matrices.iter().map(|matrix| product(matrix, &rows)).collect();
            for threads in [1, 2, 3, 4, 7] {
                overdrive_pool::set_threads(threads).unwrap();
                let mut together: Vec<Vec<f32>> =
                    matrices.iter().map(|matrix| vec![0.0; n * matrix.n_rows()]).collect();
                let mut products: Vec<(&Matrix, &mut [f32])> =
                    matrices.iter().zip(together.iter_mut().map(Vec::as_mut_slice)).collect();
                multiply(&mut products, &rows);
                assert_eq!(together, alone, "{n} rows on {threads} threads, {level:?}");
            }
        }
    }
}

#[test]
fn rows_for_other_formats_change_nothing() {
    let mut random = Random(8);
    for format in Format::ALL {
        let bytes = weights(format, 40, 256, &mut random);
        let matrix = Matrix::new(format, 40, 256, &bytes).unwrap();
        for n in [1, 2, 9, 300] {
            let values = activations(n, 256, &mut random);
            for level in levels() {
                let found = product(&matrix, &Rows::prepare_at(level, &values, 256, [format]));
                assert_eq!(found, product(&matrix, &Rows::prepare_at(level, &values, 256, Format::ALL)));
            }
        }
    }
}

#[test]
#[should_panic(expected = "rows were not prepared for Matrix(1 x 256 of Q4_K)")]
fn rows_for_other_formats_are_refused() {
    let matrix = Matrix::new(Format::Q4K, 1, 256, &[0; 144]).unwrap();
    product(&matrix, &Rows::prepare(&[1.0; 256], 256, [Format::Q4_0, Format::F32]));
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let error = Matrix::new(Format::Q4_0, 2, 64, &[0; 71]).unwrap_err();
    assert_eq!(error.to_string(), "71 bytes are not 2 x 64 of Q4_0");
    assert!(Matrix::new(Format::Q4_0, 2, 65, &[0; 72]).is_err());
    assert!(Matrix::new(Format::Q4K, usize::MAX, 1 << 40, &[]).is_err());
    assert!(Matrix::new(Format::F32, 1 << 62, 4, &[]).is_err());
}

#[test]
fn nothing_times_nothing_is_nothing() {
    let empty = Matrix::new(Format::Q4_0, 0, 32, &[]).unwrap();
    for level in levels() {
        assert!(product(&empty, &Rows::prepare_at(level, &[1.0; 32], 32, Format::ALL)).is_empty());
        let matrix = Matrix::new(Format::Q8_0, 3, 32, &[0; 102]).unwrap();
        assert!(product(&matrix, &Rows::prepare_at(level, &[], 32, Format::ALL)).is_empty());
        for format in [Format::Q4_0, Format::F32, Format::BF16] {
            let flat = Matrix::new(format, 20, 0, &[]).unwrap();
            let mut out = vec![0.0; 0];
            multiply(&mut [(&flat, &mut out)], &Rows::prepare_at(level, &[], 0, Format::ALL));
        }
    }
}
