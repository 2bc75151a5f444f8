//! Where objects of ordinary classes keep their attributes.
//!
//! In: an object and a name. Out: the place of the attribute and the version of the class that it depends on, in all
//! objects of the class. As CPython's specialising interpreter looks it up for its inline caches (PEP 659): attributes
//! numbered by the class (`ht_cached_keys`), and `__slots__`. Runs no Python code. The layout is compared with behaviour
//! when it is first asked for; where it does not hold, nothing is found.
#![expect(unsafe_code, reason = "reads classes and objects at the offsets that the self-test checks")]

use std::collections::HashSet;
use std::ffi::{c_int, c_long, c_ulong};
use std::mem::offset_of;
use std::ptr;

use overdrive_base::layout::InstanceLayout;
use overdrive_frontend_python::facts::{Access, Member, Method, Picture};
use overdrive_ir::inst::Attr;
use pyo3::ffi::{self, Py_ssize_t, PyObject, PyTypeObject};
use pyo3::intern;
use pyo3::prelude::{Bound, PyAny, PyAnyMethods, PyListMethods, Python};
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyType};

use super::layout::read;
use super::profile::seen_at;
use super::python::{_PyType_Lookup, Name, Owned};

#[cfg(not(Py_3_12))]
pub(super) const INSTANCE: InstanceLayout = InstanceLayout::Pointed { values: -32 };
#[cfg(all(Py_3_12, not(Py_3_13)))]
pub(super) const INSTANCE: InstanceLayout = InstanceLayout::Tagged { word: -24 };
#[cfg(Py_3_13)]
pub(super) const INSTANCE: InstanceLayout = InstanceLayout::Inline { valid: 19, values: 24, dict: -24 };

/// Where the number of names is in `Keys`.
pub(super) const NAMES_USED: i32 = offset_of!(Keys, n_entries) as i32;

/// Flag of the types whose instances can keep their attributes in `INSTANCE`: `Py_TPFLAGS_MANAGED_DICT`, from 3.13 on
/// `Py_TPFLAGS_INLINE_VALUES`.
const KEEPS_VALUES: c_ulong = if cfg!(Py_3_13) { 1 << 2 } else { 1 << 4 };

/// The head of `PyDictKeysObject`; indices and entries follow.
#[repr(C)]
struct Keys {
    n_references: Py_ssize_t,
    log2_size: u8,
    log2_index_bytes: u8,
    kind: u8,
    version: u32,
    n_usable: Py_ssize_t,
    n_entries: Py_ssize_t,
}

/// `DICT_KEYS_SPLIT`: shared by the instances of a class, entries are pairs of name and null.
const SPLIT: u8 = 2;
/// More attributes than any class shares the keys of (`SHARED_KEYS_MAX_SIZE` is 30).
const MAX_KEYS: Py_ssize_t = 64;

/// Where a property keeps the function that reads it: its first field.
const PROPERTY_GET: i32 = size_of::<PyObject>() as i32;

/// Classes that are looked at to find one.
const MAX_CLASSES: usize = 50_000;

/// The type code of `__slots__` members: an object, AttributeError when it is not set.
const T_OBJECT_EX: c_int = 16;

/// Where objects of `object`'s class keep the attribute, if it is set there in this one, and what it is.
pub(crate) fn member<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyAny>,
    access: Access,
) -> Option<(Member, Bound<'py, PyAny>)> {
    let py = object.py();
    // SAFETY: live objects under the GIL; the value is borrowed from the object and referenced at once.
    unsafe {
        let member = find(object.as_ptr(), name.as_ptr(), access)?;
        let value = value_at(object.as_ptr(), member.at)?;
        Some((member, Bound::from_borrowed_ptr(py, value)))
    }
}

/// Where objects of a class keep an attribute.
pub(crate) fn member_of(class: &Bound<'_, PyAny>, name: &Bound<'_, PyAny>, access: Access) -> Option<Member> {
    if !is_sound(class.py()) {
        return None;
    }
    // SAFETY: a live class under the GIL, which is only looked at.
    unsafe {
        let ty = class.as_ptr().cast::<PyTypeObject>();
        let (version, at) = place(ty, name.as_ptr(), access)?;
        Some(Member { version, at, class: name_of(ty) })
    }
}

/// The function that `object.name(…)` would call with the object, if its class says so for all objects like this one.
pub(crate) fn method<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyAny>,
) -> Option<(Method, Bound<'py, PyAny>)> {
    let found = method_of(object.get_type().as_any(), name)?;
    // SAFETY: a live object under the GIL, of a class that has such a place if it numbers names.
    let is_usual = unsafe {
        found.0.n_names.is_none() || keeps(object.as_ptr(), Attr::Value(0), Access::Read).is_some()
    };
    is_usual.then_some(found)
}

