"""The tables of struct offsets against the headers of the running interpreter, compiled."""

import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

import pytest
from overdrive import _core

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLES = ROOT / "crates/bridge/src/mechanics/layout"

STRUCTS = {
    "frame": "_PyInterpreterFrame",
    "code": "PyCodeObject",
    "thread": "struct _ts",
    "interp": "struct _is",
    "runtime": "_PyRuntimeState",
    "function": "PyFunctionObject",
    "list": "PyListObject",
    "tuple": "PyTupleObject",
    "float": "PyFloatObject",
    "bytes": "PyBytesObject",
    "bytearray": "PyByteArrayObject",
    "cell": "PyCellObject",
    "dict": "PyDictObject",
    "dict_keys": "struct _dictkeysobject",
    "frame_object": "struct _frame",
    "type_object": "PyTypeObject",
    "long": "PyLongObject",
    "cframe": "_PyCFrame",
}
NEW = sys.version_info >= (3, 12)
if NEW:
    STRUCTS |= {
        "range_iter": "_PyRangeIterObject",
        "list_iter": "_PyListIterObject",
        "tuple_iter": "_PyTupleIterObject",
    }
PREFIXES = {
    "code": ["co_", "_co_"],
    "thread": ["", "c_"],
    "interp": ["ceval."],
    "runtime": ["gilstate."],
    "frame": ["", "f_", "prev_", "instr_"],
    "function": ["func_", ""],
    "list": ["ob_", ""],
    "tuple": ["ob_"],
    "cell": ["ob_"],
    "bytearray": ["ob_"],
    "dict": ["ma_"],
    "dict_keys": ["dk_"],
    "frame_object": ["f_"],
    "type_object": ["tp_"],
    "long": ["long_value.lv_", "long_value.ob_", "ob_"],
    "list_iter": ["it_"],
    "tuple_iter": ["it_"],
}
FIELDS = {
    ("list", "ITEMS"): "ob_item",
    ("list", "ALLOCATED"): "allocated",
    ("tuple", "ITEMS"): "ob_item",
    ("float", "VALUE"): "ob_fval",
    ("bytes", "DATA"): "ob_sval",
    ("code", "BYTECODE"): "co_code_adaptive",
    ("frame", "INSTR"): "instr_ptr" if sys.version_info >= (3, 13) else "prev_instr",
    ("frame", "CODE"): "f_executable" if sys.version_info >= (3, 13) else "f_code",
    ("frame", "FUNC"): "f_funcobj" if NEW else "f_func",
    ("frame_object", "FRAME"): "f_frame",
    ("interp", "MONITORING_VERSION"): "monitoring_version",
    ("thread", "PROFILEFUNC"): "c_profilefunc",
    ("thread", "TRACEFUNC"): "c_tracefunc",
    ("thread", "TRACEOBJ"): "c_traceobj",
    ("thread", "PY_RECURSION"): "py_recursion_remaining" if NEW else "recursion_remaining",
    ("thread", "C_RECURSION"): "c_recursion_remaining",
    ("thread", "CURRENT_EXCEPTION"): "current_exception" if NEW else "curexc_type",
    ("type_object", "VERSION_TAG"): "tp_version_tag",
    ("long", "DIGITS"): "long_value.ob_digit" if NEW else "ob_digit",
    ("function", "VECTORCALL"): "vectorcall",
}
SIZES = {
    ("frame", "SIZE"): "offsetof(_PyInterpreterFrame, localsplus)",
    ("dict_keys", "ENTRY_SIZE"): "sizeof(PyDictKeyEntry)",
    ("dict_keys", "UNICODE_ENTRY_SIZE"): "sizeof(PyDictUnicodeEntry)",
    ("code", "N_LOCAL_MONITORS"): "sizeof(_Py_LocalMonitors)",
    ("code", "ACTIVE_MONITORS"): "offsetof(_PyCoMonitoringData, active_monitors)",
}
# Structs that no header declares; the self-test checks them by behaviour.
UNDECLARED = {"seq_iter", "enumerate", "zip"} | (set() if NEW else {"range_iter", "list_iter", "tuple_iter"})


def table():
    text = (TABLES / f"v{sys.version_info[0]}{sys.version_info[1]}.rs").read_text()
    module = None
    for line in text.splitlines():
        if opened := re.match(r"pub mod (\w+) \{", line):
            module = opened[1]
        elif constant := re.match(r"    pub const (\w+): usize = (\d+);", line):
            yield module, constant[1], int(constant[2])


def member(module, name):
    if (module, name) in SIZES:
        return SIZES[module, name]
    field = FIELDS.get((module, name))
    if field is None:
        prefix = PREFIXES.get(module, [""])
        special = {
            ("code", "FIRSTTRACEABLE"): "_co_",
            ("code", "MONITORING"): "_co_",
            ("code", "INSTRUMENTATION_VERSION"): "_co_",
            ("code", "LOCALSPLUSKINDS"): "co_",
        }
        chosen = special.get((module, name), prefix[0])
        if module == "frame":
            chosen = "f_" if name in ("GLOBALS", "BUILTINS", "LOCALS") else ""
        if module == "long":
            chosen = "long_value.lv_"
        field = chosen + name.lower()
    return f"offsetof({STRUCTS[module]}, {field})"


def test_tables_are_those_of_the_headers(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    include = pathlib.Path(sysconfig.get_path("include"))
    if compiler is None or not (include / "internal").exists():
        pytest.skip("no C compiler or no internal headers")
    entries = [(m, n, v) for m, n, v in table() if m not in UNDECLARED]
    assert len(entries) > 60
    headers = ["frame", "code", "interp", "dict", "runtime", "list", "tuple"] + (["range"] if NEW else [])
    lines = ["#define Py_BUILD_CORE 1", "#include <Python.h>", "#include <stddef.h>"]
    lines += [f'#include "internal/pycore_{h}.h"' for h in headers]
    lines += [f'_Static_assert({member(m, n)} == {v}, "{m}::{n}");' for m, n, v in entries]
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines) + "\nint main(void) { return 0; }\n")
    done = subprocess.run(
        [compiler, f"-I{include}", f"-I{include / 'internal'}", "-fsyntax-only", source],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_selftest_finds_nothing():
    for feature, holds, reason in _core.selftest():
        assert holds, (feature, reason)
