#!/usr/bin/env python3
"""Record the ids that the reference tokenizers give, for tests/llm/test_tokenizer.py to compare with.

usage: record_tokens.py [--compare N] MODEL.gguf      (needs the package tokenizers 0.23)

The references are built by the package ``tokenizers`` in the structures that the models of each kind were
published with. Small vocabularies are trained here, on text of this file; MODEL is the file of SmolLM2, whose
vocabulary is not recorded. With ``--compare N``, nothing is written: N random texts for each kind go through
both tokenizers, which needs Overdrive too.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import struct
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).parent.parent
TARGET = ROOT / "tests/llm/recorded/tokens.json"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
FAMILIES = ("gpt-2", "smollm", "llama-bpe", "tekken")


def words(family: str) -> object:
    """Return the pre-tokenizer of a family."""
    byte_level = pre_tokenizers.ByteLevel
    if family == "gpt-2":
        return byte_level(add_prefix_space=False)
    if family == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, byte_level(add_prefix_space=False)])
    split = pre_tokenizers.Split(Regex({"llama-bpe": LLAMA3, "tekken": TEKKEN}[family]), "isolated")
    return pre_tokenizers.Sequence([split, byte_level(add_prefix_space=False, use_regex=False)])


def byte_level(metadata: dict) -> Tokenizer:
    """Return the reference for a file of the kind gpt2."""
    family = metadata["tokenizer.ggml.pre"]
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    whole_words = family in ("llama-bpe", "tekken")
    made = Tokenizer(
        models.BPE({token: id for id, token in enumerate(tokens)}, merges, ignore_merges=whole_words)
    )
    made.pre_tokenizer = words(family)
    made.decoder = decoders.ByteLevel()
    return made


def sentence_piece(metadata: dict) -> Tokenizer:
    """Return the reference for a file of the kind llama; its merges come from the scores."""
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    ids = {token: id for id, token in enumerate(tokens)}
    scores = dict(zip(tokens, metadata["tokenizer.ggml.scores"], strict=True))
    pieces = {token for token, kind in zip(tokens, kinds, strict=True) if kind in (NORMAL, USER_DEFINED)}
    merges = []
    for piece in sorted(pieces, key=ids.__getitem__):
        cuts = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        cuts = [cut for cut in cuts if cut[0] in pieces and cut[1] in pieces]
        merges += [(*cut, scores[piece]) for cut in sorted(cuts, key=lambda cut: (ids[cut[0]], ids[cut[1]]))]
    merges.sort(key=lambda merge: (merge[2], len(merge[0]), len(merge[1])), reverse=True)
    pairs = [(left, right) for left, right, _ in merges]
    made = Tokenizer(models.BPE(ids, pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return made


def reference(metadata: dict) -> Tokenizer:
    """Return the reference tokenizer of a file's metadata."""
    made = (byte_level if metadata["tokenizer.ggml.model"] == "gpt2" else sentence_piece)(metadata)
    for token, kind in zip(
        metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True
    ):
        if kind in (UNKNOWN, CONTROL, USER_DEFINED):
            made.add_tokens([AddedToken(token, special=kind != USER_DEFINED, normalized=False)])
    return made


