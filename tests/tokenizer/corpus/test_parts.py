"""Parts of a corpus: their documents, in order, are those of the corpus."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import Corpus
from tokenizer.corpus.skipped import Skipped
from tokenizer.errors import UserError
from tokenizer.train.counting import count_pretokens, mix_counts

WORDS = ["a", "of text", "naïve words", "日本語", "x" * 300, "line\nfeed"]


def texts_of(corpus: Corpus, split: str = "train") -> list[str]:
    return list(corpus.documents(split))


def parts_of(corpus: Corpus, split: str = "train", target: int = 100) -> list[Corpus]:
    return [pickle.loads(pickle.dumps(part)) for part in corpus.parts(split, target)]


def check(corpus: Corpus, split: str = "train", target: int = 100) -> list[Corpus]:
    parts = parts_of(corpus, split, target)
    assert [text for part in parts for text in texts_of(part, split)] == texts_of(corpus, split)
    return parts


def lines(n: int, end: str = "\n") -> str:
    return "".join(json.dumps({"text": f"{i} {WORDS[i % 6]}", "score": i % 3}) + end for i in range(n))


@pytest.mark.parametrize("target", [23, 50, 333, 10**6])
@pytest.mark.parametrize(
    "content",
    [
        lines(40),
        lines(40, "\r\n"),
        lines(40)[:-1],
        lines(40).replace("\n", "\n\n  \n", 9),
        "\ufeff" + lines(10),
        "\n\n" + lines(3) + "\n\n\n",
        lines(1),
    ],
    ids=["lines", "crlf", "no-last-line-feed", "empty-lines", "byte-order-mark", "outer-empty-lines", "one-line"],
)
def test_lines_are_in_exactly_one_part(tmp_path: Path, content: str, target: int) -> None:
    (tmp_path / "a.jsonl").write_bytes(content.encode())
    parts = check(Corpus(CorpusConfig(paths=[str(tmp_path)])), target=target)
    assert len(parts) == max(1, round(len(content.encode()) / target))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(["", " ", '{"text": "a"}', '{"text": "bcdefgh"}\r']), min_size=1), st.integers(1, 40))
def test_any_lines_are_in_exactly_one_part(tmp_path_factory: pytest.TempPathFactory, rows: list[str], n: int) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_text("\n".join(['{"text": "first"}', *rows]))
    check(Corpus(CorpusConfig(paths=[str(path)])), target=n)


@pytest.mark.parametrize("target", [99, 2000, 10**6])
def test_row_groups_are_in_exactly_one_part(tmp_path: Path, target: int) -> None:
    table = pa.table({"text": [f"{i} {WORDS[i % 6]}" for i in range(200)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=30)
    pq.write_table(table.slice(0, 0), tmp_path / "b.parquet")
    pq.write_table(table.slice(0, 5), tmp_path / "c.parquet")
    check(Corpus(CorpusConfig(paths=[str(tmp_path)])), target=target)


def test_small_files_are_combined_and_compressed_files_are_not_cut(tmp_path: Path) -> None:
    import gzip

    for i in range(6):
        (tmp_path / f"{i}.txt").write_text(f"document {i}" * 5)
    (tmp_path / "7.jsonl.gz").write_bytes(gzip.compress(lines(500).encode()))
    (tmp_path / "8.jsonl").write_text(lines(30))
    parts = check(Corpus(CorpusConfig(paths=[str(tmp_path)])), target=120)
    assert [len(part.files) for part in parts[:4]] == [2, 2, 2, 1]


@pytest.mark.parametrize("split", ["train", "heldout", "all"])
@pytest.mark.parametrize("named", [False, True], ids=["by-hash", "files"])
def test_filters_and_splits_do_not_depend_on_parts(tmp_path: Path, split: str, named: bool) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(lines(300))
    config = CorpusConfig(
        paths=[str(tmp_path / "a.jsonl")],
        min_document_bytes=5,
        sample=0.7,
        score_field="score",
        min_score=1,
        heldout_sample=0.9,
    )
    if named:
        config = replace(config, heldout_paths=[str(tmp_path / "b.jsonl")])
    else:
        config = replace(config, heldout_fraction=0.3)
    assert len(check(Corpus(config), split, 1000)) > 10


def test_text_with_a_budget_is_one_part(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines(300))
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path)], max_bytes=500))
    assert corpus.parts("train", 100) == [corpus]


@pytest.mark.filterwarnings("ignore:.*damaged records")
def test_damage_is_listed_with_the_same_places(tmp_path: Path) -> None:
    rows = lines(60).splitlines()
    for number in (1, 17, 18, 59):
        rows[number] = '{"text": 3' if number % 2 else '{"other": 1}'
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    table = pa.table({"text": pa.array([b"\xff" if i % 41 == 5 else b"good %d" % i for i in range(200)])})
    pq.write_table(table, tmp_path / "b.parquet", row_group_size=10)
    (tmp_path / "c.parquet").write_bytes(b"no Parquet" * 100)
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path)], on_error="skip"))
    parts = check(corpus, target=150)
    assert corpus.skipped.count > 5
    found = Skipped()
    found.add_parts(part.part_skipped() for part in parts)
    assert found.summary() == corpus.skipped.summary()
    assert "line 18: " in str(found.summary())


def test_an_error_names_the_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(lines(50) + "not JSON\n" + lines(50))
    corpus = Corpus(CorpusConfig(paths=[str(path)]))
    with pytest.raises(UserError, match=r"a.jsonl: line 51:") as whole:
        texts_of(corpus)
    with pytest.raises(UserError) as found:
        list(map(texts_of, parts_of(corpus)))
    assert str(found.value) == str(whole.value)


def test_counts_of_parts_add_up(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines(100))
    (tmp_path / "b.jsonl").write_text("x" * 0 + '{"text": "' + "word " * 200 + '"}\n')
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path)]))
    parts = [count_pretokens(part, "gpt2", threads=1) for part in parts_of(corpus, target=90)]
    assert any(part.n_bytes == 0 for part in parts)
    assert mix_counts([(part, 1) for part in parts]) == count_pretokens(corpus, "gpt2", threads=1)
