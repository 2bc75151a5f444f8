"""``overdrive llm bench``: how fast prompts are read and text is written, and where the time goes."""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time

import overdrive
from overdrive._core import kernel_level, set_kernel_level
from overdrive.cli.llm import common
from overdrive.llm.model import Model
from overdrive.llm.profile import OpProfile
from overdrive.progress import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

KERNELS = ("auto", "amx", "avx512", "avx2", "scalar")


def main(arguments: list[str]) -> int:
    """Measure and print a table."""
    parser = common.parser(
        "bench",
        "Measure tokens per second: of a prompt that is read at once, and of text that is written token by "
        "token behind an empty prompt. Each figure is the median of several runs, with the slowest and the "
        "fastest beside it.",
    )
    parser.add_argument(
        "--prompt",
        metavar="N",
        type=common.natural,
        default=512,
        help="tokens of a prompt (default: 512; 0: none)",
    )
    parser.add_argument(
        "--generate",
        metavar="N",
        type=common.natural,
        default=128,
        help="tokens to write (default: 128)",
    )
    parser.add_argument(
        "--threads",
        metavar="N,…",
        type=_numbers,
        default=[],
        help="numbers of threads (default: all)",
    )
    parser.add_argument(
        "--kernels",
        metavar="KIND,…",
        type=_kernels,
        default=["auto"],
        help=f"for which processor: {', '.join(KERNELS)} (default: auto, the best of this one)",
    )
    parser.add_argument("--repeat", metavar="N", type=common.positive, default=5, help="runs (default: 5)")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="time, bytes and operations of operators, from one more run",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if not options.prompt and not options.generate:
        parser.error("there is nothing to measure: --prompt and --generate are both 0")
    found = kernel_level()
    begin = time.perf_counter()
    with common.opened(options) as model:
        load_seconds = time.perf_counter() - begin
        for name, n in (("--prompt", options.prompt), ("--generate", options.generate)):
            if n > model.n_ctx:
                raise common.Refused(f"{name} {n} is longer than the context of {model.n_ctx}")
        threads = options.threads or [overdrive.get_num_threads()]
        chosen = [found if kind == "auto" else kind for kind in options.kernels]
        n_steps = len(chosen) * len(threads) * (options.repeat + options.profile) * 2
        rows: list[dict[str, Any]] = []
        try:
            with Progress("measuring") as progress:
                steps = itertools.count(1)
                for kind, n_threads in itertools.product(chosen, threads):
                    set_kernel_level(kind)
                    overdrive.set_num_threads(n_threads)
                    bench = Bench(model, options, lambda: progress(next(steps), n_steps))
                    rows.extend({"kernels": kind, "threads": n_threads, **row} for row in bench.rows())
        finally:
            set_kernel_level(found)
        facts = {
            "model": model.path,
            "config": model.config,
            "processor": overdrive.info().get("processor"),
            "overdrive": overdrive.__version__,
            "load_seconds": round(load_seconds, 6),
            "runs": rows,
        }
        if options.json:
            print(json.dumps(facts, indent=1))
        else:
            _print(repr(model), facts)
    return 0


class Bench:
    """Measurements with one kind of kernels and one number of threads."""

    def __init__(self, model: Model, options: argparse.Namespace, progress: Callable[[], None]) -> None:
        self.model = model
        self.options = options
        self.progress = progress
        n_vocabulary = model.config["n_vocabulary"]
        # Any tokens do: what is computed does not depend on them. The same in each run of the command.
        self.prompt = [(i * 7919 + 13) % n_vocabulary for i in range(options.prompt)]

    def rows(self) -> list[dict[str, Any]]:
        """Measure what was asked for."""
        rows = []
        if self.options.prompt:
            rows.append(self._row("prompt", self.options.prompt, self._read))
        if self.options.generate:
            rows.append(self._row("generate", self.options.generate, self._write))
        return rows

    def _row(self, what: str, n: int, run: Callable[[], None]) -> dict[str, Any]:
        run()  # pages are touched and threads started before anything is measured
        seconds = []
        for _ in range(self.options.repeat):
            begin = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - begin)
            self.progress()
        rates = sorted(n / each for each in seconds)
        row: dict[str, Any] = {
            "what": what,
            "n_tokens": n,
            "tokens_per_second": round(statistics.median(rates), 3),
            "slowest": round(rates[0], 3),
            "fastest": round(rates[-1], 3),
            "seconds": [round(each, 6) for each in seconds],
        }
        if self.options.profile:
            with self.model.profile() as profile:
                run()
            self.progress()
            row["profile"] = [each._asdict() for each in profile.rows]
        return row

    def _read(self) -> None:
        self.model._forward([self.prompt], False)

    def _write(self) -> None:
        # No token ends the text, so that all runs write as many.
        run = self.model._run(
            [[self.model.tokenizer.bos_id or 0]], [0], max_tokens=self.options.generate, ends=[]
        )
        run.to_end()


def _print(name: str, facts: dict[str, Any]) -> None:
    print(f"{name}\n{facts['processor']}, loaded in {facts['load_seconds'] * 1000:,.0f} ms\n")
    print(f"{'kernels':8} {'threads':>7} {'what':>15} {'tokens/s':>10} {'slowest':>10} {'fastest':>10}")
    for row in facts["runs"]:
        what = f"{row['what']} {row['n_tokens']}"
        print(
            f"{row['kernels']:8} {row['threads']:7} {what:>15} {row['tokens_per_second']:10,.1f} "
            f"{row['slowest']:10,.1f} {row['fastest']:10,.1f}"
        )
    for row in facts["runs"]:
        if "profile" not in row:
            continue
        print(f"\n{row['what']} {row['n_tokens']}, {row['kernels']}, {row['threads']} threads:")
        print(OpProfile.table(row["profile"]))


def _numbers(text: str) -> list[int]:
    return [common.positive(part) for part in text.split(",")]


def _kernels(text: str) -> list[str]:
    kinds = text.split(",")
    for kind in kinds:
        if kind not in KERNELS:
            raise argparse.ArgumentTypeError(f"{kind!r} is none of {', '.join(KERNELS)}")
    return kinds
