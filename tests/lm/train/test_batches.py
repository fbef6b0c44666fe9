from __future__ import annotations

import threading

import pytest
import torch

from lm.data.rows import Rows
from lm.train.batches import NO_TARGET, BatchReader
from lm.train.distributed import World

CPU = torch.device("cpu")


def rows_of(shards) -> Rows:
    return Rows(shards, rows_per_step=6, context_bytes=40, seed=0)


def real(batch) -> list[list[int]]:
    """The ids of each row, without padding."""
    assert [row.tolist().count(NO_TARGET) + n + 1 for row, n in zip(batch.ids, batch.lengths, strict=True)] == [
        batch.ids.shape[1]
    ] * len(batch.ids)
    return [row[: n + 1].tolist() for row, n in zip(batch.ids, batch.lengths, strict=True)]


@pytest.mark.parametrize("processes", [1, 2, 3, 6])
def test_processes_share_the_rows_of_a_step(make_shards, corpus, processes):
    shards = make_shards(corpus)
    rows = rows_of(shards)
    readers = [BatchReader(rows_of(shards), CPU, world=World(rank, processes)) for rank in range(processes)]
    for step in (0, 1, 2, 7, 8, 3):  # 7: a resumed run
        spans = rows.spans(step).tolist()
        batches = [reader.take(step, 9) for reader in readers]
        together = [row for batch in batches for row in real(batch)]
        assert sorted(together) == sorted(rows.stream.read(start, stop + 1).tolist() for start, stop in spans)
        assert {len(batch.ids) for batch in batches} == {6 // processes}
        assert all(batch.lengths == sorted(batch.lengths) for batch in batches)
        assert {batch.n_tokens for batch in batches} == {sum(stop - start for start, stop in spans)}
        assert {batch.longest for batch in batches} == {max(stop - start for start, stop in spans)}
        lengths = shards.token_byte_lengths
        assert sum(batch.n_bytes for batch in batches) == sum(int(lengths[row[1:]].sum()) for row in together)


@pytest.mark.parametrize("multiple", [1, 8])
def test_micro_batches_are_padded_to_their_own_length(make_shards, corpus, multiple):
    batch = BatchReader(rows_of(make_shards(corpus)), CPU, multiple=multiple).take(0, 1)
    parts = list(batch.micro_batches(4, multiple))
    assert [len(inputs) for inputs, _ in parts] == [4, 2]
    together = []
    for (inputs, targets), lengths in zip(parts, (batch.lengths[:4], batch.lengths[4:]), strict=True):
        assert inputs.shape == targets.shape == (len(lengths), -(-max(lengths) // multiple) * multiple)
        assert (targets >= 0).sum(1).tolist() == lengths
        together += [[*i[:n].tolist(), int(t[n - 1])] for i, t, n in zip(inputs, targets, lengths, strict=True)]
        assert int(inputs.min()) >= 0
    assert together == real(batch)


def test_the_next_step_is_read_in_another_thread_and_none_after_the_last(make_shards, monkeypatch):
    rows, threads, steps = rows_of(make_shards()), set(), []
    spans = rows.spans

    def watched(step):
        threads.add(threading.current_thread())
        steps.append(step)
        return spans(step)

    monkeypatch.setattr(rows, "spans", watched)
    batches = BatchReader(rows, CPU)
    for step in range(3):
        batches.take(step, 3)
    assert steps == [0, 1, 2]
    assert threading.current_thread() not in threads
    assert len(threads) == 1


def test_an_error_is_raised_at_the_step_that_needs_the_tokens(make_shards, monkeypatch):
    rows = rows_of(make_shards())
    spans = rows.spans

    def failing(step):
        if step == 3:
            raise OSError("no such shard")
        return spans(step)

    monkeypatch.setattr(rows, "spans", failing)
    batches = BatchReader(rows, CPU)
    for step in range(3):
        batches.take(step, 4)
    with pytest.raises(OSError, match="no such shard"):
        batches.take(3, 4)
