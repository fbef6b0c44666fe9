import pytest
import torch

from lm.model.device import arithmetic, resolve_device
from tokenizer.errors import UserError

CPU, CUDA, CUDA_1 = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)


@pytest.mark.parametrize(
    ("precision", "compiled", "place", "expected"),
    [
        ("auto", "auto", CPU, {"precision": "fp32"}),
        ("auto", "auto", CUDA, {"precision": "bf16", "compile": True}),
        ("fp32", False, CUDA, {"precision": "fp32"}),
        ("bf16", True, CPU, {"precision": "bf16", "compile": True}),
    ],
)
def test_compute_dtype(precision, compiled, place, expected):
    assert arithmetic(precision, compiled, place) == expected


@pytest.mark.parametrize(
    ("name", "local_rank", "expected"),
    [
        *((name, 1, CUDA_1) for name in ("auto", "cuda")),
        ("cpu", 1, CPU),
        ("auto", None, torch.device("cuda")),
        ("cuda:1", None, CUDA_1),
        ("auto", 2, "local rank 2 has no GPU: Torch finds 2 CUDA devices .* use torchrun --nproc-per-node 2"),
        ("cuda:0", 1, "device='cuda:0' is one GPU for several processes; use lm.train.device=cuda"),
        ("cuda:2", None, "Torch finds 2 CUDA devices; use device=auto"),
    ],
)
def test_each_process_of_a_machine_has_its_own_device(monkeypatch, name, local_rank, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    if isinstance(expected, str):
        with pytest.raises(UserError, match=expected):
            resolve_device(name, local_rank)
    else:
        assert resolve_device(name, local_rank) == expected
