//! The type `Tensor`: its memory layout, its life and death, its place in the garbage collector.
//!
//! In: an address with its layout and whoever keeps it alive. Out: a Python object. Dead objects of up to `INLINE` axes
//! wait in a free list, because a view is often made for one call. A tensor is tracked by the collector when its owner can
//! be part of a cycle; like a tuple it leaves breaking the cycle to the others in it, so its memory never goes early.
#![expect(unsafe_code, reason = "a raw heap type: allocation, collection and slots are C API")]

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::mem::{ManuallyDrop, offset_of, size_of};
use std::ptr::null_mut;
use std::sync::OnceLock;

use overdrive_tensor::dtype::DType;
use overdrive_tensor::error::MAX_NDIM;
use pyo3::exceptions::PyReferenceError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::memory::Memory;
use super::native::{ALIGNED, WRITEABLE};
use super::{attributes, buffer, hooks, index, methods, native};
use crate::mechanics::gil_cell::GilCell;
use crate::mechanics::raised::Raised;

/// Tensors with more axes keep shape and strides in a block of their own.
const INLINE: usize = 8;
/// Dead tensors that wait for their next life.
const FREE: usize = 64;

/// `owner` is a weak reference. Beside it `flags` has those of `native`.
pub(super) const WEAK: i32 = 2;

/// The object. Its head is that of an array (`native` checks the offsets).
#[repr(C)]
pub(super) struct TensorObject {
    /// In a cell like all that changes while Rust holds a reference to the object: Python counts references here.
    ob_base: UnsafeCell<ffi::PyObject>,
    /// First element; may be null when there is none.
    pub(super) data: *mut u8,
    pub(super) ndim: c_int,
    pub(super) dtype: DType,
    /// `ndim` lengths, then `ndim` strides in bytes.
    pub(super) dims: *mut isize,
    /// The strides among them.
    pub(super) strides: *mut isize,
    pub(super) n_items: usize,
    /// The element type for compiled code.
    pub(super) tag: usize,
    pub(super) flags: c_int,
    /// Whoever keeps foreign memory alive, or null.
    pub(super) owner: *mut ffi::PyObject,
    weakrefs: UnsafeCell<*mut ffi::PyObject>,
    /// A list of `Hook`, or null.
    pub(super) hooks: Cell<*mut ffi::PyObject>,
    pub(super) memory: ManuallyDrop<Memory>,
    inline: [isize; 2 * INLINE],
}

impl TensorObject {
    #[inline]
    pub(super) fn shape(&self) -> &[isize] {
        // SAFETY: `dims` has `ndim` lengths as long as the object lives.
        unsafe { std::slice::from_raw_parts(self.dims, self.ndim as usize) }
    }

    #[inline]
    pub(super) fn strides(&self) -> &[isize] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.strides, self.ndim as usize) }
    }

    pub(super) fn n_bytes(&self) -> usize {
        self.n_items * self.dtype.size()
    }

    pub(super) fn read_only(&self) -> bool {
        self.flags & WRITEABLE == 0
    }

    pub(super) fn as_object(&self) -> *mut ffi::PyObject {
        self.ob_base.get()
    }

    /// An address that is never null, for consumers that take null for "allocate".
    pub(super) fn data_or_dummy(&self) -> *mut u8 {
        #[repr(align(64))]
        struct Dummy(#[expect(dead_code, reason = "only its address is used")] [u8; 64]);
        static DUMMY: Dummy = Dummy([0; 64]);
        if self.data.is_null() { (&raw const DUMMY).cast_mut().cast() } else { self.data }
    }
}

/// What a tensor is made of.
pub(super) struct Parts<'a> {
    pub(super) data: *mut u8,
    pub(super) dtype: DType,
    pub(super) shape: &'a [isize],
    pub(super) strides: &'a [isize],
    pub(super) n_items: usize,
    pub(super) read_only: bool,
    /// Whoever keeps the memory alive beside `memory`, borrowed here; or null.
    pub(super) owner: *mut ffi::PyObject,
    pub(super) memory: Memory,
}

