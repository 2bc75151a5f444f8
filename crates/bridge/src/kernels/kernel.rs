//! `Kernel`: one kernel of a library as a Python callable.
//!
//! In: tensors (anything that `overdrive.tensor` views), `out=`, parameters by name. Out: the outputs, one or a tuple. The
//! GIL is released while the kernel runs.
#![expect(unsafe_code, reason = "calls the kernel's functions by the header's contract")]

use overdrive_abi as abi;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyString, PyTuple};

use super::arguments::{Described, Planned, Values};
use super::context::CallContext;
use crate::tensor::Held;

/// A parameter that a kernel declares.
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) raw: abi::Parameter,
    pub(super) default: Option<Default>,
}

// SAFETY: the addresses in `raw` are the library's own constants.
unsafe impl Send for Spec {}
// SAFETY: as above.
unsafe impl Sync for Spec {}

/// A default, for signatures.
pub(super) enum Default {
    Int(i64),
    Float(f64),
    Bytes,
}

// The type has no docstring: it would hide those of the kernels. The module's says how they are called.
#[pyclass(frozen, module = "overdrive.kernel")]
pub(super) struct Kernel {
    pub(super) name: String,
    pub(super) doc: Option<String>,
    pub(super) n_inputs: usize,
    pub(super) n_outputs: usize,
    pub(super) is_dense: bool,
    pub(super) parameters: Vec<Spec>,
    pub(super) plan: Option<abi::Plan>,
    pub(super) run: abi::Run,
}

/// What is handed to another state of the GIL: addresses that the caller keeps alive.
struct Call {
    context: *mut abi::Context,
    inputs: *const abi::Tensor,
    outputs: *const abi::Tensor,
    run: abi::Run,
}

// SAFETY: used by the thread that made it, while it waits.
unsafe impl Send for Call {}

impl Call {
    /// # Safety
    /// By the header: the descriptors are as the kernel was told.
    unsafe fn run(self) -> abi::Status {
        // SAFETY: by contract.
        unsafe { (self.run)(self.context, self.inputs, self.outputs) }
    }
}

#[pymethods]
impl Kernel {
    #[pyo3(signature = (*inputs, out=None, **parameters))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyTuple>,
        out: Option<&Bound<'py, PyAny>>,
        parameters: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if inputs.len() != self.n_inputs {
            return Err(PyTypeError::new_err(format!(
                "{}() takes {} tensor{} ({} given)",
                self.name,
                self.n_inputs,
                if self.n_inputs == 1 { "" } else { "s" },
                inputs.len()
            )));
        }
        let mut described = Vec::with_capacity(self.n_inputs);
        for (i, input) in inputs.iter().enumerate() {
            let one = Described::new(&input, self.is_dense)
                .map_err(|e| place(py, e, &self.name, &format!("input {i}")))?;
            described.push(one);
        }
        let given = self.given_outputs(out)?;
        let values = Values::new(&self.name, &self.parameters, parameters)?;
        let mut context = CallContext::new(&values.parameters);
        let c_inputs: Vec<abi::Tensor> = described.iter_mut().map(Described::as_c).collect();
        let planned = self.planned(&mut context, &c_inputs)?;
        let mut results = Vec::with_capacity(self.n_outputs);
        let mut outputs = Vec::with_capacity(self.n_outputs);
        for (i, plan) in planned.iter().enumerate() {
            let result = match given.get(i) {
                Some(target) => target.clone(),
                None => Held::make(py, &plan.shape, plan.dtype)?,
            };
            let output = Described::new(&result, self.is_dense)
                .and_then(|output| check_output(&output.held, plan).map(|()| output))
                .map_err(|e| place(py, e, &self.name, &format!("output {i}")))?;
            results.push(result);
            outputs.push(output);
        }
        let c_outputs: Vec<abi::Tensor> = outputs.iter_mut().map(Described::as_c).collect();
        let call = Call {
            context: context.as_c(),
            inputs: c_inputs.as_ptr(),
            outputs: c_outputs.as_ptr(),
            run: self.run,
        };
        // SAFETY: the descriptors live until the end of this function, and so does what they describe.
        let status = py.detach(move || unsafe { call.run() });
        self.check(status, &context)?;
        match <[_; 1]>::try_from(results) {
            Ok([only]) => Ok(only),
            Err(results) => Ok(PyTuple::new(py, results)?.into_any()),
        }
    }

    #[getter]
    fn __name__(&self) -> &str {
        &self.name
    }

    #[getter]
    fn __doc__(&self) -> Option<&str> {
        self.doc.as_deref()
    }

    /// Number of tensors that it takes.
    #[getter]
    fn n_inputs(&self) -> usize {
        self.n_inputs
    }

    /// Number of tensors that it gives.
    #[getter]
    fn n_outputs(&self) -> usize {
        self.n_outputs
    }

    /// Parameters by name, with their default: a number, None for bytes, or ... for those that must be given.
    #[getter]
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for spec in &self.parameters {
            match spec.default {
                Some(Default::Int(value)) => dict.set_item(&spec.name, value)?,
                Some(Default::Float(value)) => dict.set_item(&spec.name, value)?,
                Some(Default::Bytes) => dict.set_item(&spec.name, py.None())?,
                None => dict.set_item(&spec.name, py.Ellipsis())?,
            }
        }
        Ok(dict)
    }

    /// The Python type of each parameter's value.
    #[getter]
    fn parameter_types<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for spec in &self.parameters {
            let ty = match spec.raw.kind {
                abi::INT64 => py.get_type::<PyInt>(),
                abi::FLOAT64 => py.get_type::<PyFloat>(),
                _ => py.get_type::<PyString>(),
            };
            dict.set_item(&spec.name, ty)?;
        }
        Ok(dict)
    }

    /// Whether it takes tensors without gaps only.
    #[getter]
    fn is_dense(&self) -> bool {
        self.is_dense
    }

    #[getter]
    fn __signature__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("overdrive.kernel")?.getattr("_signature")?.call1((slf,))
    }

    fn __repr__(&self) -> String {
        format!("<overdrive kernel {}, {} to {} tensors>", self.name, self.n_inputs, self.n_outputs)
    }
}

