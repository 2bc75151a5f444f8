//! The front end's oracle over the live program.
//!
//! In: a code object's names (and those of the functions that it calls), the two dictionaries its globals come from, samples, what earlier versions observed and
//! which offsets are blocked. Out: facts, numbered; `Found` tells afterwards where each object came from, so that the
//! version can hold (or watch) those that its code refers to. Runs no Python code.

use std::collections::{HashMap, HashSet};
use std::ptr::null_mut;
use std::sync::Arc;

use overdrive_base::flavour::KnownType;
use overdrive_frontend_python::facts::{
    Access, Body, Builtin, Callee, Fact, FactId, Meaning, Member, Method, Observed, Oracle, Part, Picture,
};
use pyo3::prelude::{Bound, PyAny, PyAnyMethods, PyResult, Python};
use pyo3::types::{PyDict, PyTuple, PyTupleMethods};
use pyo3::{ffi, intern};

use super::meaning::meaning;
use super::unit::{Kind, Unit, units_of};
use super::{input, jit, promotion};
use crate::mechanics::{giving, stub};
use crate::{objects, promote};

/// Where a fact's object was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A sample: an argument, a local of a running frame, an item.
    Sample,
    /// The class of an object that an earlier version saw.
    Picture,
    /// Global or builtin of this name (index into `co_names` of that body).
    Global(Body, u32),
    /// Attribute of a module.
    Attr(Body, FactId, u32),
    /// Attribute of a built-in type.
    TypeAttr,
    /// Belongs to the code or function of an inlined body.
    Part(Body, Part),
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
    /// Where `observed` is what an earlier process saw.
    pub(crate) hinted: HashSet<u32>,
    /// Grows with each lesson of this process: a version that was translated with fewer may not heed them all.
    pub(crate) n_learned: u32,
}

/// Code that the front end translates: the function's own, or a callee's.
pub(crate) struct Code<'py> {
    /// What is called; none for the function's own.
    pub(crate) callable: Option<FactId>,
    pub(crate) code: Bound<'py, PyAny>,
    pub(crate) names: Bound<'py, PyTuple>,
    pub(crate) globals: Bound<'py, PyDict>,
    pub(crate) builtins: Bound<'py, PyDict>,
    defaults: Option<Bound<'py, PyTuple>>,
    lessons: Lessons,
    /// The first argument is a cell variable: `super()` would look for the cell in the stub's frame, where it is a
    /// plain value.
    first_is_cell: bool,
    /// What the front end was told of a callee; `None` when it must not be inlined.
    told: Option<Callee>,
}

/// Answers for one translation.
pub(crate) struct LiveOracle<'py> {
    py: Python<'py>,
    /// By `Body`: the function's own code first.
    pub(crate) bodies: Vec<Code<'py>>,
    current: Body,
    /// The function may differ from CPython in the last bits; so may then what is inlined into it, and no other.
    fastmath: bool,
    pub(crate) found: Vec<Found<'py>>,
    /// What stands for objects of the classes that were found as pictures.
    pictures: HashMap<FactId, Picture>,
    classes: HashMap<u32, Option<Bound<'py, PyAny>>>,
}

