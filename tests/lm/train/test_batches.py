from __future__ import annotations

import threading

import pytest
import torch

from lm.data.stream import DocumentStream
from lm.train.batches import BatchReader
from lm.train.distributed import World


class Stream:
    """Positions as tokens; records the threads that read them."""

    def __init__(self):
        self.threads = set()

    def read(self, start, stop):
        self.threads.add(threading.current_thread())
        if start >= 30:
            raise OSError("no such shard")
        return torch.arange(start, stop).numpy()

    def covered_bytes(self, start, stop):
        return 100 * start + stop


def reader(stream, **options):
    return BatchReader(stream, 10, torch.device("cpu"), **{"count_bytes": False, **options})


def test_steps_are_those_of_the_stream_across_epochs(make_shards):
    shards = make_shards()
    stream, own = (DocumentStream(shards, seed=0) for _ in range(2))
    batches = BatchReader(own, 50, torch.device("cpu"), count_bytes=False)
    for step in (0, 1, 2, 7, 8, 3):  # 7: a resumed run
        ids, n_bytes = batches.take(step, 9)
        assert ids.tolist() == stream.read(50 * step, 50 * step + 51).tolist()
        assert n_bytes is None


def test_the_next_step_is_read_in_another_thread_and_none_after_the_last():
    stream = Stream()
    batches = reader(stream, count_bytes=True)
    assert [batches.take(step, 3)[1] for step in range(3)] == [100 + 11, 1100 + 21, 2100 + 31]
    assert threading.current_thread() not in stream.threads
    assert len(stream.threads) == 1


def test_an_error_is_raised_at_the_step_that_needs_the_tokens():
    batches = reader(Stream())
    for step in range(3):
        batches.take(step, 4)
    with pytest.raises(OSError, match="no such shard"):
        batches.take(3, 4)


@pytest.mark.parametrize("processes", [1, 2, 3, 6])
def test_processes_read_their_rows_and_nothing_else(make_shards, corpus, monkeypatch, processes):
    shards, steps, tokens_per_step = make_shards(corpus), 5, 6 * 11
    stream = DocumentStream(shards, seed=0)
    read = []
    tokens = shards.tokens

    def watched(start, stop):
        read.append(range(start, stop))
        return tokens(start, stop)

    monkeypatch.setattr(shards, "tokens", watched)
    readers = [
        BatchReader(
            DocumentStream(shards, seed=0),
            tokens_per_step,
            torch.device("cpu"),
            count_bytes=False,
            world=World(rank, processes),
        )
        for rank in range(processes)
    ]
    for step in range(steps):
        shares = [reader.take(step, steps)[0] for reader in readers]
        start = step * tokens_per_step
        whole = torch.from_numpy(stream.read(start, start + tokens_per_step + 1))
        assert torch.equal(torch.cat([shares[0][:1], *(share[1:] for share in shares)]), whole)
    read.clear()
    for reader in readers:
        reader.take(0, 1)
    places = [place for span in read for place in span]
    assert len(places) == tokens_per_step + processes  # the last target of a process is the next one's first input
    assert len(set(places)) == tokens_per_step + 1
