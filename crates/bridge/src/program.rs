//! Runs a program as `python` runs it, from inside a process that already runs one (`overdrive run`).
//!
//! In: a script, a directory or archive, a module name or standard input; `sys.argv`, `sys.path` and an empty
//! `__main__` are prepared by the face. The program then runs at the bottom of the thread's frame stack (our own
//! frames are unlinked), through the functions that CPython's own `main` calls, so tracebacks, exit
//! statuses and messages are its own; at the end the process exits as `python` does. It does not return.
//! It also prints the report, after everything the program printed, in the last step of finalisation, and can make a
//! status of 0 one of 1.

#![expect(unsafe_code, reason = "these are CPython's C entry points, called in the order of its main()")]

use std::ffi::{CString, OsStr, c_int};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::mechanics::layout;

/// What the command line names.
enum Program {
    /// A file with source or bytecode, or a directory or archive with a `__main__`.
    Path(PathBuf),
    /// `-m NAME`.
    Module(String),
    /// `-`.
    StandardInput,
}

/// Runs the program and exits. `kind` is `"path"`, `"module"` or `"stdin"`.
#[pyfunction]
fn run_program(py: Python<'_>, kind: &str, target: Bound<'_, PyAny>) -> PyResult<()> {
    let program = match kind {
        "path" => Program::Path(target.extract()?),
        "module" => Program::Module(target.extract()?),
        "stdin" => Program::StandardInput,
        _ => return Err(pyo3::exceptions::PyValueError::new_err("kind is path, module or stdin")),
    };
    forget_own_frames();
    let status = match &program {
        Program::Path(path) => run_path(py, path)?,
        Program::Module(name) => run_module(py, name, true),
        Program::StandardInput => run_standard_input(),
    };
    exit(py, status)
}

/// Gives the interpreter the thread as it is before a program's first frame: nothing on the stack and the whole
/// recursion limit left. Not undone, because nothing returns to the frames that are left behind.
fn forget_own_frames() {
    // SAFETY: the caller holds the GIL, so the thread state is this thread's and nobody else writes these
    // fields; the offsets are this version's.
    unsafe {
        let thread = ffi::PyThreadState_Get().cast::<u8>();
        #[cfg(Py_3_13)]
        thread.add(layout::thread::CURRENT_FRAME).cast::<*mut u8>().write(null_mut());
        #[cfg(not(Py_3_13))]
        {
            let cframe = thread.add(layout::thread::CFRAME).cast::<*mut u8>().read();
            cframe.add(layout::cframe::CURRENT_FRAME).cast::<*mut u8>().write(null_mut());
        }
        // `recursion_remaining` is followed by `recursion_limit` on every supported version.
        let remaining = thread.add(layout::thread::PY_RECURSION).cast::<c_int>();
        remaining.write(remaining.add(1).read());
    }
}

fn run_path(py: Python<'_>, path: &Path) -> PyResult<c_int> {
    let name = path.as_os_str().into_pyobject(py)?;
    // SAFETY: a borrowed string goes in, a new reference comes out.
    let importer = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyImport_GetImporter(name.as_ptr())) };
    if importer.is_ok_and(|importer| !importer.is_none()) {
        py.import("sys")?.getattr("path")?.call_method1("insert", (0, &name))?;
        return Ok(run_module(py, "__main__", false));
    }
    run_file(py, path)
}

fn run_file(py: Python<'_>, path: &Path) -> PyResult<c_int> {
    let python = py.import("sys")?.getattr("orig_argv")?.get_item(0)?;
    let complain = |what: String| {
        // CPython writes this with fprintf: no codec and no `sys.stderr` in between.
        let _ = std::io::stderr().write_all(what.as_bytes());
    };
    let Ok(c_path) = CString::new(path.as_os_str().as_bytes()) else {
        return Err(pyo3::exceptions::PyValueError::new_err("embedded null character"));
    };
    // SAFETY: both strings end in a null byte.
    let file = unsafe { libc::fopen(c_path.as_ptr(), c"rbe".as_ptr()) };
    if file.is_null() {
        let error = std::io::Error::last_os_error();
        let code = error.raw_os_error().unwrap_or(0);
        let text: String =
            PyOSError::new_err((code, c_error_text(code))).value(py).getattr("strerror")?.extract()?;
        let shown = path.as_os_str().into_pyobject(py)?.repr()?;
        complain(format!("{python}: can't open file {shown}: [Errno {code}] {text}\n"));
        return Ok(2);
    }
    if path.is_dir() {
        // SAFETY: the file was opened above and is not used again.
        unsafe { libc::fclose(file) };
        let shown = path.as_os_str().into_pyobject(py)?.repr()?;
        complain(format!("{python}: {shown} is a directory, cannot continue\n"));
        return Ok(1);
    }
    // SAFETY: an open file, which the callee closes, and a path that outlives the call.
    let failed = unsafe { ffi::PyRun_AnyFileExFlags(file.cast(), c_path.as_ptr(), 1, &mut compiler_flags()) };
    Ok(c_int::from(failed != 0))
}

fn run_standard_input() -> c_int {
    unsafe extern "C" {
        static mut stdin: *mut libc::FILE;
    }
    // SAFETY: libc's stream is open as long as the process lives; the callee does not close it.
    let failed =
        unsafe { ffi::PyRun_AnyFileExFlags(stdin.cast(), c"<stdin>".as_ptr(), 0, &mut compiler_flags()) };
    c_int::from(failed != 0)
}

fn run_module(py: Python<'_>, name: &str, alter_argv: bool) -> c_int {
    let ran =
        py.import("runpy").and_then(|runpy| runpy.call_method1("_run_module_as_main", (name, alter_argv)));
    match ran {
        Ok(_) => 0,
        Err(error) => {
            error.restore(py);
            // SAFETY: an exception is set. A SystemExit ends the process in here, as in CPython's main.
            unsafe { ffi::PyErr_Print() };
            1
        }
    }
}

