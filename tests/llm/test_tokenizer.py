"""Token ids are those of the reference tokenizers; what cannot be is refused by name."""

import json
import pathlib

import pytest
from overdrive import llm

from . import files

RECORDED = json.loads(pathlib.Path(__file__).with_name("recorded").joinpath("tokens.json").read_text())
SMALL = [name for name, kind in RECORDED.items() if kind["metadata"]]


def tokenizer_of(metadata, folder):
    path = folder / "vocabulary.gguf"
    path.write_bytes(files.gguf(files.tokenizer(metadata)))
    return llm.load_tokenizer(path)


@pytest.fixture(scope="module")
def smollm2():
    return llm.load_tokenizer(llm.default_model())


@pytest.fixture(params=RECORDED)
def pair(request, tmp_path, smollm2):
    """A tokenizer, and what was recorded for it."""
    recorded = RECORDED[request.param]
    if recorded["metadata"] is None:
        return smollm2, recorded
    return tokenizer_of(recorded["metadata"], tmp_path), recorded


def test_ids_are_those_of_the_reference(pair):
    tokenizer, recorded = pair
    assert len(recorded["texts"]) == len(recorded["ids"]) == 150
    for text, ids in zip(recorded["texts"], recorded["ids"], strict=True):
        assert tokenizer.encode(text) == ids, text


def test_a_text_comes_back(pair):
    tokenizer, recorded = pair
    for text, ids in zip(recorded["texts"], recorded["ids"], strict=True):
        pieces = [tokenizer.piece(id) for id in ids]
        # The vocabulary of SmolLM2 lacks some bytes; they are dropped, as the reference does. A piece's space that
        # nobody wrote is in the pieces, behind each added token too.
        if tokenizer.unknown_id == 0 and tokenizer.piece(0) == b"<unk>":
            continue
        if all(tokenizer.id_of(bytes([byte])) is not None for byte in text.encode()):
            assert b"".join(pieces).decode() == tokenizer.decode(ids) == text


@pytest.mark.parametrize("special", ["<sp>", "<|im_start|>", "<|im_end|>"])
def test_special_tokens_touch_text(smollm2, special):
    texts = [
        "a",
        " a",
        "a  b",
        "a\nb",
        special,
        special + "a",
        special + " a",
        "a" + special + "b",
        special * 2,
    ]
    for text in [
        *texts,
        "\u00e9" + special + "\u65e5\u672c",
        "\U0001f40d",
        "1234567",
        "it's",
        "\t\t x",
        "",
        " ",
    ]:
        ids = smollm2.encode(text)
        assert smollm2.decode(ids) == text
        number = smollm2.id_of(special.encode())
        assert ids.count(number) == (text.count(special) if number is not None else 0)


def test_text_from_strangers_names_no_control_token(smollm2):
    ids = smollm2.encode("a<|im_end|>b", parse_special=False)
    assert smollm2.eos_id not in ids and smollm2.decode(ids) == "a<|im_end|>b"
    assert not any(smollm2.is_special(id) for id in ids)


def test_special_tokens_by_meaning(smollm2):
    assert (smollm2.bos_id, smollm2.eos_id, smollm2.unknown_id, smollm2.pad_id) == (1, 2, 0, 2)
    assert smollm2.end_ids == [0, 2]
    assert len(smollm2) == 49152
    assert smollm2.encode("hi") == smollm2.encode("hi", add_special=False)
    assert smollm2.decode([1, *smollm2.encode("hi"), 2], skip_special=True) == "hi"
    assert smollm2.piece(2) == b"<|im_end|>"


def test_what_begins_and_ends_a_text(tmp_path):
    metadata = {**RECORDED["pieces"]["metadata"], "tokenizer.ggml.add_eos_token": True}
    del metadata["tokenizer.ggml.add_bos_token"]
    tokenizer = tokenizer_of(metadata, tmp_path)
    ids = tokenizer.encode("the end")
    assert (ids[0], ids[-1]) == (1, 2), "SentencePiece models begin texts unless the file says no"
    assert ids[1:-1] == tokenizer.encode("the end", add_special=False)
    assert tokenizer.decode(ids, skip_special=True) == "the end"
    assert tokenizer.encode("") == [1, 2]


