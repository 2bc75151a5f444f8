//! NumPy's arrays, read and made through its C API, without importing NumPy for those who do not use it.
//!
//! In: an array object. Out: its fields, by the struct that NumPy documents for extensions and has kept since 1.7; and
//! arrays on our memory. The API's version is asked first: with one that is not known, the buffer protocol is used.
#![expect(unsafe_code, reason = "NumPy's C API is a table of function pointers and structs")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use overdrive_tensor::dtype::{DType, Kind};
use overdrive_tensor::layout;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use super::door::to_python;
use super::make::Options;
use super::memory::Memory;
use super::object::{self, Parts, TensorObject};
use crate::mechanics::gil_cell::GilCell;

/// `PyArrayObject_fields`, as far as it is read.
#[repr(C)]
struct ArrayFields {
    ob_base: ffi::PyObject,
    data: *mut u8,
    nd: c_int,
    dimensions: *const isize,
    strides: *const isize,
    base: *mut ffi::PyObject,
    descr: *const Descr,
    flags: c_int,
}

/// The part of `PyArray_Descr` that NumPy 1 and 2 agree on.
#[repr(C)]
struct Descr {
    ob_base: ffi::PyObject,
    typeobj: *mut ffi::PyTypeObject,
    kind: c_char,
    letter: c_char,
    byteorder: c_char,
    flags: c_char,
    type_num: c_int,
}

const WRITEABLE: c_int = 0x0400;
/// First number of types that other packages register.
const USER_TYPES: c_int = 256;
/// No type has this number.
const UNKNOWN: i32 = -1;

/// Kinds by NumPy's type number; `long` and `long long` both have 8 bytes on every supported system.
const KINDS: [Option<Kind>; 24] = [
    Some(Kind::Bool),
    Some(Kind::I8),
    Some(Kind::U8),
    Some(Kind::I16),
    Some(Kind::U16),
    Some(Kind::I32),
    Some(Kind::U32),
    Some(Kind::I64),
    Some(Kind::U64),
    Some(Kind::I64),
    Some(Kind::U64),
    Some(Kind::F32),
    Some(Kind::F64),
    None, // long double
    Some(Kind::C64),
    Some(Kind::C128),
    None, // complex long double
    None, // object
    None, // bytes
    None, // str
    None, // void
    None, // datetime64
    None, // timedelta64
    Some(Kind::F16),
];

/// What is used of NumPy's table, by the indexes it documents.
struct Api {
    array_type: *mut ffi::PyTypeObject,
    descr_from_type: unsafe extern "C" fn(c_int) -> *mut ffi::PyObject,
    new_from_descr: unsafe extern "C" fn(
        *mut ffi::PyTypeObject,
        *mut ffi::PyObject,
        c_int,
        *const isize,
        *const isize,
        *mut c_void,
        c_int,
        *mut ffi::PyObject,
    ) -> *mut ffi::PyObject,
    descr_new_byteorder: unsafe extern "C" fn(*mut ffi::PyObject, c_char) -> *mut ffi::PyObject,
    set_base: unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> c_int,
}

// SAFETY: addresses of a module that is never unloaded.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

/// `None` inside: this NumPy is not one whose structs are known.
static API: OnceLock<Option<Api>> = OnceLock::new();
static BFLOAT16: AtomicI32 = AtomicI32::new(UNKNOWN);
/// Type objects of elements, by `Kind`, native order; made when first needed, never freed.
static DESCRS: [AtomicPtr<ffi::PyObject>; Kind::ALL.len()] =
    [const { AtomicPtr::new(null_mut()) }; Kind::ALL.len()];

/// True for an exact `ndarray`, without importing anything.
#[inline]
pub(super) fn is_exact_array(object: *mut ffi::PyObject) -> bool {
    match API.get() {
        // SAFETY: callers pass a live object; only its type is read.
        Some(Some(api)) => unsafe { ffi::Py_TYPE(object) == api.array_type },
        _ => false,
    }
}

/// True for an `ndarray` of any subclass. Looks whether NumPy has been imported meanwhile.
pub(super) fn is_array(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some(api) = api_if_imported(object.py())? else { return Ok(false) };
    // SAFETY: two type objects.
    Ok(unsafe { ffi::PyType_IsSubtype(ffi::Py_TYPE(object.as_ptr()), api.array_type) } != 0)
}

