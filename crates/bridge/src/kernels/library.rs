//! Loads a library and checks its table, once: what a call reads later was seen to be sound here.
//!
//! In: a path. Out: the library's kernels. A library is never unloaded: its functions may be in use anywhere.
#![expect(unsafe_code, reason = "loads a shared library and reads the table that it returns")]

use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use overdrive_abi as abi;
use pyo3::exceptions::{PyFileNotFoundError, PyImportError, PyOSError, PyValueError};
use pyo3::prelude::*;

use super::context;
use super::kernel::{Default, Kernel, Spec};

/// Load the library at ``path`` and return its kernels in the library's order.
#[pyfunction]
pub(super) fn _load_library(path: PathBuf) -> PyResult<Vec<Kernel>> {
    if !path.is_file() {
        return Err(PyFileNotFoundError::new_err(format!("no library at {}", path.display())));
    }
    // A path without a slash would be searched for.
    let absolute = std::path::absolute(&path)?;
    let name = CString::new(absolute.as_os_str().as_bytes())
        .map_err(|_| PyValueError::new_err("the path contains a null character"))?;
    // SAFETY: running a library's initialisers is what loading one means. The table's contract is the header's.
    unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if handle.is_null() {
            return Err(PyOSError::new_err(format!("cannot load {}: {}", path.display(), last_error())));
        }
        let entry = CString::new(abi::ENTRY).unwrap_or_default();
        let symbol = libc::dlsym(handle, entry.as_ptr());
        if symbol.is_null() {
            return Err(PyImportError::new_err(format!(
                "{} is no library of kernels: it exports no {}; include/overdrive.h defines it by OD_LIBRARY",
                path.display(),
                abi::ENTRY
            )));
        }
        let entry: abi::LibraryEntry = std::mem::transmute::<*mut libc::c_void, abi::LibraryEntry>(symbol);
        read(entry(context::api())).map_err(|why| {
            PyImportError::new_err(format!("{} is no library of kernels: {why}", path.display()))
        })
    }
}

unsafe fn last_error() -> String {
    // SAFETY: a string of the loader's own, or null.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            "unknown reason".into()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

/// # Safety
/// What the library returned: null, or a table that keeps the header's rules and lives for ever.
unsafe fn read(library: *const abi::Library) -> Result<Vec<Kernel>, String> {
    // SAFETY: the caller's contract; the version is looked at before anything that depends on it.
    unsafe {
        if library.is_null() {
            return Err("its table is null".into());
        }
        let library = *library;
        if library.major != abi::MAJOR {
            return Err(format!(
                "it was compiled for version {}.{} of the kernel ABI, this is {}.{}; compile it with this overdrive.h",
                library.major,
                library.minor,
                abi::MAJOR,
                abi::MINOR
            ));
        }
        if (library.kernel_size as usize) < size_of::<abi::Kernel>() {
            return Err(format!(
                "its kernels have {} bytes instead of {}",
                library.kernel_size,
                size_of::<abi::Kernel>()
            ));
        }
        if library.n_kernels == 0 || library.kernels.is_null() {
            return Err("it has no kernels".into());
        }
        let mut kernels: Vec<Kernel> = Vec::new();
        for i in 0..library.n_kernels as usize {
            let at = library.kernels.cast::<u8>().add(i * library.kernel_size as usize).cast::<abi::Kernel>();
            let kernel = read_kernel(&*at).map_err(|why| format!("kernel {i}: {why}"))?;
            if kernels.iter().any(|known| known.name == kernel.name) {
                return Err(format!("it has two kernels named {}", kernel.name));
            }
            kernels.push(kernel);
        }
        Ok(kernels)
    }
}

unsafe fn read_kernel(kernel: &abi::Kernel) -> Result<Kernel, String> {
    // SAFETY: as `read`; a function pointer that C left null is read as a number first.
    unsafe {
        let run = (&raw const kernel.run).cast::<usize>().read();
        if run == 0 {
            return Err("it has no function".into());
        }
        let name = identifier(kernel.name)?;
        let doc = if kernel.doc.is_null() { None } else { Some(text(kernel.doc)?) };
        if kernel.n_outputs == 0 || kernel.n_outputs > 64 || kernel.n_inputs > 64 {
            return Err(format!("{name} has {} inputs and {} outputs", kernel.n_inputs, kernel.n_outputs));
        }
        if kernel.plan.is_none() && kernel.n_inputs == 0 {
            return Err(format!(
                "{name} has neither a plan for its outputs nor an input that they could be like"
            ));
        }
        if kernel.n_parameters > 0 && kernel.parameters.is_null() {
            return Err(format!("{name} declares parameters that are null"));
        }
        let mut parameters: Vec<Spec> = Vec::new();
        for i in 0..kernel.n_parameters as usize {
            let parameter = &*kernel.parameters.add(i);
            let spec =
                Spec { name: identifier(parameter.name)?, raw: *parameter, default: default_of(parameter)? };
            if spec.name == "out" || parameters.iter().any(|known| known.name == spec.name) {
                return Err(format!("{name} has a parameter {} that is named so already", spec.name));
            }
            parameters.push(spec);
        }
        Ok(Kernel {
            name,
            doc,
            n_inputs: kernel.n_inputs as usize,
            n_outputs: kernel.n_outputs as usize,
            is_dense: kernel.flags & abi::DENSE != 0,
            parameters,
            plan: kernel.plan,
            run: kernel.run,
        })
    }
}

unsafe fn default_of(parameter: &abi::Parameter) -> Result<Option<Default>, String> {
    // SAFETY: as `read`; the kind says which member of the union holds.
    unsafe {
        let value = match parameter.kind {
            abi::INT64 => Default::Int(parameter.value.int64),
            abi::FLOAT64 => Default::Float(parameter.value.float64),
            abi::BYTES => Default::Bytes,
            kind => return Err(format!("a parameter has the unknown kind {kind}")),
        };
        Ok((parameter.flags & abi::REQUIRED == 0).then_some(value))
    }
}

unsafe fn text(text: *const c_char) -> Result<String, String> {
    if text.is_null() {
        return Err("a name is null".into());
    }
    // SAFETY: as `read`.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map(str::to_owned).map_err(|_| format!("{bytes:?} is not UTF-8"))
}

unsafe fn identifier(name: *const c_char) -> Result<String, String> {
    // SAFETY: as `read`.
    let name = unsafe { text(name)? };
    let mut letters = name.chars();
    let starts = letters.next().is_some_and(|c| c == '_' || c.is_alphabetic());
    if starts && letters.all(|c| c == '_' || c.is_alphanumeric()) {
        Ok(name)
    } else {
        Err(format!("{name:?} is no Python identifier"))
    }
}
