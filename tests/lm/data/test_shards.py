import json
from dataclasses import replace
from unicodedata import normalize

import numpy as np
import pytest

from lm.data.sharding import ShardConfig, write_shards
from lm.data.shards import Shards
from lm.data.stream import DocumentStream
from tests.flipping import flips
from tests.lm import tiny
from tokenizer import Batch, Tokenizer, patterns
from tokenizer.errors import UserError
from tokenizer.files import read_sealed, write_sealed
from tokenizer.special import Preparation


def decoded(shards, tokenizer, i):
    return b"".join(tokenizer.vocab[t] for t in shards.document(i)).decode()


@pytest.mark.parametrize("tokens_per_shard", [1, 7, 20, 10**6])
@pytest.mark.parametrize("documents_per_batch", [1, 2, 6])
def test_documents_come_back_however_they_are_cut(tmp_path, texts, tokens_per_shard, documents_per_batch):
    tokenizer = tiny.words()
    batches = [Batch.from_texts(texts[i : i + documents_per_batch]) for i in range(0, len(texts), documents_per_batch)]
    manifest = write_shards(tmp_path / "s", tokenizer, batches, ShardConfig(tokens_per_shard))
    shards = Shards.open(tmp_path / "s", tokenizer)

    assert [decoded(shards, tokenizer, i) for i in range(len(texts))] == texts
    assert shards.document_bytes.tolist() == [len(text.encode()) for text in texts]
    assert shards.n_bytes == manifest["n_bytes"] == sum(len(text.encode()) for text in texts)
    assert shards.n_documents == len(texts)
    assert shards.token_byte_lengths.tolist() == tokenizer.token_byte_lengths().tolist()
    stream = shards.tokens(0, shards.n_tokens)
    assert np.flatnonzero(stream == shards.eos_id).tolist() == [0, *shards.document_ends[:-1].tolist()]
    for start in range(0, shards.n_tokens, 5):
        assert (shards.tokens(start, min(start + 9, shards.n_tokens)) == stream[start : start + 9]).all()
    sizes = [shard["n_tokens"] for shard in manifest["shards"]]
    assert sum(sizes) == shards.n_tokens
    assert all(size >= tokens_per_shard for size in sizes[:-1])
    assert sum(shard["n_documents"] for shard in manifest["shards"]) == len(texts)


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_536, "uint16"), (65_537, "uint32")])
def test_width_follows_the_vocabulary(make_shards, vocab_size, dtype):
    pairs = [(bytes([i // 256]), bytes([i % 256])) for i in range(vocab_size - 257)]
    shards = make_shards(["the end"], tiny.merged(pairs, "none"))
    manifest = json.loads((shards.folder / "shards.json").read_text())
    assert manifest["dtype"] == dtype
    assert shards.eos_id == vocab_size - 1
    assert shards.tokens(0, 1).tolist() == [vocab_size - 1]


def test_another_tokenizer_is_rejected(make_shards):
    shards = make_shards()
    with pytest.raises(UserError, match="written by tokenizer"):
        Shards.open(shards.folder, tiny.words(b"other "))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"spelled": np.array([3, 4])}, "document 0 has 4 bytes, but its tokens have 3"),
        ({"marked": 0}, "document 0 contains text .* as its end of text, '<.endoftext.>'"),
    ],
)
def test_tokens_that_are_not_the_text_are_rejected(tmp_path, monkeypatch, wrong, message):
    encode = Tokenizer.encode_stream
    monkeypatch.setattr(Tokenizer, "encode_stream", lambda *args, **kw: encode(*args, **kw)._replace(**wrong))
    with pytest.raises(UserError, match=message):
        write_shards(tmp_path / "s", tiny.words(), [Batch.from_texts(["abcd", "efgh"])])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("batches", [[], [[]], [["", ""]]])
def test_there_must_be_documents(tmp_path, batches):
    with pytest.raises(UserError, match="no documents"):
        write_shards(tmp_path / "s", tiny.words(), [Batch.from_texts(b) for b in batches])
    assert list(tmp_path.iterdir()) == []


def test_no_end_of_text(tmp_path):
    tokenizer = tiny.merged([], special_tokens=["<s>"])
    with pytest.raises(UserError, match=r"'<s>'.* end_of_text"):
        write_shards(tmp_path / "s", tokenizer, [Batch.from_texts(["a"])])


def test_only_an_empty_folder_is_written_to(tmp_path):
    (tmp_path / "s").mkdir()
    write_shards(tmp_path / "s", tiny.words(), [Batch.from_texts(["a"])])
    with pytest.raises(UserError, match="already exists"):
        write_shards(tmp_path / "s", tiny.words(), [Batch.from_texts(["a"])])


