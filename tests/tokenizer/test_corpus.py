import gzip
import json
import os
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests import texts
from tokenizer import Batch, Corpus, CorpusConfig, UserError, _native

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


@pytest.fixture(scope="module")
def sample():
    """Documents with awkward contents, all different."""
    odd = ["one\ntwo\r\nthree", 'quotes " and \\ and \t', "\u2028 \x85 \x00 \ufeff", "🙂 \ud7ff \U0010ffff", "x" * 3000]
    return [*odd, *texts.SCRIPTS.values(), *(f"document {i} " * (i % 7 + 1) for i in range(300))]


@pytest.fixture
def forms(sample, tmp_path):
    """The same documents in every form, by name: arguments of CorpusConfig."""
    import datasets

    records = [{"id": i, "text": text} for i, text in enumerate(sample)]
    files = {name: write_jsonl(tmp_path / f"a{name}", records) for name in (".jsonl", ".jsonl.gz", ".jsonl.zst")}
    write_jsonl(tmp_path / "a.json.zstd", records)
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
        "saved dataset dict": {"dataset": str(tmp_path / "dict")},
    }


FORMS = [".jsonl", ".jsonl.gz", ".jsonl.zst", ".json.zstd", "separated", "separated gz", "one per file", "glob"]
FORMS += ["parquet", "dataset folder", "saved dataset", "saved dataset dict"]


def of(form, split="train", **options):
    return list(Corpus(CorpusConfig(**form, **options)).documents(split))


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_documents(name, forms, sample):
    assert of(forms[name]) == sample
    # Small batches, filters and the held-out split are the same for all.
    assert of(forms[name], batch_bytes=1) == sample
    options = {"min_document_bytes": 20, "max_document_bytes": 2000, "heldout_fraction": 0.3, "heldout_salt": "s"}
    bounded = [text for text in sample if 20 <= len(text.encode()) <= 2000]
    train, heldout = (of(forms[name], split, **options) for split in ("train", "heldout"))
    assert of(forms[name], "all", **options) == bounded
    assert (train, heldout) == tuple(of(forms[".jsonl"], split, **options) for split in ("train", "heldout"))
    assert 0.15 < len(heldout) / len(bounded) < 0.45
    assert sorted(train + heldout) == sorted(bounded)
    assert set(train).isdisjoint(heldout)
    budget = {"max_bytes": 1000}
    assert of(forms[name], **budget) == of(forms[".jsonl"], **budget)


def test_batches_hold_documents_end_to_end(forms, sample):
    corpus = Corpus(CorpusConfig(**forms[".jsonl"], batch_bytes=2000))
    batches = list(corpus.batches())
    assert len(batches) > 5
    assert [batch.text(i) for batch in batches for i in range(len(batch))] == sample
    for batch in batches:
        assert (batch.data.dtype, batch.offsets.dtype) == (np.uint8, np.int64)
        assert batch.offsets[0] == 0
        assert batch.offsets[-1] == len(batch.data) == batch.n_bytes
        with pytest.raises(IndexError):
            batch.text(len(batch))


# Files.