/// Makes a tensor. The number of axes has been checked to be at most `MAX_NDIM`.
///
/// # Errors
/// `MemoryError`.
#[inline]
pub(super) fn new(py: Python<'_>, parts: Parts<'_>) -> PyResult<*mut ffi::PyObject> {
    let Parts { data, dtype, shape, strides, n_items, read_only, owner, memory } = parts;
    debug_assert!(shape.len() <= MAX_NDIM && shape.len() == strides.len());
    let ndim = shape.len();
    // SAFETY: the object is ours alone until it is returned, and every field is written.
    unsafe {
        let this = allocate(py)?;
        (*this).data = data;
        (*this).dims = if ndim <= INLINE {
            (&raw mut (*this).inline).cast()
        } else {
            let block: Box<[isize]> = vec![0; 2 * ndim].into();
            Box::into_raw(block).cast()
        };
        (*this).strides = (*this).dims.add(ndim);
        for axis in 0..ndim {
            *(*this).dims.add(axis) = shape[axis];
            *(*this).strides.add(axis) = strides[axis];
        }
        (*this).n_items = n_items;
        (*this).weakrefs = UnsafeCell::new(null_mut());
        (*this).hooks = Cell::new(null_mut());
        (*this).dtype = dtype;
        (*this).ndim = ndim as c_int;
        (*this).tag = native::tag_of(dtype);
        (*this).flags = if read_only { 0 } else { WRITEABLE }
            | if native::is_aligned(data, dtype, strides) { ALIGNED } else { 0 };
        (&raw mut (*this).memory).write(ManuallyDrop::new(memory));
        (*this).owner = owner;
        if !owner.is_null() {
            ffi::Py_INCREF(owner);
            if ffi::PyObject_IS_GC(owner) != 0 {
                ffi::PyObject_GC_Track(this.cast());
            }
        }
        Ok(this.cast())
    }
}

/// Turns a tensor into one that holds its owner weakly. `memory` was `Memory::Owner`.
///
/// # Errors
/// `TypeError` when the owner cannot be referenced weakly.
pub(super) fn new_weak(py: Python<'_>, parts: Parts<'_>) -> PyResult<*mut ffi::PyObject> {
    // SAFETY: a live owner; the new reference is handed to the tensor, which counts its own.
    unsafe {
        let reference = Bound::from_owned_ptr_or_err(py, ffi::PyWeakref_NewRef(parts.owner, null_mut()))?;
        let object = new(py, Parts { owner: reference.as_ptr(), memory: Memory::Owner, ..parts })?;
        let this = object.cast::<TensorObject>();
        // Each use asks the owner: nothing for compiled code.
        (*this).flags = (*this).flags & !ALIGNED | WEAK;
        Ok(object)
    }
}

/// The tensor behind an object, if it is one.
#[inline]
pub(super) fn of<'a>(object: &'a Bound<'_, PyAny>) -> Option<&'a TensorObject> {
    if !is_tensor(object.as_ptr()) {
        return None;
    }
    // SAFETY: the type was checked, and the reference keeps it alive.
    Some(unsafe { &*object.as_ptr().cast::<TensorObject>() })
}

/// The type; null before it is made.
pub(super) fn type_object() -> *mut ffi::PyTypeObject {
    TYPE.get().map_or(null_mut(), |ty| ty.0)
}

/// True for tensors.
#[inline]
pub(super) fn is_tensor(object: *mut ffi::PyObject) -> bool {
    // SAFETY: callers pass a live object; only its type is read.
    TYPE.get().is_some_and(|ty| unsafe { ffi::Py_TYPE(object) } == ty.0)
}

/// A tensor whose memory is there: the tensor itself, or for a weak one a strong view of its owner as it is now.
pub(super) enum Live<'py> {
    Itself(Bound<'py, PyAny>),
    Strong(Bound<'py, PyAny>),
}

impl<'py> Live<'py> {
    pub(super) fn object(&self) -> &Bound<'py, PyAny> {
        match self {
            Live::Itself(object) | Live::Strong(object) => object,
        }
    }

    pub(super) fn tensor(&self) -> &TensorObject {
        // SAFETY: `live` makes these from tensors only.
        unsafe { &*self.object().as_ptr().cast::<TensorObject>() }
    }
}

