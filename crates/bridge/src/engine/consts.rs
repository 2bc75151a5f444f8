//! The objects that one version's code refers to, and how they are kept without leaking anybody.
//!
//! In: the constants of a translation and where each was found. Out: addresses to bake into code, and a `hold` that
//! makes them valid for one activation. Machine code may use a constant until it returns, so somebody must own it that
//! long. But a version must not own what its function can be reached from: the collector cannot see through code
//! objects, so the cycle function → code → native → module → function would never be freed, and a global that the
//! program deletes would be finalised late. So only what cannot lead back is owned for good; the rest is owned while an
//! activation runs, after a check that it is still there.

use overdrive_frontend_python::facts::{Body, FactId, Part};
use overdrive_ir::function::ConstRef;
use pyo3::ffi;
use pyo3::prelude::{Bound, Py, PyAny, PyAnyMethods, PyResult, Python};
use pyo3::types::{PyTuple, PyTupleMethods};

use super::oracle::{Code, Found, Origin};

/// Constants of one version.
#[derive(Default)]
pub(crate) struct Consts {
    addresses: Vec<usize>,
    /// Owned as long as the version.
    held: Vec<Py<PyAny>>,
    pins: Vec<Pin>,
}

/// An object that is owned only while an activation runs.
struct Pin {
    object: *mut ffi::PyObject,
    alive: Alive,
}

/// How to tell that the object at the address is still the one that was meant.
enum Alive {
    /// A weak reference to it.
    Weak(Py<PyAny>),
    /// The dictionary that it was found in (owned by the unit's function or by `held`), the key, and its type.
    InDict { dict: *mut ffi::PyObject, key: Py<PyAny>, ty: *mut ffi::PyTypeObject },
}

// SAFETY: the raw pointers are used under the GIL only.
unsafe impl Send for Consts {}
// SAFETY: as above.
unsafe impl Sync for Consts {}

/// What constants are resolved against.
pub(crate) struct Scope<'a, 'py> {
    pub(crate) code: &'a Bound<'py, PyAny>,
    pub(crate) globals: &'a Bound<'py, PyAny>,
    pub(crate) builtins: &'a Bound<'py, PyAny>,
    pub(crate) found: &'a [Found<'py>],
    /// By `Body`.
    pub(crate) bodies: &'a [Code<'py>],
    /// NumPy's True and False; they live as long as the process.
    pub(crate) np_bools: (*mut ffi::PyObject, *mut ffi::PyObject),
}

impl Consts {
    /// Resolves `refs`, in order.
    ///
    /// # Errors
    /// `IndexError` for a reference to something that the code object does not have (a front-end bug).
    pub(crate) fn resolve(refs: &[ConstRef], scope: &Scope<'_, '_>) -> PyResult<Consts> {
        let py = scope.code.py();
        let code_consts = scope.code.getattr("co_consts")?.cast_into::<PyTuple>()?;
        let names = scope.code.getattr("co_names")?.cast_into::<PyTuple>()?;
        let mut out = Consts::default();
        for r in refs {
            // Everything but facts is owned by the interpreter, the code object or the running function.
            let address = match r {
                ConstRef::None => py.None().as_ptr(),
                ConstRef::True => true_or_false(true),
                ConstRef::False => true_or_false(false),
                ConstRef::CodeConst(n) => code_consts.get_borrowed_item(*n as usize)?.as_ptr(),
                ConstRef::Name(n) => names.get_borrowed_item(*n as usize)?.as_ptr(),
                ConstRef::Globals => scope.globals.as_ptr(),
                ConstRef::Builtins => scope.builtins.as_ptr(),
                ConstRef::NpTrue => scope.np_bools.0,
                ConstRef::NpFalse => scope.np_bools.1,
                ConstRef::Fact(n) => out.fact(py, FactId(*n), scope)?,
            };
            out.addresses.push(address as usize);
        }
        Ok(out)
    }

    /// By `ConstId`.
    pub(crate) fn addresses(&self) -> &[usize] {
        &self.addresses
    }

