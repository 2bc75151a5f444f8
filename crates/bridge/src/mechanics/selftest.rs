//! Does this interpreter keep its structs where the layout tables say?
//!
//! In: a running interpreter, which may be a patch release or a build that nobody tried. Out: for each feature, whether
//! it may be used, and if not, why. Every offset is checked against behaviour that does not depend on it, with pointers
//! that are known to be valid, so a wrong table is found without reading through a wild one. Takes under 2 ms.
#![expect(unsafe_code, reason = "reads structs at the offsets under test")]

use std::ffi::{c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyFloat, PyList, PyString, PyTuple};

use super::activation::{Activation, Exit, KEEP};
use super::frame::{Thread, code_int, field};
use super::native::Body;
use super::{layout, poll, stub};

/// One feature and whether it holds here.
#[derive(Clone, Debug)]
pub struct Finding {
    pub feature: &'static str,
    pub problem: Option<String>,
}

type Test = fn(Python<'_>) -> PyResult<()>;

/// Waits without the GIL: the tests run Python, so another thread may come here meanwhile.
static FINDINGS: PyOnceLock<Vec<Finding>> = PyOnceLock::new();

/// All findings; the tests run once.
pub fn findings(py: Python<'_>) -> &'static [Finding] {
    FINDINGS.get_or_init(py, || {
        let tests: [(&'static str, Test); 8] = [
            ("interpreter", interpreter),
            ("objects", objects),
            ("iterators", iterators),
            ("dictionaries", dictionaries),
            ("functions", functions),
            ("frames", frames),
            ("recursion", recursion),
            ("polls", polls),
        ];
        let mut found: Vec<Finding> = Vec::new();
        for (feature, test) in tests {
            // What builds on a broken feature is not tried: it could read wild memory.
            let broken = found.iter().find_map(|f| f.problem.as_ref().map(|_| f.feature));
            let problem = match broken {
                Some(broken) => Some(format!("not tried, because {broken} failed")),
                None => test(py).err().map(|error| error.value(py).to_string()),
            };
            found.push(Finding { feature, problem });
        }
        found
    })
}

/// Whether all holds.
///
/// # Errors
/// The first problem, in words.
pub fn check(py: Python<'_>) -> Result<(), String> {
    match findings(py).iter().find_map(|f| f.problem.as_ref().map(|p| format!("{}: {p}", f.feature))) {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

/// `[(feature, ok, reason)]` for Python.
#[pyfunction]
#[pyo3(name = "selftest")]
pub(super) fn selftest(py: Python<'_>) -> Vec<(&'static str, bool, Option<String>)> {
    findings(py).iter().map(|f| (f.feature, f.problem.is_none(), f.problem.clone())).collect()
}

fn expect(holds: bool, what: &str) -> PyResult<()> {
    if holds { Ok(()) } else { Err(pyo3::exceptions::PyRuntimeError::new_err(what.to_owned())) }
}

/// A field of a live object.
fn read<T: Copy>(object: &Bound<'_, PyAny>, offset: usize) -> T {
    // SAFETY: offsets of the tables are smaller than the objects they are tried on, whatever they mean there.
    unsafe { field(object.as_ptr().cast(), offset) }
}

/// Whether the running thread belongs to the first interpreter of the process. The GIL is held.
pub fn is_main_interpreter() -> bool {
    // SAFETY: called with the GIL held, so that there is an interpreter.
    unsafe { ffi::PyInterpreterState_Get() == ffi::PyInterpreterState_Main() }
}

fn interpreter(py: Python<'_>) -> PyResult<()> {
    let sys = py.import("sys")?;
    expect(sys.getattr("implementation")?.getattr("name")?.extract::<String>()? == "cpython", "not CPython")?;
    let free_threaded = match sys.getattr("_is_gil_enabled") {
        Ok(enabled) => !enabled.call0()?.extract::<bool>()? || cfg!(Py_GIL_DISABLED),
        Err(_) => false,
    };
    expect(!free_threaded, "this build runs without the GIL")?;
    // SAFETY: the GIL is held; only the address of what is found is looked at.
    let current = unsafe { Thread::current().0 };
    // SAFETY: as above.
    expect(current == unsafe { ffi::PyThreadState_Get().cast() }, "the current thread is kept elsewhere")?;
    // SAFETY: as above.
    let interp = unsafe { Thread(current).interp() };
    // SAFETY: as above.
    expect(interp == unsafe { ffi::PyInterpreterState_Get() }, "the thread state is laid out otherwise")?;
    expect(is_main_interpreter(), "this is a sub-interpreter")?;
    expect(cfg!(target_pointer_width = "64"), "not a 64-bit build")?;
    expect(!sys.hasattr("gettotalrefcount")?, "a debug build")
}

fn objects(py: Python<'_>) -> PyResult<()> {
    let items = [1.5f64, -2.25];
    let list = PyList::new(py, items)?;
    let slots: *const *mut ffi::PyObject = read(&list, layout::list::ITEMS);
    let first = list.get_item(0)?;
    // SAFETY: CPython's own accessor says where item 0 is; the comparison comes before any use.
    expect(unsafe { ffi::PyList_GET_ITEM(list.as_ptr(), 0) } == first.as_ptr(), "list items")?;
    // SAFETY: as above: the pointer was read from the field that the public macro uses.
    expect(!slots.is_null() && unsafe { *slots } == first.as_ptr(), "list.ob_item")?;
    expect(read::<isize>(&list, layout::list::ALLOCATED) >= 2, "list.allocated")?;
    expect(read::<f64>(&first, layout::float::VALUE).to_bits() == 1.5f64.to_bits(), "float.ob_fval")?;

    let tuple = PyTuple::new(py, items)?;
    let item: *mut ffi::PyObject = read(&tuple, layout::tuple::ITEMS);
    expect(item == tuple.get_item(0)?.as_ptr(), "tuple.ob_item")?;

    let bytes = PyBytes::new(py, b"overdrive");
    expect(read::<[u8; 4]>(&bytes, layout::bytes::DATA) == *b"over", "bytes.ob_sval")?;
    let array = PyByteArray::new(py, b"overdrive");
    let start: *const u8 = read(&array, layout::bytearray::START);
    expect(start == array.data().cast_const(), "bytearray.ob_start")?;
    expect(read::<isize>(&array, layout::bytearray::EXPORTS) == 0, "bytearray.ob_exports")?;
    let view = py.import("builtins")?.getattr("memoryview")?.call1(PyTuple::new(py, [&array])?)?;
    expect(
        read::<isize>(&array, layout::bytearray::EXPORTS) == 1,
        "bytearray.ob_exports of an exported one",
    )?;
    view.call_method0("release")?;

    let long = (-5i64 << 30 | 7).into_pyobject(py)?;
    let magnitude = (-5i64 << 30 | 7).unsigned_abs();
    let digits: [u32; 2] = read(&long, layout::long::DIGITS);
    let expected = [(magnitude & 0x3fff_ffff) as u32, (magnitude >> 30) as u32];
    expect(digits == expected, "int digits")?;
    #[cfg(Py_3_12)]
    expect(read::<usize>(&long, layout::long::TAG) == 2 << 3 | 2, "int tag")?;
    #[cfg(not(Py_3_12))]
    expect(read::<isize>(&long, 16) == -2, "int size")?;

    // SAFETY: a live object; the new reference is taken over.
    let cell = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCell_New(first.as_ptr()))? };
    expect(read::<*mut ffi::PyObject>(&cell, layout::cell::REF) == first.as_ptr(), "cell.ob_ref")?;
    // SAFETY: live object.
    let before = unsafe { ffi::Py_REFCNT(first.as_ptr()) };
    let again = first.clone();
    // SAFETY: live object.
    expect(unsafe { ffi::Py_REFCNT(first.as_ptr()) } == before + 1, "reference counts")?;
    drop(again);
    Ok(())
}

fn iterators(py: Python<'_>) -> PyResult<()> {
    let eval = |code: &std::ffi::CStr| super::evaluate(py, code);
    let advanced = |code: &std::ffi::CStr| -> PyResult<Bound<'_, PyAny>> {
        let iterator = eval(code)?;
        iterator.call_method0("__next__")?;
        Ok(iterator)
    };
    let range = advanced(c"iter(range(100, 900, 7))")?;
    let (step, len) =
        (read::<i64>(&range, layout::range_iter::STEP), read::<i64>(&range, layout::range_iter::LEN));
    #[cfg(Py_3_12)]
    let next = read::<i64>(&range, layout::range_iter::START);
    #[cfg(not(Py_3_12))]
    let next =
        read::<i64>(&range, layout::range_iter::START) + 7 * read::<i64>(&range, layout::range_iter::INDEX);
    let remaining = if cfg!(Py_3_12) { 114 } else { 115 };
    expect(next == 107 && step == 7 && len == remaining, "range iterator")?;

    let list = eval(c"[5, 6, 7]")?;
    let iterator = list.call_method0("__iter__")?;
    iterator.call_method0("__next__")?;
    let seq: *mut ffi::PyObject = read(&iterator, layout::list_iter::SEQ);
    expect(read::<isize>(&iterator, layout::list_iter::INDEX) == 1 && seq == list.as_ptr(), "list iterator")?;
    let tuple = eval(c"tuple([5, 6, 7])")?;
    let iterator = tuple.call_method0("__iter__")?;
    iterator.call_method0("__next__")?;
    let seq: *mut ffi::PyObject = read(&iterator, layout::tuple_iter::SEQ);
    expect(
        read::<isize>(&iterator, layout::tuple_iter::INDEX) == 1 && seq == tuple.as_ptr(),
        "tuple iterator",
    )?;

    let old_style = eval(c"type('S', (), {'__getitem__': lambda s, i: i})()")?;
    let iterator = old_style.try_iter()?;
    iterator.as_any().call_method0("__next__")?;
    let seq: *mut ffi::PyObject = read(iterator.as_any(), layout::seq_iter::SEQ);
    let index: isize = read(iterator.as_any(), layout::seq_iter::INDEX);
    expect(index == 1 && seq == old_style.as_ptr(), "sequence iterator")?;

    let inner = eval(c"iter([5, 6, 7])")?;
    let kwargs = PyDict::new(py);
    kwargs.set_item("start", 40)?;
    let enumerate =
        py.import("builtins")?.getattr("enumerate")?.call(PyTuple::new(py, [&inner])?, Some(&kwargs))?;
    enumerate.call_method0("__next__")?;
    let held: *mut ffi::PyObject = read(&enumerate, layout::enumerate::ITERATOR);
    let index: isize = read(&enumerate, layout::enumerate::INDEX);
    expect(index == 41 && held == inner.as_ptr(), "enumerate")?;

    let zip = py.import("builtins")?.getattr("zip")?.call1(PyTuple::new(py, [&inner, &inner])?)?;
    let tuple: *mut ffi::PyObject = read(&zip, layout::zip::ITERATORS);
    let referents = py.import("gc")?.call_method1("get_referents", PyTuple::new(py, [&zip])?)?;
    let mut is_referent = false;
    for object in referents.try_iter()? {
        let object = object?;
        is_referent |= object.as_ptr() == tuple && object.is_instance_of::<PyTuple>();
    }
    expect(is_referent && read::<isize>(&zip, layout::zip::SIZE) == 2, "zip")
}

fn dictionaries(py: Python<'_>) -> PyResult<()> {
    let dict = PyDict::new(py);
    let (key, value) = (PyString::new(py, "overdrive"), PyFloat::new(py, 12345678.5));
    dict.set_item(&key, &value)?;
    expect(read::<isize>(&dict, layout::dict::USED) == 1, "dict.ma_used")?;
    version_tags(py)?;
    expect(read::<*mut c_void>(&dict, layout::dict::VALUES).is_null(), "dict.ma_values")?;
    let keys: *const u8 = read(&dict, layout::dict::KEYS);
    expect(!keys.is_null() && (keys as usize).is_multiple_of(8), "dict.ma_keys")?;
    // SAFETY: the object has this pointer where its keys are; a small table is 8 index bytes and 5 entries, which
    // all offsets below lie inside.
    let (entry_key, entry_value, n_entries, log2_size, kind) = unsafe {
        let first = keys.add(layout::dict_keys::INDICES + 8);
        (
            field::<*mut ffi::PyObject>(first, 0),
            field::<*mut ffi::PyObject>(first, 8),
            field::<isize>(keys, layout::dict_keys::NENTRIES),
            field::<u8>(keys, layout::dict_keys::LOG2_SIZE),
            field::<u8>(keys, layout::dict_keys::KIND),
        )
    };
    expect(log2_size == 3 && n_entries == 1 && kind == 1, "keys of a dict with str keys")?;
    expect(entry_key == key.as_ptr() && entry_value == value.as_ptr(), "entries of a dict with str keys")
}

/// Each change gives a dictionary a tag that no dictionary had before; reading gives none.
fn version_tags(py: Python<'_>) -> PyResult<()> {
    let (dict, other) = (PyDict::new(py), PyDict::new(py));
    other.set_item("name", 1)?;
    let mut seen: Vec<u64> = vec![read(&other, layout::dict::VERSION_TAG)];
    let changes: [(&str, Option<i32>); 7] = [
        ("__setitem__", Some(2)),
        ("__setitem__", Some(3)),
        ("__delitem__", None),
        ("setdefault", Some(1)),
        ("pop", None),
        ("setdefault", Some(1)),
        ("clear", None),
    ];
    for (method, value) in changes {
        match (method, value) {
            ("clear", _) => dict.call_method0(method)?,
            (_, None) => dict.call_method1(method, ("name",))?,
            (_, Some(value)) => dict.call_method1(method, ("name", value))?,
        };
        let tag: u64 = read(&dict, layout::dict::VERSION_TAG);
        expect(!seen.contains(&tag), "dict.ma_version_tag")?;
        let _ = dict.get_item("name")?;
        expect(tag == read::<u64>(&dict, layout::dict::VERSION_TAG), "dict.ma_version_tag")?;
        seen.push(tag);
    }
    Ok(())
}

fn functions(py: Python<'_>) -> PyResult<()> {
    let globals = PyDict::new(py);
    globals.set_item("__builtins__", py.import("builtins")?.dict())?;
    let factory =
        py.eval(c"lambda z: (lambda a, /, b=1, *c, d=2, **e: (a, b, c, d, e, z))", Some(&globals), None)?;
    let function = factory.call1((0,))?;
    let pointer = |offset: usize| read::<*mut ffi::PyObject>(&function, offset);
    let same = |offset: usize, name: &str| -> PyResult<bool> {
        Ok(pointer(offset) == function.getattr(name)?.as_ptr())
    };
    expect(pointer(layout::function::GLOBALS) == globals.as_ptr(), "function.func_globals")?;
    expect(same(layout::function::CODE, "__code__")?, "function.func_code")?;
    expect(same(layout::function::DEFAULTS, "__defaults__")?, "function.func_defaults")?;
    expect(same(layout::function::KWDEFAULTS, "__kwdefaults__")?, "function.func_kwdefaults")?;
    expect(same(layout::function::CLOSURE, "__closure__")?, "function.func_closure")?;
    expect(same(layout::function::NAME, "__name__")?, "function.func_name")?;
    expect(same(layout::function::QUALNAME, "__qualname__")?, "function.func_qualname")?;
    let vectorcall: usize = read(&function, layout::function::VECTORCALL);
    let other: usize = read(&factory, layout::function::VECTORCALL);
    expect(vectorcall != 0 && vectorcall == other, "function.vectorcall")?;

    let code = function.getattr("__code__")?;
    let int = |offset: usize, name: &str| -> PyResult<()> {
        // SAFETY: a live code object.
        let found = unsafe { code_int(code.as_ptr(), offset) };
        expect(found == code.getattr(name)?.extract::<usize>()?, name)
    };
    int(layout::code::ARGCOUNT, "co_argcount")?;
    int(layout::code::POSONLYARGCOUNT, "co_posonlyargcount")?;
    int(layout::code::KWONLYARGCOUNT, "co_kwonlyargcount")?;
    int(layout::code::STACKSIZE, "co_stacksize")?;
    int(layout::code::FIRSTLINENO, "co_firstlineno")?;
    int(layout::code::NLOCALS, "co_nlocals")?;
    int(layout::code::FLAGS, "co_flags")?;
    // SAFETY: a live code object.
    let (n_slots, n_free, first) = unsafe {
        (
            code_int(code.as_ptr(), layout::code::NLOCALSPLUS),
            code_int(code.as_ptr(), layout::code::NFREEVARS),
            code_int(code.as_ptr(), layout::code::FIRSTTRACEABLE),
        )
    };
    expect(n_slots == 6 && n_free == 1, "code.co_nlocalsplus, co_nfreevars")?;
    // COPY_FREE_VARS is instruction 0, RESUME instruction 1.
    expect(first == 1, "code._co_firsttraceable")?;
    let bytecode = code.getattr("co_code")?.cast_into::<PyBytes>()?;
    expect(
        read::<[u8; 2]>(&code, layout::code::BYTECODE)[..] == bytecode.as_bytes()[..2],
        "code.co_code_adaptive",
    )
}

/// A body that compares the frame it gets with what it must be, then leaves in the middle.
struct Witness {
    argument: usize,
}

static SEEN: super::gil_cell::GilCell<Result<(), &'static str>> =
    super::gil_cell::GilCell::new(Err("stub not entered"));

impl Body for Witness {
    unsafe fn call(&self, activation: &mut Activation<'_>) -> *mut ffi::PyObject {
        // SAFETY: entered by the stub; nothing is followed that was not compared before.
        unsafe {
            // The frame's code was compared with the stub before this was called.
            let check = || {
                if *activation.locals as usize == self.argument {
                    Ok(())
                } else {
                    Err("locals of the current frame")
                }
            };
            let seen = check();
            SEEN.with(|slot| *slot = seen);
            if seen.is_err() {
                return std::ptr::null_mut();
            }
            let locals = vec![KEEP; activation.shape.n_locals_plus as usize];
            activation.leave(2 * activation.shape.resume + 2, &locals, &[], Exit::Reexecute)
        }
    }
}

fn frames(py: Python<'_>) -> PyResult<()> {
    // SAFETY: the GIL is held; the walk compares with what the public API says before it reads further.
    unsafe {
        let thread = Thread::current();
        let public = ffi::PyThreadState_GetFrame(ffi::PyThreadState_Get());
        if !public.is_null() {
            let public = Bound::from_owned_ptr(py, public.cast());
            let inner: usize = read(&public, layout::frame_object::FRAME);
            let mut frame = thread.frame();
            let mut n_hidden = 0;
            while frame.0 as usize != inner && !frame.0.is_null() && n_hidden < 8 {
                frame = frame.previous();
                n_hidden += 1;
            }
            expect(frame.0 as usize == inner, "the current frame")?;
            expect(frame.code() == public.getattr("f_code")?.as_ptr(), "frame's code")?;
            expect(frame.globals() == public.getattr("f_globals")?.as_ptr(), "frame's globals")?;
            let lasti: isize = public.getattr("f_lasti")?.extract()?;
            expect(2 * frame.position() == lasti, "frame's position")?;
        }
    }
    let globals = PyDict::new(py);
    let source = c"def f(x):\n    y = x\n    return [y,\n            1 / y]\n";
    py.run(source, Some(&globals), None)?;
    let function =
        globals.get_item("f")?.ok_or_else(|| pyo3::exceptions::PyRuntimeError::new_err("no function"))?;
    let argument = PyList::empty(py);
    stub::swap(&function, Box::new(Witness { argument: argument.as_ptr() as usize }))?;
    let error = match function.call1(PyTuple::new(py, [&argument])?) {
        Ok(_) => return expect(false, "leaving a stub frame lost an exception"),
        Err(error) => error,
    };
    // SAFETY: the GIL is held, no Python runs inside.
    if let Err(what) = unsafe { SEEN.with(|seen| *seen) } {
        return expect(false, what);
    }
    expect(error.is_instance_of::<pyo3::exceptions::PyTypeError>(py), "leaving a stub frame")?;
    let line = error.traceback(py).map(|t| t.getattr("tb_lineno")?.extract::<usize>()).transpose()?;
    expect(line == Some(4), "line number after leaving a stub frame")
}

fn recursion(py: Python<'_>) -> PyResult<()> {
    let sys = py.import("sys")?;
    let limit: c_int = sys.call_method0("getrecursionlimit")?.extract()?;
    // SAFETY: the GIL is held.
    let thread = unsafe { Thread::current() };
    // SAFETY: live thread state.
    let before = unsafe { thread.py_recursion() };
    sys.call_method1("setrecursionlimit", (limit + 77,))?;
    // SAFETY: live thread state.
    let after = unsafe { thread.py_recursion() };
    sys.call_method1("setrecursionlimit", (limit,))?;
    expect(before <= limit && after - before == 77, "recursion counter")?;
    // SAFETY: live thread state; gettrace and getprofile are the public view of the same fields.
    let has_tracer = unsafe { thread.has_tracer() };
    let is_traced = !sys.call_method0("gettrace")?.is_none() || !sys.call_method0("getprofile")?.is_none();
    expect(has_tracer || !is_traced, "trace function")
}

extern "C" fn pending(argument: *mut c_void) -> c_int {
    // SAFETY: the argument is a flag that lives until the poll is over.
    unsafe { *argument.cast::<bool>() = true };
    0
}

fn polls(py: Python<'_>) -> PyResult<()> {
    let _ = py;
    let mut was_called = false;
    // SAFETY: the GIL is held. The word read lies in the interpreter or thread state. The pending call runs in the poll
    // below or, when this is not the main thread, may not: then nothing is registered.
    unsafe {
        let is_main = ffi::PyInterpreterState_Get() == ffi::PyInterpreterState_Main();
        if !is_main || libc::getpid() != libc::syscall(libc::SYS_gettid) as c_int {
            return Ok(());
        }
        let breaker = Thread::current().eval_breaker().cast::<u32>();
        if ffi::Py_AddPendingCall(Some(pending), (&raw mut was_called).cast()) != 0 {
            return Ok(());
        }
        let is_set = breaker.read_volatile() != 0;
        let status = poll::run();
        if !was_called {
            // Never leave the flag's address behind.
            ffi::Py_MakePendingCalls();
        }
        if status < 0 {
            return Err(PyErr::fetch(py));
        }
        expect(is_set && was_called, "eval breaker")
    }
}
