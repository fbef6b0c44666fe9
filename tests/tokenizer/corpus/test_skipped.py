"""Damaged data with on_error=skip: everything else is read, and what is missing is listed."""

import csv
import json
import random
import re
import subprocess
import sys
import time
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.properties import quick_first
from tests.tokenizer.corpus.corpora import documents, write_jsonl, write_parquet
from tokenizer import Corpus, CorpusConfig, UserError, count_pretokens
from tokenizer.corpus.origins import documents_by_origin
from tokenizer.files import read_json

pytestmark = pytest.mark.filterwarnings("ignore:.*damaged records")
GOOD = [f"good document {i}" for i in range(5)]


def skipping(*paths, **options):
    """The documents, and what was skipped."""
    corpus = Corpus(CorpusConfig(paths=list(map(str, paths)), on_error="skip", **options))
    return list(corpus.documents()), corpus.skipped.summary()


def lines(*broken):
    return b"".join(line + b"\n" for line in [*(json.dumps({"text": text}).encode() for text in GOOD), *broken])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"text": "a"', "expected `}`"),
        (b'{"text": "a"} x', "trailing"),
        (b'["text"]', "expected `{`"),
        (b'"text"', "expected `{`"),
        (b"not json", "not a JSON object with a text field"),
        (b'{"body": "a"}', 'no field "text" (the fields are: body)'),
        (b'{"text": 3}', "a string"),
        (b'{"text": ["a"]}', "a list"),
        (b'{"text": {"a": "b"}}', "a string"),
        (b'{"text": "a\xff"}', "not UTF-8 at byte 1"),
    ],
)
def test_a_damaged_line_is_an_error_or_skipped_and_listed(line, why, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(b"", line, b'{"text": "last"}'))
    with pytest.raises(UserError, match=r"a\.jsonl: line 7: ") as error:
        documents(path)
    assert why in str(error.value)
    message = "1 damaged records or rests of files skipped in 1 files, such as .*line 7: "
    with pytest.warns(UserWarning, match=message) as warned:
        texts, skipped = skipping(path)
    assert len(warned) == 1
    assert texts == [*GOOD, "last"]
    assert (skipped["count"], skipped["files"]) == (1, {str(path): 1})
    assert skipped["places"][0].startswith(f"{path}: line 7: ")
    assert why in skipped["places"][0]
    assert "skip" not in skipped["places"][0]


@pytest.mark.parametrize("suffix", ["gz", "zst"])
@pytest.mark.parametrize("name", ["b.jsonl", "b.txt"])
def test_a_truncated_file_is_read_up_to_the_damage(suffix, name, tmp_path):
    records = [{"text": f"{i} " * 300} for i in range(5000)]
    path = write_jsonl(tmp_path / f"{name}.{suffix}", records)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    write_jsonl(tmp_path / "a.jsonl", [{"text": "before"}])
    write_jsonl(tmp_path / "c.jsonl", [{"text": "after"}])
    texts, skipped = skipping(tmp_path)
    assert (texts[0], texts[-1]) == ("before", "after")
    assert skipped["files"] == {str(path): 1}
    assert "cannot be read to its end" in skipped["places"][0]
    if name == "b.jsonl":
        assert texts[1:-1] == [record["text"] for record in records[: len(texts) - 2]]
        assert len(texts) > 1000
    else:
        assert len(texts) == 2  # one document, which is incomplete
        assert len(skipping(path, separator="\n")[0]) > 1000


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet", "a.txt.gz"])
@pytest.mark.parametrize("data", [b"plain text, whatever the name says\n", b""])
def test_a_file_of_another_kind_is_an_error_or_skipped_as_a_whole(name, data, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=re.escape(name)):
        documents(tmp_path / name)
    write_jsonl(tmp_path / "b.jsonl", [{"text": "after"}])
    texts, skipped = skipping(tmp_path)
    assert (texts, skipped["files"]) == (["after"], {str(tmp_path / name): 1})


def test_parquet_files_without_the_field_or_with_another_type_are_skipped(tmp_path):
    write_parquet(tmp_path / "a.parquet", [{"body": "x"}] * 3)
    write_parquet(tmp_path / "b.parquet", [{"text": 1}] * 4)
    write_parquet(tmp_path / "c.parquet", [{"text": text} for text in GOOD])
    texts, skipped = skipping(tmp_path)
    assert texts == GOOD
    assert skipped["files"] == {str(tmp_path / "a.parquet"): 3, str(tmp_path / "b.parquet"): 4}
    assert "rows 0 to 2: no field 'text' (the fields are: body)" in skipped["places"][0]


