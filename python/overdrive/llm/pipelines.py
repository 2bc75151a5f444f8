"""``pipeline("text-generation", model=…)``: texts and chats in, dictionaries out, as Transformers has it."""

from __future__ import annotations

from overdrive.llm.auto import AutoModelForCausalLM, CausalLM, _refuse
from overdrive.llm.model import Model

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from typing import Any

# What Transformers' own pipeline generates with, where the caller says nothing.
_DEFAULTS: dict[str, Any] = {"max_new_tokens": 256, "do_sample": True, "temperature": 0.7}

_LOADING: dict[str, tuple[Any, ...]] = {
    "batch_size": (1,),
    "config": (),
    "device": ("cpu", -1),
    "device_map": ("auto", "cpu"),
    "dtype": ("auto",),
    "framework": ("pt",),
    "revision": ("main",),
    "tokenizer": (),
    "torch_dtype": ("auto",),
    "trust_remote_code": (True, False),
    "use_fast": (True,),
}

_CALLING: dict[str, tuple[Any, ...]] = {
    "clean_up_tokenization_spaces": (False,),
    "documents": (),
    "handle_long_generation": (),
    "padding": (False,),
    "prefix": ("",),
    "return_text": (True,),
    "return_type": (),
    "tokenizer_encode_kwargs": ({},),
    "tools": (),
    "truncation": (False,),
}


def pipeline(
    task: str | None = None,
    model: str | os.PathLike[str] | Model | CausalLM | None = None,
    *,
    model_kwargs: Mapping[str, Any] | None = None,
    **others: Any,
) -> TextGenerationPipeline:
    """Return a callable that continues texts and answers chats.

    ``task`` is ``"text-generation"``. ``model`` is what `load` takes, or a model. ``model_kwargs`` goes to
    `AutoModelForCausalLM.from_pretrained`; arguments of generation given here are defaults of each call.
    """
    if task is None and model is None:
        raise RuntimeError("pipeline() needs a task or a model")
    if task not in (None, "text-generation"):
        raise NotImplementedError(f"pipeline(): the task {task!r} is not supported, only 'text-generation'")
    _refuse("pipeline", {name: others.pop(name) for name in list(others) if name in _LOADING}, _LOADING)
    if isinstance(model, Model):
        model = CausalLM(model)
    elif not isinstance(model, CausalLM):
        model = AutoModelForCausalLM.from_pretrained(model, **(model_kwargs or {}))
    return TextGenerationPipeline(model, **others)


class TextGenerationPipeline:
    """Continues texts and answers chats; see `pipeline`."""

    task = "text-generation"

    def __init__(self, model: CausalLM, **options: Any) -> None:
        self.model = model
        self.tokenizer = model.tokenizer
        self._options = options

    def __call__(self, text_inputs: Any, **options: Any) -> Any:
        """Return a list of dictionaries with ``"generated_text"`` for a text, or for a chat.

        A list of texts, or of chats (lists of messages), gives a list of such lists, computed as one batch.
        ``return_full_text=False`` leaves the prompt out; ``return_tensors=True`` gives
        ``"generated_token_ids"`` instead. ``stop_sequence`` is a string or a list of them. The other options
        are those of `CausalLM.generate`; without any, 256 tokens are drawn with a temperature of 0.7.
        """
        options = {**self._options, **options}
        full = options.pop("return_full_text", None)
        tensors = options.pop("return_tensors", None)
        skip_special = options.pop("skip_special_tokens", True)
        add_special = options.pop("add_special_tokens", True)
        goes_on = options.pop("continue_final_message", None)
        if (stop := options.pop("stop_sequence", None)) is not None:
            options["stop_strings"] = stop
        _refuse("pipeline", {name: options.pop(name) for name in list(options) if name in _CALLING}, _CALLING)
        if full is not None and tensors:
            raise ValueError("return_full_text and return_tensors exclude each other")
        if options.get("generation_config") is None:
            if "max_length" in options:
                options.setdefault("max_new_tokens", None)
            options = {**_DEFAULTS, **options}
        inputs, is_one = _inputs(text_inputs)
        prompts = [self._tokens(text, add_special, goes_on) for text in inputs]
        if not prompts:
            return []
        made = self.model.generate(prompts, **options)
        n_copies = len(made) // len(prompts)
        results = []
        for number, (text, prompt) in enumerate(zip(inputs, prompts, strict=True)):
            rows = made[number * n_copies : (number + 1) * n_copies]
            if tensors:
                results.append([{"generated_token_ids": row} for row in rows])
                continue
            new = [self.tokenizer.decode(row[len(prompt) :], skip_special=skip_special) for row in rows]
            results.append(
                [{"generated_text": each if full is False else _whole(text, each, goes_on)} for each in new]
            )
        return results[0] if is_one else results

    def _tokens(self, text: Any, add_special: bool, goes_on: bool | None) -> list[int]:
        model = self.model.model
        if isinstance(text, str):
            # As theirs: special tokens that stand in a text are special.
            return model.tokenize(text, add_special=add_special, parse_special=True)
        if _continues(text, goes_on):
            raise NotImplementedError("pipeline(): continuing a message of the assistant is not supported")
        return model.apply_template(text)


def _continues(chat: Sequence[Mapping[str, Any]], goes_on: bool | None) -> bool:
    return bool(chat) and chat[-1].get("role") == "assistant" if goes_on is None else goes_on


def _whole(text: Any, new: str, goes_on: bool | None) -> Any:
    return text + new if isinstance(text, str) else [*text, {"role": "assistant", "content": new}]


def _inputs(x: Any) -> tuple[list[Any], bool]:
    """Return the texts or chats, and whether there was one instead of a list."""
    if isinstance(x, str):
        return [x], True
    items = list(x)
    if items and all(hasattr(item, "keys") for item in items):
        return [items], True
    for item in items:
        if not isinstance(item, (str, list, tuple)):
            raise TypeError(f"a text-generation pipeline takes texts and chats, not {type(item).__name__}")
    return items, False
