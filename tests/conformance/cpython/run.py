"""CPython's own tests, plain and under `overdrive run --policy eager`: what each test does must not differ.

    python tests/conformance/cpython/run.py                        all modules of the list, those of this CPython
    python tests/conformance/cpython/run.py test_float test_re     some
    python tests/conformance/cpython/run.py --forced 1 test_float  and checks in compiled code fail at random
    python tests/conformance/cpython/run.py --library test_float   and the whole standard library is promoted

A module's tests and the part of the library that they are about are promoted: see `modules.py`. Each module runs in
processes of its own, in which its tests are repeated: functions are compiled at their second call. What may differ is
listed in `expected.txt`. Ends with status 1 when something else differs, when something listed does not differ, and when
nothing was promoted. Says why where CPython came without its tests.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[2]))

from tests.conformance.cpython.modules import modules_of, subjects_of  # noqa: E402

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
LIBRARY = pathlib.Path(os.__file__).parent
PASSES = 3
SECONDS = 900
RATE = 0.1


@dataclasses.dataclass
class Record:
    """What one process wrote down."""

    outcomes: dict = dataclasses.field(default_factory=dict)
    """(pass, test): what it did."""
    details: dict = dataclasses.field(default_factory=dict)
    rows: list = dataclasses.field(default_factory=list)
    """State, file, name, native calls, exits and notes of each function that was to be promoted."""
    seconds: float = 0
    death: str | None = None
    """How the process ended before its end, and the test it was in."""

    def promoted(self, under=""):
        """How many functions were compiled."""
        return sum(row[0] == "promoted" and row[1].startswith(under) for row in self.rows)


@dataclasses.dataclass
class Difference:
    """One test that did something else."""

    test: str
    change: str
    number: int
    detail: str
    reason: str | None = None


@dataclasses.dataclass
class Result:
    """Both runs of one module."""

    plain: Record
    eager: Record
    differences: list

    def problems(self):
        """What nobody expected, in words."""
        found = [
            f"{d.test}, pass {d.number}: {d.change}\n{d.detail}" for d in self.differences if not d.reason
        ]
        if not self.eager.promoted() and not self.eager.death:
            found.append("nothing was promoted, so that nothing was compared")
        return found


@dataclasses.dataclass(frozen=True)
class Expected:
    """A line of `expected.txt`."""

    versions: tuple
    test: str
    change: str
    reason: str

    def covers(self, test, change):
        """Whether it is about this difference."""
        return VERSION in self.versions and fnmatch.fnmatchcase(test, self.test) and change == self.change


def expected_differences(path=HERE / "expected.txt"):
    """The lines of the file: versions | test | change | reason."""
    found = []
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            versions, test, change, reason = (part.strip() for part in line.split("|", 3))
            found.append(Expected(tuple(versions.split(",")), test, change, reason))
    return found


def compare(name, only, *, passes=PASSES, seconds=SECONDS, seed=None, expected=(), path=None):
    """Runs the tests under the dotted name both ways; `only` names what is promoted, `path` where imports look too."""
    plain = run(name, passes, seconds, path=path)
    if plain.death:
        return Result(plain, Record(), [Difference(name, f"plain run: {plain.death}", 0, "")])
    eager = run(name, passes, seconds, seed, only, path)
    found = []
    for number, test in sorted(plain.outcomes | eager.outcomes):
        before = plain.outcomes.get((number, test), "absent")
        after = eager.outcomes.get((number, test), "absent")
        if before == after or (after == "absent" and eager.death):
            continue
        change = f"{before} -> {after}"
        if all((d.test, d.change) != (test, change) for d in found):
            found.append(Difference(test, change, number, eager.details.get((number, test), "")))
    if eager.death:
        found.append(Difference(name, eager.death, 0, ""))
    for difference in found:
        covering = (e for e in expected if e.covers(difference.test, difference.change))
        difference.reason = next((e.reason for e in covering), None)
    return Result(plain, eager, found)


def wanted(module, library):
    """Patterns of the files whose functions are promoted."""
    if library:
        return [f"{LIBRARY}/*"]
    return [f"{LIBRARY}/test/*", *(f"{LIBRARY}/{subject}" for subject in subjects_of(module))]


def run(name, passes, seconds, seed=None, only=None, path=None):
    """One process: plain, or promoting what `only` names."""
    with tempfile.TemporaryDirectory() as folder:
        record_path = os.path.join(folder, "record")
        command = [sys.executable, "-X", "faulthandler", "-W", "default", "-bb"]
        if only is not None:
            command += ["-m", "overdrive", "run", "--policy", "eager", "--report", "none"]
            command += [part for pattern in only for part in ("--only", pattern)]
        command += [str(HERE / "child.py"), record_path, name, str(passes)]
        if seed is not None:
            command += [str(seed), str(RATE)]
        work = os.path.join(folder, "work")
        os.mkdir(work)
        started = time.monotonic()
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OVERDRIVE", "PYTEST"))
        }
        if path is not None:
            environment["PYTHONPATH"] = str(path)
        with open(os.path.join(folder, "output"), "wb+") as output:
            process = subprocess.Popen(
                command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            try:
                status = process.wait(timeout=seconds)
                ended = f"ended with status {status}"
            except subprocess.TimeoutExpired:
                # Its stacks go to the output.
                process.send_signal(6)
                process.wait()
                ended = f"did not end in {seconds} s"
            except BaseException:
                process.kill()
                process.wait()
                raise
            output.seek(0)
            said = output.read().decode(errors="replace")
        record = read(record_path)
        record.seconds = time.monotonic() - started
        if record.death is not None or ended != "ended with status 0":
            record.death = f"{ended} {record.death or 'behind the last test'}\n{said[-4000:]}"
        return record


def read(path):
    """The record of a process that may have died anywhere."""
    record, at = Record(death="before the first test"), None
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except FileNotFoundError:
        return record
    for line in lines:
        match json.loads(line):
            case ["begins", number, test]:
                at = f"in {test}, pass {number}"
                record.death = at
            case ["test", number, test, outcome, detail]:
                record.outcomes[number, test] = outcome
                record.details[number, test] = detail
            case ["row", *row]:
                record.rows.append(row)
            case ["end"]:
                record.death = None
    return record


def main():
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="as test_float; all of the list if none")
    parser.add_argument("--passes", type=int, default=PASSES, help=f"repetitions in one process ({PASSES})")
    parser.add_argument(
        "--timeout", type=float, default=SECONDS, help=f"seconds for each process ({SECONDS})"
    )
    parser.add_argument("--forced", type=int, metavar="SEED", help="one check in ten fails, at random")
    parser.add_argument("--library", action="store_true", help="promote the whole standard library")
    parser.add_argument("--json", metavar="FILE", help="write what each function and test did to FILE")
    options = parser.parse_args()
    if importlib.util.find_spec("test.support") is None:
        print(f"CPython {VERSION} at {sys.prefix} came without its tests: pyenv's and python.org's have them")
        return 2
    expected = expected_differences()
    modules = options.modules or modules_of(LIBRARY)
    n_problems, seen, everything, started = 0, set(), {}, time.monotonic()
    for module in modules:
        if importlib.util.find_spec(f"test.{module}") is None:
            print(f"{module}: CPython {VERSION} has no such module of tests")
            n_problems += 1
            continue
        result = compare(
            f"test.{module}",
            wanted(module, options.library),
            passes=options.passes,
            seconds=options.timeout,
            seed=options.forced,
            expected=expected,
        )
        problems = result.problems()
        n_problems += len(problems)
        print(line_of(module, result), flush=True)
        for problem in problems:
            print("    " + problem.replace("\n", "\n    "), flush=True)
        for difference in result.differences:
            if difference.reason:
                print(f"    {difference.test}: {difference.change}, expected: {difference.reason}")
        covered = [e for e in expected for d in result.differences if e.covers(d.test, d.change)]
        seen.update(covered)
        about = [e for e in expected if VERSION in e.versions and e.test.startswith(f"test.{module}.")]
        for line in [e for e in about if e not in covered and options.forced is None and not options.library]:
            n_problems += 1
            print(
                f"    {line.test}: {line.change} is expected and did not come: take the line out of expected.txt"
            )
        everything[module] = {
            "rows": result.eager.rows,
            "differences": [vars(d) for d in result.differences],
            "seconds": [result.plain.seconds, result.eager.seconds],
        }
    print(
        f"CPython {VERSION}: {len(modules)} modules, {n_problems} problems, {time.monotonic() - started:.0f} s"
    )
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(everything, indent=1))
    return int(n_problems > 0)


def line_of(module, result):
    """What happened, in one line."""
    plain, eager = result.plain, result.eager
    n_tests = len({test for _, test in plain.outcomes})
    in_tests = eager.promoted(str(LIBRARY / "test"))
    calls, exits = sum(row[3] for row in eager.rows), sum(row[4] for row in eager.rows)
    return (
        f"{module}: {n_tests} tests, {len(result.differences)} differ; compiled {in_tests} functions of tests and "
        f"{eager.promoted() - in_tests} of the library, {calls:,} native calls, {exits:,} exits; "
        f"{plain.seconds:.1f} s plain, {eager.seconds:.1f} s promoted"
    )


if __name__ == "__main__":
    sys.exit(main())
