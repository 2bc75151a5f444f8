//! The memory of this process as `ObjectLayout`: offsets of the built CPython and of NumPy's C API, addresses of types.
//!
//! The offsets are those of the headers; `self_test` compares each with behaviour once, and without agreement there is
//! no layout (no native code) or no NumPy in it. NumPy is only looked for among the modules already imported, without
//! running Python code; ask again after an import.
#![expect(unsafe_code, reason = "reads objects at the offsets that it is there to check")]

use std::mem::offset_of;
use std::ptr;
use std::sync::OnceLock;

use overdrive_base::flavour::{DType, KnownType};
use overdrive_base::layout::{IntLayout, ObjectLayout};
use pyo3::ffi::{self, Py_ssize_t, PyObject, PyTypeObject};
use pyo3::prelude::Python;
use pyo3::sync::PyOnceLock;

use super::boxing;
use super::iterate;
use super::members;
use super::names::{Peek, peek};
use super::python::{Name, Owned};
use super::singles;
use crate::tensor::native;

/// Value of a NumPy scalar: right behind the object's head.
pub(super) const NP_SCALAR_VALUE: i32 = 16;

/// `PyArrayObject_fields`, the same in NumPy 1 and 2.
pub(crate) mod array {
    pub(crate) const DATA: i32 = 16;
    pub(crate) const NDIM: i32 = 24;
    pub(crate) const DIMS: i32 = 32;
    pub(crate) const STRIDES: i32 = 40;
    pub(crate) const DESCR: i32 = 56;
    pub(crate) const FLAGS: i32 = 64;
    pub(crate) const ALIGNED: i32 = 0x0100;
    pub(crate) const WRITEABLE: i32 = 0x0400;
}

/// The layout of this process, or `None` when it is not what we were built for (then nothing may run natively).
pub fn object_layout(py: Python<'_>) -> Option<ObjectLayout> {
    // Waits without the GIL: making objects can run Python, and then another thread may come here.
    static SOUND: PyOnceLock<bool> = PyOnceLock::new();
    let mut layout = headers();
    // SAFETY: the GIL is held; the test looks at objects that it makes.
    if !*SOUND.get_or_init(py, || unsafe { self_test(&layout) }.is_some()) {
        return None;
    }
    singles::find(&mut layout);
    if let Some(numpy) = numpy() {
        for ty in KnownType::ALL {
            if numpy.types[ty as usize] != 0 {
                layout.types[ty as usize] = numpy.types[ty as usize];
            }
        }
        layout.descrs = numpy.descrs;
        layout.np_true = numpy.true_;
        layout.np_false = numpy.false_;
    }
    Some(layout)
}

/// What CPython's headers say, without NumPy.
fn headers() -> ObjectLayout {
    // SAFETY: addresses of singletons, which exist as long as the process.
    let (none, true_, false_) = unsafe { (ffi::Py_None(), ffi::Py_True(), ffi::Py_False()) };
    ObjectLayout {
        int: if cfg!(Py_3_12) { IntLayout::Tagged } else { IntLayout::SignedSize },
        immortal: cfg!(Py_3_12),
        ob_type: 8,
        type_version: offset_of!(PyTypeObject, tp_version_tag) as i32,
        instance: members::INSTANCE,
        class_names: offset_of!(ffi::PyHeapTypeObject, ht_cached_keys) as i32,
        class_names_used: members::NAMES_USED,
        var_size: 16,
        list_items: 24,
        list_allocated: 32,
        tuple_items: 24,
        float_value: 16,
        small_ints: 0,
        small_int_size: 32,
        str_state: 32,
        str_state_mask: 0x7c,
        str_state_ascii: 0x64,
        str_ascii_data: if cfg!(Py_3_12) { 40 } else { 48 },
        characters: 0,
        bytes_data: 32,
        bytearray_start: 40,
        array_data: array::DATA,
        array_ndim: array::NDIM,
        array_dims: array::DIMS,
        array_strides: array::STRIDES,
        array_descr: array::DESCR,
        array_flags: array::FLAGS,
        array_flags_read: array::ALIGNED,
        array_flags_write: array::ALIGNED | array::WRITEABLE,
        np_scalar_value: NP_SCALAR_VALUE,
        types: builtin_types(),
        descrs: [0; DType::ALL.len()],
        tensor_tags: native::tags(),
        none: none as usize,
        true_: true_ as usize,
        false_: false_ as usize,
        np_true: 0,
        np_false: 0,
        frame_instr: 56, // prev_instr of 3.11 and 3.12, instr_ptr of 3.13
        breaker_bits: if cfg!(Py_3_13) { 64 } else { 32 },
        // From 3.13 on the rest of the word is the version of the instrumentation.
        breaker_mask: if cfg!(Py_3_13) { 0xff } else { 0xffff_ffff },
    }
}

