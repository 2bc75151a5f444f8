"""Runs the test suites of real packages plain and under `overdrive run --policy eager`, and compares the outcome of each test.

In: the unpacked source distributions (scripts/package_tests brings them). Out: a line per suite on standard output, and status 1
when an outcome differs, a run crashes or takes too long, or nothing of the package was compiled. What may differ, with the
reason, is in expected.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


class Suite(NamedTuple):
    """Where a package lies in its source distribution, and which of its tests run."""

    directory: str
    path: str
    """What PYTHONPATH names."""
    package: str
    """The directory of its modules."""
    tests: tuple[str, ...]
    """Arguments of pytest."""


# Of mpmath the files that look at its own arithmetic and take seconds; of lark all but the tests that read other people's
# grammars (they need packages); of simpy all but its
# benchmarks (they need a plugin) and test_rt.py (it fails wherever the machine is busy).
SUITES = {
    "mpmath": Suite(
        "mpmath-1.4.1",
        ".",
        "mpmath",
        tuple(
            f"mpmath/tests/test_{name}.py"
            for name in (
                "basic_ops",
                "bitwise",
                "convert",
                "diff",
                "division",
                "eigen",
                "hp",
                "identify",
                "interval",
                "linalg",
                "matrices",
                "power",
                "quad",
                "rootfinding",
                "special",
                "str",
                "summation",
                "trig",
            )
        ),
    ),
    "lark": Suite("lark-1.3.1", ".", "lark", ("tests/__main__.py",)),
    "simpy": Suite(
        "simpy-4.1.2",
        "src",
        "src/simpy",
        ("tests", *(f"--ignore=tests/{name}.py" for name in ("test_benchmark", "test_rt"))),
    ),
}


class Ran(NamedTuple):
    """What came of one run of a suite."""

    outcomes: dict[str, str]
    """By test: passed, skipped, failed or error."""
    trouble: str | None
    """Why there may be tests missing: a crash, or the time was over."""
    seconds: float
    promoted: int
    """Functions of the package that were compiled and swapped in."""
    refused: int


def run(suite: Suite, sources: pathlib.Path, limit: float, *, eager: bool) -> Ran:
    """Run a suite once."""
    root = sources / suite.directory
    with tempfile.TemporaryDirectory(prefix="overdrive-packages-") as made:
        results, report = pathlib.Path(made, "results.xml"), pathlib.Path(made, "report.json")
        pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={results}"]
        command = [sys.executable, "-X", "faulthandler"]
        if eager:
            command += ["-m", "overdrive", "run", "--policy", "eager"]
            command += ["--report", "json", "--report-file", str(report)]
        # The profile `ci` of Hypothesis fixes its inputs and lets a test take the time that compilations take.
        # Recursion and hash order must not differ between the two runs for reasons of their own.
        env = {**os.environ, "PYTHONPATH": str(root / suite.path), "PYTHONHASHSEED": "0"}
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        start = time.monotonic()
        try:
            done = subprocess.run(
                [*command, *pytest, f"--timeout={limit / 2:.0f}", "--hypothesis-profile=ci", *suite.tests],
                cwd=root,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=limit,
                check=False,
            )
            said, status = done.stdout.decode(errors="replace"), done.returncode
        except subprocess.TimeoutExpired as late:
            said, status = (late.stdout or b"").decode(errors="replace"), None
        seconds = time.monotonic() - start
        trouble = None
        if status is None:
            trouble = f"not done after {limit:.0f} s"
        elif status not in (0, 1):  # 1: tests failed, which the outcomes tell
            trouble = f"status {status}"
        if trouble:
            trouble += "; it said at the end:\n" + "\n".join(said.splitlines()[-30:])
        outcomes = read_outcomes(results) if results.exists() else {}
        rows = json.loads(report.read_text())["rows"] if report.exists() else []
    own = str(root / suite.package) + os.sep
    own_rows = [row for row in rows if row["file"].startswith(own) and os.sep + "tests" not in row["file"]]
    counted = [sum(row["state"] == state for row in own_rows) for state in ("promoted", "refused")]
    return Ran(outcomes, trouble, seconds, *counted)


def read_outcomes(results: pathlib.Path) -> dict[str, str]:
    """Read pytest's JUnit file."""
    outcomes: dict[str, str] = {}
    for case in xml.etree.ElementTree.parse(results).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        told = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        # A test can fail and then fail again where it is torn down: both are kept.
        outcomes[name] = ", ".join(filter(None, [outcomes.get(name), *told])) or "passed"
    return outcomes


def expected_differences() -> dict[tuple[str, str], str]:
    """Read expected.txt, for this CPython."""
    found = {}
    for line in (HERE / "expected.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            package, test, versions, reason = line.split(maxsplit=3)
            if versions == "*" or VERSION in versions.split(","):
                found[package, test] = reason
    return found


def compare(name: str, plain: Ran, eager: Ran, expected: dict[tuple[str, str], str]) -> list[str]:
    """Say what is wrong with a suite; nothing when all is well."""
    wrong = [f"plain: {plain.trouble}"] if plain.trouble else []
    wrong += [f"eager: {eager.trouble}"] if eager.trouble else []
    if not plain.outcomes:
        wrong.append("no test ran")
    if not eager.promoted:
        wrong.append("nothing of the package was compiled: the comparison says nothing")
    for test in sorted(plain.outcomes.keys() | eager.outcomes.keys()):
        before, after = (ran.outcomes.get(test, "did not run") for ran in (plain, eager))
        if before != after and (name, test) not in expected:
            wrong.append(f"{test}: {before} plain, {after} under eager")
        if before == after and (name, test) in expected:
            wrong.append(f"{test}: expected.txt says it differs, but it does not")
    return wrong


def main() -> int:
    """Run what the options choose; the status is that of the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--sources", type=pathlib.Path, required=True, help="where the packages are unpacked")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(SUITES)}")
    parser.add_argument("--limit", type=float, default=1800, help="seconds for one run of a suite (1800)")
    chosen = parser.parse_args()
    names = chosen.only.split(",") if chosen.only else list(SUITES)
    if unknown := [name for name in names if name not in SUITES]:
        parser.error(f"no such package: {', '.join(unknown)}; there are {', '.join(SUITES)}")
    expected, failed = expected_differences(), False
    for name in names:
        print(f"{name} on CPython {VERSION}: plain …", file=sys.stderr, flush=True)
        plain = run(SUITES[name], chosen.sources, chosen.limit, eager=False)
        print(f"  {plain.seconds:.0f} s; under eager …", file=sys.stderr, flush=True)
        eager = run(SUITES[name], chosen.sources, chosen.limit, eager=True)
        wrong = compare(name, plain, eager, expected)
        failed |= bool(wrong)
        counts = {o: list(plain.outcomes.values()).count(o) for o in sorted(set(plain.outcomes.values()))}
        print(
            f"{name} on CPython {VERSION}: {'DIFFERENT' if wrong else 'the same'};"
            f" {', '.join(f'{n} {o}' for o, n in counts.items())};"
            f" {eager.promoted} functions of the package promoted, {eager.refused} refused;"
            f" {plain.seconds:.0f} s plain, {eager.seconds:.0f} s under eager",
            flush=True,
        )
        for line in wrong:
            print(f"  {line}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
