//! The methods of a tensor: exports, lists, hooks, copies.
//!
//! In: calls from the interpreter. Out: what the exchange formats' files make. A method begins by making sure that the
//! memory is there (`object::live`).
#![expect(unsafe_code, reason = "methods are C functions")]

use std::ffi::{CStr, c_char, c_int};

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::make::{self, Options};
use super::object::{self, Live};
use super::{arrow, dlpack, door, hooks, index, numpy};

/// The table for the type, which lives for ever.
pub(super) fn table() -> *mut ffi::PyMethodDef {
    let entry = |name: &'static CStr, meth: ffi::PyMethodDefPointer, flags: c_int, doc: &'static CStr| {
        ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: meth,
            ml_flags: flags,
            ml_doc: doc.as_ptr().cast::<c_char>(),
        }
    };
    let plain = |function| ffi::PyMethodDefPointer { PyCFunction: function };
    let with_names = |function| ffi::PyMethodDefPointer { PyCFunctionWithKeywords: function };
    let both = ffi::METH_VARARGS | ffi::METH_KEYWORDS;
    Box::leak(Box::new([
        entry(c"numpy", plain(to_numpy), ffi::METH_NOARGS, c"numpy($self, /)\n--\n\nReturn a NumPy array on this memory; it keeps the tensor."),
        entry(c"torch", plain(to_torch), ffi::METH_NOARGS, c"torch($self, /)\n--\n\nReturn a PyTorch tensor on this memory; it keeps the tensor.\n\nBufferError for read-only memory and negative strides, which PyTorch does not have."),
        entry(c"arrow", plain(to_arrow), ffi::METH_NOARGS, c"arrow($self, /)\n--\n\nReturn a pyarrow array on this memory; it keeps the tensor. Each axis but the first is a fixed-size list."),
        entry(c"tolist", plain(to_list), ffi::METH_NOARGS, c"tolist($self, /)\n--\n\nReturn the elements as nested lists of Python numbers."),
        entry(c"on_release", with_names(on_release), both, c"on_release($self, callback, /, *args)\n--\n\nCall callback(*args) when the last reference to this tensor and to everything exported from it is gone.\n\nIt is called after the memory has been given back, on the thread that dropped the last reference, and at the end\nof the process for tensors that are still alive then. The callback must not refer to the tensor."),
        entry(
            c"__dlpack__",
            ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: dlpack::export },
            ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            c"__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nReturn a DLPack capsule.",
        ),
        entry(c"__dlpack_device__", plain(dlpack_device), ffi::METH_NOARGS, c"__dlpack_device__($self, /)\n--\n\nReturn DLPack's device: (1, 0), the CPU."),
        entry(c"__arrow_c_array__", with_names(arrow_c_array), both, c"__arrow_c_array__($self, /, requested_schema=None)\n--\n\nReturn the capsules of the Arrow C data interface."),
        entry(c"__array__", with_names(array), both, c"__array__($self, /, dtype=None, copy=None)\n--\n\nReturn a NumPy array, for element types that its other protocols do not know."),
        entry(c"__copy__", plain(copy_shallow), ffi::METH_NOARGS, c"__copy__($self, /)\n--\n\nReturn another view."),
        entry(c"__deepcopy__", plain(copy_deep), ffi::METH_O, c"__deepcopy__($self, memo, /)\n--\n\nReturn a copy in new memory."),
        entry(c"__reduce__", plain(reduce), ffi::METH_NOARGS, c"__reduce__($self, /)\n--\n\nPickle the handle of shared memory, with a lease of a minute. TypeError for private memory."),
        ffi::PyMethodDef::zeroed(),
    ]))
    .as_mut_ptr()
}

/// Runs a method on a tensor whose memory is there.
///
/// # Safety
/// Called by the interpreter on a tensor.
unsafe fn with_live(
    object: *mut ffi::PyObject,
    body: impl for<'py> FnOnce(Python<'py>, &Live<'py>) -> PyResult<Bound<'py, PyAny>>,
) -> *mut ffi::PyObject {
    // SAFETY: by contract.
    unsafe {
        door::object(|py| {
            let live = object::live(py, object)?;
            Ok(body(py, &live)?.into_ptr())
        })
    }
}

macro_rules! method {
    ($name:ident, |$py:ident, $live:ident| $body:expr) => {
        unsafe extern "C" fn $name(
            object: *mut ffi::PyObject,
            _none: *mut ffi::PyObject,
        ) -> *mut ffi::PyObject {
            // SAFETY: the interpreter calls methods on objects of their type.
            unsafe { with_live(object, |$py, $live| $body) }
        }
    };
}

