"""Measurements under assumptions about the deployment."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from lm.evaluate.deployment import Deployment, serving_cost, training_flops
from lm.scaling.equivalent import interpolate
from lm.scaling.pricing import Study
from tests.lm.scaling.ladders import FLOPS, SIZES, SOURCES, heldout, loss, points

ARMS = [
    points("bpe", [0.0] * 4),
    points("superbpe", [0.7] * 4, vocab_size=100_000, bytes_per_token=5.0),
    points("bytes", [-1.0] * 4, vocab_size=257, bytes_per_token=1.0),
]


def study():
    return Study(ARMS, heldout())


def test_one_set_of_measurements_at_several_deployments():
    found = study()
    assert found.tokens_per_byte() == pytest.approx([0.25, 0.2, 1.0])
    bpe, superbpe, byte = found.at(Deployment())
    expected = serving_cost(Deployment(), vocab_size=100_000, tokens_per_byte=0.2)
    assert superbpe.cost.decode == expected.decode
    assert bpe.relative == {"prefill": 1, "decode": 1}
    assert superbpe.relative["decode"] < 1 < byte.relative["decode"]
    assert bpe.equivalents == {}
    # Bytes cost four times as much to serve.
    assert (byte.equivalents["decode"].answer, byte.equivalents["decode"].percent) == ("no", None)
    assert superbpe.equivalents["decode"].answer == "yes"
    assert found.at(Deployment(rho=0))[1].equivalents["decode"].answer == "no"


def test_training_compute_is_priced_at_the_deployment():
    """6 per weight and token, the head included, and attention; half the vocabulary is hardly cheaper at scale."""
    shape = {"n_layers": 2, "hidden_size": 8, "n_heads": 2, "n_kv_heads": 1, "head_dim": 4, "mlp_size": 16}
    small = Deployment(**shape, train_context_bytes=40)  # 10 tokens
    weights = 2 * (2 * 8 * 4 * 3 + 3 * 8 * 16) + 8 * 100
    assert training_flops(small, vocab_size=100, tokens=1000, n_bytes=4000) == pytest.approx(
        1000 * (6 * weights + 12 * 2 * 4 * 2 * 55 / 10)
    )
    costs = [training_flops(Deployment(), vocab_size=size, tokens=1e9, n_bytes=4e9) for size in (16_384, 8192)]
    assert 1 < costs[0] / costs[1] < 1.005


def test_another_deployment_reads_between_the_measured_budgets():
    """The arm reads a tenth more tokens at equal FLOPs of the small models, so it is dearer where it is deployed."""
    tokens = np.array([1e9, 2e9, 4e9, 8e9])
    read = [[(1.1**i * t, 4 * t) for t in tokens] for i in range(2)]
    arms = [points(name, [0.0] * 4, read=each) for name, each in zip(("ref", "arm"), read, strict=True)]
    deployment = Deployment(rho=0.0)
    reference, arm = Study(arms, heldout()).at(deployment)
    assert arm.training == [training_flops(deployment, vocab_size=50_000, tokens=t, n_bytes=b) for t, b in read[1]]
    found = arm.equivalents["decode"]
    assert found.reference_flops == found.flops == reference.training[-1] < arm.training[-1]
    # The curves of both are equal over the FLOPs of the small models.
    there = float(interpolate(arm.training, loss(FLOPS), found.flops))
    assert found.percent == pytest.approx(100 * (there / loss(FLOPS)[-1] - 1))
    assert found.percent > 0.5
    first = [replace(each, flops=each.flops[:1], nats=each.nats[:, :1], read=each.read[:1]) for each in arms]
    one = Study(first, heldout())
    assert one.gaps[0].percent == pytest.approx([0.0])
    answer = one.at(deployment)[1].equivalents["decode"]
    assert (answer.answer, answer.reason.partition(":")[0]) == ("unknown", "not measured")


def test_weights_of_kinds_move_both_loss_and_cost():
    arms = [points("a", [0.0]), points("b", [0.0])]
    arms[1].nats[..., SOURCES.index == 0] *= 1.1
    arms[1].unit_tokens[SOURCES.index == 0] //= 2
    weighted = [Study(arms, heldout(SIZES, SOURCES, {name: 1.0})) for name in ("web", "code")]
    assert [each.gaps[0].percent[0] for each in weighted] == pytest.approx([0.0, 10.0], abs=0.1)
    assert [each.tokens_per_byte()[1] for each in weighted] == pytest.approx([0.25, 0.125], abs=0.01)


def test_pricing_does_not_import_torch():
    command = "import sys, lm.scaling.pricing; sys.exit('torch' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0