fn api_if_imported(py: Python<'_>) -> PyResult<Option<&'static Api>> {
    if let Some(api) = API.get() {
        return Ok(api.as_ref());
    }
    let modules = py.import("sys")?.getattr("modules")?;
    for name in ["numpy._core._multiarray_umath", "numpy.core._multiarray_umath"] {
        // A program may put None or anything else there.
        if let Ok(module) = modules.get_item(name)
            && let Ok(capsule) = module.getattr("_ARRAY_API")
        {
            // SAFETY: a capsule's pointer under its own (absent) name is NumPy's table, or null with an error.
            let table = unsafe {
                ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()).cast::<*mut c_void>()
            };
            if table.is_null() {
                return Err(PyErr::fetch(py));
            }
            // SAFETY: it is the table.
            return Ok(API.get_or_init(|| unsafe { read_table(table) }).as_ref());
        }
    }
    Ok(None)
}

/// # Safety
/// `table` is NumPy's `_ARRAY_API`.
unsafe fn read_table(table: *mut *mut c_void) -> Option<Api> {
    // SAFETY: entry 0 is the version in every NumPy; the others are read only under a known one. Their types are those
    // that NumPy documents.
    unsafe {
        let version = std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_uint>(*table)();
        if !matches!(version >> 24, 1 | 2) {
            return None;
        }
        Some(Api {
            array_type: (*table.add(2)).cast(),
            descr_from_type: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(c_int) -> *mut ffi::PyObject,
            >(*table.add(45)),
            new_from_descr: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(
                    *mut ffi::PyTypeObject,
                    *mut ffi::PyObject,
                    c_int,
                    *const isize,
                    *const isize,
                    *mut c_void,
                    c_int,
                    *mut ffi::PyObject,
                ) -> *mut ffi::PyObject,
            >(*table.add(94)),
            descr_new_byteorder: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut ffi::PyObject, c_char) -> *mut ffi::PyObject,
            >(*table.add(106)),
            set_base: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> c_int,
            >(*table.add(282)),
        })
    }
}

/// A tensor on an array's memory.
///
/// # Errors
/// `TypeError` for element types that no tensor has, `BufferError` for masked values and for read-only memory where
/// writable was asked for.
#[inline]
pub(super) fn view<'py>(array: &Bound<'py, PyAny>, options: Options) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    // SAFETY: the caller checked that this is an array; the struct is the documented one of this version. Shape and
    // strides are copied before anything else runs.
    unsafe {
        let fields = &*array.as_ptr().cast::<ArrayFields>();
        let descr = &*fields.descr;
        let dtype = match dtype_of(descr) {
            Some(dtype) => dtype,
            None => unusual_dtype(array, descr)?,
        };
        let ndim = fields.nd as usize;
        let shape: &[isize] =
            if ndim == 0 { &[] } else { std::slice::from_raw_parts(fields.dimensions, ndim) };
        let strides: &[isize] =
            if ndim == 0 { &[] } else { std::slice::from_raw_parts(fields.strides, ndim) };
        let parts = Parts {
            data: fields.data,
            dtype,
            shape,
            strides,
            // NumPy has checked that the product fits.
            n_items: shape.iter().product::<isize>() as usize,
            read_only: options.read_only(fields.flags & WRITEABLE == 0)?,
            owner: array.as_ptr(),
            memory: Memory::Owner,
        };
        let made = if options.weak { object::new_weak(py, parts)? } else { object::new(py, parts)? };
        Ok(Bound::from_owned_ptr(py, made))
    }
}

#[inline]
fn dtype_of(descr: &Descr) -> Option<DType> {
    let kind = (*KINDS.get(descr.type_num as usize)?)?;
    Some(DType::ordered(
        kind,
        descr.byteorder as u8 == if cfg!(target_endian = "little") { b'>' } else { b'<' },
    ))
}

