"""Text of any kind: each gives the same counts and merges, streams stay streams, mistakes are named."""

import gc
import json
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import texts
from tokenizer import Batch, Corpus, CorpusConfig, UserError, count_pretokens, train_bpe

DOCUMENTS = [text[:3000] for text in texts.english()[0][:15]] + list(texts.SCRIPTS.values())
WITH_GAPS = [DOCUMENTS[0], None, "", *DOCUMENTS[1:], None]


def records():
    return [{"id": i, "body": {"text": text}} for i, text in enumerate(DOCUMENTS)]


def rows():
    return [{"id": i, "text": text} for i, text in enumerate(DOCUMENTS)]


def pandas_frame():
    return pytest.importorskip("pandas").DataFrame({"id": range(len(WITH_GAPS)), "text": WITH_GAPS})


def dataset():
    return pytest.importorskip("datasets").Dataset.from_dict({"id": [*range(len(WITH_GAPS))], "text": WITH_GAPS})


def file(folder, name):
    path = folder / name
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": DOCUMENTS}), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    return path


KINDS = {
    "list": lambda folder: DOCUMENTS,
    "tuple": lambda folder: tuple(DOCUMENTS),
    "generator": lambda folder: (text for text in DOCUMENTS),
    "iterable": lambda folder: dict.fromkeys(DOCUMENTS).keys(),  # not a list
    "function": lambda folder: lambda: iter(DOCUMENTS),
    "rows": lambda folder: rows(),
    "batch": lambda folder: Batch.from_texts(DOCUMENTS),
    "batches": lambda folder: [Batch.from_texts(DOCUMENTS[:4]), Batch.from_texts(DOCUMENTS[4:])],
    "array": lambda folder: pa.array(WITH_GAPS),
    "large_array": lambda folder: pa.array(WITH_GAPS, pa.large_string())[0:],
    "view": lambda folder: pa.array(WITH_GAPS, pa.string_view()),
    "dictionary": lambda folder: pa.array(WITH_GAPS).dictionary_encode(),
    "chunked": lambda folder: pa.chunked_array([WITH_GAPS[:5], [], WITH_GAPS[5:]]),
    "table": lambda folder: pa.table({"id": range(len(WITH_GAPS)), "text": WITH_GAPS}),
    "record_batch": lambda folder: pa.record_batch({"text": WITH_GAPS}),
    "record_batches": lambda folder: pq.ParquetFile(file(folder, "a.parquet")).iter_batches(batch_size=3),
    "reader": lambda folder: pa.table({"text": WITH_GAPS}).to_reader(max_chunksize=4),
    "series": lambda folder: pandas_frame()["text"],
    "frame": lambda folder: pandas_frame(),
    "dataset": lambda folder: dataset(),
    "dataset_column": lambda folder: (row for row in dataset()["text"] if row),
    "iterable_dataset": lambda folder: dataset().to_iterable_dataset(num_shards=2),
    "jsonl": lambda folder: file(folder, "a.jsonl"),
    "parquet": lambda folder: file(folder, "a.parquet"),
    "folder": lambda folder: file(folder, "a.jsonl").parent,
    "glob": lambda folder: file(folder, "a.jsonl").with_name("*.jsonl"),
    "files": lambda folder: [file(folder, "a.jsonl")],
    "corpus": lambda folder: Corpus(CorpusConfig(paths=[str(file(folder, "a.jsonl"))])),
}


@pytest.fixture(scope="module")
def counts():
    return count_pretokens([Batch.from_texts(DOCUMENTS)], "superbpe", unit="line")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_text_gives_the_same_counts(kind, counts, tmp_path):
    assert count_pretokens(KINDS[kind](tmp_path), "superbpe", unit="line") == counts


@pytest.mark.parametrize("kind", ["list", "generator", "table", "jsonl"])
def test_training_counts_and_merges_in_one_call(kind, counts, tmp_path):
    seen = []
    options = {"pattern": "superbpe", "unit": "line", "threads": 1}
    found = train_bpe(KINDS[kind](tmp_path), 400, **options, progress=lambda what, *_: seen.append(what))
    assert found == train_bpe(counts, 400)
    assert set(seen) == {"bytes counted", "merges"}


