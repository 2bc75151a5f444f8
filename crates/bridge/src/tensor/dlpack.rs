//! DLPack, both ways, old protocol and 1.x.
//!
//! In: an object with `__dlpack__`, or a consumer's call of ours. Out: a tensor that deletes the producer's struct when it
//! dies; or a capsule that holds the tensor. The read-only flag travels in 1.x; the old protocol has none, so a
//! read-only tensor refuses it.
#![expect(unsafe_code, reason = "capsules, and structs that a consumer deletes")]

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use overdrive_tensor::dlpack::{self, DataType, Device, ManagedVersioned, Tensor, Version};
use overdrive_tensor::dtype::DType;
use overdrive_tensor::error::MAX_NDIM;
use overdrive_tensor::layout;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use super::door::{self, to_python};
use super::make::{Options, duplicate};
use super::memory::{Managed, Memory};
use super::object::{self, Parts, TensorObject};

const OLD: &CStr = c"dltensor";
const OLD_USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";

/// A tensor on what a producer hands over.
///
/// # Errors
/// `BufferError` for memory on a device, unknown versions and what the producer refuses; `TypeError` for other element
/// types.
pub(super) fn view<'py>(x: &Bound<'py, PyAny>, options: Options) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let managed = take(&ask(x, options)?)?;
    let read_only = match &managed {
        // SAFETY: a struct that we own now.
        Managed::Versioned(managed) => unsafe { (**managed).flags & dlpack::READ_ONLY != 0 },
        Managed::Old(_) => false,
    };
    let tensor = managed.tensor();
    let device = tensor.device.device_type;
    if !dlpack::is_host(device) {
        return Err(on_device(device));
    }
    let dtype =
        DType::from_dlpack(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes).map_err(to_python)?;
    let ndim = usize::try_from(tensor.ndim).map_err(|_| malformed("a negative number of axes"))?;
    if ndim > 0 && tensor.shape.is_null() {
        return Err(malformed("no shape"));
    }
    // SAFETY: both have `ndim` entries where they are not null.
    let list = |pointer: *const i64| unsafe {
        if ndim == 0 { &[][..] } else { std::slice::from_raw_parts(pointer, ndim) }
    };
    let given = (!tensor.strides.is_null()).then(|| list(tensor.strides));
    let (mut shape, mut strides) = ([0; MAX_NDIM], [0; MAX_NDIM]);
    dlpack::byte_layout(list(tensor.shape), given, dtype, &mut shape, &mut strides).map_err(to_python)?;
    let (shape, strides) = (&shape[..ndim], &strides[..ndim]);
    layout::extent(shape, strides, dtype.size()).map_err(to_python)?;
    let n_items = layout::count(shape, dtype.size()).map_err(to_python)?;
    if n_items > 0 && tensor.data.is_null() {
        return Err(malformed("elements at address 0"));
    }
    let data = match tensor.data.is_null() {
        true => null_mut(),
        false => tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize),
    };
    let read_only = options.read_only(read_only || is_immutable(x)?)?;
    let parts = Parts {
        data,
        dtype,
        shape,
        strides,
        n_items,
        read_only,
        owner: x.as_ptr(),
        memory: Memory::Managed(managed),
    };
    // SAFETY: a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, object::new(py, parts)?) })
}

/// JAX's arrays never change, which its capsules do not say.
fn is_immutable(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let module: String = x.get_type().module()?.extract()?;
    Ok(matches!(module.split('.').next(), Some("jax" | "jaxlib")))
}

fn malformed(what: &str) -> PyErr {
    PyBufferError::new_err(format!("the producer's DLPack tensor is malformed: {what}"))
}

fn on_device(device: i32) -> PyErr {
    PyBufferError::new_err(format!(
        "the memory is on device {:?} (DLPack type {device}), which the CPU does not reach; copy=True asks its owner \
         for a copy on the CPU",
        dlpack::device_name(device)
    ))
}

