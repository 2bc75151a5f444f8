//! Calls: positional and keyword, methods, unpacked arguments.
//!
//! Variable arguments arrive as `(first, count)`; keyword values are the last of them, as in vectorcall. The slot before
//! the first is free for the callee.
#![expect(unsafe_code, reason = "entries of the object table: called by machine code, call CPython")]

use std::ptr;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::{Bound, Python};

use crate::mechanics::frame::{Thread, field, has_new_events, is_monitored};
use crate::mechanics::stack::stack_left;
use crate::mechanics::{giving, layout, native, osr};
use crate::promote;

use super::python::{_PyDict_MergeEx, _PyObject_FunctionStr, Owned, raised_is, type_name};

/// Number of positional arguments among `n`, with the bit that lends the slot before them.
///
/// # Safety
/// `keywords` is null or a tuple.
unsafe fn positional(n: i64, keywords: *mut PyObject) -> usize {
    // SAFETY: the caller's contract.
    let n_keywords = if keywords.is_null() { 0 } else { unsafe { ffi::PyTuple_GET_SIZE(keywords) } };
    (n as isize - n_keywords) as usize | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET
}

pub(super) unsafe extern "C" fn call(
    callable: *mut PyObject,
    keywords: *mut PyObject,
    args: *mut *mut PyObject,
    n: i64,
) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe {
        if ffi::Py_TYPE(callable) == &raw mut ffi::PyFunction_Type
            && keywords.is_null()
            && let Some(result) = native::call_without_frame(callable, args, n as usize)
        {
            return result;
        }
        ffi::PyObject_Vectorcall(callable, args, positional(n, keywords), keywords)
    }
}

/// Whether a call would run `code` (or the stub that stands for it) with these default values, could not be seen by a
/// tracer, and is within the recursion limit with `levels` calls in it.
pub(super) unsafe extern "C" fn callee_is(
    callable: *mut PyObject,
    code: *mut PyObject,
    defaults: *mut PyObject,
    levels: i64,
) -> u8 {
    // SAFETY: the table's contract. A function's fields are never null but for default values, and it owns its code.
    let is = unsafe {
        let Some(function) = giving::function_behind(callable) else { return 0 };
        let now: *mut PyObject = field(function.cast(), layout::function::CODE);
        let thread = Thread::current();
        (now == code || native::original_in(now) == Some(code) || is_counted_copy(now, code))
            && (defaults.is_null() || (*function.cast::<ffi::PyFunctionObject>()).func_defaults == defaults)
            && i64::from(thread.py_recursion()) > levels + 1
            && !thread.has_tracer()
            && !has_new_events(thread, now)
            && !is_monitored(now, osr::own_tools())
    };
    u8::from(is)
}

/// Bytes of C stack that one level of a routine may take: its values, each spilled once, are far fewer.
const LEVEL: usize = 4096;

/// How many levels of calls routines may make. They do not count themselves in CPython's counter, and look at no limit.
pub(super) unsafe extern "C" fn call_levels() -> i64 {
    // SAFETY: the GIL is held.
    let python = i64::from(unsafe { Thread::current().py_recursion() });
    (python - 2).min((stack_left() / LEVEL) as i64).max(0)
}

/// Whether `now` is a copy of `code` that counts calls: one that is translated in place needs no counting.
#[cold]
unsafe fn is_counted_copy(now: *mut PyObject, code: *mut PyObject) -> bool {
    // SAFETY: a live code object, the GIL is held.
    let now = unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), now) };
    promote::uncounted(&now).as_ptr() == code
}