def test_the_pattern_of_one_call_is_that_of_the_start():
    assert train_bpe(DOCUMENTS, 300).pattern.name == "o200k"
    start = train_bpe(DOCUMENTS, 300, pattern="llama3", special_tokens=["<s>"])
    assert train_bpe(DOCUMENTS, 350, start=start) == train_bpe(DOCUMENTS, 350, pattern="llama3", special_tokens=["<s>"])


def test_the_field_of_rows_can_be_named(counts):
    for text in (records(), pa.Table.from_pylist(records()), iter(records())):
        assert count_pretokens(text, "superbpe", unit="line", field="body.text") == counts


def test_columns_that_are_not_needed_are_not_decoded(counts):
    datasets = pytest.importorskip("datasets")
    damaged = datasets.Dataset.from_dict({"text": DOCUMENTS, "image": [{"bytes": b"x", "path": None}] * len(DOCUMENTS)})
    damaged = damaged.cast_column("image", datasets.Image())
    for text in (damaged, damaged.to_iterable_dataset()):
        assert count_pretokens(text, "superbpe", unit="line") == counts


def test_a_stream_is_read_once_in_bounded_memory():
    taken = 0

    def stream():
        nonlocal taken
        for i in range(200):
            taken += 1
            yield f"{i} the quick brown fox. " * 5000  # 23 MB in total

    gc.collect()
    tracemalloc.start()
    counts = count_pretokens(stream(), "gpt2", threads=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (taken, counts.n_documents) == (200, 200)
    assert peak < 12_000_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "the text is NoneType, not text: pass a list or an iterator of strings, a column"),
        (5, "the text is int, not text"),
        (b"text", "the text is bytes, not text"),
        ("data.jsonl", r"is one string: write pathlib\.Path\('data\.jsonl'\) to read the file"),
        ({"train": DOCUMENTS, "test": []}, r"the text is a dict: pass one of its entries \(train, test\)"),
        ([1], "text 0 is not a string but int: 1"),
        (["a", b"b"], "text 1 is not a string but bytes"),
        (["a", None], "text 1 is not a string but NoneType"),
        (["a", "\ud800"], "text 1 contains a lone surrogate"),
        ([Batch.from_texts(["a"]), "b"], "the text contains str after a Batch"),
        ([{"text": "a"}, {"id": 5}], r"record 1 has no field 'text' \(the fields are: id\); name the one"),
        ([{"text": 5}], "record 0: field 'text' holds int, not text"),
        (pa.table({"id": [1]}), r"no field 'text' \(the fields are: id\); name the one"),
        (pa.array([1]), "the column holds int64, not text; name the one"),
        (pa.table({"text": [1]}), "field 'text' holds int64, not text; name the one"),
        (iter([]), "the corpus is empty"),
        ([""], "the corpus is empty"),
        (Path("missing.jsonl"), "missing.jsonl: no such file"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_remedy(text, message):
    for use in (lambda: count_pretokens(text, "gpt2"), lambda: train_bpe(text, 300)):
        if not isinstance(text, type(iter([]))):
            with pytest.raises(UserError, match=message) as found:
                use()
            assert "\n" not in str(found.value)


def test_objects_that_are_not_text_are_named(counts, trained):
    with pytest.raises(UserError, match="the text is PretokenCounts, not text"):
        count_pretokens(counts, "gpt2")
    with pytest.raises(UserError, match="the text is Tokenizer, not text"):
        train_bpe(trained["gpt2"], 300)
    with pytest.raises(UserError, match=r"pattern .*leave it out"):
        train_bpe(counts, 300, pattern="gpt2")
    with pytest.raises(TypeError, match="unexpected keyword argument 'min_cuont'"):
        train_bpe(counts, 300, min_cuont=2)


def test_arguments_are_checked_before_text_is_read(trained):
    def never():
        raise AssertionError
        yield

    for options, message in (
        ({"vocab_size": 200}, "use at least 257"),
        ({"vocab_size": 300, "start": trained["superwords"]}, "start has superwords"),
        ({"vocab_size": 300, "start": trained["gpt2"]}, "is below the 1200 tokens of start"),
    ):
        with pytest.raises(UserError, match=message):
            train_bpe(never(), **options)
