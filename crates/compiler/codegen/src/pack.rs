//! What is kept of a compile for another process: the object file, and what `Compiled` tells beside its code.
//!
//! In: bytes of our own making, or of nobody knows whom. Out: the parts, or an error; nothing is taken for granted.

use overdrive_base::fast::FUNCTIONS;

use crate::error::CodegenError;

/// A count, names with their lengths in front, then the object.
pub(crate) fn pack(object: &[u8], vector_functions: &[&'static str]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + 64);
    // There are some 20 functions, with names of a few letters.
    out.push(vector_functions.len() as u8);
    for name in vector_functions {
        out.push(name.len() as u8);
        out.extend_from_slice(name.as_bytes());
    }
    out.extend_from_slice(object);
    out
}

/// The object, and the names of functions that it calls in a vector form.
pub(crate) fn unpack(packed: &[u8]) -> Result<(&[u8], Vec<&'static str>), CodegenError> {
    let bad = || CodegenError::Object { what: "kept code begins with something else".to_owned() };
    let (n, mut rest) = packed.split_first().ok_or_else(bad)?;
    let mut names = Vec::with_capacity(usize::from(*n));
    for _ in 0..*n {
        let (len, behind) = rest.split_first().ok_or_else(bad)?;
        let (name, behind) = behind.split_at_checked(usize::from(*len)).ok_or_else(bad)?;
        let known = FUNCTIONS.iter().find(|f| f.name.as_bytes() == name).ok_or_else(bad)?;
        names.push(known.name);
        rest = behind;
    }
    Ok((rest, names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_out() {
        for names in [&[][..], &["exp"], &["exp", "log1p", "sin"]] {
            let packed = pack(b"object", names);
            assert_eq!(unpack(&packed).expect("our own"), (&b"object"[..], names.to_vec()));
        }
    }

    #[test]
    fn anything_else_is_an_error() {
        for bytes in [&b""[..], b"\x01", b"\x01\x03ex", b"\x01\x04exit rest", b"\x02\x03exp"] {
            assert!(unpack(bytes).is_err(), "{bytes:?}");
        }
    }
}
