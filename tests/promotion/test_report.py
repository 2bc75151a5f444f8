"""The report's table and JSON."""

import json

import overdrive
from overdrive.report import Report, duration

ROW = {
    "name": "matrix_multiply",
    "file": "/home/u/01_unmodified.py",
    "line": 18,
    "kind": "function",
    "state": "promoted",
    "score": 97.0,
    "share": 0.4,
    "calls": 1412,
    "native_calls": 1200,
    "before": 1.28e-3,
    "after": 97e-6,
    "promoted_at": 1.84,
    "exits": 0,
    "loops_entered": 0,
    "notes": ["line 31 runs in CPython: re.sub"],
}


def report(*rows, **more):
    return Report.from_data(
        {"rows": [{**ROW, **row} for row in rows], "seconds": 12.34, "samples": 2400, "trouble": None, **more}
    )


def test_table():
    text = str(
        report(
            {},
            {
                "name": "<module>",
                "line": 1,
                "kind": "loops",
                "calls": None,
                "before": None,
                "after": None,
                "notes": [],
            },
            {
                "name": "slow",
                "state": "put back",
                "promoted_at": None,
                "before": 22e-9,
                "after": 30e-9,
                "calls": 5,
                "notes": [],
            },
        )
    )
    assert text.splitlines() == [
        "overdrive: 2 promotions in 12.3 s",
        "function                               calls   before    after  speed-up  promoted at  note",
        "matrix_multiply (01_unmodified.py:18)  1,412  1.28 ms  97.0 µs     13.2×        1.8 s  line 31 runs in CPython: re.sub",
        "<module> (01_unmodified.py:1)              -        -        -         -        1.8 s  loops entered while they ran",
        "slow (01_unmodified.py:18)                 5    22 ns    30 ns      0.7×            -  put back",
    ]


def test_nothing_promoted_and_why():
    assert str(report(trouble="a tracer is active")).splitlines() == [
        "overdrive: 0 promotions in 12.3 s",
        "overdrive: a tracer is active",
    ]


def test_json_has_every_field():
    data = json.loads(report({}).to_json())
    added = {"events": [], "samples": [], "share_before": None, "share_after": None}
    unverified = {"verified_calls": None, "differences": []}
    assert data["rows"][0] == {**ROW, **added, **unverified, "speedup": ROW["before"] / ROW["after"]}
    assert (data["seconds"], data["windows"], data["others"]) == (12.34, [], [])


def test_speedup_needs_both_times():
    assert report({"after": None}).rows[0].speedup is None
    assert report({"before": None}).rows[0].speedup is None
    assert report({"after": 0.0}).rows[0].speedup is None


def test_durations_have_three_digits():
    values = [1.5, 0.1234, 0.01234, 1.234e-3, 999e-6, 12.34e-6, 1e-6, 0.5e-6, 3e-10, None]
    assert [duration(value) for value in values] == [
        "1.50 s",
        "123 ms",
        "12.3 ms",
        "1.23 ms",
        "999 µs",
        "12.3 µs",
        "1.00 µs",
        "500 ns",
        "0 ns",
        "-",
    ]


def test_stop_without_start_is_an_empty_report():
    assert overdrive.stop().rows == ()