/// The same of all objects of a class.
pub(crate) fn method_of<'py>(
    class: &Bound<'py, PyAny>,
    name: &Bound<'py, PyAny>,
) -> Option<(Method, Bound<'py, PyAny>)> {
    let py = class.py();
    if !is_sound(py) {
        return None;
    }
    // SAFETY: live objects under the GIL; the function is borrowed from the class and referenced at once.
    unsafe {
        let (ty, name) = (class.as_ptr().cast::<PyTypeObject>(), name.as_ptr());
        let (version, function) = look_up(ty, name, Access::Read)?;
        let function = Bound::from_borrowed_ptr_or_opt(py, function)?;
        // A data descriptor comes before attributes of the object; none is a method.
        let of_function = ffi::Py_TYPE(function.as_ptr());
        if ffi::PyType_HasFeature(of_function, ffi::Py_TPFLAGS_METHOD_DESCRIPTOR) == 0
            || (*of_function).tp_descr_set.is_some()
        {
            return None;
        }
        let n_names = if (*ty).tp_flags & KEEPS_VALUES != 0 {
            let keys = (*ty.cast::<ffi::PyHeapTypeObject>()).ht_cached_keys.cast::<Keys>();
            let head = keys.as_ref().filter(|keys| keys.kind == SPLIT && keys.n_entries <= MAX_KEYS)?;
            if number_of(keys, name).is_some() {
                return None;
            }
            Some(head.n_entries as u32)
        } else if (*ty).tp_dictoffset == 0 {
            None
        } else {
            return None;
        };
        Some((Method { version, n_names, class: name_of(ty) }, function))
    }
}

/// The function that reads the property of this name, if the class has one.
pub(crate) fn getter_of<'py>(
    class: &Bound<'py, PyAny>,
    name: &Bound<'py, PyAny>,
) -> Option<Bound<'py, PyAny>> {
    let py = class.py();
    if !is_sound(py) {
        return None;
    }
    // SAFETY: live objects under the GIL; the function is borrowed from the property and referenced at once.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, getter(class.as_ptr().cast(), name.as_ptr())?) }
}

/// See `Entry::PropertyIs`.
pub(super) unsafe extern "C" fn property_is(
    object: *mut PyObject,
    name: *mut PyObject,
    function: *mut PyObject,
) -> u8 {
    // SAFETY: the table's contract.
    unsafe { (getter(ffi::Py_TYPE(object), name) == Some(function)).into() }
}

/// What an exact property of a class calls to be read, borrowed.
///
/// # Safety
/// GIL held, a live class, `name` an exact str.
unsafe fn getter(ty: *mut PyTypeObject, name: *mut PyObject) -> Option<*mut PyObject> {
    // SAFETY: the caller's contract; what the look-up gives is borrowed and only looked at.
    unsafe {
        let (_, found) = look_up(ty, name, Access::Read)?;
        let is_property = !found.is_null() && ffi::Py_TYPE(found) == &raw mut ffi::PyProperty_Type;
        is_property.then(|| read::<*mut PyObject>(found, PROPERTY_GET)).filter(|f| !f.is_null())
    }
}

/// What an object is like whose method or property is looked up by this name.
///
/// # Safety
/// GIL held, live objects, `name` an interned str.
pub(super) unsafe fn picture(object: *mut PyObject, name: *mut PyObject) -> Option<Picture> {
    // SAFETY: the caller's contract; names and values are borrowed from the class and the object, and only looked at.
    unsafe {
        if !is_sound(Python::assume_attached()) {
            return None;
        }
        let ty = ffi::Py_TYPE(object);
        let (version, _) = look_up(ty, name, Access::Read)?;
        let mut values = Vec::new();
        let mut add = |name: *mut PyObject, at: Attr| {
            let text = Bound::from_borrowed_ptr(Python::assume_attached(), name);
            if let (Ok(text), Some(value)) = (text.extract::<String>(), value_at(object, at)) {
                values.push((text, seen_at(value)));
            }
        };
        if (*ty).tp_flags & KEEPS_VALUES != 0 && keeps(object, Attr::Value(0), Access::Read).is_some() {
            let keys = (*ty.cast::<ffi::PyHeapTypeObject>()).ht_cached_keys.cast::<Keys>();
            for (number, name) in names_of(keys).iter().enumerate() {
                add(name[0], Attr::Value(number as u32));
            }
        }
        let bases = (*ty).tp_mro;
        for i in 0..if bases.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(bases) } {
            let base = ffi::PyTuple_GET_ITEM(bases, i).cast::<PyTypeObject>();
            let is_heap = ffi::PyType_HasFeature(base, ffi::Py_TPFLAGS_HEAPTYPE) != 0;
            let slots = is_heap.then(|| (*base.cast::<ffi::PyHeapTypeObject>()).ht_slots);
            let Some(slots) = slots.filter(|slots| !slots.is_null()) else { continue };
            for k in 0..ffi::PyTuple_GET_SIZE(slots) {
                let name = ffi::PyTuple_GET_ITEM(slots, k);
                if let Some((_, at @ Attr::Offset(_))) = place(ty, name, Access::Read) {
                    add(name, at);
                }
            }
        }
        Some(Picture { version, values })
    }
}

