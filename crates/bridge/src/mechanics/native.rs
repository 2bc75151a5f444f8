//! `overdrive._core.Native`: the constant inside a stub through which compiled code is entered.
//!
//! In: a [`Body`]. Out: an object that a stub iterates: each call of the function asks it for "the next value",
//! which is the function's result. Ending instead means "run the original bytecode": from its start, or, when the
//! body has left, from the state it left. It finds its frame itself, so nothing is passed.
//!
//! Pickled, it becomes an empty iterator: the stub then runs the original bytecode, in a process that need not have
//! overdrive. It takes no part in garbage collection because code objects, which own it, do not either: a body
//! must not own objects that can refer back to its function.
#![expect(unsafe_code, reason = "defines a C-level type whose objects own Rust values")]

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{ffi, intern};

use super::activation::{Activation, EnteredBy, Exit, forget_pending, pending_exit};
use super::bytecode::{Opcodes, Shape};
use super::frame::{Frame, Thread, field, has_new_events, is_monitored};
use super::stack::stack_low;
use super::{layout, osr, trampoline};

/// What [`Body::enter_loop`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopOutcome {
    /// The frame is as it was; the interpreter goes on.
    NotEntered,
    /// As `NotEntered`, and this loop head need not be offered again.
    NeverAgain,
    /// The frame was put into another state by [`Activation::leave`].
    Left,
}

/// Compiled code of one code object.
///
/// Both entries run with the GIL held. They must not unwind.
pub trait Body: Send + Sync {
    /// Runs the function. Arguments lie in the frame's first slots, owned by the frame; they may be moved out (the
    /// slot set to null) or replaced. The result is
    /// * an owned object: the function's value;
    /// * what [`Activation::leave`] returned, with the frame left;
    /// * null with an exception set: it was raised by the operation at the stored position, which no handler of
    ///   this function covers;
    /// * null with nothing set or changed: the original bytecode runs from its start.
    ///
    /// # Safety
    /// `activation` stands for the current frame, entered by its stub.
    unsafe fn call(&self, activation: &mut Activation<'_>) -> *mut ffi::PyObject;

    /// Runs the function in the frame that its stub made, if it can do without an activation: `None` when nothing has
    /// happened. The result is as for `call`; who leaves asks [`activation_of`] for the activation.
    ///
    /// # Safety
    /// The GIL is held; `frame` is the current frame, entered by its stub; `eval_breaker` is that of this thread.
    unsafe fn call_lightly(&self, frame: Frame, eval_breaker: *const u8) -> Option<*mut ffi::PyObject> {
        let _ = (frame, eval_breaker);
        None
    }

    /// Runs the function without a frame, if that can be done: `None` when nothing has happened.
    ///
    /// # Safety
    /// `function` is a live function whose code is the stub; `n` borrowed arguments lie at `args`; `eval_breaker` is
    /// that of this thread.
    unsafe fn call_without_frame(
        &self,
        function: *mut ffi::PyObject,
        args: *mut *mut ffi::PyObject,
        n: usize,
        eval_breaker: *const u8,
    ) -> Option<*mut ffi::PyObject> {
        let _ = (function, args, n, eval_breaker);
        None
    }

    /// Goes on with a running frame that stands at the loop head `offset` (bytes, in the original code): where the
    /// backward jump lands, which is the first EXTENDED_ARG of that instruction if it has any.
    ///
    /// # Safety
    /// `activation` stands for the current frame, whose slots and stack are live.
    unsafe fn enter_loop(&self, activation: &mut Activation<'_>, offset: u32) -> LoopOutcome {
        let _ = (activation, offset);
        LoopOutcome::NeverAgain
    }
}

/// The object. `repr(C)` because CPython owns the header.
#[repr(C)]
pub struct Native {
    head: ffi::PyObject,
    /// The stub code object that holds this object among its constants: borrowed, only compared.
    stub: *mut ffi::PyObject,
    /// The code object that the stub stands for: owned.
    original: *mut ffi::PyObject,
    /// Unit of the stub's FOR_ITER that enters.
    entry: u32,
    /// Unit of the stub's FOR_ITER that asks how to leave.
    exit: u32,
    /// Number of units in front of the original bytecode.
    base: u32,
    is_enabled: AtomicBool,
    owned: Owned,
}

struct Owned {
    shape: Shape,
    body: Box<dyn Body>,
    ops: &'static Opcodes,
}

static TYPE: OnceLock<Py<PyAny>> = OnceLock::new();

/// Makes the type, once.
///
/// # Errors
/// What `PyType_FromSpec` raises.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    if TYPE.get().is_some() {
        return Ok(());
    }
    let mut methods = [
        ffi::PyMethodDef {
            ml_name: c"__reduce__".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunction: native_reduce },
            ml_flags: ffi::METH_NOARGS,
            ml_doc: c"An empty iterator, with which the stub runs the original bytecode.".as_ptr(),
        },
        // SAFETY: an all-zero entry ends the table.
        unsafe { std::mem::zeroed() },
    ];
    let mut getters = [
        ffi::PyGetSetDef {
            name: c"original".as_ptr(),
            get: Some(native_original),
            set: None,
            doc: c"The code object as it was written.".as_ptr(),
            closure: std::ptr::null_mut(),
        },
        // SAFETY: an all-zero entry ends the table.
        unsafe { std::mem::zeroed() },
    ];
    // CPython keeps pointers into these tables for the life of the type, which is for ever.
    let methods: &'static mut [ffi::PyMethodDef] = Box::leak(Box::new(std::mem::replace(
        &mut methods,
        [
            // SAFETY: never read.
            unsafe { std::mem::zeroed() },
            // SAFETY: never read.
            unsafe { std::mem::zeroed() },
        ],
    )));
    let getters: &'static mut [ffi::PyGetSetDef] = Box::leak(Box::new(std::mem::replace(
        &mut getters,
        [
            // SAFETY: never read.
            unsafe { std::mem::zeroed() },
            // SAFETY: never read.
            unsafe { std::mem::zeroed() },
        ],
    )));
    let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let mut slots = [
        slot(ffi::Py_tp_dealloc, native_dealloc as *mut c_void),
        slot(ffi::Py_tp_iter, ffi::PyObject_SelfIter as *mut c_void),
        slot(ffi::Py_tp_iternext, native_next as *mut c_void),
        slot(ffi::Py_tp_repr, native_repr as *mut c_void),
        slot(ffi::Py_tp_methods, methods.as_mut_ptr().cast()),
        slot(ffi::Py_tp_getset, getters.as_mut_ptr().cast()),
        slot(0, std::ptr::null_mut()),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"overdrive._core.Native".as_ptr(),
        basicsize: size_of::<Native>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT
            | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION
            | ffi::Py_TPFLAGS_IMMUTABLETYPE) as _,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: all tables are valid; CPython copies the slots.
    let ty = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))? };
    let _ = TYPE.set(ty.unbind());
    Ok(())
}

