"""``overdrive llm run``: one prompt, one answer."""

from __future__ import annotations

import json
import sys
import time

from overdrive.cli.llm import common


def main(arguments: list[str]) -> int:
    """Answer or continue a prompt."""
    parser = common.parser(
        "run",
        "Answer a prompt: it is put into the model's chat template, and the answer is printed as it comes. "
        "With --raw, or where the file has no template, the text is continued as it stands.",
    )
    parser.add_argument(
        "prompt", nargs="?", metavar="PROMPT|-", help="the prompt; '-' or nothing: standard input"
    )
    parser.add_argument("--raw", action="store_true", help="continue the text instead of answering it")
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the prompt")
    parser.add_argument("--json", action="store_true", help="print JSON when it is done")
    common.add_threads(parser)
    common.add_sampling(parser, 256)
    options = parser.parse_args(arguments)
    if options.raw and options.system is not None:
        parser.error("--system needs the chat template, which --raw leaves out")
    if options.prompt is None and sys.stdin.isatty():
        parser.error("a prompt is needed: as an argument or on standard input")
    prompt = common.read_stdin() if options.prompt in (None, "-") else options.prompt
    if not prompt:
        raise common.Refused("the prompt is empty")
    with common.opened(options) as model:
        if options.raw or not model.has_template:
            if options.system is not None:
                raise common.Refused("the file has no chat template, so --system has no place")
            tokens = model.tokenize(prompt)
        else:
            system = [] if options.system is None else [{"role": "system", "content": options.system}]
            tokens = model.apply_template([*system, {"role": "user", "content": prompt}])
        session = model.session()
        begin = time.perf_counter()
        common.read_ahead(model, session._sequence, tokens)
        with session.generate(tokens, stream=True, **common.sampling(options)) as stream:
            last = ""
            for piece in stream:
                if not options.json:
                    sys.stdout.write(piece)
                    sys.stdout.flush()
                    last = piece
            completion = stream.completion
        seconds = time.perf_counter() - begin
        if not options.json:
            if not last.endswith("\n"):
                sys.stdout.write("\n")
            return 0
        print(
            json.dumps(
                {
                    "model": model.path,
                    "text": str(completion),
                    "finish_reason": completion.finish_reason,
                    "n_prompt_tokens": len(tokens),
                    "n_tokens": len(completion.tokens),
                    "seconds": round(seconds, 6),
                },
                indent=1,
            )
        )
    return 0
