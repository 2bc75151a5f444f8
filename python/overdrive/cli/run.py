"""``overdrive run``: everything as ``python`` does it, and hot functions are promoted meanwhile.

The options are read by hand (see `overdrive.cli`); everything behind the script or ``-m module`` belongs to
the program. The program itself is run by ``_core.run_program``, which does not return.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from overdrive.session import Session

HELP = """\
usage: overdrive run [options] script.py [argument …]
       overdrive run [options] -m module [argument …]
       overdrive run [options] - [argument …]

Runs the program as python does, finds its hot functions, compiles them in the background and swaps them in.
At the end a table goes to standard error: function, calls, time per call before and after, speed-up, when
it was promoted, and what stayed in CPython. Processes that the program starts are not promoted in.

options:
  --policy NAME       default: promote what is hot
                      eager: promote each function of the project at its second call (for tests);
                      libraries belong to it where --only names their files by path: "*/json/*"
                      observe: only report what would be promoted
  --only PATTERN      promote only these; may be given several times. A pattern is compared with
                      the function's qualified name, its file, and file::name; * and ? stand for any
                      characters
  --skip PATTERN      never promote these; may be given several times
  --report FORMAT     text (default), json, html, or none. html is one page with a time line of promotions,
                      where the time went before and after, and the sources, each line shaded by how it ran;
                      it goes to overdrive-report.html in the working directory, or where --report-file says
  --report-file FILE  write the report to FILE instead of standard error
  -q, --quiet         the same as --report none
  -h, --help          this text

With OVERDRIVE=0 in the environment the program runs as it is.
"""

_POLICIES = ("default", "eager", "observe")
_FORMATS = ("text", "json", "html", "none")
_HTML_FILE = "overdrive-report.html"

# What plain `python script.py` has imported when the script begins; anything else that a file of the
# program's own directory would shadow is forgotten, so that the program gets its file as it would.
_PRELOADED = frozenset(
    """
    sys builtins _frozen_importlib _imp _thread _warnings _weakref _io marshal posix time zipimport _codecs
    _frozen_importlib_external codecs encodings _signal _abc abc io __main__ _stat stat _collections_abc
    posixpath genericpath os os.path _sitebuiltins site
    """.split()  # noqa: SIM905
)


class _Options:
    def __init__(self) -> None:
        self.policy = "default"
        self.only: list[str] = []
        self.skip: list[str] = []
        self.report = "text"
        self.report_file: str | None = None
        self.module: str | None = None
        self.program: list[str] = []


def main(arguments: list[str]) -> NoReturn:
    """Run the program that ``arguments`` name. Does not return."""
    options = _parse(arguments)
    from overdrive import _loaded

    _core = _loaded.core
    if _core is None:
        sys.exit(f"overdrive: {_loaded.reason()}")
    if os.environ.get("OVERDRIVE") != "0":
        # What we import must not come from the working directory, which `python -m` has put in front.
        path = sys.path[:]
        if not sys.flags.safe_path:
            del sys.path[0]
        _start(options)
        sys.path[:] = path
    kind, target = _prepare(options)
    _core.run_program(kind, target)
    raise AssertionError("run_program does not return")


def _parse(arguments: list[str]) -> _Options:
    options = _Options()
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.partition("=")
        if argument in ("-h", "--help"):
            sys.stdout.write(HELP)
            sys.exit(0)
        elif argument in ("-q", "--quiet"):
            options.report = "none"
        elif name in ("--policy", "--only", "--skip", "--report", "--report-file"):
            if not equals:
                if not rest:
                    _usage(f"{name} needs a value")
                value = rest.pop(0)
            _set(options, name, value)
        elif argument == "-m":
            if not rest:
                _usage("-m needs a module name")
            options.module = rest.pop(0)
            options.program = rest
            return options
        elif argument.startswith("-m"):
            options.module = argument[2:]
            options.program = rest
            return options
        elif argument == "--":
            options.program = rest
            break
        elif argument.startswith("-") and argument != "-":
            _usage(f"unknown option {argument!r}")
        else:
            options.program = [argument, *rest]
            break
    if not options.program:
        _usage("what should be run? Give a script, -m module, or - for standard input")
    return options


def _set(options: _Options, name: str, value: str) -> None:
    if name == "--policy":
        options.policy = _one_of(name, value, _POLICIES)
    elif name == "--report":
        options.report = _one_of(name, value, _FORMATS)
    elif name == "--report-file":
        options.report_file = os.path.abspath(value)
    elif name == "--only":
        options.only.append(value)
    else:
        options.skip.append(value)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        _usage(f"{name} is one of {', '.join(allowed)}, not {value!r}")
    return value


def _usage(problem: str) -> NoReturn:
    sys.stderr.write(f"overdrive run: {problem}\n")
    sys.stderr.write(
        "usage: overdrive run [options] script.py | -m module | -  [argument …]   (--help says more)\n"
    )
    sys.exit(2)


def _start(options: _Options) -> None:
    import atexit

    import overdrive
    from overdrive import _loaded

    # Imported now, not at the end, when the program's own files are in front.
    if options.report == "json":
        import json  # noqa: F401
    elif options.report == "html":
        options.report_file = options.report_file or os.path.abspath(_HTML_FILE)
        from overdrive.html import report  # noqa: F401

    process = os.getpid()

    def finish() -> None:
        if os.getpid() != process:
            return
        if options.report == "html":
            _print_page(session, options)
            return
        report = session.stop()
        if options.report == "text":
            _loaded.core.print_at_end(f"{report}\n", options.report_file)
        elif options.report == "json":
            _loaded.core.print_at_end(f"{report.to_json()}\n", options.report_file)

    # Registered before anything of the program, so that it runs behind all its exit functions.
    atexit.register(finish)
    session = overdrive.start(options.policy, only=options.only, skip=options.skip)


def _print_page(session: Session, options: _Options) -> None:
    """Make the page at the end of the program; what goes wrong with it is not the program's fault."""
    from overdrive import _loaded

    report = session.stop()
    program = f"-m {options.module}" if options.module is not None else options.program[0]
    try:
        text = report.html(title=f"overdrive run {program}")
    except Exception as error:
        _loaded.core.print_at_end(f"overdrive: cannot make the report: {error!r}\n{report}\n")
        return
    text = text.encode("utf-8", "replace").decode()
    said = f"overdrive: the report is in {options.report_file}\n"
    _loaded.core.print_at_end(text, options.report_file, said)


