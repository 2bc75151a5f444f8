"""What a measurement says of where it runs, and while it runs.

In: nothing. Out: `machine`, for the page; `Progress`, lines on standard error; `guarded` and `tell_missed`, the end of a command.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time


class Progress:
    """What goes on, on standard error: a terminal shows it in one line, a file the lines that end."""

    def __init__(self):
        self.start, self.live = time.monotonic(), sys.stderr.isatty()

    def __call__(self, text):
        if self.live:
            print(f"\r\x1b[K{self.clock()} {text}"[:120], end="", file=sys.stderr, flush=True)

    def line(self, text):
        print(
            f"{chr(13) + chr(27) + '[K' if self.live else ''}{self.clock()} {text}",
            file=sys.stderr,
            flush=True,
        )

    def clock(self):
        minutes, seconds = divmod(int(time.monotonic() - self.start), 60)
        return f"{minutes}:{seconds:02}"


def machine():
    """Processor, cores and system."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        found = [line for line in open("/proc/cpuinfo") if line.startswith("model name")]
        model = found[0].partition(":")[2].strip() if found else model
    system = platform.system()
    with contextlib.suppress(OSError):
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    return {"cpu": model, "cores": os.cpu_count(), "system": f"{system}, {platform.machine()}"}


def tell_missed(lines):
    """Names the targets that were missed, of lines with what, value, target and met."""
    if missed := [f"{line.what}: {line.value}, asked {line.target}" for line in lines if line.met is False]:
        print("targets missed:", *missed, sep="\n  ", file=sys.stderr)


def guarded(run, chosen):
    """Runs a command with its options; Ctrl-C ends it with status 130."""
    progress = Progress()
    try:
        run(chosen, progress)
    except KeyboardInterrupt:
        progress.line("stopped; the page is what it was")
        sys.exit(130)
