"""``overdrive run`` is ``python`` in everything but speed: output, messages and status are compared byte for byte."""

import os
import py_compile
import subprocess
import sys
import zipfile

import pytest

from .both import environment, run, same, write

INTROSPECTION = """\
'''the docstring'''
import sys
print(sys.argv, __name__, __file__, __doc__, __spec__, __package__)
print(list(globals()), type(__loader__), __builtins__, __annotations__, globals().get('__cached__', 'none'))
print(sys.modules['__main__'].__dict__ is globals(), sys.path[:2], sys.path.count(sys.path[0]))
x: int = 3
print(__annotations__)
"""

TRACEBACKS = """\
def inner(x):
    return 1 / x
def outer(x):
    try:
        return inner(x)
    except ZeroDivisionError as error:
        error.add_note('a note')
        raise KeyError('outer', x) from error
outer(0)
"""

FRAMES = """\
import inspect, sys, traceback, warnings, logging
def depth():
    n, frame = 0, sys._getframe()
    while frame:
        n, frame = n + 1, frame.f_back
    return n
print(depth(), len(inspect.stack()), sys._getframe().f_back)
traceback.print_stack()
logging.basicConfig(format='%(pathname)s:%(lineno)d %(funcName)s %(message)s')
logging.warning('seen')
def warn(level):
    warnings.warn('beware', stacklevel=level)
for level in range(1, 5):
    warn(level)
def recurse(n):
    global deepest
    deepest = n
    recurse(n + 1)
try:
    recurse(0)
except RecursionError as error:
    print(deepest, error)
"""

AT_EXIT = """\
import atexit, sys, threading, time, weakref
class Noisy:
    def __del__(self):
        print('deleted', file=sys.stderr)
keep = Noisy()
atexit.register(print, 'first registered')
def bad():
    raise ValueError('at exit')
atexit.register(bad)
atexit.register(print, 'last registered')
def late():
    time.sleep(0.2)
    print('thread done')
def broken():
    raise RuntimeError('in thread')
threading.Thread(target=late).start()
t = threading.Thread(target=broken, name='T'); t.start(); t.join()
sys.stdout.write('no newline')
"""

SETTRACE = """\
import sys
events = []
def tracer(frame, event, argument):
    events.append((frame.f_code.co_name, event, frame.f_lineno))
    return tracer
def f(n):
    total = 0
    for i in range(n):
        total += i
    return total
f(3)
sys.settrace(tracer)
f(2)
sys.settrace(None)
print(events)
"""

POOL = """\
import multiprocessing, os, sys
def square(x):
    return x * x, __name__, multiprocessing.parent_process() is not None
class Thing:
    def __init__(self, x): self.x = x
if __name__ == '__main__':
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        print(pool.map(square, range(4)))
    process = context.Process(target=print, args=('child',), kwargs={'flush': True})
    process.start(); process.join()
    import pickle
    print(type(pickle.loads(pickle.dumps(Thing(1)))) is Thing, pickle.loads(pickle.dumps(square)) is square)
    print(process.exitcode)
"""

FINALISED = """
class Noisy:
    def __init__(self, name): self.name = name
    def __del__(self): print('gone', self.name)
def total(n, noisy):
    s = 0
    for i in range(n):
        s += i
    return s
plain = Noisy('plain')
cycle = Noisy('cycle')
cycle.itself = cycle
default = lambda x=Noisy('default'): x
for i in range(300):
    total(3000, plain)
print('end')
"""