/// Creates the object for `original`; `attach` must tell it its stub before the stub runs.
///
/// # Errors
/// `MemoryError`, or what reading the code object raises.
pub fn new<'py>(
    py: Python<'py>,
    original: &Bound<'py, PyAny>,
    body: Box<dyn Body>,
) -> PyResult<Bound<'py, PyAny>> {
    prepare(py)?;
    let ops = Opcodes::get(py)?;
    let shape = Shape::of(py, original)?;
    let Some(ty) = TYPE.get() else {
        return Err(pyo3::exceptions::PyRuntimeError::new_err("overdrive's Native type is not ready"));
    };
    // SAFETY: the type's basicsize is Native's; every field behind the header is initialised before use.
    unsafe {
        let object = ffi::PyType_GenericAlloc(ty.as_ptr().cast(), 0);
        let bound = Bound::from_owned_ptr_or_err(py, object)?;
        let native: *mut Native = object.cast();
        (&raw mut (*native).stub).write(std::ptr::null_mut());
        (&raw mut (*native).original).write(ffi::Py_NewRef(original.as_ptr()));
        (&raw mut (*native).is_enabled).write(AtomicBool::new(true));
        (&raw mut (*native).owned).write(Owned { shape, body, ops });
        Ok(bound)
    }
}

/// The Native behind an object, if it is one.
pub fn of<'a>(object: &'a Bound<'_, PyAny>) -> Option<&'a Native> {
    // SAFETY: a live object. The type is final and cannot be instantiated elsewhere, so the memory is a Native.
    unsafe { is_native(object.as_ptr()).then(|| &*object.as_ptr().cast::<Native>()) }
}

