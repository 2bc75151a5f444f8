"""Running a function under CPython's own tracing to learn, and to change, its state in front of each instruction."""

import contextlib
import dis
import sys

from overdrive import _core


class Abort(BaseException):
    """Ends a run whose state was taken over."""


class Injected(Exception):
    """Stands for whatever the operation at some offset raises."""


def depths(code):
    """Stack depth in front of each instruction, by offset."""
    instructions = list(dis.get_instructions(code))
    following = dict(zip((i.offset for i in instructions), instructions[1:]))
    by_offset = {i.offset: i for i in instructions}
    found, work = {}, [(instructions[0].offset, 0)]
    entries = dis._parse_exception_table(code)
    for entry in entries:
        work.append((entry.target, entry.depth + entry.lasti + 1))
    ends = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
    while work:
        offset, depth = work.pop()
        if offset in found:
            assert found[offset] == depth, (code.co_name, offset, found[offset], depth)
            continue
        found[offset] = depth
        at = by_offset[offset]
        if at.opname in ends:
            continue
        argument = at.arg if at.opcode >= dis.HAVE_ARGUMENT or sys.version_info >= (3, 13) else None
        jumps = at.opcode in dis.hasjrel or at.opcode in dis.hasjabs
        if sys.version_info < (3, 12) and at.opname in ("PRECALL", "CALL"):
            # dis counts the arguments away one instruction too early.
            step = 0 if at.opname == "PRECALL" else -argument - 1
            work.append((following[offset].offset, depth + step))
            continue
        if jumps:
            work.append((at.argval, depth + dis.stack_effect(at.opcode, argument, jump=True)))
        if not (at.opname.startswith("JUMP_") and "_IF_" not in at.opname):
            step = (
                dis.stack_effect(at.opcode, argument, jump=False)
                if jumps
                else dis.stack_effect(at.opcode, argument)
            )
            if offset in following:
                work.append((following[offset].offset, depth + step))
    return found


def outcome(run, *names):
    """What `run()` gives, as something comparable: value, or exception with the positions of its traceback."""
    try:
        return "returned", run()
    except Exception as error:
        return "raised", chain(error, names)


def chain(error, names):
    if error is None:
        return None
    places, entry = [], error.__traceback__
    while entry is not None:
        code = entry.tb_frame.f_code
        if code.co_name in names:
            positions = list(code.co_positions())[entry.tb_lasti // 2]
            places.append((code.co_name, code.co_qualname, entry.tb_lineno, positions))
        entry = entry.tb_next
    return type(error), str(error), places, chain(error.__cause__, names), chain(error.__context__, names)


def n_steps(function):
    """Number of instructions that one run executes."""
    count = 0

    def on_step(frame, offset):
        nonlocal count
        count += 1

    with contextlib.suppress(Exception):
        stepping(function, on_step)
    return count


def stepping(function, on_step, log=None):
    """Runs `function`, calling `on_step(frame, offset)` in front of each of its instructions."""
    log = [] if log is None else log
    stop = start_stepping(function.__code__, on_step)
    try:
        return function(log)
    finally:
        stop()


if sys.version_info >= (3, 12):
    TOOL = 0

    def start_stepping(code, on_step):
        """Through an event of the code object alone."""
        monitoring = sys.monitoring

        def on_instruction(code, offset):
            on_step(sys._getframe(1), offset)

        def stop():
            if monitoring.get_tool(TOOL) == "harness":
                monitoring.set_local_events(TOOL, code, 0)
                monitoring.register_callback(TOOL, monitoring.events.INSTRUCTION, None)
                monitoring.free_tool_id(TOOL)

        monitoring.use_tool_id(TOOL, "harness")
        monitoring.register_callback(TOOL, monitoring.events.INSTRUCTION, on_instruction)
        monitoring.set_local_events(TOOL, code, monitoring.events.INSTRUCTION)
        on_step.stop = stop
        return stop

else:

    def start_stepping(code, on_step):
        """Through a trace function."""

        def local(frame, event, argument):
            if event == "opcode":
                on_step(frame, frame.f_lasti)
            return local

        def trace(frame, event, argument):
            if frame.f_code is not code:
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
            return local

        def stop():
            sys.settrace(None)

        on_step.stop = stop
        sys.settrace(trace)
        return stop


def at_step(function, step, action):
    """Calls `action(frame, offset, log)` in front of instruction number `step` of a run, and aborts the run."""
    count, result = 0, None

    def on_step(frame, offset):
        nonlocal count, result
        if count == step:
            on_step.stop()
            result = action(frame, offset)
            raise Abort
        count += 1

    def isolated():
        # A generator has its own "exception being handled", which an aborted handler leaves behind.
        with contextlib.suppress(BaseException):
            stepping(function, on_step)
        yield

    next(isolated())
    return result


NULL = _core._NULL
