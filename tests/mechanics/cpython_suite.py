"""Runs CPython's own tests with every function null-promoted, and shows what differs from a plain run.

    python tests/mechanics/cpython_suite.py [--loops] [--from-start] [TEST...]

Ends with status 1 when a test differs that `expected_differences.py` does not list. Interpreters without the `test`
package are skipped.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TESTS = """
test_grammar test_generators test_scope test_exceptions test_traceback test_sys_settrace test_sys_setprofile
test_inspect test_super test_with test_functools test_contextlib test_dis test_frame test_closure test_call
test_extcall test_keywordonlyarg test_descr test_gc test_weakref test_threading_local test_pickle test_compile
test_except_star test_patma test_raise test_unpack test_dataclasses test_property test_positional_only_arg
""".split()

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT = 600


def child(name, mode):
    """In the child process: runs one test module and prints the outcome of each test as the last line."""
    import unittest

    if mode != "plain":
        sys.path.insert(0, str(HERE))
        import promote_everything

        promote_everything.everything(leave="from-start" not in mode, loops="loops" in mode)
        sys.path.pop(0)

    outcomes = {}

    class Result(unittest.TestResult):
        def note(self, test, outcome, detail=""):
            key = test.id() if hasattr(test, "id") else str(test)
            if outcomes.get(key, ["ok"])[0] == "ok" or outcome != "ok":
                outcomes[key] = [outcome, detail[-1500:]]

        def addSuccess(self, test):
            self.note(test, "ok")

        def addFailure(self, test, error):
            self.note(test, "FAIL", self._exc_info_to_string(error, test))

        def addError(self, test, error):
            self.note(test, "ERROR", self._exc_info_to_string(error, test))

        def addSkip(self, test, reason):
            self.note(test, "skipped")

        def addExpectedFailure(self, test, error):
            self.note(test, "expected failure")

        def addUnexpectedSuccess(self, test):
            self.note(test, "unexpected success")

        def addSubTest(self, test, subtest, error):
            if error is not None:
                self.note(test, "FAIL", self._exc_info_to_string(error, test))

    suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{name}")
    suite(Result())
    sys.stdout.flush()
    os.write(1, b"\nOUTCOMES " + json.dumps(outcomes).encode() + b"\n")


def run(name, mode):
    """Outcomes of one test module by test, or one entry that says how the process ended."""
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-W",
        "ignore",
        str(HERE / "cpython_suite.py"),
        "--child",
        name,
        mode,
    ]
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                timeout=TIMEOUT,
                errors="replace",
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return {"(process)": ["TIMEOUT", ""]}
    for line in done.stdout.splitlines():
        if line.startswith("OUTCOMES "):
            return json.loads(line[9:])
    return {"(process)": [f"ended with {done.returncode}", done.stderr[-3000:]]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*")
    parser.add_argument(
        "--loops", action="store_true", help="every back edge enters and leaves too (3.12 and later)"
    )
    parser.add_argument(
        "--from-start", action="store_true", help="run the original from its start, not by leaving"
    )
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(*options.child)
    sys.path.insert(0, str(HERE))
    from expected_differences import EXPECTED

    mode = "null" + ("-loops" if options.loops else "") + ("-from-start" if options.from_start else "")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    unexpected = 0
    for name in options.tests or TESTS:
        if importlib.util.find_spec(f"test.{name}") is None:
            continue
        plain, promoted = run(name, "plain"), run(name, mode)
        differing = [
            k for k in plain.keys() | promoted.keys() if plain.get(k, [None])[0] != promoted.get(k, [None])[0]
        ]
        print(f"{name}: {len(plain)} tests, {len(differing)} differ", flush=True)
        for key in sorted(differing):
            reason = next((r for v, part, r in EXPECTED if part in key and version in v), None)
            unexpected += reason is None
            detail = (promoted.get(key) or plain.get(key))[1]
            print(
                f"  {key}: {plain.get(key, ['absent'])[0]} -> {promoted.get(key, ['absent'])[0]}"
                + (f" (expected: {reason})" if reason else "")
            )
            if reason is None:
                print("    " + detail.replace("\n", "\n    "))
    print("unexpected differences:", unexpected)
    return int(unexpected > 0)


if __name__ == "__main__":
    sys.exit(main())
