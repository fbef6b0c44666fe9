from __future__ import annotations

import pytest
import torch

from lm.data.stream import DocumentStream
from lm.train.batches import read_batch
from lm.train.distributed import World

CPU = torch.device("cpu")


def test_steps_are_those_of_the_stream_across_epochs(make_shards):
    shards = make_shards()
    stream, own = (DocumentStream(shards, seed=0) for _ in range(2))
    for step in (0, 1, 2, 7, 8, 3):  # 7: a resumed run
        ids, n_bytes = read_batch(own, step, 50, CPU, World())
        assert ids.tolist() == stream.read(50 * step, 50 * step + 51).tolist()
        assert n_bytes is None


@pytest.mark.parametrize("processes", [1, 2, 3, 6])
def test_processes_read_their_rows_and_nothing_else(make_shards, corpus, monkeypatch, processes):
    shards, steps, tokens_per_step = make_shards(corpus), 5, 6 * 11
    stream, own = (DocumentStream(shards, seed=0) for _ in range(2))
    for step in range(steps):
        shares = [read_batch(own, step, tokens_per_step, CPU, World(rank, processes))[0] for rank in range(processes)]
        start = step * tokens_per_step
        whole = torch.from_numpy(stream.read(start, start + tokens_per_step + 1))
        assert torch.equal(torch.cat([shares[0][:1], *(share[1:] for share in shares)]), whole)
        # The last target of a process is the next one's first input.
        assert sum(map(len, shares)) == tokens_per_step + processes


def test_bytes_are_those_that_the_targets_cover(make_shards):
    shards = make_shards()
    shards.covered_bytes = shards.token_byte_lengths[shards.tokens(0, shards.n_tokens)].astype("uint32")
    stream = DocumentStream(shards, seed=0)
    ids, n_bytes = read_batch(stream, 1, 8, CPU, World(1, 2))
    assert n_bytes == shards.token_byte_lengths[ids[1:]].sum()
