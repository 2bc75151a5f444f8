"""What `make bench-llm` does apart from measuring: its rows and targets, the page, the plots, the order of turns."""

import copy
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benches"), str(ROOT / "benches/llm")]

import report  # noqa: E402

MIB = 1 << 20
SPEEDS = {"llama.cpp": (160, 50), "overdrive": (560, 80), "overdrive-avx512": (240, 80)}


def answer(load, first_token):
    return {"load": load, "first_token": first_token}


def threads(speeds, bandwidth=16e9):
    return {
        "loads": {name: {"first": [answer(0.3, 0.5)], "second": [answer(0.1, 0.2)]} for name in speeds},
        "sides": {
            name: {
                "prompt": [prompt, prompt / 2],
                "generate": [generated / 2, generated],
                "before": {"now": 50 * MIB, "peak": 60 * MIB, "files": 20 * MIB},
                "memory": {"now": 150 * MIB, "peak": 160 * MIB, "files": 80 * MIB},
            }
            for name, (prompt, generated) in speeds.items()
        },
        "bandwidth": [bandwidth / 2, bandwidth],
    }


def right(**changed):
    figures = {
        "divergence": 1e-3,
        "peer_divergence": 2e-3,
        "perplexity": 20.0,
        "peer_perplexity": 20.05,
        "reference_perplexity": 20.01,
        "steps": 1280,
        "steps_differ": 30,
        "peer_steps_differ": 31,
        "steps_ahead_here": 1200,
        "steps_differ_here": 0,
        "steps_ahead_anywhere": 800,
        "steps_differ_anywhere": 0,
        "recorded_with": "llama-cpp-python 1",
    }
    return figures | changed


def data():
    file = {
        "bytes": 90 * MIB,
        "per_token": 100_000_000,
        "cache_per_position": 10_240,
        "parameters": 135_000_000,
    }
    titles = {
        "llama.cpp": "llama.cpp",
        "overdrive": "Overdrive",
        "overdrive-avx512": "Overdrive, without AMX",
    }
    return {
        "machine": {"cpu": "A Processor", "cores": 2, "system": "Debian GNU/Linux 12, x86_64"},
        "date": "2026-12-01",
        "command": "make bench-llm",
        "note": "",
        "minutes": 7.4,
        "load": [0.1, 1.0],
        "rounds": 2,
        "n_prompt": 512,
        "n_ctx": 1024,
        "generated": {"smollm2": 64, "1b": 32},
        "sides": [
            {"name": name, "title": title, "version": "1.2", "python": "3.11.7", "features": "AVX512 = 1"}
            for name, title in titles.items()
        ],
        "models": {
            "smollm2": {"file": file, "threads": {"1": threads(SPEEDS)}},
            "1b": {"file": {**file, "per_token": 140_000_000}, "threads": {"1": threads(SPEEDS)}},
        },
        "right": {name: right() for name in SPEEDS},
    }


def row(made, begin):
    (line,) = [line for line in report.lines(made) if line.what.startswith(begin)]
    return line


def test_rates_are_the_best_of_the_rounds_and_compared_with_the_peers():
    line = row(data(), "SmolLM2-135M, 1 thread: prompt, times")
    assert (line.value, line.target, line.met) == ("3.50", "≥ 3.00", True)
    line = row(data(), "SmolLM2-135M, 1 thread: prompt without AMX")
    assert (line.value, line.target, line.met) == ("1.50", "≥ 1.30", True)
    assert row(data(), "SmolLM2-135M, 1 thread: generation, times").value == "1.60"


def test_generation_of_large_shapes_is_asked_to_read_as_fast_as_memory_is():
    line = row(data(), "1b shape, 1 thread: generation, part")
    assert (line.value, line.met) == ("0.70", True)  # 80 tokens a second times 140 MB of 16 GB a second
    assert row(data(), "1b shape, 1 thread: generation, times").met is None


def test_loads_and_memory():
    assert row(data(), "SmolLM2-135M, 1 thread: second load").value == "1.00"
    line = row(data(), "SmolLM2-135M, 1 thread: resident")
    assert (line.value, line.met) == ("1.00", True)  # 100 MiB of 90 MiB and 1024 positions of 10 KiB


