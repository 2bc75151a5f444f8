"""The IPython extension: ``%load_ext overdrive``, then ``%overdrive`` and ``%%overdrive``.

In: a line, or a cell, of a notebook or of a terminal session. Out: promotion started and stopped, reports
and explanations shown, with ``In[3]`` in place of a cell's file name. Imported by IPython only; it decides
nothing about promotion itself.
"""

from __future__ import annotations

import ast
import gc
import shlex
import types
from typing import Any

from IPython.core.error import UsageError
from IPython.display import display

import overdrive
from overdrive import _loaded, policy, session
from overdrive.explanation import Explanation
from overdrive.report import Report, Row

_COMMANDS = ("start", "status", "report", "explain", "stop", "off")


def load(shell: Any) -> None:
    """Give ``shell`` the magics. Nothing is promoted before ``%overdrive``."""
    shell.register_magic_function(Magic(shell).overdrive, magic_kind="line_cell", magic_name="overdrive")


def unload(shell: Any) -> None:
    """Take the magics away. What they started is stopped; what is native stays so."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("overdrive", None)
    overdrive.stop()


class Magic:
    """The magics of one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def overdrive(self, line: str, cell: str | None = None) -> None:
        """Make functions of the notebook faster while it runs, with the same results.

        Lines::

            %overdrive                    start: hot functions are found, compiled and swapped from now on
            %overdrive start [OPTIONS]    the same
            %overdrive status             is it on, and what was promoted so far
            %overdrive report             the table: calls, time per call before and after, speed-up, notes
            %overdrive explain EXPRESSION for each line of a function: native, through CPython, or why not
            %overdrive stop               show the report, look for no more functions; promoted ones stay
            %overdrive off                the same, and give all functions their original code back

        A cell::

            %%overdrive [OPTIONS]         run the cell with promotion on, then show the report

        Options::

            --policy default|eager|observe   hot functions; each function at its second call; only report
            --only PATTERN, --skip PATTERN   names of functions or files, with * and ?; may be repeated

        A function must be busy for one to two seconds before it counts as hot. One that is defined anew is
        looked at anew.
        """
        __tracebackhide__ = True
        if cell is not None:
            self._run_cell(line, cell)
            return
        command, _, rest = line.strip().partition(" ")
        if not command or command.startswith("-"):
            command, rest = "start", line
        if command not in _COMMANDS:
            raise UsageError(
                f"%overdrive {command}: no such command; use {', '.join(_COMMANDS)} (%overdrive? says more)"
            )
        if command not in ("start", "explain") and rest.strip():
            raise UsageError(f"%overdrive {command} takes nothing behind it, not {rest.strip()!r}")
        getattr(self, f"_{command}")(rest.strip())

    def _start(self, line: str) -> None:
        options = _options(line)
        if session.active() is not None:
            if options:
                raise UsageError("promotion runs already: %overdrive stop ends it, then other options count")
            self._status("")
            return
        started = overdrive.start(**options)
        trouble = started.report().trouble
        if trouble:
            print(f"overdrive: nothing is promoted here: {trouble}")
            return
        print(f"overdrive: on, policy {_name(started.policy)}; %overdrive report shows what became faster")

    def _status(self, _: str) -> None:
        running = session.active()
        if running is None:
            why = _loaded.problem()
            print("overdrive: off" + (f": {why}" if why else "; %overdrive starts it"))
            return
        report = running.report()
        promoted = [row.name for row in report.rows if row.state == "promoted"]
        print(f"overdrive: on for {report.seconds:.0f} s, policy {_name(running.policy)}; promoted: ", end="")
        print(", ".join(promoted) or "nothing yet")
        if report.trouble:
            print(f"overdrive: {report.trouble}")

    def _report(self, _: str) -> None:
        running = session.active()
        # After the end, the last report is still of interest; `stop` answers it once more.
        self._show_report(overdrive.stop() if running is None else running.report())

    def _stop(self, _: str) -> None:
        self._show_report(overdrive.stop())

    def _off(self, _: str) -> None:
        self._show_report(overdrive.stop())
        n = 0
        if _loaded.reason() is None:
            for function in gc.get_objects():
                # One whose namespace has no name is our self-test's.
                if type(function) is types.FunctionType and "__name__" in function.__globals__:
                    code = function.__code__
                    overdrive.demote(function)
                    n += function.__code__ is not code
        print(f"overdrive: off, {n} function{'' if n == 1 else 's'} put back")

    def _explain(self, expression: str) -> None:
        if not expression:
            raise UsageError("%overdrive explain takes a function: %overdrive explain f, or Class.method")
        try:
            target = eval(compile(expression, "<%overdrive explain>", "eval"), self._shell.user_ns)
        except (SyntaxError, NameError, AttributeError) as error:
            raise UsageError(f"%overdrive explain {expression}: {error}") from None
        if isinstance(target, property):
            target = target.fget
        try:
            explained = overdrive.explain(target)
        except (TypeError, LookupError, OSError) as error:
            raise UsageError(f"%overdrive explain {expression}: {error}") from None
        self._show_explanation(explained)

    def _run_cell(self, line: str, cell: str) -> None:
        __tracebackhide__ = True  # IPython shows the cell's own frames
        options = _options(line)
        is_ours = session.active() is None
        if not is_ours and options:
            raise UsageError("promotion runs already: %overdrive stop ends it, then other options count")
        running = overdrive.start(**options)
        try:
            self._execute(cell)
        finally:
            self._show_report(running.stop() if is_ours else running.report())

    def _execute(self, cell: str) -> None:
        """Run the cell as IPython does: errors show its lines, its last expression is ``Out``."""
        __tracebackhide__ = True
        shell = self._shell
        source = shell.transform_cell(cell)
        name = shell.compile.cache(source, shell.displayhook.prompt_count, raw_code=cell)
        tree = shell.transform_ast(shell.compile.ast_parse(source, filename=name))
        body = tree.body
        last = [body.pop()] if body and isinstance(body[-1], ast.Expr) else []
        parts: list[tuple[Any, str]] = [(ast.Module(body, []), "exec")]
        if last:
            parts.append((ast.Interactive(last), "single"))
        for part, mode in parts:
            exec(shell.compile(part, name, mode), shell.user_global_ns, shell.user_ns)

    def _show_report(self, report: Report) -> None:
        named = self._with_cells(report)
        _show(str(named), named)

    def _show_explanation(self, explained: Explanation) -> None:
        files = {function["file"] for function in explained.functions}
        _show(str(explained), explained, [(file, self._cell(file)) for file in files])

    def _with_cells(self, report: Report) -> Report:
        rows = tuple(Row(**{**vars(row), "file": self._cell(row.file)}) for row in report.rows)
        return Report(**{**vars(report), "rows": rows})

    def _cell(self, file: str) -> str:
        """Return ``In[3]`` for the file name of a cell; any other name as it is."""
        format_name = getattr(self._shell.compile, "format_code_name", None)
        found = format_name(file) if format_name is not None else None
        return found[1] if found else file


