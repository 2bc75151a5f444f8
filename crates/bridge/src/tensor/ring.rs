//! The ring behind `overdrive.shm.Ring`: messages between processes, received in place.
//!
//! In: tensors. Out: tensors that hold their slot until they are dropped. A call that finds its slot at once never leaves
//! the GIL; one that has to wait gives it up, and looks for signals whenever it wakes.
#![expect(unsafe_code, reason = "copies a tensor's bytes into a slot")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use overdrive_tensor::copy;
use overdrive_tensor::error::Error;
use overdrive_tensor::shm::ring::{self, Message, Mode, Stop};
use pyo3::exceptions::{PyEOFError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::create::Plan;
use super::door::to_python;
use super::make::{self, Options};
use super::memory::Memory;
use super::object;
use super::shared;

/// Messages up to this size are copied with the GIL held.
const SHORT: usize = 1 << 16;

/// What `overdrive.shm.Ring` is made of.
#[pyclass(frozen, subclass, module = "overdrive._core")]
pub(super) struct Ring {
    ring: Mutex<Option<Arc<ring::Ring>>>,
}

impl Ring {
    fn ring(&self) -> PyResult<Arc<ring::Ring>> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.clone().ok_or_else(|| to_python(Error::Closed { what: "ring" }))
    }

    fn next_message<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Result<Bound<'py, PyAny>, Stop>> {
        let ring = self.ring()?;
        let deadline = deadline(timeout)?;
        let message = match ring.receive(Some(Instant::now()), &mut || false) {
            Err(Stop::TimedOut) => {
                wait(py, deadline, |deadline, interrupted| ring.receive(deadline, interrupted))?
            }
            found => found,
        };
        match message {
            Ok(message) => Ok(Ok(as_tensor(py, message, ring.mode())?)),
            Err(stop) => Ok(Err(stop)),
        }
    }
}

/// Runs a waiting call without the GIL. A signal whose handler raises ends it with that exception.
fn wait<R: Send>(
    py: Python<'_>,
    deadline: Option<Instant>,
    call: impl FnOnce(Option<Instant>, ring::Interrupted<'_>) -> Result<R, Stop> + Send,
) -> PyResult<Result<R, Stop>> {
    let mut raised = None;
    let result = py.detach(|| {
        let mut interrupted = || {
            Python::attach(|py| match py.check_signals() {
                Ok(()) => false,
                Err(error) => {
                    raised = Some(error);
                    true
                }
            })
        };
        call(deadline, &mut interrupted)
    });
    match raised {
        Some(error) => Err(error),
        None => Ok(result),
    }
}

fn deadline(timeout: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = timeout else { return Ok(None) };
    if seconds.is_nan() {
        return Err(PyValueError::new_err("timeout is a number of seconds"));
    }
    // Beyond what a duration holds is for ever.
    Ok(Duration::try_from_secs_f64(seconds.max(0.0)).ok().and_then(|left| Instant::now().checked_add(left)))
}

fn as_tensor<'py>(py: Python<'py>, message: Message, mode: Mode) -> PyResult<Bound<'py, PyAny>> {
    let plan = Plan::of(&message.shape, message.dtype)?;
    let data = message.data;
    // In broadcast mode others read the same slot.
    plan.tensor_with(py, data, Memory::Slot(message), mode == Mode::Broadcast)
}

fn to_error(stop: Stop, action: &str) -> PyErr {
    match stop {
        Stop::TimedOut => PyTimeoutError::new_err(format!("the ring had nothing to {action} in time")),
        Stop::Interrupted => PyTimeoutError::new_err("interrupted"),
        Stop::Finished => PyEOFError::new_err("no more messages will come"),
        Stop::Failed(error) => to_python(error),
    }
}

