//! The arguments of `f(*args, **keywords)` that the interpreter calls a jitted callable with, taken over.
//!
//! From CPython 3.12 on the interpreter moves the arguments of such a call into the frame of a Python function; for a
//! callable it makes a C call and holds them, in a tuple and a dictionary on its evaluation stack. Where on the stack is
//! known from the caller's bytecode: the frame does not say how deep its stack is while it runs.
//!
//! Taken only from containers with one reference, which is the interpreter's: `f(*held)` leaves its values in `held`, as
//! CPython does. Values out of an iterable that is neither a tuple nor a list display are in a tuple that only a C
//! variable knows; they stay there until the call ends.
//!
//! In: a vectorcall's arguments. Out: the same as owned references, or nothing when somebody else calls.
#![expect(unsafe_code, reason = "reads and empties the evaluation stack of the frame that calls")]

use std::collections::HashMap;
use std::mem::{offset_of, replace};
use std::ptr::null_mut;
use std::sync::Arc;

use overdrive_frontend_python::function::Function;
use overdrive_frontend_python::op::Op;
use overdrive_frontend_python::stack::Branch;
use pyo3::ffi::{self, PyObject, PyTupleObject};
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use super::super::input;
use crate::mechanics::bytecode::Opcodes;
use crate::mechanics::frame::{Frame, Thread};
use crate::mechanics::gil_cell::GilCell;

/// Below this many code objects in the table nobody looks for dead ones.
const FEW: usize = 64;

/// A CALL_FUNCTION_EX.
#[derive(Clone, Copy, Debug)]
struct Site {
    /// In code units.
    position: usize,
    /// Entries of the evaluation stack, the call's operands included.
    depth: usize,
    has_keywords: bool,
    /// The positional arguments are a list display: making a tuple of it runs no code.
    is_list: bool,
}

/// The calls of a code object, and whether it still lives.
type Known = (Py<PyWeakrefReference>, Arc<[Site]>);

/// Of code objects, by address; an address may have been used again, which the weak reference tells.
static SITES: GilCell<Option<HashMap<usize, Known>>> = GilCell::new(None);

/// As [`crate::mechanics::giving::take_from_caller`], for calls with `*` and `**`.
///
/// # Safety
/// As there; `keywords` is null or the tuple of their names.
pub(super) unsafe fn take_from_caller(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    n: usize,
    keywords: *mut PyObject,
) -> Option<Vec<*mut PyObject>> {
    // SAFETY: the caller's contract; the running frame is live.
    unsafe {
        let frame = Thread::current().frame();
        if cfg!(not(Py_3_12)) || frame.0.is_null() || n == 0 {
            return None;
        }
        let site = site(Python::assume_attached(), frame)?;
        let stack = frame.locals().add(frame.n_locals_plus());
        let top = stack.add(site.depth);
        let mapping = if site.has_keywords { *top.sub(1) } else { null_mut() };
        let values = top.sub(1 + usize::from(site.has_keywords));
        // A NULL stands below the callable, on 3.13 above it.
        if *values.sub(if cfg!(Py_3_13) { 2 } else { 1 }) != callable {
            return None;
        }
        if keywords.is_null() {
            take_positional(*values, site.is_list, args.cast_mut(), n)
        } else {
            take_all(*values, mapping, args.cast_mut(), n, keywords)
        }
    }
}

/// Without keywords the arguments are a tuple's own items.
unsafe fn take_positional(
    values: *mut PyObject,
    is_list: bool,
    args: *mut *mut PyObject,
    n: usize,
) -> Option<Vec<*mut PyObject>> {
    // SAFETY: the interpreter is calling the callable with what `values` holds. When that is a list display, no code has
    // run since the tuple was made of it, which therefore is the one that holds `args`.
    unsafe {
        let tuple = args.byte_sub(offset_of!(PyTupleObject, ob_item)).cast::<PyObject>();
        if (values != tuple && !is_list) || !is_ours(tuple, &raw mut ffi::PyTuple_Type) {
            return None;
        }
        debug_assert_eq!(ffi::PyTuple_GET_SIZE(tuple) as usize, n);
        Some(empty(args, n))
    }
}

