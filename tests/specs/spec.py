"""Reads the specifications and runs their blocks.

A block is Python. Every function at its top level is compiled, as the mode says; so is one decorated with `jit`. A
comment at the end of a line says what must hold there:

* `# -> 12`          the expression's value has this repr;
* `# raises KeyError`   the statement raises this;
* `# native`         the line runs as machine code, says `overdrive.explain`;
* `# through CPython`   the line runs, wholly or in part, by CPython's own operations.

A block runs three rounds, so that what was learned from the first ones is used; everything but definitions and imports
is executed in each.
"""

from __future__ import annotations

import ast
import dataclasses
import io
import tokenize
import types
import warnings
from pathlib import Path

import numpy as np
import overdrive

from tests.differential.compare import same
from tests.settle import settle

FOLDER = Path(__file__).parent
N_ROUNDS = 3
STATUS = {"native": "native", "through CPython": "cpython"}


@dataclasses.dataclass(frozen=True)
class Block:
    """One block of code with the line of the file it starts at."""

    file: str
    heading: str
    line: int
    text: str

    def __str__(self):
        return f"{self.file}:{self.line}: {self.heading}"


def blocks():
    """All blocks of all specifications."""
    for path in sorted(FOLDER.glob("*.md")):
        heading, code, start = "", None, 0
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.startswith("```python"):
                code, start = [], number
            elif line.startswith("```") and code is not None:
                yield Block(path.name, heading, start, "\n".join(code) + "\n")
                code = None
            elif code is not None:
                code.append(line)
            elif line.startswith("#"):
                heading = line.lstrip("# ")


def comments(text):
    """Line number to comment."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {t.start[0]: t.string.lstrip("# ").strip() for t in tokens if t.type == tokenize.COMMENT}


class Run:
    """A block being run in one mode; `values` is what its examples gave."""

    def __init__(self, block, accelerate, n_rounds=N_ROUNDS):
        self.block = block
        self.accelerate = accelerate
        self.functions = []
        self.seen = {}
        self.notes = comments(block.text)
        self.module = types.ModuleType("spec")
        self.module.__dict__.update(jit=self.compiled, np=np)
        self.values = []
        tree = ast.parse(block.text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for turn in range(n_rounds):
                for statement in tree.body:
                    self.statement(statement, turn)

    def compiled(self, function):
        """The function as the mode has it."""
        self.functions.append(function)
        return self.accelerate(function)

    def where(self, statement):
        """For messages."""
        return f"{self.block.file}:{self.block.line + statement.lineno}"

    def statement(self, statement, turn):
        """Executes one, and checks what its comment says."""
        space = self.module.__dict__
        if self.accelerate is overdrive.promote:
            settle(self.functions, self.seen)
        defines = isinstance(
            statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
        )
        if defines and turn > 0:
            return
        code = compile(ast.Module([statement], []), self.block.file, "exec", dont_inherit=True)
        note = self.notes.get(statement.end_lineno, "")
        if defines:
            exec(code, space)
            if isinstance(statement, ast.FunctionDef) and not statement.decorator_list:
                space[statement.name] = self.compiled(space[statement.name])
        elif note.startswith("->"):
            value = eval(
                compile(ast.Expression(statement.value), self.block.file, "eval", dont_inherit=True), space
            )
            self.values.append(value)
            want = note[2:].strip()
            assert repr(value) == want, f"{self.where(statement)}: expected {want}, got {value!r}"
        elif note.startswith("raises"):
            want = note.split()[1]
            try:
                exec(code, space)
            except BaseException as error:
                assert type(error).__name__ == want, (
                    f"{self.where(statement)}: expected {want}, got {error!r}"
                )
            else:
                raise AssertionError(f"{self.where(statement)}: expected {want}, nothing was raised")
        else:
            exec(code, space)

    def wrong_lines(self):
        """Lines of which `explain` says something else than their comment."""
        status = {}
        if not any(overdrive._core.explain_data(function)["versions"] for function in self.functions):
            return  # too small to be worth a swap
        for function in self.functions:
            for row in overdrive._core.explain_data(function)["lines"]:
                status[row["line"]] = (row["status"], row["why"])
        for line, note in self.notes.items():
            if (want := STATUS.get(note)) and status.get(line, ("nothing",))[0] != want:
                yield f"{self.block.file}:{self.block.line + line}: expected {note}, explain says {status.get(line, 'nothing')}"

    def n_exits(self):
        """The largest number of exits of a function that was compiled."""
        counts = [0]
        for function in self.functions:
            try:
                counts.append(overdrive._core.debug_exit_count(function))
            except LookupError:
                pass
        return max(counts)


def agree(a, b):
    """Whether two runs of a block gave the same values."""
    return same(a.values, b.values)
