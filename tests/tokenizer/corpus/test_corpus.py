"""Corpora: the same documents out of every form, which files, filters and splits, identity."""

import json
import os
import random
import shutil
from dataclasses import replace

import numpy as np
import pytest

from tests.properties import quick_first
from tests.tokenizer.corpus.corpora import documents, of, write_jsonl, write_parquet
from tokenizer import Corpus, CorpusConfig, UserError
from tokenizer.corpus.origins import documents_by_origin

FORMS = [".jsonl", ".jsonl.gz", ".jsonl.zst", ".json.zstd", "separated", "separated gz", "one per file", "glob"]
FORMS += ["parquet", "dataset folder", "saved dataset", "saved dataset dict", "saved dataset as files", "csv", "csv gz"]
FORMS += ["array"]


@pytest.mark.parametrize("name", quick_first(FORMS[::-1], 8))
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


@pytest.fixture
def many(tmp_path, sample):
    """A folder of files of several kinds and sizes, and their documents in order."""
    split = [sample[i : i + 1 + i % 40] for i in range(0, 400, 40)]
    for number, texts in enumerate(split):
        write_jsonl(tmp_path / f"{number}.jsonl{('', '.gz', '.zst')[number % 3]}", [{"text": text} for text in texts])
    # Longer than one read.
    long = [f"{i} " + "words " * 20_000 for i in range(60)]
    write_jsonl(tmp_path / "3a.jsonl", [{"text": text} for text in long])
    return tmp_path, [text for number, texts in enumerate(split) for text in texts + long * (number == 3)]


@pytest.mark.parametrize(("readers", "batch_bytes"), [(1, 5000), (2, 1), (7, 1 << 20)])
def test_several_readers_keep_the_order(many, readers, batch_bytes):
    folder, expected = many

    def read(**options):
        corpus = Corpus(CorpusConfig(paths=[str(folder)], batch_bytes=batch_bytes, **options))
        return [batch.text(i) for batch in corpus.batches("all", readers=readers) for i in range(len(batch))]

    assert read() == expected
    ends = np.cumsum([len(text.encode()) for text in expected])
    assert read(max_bytes=3_000_000) == expected[: int(np.searchsorted(ends, 3_000_000)) + 1]
    corpus = Corpus(CorpusConfig(paths=[str(folder)], batch_bytes=batch_bytes))
    batches = corpus.batches("all", readers=readers, in_order=False)
    assert sorted(batch.text(i) for batch in batches for i in range(len(batch))) == sorted(expected)


@pytest.mark.parametrize("readers", [1, 3])
def test_a_read_error_is_raised_in_order(many, readers):
    folder, expected = many
    (folder / "4.jsonl.gz").write_text('{"text": "kept"}\n{"text": 1}\n')
    (folder / "4.jsonl.gz").rename(folder / "3b.jsonl")
    batches = Corpus(CorpusConfig(paths=[str(folder)], batch_bytes=1)).batches("all", readers=readers)
    read = []
    with pytest.raises(UserError, match=r"3b\.jsonl: line 2: "):
        read.extend(batch.text(0) for batch in batches)
    before = next(i for i, text in enumerate(expected) if text.startswith("59 words")) + 1
    assert read == [*expected[:before], "kept"]


def test_directories_and_globs_are_recursive_and_sorted(tmp_path):
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
    several = [tmp_path / "b", tmp_path / "a" / "1.txt", tmp_path]
    assert documents(several) == ["b/2.txt", "a/1.txt", "a/deep/3.jsonl", "c.parquet"]
    assert documents(tmp_path / "notes.md") == documents(tmp_path / "*.md") == ["notes.md"]
    (tmp_path / "a" / "weights.bin").write_text("no text")
    with pytest.raises(UserError, match=r"weights\.bin: unknown file type; name it .* or set format="):
        documents(tmp_path / "a" / "weights.bin")
    (tmp_path / "a[1].txt").write_text("brackets")  # a name, since it exists
    with pytest.warns(UserWarning, match="named more than once, and read once"):
        assert documents([tmp_path / "a[1].txt"] * 2) == ["brackets"]


