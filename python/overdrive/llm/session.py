"""A session: one text or talk that goes on, whose beginning is computed once."""

from __future__ import annotations

import os

from overdrive.llm.completion import Completion, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal

    from overdrive._core import LlmSequence
    from overdrive.llm.model import Model


class Session:
    """Keeps keys and values between calls: what a prompt has in common with the text so far is reused.

    ``messages`` is the talk that `chat` has had when it is given single questions. One thread at a time
    uses a session; a second gets RuntimeError.

    >>> session = model.session()  # doctest: +SKIP
    >>> session.chat("My name is Ada.")  # doctest: +SKIP
    >>> session.chat("What is my name?")  # doctest: +SKIP
    """

    def __init__(self, model: Model, sequence: LlmSequence) -> None:
        self.model = model
        self.messages: list[dict[str, Any]] = []
        self._sequence = sequence

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = 256,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        stream: bool = False,
        logprobs: int | None = None,
        overflow: Literal["stop", "shift"] = "stop",
        keep: int = 0,
    ) -> Any:
        """As `Model.generate` for one prompt, the whole text, of which nothing known is computed again."""
        run = self.model._run(
            [self.model._prompt(prompt)],
            [seed],
            sequences=[self._sequence],
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            stop=stop,
            logprobs=logprobs,
            overflow=overflow,
            keep=keep,
        )
        return Stream(run) if stream else run.to_end()[0]

    def chat(self, messages: str | Sequence[Mapping[str, Any]], **options: Any) -> Any:
        """As `Model.chat`; a single text continues ``messages``, and the answer is added to them.

        What was interrupted by an exception adds nothing. A stream adds its answer when it ends or is
        closed.
        """
        if not isinstance(messages, str):
            return self.generate(self.model.apply_template(messages), **options)
        talk = [*self.messages, {"role": "user", "content": messages}]
        answer = self.generate(self.model.apply_template(talk), **options)

        def add(completion: Completion) -> None:
            self.messages = [*talk, {"role": "assistant", "content": str(completion)}]

        if isinstance(answer, Stream):
            answer.at_end(add)
        else:
            add(answer)
        return answer

    @property
    def tokens(self) -> list[int]:
        """The tokens whose keys and values are kept."""
        return self._sequence.tokens

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write tokens, keys and values to a file, for `Model.session`; ``messages`` are not in it.

        An older file is replaced at the end, when the new one is whole.
        """
        self._sequence.save(os.fspath(path))

    def clear(self) -> None:
        """Forget the text and the messages."""
        self._sequence.clear()
        self.messages = []

    def __len__(self) -> int:
        return len(self._sequence)

    def __repr__(self) -> str:
        return f"<overdrive.llm.Session, {len(self)} tokens>"
