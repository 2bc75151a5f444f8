//! Objects that CPython has once each, where machine code may find them by arithmetic: small ints, characters below 128.
//!
//! In: nothing. Out: addresses, each of which was compared with what CPython's own functions give; 0 where that is not so,
//! and then machine code asks CPython each time.
#![expect(unsafe_code, reason = "asks CPython for objects")]

use std::sync::OnceLock;

use overdrive_base::layout::{ObjectLayout, SMALL_INTS};
use pyo3::ffi::{self, PyObject};

use super::layout::read;
use super::python::Owned;

/// Fills in the addresses. The GIL is held by every caller.
pub(super) fn find(layout: &mut ObjectLayout) {
    static SMALL: OnceLock<usize> = OnceLock::new();
    static TEXTS: OnceLock<usize> = OnceLock::new();
    // SAFETY: GIL held.
    layout.small_ints = *SMALL.get_or_init(|| unsafe { small_ints(layout) }.unwrap_or(0));
    // SAFETY: GIL held.
    layout.characters = *TEXTS.get_or_init(|| unsafe { characters(layout) }.unwrap_or(0));
}

/// An object that two equal questions give, if they give the same; it stays alive without our reference.
///
/// # Safety
/// GIL held.
unsafe fn single(make: impl Fn() -> *mut PyObject) -> Option<*mut PyObject> {
    // SAFETY: the caller's contract; both references are new or null.
    let (first, second) = unsafe { (Owned::new(make())?, Owned::new(make())?) };
    (first.as_ptr() == second.as_ptr()).then_some(first.as_ptr())
}

/// Address of the first small int, if all of them stand in a row.
///
/// # Safety
/// GIL held.
unsafe fn small_ints(layout: &ObjectLayout) -> Option<usize> {
    // SAFETY: the caller's contract.
    let int = |n: i64| unsafe { single(|| ffi::PyLong_FromLongLong(n)) };
    let first = int(*SMALL_INTS.start())? as usize;
    let size = usize::try_from(layout.small_int_size).ok()?;
    let in_a_row = SMALL_INTS.enumerate().all(|(i, n)| int(n).map(|p| p as usize) == Some(first + size * i));
    in_a_row.then_some(first)
}

/// Address of a table of the strings of one character below 128, which are kept for ever.
///
/// # Safety
/// GIL held.
unsafe fn characters(layout: &ObjectLayout) -> Option<usize> {
    let mut table = Vec::with_capacity(128);
    for c in 0..128_u8 {
        // SAFETY: the caller's contract; a string of one character has a head and, behind it, its byte.
        unsafe {
            let object = single(|| ffi::PyUnicode_FromOrdinal(c.into()))?;
            let holds = read::<u32>(object, layout.str_state) & layout.str_state_mask
                == layout.str_state_ascii
                && read::<i64>(object, layout.var_size) == 1
                && read::<u8>(object, layout.str_ascii_data) == c;
            if !holds {
                return None;
            }
            table.push(Owned::share(object).into_ptr() as usize);
        }
    }
    Some(Box::leak(table.into_boxed_slice()).as_ptr() as usize)
}