def train_byte_level(family: str) -> dict:
    """Return metadata with a small vocabulary of a family."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = words(family)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=560, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([pathlib.Path(__file__).read_text() + " ".join(WORDS) * 3], trainer)
    model = json.loads(made.to_str())["model"]
    text = [token for token, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    added = [
        ("<|begin|>", CONTROL),
        ("<|end|>", CONTROL),
        ("<|end|> now", CONTROL),
        ("<think>", USER_DEFINED),
    ]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": family,
        "tokenizer.ggml.tokens": text + [token for token, _ in added],
        "tokenizer.ggml.token_type": [NORMAL] * len(text) + [kind for _, kind in added],
        "tokenizer.ggml.merges": [
            merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]
        ],
        "tokenizer.ggml.bos_token_id": len(text),
        "tokenizer.ggml.eos_token_id": len(text) + 1,
        "tokenizer.ggml.add_bos_token": False,
    }


def train_sentence_piece() -> dict:
    """Return metadata with a small vocabulary of pieces, the first to be merged with the highest score."""
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.Replace(" ", "\u2581")
    made.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, limit_alphabet=80)
    made.train_from_iterator([" ".join(pathlib.Path(__file__).read_text().split())], trainer)
    text = [token for token, _ in sorted(made.get_vocab().items(), key=lambda item: item[1])]
    first = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    first += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    pieces = sorted(token for token in text if len(token) == 1)
    longer = [token for token in text if len(token) > 1]
    last = [("\u2581\u2581", NORMAL), ("<mask>", USER_DEFINED)]
    tokens = first + [(token, NORMAL) for token in longer + pieces if token != "\u2581\u2581"] + last
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [token for token, _ in tokens],
        "tokenizer.ggml.token_type": [kind for _, kind in tokens],
        "tokenizer.ggml.scores": [0.0] * len(first) + [-float(at) for at in range(len(tokens) - len(first))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
    }


WORDS = [
    *[
        "the",
        "of",
        "and",
        "Hello",
        "World",
        "it's",
        "IT'S",
        "don't",
        "we'll",
        "I'd",
        "they've",
        "naïve",
        "café",
        "Straße",
    ],
    *["日本語", "テスト", "한국어", "привет"],
    *["שלום", "العربية", "हिन्दी"],
    *["ไทย", "🐍", "👩\u200d👧", "é", "ﬁ", "ſ", "Ǆ", "ʰ", "½"],  # noqa: RUF001
    *[
        "²",
        "٣",
        "Ⅷ",
        "def",
        "return",
        "self.x==1;",
        "http://a.b/c?d=e&f",
        "12",
        "345",
        "67890",
        "1,000.50",
        "0x1F",
    ],
    'print("hi")',
]
SPACES = (
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    " \n",
    "\n ",
    "\t",
    "\r\n",
    "\u00a0",
    "\u3000",
    "\u2028",
    "",
    "",
    "",
    " ",
)


def character(source: random.Random) -> str:
    """Return any character but a surrogate, the common planes more often."""
    kind = source.random()
    if kind < 0.3:
        return chr(source.randrange(32, 127))
    if kind < 0.5:
        return source.choice("\t\n\r \u00a0\u0085\u200b\u2009")
    if kind < 0.7:
        return chr(source.randrange(0xA0, 0x600))
    if kind < 0.9:
        return chr(source.choice([source.randrange(0xD800), source.randrange(0xE000, 0x10000)]))
    return chr(source.randrange(0x10000, 0x110000))


def corpus(seed: int, n_texts: int, added: list[str]) -> list[str]:
    """Return texts that are hard to cut: the first are known trouble, the others random."""
    texts = ["", " ", "a", " a", "a  b", "a\nb", "\U0001f40d", "1234567", "it's", "\t\t x", "x  12", "\n\n 1"]
    for token in added[:3]:
        texts += [token, token + "a", token + " a", f"a{token}b", f"a {token} b", token + token]
    source = random.Random(seed)
    while len(texts) < n_texts:
        share = source.choice([0.3, 0.8])
        text = ""
        for _ in range(source.randrange(1, 16)):
            kind = source.random()
            if kind < 0.1:
                text += source.choice(added)
            else:
                text += character(source) if kind < share else source.choice(WORDS)
            text += source.choice(SPACES)
        texts.append(text)
    return texts


def read_metadata(path: pathlib.Path) -> dict:
    """Return the metadata of a GGUF file."""
    numbers = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    with path.open("rb") as file:

        def take(letters: str) -> tuple:
            return struct.unpack("<" + letters, file.read(struct.calcsize("<" + letters)))

        def value(kind: int) -> object:
            if kind == 8:
                return file.read(take("Q")[0]).decode()
            if kind == 9:
                inner, count = take("IQ")
                return [value(inner) for _ in range(count)]
            return take(numbers[kind])[0]

        file.read(16)
        return {str(value(8)): value(take("I")[0]) for _ in range(take("Q")[0])}


def added_tokens(metadata: dict) -> list[str]:
    """Return the tokens that are cut out of text."""
    pairs = zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True)
    return [token for token, kind in pairs if kind in (UNKNOWN, CONTROL, USER_DEFINED)]


def compare(kinds: dict[str, dict], n_texts: int) -> int:
    """Put random texts through both tokenizers; return how many differ."""
    sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/llm")]
    import files
    from overdrive import llm

    n_different = 0
    for name, metadata in kinds.items():
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "vocabulary.gguf"
            path.write_bytes(files.gguf(files.tokenizer(metadata)))
            ours = llm.load_tokenizer(path)
        theirs = reference(metadata)
        texts = corpus(random.randrange(1 << 30), n_texts, added_tokens(metadata))
        bad = 0
        for text in texts:
            ids = theirs.encode(text).ids
            same = ours.encode(text) == ids
            if "\ufffd" not in theirs.decode(ids, skip_special_tokens=False):
                same = same and ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)
            bad += not same
            if not same and bad < 4:
                print(f"{name}: {text!r}\n  {ours.encode(text)}\n  {ids}")
        print(f"{name}: {len(texts)} texts, {bad} differ", flush=True)
        n_different += bad
    return n_different


def main() -> int:
    """Record, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--compare", type=int, metavar="N")
    options = parser.parse_args()
    kinds = {family: train_byte_level(family) for family in FAMILIES}
    kinds["pieces"] = train_sentence_piece()
    kinds["SmolLM2"] = read_metadata(options.model)
    if options.compare:
        return int(compare(kinds, options.compare) > 0)
    recorded = {}
    for name, metadata in kinds.items():
        theirs = reference(metadata)
        texts = corpus(7, 150, added_tokens(metadata))
        recorded[name] = {
            "metadata": metadata if name != "SmolLM2" else None,
            "texts": texts,
            "ids": [theirs.encode(text).ids for text in texts],
        }
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps(recorded, separators=(",", ":")) + "\n")
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
