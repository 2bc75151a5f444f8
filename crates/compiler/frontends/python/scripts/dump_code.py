"""Prints code objects as JSON, one a line, with what `dis` says about them.

    python dump_code.py FILE.py …      these files
    python dump_code.py --stdlib N     every N-th file of the standard library, and tests that use rare syntax

Sources are compiled, never run. The tests of this crate read the output; everything under "truth" is the
interpreter's own opinion that the Rust code must reproduce.
"""

import dis
import inspect
import json
import pathlib
import struct
import sys
import sysconfig
import types
import warnings

# Tests of CPython whose sources hold syntax that library code avoids.
RARE = """test_grammar test_patma test_generators test_coroutines test_asyncgen test_with test_exceptions
test_except_star test_listcomps test_setcomps test_dictcomps test_fstring test_unpack_ex test_super test_scope
test_type_params test_type_aliases test_positional_only_arg test_keywordonlyarg test_extcall test_compile
test_peepholer test_raise test_augassign test_named_expressions test_class test_global test_cmath""".split()


def float_bits(value):
    return str(struct.unpack("<Q", struct.pack("<d", value))[0])


def constant(value):
    kind = type(value)
    if value is None:
        return ["None"]
    if value is Ellipsis:
        return ["Ellipsis"]
    if kind is bool:
        return ["Bool", value]
    if kind is int:
        return ["Int", value] if -(2**63) <= value < 2**63 else ["BigInt", hex(value)]
    if kind is float:
        return ["Float", float_bits(value)]
    if kind is complex:
        return ["Complex", float_bits(value.real), float_bits(value.imag)]
    if kind is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            return ["Opaque"]
        return ["Str", value]
    if kind is bytes:
        return ["Bytes", value.hex()]
    if kind is tuple:
        return ["Tuple", [constant(item) for item in value]]
    if kind is frozenset:
        return ["FrozenSet", [constant(item) for item in value]]
    return ["Opaque"]


def variable_slots(code):
    """Slots in frame order: parameters and locals, other cells, free variables."""
    cells = set(code.co_cellvars)
    slots = [[name, "CellArg" if name in cells else "Local"] for name in code.co_varnames]
    slots += [[name, "Cell"] for name in code.co_cellvars if name not in code.co_varnames]
    return slots + [[name, "Free"] for name in code.co_freevars]


def instructions(code):
    """[start, offset, number, argument, effect, effect when it jumps]; the last two as `dis` has them."""
    out, start = [], 0
    for item in dis._unpack_opargs(code.co_code):
        offset, op, arg = item[0], item[-2], item[-1]
        if start is None:
            start = offset
        if dis.opname[op] == "EXTENDED_ARG":
            continue
        effects = [dis.stack_effect(op, arg, jump=jump) for jump in (False, True)]
        out.append([start, offset, op, arg, *effects])
        start = None
    return out


def describe(code):
    return {
        "name": code.co_name,
        "qualname": code.co_qualname,
        "filename": pathlib.PurePath(code.co_filename).name,
        "first_line": code.co_firstlineno,
        "arg_count": code.co_argcount,
        "pos_only": code.co_posonlyargcount,
        "kw_only": code.co_kwonlyargcount,
        "flags": code.co_flags,
        "n_locals": code.co_nlocals,
        "stack_size": code.co_stacksize,
        "code": code.co_code.hex(),
        "consts": [constant(item) for item in code.co_consts],
        "names": list(code.co_names),
        "localsplus": variable_slots(code),
        "exception_table": code.co_exceptiontable.hex(),
        "line_table": code.co_linetable.hex(),
        "truth": {
            "n_args": len(inspect.getargs(code).args)
            + bool(code.co_flags & inspect.CO_VARARGS)
            + bool(code.co_flags & inspect.CO_VARKEYWORDS),
            "instructions": instructions(code),
            "positions": [list(position) for position in code.co_positions()],
            "exceptions": [list(entry) for entry in dis._parse_exception_table(code)],
            "jump_targets": sorted(dis.findlabels(code.co_code)),
        },
    }


def walk(code):
    yield code
    for item in code.co_consts:
        if isinstance(item, types.CodeType):
            yield from walk(item)


def stdlib(every):
    root = pathlib.Path(sysconfig.get_path("stdlib"))
    skip = {"test", "tests", "site-packages", "idlelib", "lib2to3", "__pycache__", "turtledemo"}
    library = [
        path for path in sorted(root.rglob("*.py")) if not skip.intersection(path.relative_to(root).parts)
    ]
    yield from library[::every]
    for name in RARE:
        path = root / "test" / f"{name}.py"
        if path.exists():
            yield path


def main(arguments):
    warnings.simplefilter("ignore")
    paths = stdlib(int(arguments[1])) if arguments[0] == "--stdlib" else map(pathlib.Path, arguments)
    print(json.dumps({"version": list(sys.version_info[:2])}))
    for path in paths:
        try:
            # `dont_inherit`: this file's own future imports must not leak into them.
            module = compile(path.read_bytes(), path.name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        for code in walk(module):
            print(json.dumps(describe(code), separators=(",", ":")))


if __name__ == "__main__":
    main(sys.argv[1:])