@pytest.mark.parametrize("separator", ["\n\n", "<|endoftext|>", "é", "\n\n\n---\n"])
@pytest.mark.parametrize("compress", [None, gzip.compress, zstandard.compress])
def test_separators_are_found_across_read_buffers(separator, compress, tmp_path):
    width = len(separator.encode())
    data, expected = b"", []
    for shift in range(-width - 1, 2):
        # This document ends so that the separator straddles the end of the (next) buffer by `shift`.
        size = (len(data) // READ_BUFFER + 1) * READ_BUFFER - len(data) + shift
        size += READ_BUFFER if size <= 0 else 0
        expected.append("x" * size)
        data += expected[-1].encode() + separator.encode()
    expected.append("the end")
    data += b"the end"
    path = tmp_path / ("a.txt" + {None: "", gzip.compress: ".gz", zstandard.compress: ".zst"}[compress])
    path.write_bytes(compress(data) if compress else data)
    assert documents(path, separator=separator) == expected


def test_text_between_separators_is_left_as_it_is(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"---one---\n---- two\r\n---")
    # Empty documents are below min_document_bytes.
    assert documents(path, separator="---") == ["one", "\n", "- two\r\n"]
    assert documents(path, separator="---", min_document_bytes=0) == ["", "one", "\n", "- two\r\n", ""]
    assert documents(path) == ["---one---\n---- two\r\n---"]
    assert documents(path, separator="absent") == ["---one---\n---- two\r\n---"]


def test_jsonl_reads_what_json_allows(tmp_path):
    lines = [
        '{"text": "a\\u00e9\\ud83d\\ude42\\n", "other": [1, {"text": "no"}]}',
        "   ",
        ' { "meta" : {"text": "no"} , "text" : "b" } \r',
        '{"text": null}',
        '{"text": "c", "n": -1.5e3}',
        '{"te\\u0078t": "d"}',
        '{"text": "a raw\ttab"}',  # against the letter of JSON; nothing is lost
        '{"text": "last line without its end"}',
    ]
    path = tmp_path / "a.jsonl"
    path.write_bytes("\n".join(lines).encode())
    assert documents(path) == ["aé🙂\n", "b", "c", "d", "a raw\ttab", "last line without its end"]


def test_concatenated_members_of_compressed_files_are_all_read(tmp_path):
    one, two = (json.dumps({"text": text}).encode() + b"\n" for text in ("one", "two"))
    for name, compress in ((".jsonl.gz", gzip.compress), (".jsonl.zst", zstandard.compress)):
        (tmp_path / f"a{name}").write_bytes(compress(one) + compress(two))
        assert documents(tmp_path / f"a{name}") == ["one", "two"]


def test_dotted_fields_and_scores(tmp_path):
    records = [
        {"doc": {"body": "high", "more": {"score": 0.9}}, "text": "no"},
        {"doc": {"body": "low", "more": {"score": 0.1}}, "text": "no"},
        {"doc": {"body": "whole", "more": {"score": 1}}, "text": "no"},
        {"doc": {"body": "none", "more": {"score": None}}, "text": "no"},
        {"doc": {"body": None, "more": {"score": 0.9}}, "text": "no"},
        {"doc": {"body": "edge", "more": {"score": 0.5}}, "text": "no"},
    ]
    (tmp_path / "hf").mkdir()
    forms = [
        {"paths": [str(write_jsonl(tmp_path / "a.jsonl", records))]},
        {"paths": [str(write_parquet(tmp_path / "a.parquet", records, row_group_size=2))]},
        {"dataset": str(write_jsonl(tmp_path / "hf" / "train.jsonl", records).parent)},
    ]
    for form in forms:
        assert of(form, field="doc.body") == ["high", "low", "whole", "none", "edge"]
        scored = of(form, field="doc.body", score_field="doc.more.score", min_score=0.5)
        assert scored == ["high", "whole", "edge"]
        assert of(form, field="doc.body", min_document_bytes=0)[4] == ""


def test_of_a_key_listed_twice_the_last_value_counts(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "text": "b"}\n')
    assert documents(tmp_path / "a.jsonl") == ["b"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "hf/train.jsonl"])
def test_null_on_the_way_to_a_field_is_null(name, tmp_path):
    """As json and Parquet have it: no score leaves a document out, no text leaves it empty."""
    records = [{"text": "a", "meta": {"score": 2, "t": "x"}}, {"text": "b", "meta": None}]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    (write_parquet if name.endswith("parquet") else write_jsonl)(path, records)
    form = {"dataset": str(path.parent)} if "/" in name else {"paths": [str(path)]}
    assert of(form, score_field="meta.score", min_score=1) == ["a"]
    assert of(form, field="meta.t", min_document_bytes=0) == ["x", ""]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "hf/train.jsonl"])
