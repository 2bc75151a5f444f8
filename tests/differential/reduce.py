"""Shrinks a generated program that behaves differently, and prints the smallest one found.

    python -m tests.differential.reduce SEED [--mode jit-forced] [--file program.py]

Statements are dropped, blocks replaced by their bodies, expressions by their parts, calls and arguments removed, as
long as the program still fails in the same way (a difference, a crash or a hang). Every try is a process of its own.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import subprocess
import sys
import tempfile
import warnings

from .fuzz import ROOT
from .program import PRELUDE, source
from .run import MODES

PROBE = """
import sys, json, resource
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
from tests.differential.run import check, TooSlow
try:
    found = check(open(sys.argv[1]).read(), (sys.argv[2],), int(sys.argv[3]))
except (TooSlow, SyntaxError):
    found = []
print("FOUND", json.dumps(found))
"""


def probe(text, mode, seed, timeout=30):
    """How the program fails: `differs`, `dies` or `hangs`, with the report; or nothing."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(text)
        file.flush()
        environment = dict(os.environ, PYTHONPATH=str(ROOT), OPENBLAS_NUM_THREADS="1")
        command = [sys.executable, "-X", "faulthandler", "-c", PROBE, file.name, mode, str(seed)]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            return "hangs", "no end"
    marks = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    if marks:
        found = json.loads(marks[-1][6:])
        return ("differs", found[0][2]) if found else None
    if done.returncode < 0:
        return "dies", f"status {done.returncode}\n{done.stderr[-1500:]}"
    return None


def smaller(tree):
    """Copies of the program, each with one thing less; big cuts first."""
    for owner, field, body in list(bodies(tree)):
        for size in (8, 4, 2, 1):
            for start in range(0, len(body), size):
                rest = body[:start] + body[start + size :]
                if rest or field != "body":
                    yield replaced(tree, owner, field, rest)
                else:
                    yield replaced(tree, owner, field, [ast.Pass()])
        for at, statement in enumerate(body):
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(statement, name, None)
                if isinstance(inner, list) and inner and not isinstance(statement, ast.FunctionDef):
                    yield replaced(tree, owner, field, body[:at] + inner + body[at + 1 :])
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if (
                isinstance(value, list)
                and value
                and isinstance(value[0], ast.expr)
                and len(value) > 1
                and field in ("elts", "args")
            ):
                for at in range(len(value)):
                    yield replaced(tree, node, field, value[:at] + value[at + 1 :])
            for at, part in enumerate(value if isinstance(value, list) else [value]):
                if (
                    not isinstance(part, ast.expr)
                    or isinstance(part, (ast.Name, ast.Constant))
                    or isinstance(getattr(part, "ctx", None), (ast.Store, ast.Del))
                ):
                    continue
                choices = [c for c in ast.iter_child_nodes(part) if isinstance(c, ast.expr)]
                for choice in (*choices, ast.Constant(1), ast.Constant(1.5)):
                    new = value[:at] + [choice] + value[at + 1 :] if isinstance(value, list) else choice
                    yield replaced(tree, node, field, new)


def bodies(tree):
    """Every list of statements, outer before inner."""
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody", "handlers"):
            body = getattr(node, field, None)
            if isinstance(body, list) and body:
                yield node, field, body


def replaced(tree, node, field, value):
    """A copy of the tree with one field of one node replaced."""
    old = getattr(node, field)
    setattr(node, field, value)
    try:
        return copy.deepcopy(tree)
    finally:
        setattr(node, field, old)


def reduce(text, fails, say=lambda text: None):
    """The smallest program found, and how it fails; `fails` gives the kind of failure and a report, or nothing."""
    failure = fails(text)
    if failure is None:
        raise ValueError("this program does not fail")
    prelude, rest = (PRELUDE, text[len(PRELUDE) :]) if text.startswith(PRELUDE) else ("", text)
    tree = ast.parse(rest)
    changed = True
    while changed:
        changed = False
        for candidate in smaller(tree):
            try:
                shorter = ast.unparse(ast.fix_missing_locations(candidate))
            except Exception:
                continue
            if len(shorter) >= len(ast.unparse(tree)):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    compile(shorter, "", "exec")
                except (SyntaxError, ValueError):
                    continue
            now = fails(prelude + "\n" + shorter)
            if now and now[0] == failure[0]:
                tree, failure, changed = ast.parse(shorter), now, True
                say(f"{len(shorter)} characters")
                break
    return ast.unparse(tree), failure


def main(arguments=None):
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--file", help="reduce this program instead of the seed's")
    o = parser.parse_args(arguments)
    text = open(o.file).read() if o.file else source(o.seed)
    mode = o.mode or next((mode for mode in MODES if probe(text, mode, o.seed)), None)
    if mode is None:
        raise SystemExit("no difference in any mode")
    fails = lambda text: probe(text, mode, o.seed)
    small, failure = reduce(text, fails, lambda text: print(text, file=sys.stderr))
    print(f"# mode {mode}, {failure[0]}\n{small}\n\n{failure[1]}")


if __name__ == "__main__":
    main()