/// As `call`, but the callable comes before the arguments, and all of them are given away.
pub(super) unsafe extern "C" fn call_giving(
    keywords: *mut PyObject,
    values: *mut *mut PyObject,
    n: i64,
) -> *mut PyObject {
    // SAFETY: the table's contract; there is a callable. The references are released in CPython's order.
    unsafe {
        let (callable, args, n) = (*values, values.add(1), n as usize - 1);
        let result = if ffi::Py_TYPE(callable) == &raw mut ffi::PyFunction_Type
            && keywords.is_null()
            && let Some(result) = native::call_without_frame(callable, args, n)
        {
            result
        } else if giving::moves(callable) {
            return giving::call(callable, args, n, keywords);
        } else {
            ffi::PyObject_Vectorcall(callable, args, positional(n as i64, keywords), keywords)
        };
        ffi::Py_DECREF(callable);
        for i in 0..n {
            ffi::Py_DECREF(*args.add(i));
        }
        result
    }
}

/// CALL_FUNCTION_EX; all references are given away.
pub(super) unsafe extern "C" fn call_ex(
    callable: *mut PyObject,
    args: *mut PyObject,
    keywords: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the table's contract. 3.11 holds the arguments until the call ends; later versions move those of functions,
    // not those of bound methods.
    unsafe {
        #[cfg(Py_3_12)]
        if !giving::is_method(callable)
            && giving::moves(callable)
            && (keywords.is_null() || ffi::PyDict_CheckExact(keywords) != 0)
        {
            let tuple = as_tuple(callable, args);
            ffi::Py_DECREF(args);
            let spread = tuple.and_then(|tuple| spread(tuple, keywords));
            ffi::Py_XDECREF(keywords);
            let Some((mut values, names)) = spread else {
                ffi::Py_DECREF(callable);
                return ptr::null_mut();
            };
            let n = values.len() - 1;
            let keywords = names.as_ref().map_or(ptr::null_mut(), Owned::as_ptr);
            return giving::call(callable, values.as_mut_ptr().add(1), n, keywords);
        }
        let result = call_unpacked(callable, args, keywords);
        ffi::Py_DECREF(callable);
        ffi::Py_DECREF(args);
        ffi::Py_XDECREF(keywords);
        result
    }
}

/// Owned values behind a free slot, those of the keywords last, and the names of these. `None` with an exception.
#[cfg(Py_3_12)]
unsafe fn spread(args: Owned, keywords: *mut PyObject) -> Option<(Vec<*mut PyObject>, Option<Owned>)> {
    // SAFETY: an exact tuple; an exact dictionary or null. Nothing runs between the looks at them.
    unsafe {
        let n_args = ffi::PyTuple_GET_SIZE(args.as_ptr());
        let mut values = Vec::with_capacity(1 + n_args as usize);
        let mut keys = Vec::new();
        let (mut at, mut key, mut value) = (0, ptr::null_mut(), ptr::null_mut());
        values.push(ptr::null_mut());
        values.extend((0..n_args).map(|i| ffi::PyTuple_GET_ITEM(args.as_ptr(), i)));
        while !keywords.is_null() && ffi::PyDict_Next(keywords, &mut at, &mut key, &mut value) != 0 {
            if ffi::PyUnicode_Check(key) == 0 {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"keywords must be strings".as_ptr());
                return None;
            }
            keys.push(key);
            values.push(value);
        }
        let mut names = None;
        if !keys.is_empty() {
            let made = Owned::new(ffi::PyTuple_New(keys.len() as ffi::Py_ssize_t))?;
            for (i, key) in keys.into_iter().enumerate() {
                ffi::PyTuple_SET_ITEM(made.as_ptr(), i as ffi::Py_ssize_t, ffi::Py_NewRef(key));
            }
            names = Some(made);
        }
        values[1..].iter().for_each(|value| ffi::Py_INCREF(*value));
        Some((values, names))
    }
}

unsafe fn call_unpacked(
    callable: *mut PyObject,
    args: *mut PyObject,
    keywords: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe {
        let merged;
        let mut keywords = keywords;
        if !keywords.is_null() && ffi::PyDict_CheckExact(keywords) == 0 {
            let Some(dict) = Owned::new(ffi::PyDict_New()) else { return ptr::null_mut() };
            if _PyDict_MergeEx(dict.as_ptr(), keywords, 2) < 0 {
                explain_keywords(callable, keywords);
                return ptr::null_mut();
            }
            merged = dict;
            keywords = merged.as_ptr();
        }
        let Some(args) = as_tuple(callable, args) else { return ptr::null_mut() };
        ffi::PyObject_Call(callable, args.as_ptr(), keywords)
    }
}

