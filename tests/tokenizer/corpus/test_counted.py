"""Texts with counts train the tokenizer that the text trains; wrong counts are named."""

import csv
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import texts
from tokenizer import Corpus, CorpusConfig, UserError, count_pretokens, train_bpe
from tokenizer.train.counting import read_counts

DOCUMENTS = (
    [text[:2000] for text in texts.english()[0][:4]] + list(texts.SCRIPTS.values()) + ["", "can't 12345\n \n x"] * 9
)
FORMS = ("parquet", "csv", "tsv", "jsonl", "json")


def rows(counts):
    return [{"text": pretoken.decode(), "count": count} for pretoken, count in counts.items()]


def write(folder, form, records, kind=None):
    path = folder / f"words.{form}"
    if form == "parquet":
        of_counts = pa.array([record["count"] for record in records], kind)
        pq.write_table(pa.table({"text": [record["text"] for record in records], "count": of_counts}), path)
    elif form in ("csv", "tsv"):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, records[0], delimiter="," if form == "csv" else "\t")
            writer.writeheader()
            writer.writerows(records)
    else:
        path.write_text(json.dumps(records) if form == "json" else "\n\n".join(map(json.dumps, records)))
    return path


def read(*paths, pattern=None, **options):
    return read_counts(Corpus(CorpusConfig(paths=list(map(str, paths)))), pattern, **options)


@pytest.mark.parametrize("unit", ["document", "line"])
@pytest.mark.parametrize("pattern", ["o200k", "gpt2", "superbpe", "none"])
def test_counts_give_the_merges_of_their_text(pattern, unit):
    counts = count_pretokens(DOCUMENTS, pattern, unit=unit)
    expected = train_bpe(counts, 400)
    for given in (dict(counts.items()), {pretoken.decode(): np.int64(count) for pretoken, count in counts.items()}):
        for options in ({}, {"pretokenized": True}):
            assert train_bpe(given, 400, pattern=pattern, unit=unit, **options) == expected
        assert dict(count_pretokens(given, pattern, pretokenized=True).items()) == dict(counts.items())


def test_counts_of_documents_are_counts_of_their_text():
    assert count_pretokens(Counter(DOCUMENTS), "o200k") == count_pretokens(
        [text for text in DOCUMENTS if text], "o200k"
    )
    start = train_bpe(DOCUMENTS, 300, pattern="llama3", special_tokens=["<s>"])
    assert train_bpe(Counter(DOCUMENTS), 350, start=start) == train_bpe(DOCUMENTS, 350, start=start)


def test_pretokens_are_not_cut():
    given = {"a b<|endoftext|>": 3, "a b": 2**62}
    assert dict(count_pretokens(given, "o200k", pretokenized=True).items()) == {k.encode(): v for k, v in given.items()}
    assert dict(count_pretokens(given, "o200k").items()) == {b"a": 2**62 + 3, b" b": 2**62 + 3}


@pytest.mark.parametrize("form", FORMS)
def test_files_of_counts_are_read_and_added_to_saved_ones(form, tmp_path):
    counts = count_pretokens(DOCUMENTS, "superbpe", unit="line")
    path = write(tmp_path, form, [*rows(counts), {"text": "zero", "count": 0}, *rows(counts)])
    twice = {pretoken: 2 * count for pretoken, count in counts.items()}
    assert dict(read(path, pattern="superbpe", unit="line").items()) == twice
    counts.save(tmp_path / "saved.parquet")
    assert read(tmp_path / "saved.parquet") == counts
    both = read(path, tmp_path / "saved.parquet", pretokenized=True)  # the settings of the saved ones
    assert both.settings == counts.settings
    assert dict(both.items()) == {pretoken: 3 * count for pretoken, count in counts.items()}


WRONG = [-1, 1.5, 2.0, True, float("nan"), 2**63, None, "x"]


@pytest.mark.parametrize("count", WRONG)
def test_wrong_counts_are_named(count, tmp_path):
    message = r"text 'word': count=.* must be (a whole number, )?from 0 to 9223372036854775807"
    if count is not None and count != "x":  # which are not counts at all
        with pytest.raises(UserError, match=f"^{message}$"):
            train_bpe({"word": count, "other": 1}, 300)
    for form in FORMS:
        path = write(tmp_path, form, [{"text": "word", "count": count}], pa.uint64() if count == 2**63 else None)
        with pytest.raises(UserError, match=rf"^\S+words\.{form}: {message}$"):
            read(path)


def test_mistakes_with_counts_are_named(tmp_path):
    for given, message in (
        ({}, r"the text is a dict: pass one of its entries \(\), or"),
        (
            {"train": ["a"], "test": ["b"]},
            r"pass one of its entries \(train, test\), or for phase 1 the number of times",
        ),
        ({"text": "a", "id": 5}, r"pass one of its entries \(text, id\)"),
        ({5: 3}, "counts are of texts, but 5 is int"),
        ({b"\xff": 3}, "is not UTF-8"),
        ({"\ud800": 3}, r"contains a lone surrogate, U\+D800"),
        ({"a": 0, "": 4}, "the counts are empty"),
        ({"ab": 2**63 - 1, "abc": 2**63 - 1, "b": 2**63 - 1}, "64 bits"),
    ):
        with pytest.raises(UserError, match=message):
            train_bpe(given, 300)
    pq.write_table(pa.table({"word": ["a"], "n": [1]}), tmp_path / "words.parquet")
    (tmp_path / "words.jsonl").write_text('{"text": "a", "count": 1')
    (tmp_path / "words.json").write_text('[{"text": 5, "count": 1}, 7]')
    (tmp_path / "words.txt").write_text("a 5")
    for form, message in {
        "parquet": r"no field 'text' \(the fields are: word, n\); counts have the fields text \(field=NAME\) and count",
        "jsonl": "line 1 is not JSON",
        "json": "field .text. holds int, not text",
        "txt": "is plain text, not counts",
    }.items():
        with pytest.raises(UserError, match=rf"words\.{form}.*{message}"):
            read(tmp_path / f"words.{form}")
    count_pretokens(["text"], "gpt2").save(tmp_path / "saved.parquet")
    for options, message in (({"pattern": "o200k"}, "pattern"), ({"special_tokens": ["<s>"]}, "special_tokens")):
        with pytest.raises(UserError, match=rf"those of \S+saved\.parquet differ in their {message}"):
            read(tmp_path / "saved.parquet", **options)
    with pytest.raises(UserError, match=r"without sample=0\.5"):
        read_counts(Corpus(CorpusConfig(paths=[str(tmp_path / "saved.parquet")], sample=0.5)))