/// Whether an object is a Native.
///
/// # Safety
/// `object` is alive.
#[inline]
pub unsafe fn is_native(object: *mut ffi::PyObject) -> bool {
    // SAFETY: by contract; only the type is read.
    TYPE.get().is_some_and(|ty| unsafe { ffi::Py_TYPE(object) } == ty.as_ptr().cast())
}

/// Calls a function from native code without a frame of the interpreter: `None` when it carries no stub, its body needs
/// a frame, or somebody watches calls. The result is a new reference, or null with an exception set.
///
/// # Safety
/// The GIL is held; `function` is a live Python function, `n` borrowed positional arguments lie at `args`.
#[inline]
pub unsafe fn call_without_frame(
    function: *mut ffi::PyObject,
    args: *mut *mut ffi::PyObject,
    n: usize,
) -> Option<*mut ffi::PyObject> {
    // SAFETY: a function's code object and its tuple of constants are alive as long as the function is called.
    unsafe {
        let code: *mut ffi::PyObject = field(function.cast(), layout::function::CODE);
        let native = native_in(code)?;
        let thread = Thread::current();
        if !native.is_enabled.load(Ordering::Relaxed)
            || osr::has_foreign_tracer(thread)
            || has_new_events(thread, code)
            || is_monitored(code, osr::own_tools())
            // The call itself is one that the recursion limit must allow.
            || thread.py_recursion() < 1
        {
            return None;
        }
        // No frame owns the code object, and the function may get another one meanwhile.
        ffi::Py_INCREF(code);
        let result = native.owned.body.call_without_frame(function, args, n, thread.eval_breaker());
        ffi::Py_DECREF(code);
        result
    }
}

/// Tells `native` the stub that will hold it: `entry` and `exit` are its two FOR_ITERs, `base` where the original
/// bytecode begins, in units.
pub fn attach(native: &Bound<'_, PyAny>, stub: &Bound<'_, PyAny>, entry: u32, exit: u32, base: u32) {
    if of(native).is_some() {
        let native: *mut Native = native.as_ptr().cast();
        // SAFETY: it is a Native, the GIL is held, and no stub runs it yet.
        unsafe {
            (*native).stub = stub.as_ptr();
            (*native).entry = entry;
            (*native).exit = exit;
            (*native).base = base;
        }
    }
}

impl Native {
    /// The code object as it was written.
    pub fn original<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        // SAFETY: owned by this object.
        unsafe { Bound::from_borrowed_ptr(py, self.original) }
    }

    /// Units in front of the original bytecode in the stub.
    pub fn base(&self) -> u32 {
        self.base
    }

    pub fn shape(&self) -> &Shape {
        &self.owned.shape
    }

    pub fn body(&self) -> &dyn Body {
        self.owned.body.as_ref()
    }

    /// # Safety
    /// The frame is the current one of `thread`, and was entered by this object's stub.
    #[inline]
    unsafe fn activation<'a>(&'a self, thread: Thread, frame: Frame) -> Activation<'a> {
        // SAFETY: by contract.
        unsafe {
            Activation::new(thread, frame, self.base, &self.owned.shape, self.owned.ops, EnteredBy::Call)
        }
    }

    /// Off: every call runs the original bytecode.
    pub fn set_enabled(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
    }
}

unsafe extern "C" fn native_next(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: `object` is a Native; called by the interpreter with the GIL held.
    unsafe {
        let native = &*object.cast::<Native>();
        let thread = Thread::current();
        let frame = thread.frame();
        if frame.0.is_null() || frame.code() != native.stub {
            return std::ptr::null_mut();
        }
        let position = frame.position();
        if position == native.entry as isize {
            enter(native, thread, frame)
        } else if position == native.exit as isize {
            pending_exit(frame).map_or(std::ptr::null_mut(), trampoline::function_for)
        } else {
            std::ptr::null_mut()
        }
    }
}

/// One call of the function.
#[inline]
unsafe fn enter(native: &Native, thread: Thread, frame: Frame) -> *mut ffi::PyObject {
    // SAFETY: `native_next` made sure that this is the stub's frame at its entry.
    unsafe {
        if !native.is_enabled.load(Ordering::Relaxed)
            || osr::has_foreign_tracer(thread)
            || is_monitored(native.stub, osr::own_tools())
            || stack_low()
            || thread.c_recursion() < MIN_C_RECURSION
        {
            return std::ptr::null_mut();
        }
        forget_pending(frame);
        let owned = &native.owned;
        // Line numbers are those of the `def` until the body stores a position.
        frame.set_position((native.base + owned.shape.resume) as isize);
        let value = match owned.body.call_lightly(frame, thread.eval_breaker()) {
            Some(value) => value,
            None => owned.body.call(&mut native.activation(thread, frame)),
        };
        if value.is_null() {
            not_returned(native, thread, frame);
        }
        value
    }
}

