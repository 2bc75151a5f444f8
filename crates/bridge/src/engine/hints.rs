//! What earlier processes learned of a function's types, so that the first version need not learn it once more.
//!
//! In: the first translation of a function, made without knowing what its operations give. Out: the types that they gave
//! when the same translation ran before, from the cache. A hint is never trusted: code that was made by it tests it as it
//! tests everything that was observed, and a hint that does not hold is forgotten. Only what was always the same is kept.

use overdrive_base::flavour::{DType, Holder, KnownType};
use overdrive_codegen::Key;
use overdrive_frontend_python::facts::{Observed, Seen};
use overdrive_ir::function::Function;
use overdrive_jit::Cache;
use pyo3::prelude::Python;

use super::oracle::Lessons;
use super::{cache, compiler};

/// Of one unit.
#[derive(Default)]
pub(crate) struct Hints {
    /// Of the first translation.
    key: Option<Key>,
    /// What the cache has under it.
    known: Vec<u8>,
}

impl Hints {
    /// What was learned where `function` ran before, if anything was. Called for a unit's first translation.
    pub(crate) fn find(&mut self, py: Python<'_>, function: &Function, cache: Cache<'_>) -> Option<Lessons> {
        let key = *self.key.insert(overdrive_codegen::function_key(function, cache.build));
        // The disk may be slow; others go on meanwhile.
        let found = py.detach(|| compiler::outside_fork(|| cache.store.get(&key)))?;
        let observed = decode(&found)?;
        self.known = found;
        let hinted = observed.iter().map(|(offset, _)| *offset).collect();
        let observed = observed.into_iter().map(|(offset, seen)| (offset, Observed::Always(seen))).collect();
        Some(Lessons { observed, hinted, ..Lessons::default() })
    }

    /// Puts what was learned into the cache, if that is something new there. The file is written behind the caller's back.
    pub(crate) fn keep(&mut self, py: Python<'_>, lessons: &Lessons) {
        let (Some(key), Some(cache)) = (self.key, cache::cache(py)) else { return };
        let encoded = encode(lessons);
        if encoded == self.known {
            return;
        }
        self.known.clone_from(&encoded);
        let job: compiler::Job = Box::new(move || compiler::outside_fork(|| cache.store.put(&key, &encoded)));
        // Without a thread nothing is compiled either.
        let _ = compiler::submit_brief(py, job);
    }
}

/// Begins each list; the number is that of the form.
const HEAD: &[u8] = b"hints 1";
/// Offset (4 bytes), kind, three numbers.
const LEN: usize = 8;
const EXACT: u8 = 0;
const ARRAY: u8 = 1;
const HOLDERS: [Holder; 2] = [Holder::NdArray, Holder::Tensor];

/// In the order of offsets: the same lessons give the same bytes.
fn encode(lessons: &Lessons) -> Vec<u8> {
    let mut rows: Vec<[u8; LEN]> = Vec::new();
    for (offset, observed) in &lessons.observed {
        let row = match observed {
            Observed::Always(Seen::Exact(ty)) => [EXACT, *ty as u8, 0, 0],
            Observed::Always(Seen::Array { holder, dtype, ndim }) => {
                [ARRAY, *holder as u8, *dtype as u8, *ndim]
            }
            // Types without native code help nobody, and what was mixed once may be of one type now.
            Observed::Always(Seen::Other(_)) | Observed::Mixed | Observed::Nothing => continue,
            // Versions of classes are numbers of this process: in another one they are other classes'.
            Observed::Member(_) | Observed::Instance(_) => continue,
        };
        let [a, b, c, d] = offset.to_be_bytes();
        rows.push([a, b, c, d, row[0], row[1], row[2], row[3]]);
    }
    rows.sort_unstable();
    [HEAD, rows.concat().as_slice()].concat()
}

/// `None` for anything but what `encode` makes.
fn decode(bytes: &[u8]) -> Option<Vec<(u32, Seen)>> {
    let rows = bytes.strip_prefix(HEAD)?.chunks(LEN);
    rows.map(|row| {
        let [a, b, c, d, kind, first, second, third] = *row.first_chunk::<LEN>()?;
        let seen = match kind {
            EXACT => Seen::Exact(*KnownType::ALL.get(usize::from(first))?),
            ARRAY => Seen::Array {
                holder: *HOLDERS.get(usize::from(first))?,
                dtype: *DType::ALL.get(usize::from(second))?,
                ndim: third,
            },
            _ => return None,
        };
        Some((u32::from_be_bytes([a, b, c, d]), seen))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lessons(observed: Vec<(u32, Observed)>) -> Lessons {
        Lessons { observed: observed.into_iter().collect(), ..Lessons::default() }
    }

    #[test]
    fn what_was_always_the_same_is_kept() {
        let mut expected: Vec<(u32, Seen)> =
            KnownType::ALL.into_iter().zip(0..).map(|(ty, n)| (n * 70_000, Seen::Exact(ty))).collect();
        for (i, holder) in (3..).zip(HOLDERS) {
            for (j, dtype) in (0..).zip(DType::ALL) {
                expected.push((i * 11 + j * 1000, Seen::Array { holder, dtype, ndim: 1 + j as u8 }));
            }
        }
        expected.sort_by_key(|(offset, _)| *offset);
        let mut observed: Vec<_> =
            expected.iter().map(|(offset, seen)| (*offset, Observed::Always(seen.clone()))).collect();
        let encoded = encode(&lessons(observed.clone()));
        assert_eq!(decode(&encoded), Some(expected));
        observed.push((1, Observed::Mixed));
        observed.push((3, Observed::Nothing));
        observed.push((5, Observed::Always(Seen::Other("set".to_owned()))));
        assert_eq!(encode(&lessons(observed)), encoded);
    }

    #[test]
    fn anything_else_is_nothing() {
        let row = |row: [u8; LEN]| [HEAD, &row].concat();
        assert!(decode(&row([0, 0, 0, 2, EXACT, 1, 0, 0])).is_some());
        for bytes in [
            vec![],
            b"hints 2".to_vec(),
            b"\x7fELF".to_vec(),
            row([0, 0, 0, 2, EXACT, 200, 0, 0]),
            row([0, 0, 0, 2, ARRAY, 2, 0, 1]),
            row([0, 0, 0, 2, ARRAY, 0, 6, 1]),
            row([0, 0, 0, 2, 2, 0, 0, 0]),
            row([0, 0, 0, 2, EXACT, 1, 0, 0])[..HEAD.len() + 5].to_vec(),
        ] {
            assert_eq!(decode(&bytes), None, "{bytes:?}");
        }
    }
}