    /// The same, as objects.
    pub(crate) fn objects(&self) -> &[*mut ffi::PyObject] {
        // SAFETY: an address and a pointer have the same layout, and these are addresses of objects.
        unsafe { std::slice::from_raw_parts(self.addresses.as_ptr().cast(), self.addresses.len()) }
    }

    /// True when nothing has to be held per activation.
    pub(crate) fn is_unpinned(&self) -> bool {
        self.pins.is_empty()
    }

    /// Owns every constant until `release`. False, and nothing owned, when one of them is gone.
    ///
    /// # Safety
    /// The GIL is held.
    #[inline]
    pub(crate) unsafe fn hold(&self) -> bool {
        // SAFETY: an object is referenced only after it was found alive; no Python code runs in between.
        unsafe {
            if !self.pins.iter().all(|pin| pin.is_alive()) {
                return false;
            }
            self.pins.iter().for_each(|pin| ffi::Py_INCREF(pin.object));
        }
        true
    }

    /// Ends one `hold`. May run finalisers.
    ///
    /// # Safety
    /// The GIL is held, and a `hold` is pending.
    #[inline]
    pub(crate) unsafe fn release(&self) {
        // SAFETY: by contract each pin is owned once by this activation.
        unsafe { self.pins.iter().for_each(|pin| ffi::Py_DECREF(pin.object)) }
    }

    fn fact(&mut self, py: Python<'_>, id: FactId, scope: &Scope<'_, '_>) -> PyResult<*mut ffi::PyObject> {
        let missing = || pyo3::exceptions::PyIndexError::new_err("a fact that the oracle did not give");
        let found = scope.found.get(id.0 as usize).ok_or_else(missing)?;
        let object = &found.object;
        let address = object.as_ptr();
        if self.held.iter().any(|h| h.as_ptr() == address) || self.pins.iter().any(|p| p.object == address) {
            return Ok(address);
        }
        if let Origin::Part(body, part) = &found.origin {
            // All of it lives as long as the callee with its code.
            let (callable, code) = self.callee(py, *body, scope)?;
            return Ok(match part {
                Part::Code => code,
                Part::Defaults => {
                    // Nothing but numbers.
                    self.held.push(object.clone().unbind());
                    address
                }
                Part::Const(_) | Part::Name(_) | Part::Globals | Part::Builtins => {
                    debug_assert!(!callable.is_null());
                    address
                }
            });
        }
        if leads_nowhere(object) {
            self.held.push(object.clone().unbind());
            return Ok(address);
        }
        let alive = match weak_reference(object) {
            Some(weak) => Some(Alive::Weak(weak)),
            None => self.place(py, &found.origin, object, scope)?,
        };
        match alive {
            Some(alive) => self.pins.push(Pin { object: address, alive }),
            // A sample without a place of its own: owning it is the only way.
            None => self.held.push(object.clone().unbind()),
        }
        Ok(address)
    }

    /// Keeps a callee and the code that it runs.
    fn callee(
        &mut self,
        py: Python<'_>,
        body: Body,
        scope: &Scope<'_, '_>,
    ) -> PyResult<(*mut ffi::PyObject, *mut ffi::PyObject)> {
        let missing = || pyo3::exceptions::PyIndexError::new_err("a callee that the oracle did not give");
        let of = scope.bodies.get(body.0 as usize).ok_or_else(missing)?;
        let callable = self.fact(py, of.callable.ok_or_else(missing)?, scope)?;
        let code = of.code.as_ptr();
        if !self.pins.iter().any(|pin| pin.object == code) {
            let alive = weak_reference(&of.code).map(Alive::Weak).ok_or_else(missing)?;
            self.pins.push(Pin { object: code, alive });
        }
        Ok((callable, code))
    }