/// Addresses of CPython's own types and of ours; 0 for NumPy's.
pub(super) fn builtin_types() -> [usize; KnownType::ALL.len()] {
    KnownType::ALL.map(|ty| {
        let address: *mut PyTypeObject = match ty {
            KnownType::Int => &raw mut ffi::PyLong_Type,
            KnownType::Float => &raw mut ffi::PyFloat_Type,
            KnownType::Bool => &raw mut ffi::PyBool_Type,
            // SAFETY: None is always there.
            KnownType::NoneType => unsafe { ffi::Py_TYPE(ffi::Py_None()) },
            KnownType::Str => &raw mut ffi::PyUnicode_Type,
            KnownType::Bytes => &raw mut ffi::PyBytes_Type,
            KnownType::ByteArray => &raw mut ffi::PyByteArray_Type,
            KnownType::List => &raw mut ffi::PyList_Type,
            KnownType::Tuple => &raw mut ffi::PyTuple_Type,
            KnownType::Dict => &raw mut ffi::PyDict_Type,
            KnownType::Set => &raw mut ffi::PySet_Type,
            KnownType::RangeIter => &raw mut ffi::PyRangeIter_Type,
            KnownType::ListIter => &raw mut ffi::PyListIter_Type,
            KnownType::TupleIter => &raw mut ffi::PyTupleIter_Type,
            KnownType::Range => &raw mut ffi::PyRange_Type,
            KnownType::Slice => &raw mut ffi::PySlice_Type,
            KnownType::Function => &raw mut ffi::PyFunction_Type,
            KnownType::Tensor => native::type_address() as *mut PyTypeObject,
            KnownType::NdArray
            | KnownType::NpF64
            | KnownType::NpF32
            | KnownType::NpI64
            | KnownType::NpI32
            | KnownType::NpU8
            | KnownType::NpBool => ptr::null_mut(),
        };
        address as usize
    })
}

/// NumPy's objects in this process; they are kept for ever.
pub(super) struct Numpy {
    types: [usize; KnownType::ALL.len()],
    descrs: [usize; DType::ALL.len()],
    pub(super) true_: usize,
    pub(super) false_: usize,
}

impl Numpy {
    /// Address of one of NumPy's types.
    pub(super) fn type_of(&self, ty: KnownType) -> usize {
        self.types[ty as usize]
    }

    /// Element type that a descriptor stands for, if it is a built-in one in native order.
    pub(super) fn dtype_of(&self, descr: usize) -> Option<DType> {
        DType::ALL.into_iter().find(|d| self.descrs[*d as usize] == descr)
    }
}

/// NumPy, once it is imported completely and its objects look as expected. The GIL is held by every caller.
pub(super) fn numpy() -> Option<&'static Numpy> {
    static NUMPY: OnceLock<Numpy> = OnceLock::new();
    if let Some(numpy) = NUMPY.get() {
        return Some(numpy);
    }
    // SAFETY: GIL held; a failure leaves no exception behind.
    let found = unsafe {
        // The caller may be in the middle of raising something.
        let pending = super::python::take_raised();
        let found = find_numpy();
        ffi::PyErr_Clear();
        if let Some(pending) = pending {
            super::python::set_raised(pending);
        }
        found?
    };
    Some(NUMPY.get_or_init(|| found))
}

static NUMPY_NAME: Name = Name::new(c"numpy");

