"""Runs the test suite of a real package, and pytest itself, with every function null-promoted, against a plain run.

    python tests/mechanics/package_suite.py [--loops] [FOLDER]

Without FOLDER, the pinned source distribution is fetched with pip. Ends with status 1 when a test differs.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

# Pure Python, heavy on closures, currying, signatures and pickling; its tests are in the source distribution.
PACKAGE = "toolz==1.0.0"
DIGEST = "sha256:2c86e3d9a04798ac556793bced838816296a2f085017664e4995cb40a1047a02"
HERE = pathlib.Path(__file__).resolve().parent


def child(folder, mode):
    """In the child process: pytest over the folder; prints the outcome of each test as the last line."""
    sys.path.insert(0, str(HERE))
    if mode != "plain":
        import promote_everything

        promote_everything.everything(loops="loops" in mode)
    import pytest

    outcomes = {}

    class Outcomes:
        def pytest_runtest_logreport(self, report):
            if report.when == "call" or report.outcome != "passed":
                outcomes[report.nodeid] = [report.outcome, str(report.longrepr or "")[-1500:]]

    os.chdir(folder)
    sys.path.insert(0, folder)
    pytest.main(
        [
            "-q",
            "-p",
            "no:cacheprovider",
            "--import-mode=importlib",
            "-W",
            "ignore",
            "-c",
            os.devnull,
            "--rootdir",
            folder,
            ".",
        ],
        [Outcomes()],
    )
    sys.stdout.flush()
    os.write(1, b"\nOUTCOMES " + json.dumps(outcomes).encode() + b"\n")


def run(folder, mode):
    """Outcomes by test."""
    command = [sys.executable, "-X", "faulthandler", __file__, "--child", str(folder), mode]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=900)
    for line in done.stdout.splitlines():
        if line.startswith("OUTCOMES "):
            return json.loads(line[9:])
    sys.exit(f"{mode} run ended with {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


def fetch(folder):
    """The unpacked source distribution."""
    requirements = pathlib.Path(folder, "requirements.txt")
    requirements.write_text(f"{PACKAGE} --hash={DIGEST}\n")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, "-d", folder, "-r", requirements], check=True)
    archive = next(pathlib.Path(folder).glob("*.tar.gz"))
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return next(p for p in pathlib.Path(folder).iterdir() if p.is_dir())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--loops", action="store_true")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(*options.child)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or fetch(temporary)
        plain, promoted = run(folder, "plain"), run(folder, "null-loops" if options.loops else "null")
    differing = [
        k for k in plain.keys() | promoted.keys() if plain.get(k, [None])[0] != promoted.get(k, [None])[0]
    ]
    print(
        f"{PACKAGE}: {len(plain)} tests, {sum(o == 'passed' for o, _ in plain.values())} pass, {len(differing)} differ"
    )
    for key in sorted(differing):
        print(f"  {key}: {plain.get(key)} -> {promoted.get(key)}")
    return int(bool(differing) or len(plain) < 100)


if __name__ == "__main__":
    sys.exit(main())
