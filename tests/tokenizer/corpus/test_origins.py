"""Which file, or which value of a field, each document comes from."""

import dataclasses

import pytest

from tests.tokenizer.corpus.corpora import write_jsonl, write_parquet
from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import Corpus
from tokenizer.corpus.origins import check_kinds, documents_by_origin
from tokenizer.errors import UserError


@pytest.fixture
def config(tmp_path):
    """Two files of 300 documents, some twice, of five sites; small batches."""
    rows = [{"text": f"document {i % 250}", "url": f"https://Site{i % 5}.org/{i}", "n": i} for i in range(600)]
    paths = [
        str(write_jsonl(tmp_path / name, half)) for name, half in (("one.jsonl", rows[:300]), ("two.jsonl", rows[300:]))
    ]
    return CorpusConfig(paths=paths, heldout_fraction=0.3, batch_bytes=200)


@pytest.mark.parametrize("split", ["train", "heldout", "all"])
@pytest.mark.parametrize("settings", [{}, {"source_field": "url"}, {"max_bytes": 4000, "source_field": "url"}])
def test_the_documents_are_those_of_the_corpus(config, split, settings):
    corpus = Corpus(dataclasses.replace(config, **settings))
    found = list(documents_by_origin(corpus, split))
    assert [text for _, text in found] == list(corpus.documents(split))
    assert len(found) > 10
    assert Corpus(dataclasses.replace(config, source_field="url")).identity() == Corpus(config).identity()


def test_each_document_has_the_origin_of_its_record(config, tmp_path):
    # Texts say where they are from.
    sites = [(f"site{i % 7}.org", i) for i in range(500)]
    rows = [{"text": f"from {site}, {i}", "meta": {"url": f"http://{site}:80/{i}"}} for site, i in sites]
    paths = [str(write_jsonl(tmp_path / "meta.jsonl", rows))]
    config = dataclasses.replace(config, paths=paths, source_field="meta.url", min_document_bytes=17)
    found = list(documents_by_origin(Corpus(config), "heldout"))
    assert len({origin for origin, _ in found}) == 7
    assert all(text.startswith(f"from {origin},") for origin, text in found)


def test_files_are_the_origin_where_no_field_is_named(config, tmp_path):
    plain = tmp_path / "plain.txt"
    plain.write_text("alone")
    held = dataclasses.replace(config, paths=config.paths[:1], heldout_paths=[config.paths[1], str(plain)])
    found = list(documents_by_origin(Corpus(held), "heldout"))
    assert [origin for origin, _ in found] == ["two.jsonl"] * 300 + ["plain.txt"]
    with pytest.raises(UserError, match=r"plain.txt is plain text"):
        list(documents_by_origin(Corpus(dataclasses.replace(held, source_field="url")), "heldout"))


def test_parquet_and_missing_values(tmp_path):
    rows = [{"text": "a", "source": "s3/x"}, {"text": "b", "source": None}, {"text": "c", "source": "wiki"}]
    path = write_parquet(tmp_path / "x.parquet", rows)
    corpus = Corpus(CorpusConfig(paths=[str(path)], source_field="source"))
    assert list(documents_by_origin(corpus, "all")) == [("s3", "a"), ("unknown", "b"), ("wiki", "c")]


def test_a_missing_field_is_named(config):
    corpus = Corpus(dataclasses.replace(config, source_field="site"))
    with pytest.raises(UserError, match=r"source_field=site: .*no field"):
        list(documents_by_origin(corpus, "heldout"))


def test_kinds_are_named_by_paths_or_by_a_field(config, tmp_path):
    plain = tmp_path / "docs" / "plain.txt"
    plain.parent.mkdir()
    plain.write_text("alone")
    text = dataclasses.replace(config, paths=[*config.paths, str(plain)])
    by_path = dataclasses.replace(text, kinds={"code": f"{tmp_path}/o*.jsonl", "English": str(plain.parent)})
    found = list(dict.fromkeys(origin for origin, _ in documents_by_origin(Corpus(by_path), "all")))
    assert found == ["code: one.jsonl", "other: two.jsonl", "English: plain.txt"]
    assert Corpus(by_path).identity() == Corpus(text).identity()
    check_kinds(Corpus(by_path))
    with pytest.raises(UserError, match=r"nowhere.*write it as in paths"):
        check_kinds(Corpus(dataclasses.replace(text, kinds={"code": "nowhere"})))
    with pytest.raises(UserError, match=r"prose and English both name .*plain.txt, and a file has one kind"):
        check_kinds(Corpus(dataclasses.replace(text, kinds={"English": str(plain), "prose": str(plain.parent)})))
    by_field = Corpus(dataclasses.replace(config, kind_field="url"))
    origins = [origin for origin, _ in documents_by_origin(by_field, "all")]
    assert origins[:3] == ["site0.org: one.jsonl", "site1.org: one.jsonl", "site2.org: one.jsonl"]
    with pytest.raises(UserError, match="kind_field=url"):
        Corpus(dataclasses.replace(text, kind_field="url", kinds={"code": "x"}))
