"""Made-up arms with known gaps over a ladder of budgets."""

import numpy as np

from lm.evaluate.bits_per_byte import Grouping, SamplingUnits
from lm.scaling.gaps import Losses, compare_arms
from lm.scaling.points import Points

FLOPS = np.geomspace(2e15, 6e16, 4)
N = 60
SIZES = np.repeat([300, 900], N // 2)
SOURCES = Grouping(("code", "web"), np.repeat([0, 1], N // 2).astype(np.int32))


def loss(flops):
    """Bits per byte of the reference."""
    return 0.6 + 0.9 * (flops / 1e16) ** -0.2


def heldout(sizes=SIZES, kinds=None, weights=None):
    return SamplingUnits.of(sizes, kinds, weights or {})


def points(name, percent, *, n_seeds=3, scatter=0.0, seed=0, documents=0.0, flops=FLOPS, sizes=SIZES, **more):
    """An arm whose gap to the reference is this many percent at each budget; `more` are further attributes.

    `scatter` is half the range of the seeds, evenly spread around the gap, and `documents` the standard deviation of
    the documents' own gaps, both in percent of the reference.
    """
    flops = flops[: len(percent)]
    rng = np.random.default_rng(seed)
    spread = scatter * np.linspace(-1, 1, n_seeds) if n_seeds > 1 else np.zeros(1)
    own = documents * rng.standard_normal(len(sizes))
    shared = np.exp(0.3 * np.random.default_rng(7).standard_normal(len(sizes)))
    gaps = 1 + (np.asarray(percent)[None, :, None] + spread[:, None, None] + own) / 100
    nats = np.log(2) * sizes * shared * loss(flops)[:, None] * gaps
    tokens = (sizes / more.pop("bytes_per_token", 4.0)).astype(np.int64)
    vocab_size = more.pop("vocab_size", 50_000)
    return Points(
        name=name,
        vocab_size=vocab_size,
        flops=list(map(float, flops)),
        seeds=list(range(n_seeds)),
        unit_tokens=tokens,
        nats=nats,
        **more,
    )


def compared(*arms, confidence=0.95, text=None, cluster="document"):
    return compare_arms(arms, Losses.of(arms, text or heldout()), cluster, confidence=confidence)


def gap(percent, **options):
    """The gap of an arm to a reference without noise."""
    n_seeds = int(options.get("n_seeds", 3))
    (found,) = compared(points("ref", [0.0] * len(percent), n_seeds=n_seeds), points("arm", percent, **options))
    return found