def _options(line: str) -> dict[str, Any]:
    """Read ``--policy``, ``--only`` and ``--skip``; only what is given is in the result."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"%overdrive {line}: {error}") from None
    options: dict[str, Any] = {}
    while words:
        option, equals, value = words.pop(0).partition("=")
        if option not in ("--policy", "--only", "--skip"):
            raise UsageError(f"unknown option {option!r}: use --policy, --only, --skip")
        if not equals:
            if not words:
                raise UsageError(f"{option} needs a value")
            value = words.pop(0)
        if option == "--policy":
            if value not in policy.POLICIES:
                raise UsageError(f"--policy is one of {', '.join(policy.POLICIES)}, not {value!r}")
            options["policy"] = value
        else:
            options.setdefault(option[2:], []).append(value)
    return options


def _name(of: policy.Policy) -> str:
    named = [name for name in policy.POLICIES if policy.Policy.named(name) == of]
    return named[0] if named else repr(of)


def _show(text: str, shown: Any, renamed: list[tuple[str, str]] | None = None) -> None:
    """Show ``text``, and where HTML can be shown, the object's own."""
    html = getattr(shown, "_repr_html_", None)
    bundle = {"text/plain": text}
    if html is not None:
        bundle["text/html"] = html()
    for old, new in renamed or ():
        bundle = {kind: content.replace(old, new) for kind, content in bundle.items()}
    display(bundle, raw=True)