@pytest.mark.parametrize("value", [3, 2.5, True, ["a"]])
def test_a_field_that_holds_no_text_is_an_error(name, value, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    (write_parquet if name.endswith("parquet") else write_jsonl)(path, [{"text": value}])
    form = {"dataset": str(path.parent)} if "/" in name else {"paths": [str(path)]}
    with pytest.raises(UserError, match="text"):
        of(form)


def test_a_missing_score_leaves_a_document_out(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "a"}, {"text": "b", "score": 2}, {"score": 3, "text": "c"}])
    assert documents(path, score_field="score", min_score=-9) == ["b", "c"]
    assert documents(path, score_field="score", min_score=2.5) == ["c"]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()]
)
def test_parquet_text_of_every_arrow_type(kind, tmp_path):
    strings = ["a", None, "日本", "", "b" * 100] * 300
    table = pa.table({"x": list(range(1500)), "text": pa.array(strings).cast(kind)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=400)
    assert documents(tmp_path / "a.parquet") == [string for string in strings if string]
    assert documents(tmp_path / "a.parquet", batch_bytes=10, min_document_bytes=0)[:4] == ["a", "", "日本", ""]


def test_parquet_scores_filter_within_row_groups(tmp_path):
    rows = [{"text": f"t{i}", "score": None if i % 5 == 0 else i % 3} for i in range(3000)]
    path = write_parquet(tmp_path / "a.parquet", rows, row_group_size=700)
    expected = [row["text"] for row in rows if row["score"] is not None and row["score"] >= 1]
    assert documents(path, score_field="score", min_score=1) == expected


# Which files.


def test_directories_and_globs_are_sorted_and_searched_below(tmp_path):
    for name in ("b/2.txt", "a/1.txt", "a/deep/3.jsonl", "c.parquet", "notes.md", "a/x.tar.gz"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("jsonl"):
            write_jsonl(path, [{"text": name}])
        elif name.endswith("parquet"):
            write_parquet(path, [{"text": name}])
        else:
            path.write_text(name)
    assert documents(tmp_path) == ["a/1.txt", "a/deep/3.jsonl", "b/2.txt", "c.parquet"]
    assert documents(tmp_path / "**" / "*.txt") == ["a/1.txt", "b/2.txt"]
    assert documents(tmp_path / "[ab]" / "?.txt") == ["a/1.txt", "b/2.txt"]
    assert documents([tmp_path / "b", tmp_path / "a" / "1.txt", tmp_path]) == [
        "b/2.txt", "a/1.txt", "a/deep/3.jsonl", "c.parquet",
    ]  # fmt: skip
    assert documents(tmp_path / "notes.md", format="txt") == ["notes.md"]
    with pytest.raises(UserError, match=r"notes\.md: unknown kind of file; name it .* or set corpus\.format"):
        documents(tmp_path / "notes.md")


def test_a_name_with_brackets_is_a_name_if_it_exists(tmp_path):
    (tmp_path / "a[1].txt").write_text("brackets")
    assert documents(tmp_path / "a[1].txt") == ["brackets"]


# Filters and splits.


def test_the_budget_ends_with_the_document_that_reaches_it(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": letter * 10} for letter in "abcdef"])
    for budget, expected in [(1, "a"), (10, "a"), (11, "ab"), (35, "abcd"), (60, "abcdef"), (9999, "abcdef")]:
        for batch_bytes in (1, 25, 1 << 20):
            found = documents(path, max_bytes=budget, batch_bytes=batch_bytes)
            assert [text[0] for text in found] == list(expected)
    # Documents that the bounds leave out cost nothing.
    mixed = write_jsonl(tmp_path / "b.jsonl", [{"text": "x" * n} for n in (5, 10, 5, 10, 10)])
    assert len(documents(mixed, max_bytes=20, min_document_bytes=6)) == 2


def test_the_budget_comes_before_the_split(forms):
    both = of(forms[".jsonl"], "all", max_bytes=5000, heldout_fraction=0.4)
    train, heldout = (
        of(forms[".jsonl"], split, max_bytes=5000, heldout_fraction=0.4) for split in ("train", "heldout")
    )
    assert sorted(train + heldout) == sorted(both) == sorted(of(forms[".jsonl"], max_bytes=5000))


def test_bounds_count_bytes(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": text} for text in ("é", "ab", "éé", "abcde")])
    assert documents(path, min_document_bytes=2, max_document_bytes=2) == ["é", "ab"]
    assert documents(path, min_document_bytes=3) == ["éé", "abcde"]


def test_the_split_is_by_text_whatever_its_neighbours(forms, sample, tmp_path):
    heldout = set(of(forms[".jsonl"], "heldout", heldout_fraction=0.3))
    shuffled = random.Random(0).sample(sample, len(sample))[:150]
    path = write_jsonl(tmp_path / "shuffled.jsonl", [{"text": text} for text in shuffled])
    assert documents(path, "heldout", heldout_fraction=0.3) == [text for text in shuffled if text in heldout]
    # A larger share keeps a smaller one's choice; another salt makes another.
    assert heldout < set(of(forms[".jsonl"], "heldout", heldout_fraction=0.6))
    assert heldout != set(of(forms[".jsonl"], "heldout", heldout_fraction=0.3, heldout_salt="other"))
    # Pinned: a change of the hash would move documents of finished experiments between the sides.
    digits = write_jsonl(tmp_path / "digits.jsonl", [{"text": str(i)} for i in range(40)])
    assert documents(digits, "heldout", heldout_fraction=0.2) == [
        str(i) for i in (10, 13, 15, 16, 22, 24, 25, 35, 36, 39)
    ]


def test_heldout_paths(tmp_path):
    train = write_jsonl(tmp_path / "train.jsonl", [{"text": "t" * 10}] * 3)
    heldout = write_jsonl(tmp_path / "heldout.jsonl", [{"text": "h" * 10}] * 3)
    options = {"heldout_paths": [str(heldout)]}
    assert documents(train, **options) == ["t" * 10] * 3
    assert documents(train, "heldout", **options) == ["h" * 10] * 3
    assert documents(train, "all", **options) == ["t" * 10] * 3 + ["h" * 10] * 3
    assert documents(train, max_bytes=15, **options) == ["t" * 10] * 2
    assert documents(train, "heldout", max_bytes=15, **options) == ["h" * 10] * 3
    with pytest.raises(UserError, match=r"train\.jsonl is named in paths and in heldout_paths"):
        documents(train, heldout_paths=[str(tmp_path)])


# Text that is not UTF-8.

BAD = b"good \xc3\xa9 bad \xff\xfe end \xe2\x82"
REPLACED = "good é bad \ufffd\ufffd end \ufffd"


def bad_forms(folder):
    quoted = b'{"text": "' + BAD + b'"}\n'
    (folder / "a.txt").write_bytes(BAD)
    (folder / "b.txt").write_bytes(b"fine--" + BAD)
    (folder / "a.jsonl").write_bytes(b'{"text": "fine"}\n' + quoted)
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(quoted))
    offsets = np.array([0, 4, 4 + len(BAD)], np.int32)
    array = pa.StringArray.from_buffers(2, pa.py_buffer(offsets), pa.py_buffer(b"fine" + BAD))
    pq.write_table(pa.table({"text": array}), folder / "a.parquet")


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("a.txt", "byte 12 of the text"),
        ("b.txt", "byte 18 of the text"),
        ("a.jsonl", "line 2: not UTF-8 at byte 12"),
        ("a.jsonl.gz", "line 1: not UTF-8 at byte 12"),
        ("a.parquet", "at its byte 12"),
    ],
)
def test_malformed_utf8_is_an_error_with_its_place_or_replaced(file, place, tmp_path):
    bad_forms(tmp_path)
    options = {"separator": "--"} if file == "b.txt" else {}
    with pytest.raises(UserError, match="on_invalid_utf8=replace") as error:
        documents(tmp_path / file, **options)
    assert str(tmp_path / file) in str(error.value)
    assert place in str(error.value)
    assert documents(tmp_path / file, on_invalid_utf8="replace", **options)[-1] == REPLACED


def test_escaped_lone_surrogates_are_malformed_too(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a \\ud800 b"}\n')
    with pytest.raises(UserError, match=r"a\.jsonl: line 1: not UTF-8 at byte 2"):
        documents(tmp_path / "a.jsonl")
    assert documents(tmp_path / "a.jsonl", on_invalid_utf8="replace")[0].startswith("a \ufffd")


def test_buffers_are_checked():
    data = np.frombuffer("aé".encode(), np.uint8)
    batch = Batch.from_buffers(data, np.array([0, 1, 1, 3]))
    assert [batch.text(i) for i in range(len(batch))] == ["a", "", "é"]
    for offsets in ([0, 4], [-1, 1], [2, 1]):
        with pytest.raises(UserError, match="offsets of document 0 do not fit the buffer"):
            Batch.from_buffers(data, np.array(offsets))
    with pytest.raises(UserError, match="document 0 of the batch is not UTF-8 at its byte 1"):
        Batch.from_buffers(data, np.array([0, 2, 3]))
    replaced = Batch.from_buffers(data, np.array([0, 2, 3]), replace_invalid=True)
    assert [replaced.text(i) for i in range(2)] == ["a\ufffd", "\ufffd"]
    with pytest.raises(UserError, match="text 0 holds half a surrogate pair"):
        Batch.from_texts(["\ud800"])


def test_parquet_bytes_are_text_if_they_are_utf8(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array(["é".encode(), b"b"], pa.binary())}), path)
    assert documents(path) == ["é", "b"]
    pq.write_table(pa.table({"text": pa.array([b"fine", BAD], pa.binary())}), path)
    with pytest.raises(UserError, match=r"at its byte 12; set corpus.on_invalid_utf8=replace"):
        documents(path)
    assert documents(path, on_invalid_utf8="replace") == ["fine", REPLACED]


