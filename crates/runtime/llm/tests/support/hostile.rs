//! GGUF files of all kinds, and files that are almost GGUF.
//!
//! In: a seed. Out: small valid files, and changed ones: bytes flipped, numbers at the places of counts, lengths, types and
//! offsets replaced by others that are likely to hurt, pieces cut out, doubled, or taken from another file.

use overdrive_kernels::Format;
use overdrive_llm::gguf::{Array, Error, File, Value, Writer};

/// Numbers that look random and are the same everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }

    fn text(&mut self) -> String {
        let letters = ['a', 'b', '.', ' ', 'é', '日', '\u{1f40d}', '\0'];
        (0..self.below(6)).map(|_| letters[self.below(letters.len())]).collect()
    }
}

/// A valid file that a writer was told to write.
pub(crate) fn valid(random: &mut Random) -> Writer {
    let mut writer = Writer::new();
    if random.below(4) == 0 {
        writer.version(2);
    }
    if random.below(3) == 0 {
        writer.alignment(1 << random.below(9));
    }
    if random.below(8) == 0 {
        writer.set("split.count", Value::U16(1));
    }
    for i in 0..random.below(5) {
        let value = value(random);
        writer.set(&format!("{i}{}", random.text()), value);
    }
    for i in 0..random.below(4) {
        let format = Format::ALL[random.below(Format::ALL.len())];
        let mut shape: Vec<usize> = (0..random.below(4)).map(|_| 1 + random.below(2)).collect();
        shape.push(format.block_values() * if format.block_values() == 1 { 1 + random.below(9) } else { 1 });
        let n_blocks = shape.iter().product::<usize>() / format.block_values();
        let bytes = random.bytes(n_blocks * format.block_bytes());
        writer.tensor(&format!("{i}{}", random.text()), &shape, format, bytes);
    }
    writer
}

fn value(random: &mut Random) -> Value {
    let bits = random.next();
    match random.below(14) {
        0 => Value::U8(bits as u8),
        1 => Value::I8(bits as i8),
        2 => Value::U16(bits as u16),
        3 => Value::I16(bits as i16),
        4 => Value::U32(bits as u32),
        5 => Value::I32(bits as i32),
        6 => Value::F32(bits as f32),
        7 => Value::Bool(bits & 1 == 1),
        8 => Value::String(random.text().into()),
        9 => Value::U64(bits),
        10 => Value::I64(bits as i64),
        11 => Value::F64(bits as f64),
        12 => {
            let n = random.below(9);
            Value::String(random.bytes(n))
        }
        _ => Value::Array(array(random, 1)),
    }
}

fn array(random: &mut Random, depth: usize) -> Array {
    let n = random.below(5);
    let numbers: Vec<u64> = (0..n).map(|_| random.next()).collect();
    match random.below(if depth < 4 { 13 } else { 12 }) {
        0 => Array::U8(numbers.iter().map(|n| *n as u8).collect()),
        1 => Array::I8(numbers.iter().map(|n| *n as i8).collect()),
        2 => Array::U16(numbers.iter().map(|n| *n as u16).collect()),
        3 => Array::I16(numbers.iter().map(|n| *n as i16).collect()),
        4 => Array::U32(numbers.iter().map(|n| *n as u32).collect()),
        5 => Array::I32(numbers.iter().map(|n| *n as i32).collect()),
        6 => Array::F32(numbers.iter().map(|n| *n as f32).collect()),
        7 => Array::Bool(numbers.iter().map(|n| n & 1 == 1).collect()),
        8 => Array::String(numbers.iter().map(|_| random.text()).collect()),
        9 => Array::U64(numbers),
        10 => Array::I64(numbers.iter().map(|n| *n as i64).collect()),
        11 => Array::F64(numbers.iter().map(|n| *n as f64).collect()),
        _ => Array::Array(numbers.iter().map(|_| array(random, depth + 1)).collect()),
    }
}

/// Where a valid file has numbers of four and of eight bytes that steer how it is read.
pub(crate) fn steering(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut walk = Walk { bytes, at: 4, found: Vec::new() };
    walk.number(4);
    let n_tensors = walk.number(8);
    let n_keys = walk.number(8);
    for _ in 0..n_keys {
        walk.string();
        let kind = walk.number(4);
        walk.value(kind);
    }
    for _ in 0..n_tensors {
        walk.string();
        for _ in 0..walk.number(4) {
            walk.number(8);
        }
        walk.number(4);
        walk.number(8);
    }
    walk.found
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    found: Vec<(usize, usize)>,
}

