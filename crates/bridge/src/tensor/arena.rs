//! `overdrive.Arena`: scratch memory that is handed out by moving a pointer.
//!
//! In: sizes and shapes. Out: tensors on the arena's memory, each of which keeps the arena and is counted by it, so that
//! no memory is taken back under a view. An arena belongs to the thread that made it; views may die on any.
#![expect(unsafe_code, reason = "shares the arena between its object and its views, under the GIL")]

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use overdrive_tensor::arena;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::create::Plan;
use super::door::to_python;
use super::memory::Memory;
use crate::mechanics::gil_cell::GilCell;

/// A view's share in an arena: a reference to the arena's object, which is counted under the GIL and so costs no atomic
/// operation.
pub(super) struct Lease {
    object: *mut ffi::PyObject,
    scope: usize,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // SAFETY: `Memory` is dropped with the GIL held; the object is an `Arena` of whose references one is ours. Giving a
        // view back runs no Python.
        unsafe {
            let py = Python::assume_attached();
            let object = Bound::from_borrowed_ptr(py, self.object);
            object.cast_unchecked::<Arena>().get().with(py, |arena| arena.drop_view(self.scope));
            drop(object);
            ffi::Py_DECREF(self.object);
        }
    }
}

thread_local! {
    /// The arenas whose with-blocks this thread is in, innermost last.
    static ENTERED: RefCell<Vec<Py<Arena>>> = const { RefCell::new(Vec::new()) };
    /// Of no other thread, dead ones included. (`thread::current` counts a reference.)
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// Scratch memory: tensors are handed out by moving a pointer and taken back all at once.
///
/// ``size`` bytes are reserved at once; more is added when it is needed. Used as a context manager, what was
/// handed out inside is taken back at the end: at once, or when its last view goes. Blocks nest, with the same
/// arena or others; `Arena.current()` is the innermost of the thread. An arena belongs to the thread that made it.
///
/// >>> with Arena() as arena:
/// ...     t = arena.empty((2, 3), "float32")
/// >>> t.shape, t.align >= 64
/// ((2, 3), True)
#[pyclass(frozen, module = "overdrive")]
pub(super) struct Arena {
    arena: GilCell<arena::Arena>,
    thread: u64,
}

impl Arena {
    fn with<R>(&self, _py: Python<'_>, action: impl FnOnce(&mut arena::Arena) -> R) -> R {
        // SAFETY: the token proves that the GIL is held; an arena's methods run no Python.
        unsafe { self.arena.with(action) }
    }

    fn check_thread(&self) -> PyResult<()> {
        if THREAD.with(|id| *id == self.thread) {
            return Ok(());
        }
        Err(PyRuntimeError::new_err("an arena belongs to the thread that made it; make one for each thread"))
    }
}

#[pymethods]
impl Arena {
    #[new]
    #[pyo3(signature = (size=0))]
    fn new(size: usize) -> PyResult<Arena> {
        let made = arena::Arena::new(size).map_err(to_python)?;
        Ok(Arena { arena: GilCell::new(made), thread: THREAD.with(|id| *id) })
    }

    /// Return a tensor on the arena's memory, aligned to 64 bytes, with whatever was there.
    fn empty<'py>(
        slf: &Bound<'py, Self>,
        shape: &Bound<'py, PyAny>,
        dtype: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let this = slf.get();
        this.check_thread()?;
        let plan = Plan::new(shape, dtype)?;
        let (data, scope) = this.with(py, |arena| arena.view(plan.n_bytes())).map_err(to_python)?;
        let object = slf.clone().into_ptr();
        plan.tensor(py, data, Memory::Arena(Lease { object, scope }))
    }

    /// Take back everything handed out in the innermost block. BufferError while a view of it is alive.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.check_thread()?;
        self.with(py, arena::Arena::reset).map_err(to_python)
    }

    /// Free all memory. BufferError while any view is alive. A second call has no effect.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.check_thread()?;
        self.with(py, arena::Arena::close).map_err(to_python)
    }

    /// Bytes handed out and not taken back.
    #[getter]
    fn used(&self, py: Python<'_>) -> usize {
        self.with(py, |arena| arena.used())
    }

    /// Bytes held from the system.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> usize {
        self.with(py, |arena| arena.capacity())
    }

    /// Views that are alive.
    #[getter]
    fn views(&self, py: Python<'_>) -> usize {
        self.with(py, |arena| arena.views())
    }

    /// True after `close`.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.with(py, |arena| arena.is_closed())
    }

    /// The arena of the innermost with-block that this thread is in, or None.
    #[staticmethod]
    fn current(py: Python<'_>) -> Option<Py<Arena>> {
        ENTERED.with_borrow(|entered| entered.last().map(|arena| arena.clone_ref(py)))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let this = slf.get();
        this.check_thread()?;
        this.with(slf.py(), arena::Arena::enter).map_err(to_python)?;
        ENTERED.with_borrow_mut(|entered| entered.push(slf.clone().unbind()));
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        let this = slf.get();
        this.check_thread()?;
        let left = ENTERED.with_borrow_mut(|entered| {
            let at = entered.iter().rposition(|arena| arena.is(slf))?;
            Some(entered.remove(at))
        });
        this.with(slf.py(), arena::Arena::leave);
        drop(left);
        Ok(())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        self.with(py, |arena| {
            let state = if arena.is_closed() { ", closed" } else { "" };
            format!(
                "<overdrive.Arena {} of {} bytes, {} views{state}>",
                arena.used(),
                arena.capacity(),
                arena.views()
            )
        })
    }
}
