//! For tests alone: Python calls an entry of the table, an exit or a profile as machine code would.
//!
//! In: Python objects, ints and floats. Out: the entry's result; `...` stands for null in both directions, and
//! `NotImplemented` for "declined". Private functions of `overdrive._core` (`_table`, `_exit`, `_observe`, `_types`).
#![expect(unsafe_code, reason = "calls entries by address and reads references out of spilled values")]

use std::ffi::c_void;
use std::ptr;

use overdrive_base::flavour::{Flavour, KnownType, Ty};
use overdrive_base::table::{Entry, Failure};
use overdrive_codegen::Rt;
use overdrive_ir::entities::{ConstId, Value};
use overdrive_ir::exit::{Exit, ExitKind, Own, Slot};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::{
    Bound, Py, PyAny, PyAnyMethods, PyErr, PyModule, PyModuleMethods, PyResult, Python, pyfunction,
    wrap_pyfunction,
};
use pyo3::types::{PyDict, PyDictMethods, PyList, PyTuple, PyTupleMethods};

use super::profile::Profile;
use super::{address, drop_owned, iterate, materialise, object_layout};

/// Adds the probes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_table, module)?)?;
    module.add_function(wrap_pyfunction!(_exit, module)?)?;
    module.add_function(wrap_pyfunction!(_observe, module)?)?;
    module.add_function(wrap_pyfunction!(_types, module)?)
}

/// An argument as the machine passes it.
#[derive(Clone, Copy)]
enum Word {
    P(*mut c_void),
    I(i64),
    F(f64),
    S(f32),
}

/// How a machine type is taken out of a word. The shape has been compared before.
trait FromWord {
    fn from_word(word: Option<Word>) -> Self;
}

impl FromWord for *mut c_void {
    fn from_word(word: Option<Word>) -> Self {
        if let Some(Word::P(p)) = word { p } else { ptr::null_mut() }
    }
}

impl FromWord for i64 {
    fn from_word(word: Option<Word>) -> Self {
        if let Some(Word::I(i)) = word { i } else { 0 }
    }
}

impl FromWord for f64 {
    fn from_word(word: Option<Word>) -> Self {
        if let Some(Word::F(f)) = word { f } else { 0.0 }
    }
}

impl FromWord for f32 {
    fn from_word(word: Option<Word>) -> Self {
        if let Some(Word::S(s)) = word { s } else { 0.0 }
    }
}

type P = *mut c_void;
type I = i64;
type F = f64;
type S = f32;

/// What came back, as a machine word.
trait IntoWord {
    fn into_word(self) -> usize;
}

impl IntoWord for *mut c_void {
    fn into_word(self) -> usize {
        self as usize
    }
}

impl IntoWord for i64 {
    fn into_word(self) -> usize {
        self as usize
    }
}

impl IntoWord for u8 {
    fn into_word(self) -> usize {
        usize::from(self)
    }
}

macro_rules! shapes {
    ($address:expr, $words:expr, $shape:expr; $($text:literal: ($($arg:ident)*) -> $result:ty;)*) => {
        match $shape {
            $($text => {
                // SAFETY: the entry has this signature (see `overdrive_codegen::abi`); references are borrowed from
                // the caller's arguments, and the GIL is held.
                let function: unsafe extern "C" fn($($arg),*) -> $result = unsafe { std::mem::transmute($address) };
                let mut words = $words.iter().copied();
                let _ = &mut words;
                // SAFETY: as above.
                Some(unsafe { function($(<$arg as FromWord>::from_word(words.next())),*) }.into_word())
            })*
            _ => None,
        }
    };
}

/// A reference that the callee takes over.
fn given(arg: &Bound<'_, PyAny>) -> *mut PyObject {
    let object = reference(arg);
    // SAFETY: null, or alive.
    unsafe { ffi::Py_XINCREF(object) };
    object
}

