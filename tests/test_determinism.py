"""Recorded hashes of counts, tokenizers and shards: no thread, chunk, reader or order of files changes a byte.

They do not depend on the machine. Models depend on the CPU's kind and on Torch, so their test compares runs
(`tests/lm/train/test_training.py`, `test_resume.py`).
"""

import random

import pytest
import xxhash

from lm.data.sharding import ShardConfig, write_shards
from superbpe import train_superbpe
from tests import texts
from tests.tokenizer.corpus.corpora import write_jsonl
from tokenizer import Corpus, CorpusConfig, count_pretokens, train_bpe

WORDS = ["the", "of", "and", "to", "in", "that", "it", "was", "for", "on", "as", "with", "he", "be", "at", "by", "this"]
RECORDED = {
    "counts": "d82fc9333ed11843c6e9894426520ce4",
    "bpe": "6e4d66c621f807aa2fe54453a9dff5e99c05b32d0d580cb303802fff9f6c270b",
    "superwords": "f5aaddd7c7e9f28f7c6b9bf60f4e4ce608d8e80d1b9a894d884f81ced9912261",
    "shards": "7af5e2592e41f9ed047d990cd1c6f880",
}
# Threads, readers, bytes per batch, and whether the files are read in order.
WAYS = [(1, 1, 1 << 22, False), (3, 2, 1 << 12, False), (16, 4, 1 << 10, False), (2, 1, 3000, True)]


def documents():
    rng = random.Random(5)
    made = [" ".join(rng.choices(WORDS, k=rng.randint(1, 200))) + "." for _ in range(300)]
    return [*texts.SCRIPTS.values(), *texts.EMOJI, *texts.NUMBERS, *made]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("determinism")
    parts = [documents()[i::5] for i in range(5)]
    suffixes = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".jsonl", ".jsonl")
    return [
        write_jsonl(folder / f"{i}{suffix}", [{"text": text} for text in part])
        for i, (suffix, part) in enumerate(zip(suffixes, parts, strict=True))
    ]


@pytest.mark.parametrize(("threads", "readers", "batch_bytes", "backwards"), WAYS)
def test_hashes_are_those_recorded(files, tmp_path, threads, readers, batch_bytes, backwards):
    paths = [str(path) for path in (files[::-1] if backwards else files)]
    corpus = Corpus(CorpusConfig(paths=paths, batch_bytes=batch_bytes))
    counts = count_pretokens(corpus.batches(readers=readers, in_order=False), "superbpe", threads=threads)
    found = {"counts": digest(counts.data, counts.offsets, counts.counts)}
    bpe = train_bpe(counts, 500)
    found["bpe"] = bpe.sha256
    superwords = train_superbpe(bpe, corpus.batches, vocab_size=500, transition=400, rules="uw-2025", threads=threads)
    found["superwords"] = superwords.sha256
    in_order = Corpus(CorpusConfig(paths=[str(path) for path in files], batch_bytes=batch_bytes))
    write_shards(tmp_path / "s", superwords, in_order.batches(readers=readers), ShardConfig(3000), threads=threads)
    found["shards"] = digest(*(path.read_bytes() for path in sorted((tmp_path / "s").glob("*.bin"))))
    assert found == RECORDED


def digest(*parts):
    hashed = xxhash.xxh3_128()
    for part in parts:
        hashed.update(bytes(part))
    return hashed.hexdigest()