SCRIPTS = {
    "introspection": INTROSPECTION,
    "traceback": TRACEBACKS,
    "frames": FRAMES,
    "at exit": AT_EXIT,
    "finalised at exit": FINALISED,
    "settrace": SETTRACE,
    "exit status": "import sys; sys.exit(3)",
    "exit none": "import sys; sys.exit()",
    "exit text": "import sys; sys.exit('a reason')",
    "exit large": "raise SystemExit(300)",
    "exit object": "raise SystemExit((1, 2))",
    "exit true": "raise SystemExit(True)",
    "exit builtin": "exit(4)",
    "exit in thread": "import threading, sys; t = threading.Thread(target=sys.exit, args=(5,)); t.start(); t.join()",
    "os exit": "import os; print('lost', end=''); os._exit(7)",
    "interrupt": "import os, signal; print(1); os.kill(os.getpid(), signal.SIGINT)\nwhile True: pass",
    "interrupt handled": "import os, signal\ntry:\n  os.kill(os.getpid(), signal.SIGINT)\n  while True: pass\nexcept KeyboardInterrupt: print('caught')",
    "interrupt subclass": "class K(KeyboardInterrupt): pass\nraise K('mine')",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "syntax error": "x = 1\ndef f(:\n  pass\n",
    "indentation error": "if 1:\n\tx=1\n        y=2\n",
    "null byte": b"x = 1\0\n",
    "bad encoding": b"# -*- coding: nonsense -*-\n",
    "not utf-8": b"print('caf\xe9')\n",
    "latin": b"# -*- coding: latin-1 -*-\nprint(ascii('caf\xe9'))\n",
    "byte order mark": b"\xef\xbb\xbfprint(1)\n",
    "empty": "",
    "no newline": "print(1)",
    "future": "from __future__ import annotations\nx: nowhere = 1\nprint(__annotations__)",
    "input": "print(input('? ')); print(input())",
    "bad hook": "import sys\nsys.excepthook = None\n1/0",
    "own hook": "import sys\nsys.excepthook = lambda *e: print('mine', e[0])\n1/0",
    "last error": "import sys, atexit\natexit.register(lambda: print(sys.last_type, sys.last_traceback.tb_lineno))\n1/0",
    "asyncio": "import asyncio\nasync def main():\n  await asyncio.sleep(0)\n  raise ValueError('async')\nasyncio.run(main())",
    "fork": "import os\npid = os.fork()\nif pid == 0:\n  print('child', flush=True)\nelse:\n  os.waitpid(pid, 0)\n  print('parent')",
    "exec in place": "import os, sys\nprint(1, flush=True)\nos.execv(sys.executable, [sys.executable, '-c', 'print(2)'])",
    "closed stdout": "import os, sys\nprint('x')\nos.close(1)",
    "main is replaced": "import sys\nsys.modules['__main__'] = None\nprint('on')",
    "exec namespace": "exec(compile('def f():\\n  1/0', 'gen.py', 'exec'))\nf()",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name, tmp_path):
    write(tmp_path, {"script.py": SCRIPTS[name]})
    same(tmp_path, ["script.py", "-x", "--only", "a b"], stdin=b"one\ntwo\n")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method, tmp_path):
    write(tmp_path, {"script.py": POOL})
    assert b"child" in same(tmp_path, ["script.py", method], policies=["default"]).stdout


@pytest.mark.parametrize(
    "path", ["./script.py", "sub/../script.py", "sub/link.py", "//{}/script.py", "sub/inner.py"]
)
def test_ways_to_name_a_script(path, tmp_path):
    write(tmp_path, {"script.py": INTROSPECTION, "sub/inner.py": INTROSPECTION})
    (tmp_path / "sub/link.py").symlink_to("../script.py")
    same(tmp_path, [path.format(tmp_path)], policies=["default"])


@pytest.mark.parametrize(
    "path", ["missing.py", "sub/missing.py", "empty", "no\tsuch\n.py", "script.py/x", "/"]
)
def test_nothing_to_run(path, tmp_path):
    write(tmp_path, {"script.py": "", "empty/x.txt": ""})
    assert same(tmp_path, [path], policies=["default"]).status in (1, 2)


def test_compiled_script(tmp_path):
    write(tmp_path, {"script.py": INTROSPECTION + "def f(): 1/0\nf()"})
    py_compile.compile(str(tmp_path / "script.py"), str(tmp_path / "script.pyc"))
    same(tmp_path, ["script.pyc", "a"])