/// Calls an entry of the object table by its name.
#[pyfunction]
#[pyo3(signature = (name, *args))]
fn _table<'py>(py: Python<'py>, name: &str, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let entry = Entry::ALL.iter().copied().find(|e| e.name() == name);
    let entry = entry.filter(|e| !matches!(e, Entry::Observe | Entry::ObserveAttr | Entry::Dealloc));
    let Some(entry) = entry else { return Err(PyValueError::new_err(format!("no entry {name:?}"))) };
    let signature = entry.signature();
    let n_fixed = signature.args.len();
    if args.len() < n_fixed || (args.len() > n_fixed && !signature.variadic) {
        return Err(PyTypeError::new_err(format!("{name} takes {n_fixed} arguments, not {}", args.len())));
    }

    let mut words = Vec::new();
    let mut shape = String::new();
    for (i, (ty, arg)) in signature.args.iter().zip(args.iter()).enumerate() {
        let (word, letter) = match ty {
            Ty::Obj if entry.takes_over(i) => (Word::P(given(&arg).cast()), 'P'),
            Ty::Obj | Ty::Ptr => (Word::P(reference(&arg).cast()), 'P'),
            Ty::I64 | Ty::I1 => (Word::I(arg.extract()?), 'I'),
            Ty::F64 => (Word::F(arg.extract()?), 'F'),
            Ty::F32 => (Word::S(arg.extract()?), 'S'),
        };
        words.push(word);
        shape.push(letter);
    }
    // The free slot first; whatever the callee leaves there is nobody's.
    let mut array = vec![ptr::null_mut()];
    let variable = args.iter().skip(n_fixed);
    array.extend(variable.map(|arg| if entry.takes_over_variable() { given(&arg) } else { reference(&arg) }));
    if signature.variadic {
        words.push(Word::P(array.as_mut_ptr().wrapping_add(1).cast()));
        words.push(Word::I(array.len() as i64 - 1));
        shape.push_str("PI");
    }
    let mut result = 0_u64;
    if signature.failure == Failure::Declines {
        words.push(Word::P((&raw mut result).cast()));
        shape.push('P');
    }
    shape.push(match (signature.failure, signature.result) {
        (Failure::Declines, _) | (_, Some(Ty::I1)) => 'b',
        (_, Some(Ty::I64)) => 'i',
        _ => 'p',
    });

    let returned = shapes! { address(entry), words, shape.as_str();
        "IPPp": (I P P) -> P;
        "IPp": (I P) -> P;
        "Pi": (P) -> I;
        "PPi": (P P) -> I;
        "PPp": (P P) -> P;
        "PPPi": (P P P) -> I;
        "PPPp": (P P P) -> P;
        "PPPPp": (P P P P) -> P;
        "PPPPPPPp": (P P P P P P P) -> P;
        "PPPPb": (P P P P) -> u8;
        "PPPb": (P P P) -> u8;
        "PPb": (P P) -> u8;
        "Pb": (P) -> u8;
        "Pp": (P) -> P;
        "PPPIp": (P P P I) -> P;
        "PPPPIp": (P P P P I) -> P;
        "PPIp": (P P I) -> P;
        "PIp": (P I) -> P;
        "PIIp": (P I I) -> P;
        "PIPp": (P I P) -> P;
        "Ip": (I) -> P;
        "IIIp": (I I I) -> P;
        "PIFi": (P I F) -> I;
        "PIIi": (P I I) -> I;
        "Fp": (F) -> P;
        "Sp": (S) -> P;
        "IIPb": (I I P) -> u8;
        "IPPb": (I P P) -> u8;
        "FPb": (F P) -> u8;
        "FFPb": (F F P) -> u8;
        "IIFb": (I I F) -> u8;
        "i": () -> I;
        "b": () -> u8;
    };
    let Some(word) = returned else {
        return Err(PyValueError::new_err(format!("{name}: no probe for the shape {shape}")));
    };

    match (signature.failure, signature.result) {
        (Failure::Declines, ty) => {
            if word == 0 {
                return Ok(py.NotImplemented().into_bound(py));
            }
            match ty {
                Some(Ty::Obj) => owned(py, result as usize),
                Some(Ty::F64) => Ok(f64::from_bits(result).into_pyobject_any(py)),
                _ => Ok((result as i64).into_pyobject_any(py)),
            }
        }
        (Failure::Negative, _) if (word as i64) < 0 => Err(PyErr::fetch(py)),
        (_, Some(Ty::I64)) => Ok((word as i64).into_pyobject_any(py)),
        (_, Some(Ty::I1)) => Ok((word != 0).into_pyobject_any(py)),
        (_, Some(Ty::Obj)) if entry == Entry::Next && word == 0 => {
            // SAFETY: right after a null from `next`, as its documentation asks.
            match unsafe { iterate::next_failed() } {
                0 => Ok(py.Ellipsis().into_bound(py)),
                _ => Err(PyErr::fetch(py)),
            }
        }
        _ => owned(py, word),
    }
}

