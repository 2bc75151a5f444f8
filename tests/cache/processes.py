"""Programs that compile, each in a process of its own with a cache of the test's."""

import json
import os
import subprocess
import sys

# Ends with what became of the cache: versions loaded, versions made that were not there, what went wrong.
TAIL = """
import json as _json
_facts = overdrive.info()["cache"]
print(_json.dumps([_facts["loaded"], _facts["made"], _facts.get("problem")]))
"""


def environment(caches, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OVERDRIVE", "PYTHON"))}
    env["XDG_CACHE_HOME"] = str(caches)
    return {**env, **more}


def start(program, caches, directory=None, **more):
    return subprocess.Popen(
        [sys.executable, "-c", "import overdrive\n" + program + TAIL],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(caches, **more),
        cwd=directory,
    )


def finish(process):
    """What it printed, and (loaded, made, problem)."""
    out, err = process.communicate(timeout=240)
    assert (process.returncode, err) == (0, ""), err
    *printed, facts = out.splitlines()
    return printed, tuple(json.loads(facts))


def run(program, caches, directory=None, **more):
    return finish(start(program, caches, directory, **more))


def code(caches):
    """Where the entries are."""
    return caches / "overdrive" / "code"


def entries(caches):
    return sorted(path for path in code(caches).rglob("*") if len(path.name) == 62)
