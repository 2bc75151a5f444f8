//! What is in a GGUF file, for Python: metadata, and tensors on the file's own memory.
//!
//! In: a path, or a buffer that holds a file. Out: `GgufFile` and `GgufTensor`, which the face wraps into mappings. A tensor
//! keeps the mapping or the buffer alive, not the file object.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use overdrive_kernels::Format;
use overdrive_llm::gguf::{Array, File, Strings, TensorInfo, Value};
use overdrive_tensor::dtype::{DType, Kind};
use overdrive_tensor::mapped::MappedFile;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use super::{decode, errors};
use crate::tensor::Held;

/// Where a file's bytes are.
#[derive(Clone)]
enum Source {
    Mapped(Arc<Mapped>),
    /// A dense tensor of bytes.
    Buffer(Arc<Py<PyAny>>),
}

struct Mapped {
    file: Arc<MappedFile>,
    path: PathBuf,
}

/// A GGUF file: its metadata, and where its tensors lie.
#[pyclass(frozen, module = "overdrive._core")]
pub(super) struct GgufFile {
    file: Arc<File>,
    source: Source,
    n_bytes: usize,
}

/// How the values of a tensor are stored. Does not change.
#[pyclass(frozen, eq, hash, module = "overdrive.llm")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Quantisation {
    format: Format,
}

/// One tensor of a GGUF file.
#[pyclass(frozen, module = "overdrive.llm")]
pub(super) struct GgufTensor {
    info: TensorInfo,
    source: Source,
}

/// Read the file at a path, which is mapped, or in a buffer.
#[pyfunction]
#[pyo3(signature = (file, /))]
pub(super) fn read_gguf(file: &Bound<'_, PyAny>) -> PyResult<GgufFile> {
    let py = file.py();
    if file.is_instance_of::<PyString>() || file.hasattr("__fspath__")? {
        let path: PathBuf = file.extract()?;
        let read = |path: PathBuf| -> PyResult<_> {
            let mapped = MappedFile::open(&path).map_err(|error| errors::of_io(&error, &path))?;
            let file = File::read(&mapped).map_err(|error| errors::of_read(error, &path))?;
            Ok((file, mapped, path))
        };
        let (file, mapped, path) = py.detach(move || read(path))?;
        let n_bytes = mapped.len();
        let source = Source::Mapped(Arc::new(Mapped { file: Arc::new(mapped), path }));
        return Ok(GgufFile { file: Arc::new(file), source, n_bytes });
    }
    let held = Held::view(file)?;
    if !held.is_dense() {
        return Err(PyValueError::new_err(
            "the buffer is not contiguous: its bytes do not lie one behind the other",
        ));
    }
    let n_bytes = held.n_bytes();
    // A buffer can be written to by other threads as soon as one of them may run: so none may.
    let file = held.with_bytes(File::parse).map_err(|error| errors::of_gguf(&error, None))?;
    let source = Source::Buffer(Arc::new(held.object().clone().unbind()));
    Ok(GgufFile { file: Arc::new(file), source, n_bytes })
}

#[pymethods]
impl GgufFile {
    /// 2 or 3.
    #[getter]
    fn version(&self) -> u32 {
        self.file.version
    }

    /// Of the tensors, in bytes.
    #[getter]
    fn alignment(&self) -> usize {
        self.file.alignment
    }

    /// Bytes of the whole file.
    #[getter]
    fn nbytes(&self) -> usize {
        self.n_bytes
    }

    /// Where it was read from; None for a buffer.
    #[getter]
    fn path(&self) -> Option<OsString> {
        match &self.source {
            Source::Mapped(mapped) => Some(mapped.path.clone().into_os_string()),
            Source::Buffer(_) => None,
        }
    }

    /// The keys of the metadata, in the file's order.
    fn keys(&self) -> Vec<&str> {
        self.file.metadata.iter().map(|(key, _)| key).collect()
    }

    /// The value of a key; a list is new at each call.
    fn value<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyAny>> {
        match self.file.metadata.value(key) {
            Some(value) => value_to_python(py, value),
            None => Err(PyKeyError::new_err(key.to_owned())),
        }
    }

    /// How many elements a key's list has; None for a key without a list.
    fn length(&self, key: &str) -> Option<usize> {
        match self.file.metadata.value(key) {
            Some(Value::Array(array)) => Some(array.len()),
            _ => None,
        }
    }

    /// The names of the tensors, in the file's order.
    fn names(&self) -> Vec<&str> {
        self.file.tensors().iter().map(|tensor| tensor.name.as_str()).collect()
    }

    /// The tensor of a name.
    fn tensor(&self, name: &str) -> PyResult<GgufTensor> {
        match self.file.find(name) {
            Some(info) => Ok(GgufTensor { info: info.clone(), source: self.source.clone() }),
            None => Err(PyKeyError::new_err(name.to_owned())),
        }
    }
}

#[pymethods]
impl Quantisation {
    /// GGUF's name for the type.
    #[getter]
    fn r#type(&self) -> &'static str {
        self.format.name()
    }

    /// GGUF's number for the type.
    #[getter]
    fn number(&self) -> u32 {
        self.format.ggml()
    }

    /// Values in a block.
    #[getter]
    fn block_size(&self) -> usize {
        self.format.block_values()
    }

    /// Bytes of a block.
    #[getter]
    fn bytes_per_block(&self) -> usize {
        self.format.block_bytes()
    }

    fn __repr__(&self) -> String {
        format!(
            "Quantisation(type={:?}, block_size={}, bytes_per_block={})",
            self.format.name(),
            self.format.block_values(),
            self.format.block_bytes()
        )
    }
}