method!(to_numpy, |py, live| numpy::to_array(py, live.tensor()));
method!(to_list, |py, live| index::to_list(py, live.tensor()));
method!(to_arrow, |py, live| py.import("pyarrow")?.call_method1("array", (live.object(),)));
method!(dlpack_device, |py, _live| Ok((overdrive_tensor::dlpack::CPU, 0).into_pyobject(py)?.into_any()));
method!(copy_shallow, |_py, live| make::view(live.object(), Options::default()));
method!(copy_deep, |py, live| make::duplicate(py, live.tensor(), live.tensor().read_only()));
method!(reduce, |py, live| super::shared::reduce(py, live.object()));
method!(to_torch, |py, live| {
    let tensor = live.tensor();
    if tensor.read_only() {
        return Err(PyBufferError::new_err(
            "PyTorch has no read-only tensors and would write to this memory; pass a copy: tensor(t, copy=True).torch()",
        ));
    }
    let negative =
        tensor.strides().iter().zip(tensor.shape()).any(|(&stride, &length)| stride < 0 && length > 1);
    if negative && tensor.n_items > 0 {
        return Err(PyBufferError::new_err(
            "PyTorch has no negative strides; pass a copy: tensor(t, copy=True).torch()",
        ));
    }
    py.import("torch")?.call_method1("from_dlpack", (live.object(),))
});

/// The arguments of a method that takes a few: by position or name.
///
/// # Safety
/// A tuple, and a dict or null, from the interpreter.
unsafe fn arguments<'py, const N: usize>(
    py: Python<'py>,
    function: &str,
    names: [&str; N],
    given: *mut ffi::PyObject,
    named: *mut ffi::PyObject,
) -> PyResult<[Option<Bound<'py, PyAny>>; N]> {
    // SAFETY: by contract.
    let (given, named) =
        unsafe { (Bound::from_borrowed_ptr(py, given), Bound::from_borrowed_ptr_or_opt(py, named)) };
    let given = given.cast_into::<PyTuple>()?;
    if given.len() > N {
        return Err(PyTypeError::new_err(format!("{function}() takes at most {N} arguments")));
    }
    let mut values = [const { None }; N];
    for (value, given) in values.iter_mut().zip(given.iter()) {
        *value = Some(given);
    }
    if let Some(named) = named {
        for (name, value) in named.cast_into::<PyDict>()?.iter() {
            let name: String = name.extract()?;
            let Some(at) = names.iter().position(|known| *known == name) else {
                return Err(PyTypeError::new_err(format!(
                    "{function}() got an unexpected keyword argument '{name}'"
                )));
            };
            if values[at].replace(value).is_some() {
                return Err(PyTypeError::new_err(format!("{function}() got argument '{name}' twice")));
            }
        }
    }
    Ok(values.map(|value| value.filter(|value| !value.is_none())))
}

unsafe extern "C" fn arrow_c_array(
    object: *mut ffi::PyObject,
    given: *mut ffi::PyObject,
    named: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter on a tensor.
    unsafe {
        with_live(object, |py, live| {
            let [_wish] = arguments(py, "__arrow_c_array__", ["requested_schema"], given, named)?;
            Ok(arrow::export(py, live.object())?.into_any())
        })
    }
}

unsafe extern "C" fn array(
    object: *mut ffi::PyObject,
    given: *mut ffi::PyObject,
    named: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter on a tensor.
    unsafe {
        with_live(object, |py, live| {
            let [dtype, copy] = arguments(py, "__array__", ["dtype", "copy"], given, named)?;
            let made = numpy::to_array(py, live.tensor())?;
            let options = PyDict::new(py);
            if let Some(dtype) = dtype {
                options.set_item("dtype", dtype)?;
            }
            // NumPy 2 reads None as "if needed"; older ones do not hand the argument over.
            let Some(copy) = copy else {
                if options.is_empty() {
                    return Ok(made);
                }
                return py.import("numpy")?.call_method("asarray", (made,), Some(&options));
            };
            options.set_item("copy", copy)?;
            py.import("numpy")?.call_method("array", (made,), Some(&options))
        })
    }
}

unsafe extern "C" fn on_release(
    object: *mut ffi::PyObject,
    given: *mut ffi::PyObject,
    named: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter on a tensor, with a tuple.
    unsafe {
        door::object(|py| {
            if !named.is_null() && ffi::PyDict_Size(named) > 0 {
                return Err(PyTypeError::new_err("on_release() takes no keyword arguments"));
            }
            let given = Bound::from_borrowed_ptr(py, given).cast_into::<PyTuple>()?;
            let Ok(callback) = given.get_item(0) else {
                return Err(PyTypeError::new_err("on_release() needs a callback"));
            };
            if !callback.is_callable() {
                return Err(PyTypeError::new_err("the callback is not callable"));
            }
            let rest = given.get_slice(1, given.len());
            hooks::add(&Bound::from_borrowed_ptr(py, object), callback.unbind(), rest.unbind())?;
            Ok(ffi::Py_NewRef(ffi::Py_None()))
        })
    }
}
