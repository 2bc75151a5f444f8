"""Promotion as a session: `start`, `stop`, and what happens at exit and after a fork."""

from __future__ import annotations

import atexit
import os

from overdrive import _loaded
from overdrive._loaded import core as _core
from overdrive.policy import Policy
from overdrive.report import Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Any

    from overdrive.first_calls import FirstCalls

_hooks_installed = False
_active: Session | None = None
_last_report = Report.empty()
_verifier: FirstCalls | None = None


class Session:
    """Promotion while it is on; made by `start`, ended by `stop` or the end of a with-block."""

    def __init__(self, policy: Policy, only: tuple[str, ...], skip: tuple[str, ...], *, owner: bool) -> None:
        self.policy = policy
        self.only = only
        self.skip = skip
        self._owner = owner
        self._final: Report | None = None

    def report(self) -> Report:
        """Return what was promoted so far, or in the whole session when it has ended."""
        if self._final is not None:
            return self._final
        return _report_of(_core.session_report())

    def stop(self) -> Report:
        """End the session and return its report. A session that joined another one leaves that running."""
        if self._final is None:
            self._final = _stop_running() if self._owner else self.report()
        return self._final

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def start(
    policy: str | Policy, only: Iterable[str], skip: Iterable[str], verify: bool, verify_calls: int
) -> Session:
    """See `overdrive.start`."""
    global _active, _verifier
    if isinstance(policy, str):
        policy = Policy.named(policy)
    elif not isinstance(policy, Policy):
        raise TypeError(f"policy must be a str or a Policy, not {type(policy).__name__}")
    only, skip = _patterns("only", only), _patterns("skip", skip)
    if type(verify_calls) is not int or verify_calls < 1:
        raise ValueError(f"verify_calls is a whole number from 1 on, not {verify_calls!r}")
    off = _loaded.problem()
    if off is not None:
        session = Session(policy, only, skip, owner=False)
        session._final = Report.empty(off)
        return session
    _install_hooks()
    own_files = os.path.join(os.path.dirname(__file__), "")
    left = [*skip, *(_used_to_verify() if verify else ())]
    owner = _core.session_start(policy, list(only), left, own_files)
    session = Session(policy, only, skip, owner=owner)
    if owner:
        _active, _verifier = session, None
        if verify:
            # Not before: what it imports is of no use to a program that is not verified.
            from overdrive.first_calls import FirstCalls

            _verifier = FirstCalls(verify_calls)
            _core.verify_with(_verifier)
    return session


def active() -> Session | None:
    """Return the session that `start` began in this process, while it runs."""
    return _active


def stop() -> Report:
    """See `overdrive.stop`."""
    if _active is not None:
        return _active.stop()
    return _last_report


def _stop_running() -> Report:
    global _active, _last_report
    _active = None
    _core.verify_with(None)
    _last_report = _report_of(_core.session_stop())
    return _last_report


def _report_of(data: dict[str, Any] | None) -> Report:
    if data is None:
        return Report.empty("no session in this process")
    return Report.from_data(data, _verifier)


def _patterns(name: str, patterns: Iterable[str]) -> tuple[str, ...]:
    if isinstance(patterns, str):
        patterns = (patterns,)
    patterns = tuple(patterns)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(f"{name} holds names as str, not {type(pattern).__name__}")
    return patterns


def _used_to_verify() -> list[str]:
    """Patterns of what verification spends its time in: it would be found hot by its own work."""
    library = os.path.dirname(os.__file__)
    modules = ("contextlib", "copy", "copyreg", "dis", "functools", "threading", "warnings")
    return [*(f"{library}/{module}.py" for module in modules), "<string>::<lambda>"]


def _install_hooks() -> None:
    """Once per process: the sampling thread must be gone before the interpreter is, and in a forked child."""
    global _hooks_installed
    if not _hooks_installed:
        _hooks_installed = True
        atexit.register(_at_exit)
        os.register_at_fork(after_in_child=_after_fork)


def _at_exit() -> None:
    if _active is not None:
        _active.stop()


def _after_fork() -> None:
    global _active
    _active = None
    _core.verify_with(None)
    _core.session_after_fork()
