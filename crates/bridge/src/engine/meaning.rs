//! What a live object means as something that is called or looked into, told by what it *is*, never by its name alone.
//!
//! In: an object. Out: `facts::Meaning`. A builtin function is recognised by its C definition: the module object it is
//! bound to and that module's own definition, so a user's function named `len` is not mistaken for the real one.

use std::ffi::CStr;

use overdrive_frontend_python::facts::{Builtin, MathFn, Meaning};
use pyo3::ffi;
use pyo3::prelude::{Bound, PyAny};

/// The meaning of `value`. Runs no Python code.
pub(crate) fn meaning(value: &Bound<'_, PyAny>) -> Meaning {
    let ptr = value.as_ptr();
    // SAFETY: `ptr` is alive for the whole call and only exact types are looked into.
    unsafe {
        if ffi::PyModule_CheckExact(ptr) != 0 {
            return match module_definition(ptr) {
                Some(b"math") => Meaning::MathModule,
                _ if is_loaded_as(value, c"numpy") => Meaning::NumpyModule,
                _ => Meaning::Module,
            };
        }
        if ffi::PyFunction_Check(ptr) != 0 || super::jit::is_jit_function(ptr) {
            return Meaning::PythonFunction;
        }
        if super::parallel::is_prange(ptr) {
            return Meaning::Builtin(Builtin::Prange);
        }
        if ffi::PyCFunction_CheckExact(ptr) != 0 {
            return builtin_function(ptr);
        }
        if ptr == method_of(&raw mut ffi::PyList_Type, c"append") {
            return Meaning::ListAppend;
        }
        if ptr == method_of(&raw mut ffi::PyDict_Type, c"get") {
            return Meaning::DictGet;
        }
        builtin_type(ptr)
    }
}

/// The static types are compared by address.
fn builtin_type(ptr: *mut ffi::PyObject) -> Meaning {
    let is = |ty: *mut ffi::PyTypeObject| ptr == ty.cast::<ffi::PyObject>();
    let known = if is(&raw mut ffi::PyLong_Type) {
        Builtin::Int
    } else if is(&raw mut ffi::PyFloat_Type) {
        Builtin::Float
    } else if is(&raw mut ffi::PyBool_Type) {
        Builtin::Bool
    } else if is(&raw mut ffi::PyRange_Type) {
        Builtin::Range
    } else if is(&raw mut ffi::PyEnum_Type) {
        Builtin::Enumerate
    } else if is(&raw mut ffi::PyZip_Type) {
        Builtin::Zip
    } else {
        return Meaning::Nothing;
    };
    Meaning::Builtin(known)
}

/// # Safety
/// `ptr` is a live builtin function.
unsafe fn builtin_function(ptr: *mut ffi::PyObject) -> Meaning {
    // SAFETY: by contract; the definition's name is a static C string.
    let (owner, name) = unsafe {
        let method = (*ptr.cast::<ffi::PyCFunctionObject>()).m_ml;
        (ffi::PyCFunction_GetSelf(ptr), CStr::from_ptr((*method).ml_name).to_bytes())
    };
    if owner.is_null() {
        return Meaning::Nothing;
    }
    // SAFETY: the function keeps its module alive.
    match unsafe { module_definition(owner) } {
        Some(b"builtins") => builtin(name).map_or(Meaning::Nothing, Meaning::Builtin),
        Some(b"math") => math(name).map_or(Meaning::Nothing, Meaning::Math),
        // It counts the references of its caller's variables and stack, of which native code has fewer.
        Some(b"sys") if name == b"getrefcount" => Meaning::Builtin(Builtin::FrameReader),
        _ => Meaning::Nothing,
    }
}

/// Name in the C definition of an exact module, which Python code cannot change.
///
/// # Safety
/// `module` is a live object.
unsafe fn module_definition<'a>(module: *mut ffi::PyObject) -> Option<&'a [u8]> {
    // SAFETY: by contract; a definition and its name are static.
    unsafe {
        if ffi::PyModule_CheckExact(module) == 0 {
            return None;
        }
        let definition = ffi::PyModule_GetDef(module);
        if definition.is_null() {
            return None;
        }
        Some(CStr::from_ptr((*definition).m_name).to_bytes())
    }
}

/// True when `sys.modules[name]` is this very object.
fn is_loaded_as(value: &Bound<'_, PyAny>, name: &CStr) -> bool {
    // SAFETY: the GIL is held (`Bound`); both calls give borrowed references.
    unsafe {
        let modules = ffi::PyImport_GetModuleDict();
        !modules.is_null() && ffi::PyDict_GetItemString(modules, name.as_ptr()) == value.as_ptr()
    }
}

/// A method descriptor of a built-in type, borrowed: such a type is immutable, so its dictionary entry never changes.
fn method_of(ty: *mut ffi::PyTypeObject, name: &CStr) -> *mut ffi::PyObject {
    // SAFETY: GIL held by every caller in this module; the type and its dictionary live as long as the process.
    unsafe {
        let key = ffi::PyUnicode_InternFromString(name.as_ptr());
        if key.is_null() {
            ffi::PyErr_Clear();
            return std::ptr::null_mut();
        }
        let found = ffi::PyObject_GetAttr(ty.cast(), key);
        ffi::Py_DECREF(key);
        if found.is_null() {
            ffi::PyErr_Clear();
        } else {
            ffi::Py_DECREF(found);
        }
        found
    }
}

fn builtin(name: &[u8]) -> Option<Builtin> {
    Some(match name {
        b"abs" => Builtin::Abs,
        b"min" => Builtin::Min,
        b"max" => Builtin::Max,
        b"len" => Builtin::Len,
        b"round" => Builtin::Round,
        b"locals" | b"vars" | b"dir" | b"eval" | b"exec" => Builtin::FrameReader,
        _ => return None,
    })
}

fn math(name: &[u8]) -> Option<MathFn> {
    Some(match name {
        b"sqrt" => MathFn::Sqrt,
        b"exp" => MathFn::Exp,
        b"expm1" => MathFn::Expm1,
        b"log" => MathFn::Log,
        b"log2" => MathFn::Log2,
        b"log10" => MathFn::Log10,
        b"log1p" => MathFn::Log1p,
        b"sin" => MathFn::Sin,
        b"cos" => MathFn::Cos,
        b"tan" => MathFn::Tan,
        b"asin" => MathFn::Asin,
        b"acos" => MathFn::Acos,
        b"atan" => MathFn::Atan,
        b"atan2" => MathFn::Atan2,
        b"sinh" => MathFn::Sinh,
        b"cosh" => MathFn::Cosh,
        b"tanh" => MathFn::Tanh,
        b"erf" => MathFn::Erf,
        b"erfc" => MathFn::Erfc,
        b"fmod" => MathFn::Fmod,
        b"pow" => MathFn::Pow,
        b"hypot" => MathFn::Hypot,
        b"fabs" => MathFn::Fabs,
        b"floor" => MathFn::Floor,
        b"ceil" => MathFn::Ceil,
        b"trunc" => MathFn::Trunc,
        b"copysign" => MathFn::Copysign,
        b"isnan" => MathFn::IsNan,
        b"isinf" => MathFn::IsInf,
        b"isfinite" => MathFn::IsFinite,
        _ => return None,
    })
}