/// # Safety
/// GIL held.
unsafe fn find_numpy() -> Option<Numpy> {
    // SAFETY: the caller's contract; everything found is referenced, and the references kept when the search succeeds.
    unsafe {
        let Peek::Value(module) = peek(ffi::PyImport_GetModuleDict(), NUMPY_NAME.get()) else { return None };
        if ffi::PyModule_Check(module) == 0 {
            return None;
        }
        let scope = ffi::PyModule_GetDict(module);
        let attribute = |name: &std::ffi::CStr| -> Option<Owned> {
            let key = Owned::new(ffi::PyUnicode_FromString(name.as_ptr()))?;
            match peek(scope, key.as_ptr()) {
                Peek::Value(value) => Some(Owned::share(value)),
                Peek::Absent | Peek::Unknown => None,
            }
        };
        let types = [
            (KnownType::NdArray, attribute(c"ndarray")?),
            (KnownType::NpF64, attribute(c"float64")?),
            (KnownType::NpF32, attribute(c"float32")?),
            (KnownType::NpI64, attribute(c"int64")?),
            (KnownType::NpI32, attribute(c"int32")?),
            (KnownType::NpU8, attribute(c"uint8")?),
            (KnownType::NpBool, attribute(c"bool_")?),
        ];
        let (true_, false_) = (attribute(c"True_")?, attribute(c"False_")?);
        let dtype = attribute(c"dtype")?;
        if types.iter().any(|(_, ty)| ffi::PyType_Check(ty.as_ptr()) == 0) {
            return None;
        }
        let type_of = |known: KnownType| types.iter().find(|(k, _)| *k == known).map(|(_, ty)| ty.as_ptr());
        let mut descrs = Vec::new();
        for element in DType::ALL {
            let scalar = type_of(element.scalar().known_type())?;
            descrs.push(Owned::new(ffi::PyObject_CallOneArg(dtype.as_ptr(), scalar))?);
        }
        check_scalars(type_of(KnownType::NpF64)?, type_of(KnownType::NpI32)?)?;
        check_array(type_of(KnownType::NdArray)?, descrs.first()?.as_ptr())?;
        let mut numpy = Numpy {
            types: [0; KnownType::ALL.len()],
            descrs: [0; DType::ALL.len()],
            true_: true_.into_ptr() as usize,
            false_: false_.into_ptr() as usize,
        };
        for (known, ty) in types {
            numpy.types[known as usize] = ty.into_ptr() as usize;
        }
        for (element, descr) in DType::ALL.into_iter().zip(descrs) {
            numpy.descrs[element as usize] = descr.into_ptr() as usize;
        }
        Some(numpy)
    }
}

/// A field at an offset of an object.
///
/// # Safety
/// The object has a readable `T` there.
pub(super) unsafe fn read<T: Copy>(object: *mut PyObject, offset: i32) -> T {
    // SAFETY: the caller's contract.
    unsafe { object.cast::<u8>().offset(offset as isize).cast::<T>().read_unaligned() }
}

/// # Safety
/// GIL held; two of NumPy's scalar types.
unsafe fn check_scalars(float64: *mut PyObject, int32: *mut PyObject) -> Option<()> {
    // SAFETY: the caller's contract; scalars are at least a head and eight bytes long.
    unsafe {
        let float = Owned::new(ffi::PyFloat_FromDouble(-1.5))?;
        let scalar = Owned::new(ffi::PyObject_CallOneArg(float64, float.as_ptr()))?;
        let int = Owned::new(ffi::PyLong_FromLong(-7))?;
        let small = Owned::new(ffi::PyObject_CallOneArg(int32, int.as_ptr()))?;
        let holds = ffi::Py_TYPE(scalar.as_ptr()).cast::<PyObject>() == float64
            && read::<f64>(scalar.as_ptr(), NP_SCALAR_VALUE) == -1.5
            && ffi::Py_TYPE(small.as_ptr()).cast::<PyObject>() == int32
            && read::<i32>(small.as_ptr(), NP_SCALAR_VALUE) == -7;
        holds.then_some(())
    }
}

/// # Safety
/// GIL held; NumPy's array type and a descriptor of eight bytes.
unsafe fn check_array(ndarray: *mut PyObject, descr: *mut PyObject) -> Option<()> {
    // SAFETY: the caller's contract; the fields are read from an array that is alive.
    unsafe {
        let dims = [2, 3].map(|d| Owned::new(ffi::PyLong_FromLong(d)));
        let [Some(rows), Some(columns)] = dims else { return None };
        let shape = Owned::new(ffi::PyTuple_Pack(2, rows.as_ptr(), columns.as_ptr()))?;
        let array = Owned::new(ffi::PyObject_CallFunctionObjArgs(
            ndarray,
            shape.as_ptr(),
            descr,
            ptr::null_mut::<PyObject>(),
        ))?;
        let a = array.as_ptr();
        if ffi::Py_TYPE(a).cast::<PyObject>() != ndarray || read::<i32>(a, array::NDIM) != 2 {
            return None;
        }
        let dims: *const Py_ssize_t = read(a, array::DIMS);
        let strides: *const Py_ssize_t = read(a, array::STRIDES);
        let wanted = array::ALIGNED | array::WRITEABLE;
        let holds = [*dims, *dims.add(1), *strides, *strides.add(1)] == [2, 3, 24, 8]
            && read::<*mut PyObject>(a, array::DESCR) == descr
            && read::<i32>(a, array::FLAGS) & wanted == wanted
            && !read::<*mut u8>(a, array::DATA).is_null();
        holds.then_some(())
    }
}

