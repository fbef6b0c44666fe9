"""Corpora for tests: writing them, and their documents."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tokenizer import Corpus, CorpusConfig

READ_BUFFER = 1 << 20


def documents(paths, split="train", **options):
    """All texts of a corpus; `paths` is one path or several."""
    paths = paths if isinstance(paths, list) else [paths]
    return list(Corpus(CorpusConfig(paths=[str(path) for path in paths], **options)).documents(split))


def write_jsonl(path, records):
    data = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix in (".zst", ".zstd"):
        data = zstandard.compress(data)
    path.write_bytes(data)
    return path


def write_parquet(path, records, **options):
    pq.write_table(pa.Table.from_pylist(records), path, **options)
    return path


def of(form, split="train", **options):
    return list(Corpus(CorpusConfig(**form, **options)).documents(split))
