"""Machine code from the disk: the same results as when it is made, and never for something else."""

import json
import os
import stat
import subprocess
import sys

import pytest

from .processes import code, entries, environment, finish, run, start

SUMS = """
@overdrive.jit
def total(n):
    s = 0
    for i in range(n):
        s += i * i
    return s
print(total(1000), total(5_000_000))
versions = overdrive.explain(total).functions[0]["versions"]
print([version["cached"] for version in versions], ["codegen" in version["stages"] for version in versions])
"""


def test_the_second_process_makes_no_machine_code(tmp_path):
    first, facts = run(SUMS, tmp_path)
    assert first[1] == "[False] [True]"
    assert facts == (0, 1, None)
    second, facts = run(SUMS, tmp_path)
    assert second[0] == first[0]
    assert second[1] == "[True] [False]", "LLVM has no part in it"
    assert facts == (1, 0, None)


def test_explain_says_where_the_code_came_from(tmp_path):
    program = SUMS + "print(overdrive.explain(total))\n"
    said = ", machine code from the cache"
    assert said not in "\n".join(run(program, tmp_path)[0])
    assert said in "\n".join(run(program, tmp_path)[0])


# What can happen in compiled code: exits of all kinds, exceptions with tracebacks, NumPy, threads, vectors.
EVERYTHING = """
import math, traceback
import numpy as np

@overdrive.jit
def grows(x, n):
    for _ in range(n):
        x = x * 3 + 1
    return x
print(grows(1, 20), grows(1, 60))

@overdrive.jit
def divides(a, b):
    return [x / b for x in a], a[0] // b, a[1] % b
for b in (2, 0.5, 0):
    try:
        print(divides([7, -8], b))
    except ZeroDivisionError as error:
        print(traceback.extract_tb(error.__traceback__)[-1].lineno, error)

@overdrive.jit
def picks(l, i):
    return l[i]
for l, i in (([1, 2], 1), ([1, 2], -1), ((None, True), 0), ([1], 5), ("text", 2)):
    try:
        print(picks(l, i))
    except IndexError as error:
        print(type(error), error)

@overdrive.jit
def smooth(a, out):
    for i in range(1, a.shape[0] - 1):
        out[i] = (a[i - 1] + a[i] * 2.0 + a[i + 1]) / 4.0
    return out.sum()
a = np.linspace(0.0, 1.0, 400)
print(smooth(a, np.zeros(400)).hex(), smooth(a[::2], np.zeros(200)).hex())

@overdrive.jit(fastmath=True)
def waves(a, out):
    for i in range(a.shape[0]):
        out[i] = math.sin(a[i]) * math.exp(a[i])
    return out
print([x.hex() for x in waves(a, np.zeros(400))[::97]], overdrive.explain(waves).functions[0]["versions"][0]["vector_functions"])

@overdrive.jit(parallel=True)
def shared(a):
    s = 0.0
    for i in overdrive.prange(a.shape[0]):
        s += a[i] * a[i]
    return s
print(shared(a).hex())

@overdrive.jit
def library(x):
    return math.sqrt(math.fabs(math.cos(x))) + math.floor(x) + math.hypot(x, 2.0)
print(library(1.25).hex(), library(-3.5).hex())
try:
    library(math.inf)
except (ValueError, OverflowError) as error:
    print(type(error), error)

@overdrive.jit
def objects(words):
    counts = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items()), f"{len(words)} words", None is None
print(objects("a b a c b a".split()))
"""


def test_everything_gives_the_same_from_the_disk(tmp_path):
    made, (loaded, n_made, problem) = run(EVERYTHING, tmp_path)
    assert (loaded, problem) == (0, None)
    assert n_made >= 10
    # The first process that knows what types were learned takes another way to the same; then nothing is new.
    for _ in range(3):
        kept, (loaded, n_made, problem) = run(EVERYTHING, tmp_path)
        assert kept == made
        assert loaded >= 6 and problem is None
    assert n_made == 0
    with_none, facts = run(EVERYTHING.replace("overdrive.jit\n", "overdrive.jit(cache=False)\n"), tmp_path)
    assert with_none == made


def test_a_changed_value_in_another_file_is_seen(tmp_path):
    """What a function assumes of the program is looked at in each process: nothing of it is on the disk."""
    caches = tmp_path / "caches"
    program = "import used\n@overdrive.jit\ndef f(x):\n    return used.helper(x) + used.SCALE\nprint(f(1), f(2.5))\n"
    used = tmp_path / "used.py"
    for scale, body, expected in [
        ("10", "x", "11 12.5"),
        ("20", "x", "21 22.5"),
        ("20", "x * 2", "22 25.0"),
        ("20.5", "x * 2", "22.5 25.5"),
        ("'no number'.count('n')", "-x", "1 -0.5"),
        ("10", "x", "11 12.5"),
    ]:
        used.write_text(f"SCALE = {scale}\ndef helper(x):\n    return {body}\n")
        # No bytecode: two versions of one second would be told apart by nothing.
        printed, (_, _, problem) = run(program, caches, tmp_path, PYTHONDONTWRITEBYTECODE="1")
        assert (printed, problem) == ([expected], None)


