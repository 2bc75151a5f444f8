//! Making functions and importing, as MAKE_FUNCTION, IMPORT_NAME and IMPORT_FROM do.
#![expect(unsafe_code, reason = "entries of the object table: called by machine code, call CPython")]

use std::ptr;
use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::{Bound, Py, PyAny, PyDictMethods, PyResult, Python};
use pyo3::types::PyDict;

use super::python::{_PyObject_LookupAttr, Name, Owned, set_raised, take_raised};

/// MAKE_FUNCTION with all its attributes, which are stored as they are (annotations may be a tuple).
pub(super) unsafe extern "C" fn make_function(
    code: *mut PyObject,
    globals: *mut PyObject,
    qualified_name: *mut PyObject,
    defaults: *mut PyObject,
    keyword_defaults: *mut PyObject,
    annotations: *mut PyObject,
    closure: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the table's contract; a new function has none of the four attributes yet.
    unsafe {
        let function = if qualified_name.is_null() {
            ffi::PyFunction_New(code, globals)
        } else {
            ffi::PyFunction_NewWithQualName(code, globals, qualified_name)
        };
        let Some(function) = Owned::new(function) else { return ptr::null_mut() };
        let fields = function.as_ptr().cast::<ffi::PyFunctionObject>();
        let attributes = [
            (&raw mut (*fields).func_defaults, defaults),
            (&raw mut (*fields).func_kwdefaults, keyword_defaults),
            (&raw mut (*fields).func_annotations, annotations),
            (&raw mut (*fields).func_closure, closure),
        ];
        for (field, value) in attributes {
            if !value.is_null() {
                *field = Owned::share(value).into_ptr();
            }
        }
        share_version(fields, code);
        function.into_ptr()
    }
}

/// All functions made from one code object share its version, so that calls specialised for one fit the next.
///
/// # Safety
/// A live function that was made from this code object.
unsafe fn share_version(function: *mut ffi::PyFunctionObject, code: *mut PyObject) {
    /// `co_version` of 3.12 and 3.13.
    #[cfg(Py_3_12)]
    const CO_VERSION: usize = 92;
    // SAFETY: the caller's contract; the offset is that of the headers of both versions.
    #[cfg(Py_3_12)]
    unsafe {
        let version = code.cast::<u8>().add(CO_VERSION).cast::<u32>().read();
        #[cfg(Py_3_13)]
        super::python::_PyFunction_SetVersion(function, version);
        #[cfg(not(Py_3_13))]
        {
            (*function).func_version = version;
        }
    }
    // 3.11 gives each function its own version when it is first called.
    #[cfg(not(Py_3_12))]
    let _ = (function, code);
}

static IMPORT: Name = Name::new(c"__import__");

/// IMPORT_NAME in a function (whose frame has no dictionary of locals): `__import__` of the running frame's builtins.
pub(super) unsafe extern "C" fn import_name(
    globals: *mut PyObject,
    name: *mut PyObject,
    from_list: *mut PyObject,
    level: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the table's contract; the function is referenced before it is called.
    unsafe {
        let key = IMPORT.get();
        if key.is_null() {
            return ptr::null_mut();
        }
        let builtins = ffi::PyEval_GetBuiltins();
        let import = if ffi::PyDict_CheckExact(builtins) != 0 {
            let found = ffi::PyDict_GetItemWithError(builtins, key);
            if found.is_null() { None } else { Some(Owned::share(found)) }
        } else {
            let found = Owned::new(ffi::PyObject_GetItem(builtins, key));
            if found.is_none() && super::python::raised_is(ffi::PyExc_KeyError) {
                ffi::PyErr_Clear();
            }
            found
        };
        let Some(import) = import else {
            if ffi::PyErr_Occurred().is_null() {
                ffi::PyErr_SetString(ffi::PyExc_ImportError, c"__import__ not found".as_ptr());
            }
            return ptr::null_mut();
        };
        let args = [name, globals, ffi::Py_None(), from_list, level];
        ffi::PyObject_Vectorcall(import.as_ptr(), args.as_ptr(), args.len(), ptr::null_mut())
    }
}

static MODULE_NAME: Name = Name::new(c"__name__");

pub(super) unsafe extern "C" fn import_from(module: *mut PyObject, name: *mut PyObject) -> *mut PyObject {
    // SAFETY: the table's contract; each result is owned or null.
    unsafe {
        let mut found = ptr::null_mut();
        if _PyObject_LookupAttr(module, name, &mut found) != 0 {
            return found;
        }
        // A circular import: the submodule may be in sys.modules before its package has the attribute.
        let key = MODULE_NAME.get();
        if key.is_null() {
            return ptr::null_mut();
        }
        let mut package = ptr::null_mut();
        if _PyObject_LookupAttr(module, key, &mut package) < 0 {
            if cfg!(Py_3_13) {
                return ptr::null_mut();
            }
            ffi::PyErr_Clear();
        }
        if let Some(package) = Owned::new(package)
            && ffi::PyUnicode_Check(package.as_ptr()) != 0
        {
            let full = ffi::PyUnicode_FromFormat(c"%U.%U".as_ptr(), package.as_ptr(), name);
            let Some(full) = Owned::new(full) else { return ptr::null_mut() };
            let submodule = ffi::PyImport_GetModule(full.as_ptr());
            if !submodule.is_null() || !ffi::PyErr_Occurred().is_null() {
                return submodule;
            }
        }
        raise_cannot_import(module, name);
        ptr::null_mut()
    }
}

/// Lets CPython's own IMPORT_FROM make the message, which differs in every version. It works on a copy of the module
/// without `__getattr__`, so that no Python code of the user runs a second time (an object that is no exact module is
/// asked again).
const FAILING_IMPORT: &std::ffi::CStr = c"
def cannot_import(module, name, kind=type(__import__('sys'))):
    if type(module) is kind:
        copy = kind('')
        copy.__dict__.clear()
        copy.__dict__.update(module.__dict__)
        copy.__dict__.pop('__getattr__', None)
        module = copy
    code = compile('from module import name', '', 'exec').replace(co_names=('module', name))
    exec(code, {'__builtins__': {'__import__': lambda *_: module}})
";

/// Sets the ImportError that `from module import name` ends with.
///
/// # Safety
/// GIL held, live objects.
unsafe fn raise_cannot_import(module: *mut PyObject, name: *mut PyObject) {
    static HELPER: OnceLock<Py<PyAny>> = OnceLock::new();
    fn make(py: Python<'_>) -> PyResult<Py<PyAny>> {
        let scope = PyDict::new(py);
        py.run(FAILING_IMPORT, Some(&scope), None)?;
        Ok(scope.get_item("cannot_import")?.map(Bound::unbind).unwrap_or_else(|| py.None()))
    }
    // SAFETY: the caller's contract.
    unsafe {
        let py = Python::assume_attached();
        let helper = match HELPER.get() {
            Some(helper) => helper,
            None => match make(py) {
                Ok(made) => HELPER.get_or_init(|| made),
                Err(error) => return error.restore(py),
            },
        };
        let args = [module, name];
        let result = ffi::PyObject_Vectorcall(helper.as_ptr(), args.as_ptr(), 2, ptr::null_mut());
        drop(Owned::new(result));
        // The helper's own frames are not part of the user's traceback.
        if let Some(exception) = take_raised() {
            ffi::PyException_SetTraceback(exception.as_ptr(), ffi::Py_None());
            set_raised(exception);
        } else {
            ffi::PyErr_SetObject(ffi::PyExc_ImportError, name);
        }
    }
}
