"""``overdrive llm perplexity``: how well a model predicts a text."""

from __future__ import annotations

import json
import math
import sys
import time

from overdrive.cli.llm import common
from overdrive.progress import Progress


def main(arguments: list[str]) -> int:
    """Print the perplexity of a text."""
    parser = common.parser(
        "perplexity",
        "Say how well a model predicts a text: exp of the mean of -log p over its tokens. It is read in "
        "windows, each of which begins anew; the first token of a window is not counted. Use it to compare "
        "quantisations of one model on the same text.",
    )
    parser.add_argument("file", metavar="FILE|-", help="a text in UTF-8; '-': standard input")
    parser.add_argument(
        "--window", metavar="N", type=common.positive, default=512, help="tokens of a window (default: 512)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    common.add_threads(parser)
    options = parser.parse_args(arguments)
    if options.window < 2:
        parser.error("argument --window: must be at least 2, or there is nothing to predict")
    text = common.read_stdin() if options.file == "-" else _read(options.file)
    with common.opened(options) as model:
        window = min(options.window, model.n_ctx)
        tokens = model.tokenize(text)
        if len(tokens) < 2:
            raise common.Refused(f"a text of {len(tokens)} tokens has nothing to predict")
        begin = time.perf_counter()
        with Progress("reading") as progress:
            total, n_counted = model._core.log_likelihood(tokens, window, progress)
        seconds = time.perf_counter() - begin
        value = math.exp(-total / n_counted)
        if options.json:
            facts = {
                "model": model.path,
                "perplexity": value,
                "log_likelihood": total,
                "n_counted": n_counted,
                "n_tokens": len(tokens),
                "window": window,
                "seconds": round(seconds, 6),
            }
            print(json.dumps(facts, indent=1))
        else:
            sys.stdout.write(
                f"perplexity {value:.4f} over {n_counted:,} of {len(tokens):,} tokens, windows of {window}, "
                f"{len(tokens) / seconds:,.0f} tokens/s\n"
            )
    return 0


def _read(path: str) -> str:
    with open(path, "rb") as file:
        data = file.read()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise common.Refused(f"{path} is no UTF-8 at byte {error.start}") from None
