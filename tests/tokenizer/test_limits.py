"""Input that asks for much memory or time: small files of large documents, vocabularies and patterns that explode."""

import base64
import gzip
import json
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.tokenizer.corpus.corpora import write_jsonl
from tests.tokenizer.formats.other_formats import hf_file
from tokenizer import Corpus, CorpusConfig, Tokenizer, UserError, _native, definition, patterns
from tokenizer.definition import printable

MB = 1 << 20


def texts(config, **kwargs):
    return [batch.text(i) for batch in Corpus(config).batches("train", **kwargs) for i in range(len(batch))]


FILES = [(kind, suffix) for kind in ("txt", "separated.txt", "jsonl") for suffix in ("", ".gz", ".zst")]


@pytest.mark.parametrize(("kind", "suffix"), [*FILES, ("parquet", "")])
def test_a_long_document_is_an_error_or_left_out(tmp_path, kind, suffix):
    (tmp_path / "a.txt").write_text("short", encoding="utf-8")
    long, path = "long " * (4 * MB // 5), tmp_path / f"b.{kind}{suffix}"
    compress = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix]
    if kind == "parquet":
        pq.write_table(pa.table({"text": ["one", long, "two"]}), path)
    else:
        content = {
            "txt": long,
            "separated.txt": f"one|{long}|two",
            "jsonl": "".join(json.dumps({"text": text}) + "\n" for text in ("one", long, "two")),
        }[kind]
        path.write_bytes(compress(content.encode()))
    separator = "|" if kind == "separated.txt" else None
    config = {"paths": [str(tmp_path / "a.txt"), str(path)], "separator": separator}
    kept = ["short"] if kind == "txt" else ["short", "one", "two"]
    with pytest.raises(UserError) as error:
        texts(CorpusConfig(**config, document_limit_bytes=MB))
    for part in (path.name, f"document_limit_bytes={MB}", "max_document_bytes="):
        assert part in str(error.value)
    # Lines are read whole before their length is known.
    limit = 5 * MB if kind == "jsonl" else MB
    assert texts(CorpusConfig(**config, document_limit_bytes=limit, max_document_bytes=100)) == kept
    assert len(texts(CorpusConfig(**config, document_limit_bytes=5 * MB))) == len(kept) + 1
    one, other = (Corpus(CorpusConfig(**config, document_limit_bytes=size)).identity() for size in (10, 20))
    assert one == other  # the limit is not part of it


