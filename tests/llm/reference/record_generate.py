"""Records what Transformers' `generate` gives for the tiny models, in generate.json.

Usage: python tests/llm/reference/record_generate.py, in an environment with torch and transformers. Each case has the name of
a model, prompts with their mask, options, and the ids that came out.
"""

from __future__ import annotations

import json
import pathlib
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import record_tiny  # noqa: E402
import tiny  # noqa: E402

LONG = tiny.tokens()[:12]
ALONE = [LONG]
BATCH = [[0] * 5 + LONG[:7], LONG]
ENDS = [5, 9, 77, 130, 200, 44]
OPTIONS = [
    (ALONE, {}),
    (ALONE, {"max_new_tokens": 40}),
    (ALONE, {"max_length": 30}),
    (ALONE, {"max_new_tokens": 30, "repetition_penalty": 1.3}),
    (BATCH, {"max_new_tokens": 20}),
    (BATCH, {"max_new_tokens": 60, "eos_token_id": ENDS, "pad_token_id": 3}),
    (BATCH, {"max_new_tokens": 10, "do_sample": True, "top_k": 1}),
]


def main():
    cases = []
    for name in ("untied", "tied", "llama3"):
        model = record_tiny.model(tiny.VARIANTS[name])
        model.generation_config.eos_token_id = 2
        for prompts, options in OPTIONS:
            options = {"pad_token_id": 0, **options}
            ids = torch.tensor(prompts)
            mask = (ids != 0).long()
            made = model.generate(ids, attention_mask=mask, **options)
            cases.append(
                {
                    "model": name,
                    "input_ids": prompts,
                    "attention_mask": mask.tolist(),
                    "options": options,
                    "generated": made.tolist(),
                }
            )
    (HERE / "generate.json").write_text("\n".join(["[", ",\n".join(map(json.dumps, cases)), "]\n"]))


if __name__ == "__main__":
    main()