# Other errors.


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "needs either paths or a dataset"),
        ({"paths": ["x"], "dataset": "y"}, "needs either paths or a dataset"),
        ({"paths": ["no/such/file.txt"]}, "no/such/file.txt: no such file"),
        ({"paths": ["no/such/*.txt"]}, r"no/such/*.txt: no such file"),
        ({"paths": ["x"], "heldout_fraction": 1.0}, "heldout_fraction=1.0 is no share"),
        ({"paths": ["x"], "heldout_fraction": -0.1}, "heldout_fraction=-0.1 is no share"),
        ({"paths": ["x"], "on_invalid_utf8": "ignore"}, "on_invalid_utf8='ignore'; it is one of: error, replace"),
        ({"paths": ["x"], "score_field": "s"}, "score_field and min_score go together"),
        ({"paths": ["x"], "min_score": 0.0}, "score_field and min_score go together"),
        ({"paths": ["x"], "max_bytes": -1}, "max_bytes=-1"),
        ({"paths": ["x"], "min_document_bytes": -1}, "min_document_bytes=-1"),
        ({"paths": ["x"], "max_document_bytes": -1}, "max_document_bytes=-1"),
        ({"paths": ["x"], "batch_bytes": -1}, "batch_bytes=-1"),
        ({"paths": ["x"], "heldout_fraction": float("nan")}, "heldout_fraction=nan is no share"),
        ({"paths": ["x"], "format": "csv"}, "format='csv'; it is one of: txt, jsonl, parquet"),
    ],
)
def test_impossible_configurations_are_errors(config, message):
    with pytest.raises(UserError) as error:
        Corpus(CorpusConfig(**config))
    assert message in str(error.value)


