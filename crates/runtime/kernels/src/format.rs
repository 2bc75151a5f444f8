//! The formats of weights: how many values a block holds, in how many bytes, and what they decode to.
//!
//! In: bytes of whole blocks. Out: `f32`, exactly as the format defines them. The layouts are those of GGUF; this decoder
//! is the truth for everything faster.

use std::fmt;

/// How the values of one tensor are stored. Named as in GGUF files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of a single.
    BF16,
    /// 32 values: a scale, 4 bits each around 8.
    Q4_0,
    /// 32 values: a scale and a minimum, 4 bits each.
    Q4_1,
    /// 32 values: a scale, 5 bits each around 16.
    Q5_0,
    /// 32 values: a scale and a minimum, 5 bits each.
    Q5_1,
    /// 32 values: a scale, 8 bits each.
    Q8_0,
    /// 256 values in 8 groups: scales and minima of 6 bits, 4 bits each.
    Q4K,
    /// 256 values in 8 groups: scales and minima of 6 bits, 5 bits each.
    Q5K,
    /// 256 values in 16 groups: scales of 8 bits, 6 bits each around 32.
    Q6K,
}

/// Bytes that are no whole number of blocks, or do not fit the values asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeError {
    /// The format that was to be decoded.
    pub format: Format,
    /// Bytes given.
    pub n_bytes: usize,
    /// Values asked for.
    pub n_values: usize,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, n_bytes, n_values } = self;
        write!(
            f,
            "{n_bytes} bytes are not {n_values} values of {}: its blocks hold {} values in {} bytes",
            format.name(),
            format.block_values(),
            format.block_bytes()
        )
    }
}

impl std::error::Error for SizeError {}

impl Format {
    /// All that are known, in the order of their numbers in files.
    pub const ALL: [Self; 11] = [
        Self::F32,
        Self::F16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::BF16,
    ];

    /// The number that stands for it in a GGUF file.
    pub const fn ggml(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q5_1 => 7,
            Self::Q8_0 => 8,
            Self::Q4K => 12,
            Self::Q5K => 13,
            Self::Q6K => 14,
            Self::BF16 => 30,
        }
    }

    /// The format with this number in a GGUF file, if it is one that we know.
    pub fn from_ggml(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.ggml() == number)
    }

    /// Its name in GGUF's documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        }
    }

    /// Values in one block.
    pub const fn block_values(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Bytes of a row of this many values; none where a block would be cut, or the size leaves `usize`.
    pub const fn row_bytes(self, n_values: usize) -> Option<usize> {
        if !n_values.is_multiple_of(self.block_values()) {
            return None;
        }
        (n_values / self.block_values()).checked_mul(self.block_bytes())
    }
}

/// Decodes whole blocks into `out`.
///
/// # Errors
/// `SizeError` when the bytes are not exactly `out.len()` values.
pub fn decode(format: Format, bytes: &[u8], out: &mut [f32]) -> Result<(), SizeError> {
    if format.row_bytes(out.len()) != Some(bytes.len()) {
        return Err(SizeError { format, n_bytes: bytes.len(), n_values: out.len() });
    }
    let blocks = bytes.chunks_exact(format.block_bytes());
    for (block, out) in blocks.zip(out.chunks_exact_mut(format.block_values())) {
        decode_block(format, block, out);
    }
    Ok(())
}

/// `block` and `out` have the sizes of one block.
fn decode_block(format: Format, block: &[u8], out: &mut [f32]) {
    match format {
        Format::F32 => out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
        Format::F16 => out[0] = half(block, 0),
        Format::BF16 => out[0] = half::bf16::from_le_bytes([block[0], block[1]]).to_f32(),
        Format::Q4_0 => nibbles(&block[2..], |i, q| out[i] = half(block, 0) * (f32::from(q) - 8.0)),
        Format::Q4_1 => nibbles(&block[4..], |i, q| out[i] = half(block, 0) * f32::from(q) + half(block, 2)),
        Format::Q5_0 => {
            let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
            nibbles(&block[6..], |i, q| {
                out[i] = half(block, 0) * (f32::from(q | fifth(high, i)) - 16.0);
            });
        }
        Format::Q5_1 => {
            let high = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
            nibbles(&block[8..], |i, q| {
                out[i] = half(block, 0) * f32::from(q | fifth(high, i)) + half(block, 2);
            });
        }
        Format::Q8_0 => {
            for (out, q) in out.iter_mut().zip(&block[2..]) {
                *out = half(block, 0) * f32::from(q.cast_signed());
            }
        }
        Format::Q4K => {
            for (i, out) in out.iter_mut().enumerate() {
                let (group, within) = (i / 32, i % 32);
                let q = block[16 + group / 2 * 32 + within] >> (group % 2 * 4) & 15;
                let (scale, minimum) = scale_and_minimum(&block[4..16], group);
                *out = half(block, 0) * f32::from(scale) * f32::from(q) - half(block, 2) * f32::from(minimum);
            }
        }
        Format::Q5K => {
            for (i, out) in out.iter_mut().enumerate() {
                let (group, within) = (i / 32, i % 32);
                let low = block[48 + group / 2 * 32 + within] >> (group % 2 * 4) & 15;
                let q = low | (block[16 + within] >> group & 1) << 4;
                let (scale, minimum) = scale_and_minimum(&block[4..16], group);
                *out = half(block, 0) * f32::from(scale) * f32::from(q) - half(block, 2) * f32::from(minimum);
            }
        }
        Format::Q6K => {
            for (i, out) in out.iter_mut().enumerate() {
                // Two halves of 128 values, each four runs of 32 that share bytes.
                let (part, run, within) = (i / 128, i % 128 / 32, i % 32);
                let low = block[part * 64 + run % 2 * 32 + within] >> (run / 2 * 4) & 15;
                let high = block[128 + part * 32 + within] >> (run * 2) & 3;
                let q = f32::from(low | high << 4) - 32.0;
                *out = half(block, 208) * f32::from(block[192 + i / 16].cast_signed()) * q;
            }
        }
    }
}

fn half(bytes: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// 16 bytes: values 0 to 15 in the low halves, 16 to 31 in the high ones.
fn nibbles(bytes: &[u8], mut take: impl FnMut(usize, u8)) {
    for (i, byte) in bytes.iter().enumerate() {
        take(i, byte & 15);
        take(i + 16, byte >> 4);
    }
}

fn fifth(high: u32, i: usize) -> u8 {
    ((high >> i & 1) << 4) as u8
}

/// Of group `i` of a block of `Q4_K` or `Q5_K`, whose 12 bytes hold eight of each with 6 bits.
pub(crate) fn scale_and_minimum(packed: &[u8], i: usize) -> (u8, u8) {
    if i < 4 {
        (packed[i] & 63, packed[i + 4] & 63)
    } else {
        let low = packed[i + 4];
        (low & 15 | packed[i - 4] >> 6 << 4, low >> 4 | packed[i] >> 6 << 4)
    }
}