def test_the_budget_ends_with_the_document_that_reaches_it(forms, tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": letter * 10} for letter in "abcdef"])
    for budget, expected in [(1, "a"), (10, "a"), (11, "ab"), (35, "abcd"), (60, "abcdef"), (9999, "abcdef")]:
        for batch_bytes in (1, 25, 1 << 20):
            found = documents(path, max_bytes=budget, batch_bytes=batch_bytes)
            assert [text[0] for text in found] == list(expected)
    # Documents that the bounds leave out cost nothing.
    mixed = write_jsonl(tmp_path / "b.jsonl", [{"text": "x" * n} for n in (5, 10, 5, 10, 10)])
    assert len(documents(mixed, max_bytes=20, min_document_bytes=6)) == 2
    # It comes before the split.
    options = {"max_bytes": 5000, "heldout_fraction": 0.4}
    both, train, heldout = (of(forms[".jsonl"], split, **options) for split in ("all", "train", "heldout"))
    assert sorted(train + heldout) == sorted(both) == sorted(of(forms[".jsonl"], max_bytes=5000))


def test_the_split_depends_on_the_text_alone(forms, sample, tmp_path):
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


def test_heldout_paths(tmp_path, monkeypatch):
    train = write_jsonl(tmp_path / "train.jsonl", [{"text": "t" * 10}] * 3)
    heldout = write_jsonl(tmp_path / "heldout.jsonl", [{"text": "h" * 10}] * 3)
    options = {"heldout_paths": [str(heldout)]}
    assert documents(train, **options) == ["t" * 10] * 3
    assert documents(train, "heldout", **options) == ["h" * 10] * 3
    assert documents(train, "all", **options) == ["t" * 10] * 3 + ["h" * 10] * 3
    assert documents(train, max_bytes=15, **options) == ["t" * 10] * 2
    assert documents(train, "heldout", max_bytes=15, **options) == ["h" * 10] * 3
    # They take precedence over a fraction.
    assert documents(train, heldout_fraction=0.5, **options) == ["t" * 10] * 3
    assert documents(train, "heldout", heldout_fraction=0.5, **options) == ["h" * 10] * 3
    with pytest.raises(UserError, match=r"train\.jsonl is in both paths and heldout_paths"):
        documents(train, heldout_paths=[str(tmp_path)])
    # A file counts once under any name.
    monkeypatch.chdir(tmp_path)
    assert documents(["train.jsonl", train]) == ["t" * 10] * 3
    with pytest.raises(UserError, match="is in both paths and heldout_paths"):
        documents("train.jsonl", heldout_paths=[str(train)])


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


def test_a_dataset_beside_held_out_files(tmp_path):
    import datasets

    folder = str(tmp_path / "saved")
    datasets.Dataset.from_dict({"text": ["train 1", "train 2"]}).save_to_disk(folder)
    (tmp_path / "heldout.jsonl").write_text('{"text": "heldout"}\n')
    corpus = Corpus(CorpusConfig(dataset=folder, heldout_paths=[str(tmp_path / "heldout.jsonl")]))
    assert list(corpus.documents("train")) == ["train 1", "train 2"]
    assert list(corpus.documents("heldout")) == ["heldout"]
    assert list(corpus.documents("all")) == ["train 1", "train 2", "heldout"]
    before = Corpus(CorpusConfig(dataset=folder)).identity()
    shutil.rmtree(folder)
    datasets.Dataset.from_dict({"text": ["another"]}).save_to_disk(folder)
    assert Corpus(CorpusConfig(dataset=folder)).identity() != before


def test_near_duplicates_are_on_the_same_side_of_the_split(tmp_path):
    texts_ = [" ".join(f"{i}w{j}" for j in range(100)) for i in range(200)]
    changed = [text.replace("w40 ", "w40, changed ") for text in texts_]
    paths = [
        write_jsonl(tmp_path / f"{name}.jsonl", [{"text": text} for text in each])
        for name, each in (("one", texts_), ("two", changed))
    ]

    def apart(**options):
        heldout = set(documents(paths, "heldout", heldout_fraction=0.3, **options))
        assert 0.2 < len(heldout) / 400 < 0.4
        return sum((one in heldout) != (two in heldout) for one, two in zip(texts_, changed, strict=True))

    assert apart(heldout_near_duplicates=True) < 0.1 * 200
    assert apart() > 0.3 * 200


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


def test_a_sample_of_the_held_out_documents_leaves_the_training_documents(tmp_path):
    paths = [write_jsonl(tmp_path / "a.jsonl", [{"text": f"document {i}"} for i in range(2000)])]
    whole, part = (documents(paths, "heldout", heldout_fraction=0.5, heldout_sample=share) for share in (1.0, 0.25))
    assert set(part) < set(whole)
    assert len(part) == pytest.approx(len(whole) / 4, rel=0.2)
    assert documents(paths, heldout_fraction=0.5, heldout_sample=0.25) == documents(paths, heldout_fraction=0.5)
    identities = [Corpus(CorpusConfig(paths=paths, heldout_sample=share)).identity() for share in (1.0, 0.25)]
    assert identities[0] == identities[1]  # the training documents are the same


@pytest.mark.parametrize("form", [".jsonl", "dataset folder"])
@pytest.mark.parametrize("change", ["grows", "is written again", "goes away"])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path, form, change):
    folder = tmp_path / "texts"
    folder.mkdir()
    path = write_jsonl(folder / "a.jsonl", [{"text": f"document {i}"} for i in range(1000)])
    where = {"paths": [str(path)]} if form == ".jsonl" else {"dataset": str(folder)}
    corpus = Corpus(CorpusConfig(**where, heldout_fraction=0.5, batch_bytes=100))
    batches = corpus.batches("heldout")
    next(batches)
    if change == "grows":
        with path.open("a") as file:
            file.write('{"text": "one more"}\n')
    elif change == "is written again":
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    else:
        path.unlink()
    with pytest.raises(UserError, match=r"a\.jsonl changed while it was in use"):
        list(batches)


def test_a_budget_or_a_source_field_does_not_hide_a_change(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": f"document {i}", "source": "x"} for i in range(1000)])
    config = CorpusConfig(paths=[str(path)], heldout_fraction=0.5, batch_bytes=100, max_bytes=500)
    corpora = [Corpus(config), Corpus(replace(config, source_field="source"))]
    os.utime(path, ns=(0, 0))
    for read in (lambda: list(corpora[0].batches()), lambda: list(documents_by_origin(corpora[1], "heldout"))):
        with pytest.raises(UserError, match="changed while it was in use"):
            read()
