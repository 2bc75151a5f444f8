"""Shrinks a generated program that behaves differently, and prints the smallest one found.

    python -m tests.differential.reduce SEED [--mode jit-forced] [--file program.py]

Statements are dropped, blocks replaced by their bodies, expressions by their parts, calls and arguments removed, as
long as the program still fails in the same way (a difference, a crash or a hang). Every try is a forked process.
"""

from __future__ import annotations

import argparse
import ast
import copy
import faulthandler
import gc
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import warnings

import overdrive  # noqa: F401 (each probe inherits it)

from .program import PRELUDE, source
from .run import MODES, TooSlow, check
from .worker import MEMORY


def probe(text, mode, seed, timeout=20):
    """How the program fails: `differs`, `dies` or `hangs`, with the report; or nothing.

    A fork of this process runs it; this process itself must never have compiled anything.
    """
    with tempfile.TemporaryFile("w+") as errors:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            in_child(text, mode, seed, writer, errors)
        os.close(writer)
        ready, _, _ = select.select([reader], [], [], timeout)
        report = os.read(reader, 1 << 20).decode() if ready else ""
        if not ready:
            os.kill(pid, signal.SIGKILL)
        os.close(reader)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        errors.seek(0)
        if not ready:
            return "hangs", "no end"
        if report:
            found = json.loads(report)
            return ("differs", found[0][2]) if found else None
        return ("dies", f"status {status}\n{errors.read()[-1500:]}") if status < 0 else None


def in_child(text, mode, seed, writer, errors):
    """Runs the program and writes what differs; does not return."""
    os.dup2(errors.fileno(), 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    faulthandler.enable()
    try:
        found = check(text, (mode,), seed)
        gc.collect()  # a reference too few shows here
    except (TooSlow, SyntaxError):
        found = []
    except BaseException:
        os._exit(1)
    os.write(writer, json.dumps(found).encode()[: 1 << 16])
    os._exit(0)


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
            if not isinstance(statement, ast.stmt) or isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                continue
            branches = [*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]
            for holder, name in [(statement, n) for n in ("body", "orelse", "finalbody")] + [
                (b, "body") for b in branches
            ]:
                inner = getattr(holder, name, None)
                if isinstance(inner, list) and inner:
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
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
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


def reduce(text, fails, say=lambda text: None, seconds=600):
    """The smallest program found, and how it fails; `fails` gives the kind of failure and a report, or nothing."""
    failure = fails(text)
    if failure is None:
        raise ValueError("this program does not fail")
    prelude, rest = (PRELUDE, text[len(PRELUDE) :]) if text.startswith(PRELUDE) else ("", text)
    tree = ast.parse(rest)
    changed, end = True, time.monotonic() + seconds
    while changed:
        changed = False
        for candidate in smaller(tree):
            if time.monotonic() > end:
                break
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
    parser.add_argument("--seconds", type=float, default=600, help="stop then, with what there is")
    parser.add_argument("--file", help="reduce this program instead of the seed's")
    o = parser.parse_args(arguments)
    text = open(o.file).read() if o.file else source(o.seed)
    mode = o.mode or next((mode for mode in MODES if probe(text, mode, o.seed)), None)
    if mode is None:
        raise SystemExit("no difference in any mode")
    fails = lambda text: probe(text, mode, o.seed)
    if fails(text) is None:
        raise SystemExit("alone, in a new process, this program does not fail")
    small, failure = reduce(text, fails, lambda text: print(text, file=sys.stderr), o.seconds)
    first = 2 + (PRELUDE.count("\n") if text.startswith(PRELUDE) else 0)
    numbered = "\n".join(f"{n:4}  {line}" for n, line in enumerate(small.splitlines(), first))
    print(f"mode {mode}, {failure[0]}\n{numbered}\n\n{failure[1]}")


if __name__ == "__main__":
    main()