#[pymethods]
impl GgufTensor {
    #[getter]
    fn name(&self) -> &str {
        &self.info.name
    }

    /// Lengths of the axes, outermost first; blocks lie along the last.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.info.shape)
    }

    /// GGUF's name for the type.
    #[getter]
    fn r#type(&self) -> &'static str {
        self.info.format.name()
    }

    #[getter]
    fn quantisation(&self) -> Quantisation {
        Quantisation { format: self.info.format }
    }

    /// Bytes in the file.
    #[getter]
    fn nbytes(&self) -> usize {
        self.info.n_bytes()
    }

    /// How many values there are.
    #[getter]
    fn size(&self) -> usize {
        self.info.n_values()
    }

    /// Where it begins in the file, in bytes.
    #[getter]
    fn offset(&self) -> usize {
        self.info.range.start
    }

    /// The tensor as it is stored, read-only and without a copy: elements of types that are numbers (F32, F16, BF16), bytes
    /// of blocks for the others, whose last axis is then the bytes of a row.
    ///
    /// OSError when the file was cut since it was opened. (One that is cut later kills the process that reads it.)
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let kind = match self.info.format {
            Format::F32 => Kind::F32,
            Format::F16 => Kind::F16,
            Format::BF16 => Kind::BF16,
            Format::Q4_0
            | Format::Q4_1
            | Format::Q5_0
            | Format::Q5_1
            | Format::Q8_0
            | Format::Q4K
            | Format::Q5K
            | Format::Q6K => Kind::U8,
        };
        let mut shape: Vec<isize> = self.info.shape.iter().map(|length| *length as isize).collect();
        if kind == Kind::U8
            && let Some(last) = shape.last_mut()
        {
            *last = (self.info.n_bytes() / self.info.n_rows()) as isize;
        }
        let dtype = DType::native(kind);
        match &self.source {
            Source::Mapped(mapped) => {
                mapped.file.check_length().map_err(|error| errors::of_io(&error, &mapped.path))?;
                Held::mapped(py, &mapped.file, self.info.range.start, &shape, dtype)
            }
            Source::Buffer(buffer) => Held::view(buffer.bind(py))?.part(self.info.range.start, &shape, dtype),
        }
    }

    /// Return the values as a NumPy array of float32.
    fn dequantize<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let shape: Vec<isize> = self.info.shape.iter().map(|length| *length as isize).collect();
        let format = self.info.format;
        match &self.source {
            Source::Mapped(mapped) => {
                let begin = self.info.range.start;
                let source = |start: usize, out: &mut [u8]| mapped.file.read_at(begin + start, out);
                let array = decode::to_array(py, format, &shape, source)?;
                array.map_err(|error| errors::of_io(&error, &mapped.path))
            }
            Source::Buffer(buffer) => {
                let held = Held::view(buffer.bind(py))?;
                decode::from_held(&held, self.info.range.start, format, &shape)
            }
        }
    }

    fn __repr__(&self) -> String {
        format!("<GgufTensor {:?}, {:?}, {}>", self.info.name, self.info.shape, self.info.format.name())
    }
}

fn value_to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::U8(value) => value.into_pyobject(py)?.into_any(),
        Value::I8(value) => value.into_pyobject(py)?.into_any(),
        Value::U16(value) => value.into_pyobject(py)?.into_any(),
        Value::I16(value) => value.into_pyobject(py)?.into_any(),
        Value::U32(value) => value.into_pyobject(py)?.into_any(),
        Value::I32(value) => value.into_pyobject(py)?.into_any(),
        Value::F32(value) => value.into_pyobject(py)?.into_any(),
        Value::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Value::String(bytes) => string_to_python(py, bytes),
        Value::Array(array) => array_to_python(py, array)?,
        Value::U64(value) => value.into_pyobject(py)?.into_any(),
        Value::I64(value) => value.into_pyobject(py)?.into_any(),
        Value::F64(value) => value.into_pyobject(py)?.into_any(),
    })
}

/// Text where it is UTF-8, as it should be; else the bytes themselves.
fn string_to_python<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyAny> {
    match std::str::from_utf8(bytes) {
        Ok(text) => PyString::new(py, text).into_any(),
        Err(_) => PyBytes::new(py, bytes).into_any(),
    }
}

fn strings_to_python<'py>(py: Python<'py>, strings: &Strings) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, strings.iter().map(|string| string_to_python(py, string)))
}

fn array_to_python<'py>(py: Python<'py>, array: &Array) -> PyResult<Bound<'py, PyAny>> {
    let list = match array {
        Array::U8(list) => PyList::new(py, list),
        Array::I8(list) => PyList::new(py, list),
        Array::U16(list) => PyList::new(py, list),
        Array::I16(list) => PyList::new(py, list),
        Array::U32(list) => PyList::new(py, list),
        Array::I32(list) => PyList::new(py, list),
        Array::F32(list) => PyList::new(py, list),
        Array::Bool(list) => PyList::new(py, list),
        Array::String(strings) => strings_to_python(py, strings),
        Array::Array(list) => {
            let all = PyList::empty(py);
            for array in list {
                all.append(array_to_python(py, array)?)?;
            }
            Ok(all)
        }
        Array::U64(list) => PyList::new(py, list),
        Array::I64(list) => PyList::new(py, list),
        Array::F64(list) => PyList::new(py, list),
    };
    Ok(list?.into_any())
}