/// Checks that the memory of a tensor is still there.
///
/// # Errors
/// `ReferenceError` when the owner of a weak tensor has gone or changed its memory.
///
/// # Safety
/// `object` is a live tensor.
#[inline]
pub(super) unsafe fn live<'py>(py: Python<'py>, object: *mut ffi::PyObject) -> PyResult<Live<'py>> {
    // SAFETY: by contract.
    unsafe {
        let bound = Bound::from_borrowed_ptr(py, object);
        if (*object.cast::<TensorObject>()).flags & WEAK == 0 {
            return Ok(Live::Itself(bound));
        }
        revive(py, &bound).map(Live::Strong)
    }
}

#[cold]
fn revive<'py>(py: Python<'py>, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: `live` passes tensors only; the reference is held meanwhile.
    let this = unsafe { &*object.as_ptr().cast::<TensorObject>() };
    let owner = referent(py, this)?;
    let strong =
        super::make::view(&owner, super::make::Options::with_readonly(this.read_only().then_some(true)))?;
    // SAFETY: made by `view`, so a tensor.
    let now = unsafe { &*strong.as_ptr().cast::<TensorObject>() };
    let same = now.data == this.data
        && now.dtype == this.dtype
        && now.shape() == this.shape()
        && now.strides() == this.strides()
        && now.read_only() == this.read_only();
    if same {
        Ok(strong)
    } else {
        Err(PyReferenceError::new_err("the owner of this weak tensor changed its memory"))
    }
}

/// The owner of a weak tensor.
///
/// # Errors
/// `ReferenceError` when it is gone.
pub(super) fn referent<'py>(py: Python<'py>, this: &TensorObject) -> PyResult<Bound<'py, PyAny>> {
    let mut owner = null_mut();
    // SAFETY: the owner of a weak tensor is a weak reference; a strong one comes out, or null.
    unsafe {
        ffi::compat::PyWeakref_GetRef(this.owner, &mut owner);
        Bound::from_owned_ptr_or_opt(py, owner)
            .ok_or_else(|| PyReferenceError::new_err("the owner of this weak tensor is gone"))
    }
}

struct TypePtr(*mut ffi::PyTypeObject);
// SAFETY: a type object that is never freed; used under the GIL only.
unsafe impl Send for TypePtr {}
// SAFETY: as above.
unsafe impl Sync for TypePtr {}

static TYPE: OnceLock<TypePtr> = OnceLock::new();

struct FreeList {
    n: usize,
    objects: [*mut TensorObject; FREE],
}

static FREE_LIST: GilCell<FreeList> = GilCell::new(FreeList { n: 0, objects: [null_mut(); FREE] });

// SAFETY: the pointers are to objects that nobody references; touched under the GIL only.
unsafe impl Send for FreeList {}

/// # Safety
/// The GIL is held; the caller fills in every field.
#[inline]
unsafe fn allocate(py: Python<'_>) -> PyResult<*mut TensorObject> {
    // SAFETY: the closures run no Python; an object from the list has the type's size and no references.
    unsafe {
        let Some(ty) = TYPE.get() else {
            return Err(pyo3::exceptions::PySystemError::new_err("the type Tensor was not made"));
        };
        let free = FREE_LIST.with(|list| {
            (list.n > 0).then(|| {
                list.n -= 1;
                list.objects[list.n]
            })
        });
        if let Some(object) = free {
            ffi::PyObject_Init(object.cast(), ty.0);
            return Ok(object);
        }
        let object = ffi::PyType_GenericAlloc(ty.0, 0).cast::<TensorObject>();
        if object.is_null() {
            return Err(PyErr::fetch(py));
        }
        ffi::PyObject_GC_UnTrack(object.cast());
        Ok(object)
    }
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the last reference is gone. Weak references go first, then the memory, then its owner; only then the
    // hooks are told, so that what they do (resetting an arena) finds the memory given back.
    unsafe {
        let ty = ffi::Py_TYPE(object);
        let this = object.cast::<TensorObject>();
        ffi::PyObject_GC_UnTrack(object.cast());
        if !(*(*this).weakrefs.get()).is_null() {
            ffi::PyObject_ClearWeakRefs(object);
        }
        if (*this).memory.is_quiet() && (*this).hooks.get().is_null() {
            ManuallyDrop::drop(&mut (*this).memory);
            ffi::Py_XDECREF((*this).owner);
        } else {
            let raised = Raised::take();
            ManuallyDrop::drop(&mut (*this).memory);
            ffi::Py_XDECREF((*this).owner);
            if !(*this).hooks.get().is_null() {
                hooks::run((*this).hooks.get());
            }
            raised.restore();
        }
        let ndim = (*this).ndim as usize;
        if ndim > INLINE {
            drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut((*this).dims, 2 * ndim)));
        }
        let kept = FREE_LIST.with(|list| {
            let room = list.n < FREE;
            if room {
                list.objects[list.n] = this;
                list.n += 1;
            }
            room
        });
        if !kept {
            ffi::PyObject_GC_Del(object.cast());
        }
        ffi::Py_DECREF(ty.cast());
    }
}

unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: called by the collector on our own object; fields are null or owned.
    unsafe {
        let this = object.cast::<TensorObject>();
        let lender = match &*(*this).memory {
            Memory::Buffer(view) => view.obj,
            _ => null_mut(),
        };
        for field in [(*this).owner, (*this).hooks.get(), lender, ffi::Py_TYPE(object).cast()] {
            if !field.is_null() {
                let stop = visit(field, arg);
                if stop != 0 {
                    return stop;
                }
            }
        }
    }
    0
}

const DOC: &std::ffi::CStr =
    c"A view of memory: element type, shape, strides in bytes, and whoever owns it.\n\n\
It computes nothing: NumPy, PyTorch and kernels do. Made by `overdrive.tensor`, `empty`, `zeros`, `attach`.";

/// Makes the type and adds it to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    if TYPE.get().is_none() {
        let ty = make_type(py)?;
        TYPE.get_or_init(|| TypePtr(ty));
    }
    if let Some(ty) = TYPE.get() {
        // SAFETY: a live type object.
        module.add("Tensor", unsafe { Bound::from_borrowed_ptr(py, ty.0.cast()) })?;
    }
    Ok(())
}

fn make_type(py: Python<'_>) -> PyResult<*mut ffi::PyTypeObject> {
    // The type keeps pointers into these tables, and lives as long as the process.
    let members = Box::leak(Box::new([
        ffi::PyMemberDef {
            name: c"__weaklistoffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: offset_of!(TensorObject, weakrefs) as ffi::Py_ssize_t,
            flags: ffi::Py_READONLY,
            doc: std::ptr::null(),
        },
        // SAFETY: all zero is the table's end mark.
        unsafe { std::mem::zeroed() },
    ]));
    let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let mut slots = [
        slot(ffi::Py_tp_doc, DOC.as_ptr().cast_mut().cast()),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse as *mut c_void),
        slot(ffi::Py_tp_repr, attributes::repr as *mut c_void),
        slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
        slot(ffi::Py_tp_getset, attributes::table().cast()),
        slot(ffi::Py_tp_methods, methods::table().cast()),
        slot(ffi::Py_bf_getbuffer, buffer::get as *mut c_void),
        slot(ffi::Py_mp_length, index::length as *mut c_void),
        slot(ffi::Py_mp_subscript, index::get as *mut c_void),
        slot(ffi::Py_mp_ass_subscript, index::set as *mut c_void),
        slot(ffi::Py_sq_item, index::item as *mut c_void),
        slot(0, null_mut()),
    ];
    let flags = ffi::Py_TPFLAGS_DEFAULT
        | ffi::Py_TPFLAGS_HAVE_GC
        | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION
        | ffi::Py_TPFLAGS_IMMUTABLETYPE;
    let mut spec = ffi::PyType_Spec {
        name: c"overdrive.Tensor".as_ptr(),
        basicsize: size_of::<TensorObject>() as c_int,
        itemsize: 0,
        flags: flags as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the specification is complete and its tables outlive the type.
    let ty = unsafe { ffi::PyType_FromSpec(&mut spec) };
    if ty.is_null() { Err(PyErr::fetch(py)) } else { Ok(ty.cast()) }
}
