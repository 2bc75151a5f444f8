"""``overdrive llm chat``: a talk with a model, on a terminal or from a pipe."""

from __future__ import annotations

import contextlib
import json
import sys

from overdrive.cli.llm import common
from overdrive.llm.completion import Completion
from overdrive.llm.model import Model
from overdrive.llm.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

COMMANDS = """\
/clear  forget the talk        /exit  end (also Ctrl-D)
/help   this                   Ctrl-C while it answers ends the answer
"""


def main(arguments: list[str]) -> int:
    """Talk until the input ends."""
    parser = common.parser(
        "chat",
        "Talk with a model. Each line is a question, and the model remembers the talk. "
        "Questions may also come from a pipe, one a line; then only the answers are printed.",
    )
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the talk")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line for each answer")
    common.add_threads(parser)
    common.add_sampling(parser, None)
    options = parser.parse_args(arguments)
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not options.json
    with common.opened(options) as model:
        if not model.has_template:
            raise common.Refused(f"{model.path} has no chat template; overdrive llm run continues texts")
        talk = Talk(model, options.system, common.sampling(options), options.json, is_terminal)
        if is_terminal:
            sys.stdout.write(f"{model!r}\n{COMMANDS}")
        for line in _lines(is_terminal):
            if line in ("/exit", "/quit"):
                break
            if line == "/clear":
                talk.clear()
            elif line == "/help":
                sys.stdout.write(COMMANDS)
            elif line.startswith("/") and is_terminal:
                sys.stdout.write(f"there is no {line.split()[0]}\n{COMMANDS}")
            elif line.strip():
                talk.ask(line)
    return 0


class Talk:
    """What was said, and the session that has computed it."""

    def __init__(
        self, model: Model, system: str | None, options: dict[str, Any], as_json: bool, is_terminal: bool
    ) -> None:
        self.model = model
        self.options = options
        self.as_json = as_json
        self.is_terminal = is_terminal
        self._begin = [] if system is None else [{"role": "system", "content": system}]
        self._session: Session = model.session()
        self.messages = list(self._begin)

    def clear(self) -> None:
        """Begin again."""
        self.messages = list(self._begin)
        self._session.clear()

    def ask(self, question: str) -> None:
        """Print the answer as it comes. On a terminal Ctrl-C ends it, and what was said stays said."""
        messages = [*self.messages, {"role": "user", "content": question}]
        tokens = self.model.apply_template(messages)
        if len(tokens) >= self.model.n_ctx and self.options["overflow"] == "stop":
            why = (
                f"the talk has {len(tokens)} tokens, the context is {self.model.n_ctx}; /clear begins anew, "
                "and --overflow shift forgets what is old"
            )
            if not self.is_terminal:
                raise common.Refused(why)
            sys.stdout.write(f"{why}\n")
            return
        answer: list[str] = []
        completion: Completion | None = None
        try:
            common.read_ahead(self.model, self._session._sequence, tokens)
            with self._session.generate(tokens, stream=True, **self.options) as stream:
                for piece in stream:
                    answer.append(piece)
                    if not self.as_json:
                        sys.stdout.write(piece)
                        sys.stdout.flush()
                completion = stream.completion
        except KeyboardInterrupt:
            if not self.is_terminal:
                raise
        text = "".join(answer)
        self.messages = [*messages, {"role": "assistant", "content": text}]
        if self.as_json and completion is not None:
            facts = {
                "text": text,
                "finish_reason": completion.finish_reason,
                "n_prompt_tokens": completion.n_prompt_tokens,
                "n_reused": completion.n_reused,
                "n_tokens": len(completion.tokens),
            }
            sys.stdout.write(json.dumps(facts) + "\n")
        elif not text.endswith("\n"):
            sys.stdout.write("\n")
        sys.stdout.flush()


def _lines(is_terminal: bool) -> Iterator[str]:
    """Give the lines of the input, with a prompt on a terminal, where arrows edit and recall them."""
    if not is_terminal:
        yield from common.read_stdin_lines()
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # `input` uses it where it is
    while True:
        try:
            yield input("> ")
        except EOFError:
            sys.stdout.write("\n")
            return