impl Walk<'_> {
    fn number(&mut self, width: usize) -> u64 {
        self.found.push((self.at, width));
        let mut number = [0; 8];
        number[..width].copy_from_slice(&self.bytes[self.at..][..width]);
        self.at += width;
        u64::from_le_bytes(number)
    }

    fn string(&mut self) {
        self.at += self.number(8) as usize;
    }

    fn value(&mut self, kind: u64) {
        match kind {
            0 | 1 | 7 => self.at += 1,
            2 | 3 => self.at += 2,
            4..=6 => self.at += 4,
            8 => self.string(),
            9 => {
                let kind = self.number(4);
                for _ in 0..self.number(8) {
                    self.value(kind);
                }
            }
            _ => self.at += 8,
        }
    }
}

/// Files to start from, with where they are most sensitive.
pub(crate) struct Corpus(Vec<Sample>);

struct Sample {
    bytes: Vec<u8>,
    /// Places and widths.
    steering: Vec<(usize, usize)>,
}

impl Corpus {
    pub(crate) fn new(n: usize, random: &mut Random) -> Self {
        Self(
            (0..n)
                .map(|_| {
                    let bytes = valid(random).to_bytes();
                    let steering = steering(&bytes);
                    Sample { bytes, steering }
                })
                .collect(),
        )
    }

    /// Puts a changed file into `out`.
    pub(crate) fn mutate(&self, random: &mut Random, out: &mut Vec<u8>) {
        let Sample { bytes, steering } = &self.0[random.below(self.0.len())];
        out.clear();
        out.extend_from_slice(bytes);
        for _ in 0..1 + random.below(3) {
            self.change(random, steering, out);
        }
    }

    fn change(&self, random: &mut Random, steering: &[(usize, usize)], out: &mut Vec<u8>) {
        if out.is_empty() {
            return;
        }
        let at = random.below(out.len());
        match random.below(10) {
            0 => out[at] ^= 1 << random.below(8),
            1 => out[at] = random.next() as u8,
            2 => out.truncate(at),
            3 => {
                let end = (at + 1 + random.below(16)).min(out.len());
                out.drain(at..end);
            }
            4 => {
                let end = (at + 1 + random.below(64)).min(out.len());
                let piece = out[at..end].to_vec();
                let to = random.below(out.len());
                out.splice(to..to, piece);
            }
            5 => {
                let other = &self.0[random.below(self.0.len())].bytes;
                let from = at.min(other.len());
                out.truncate(at);
                out.extend_from_slice(&other[from..]);
            }
            // Most often: a number that steers the reader.
            _ => {
                let (at, width) = steering[random.below(steering.len())];
                if at + width <= out.len() {
                    let number = interesting(random, out.len() as u64).to_le_bytes();
                    out[at..at + width].copy_from_slice(&number[..width]);
                }
            }
        }
    }
}

fn interesting(random: &mut Random, length: u64) -> u64 {
    let near = random.next() % 5;
    let number = match random.below(10) {
        0 => 0,
        1 => 1 << random.below(64),
        2 => u64::MAX,
        3 => length,
        4 => u64::from(u32::MAX),
        5 => i64::MAX as u64,
        6 => 1 << 20,
        7 => random.next() % 64,
        8 => random.next() >> random.below(64),
        _ => length / 13,
    };
    number.wrapping_add(near).wrapping_sub(2)
}

/// What must hold of whatever was parsed.
///
/// # Panics
/// When it does not.
pub(crate) fn check(result: &Result<File, Error>, bytes: &[u8], allocated: usize) {
    assert!(allocated <= 32 * bytes.len() + 4096, "{allocated} bytes for a file of {}", bytes.len());
    let file = match result {
        Ok(file) => file,
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && text.len() < 2000, "{text}");
            return;
        }
    };
    assert!(file.alignment.is_power_of_two() && file.data_start <= bytes.len());
    let mut ranges = Vec::new();
    for tensor in file.tensors() {
        assert!(tensor.range.end <= bytes.len() && tensor.range.start >= file.data_start);
        assert!((tensor.range.start - file.data_start).is_multiple_of(file.alignment));
        assert!((1..=4).contains(&tensor.shape.len()) && !tensor.shape.contains(&0));
        let row = tensor.format.row_bytes(tensor.n_cols());
        assert_eq!(Some(tensor.n_bytes()), row.map(|bytes| bytes * tensor.n_rows()));
        assert_eq!(file.find(&tensor.name), Some(tensor));
        ranges.push(tensor.range.clone());
    }
    ranges.sort_by_key(|range| range.start);
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
    for (key, value) in file.metadata.iter() {
        assert!(file.metadata.value(key).is_some_and(|found| std::ptr::eq(found, value)));
    }
}
