//! Machine code on the disk: where it is for this user, whether this process may use it, and what to tell about it.
//!
//! In: the environment (where caches are, by the XDG rules), the identity of this build. Out: the store, opened at the
//! first compile, or the reason why there is none. Nothing here is ever an error of the program's.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use overdrive_jit::Cache;
use overdrive_store::{Store, Usage};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::{Bound, PyModule, PyModuleMethods, PyResult, Python, pyfunction};
use pyo3::types::{PyDict, PyDictMethods};
use pyo3::wrap_pyfunction;

use super::build_id::build_id;

/// Bytes that all entries may have together: some thousand functions.
const LIMIT: u64 = 256 << 20;

struct Opened {
    store: Store,
    build: Vec<u8>,
}

/// Versions of this process that came from the cache, and that were made though they were looked for.
static LOADED: AtomicU64 = AtomicU64::new(0);
static MADE: AtomicU64 = AtomicU64::new(0);

/// For `jit::compile`, where there is a cache.
pub(crate) fn cache(py: Python<'_>) -> Option<Cache<'static>> {
    opened(py).as_ref().ok().map(|opened| Cache { store: &opened.store, build: &opened.build })
}

/// Counts a version.
pub(crate) fn count(is_cached: bool) {
    let counter = if is_cached { &LOADED } else { &MADE };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Whoever changes the environment holds the GIL too.
fn opened(_: Python<'_>) -> &'static Result<Opened, String> {
    static OPENED: OnceLock<Result<Opened, String>> = OnceLock::new();
    OPENED.get_or_init(|| {
        let root = directory().ok_or("neither XDG_CACHE_HOME nor HOME is an absolute path")?;
        let build = build_id().ok_or("this build of the extension has no build ID")?;
        // SAFETY: reads a number of this process.
        let owner = unsafe { libc::geteuid() };
        Ok(Opened { store: Store::new(root, owner, LIMIT), build })
    })
}

/// By the XDG rules a relative path is as good as none.
fn directory() -> Option<PathBuf> {
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute(std::env::var_os("HOME")).map(|home| home.join(".cache"));
    let caches = absolute(std::env::var_os("XDG_CACHE_HOME")).or_else(home);
    caches.map(|caches| caches.join("overdrive").join("code"))
}

/// Registers what the command and `info` call.
///
/// # Errors
/// What adding to a module raises.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(cache_info, module)?)?;
    module.add_function(wrap_pyfunction!(cache_clear, module)?)
}

/// What there is, as plain data: `problem` is why the cache is not used, or what went wrong last, or None.
#[pyfunction]
fn cache_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    let (store, mut problem) = match opened(py) {
        Ok(opened) => (Some(&opened.store), opened.store.problem()),
        Err(why) => (None, Some(why.clone())),
    };
    let usage = store.map(|store| store.usage()).transpose().unwrap_or_else(|e| {
        problem = Some(e.to_string());
        None
    });
    let Usage { entries, bytes } = usage.unwrap_or_default();
    out.set_item("directory", store.map(|store| store.root().to_string_lossy()))?;
    out.set_item("entries", entries)?;
    out.set_item("bytes", bytes)?;
    out.set_item("limit", store.map_or(0, Store::limit))?;
    out.set_item("loaded", LOADED.load(Ordering::Relaxed))?;
    out.set_item("made", MADE.load(Ordering::Relaxed))?;
    out.set_item("problem", problem)?;
    Ok(out)
}

/// Removes every entry; gives how many there were and their bytes.
#[pyfunction]
fn cache_clear(py: Python<'_>) -> PyResult<(u64, u64)> {
    match opened(py) {
        Ok(opened) => {
            let Usage { entries, bytes } =
                opened.store.clear().map_err(|e| PyOSError::new_err(e.to_string()))?;
            Ok((entries, bytes))
        }
        Err(_) => Ok((0, 0)),
    }
}
