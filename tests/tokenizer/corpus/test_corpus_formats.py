"""Contents of files: text with separators, JSON lines, Parquet, malformed UTF-8."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.properties import quick_first
from tests.tokenizer.corpus.corpora import READ_BUFFER, documents, of, write_jsonl, write_parquet
from tokenizer import Batch, Corpus, CorpusConfig, UserError
from tokenizer.corpus.texts import batches


def form_of(name, records, folder):
    """The settings for records in a file of JSON lines, a Parquet file or a dataset."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    (write_parquet if name.endswith("parquet") else write_jsonl)(path, records)
    return {"dataset": str(path.parent)} if "/" in name else {"paths": [str(path)]}


FILES = ["a.jsonl", "a.parquet", "hf/train.jsonl"]


@pytest.mark.parametrize(
    ("separator", "compress"),
    [("\n\n", gzip.compress), ("<|endoftext|>", None), ("é", zstandard.compress), ("\n\n\n---\n", None)],
)
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


@pytest.mark.parametrize("gap", ["", "\n"])
def test_batches_of_empty_documents_are_bounded(gap, tmp_path):
    n = 1_500_000
    (tmp_path / "a.txt").write_bytes(f"{gap}--".encode() * n)
    config = CorpusConfig(paths=[str(tmp_path / "a.txt")], separator="--", min_document_bytes=0)
    sizes = [len(batch) for batch in Corpus(config).batches()]
    assert max(sizes) < n / 2
    assert sum(sizes) in (n, n + 1)


def test_text_between_separators_is_left_as_it_is(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"---one---\n---- two\r\n---")
    # Empty documents are below min_document_bytes.
    assert documents(path, separator="---") == ["one", "\n", "- two\r\n"]
    assert documents(path, separator="---", min_document_bytes=0) == ["", "one", "\n", "- two\r\n", ""]
    assert documents(path) == ["---one---\n---- two\r\n---"]
    assert documents(path, separator="absent") == ["---one---\n---- two\r\n---"]
    assert documents(path, separator="\\n") == ["---one---", "---- two\r", "---"]  # written with an escape


def test_jsonl_reads_what_json_allows(tmp_path):
    lines = [
        '{"text": "a\\u00e9\\ud83d\\ude42\\n", "other": [1, {"text": "no"}]}',
        "   ",
        ' { "meta" : {"text": "no"} , "text" : "b" } \r',
        '{"text": null}',
        '{"text": "c", "n": -1.5e3}',
        '{"te\\u0078t": "d"}',
        '{"text": "a", "text": "e"}',  # the last value counts
        '{"text": "a raw\ttab"}',  # against the letter of JSON; nothing is lost
        '{"text": "last line without its end"}',
    ]
    path = tmp_path / "a.JSONL"
    path.write_bytes(b"\xef\xbb\xbf" + "\n".join(lines).encode())  # a byte order mark is not text
    assert documents(path) == ["aé🙂\n", "b", "c", "d", "e", "a raw\ttab", "last line without its end"]


@pytest.mark.parametrize("name", FILES)
def test_dotted_fields_and_scores(name, tmp_path):
    rows = [("high", 0.9), ("low", 0.1), ("whole", 1), ("none", None), (None, 0.9), ("edge", 0.5)]
    records = [{"doc": {"id": 7, "more": {"body": body, "score": score}}, "text": "no"} for body, score in rows]
    form = form_of(name, records, tmp_path)
    assert of(form, field="doc.more.body") == ["high", "low", "whole", "none", "edge"]
    scored = of(form, field="doc.more.body", score_field="doc.more.score", min_score=0.5)
    assert scored == ["high", "whole", "edge"]
    assert of(form, field="doc.more.body", min_document_bytes=0)[4] == ""
    if name != "a.jsonl":  # a name with dots is a name if it exists
        assert of(form_of(name, [{"doc.text": "a"}], tmp_path), field="doc.text") == ["a"]


@pytest.mark.parametrize("name", FILES)
def test_null_on_the_way_to_a_field_is_null(name, tmp_path):
    """As json and Parquet have it: no score leaves a document out, no text leaves it empty."""
    records = [{"text": "a", "meta": {"score": 2, "t": "x"}}, {"text": "b", "meta": None}]
    form = form_of(name, records, tmp_path)
    assert of(form, score_field="meta.score", min_score=1) == ["a"]
    assert of(form, field="meta.t", min_document_bytes=0) == ["x", ""]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("record", "options", "message"),
    [
        *(({"text": value}, {}, "text") for value in (3, 2.5, True, ["a"])),
        *(({"text": "a", "score": value}, {"score_field": "score"}, "number") for value in (True, "0.9", [1.0])),
        ({"parts": [{"text": "a"}]}, {"field": "parts.text"}, ""),
    ],
)
def test_fields_of_another_type_are_errors(name, record, options, message, tmp_path):
    options = options | ({"min_score": 0.5} if "score_field" in options else {})
    with pytest.raises(UserError, match=message) as error:
        of(form_of(name, [record], tmp_path), **options)
    assert "kernel" not in str(error.value)
    assert "damaged Parquet" not in str(error.value)


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
    path = write_parquet(tmp_path / "b.parquet", [{"text": "a", "score": float("nan")}, {"text": "b", "score": 2.0}])
    assert documents(path, score_field="score", min_score=0.5) == ["b"]