#[cold]
fn unusual_dtype(array: &Bound<'_, PyAny>, descr: &Descr) -> PyResult<DType> {
    let py = array.py();
    let dtype = array.getattr("dtype")?;
    if descr.type_num >= USER_TYPES {
        if is_bfloat16(py, descr)? {
            return Ok(DType::native(Kind::BF16));
        }
        let name: String = dtype.getattr("name")?.extract()?;
        return Err(PyTypeError::new_err(format!(
            "NumPy's element type {name:?} cannot be a tensor: of the types that other packages add to NumPy only \
             bfloat16 is known; view it as uint8"
        )));
    }
    let text: String = dtype.getattr("str")?.extract()?;
    Err(match DType::from_typestr(&text) {
        Err(error) => to_python(error),
        Ok(_) => PyTypeError::new_err(format!("NumPy's element type {text:?} cannot be a tensor")),
    })
}

fn is_bfloat16(py: Python<'_>, descr: &Descr) -> PyResult<bool> {
    let known = BFLOAT16.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return Ok(known == descr.type_num);
    }
    // SAFETY: the scalar type of the elements, which the descriptor keeps alive.
    let scalar = unsafe { Bound::from_borrowed_ptr(py, descr.typeobj.cast()) };
    let name: String = scalar.getattr("__name__")?.extract()?;
    let module: String = scalar.getattr("__module__")?.extract()?;
    let found = name == "bfloat16" && module.split('.').next() == Some("ml_dtypes");
    if found {
        BFLOAT16.store(descr.type_num, Ordering::Relaxed);
    }
    Ok(found)
}

/// Refuses arrays in which some values are masked: the bytes under a mask are junk.
///
/// # Errors
/// `BufferError`.
pub(super) fn refuse_masked(array: &Bound<'_, PyAny>) -> PyResult<()> {
    let modules = array.py().import("sys")?.getattr("modules")?;
    let Ok(masked) = modules.get_item("numpy.ma") else { return Ok(()) };
    if array.is_instance(&masked.getattr("MaskedArray")?)?
        && masked.call_method1("is_masked", (array,))?.is_truthy()?
    {
        return Err(pyo3::exceptions::PyBufferError::new_err(
            "this masked array has masked values, whose bytes mean nothing; fill them: array.filled(0)",
        ));
    }
    Ok(())
}

/// A NumPy array on a tensor's memory; it keeps the tensor.
///
/// # Errors
/// `ImportError` without NumPy (and without ml_dtypes for bfloat16), or what NumPy raises.
#[inline]
pub(super) fn to_array<'py>(py: Python<'py>, tensor: &TensorObject) -> PyResult<Bound<'py, PyAny>> {
    let api = match API.get() {
        Some(Some(api)) => api,
        _ => {
            py.import("numpy")?;
            match api_if_imported(py)? {
                Some(api) => api,
                // A NumPy whose structs are not known reads our buffer.
                None => {
                    // SAFETY: a live tensor.
                    let object = unsafe { Bound::from_borrowed_ptr(py, tensor.as_object()) };
                    return py.import("numpy")?.call_method1("asarray", (object,));
                }
            }
        }
    };
    let descr = descr(py, api, tensor.dtype)?;
    let (shape, strides) = (tensor.shape(), tensor.strides());
    // SAFETY: the type object is ours to give, which the call takes; the array has the tensor's memory and keeps
    // the tensor, whose reference `set_base` takes also when it fails.
    unsafe {
        let array = api_call(
            py,
            (api.new_from_descr)(
                api.array_type,
                descr,
                shape.len() as c_int,
                shape.as_ptr(),
                strides.as_ptr(),
                tensor.data_or_dummy().cast(),
                if tensor.read_only() { 0 } else { WRITEABLE },
                null_mut(),
            ),
        )?;
        let base = tensor.as_object();
        ffi::Py_INCREF(base);
        if (api.set_base)(array.as_ptr(), base) < 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(array)
    }
}

/// # Safety
/// A new reference, or null with an exception set.
#[inline]
unsafe fn api_call<'py>(py: Python<'py>, object: *mut ffi::PyObject) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: by contract.
    unsafe { Bound::from_owned_ptr_or_err(py, object) }
}

