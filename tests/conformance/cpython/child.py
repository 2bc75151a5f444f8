"""Runs one module of CPython's tests several times over in this process, and writes down what each test did.

    child.py RECORD MODULE PASSES [SEED RATE]

In: a module's name, as `test.test_float`. Out: lines of JSON in the file RECORD, each written before the next thing
happens, so that they say where a process died. Functions are promoted at their second call: the first pass is
their first. With a seed, checks in compiled code are made to fail at random. Knows nothing of what is expected.
"""

import os
import sys
import unittest


class Recorder(unittest.TestResult):
    """Notes the worst outcome of each test: a subtest's, a fixture's or its own."""

    WORST_LAST = ("ok", "skipped", "expected failure", "unexpected success", "FAIL", "ERROR")

    def __init__(self, write, number):
        super().__init__()
        self.write, self.number, self.outcomes = write, number, {}

    def note(self, test, outcome, detail=""):
        key = test.id()
        known = self.outcomes.get(key, "ok")
        if self.WORST_LAST.index(outcome) >= self.WORST_LAST.index(known):
            self.outcomes[key] = outcome
            self.write(["test", self.number, key, outcome, detail[-3000:]])

    def startTest(self, test):
        super().startTest(test)
        self.write(["begins", self.number, test.id()])

    def addSuccess(self, test):
        self.note(test, "ok")

    def addFailure(self, test, error):
        self.note(test, "FAIL", self._exc_info_to_string(error, test))

    def addError(self, test, error):
        self.note(test, "ERROR", self._exc_info_to_string(error, test))

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def addExpectedFailure(self, test, error):
        self.note(test, "expected failure")

    def addUnexpectedSuccess(self, test):
        self.note(test, "unexpected success")

    def addSubTest(self, test, subtest, error):
        if error is not None:
            is_failure = issubclass(error[0], test.failureException)
            detail = f"{subtest}\n{self._exc_info_to_string(error, test)}"
            self.note(test, "FAIL" if is_failure else "ERROR", detail)


def main(record, module, passes, seed=None, rate=None):
    from json import dumps

    # Not by a file object: tests close, count and collect those.
    file = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

    def write(entry):
        os.write(file, f"{dumps(entry)}\n".encode())

    from test import support

    # As `python -m test` without -u: no network, no gigabytes, no minutes.
    support.use_resources = []
    compiled = "overdrive.session" in sys.modules
    if seed is not None:
        from overdrive import _core

        _core.debug_force(("seed", int(seed), float(rate)))
    for number in range(1, int(passes) + 1):
        suite = unittest.TestLoader().loadTestsFromName(module)
        suite(Recorder(write, number))
    if compiled:
        import overdrive

        # Joins the session of `overdrive run`.
        for row in overdrive.start("eager").report().rows:
            write(["row", row.state, row.file, row.name, row.native_calls, row.exits, row.notes])
    write(["end"])


if __name__ == "__main__":
    # The tests are to see the path that a script elsewhere has.
    sys.path[0] = os.getcwd()
    main(*sys.argv[1:])