/// Small numbers as Python objects, whose conversion cannot fail.
trait IntoAny {
    fn into_pyobject_any(self, py: Python<'_>) -> Bound<'_, PyAny>;
}

impl IntoAny for i64 {
    fn into_pyobject_any(self, py: Python<'_>) -> Bound<'_, PyAny> {
        // SAFETY: a new reference (a failing allocation panics into MemoryError's stead at the door).
        unsafe { Bound::from_owned_ptr(py, ffi::PyLong_FromLongLong(self)) }
    }
}

impl IntoAny for f64 {
    fn into_pyobject_any(self, py: Python<'_>) -> Bound<'_, PyAny> {
        // SAFETY: as above.
        unsafe { Bound::from_owned_ptr(py, ffi::PyFloat_FromDouble(self)) }
    }
}

impl IntoAny for bool {
    fn into_pyobject_any(self, py: Python<'_>) -> Bound<'_, PyAny> {
        // SAFETY: as above.
        unsafe { Bound::from_owned_ptr(py, ffi::PyBool_FromLong(self.into())) }
    }
}

/// The borrowed reference that an argument stands for.
fn reference(arg: &Bound<'_, PyAny>) -> *mut PyObject {
    if arg.is(arg.py().Ellipsis()) { ptr::null_mut() } else { arg.as_ptr() }
}

/// A result that the entry gave away.
fn owned(py: Python<'_>, word: usize) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: an owned reference, or null with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, word as *mut PyObject) }
}

/// Rebuilds the slots of an exit: `("obj", value, owned)`, `("number", flavour, value, box, owned)`, `("const", object)`,
/// `("either", condition, slot, slot)`, `("tuple", [slot])`, `("range", next, stop, step)`, `("seq", slot, position)`,
/// `("enumerate", count, slot)`, `("zip", [slot])`, `("none",)`,
/// `("empty",)`. Gives a list, `...` for unset; with `drop` it releases
/// what the exit owns instead.
#[pyfunction]
#[pyo3(signature = (slots, drop = false))]
fn _exit<'py>(py: Python<'py>, slots: &Bound<'py, PyAny>, drop: bool) -> PyResult<Bound<'py, PyAny>> {
    let mut spill = Spill::default();
    let mut stack = Vec::new();
    for slot in slots.try_iter()? {
        stack.push(spill.slot(&slot?)?);
    }
    let exit =
        Exit { kind: ExitKind::Resume, offset: 0, origin: 0, locals: vec![], stack, reason: String::new() };
    for object in std::mem::take(&mut spill.owned) {
        let _ = object.into_ptr(); // from here on owned by the exit
    }
    let consts: Vec<_> = spill.consts.iter().map(Py::as_ptr).collect();
    // SAFETY: values were spilled in the order of the slots, the owned ones hold a reference; GIL held.
    unsafe {
        if drop {
            drop_owned(&exit, spill.values.as_ptr());
            return Ok(py.None().into_bound(py));
        }
        let Some(state) = materialise(&exit, spill.values.as_ptr(), &consts) else {
            return Err(PyErr::fetch(py));
        };
        let objects = state.stack.into_iter().map(|object| match object.is_null() {
            true => py.Ellipsis().into_bound(py),
            false => Bound::from_owned_ptr(py, object),
        });
        Ok(PyList::new(py, objects.collect::<Vec<_>>())?.into_any())
    }
}

/// Values in spill order, as native code would leave them.
#[derive(Default)]
struct Spill {
    values: Vec<u64>,
    owned: Vec<Py<PyAny>>,
    consts: Vec<Py<PyAny>>,
}

impl Spill {
    fn value(&mut self, bits: u64) -> Value {
        self.values.push(bits);
        Value(self.values.len() as u32 - 1)
    }

    fn object(&mut self, object: &Bound<'_, PyAny>, own: Own) -> Value {
        let reference = reference(object);
        if own == Own::Owned && !reference.is_null() {
            self.owned.push(object.clone().unbind());
        }
        self.value(reference as u64)
    }

