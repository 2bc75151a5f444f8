//! Parallel loops: what machine code calls for them, and what Python says about threads.
//!
//! In: the function of a loop's iterations, with its context. Out: all of them done, on the run time's threads, which
//! never touch an object.

use std::cell::RefCell;
use std::sync::OnceLock;

use overdrive_codegen::Body;
use overdrive_pool::MOST_THREADS;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::{
    Bound, Py, PyAny, PyAnyMethods, PyModule, PyModuleMethods, PyResult, Python, pyfunction,
};
use pyo3::{ffi, wrap_pyfunction};

use crate::objects::gil;
use crate::pool;

/// The function object, by which compiled code knows it.
static PRANGE: OnceLock<Py<PyAny>> = OnceLock::new();

/// Adds the functions.
///
/// # Errors
/// What adding to a module raises.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(prange, module)?)?;
    module.add_function(wrap_pyfunction!(set_num_threads, module)?)?;
    module.add_function(wrap_pyfunction!(get_num_threads, module)?)?;
    let _ = PRANGE.set(module.getattr("prange")?.unbind());
    Ok(())
}

/// Whether an object is `overdrive.prange`.
pub(super) fn is_prange(object: *mut ffi::PyObject) -> bool {
    PRANGE.get().is_some_and(|prange| prange.as_ptr() == object)
}

/// A range whose iterations may run in any order and at once.
///
/// In a function compiled with ``parallel=True`` a loop over it runs on several threads, where ``explain`` does not
/// say otherwise. Everywhere else it is ``range``. What an iteration assigns, no other may read, but for sums and
/// products: ``s += x``, ``s -= x``, ``s *= x``.
///
/// >>> list(prange(3)), list(prange(2, 8, 3))
/// ([0, 1, 2], [2, 5])
#[pyfunction]
#[pyo3(signature = (start, stop=None, step=None, /))]
fn prange<'py>(
    py: Python<'py>,
    start: &Bound<'py, PyAny>,
    stop: Option<&Bound<'py, PyAny>>,
    step: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let range = py.get_type::<pyo3::types::PyRange>();
    match (stop, step) {
        (None, None) => range.call1((start,)),
        (Some(stop), None) => range.call1((start, stop)),
        (stop, Some(step)) => range.call1((start, stop, step)),
    }
}

/// Set how many threads run a parallel loop, the calling one included: 1 to 256, for the whole process.
///
/// Results do not depend on it. At first it is the number of processors that the process may use.
///
/// >>> set_num_threads(get_num_threads())
#[pyfunction]
#[pyo3(signature = (n, /))]
fn set_num_threads(n: &Bound<'_, PyAny>) -> PyResult<()> {
    let threads = match n.extract::<i64>() {
        Ok(threads) => threads,
        // Whatever it is, it is too much.
        Err(error) if error.is_instance_of::<PyOverflowError>(n.py()) => i64::MAX,
        Err(error) => return Err(error),
    };
    overdrive_pool::set_threads(threads).map_err(|_| {
        PyValueError::new_err(format!("the number of threads must be between 1 and {MOST_THREADS}, not {n}"))
    })
}

/// How many threads run a parallel loop, the calling one included.
///
/// >>> get_num_threads() >= 1
/// True
#[pyfunction]
fn get_num_threads() -> usize {
    overdrive_pool::threads()
}

thread_local! {
    /// Parts of the loop that this thread asked for last.
    static PARTS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// `Services::parallel`.
///
/// # Safety
/// Called by machine code with the GIL held, as the contract of `Services` says.
pub(super) unsafe extern "C" fn parallel(body: Body, context: *mut u64, n: i64, n_parts: i64, gives_gil: u8) {
    let n_words = usize::try_from(n * n_parts).unwrap_or(0);
    let parts = PARTS.with_borrow_mut(|parts| {
        if parts.len() < n_words {
            parts.resize(n_words, 0);
        }
        parts.as_mut_ptr()
    });
    // SAFETY: the contract; the words stay where they are until this thread comes here again.
    unsafe { context.cast::<*mut u64>().write(parts) };
    // SAFETY: the GIL is held.
    let is_usable = unsafe { pool::may_be_used() };
    if gives_gil != 0 {
        // SAFETY: the GIL is held; iterations touch no object.
        unsafe { gil::give() };
    }
    if !is_usable {
        // SAFETY: the contract.
        unsafe { body(context, 0, n) };
    } else {
        let context = context.expose_provenance();
        let done = overdrive_pool::run(n, &|range| {
            // SAFETY: the contract: any thread may run any iterations while the context lives, which is until `run` is
            // back.
            unsafe { body(std::ptr::with_exposed_provenance_mut(context), range.start, range.end) };
        });
        debug_assert!(done.is_ok(), "machine code does not panic");
    }
    if gives_gil != 0 {
        // SAFETY: given above.
        unsafe { gil::take() };
    }
}