/// A new reference to NumPy's object for an element type.
#[inline]
fn descr(py: Python<'_>, api: &Api, dtype: DType) -> PyResult<*mut ffi::PyObject> {
    let cached = &DESCRS[dtype.kind as usize];
    let mut native = cached.load(Ordering::Relaxed);
    if native.is_null() {
        native = make_descr(py, api, dtype.kind)?;
        cached.store(native, Ordering::Relaxed);
    }
    // SAFETY: a live object; with the other byte order a new one comes out.
    unsafe {
        if dtype.swapped {
            return Ok(api_call(py, (api.descr_new_byteorder)(native, b's' as c_char))?.into_ptr());
        }
        ffi::Py_INCREF(native);
    }
    Ok(native)
}

#[cold]
fn make_descr(py: Python<'_>, api: &Api, kind: Kind) -> PyResult<*mut ffi::PyObject> {
    if kind == Kind::BF16 {
        let scalar = py.import("ml_dtypes")?.getattr("bfloat16")?;
        return Ok(py.import("numpy")?.getattr("dtype")?.call1((scalar,))?.into_ptr());
    }
    let number = KINDS.iter().position(|&known| known == Some(kind));
    let number = number.ok_or_else(|| PyValueError::new_err("no such element type"))?;
    // SAFETY: a type number of NumPy's own.
    Ok(unsafe { api_call(py, (api.descr_from_type)(number as c_int))? }.into_ptr())
}

/// Element type that NumPy or Python gives a name to: a string, `numpy.dtype`, scalar type, `float`, `torch.dtype`.
///
/// # Errors
/// `TypeError`.
pub(super) fn dtype_from_object(given: &Bound<'_, PyAny>) -> PyResult<DType> {
    /// The name that was read last, usually by the same line of a program, and kept so that its address stays its own.
    static LAST: GilCell<Option<(Py<PyAny>, DType)>> = GilCell::new(None);
    let py = given.py();
    // SAFETY: the GIL is held, and an address is compared.
    let known = unsafe {
        LAST.with(|last| last.as_ref().filter(|last| last.0.as_ptr() == given.as_ptr()).map(|last| last.1))
    };
    if let Some(dtype) = known {
        return Ok(dtype);
    }
    if let Ok(text) = given.extract::<&str>() {
        let dtype = DType::from_name(text).map_err(to_python)?;
        // SAFETY: as above; the name before is dropped outside.
        drop(unsafe { LAST.with(|last| last.replace((given.clone().unbind(), dtype))) });
        return Ok(dtype);
    }
    let builtins = [
        (py.get_type::<pyo3::types::PyFloat>(), Kind::F64),
        (py.get_type::<pyo3::types::PyInt>(), Kind::I64),
    ];
    for (ty, kind) in builtins {
        if given.is(&ty) {
            return Ok(DType::native(kind));
        }
    }
    if given.is(py.get_type::<pyo3::types::PyBool>()) {
        return Ok(DType::native(Kind::Bool));
    }
    if given.is(py.get_type::<pyo3::types::PyComplex>()) {
        return Ok(DType::native(Kind::C128));
    }
    // numpy.dtype says both; bfloat16 has no type string of its own.
    if let (Ok(name), Ok(text)) = (given.getattr("name"), given.getattr("str")) {
        let (name, text) = (name.extract::<String>()?, text.extract::<String>()?);
        if name == "bfloat16" {
            return Ok(DType::native(Kind::BF16));
        }
        return DType::from_typestr(&text).map_err(to_python);
    }
    if given.is_instance_of::<pyo3::types::PyType>()
        && let Ok(name) = given.getattr("__name__").and_then(|name| name.extract::<String>())
        && let Ok(module) = given.getattr("__module__").and_then(|module| module.extract::<String>())
        && matches!(module.split('.').next(), Some("numpy" | "ml_dtypes" | "jax"))
    {
        return DType::from_name(&name).map_err(to_python);
    }
    // torch.float32 prints as its name.
    let text = given.str()?.to_string();
    if text.starts_with("torch.") {
        return DType::from_name(&text).map_err(to_python);
    }
    Err(PyTypeError::new_err(format!(
        "{text} is no element type; give a name such as 'float32', or a NumPy dtype"
    )))
}

/// Row-major strides for a shape.
pub(super) fn dense_strides(shape: &[isize], dtype: DType) -> Vec<isize> {
    let mut strides = vec![0; shape.len()];
    layout::row_major(shape, dtype.size(), &mut strides);
    strides
}