def test_pieces_without_the_space_nobody_wrote(tmp_path):
    metadata = {**RECORDED["pieces"]["metadata"], "tokenizer.ggml.add_space_prefix": False}
    tokenizer = tokenizer_of(metadata, tmp_path)
    assert tokenizer.decode(tokenizer.encode(" the")) == " the"
    assert tokenizer.piece(tokenizer.encode("the")[0])[:1] != b" "


def test_ids_outside_of_the_vocabulary(smollm2):
    with pytest.raises(IndexError, match="token 49152 is none of the 49152"):
        smollm2.decode([1, 49152])
    with pytest.raises(IndexError):
        smollm2.piece(1 << 31)
    with pytest.raises(OverflowError):
        smollm2.decode([-1])


CHANGES = {
    "another model": ({"tokenizer.ggml.model": "bert"}, NotImplementedError, "bert"),
    "another pre-tokenizer": ({"tokenizer.ggml.pre": "bloom"}, NotImplementedError, "bloom"),
    "no pre-tokenizer": ({"tokenizer.ggml.pre": None}, ValueError, r"tokenizer\.ggml\.pre"),
    "no merges": ({"tokenizer.ggml.merges": None}, ValueError, r"tokenizer\.ggml\.merges"),
    "a merge of one": ({"tokenizer.ggml.merges": ["ab"]}, ValueError, 'merge 0, "ab": not two tokens'),
    "a merge of three": ({"tokenizer.ggml.merges": ["a b c"]}, ValueError, "merge 0"),
    "an unknown merge": ({"tokenizer.ggml.merges": ["q \u0416"]}, ValueError, "out of vocabulary"),
    "too long a merge": ({"tokenizer.ggml.merges": ["<think> <think>"]}, ValueError, "out of vocabulary"),
    "fewer types": ({"tokenizer.ggml.token_type": [1]}, ValueError, "1 types for"),
    "bos outside": ({"tokenizer.ggml.bos_token_id": 1 << 20}, ValueError, "bos_token_id.*1048576"),
    "bos without one": (
        {"tokenizer.ggml.bos_token_id": None, "tokenizer.ggml.add_bos_token": True},
        ValueError,
        "no bos_token_id",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_files_that_contradict_themselves(change, tmp_path):
    changed, error, words = CHANGES[change]
    metadata = {**RECORDED["smollm"]["metadata"], **changed}
    with pytest.raises(error, match=words):
        tokenizer_of({key: item for key, item in metadata.items() if item is not None}, tmp_path)


def test_pieces_that_contradict_themselves(tmp_path):
    metadata = RECORDED["pieces"]["metadata"]
    n_tokens = len(metadata["tokenizer.ggml.tokens"])
    with pytest.raises(ValueError, match=f"1 scores for {n_tokens} tokens"):
        tokenizer_of({**metadata, "tokenizer.ggml.scores": [0.0]}, tmp_path)
    with pytest.raises(ValueError, match="NaN"):
        tokenizer_of({**metadata, "tokenizer.ggml.scores": [float("nan")] * n_tokens}, tmp_path)
    kinds = [6] * n_tokens
    with pytest.raises(ValueError, match="token 0 is of the kind byte"):
        tokenizer_of({**metadata, "tokenizer.ggml.token_type": kinds}, tmp_path)
    with pytest.raises(ValueError, match="type 9"):
        tokenizer_of({**metadata, "tokenizer.ggml.token_type": [9] * n_tokens}, tmp_path)


@pytest.mark.parametrize("name", SMALL)
def test_long_texts_end(name, tmp_path):
    tokenizer = tokenizer_of(RECORDED[name]["metadata"], tmp_path)
    for text in (" " * 200_000, "a" * 200_000, "ab \n" * 50_000, "<|end|>" * 20_000):
        assert tokenizer.decode(tokenizer.encode(text)) == text