impl<'py> LiveOracle<'py> {
    pub(crate) fn new(
        code: Bound<'py, PyAny>,
        names: Bound<'py, PyTuple>,
        globals: Bound<'py, PyDict>,
        builtins: Bound<'py, PyDict>,
        lessons: Lessons,
        first_is_cell: bool,
        fastmath: bool,
    ) -> LiveOracle<'py> {
        let py = names.py();
        let (callable, defaults, told) = (None, None, None);
        let own = Code { callable, code, names, globals, builtins, defaults, lessons, first_is_cell, told };
        LiveOracle {
            py,
            bodies: vec![own],
            current: Body::OWN,
            fastmath,
            found: Vec::new(),
            pictures: HashMap::new(),
            classes: HashMap::new(),
        }
    }

    fn here(&self) -> &Code<'py> {
        &self.bodies[self.current.0 as usize]
    }

    /// Looks at a callable for the first time.
    fn look(&self, callable: FactId, object: &Bound<'py, PyAny>) -> PyResult<Option<Code<'py>>> {
        let py = self.py;
        // SAFETY: a live object under the GIL; the function is referenced at once.
        let function = unsafe { giving::function_behind(object.as_ptr()) };
        // SAFETY: as above.
        let function = unsafe { Bound::from_borrowed_ptr_or_opt(py, function.unwrap_or(null_mut())) };
        let Some(function) = function else { return Ok(None) };
        if jit::wants(object).fastmath != self.fastmath {
            return Ok(None);
        }
        let fields = function.as_ptr().cast::<ffi::PyFunctionObject>();
        // SAFETY: an exact function; asking for the attributes would be an audit event, which may run Python code.
        let (now, defaults) = unsafe {
            let defaults = Bound::from_borrowed_ptr_or_opt(py, (*fields).func_defaults);
            (Bound::from_borrowed_ptr(py, (*fields).func_code), defaults)
        };
        let now = promote::uncounted(&now);
        let code = stub::original_of(&now).unwrap_or(now);
        let names = code.getattr(intern!(py, "co_names"))?.cast_into::<PyTuple>()?;
        let (globals, builtins) = promotion::dictionaries(&function);
        // SAFETY: the function owns both.
        let dictionaries = unsafe {
            (
                Bound::from_borrowed_ptr(py, globals).cast_into(),
                Bound::from_borrowed_ptr(py, builtins).cast_into(),
            )
        };
        let (Ok(globals), Ok(builtins)) = dictionaries else { return Ok(None) };
        let of_jit = jit::unit_of(object);
        let units = if of_jit.is_some() { vec![] } else { units_of(&code) };
        let is_fitting = |unit: &&Unit| unit.kind == Kind::Promoted && unit.globals == globals.as_ptr();
        let unit = of_jit.or_else(|| units.iter().map(|unit| &**unit).find(is_fitting));
        let lessons = unit.map(|unit| unit.state.borrow().lessons.clone()).unwrap_or_default();
        let plain = Arc::new(input::code_object(&code)?);
        let defaults = defaults.and_then(|defaults| defaults.cast_into::<PyTuple>().ok());
        let values = match &defaults {
            None => Some(vec![]),
            Some(defaults) => input::plain_numbers(defaults)?,
        };
        let defaults = defaults.filter(|_| values.is_some());
        let first_is_cell = Unit::first_is_cell(&plain);
        let body = Body(self.bodies.len() as u32);
        let told = Some(Callee { body, code: plain, defaults: values });
        let callable = Some(callable);
        Ok(Some(Code { callable, code, names, globals, builtins, defaults, lessons, first_is_cell, told }))
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
        if is_super && self.here().first_is_cell {
            return Meaning::Builtin(Builtin::FrameReader);
        }
        meaning(value)
    }

    fn name(&self, index: u32) -> Option<Bound<'py, PyAny>> {
        self.here().names.get_item(index as usize).ok()
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
    fn callee(&mut self, callable: FactId) -> Option<Callee> {
        let object = self.found.get(callable.0 as usize)?.object.clone();
        let is_same = |code: &&Code<'_>| {
            let known = code.callable.and_then(|id| self.found.get(id.0 as usize));
            known.is_some_and(|known| known.object.is(&object))
        };
        if let Some(known) = self.bodies.iter().find(is_same) {
            return known.told.clone();
        }
        match self.look(callable, &object) {
            Ok(Some(code)) => {
                let told = code.told.clone();
                self.bodies.push(code);
                told
            }
            Ok(None) => None,
            // Nothing of it is needed: the call is made as any other.
            Err(error) => {
                drop(error);
                None
            }
        }
    }

    fn enter(&mut self, body: Body) -> Body {
        std::mem::replace(&mut self.current, body)
    }

    fn part(&mut self, body: Body, part: Part) -> FactId {
        let of = &self.bodies[body.0 as usize];
        let none = || self.py.None().into_bound(self.py);
        let object = match part {
            Part::Const(n) => {
                let consts = of.code.getattr(intern!(self.py, "co_consts")).ok();
                consts.and_then(|consts| consts.get_item(n).ok()).unwrap_or_else(none)
            }
            Part::Name(n) => of.names.get_item(n as usize).ok().unwrap_or_else(none),
            Part::Globals => of.globals.clone().into_any(),
            Part::Builtins => of.builtins.clone().into_any(),
            Part::Code => of.code.clone(),
            Part::Defaults => of.defaults.clone().map_or_else(none, Bound::into_any),
        };
        self.fact(&object, Origin::Part(body, part)).id
    }

    fn global(&mut self, name: u32) -> Option<Fact> {
        let key = self.name(name)?;
        let value = match look_up(&self.here().globals, &key) {
            Some(value) => value,
            None => look_up(&self.here().builtins, &key)?,
        };
        Some(self.fact(&value, Origin::Global(self.current, name)))
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
        Some(self.fact(&value, Origin::Attr(self.current, base, name)))
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
        let id = object;
        let object = self.found.get(id.0 as usize)?.object.clone();
        if let Some(picture) = self.pictures.get(&id) {
            let text = key.extract::<&str>().ok()?;
            let seen = picture.values.iter().find(|(name, _)| name == text).map(|(_, seen)| seen.clone())?;
            let member = objects::member_of(&object, &key, access)?;
            // The value itself is not there.
            let nothing = self.fact(&self.py.None().into_bound(self.py), Origin::Sample);
            return Some((member, Fact { seen, meaning: Meaning::Nothing, ..nothing }));
        }
        let (member, value) = objects::member(&object, &key, access)?;
        Some((member, self.fact(&value, Origin::Sample)))
    }

    fn method(&mut self, object: FactId, name: u32) -> Option<(Method, Fact)> {
        let key = self.name(name)?;
        let id = object;
        let object = self.found.get(id.0 as usize)?.object.clone();
        let (method, function) = match self.pictures.contains_key(&id) {
            true => objects::method_of(&object, &key)?,
            false => objects::method(&object, &key)?,
        };
        Some((method, self.fact(&function, Origin::Sample)))
    }

    fn getter(&mut self, object: FactId, name: u32) -> Option<Fact> {
        let key = self.name(name)?;
        let found = self.found.get(object.0 as usize)?;
        let class = match found.origin {
            Origin::Picture => found.object.clone(),
            _ => found.object.get_type().into_any(),
        };
        let function = objects::getter_of(&class, &key)?;
        Some(self.fact(&function, Origin::Sample))
    }

    fn pictured(&mut self, offset: u32) -> Option<FactId> {
        let Observed::Instance(picture) = self.observed(offset) else { return None };
        let py = self.py;
        let find = || objects::class_with(py, picture.version);
        let class = self.classes.entry(picture.version).or_insert_with(find).clone()?;
        let id = self.fact(&class, Origin::Picture).id;
        self.pictures.entry(id).or_insert(picture);
        Some(id)
    }

    fn observed(&self, offset: u32) -> Observed {
        self.here().lessons.observed.get(&offset).cloned().unwrap_or(Observed::Nothing)
    }

    fn blocked(&self, offset: u32) -> bool {
        self.here().lessons.blocked.contains(&offset)
    }
}