/// With keywords they are copies, in an array that the interpreter releases after the call; the tuple and the dictionary
/// still hold them.
unsafe fn take_all(
    values: *mut PyObject,
    mapping: *mut PyObject,
    args: *mut *mut PyObject,
    n: usize,
    keywords: *mut PyObject,
) -> Option<Vec<*mut PyObject>> {
    // SAFETY: the callable is being called with these two. Nothing runs in here: names are strings, equal by identity,
    // and no reference that is released is an object's last.
    unsafe {
        let n_keywords = ffi::PyTuple_GET_SIZE(keywords) as usize;
        let n_positional = n - n_keywords;
        if ffi::Py_TYPE(values) != &raw mut ffi::PyTuple_Type
            || ffi::PyTuple_GET_SIZE(values) as usize != n_positional
            || mapping.is_null()
            || !is_ours(mapping, &raw mut ffi::PyDict_Type)
            || ffi::PyDict_Size(mapping) as usize != n_keywords
        {
            return None;
        }
        let names = (0..n_keywords).map(|i| ffi::PyTuple_GET_ITEM(keywords, i as isize));
        for (i, name) in names.clone().enumerate() {
            if ffi::Py_TYPE(name) != &raw mut ffi::PyUnicode_Type
                || ffi::PyDict_GetItemWithError(mapping, name) != *args.add(n_positional + i)
            {
                return None;
            }
        }
        let items = (&raw mut (*values.cast::<PyTupleObject>()).ob_item).cast::<*mut PyObject>();
        if (0..n_positional).any(|i| *items.add(i) != *args.add(i)) {
            return None;
        }
        for name in names {
            if ffi::PyDict_SetItem(mapping, name, ffi::Py_None()) < 0 {
                ffi::PyErr_Clear();
            }
        }
        if is_ours(values, &raw mut ffi::PyTuple_Type) {
            empty(items, n_positional).into_iter().for_each(|held| ffi::Py_XDECREF(held));
        }
        Some(empty(args, n))
    }
}

/// Whether the stack's reference is the only one.
unsafe fn is_ours(object: *mut PyObject, ty: *mut ffi::PyTypeObject) -> bool {
    // SAFETY: a live object, by the callers' contracts.
    unsafe { ffi::Py_TYPE(object) == ty && ffi::Py_REFCNT(object) == 1 }
}

/// Moves `n` references out, behind a free slot; `None` stays in each place.
unsafe fn empty(from: *mut *mut PyObject, n: usize) -> Vec<*mut PyObject> {
    let mut out = Vec::with_capacity(n + 1);
    out.push(null_mut());
    // SAFETY: the caller owns the `n` references at `from`.
    out.extend((0..n).map(|i| unsafe { replace(&mut *from.add(i), ffi::Py_NewRef(ffi::Py_None())) }));
    out
}

/// The call that the frame is making, if it is one with `*` that no tool watches.
unsafe fn site(py: Python<'_>, frame: Frame) -> Option<Site> {
    // SAFETY: the frame is live and inside an instruction of its code.
    let (code, position) = unsafe {
        let position = frame.position();
        let [opcode, _] = (*frame.first_unit().offset(position)).to_le_bytes();
        if opcode != Opcodes::get(py).ok()?.call_function_ex {
            return None;
        }
        (Bound::from_borrowed_ptr(py, frame.code()), position as usize)
    };
    let sites = sites_of(&code)?;
    sites.iter().find(|site| site.position == position).copied()
}

fn sites_of(code: &Bound<'_, PyAny>) -> Option<Arc<[Site]>> {
    let py = code.py();
    let key = code.as_ptr() as usize;
    // SAFETY: the GIL is held; comparing and dropping weak references without callbacks runs nothing.
    unsafe {
        let known = SITES.with(|table| {
            let (alive, sites) = table.as_ref()?.get(&key)?;
            alive.bind(py).upgrade().is_some_and(|object| object.is(code)).then(|| Arc::clone(sites))
        });
        if known.is_some() {
            return known;
        }
        let alive = PyWeakrefReference::new(code).ok()?.unbind();
        let sites: Arc<[Site]> = analyse(code).unwrap_or_default().into();
        SITES.with(|table| {
            let table = table.get_or_insert_default();
            if table.len() >= FEW && table.len() == table.capacity() {
                table.retain(|_, (alive, _)| alive.bind(py).upgrade().is_some());
            }
            table.insert(key, (alive, Arc::clone(&sites)));
        });
        Some(sites)
    }
}

/// All calls of a code object; `None` for one that CPython's compiler did not make.
fn analyse(code: &Bound<'_, PyAny>) -> Option<Vec<Site>> {
    let plain = input::code_object(code).ok()?;
    let function = Function::analyse(Arc::new(plain)).ok()?;
    let calls = function.instrs.iter().enumerate().filter_map(|(index, instr)| {
        let Op::CallFunctionEx { has_kwargs } = instr.op else { return None };
        Some(Site {
            position: instr.op_offset as usize / 2,
            depth: function.stacks.depth(index)? as usize,
            has_keywords: has_kwargs,
            is_list: !has_kwargs && is_list_display(&function, index),
        })
    });
    Some(calls.collect())
}

/// Whether the entry on top of the stack before an instruction comes from BUILD_LIST in the same block.
fn is_list_display(function: &Function, index: usize) -> bool {
    let Some(top) = function.stacks.depth(index) else { return false };
    let Some(block) = function.cfg.blocks.iter().find(|b| b.instrs().contains(&index)) else { return false };
    for at in (block.first..index).rev() {
        let op = &function.instrs[at].op;
        let Some(depth) = function.stacks.depth(at) else { return false };
        if depth - op.effect(Branch::Next).pops < top {
            return matches!(op, Op::BuildList(_));
        }
        if matches!(op, Op::Swap(_)) {
            return false;
        }
    }
    false
}