def test_rows_and_row_groups_of_parquet_are_skipped(tmp_path):
    values = [b"one", b"bad \xff", None, b"four", b"bad \xfe", *[b"%d" % i * 200 for i in range(1000)]]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array(values, pa.binary())}), path, row_group_size=500, use_dictionary=False)
    texts, skipped = skipping(path)
    assert texts == [value.decode() for value in values if value and not value.startswith(b"bad")]
    assert skipped["places"] == [f"{path}: row 1: not UTF-8", f"{path}: row 2: null", f"{path}: row 4: not UTF-8"]
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset : column.data_page_offset + 60] = b"\xff" * 60
    path.write_bytes(content)
    texts, skipped = skipping(path)
    assert texts == [value.decode() for value in [*values[:500], *values[1000:]] if value and value[:3] != b"bad"]
    assert skipped["count"] == 503
    assert "rows 500 to 999: damaged Parquet file" in skipped["places"][3]


def test_limits_and_missing_files_remain_errors(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "x" * 100}])
    with pytest.raises(UserError, match="document_limit_bytes"):
        skipping(path, document_limit_bytes=50)
    with pytest.raises(UserError, match="no such file"):
        skipping(tmp_path / "none.jsonl")


def test_reasons_for_an_empty_corpus_are_true(tmp_path):
    """Skipped documents are neither empty nor absent."""
    (tmp_path / "a.jsonl").write_text("damaged\n" * 3)
    with pytest.raises(UserError, match=r"corpus is empty.*; 3 damaged records .*a\.jsonl: line 1: not a JSON"):
        skipping(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_text('{"text": ""}\n')
    with pytest.raises(UserError, match="contains text"):
        skipping(tmp_path / "b.jsonl")
    (tmp_path / "c.jsonl").write_bytes(lines(b"damaged"))
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path / "c.jsonl")], on_error="skip", heldout_fraction=1e-9))
    with pytest.raises(UserError, match=r"no document of /\S*/c\.jsonl is held out: heldout_fraction=1e-09"):
        list(corpus.documents("heldout"))
    with pytest.raises(UserError, match="none passes min_document_bytes=1000"):
        skipping(tmp_path / "c.jsonl", min_document_bytes=1000)


def _parts(corpus):
    parts = corpus.parts("train", 50)
    assert len(parts) > 1
    for part in parts:
        list(part.batches())
    corpus.skipped.update(*(part.skipped.so_far() for part in parts))
    corpus.skipped.report()


@pytest.mark.parametrize("read", [lambda corpus: list(documents_by_origin(corpus, "all")), _parts])
def test_every_way_to_read_reports_what_it_skipped_once(read, tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(lines(b"damaged"))
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path)], on_error="skip"))
    with pytest.warns(UserWarning, match="2 damaged records") as warned:
        read(corpus)
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(corpus.batches())


def test_places_are_limited_and_a_file_read_again_counts_once(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines(*[b"damaged"] * 50))
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path)], on_error="skip", min_document_bytes=0))
    for _ in range(2):
        assert count_pretokens(corpus, "gpt2", threads=2).n_documents == 5
        skipped = corpus.skipped.summary()
        assert (skipped["count"], len(skipped["places"])) == (50, 20)
    (tmp_path / "a.jsonl").write_bytes(lines())
    assert skipping(tmp_path)[1] == {}


def test_sources_stay_aligned_with_the_documents(tmp_path):
    """A line may be damaged in one field only."""
    rows = [
        b'{"text": "a", "from": "A", "score": 1}',
        b'{"text": 3, "from": "B", "score": 1}',
        b'{"text": "c", "from": 4, "score": 1}',
        b'{"text": 3, "from": "D", "score": 0}',
        b'{"text": "e", "from": "E", "score": 1}',
        b'{"text": "e", "score": 1}',
        b'{"text": "f", "from": "F", "score": 1}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(rows))
    options = {"source_field": "from", "score_field": "score", "min_score": 1, "on_error": "skip"}
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path)], **options))
    found = list(documents_by_origin(corpus, "all"))
    assert found == [("A", "a"), ("unknown", "c"), ("E", "e"), ("unknown", "e"), ("F", "f")]