    /// The dictionary entry that a fact was found in.
    fn place(
        &mut self,
        py: Python<'_>,
        origin: &Origin,
        object: &Bound<'_, PyAny>,
        scope: &Scope<'_, '_>,
    ) -> PyResult<Option<Alive>> {
        let (dict, body, name) = match origin {
            Origin::Global(body, name) => (None, *body, *name),
            Origin::Attr(body, base, name) => {
                // The module must stay for its dictionary to stay.
                let module = self.fact(py, *base, scope)?;
                // SAFETY: facts with attributes are modules.
                (Some(unsafe { ffi::PyModule_GetDict(module) }), *body, *name)
            }
            Origin::Sample | Origin::Picture | Origin::TypeAttr | Origin::Part(..) => return Ok(None),
        };
        let missing = || pyo3::exceptions::PyIndexError::new_err("a body that the oracle did not give");
        let of = scope.bodies.get(body.0 as usize).ok_or_else(missing)?;
        if body != Body::OWN {
            // Its function must stay for the dictionaries to stay.
            self.callee(py, body, scope)?;
        }
        let key = of.names.get_item(name as usize)?;
        let dict = match dict {
            Some(dict) => dict,
            None if of.globals.contains(&key)? => of.globals.as_ptr(),
            None => of.builtins.as_ptr(),
        };
        let ty = object.get_type().as_ptr().cast();
        Ok(Some(Alive::InDict { dict, key: key.unbind(), ty }))
    }
}

impl Pin {
    /// # Safety
    /// The GIL is held; pins made before this one (the module of a dictionary) are alive.
    #[inline]
    unsafe fn is_alive(&self) -> bool {
        match &self.alive {
            // SAFETY: an exact weak reference; its first field is the object, or None once that died.
            Alive::Weak(weak) => unsafe {
                (*weak.as_ptr().cast::<ffi::PyWeakReference>()).wr_object == self.object
            },
            // SAFETY: the dictionary is owned by the function that is being called, or by a module checked before.
            Alive::InDict { dict, key, ty } => unsafe {
                let value = ffi::PyDict_GetItemWithError(*dict, key.as_ptr());
                if value.is_null() {
                    ffi::PyErr_Clear();
                }
                value == self.object && ffi::Py_TYPE(value) == *ty
            },
        }
    }
}

fn true_or_false(value: bool) -> *mut ffi::PyObject {
    // SAFETY: addresses of the two singletons.
    unsafe { if value { ffi::Py_True() } else { ffi::Py_False() } }
}

/// True for objects that no function can be reached from and whose end nobody can observe.
fn leads_nowhere(object: &Bound<'_, PyAny>) -> bool {
    let ptr = object.as_ptr();
    // SAFETY: reads types and flags of live objects.
    unsafe {
        let ty = ffi::Py_TYPE(ptr);
        let is_static = |t: *mut ffi::PyTypeObject| (*t).tp_flags & ffi::Py_TPFLAGS_HEAPTYPE == 0;
        if ffi::PyType_Check(ptr) != 0 {
            return is_static(ptr.cast());
        }
        if ffi::PyCFunction_CheckExact(ptr) != 0 {
            let owner = ffi::PyCFunction_GetSelf(ptr);
            // The builtin function of an extension module; a method of an object leads to that object.
            return owner.is_null() || ffi::PyModule_CheckExact(owner) != 0 && has_definition(owner);
        }
        if ffi::PyModule_CheckExact(ptr) != 0 {
            return has_definition(ptr);
        }
        if is_static(ty) && (*ty).tp_flags & ffi::Py_TPFLAGS_HAVE_GC == 0 {
            return true;
        }
        ty == &raw mut ffi::PyMethodDescr_Type || super::input::type_name(object) == "ufunc"
    }
}

/// True for a module that is made by an extension, not by Python source.
unsafe fn has_definition(module: *mut ffi::PyObject) -> bool {
    // SAFETY: `module` is an exact module.
    unsafe { !ffi::PyModule_GetDef(module).is_null() }
}

fn weak_reference(object: &Bound<'_, PyAny>) -> Option<Py<PyAny>> {
    // SAFETY: gives an owned reference, or null with TypeError set. Without a callback it may be shared with others.
    unsafe {
        let weak = ffi::PyWeakref_NewRef(object.as_ptr(), std::ptr::null_mut());
        if weak.is_null() {
            ffi::PyErr_Clear();
        }
        Bound::from_owned_ptr_or_opt(object.py(), weak).map(Bound::unbind)
    }
}