fn compiler_flags() -> ffi::PyCompilerFlags {
    let minor = if cfg!(Py_3_13) {
        13
    } else if cfg!(Py_3_12) {
        12
    } else {
        11
    };
    ffi::PyCompilerFlags { cf_flags: 0, cf_feature_version: minor }
}

fn c_error_text(code: c_int) -> String {
    // SAFETY: strerror returns a string for every number; it is copied before any other call.
    unsafe { std::ffi::CStr::from_ptr(libc::strerror(code)) }.to_string_lossy().into_owned()
}

/// The end of CPython's `main`: finalise, and die by the signal when nobody handled Ctrl-C.
fn exit(py: Python<'_>, status: c_int) -> ! {
    let last = py.import("sys").and_then(|sys| sys.getattr("last_type"));
    let interrupted = status != 0 && last.is_ok_and(|kind| kind.is(py.get_type::<PyKeyboardInterrupt>()));
    // SAFETY: the thread holds the GIL and is the one that started the interpreter or its fork.
    let status = if unsafe { ffi::Py_FinalizeEx() } < 0 { 120 } else { status };
    if interrupted {
        // SAFETY: restoring the default handler and signalling ourselves touch no memory of ours.
        unsafe {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            libc::kill(libc::getpid(), libc::SIGINT);
        }
    }
    // SAFETY: what `main` does after finalising.
    unsafe { libc::exit(status) }
}

/// A report that waits for the end of the process.
struct Pending {
    text: String,
    file: Option<PathBuf>,
    /// What stderr says when the file is written.
    said: String,
}

static PENDING: Mutex<Option<Pending>> = Mutex::new(None);
/// The process that is to print it; a fork is not.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Prints `text` when the interpreter has gone: after the program's buffered output, tracebacks and finalisers.
#[pyfunction]
#[pyo3(signature = (text, file=None, said=String::new()))]
fn print_at_end(text: String, file: Option<PathBuf>, said: String) {
    let first = OWNER.swap(std::process::id(), Ordering::Relaxed) == 0;
    if let Ok(mut pending) = PENDING.lock() {
        *pending = Some(Pending { text, file, said });
    }
    if first {
        // SAFETY: the callback calls nothing of Python. With all 32 places taken there is no report.
        unsafe { ffi::Py_AtExit(Some(print_pending)) };
    }
}

/// The process that is to fail; a fork is not.
static FAILS: AtomicU32 = AtomicU32::new(0);

/// Makes the process end with status 1 where it would have ended with 0, by whatever way it ends but `os._exit` and
/// signals.
///
/// # Errors
/// `MemoryError`.
#[pyfunction]
fn fail_at_end() -> PyResult<()> {
    // glibc's: it hands over the status, and when the function calls `exit` it goes on with that one.
    unsafe extern "C" {
        fn on_exit(
            function: extern "C" fn(c_int, *mut std::ffi::c_void),
            argument: *mut std::ffi::c_void,
        ) -> c_int;
    }
    if FAILS.swap(std::process::id(), Ordering::Relaxed) == std::process::id() {
        return Ok(());
    }
    // SAFETY: the function touches nothing of Python, and the argument is not used.
    match unsafe { on_exit(fail_instead, null_mut()) } {
        0 => Ok(()),
        _ => Err(pyo3::exceptions::PyMemoryError::new_err("the C library keeps no more exit functions")),
    }
}

extern "C" fn fail_instead(status: c_int, _: *mut std::ffi::c_void) {
    if status == 0 && FAILS.load(Ordering::Relaxed) == std::process::id() {
        // SAFETY: called by `exit`; glibc goes on with the exit functions that are left, and ends with this status.
        unsafe { libc::exit(1) }
    }
}

extern "C" fn print_pending() {
    if OWNER.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    let Ok(mut pending) = PENDING.try_lock() else { return };
    let Some(Pending { text, file, said }) = pending.take() else { return };
    // There is nobody left to tell about a failure, except on stderr itself.
    let mut stderr = std::io::stderr();
    let Some(path) = file else {
        let _ = stderr.write_all(text.as_bytes());
        return;
    };
    let _ = match write_whole(&path, text.as_bytes()) {
        Ok(()) => stderr.write_all(said.as_bytes()),
        Err(error) => {
            let shown = OsStr::to_string_lossy(path.as_os_str()).into_owned();
            writeln!(stderr, "overdrive: cannot write the report to {shown}: {error}")
        }
    };
}

/// Writes a file as a whole: whoever reads it meanwhile, and a full disk, leave what was there before.
fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let is_special = path.metadata().is_ok_and(|there| !there.is_file());
    if is_special || path.starts_with("/dev") || path.starts_with("/proc") {
        // A terminal, a pipe, or what somebody holds open: nothing can take its place.
        return OpenOptions::new().append(true).open(path)?.write_all(bytes);
    }
    // A link stays one, to the new file.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if path.exists() {
        // A file that may not be written is not to be replaced either.
        OpenOptions::new().write(true).open(&path)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&new)
        .and_then(|mut out| out.write_all(bytes).and_then(|()| out.sync_all()))
        .and_then(|()| match path.metadata() {
            Ok(before) => std::fs::set_permissions(&new, before.permissions()),
            Err(_) => Ok(()),
        })
        .and_then(|()| std::fs::rename(&new, &path));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}

/// Adds this module's functions to `overdrive._core`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(run_program, module)?)?;
    module.add_function(wrap_pyfunction!(print_at_end, module)?)?;
    module.add_function(wrap_pyfunction!(fail_at_end, module)?)
}