    fn slots(&mut self, slots: &Bound<'_, PyAny>) -> PyResult<Vec<Slot>> {
        slots.try_iter()?.map(|slot| self.slot(&slot?)).collect()
    }

    fn slot(&mut self, spec: &Bound<'_, PyAny>) -> PyResult<Slot> {
        let own = |i: usize| -> PyResult<Own> {
            Ok(if spec.get_item(i)?.extract()? { Own::Owned } else { Own::Borrowed })
        };
        let int = |i: usize| -> PyResult<u64> { Ok(spec.get_item(i)?.extract::<i64>()? as u64) };
        let kind: String = spec.get_item(0)?.extract()?;
        Ok(match kind.as_str() {
            "empty" => Slot::Empty,
            "none" => Slot::None,
            "obj" => {
                let own = own(2)?;
                Slot::Obj(self.object(&spec.get_item(1)?, own), own)
            }
            "number" => {
                let name: String = spec.get_item(1)?.extract()?;
                let flavour = Flavour::ALL.into_iter().find(|f| f.name() == name);
                let flavour = flavour.ok_or_else(|| PyValueError::new_err(name))?;
                let number = spec.get_item(2)?;
                let bits = match flavour.ty() {
                    Ty::F64 => number.extract::<f64>()?.to_bits(),
                    Ty::F32 => u64::from(number.extract::<f32>()?.to_bits()),
                    Ty::I1 => u64::from(number.extract::<bool>()?),
                    _ => number.extract::<i64>()? as u64,
                };
                let value = self.value(bits);
                let boxed = match spec.len()? {
                    3 => None,
                    _ => {
                        let own = own(4)?;
                        Some((self.object(&spec.get_item(3)?, own), own))
                    }
                };
                Slot::Number { flavour, value, boxed }
            }
            "const" => {
                self.consts.push(spec.get_item(1)?.unbind());
                Slot::Const(ConstId(self.consts.len() as u32 - 1))
            }
            "either" => {
                let cond = spec.get_item(1)?.extract::<bool>()?;
                Slot::Either {
                    cond: self.value(u64::from(cond)),
                    then: Box::new(self.slot(&spec.get_item(2)?)?),
                    els: Box::new(self.slot(&spec.get_item(3)?)?),
                }
            }
            "tuple" => Slot::Tuple(self.slots(&spec.get_item(1)?)?),
            "zip" => Slot::Zip(self.slots(&spec.get_item(1)?)?),
            "range" => Slot::RangeIter {
                next: self.value(int(1)?),
                stop: self.value(int(2)?),
                step: self.value(int(3)?),
            },
            "seq" => {
                Slot::SeqIter { seq: Box::new(self.slot(&spec.get_item(1)?)?), position: self.value(int(2)?) }
            }
            "enumerate" => {
                Slot::Enumerate { count: self.value(int(1)?), iter: Box::new(self.slot(&spec.get_item(2)?)?) }
            }
            _ => return Err(PyValueError::new_err(kind)),
        })
    }
}

/// Shows objects to one profile slot, as machine code would. Gives what was observed, and how many of them had to be
/// looked at because the filter did not stop them.
#[pyfunction]
#[pyo3(signature = (*objects))]
fn _observe(py: Python<'_>, objects: &Bound<'_, PyTuple>) -> (String, usize) {
    let profile = Profile::new(2);
    let mut rt = Rt { code_base: ptr::null(), owner: ptr::null_mut(), profile: profile.words() };
    let mut looked = 0;
    for object in objects.iter() {
        // SAFETY: the profile is alive and has a slot 1; GIL held.
        unsafe {
            if *rt.profile.add(1) != ffi::Py_TYPE(object.as_ptr()) as usize {
                looked += 1;
                super::profile::observe(&mut rt, 1, object.as_ptr());
            }
        }
    }
    (format!("{:?}", profile.observed(py, 1)), looked)
}

/// The types and dtypes of the layout by name, as addresses; empty when there is no layout.
#[pyfunction]
fn _types(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let names = PyDict::new(py);
    if let Some(layout) = object_layout(py) {
        for ty in KnownType::ALL {
            names.set_item(ty.name(), layout.types[ty as usize])?;
        }
        for dtype in overdrive_base::flavour::DType::ALL {
            names.set_item(format!("dtype {}", dtype.name()), layout.descrs[dtype as usize])?;
        }
    }
    Ok(names)
}