def test_records_of_a_dataset_are_skipped(tmp_path):
    import datasets

    datasets.Dataset.from_list([{"text": "a"}, {"text": None}, {"text": "b"}]).save_to_disk(tmp_path / "d")
    corpus = Corpus(CorpusConfig(dataset=str(tmp_path / "d"), on_error="skip", field="text"))
    assert list(corpus.documents()) == ["a", "b"]
    datasets.Dataset.from_list([{"text": 1}, {"text": 2}]).save_to_disk(tmp_path / "e")
    corpus = Corpus(CorpusConfig(dataset=str(tmp_path / "e"), on_error="skip"))
    with pytest.raises(UserError, match="the corpus is empty"):
        list(corpus.documents())
    assert corpus.skipped.count == 2


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_damage_before_the_end_of_a_budget_is_listed(kind, tmp_path):
    path = tmp_path / f"a.{kind}"
    if kind == "jsonl":
        path.write_bytes(b"not json\n" + lines() * 50)
    else:
        column = pa.array([b"\xff", *(text.encode() for text in GOOD * 50)], pa.binary())
        pq.write_table(pa.table({"text": column}), path, row_group_size=2)
    texts, skipped = skipping(path, max_bytes=40)
    assert len(texts) < 10
    assert skipped["count"] == 1


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_damage_that_was_only_read_ahead_is_not_listed(kind, tmp_path):
    if kind == "jsonl":
        write_jsonl(tmp_path / "a.jsonl", [{"text": text} for text in GOOD[:3]])
        (tmp_path / "b.jsonl").write_bytes(b"damaged\n")
    else:
        column = pa.array([*(text.encode() for text in GOOD[:3]), b"\xff"], pa.binary())
        pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet", row_group_size=1)
    config = {"max_bytes": len("".join(GOOD[:2])), "batch_bytes": 1, "on_error": "skip"}
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path)], **config))
    batches = corpus.batches()
    next(batches)
    time.sleep(0.2)  # the reader gets ahead
    assert len(list(batches)) == 1
    assert corpus.skipped.summary() == {}


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.json", '[{"text": "one"}, {"other": 1}, {"text": 3}]', "record 1 has no field 'text'"),
        ("a.json", '[{"text": "one"', "cannot be read to its end"),
        ("a.json", '[{"text": "one"}, {"text": "\xff", "other": 1}]', "record 1: not UTF-8"),
        ("a.json", '[{"text": "one"}, {"text": "\\ud83d", "other": 1}]', r"record 1: not UTF-8 .*surrogate"),
        ("a.csv", "text,id\none,1\n\xff,2\nother,3", "record 1: not UTF-8"),
        (
            "a.csv",
            "id,text\n1,one\n2,hello, world\n3,other",
            r"line 3: 3 fields, but the header has 2; put .* in quotes",
        ),
        ("a.tsv", "id\ttext\n1\tone\n2\n3\tother", r"line 3: 1 fields, but the header has 2; put .* in quotes"),
        (
            "a.csv",
            'id,text\n1,one\n2,"a\n3,other\n',
            "line 3, column 3: the quoted field that starts here is not closed",
        ),
        ("a.csv", 'id,text\n1,one\n2,"a "b" c"\n3,other', r'line 3, column 6: a quote .* must be doubled \(""\)$'),
        (
            "a.csv",
            r'id,text*1,one*2,"a \"b\" c"*3,other'.replace("*", "\n"),
            "line 3, column 7: .*, not escaped with a backslash",
        ),
        ("a.csv", "body,id\none,1\n", r"record 0 has no field 'text' \(the fields are: body, id\)"),
        ("a.csv.gz", "no gzip", "cannot be read to its end"),
        ("a.arrow", "no dataset", "cannot be read to its end"),
    ],
)
def test_damage_in_tables_is_an_error_or_skipped_and_listed(name, content, why, tmp_path):
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=rf"{re.escape(name)}: {why}"):
        documents(tmp_path / name)
    write_jsonl(tmp_path / "b.jsonl", [{"text": "after"}])
    texts, skipped = skipping(tmp_path / name, tmp_path / "b.jsonl")
    assert texts[-1] == "after"
    assert texts[0] == ("one" if "other" in content else "after")
    if name in ("a.csv", "a.tsv"):
        assert texts[1:-1] == ["other"] * ("other" in content)
    assert re.search(why, skipped["places"][0])


