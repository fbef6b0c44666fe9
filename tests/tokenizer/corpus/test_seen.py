"""The record of what training read, and the three answers that it gives."""

import csv
import gzip
import json
import os
import pickle
import shutil

import numpy as np
import pytest

from superbpe import train_superbpe
from tokenizer import Batch, Corpus, CorpusConfig, Tokenizer, count_pretokens, train_bpe
from tokenizer.corpus import seen
from tokenizer.corpus.seen import KEY, Answer, Recorder, saw
from tokenizer.external.push import push
from tokenizer.train.counting import PretokenCounts

HELD = [f"held out {i}: " + "the same old words " * (1 + i % 3) for i in range(40)]
OTHER = [f"training {i}: " + "the same old words " * (1 + i % 3) for i in range(60)]
HASHES = Batch.from_texts(HELD).hashes()


def write(path, documents):
    """Write documents into a file of the kind that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps({"text": text}) + "\n" for text in documents)
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([["text"], *([text] for text in documents)])
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        path.write_text("\n\n".join(documents) if path.suffix in (".txt", ".md") else lines)
    return path


def corpus(*paths, **settings):
    return Corpus(CorpusConfig(paths=[str(path) for path in paths], **settings))


@pytest.fixture
def held(tmp_path):
    return corpus(write(tmp_path / "held.jsonl", HELD))


@pytest.mark.parametrize(
    ("name", "documents"),
    [
        *(
            (name, [*OTHER, *HELD[:20]])
            for name in ("held.jsonl", "copy.csv", "copy.jsonl.gz", "a/b/c.jsonl", "no-suffix")
        ),
        *(("copy.jsonl", documents) for documents in (HELD, [*OTHER, *HELD], OTHER)),
    ],
)
def test_held_out_text_is_recognized_under_any_name(name, documents, tmp_path, monkeypatch, held):
    monkeypatch.chdir(tmp_path)
    expected = len(set(documents) & set(HELD))
    file = write(tmp_path / "train" / name, documents).relative_to(tmp_path)
    text = corpus(file, format="jsonl" if name == "no-suffix" else None)
    train_bpe(text, 270).save("tokenizer")
    os.chdir("/")
    shutil.move(tmp_path / "train", tmp_path / "gone")
    tokenizer = Tokenizer.load(tmp_path / "tokenizer")
    assert tokenizer.provenance[KEY]["texts"][0]["places"] == [str(tmp_path / file)]
    answer = saw(tokenizer, HASHES, held)
    assert (answer.seen.sum(), answer.looked_up, answer.unknown) == (expected, 40, "")
    assert answer.sentence("x") == (f"x was trained on {answer.saw}" if expected else "x was not trained on this text")


def test_files_that_training_cut_in_another_way_are_recognized_or_the_answer_is_unknown(tmp_path):
    file = write(tmp_path / "held.md", HELD)
    cut = corpus(file, format="txt", separator="\n\n")
    hashes = np.concatenate([batch.hashes() for batch in cut.batches()])
    tokenizer = train_bpe(corpus(tmp_path / "*.md", format="txt"), 270)
    assert saw(tokenizer, hashes, cut).files == [str(file)]
    assert saw(tokenizer, hashes, cut).saw_much
    moved = corpus(file.rename(tmp_path / "moved"), format="txt", separator="\n\n")
    answer = saw(tokenizer, hashes, moved)
    assert (answer.saw, answer.unknown) == ("", r"its documents were whole files, and these are text between '\n\n'")
    assert saw(train_bpe(moved, 270), hashes, moved).seen.all()
    # Of two texts, one was cut in another way.
    both = train_bpe(corpus(moved.files[0][0].rename(file), write(tmp_path / "other.jsonl", OTHER)), 270)
    lines = corpus(write(tmp_path / "lines.jsonl", HELD))
    assert saw(both, HASHES, lines).unknown == "some of its documents were whole files, and these are records"
    # Training and this corpus cut records in the same way.
    again = corpus(tmp_path / "other.jsonl")
    answer = saw(both, np.concatenate([batch.hashes() for batch in again.batches()]), again)
    assert (answer.seen.all(), answer.files, answer.unknown) == (True, [], "")


def test_a_hundredth_of_the_documents_that_can_be_looked_up_is_much():
    found = np.arange(100) < 1
    assert [Answer(found, looked_up, (), "").saw_much for looked_up in (20, 100)] == [True, False]


def test_every_phase_is_recorded_and_what_has_no_record_is_said(tmp_path, held):
    half, phase2 = train_bpe(OTHER, 262), {"vocab_size": 263, "rules": "sentence", "transition": 260}
    whole = [
        train_bpe(HELD, 280, start=half),
        train_superbpe(half, HELD, **phase2),
        train_superbpe(half, iter(HELD), **phase2).cut(262),
        train_bpe(count_pretokens(HELD, "o200k"), 262),
    ]
    for tokenizer in whole:
        assert saw(tokenizer, HASHES, held).seen.all()
    train_bpe(HELD, 262).save(tmp_path / "t")
    assert saw(Tokenizer.from_file(tmp_path / "t" / "tokenizer.json"), HASHES, held).seen.all()
    (tmp_path / "t" / "superbpe.json").unlink()
    imported = Tokenizer.from_file(tmp_path / "t" / "tokenizer.json")
    assert saw(imported, HASHES, held).unknown == "it has no record of its training text"
    for other in (
        train_bpe(OTHER, 280, start=imported),
        train_superbpe(imported, OTHER, **phase2),
    ):
        assert saw(other, HASHES, held).unknown == "only a part of its training has a record"
    assert "left out" in saw(pickle.loads(pickle.dumps(half)), HASHES, held).unknown


def test_an_upload_has_no_hashes_and_no_folders_unless_asked(tmp_path, held):
    tokenizer = train_bpe(corpus(write(tmp_path / "secret" / "train.jsonl", HELD)), 270)
    push(tokenizer, "org/name", to=tmp_path / "plain")
    push(tokenizer, "org/name", to=tmp_path / "full", hashes=True)
    plain, full = (Tokenizer.load(tmp_path / name) for name in ("plain", "full"))
    assert plain.provenance[KEY]["texts"][0]["places"] == ["train.jsonl"]
    assert not any("secret" in path.read_text() for path in (tmp_path / "plain").glob("*.[jm]*"))
    assert saw(plain, HASHES, held).unknown == "the hashes of its training documents were left out"
    assert saw(full, HASHES, held).seen.all()
    np.save(tmp_path / "full" / seen.FILE, np.zeros(3, np.uint64))
    with pytest.warns(UserWarning, match="is not the file"):
        assert "left out" in saw(Tokenizer.load(tmp_path / "full"), HASHES, held).unknown
    tokenizer.provenance["choose"] = {"text": [str(tmp_path / "secret" / "train.jsonl")]}
    assert seen.public(tokenizer.provenance)["choose"] == {"text": ["train.jsonl"]}


def test_saved_counts_replace_no_other_file(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    counts = [count_pretokens(text, "gpt2") for text in (HELD, OTHER)]
    for name, one in zip(("a.parquet", "a.pq"), counts, strict=True):
        one.save(tmp_path / name)
    assert np.load(tmp_path / "a.npy").tolist() == [0, 1, 2]
    for name, one in zip(("a.parquet", "a.pq"), counts, strict=True):
        assert np.array_equal(PretokenCounts.load(tmp_path / name).read.hashes, one.read.hashes)


@pytest.mark.parametrize("most", [7, 64, 300])
def test_of_many_documents_those_below_a_threshold_are_kept_whatever_the_order(most, monkeypatch, held):
    monkeypatch.setattr(seen, "MOST", most)
    many = [f"document {i}" for i in range(1000)] + HELD
    reads = []
    for order in (many, many[::-1], many * 2):
        recorder = Recorder()
        for i in range(0, len(order), 50):
            list(recorder.batches([Batch.from_texts(order[i : i + 50])]))
        reads.append(recorder.read())
    reads.append(Recorder([count_pretokens(part, "gpt2").read for part in (many[::2], many[1::2], many)]).read())
    assert all(read == reads[0] and np.array_equal(read.hashes, reads[0].hashes) for read in reads)
    bits, every = reads[0]["zero_bits"], np.unique(Batch.from_texts(many).hashes())
    assert np.array_equal(reads[0].hashes, every[every < 1 << (64 - bits)])
    assert most / 4 < len(reads[0].hashes) <= most
    answer = saw(None, HASHES, held, read=reads[0])
    assert answer.seen.sum() == answer.looked_up == (1 << (64 - bits) > HASHES).sum() < 40
    unseen = saw(None, Batch.from_texts([f"new {i}" for i in range(40)]).hashes(), held, read=reads[0])
    assert (unseen.saw, bool(unseen.unknown)) == ("", unseen.looked_up < 20)
    copies = saw(None, np.repeat(HASHES[:1] * 0, 50), held, read=reads[0])
    assert "by which 1 of" in copies.unknown  # copies are one document
