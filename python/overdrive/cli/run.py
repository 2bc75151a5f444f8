"""``overdrive run``: everything as ``python`` does it, and hot functions are promoted meanwhile.

The options are read by hand (see `overdrive.cli`); everything behind the script or ``-m module`` belongs to
the program. The program itself is run by ``_core.run_program``, which does not return.
"""

from __future__ import annotations

import os
import sys

from overdrive import settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from overdrive.report import Report

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
  --verify            before a function is promoted, run it both ways, native and in CPython, on copies of
                      the arguments of its first calls, compare, and keep what differs out. Where that is
                      the case a program that ends with status 0 ends with 1. The program itself gets
                      CPython's results; functions that print, write or read the clock are not verified
  --no-verify         not so, whatever the settings say
  --verify-calls N    how many first calls (3)
  --report FORMAT     text (default), json, html, or none. html is one page with a time line of promotions,
                      where the time went before and after, and the sources, each line shaded by how it ran;
                      it goes to overdrive-report.html in the working directory, or where --report-file says
  --report-file FILE  write the report to FILE instead of standard error
  -q, --quiet         the same as --report none
  --no-settings       ignore pyproject.toml
  -h, --help          this text

Options are also read from the table [tool.overdrive] of a pyproject.toml, the nearest that has one from the
script's directory upwards (with -m and -, from the working directory): policy, only, skip, report,
report-file, verify, verify-calls. The command line goes first: --only replaces the file's list, --skip adds
to it.

With OVERDRIVE=0 in the environment the program runs as it is.
"""

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


class _Options(settings.Settings):
    """The command line's own settings, and what is to be run."""

    def __init__(self) -> None:
        super().__init__()
        self.reads_settings = True
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
        if options.reads_settings:
            _obey(options, _found(options))
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
        elif argument in ("--verify", "--no-verify"):
            options.verify = argument == "--verify"
        elif argument == "--no-settings":
            options.reads_settings = False
        elif name in _WITH_VALUE:
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


_WITH_VALUE = ("--policy", "--only", "--skip", "--report", "--report-file", "--verify-calls")


def _set(options: _Options, name: str, value: str) -> None:
    try:
        if name == "--policy":
            options.policy = settings.one_of(settings.POLICIES)(value)
        elif name == "--report":
            options.report = settings.one_of(settings.FORMATS)(value)
        elif name == "--report-file":
            options.report_file = os.path.abspath(value)
        elif name == "--verify-calls":
            options.verify_calls = settings.number_of_calls(int(value) if value.isdecimal() else value)
        elif name == "--only":
            options.only.append(value)
        else:
            options.skip.append(value)
    except ValueError as error:
        _usage(f"{name} {error}")


def _found(options: _Options) -> settings.Settings:
    """Return the settings of the program's project; a mistake in them ends the command."""
    if options.module is None and options.program[0] != "-":
        script = _absolute(options.program[0])
        directory: str | None = script if os.path.isdir(script) else _directory_of(script)
    else:
        directory = _working_directory()
    if directory is None:
        return settings.Settings()
    try:
        return settings.find(directory)
    except settings.SettingsError as error:
        sys.stderr.write(f"overdrive run: {error}\n")
        sys.exit(2)


def _obey(options: _Options, found: settings.Settings) -> None:
    """Fill in what the command line left open."""
    options.skip = found.skip + options.skip
    for name in ("policy", "only", "report", "report_file", "verify", "verify_calls"):
        if not getattr(options, name) and not (name == "verify" and options.verify is False):
            setattr(options, name, getattr(found, name))


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

    report_as = options.report or "text"
    # Imported now, not at the end, when the program's own files are in front.
    if report_as == "json":
        import json  # noqa: F401
    elif report_as == "html":
        options.report_file = options.report_file or os.path.abspath(_HTML_FILE)
        from overdrive.html import report  # noqa: F401

    process = os.getpid()

    def finish() -> None:
        if os.getpid() != process:
            return
        report = session.stop()
        if report.n_differences:
            _loaded.core.fail_at_end()
        if report_as == "text":
            _loaded.core.print_at_end(f"{report}\n", options.report_file)
        elif report_as == "json":
            _loaded.core.print_at_end(f"{report.to_json()}\n", options.report_file)
        elif report_as == "html":
            _print_page(report, options)

    # Registered before anything of the program, so that it runs behind all its exit functions.
    atexit.register(finish)
    session = overdrive.start(
        options.policy or "default",
        only=options.only,
        skip=options.skip,
        verify=options.verify or False,
        verify_calls=options.verify_calls or settings.VERIFY_CALLS,
    )


def _print_page(report: Report, options: _Options) -> None:
    """Make the page at the end of the program; what goes wrong with it is not the program's fault."""
    from overdrive import _loaded

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