/// Calls `__dlpack__`, the new way first.
fn ask<'py>(x: &Bound<'py, PyAny>, options: Options) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let mut device = dlpack::CPU;
    if x.hasattr(intern!(py, "__dlpack_device__"))? {
        let answer = x.call_method0(intern!(py, "__dlpack_device__"))?;
        // An enum in PyTorch and NumPy; anything with an index is a number here.
        device = answer.get_item(0)?.call_method0(intern!(py, "__index__"))?.extract()?;
    }
    let wanted = PyDict::new(py);
    wanted.set_item(intern!(py, "max_version"), (1, 1))?;
    if !dlpack::is_host(device) {
        if !options.copy {
            return Err(on_device(device));
        }
        wanted.set_item(intern!(py, "dl_device"), (dlpack::CPU, 0))?;
        wanted.set_item(intern!(py, "copy"), true)?;
        return x.call_method(intern!(py, "__dlpack__"), (), Some(&wanted));
    }
    match x.call_method(intern!(py, "__dlpack__"), (), Some(&wanted)) {
        // A producer of before version 1 does not know the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => x.call_method0(intern!(py, "__dlpack__")),
        answer => answer,
    }
}

/// Takes the struct out of a capsule, which is marked as used.
fn take(capsule: &Bound<'_, PyAny>) -> PyResult<Managed> {
    let py = capsule.py();
    if !capsule.is_instance_of::<PyCapsule>() {
        return Err(PyTypeError::new_err("__dlpack__ returned no capsule"));
    }
    // SAFETY: the pointer of a capsule with one of the two names is the struct that this name stands for.
    unsafe {
        let capsule = capsule.as_ptr();
        let take_as = |name: &CStr, used: &CStr| {
            let pointer = ffi::PyCapsule_GetPointer(capsule, name.as_ptr());
            if pointer.is_null() || ffi::PyCapsule_SetName(capsule, used.as_ptr()) < 0 {
                return Err(PyErr::fetch(py));
            }
            Ok(pointer)
        };
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) != 0 {
            let managed = Managed::Versioned(take_as(VERSIONED, VERSIONED_USED)?.cast());
            let Managed::Versioned(pointer) = managed else { unreachable!("just made") };
            let Version { major, minor } = (*pointer).version;
            if major != dlpack::VERSION.major {
                return Err(PyBufferError::new_err(format!(
                    "DLPack version {major}.{minor} is not known; known are 1.x and the one before"
                )));
            }
            return Ok(managed);
        }
        if ffi::PyCapsule_IsValid(capsule, OLD.as_ptr()) != 0 {
            return Ok(Managed::Old(take_as(OLD, OLD_USED)?.cast()));
        }
    }
    Err(PyBufferError::new_err("this DLPack capsule has been used already, or is none"))
}

/// What our capsules carry: the struct, its strides in elements, and the tensor.
#[repr(C)]
struct Export<M> {
    /// First, so that its address is that of the whole.
    managed: M,
    tensor: *mut ffi::PyObject,
    strides: [i64; SHORT],
    long_strides: Vec<i64>,
}

const SHORT: usize = 8;

struct Names {
    stream: Py<PyAny>,
    max_version: Py<PyAny>,
    dl_device: Py<PyAny>,
    copy: Py<PyAny>,
}

static NAMES: OnceLock<Names> = OnceLock::new();

