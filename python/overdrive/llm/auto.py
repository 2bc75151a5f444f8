"""Models behind the calls of Transformers: ``AutoModelForCausalLM.from_pretrained(path).generate(ids)``.

Names, defaults and results are those of Transformers 5; what is not built raises by its name and is never
ignored. Nothing of Transformers is imported.
"""

from __future__ import annotations

import os
from types import SimpleNamespace

from overdrive.llm.containers import LIST, TORCH, Batch, unpadded
from overdrive.llm.model import Model, _index, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_NEW_TOKENS = 20
"""What `CausalLM.generate` makes when neither ``max_new_tokens`` nor ``max_length`` is given."""

# Arguments that Transformers has and we do not, with the values that mean the same as not giving them. None
# always does.
_ONLY: dict[str, tuple[Any, ...]] = {
    "assistant_model": (),
    "bad_words_ids": (),
    "begin_suppress_tokens": (),
    "bos_token_id": (),
    "cache_implementation": (),
    "constraints": (),
    "custom_generate": (),
    "disable_compile": (True, False),
    "diversity_penalty": (0.0,),
    "dola_layers": (),
    "early_stopping": (False,),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "exponential_decay_length_penalty": (),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "force_words_ids": (),
    "guidance_scale": (1.0,),
    "inputs_embeds": (),
    "length_penalty": (1.0,),
    "logits_processor": ([], ()),
    "low_memory": (False,),
    "max_time": (),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "negative_prompt_attention_mask": (),
    "negative_prompt_ids": (),
    "no_repeat_ngram_size": (0,),
    "num_beam_groups": (1,),
    "num_beams": (1,),
    "output_attentions": (False,),
    "output_hidden_states": (False,),
    "output_logits": (False,),
    "output_scores": (False,),
    "past_key_values": (),
    "penalty_alpha": (0.0,),
    "position_ids": (),
    "prefill_chunk_size": (),
    "prefix_allowed_tokens_fn": (),
    "prompt_lookup_num_tokens": (),
    "remove_invalid_values": (False,),
    "renormalize_logits": (False,),
    "return_dict_in_generate": (False,),
    "sequence_bias": (),
    "stopping_criteria": ([], ()),
    "suppress_tokens": (),
    "synced_gpus": (False,),
    "token_healing": (False,),
    "top_h": (),
    "typical_p": (1.0,),
    "use_cache": (True,),
    "use_model_defaults": (True, False),
    "watermarking_config": (),
}

# The same for loading: what a GGUF file decides by itself, or what only makes sense with downloads.
_LOADING: dict[str, tuple[Any, ...]] = {
    "attn_implementation": ("eager", "sdpa"),
    "cache_dir": (),
    "config": (),
    "device_map": ("auto", "cpu", {"": "cpu"}),
    "dtype": ("auto",),
    "force_download": (False,),
    "ignore_mismatched_sizes": (False,),
    "local_files_only": (True, False),
    "low_cpu_mem_usage": (True, False),
    "quantization_config": (),
    "revision": ("main",),
    "subfolder": ("",),
    "token": (True, False),
    "torch_dtype": ("auto",),
    "trust_remote_code": (True, False),
    "use_safetensors": (False,),
    "weights_only": (True, False),
}


class AutoModelForCausalLM:
    """Loads a model with the calls of Transformers. It has no instances, as theirs."""

    def __init__(self) -> None:
        raise OSError("use AutoModelForCausalLM.from_pretrained(path)")

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike[str] | None = None,
        *,
        gguf_file: str | None = None,
        n_ctx: int | None = None,
        kv: str = "f16",
        **others: Any,
    ) -> CausalLM:
        """Load a GGUF file: ``pretrained_model_name_or_path`` is what `overdrive.llm.load` takes.

        ``gguf_file`` names the file in a directory or repository that has several. ``n_ctx`` and ``kv`` are
        those of `load`. Other arguments of Transformers are taken where they change nothing, and raise
        NotImplementedError otherwise.
        """
        _refuse("from_pretrained", others, _LOADING)
        path = pretrained_model_name_or_path
        if gguf_file is not None:
            if path is None:
                raise ValueError("gguf_file needs pretrained_model_name_or_path, where the file is")
            path = os.path.join(os.fspath(path), gguf_file)
        return CausalLM(load(path, n_ctx=n_ctx, kv=kv))


