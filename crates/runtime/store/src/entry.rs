//! One file: a header that says what should follow, then the payload.
//!
//! In: bytes. Out: the payload, if every byte of the file is as it was written for this key.

/// Names a payload: a hash over all that the payload depends on.
pub type Key = [u8; 32];

/// First bytes of every file. The number at the end is that of the format.
const MAGIC: [u8; 8] = *b"ODCODE\0\x01";
/// Magic, key, length, checksum.
pub(crate) const HEADER: usize = 8 + 32 + 8 + 32;

/// The file's contents.
pub(crate) fn encode(key: &Key, payload: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(HEADER + payload.len());
    file.extend_from_slice(&MAGIC);
    file.extend_from_slice(key);
    file.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    file.extend_from_slice(blake3::hash(payload).as_bytes());
    file.extend_from_slice(payload);
    file
}

/// The payload of a file's contents; `None` for anything but what `encode` gave for that key.
pub(crate) fn decode(key: &Key, mut file: Vec<u8>) -> Option<Vec<u8>> {
    let (magic, rest) = file.split_first_chunk::<8>()?;
    let (theirs, rest) = rest.split_first_chunk::<32>()?;
    let (len, rest) = rest.split_first_chunk::<8>()?;
    let (checksum, payload) = rest.split_first_chunk::<32>()?;
    let is_whole = *magic == MAGIC
        && theirs == key
        && u64::from_le_bytes(*len) == payload.len() as u64
        && blake3::hash(payload).as_bytes() == checksum;
    is_whole.then(|| file.split_off(HEADER))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = [7; 32];

    #[test]
    fn what_was_encoded_comes_out() {
        for payload in [&b""[..], b"x", &[0; 5000]] {
            assert_eq!(decode(&KEY, encode(&KEY, payload)).as_deref(), Some(payload));
        }
    }

    #[test]
    fn no_other_bytes_do() {
        let file = encode(&KEY, b"machine code");
        for len in 0..file.len() {
            assert_eq!(decode(&KEY, file[..len].to_vec()), None, "cut at {len}");
        }
        for bit in 0..8 * file.len() {
            let mut changed = file.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&KEY, changed), None, "bit {bit}");
        }
        let longer = [file.as_slice(), b"\0"].concat();
        assert_eq!(decode(&KEY, longer), None);
        assert_eq!(decode(&[8; 32], file), None, "another key's");
    }
}