@pytest.mark.parametrize(
    ("encoding", "version"), [("PLAIN", "2.0"), ("DELTA_LENGTH_BYTE_ARRAY", "1.0"), ("DELTA_BYTE_ARRAY", "2.0")]
)
def test_parquet_text_in_every_encoding(encoding, version, tmp_path):
    texts = [f"text {i} " * (i % 9 + 1) for i in range(3000)]
    options = {"use_dictionary": False, "column_encoding": {"text": encoding}, "data_page_version": version}
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=1000, **options)
    assert documents(tmp_path / "a.parquet") == texts


@pytest.mark.parametrize("n", [1, 1000])
@pytest.mark.parametrize("name", quick_first(["a.jsonl", "a.parquet", "a.csv", "hf/train.jsonl", "a.json"], 3))
def test_a_misspelt_score_field_is_named(name, n, tmp_path):
    records = [{"text": "a", "score": 1}] * n
    form = form_of(name, records, tmp_path)
    if name == "a.json":
        (tmp_path / name).write_text(json.dumps(records))
    elif name == "a.csv":
        (tmp_path / name).write_text("text,score\n" + "a,1\n" * n)
    message = (
        r"score_field: no field 'scoer'.*the fields are: text, score\)|none passes.*score_field=scoer.*check its name"
    )
    with pytest.raises(UserError, match=message):
        of(form, score_field="scoer", min_score=0.5)
    assert of(form, score_field="score", min_score=0.5) == ["a"] * n


def test_a_column_of_a_data_frame_may_hold_dictionaries():
    frame = pytest.importorskip("pandas").DataFrame({"meta": [{"id": 1, "text": "one"}, {"id": 2, "text": "two"}]})
    assert next(batches(frame, field="meta.text")).text(1) == "two"
    with pytest.raises(UserError, match=r"no field 'meta\.txt' \(the fields are: id, text\)"):
        list(batches(frame, field="meta.txt"))


def test_a_limit_of_pyarrow_is_not_called_damage(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "a.parquet", [{"text": "a"}])

    def read(*_, **__):
        raise OSError("Not yet implemented: Unsupported encoding.")

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", read)
    message = r"a\.parquet: pyarrow [\d.]+ cannot read this file: Not yet implemented"
    with pytest.raises(UserError, match=message) as error:
        documents(path)
    assert "damaged" not in str(error.value)


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


def test_buffers_are_checked():
    data = np.frombuffer("aé".encode(), np.uint8)
    batch = Batch.from_buffers(data, np.array([0, 1, 1, 3]))
    assert [batch.text(i) for i in range(len(batch))] == ["a", "", "é"]
    for offsets in ([0, 4], [-1, 1], [2, 1]):
        with pytest.raises(UserError, match="offsets of document 0 do not fit the buffer"):
            Batch.from_buffers(data, np.array(offsets))
    with pytest.raises(UserError, match=r"document 0 .*UTF-8.* byte 1"):
        Batch.from_buffers(data, np.array([0, 2, 3]))
    replaced = Batch.from_buffers(data, np.array([0, 2, 3]), replace_invalid=True)
    assert [replaced.text(i) for i in range(2)] == ["a\ufffd", "\ufffd"]


def test_parquet_bytes_are_text_if_they_are_utf8(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array(["é".encode(), b"b"], pa.binary())}), path)
    assert documents(path) == ["é", "b"]
    pq.write_table(pa.table({"text": pa.array([b"fine", BAD], pa.binary())}), path)
    with pytest.raises(UserError, match=r"at its byte 12; set on_invalid_utf8=replace"):
        documents(path)
    assert documents(path, on_invalid_utf8="replace") == ["fine", REPLACED]


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.json", "a.jsonl"])
def test_padding_and_long_windows_are_read_in_every_format(name, tmp_path):
    content = {"a.txt": b"one", "a.csv": b"text\none", "a.json": b'[{"text": "one"}]', "a.jsonl": b'{"text": "one"}'}
    compressor = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=28))
    path = tmp_path / f"{name}.zst"
    with path.open("wb") as file, compressor.stream_writer(file) as writer:  # as `zstd --long=28` writes it
        writer.write(content[name])
    assert documents(path) == ["one"]
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content[name]) + bytes(5000))
    assert documents(tmp_path / f"{name}.gz") == ["one"]


@pytest.mark.parametrize(("encoding", "nested"), [("dictionary", True), ("delta", False), ("skewed", True)])
def test_parquet_batches_are_bounded_by_decoded_text(encoding, nested, tmp_path):
    long, n = "a page that a crawler saw again. " * 8000, 40
    column = pa.array([""] * 100_000 + [long] * n if encoding == "skewed" else [long] * n)
    name = "doc.text" if nested else "text"
    table = pa.table({"doc": pa.StructArray.from_arrays([column], ["text"])} if nested else {"text": column})
    options = {"use_dictionary": False, "column_encoding": {name: "DELTA_BYTE_ARRAY"}} if encoding == "delta" else {}
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd", **options)
    config = CorpusConfig(paths=[str(tmp_path / "a.parquet")], field=name)
    sizes = [batch.n_bytes for batch in Corpus(config).batches()]
    assert sum(sizes) == n * len(long)
    assert max(sizes) <= 5 * config.batch_bytes
