"""Runs a file and prints what its frames really held, as JSON: ground truth for stack and local analyses.

    python trace_stacks.py FILE.py

Every instruction gets a line number of its own, so that the tracer stops before each of them. The stack is
read from the interpreter's frame, whose layout 3.11, 3.12 and 3.13 share in the fields used here.
Lines are as those of dump_code.py, with "trace": [[offset, NULL locals, NULL entries], …], each a string of
0 and 1, 1 for NULL, bottom first.
"""

import ctypes
import json
import pathlib
import sys
import types

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from dump_code import describe, instructions  # noqa: E402

INTERPRETER_FRAME, STACK_TOP, LOCALS_PLUS = 24, 64, 72


def signed_varint(value):
    value = -value << 1 | 1 if value < 0 else value << 1
    out = bytearray()
    while value >= 64:
        out.append(64 | value & 63)
        value >>= 6
    return bytes(out) + bytes([value])


def line_per_instruction(code):
    table, starts = bytearray(), [item[0] for item in instructions(code)] + [len(code.co_code)]
    for number, (start, end) in enumerate(zip(starts, starts[1:])):
        units, delta = (end - start) // 2, 1 if number else 0
        while units > 0:
            n = min(units, 8)
            table += bytes([0x80 | 13 << 3 | n - 1]) + signed_varint(delta)
            units, delta = units - n, 0
    consts = [
        line_per_instruction(item) if isinstance(item, types.CodeType) else item for item in code.co_consts
    ]
    return code.replace(co_linetable=bytes(table), co_consts=tuple(consts))


def main(path):
    seen = {}

    def tracer(frame, event, _):
        code = frame.f_code
        if code.co_filename != path:
            return None
        if event == "line":
            inner = ctypes.c_void_p.from_address(id(frame) + INTERPRETER_FRAME).value
            n_entries = ctypes.c_int.from_address(inner + STACK_TOP).value
            slots = (ctypes.c_void_p * n_entries).from_address(inner + LOCALS_PLUS)
            nulls = "".join("1" if slot is None else "0" for slot in slots)
            n_slots = (
                len(code.co_varnames)
                + len(set(code.co_cellvars) - set(code.co_varnames))
                + len(code.co_freevars)
            )
            assert n_entries >= n_slots, "the tracer saw no saved stack pointer"
            seen.setdefault(code, set()).add((frame.f_lasti, nulls[:n_slots], nulls[n_slots:]))
        return tracer

    module = line_per_instruction(compile(pathlib.Path(path).read_bytes(), path, "exec"))
    sys.settrace(tracer)
    exec(module, {"__name__": "sample"})
    sys.settrace(None)
    print(json.dumps({"version": list(sys.version_info[:2])}))
    for code, facts in seen.items():
        print(json.dumps(describe(code) | {"trace": sorted(facts)}, separators=(",", ":")))


main(sys.argv[1])
