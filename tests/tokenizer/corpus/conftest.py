"""The same documents in files of every form."""

import csv
import gzip
import json

import pytest

from tests import texts
from tests.tokenizer.corpus.corpora import write_jsonl, write_parquet


@pytest.fixture(scope="module")
def sample():
    """Documents with awkward contents, all different."""
    odd = ["one\ntwo\r\nthree", 'quotes " and \\ and \t', "\u2028 \x85 \x00 \ufeff", "🙂 \ud7ff \U0010ffff", "x" * 3000]
    return [*odd, *texts.SCRIPTS.values(), *(f"document {i} " * (i % 7 + 1) for i in range(120))]


@pytest.fixture(scope="module")
def forms(sample, tmp_path_factory):
    """The same documents in every form, by name: arguments of CorpusConfig."""
    import datasets

    tmp_path = tmp_path_factory.mktemp("forms")
    records = [{"id": i, "text": text} for i, text in enumerate(sample)]
    files = {name: write_jsonl(tmp_path / f"a{name}", records) for name in (".jsonl", ".jsonl.gz", ".jsonl.zst")}
    write_jsonl(tmp_path / "a.json.zstd", records)
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *((record["id"], record["text"]) for record in records)])
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    (tmp_path / "array.json").write_text(json.dumps(records, indent=1))
    (tmp_path / "a.txt").write_bytes("<|sep|>".join(sample).encode())
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("<|sep|>".join(sample).encode()))
    write_parquet(tmp_path / "a.parquet", records, row_group_size=50)
    (tmp_path / "single").mkdir()
    for i, text in enumerate(sample):
        (tmp_path / "single" / f"{i:05}.txt").write_bytes(text.encode())
    (tmp_path / "hf").mkdir()
    write_jsonl(tmp_path / "hf" / "train.jsonl", records)
    datasets.Dataset.from_list(records).save_to_disk(tmp_path / "disk")
    datasets.DatasetDict({"train": datasets.Dataset.from_list(records)}).save_to_disk(tmp_path / "dict")
    return {name: {"paths": [str(path)]} for name, path in files.items()} | {
        ".json.zstd": {"paths": [str(tmp_path / "a.json.zstd")]},
        "separated": {"paths": [str(tmp_path / "a.txt")], "separator": "<|sep|>"},
        "separated gz": {"paths": [str(tmp_path / "b.txt.gz")], "separator": "<|sep|>"},
        "one per file": {"paths": [str(tmp_path / "single")]},
        "glob": {"paths": [str(tmp_path / "single" / "*.txt")]},
        "parquet": {"paths": [str(tmp_path / "a.parquet")]},
        "dataset folder": {"dataset": str(tmp_path / "hf")},
        "saved dataset": {"dataset": str(tmp_path / "disk")},
        "saved dataset as files": {"paths": [str(tmp_path / "disk")]},
        "csv": {"paths": [str(tmp_path / "a.csv")]},
        "csv gz": {"paths": [str(tmp_path / "b.csv.gz")]},
        "array": {"paths": [str(tmp_path / "array.json")]},
        "saved dataset dict": {"dataset": str(tmp_path / "dict")},
    }
