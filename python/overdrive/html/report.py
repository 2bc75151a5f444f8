"""The report of a run as a page: when what was promoted, where the time went, what stayed in CPython.

In: a `Report`, and explanations of functions (`Explanation.functions`). Out: HTML.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from overdrive import _loaded
from overdrive.html import source, timeline
from overdrive.html.page import count, document, escape, legend, style
from overdrive.report import Report, Row, duration

_MOST_SOURCES = 200
_LEAST_SHARE = 0.01
"""Part of all samples below which a function that was not promoted is not named."""


def compiled() -> list[dict[str, Any]]:
    """Return the explanation of everything in this process that was compiled, or was to be."""
    if _loaded.core is None:
        return []
    everything = _loaded.core.explain_everything()
    return sorted(everything, key=lambda function: (function["file"], function["firstlineno"]))


def page_of(report: Report, explained: list[dict[str, Any]], title: str) -> str:
    """See `Report.html`."""
    shown = [function for function in explained if function["versions"] or function.get("refused")]
    left_out = shown[_MOST_SOURCES:]
    shown = shown[:_MOST_SOURCES]
    links = {(f["name"], f["file"], f["firstlineno"]): source.anchor(n) for n, f in enumerate(shown)}
    parts = [f"<h1>{escape(title)}</h1>\n", _summary(report), _time(report, links), _stayed(report, links)]
    if shown:
        parts.append(f"<h2>The sources, line by line</h2>\n{legend()}")
        parts.append(source.sources(shown, [()] * len(shown)))
    if left_out:
        parts.append(f"<p>{count(len(left_out), 'more function')} had no room here.</p>\n")
    return document(title, "".join(parts), style())


def cell(report: Report) -> str:
    """See `Report._repr_html_`."""
    return (
        f'<div class="od od-cell"><style>{style()}</style>'
        f"{_summary(report)}{_time(report, {})}{_stayed(report, {})}</div>"
    )


_Links = dict[tuple[str, str, int], str]


def _summary(report: Report) -> str:
    promoted = sum(row.state == "promoted" for row in report.rows)
    trouble = f"<p><strong>{escape(report.trouble)}</strong></p>\n" if report.trouble else ""
    return (
        f"<p>{count(promoted, 'promotion')} in {report.seconds:.1f} s, "
        f"{count(report.samples, 'sample')}.</p>\n{trouble}"
    )


def _time(report: Report, links: _Links) -> str:
    if not report.rows:
        return "<p>No function was hot enough to be promoted.</p>\n"
    rows = "".join(_row(report, row, links) for row in report.rows)
    return (
        f"<h2>When functions were promoted</h2>\n{timeline.chart(report)}"
        '<h2>Where the time went</h2>\n<div class="od-wide"><table><thead><tr><th>function</th><th>state</th>'
        '<th class="od-r">calls</th><th class="od-r">a call before</th><th class="od-r">after</th>'
        '<th class="od-r">speed-up</th><th>part of all samples</th>'
        f'<th class="od-r">promoted at</th></tr></thead><tbody>\n{rows}</tbody></table></div>\n'
    )


def _name(name: str, file: str, line: int | None, links: _Links) -> str:
    where = f"{file.rpartition('/')[2]}:{line}" if line else file.rpartition("/")[2]
    shown = f"<code>{escape(name)}</code>"
    link = links.get((name, file, line or 0))
    if link is not None:
        shown = f'<a href="#{link}">{shown}</a>'
    return f'{shown} <span class="od-muted">{escape(where)}</span>'


def _row(report: Report, row: Row, links: _Links) -> str:
    before, after = report.shares(row)
    at = f"{row.promoted_at:.1f} s" if row.promoted_at is not None else "-"
    calls = f"{row.calls:,}" if row.calls is not None else "-"
    speedup = f"{row.speedup:.1f}×" if row.speedup is not None else "-"  # noqa: RUF001
    state = row.state
    if row.loops_entered:
        state += f", {count(row.loops_entered, 'running loop')} entered"
    return (
        f"<tr><td>{_name(row.name, row.file, row.line, links)}</td><td>{escape(state)}</td>"
        f'<td class="od-r">{calls}</td><td class="od-r">{duration(row.before)}</td>'
        f'<td class="od-r">{duration(row.after)}</td><td class="od-r">{speedup}</td>'
        f'<td class="od-bars">{_bar(before, "before", "in CPython")}{_bar(after, "after", "native")}</td>'
        f'<td class="od-r">{at}</td></tr>\n'
    )


def _bar(share: float | None, kind: str, how: str = "") -> str:
    if share is None:
        return ""
    width = round(100 * min(share, 1.0), 1)
    bar = f'<span class="od-bar od-{kind}" style="width:{max(width, 0.5)}%"></span>'
    return f'<div><span class="od-track">{bar}</span>{share:.1%} {how}</div>'


def _stayed(report: Report, links: _Links) -> str:
    items = []
    for row in report.rows:
        notes: list[str] = list(row.notes)
        if row.exits:
            notes.append(f"left for CPython {count(row.exits, 'time')}")
        if notes:
            said = "".join(f"<li>{escape(note)}</li>" for note in notes)
            items.append(f"<li>{_name(row.name, row.file, row.line, links)}<ul>{said}</ul></li>\n")
    out = "<h2>What stayed in CPython</h2>\n"
    out += f"<ul>{''.join(items)}</ul>\n" if items else "<p>Nothing of the functions above.</p>\n"
    rows = ""
    taken = sum(ticks for _, ticks in report.windows)
    if report.others and taken:
        shares = [(other, _own(other["samples"]) / taken) for other in report.others]
        rows = "".join(
            f"<tr><td>{_name(other['name'], other['file'], None, links)}</td>"
            f'<td class="od-bars">{_bar(share, "before")}</td></tr>\n'
            for other, share in shares
            if share >= _LEAST_SHARE
        )
    if rows:
        out += (
            "<p>Other functions in which time went, not hot enough to be promoted or never found:</p>\n"
            f"<table><thead><tr><th>function</th><th>part of all samples</th></tr></thead><tbody>\n{rows}"
            "</tbody></table>\n"
        )
    return out


def _own(samples: Iterable[tuple[int, int]]) -> int:
    return sum(own for _, own in samples)
