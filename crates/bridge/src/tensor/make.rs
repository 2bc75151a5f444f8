//! `overdrive.tensor(x)`: finds out what memory an object has, by which protocol, and views it.
//!
//! In: any object and the options. Out: a tensor, or a refusal that says what would need a copy. Protocols are tried from
//! the cheapest and most exact on: NumPy's own struct, a tensor, the buffer protocol, Arrow, DLPack, the array
//! interface. `copy=True` copies what can be viewed, and in addition what only a copy can express.
#![expect(unsafe_code, reason = "a fast-call function reads its arguments from a C array")]

use std::ffi::{CStr, c_char};

use overdrive_tensor::block::{ALIGN, Block};
use overdrive_tensor::{copy, layout};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;

use super::door::{self, to_python};
use super::memory::Memory;
use super::object::{self, Parts, TensorObject};
use super::{array_interface, arrow, buffer, dlpack, numpy};

/// From this many bytes on a copy releases the GIL.
const LONG_COPY: usize = 1 << 18;

/// The keyword arguments.
#[derive(Clone, Copy, Default)]
pub(super) struct Options {
    pub(super) copy: bool,
    pub(super) readonly: Option<bool>,
    pub(super) weak: bool,
}

impl Options {
    pub(super) fn with_readonly(readonly: Option<bool>) -> Options {
        Options { readonly, ..Options::default() }
    }

    /// Whether the result is read-only, given whether the memory is.
    ///
    /// # Errors
    /// `BufferError` when writable was asked for.
    #[inline]
    pub(super) fn read_only(self, source: bool) -> PyResult<bool> {
        match self.readonly {
            None => Ok(source),
            Some(true) => Ok(true),
            Some(false) if source && !self.copy => {
                Err(PyBufferError::new_err("the memory is read-only; copy=True gives a writable copy"))
            }
            Some(false) => Ok(source),
        }
    }
}

const DOC: &CStr = c"tensor($module, x, /, *, copy=False, readonly=None, weak=False)\n--\n\n\
Return a view of the memory of `x`; no element is copied or converted.\n\n\
`x` is a NumPy array or scalar, a PyTorch, JAX or CuPy tensor on the CPU, an Arrow array, bytes, or anything with the\n\
buffer protocol, `__arrow_c_array__`, `__dlpack__` or `__array_interface__`. Shape, strides, element type, byte order\n\
and read-only are kept; what a tensor cannot express is refused with the reason.\n\n\
`copy=True` copies into new memory, aligned to 64 bytes. `readonly=True` forbids writing through the view, \n\
`readonly=False` insists that it is possible. `weak=True` does not keep `x` alive: once it is gone, using the view\n\
raises ReferenceError.\n\n\
>>> t = tensor(bytearray(b'abc'))\n\
>>> t.dtype, t.shape, t.readonly\n\
('uint8', (3,), False)";

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let methods = Box::leak(Box::new([
        ffi::PyMethodDef {
            ml_name: c"tensor".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: tensor },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: DOC.as_ptr().cast::<c_char>(),
        },
        ffi::PyMethodDef::zeroed(),
    ]));
    // SAFETY: a table that lives for ever, with its end mark.
    if unsafe { ffi::PyModule_AddFunctions(module.as_ptr(), methods.as_mut_ptr()) } < 0 {
        return Err(PyErr::fetch(module.py()));
    }
    Ok(())
}

unsafe extern "C" fn tensor(
    _module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n_arguments: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter with that many arguments, and names for those behind them.
    unsafe {
        door::object(|py| {
            if n_arguments != 1 {
                return Err(PyTypeError::new_err(format!(
                    "tensor() takes exactly one positional argument ({n_arguments} given)"
                )));
            }
            let x = Bound::from_borrowed_ptr(py, *arguments);
            let options =
                if names.is_null() { Options::default() } else { read_options(py, arguments.add(1), names)? };
            Ok(view(&x, options)?.into_ptr())
        })
    }
}

