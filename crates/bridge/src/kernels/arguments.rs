//! Python's arguments as a kernel sees them: descriptors of tensors, values of parameters.
//!
//! In: objects. Out: C structs together with what keeps them alive. What a descriptor cannot say is refused by name.
use std::ptr::null;

use overdrive_abi as abi;
use overdrive_tensor::dlpack;
use overdrive_tensor::dtype::DType;
use pyo3::exceptions::{PyBufferError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyString};

use super::kernel::Spec;
use crate::tensor::{Held, to_python};

/// A tensor and its descriptor. The lengths and strides stand in the heap, so it may move.
pub(super) struct Described<'py> {
    pub(super) held: Held<'py>,
    lengths: Vec<i64>,
    strides: Vec<i64>,
    dtype: abi::DType,
}

impl<'py> Described<'py> {
    /// Views an argument. `is_dense`: the kernel wants no gaps.
    ///
    /// # Errors
    /// `TypeError` where there is no memory, `BufferError` for layouts that the kernel cannot read.
    pub(super) fn new(argument: &Bound<'py, PyAny>, is_dense: bool) -> PyResult<Described<'py>> {
        let held = Held::view(argument)?;
        if is_dense && !held.is_dense() {
            return Err(PyBufferError::new_err(
                "this kernel takes dense row-major tensors only; copy it: tensor(x, copy=True)",
            ));
        }
        let dtype = coded(held.dtype())?;
        let mut strides = vec![0; held.shape().len()];
        dlpack::element_strides(held.shape(), held.strides(), held.dtype(), &mut strides)
            .map_err(to_python)?;
        let lengths = held.shape().iter().map(|&n| n as i64).collect();
        Ok(Described { held, lengths, strides, dtype })
    }

    /// The descriptor, valid as long as this is.
    pub(super) fn as_c(&mut self) -> abi::Tensor {
        abi::Tensor {
            data: self.held.data().cast(),
            device: abi::Device { device_type: dlpack::CPU, device_id: 0 },
            ndim: self.lengths.len() as i32,
            dtype: self.dtype,
            shape: self.lengths.as_mut_ptr(),
            strides: self.strides.as_mut_ptr(),
            byte_offset: 0,
            flags: if self.held.read_only() { abi::READ_ONLY } else { 0 },
            topology: 0,
            quantisation: 0,
            quantisation_parameters: null(),
            quantisation_size: 0,
        }
    }
}

fn coded(dtype: DType) -> PyResult<abi::DType> {
    let coded = dtype.to_dlpack().map_err(to_python)?;
    Ok(abi::DType { code: coded.code, bits: coded.bits, lanes: 1 })
}

/// The values of a call's parameters, in the kernel's order, and the bytes that they point to.
pub(super) struct Values<'py> {
    pub(super) parameters: Vec<abi::Parameter>,
    _kept: Vec<Bound<'py, PyAny>>,
}

impl<'py> Values<'py> {
    /// # Errors
    /// `TypeError` for unknown, missing or wrongly typed ones, `OverflowError` beyond 64 bits.
    pub(super) fn new(
        kernel: &str,
        specs: &[Spec],
        given: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Values<'py>> {
        let mut kept = Vec::new();
        let mut n_used = 0;
        let mut parameters = Vec::with_capacity(specs.len());
        for spec in specs {
            let value = given.map(|given| given.get_item(&spec.name)).transpose()?.flatten();
            let mut parameter = spec.raw;
            match value {
                Some(value) => {
                    n_used += 1;
                    parameter.value = read(kernel, spec, &value)?;
                    kept.push(value);
                }
                None if spec.default.is_none() => {
                    return Err(PyTypeError::new_err(format!("{kernel}() needs {}=", spec.name)));
                }
                None => {}
            }
            parameters.push(parameter);
        }
        if let Some(given) = given
            && given.len() > n_used
        {
            for key in given.keys() {
                let key: String = key.extract()?;
                if !specs.iter().any(|spec| spec.name == key) {
                    let known: Vec<&str> =
                        specs.iter().map(|spec| spec.name.as_str()).chain(["out"]).collect();
                    return Err(PyTypeError::new_err(format!(
                        "{kernel}() has no parameter '{key}'; it has {}",
                        known.join(", ")
                    )));
                }
            }
        }
        Ok(Values { parameters, _kept: kept })
    }
}

fn read(kernel: &str, spec: &Spec, value: &Bound<'_, PyAny>) -> PyResult<abi::Value> {
    let wrong = |wanted: &str| {
        PyTypeError::new_err(format!("{kernel}(): {} is {wanted}, not {}", spec.name, value.get_type()))
    };
    match spec.raw.kind {
        abi::INT64 => match value.extract::<i64>() {
            Ok(int64) => Ok(abi::Value { int64 }),
            Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Err(error),
            Err(_) => Err(wrong("an int")),
        },
        abi::FLOAT64
            if value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>() || has_float(value)? =>
        {
            Ok(abi::Value { float64: value.extract()? })
        }
        abi::FLOAT64 => Err(wrong("a float")),
        _ => {
            let bytes = if let Ok(text) = value.cast::<PyString>() {
                text.to_str()?.as_bytes()
            } else if let Ok(bytes) = value.cast::<PyBytes>() {
                bytes.as_bytes()
            } else {
                return Err(wrong("bytes or str"));
            };
            let bytes = abi::Bytes { data: bytes.as_ptr().cast(), size: bytes.len() as u64 };
            Ok(abi::Value { bytes })
        }
    }
}

fn has_float(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!value.is_instance_of::<PyString>() && value.get_type().hasattr("__float__")?)
}

/// What a plan said of an output.
pub(super) struct Planned {
    pub(super) dtype: DType,
    pub(super) shape: Vec<isize>,
}

impl Planned {
    /// Checks what a kernel wrote into the descriptor of an output; `shape` is the buffer it was given.
    ///
    /// # Errors
    /// `ValueError` that names the kernel.
    pub(super) fn read(
        kernel: &str,
        output: &abi::Tensor,
        shape: &[i64; abi::MAX_NDIM],
    ) -> PyResult<Planned> {
        let broken =
            |why: String| PyValueError::new_err(format!("the plan of kernel {kernel} is wrong: {why}"));
        let ndim = usize::try_from(output.ndim).ok().filter(|&n| n <= abi::MAX_NDIM);
        let Some(ndim) = ndim else { return Err(broken(format!("{} axes", output.ndim))) };
        if !std::ptr::eq(output.shape.cast_const(), shape.as_ptr()) {
            return Err(broken("it replaced the array of lengths instead of filling it".into()));
        }
        let dtype = DType::from_dlpack(output.dtype.code, output.dtype.bits, output.dtype.lanes)
            .map_err(|error| broken(error.to_string()))?;
        Ok(Planned { dtype, shape: shape[..ndim].iter().map(|&n| n as isize).collect() })
    }
}
