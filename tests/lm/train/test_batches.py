import pytest
import torch

from lm.data.rows import Rows
from lm.train.batches import NO_TARGET, read_batch
from lm.train.distributed import World

CPU = torch.device("cpu")


def rows_of(shards, **options):
    return Rows(shards, rows_per_step=6, context_bytes=40, seed=0, **options)


def real(batch):
    """The ids of each row, without padding and empty rows."""
    rows = [[i for i in row if i != NO_TARGET] for row in batch.ids.tolist()]
    assert [max(0, len(row) - 1) for row in rows] == batch.lengths
    return [row for row in rows if row]


@pytest.mark.parametrize("options", [{}, {"tokens_per_step": 130.0}])
@pytest.mark.parametrize("processes", [1, 2, 3, 6])
def test_processes_share_the_rows_of_a_step(shards, processes, options):
    rows = rows_of(shards, **options)
    for step in (0, 1, 2, 7, 8, 3):  # 7: a resumed run
        spans = rows.spans(step).tolist()
        again = rows_of(shards, **options)
        batches = [read_batch(again, step, CPU, World(rank, processes), 1, 2) for rank in range(processes)]
        together = [row for batch in batches for row in real(batch)]
        assert sorted(together) == sorted(rows.stream.read(start, stop + 1).tolist() for start, stop in spans)
        assert all(len(batch.ids) % 2 == 0 < len(batch.ids) for batch in batches)
        assert max(map(len, together)) <= 1 + batches[0].longest
        assert all(batch.lengths == sorted(batch.lengths) for batch in batches)
        assert {batch.n_tokens for batch in batches} == {sum(stop - start for start, stop in spans)}
        assert {batch.longest for batch in batches} == {max(stop - start for start, stop in spans)}
        lengths = shards.token_byte_lengths
        assert sum(batch.n_bytes for batch in batches) == sum(int(lengths[row[1:]].sum()) for row in together)


@pytest.mark.parametrize("multiple", [1, 8])
def test_micro_batches_are_padded_to_their_own_length(shards, multiple):
    batch = read_batch(rows_of(shards), 0, CPU, World(), multiple)
    parts = list(batch.micro_batches(4, multiple))
    assert [len(inputs) for inputs, _ in parts] == [3, 3]
    together = []
    for (inputs, targets), lengths in zip(parts, (batch.lengths[:3], batch.lengths[3:]), strict=True):
        assert inputs.shape == targets.shape == (len(lengths), -(-max(lengths) // multiple) * multiple)
        assert (targets >= 0).sum(1).tolist() == lengths
        together += [[*i[:n].tolist(), int(t[n - 1])] for i, t, n in zip(inputs, targets, lengths, strict=True)]
        assert int(inputs.min()) >= 0
    assert together == real(batch)
