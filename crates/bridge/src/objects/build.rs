//! Building and unpacking containers and strings, opcode by opcode, with the opcodes' own messages.
#![expect(unsafe_code, reason = "entries of the object table: called by machine code, call CPython")]

use std::ffi::c_int;
use std::ptr;
use std::slice;

use pyo3::ffi::{self, Py_ssize_t, PyObject};

use super::calls::explain_keywords;
use super::python::{
    _PyDict_MergeEx, _PyList_Extend, _PySet_Update, _PyStack_AsDict, _PyUnicode_JoinArray, Name, Owned,
    or_null, raised_is, type_name,
};

/// The variable arguments of an entry.
///
/// # Safety
/// The table's contract: `n` live references.
unsafe fn variable<'a>(args: *mut *mut PyObject, n: i64) -> &'a [*mut PyObject] {
    match usize::try_from(n) {
        Ok(n) if n > 0 => {
            // SAFETY: the caller's contract.
            unsafe { slice::from_raw_parts(args, n) }
        }
        _ => &[],
    }
}

/// A tuple with new references to the items.
///
/// # Safety
/// GIL held, live items.
unsafe fn tuple_of(items: &[*mut PyObject]) -> Option<Owned> {
    // SAFETY: the caller's contract; every slot of the new tuple is filled.
    unsafe {
        let tuple = Owned::new(ffi::PyTuple_New(items.len() as Py_ssize_t))?;
        for (i, item) in items.iter().enumerate() {
            ffi::PyTuple_SET_ITEM(tuple.as_ptr(), i as Py_ssize_t, Owned::share(*item).into_ptr());
        }
        Some(tuple)
    }
}

pub(super) unsafe extern "C" fn build_tuple(args: *mut *mut PyObject, n: i64) -> *mut PyObject {
    // SAFETY: the table's contract.
    or_null(unsafe { tuple_of(variable(args, n)) })
}

pub(super) unsafe extern "C" fn build_list(args: *mut *mut PyObject, n: i64) -> *mut PyObject {
    // SAFETY: the table's contract; every slot of the new list is filled.
    unsafe {
        let items = variable(args, n);
        let Some(list) = Owned::new(ffi::PyList_New(items.len() as Py_ssize_t)) else {
            return ptr::null_mut();
        };
        for (i, item) in items.iter().enumerate() {
            ffi::PyList_SET_ITEM(list.as_ptr(), i as Py_ssize_t, Owned::share(*item).into_ptr());
        }
        list.into_ptr()
    }
}

pub(super) unsafe extern "C" fn build_set(args: *mut *mut PyObject, n: i64) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe {
        let Some(set) = Owned::new(ffi::PySet_New(ptr::null_mut())) else { return ptr::null_mut() };
        for item in variable(args, n) {
            if ffi::PySet_Add(set.as_ptr(), *item) != 0 {
                return ptr::null_mut();
            }
        }
        set.into_ptr()
    }
}

/// BUILD_MAP: an equal later key keeps the first key and takes the last value.
pub(super) unsafe extern "C" fn build_map(args: *mut *mut PyObject, n: i64) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe {
        let pairs = variable(args, n);
        let keys: Vec<_> = pairs.iter().copied().step_by(2).collect();
        let values: Vec<_> = pairs.iter().copied().skip(1).step_by(2).collect();
        if keys.len() != values.len() {
            return super::python::internal_error(c"overdrive: a key without a value");
        }
        let Some(keys) = tuple_of(&keys) else { return ptr::null_mut() };
        _PyStack_AsDict(values.as_ptr(), keys.as_ptr())
    }
}

pub(super) unsafe extern "C" fn build_const_key_map(
    keys: *mut PyObject,
    args: *mut *mut PyObject,
    n: i64,
) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe {
        if ffi::PyTuple_CheckExact(keys) == 0 || ffi::PyTuple_GET_SIZE(keys) as i64 != n {
            return super::python::internal_error(c"bad BUILD_CONST_KEY_MAP keys argument");
        }
        _PyStack_AsDict(args, keys)
    }
}

static EMPTY: Name = Name::new(c"");

pub(super) unsafe extern "C" fn build_string(args: *mut *mut PyObject, n: i64) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe {
        let empty = EMPTY.get();
        if empty.is_null() {
            return ptr::null_mut();
        }
        _PyUnicode_JoinArray(empty, args, n as Py_ssize_t)
    }
}

pub(super) unsafe extern "C" fn build_slice(
    start: *mut PyObject,
    stop: *mut PyObject,
    step: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the table's contract; a null step means None.
    unsafe { ffi::PySlice_New(start, stop, step) }
}

/// FORMAT_VALUE: an exact str without a specification is the result itself.
pub(super) unsafe extern "C" fn format(
    value: *mut PyObject,
    conversion: i64,
    spec: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe {
        let converted = match conversion {
            0 => Some(Owned::share(value)),
            1 => Owned::new(ffi::PyObject_Str(value)),
            2 => Owned::new(ffi::PyObject_Repr(value)),
            3 => Owned::new(ffi::PyObject_ASCII(value)),
            _ => return super::python::internal_error(c"overdrive: unknown conversion"),
        };
        let Some(value) = converted else { return ptr::null_mut() };
        if spec.is_null() && ffi::PyUnicode_CheckExact(value.as_ptr()) != 0 {
            return value.into_ptr();
        }
        ffi::PyObject_Format(value.as_ptr(), spec)
    }
}

