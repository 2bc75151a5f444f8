"""What a generation gives: text that knows its tokens, whole or piece by piece."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from overdrive._core import LlmGeneration


class TokenLogprob(NamedTuple):
    """One chosen token: its id, the natural logarithm of its probability, and the likeliest by id.

    Probabilities are the model's own: before temperature, penalties and cuts.
    """

    token: int
    logprob: float
    top: dict[int, float]


class Completion(str):
    """The generated text, a ``str``, with what there is to know about it.

    ``tokens`` are the generated ids; ``finish_reason`` is ``"stop"`` (a stop string), ``"end"`` (the model
    ended its text), ``"length"`` (``max_tokens``, or the context is full) or ``"interrupted"`` (a stream that
    was closed early). ``n_prompt_tokens`` is the length of the prompt, ``n_reused`` how much of it a session
    had in its cache. ``logprobs`` is a tuple of `TokenLogprob`, if they were asked for.
    """

    __slots__ = ("finish_reason", "logprobs", "n_prompt_tokens", "n_reused", "tokens")

    tokens: tuple[int, ...]
    finish_reason: str
    n_prompt_tokens: int
    n_reused: int
    logprobs: tuple[TokenLogprob, ...] | None


class Run:
    """A generation that runs: collects what each of its rows gets. Private."""

    def __init__(self, core: LlmGeneration, n_prompt_tokens: list[int], with_logprobs: bool) -> None:
        self._core = core
        self._n_prompt_tokens = n_prompt_tokens
        self._texts: list[list[str]] = [[] for _ in n_prompt_tokens]
        self._tokens: list[list[int]] = [[] for _ in n_prompt_tokens]
        self._logprobs: list[list[TokenLogprob]] | None = None
        if with_logprobs:
            self._logprobs = [[] for _ in n_prompt_tokens]
        self._reasons = ["interrupted"] * len(n_prompt_tokens)
        self.is_over = False

    def step(self) -> list[tuple[int, str]]:
        """Compute the next token of each row, and return the texts that became certain, with their rows."""
        pieces = []
        for row, token, text, logprob, top, reason in self._core.step():
            if token is not None:
                self._tokens[row].append(token)
                if self._logprobs is not None and logprob is not None:
                    self._logprobs[row].append(TokenLogprob(token, logprob, dict(top or ())))
            if text:
                self._texts[row].append(text)
                pieces.append((row, text))
            if reason is not None:
                self._reasons[row] = reason
        self.is_over = self._core.is_over
        return pieces

    def tokens_of(self, row: int) -> list[int]:
        """Return the ids that a row has got so far."""
        return self._tokens[row]

    def to_end(self) -> list[Completion]:
        """Run it to its end. On Ctrl-C or an error it is closed, so that the model and its session go on."""
        try:
            while not self.is_over:
                self.step()
        except BaseException:
            self.close()
            raise
        return self.completions()

    def close(self) -> None:
        """End it here; a session gets its cache back."""
        self._core.close()
        self.is_over = True

    def completions(self) -> list[Completion]:
        """Return what each row has got so far."""
        made = []
        for row, texts in enumerate(self._texts):
            completion = Completion("".join(texts))
            completion.tokens = tuple(self._tokens[row])
            completion.finish_reason = self._reasons[row]
            completion.n_prompt_tokens = self._n_prompt_tokens[row]
            completion.n_reused = self._core.n_reused[row]
            completion.logprobs = None if self._logprobs is None else tuple(self._logprobs[row])
            made.append(completion)
        return made


class Stream:
    """An iterator of pieces of text; together they are the whole text, and no character is ever cut.

    It computes while it is iterated. ``completion`` is what has come so far; at the end it is what the call
    without ``stream=True`` would have returned. ``close()``, or leaving a ``with`` block, ends it early.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._at_end: Callable[[Completion], object] | None = None
        self._pieces: list[str] = []

    @property
    def completion(self) -> Completion:
        """The text so far, with its tokens."""
        return self._run.completions()[0]

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        try:
            while not self._pieces and not self._run.is_over:
                self._pieces = [text for _, text in self._run.step()]
        except BaseException:
            self._run.close()
            raise
        if self._run.is_over and self._at_end is not None:
            at_end, self._at_end = self._at_end, None
            at_end(self.completion)
        if self._pieces:
            return self._pieces.pop(0)
        raise StopIteration

    def close(self) -> None:
        """End it here. A second call has no effect."""
        self._pieces = []
        if not self._run.is_over:
            self._run.close()
            if self._at_end is not None:
                self._at_end(self.completion)

    def at_end(self, call: Callable[[Completion], object]) -> None:
        """Have ``call`` called with the text when the stream ends or is closed."""
        self._at_end = call

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "ended" if self._run.is_over else "running"
        return f"<overdrive.llm.Stream {state}, {len(self._run.tokens_of(0))} tokens>"


class BatchStream:
    """As `Stream` for several prompts: an iterator of pairs, the prompt's number and a piece of its text."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._pieces: list[tuple[int, str]] = []

    @property
    def completions(self) -> list[Completion]:
        """The texts so far, one for each prompt."""
        return self._run.completions()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, str]:
        try:
            while not self._pieces and not self._run.is_over:
                self._pieces = self._run.step()
        except BaseException:
            self._run.close()
            raise
        if self._pieces:
            return self._pieces.pop(0)
        raise StopIteration

    def close(self) -> None:
        """End it here. A second call has no effect."""
        self._run.close()
        self._pieces = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