def tamper_manifest(key, value):
    def tamper(folder):
        write_sealed(folder / "shards.json", read_sealed(folder / "shards.json") | {key: value})

    return tamper


def forget(name):
    """A file that the manifest does not list is not read, since its size and kind are unknown."""

    def tamper(folder):
        manifest = read_sealed(folder / "shards.json")
        del manifest["files"][name]
        write_sealed(folder / "shards.json", manifest)

    return tamper


def overwrite(name, position, raw):
    def tamper(folder):
        content = bytearray((folder / name).read_bytes())
        content[position : position + len(raw)] = raw
        (folder / name).write_bytes(content)

    return tamper


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (lambda folder: (folder / "shards.json").unlink(), "missing"),
        (lambda folder: (folder / "shards.json").write_text("{"), "not JSON"),
        (lambda folder: (folder / "shards.json").write_text("[" * 100_000 + "]" * 100_000), "too deeply"),
        (lambda folder: (folder / "tokens-00000.bin").unlink(), "missing"),
        (lambda folder: (folder / "tokens-00000.bin").write_bytes(b"12"), "bytes, not"),
        (tamper_manifest("format_version", 9), "version 9"),
        (tamper_manifest("dtype", "float64"), "damaged"),
        (tamper_manifest("dtype", "uint32"), "number of tokens"),
        (tamper_manifest("n_tokens", 3), "match the manifest"),
        (tamper_manifest("n_documents", 3), "number of documents"),
        (tamper_manifest("n_bytes", 3), "add up"),
        (tamper_manifest("vocab_size", 200), "vocabulary"),
        (forget("document_ends.bin"), "damaged .*document_ends.bin"),
        (overwrite("document_ends.bin", 0, b"\xff\xff"), "boundaries"),
        (overwrite("document_bytes.bin", 0, b"\xff\xff"), "add up"),
        (overwrite("tokens-00000.bin", 0, b"\x00\x00"), "start with the end of text"),
        (overwrite("tokens-00000.bin", 8, b"\xff\xff"), "vocabulary"),
    ],
)
def test_damage_is_rejected_even_where_checksums_are_not_compared(make_shards, tamper, message):
    folder = make_shards().folder
    tamper(folder)
    with pytest.raises(UserError, match=message):
        Shards.open(folder, verify="never")
    with pytest.raises(UserError):
        Shards.open(folder, verify="always")


def test_any_flipped_bit_is_detected(make_shards):
    folder = make_shards(["the end", "of the world"]).folder
    for path in sorted(folder.iterdir()):
        for _ in flips(path, 16):
            try:
                shards = Shards.open(folder, verify="always")
            except UserError:
                continue
            # White space in JSON carries nothing: the content read is still the content written.
            assert path.suffix == ".json"
            assert shards.n_tokens
    assert Shards.open(str(folder)).n_documents == 2


NORMALIZABLE = ["plain", "e\u0301t\u0301e", "déjà vu", "\u212bngstro\u0308m", "", "a\u0323\u0301b", "end"]


def test_tokens_spell_the_normalised_text_and_sizes_are_of_the_original(make_shards):
    plain = Tokenizer.from_ranks([(0, 1)], pattern=patterns.resolve("gpt2"), special_tokens=["<|endoftext|>"])
    tokenizer = Tokenizer(replace(plain.definition, preparation=Preparation(forms=("NFC",))))
    shards = make_shards(NORMALIZABLE, tokenizer, tokens_per_shard=8)
    manifest = json.loads((shards.folder / "shards.json").read_text())
    assert manifest["text_loss"]["changed_documents"] == 3
    sizes = [len(text.encode()) for text in NORMALIZABLE]
    assert manifest["n_bytes"] == sum(sizes)
    assert shards.document_bytes.tolist() == sizes
    spelled = [tokenizer.decode(shards.document(i)) for i in range(shards.n_documents)]
    assert spelled == [normalize("NFC", text) for text in NORMALIZABLE]
    assert [shards.spelled_bytes(i) for i in range(shards.n_documents)] == [len(text.encode()) for text in spelled]
    assert np.count_nonzero(shards.normalized_bytes) == 3
    stream = DocumentStream(shards, seed=0)
    assert stream.text_bytes(0, shards.n_tokens) == sum(len(text.encode()) for text in spelled)


def test_shards_of_other_tokenizers_have_no_extra_files(make_shards):
    shards = make_shards(NORMALIZABLE, tiny.bytes_only())
    assert not (shards.folder / "normalized_bytes.bin").exists()
    assert "text_loss" not in json.loads((shards.folder / "shards.json").read_text())
    assert [shards.spelled_bytes(i) for i in range(shards.n_documents)] == shards.document_bytes.tolist()