@pytest.mark.parametrize(
    ("changed", "begin"),
    [
        ({"divergence": 3e-3}, "KL"),
        (
            {"steps_differ_anywhere": 1},
            "greedy steps that differ from float64, where it is ahead by more than llama.cpp errs anywhere",
        ),
        (
            {"steps_differ_here": 1},
            "greedy steps that differ from float64, where it is ahead by more than llama.cpp errs at that",
        ),
        ({"perplexity": 20.2}, "perplexity"),
    ],
)
def test_wrong_results_miss_their_targets(changed, begin):
    assert row(data(), begin).met is True
    made = data()
    made["right"]["overdrive"] = right(**changed)
    assert row(made, begin).met is False


def test_what_was_refused_or_is_absent_passes_nothing():
    made = data()
    made["models"]["1b"]["threads"]["1"]["sides"]["overdrive"] = {
        "prompt": [],
        "generate": [],
        "refused": "no",
    }
    made["right"]["overdrive"] = {"refused": "no"}
    missing = [line for line in report.lines(made) if line.value is None]
    assert {line.what[:8] for line in missing} == {"1b shape", "KL diver", "greedy s", "perplexi"}
    assert not any(line.met for line in missing)
    text = report.page(made, None)
    assert "not measured" in text and "refused" in text
    made["sides"][0] = {"name": "llama.cpp", "title": "llama.cpp", "absent": "not installed"}
    del made["right"]["llama.cpp"]
    for entry in made["models"].values():
        for part in ("loads", "sides"):
            entry["threads"]["1"][part].pop("llama.cpp")
    assert "llama.cpp is absent: not installed" in report.page(made, None)


def test_the_page_has_every_figure_and_how_it_was_made():
    text = report.page(data(), "benchmarks-llm")
    for expected in (
        "A Processor, 2 cores",
        "Command: `make bench-llm` (2 rounds; it took 7 minutes)",
        "| SmolLM2-135M | 1 | 16.0 GB/s | 160 / 50.0 | 560 / 80.0 | 240 / 80.0 |",
        "| 1b shape | 1 | 16.0 GB/s | 160 / 50.0 (44% of the read rate) | 560 / 80.0 (70% of the read rate) |",
        "| SmolLM2-135M | 1 | Overdrive | 500 ms | 200 ms | 100 ms | 100 MiB | 80 MiB | 110 MiB |",
        "| Overdrive | 1.00e-03 | 20.0000 | 0 of 800 | 0 of 1,200 | 30 of 1,280 |",
        "](benchmarks-llm/prompt.svg)",
    ):
        assert expected in text, expected


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib")
def test_plots_are_drawn_the_same_each_time(tmp_path):
    files = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        files.append([path.read_bytes() for path in report.draw(data(), tmp_path / name)])
    assert files[0] == files[1] and len(files[0]) == 2
    assert b"SmolLM2-135M" in files[0][0]


def bench(*arguments):
    command = [sys.executable, ROOT / "benches/llm/bench.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_page_can_be_made_from_kept_data(tmp_path):
    (tmp_path / "data.json").write_text(json.dumps(data()))
    done = bench("--from", tmp_path / "data.json", "--out", tmp_path / "page.md")
    assert done.returncode == 0, done.stderr
    assert "## In short" in (tmp_path / "page.md").read_text()
    slow = copy.deepcopy(data())
    slow["models"]["smollm2"]["threads"]["1"]["sides"]["overdrive"]["prompt"] = [100]
    (tmp_path / "data.json").write_text(json.dumps(slow))
    done = bench("--from", tmp_path / "data.json", "--out", tmp_path / "page.md")
    assert "targets missed:\n  SmolLM2-135M, 1 thread: prompt, times llama.cpp's speed: 0.62" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "7b"], "no such model: 7b"),
        (["--sides", "other"], "no such side: other"),
        (["--threads", "0"], "--threads must be numbers above 0"),
        (["--rounds", "0"], "--rounds and --loads must be 1 or more"),
        (["--smollm2", "nowhere.gguf"], "SmolLM2 is not here"),
    ],
)
def test_orders_that_make_no_sense_are_refused(arguments, message):
    done = bench("--quick", "--sides", "overdrive", *arguments)
    assert done.returncode != 0 and message in done.stderr
