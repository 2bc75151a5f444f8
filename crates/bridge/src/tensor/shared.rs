//! `share`, `attach`, handles and pickles: tensors in memory that other processes attach to.
//!
//! In: tensors, or the text of a handle. Out: tensors that hold their block; `Handle` objects, which hold the tensor. A
//! pickle carries a lease, so that nothing is lost between the sender's last reference and the receiver's first.
#![expect(unsafe_code, reason = "writes a tensor's bytes into a file")]

use overdrive_tensor::error::Error;
use overdrive_tensor::shm::handle::Handle;
use overdrive_tensor::shm::layout::{POOL, SINGLE};
use overdrive_tensor::shm::segment::{Piece, Segment};
use overdrive_tensor::shm::{file, list};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::create::Plan;
use super::door::to_python;
use super::make::{self, Options, copy_out, is_dense};
use super::memory::Memory;
use super::object::{self, TensorObject};

/// Seconds that a pickle in flight keeps its memory.
const LEASE: u64 = 60;
/// Block number of a handle that means the whole segment.
const WHOLE: u32 = u32::MAX;

/// A new tensor in a segment of its own, zeroed.
pub(super) fn make<'py>(py: Python<'py>, plan: &Plan) -> PyResult<Bound<'py, PyAny>> {
    let bytes = plan.n_bytes();
    let piece = py
        .detach(|| {
            Segment::create(SINGLE, 1, bytes, |fd, start| file::reserve(fd, start, bytes as u64))?.hold_only()
        })
        .map_err(to_python)?;
    let data = piece.data;
    plan.tensor(py, data, Memory::Shared(piece))
}

/// A copy of a tensor in a segment of its own.
fn copy_of<'py>(py: Python<'py>, source: &TensorObject) -> PyResult<Bound<'py, PyAny>> {
    let bytes = source.n_bytes();
    let dense = is_dense(source);
    let from = source.data.expose_provenance();
    let piece = py
        .detach(|| {
            let segment = Segment::create(SINGLE, 1, bytes, |fd, start| {
                if dense && bytes > 0 {
                    // SAFETY: a dense tensor has its bytes in one piece, and the caller holds it.
                    unsafe { file::write(fd, start, std::ptr::with_exposed_provenance(from), bytes) }
                } else {
                    file::reserve(fd, start, bytes as u64)
                }
            })?;
            segment.hold_only()
        })
        .map_err(to_python)?;
    if !dense {
        // SAFETY: new memory with room for every element.
        unsafe { copy_out(py, source, piece.data) };
    }
    let data = piece.data;
    Plan::of(source.shape(), source.dtype)?.tensor(py, data, Memory::Shared(piece))
}

/// The piece a tensor stands on, where it is the whole of it.
fn piece_of(tensor: &TensorObject) -> Option<&Piece> {
    match &*tensor.memory {
        Memory::Shared(piece) => Some(piece),
        _ => None,
    }
}

fn description(tensor: &TensorObject, piece: &Piece, lease: u64) -> Handle {
    Handle {
        id: piece.id(),
        block: piece.block,
        generation: piece.generation,
        dtype: tensor.dtype,
        shape: tensor.shape().to_vec(),
        read_only: tensor.read_only(),
        lease,
    }
}

/// A handle object, which keeps the tensor.
pub(super) fn handle<'py>(tensor: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let this = object::of(tensor).ok_or_else(|| PyTypeError::new_err("not a tensor"))?;
    let piece = piece_of(this).ok_or_else(|| {
        PyValueError::new_err(
            "only a whole tensor in shared memory has a handle; overdrive.share(t) copies this one there",
        )
    })?;
    let text = description(this, piece, 0).to_text();
    tensor.py().import("overdrive.handles")?.getattr("Handle")?.call1((text, tensor))
}

/// What `pickle` stores: the handle, with a lease.
pub(super) fn reduce<'py>(py: Python<'py>, tensor: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let attach = py.import("overdrive._core")?.getattr("attach")?;
    Ok(PyTuple::new(py, [attach, PyTuple::new(py, [leased_text(tensor, LEASE)?])?.into_any()])?.into_any())
}

/// The text of a tensor's handle with a lease for one receiver.
#[pyfunction]
#[pyo3(name = "_leased_handle", signature = (tensor, seconds=LEASE))]
fn leased_text(tensor: &Bound<'_, PyAny>, seconds: u64) -> PyResult<String> {
    let this = object::of(tensor).ok_or_else(|| PyTypeError::new_err("not a tensor"))?;
    let piece = piece_of(this).ok_or_else(|| {
        PyTypeError::new_err(
            "a tensor on private memory cannot be pickled without a copy; put it into shared memory \
             (overdrive.share, overdrive.empty(..., shared=True)), or pickle t.numpy()",
        )
    })?;
    let lease = piece.lease(seconds.saturating_mul(1_000_000_000)).map_err(to_python)?;
    Ok(description(this, piece, lease).to_text())
}

