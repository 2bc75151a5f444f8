//! What compiled code saw: the types of results that a later version may speculate on.
//!
//! A `Profile` belongs to one version. Machine code compares an object's type with the slot's *filter word* and calls
//! `observe` only when they differ. The filter is the type whenever the type alone tells what was seen; for arrays,
//! where element type and rank count too, it stays 0 so that each is looked at.
//! The words that `Rt::profile` points to are preceded by the address of the slots: `observe` needs nothing else.
#![expect(unsafe_code, reason = "an entry of the object table, and storage shared with machine code")]

use std::cell::{RefCell, UnsafeCell};

use overdrive_base::flavour::{Holder, KnownType};
use overdrive_codegen::Rt;
use overdrive_frontend_python::facts::{Access, Observed, Seen};
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::{Bound, PyAny, Python};

use super::layout::{self, builtin_types, numpy, read};
use super::members;
use crate::tensor::native;

/// Observations of one version, one slot per `Entry::Observe`.
pub struct Profile {
    slots: Box<[Slot]>,
    /// Address of the slots, then one filter per slot.
    words: Box<[UnsafeCell<usize>]>,
}

/// What one slot saw so far.
struct Slot(RefCell<Observed>);

// SAFETY: slots and words are only touched with the GIL held (`observe` runs in native code, the methods ask for the
// GIL), so never by two threads at once.
unsafe impl Send for Profile {}
// SAFETY: as above.
unsafe impl Sync for Profile {}

impl Profile {
    pub fn new(n_slots: u32) -> Profile {
        let slots: Box<[Slot]> = (0..n_slots).map(|_| Slot(RefCell::new(Observed::Nothing))).collect();
        let words = std::iter::once(slots.as_ptr() as usize).chain((0..n_slots).map(|_| 0));
        Profile { words: words.map(UnsafeCell::new).collect(), slots }
    }

    /// For `Rt::profile`; valid as long as the profile.
    pub fn words(&self) -> *mut usize {
        self.words.as_ptr().cast_mut().cast::<usize>().wrapping_add(1)
    }

    /// What was seen at a slot.
    pub fn observed(&self, _py: Python<'_>, slot: u32) -> Observed {
        match self.slots.get(slot as usize) {
            Some(slot) => slot.0.borrow().clone(),
            None => Observed::Nothing,
        }
    }
}

/// Remembers the type of an object at a profile slot.
pub(super) unsafe extern "C" fn observe(rt: *mut Rt, slot: i64, object: *mut PyObject) {
    // SAFETY: the contract with machine code: `rt.profile` comes from `Profile::words` of a live profile with that
    // slot, and the GIL is held.
    unsafe {
        let words = (*rt).profile;
        if words.is_null() || object.is_null() {
            return;
        }
        let slots = *words.sub(1) as *const Slot;
        let Ok(mut observed) = (*slots.offset(slot as isize)).0.try_borrow_mut() else { return };
        let seen = seen_at(object);
        let by_type_alone = !matches!(seen, Seen::Array { .. }) && !has_header(object);
        *observed = match std::mem::replace(&mut *observed, Observed::Mixed) {
            Observed::Nothing => Observed::Always(seen),
            Observed::Always(before) if before == seen => Observed::Always(before),
            Observed::Always(_) | Observed::Member(_) | Observed::Instance(_) | Observed::Mixed => {
                Observed::Mixed
            }
        };
        // Nothing can change a mixed slot any more, so its filter may be any type.
        let filter = by_type_alone || *observed == Observed::Mixed;
        *words.offset(slot as isize) = if filter { ffi::Py_TYPE(object) as usize } else { 0 };
    }
}

/// Remembers at a profile slot where objects of this class keep an attribute that is read (`what` is 0) or written (1), or
/// what an object is like whose method is looked up (2).
pub(super) unsafe extern "C" fn observe_attr(
    rt: *mut Rt,
    slot: i64,
    object: *mut PyObject,
    name: *mut PyObject,
    what: i64,
) {
    // SAFETY: as for `observe`; names of code objects are interned.
    unsafe {
        let words = (*rt).profile;
        if words.is_null() || object.is_null() {
            return;
        }
        let slots = *words.sub(1) as *const Slot;
        let Ok(mut observed) = (*slots.offset(slot as isize)).0.try_borrow_mut() else { return };
        let now = match what {
            0 => match members::find(object, name, Access::Read) {
                Some(member) => Some(Observed::Member(member)),
                None => members::picture(object, name).map(Observed::Instance),
            },
            1 => members::find(object, name, Access::Write).map(Observed::Member),
            _ => members::picture(object, name).map(Observed::Instance),
        };
        *observed = match (std::mem::replace(&mut *observed, Observed::Mixed), now) {
            (Observed::Nothing, Some(now)) => now,
            (before, Some(now)) if before == now => before,
            _ => Observed::Mixed,
        };
        *words.offset(slot as isize) = ffi::Py_TYPE(object) as usize;
    }
}

/// An array or a tensor, whose type alone does not say what it holds.
///
/// # Safety
/// GIL held, live object.
unsafe fn has_header(object: *mut PyObject) -> bool {
    // SAFETY: the caller's contract.
    let ty = unsafe { ffi::Py_TYPE(object) } as usize;
    ty == native::type_address() || numpy().is_some_and(|numpy| numpy.type_of(KnownType::NdArray) == ty)
}

/// The type of an object, as far as native code can use it. Runs no Python code.
pub fn seen(object: &Bound<'_, PyAny>) -> Seen {
    // SAFETY: a live object, and the GIL is held.
    unsafe { seen_at(object.as_ptr()) }
}

/// As [`seen`].
///
/// # Safety
/// GIL held, live object.
pub(super) unsafe fn seen_at(object: *mut PyObject) -> Seen {
    // SAFETY: the caller's contract; array fields are read from an exact array.
    unsafe {
        let ty = ffi::Py_TYPE(object) as usize;
        let builtin = builtin_types();
        let name = || {
            let name = std::ffi::CStr::from_ptr((*ffi::Py_TYPE(object)).tp_name);
            Seen::Other(name.to_string_lossy().into_owned())
        };
        if ty == builtin[KnownType::Tensor as usize] {
            let holder = Holder::Tensor;
            return native::seen(object).map_or_else(name, |(dtype, ndim)| Seen::Array {
                holder,
                dtype,
                ndim,
            });
        }
        if let Some(known) = KnownType::ALL.into_iter().find(|k| builtin[*k as usize] == ty) {
            return Seen::Exact(known);
        }
        let Some(numpy) = numpy() else { return name() };
        if ty == numpy.type_of(KnownType::NdArray) {
            let dtype = numpy.dtype_of(read(object, layout::array::DESCR));
            let aligned = read::<i32>(object, layout::array::FLAGS) & layout::array::ALIGNED != 0;
            let ndim = u8::try_from(read::<i32>(object, layout::array::NDIM));
            return match (dtype, aligned, ndim) {
                (Some(dtype), true, Ok(ndim)) => Seen::Array { holder: Holder::NdArray, dtype, ndim },
                _ => name(),
            };
        }
        match KnownType::ALL.into_iter().find(|k| numpy.type_of(*k) == ty) {
            Some(known) => Seen::Exact(known),
            None => name(),
        }
    }
}