/// What stands behind `*` as an exact tuple.
unsafe fn as_tuple(callable: *mut PyObject, args: *mut PyObject) -> Option<Owned> {
    // SAFETY: live objects, the GIL is held.
    unsafe {
        if ffi::PyTuple_CheckExact(args) != 0 {
            return Some(Owned::share(args));
        }
        if (*ffi::Py_TYPE(args)).tp_iter.is_none() && ffi::PySequence_Check(args) == 0 {
            if let Some(callee) = Owned::new(_PyObject_FunctionStr(callable)) {
                ffi::PyErr_Format(
                    ffi::PyExc_TypeError,
                    c"%U argument after * must be an iterable, not %.200s".as_ptr(),
                    callee.as_ptr(),
                    type_name(args),
                );
            }
            return None;
        }
        Owned::new(ffi::PySequence_Tuple(args))
    }
}

/// Turns what a failed merge of keywords raised into the message of a call: "… must be a mapping" or "… got multiple
/// values for keyword argument". Any other exception stays.
///
/// # Safety
/// GIL held, an exception is set.
pub(super) unsafe fn explain_keywords(callable: *mut PyObject, keywords: *mut PyObject) {
    // SAFETY: the caller's contract.
    unsafe {
        if raised_is(ffi::PyExc_AttributeError) {
            ffi::PyErr_Clear();
            if let Some(callee) = Owned::new(_PyObject_FunctionStr(callable)) {
                ffi::PyErr_Format(
                    ffi::PyExc_TypeError,
                    c"%U argument after ** must be a mapping, not %.200s".as_ptr(),
                    callee.as_ptr(),
                    type_name(keywords),
                );
            }
        } else if raised_is(ffi::PyExc_KeyError)
            && let Some(key) = take_duplicate_key()
            && let Some(callee) = Owned::new(_PyObject_FunctionStr(callable))
        {
            ffi::PyErr_Format(
                ffi::PyExc_TypeError,
                c"%U got multiple values for keyword argument '%S'".as_ptr(),
                callee.as_ptr(),
                key.as_ptr(),
            );
        }
    }
}

/// The key of a pending KeyError that has exactly one argument; the exception is cleared then, and stays otherwise.
///
/// # Safety
/// GIL held, a KeyError is set.
#[cfg(Py_3_12)]
unsafe fn take_duplicate_key() -> Option<Owned> {
    use super::python::{set_raised, take_raised};
    // SAFETY: the caller's contract; exceptions keep their arguments as a tuple.
    unsafe {
        let exception = take_raised()?;
        let args = (*exception.as_ptr().cast::<ffi::PyBaseExceptionObject>()).args;
        if !args.is_null() && ffi::PyTuple_Check(args) != 0 && ffi::PyTuple_GET_SIZE(args) == 1 {
            return Some(Owned::share(ffi::PyTuple_GET_ITEM(args, 0)));
        }
        set_raised(exception);
        None
    }
}

/// As above; 3.11 looks at the exception before it is an instance, so that a KeyError out of a mapping's own Python
/// code is not mistaken for a duplicate.
#[cfg(not(Py_3_12))]
unsafe fn take_duplicate_key() -> Option<Owned> {
    let (mut ty, mut value, mut traceback) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: the caller's contract; the three references are owned here.
    unsafe {
        ffi::PyErr_Fetch(&mut ty, &mut value, &mut traceback);
        if !value.is_null() && ffi::PyTuple_Check(value) != 0 && ffi::PyTuple_GET_SIZE(value) == 1 {
            let key = Owned::share(ffi::PyTuple_GET_ITEM(value, 0));
            drop([Owned::new(ty), Owned::new(value), Owned::new(traceback)]);
            return Some(key);
        }
        ffi::PyErr_Restore(ty, value, traceback);
        None
    }
}