def test_an_empty_directory_and_an_empty_corpus_are_errors(tmp_path):
    with pytest.raises(UserError, match=r"the directory holds no \.txt, \.jsonl or \.parquet file"):
        documents(tmp_path)
    for name, data in [
        ("a.txt", b""),
        ("a.jsonl", b"\n \n"),
        ("b.jsonl", b'{"text": ""}\n'),
        ("a.jsonl.gz", gzip.compress(b"")),
    ]:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UserError, match="the corpus is empty"):
            documents(tmp_path / name)
    write_parquet(tmp_path / "a.parquet", [{"text": ""}])
    with pytest.raises(UserError, match="the corpus is empty"):
        documents(tmp_path / "a.parquet")
    path = write_jsonl(tmp_path / "c.jsonl", [{"text": "short", "score": 1}])
    for options in ({"min_document_bytes": 6}, {"max_document_bytes": 4}, {"score_field": "score", "min_score": 2}):
        with pytest.raises(UserError, match="the corpus is empty"):
            documents(path, **options)


def test_nothing_held_out_is_an_error(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "one"}])
    with pytest.raises(UserError, match=r"no documents are held out; set corpus\.heldout_fraction"):
        documents(path, "heldout")
    with pytest.raises(UserError, match="of few documents perhaps none"):
        documents(path, "heldout", heldout_fraction=1e-9)


