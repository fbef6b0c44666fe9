"""FSDP2: weights, gradients and optimizer state, sharded by rows over all processes.

A tensor of `rows` rows is cut like `torch.chunk` does, so that the last processes may have fewer rows or none.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lm.model.loss import Objective
    from lm.train.distributed import World

BYTES_PER_PARAMETER = 16
"""Weight, gradient and AdamW's two moments in fp32; Muon has one moment."""
_MEMORY_SHARE = 0.5


def does_not_fit(model: nn.Module, device: torch.device) -> bool:
    """Whether the training state of a model takes more than half of a GPU's memory; False for a CPU."""
    if device.type != "cuda":
        return False
    needed = BYTES_PER_PARAMETER * sum(parameter.numel() for parameter in model.parameters())
    return needed > _MEMORY_SHARE * torch.cuda.get_device_properties(device).total_memory


def shard(objective: Objective, device: torch.device, world: World) -> None:
    """Shard a model on the CPU and move the shards to the device.

    A layer is gathered for its forward and for its backward pass; the embedding, the head and the last norm stay
    gathered in between.
    """
    mesh = init_device_mesh(device.type, (world.size,))
    for module in (*objective.model.model.layers, objective):
        module = fully_shard(module, mesh=mesh)
        # Sums on every backend: Gloo has no averages.
        module.set_force_sum_reduction_for_comms(True)
        module.set_gradient_divide_factor(1.0)


def whole(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor, a collective call; return any other tensor as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local(tensor: Tensor) -> Tensor:
    """This process's rows of a sharded tensor, which share its memory; any other tensor as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def like(tensor: Tensor, model: Tensor) -> Tensor:
    """Move a tensor to the device of `model`; if that is sharded and has the same shape, keep the same rows of it."""
    if isinstance(model, DTensor) and tensor.shape == model.shape:
        return distribute_tensor(tensor, model.device_mesh, model.placements, src_data_rank=None)
    return tensor.to(model.device)


@contextmanager
def gathered(objective: nn.Module) -> Iterator[None]:
    """Gather the weights outside the layers, so that parts of the model can be called by themselves."""
    if not isinstance(objective, FSDPModule):
        yield
        return
    objective.unshard()
    try:
        yield
    finally:
        objective.reshard()


def collect(parts: Sequence[Tensor], shapes: Sequence[torch.Size], world: World) -> dict[int, Tensor]:
    """Send the rows of matrix i to process i % world.size; return the matrices of this process by i.

    Args:
        parts: This process's rows of each matrix.
        shapes: Shapes of the matrices.
        world: The processes.
    """
    own = range(world.rank, len(parts), world.size)
    outgoing = [[parts[i] for i in range(rank, len(parts), world.size)] for rank in range(world.size)]
    incoming = [[(_rows(shapes[i], world)[rank], shapes[i][1]) for i in own] for rank in range(world.size)]
    received = _exchange(outgoing, incoming)
    return {i: torch.cat([of_rank[place] for of_rank in received]) for place, i in enumerate(own)}


def share_out(matrices: dict[int, Tensor], parts: Sequence[Tensor], world: World) -> list[Tensor]:
    """Undo `collect`: return this process's rows of each matrix, which have the shapes of `parts`."""
    cut = {i: torch.split(matrix, _rows(matrix.shape, world)) for i, matrix in matrices.items()}
    outgoing = [[cut[i][rank] for i in sorted(cut)] for rank in range(world.size)]
    incoming = [[tuple(parts[i].shape) for i in range(rank, len(parts), world.size)] for rank in range(world.size)]
    received = _exchange(outgoing, incoming)
    return [received[i % world.size][i // world.size] for i in range(len(parts))]


def _rows(shape: Sequence[int], world: World) -> list[int]:
    """Rows of a matrix in each process."""
    most = -(-shape[0] // world.size)
    return [min(most, max(0, shape[0] - rank * most)) for rank in range(world.size)]


def _exchange(outgoing: list[list[Tensor]], incoming: Sequence[Sequence[tuple[int, ...]]]) -> list[list[Tensor]]:
    """Send tensors to every process and receive tensors of known shapes from every process, in one message each."""
    first = next(part for parts in outgoing for part in parts)
    flat = [torch.cat([first.new_empty(0), *(part.flatten() for part in parts)]) for parts in outgoing]
    sizes = [[rows * columns for rows, columns in shapes] for shapes in incoming]
    received = flat[0].new_empty(sum(map(sum, sizes)))
    dist.all_to_all_single(received, torch.cat(flat), [*map(sum, sizes)], [*map(len, flat)])
    pieces = iter(torch.split(received, [size for of_rank in sizes for size in of_rank]))
    return [[next(pieces).view(shape) for shape in shapes] for shapes in incoming]
