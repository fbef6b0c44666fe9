"""Corpora that cannot be read as asked: the file, the place and the remedy are named."""

import gzip

import pytest

from tests.tokenizer.corpus.corpora import documents, of, write_jsonl, write_parquet
from tokenizer import Corpus, CorpusConfig, UserError


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "needs either paths, sources or a dataset"),
        ({"paths": ["x"], "dataset": "y"}, "needs either paths, sources or a dataset"),
        ({"paths": ["no/such/file.txt"]}, "no/such/file.txt: no such file"),
        ({"paths": ["no/such/*.txt"]}, r"no/such/*.txt: no such file"),
        ({"paths": ["x"], "score_field": "s"}, "score_field and min_score go together"),
        ({"paths": ["x"], "min_score": 0.0}, "score_field and min_score go together"),
        ({"paths": ["x"], "max_bytes": -1}, "max_bytes=-1"),
        ({"paths": ["x"], "heldout_fraction": float("nan")}, "heldout_fraction=nan must be"),
        ({"paths": "a.jsonl"}, "paths='a.jsonl' is one string; paths is a list"),
        *((given, "not CorpusConfig: write Corpus(CorpusConfig(paths=") for given in (["a.jsonl"], "a.jsonl", None)),
    ],
)
def test_impossible_configurations_are_errors(config, message):
    with pytest.raises(UserError) as error:
        Corpus(CorpusConfig(**config) if isinstance(config, dict) else config)
    assert message in str(error.value)


def test_a_split_of_a_saved_dataset_must_be_named(forms):
    folder = forms["saved dataset dict"]["dataset"]
    with pytest.raises(UserError, match=r"has several splits of a dataset: name one of them, such as .*/train"):
        documents(folder)
    assert documents(f"{folder}/train") == of(forms["saved dataset"])


def test_an_empty_directory_and_an_empty_corpus_are_errors(tmp_path):
    with pytest.raises(UserError, match=r"the directory contains no \.txt, \.jsonl, \.csv or \.parquet file"):
        documents(tmp_path)
    (tmp_path / "bpe").mkdir()
    (tmp_path / "bpe" / "superbpe.json").write_text("{}")
    with pytest.raises(UserError, match=r"contains no .* file .*; 1 file of tokenizers left out: .*superbpe\.json$"):
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
    with pytest.raises(UserError, match=r"no documents are held out; set heldout_fraction="):
        documents(path, "heldout")
    with pytest.raises(UserError, match="may choose none of only a few"):
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


def test_a_damaged_parquet_page_is_a_users_error(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", [{"text": f"some text {i}" * 50} for i in range(500)])
    content = bytearray(path.read_bytes())
    content[100:200] = b"\xff" * 100
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.parquet: damaged Parquet file: .*download or write it again"):
        documents(path)


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


@pytest.mark.parametrize("readers", [1, 3])
def test_vanished_files_are_named(tmp_path, readers):
    for number in range(4):
        write_jsonl(tmp_path / f"{number}.jsonl", [{"text": str(number)}])
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path)]))
    (tmp_path / "2.jsonl").unlink()
    with pytest.raises(UserError, match=r"2\.jsonl: No such file"):
        list(corpus.batches("all", readers=readers))