def test_a_wrong_field_is_an_error_that_lists_the_fields(tmp_path):
    records = [{"content": "a", "meta": {"language": "en"}}]
    (tmp_path / "hf").mkdir()
    write_jsonl(tmp_path / "hf" / "train.jsonl", records)
    forms = [
        {"paths": [str(write_jsonl(tmp_path / "a.jsonl", records))]},
        {"paths": [str(write_jsonl(tmp_path / "a.jsonl.zst", records))]},
        {"paths": [str(write_parquet(tmp_path / "a.parquet", records))]},
        {"dataset": str(tmp_path / "hf")},
    ]
    for form in forms:
        for field in ("text", "meta.text", "content.text"):
            with pytest.raises(UserError) as error:
                of(form, field=field)
            if field == "text":
                assert "(the fields are: content, meta)" in str(error.value)
        assert of(form, field="meta.language") == ["en"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"', "EOF"),
        ('{"text": "a"} x', "trailing"),
        ('["text"]', "an object"),
        ('"text"', "an object"),
        ('{"text": 3}', "a string"),
        ('{"text": ["a"]}', "a list"),
        ('{"text": {"a": "b"}}', "a string"),
        ("not json", "not a JSON object"),
    ],
)
def test_malformed_json_is_an_error_with_its_line(line, message, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n\n' + line + "\n")
    with pytest.raises(UserError, match=r"a\.jsonl: line 3: not a JSON object with a text field") as error:
        documents(tmp_path / "a.jsonl")
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet", "a.txt.gz"])
@pytest.mark.parametrize("data", [b"plain text, whatever the name says\n", b""])
def test_files_that_are_not_what_their_name_says_are_errors(name, data, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=name.replace(".", r"\.")):
        documents(tmp_path / name)


@pytest.mark.parametrize("name", [".jsonl.gz", ".jsonl.zst", ".parquet"])
def test_truncated_files_are_errors(name, sample, tmp_path):
    records = [{"text": text} for text in sample] * 3
    path = tmp_path / f"a{name}"
    write_parquet(path, records) if name == ".parquet" else write_jsonl(path, records)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UserError, match=r"a\."):
        documents(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_an_error(tmp_path):
    (tmp_path / "a.txt").write_text("secret")
    (tmp_path / "a.txt").chmod(0)
    with pytest.raises(UserError, match=r"a\.txt"):
        documents(tmp_path / "a.txt")


def test_a_file_that_vanished_is_an_error(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "one"}])
    corpus = Corpus(CorpusConfig(paths=[str(path)]))
    path.unlink()
    with pytest.raises(UserError, match=r"a\.jsonl"):
        list(corpus.documents())


def test_a_dataset_that_does_not_load_is_an_error(tmp_path):
    with pytest.raises(UserError, match="cannot be loaded"):
        of({"dataset": str(tmp_path / "nothing")})
    (tmp_path / "hf").mkdir()
    write_jsonl(tmp_path / "hf" / "train.jsonl", [{"text": "a"}])
    with pytest.raises(UserError, match="cannot be loaded"):
        of({"dataset": str(tmp_path / "hf")}, dataset_split="validation")
    write_jsonl(tmp_path / "hf" / "train.jsonl", [{"text": 3}])
    with pytest.raises(UserError, match="holds int, not text"):
        of({"dataset": str(tmp_path / "hf")})


# Identity.


def test_identity_depends_on_content_and_choice_not_on_batches(forms, tmp_path):
    form = forms[".jsonl"]
    identity = Corpus(CorpusConfig(**form)).identity()
    assert json.loads(json.dumps(identity)) == identity
    assert Corpus(CorpusConfig(**form, batch_bytes=10)).identity() == identity
    for option in ({"field": "x"}, {"max_bytes": 9}, {"heldout_fraction": 0.5}, {"min_document_bytes": 3}):
        assert Corpus(CorpusConfig(**form, **option)).identity() != identity
    path = write_jsonl(tmp_path / "c.jsonl", [{"text": "a"}])
    before = Corpus(CorpusConfig(paths=[str(path)])).identity()
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    write_jsonl(path, [{"text": "b"}])
    os.utime(path, ns=times)
    assert Corpus(CorpusConfig(paths=[str(path)])).identity() != before


def test_reading_can_stop_early(forms):
    iterator = Corpus(CorpusConfig(**forms[".jsonl"], batch_bytes=1)).batches()
    assert len(next(iterator)) == 1
    iterator.close()


def test_a_byte_order_mark_before_json_lines_is_no_text(tmp_path):
    path = tmp_path / "marked.JSONL"
    path.write_bytes(b'\xef\xbb\xbf{"text": "hi"}\n')
    assert list(Corpus(CorpusConfig(paths=[str(path)])).documents("all")) == ["hi"]


def test_held_out_files_go_before_a_fraction(tmp_path):
    for name in ("train", "heldout"):
        (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"text": "{name} {i}"}}\n' for i in range(50)))
    config = CorpusConfig(
        paths=[str(tmp_path / "train.jsonl")], heldout_paths=[str(tmp_path / "heldout.jsonl")], heldout_fraction=0.5
    )
    for split in ("train", "heldout"):
        assert list(Corpus(config).documents(split)) == [f"{split} {i}" for i in range(50)]


