"""Writes src/opcodes/generated.rs from the opcode tables of three interpreters.

    python3 scripts/gen_opcodes.py PYTHON_3_11 PYTHON_3_12 PYTHON_3_13 > src/opcodes/generated.rs

Run it again only when a version is added: opcode numbers never change within a minor version.
`--table` prints this interpreter's own table, which is what the tests compare with.
"""

import json
import opcode
import subprocess
import sys

# `co_code` never holds these: it is de-instrumented and shows no inline cache as an instruction.
HIDDEN = {"CACHE", "RESERVED"}


def own_table():
    caches = opcode._inline_cache_entries
    by_name = caches if isinstance(caches, dict) else dict(zip(opcode.opname, caches))
    has_arg = (
        (lambda n: n in opcode.hasarg) if hasattr(opcode, "hasarg") else (lambda n: n >= opcode.HAVE_ARGUMENT)
    )
    ops = [
        [number, name, by_name.get(name, 0), bool(has_arg(number))]
        for name, number in sorted(opcode.opmap.items(), key=lambda item: item[1])
        if number < 256 and name not in HIDDEN and not name.startswith("INSTRUMENTED_")
    ]
    return {
        "version": list(sys.version_info[:2]),
        "ops": ops,
        "binary_ops": [name for name, _ in opcode._nb_ops],
        "compare_ops": list(opcode.cmp_op),
        "intrinsics_1": getattr(opcode, "_intrinsic_1_descs", []),
        "intrinsics_2": getattr(opcode, "_intrinsic_2_descs", []),
    }


def camel(name):
    return "".join(part.capitalize() for part in name.split("_"))


def main(interpreters):
    tables = [
        json.loads(
            subprocess.run([p, "-I", __file__, "--table"], check=True, capture_output=True, text=True).stdout
        )
        for p in interpreters
    ]
    names = sorted({name for table in tables for _, name, _, _ in table["ops"]})
    out = [
        "//! Opcode tables of CPython 3.11, 3.12 and 3.13. Written by `scripts/gen_opcodes.py`; do not edit.",
        "//! Longer than other files because it is a table.",
        "",
        "use super::OpcodeInfo;",
        "",
        "/// Every opcode that `co_code` of some supported version can hold.",
        "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]",
        '#[expect(missing_docs, reason = "the names are CPython\'s; what they do stands at `op::Op`")]',
        "pub enum Opcode {",
    ]
    out += [f"    {camel(name)}," for name in names]
    out += [
        "}",
        "",
        "impl Opcode {",
        "    /// CPython's name.",
        "    pub fn name(self) -> &'static str {",
        "        match self {",
    ]
    out += [f'            Opcode::{camel(name)} => "{name}",' for name in names]
    out += ["        }", "    }", "}"]
    for table in tables:
        major, minor = table["version"]
        out += ["", f"/// CPython {major}.{minor}: number, opcode, inline cache units, has an argument."]
        out += [f"pub(super) const V{major}{minor}: &[(u8, OpcodeInfo)] = &["]
        out += [
            f"    ({number}, OpcodeInfo {{ opcode: Opcode::{camel(name)}, n_caches: {caches}, "
            f"has_arg: {str(has_arg).lower()} }}),"
            for number, name, caches, has_arg in table["ops"]
        ]
        out += ["];"]
    # A later version only appends to these lists, so the longest one serves all.
    for key, doc in (("intrinsics_1", "CALL_INTRINSIC_1"), ("intrinsics_2", "CALL_INTRINSIC_2")):
        longest = max((table[key] for table in tables), key=len)
        assert all(table[key] == longest[: len(table[key])] for table in tables), key
        out += ["", f"/// Names of `{doc}`'s arguments.", f"pub(super) const {key.upper()}: &[&str] = &["]
        out += [f'    "{name}",' for name in longest] + ["];"]
    print("\n".join(out))


if sys.argv[1:] == ["--table"]:
    print(json.dumps(own_table()))
else:
    main(sys.argv[1:])
