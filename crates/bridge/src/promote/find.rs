//! From a place (file, qualified name) to the code and function objects behind it.
//!
//! In: a [`Place`] of the sampler. Out: every code object of that name, each with a function object where one is
//! found. Cheap ways first: what runs now; modules and classes by name; constants of the enclosing function; the
//! heap last, and only when the caller allows it (it costs tens of milliseconds in a large program).

#![expect(unsafe_code, reason = "walks the interpreter's frames without making frame objects")]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCode, PyDict, PyFunction, PyTuple};

use super::Engine;
use super::sampler::Place;
use crate::mechanics::frame::{Frame, field};
use crate::mechanics::layout;

/// One code object of a place.
pub(super) struct Found {
    /// The original code, never a swapped-in one.
    pub(super) code: Py<PyAny>,
    /// A function object that has it, or has native code in its place.
    pub(super) function: Option<Py<PyAny>>,
}

/// Frames further out than this are not looked at.
const MAX_FRAMES: usize = 1000;
/// How many objects a decorated function may be wrapped in.
const MAX_WRAPPERS: usize = 8;

/// Finds what runs or is defined under the name of `place`. Looks through the heap only with `heap`.
pub(super) fn find(py: Python<'_>, engine: &dyn Engine, place: &Place, heap: bool) -> PyResult<Vec<Found>> {
    let mut found = Search { engine, place, found: Vec::new() };
    for (code, function) in running(py) {
        found.offer(&code, function.as_ref())?;
    }
    found.search_modules(py)?;
    if heap && !place.name.ends_with("<module>") {
        found.search_heap(py)?;
    }
    Ok(found.found)
}

/// Whether a frame of any thread runs `code` now.
pub(super) fn is_running(py: Python<'_>, engine: &dyn Engine, code: &Py<PyAny>) -> bool {
    running(py).iter().any(|(running, _)| engine.original(&super::calls::original(running)).is(code))
}

struct Search<'a> {
    engine: &'a dyn Engine,
    place: &'a Place,
    found: Vec<Found>,
}