/// Compares the layout with behaviour. `None`: this is not the CPython that the offsets are for.
///
/// # Safety
/// GIL held.
unsafe fn self_test(layout: &ObjectLayout) -> Option<()> {
    // SAFETY: the caller's contract; every field is read from an object made here, whose type has at least that size.
    unsafe {
        let int = Owned::new(ffi::PyLong_FromLongLong(-((1 << 30) + 5)))?;
        let tag: i64 = read(int.as_ptr(), 16);
        let digits: [u32; 2] = read(int.as_ptr(), 24);
        let expected_tag = match layout.int {
            IntLayout::SignedSize => -2,
            IntLayout::Tagged => (2 << 3) | 2,
        };
        let float = Owned::new(ffi::PyFloat_FromDouble(1.25))?;
        let numbers = tag == expected_tag
            && digits == [5, 1]
            && read::<usize>(int.as_ptr(), layout.ob_type) == layout.types[KnownType::Int as usize]
            && read::<f64>(float.as_ptr(), layout.float_value) == 1.25;

        let list = Owned::new(ffi::PyList_New(2))?;
        for i in 0..2 {
            ffi::PyList_SET_ITEM(list.as_ptr(), i, Owned::share(float.as_ptr()).into_ptr());
        }
        let tuple = Owned::new(ffi::PyList_AsTuple(list.as_ptr()))?;
        let items: *const *mut PyObject = read(list.as_ptr(), layout.list_items);
        let sequences = read::<i64>(list.as_ptr(), layout.var_size) == 2
            && *items.add(1) == float.as_ptr()
            && read::<i64>(list.as_ptr(), layout.list_allocated) >= 2
            && read::<i64>(tuple.as_ptr(), layout.var_size) == 2
            && read::<*mut PyObject>(tuple.as_ptr(), layout.tuple_items + 8) == float.as_ptr();

        let bytes = Owned::new(ffi::PyBytes_FromStringAndSize(c"abc".as_ptr(), 3))?;
        let array = Owned::new(ffi::PyByteArray_FromStringAndSize(c"abc".as_ptr(), 3))?;
        let start: *const u8 = read(array.as_ptr(), layout.bytearray_start);
        let buffers = read::<i64>(bytes.as_ptr(), layout.var_size) == 3
            && read::<[u8; 3]>(bytes.as_ptr(), layout.bytes_data) == *b"abc"
            && read::<i64>(array.as_ptr(), layout.var_size) == 3
            && start == ffi::PyByteArray_AsString(array.as_ptr()).cast()
            && start.cast::<[u8; 3]>().read_unaligned() == *b"abc";

        // A str's length stands where that of a tuple does, in whatever form the characters are.
        // Those of an ASCII string are bytes behind its head, and only such a string's state says so.
        let texts = ["abcd", "ab\u{e9}d", "\u{20ac}bcd", "a\u{1f600}cd"].iter().all(|text| {
            let made = ffi::PyUnicode_FromStringAndSize(text.as_ptr().cast(), text.len() as isize);
            Owned::new(made).is_some_and(|made| {
                let made = made.as_ptr();
                let form = read::<u32>(made, layout.str_state) & layout.str_state_mask;
                read::<i64>(made, layout.var_size) == 4
                    && (form == layout.str_state_ascii) == text.is_ascii()
                    && (!text.is_ascii() || read::<[u8; 4]>(made, layout.str_ascii_data) == *b"abcd")
            })
        });

        (numbers && sequences && buffers && texts && iterators(list.as_ptr(), tuple.as_ptr())?).then_some(())
    }
}

/// The private fields of iterators, after one step.
///
/// # Safety
/// GIL held; a list and a tuple of two items.
unsafe fn iterators(list: *mut PyObject, tuple: *mut PyObject) -> Option<bool> {
    // SAFETY: the caller's contract; the iterators are made here.
    unsafe {
        let range = Owned::new(boxing::box_range_iter(10, 31, 7))?;
        let of_list = Owned::new(ffi::PyObject_GetIter(list))?;
        let of_tuple = Owned::new(ffi::PyObject_GetIter(tuple))?;
        for iterator in [&range, &of_list, &of_tuple] {
            Owned::new(iterate::next(iterator.as_ptr()))?;
        }
        let position_of = |iterator: &Owned, seq: *mut PyObject| {
            let fields = &*iterator.as_ptr().cast::<iterate::SeqIter>();
            fields.index == 1 && fields.seq == seq
        };
        Some(
            iterate::range_iter_next(range.as_ptr()) == 17
                && iterate::range_iter_stop(range.as_ptr()) == 31
                && iterate::range_iter_step(range.as_ptr()) == 7
                && position_of(&of_list, list)
                && position_of(&of_tuple, tuple),
        )
    }
}