fn names(py: Python<'_>) -> &'static Names {
    NAMES.get_or_init(|| {
        let name = |text: &str| pyo3::types::PyString::intern(py, text).into_any().unbind();
        Names {
            stream: name("stream"),
            max_version: name("max_version"),
            dl_device: name("dl_device"),
            copy: name("copy"),
        }
    })
}

/// `Tensor.__dlpack__`.
pub(super) unsafe extern "C" fn export(
    object: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n_arguments: ffi::Py_ssize_t,
    given: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter on a tensor, with values for the names in `given`.
    unsafe {
        door::object(|py| {
            if n_arguments != 0 {
                return Err(PyTypeError::new_err("__dlpack__() takes keyword arguments only"));
            }
            let request = if given.is_null() { Request::default() } else { read(py, arguments, given)? };
            let live = object::live(py, object)?;
            if request.copy {
                let copied = duplicate(py, live.tensor(), false)?;
                return pack(py, copied.as_ptr(), request);
            }
            pack(py, live.object().as_ptr(), request)
        })
    }
}

#[derive(Clone, Copy, Default)]
struct Request {
    versioned: bool,
    copy: bool,
}

/// # Safety
/// `given` is a tuple of strings, and as many values stand at `values`.
unsafe fn read(
    py: Python<'_>,
    values: *const *mut ffi::PyObject,
    given: *mut ffi::PyObject,
) -> PyResult<Request> {
    let mut request = Request::default();
    let names = names(py);
    // SAFETY: by contract; values are borrowed.
    unsafe {
        for i in 0..ffi::PyTuple_GET_SIZE(given) {
            let value = *values.offset(i);
            let name = ffi::PyTuple_GET_ITEM(given, i);
            // Names in a call are interned, so that addresses decide; anything else is compared as text.
            let is = |wanted: &Py<PyAny>| {
                name == wanted.as_ptr() || ffi::PyUnicode_Compare(name, wanted.as_ptr()) == 0
            };
            let none = value == ffi::Py_None();
            if is(&names.max_version) {
                request.versioned = !none && major(py, value)? >= 1;
            } else if none {
                if !(is(&names.stream) || is(&names.dl_device) || is(&names.copy)) {
                    return Err(unexpected(py, name));
                }
            } else if is(&names.copy) {
                request.copy = Bound::from_borrowed_ptr(py, value).is_truthy()?;
            } else if is(&names.dl_device) {
                let device = Bound::from_borrowed_ptr(py, value);
                let kind: i64 = device.get_item(0)?.call_method0(intern!(py, "__index__"))?.extract()?;
                if kind != i64::from(dlpack::CPU) {
                    return Err(PyBufferError::new_err(format!(
                        "the tensor is on the CPU; it cannot be exported to DLPack device type {kind}"
                    )));
                }
            } else if is(&names.stream) {
                return Err(PyBufferError::new_err(
                    "memory of the CPU belongs to no stream; stream must be None",
                ));
            } else {
                return Err(unexpected(py, name));
            }
        }
    }
    Ok(request)
}

/// # Safety
/// `name` is a live string.
unsafe fn unexpected(py: Python<'_>, name: *mut ffi::PyObject) -> PyErr {
    // SAFETY: by contract.
    let name = unsafe { Bound::from_borrowed_ptr(py, name) };
    PyTypeError::new_err(format!("__dlpack__() got an unexpected keyword argument {name}"))
}

/// # Safety
/// `version` is a live object.
unsafe fn major(py: Python<'_>, version: *mut ffi::PyObject) -> PyResult<i64> {
    // SAFETY: by contract; a tuple of two is the usual case.
    unsafe {
        if ffi::PyTuple_CheckExact(version) != 0 && ffi::PyTuple_GET_SIZE(version) == 2 {
            let major = ffi::PyLong_AsLong(ffi::PyTuple_GET_ITEM(version, 0));
            if major != -1 || ffi::PyErr_Occurred().is_null() {
                return Ok(major);
            }
            return Err(PyErr::fetch(py));
        }
        let version = Bound::from_borrowed_ptr(py, version);
        let pair: (i64, i64) = version
            .extract()
            .map_err(|_| PyValueError::new_err("max_version must be a pair of ints or None"))?;
        Ok(pair.0)
    }
}

/// # Safety
/// `object` is a tensor whose memory is there.
unsafe fn pack(py: Python<'_>, object: *mut ffi::PyObject, request: Request) -> PyResult<*mut ffi::PyObject> {
    // SAFETY: by contract.
    let tensor = unsafe { &*object.cast::<TensorObject>() };
    if tensor.read_only() && !request.versioned {
        return Err(PyBufferError::new_err(
            "the tensor is read-only, which DLPack before 1.0 cannot say; ask with max_version=(1, 0)",
        ));
    }
    let coded = tensor.dtype.to_dlpack().map_err(to_python)?;
    let (shape, strides) = (tensor.shape(), tensor.strides());
    let ndim = shape.len();
    let mut short = [0i64; SHORT];
    let mut long = Vec::new();
    if ndim <= SHORT {
        dlpack::element_strides(shape, strides, tensor.dtype, &mut short[..ndim]).map_err(to_python)?;
    } else {
        long = vec![0; ndim];
        dlpack::element_strides(shape, strides, tensor.dtype, &mut long).map_err(to_python)?;
    }
    let described = Tensor {
        data: tensor.data.cast::<c_void>(),
        device: Device { device_type: dlpack::CPU, device_id: 0 },
        ndim: ndim as i32,
        dtype: DataType { code: coded.code, bits: coded.bits, lanes: 1 },
        // Consumers read only; the tensor keeps its lengths as long as the capsule keeps the tensor.
        shape: shape.as_ptr().cast_mut().cast(),
        strides: null_mut(),
        byte_offset: 0,
    };
    if request.versioned {
        let flags = if tensor.read_only() { dlpack::READ_ONLY } else { 0 };
        let managed = ManagedVersioned {
            version: dlpack::VERSION,
            manager_ctx: null_mut(),
            deleter: Some(delete::<ManagedVersioned>),
            flags: if request.copy { flags | dlpack::IS_COPIED } else { flags },
            tensor: described,
        };
        let export = Box::new(Export { managed, tensor: object, strides: short, long_strides: long });
        // SAFETY: the boxed struct is handed to the capsule.
        unsafe { seal(py, export, |managed| &mut managed.tensor, VERSIONED, drop_versioned) }
    } else {
        let managed = dlpack::Managed {
            tensor: described,
            manager_ctx: null_mut(),
            deleter: Some(delete::<dlpack::Managed>),
        };
        let export = Box::new(Export { managed, tensor: object, strides: short, long_strides: long });
        // SAFETY: as above.
        unsafe { seal(py, export, |managed| &mut managed.tensor, OLD, drop_old) }
    }
}

/// # Safety
/// `export.tensor` is borrowed; the capsule gets a reference of its own.
unsafe fn seal<M>(
    py: Python<'_>,
    mut export: Box<Export<M>>,
    tensor: impl Fn(&mut M) -> &mut Tensor,
    name: &'static CStr,
    destructor: ffi::PyCapsule_Destructor,
) -> PyResult<*mut ffi::PyObject> {
    let strides = if export.long_strides.is_empty() {
        export.strides.as_mut_ptr()
    } else {
        export.long_strides.as_mut_ptr()
    };
    tensor(&mut export.managed).strides = strides;
    // SAFETY: the box lives at this address until `delete` takes it back.
    unsafe {
        ffi::Py_INCREF(export.tensor);
        let export = Box::into_raw(export);
        let capsule = ffi::PyCapsule_New(export.cast(), name.as_ptr(), Some(destructor));
        if capsule.is_null() {
            delete::<M>(export.cast());
            return Err(PyErr::fetch(py));
        }
        Ok(capsule)
    }
}

/// The deleter of our structs, called once, by the consumer or by the capsule that nobody used, on any thread.
unsafe extern "C" fn delete<M>(managed: *mut M) {
    if managed.is_null() {
        return;
    }
    // SAFETY: the struct is the first field of an `Export`.
    unsafe {
        let export = Box::from_raw(managed.cast::<Export<M>>());
        door::give_back(export.tensor);
    }
}

unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule that still has its first name has not been used.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) != 0 {
            delete::<ManagedVersioned>(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

unsafe extern "C" fn drop_old(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, OLD.as_ptr()) != 0 {
            delete::<dlpack::Managed>(ffi::PyCapsule_GetPointer(capsule, OLD.as_ptr()).cast());
        }
    }
}