/// # Safety
/// `names` is a tuple of strings, and as many values stand at `values`.
unsafe fn read_options(
    py: Python<'_>,
    values: *const *mut ffi::PyObject,
    names: *mut ffi::PyObject,
) -> PyResult<Options> {
    let mut options = Options::default();
    // SAFETY: by contract.
    unsafe {
        for i in 0..ffi::PyTuple_GET_SIZE(names) {
            let name = Bound::from_borrowed_ptr(py, ffi::PyTuple_GET_ITEM(names, i));
            let value = Bound::from_borrowed_ptr(py, *values.offset(i));
            match name.extract::<&str>()? {
                "copy" => options.copy = value.is_truthy()?,
                "readonly" if value.is_none() => options.readonly = None,
                "readonly" => options.readonly = Some(value.is_truthy()?),
                "weak" => options.weak = value.is_truthy()?,
                name => {
                    return Err(PyTypeError::new_err(format!(
                        "tensor() got an unexpected keyword argument '{name}'"
                    )));
                }
            }
        }
    }
    if options.copy && options.weak {
        return Err(pyo3::exceptions::PyValueError::new_err(
            "a copy has no other owner; copy and weak exclude each other",
        ));
    }
    Ok(options)
}

/// Views or copies the memory of an object.
///
/// # Errors
/// `TypeError` where there is no memory or no such element type, `BufferError` where only a copy could express it.
#[inline]
pub(super) fn view<'py>(x: &Bound<'py, PyAny>, options: Options) -> PyResult<Bound<'py, PyAny>> {
    if numpy::is_exact_array(x.as_ptr()) && !options.copy {
        return numpy::view(x, options);
    }
    view_any(x, options)
}

fn view_any<'py>(x: &Bound<'py, PyAny>, options: Options) -> PyResult<Bound<'py, PyAny>> {
    if options.copy {
        return copy_any(x, options);
    }
    if options.weak && !object::is_tensor(x.as_ptr()) && !numpy::is_array(x)? {
        // Whatever the protocol, only a description is kept, and the owner is asked again when the view is used.
        let strong = find(x, Options { weak: false, ..options })?;
        // SAFETY: `find` returns tensors.
        let this = unsafe { &*strong.as_ptr().cast::<TensorObject>() };
        return weak_view(x, this);
    }
    find(x, options)
}

fn weak_view<'py>(owner: &Bound<'py, PyAny>, seen: &TensorObject) -> PyResult<Bound<'py, PyAny>> {
    let py = owner.py();
    let parts = Parts {
        data: seen.data,
        dtype: seen.dtype,
        shape: seen.shape(),
        strides: seen.strides(),
        n_items: seen.n_items,
        read_only: seen.read_only(),
        owner: owner.as_ptr(),
        memory: Memory::Owner,
    };
    // SAFETY: a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, object::new_weak(py, parts)?) })
}

/// Tries the protocols in turn. The first that an object has decides, except that a buffer which cannot be had (NumPy
/// scalars and JAX arrays of bfloat16) leaves the word to the others.
fn find<'py>(x: &Bound<'py, PyAny>, options: Options) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    if object::is_tensor(x.as_ptr()) {
        return retensor(x, options);
    }
    if numpy::is_array(x)? {
        if !numpy::is_exact_array(x.as_ptr()) {
            numpy::refuse_masked(x)?;
        }
        return numpy::view(x, options);
    }
    let mut refused = None;
    if buffer::has(x) {
        match buffer::view(x, options) {
            Ok(tensor) => return Ok(tensor),
            Err(error) if error.is_instance_of::<PyBufferError>(py) => refused = Some(error),
            Err(error) => return Err(error),
        }
    }
    // Protocols belong to types: a class that has these attributes is itself no tensor.
    let ty = x.get_type();
    if !x.is_instance_of::<pyo3::types::PyType>() {
        if ty.hasattr(intern!(py, "__arrow_c_array__"))? {
            return arrow::view(x, options);
        }
        if ty.hasattr(intern!(py, "__dlpack__"))? {
            return dlpack::view(x, options);
        }
        // Also set on instances, as ctypes users do.
        if x.hasattr(intern!(py, "__array_interface__"))? {
            return array_interface::view(x, options);
        }
    }
    Err(match refused {
        Some(error) => error,
        None => no_memory(x)?,
    })
}

