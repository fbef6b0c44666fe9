"""Measurements under assumptions about the deployment."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lm.evaluate.deployment import Deployment, serving_cost
from lm.scaling.pricing import Study
from tests.lm.scaling.ladders import SIZES, SOURCES, points

ARMS = [
    points("bpe", [0.0] * 4),
    points("superbpe", [0.7] * 4, vocab_size=100_000, bytes_per_token=5.0),
    points("bytes", [-1.0] * 4, vocab_size=257, bytes_per_token=1.0),
]


def study(**options):
    return Study.of(ARMS, SIZES, SOURCES, **options)


def test_one_set_of_measurements_at_several_deployments():
    found = study()
    assert found.tokens_per_byte() == pytest.approx([0.25, 0.2, 1.0])
    bpe, superbpe, byte = found.at(Deployment())
    expected = serving_cost(Deployment(), vocab_size=100_000, tokens_per_byte=0.2)
    assert superbpe.cost.decode == expected.decode
    assert tuple(bpe.relative) == (1, 1, 1, 1)
    assert superbpe.relative.decode < 1 < byte.relative.decode
    assert bpe.equivalents == {}
    # Bytes cost four times as much to serve.
    assert (byte.equivalents["decode"].answer, byte.equivalents["decode"].percent) == ("no", None)
    assert superbpe.equivalents["decode"].answer == "yes"
    assert found.at(Deployment(rho=0))[1].equivalents["decode"].answer == "no"


def test_shares_of_sources_move_both_loss_and_cost():
    arms = [points("a", [0.0]), points("b", [0.0])]
    arms[1].nats[..., SOURCES.index == 0] *= 1.1
    arms[1].document_tokens[SOURCES.index == 0] //= 2
    gaps = [Study.of(arms, SIZES, SOURCES, shares={"code": share}).gaps[0].percent[0] for share in (0.0, 1.0)]
    assert gaps == pytest.approx([0.0, 10.0], abs=0.1)
    tokens = [Study.of(arms, SIZES, SOURCES, shares={"code": share}).tokens_per_byte()[1] for share in (0.0, 1.0)]
    assert tokens == pytest.approx([0.25, 0.125], abs=0.01)


def test_pricing_does_not_import_torch():
    command = "import sys, lm.scaling.pricing; sys.exit('torch' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0