/// The activation of a stub's frame.
///
/// # Safety
/// The GIL is held; the frame is the current one, was entered by its stub and was not left.
pub unsafe fn activation_of<'a>(frame: Frame) -> Option<Activation<'a>> {
    // SAFETY: the frame owns its code object, which owns the Native.
    unsafe { Some(native_in(frame.code())?.activation(Thread::current(), frame)) }
}

/// The Native of a stub.
///
/// # Safety
/// `code` is a live code object, and outlives the result.
#[inline]
unsafe fn native_in<'a>(code: *mut ffi::PyObject) -> Option<&'a Native> {
    // SAFETY: a code object's constants are a tuple that lives as long as it does.
    unsafe {
        let consts: *mut ffi::PyObject = field(code.cast(), layout::code::CONSTS);
        let last = ffi::PyTuple_GET_SIZE(consts) - 1;
        if last < 0 {
            return None;
        }
        let object = ffi::PyTuple_GET_ITEM(consts, last);
        if !is_native(object) {
            return None;
        }
        let native = &*object.cast::<Native>();
        // A code object that was made of the stub has the same constants.
        (native.stub == code).then_some(native)
    }
}

/// The code object that a stub stands for, borrowed; `None` for any other code object.
///
/// # Safety
/// `code` is a live code object.
pub unsafe fn original_in(code: *mut ffi::PyObject) -> Option<*mut ffi::PyObject> {
    // SAFETY: by contract.
    unsafe { native_in(code) }.map(|native| native.original)
}

/// Fewer C-level calls than this left: native code is not entered, so that it uses up at most half of them.
const MIN_C_RECURSION: c_int = 700;

/// The body gave no value: FOR_ITER would take StopIteration for the end of the stub's iterator, so that exception
/// leaves through the trampoline.
#[cold]
unsafe fn not_returned(native: &Native, thread: Thread, frame: Frame) {
    // SAFETY: the frame is live; the stored position is inside the original code.
    unsafe {
        if pending_exit(frame).is_some() || ffi::PyErr_Occurred().is_null() {
            return;
        }
        if ffi::PyErr_ExceptionMatches(ffi::PyExc_StopIteration) != 0 {
            let unit = frame.position() - native.base as isize;
            let mut activation = native.activation(thread, frame);
            activation.leave(2 * unit.max(0) as u32, &[], &[], Exit::Raise);
        }
    }
}

unsafe extern "C" fn native_dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the last reference is gone; fields are dropped once, then the memory is freed and the heap type
    // loses the reference that each object holds.
    unsafe {
        let native: *mut Native = object.cast();
        let ty = ffi::Py_TYPE(object);
        std::ptr::drop_in_place(&raw mut (*native).owned);
        ffi::Py_XDECREF((*native).original);
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(ty.cast());
    }
}

unsafe extern "C" fn native_repr(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: `object` is a Native, the GIL is held.
    unsafe {
        let format = c"<native code of %R>".as_ptr();
        ffi::PyUnicode_FromFormat(format, (*object.cast::<Native>()).original)
    }
}

unsafe extern "C" fn native_original(
    object: *mut ffi::PyObject,
    _closure: *mut c_void,
) -> *mut ffi::PyObject {
    // SAFETY: `object` is a Native, the GIL is held.
    unsafe { ffi::Py_NewRef((*object.cast::<Native>()).original) }
}

unsafe extern "C" fn native_reduce(
    _object: *mut ffi::PyObject,
    _args: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the GIL is held.
    let py = unsafe { Python::assume_attached() };
    let reduce = || -> PyResult<Py<PyAny>> {
        let iter = py.import(intern!(py, "builtins"))?.getattr(intern!(py, "iter"))?;
        Ok((iter, (PyBytes::new(py, b""),)).into_pyobject(py)?.into_any().unbind())
    };
    match reduce() {
        Ok(value) => value.into_ptr(),
        Err(error) => {
            error.restore(py);
            std::ptr::null_mut()
        }
    }
}
