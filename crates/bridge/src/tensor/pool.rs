//! `overdrive.shm.Pool`: many tensors in one segment.
//!
//! In: shapes. Out: tensors made in place, which other processes attach to by handle or pickle without a mapping of their
//! own for each. A pool is closed by this process only; others, and tensors, keep the segment.

use std::sync::{Arc, Mutex, PoisonError};

use overdrive_tensor::error::Error;
use overdrive_tensor::shm::layout::POOL;
use overdrive_tensor::shm::pool;
use overdrive_tensor::shm::segment::Segment;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use super::create::Plan;
use super::door::to_python;
use super::memory::Memory;
use super::shared;

/// Shared memory for many tensors: ``size`` bytes for at most ``blocks`` of them at a time.
///
/// ``empty`` makes a tensor in place, so that nothing is ever copied; its memory comes back when the last process drops
/// it. Pages are reserved at once and stay warm. Processes get tensors of the pool by handle or pickle, or the pool itself.
#[pyclass(frozen, subclass, module = "overdrive.shm")]
pub(super) struct Pool {
    segment: Mutex<Option<Arc<Segment>>>,
}

impl Pool {
    fn segment(&self) -> PyResult<Arc<Segment>> {
        let segment = self.segment.lock().unwrap_or_else(PoisonError::into_inner);
        segment.clone().ok_or_else(|| to_python(Error::Closed { what: "pool" }))
    }
}

#[pymethods]
impl Pool {
    #[new]
    #[pyo3(signature = (size, *, blocks=1024))]
    fn new(py: Python<'_>, size: usize, blocks: usize) -> PyResult<Pool> {
        if blocks == 0 || blocks > 1 << 20 {
            return Err(pyo3::exceptions::PyValueError::new_err("blocks is between 1 and 1048576"));
        }
        let segment = py.detach(|| pool::create(size, blocks)).map_err(to_python)?;
        Ok(Pool { segment: Mutex::new(Some(segment)) })
    }

    /// Return the pool that a handle names, in another process.
    #[classmethod]
    fn attach<'py>(cls: &Bound<'py, PyType>, handle: &str) -> PyResult<Bound<'py, PyAny>> {
        let py = cls.py();
        let id = shared::whole_id(handle)?;
        let segment = py.detach(|| Segment::attach(id, &[POOL], false, false)).map_err(to_python)?;
        Ok(Bound::new(py, Pool { segment: Mutex::new(Some(segment)) })?.into_any())
    }

    /// Return a tensor in the pool, aligned to 64 bytes, with whatever was there. MemoryError when there is no room.
    fn empty<'py>(
        &self,
        shape: &Bound<'py, PyAny>,
        dtype: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = shape.py();
        let segment = self.segment()?;
        let plan = Plan::new(shape, dtype)?;
        let bytes = plan.n_bytes();
        let piece = py.detach(|| pool::allocate(&segment, bytes)).map_err(to_python)?;
        let data = piece.data;
        plan.tensor(py, data, Memory::Shared(piece))
    }

    /// Give the pool up in this process. BufferError while a tensor of it is alive here. A second call has no effect.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut held = self.segment.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(segment) = held.as_ref() else { return Ok(()) };
        let views = pool::views_here(segment);
        if views > 0 {
            return Err(shared::in_use("pool", views));
        }
        let segment = held.take();
        drop(held);
        py.detach(|| drop(segment));
        Ok(())
    }

    /// The handle of the whole pool.
    #[getter]
    fn handle(&self) -> PyResult<String> {
        Ok(shared::whole_text(self.segment()?.id()))
    }

    /// Bytes of the pool.
    #[getter]
    fn size(&self) -> PyResult<usize> {
        Ok(self.segment()?.data().1)
    }

    /// Bytes of all tensors in it, of all processes.
    #[getter]
    fn used(&self) -> PyResult<usize> {
        Ok(pool::usage(&*self.segment()?).1)
    }

    /// Tensors in it, of all processes.
    #[getter]
    fn blocks(&self) -> PyResult<usize> {
        Ok(pool::usage(&*self.segment()?).0)
    }

    /// True after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.segment.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let attach = slf.get_type().getattr("attach")?;
        PyTuple::new(py, [attach, PyTuple::new(py, [slf.get().handle()?])?.into_any()])
    }

    fn __repr__(&self) -> String {
        match self.segment() {
            Ok(segment) => {
                let (blocks, used) = pool::usage(&segment);
                format!("<overdrive.shm.Pool {used} of {} bytes in {blocks} tensors>", segment.data().1)
            }
            Err(_) => "<overdrive.shm.Pool closed>".to_owned(),
        }
    }
}
