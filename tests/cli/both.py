"""Runs a program twice, by ``python`` and by ``overdrive run``, and compares everything that comes out."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    status: int
    stdout: bytes
    stderr: bytes


def environment(env=None):
    """Nothing of the caller's Python settings but where the packages are."""
    kept = {
        k: v for k, v in os.environ.items() if k == "PYTHONPATH" or not k.startswith(("OVERDRIVE", "PYTHON"))
    }
    return {**kept, **(env or {})}


def run(command, directory, stdin=b"", env=None, **more):
    done = subprocess.run(
        command,
        cwd=directory,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(env),
        timeout=240,
        **more,
    )
    return Outcome(
        done.returncode, *(re.sub(rb"0x[0-9a-f]+", b"0x...", out) for out in (done.stdout, done.stderr))
    )


def same(directory, arguments, stdin=b"", env=None, flags=(), policies=("default", "eager")):
    """Assert that ``python ARGUMENTS`` and ``overdrive run ARGUMENTS`` do the same; return the outcome."""
    expected = run([sys.executable, *flags, *arguments], directory, stdin, env)
    for policy in policies:
        command = [
            sys.executable,
            *flags,
            "-m",
            "overdrive",
            "run",
            "--quiet",
            "--policy",
            policy,
            *arguments,
        ]
        assert run(command, directory, stdin, env) == expected, f"policy {policy}"
    return expected


def write(directory, files):
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