@pytest.mark.slow
def test_a_file_that_decompresses_to_gigabytes_takes_little_memory(tmp_path):
    """Run in a fresh process whose address space is smaller than the contents of the file."""
    path = tmp_path / "bomb.txt.zst"
    with path.open("wb") as file, zstandard.ZstdCompressor(level=1).stream_writer(file) as out:
        for _ in range(128):
            out.write(b"x" * (16 * MB))
    assert path.stat().st_size < MB
    script = """if True:
        import resource, sys
        from tokenizer import Corpus, CorpusConfig, UserError, count_pretokens

        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)

        def error_of(read, **options):
            try:
                read(Corpus(CorpusConfig(paths=[sys.argv[1]], document_limit_bytes=1 << 27, **options)))
            except UserError as error:
                return str(error)

        def batches(corpus):
            list(corpus.batches())

        for options in ({}, {"separator": "|"}):
            assert "the corpus is empty" in error_of(batches, max_document_bytes=1000, **options)
        for options in ({}, {"separator": "|"}, {"format": "jsonl"}):
            assert "document_limit_bytes=" in error_of(batches, **options)
        assert "document_limit_bytes=" in error_of(lambda corpus: count_pretokens(corpus, "gpt2", threads=1))
    """
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("field", ["text", "inner.text"])
def test_the_limit_applies_to_each_row_of_parquet(tmp_path, field):
    long = "long " * (MB // 5)
    column = [long] * 20 if field == "text" else [{"text": long}] * 20
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({field.split(".")[0]: column}), path, compression="zstd")
    config = CorpusConfig(paths=[str(path)], field=field, batch_bytes=MB)
    assert sum(batch.n_bytes for batch in Corpus(config).batches()) == 20 * len(long)
    with pytest.raises(UserError, match=r"has 1048575 bytes, more than document_limit_bytes=524288: raise this limit"):
        list(Corpus(replace(config, document_limit_bytes=MB // 2)).batches())
    write_jsonl(tmp_path / "a.jsonl", [{"text": "日" * 900}])
    path.unlink()
    with pytest.raises(UserError, match="has 2700 bytes, more than document_limit_bytes=1000"):
        list(Corpus(CorpusConfig(dataset=str(tmp_path), document_limit_bytes=1000)).batches())


def test_a_small_file_cannot_request_a_large_vocabulary():
    # Runs that double, up to 32,768 letters; pairs of bytes; that run and each of the pairs.
    pairs = [(97, 97), *((256 + i, 256 + i) for i in range(14))]
    n = 2100
    pairs += [(98 + i // 100, 98 + i % 100) for i in range(n)]
    pairs += [(270, 271 + i) for i in range(n)]
    merges = np.array([(*pair, 256 + i) for i, pair in enumerate(pairs)], np.uint32)
    assert len(definition.spell(range(256), merges[: 15 + n], {}, {})) == 256 + 15 + n
    tracemalloc.start()
    with pytest.raises(UserError, match=rf"up to merge \d+ of 4215 have more than {definition.MOST_BYTES} bytes"):
        definition.spell(range(256), merges, {}, {})
    assert tracemalloc.get_traced_memory()[1] < 2 * definition.MOST_BYTES
    tracemalloc.stop()
    with pytest.raises(UserError, match="the tokens have more than 67108864 bytes in total"):
        definition.spell(range(256), merges[:0], {b"a" * (1 << 26): 256}, {})


def test_ranks_of_long_tokens_are_read_in_time(tmp_path):
    """Finding the merges of a token once took time quadratic in its length."""
    ranks = [bytes([i]) for i in range(256)] + [b"a" * 2**i for i in range(1, 17)]
    ranks.append(np.random.default_rng(1).integers(97, 123, 4 * MB).astype(np.uint8).tobytes())
    path = tmp_path / "long.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % i for i, token in enumerate(ranks)))
    started = time.process_time()
    tokenizer = Tokenizer.from_file(path, pattern="gpt2")
    assert time.process_time() - started < 30
    assert tokenizer.merge_ids.tolist() == [[97, 97, 256], *([i - 1, i - 1, i] for i in range(257, 272))]
    assert list(tokenizer.unmerged.values()) == [272]


def test_errors_shorten_long_text(tmp_path):
    long = "x" * MB
    vocab = {printable(bytes([i])): i for i in range(256)}

    def hf(**change):
        return Tokenizer.from_file(hf_file(tmp_path, **{"model_vocab": vocab, "model_merges": []} | change))

    for name, content in {"vocab.json": json.dumps(vocab), "merges.txt": long, "a.tiktoken": long + "=\n"}.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    pq.write_table(pa.table({"text": ["a"], "score": [long]}), tmp_path / "a.parquet")
    scored = CorpusConfig(paths=[str(tmp_path / "a.parquet")], score_field="score", min_score=1.0)
    plain = Tokenizer.from_ranks([], pattern=patterns.resolve("gpt2"), special_tokens=[long[:4096]])
    actions = (
        lambda: hf(model_merges=[long]),
        lambda: hf(model_vocab=vocab | {long: -1}),
        lambda: hf(model_vocab=vocab | {long + "日": 256}),
        lambda: hf(model_merges=[[long, "a"]]),
        lambda: Tokenizer.from_file(tmp_path / "merges.txt"),
        lambda: Tokenizer.from_file(tmp_path / "a.tiktoken", pattern="gpt2"),
        lambda: texts(scored),
        lambda: plain.encode(long),
        lambda: Tokenizer.from_ranks([], pattern=patterns.resolve("gpt2"), special_tokens=[long[:4097]]),
        lambda: plain.encode("a", allowed_special={long + "y"}),
        lambda: _native.split("a", "(" + long),
        lambda: patterns.resolve(long + "\n"),
        lambda: definition.spell(range(256), np.empty((0, 3), np.uint32), {long.encode(): 3}, {}),
    )
    for action in actions:
        with pytest.raises(UserError) as error:
            action()
        assert len(str(error.value)) < 3000, str(error.value)[:500]
