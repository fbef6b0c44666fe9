"""Rows of batches: equal text with every tokenizer, from all over a block, readable at any step."""

import pickle
from concurrent.futures import Future

import numpy as np
import pytest

from lm.data.rows import Rows
from lm.data.sharding import write_shards
from lm.data.shards import Shards
from tests.lm import tiny
from tokenizer import Batch

DOCUMENTS = [f"{i}: " + "the end of the thin line in the north " * (i % 7 + 1) for i in range(400)] + ["x" * 5000, "y"]


WORDS = {"bytes": (), "words": (b"the ", b"of ", b"in the ", b" line in the north ")}


@pytest.fixture(scope="module", params=WORDS)
def shards(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards") / "shards"
    tokenizer = tiny.words(*WORDS[request.param]) if WORDS[request.param] else tiny.bytes_only()
    write_shards(folder, tokenizer, [Batch.from_texts(DOCUMENTS)])
    return Shards.open(folder, tokenizer)


def make(shards, **options):
    return Rows(shards, **{"rows_per_step": 4, "context_bytes": 100, "seed": 3} | options)


def test_a_block_has_every_token_once(shards):
    rows = make(shards)
    steps = rows.block_rows // rows.rows_per_step
    assert steps == shards.n_bytes // 400  # the whole corpus
    spans = np.concatenate([rows.spans(step) for step in range(steps)])
    ordered = spans[np.argsort(spans[:, 0])]
    assert ordered[0, 0] == 0
    assert (ordered[1:, 0] == ordered[:-1, 1]).all()
    assert not (spans[1:, 0] == spans[:-1, 1]).all()  # but not in order
    lengths = shards.token_byte_lengths
    sizes = [int(lengths[rows.stream.read(*span)].sum()) for span in spans.tolist()]
    longest = int(lengths.max())
    assert max(abs(size - 100) for size in sizes) < longest


def test_equal_rows_are_equal_text_with_every_tokenizer(tmp_path):
    opened = []
    for name, words in (("a", ()), ("b", (b"the ", b"of ", b"in the "))):
        tokenizer = tiny.words(*words) if words else tiny.bytes_only()
        write_shards(tmp_path / name, tokenizer, [Batch.from_texts(DOCUMENTS)])
        opened.append((tokenizer, Shards.open(tmp_path / name, tokenizer)))
    for step in (0, 17, 130, 400):  # the last two are of the next block and of a later epoch
        both = []
        for tokenizer, shards in opened:
            rows = make(shards)
            ids = [rows.stream.read(*span).tolist() for span in rows.spans(step).tolist()]
            both.append([b"".join(tokenizer.vocab[i] for i in row if i != shards.eos_id).decode() for row in ids])
        for first, second in zip(*both, strict=True):
            assert first[8:-8] in second or second[8:-8] in first
            assert abs(len(first) - len(second)) < 2 * len("in the ")


def test_rows_depend_on_the_seed_and_the_step_alone(shards):
    rows, again = make(shards), make(shards)
    steps = [400, 2, 126, 0, 125, 2]
    expected = {step: rows.spans(step).tolist() for step in steps}
    for step in sorted(steps):
        assert again.spans(step).tolist() == expected[step]
    # The order of rows depends on the seed, not only the text in them.
    firsts = [make(shards, context_tokens=25, seed=seed).spans(0)[:, 0].tolist() for seed in (3, 4)]
    assert firsts[0] != firsts[1]
    in_order = make(shards, shuffle=False)
    assert in_order.spans(0)[:, 0].tolist() == sorted(in_order.spans(0)[:, 0].tolist())


def test_the_rows_of_a_step_are_from_many_documents(shards):
    rows = make(shards, rows_per_step=8)
    counts = []
    for step in range(40):
        spans = rows.spans(step).tolist()
        assert len(spans) == 8
        counts.append(len({min(_documents(rows, shards, span)) for span in spans}))
    assert np.mean(counts) >= 6


def test_rows_of_equal_tokens(shards):
    rows = make(shards, context_tokens=25)
    for step in (0, 5, 170):
        assert (np.diff(rows.spans(step)) == 25).all()
    assert rows.mean_tokens == rows.most_tokens == 25


@pytest.mark.parametrize(("blocks", "n_rows"), [(1, 4), (3, 4), (3, 32)])
def test_steps_of_equal_tokens(shards, monkeypatch, blocks, n_rows):
    monkeypatch.setattr("lm.data.rows._BLOCK_BYTES", shards.n_bytes // blocks)
    options = {"context_bytes": 400 // n_rows, "rows_per_step": n_rows}
    usual = make(shards, **options)
    for share in (0.6, 1.0, 1.15, 2.0):
        rows = make(shards, **options, tokens_per_step=share * usual.tokens_per_step)
        assert rows.mean_rows == pytest.approx(n_rows * share)
        steps = int(0.7 * shards.n_bytes / 400 / max(1, share))
        spans = [rows.spans(step) for step in range(steps)]
        tokens = [int(np.diff(rows).sum()) for rows in spans]
        assert sum(tokens) == pytest.approx(steps * rows.tokens_per_step, abs=2 * blocks * usual.mean_tokens)
        assert np.std(tokens) < usual.mean_tokens
        together = np.concatenate(spans)
        assert len(np.unique(together[:, 0])) == len(together)  # no row is read twice
        for step in range(steps):  # some of the usual rows, or all and more
            shared = min(n_rows, len(spans[step]))
            assert spans[step][:shared].tolist() == usual.spans(step)[:shared].tolist()
        again = make(shards, **options, tokens_per_step=rows.tokens_per_step)
        assert again.spans(steps - 1).tolist() == spans[-1].tolist()
    with pytest.raises(ValueError, match="tokens_per_step=1 is less than a row of about"):
        make(shards, tokens_per_step=1.0)


@pytest.mark.parametrize("share", [None, 1.15])
def test_documents_that_are_held_back_are_in_no_row_of_the_run(shards, share):
    tokens = share and share * make(shards).tokens_per_step
    rows = make(shards, held_back_bytes=6000, tokens_per_step=tokens)
    held_back = rows.held_back(1).tolist()
    order = rows.stream._epoch(0).order.tolist()
    assert held_back == order[-len(held_back) :]
    assert 6000 <= sum(len(DOCUMENTS[i].encode()) for i in held_back) < 6000 + 5000
    steps = (shards.n_bytes - 6000 - 5000) // 400
    assert rows.held_back(steps).tolist() == held_back
    read = {i for step in range(steps) for span in rows.spans(step).tolist() for i in _documents(rows, shards, span)}
    assert read.isdisjoint(held_back)
    assert len(read) > 0.9 * (len(DOCUMENTS) - len(held_back))
    for n_bytes, n_steps in ((6000, steps + 20), (1_000_000, 1), (shards.n_bytes - 100, 1)):
        with pytest.raises(ValueError, match=f"{n_steps} steps.*fewer bytes"):
            make(shards, held_back_bytes=n_bytes).held_back(n_steps)


def test_a_block_is_not_longer_than_the_corpus(shards):
    rows = make(shards, context_bytes=20_000, rows_per_step=2)
    assert rows.block_rows == 2 * (shards.n_bytes // 40_000)
    steps = rows.block_rows // 2
    assert max(rows.spans(step).max() for step in range(steps)) <= shards.n_tokens


def _documents(rows, shards, span):
    """Documents of the tokens of a row in the first epoch."""
    places = rows.stream._places(*span)
    return {int(np.searchsorted(shards.document_ends, start, side="right")) for start, _ in places}


def test_text_that_a_tokenizer_changes_is_shared_out_evenly(shards, monkeypatch):
    usual = make(shards)
    positions = usual.stream.tokens_at(np.arange(0, shards.n_bytes, 50))
    covered = 2 * shards.token_byte_lengths[shards.tokens(0, shards.n_tokens)].astype(np.uint32)  # twice as much text
    monkeypatch.setattr(shards, "covered_bytes", covered)
    monkeypatch.setattr("lm.data.stream._GROUP_TOKENS", 300)
    assert make(shards).stream.tokens_at(np.arange(0, shards.n_bytes, 50)).tolist() == positions.tolist()


def test_a_fork_and_a_copy_find_rows_themselves(shards, monkeypatch):
    monkeypatch.setattr("lm.data.rows._BLOCK_BYTES", shards.n_bytes // 4)
    rows = make(shards, tokens_per_step=300)
    monkeypatch.setattr(rows, "_process", -1)  # as after a fork, whose parent's thread never comes to it
    rows._steps = {0: Future()}
    expected = make(shards, tokens_per_step=300).spans(0).tolist()
    assert rows.spans(0).tolist() == expected
    assert pickle.loads(pickle.dumps(rows)).spans(0).tolist() == expected
