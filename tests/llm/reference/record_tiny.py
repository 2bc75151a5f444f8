"""Records Transformers' logits of the tiny models in tiny.npz.

Usage: python tests/llm/reference/record_tiny.py, in an environment with scripts/requirements/record_llm.txt. The logits are those of
the model in float32 with plain attention, at the positions that `POSITIONS` names.
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import tiny  # noqa: E402

POSITIONS = [0, 1, 5, 8, 9, 15, 16, 23, 24, 31, 32, 40, 47]


def model(variant):
    """The model in Transformers."""
    settings = {
        "vocab_size": len(tiny.VOCABULARY),
        "hidden_size": variant.width,
        "intermediate_size": variant.inner,
        "num_hidden_layers": variant.n_layers,
        "num_attention_heads": variant.n_heads,
        "num_key_value_heads": variant.n_kv_heads,
        "head_dim": variant.head_dim,
        "rms_norm_eps": variant.epsilon,
        "max_position_embeddings": variant.n_positions,
        "tie_word_embeddings": variant.tied,
        "rope_parameters": {**variant.scaling, "rope_theta": variant.base},
        "attn_implementation": "eager",
    }
    if variant.window:
        config = transformers.MistralConfig(**settings, sliding_window=variant.window)
        made = transformers.MistralForCausalLM(config)
    else:
        made = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))
    state = {name: torch.from_numpy(values) for name, values in tiny.weights(variant).items()}
    missing, unexpected = made.load_state_dict(state, strict=False)
    if unexpected or [name for name in missing if not (variant.tied and name == "lm_head.weight")]:
        sys.exit(f"{variant.name}: missing {missing}, unexpected {unexpected}")
    made.tie_weights()
    return made.float().eval()


def main():
    tokens, found = tiny.tokens(), {}
    with torch.no_grad():
        for variant in tiny.VARIANTS.values():
            logits = model(variant)(torch.tensor([tokens])).logits[0].numpy()
            found[variant.name] = logits[POSITIONS].astype(np.float32)
            print(f"{variant.name}: logits of {logits.shape}, spread {logits.std():.2f}")
    out = HERE / "tiny.npz"
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    np.savez_compressed(
        out, positions=np.array(POSITIONS), tokens=np.array(tokens), versions=np.array(versions), **found
    )
    print(f"wrote {out.name}, {out.stat().st_size} bytes, by {versions}")


if __name__ == "__main__":
    main()
