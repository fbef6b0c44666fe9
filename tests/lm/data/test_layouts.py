"""Folders for other trainers, read as those trainers read them; the readers here share no code with the writers."""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from lm.data.layouts import LAYOUTS
from lm.data.sharding import ShardConfig, write_shards
from tests.lm import tiny
from tokenizer import Batch
from tokenizer.errors import UserError


class Large:
    """A tokenizer that says that its vocabulary is larger than it is."""

    def __init__(self, tokenizer):
        self._tokenizer, self.vocab_size = tokenizer, 70_000

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)


def megatron(folder):
    """Sequences of `IndexedDataset` (megatron/core/datasets/indexed_dataset.py)."""
    index = (folder / "tokens.idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, n_sequences, n_documents = struct.unpack_from("<QBQQ", index, 9)
    assert (version, n_documents) == (1, n_sequences + 1)
    lengths = np.frombuffer(index, np.int32, n_sequences, 34)
    pointers = np.frombuffer(index, np.int64, n_sequences, 34 + 4 * n_sequences)
    documents = np.frombuffer(index, np.int64, n_documents, 34 + 12 * n_sequences)
    assert len(index) == 34 + 12 * n_sequences + 8 * n_documents
    assert documents.tolist() == list(range(n_documents))
    data, dtype = (folder / "tokens.bin").read_bytes(), {8: np.uint16, 4: np.int32}[code]
    assert len(data) == lengths.sum() * dtype().itemsize
    return [np.frombuffer(data, dtype, n, at).tolist() for n, at in zip(lengths, pointers, strict=True)]


def cut(tokens, starts):
    return [part.tolist() for part in np.split(tokens, starts[1:])]


def numbered(folder, magic, version, dtype):
    """Documents of files with a header of 256 int32, which begin with the token that begins the first one."""
    documents = []
    for path in sorted(folder.glob("*.bin")):
        header = np.fromfile(path, np.int32, 256)
        tokens = np.fromfile(path, dtype, offset=1024)
        assert header[:3].tolist() == [magic, version, len(tokens)]
        assert not header[4:].any()
        starts = np.flatnonzero(tokens == tokens[0])
        item_size = header[3]
        if magic == 278895051:
            assert item_size == dtype().itemsize
            assert np.fromfile(path.with_suffix(".bos.idx"), np.int32).tolist() == starts.tolist()
        else:
            assert item_size == 0
        documents += cut(tokens, starts)
    return documents


def olmo(folder, dtype):
    documents = []
    for path in sorted(folder.glob("*.npy")):
        tokens = np.memmap(path, dtype, "r")
        with gzip.open(path.with_suffix("").with_suffix(".csv.gz"), "rt") as file:
            spans = [tuple(map(int, line.split(","))) for line in file]
        # What OLMo-core computes without the list: a document ends at each end of text.
        ends = (np.flatnonzero(tokens == tokens[-1]) + 1).tolist()
        assert spans == list(zip([0, *ends[:-1]], ends, strict=True))
        documents += [tokens[start:end].tolist() for start, end in spans]
    return documents


def rows(folder, _dtype):
    datasets = pytest.importorskip("datasets")
    found = datasets.load_dataset(str(folder), split="train", cache_dir=str(folder.parent / "cache"))
    assert str(found.features["input_ids"].feature.dtype) == "int32"
    return found["input_ids"][:]


READERS = {
    "megatron": lambda folder, _: megatron(folder),
    "llmc": lambda folder, _: numbered(folder, 20240801, 7, np.uint32),
    "nanogpt": lambda folder, _: numbered(folder, 20240520, 1, np.uint16),
    "automodel": lambda folder, dtype: numbered(folder, 278895051, 1, dtype),
    "olmo": olmo,
    "datasets": rows,
}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", READERS)
def test_other_trainers_read_the_documents(name, large, tmp_path, texts):
    assert set(READERS) == set(LAYOUTS) - {"ours"}
    tokenizer = tiny.words()
    eos = tokenizer.end_id
    expected = [tokenizer.encode_ordinary(text) for text in texts]
    expected = [[*ids, eos] if LAYOUTS[name].ends_documents else [eos, *ids] for ids in expected]
    used = Large(tokenizer) if large else tokenizer
    options = {"layout": LAYOUTS[name], "threads": 2}
    if name == "nanogpt" and large:
        with pytest.raises(UserError, match=r"uint16.* 70,000 tokens"):
            write_shards(tmp_path / "out", used, [Batch.from_texts(texts)], **options)
        assert list(tmp_path.iterdir()) == []
        return
    batches = [Batch.from_texts(texts[:4]), Batch.from_texts(texts[4:])]
    manifest = write_shards(tmp_path / "out", used, batches, ShardConfig(20), **options)
    assert READERS[name](tmp_path / "out", np.uint32 if large else np.uint16) == expected
    assert manifest == json.loads((tmp_path / "out" / "encoded.json").read_text())
    where = "after" if LAYOUTS[name].ends_documents else "before"
    assert (manifest["layout"], manifest["end_of_text_is"]) == (name, f"{where} each document")
    assert (manifest["eos_id"], manifest["n_documents"]) == (eos, len(texts))
    assert len(manifest["shards"]) == (1 if name == "megatron" else 3)
    assert all((tmp_path / "out" / shard["name"]).is_file() for shard in manifest["shards"])
    if name != "datasets":  # the ids take the space that the manifest says
        size = sum((tmp_path / "out" / shard["name"]).stat().st_size for shard in manifest["shards"])
        headers = 1024 * 3 if name in ("llmc", "nanogpt", "automodel") else 0
        assert size - headers == manifest["n_tokens"] * np.dtype(manifest["dtype"]).itemsize


@pytest.mark.parametrize("name", READERS)
def test_a_failure_leaves_nothing(name, tmp_path, texts):
    def interrupted():
        yield Batch.from_texts(texts)
        raise KeyboardInterrupt

    descriptors = Path("/proc/self/fd")
    opened = len(list(descriptors.iterdir())) if descriptors.is_dir() else None
    with pytest.raises(KeyboardInterrupt):
        write_shards(tmp_path / "out", tiny.words(), interrupted(), ShardConfig(20), layout=LAYOUTS[name])
    assert list(tmp_path.iterdir()) == []
    assert opened is None or len(list(descriptors.iterdir())) <= opened


def test_a_file_that_its_header_cannot_count_is_rejected(tmp_path, monkeypatch, texts):
    monkeypatch.setattr("lm.data.layouts._MOST_TOKENS", 30)
    for name in ("llmc", "nanogpt", "automodel"):
        with pytest.raises(UserError, match=r"tokens_000000.bin .*\d+ tokens.* less than"):
            write_shards(tmp_path / name, tiny.words(), [Batch.from_texts(["of " * 40])], layout=LAYOUTS[name])
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_a_layout(tmp_path, capsys, mistake):
    from experiments.cli import main

    tiny.words().save(tmp_path / "bpe")
    (tmp_path / "a.txt").write_text("the end of the town")
    words = ["encode", str(tmp_path / "bpe"), str(tmp_path / "a.txt"), "--to", str(tmp_path / "out")]
    assert main.run([*words, "--layout", "olmo"]) == 0
    assert "each document ends with <|endoftext|>" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "encoded.json",
        "tokens_000000.csv.gz",
        "tokens_000000.npy",
    ]
    assert "already exists" in mistake(*words, "--layout", "olmo")