pub(super) unsafe extern "C" fn list_append(list: *mut PyObject, item: *mut PyObject) -> i64 {
    // SAFETY: the table's contract; the item's reference is ours.
    unsafe {
        let item = Owned::new(item);
        i64::from(ffi::PyList_Append(list, item.as_ref().map_or(ptr::null_mut(), Owned::as_ptr)))
    }
}

/// Engine rule 4: a float that only this list slot refers to is overwritten in place. The front end sees to it that no
/// remembered box refers to it without holding a reference.
pub(super) unsafe extern "C" fn list_set_float(list: *mut PyObject, index: i64, value: f64) -> i64 {
    // SAFETY: the table's contract: an exact list, the index in range, an exact float in that slot.
    unsafe {
        let old = ffi::PyList_GET_ITEM(list, index as Py_ssize_t);
        if ffi::Py_REFCNT(old) == 1 {
            (*old.cast::<ffi::PyFloatObject>()).ob_fval = value;
            return 0;
        }
        let new = ffi::PyFloat_FromDouble(value);
        if new.is_null() {
            return -1;
        }
        ffi::PyList_SET_ITEM(list, index as Py_ssize_t, new);
        ffi::Py_DECREF(old);
        0
    }
}

/// The other case of what machine code does itself: where the int that is there has another holder, or other digits.
pub(super) unsafe extern "C" fn list_set_int(list: *mut PyObject, index: i64, value: i64) -> i64 {
    // SAFETY: the table's contract: an exact list, the index in range, an exact int in that slot.
    unsafe {
        let new = ffi::PyLong_FromLongLong(value);
        if new.is_null() {
            return -1;
        }
        let old = ffi::PyList_GET_ITEM(list, index as Py_ssize_t);
        ffi::PyList_SET_ITEM(list, index as Py_ssize_t, new);
        ffi::Py_DECREF(old);
        0
    }
}

pub(super) unsafe extern "C" fn list_extend(list: *mut PyObject, iterable: *mut PyObject) -> i64 {
    // SAFETY: the table's contract.
    unsafe {
        if Owned::new(_PyList_Extend(list, iterable)).is_some() {
            return 0;
        }
        if raised_is(ffi::PyExc_TypeError) && cannot_iterate(iterable) {
            ffi::PyErr_Clear();
            ffi::PyErr_Format(
                ffi::PyExc_TypeError,
                c"Value after * must be an iterable, not %.200s".as_ptr(),
                type_name(iterable),
            );
        }
        -1
    }
}

/// True when the type of an object has no way to iterate at all (an iteration that fails by itself is another matter).
///
/// # Safety
/// The object is alive.
unsafe fn cannot_iterate(object: *mut PyObject) -> bool {
    // SAFETY: the caller's contract.
    unsafe { (*ffi::Py_TYPE(object)).tp_iter.is_none() && ffi::PySequence_Check(object) == 0 }
}

pub(super) unsafe extern "C" fn set_add(set: *mut PyObject, item: *mut PyObject) -> i64 {
    // SAFETY: the table's contract.
    i64::from(unsafe { ffi::PySet_Add(set, item) })
}

pub(super) unsafe extern "C" fn set_update(set: *mut PyObject, iterable: *mut PyObject) -> i64 {
    // SAFETY: the table's contract.
    i64::from(unsafe { _PySet_Update(set, iterable) })
}

pub(super) unsafe extern "C" fn map_add(
    dict: *mut PyObject,
    key: *mut PyObject,
    value: *mut PyObject,
) -> i64 {
    // SAFETY: the table's contract.
    i64::from(unsafe { ffi::PyDict_SetItem(dict, key, value) })
}

pub(super) unsafe extern "C" fn dict_update(dict: *mut PyObject, mapping: *mut PyObject) -> i64 {
    // SAFETY: the table's contract.
    unsafe {
        let status = ffi::PyDict_Update(dict, mapping);
        if status < 0 && raised_is(ffi::PyExc_AttributeError) {
            ffi::PyErr_Format(
                ffi::PyExc_TypeError,
                c"'%.200s' object is not a mapping".as_ptr(),
                type_name(mapping),
            );
        }
        i64::from(status)
    }
}

pub(super) unsafe extern "C" fn dict_merge(
    callable: *mut PyObject,
    dict: *mut PyObject,
    mapping: *mut PyObject,
) -> i64 {
    // SAFETY: the table's contract.
    unsafe {
        let status = _PyDict_MergeEx(dict, mapping, 2);
        if status < 0 {
            explain_keywords(callable, mapping);
        }
        i64::from(status)
    }
}

pub(super) unsafe extern "C" fn list_to_tuple(list: *mut PyObject) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe { ffi::PyList_AsTuple(list) }
}