@pytest.mark.parametrize(("name", "lines"), quick_first([("a.csv", 1), ("a.tsv", 3), ("a.csv", 3)]))
def test_one_wrong_byte_costs_one_row(name, lines, tmp_path):
    """No other row is lost if rows have one line. With more, the lines of a text that lost its quote may be rows."""
    rng, delimiter = random.Random(lines), "\t" if name == "a.tsv" else ","
    words = ["river", "stone", "x, y", 'the "word"', "a\\", "tab\there", "é"]
    texts = ["\n".join(f"{rng.choice(words)} {i} {rng.choice(words)}" for _ in range(lines)) for i in range(60)]
    with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([("id", "text"), *enumerate(texts)])
    content = (tmp_path / name).read_bytes()
    assert documents(tmp_path / name) == texts
    for _ in range(30):
        at = rng.randrange(content.index(b"\n") + 1, len(content) - 2)
        wrong = rng.choice([b"\xff", b'"', b",", b"\t", b"x", b""])
        (tmp_path / name).write_bytes(content[:at] + wrong + content[at + 1 :])
        found, skipped = skipping(tmp_path / name)
        assert len(set(found) - set(texts)) <= lines, (at, wrong)  # the text with the byte
        if lines == 1:
            assert len(set(texts) - set(found)) <= 2, (at, wrong)  # two, if the byte is the end of the line
        assert len(found) == len(texts) or skipped["count"], (at, wrong)
    for end in rng.sample(range(len(content) // 2, len(content)), 15):  # a download that was cut
        (tmp_path / name).write_bytes(content[:end])
        found, _ = skipping(tmp_path / name)
        assert found[: len(found) - 1] == texts[: len(found) - 1], end
        assert texts[len(found) - 1].startswith(found[-1]), end


def test_rows_after_a_misplaced_quote_are_read_although_texts_have_lines(tmp_path):
    (tmp_path / "a.csv").write_text('id,text\n1,"a\nb"\n2,"x" y\n3,ok\n4,fine\n')
    texts, skipped = skipping(tmp_path / "a.csv")
    assert texts == ["a\nb", "ok", "fine"]
    assert skipped["count"] == 1


def test_null_texts_are_named_by_their_rows_if_a_score_leaves_out_others(tmp_path):
    rows = [{"text": text, "score": i // 2} for i, text in enumerate(["a", None, "c", None])]
    path = write_parquet(tmp_path / "a.parquet", rows)
    corpus = Corpus(CorpusConfig(paths=[str(path)], score_field="score", min_score=0.5))
    with pytest.warns(UserWarning, match="row 3: null"):
        assert list(corpus.documents()) == ["c"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.parquet", "hf/train.jsonl"])
def test_texts_that_are_null_are_counted(name, tmp_path):
    path, records = tmp_path / name, [{"text": text, "source": None} for text in ("one", None, "", "four", None)]
    path.parent.mkdir(exist_ok=True)
    if name == "a.json":
        path.write_text(json.dumps(records))
    else:
        (write_parquet if name == "a.parquet" else write_jsonl)(path, records)
    where = {"dataset": str(path.parent)} if "/" in name else {"paths": [str(path)]}
    corpus = Corpus(CorpusConfig(**where, source_field="source"))
    with pytest.warns(UserWarning, match="2 damaged records .*null"):
        assert list(corpus.documents()) == ["one", "four"]
    assert corpus.skipped.summary()["count"] == 2
    assert [origin for origin, _ in documents_by_origin(corpus, "train")] == ["unknown"] * 2  # of a null source
    assert corpus.skipped.summary()["count"] == 2


def test_a_lack_of_memory_is_not_damage(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "a.parquet", [{"text": "a"}])

    def read(*_, **__):
        raise pa.ArrowMemoryError("malloc of size 64424509440 failed")

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", read)
    with pytest.raises(UserError, match=r"a\.parquet: malloc of size .*; free memory"):
        skipping(path)
    with (tmp_path / "sparse.json").open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(UserError, match="has 4,398,046,511,104 bytes, which do not fit into memory"):
        read_json(tmp_path / "sparse.json")


def test_scores_of_csv_are_numbers_and_long_arrays_are_an_error(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tscore\nlow\t0.1\nhigh\t0.9\nnone\t\n")
    assert documents(tmp_path / "a.tsv", score_field="score", min_score=0.5) == ["high"]
    (tmp_path / "a.json").write_text(json.dumps([{"text": "x" * 90}]))
    with pytest.raises(UserError, match=r"a\.json: the JSON array has .*document_limit_bytes=50"):
        skipping(tmp_path / "a.json", document_limit_bytes=50)


def test_a_lack_of_memory_to_decompress_is_not_damage(tmp_path):
    """A frame with a window of 2 GiB, and its one block, which is stored as it is."""
    line = b'{"text": "a"}\n'
    header, size = b"\x28\xb5\x2f\xfd\x00\xa8", (len(line) << 3 | 1).to_bytes(3, "little")
    (tmp_path / "a.jsonl.zst").write_bytes(header + size + line)
    program = """if True:
        import resource, sys
        from tokenizer import Corpus, CorpusConfig, UserError
        corpus = Corpus(CorpusConfig(paths=sys.argv[1:], on_error="skip"))
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
        try:
            list(corpus.documents())
        except UserError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "a.jsonl.zst"], capture_output=True, text=True)
    assert "a.jsonl.zst: cannot be decompressed (Allocation error : not enough memory): free memory" in done.stdout