def _prepare(options: _Options) -> tuple[str, str]:
    """Leave ``sys.argv``, ``sys.path[0]``, ``sys.modules`` and ``__main__`` as ``python`` would."""
    if options.module is not None:
        kind, target, first = "module", options.module, _working_directory()
        sys.argv[:] = ["-m", *options.program]
    elif options.program[0] == "-":
        kind, target, first = "stdin", "-", ""
        sys.argv[:] = options.program
    else:
        kind, target = "path", _absolute(options.program[0])
        first = _directory_of(target)
        sys.argv[:] = options.program
    # Python puts a directory or archive in front even with -P; then there is nothing of ours to replace.
    is_container = kind == "path" and _is_container(target)
    if not sys.flags.safe_path:
        if is_container or first is None:
            del sys.path[0]
        else:
            sys.path[0] = first
    _forget_shadowed(target if is_container else first)
    _fresh_main()
    return kind, target


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _absolute(path: str) -> str:
    """Make a path absolute as CPython's start does, not normalised."""
    if path.startswith("/"):
        return path
    directory = _working_directory()
    if directory is None:
        return path
    return f"{directory}/{path}"


def _directory_of(script: str) -> str:
    """Return what ``sys.path[0]`` is for a script: the directory of the file that a link points to."""
    return os.path.dirname(os.path.realpath(script))


def _is_container(path: str) -> bool:
    """Whether ``path`` is a directory or an archive, which are run by their ``__main__``."""
    if os.path.isdir(path):
        return True
    for hook in sys.path_hooks:
        try:
            hook(path)
        except ImportError:
            continue
        return True
    return False


def _forget_shadowed(directory: str | None) -> None:
    if directory is None:
        return
    try:
        names = set(os.listdir(directory or "."))
    except OSError:
        return
    for module in list(sys.modules):
        top = module.partition(".")[0]
        if module in _PRELOADED or top in ("encodings", "overdrive"):
            continue
        if top in names or f"{top}.py" in names:
            del sys.modules[module]


def _fresh_main() -> None:
    """Replace our ``__main__`` by one as the interpreter makes it."""
    import builtins

    global _own_main
    _own_main = sys.modules["__main__"]
    main = type(sys)("__main__")
    main.__dict__.update(
        __annotations__={}, __builtins__=builtins, __loader__=sys.modules["_frozen_importlib"].BuiltinImporter
    )
    sys.modules["__main__"] = main


# Our command's own `__main__` must outlive the program: its frames are still there.
_own_main: object = None