pub(super) unsafe extern "C" fn unpack(seq: *mut PyObject, n: i64) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe {
        if ffi::PyTuple_CheckExact(seq) != 0 && ffi::PyTuple_GET_SIZE(seq) as i64 == n {
            return Owned::share(seq).into_ptr();
        }
        if ffi::PyList_CheckExact(seq) != 0 && ffi::PyList_GET_SIZE(seq) as i64 == n {
            return ffi::PyList_AsTuple(seq);
        }
        or_null(unpack_iterable(seq, n, None))
    }
}

pub(super) unsafe extern "C" fn unpack_ex(seq: *mut PyObject, before: i64, after: i64) -> *mut PyObject {
    // SAFETY: the table's contract.
    or_null(unsafe { unpack_iterable(seq, before, Some(after)) })
}

/// UNPACK_SEQUENCE (`after` is `None`) and UNPACK_EX. On failure the items taken so far are released last first, then
/// the iterator.
///
/// # Safety
/// GIL held, `seq` alive.
unsafe fn unpack_iterable(seq: *mut PyObject, before: i64, after: Option<i64>) -> Option<Owned> {
    // SAFETY: the caller's contract; messages get the C types that their formats name.
    unsafe {
        let Some(iterator) = Owned::new(ffi::PyObject_GetIter(seq)) else {
            if raised_is(ffi::PyExc_TypeError) && cannot_iterate(seq) {
                ffi::PyErr_Format(
                    ffi::PyExc_TypeError,
                    c"cannot unpack non-iterable %.200s object".as_ptr(),
                    type_name(seq),
                );
            }
            return None;
        };
        let mut taken = Taken(Vec::new());
        while (taken.0.len() as i64) < before {
            let Some(item) = Owned::new(ffi::PyIter_Next(iterator.as_ptr())) else {
                let got = taken.0.len() as c_int;
                if ffi::PyErr_Occurred().is_null() {
                    match after {
                        None => ffi::PyErr_Format(
                            ffi::PyExc_ValueError,
                            c"not enough values to unpack (expected %d, got %d)".as_ptr(),
                            before as c_int,
                            got,
                        ),
                        Some(after) => ffi::PyErr_Format(
                            ffi::PyExc_ValueError,
                            c"not enough values to unpack (expected at least %d, got %d)".as_ptr(),
                            (before + after) as c_int,
                            got,
                        ),
                    };
                }
                drop(taken);
                return None;
            };
            taken.0.push(item);
        }
        let Some(after) = after else {
            if let Some(extra) = Owned::new(ffi::PyIter_Next(iterator.as_ptr())) {
                drop(extra);
                ffi::PyErr_Format(
                    ffi::PyExc_ValueError,
                    c"too many values to unpack (expected %d)".as_ptr(),
                    before as c_int,
                );
            }
            if !ffi::PyErr_Occurred().is_null() {
                drop(taken);
                return None;
            }
            drop(iterator);
            return taken.into_tuple();
        };
        let Some(rest) = Owned::new(ffi::PySequence_List(iterator.as_ptr())) else {
            drop(taken);
            return None;
        };
        let list = rest.as_ptr();
        taken.0.push(rest);
        let n_rest = ffi::PyList_GET_SIZE(list);
        if (n_rest as i64) < after {
            ffi::PyErr_Format(
                ffi::PyExc_ValueError,
                c"not enough values to unpack (expected at least %d, got %zd)".as_ptr(),
                (before + after) as c_int,
                before as Py_ssize_t + n_rest,
            );
            drop(taken);
            return None;
        }
        let kept = n_rest - after as Py_ssize_t;
        let Some(result) = Owned::new(ffi::PyTuple_New((before + 1 + after) as Py_ssize_t)) else {
            drop(taken);
            return None;
        };
        // The tail moves out of the list, which keeps its allocation, as UNPACK_EX does.
        for i in 0..after as Py_ssize_t {
            let item = ffi::PyList_GET_ITEM(list, kept + i);
            ffi::PyTuple_SET_ITEM(result.as_ptr(), before as Py_ssize_t + 1 + i, item);
        }
        (*list.cast::<ffi::PyVarObject>()).ob_size = kept;
        for (i, item) in taken.0.drain(..).enumerate() {
            ffi::PyTuple_SET_ITEM(result.as_ptr(), i as Py_ssize_t, item.into_ptr());
        }
        Some(result)
    }
}

/// Items in the order they were taken; dropped last first.
struct Taken(Vec<Owned>);

impl Taken {
    /// # Safety
    /// GIL held.
    unsafe fn into_tuple(mut self) -> Option<Owned> {
        // SAFETY: every slot of the new tuple is filled.
        unsafe {
            let tuple = Owned::new(ffi::PyTuple_New(self.0.len() as Py_ssize_t))?;
            for (i, item) in self.0.drain(..).enumerate() {
                ffi::PyTuple_SET_ITEM(tuple.as_ptr(), i as Py_ssize_t, item.into_ptr());
            }
            Some(tuple)
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}