impl Search<'_> {
    /// Takes `code` if it has the place's name.
    fn offer(&mut self, code: &Bound<'_, PyAny>, function: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let code = self.engine.original(&super::calls::original(code));
        if !same_text(&code, "co_qualname", &self.place.name)
            || !same_text(&code, "co_filename", &self.place.file)
        {
            return Ok(false);
        }
        match self.found.iter_mut().find(|known| code.is(&known.code)) {
            Some(known) => {
                if let (None, Some(function)) = (&known.function, function) {
                    known.function = Some(function.clone().unbind());
                }
            }
            None => self.found.push(Found {
                code: code.clone().unbind(),
                function: function.map(|function| function.clone().unbind()),
            }),
        }
        Ok(true)
    }

    /// Goes the qualified name's way through the modules that come from the file.
    fn search_modules(&mut self, py: Python<'_>) -> PyResult<()> {
        let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
        let place = self.place;
        let parts: Vec<&str> = place.name.split('.').collect();
        // A copy: reading attributes may import.
        for module in modules.values().iter() {
            let Ok(namespace) = module.getattr("__dict__").and_then(|d| Ok(d.cast_into::<PyDict>()?)) else {
                continue;
            };
            let from_here = namespace
                .get_item("__file__")?
                .is_some_and(|file| file.extract::<String>().is_ok_and(|file| file == place.file));
            if from_here {
                self.descend(namespace.as_any(), &parts)?;
                // Functions under another name: assigned lambdas, renamed and patched ones.
                for value in namespace.values().iter() {
                    if value.cast::<PyFunction>().is_ok() {
                        self.offer(&value.getattr("__code__")?, Some(&value))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// `namespace` is a module's or class's dictionary.
    fn descend(&mut self, namespace: &Bound<'_, PyAny>, parts: &[&str]) -> PyResult<()> {
        let [first, rest @ ..] = parts else { return Ok(()) };
        let Ok(object) = namespace.get_item(first) else { return Ok(()) };
        for function in functions_in(&object) {
            let code = function.getattr("__code__")?;
            if self.offer(&code, Some(&function))? {
                continue;
            }
            if rest.first() == Some(&"<locals>") {
                self.offer_constants(&code)?;
            }
        }
        if object.cast::<pyo3::types::PyType>().is_ok() && !rest.is_empty() {
            self.descend(&object.getattr("__dict__")?, rest)?;
        }
        Ok(())
    }

    /// Code objects nested in `code`, at any depth.
    fn offer_constants(&mut self, code: &Bound<'_, PyAny>) -> PyResult<()> {
        for constant in code.getattr("co_consts")?.cast_into::<PyTuple>()?.iter() {
            if constant.cast::<PyCode>().is_ok() {
                self.offer(&constant, None)?;
                self.offer_constants(&constant)?;
            }
        }
        Ok(())
    }

    fn search_heap(&mut self, py: Python<'_>) -> PyResult<()> {
        for object in py.import("gc")?.call_method0("get_objects")?.try_iter()? {
            let object = object?;
            if object.cast::<PyFunction>().is_ok() {
                let code = object.getattr("__code__")?;
                self.offer(&code, Some(&object))?;
            }
        }
        Ok(())
    }
}

/// The functions behind an attribute: itself, or what descriptors and decorators wrap.
fn functions_in<'py>(object: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    let (mut functions, mut pending) = (Vec::new(), vec![object.clone()]);
    let mut steps = 0;
    while let Some(object) = pending.pop() {
        steps += 1;
        if steps > 4 * MAX_WRAPPERS {
            break;
        }
        if object.cast::<PyFunction>().is_ok() {
            if let Ok(closure) = object.getattr("__closure__").and_then(|c| Ok(c.cast_into::<PyTuple>()?)) {
                let cells = closure.iter().filter_map(|cell| cell.getattr("cell_contents").ok());
                pending.extend(cells.filter(|held| held.cast::<PyFunction>().is_ok()));
            }
            if let Ok(wrapped) = object.getattr("__wrapped__") {
                pending.push(wrapped);
            }
            functions.push(object);
            continue;
        }
        // Builtin descriptors and wrappers only: their attributes are plain reads. `getattr` of any other
        // object could run the program's own code.
        let kind = object.get_type();
        let Ok(kind) = kind.fully_qualified_name() else { continue };
        let names: &[&str] = match &*kind.to_string_lossy() {
            "staticmethod" | "classmethod" => &["__func__"],
            "property" => &["fget", "fset", "fdel"],
            "functools.partial" | "functools.cached_property" => &["func"],
            "functools._lru_cache_wrapper" => &["__wrapped__"],
            _ => &[],
        };
        pending.extend(names.iter().filter_map(|name| object.getattr(*name).ok()));
    }
    functions
}

fn same_text(code: &Bound<'_, PyAny>, attribute: &str, text: &str) -> bool {
    code.getattr(attribute).is_ok_and(|value| {
        value
            .cast::<pyo3::types::PyString>()
            .is_ok_and(|value| value.to_str().is_ok_and(|value| value == text))
    })
}

/// Code and function of every frame of every thread, innermost first.
fn running(py: Python<'_>) -> Vec<(Bound<'_, PyAny>, Option<Bound<'_, PyAny>>)> {
    let mut frames = Vec::new();
    // SAFETY: the GIL is held, so no thread state comes, goes or runs Python while we walk, and every frame on a
    // thread's stack is live. What is taken out of a frame is made an owned reference at once.
    unsafe {
        let this = ffi::PyThreadState_Get();
        let mut thread = ffi::PyInterpreterState_ThreadHead(ffi::PyThreadState_GetInterpreter(this));
        while !thread.is_null() {
            let mut frame = crate::mechanics::frame::Thread(thread.cast()).frame();
            for _ in 0..MAX_FRAMES {
                if frame.0.is_null() {
                    break;
                }
                if let Some((code, function)) = of_frame(frame) {
                    frames.push((
                        Bound::from_borrowed_ptr(py, code),
                        Bound::from_borrowed_ptr_or_opt(py, function),
                    ));
                }
                frame = frame.previous();
            }
            thread = ffi::PyThreadState_Next(thread);
        }
    }
    frames
}

/// Code and function of a frame that belongs to Python code, borrowed.
///
/// # Safety
/// `frame` is live and the GIL is held.
unsafe fn of_frame(frame: Frame) -> Option<(*mut ffi::PyObject, *mut ffi::PyObject)> {
    /// The value of `owner` for the evaluator's own entry frames (3.12 and later), which have no function.
    const OWNED_BY_C_STACK: u8 = 3;
    // SAFETY: the caller's contract.
    unsafe {
        if field::<u8>(frame.0, layout::frame::OWNER) >= OWNED_BY_C_STACK {
            return None;
        }
        let code = frame.code();
        if code.is_null() || ffi::PyCode_Check(code) == 0 {
            return None;
        }
        let function = frame.function();
        let is_function = !function.is_null() && ffi::PyFunction_Check(function) != 0;
        Some((code, if is_function { function } else { std::ptr::null_mut() }))
    }
}
