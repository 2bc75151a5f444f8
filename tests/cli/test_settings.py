"""``[tool.overdrive]`` in pyproject.toml: found, obeyed, checked, and overruled by the command line."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from overdrive import settings

from .both import run, write

SCRIPT = """\
import sys
def f(x):
    return x + 1
def g(x):
    return x + 2
print([f(i) + g(i) for i in range(4)])
"""


def table(text):
    return "[project]\nname = 'x'\n[tool.overdrive]\n" + text


def overdrive(directory, *arguments, env=None):
    return run([sys.executable, "-m", "overdrive", *arguments], directory, env=env)


def rows(directory, file="report.json"):
    return {row["name"] for row in json.loads((directory / file).read_text())["rows"]}


ALL = """\
policy = "eager"
only = ["program.py"]
skip = ["g"]
report = "json"
report-file = "report.json"
verify = true
verify-calls = 2
"""


def test_everything_that_the_table_says(tmp_path):
    write(tmp_path, {"pyproject.toml": table(ALL), "src/program.py": SCRIPT})
    plain = run([sys.executable, "src/program.py"], tmp_path)
    outcome = overdrive(tmp_path, "run", "src/program.py")
    assert outcome == plain and outcome.status == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert [(row["name"], row["verified_calls"]) for row in report["rows"]] == [("f", 2)]


def test_reading_them_imports_nothing_for_the_program(tmp_path):
    script = "import sys\nprint(sorted({'tomllib', 're', 'string', 'datetime', 'enum'} & set(sys.modules)))\n"
    write(tmp_path, {"pyproject.toml": table('report = "none"'), "program.py": script})
    plain = run([sys.executable, "program.py"], tmp_path)
    assert overdrive(tmp_path, "run", "program.py") == plain


def test_the_nearest_file_with_the_table(tmp_path):
    write(
        tmp_path,
        {
            "pyproject.toml": table('report = "none"\npolicy = "observe"'),
            "a/pyproject.toml": table('report = "none"'),
            "a/b/pyproject.toml": "[project]\nname = 'overdrive'\n[tool.other]\nx = 1\n",
            "a/b/program.py": "print(1)\n",
        },
    )
    assert settings.find(str(tmp_path / "a" / "b")).file == str(tmp_path / "a" / "pyproject.toml")
    assert settings.find(str(tmp_path / "a" / "b")).policy is None
    assert overdrive(tmp_path, "run", "a/b/program.py").stderr == b""


def test_the_scripts_directory_not_the_working_one(tmp_path):
    write(tmp_path, {"here/pyproject.toml": table("nonsense = 1"), "there/program.py": "print(1)\n"})
    assert overdrive(tmp_path / "here", "run", "-q", "../there/program.py").status == 0
    for arguments in (["-m", "this"], ["-"]):
        assert overdrive(tmp_path / "here", "run", *arguments).status == 2
    write(tmp_path, {"there/pyproject.toml": table("nonsense = 1"), "there/pack/__main__.py": "print(1)\n"})
    for program in ("program.py", "pack"):
        assert overdrive(tmp_path, "run", f"there/{program}").status == 2
    os.symlink(tmp_path / "there" / "program.py", tmp_path / "link.py")
    assert overdrive(tmp_path, "run", "link.py").status == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("polciy = 'eager'", "tool.overdrive has no key 'polciy'; the keys are only, policy, report,"),
        ("policy = 'fast'", "tool.overdrive.policy is one of default, eager, observe, not 'fast'"),
        ("policy = 1", "tool.overdrive.policy is one of"),
        ("policy = []", "tool.overdrive.policy is one of"),
        ("only = 'f'", "tool.overdrive.only is an array of strings, not a string"),
        ("skip = ['f', 1]", "tool.overdrive.skip is an array of strings; it holds 1"),
        ("report = 'xml'", "tool.overdrive.report is one of"),
        ("report-file = ''", "tool.overdrive.report-file is a string that is not empty"),
        ("report-file = '/etc/x'", "tool.overdrive.report-file is a path inside the file's directory"),
        ("report-file = '../x'", "tool.overdrive.report-file is a path inside the file's directory"),
        ("verify = 1", "tool.overdrive.verify is true or false, not 1"),
        ("verify-calls = 0", "tool.overdrive.verify-calls is a whole number from 1 to 1000, not 0"),
        ("verify-calls = true", "tool.overdrive.verify-calls is a whole number"),
        ("verify-calls = 2.0", "tool.overdrive.verify-calls is a whole number"),
        ("x = = 1", "is not valid TOML"),
    ],
)
def test_a_mistake_is_told_with_file_and_key(tmp_path, text, problem):
    write(tmp_path, {"pyproject.toml": table(text)})
    with pytest.raises(settings.SettingsError) as raised:
        settings.find(str(tmp_path))
    assert str(raised.value).startswith(f"{tmp_path / 'pyproject.toml'}: {problem}")


def test_a_mistake_ends_the_command_before_the_program(tmp_path):
    write(tmp_path, {"pyproject.toml": table("polciy = 'eager'"), "program.py": "print('ran')\n"})
    outcome = overdrive(tmp_path, "run", "program.py")
    assert (outcome.status, outcome.stdout) == (2, b"")
    assert b"pyproject.toml: tool.overdrive has no key 'polciy'" in outcome.stderr
    assert overdrive(tmp_path, "run", "-q", "--no-settings", "program.py").stdout == b"ran\n"
    assert overdrive(tmp_path, "run", "program.py", env={"OVERDRIVE": "0"}).stdout == b"ran\n"


def test_not_a_table(tmp_path):
    write(tmp_path, {"pyproject.toml": "[tool]\noverdrive = 1\n"})
    with pytest.raises(settings.SettingsError, match=r"tool\.overdrive is a table, not an integer"):
        settings.find(str(tmp_path))
    write(tmp_path, {"pyproject.toml": b"[tool.overdrive]\npolicy = '\xff'\n"})
    with pytest.raises(settings.SettingsError, match="is not valid TOML"):
        settings.find(str(tmp_path))


def test_the_command_line_goes_first(tmp_path):
    write(tmp_path, {"pyproject.toml": table(ALL), "program.py": SCRIPT})
    # --only replaces, --skip adds.
    assert overdrive(tmp_path, "run", "--only", "g", "--only", "f", "program.py").status == 0
    assert rows(tmp_path) == {"f"}
    write(tmp_path, {"src/program.py": SCRIPT})
    for pattern, found in [("src/program.py::f", {"f"}), ("rc/program.py", set()), ("src/*.py", {"f"})]:
        assert overdrive(tmp_path, "run", "--only", pattern, "src/program.py").status == 0
        assert rows(tmp_path) == found
    assert overdrive(tmp_path, "run", "--skip", "f", "program.py").status == 0
    assert rows(tmp_path) == set()
    assert overdrive(tmp_path, "run", "--report-file", "other.json", "program.py").status == 0
    assert rows(tmp_path, "other.json") == {"f"}
    assert overdrive(tmp_path, "run", "--report=none", "--policy=default", "program.py").stderr == b""
    overdrive(tmp_path, "run", "--no-verify", "program.py")
    report = json.loads((tmp_path / "report.json").read_text())
    assert [row["verified_calls"] for row in report["rows"]] == [None]
    overdrive(tmp_path, "run", "--verify-calls", "1", "program.py")
    report = json.loads((tmp_path / "report.json").read_text())
    assert [row["verified_calls"] for row in report["rows"]] == [1]


@pytest.mark.parametrize("arguments", [["--verify-calls", "0"], ["--verify-calls", "x"], ["--verify-calls"]])
def test_a_wrong_number_of_calls_is_usage(tmp_path, arguments):
    outcome = overdrive(tmp_path, "run", *arguments, "x.py")
    assert outcome.status == 2 and b"verify-calls" in outcome.stderr


def test_info_names_the_file(tmp_path):
    write(tmp_path, {"pyproject.toml": table("policy = 'observe'"), "sub/x": ""})
    facts = json.loads(overdrive(tmp_path / "sub", "info", "--json").stdout)
    assert facts["settings"] == str(tmp_path / "pyproject.toml")
    write(tmp_path, {"pyproject.toml": table("nonsense = 1")})
    facts = json.loads(overdrive(tmp_path / "sub", "info", "--json").stdout)
    assert "no key 'nonsense'" in facts["settings"]


def test_start_reads_no_settings(tmp_path):
    script = "import overdrive\nwith overdrive.start() as session:\n    print(session.policy.eager, session.only)\n"
    write(tmp_path, {"pyproject.toml": table(ALL), "program.py": script})
    assert run([sys.executable, "program.py"], tmp_path).stdout == b"False ()\n"


def test_the_documented_table_is_valid_and_complete(tmp_path):
    document = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    (example,) = re.findall(r"^```toml\n(.*?)^```", document, re.M | re.S)
    write(tmp_path, {"pyproject.toml": example})
    found = settings.find(str(tmp_path))
    assert (found.only, found.verify_calls) == (["simulation.py", "Parser.*"], 3)
    keys = re.findall(r"^\| `([a-z-]+)` \|", document, re.M)
    assert keys == re.findall(r"^([a-z-]+) = ", example, re.M) == list(settings.KEYS)