def test_functions_that_look_alike_are_told_apart(tmp_path):
    """The same name, code and file name; other globals, constants and types."""
    program = """
results = []
for scale, constant in ((2, 3), (2.5, 3), (2, 3.5), (2, True), (10**30, 3), (None, 3)):
    space = {"SCALE": scale, "overdrive": overdrive}
    exec(compile(f"@overdrive.jit\\ndef f(x):\\n    return SCALE is None or x * SCALE + {constant}", "same.py", "exec"), space)
    results += [space["f"](x) for x in (1, 1.5, True, 1 << 62)]
    results.append([type(r).__name__ for r in results[-4:]])
print(results)
"""
    made, (loaded, n_made, _) = run(program, tmp_path)
    kept, (n_loaded, made_again, _) = run(program, tmp_path)
    assert made == kept
    assert (n_loaded + made_again) == loaded + n_made and made_again == 0
    plain = subprocess.run(
        [sys.executable, "-c", "import overdrive\n" + program.replace("@overdrive.jit", "@(lambda f: f)")],
        capture_output=True,
        text=True,
        env=environment(tmp_path),
    )
    assert plain.stdout.splitlines() == made


def test_without_cache_nothing_is_read_or_written(tmp_path):
    program = SUMS.replace("@overdrive.jit", "@overdrive.jit(cache=False)")
    printed, facts = run(program, tmp_path)
    assert facts == (0, 0, None)
    assert not (tmp_path / "overdrive").exists()
    run(SUMS, tmp_path)
    assert len(entries(tmp_path)) == 1
    again, facts = run(program, tmp_path)
    assert again == printed
    assert printed[1] == "[False] [True]"
    assert facts == (0, 0, None)


def test_with_and_without_cache_are_two_callables(tmp_path):
    program = SUMS + "print(overdrive.jit(total) is total, overdrive.jit(total, cache=False) is total)\n"
    assert run(program, tmp_path)[0][2] == "True False"


def test_promoted_functions_come_from_it_too(tmp_path):
    program = """
import time
def total(n):
    s = 0
    for i in range(n):
        s += i * i
    return s
overdrive.promote(total)
end = time.monotonic() + 60
while not (versions := overdrive.explain(total).functions[0]["versions"]) and time.monotonic() < end:
    total(10)
print(total(1000), [version["cached"] for version in versions])
"""
    assert run(program, tmp_path)[0] == ["332833500 [False]"]
    assert run(program, tmp_path)[0] == ["332833500 [True]"]


def test_files_are_the_users_alone(tmp_path):
    run(SUMS, tmp_path)
    [entry] = entries(tmp_path)
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    for directory in (entry.parent, code(tmp_path)):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def link(path):
    away = path.with_name("away")
    path.rename(away)
    path.symlink_to(away)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:1000]),
        lambda path: path.write_bytes(path.read_bytes() + b"\0"),
        lambda path: path.write_bytes(os.urandom(5000)),
        lambda path: path.write_bytes(path.read_bytes().replace(b"ODCODE\0\x01", b"ODCODE\0\x02")),
        flip,
        link,
        lambda path: path.chmod(0o666),
    ],
    ids=[
        "empty",
        "cut by one",
        "cut",
        "longer",
        "noise",
        "another format",
        "one bit",
        "a link",
        "others write",
    ],
)
def test_a_damaged_file_is_made_anew(damage, tmp_path):
    printed, _ = run(SUMS, tmp_path)
    [entry] = entries(tmp_path)
    whole = entry.read_bytes()
    damage(entry)
    again, (loaded, made, _) = run(SUMS, tmp_path)
    assert (again, loaded, made) == (printed, 0, 1)
    [entry] = entries(tmp_path)
    assert entry.read_bytes() == whole, "replaced, by the same: compiles are reproducible"
    assert run(SUMS, tmp_path)[1] == (1, 0, None)


def test_another_keys_file_is_not_taken(tmp_path):
    run(SUMS, tmp_path)
    [entry] = entries(tmp_path)
    other, _ = run(SUMS.replace("i * i", "i + i"), tmp_path)
    [other_entry] = set(entries(tmp_path)) - {entry}
    other_entry.write_bytes(entry.read_bytes())
    again, facts = run(SUMS.replace("i * i", "i + i"), tmp_path)
    assert (again, facts) == (other, (0, 1, None))


def test_a_directory_that_others_can_write_is_not_used(tmp_path):
    run(SUMS, tmp_path)
    code(tmp_path).chmod(0o777)
    printed, (loaded, made, problem) = run(SUMS, tmp_path)
    assert (loaded, made) == (0, 1)
    assert printed[0] == "332833500 41666654166667500000"
    assert "can be written by other users" in problem