def test_directory_and_archive(tmp_path):
    write(
        tmp_path,
        {"app/__main__.py": INTROSPECTION + "import other\nother.f()", "app/other.py": "def f(): 1/0"},
    )
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.write(tmp_path / "app/__main__.py", "__main__.py")
        archive.write(tmp_path / "app/other.py", "other.py")
    same(tmp_path, ["app", "a"])
    same(tmp_path, ["app/", "a"])
    same(tmp_path, ["app.zip", "a", "-m"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "module", "a", "-m", "b"],
        ["-m", "package", "a"],
        ["-m", "package.inner"],
        ["-m", "package.raises"],
        ["-m", "package.nothing"],
        ["-m", "nothing"],
        ["-m", "plain"],
        ["-m", "module.py"],
        ["-m", "exits"],
        ["-m", "interrupted"],
        ["-m", "broken"],
        ["-mmodule", "x"],
        ["-m", "timeit", "-n1", "-r1", "-h"],
    ],
    ids=" ".join,
)
def test_module(arguments, tmp_path):
    write(
        tmp_path,
        {
            "module.py": INTROSPECTION,
            "package/__init__.py": "import sys\nprint('package', sys.argv)",
            "package/__main__.py": INTROSPECTION,
            "package/inner.py": INTROSPECTION + "from . import other\nprint(other.x)",
            "package/other.py": "x = 1",
            "package/raises.py": TRACEBACKS,
            "plain/__init__.py": "",
            "exits.py": "import sys; sys.exit('out')",
            "interrupted.py": "raise KeyboardInterrupt",
            "broken.py": "def f(:",
        },
    )
    same(tmp_path, arguments)


@pytest.mark.parametrize(
    "program", [INTROSPECTION, TRACEBACKS, "def f(:", "import sys; sys.exit(4)", "raise KeyboardInterrupt"]
)
def test_standard_input(program, tmp_path):
    same(tmp_path, ["-", "a"], stdin=program.encode())


@pytest.mark.parametrize(
    "flags",
    [["-O"], ["-W", "error"], ["-X", "dev"], ["-P"], ["-I"], ["-u"], ["-X", "utf8=0"], ["-s", "-B"]],
    ids=" ".join,
)
def test_interpreter_flags(flags, tmp_path):
    if "-I" in flags and "PYTHONPATH" in os.environ:
        pytest.skip("overdrive comes from PYTHONPATH, which -I ignores")
    write(
        tmp_path, {"script.py": INTROSPECTION + "assert x == 4\nprint(sys.flags.optimize, sys.warnoptions)"}
    )
    same(tmp_path, ["script.py"], flags=flags, policies=["default"])


def test_own_files_shadow_the_standard_library(tmp_path):
    # Those that `python -m` itself imports come too late: contextlib, collections and what they need.
    names = [
        "argparse",
        "json",
        "fnmatch",
        "platform",
        "dataclasses",
        "inspect",
        "re",
        "enum",
        "typing",
        "random",
    ]
    files = {f"{name}.py": f"print('own {name}')" for name in names}
    write(
        tmp_path,
        {**files, "script.py": "".join(f"import {name}\nprint({name}.__name__)\n" for name in names)},
    )
    same(tmp_path, ["script.py"])


def test_broken_pipe_at_exit(tmp_path):
    write(tmp_path, {"script.py": "print('x' * 100)"})
    outcomes = []
    for command in (["script.py"], ["-m", "overdrive", "run", "--quiet", "script.py"]):
        read, write_ = os.pipe()
        os.close(read)
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            stdout=write_,
            stderr=subprocess.PIPE,
            timeout=120,
            env=environment(),
        )
        os.close(write_)
        outcomes.append((done.returncode, done.stderr))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == 120


def test_switched_off_by_the_environment(tmp_path):
    write(tmp_path, {"script.py": INTROSPECTION + TRACEBACKS})
    same(tmp_path, ["script.py"], env={"OVERDRIVE": "0"})
    report = run([sys.executable, "-m", "overdrive", "run", "script.py"], tmp_path, env={"OVERDRIVE": "0"})
    assert b"overdrive:" not in report.stderr


def test_imports_no_more_than_it_must(tmp_path):
    write(tmp_path, {"script.py": "import sys\nprint(*sorted(m for m in sys.modules if '.' not in m))"})
    plain = run([sys.executable, "-c", (tmp_path / "script.py").read_text()], tmp_path).stdout.split()
    ours = run([sys.executable, "-m", "overdrive", "run", "-q", "script.py"], tmp_path).stdout.split()
    heavy = {b"argparse", b"re", b"inspect", b"numpy", b"typing", b"platform", b"subprocess", b"logging"}
    assert not heavy & (set(ours) - set(plain))
