"""Runs a program under a session in a process of its own and returns what it prints as JSON."""

import json
import os
import subprocess
import sys
import textwrap

PRELUDE = """\
import json, sys, time
import overdrive

def sum_to(n):
    s = 0
    for i in range(n):
        s += i
    return s

def busy(work, is_enough, most=60.0):
    # On a loaded machine windows take longer: wait for what must come, not for a time.
    end = time.monotonic() + most
    while not is_enough() and time.monotonic() < end:
        pause = time.monotonic() + 0.2
        while time.monotonic() < pause:
            work()
    if not is_enough() and most == 60.0:
        print("waited in vain", overdrive._core.session_report(), file=sys.stderr)

def rows(session):
    return {row.name: row for row in session.report().rows}
"""


def outcome(program, *, flags=(), env=None):
    source = PRELUDE + textwrap.dedent(program)
    environment = {**{k: v for k, v in os.environ.items() if k != "OVERDRIVE"}, **(env or {})}
    # The source goes through a file: functions are found by file and name.
    directory = environment.pop("PROGRAM_DIRECTORY")
    path = os.path.join(directory, "program.py")
    with open(path, "w") as file:
        file.write(source)
    done = subprocess.run(
        [sys.executable, *flags, path],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        cwd=directory,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", done.stderr
    return json.loads(done.stdout.splitlines()[-1])