def test_a_file_counts_once_whatever_it_is_called(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    monkeypatch.chdir(tmp_path)
    twice = CorpusConfig(paths=["a.jsonl", str(tmp_path / "a.jsonl")])
    assert list(Corpus(twice).documents("train")) == ["one"]
    with pytest.raises(UserError, match="a file is one or the other"):
        Corpus(CorpusConfig(paths=["a.jsonl"], heldout_paths=[str(tmp_path / "a.jsonl")]))


def test_a_dataset_beside_held_out_files(tmp_path):
    import datasets

    folder = str(tmp_path / "saved")
    datasets.Dataset.from_dict({"text": ["train 1", "train 2"]}).save_to_disk(folder)
    (tmp_path / "heldout.jsonl").write_text('{"text": "heldout"}\n')
    corpus = Corpus(CorpusConfig(dataset=folder, heldout_paths=[str(tmp_path / "heldout.jsonl")]))
    assert list(corpus.documents("train")) == ["train 1", "train 2"]
    assert list(corpus.documents("heldout")) == ["heldout"]
    assert list(corpus.documents("all")) == ["train 1", "train 2", "heldout"]


def test_another_dataset_of_the_same_name_has_another_identity(tmp_path):
    import shutil

    import datasets

    folder = str(tmp_path / "saved")
    identities = []
    for texts_ in (["a"], ["b"]):
        shutil.rmtree(folder, ignore_errors=True)
        datasets.Dataset.from_dict({"text": texts_}).save_to_disk(folder)
        identities.append(Corpus(CorpusConfig(dataset=folder)).identity())
    assert identities[0] != identities[1]


def test_a_separator_may_be_written_with_escapes(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo")
    config = CorpusConfig(paths=[str(tmp_path / "a.txt")], separator="\\n\\n")
    assert list(Corpus(config).documents("all")) == ["one", "two"]


def test_the_sample_is_independent_of_the_held_out_split():
    documents_ = [f"document {i}" for i in range(4000)]

    def keep(**options):
        return _native.DocumentFilter(split="train", heldout_fraction=0.25, **options)

    train, _ = keep(sample_fraction=1.0, sample_salt="").apply(_native.Batch.from_texts(documents_))
    sampled, _ = keep(sample_fraction=0.25, sample_salt="").apply(_native.Batch.from_texts(documents_))
    assert 0.2 < len(sampled) / len(train) < 0.3


def test_a_sample_takes_its_share_of_every_file_and_leaves_the_held_out_documents(tmp_path):
    texts_ = {name: [{"text": f"{name} {i}"} for i in range(1000)] for name in ("en", "de")}
    paths = [write_jsonl(tmp_path / f"{name}.jsonl", records) for name, records in texts_.items()]
    whole = documents(paths, heldout_fraction=0.2)
    part = documents(paths, heldout_fraction=0.2, sample=0.25)
    assert set(part) < set(whole)
    for name in ("en", "de"):
        count = [sum(text.startswith(name) for text in taken) for taken in (whole, part)]
        assert count[1] == pytest.approx(count[0] / 4, rel=0.2)
    assert documents(paths, "heldout", heldout_fraction=0.2, sample=0.25) == documents(
        paths, "heldout", heldout_fraction=0.2
    )
    assert documents(paths, heldout_fraction=0.2, sample=0.25, sample_salt="x") != part
    with pytest.raises(UserError, match="sample=0 is no share"):
        documents(paths, sample=0)


def test_one_path_must_be_a_list():
    with pytest.raises(UserError, match=r"paths='a\.jsonl' is one string; paths is a list"):
        Corpus(CorpusConfig(paths="a.jsonl"))


def test_a_damaged_parquet_page_is_a_users_error(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", [{"text": f"some text {i}" * 50} for i in range(500)])
    content = bytearray(path.read_bytes())
    content[100:200] = b"\xff" * 100
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.parquet: damaged Parquet file: .*fetch or write it again"):
        documents(path)


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz"])
def test_a_file_that_ends_too_soon_says_what_to_do(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(gzip.compress(b'{"text": "%s"}' % bytes(range(97, 123)) * 1000)[:-30])
    with pytest.raises(UserError, match=r"may be damaged or incomplete; fetch or write it again"):
        documents(path)


def test_parts_of_text_without_word_ends_take_linear_time(tmp_path):
    """Once it took minutes: all that was read was searched again after every read."""
    path = tmp_path / "long.txt.gz"
    path.write_bytes(gzip.compress("中文".encode() * 4_000_000, compresslevel=1))
    corpus = Corpus(CorpusConfig(paths=[str(path)]))
    (batch,) = corpus.batches("train", parts=True)
    assert batch.n_bytes == 24_000_000