/// Put a tensor into shared memory and return its handle.
///
/// The handle is a str that another process of this machine gives to `attach`. The memory lives as long as anybody holds
/// it: this handle object, a tensor attached here or elsewhere, or a pickle of either on its way (for a minute). A
/// tensor that is in shared memory already is not copied.
#[pyfunction]
#[pyo3(signature = (x, /))]
fn share<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    if let Some(this) = object::of(x)
        && piece_of(this).is_some()
    {
        return handle(x);
    }
    let source = make::view(x, Options::default())?;
    // SAFETY: a tensor.
    let live = unsafe { object::live(py, source.as_ptr())? };
    handle(&copy_of(py, live.tensor())?)
}

/// Return the shared tensor that a handle names. HandleError when there is none (any more).
#[pyfunction]
#[pyo3(signature = (handle, /, *, readonly=false))]
fn attach<'py>(py: Python<'py>, handle: &str, readonly: bool) -> PyResult<Bound<'py, PyAny>> {
    let handle = Handle::from_text(handle).map_err(to_python)?;
    if handle.block == WHOLE {
        return Err(to_python(Error::Handle {
            reason: "this handle is that of a pool or ring: give it to shm.Pool.attach or shm.Ring.attach",
        }));
    }
    let read_only = readonly || handle.read_only;
    let piece = py
        .detach(|| {
            Segment::attach(handle.id, &[SINGLE, POOL], read_only, false)?.hold(
                handle.block,
                handle.generation,
                handle.n_bytes(),
                handle.lease,
            )
        })
        .map_err(to_python)?;
    let data = piece.data;
    Plan::of(&handle.shape, handle.dtype)?.tensor_with(py, data, Memory::Shared(piece), read_only)
}

/// The text of a handle for a whole pool or ring.
pub(super) fn whole_text(id: [u8; 16]) -> String {
    let dtype = overdrive_tensor::dtype::DType::native(overdrive_tensor::dtype::Kind::U8);
    Handle { id, block: WHOLE, generation: 0, dtype, shape: vec![], read_only: false, lease: 0 }.to_text()
}

/// The id in the handle of a whole pool or ring.
///
/// # Errors
/// `HandleError`.
pub(super) fn whole_id(text: &str) -> PyResult<[u8; 16]> {
    let handle = Handle::from_text(text).map_err(to_python)?;
    if handle.block != WHOLE {
        return Err(to_python(Error::Handle {
            reason: "this handle is that of a tensor: give it to attach",
        }));
    }
    Ok(handle.id)
}

fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Segments of this machine, as dicts.
#[pyfunction]
fn _shm_list(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let rows = py.detach(list::rows);
    let as_dict = |row: list::Row| {
        let dict = PyDict::new(py);
        dict.set_item("name", format!("{}{}", file::PREFIX, hex(&row.id)))?;
        dict.set_item("kind", row.kind)?;
        dict.set_item("bytes", row.bytes)?;
        dict.set_item("participants", row.participants)?;
        dict.set_item("in_flight", row.in_flight)?;
        Ok(dict)
    };
    rows.into_iter().map(as_dict).collect()
}

/// Removes what nobody holds; returns the names.
#[pyfunction]
fn _shm_gc(py: Python<'_>) -> Vec<String> {
    py.detach(list::gc).iter().map(|id| format!("{}{}", file::PREFIX, hex(id))).collect()
}

/// Removes the name behind a handle.
#[pyfunction]
fn _shm_unlink(handle: &str) -> PyResult<()> {
    let handle = Handle::from_text(handle).map_err(to_python)?;
    if file::unlink(&handle.id) {
        return Ok(());
    }
    Err(to_python(Error::Handle {
        reason: "this shared memory is gone: nobody holds it any more, or it was unlinked",
    }))
}

/// The error for an object that was closed while views of it are alive.
pub(super) fn in_use(what: &'static str, views: usize) -> PyErr {
    PyBufferError::new_err(Error::InUse { what, views }.to_string())
}

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(share, module)?)?;
    module.add_function(wrap_pyfunction!(attach, module)?)?;
    module.add_function(wrap_pyfunction!(leased_text, module)?)?;
    module.add_function(wrap_pyfunction!(_shm_list, module)?)?;
    module.add_function(wrap_pyfunction!(_shm_gc, module)?)?;
    module.add_function(wrap_pyfunction!(_shm_unlink, module)?)
}
