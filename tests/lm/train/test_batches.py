import numpy as np
import pytest
import torch

from lm.data.rows import Rows
from lm.train.batches import read_batch
from lm.train.config import TrainConfig
from lm.train.distributed import World
from tests.lm import tiny

CPU = torch.device("cpu")


def rows_of(shards, **options):
    return Rows(shards, rows_per_step=6, context_bytes=40, seed=0, **options)


def unpacked(batch):
    """The ids of each segment and its last target; in rows, the targets are the inputs one later."""
    rows = []
    for part in batch.parts:
        assert len(part.ids) == len(part.targets)  # no padding
        for start, stop in zip(part.segments.bounds[:-1].tolist(), part.segments.bounds[1:].tolist(), strict=True):
            assert part.segments.positions[start:stop].tolist() == list(range(stop - start))
            assert part.segments.longest >= stop - start
            assert torch.equal(part.ids[start + 1 : stop], part.targets[start : stop - 1])
            rows.append([*part.ids[start:stop].tolist(), int(part.targets[stop - 1])])
    return rows


@pytest.mark.parametrize("options", [{}, {"tokens_per_step": 130.0}])
@pytest.mark.parametrize("processes", [1, 2, 3, 6])
def test_processes_share_the_rows_of_a_step(shards, processes, options):
    rows = rows_of(shards, **options)
    for step in (0, 1, 2, 7, 8, 3):  # 7: a resumed run
        spans = rows.spans(step).tolist()
        again = rows_of(shards, **options)
        batches = [read_batch(again, step, CPU, World(rank, processes), 2) for rank in range(processes)]
        together = [row for batch in batches if len(batch.parts[0].targets) for row in unpacked(batch)]
        assert sorted(together) == sorted(rows.stream.read(start, stop + 1).tolist() for start, stop in spans)
        assert max(map(len, together)) == 1 + batches[0].longest
        assert {batch.n_tokens for batch in batches} == {sum(stop - start for start, stop in spans)}
        assert {batch.longest for batch in batches} == {max(stop - start for start, stop in spans)}
        lengths = shards.token_byte_lengths
        assert sum(batch.n_bytes for batch in batches) == sum(int(lengths[row[1:]].sum()) for row in together)


def test_a_process_without_rows_has_inputs_without_targets(shards):
    batch = read_batch(rows_of(shards), 0, CPU, World(6, 7))
    assert [(len(part.ids), len(part.targets)) for part in batch.parts] == [(2, 0)]


def test_documents_are_segments_if_they_are_masked(shards):
    rows, documents = (
        [row for step in range(4) for row in unpacked(read_batch(rows_of(shards), step, CPU, World(), 2, eos_id))]
        for eos_id in (None, shards.eos_id)
    )
    assert any(shards.eos_id in row[1:-1] for row in rows)
    assert not any(shards.eos_id in row[1:-1] for row in documents)
    assert sum(len(row) - 1 for row in rows) == sum(len(row) - 1 for row in documents)


@pytest.mark.parametrize("words", [(b"th",), (b"the ", b"of ", b"town of the ", b"in the beginning ")])
@pytest.mark.parametrize("mask", [False, True])
def test_micro_batches_of_uneven_rows_have_equally_many_tokens(make_shards, corpus, words, mask):
    """The computed positions are those of the text, with short tokens and with superwords."""
    shards = make_shards(corpus * 10, tiny.words(*words))
    config = TrainConfig(train_bytes=1 << 16, bytes_per_step=8192, context_bytes=256, microbatch_size=8)
    rows = config.rows(shards)
    for step in range(4):
        batch = read_batch(rows, step, CPU, World(), config.microbatch_size, shards.eos_id if mask else None)
        sizes = [len(part.ids) for part in batch.parts]
        assert len(sizes) == 4
        assert sum(sizes) == batch.n_tokens == int(np.diff(rows.spans(step)).sum())
        assert max(sizes) < 1.1 * min(sizes)