impl Kernel {
    fn given_outputs<'py>(&self, out: Option<&Bound<'py, PyAny>>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let Some(out) = out else { return Ok(vec![]) };
        if self.n_outputs == 1 {
            return Ok(vec![out.clone()]);
        }
        let given: Vec<Bound<'py, PyAny>> = match out.cast::<PyTuple>() {
            Ok(tuple) => tuple.iter().collect(),
            Err(_) => vec![],
        };
        if given.len() != self.n_outputs {
            return Err(PyTypeError::new_err(format!(
                "{}() gives {} tensors: out= is a tuple of as many",
                self.name, self.n_outputs
            )));
        }
        Ok(given)
    }

    /// What the outputs will be.
    fn planned(&self, context: &mut CallContext<'_>, inputs: &[abi::Tensor]) -> PyResult<Vec<Planned>> {
        let mut shapes = vec![[0i64; abi::MAX_NDIM]; self.n_outputs];
        let mut outputs = Vec::with_capacity(self.n_outputs);
        for shape in &mut shapes {
            let mut output = abi::Tensor { flags: 0, ..inputs.first().copied().unwrap_or(EMPTY) };
            output.data = std::ptr::null_mut();
            // SAFETY: the first input's lengths, if there is one.
            let lengths = unsafe { std::slice::from_raw_parts(output.shape, output.ndim as usize) };
            shape[..lengths.len()].copy_from_slice(lengths);
            (output.shape, output.strides) = (shape.as_mut_ptr(), std::ptr::null_mut());
            outputs.push(output);
        }
        if let Some(plan) = self.plan {
            // SAFETY: by the header; descriptors and buffers live until the call ends.
            let status = unsafe { plan(context.as_c(), inputs.as_ptr(), outputs.as_mut_ptr()) };
            self.check(status, context)?;
        }
        outputs.iter().zip(&shapes).map(|(output, shape)| Planned::read(&self.name, output, shape)).collect()
    }

    /// The exception for a status.
    fn check(&self, status: abi::Status, context: &CallContext<'_>) -> PyResult<()> {
        if status == abi::OK {
            return Ok(());
        }
        let message = context.take_message().unwrap_or_else(|| format!("failed with status {status}"));
        let text = format!("{}: {message}", self.name);
        Err(match status {
            abi::TYPE_ERROR => PyTypeError::new_err(text),
            abi::VALUE_ERROR => PyValueError::new_err(text),
            abi::MEMORY_ERROR => PyMemoryError::new_err(text),
            _ => PyRuntimeError::new_err(text),
        })
    }
}

/// A tensor of no axes, for kernels without inputs.
const EMPTY: abi::Tensor = abi::Tensor {
    data: std::ptr::null_mut(),
    device: abi::Device { device_type: 1, device_id: 0 },
    ndim: 0,
    dtype: abi::DType { code: 2, bits: 64, lanes: 1 },
    shape: std::ptr::NonNull::dangling().as_ptr(),
    strides: std::ptr::NonNull::dangling().as_ptr(),
    byte_offset: 0,
    flags: 0,
    topology: 0,
    quantisation: 0,
    quantisation_parameters: std::ptr::null(),
    quantisation_size: 0,
};

fn check_output(output: &Held<'_>, plan: &Planned) -> PyResult<()> {
    if output.dtype() != plan.dtype {
        let (found, wanted) = (output.dtype().name(), plan.dtype.name());
        return Err(PyTypeError::new_err(format!("its elements are {found}, the kernel writes {wanted}")));
    }
    if output.shape() != plan.shape {
        return Err(PyValueError::new_err(format!(
            "its shape is {:?}, the kernel writes {:?}",
            output.shape(),
            plan.shape
        )));
    }
    if output.read_only() {
        return Err(PyBufferError::new_err("its memory is read-only"));
    }
    Ok(())
}

/// The same error, saying where.
fn place(py: Python<'_>, error: PyErr, kernel: &str, which: &str) -> PyErr {
    let text = format!("{kernel}(), {which}: {}", error.value(py));
    match error.get_type(py).call1((text,)) {
        Ok(value) => PyErr::from_value(value),
        Err(_) => error,
    }
}
