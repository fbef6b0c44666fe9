"""Ladders of made-up arms with known curves."""

from __future__ import annotations

import numpy as np

from lm.evaluate.bits_per_byte import Grouping
from lm.scaling.curve import PowerLaw
from lm.scaling.estimates import Arm
from lm.scaling.gap import compare_arms
from lm.scaling.ladder import HeldOut, Ladder, check_comparable, document_ladder, source_shares
from lm.scaling.reprice import prepare, price

FLOPS = np.geomspace(2e15, 6e16, 4)


def law_through(level, floor, exponent, at=1e16):
    """The law with this floor and exponent that has this value at some FLOPs."""
    return PowerLaw(floor, (level - floor) * at**exponent, exponent)


REFERENCE = law_through(1.5, 0.60, 0.20)
CROSSING = law_through(1.5, 0.55, 0.20)
"""Worse than the reference below 1e16 FLOPs and better above."""


def measured_ladder(name, flops, bits_per_byte, *, sources=("all",)):
    """A ladder from averages without documents: bits per byte at each rung, for each run; sources have equal shares."""
    values, shares = np.array(bits_per_byte, np.float64), dict.fromkeys(sources, 1 / len(sources))
    return Ladder(name, np.array(flops, np.float64), values, tuple(range(len(values))), shares)


def compare_ladders(reference, others, *, confidence=0.95, **resamples):
    for other in others:
        check_comparable(reference, other)
    base, *arms = (Arm.of(ladder, confidence=confidence, **resamples) for ladder in (reference, *others))
    return compare_arms(base, arms, confidence=confidence)


def reprice(arms, document_bytes, sources, deployment, **assumptions):
    return price(prepare(arms, document_bytes, sources, **assumptions), deployment)


def noisy(rng, name, law, *, n_seeds=3, flops=FLOPS, trunk=0.003, rung=0.001):
    """Points of a law; the rungs of a seed share the noise of their trunk."""
    noise = trunk * rng.normal(size=(n_seeds, 1)) + rung * rng.normal(size=(n_seeds, len(flops)))
    return measured_ladder(name, flops, law(flops) * np.exp(noise))


def with_documents(rng, laws, *, n_documents=200, n_seeds=1, trunk=0.0, own=0.01, flops=FLOPS):
    """Ladders by name over documents of two sources: documents differ a lot, and by a little more between arms."""
    sizes = rng.integers(200, 2000, n_documents)
    sources = Grouping(("code", "web"), (np.arange(n_documents) % 4 > 0).astype(np.int32))
    heldout = HeldOut(sizes, sources, source_shares(sizes, sources))
    shared = np.exp(0.3 * rng.normal(size=n_documents))
    ladders = {}
    for name, law in laws.items():
        document = shared * np.exp(own * rng.normal(size=n_documents))
        seeds = np.exp(trunk * rng.normal(size=(n_seeds, 1, 1)))
        nats = np.log(2) * sizes * document * law(flops)[:, None] * seeds
        ladders[name] = document_ladder(name, flops, nats, heldout, seeds=range(n_seeds))
    return ladders
