//! Quantised bytes to floats, for Python.
//!
//! In: a format, and whole blocks of it in any buffer or file. Out: a NumPy array of float32. Long work lets other threads
//! run; bytes of a file are copied piece by piece, so that a file which is cut meanwhile is an error.
#![expect(unsafe_code, reason = "works on the memory of buffers and arrays")]

use std::io;

use overdrive_kernels::{Format, decode};
use overdrive_llm::gguf::{UnknownFormat, format_named, format_of};
use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString};

use crate::tensor::Held;

/// From this many values on the GIL is released.
const LONG: usize = 1 << 16;

/// Bytes that are taken from a source at once: they stay in the processor's cache.
const PIECE: usize = 1 << 18;

/// Return the values of quantised blocks as a NumPy array of float32.
///
/// ``type`` is a number of GGUF's table of types or its name there (``3``, ``"Q4_1"``), ``raw`` any buffer of whole
/// blocks. NotImplementedError names a type that is not decoded here; ValueError says that bytes are no whole blocks.
///
/// >>> import struct
/// >>> from overdrive import llm
/// >>> llm.dequantize("Q8_0", struct.pack("<e", 0.5) + bytes(range(32)))[:4].tolist()
/// [0.0, 0.5, 1.0, 1.5]
#[pyfunction]
#[pyo3(signature = (r#type, raw, /))]
pub(super) fn dequantize<'py>(
    r#type: &Bound<'py, PyAny>,
    raw: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let format = read_format(r#type)?;
    let raw = Held::view(raw)?;
    if !raw.is_dense() {
        return Err(PyValueError::new_err(
            "raw is not contiguous: its bytes do not lie one behind the other",
        ));
    }
    let n_bytes = raw.n_bytes();
    if !n_bytes.is_multiple_of(format.block_bytes()) {
        return Err(PyValueError::new_err(format!(
            "{n_bytes} bytes are no whole blocks of {}: one has {} bytes",
            format.name(),
            format.block_bytes()
        )));
    }
    let n_values = n_bytes / format.block_bytes() * format.block_values();
    from_held(&raw, 0, format, &[n_values as isize])
}

/// The format that Python means by a number or a name.
fn read_format(given: &Bound<'_, PyAny>) -> PyResult<Format> {
    let unsupported =
        |format: UnknownFormat| PyNotImplementedError::new_err(format!("cannot decode {format}"));
    if let Ok(name) = given.cast::<PyString>() {
        let name = name.to_str()?;
        return format_named(name).map_err(|known| match known {
            Some(format) => unsupported(format),
            None => PyNotImplementedError::new_err(format!("no type of GGUF is named {name:?}")),
        });
    }
    if given.is_instance_of::<PyBool>() || !given.is_instance_of::<PyInt>() {
        return Err(PyTypeError::new_err(format!(
            "type is a number or a name, not {}",
            given.get_type().fully_qualified_name()?
        )));
    }
    let number: u32 = given
        .extract()
        .map_err(|_| PyNotImplementedError::new_err(format!("no type of GGUF has the number {given}")))?;
    format_of(number).map_err(unsupported)
}

/// Decodes as many values as `shape` has into a new array. `source` copies bytes of the blocks, from a place on. The outer
/// error is Python's, the inner one the source's.
///
/// # Errors
/// `ImportError` without NumPy, `MemoryError`.
pub(super) fn to_array<'py>(
    py: Python<'py>,
    format: Format,
    shape: &[isize],
    source: impl Fn(usize, &mut [u8]) -> io::Result<()> + Send,
) -> PyResult<io::Result<Bound<'py, PyAny>>> {
    let array = py.import("numpy")?.call_method1("empty", (shape.to_vec(), "float32"))?;
    let held = Held::view(&array)?;
    let n_values = shape.iter().product::<isize>() as usize;
    if n_values == 0 {
        return Ok(Ok(array));
    }
    // SAFETY: a new array of so many floats, row-major, that nobody else has yet; `held` lives to the end.
    let values = unsafe { std::slice::from_raw_parts_mut(held.data().cast::<f32>(), n_values) };
    let run = move || decode_all(format, values, source);
    let done = if n_values >= LONG { py.detach(run) } else { run() };
    Ok(done.map(|()| array))
}

/// The same from the bytes of a dense tensor, from `begin` on, which has enough of them.
///
/// # Errors
/// Those of `to_array`.
pub(super) fn from_held<'py>(
    held: &Held<'py>,
    begin: usize,
    format: Format,
    shape: &[isize],
) -> PyResult<Bound<'py, PyAny>> {
    let n_bytes = held.n_bytes();
    let address = held.data().expose_provenance();
    let source = move |start: usize, out: &mut [u8]| {
        let start = begin + start;
        assert!(out.len() <= n_bytes - start, "the caller's bytes are enough");
        // SAFETY: the tensor has these bytes, and is held by the caller until all are decoded. Whoever writes to them
        // meanwhile gets some of them decoded as they were and some as they are.
        unsafe {
            let from = std::ptr::with_exposed_provenance::<u8>(address).add(start);
            std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len());
        }
        Ok(())
    };
    Ok(to_array(held.object().py(), format, shape, source)??)
}

fn decode_all(
    format: Format,
    values: &mut [f32],
    source: impl Fn(usize, &mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let n_blocks = (PIECE / format.block_bytes()).min(values.len() / format.block_values());
    let mut bytes = vec![0; n_blocks * format.block_bytes()];
    let mut start = 0;
    for values in values.chunks_mut((n_blocks * format.block_values()).max(1)) {
        let bytes = &mut bytes[..values.len() / format.block_values() * format.block_bytes()];
        source(start, bytes)?;
        decode(format, bytes, values).map_err(io::Error::other)?;
        start += bytes.len();
    }
    Ok(())
}