#[pymethods]
impl Ring {
    #[new]
    #[pyo3(
        signature = (slots=0, slot_bytes=0, mode="broadcast", *, _handle=None),
        text_signature = "(slots, slot_bytes, mode='broadcast')"
    )]
    fn new(
        py: Python<'_>,
        slots: u32,
        slot_bytes: usize,
        mode: &str,
        _handle: Option<&str>,
    ) -> PyResult<Ring> {
        if let Some(handle) = _handle {
            let id = shared::whole_id(handle)?;
            let ring = py.detach(|| ring::Ring::attach(id)).map_err(to_python)?;
            return Ok(Ring { ring: Mutex::new(Some(ring)) });
        }
        let mode = match mode {
            "broadcast" => Mode::Broadcast,
            "work" => Mode::Work,
            mode => {
                return Err(PyValueError::new_err(format!("mode is 'broadcast' or 'work', not {mode:?}")));
            }
        };
        if slots == 0 {
            return Err(PyValueError::new_err("a ring has at least one slot"));
        }
        let made = py.detach(|| ring::Ring::create(slots, slot_bytes, mode)).map_err(to_python)?;
        Ok(Ring { ring: Mutex::new(Some(made)) })
    }

    /// Return the ring that a handle names, in another process or here, as a participant of its own.
    #[classmethod]
    fn attach<'py>(cls: &Bound<'py, PyType>, handle: &str) -> PyResult<Bound<'py, PyAny>> {
        let options = PyDict::new(cls.py());
        options.set_item("_handle", handle)?;
        cls.call((), Some(&options))
    }

    /// Copy the memory of ``x`` (anything that `tensor` takes, up to 8 axes) into the next slot.
    ///
    /// TimeoutError when no slot came free within ``timeout`` seconds; ValueError when ``x`` does not fit a slot, or the
    /// ring is finished.
    #[pyo3(signature = (x, timeout=None))]
    fn send(&self, x: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<()> {
        let py = x.py();
        let ring = self.ring()?;
        let deadline = deadline(timeout)?;
        let source = make::view(x, Options::default())?;
        // SAFETY: a tensor, which is held until the copy has been made.
        let live = unsafe { object::live(py, source.as_ptr())? };
        let tensor = live.tensor();
        let (from, shape, strides, dtype) =
            (tensor.data.expose_provenance(), tensor.shape(), tensor.strides(), tensor.dtype);
        let mut write = move |to: *mut u8| {
            // SAFETY: the slot has room for the elements, as `send` has checked, and is nobody else's.
            unsafe { copy::gather(std::ptr::with_exposed_provenance(from), shape, strides, dtype.size(), to) }
        };
        let mut sent = Err(Stop::TimedOut);
        if tensor.n_bytes() <= SHORT {
            sent = ring.send(dtype, shape, Some(Instant::now()), &mut || false, &mut write);
        }
        if sent == Err(Stop::TimedOut) {
            sent = wait(py, deadline, |deadline, interrupted| {
                ring.send(dtype, shape, deadline, interrupted, &mut write)
            })?;
        }
        sent.map_err(|stop| match stop {
            Stop::TimedOut => PyTimeoutError::new_err("no slot of the ring became free in time"),
            Stop::Finished => PyValueError::new_err("the ring is finished; nothing can be sent any more"),
            stop => to_error(stop, "send"),
        })
    }

    /// Return the next message in its slot. TimeoutError when none came, EOFError when none will.
    #[pyo3(signature = (timeout=None))]
    fn recv<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        self.next_message(py, timeout)?.map_err(|stop| to_error(stop, "receive"))
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.next_message(py, None)? {
            Ok(message) => Ok(Some(message)),
            Err(Stop::Finished) => Ok(None),
            Err(stop) => Err(to_error(stop, "receive")),
        }
    }

    /// Wait for a message without taking it. False when none came in time.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let ring = self.ring()?;
        wait(py, deadline(timeout)?, |deadline, interrupted| ring.wait(deadline, interrupted))?
            .map_err(|stop| to_error(stop, "receive"))
    }

    /// Become a consumer now, so that no later message is missed. The first ``recv`` does it too.
    #[pyo3(signature = (timeout=None))]
    fn join(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let ring = self.ring()?;
        wait(py, deadline(timeout)?, |deadline, interrupted| ring.join(deadline, interrupted))?
            .map_err(|stop| to_error(stop, "join"))
    }

    /// Say that no more messages will come: iteration ends when those sent have been taken.
    #[pyo3(signature = (timeout=None))]
    fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let ring = self.ring()?;
        wait(py, deadline(timeout)?, |deadline, interrupted| ring.finish(deadline, interrupted))?
            .map_err(|stop| to_error(stop, "finish"))
    }

    /// Give the ring up in this process. BufferError while a received tensor is alive.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut held = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ring) = held.as_ref() else { return Ok(()) };
        if ring.views() > 0 {
            return Err(shared::in_use("ring", ring.views()));
        }
        let ring = held.take();
        drop(held);
        py.detach(|| {
            if let Some(ring) = &ring {
                ring.leave();
            }
            drop(ring);
        });
        Ok(())
    }

    /// The handle by which other processes attach.
    #[getter]
    fn handle(&self) -> PyResult<String> {
        Ok(shared::whole_text(self.ring()?.id()))
    }

    /// Number of slots.
    #[getter]
    fn slots(&self) -> PyResult<usize> {
        Ok(self.ring()?.n_slots())
    }

    /// Bytes of a slot.
    #[getter]
    fn slot_bytes(&self) -> PyResult<usize> {
        Ok(self.ring()?.slot_bytes())
    }

    /// ``"broadcast"`` or ``"work"``.
    #[getter]
    fn mode(&self) -> PyResult<&'static str> {
        Ok(match self.ring()?.mode() {
            Mode::Broadcast => "broadcast",
            Mode::Work => "work",
        })
    }

    /// Consumers that are alive, in broadcast mode; 0 in work mode, which does not count them.
    #[getter]
    fn consumers(&self) -> PyResult<usize> {
        Ok(self.ring()?.n_consumers())
    }

    /// Messages sent so far.
    #[getter]
    fn sent(&self) -> PyResult<u64> {
        Ok(self.ring()?.n_sent())
    }

    /// Slots that hold a message which somebody has yet to take or drop.
    #[getter]
    fn used(&self) -> PyResult<usize> {
        Ok(self.ring()?.n_used())
    }

    /// True after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let attach = slf.get_type().getattr("attach")?;
        PyTuple::new(py, [attach, PyTuple::new(py, [slf.get().handle()?])?.into_any()])
    }

    fn __repr__(&self) -> String {
        match self.ring() {
            Ok(ring) => format!("<overdrive.shm.Ring {} of {} slots in use>", ring.n_used(), ring.n_slots()),
            Err(_) => "<overdrive.shm.Ring closed>".to_owned(),
        }
    }
}