def test_without_a_place_for_it_programs_run_as_before(tmp_path):
    expected = "332833500 41666654166667500000"
    a_file = tmp_path / "file"
    a_file.write_text("")
    printed, (_, _, problem) = run(SUMS, a_file)
    assert printed[0] == expected
    assert "Not a directory" in problem

    # A relative path counts as none, and there is no home.
    printed, (loaded, made, problem) = run(SUMS, "relative", tmp_path, HOME="")
    assert (printed[0], loaded, made) == (expected, 0, 0)
    assert problem == "neither XDG_CACHE_HOME nor HOME is an absolute path"
    assert not (tmp_path / "relative").exists()

    printed, facts = run(SUMS, "", tmp_path, HOME=str(tmp_path))
    assert (printed[0], facts) == (expected, (0, 1, None))
    assert len(entries(tmp_path / ".cache")) == 1


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    full = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n" + SUMS
    printed, (loaded, made, _) = run(full, tmp_path)
    assert (printed[0], loaded, made) == ("332833500 41666654166667500000", 0, 1)
    assert [path for path in code(tmp_path).rglob("*") if path.is_file() and path.name != "lock"] == []
    # Kept behind the call, so that the next compile's process may tell only.
    waits = full + "import time\nend = time.monotonic() + 30\n"
    waits += "while 'problem' not in overdrive.info()['cache'] and time.monotonic() < end: time.sleep(0.01)\n"
    assert "File too large" in run(waits, tmp_path)[1][2]


MANY = """
made = []
for n in range(12):
    space = {"overdrive": overdrive}
    exec(f"@overdrive.jit\\ndef f(x):\\n    s = x\\n    for i in range({n} + 10):\\n        s += i * {n}\\n    return s", space)
    made.append(space["f"](1))
print(made)
"""


def test_many_processes_at_once(tmp_path):
    expected = [str([1 + n * sum(range(n + 10)) for n in range(12)])]
    outcomes = [finish(process) for process in [start(MANY, tmp_path) for _ in range(6)]]
    for printed, (loaded, made, problem) in outcomes:
        assert (printed, problem) == (expected, None)
        assert loaded + made == 12
    assert run(MANY, tmp_path) == (expected, (12, 0, None))
    assert len(entries(tmp_path)) == 12
    assert not list(code(tmp_path).rglob(".new-*"))


def test_a_forked_child_reads_and_writes(tmp_path):
    program = SUMS.replace("i * i", "i * 7") + MANY
    forks = f"import os\npid = os.fork()\nif pid:\n    assert os.waitpid(pid, 0)[1] == 0\nelse:\n    exec({program!r})\n    import sys; sys.exit()\n"
    printed, facts = run(SUMS + forks, tmp_path)
    assert facts[:2] == (0, 1)
    assert len(entries(tmp_path)) == 14
    assert run(program, tmp_path)[1] == (13, 0, None)


def overdrive(tmp_path, *arguments):
    command = [sys.executable, "-m", "overdrive", "cache", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment(tmp_path))


def test_the_command(tmp_path):
    assert json.loads(overdrive(tmp_path, "info", "--json").stdout) == {
        "directory": str(code(tmp_path)),
        "entries": 0,
        "bytes": 0,
        "limit": 256 << 20,
    }
    run(MANY, tmp_path)
    facts = json.loads(overdrive(tmp_path, "info", "--json").stdout)
    assert facts["entries"] == 12
    assert facts["bytes"] == sum(path.stat().st_size for path in entries(tmp_path))
    text = overdrive(tmp_path, "info")
    assert (text.returncode, text.stderr) == (0, "")
    assert str(code(tmp_path)) in text.stdout and "12" in text.stdout
    cleared = overdrive(tmp_path, "clear")
    assert (cleared.returncode, cleared.stdout) == (0, f"12 removed, {facts['bytes']:,} bytes\n")
    assert entries(tmp_path) == []
    assert json.loads(overdrive(tmp_path, "clear", "--json").stdout) == {"entries": 0, "bytes": 0}
    assert run(MANY, tmp_path)[1] == (0, 12, None)


def test_the_command_says_why_it_cannot(tmp_path):
    run(SUMS, tmp_path)
    code(tmp_path).chmod(0o777)
    info = overdrive(tmp_path, "info", "--json")
    assert info.returncode == 1
    assert "can be written by other users" in json.loads(info.stdout)["problem"]
    clear = overdrive(tmp_path, "clear")
    assert (clear.returncode, clear.stdout) == (1, "")
    assert "can be written by other users" in clear.stderr
    assert len(entries(tmp_path)) == 1


def test_info_names_it(tmp_path):
    command = [sys.executable, "-m", "overdrive", "info", "--json"]
    facts = json.loads(subprocess.check_output(command, env=environment(tmp_path)))
    assert facts["cache"]["directory"] == str(code(tmp_path))


def test_a_copy_by_value_keeps_away_from_it_too(tmp_path):
    pytest.importorskip("cloudpickle")
    program = """
import cloudpickle, pickle
@overdrive.jit(cache=False)
def total(n):
    s = 0
    for i in range(n):
        s += i
    return s
copy = pickle.loads(cloudpickle.dumps(total))
print(type(copy) is type(total), copy is total, copy(10))
"""
    assert run(program, tmp_path) == (["True False 45"], (0, 0, None))
    assert run(program.replace("(cache=False)", ""), tmp_path)[1] == (0, 1, None)