class CausalLM:
    """A model with the calls of Transformers' models; ``model`` is ours."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tokenizer = model.tokenizer
        self.device = "cpu"
        self.dtype = "float32"
        facts = model.config
        ends = sorted(model.tokenizer.end_ids)
        self.config = SimpleNamespace(
            model_type=facts["architecture"],
            vocab_size=facts["n_vocabulary"],
            hidden_size=facts["n_embed"],
            intermediate_size=facts["n_ff"],
            num_hidden_layers=facts["n_layers"],
            num_attention_heads=facts["n_heads"],
            num_key_value_heads=facts["n_kv_heads"],
            head_dim=facts["head_dim"],
            max_position_embeddings=model.n_ctx,
            is_encoder_decoder=False,
            bos_token_id=model.tokenizer.bos_id,
            eos_token_id=ends[0] if len(ends) == 1 else (ends or None),
            pad_token_id=model.tokenizer.pad_id,
        )

    def generate(
        self,
        inputs: Any = None,
        generation_config: Any = None,
        *,
        input_ids: Any = None,
        attention_mask: Any = None,
        max_new_tokens: int | None = None,
        max_length: int | None = None,
        do_sample: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        eos_token_id: int | list[int] | None = None,
        pad_token_id: int | None = None,
        num_return_sequences: int | None = None,
        stop_strings: str | list[str] | None = None,
        streamer: Any = None,
        seed: int | None = None,
        **others: Any,
    ) -> Any:
        """Return the ids of prompts and what follows them, in the container that they came in.

        ``input_ids``, (batch, tokens), is a list of lists, a NumPy array or a PyTorch tensor; padding is on
        the left, with ``attention_mask`` 0 there. Rows that end early are padded on the right with
        ``pad_token_id`` (lists are not). Defaults are those of Transformers: greedy unless ``do_sample``,
        then ``temperature=1``, ``top_k=50``, ``top_p=1``; 20 new tokens.

        ``seed`` is ours: the same seed gives the same ids. Without it one is drawn from PyTorch's, NumPy's
        or Python's generator, by the kind of ``input_ids``, so that ``torch.manual_seed`` and the like work.
        ``generation_config`` is an object with ``to_diff_dict``, as Transformers' own; arguments come first.
        """
        given = {
            "max_new_tokens": max_new_tokens,
            "max_length": max_length,
            "do_sample": do_sample,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "min_p": min_p,
            "repetition_penalty": repetition_penalty,
            "eos_token_id": eos_token_id,
            "pad_token_id": pad_token_id,
            "num_return_sequences": num_return_sequences,
            "stop_strings": stop_strings,
        }
        # Transformers wants the tokenizer for stop strings; ours is the model's.
        others.pop("tokenizer", None)
        if generation_config is not None:
            for name, value in generation_config.to_diff_dict().items():
                if name in given:
                    given[name] = value if given[name] is None else given[name]
                elif name not in ("transformers_version", "_from_model_config"):
                    others.setdefault(name, value)
        _refuse("generate", others, _ONLY)
        if inputs is not None and input_ids is not None:
            raise ValueError("inputs and input_ids are the same; give one of them")
        input_ids = inputs if input_ids is None else input_ids
        if input_ids is None:
            raise ValueError("generate() needs input_ids")
        return self._generate(Batch.of(input_ids, "input_ids"), attention_mask, streamer, seed, given)

    def _generate(
        self, batch: Batch, mask: Any, streamer: Any, seed: int | None, given: dict[str, Any]
    ) -> Any:
        def option(name: str, default: Any) -> Any:
            return default if given[name] is None else given[name]

        ends = given["eos_token_id"]
        if ends is None:
            ends = sorted(self.model.tokenizer.end_ids)
        ends = [_index(end) for end in ([ends] if hasattr(ends, "__index__") else ends)]
        padding = option("pad_token_id", self.config.pad_token_id)
        # An end that also pads may be part of the text, so that it tells nothing.
        prompts = unpadded(batch, mask, None if padding in ends else padding)
        if any(not prompt for prompt in prompts) or not prompts:
            raise ValueError("input_ids has a row without tokens")
        prompts = [[_index(token) for token in prompt] for prompt in prompts]
        longest = max(map(len, batch.rows))
        n_new = given["max_new_tokens"]
        if n_new is None and given["max_length"] is not None:
            n_new = given["max_length"] - longest
            if n_new <= 0:
                raise ValueError(
                    f"max_length={given['max_length']} leaves nothing to generate behind {longest} tokens; "
                    "max_new_tokens does not count the prompt"
                )
        n_copies = option("num_return_sequences", 1)
        samples = option("do_sample", False)
        if n_copies < 1:
            raise ValueError(f"num_return_sequences must be at least 1, not {n_copies}")
        if n_copies > 1 and not samples:
            raise ValueError(
                f"num_return_sequences={n_copies} needs do_sample=True: all greedy texts are the same"
            )
        rows = [prompt for prompt in prompts for _ in range(n_copies)]
        if streamer is not None and len(rows) > 1:
            raise ValueError("a streamer takes one sequence only")
        first = (batch.seed() if seed is None else seed) if samples else 0
        stop = option("stop_strings", [])
        run = self.model._run(
            rows,
            [(first + number) % (1 << 64) for number in range(len(rows))],
            max_tokens=DEFAULT_NEW_TOKENS if n_new is None else n_new,
            temperature=option("temperature", 1.0) if samples else 0.0,
            top_k=option("top_k", 50) if samples else 0,
            top_p=option("top_p", 1.0) if samples else 1.0,
            min_p=option("min_p", 0.0) if samples else 0.0,
            repetition_penalty=option("repetition_penalty", 1.0),
            stop=[stop] if isinstance(stop, str) else stop,
            ends=ends,
        )
        if streamer is not None:
            _stream(run, streamer, batch)
        run.to_end()
        padded = [row for row in batch.rows for _ in range(n_copies)]
        made = [row + run.tokens_of(number) for number, row in enumerate(padded)]
        if padding is None:
            padding = ends[0] if ends else 0
        return batch.back(made, padding)

    def __call__(self, input_ids: Any, attention_mask: Any = None, **others: Any) -> SimpleNamespace:
        """Return an object whose ``logits``, (batch, tokens, vocabulary), say what follows each token.

        They come in the kind of container of ``input_ids``. Positions of padding are 0.
        """
        _refuse("the model", others, {"use_cache": (True, False), "return_dict": (True,)})
        import numpy

        batch = Batch.of(input_ids, "input_ids")
        prompts = unpadded(batch, attention_mask, None)
        if any(not prompt for prompt in prompts) or not prompts:
            raise ValueError("input_ids has a row without tokens")
        rows = self.model._forward(prompts, True)
        longest = max(map(len, batch.rows))
        if all(len(prompt) == longest for prompt in prompts):
            whole = rows.reshape(len(prompts), longest, -1)
        else:
            whole = numpy.zeros((len(prompts), longest, rows.shape[1]), numpy.float32)
            start = 0
            for row, (prompt, padded) in enumerate(zip(prompts, batch.rows, strict=True)):
                end = len(padded)
                whole[row, end - len(prompt) : end] = rows[start : start + len(prompt)]
                start += len(prompt)
        return SimpleNamespace(logits=batch.floats(whole[0] if batch.is_flat else whole))

    def eval(self) -> CausalLM:
        """Return the model: it is never trained."""
        return self

    def to(self, device: Any) -> CausalLM:
        """Return the model; ValueError for any other device than the processor."""
        if str(device) != "cpu":
            raise ValueError(f"models run on the processor, not on {device}")
        return self

    def __repr__(self) -> str:
        return f"<overdrive.llm.CausalLM of {self.model!r}>"


def _stream(run: Any, streamer: Any, batch: Batch) -> None:
    """Hand the prompt, then each token, to an object with Transformers' ``put`` and ``end``."""
    row = batch.rows[0]
    like = batch._replace(is_flat=False)
    streamer.put(batch.like if not batch.is_flat or batch.kind == LIST else like.back([row], 0))
    try:
        n_seen = 0
        while not run.is_over:
            run.step()
            for token in run.tokens_of(0)[n_seen:]:
                streamer.put(like._replace(is_flat=batch.kind == TORCH or like.is_flat).back([[token]], 0))
                n_seen += 1
        streamer.end()
    except BaseException:
        run.close()
        raise


def _refuse(function: str, given: dict[str, Any], known: dict[str, tuple[Any, ...]]) -> None:
    """Raise for each argument that would be ignored."""
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
        if value is not None and not any(value is same or _equal(value, same) for same in known[name]):
            raise NotImplementedError(f"{function}(): {name}={value!r} is not supported")


def _equal(a: Any, b: Any) -> bool:
    return type(a) in (int, float, str, bool, list, tuple, dict) and a == b
