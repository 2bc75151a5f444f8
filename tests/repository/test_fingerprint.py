"""`make test` knows by a hash that nothing changed: it sees every change of a file that counts, and no other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/fingerprint.py"


def git(directory, *arguments):
    subprocess.run(["git", "-C", directory, *arguments], check=True, capture_output=True)


def fingerprint(directory, *paths):
    command = [sys.executable, SCRIPT, *paths]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def clone(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / ".gitignore").write_text("*.so\n")
    (tmp_path / "src/tracked.py").write_text("a = 1\n")
    (tmp_path / "other.py").write_text("b = 1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    (tmp_path / "src/untracked.py").write_text("c = 1\n")
    return tmp_path


CHANGES = {
    "a tracked file": lambda at: (at / "src/tracked.py").write_text("a = 2\n"),
    "an untracked file": lambda at: (at / "src/untracked.py").write_text("c = 2\n"),
    "a file more": lambda at: (at / "src/new.py").write_text(""),
    "a file less": lambda at: (at / "src/tracked.py").unlink(),
    "a name": lambda at: (at / "src/tracked.py").rename(at / "src/renamed.py"),
    "contents swapped": lambda at: [
        (at / "src/tracked.py").write_text("c = 1\n"),
        (at / "src/untracked.py").write_text("a = 1\n"),
    ],
    "executable": lambda at: (at / "src/tracked.py").chmod(0o755),
    "a link in its place": lambda at: [
        (at / "src/tracked.py").unlink(),
        (at / "src/tracked.py").symlink_to("untracked.py"),
    ],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(clone, change):
    before = fingerprint(clone), fingerprint(clone, "src")
    CHANGES[change](clone)
    after = fingerprint(clone), fingerprint(clone, "src")
    assert before[0] != after[0] and before[1] != after[1]


def test_ignored_files_and_what_git_knows_do_not_count(clone):
    before = fingerprint(clone)
    (clone / "src/built.so").write_text("machine code")
    git(clone, "add", "src/untracked.py")
    assert fingerprint(clone) == before


def test_files_elsewhere_do_not_count(clone):
    before = fingerprint(clone, "src")
    (clone / "other.py").write_text("b = 2\n")
    assert fingerprint(clone, "src") == before


def test_without_git_there_is_no_hash(tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)},
    )
    assert done.returncode != 0 and done.stdout == ""


@pytest.fixture
def shell(tmp_path):
    """Runs commands of scripts/env.sh as they would run in a clone of their own."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/env.sh").write_text((SCRIPT.parent / "env.sh").read_text())

    def run(command, **settings):
        kept = {name: value for name, value in os.environ.items() if name != "AGAIN"}
        return subprocess.run(
            ["bash", "-c", f"source scripts/env.sh; {command}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**kept, "XDG_CACHE_HOME": str(tmp_path), **settings},
        )

    return run


def test_a_suite_that_passed_on_the_same_inputs_is_named_and_not_run(shell):
    shell("remember_pass .make/passed key key '7 passed in 2.00s'")
    done = shell("passed_before .make/passed key 'Some suite'")
    assert done.returncode == 0
    assert "Some suite: nothing changed since it passed on 20" in done.stderr
    assert "(7 passed in 2.00s); AGAIN=1 make test runs it anyway" in done.stderr
    for other in ("passed_before .make/passed other S", "passed_before .make/none key S"):
        assert shell(other).returncode == 1
    assert shell("passed_before .make/passed key S", AGAIN="1").returncode == 1


@pytest.mark.parametrize(("before", "after"), [("key", "other"), ("", ""), ("key", "")])
def test_what_changed_while_a_suite_ran_is_not_taken_for_tested(shell, before, after):
    assert shell(f"remember_pass .make/passed '{before}' '{after}' how").returncode == 0
    assert shell(f"passed_before .make/passed '{before}' S").returncode == 1
