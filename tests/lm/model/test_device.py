from __future__ import annotations

import pytest
import torch

from lm.model import device
from lm.model.device import ENOUGH, arithmetic, bf16_gain, resolve_device

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("precision", "compiled", "place", "expected"),
    [
        ("auto", "auto", CPU, {"precision": "fp32"}),
        ("auto", "auto", CUDA, {"precision": "bf16", "compile": True}),
        ("fp32", False, CUDA, {"precision": "fp32"}),
        ("bf16", True, CPU, {"precision": "bf16", "compile": True}),
        ("probe", False, CUDA, {"precision": "bf16"}),
    ],
)
def test_compute_dtype(precision, compiled, place, expected):
    assert arithmetic(precision, compiled, place) == expected


@pytest.mark.parametrize(("gain", "expected"), [(ENOUGH, "bf16"), (ENOUGH - 0.01, "fp32")])
def test_a_cpu_uses_bf16_only_where_it_is_faster(monkeypatch, gain, expected):
    monkeypatch.setattr(device, "bf16_gain", lambda: gain)
    assert arithmetic("probe", False, CPU) == {"precision": expected}


def test_the_probe_measures_once(monkeypatch):
    gain = bf16_gain(rows=64, width=64)
    assert gain > 0
    assert bf16_gain(rows=64, width=64) == gain


def test_each_process_of_a_machine_has_its_own_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("auto", 1) == resolve_device("cuda", 1) == torch.device("cuda", 1)
    assert resolve_device("cuda:0", 1) == torch.device("cuda", 0)
    assert resolve_device("cpu", 1) == CPU
    assert resolve_device("auto") == torch.device("cuda")
