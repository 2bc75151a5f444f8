//! The front end's oracle over the live program.
//!
//! In: a code object's names, the two dictionaries its globals come from, samples, what earlier versions observed and
//! which offsets are blocked. Out: facts, numbered; `Found` tells afterwards where each object came from, so that the
//! version can hold (or watch) those that its code refers to. Runs no Python code.

use std::collections::{HashMap, HashSet};

use overdrive_base::flavour::KnownType;
use overdrive_frontend_python::facts::{Access, Builtin, Fact, FactId, Meaning, Member, Observed, Oracle};
use pyo3::ffi;
use pyo3::prelude::{Bound, PyAny, PyAnyMethods, Python};
use pyo3::types::{PyDict, PyTuple, PyTupleMethods};

use super::meaning::meaning;
use crate::objects;

/// Where a fact's object was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A sample: an argument, a local of a running frame, an item.
    Sample,
    /// Global or builtin of this name (index into `co_names`).
    Global(u32),
    /// Attribute of a module.
    Attr(FactId, u32),
    /// Attribute of a built-in type.
    TypeAttr,
}

/// An object that the front end was told about. Bound, so that it is released at once when the translation is done:
/// PyO3 puts off the release of unbound references wherever it was not itself asked for the GIL.
pub(crate) struct Found<'py> {
    pub(crate) object: Bound<'py, PyAny>,
    pub(crate) origin: Origin,
}

/// What earlier versions of a code object taught.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lessons {
    pub(crate) observed: HashMap<u32, Observed>,
    pub(crate) blocked: HashSet<u32>,
}

/// Answers for one translation.
pub(crate) struct LiveOracle<'py> {
    py: Python<'py>,
    names: Bound<'py, PyTuple>,
    globals: Bound<'py, PyDict>,
    builtins: Bound<'py, PyDict>,
    lessons: Lessons,
    /// The first argument is a cell variable: `super()` would look for the cell in the stub's frame, where it is a
    /// plain value.
    first_is_cell: bool,
    pub(crate) found: Vec<Found<'py>>,
}

impl<'py> LiveOracle<'py> {
    pub(crate) fn new(
        names: Bound<'py, PyTuple>,
        globals: Bound<'py, PyDict>,
        builtins: Bound<'py, PyDict>,
        lessons: Lessons,
        first_is_cell: bool,
    ) -> LiveOracle<'py> {
        let py = names.py();
        LiveOracle { py, names, globals, builtins, lessons, first_is_cell, found: Vec::new() }
    }

    /// Numbers an object that was seen as an argument or in a frame.
    pub(crate) fn sample(&mut self, value: &Bound<'py, PyAny>) -> Fact {
        self.fact(value, Origin::Sample)
    }

    fn fact(&mut self, value: &Bound<'py, PyAny>, origin: Origin) -> Fact {
        let known = self.found.iter().position(|f| f.object.is(value) && f.origin == origin);
        let index = known.unwrap_or_else(|| {
            self.found.push(Found { object: value.clone(), origin });
            self.found.len() - 1
        });
        Fact { id: FactId(index as u32), seen: objects::seen(value), meaning: self.meaning(value) }
    }

    fn meaning(&self, value: &Bound<'py, PyAny>) -> Meaning {
        let is_super = value.as_ptr() == (&raw mut ffi::PySuper_Type).cast();
        if is_super && self.first_is_cell {
            return Meaning::Builtin(Builtin::FrameReader);
        }
        meaning(value)
    }

    fn name(&self, index: u32) -> Option<Bound<'py, PyAny>> {
        self.names.get_item(index as usize).ok()
    }
}

/// The entry of an exact dictionary, without `__missing__`, errors cleared.
fn look_up<'py>(dict: &Bound<'py, PyDict>, key: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    if !dict.is_exact_instance_of::<PyDict>() {
        return None;
    }
    // SAFETY: both are alive; the result is borrowed from the dictionary and referenced at once.
    unsafe {
        let value = ffi::PyDict_GetItemWithError(dict.as_ptr(), key.as_ptr());
        if value.is_null() {
            ffi::PyErr_Clear();
        }
        Bound::from_borrowed_ptr_or_opt(dict.py(), value)
    }
}

impl Oracle for LiveOracle<'_> {
    fn global(&mut self, name: u32) -> Option<Fact> {
        let key = self.name(name)?;
        let value = match look_up(&self.globals, &key) {
            Some(value) => value,
            None => look_up(&self.builtins, &key)?,
        };
        Some(self.fact(&value, Origin::Global(name)))
    }

    fn attr(&mut self, base: FactId, name: u32) -> Option<Fact> {
        let key = self.name(name)?;
        // Names like `__dict__` are answered by the type, before the module's dictionary is asked.
        if key.extract::<&str>().ok()?.starts_with("__") {
            return None;
        }
        let module = self.found.get(base.0 as usize)?.object.clone();
        // SAFETY: the object is alive; only an exact module is looked into.
        let dict = unsafe {
            if ffi::PyModule_CheckExact(module.as_ptr()) == 0 {
                return None;
            }
            Bound::from_borrowed_ptr_or_opt(self.py, ffi::PyModule_GetDict(module.as_ptr()))?
        };
        let value = look_up(dict.cast::<PyDict>().ok()?, &key)?;
        Some(self.fact(&value, Origin::Attr(base, name)))
    }

    fn type_attr(&mut self, ty: KnownType, name: u32) -> Option<Fact> {
        let key = self.name(name)?;
        let address = objects::object_layout(self.py)?.type_address(ty)?;
        // SAFETY: the layout's addresses are of types that live as long as the process. NumPy's and the built-in types
        // are immutable, and their metaclass runs no Python code.
        let value = unsafe {
            let found = ffi::PyObject_GetAttr(address as *mut ffi::PyObject, key.as_ptr());
            if found.is_null() {
                ffi::PyErr_Clear();
            }
            Bound::from_owned_ptr_or_opt(self.py, found)?
        };
        Some(self.fact(&value, Origin::TypeAttr))
    }

    fn item(&mut self, container: FactId) -> Option<Fact> {
        let object = self.found.get(container.0 as usize)?.object.clone();
        let ptr = object.as_ptr();
        // SAFETY: exact list or tuple, looked at under the GIL; the item is borrowed and referenced at once.
        let first = unsafe {
            if ffi::PyList_CheckExact(ptr) != 0 && ffi::PyList_GET_SIZE(ptr) > 0 {
                ffi::PyList_GET_ITEM(ptr, 0)
            } else if ffi::PyTuple_CheckExact(ptr) != 0 && ffi::PyTuple_GET_SIZE(ptr) > 0 {
                ffi::PyTuple_GET_ITEM(ptr, 0)
            } else {
                return None;
            }
        };
        // SAFETY: a list under construction may hold null items.
        let first = unsafe { Bound::from_borrowed_ptr_or_opt(self.py, first)? };
        Some(self.fact(&first, Origin::Sample))
    }

    fn member(&mut self, object: FactId, name: u32, access: Access) -> Option<(Member, Fact)> {
        let key = self.name(name)?;
        let object = self.found.get(object.0 as usize)?.object.clone();
        let (member, value) = objects::member(&object, &key, access)?;
        Some((member, self.fact(&value, Origin::Sample)))
    }

    fn observed(&self, offset: u32) -> Observed {
        self.lessons.observed.get(&offset).cloned().unwrap_or(Observed::Nothing)
    }

    fn blocked(&self, offset: u32) -> bool {
        self.lessons.blocked.contains(&offset)
    }
}
