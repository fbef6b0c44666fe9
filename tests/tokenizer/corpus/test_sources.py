"""A text of named, weighted sources."""

import pytest

from tests.tokenizer.corpus.corpora import write_jsonl
from tokenizer import Corpus, CorpusConfig, UserError
from tokenizer.corpus.origins import documents_by_origin


@pytest.fixture
def folders(tmp_path):
    """Two folders with a file each."""
    for name in ("web", "code"):
        (tmp_path / name).mkdir()
        write_jsonl(tmp_path / name / "a.jsonl", [{"text": f"{name} {i}"} for i in range(5)])
    return tmp_path


def sources(folder, web=":3", **options):
    return Corpus(CorpusConfig(sources={"web": f"{folder}/web{web}", "code": f"{folder}/code"}, **options))


def test_documents_are_read_once_and_have_the_name_of_their_source(folders):
    corpus = sources(folders)
    texts = [f"{name} {i}" for name in ("web", "code") for i in range(5)]
    assert list(corpus.documents()) == texts
    assert list(documents_by_origin(corpus, "all")) == [(text.split()[0], text) for text in texts]
    parts = [(name, weight, list(part.documents())) for name, part, weight in corpus.by_source()]
    assert parts == [("web", 3, texts[:5]), ("code", 1, texts[5:])]
    identities = [sources(folders, web).identity() for web in ("", ":1", ":2")]
    assert identities[0] == identities[1] != identities[2]
    whole = Corpus(CorpusConfig(paths=[str(folders)]))
    assert whole.by_source() == [("", whole, 1)]
    assert "sources" not in whole.identity()["config"]


@pytest.mark.filterwarnings("ignore:.*damaged records")
def test_what_is_skipped_in_a_part_is_listed_for_the_corpus(folders):
    (folders / "code" / "b.jsonl").write_text("damaged\n")
    corpus = sources(folders, on_error="skip")
    for _, part, _ in corpus.by_source():
        list(part.documents())
    assert corpus.skipped.summary()["files"] == {str(folders / "code" / "b.jsonl"): 1}


def test_wrong_sources_are_errors(folders):
    with pytest.raises(UserError, match="is in the sources web and code"):
        Corpus(CorpusConfig(sources={"web": str(folders), "code": str(folders / "code")}))
    for web, options, message in (
        (":x", {}, r"sources.web has .*whose weight is not a positive number"),
        (":3", {"max_bytes": 5}, "use sample"),
        (":3", {"paths": [str(folders)]}, "either paths, sources or a dataset"),
    ):
        with pytest.raises(UserError, match=message):
            sources(folders, web, **options)


def test_a_file_without_scores_after_one_with_them_is_read_alike_by_everything(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", [{"text": f"a {i}", "score": i} for i in range(5)])
    write_jsonl(tmp_path / "b.jsonl", [{"text": f"b {i}"} for i in range(5)])
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path)], score_field="score", min_score=2))
    expected = ["a 2", "a 3", "a 4"]
    assert list(corpus.documents()) == [text for _, text in documents_by_origin(corpus, "all")] == expected
    assert [text for part in corpus.parts("train", 1) for text in part.documents()] == expected