/// The class that has a version now. Runs no Python code: the lists that it makes set no collector off.
pub(crate) fn class_with(py: Python<'_>, version: u32) -> Option<Bound<'_, PyAny>> {
    // SAFETY: the GIL is held, here and below.
    let collected = unsafe { ffi::PyGC_Disable() } != 0;
    let found = search(py, version);
    if collected {
        // SAFETY: as above.
        unsafe { ffi::PyGC_Enable() };
    }
    found
}

fn search(py: Python<'_>, version: u32) -> Option<Bound<'_, PyAny>> {
    let below = py.get_type::<PyType>().getattr(intern!(py, "__subclasses__")).ok()?;
    let mut seen = HashSet::new();
    let mut open = vec![py.get_type::<PyAny>().into_any()];
    while let Some(class) = open.pop() {
        // SAFETY: a live class under the GIL.
        if unsafe { (*class.as_ptr().cast::<PyTypeObject>()).tp_version_tag } == version {
            return Some(class);
        }
        if !seen.insert(class.as_ptr() as usize) || seen.len() > MAX_CLASSES {
            continue;
        }
        let classes = below.call1((class,)).ok()?.cast_into::<PyList>().ok()?;
        open.extend(classes.iter());
    }
    None
}

/// As [`member`], without the value.
///
/// # Safety
/// GIL held, live objects, `name` an interned str.
pub(super) unsafe fn find(object: *mut PyObject, name: *mut PyObject, access: Access) -> Option<Member> {
    // SAFETY: the caller's contract.
    unsafe {
        if !is_sound(Python::assume_attached()) {
            return None;
        }
        let ty = ffi::Py_TYPE(object);
        let (version, at) = place(ty, name, access)?;
        keeps(object, at, access)?;
        value_at(object, at)?;
        Some(Member { version, at, class: name_of(ty) })
    }
}

/// What the class says. It says the same for all its instances.
///
/// # Safety
/// As [`find`].
unsafe fn place(ty: *mut PyTypeObject, name: *mut PyObject, access: Access) -> Option<(u32, Attr)> {
    // SAFETY: the caller's contract; what the look-up gives is borrowed and only looked at.
    unsafe {
        let (version, of_class) = look_up(ty, name, access)?;
        if !of_class.is_null() {
            if ffi::Py_TYPE(of_class) == &raw mut ffi::PyMemberDescr_Type {
                return slot(ty, of_class).map(|at| (version, at));
            }
            if (*ffi::Py_TYPE(of_class)).tp_descr_set.is_some() {
                return None;
            }
        }
        if (*ty).tp_flags & KEEPS_VALUES == 0 {
            return None;
        }
        let keys = (*ty.cast::<ffi::PyHeapTypeObject>()).ht_cached_keys.cast::<Keys>();
        number_of(keys, name).map(|number| (version, Attr::Value(number)))
    }
}

/// What a class with the usual look-up has under a name (null: nothing), borrowed, and the version under which it has.
///
/// # Safety
/// As [`find`].
unsafe fn look_up(
    ty: *mut PyTypeObject,
    name: *mut PyObject,
    access: Access,
) -> Option<(u32, *mut PyObject)> {
    // SAFETY: the caller's contract.
    unsafe {
        let usual = match access {
            Access::Read => {
                let usual = ffi::PyObject_GenericGetAttr as *const () as usize;
                (*ty).tp_getattro.map(|f| f as usize) == Some(usual)
            }
            Access::Write => {
                let usual = ffi::PyObject_GenericSetAttr as *const () as usize;
                (*ty).tp_setattro.map(|f| f as usize) == Some(usual)
            }
        };
        if !usual || ffi::PyType_HasFeature(ty, ffi::Py_TPFLAGS_HEAPTYPE) == 0 {
            return None;
        }
        // Gives the class a version, too, if it has none.
        let found = _PyType_Lookup(ty, name);
        let version = (*ty).tp_version_tag;
        if !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        (version != 0).then_some((version, found))
    }
}

/// A name of `__slots__`.
///
/// # Safety
/// GIL held, a type and a live member descriptor.
unsafe fn slot(ty: *mut PyTypeObject, descriptor: *mut PyObject) -> Option<Attr> {
    // SAFETY: the caller's contract; the definition lives as long as the descriptor's class.
    unsafe {
        let descriptor = &*descriptor.cast::<ffi::PyMemberDescrObject>();
        let definition = &*descriptor.d_member;
        let fits = ffi::PyType_IsSubtype(ty, descriptor.d_common.d_type) != 0
            && definition.type_code == T_OBJECT_EX
            && definition.flags == 0;
        let offset = i32::try_from(definition.offset).ok().filter(|offset| offset % 8 == 0)?;
        fits.then_some(Attr::Offset(offset))
    }
}

/// Number of a name among shared keys. Entries are only ever added to them.
///
/// # Safety
/// Null, or the keys of a live class.
unsafe fn number_of(keys: *const Keys, name: *mut PyObject) -> Option<u32> {
    // SAFETY: the caller's contract. All names are exact strs: no code runs.
    unsafe {
        // Names that came by way of a dictionary need not be interned.
        let is_name = |key: *mut PyObject| key == name || ffi::PyUnicode_Compare(key, name) == 0;
        let found = names_of(keys).iter().position(|entry| is_name(entry[0]))?;
        Some(found as u32)
    }
}

/// The entries of shared keys: a name and null each.
///
/// # Safety
/// As [`number_of`]; valid until a name is added.
unsafe fn names_of<'a>(keys: *const Keys) -> &'a [[*mut PyObject; 2]] {
    // SAFETY: the caller's contract; entries follow the table of indices.
    unsafe {
        let Some(head) = keys.as_ref().filter(|keys| keys.kind == SPLIT && keys.n_entries <= MAX_KEYS) else {
            return &[];
        };
        let entries = keys.add(1).cast::<u8>().add(1 << head.log2_index_bytes).cast::<[*mut PyObject; 2]>();
        std::slice::from_raw_parts(entries, head.n_entries as usize)
    }
}

/// Name of a class, for people.
///
/// # Safety
/// GIL held, a live class.
unsafe fn name_of(ty: *mut PyTypeObject) -> String {
    // SAFETY: the caller's contract.
    unsafe { std::ffi::CStr::from_ptr((*ty).tp_name) }.to_string_lossy().into_owned()
}

/// Whether this object keeps its attributes there.
///
/// # Safety
/// GIL held, an object of a class with such a place.
unsafe fn keeps(object: *mut PyObject, at: Attr, access: Access) -> Option<()> {
    let Attr::Value(_) = at else { return Some(()) };
    // SAFETY: the caller's contract.
    let keeps = unsafe {
        match INSTANCE {
            InstanceLayout::Pointed { values } => read::<usize>(object, values) != 0,
            InstanceLayout::Tagged { word } => read::<usize>(object, word) & 1 != 0,
            InstanceLayout::Inline { valid, dict, .. } => {
                let alone = read::<usize>(object, dict) == 0;
                read::<u8>(object, valid) != 0 && (access == Access::Read || alone)
            }
        }
    };
    keeps.then_some(())
}

/// The attribute, borrowed; `None` when it is not set.
///
/// # Safety
/// As [`keeps`], which has said yes.
unsafe fn value_at(object: *mut PyObject, at: Attr) -> Option<*mut PyObject> {
    // SAFETY: the caller's contract.
    let value = unsafe {
        match at {
            Attr::Offset(offset) => read::<*mut PyObject>(object, offset),
            Attr::Value(number) => {
                let values = match INSTANCE {
                    InstanceLayout::Pointed { values } => read::<*const *mut PyObject>(object, values),
                    InstanceLayout::Tagged { word } => {
                        read::<*const u8>(object, word).wrapping_add(1).cast::<*mut PyObject>()
                    }
                    InstanceLayout::Inline { values, .. } => {
                        object.cast::<u8>().offset(values as isize).cast::<*mut PyObject>().cast_const()
                    }
                };
                *values.add(number as usize)
            }
        }
    };
    (!value.is_null()).then_some(value)
}

/// Whether the layout agrees with behaviour.
fn is_sound(py: Python<'_>) -> bool {
    static SOUND: PyOnceLock<bool> = PyOnceLock::new();
    // SAFETY: the GIL is held; what the test looks at it has made. A failure leaves no exception behind.
    *SOUND.get_or_init(py, || unsafe {
        let holds = self_test();
        ffi::PyErr_Clear();
        holds.unwrap_or(false)
    })
}

static FIRST: Name = Name::new(c"first");
static SECOND: Name = Name::new(c"second");
static SLOTS: Name = Name::new(c"__slots__");
static DICT: Name = Name::new(c"__dict__");

/// # Safety
/// GIL held.
unsafe fn self_test() -> Option<bool> {
    // SAFETY: the caller's contract; classes and objects are made here, of CPython's own functions only.
    unsafe {
        let (first, second) = (FIRST.get(), SECOND.get());
        let class = |namespace: &Owned| {
            let name = Owned::new(ffi::PyUnicode_FromString(c"Instance".as_ptr()))?;
            let bases = Owned::new(ffi::PyTuple_New(0))?;
            let of = (&raw mut ffi::PyType_Type).cast::<PyObject>();
            let args = (name.as_ptr(), bases.as_ptr(), namespace.as_ptr());
            let null = ptr::null_mut::<PyObject>();
            Owned::new(ffi::PyObject_CallFunctionObjArgs(of, args.0, args.1, args.2, null))
        };
        let float = |x| Owned::new(ffi::PyFloat_FromDouble(x));
        let (one, two) = (float(1.5)?, float(2.5)?);
        let set = |object: &Owned, name, value: &Owned| {
            (ffi::PyObject_SetAttr(object.as_ptr(), name, value.as_ptr()) == 0).then_some(())
        };
        let version_of = |object: &Owned| (*ffi::Py_TYPE(object.as_ptr())).tp_version_tag;

        let ordinary = class(&Owned::new(ffi::PyDict_New())?)?;
        let object = Owned::new(ffi::PyObject_CallNoArgs(ordinary.as_ptr()))?;
        let (o, all) = (object.as_ptr(), [Access::Read, Access::Write]);
        set(&object, first, &one)?;
        set(&object, second, &two)?;
        for (name, number, value) in [(first, 0, &one), (second, 1, &two)] {
            for access in all {
                let found = place(ffi::Py_TYPE(o), name, access)?;
                keeps(o, found.1, access)?;
                if found != (version_of(&object), Attr::Value(number))
                    || value_at(o, found.1)? != value.as_ptr()
                {
                    return Some(false);
                }
            }
        }
        // A change of the class shows in its version, one of an object's home in that.
        let before = version_of(&object);
        if ffi::PyObject_SetAttr(ordinary.as_ptr(), first, two.as_ptr()) != 0 || version_of(&object) == before
        {
            return Some(false);
        }
        let shown = Owned::new(ffi::PyObject_GetAttr(o, DICT.get()))?;
        if keeps(o, Attr::Value(0), Access::Write).is_some() {
            return Some(false);
        }
        drop(shown);

        let of_property = (&raw mut ffi::PyProperty_Type).cast::<PyObject>();
        let null = ptr::null_mut::<PyObject>();
        let property = Owned::new(ffi::PyObject_CallFunctionObjArgs(of_property, one.as_ptr(), null))?;
        if ffi::PyObject_SetAttr(ordinary.as_ptr(), second, property.as_ptr()) != 0
            || getter(ordinary.as_ptr().cast(), second) != Some(one.as_ptr())
        {
            return Some(false);
        }

        let namespace = Owned::new(ffi::PyDict_New())?;
        let names = Owned::new(ffi::PyTuple_Pack(2, first, second))?;
        if ffi::PyDict_SetItem(namespace.as_ptr(), SLOTS.get(), names.as_ptr()) != 0 {
            return None;
        }
        let slotted = class(&namespace)?;
        let object = Owned::new(ffi::PyObject_CallNoArgs(slotted.as_ptr()))?;
        set(&object, second, &two)?;
        let (_, at) = place(ffi::Py_TYPE(object.as_ptr()), second, Access::Write)?;
        let (_, unset) = place(ffi::Py_TYPE(object.as_ptr()), first, Access::Read)?;
        let sizes = (size_of::<c_long>() == 8) && size_of::<Keys>() == 32;
        Some(
            sizes
                && matches!((at, unset), (Attr::Offset(x), Attr::Offset(y)) if x == y + 8)
                && value_at(object.as_ptr(), at)? == two.as_ptr()
                && value_at(object.as_ptr(), unset).is_none(),
        )
    }
}
