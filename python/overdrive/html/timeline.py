"""The time line of a session as inline SVG: one lane for each function, with its part of the samples.

In: a `Report`. Out: SVG that takes its colours from the page. Orange is time in CPython, blue time since it
was native; a line below the bars says the same without colour.
"""

from __future__ import annotations

from overdrive.html.page import escape
from overdrive.report import Report, Row, native_periods

_LABEL, _WIDTH, _LANE, _TOP = 250, 1000, 34, 8
_MOST_LANES = 40
_LONGEST_NAME = 34


def chart(report: Report) -> str:
    """Return the time line; an empty text when there is nothing on it."""
    rows = report.rows[:_MOST_LANES]
    if not rows or report.seconds <= 0:
        return ""
    highest = max((share for row in rows for share in _shares(report, row).values()), default=0.0)
    height = _TOP + _LANE * len(rows) + 26
    lanes = "".join(_lane(report, row, _TOP + _LANE * n, highest) for n, row in enumerate(rows))
    more = len(report.rows) - len(rows)
    note = f" {more} more functions are in the table only." if more else ""
    scale = f" The highest bar is {highest:.0%} of a window's samples." if highest else ""
    keys = "".join(
        '<svg viewBox="0 0 14 14" width="14" height="14" style="display:inline">'
        f"{_marker(state, 7, 7)}</svg> {state} &nbsp; "
        for state in ("promoted", "put back", "refused")
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" style="max-width:{_WIDTH}px" role="img" '
        f'aria-label="time line of promotions">\n{_axis(report.seconds, height)}{lanes}</svg>\n'
        f'<p class="od-muted">{keys}Bars: the part of the samples of each window that was in the function; '
        "orange in CPython, blue since it was native, which the line below them says too."
        f"{scale}{note}</p>\n"
    )


def _x(seconds: float, total: float) -> float:
    return round(_LABEL + (_WIDTH - _LABEL - 10) * min(seconds / total, 1.0), 1)


def _axis(total: float, height: int) -> str:
    step = _step(total)
    out = []
    n = 0
    while n * step <= total * 1.0001:
        at = n * step
        x = _x(at, total)
        text = f"{at:g} s"
        out.append(
            f'<line class="od-g" x1="{x}" y1="{_TOP}" x2="{x}" y2="{height - 22}"/>'
            f'<text x="{x}" y="{height - 7}" text-anchor="middle">{text}</text>\n'
        )
        n += 1
    return "".join(out)


def _step(total: float) -> float:
    """Return a round number of seconds of which 5 to 12 fit.

    >>> _step(12.3), _step(0.9), _step(3600)
    (2, 0.1, 500)
    """
    size = 10.0**-3
    while True:
        for factor in (1, 2, 5):
            if total / (size * factor) <= 12:
                value = round(size * factor, 6)
                return int(value) if value >= 1 else value
        size *= 10


def _shares(report: Report, row: Row) -> dict[int, float]:
    """Part of the samples of each window that was in the function, by the window's number."""
    windows = report.windows
    return {n: own / windows[n][1] for n, own in row.samples if n < len(windows) and windows[n][1]}


def _lane(report: Report, row: Row, top: int, highest: float) -> str:
    total, base = report.seconds, top + _LANE - 10
    name = row.name if len(row.name) <= _LONGEST_NAME else f"…{row.name[1 - _LONGEST_NAME :]}"
    out = [
        f'<text x="{_LABEL - 10}" y="{base - 2}" text-anchor="end">{escape(name)}'
        f"<title>{escape(row.name)} ({escape(row.where)})</title></text>",
        f'<line class="od-g" x1="{_LABEL}" y1="{base}" x2="{_WIDTH - 10}" y2="{base}"/>',
    ]
    periods = native_periods(row, total)
    paths: list[list[str]] = [[], []]
    for n, share in _shares(report, row).items():
        begin = report.windows[n - 1][0] if n else 0.0
        end = report.windows[n][0]
        is_native = any(since <= (begin + end) / 2 <= until for since, until in periods)
        size = round((_LANE - 14) * share / highest, 1) if highest else 0
        paths[is_native].append(f"M{_x(begin, total)} {base}v{-size}H{_x(end, total)}v{size}z")
    for kind, parts in enumerate(paths):
        if parts:
            out.append(f'<path class="od-s{kind}" d="{"".join(parts)}"/>')
    for since, until in periods:
        begin_x, end_x = _x(since, total), _x(until, total)
        out.append(f'<line class="od-on" x1="{begin_x}" y1="{base + 2}" x2="{end_x}" y2="{base + 2}"/>')
    for at, state in row.events:
        if state != "compiling":
            title = f"<title>{escape(row.name)}: {escape(state)} at {at:.2f} s</title>"
            out.append(f"<g>{_marker(state, _x(at, total), base + 2)}{title}</g>")
    return "".join(out) + "\n"


def _marker(state: str, x: float, y: float) -> str:
    if state == "promoted":
        return f'<circle class="od-e" cx="{x}" cy="{y}" r="4"/>'
    if state == "put back":
        return f'<path class="od-e" d="M{x - 5} {y - 4}h10l-5 9z"/>'
    if state == "refused":
        return f'<path class="od-e" fill="none" d="M{x - 4} {y - 4}l8 8m0 -8l-8 8"/>'
    return f'<circle class="od-e" style="fill:none" cx="{x}" cy="{y}" r="4"/>'