/// Says what an object without memory of its own would need.
fn no_memory(x: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let name = x.get_type().fully_qualified_name()?.to_string();
    if x.hasattr("__cuda_array_interface__")? {
        return Ok(PyBufferError::new_err(format!("{name} is on a GPU; copy it to the CPU first")));
    }
    if x.hasattr("__arrow_c_stream__")? {
        return Ok(PyBufferError::new_err(format!(
            "{name} may consist of several chunks, which are not one piece of memory; combine them: x.combine_chunks()"
        )));
    }
    let copyable = x.hasattr("__array__")?
        || x.is_instance_of::<pyo3::types::PyList>()
        || x.is_instance_of::<pyo3::types::PyTuple>();
    let hint = if copyable { "; copy=True converts it with numpy.array" } else { "" };
    Ok(PyTypeError::new_err(format!(
        "{name} has no memory to view: none of the buffer protocol, __arrow_c_array__, __dlpack__ and \
         __array_interface__{hint}"
    )))
}

/// A view of a tensor's memory, for instance a read-only or a weak one.
fn retensor<'py>(x: &Bound<'py, PyAny>, options: Options) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    // SAFETY: a tensor, as the caller found out.
    let source = unsafe { object::live(py, x.as_ptr())? };
    let this = source.tensor();
    let parts = Parts {
        data: this.data,
        dtype: this.dtype,
        shape: this.shape(),
        strides: this.strides(),
        n_items: this.n_items,
        read_only: options.read_only(this.read_only())?,
        owner: source.object().as_ptr(),
        memory: Memory::Owner,
    };
    let made = if options.weak { object::new_weak(py, parts)? } else { object::new(py, parts)? };
    // SAFETY: a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, made) })
}

fn copy_any<'py>(x: &Bound<'py, PyAny>, options: Options) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let viewing = Options { copy: true, readonly: None, weak: false };
    let source = match find(x, viewing) {
        Ok(source) => source,
        Err(error) if error.is_instance_of::<PyTypeError>(py) && converts_by_numpy(x)? => {
            let array = py.import("numpy")?.call_method1("array", (x,))?;
            find(&array, viewing)?
        }
        Err(error) => return Err(error),
    };
    // SAFETY: `find` returns tensors.
    let this = unsafe { &*source.as_ptr().cast::<TensorObject>() };
    duplicate(py, this, options.readonly == Some(true))
}

fn converts_by_numpy(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(x.is_instance_of::<pyo3::types::PyList>()
        || x.is_instance_of::<pyo3::types::PyTuple>()
        || x.is_instance_of::<pyo3::types::PyInt>()
        || x.is_instance_of::<pyo3::types::PyFloat>()
        || x.is_instance_of::<pyo3::types::PyComplex>()
        || (x.hasattr("__array__")? && !buffer::has(x) && !object::is_tensor(x.as_ptr())))
}

/// The same elements in new memory, row-major.
pub(super) fn duplicate<'py>(
    py: Python<'py>,
    source: &TensorObject,
    read_only: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let block = Block::new(source.n_bytes(), ALIGN, false).map_err(to_python)?;
    // SAFETY: the block has room for every element.
    unsafe { copy_out(py, source, block.data()) };
    let strides = numpy::dense_strides(source.shape(), source.dtype);
    let parts = Parts {
        data: block.data(),
        dtype: source.dtype,
        shape: source.shape(),
        strides: &strides,
        n_items: source.n_items,
        read_only,
        owner: std::ptr::null_mut(),
        memory: Memory::Block(block),
    };
    // SAFETY: a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, object::new(py, parts)?) })
}

/// Copies a tensor's elements in row-major order. A long copy lets other threads run meanwhile.
///
/// # Safety
/// `target` has room for `n_bytes()` and does not overlap the tensor's memory; the tensor is held by the caller.
pub(super) unsafe fn copy_out(py: Python<'_>, source: &TensorObject, target: *mut u8) {
    let bytes = source.n_bytes();
    if bytes == 0 {
        return;
    }
    let (from, to) = (source.data.expose_provenance(), target.expose_provenance());
    let (shape, strides, size) = (source.shape(), source.strides(), source.dtype.size());
    // SAFETY: the tensor's layout was checked when it was made, and its owner is held.
    let run = move || unsafe {
        let from = std::ptr::with_exposed_provenance(from);
        copy::gather(from, shape, strides, size, std::ptr::with_exposed_provenance_mut(to));
    };
    if bytes >= LONG_COPY { py.detach(run) } else { run() }
}

/// Row-major, without gaps.
pub(super) fn is_dense(tensor: &TensorObject) -> bool {
    layout::is_row_major(tensor.shape(), tensor.strides(), tensor.dtype.size())
}
