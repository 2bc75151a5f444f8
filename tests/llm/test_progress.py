"""The line that says how far something is: on terminals, after a second, gone at the end."""

import io

from overdrive import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_sees_a_bar_that_goes():
    stream = Terminal()
    with progress.Progress("loading", after=0.0, stream=stream) as bar:
        bar(1, 2)
    shown, erased = stream.getvalue().split("\r")[1:3]
    assert shown == f"loading [{'#' * 12}{'-' * 12}]  50%"
    assert erased == " " * len(shown) and stream.getvalue().endswith("\r")


def test_what_is_quick_shows_nothing():
    stream = Terminal()
    with progress.Progress("loading", stream=stream) as bar:
        for i in range(1000):
            bar(i, 1000)
    assert stream.getvalue() == ""


def test_what_is_no_terminal_sees_nothing():
    for stream in (io.StringIO(), None):
        with progress.Progress("loading", after=0.0, stream=stream) as bar:
            bar(1, 2)
        assert stream is None or stream.getvalue() == ""


def test_a_terminal_that_went_away_stops_nothing():
    class Gone(Terminal):
        def write(self, text):
            raise OSError("gone")

    with progress.Progress("loading", after=0.0, stream=Gone()) as bar:
        bar(0, 0)
        bar(1, 2)
    closed = Terminal()
    closed.close()
    with progress.Progress("loading", after=0.0, stream=closed) as bar:
        bar(1, 2)
