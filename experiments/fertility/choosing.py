"""Chooses among tokenizers by the cost of serving a model with them, as far as a text shows it beyond chance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.polynomial import Polynomial

from experiments.cli.console import percent_change, si, signed
from experiments.fertility.measures import CONFIDENCE, LEAST_DOCUMENTS
from lm.evaluate.deployment import Deployment, serving_cost
from lm.evaluate.significance import Ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MARGIN = 0.005
"""Smallest saving that counts, however much text there is."""
MOST = 4
"""Most finalists."""
_NEAR = 0.01
"""Difference in cost to the cheapest tokenizer up to which a smaller vocabulary is a finalist."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A tokenizer to choose from.

    Attributes:
        name: Its name.
        recipe: How it was trained, apart from the size and the transition; its name if it was not trained here.
        vocab_size: Rows of the head.
        tokens: int64[n_documents], tokens of each document.
        superwords: Number of its superwords.
        lossy: Whether it loses text, which excludes it.
        cost: FLOPs of reading one byte of text and generating another; this and the following are set by `price`.
        relative: That cost over the reference's.
        low, high: 95 % interval of `relative` over documents, paired; None if there are too few.
        p: P-value of saving less than what counts, corrected for the number of candidates; 1 for the reference.
        frontier: Whether no candidate of at most its size is cheaper.
    """

    name: str
    recipe: str
    vocab_size: int
    tokens: NDArray[np.int64]
    superwords: int = 0
    lossy: bool = False
    cost: float = 0.0
    relative: float = 1.0
    low: float | None = None
    high: float | None = None
    p: float = 1.0
    frontier: bool = False


class Finalist(NamedTuple):
    """A tokenizer that is worth a comparison by language models, and the reason in a sentence."""

    name: str
    why: str


def cost_curve(deployed: Deployment, vocab_size: int) -> Polynomial:
    """FLOPs of reading a byte and generating a byte, as a function of the tokens per byte: it is a parabola."""
    points = np.array([0.1, 0.3, 0.5])
    costs = [serving_cost(deployed, vocab_size=vocab_size, tokens_per_byte=float(point)) for point in points]
    return Polynomial.fit(points, [cost.prefill.flops_per_byte + cost.decode.flops_per_byte for cost in costs], 2)


def margin(quarters: Sequence[float]) -> float:
    """Smallest saving that counts, as a share: more than another half of the training text would change.

    Args:
        quarters: Costs of tokenizers of one recipe, from disjoint quarters of the training text. The variance falls
            with the amount of text, so two random halves differ with the standard deviation of quarters.
    """
    return max(MARGIN, 2 * float(np.std(np.log(quarters), ddof=1)))


def price(
    candidates: Sequence[Candidate], reference: str, n_bytes: NDArray[np.int64], deployed: Deployment, least: float
) -> list[Candidate]:
    """Price all candidates, and compare them with the reference on the same documents.

    Args:
        candidates: The candidates.
        reference: Name of one of them.
        n_bytes: int64[n_documents], bytes of each document.
        deployed: The model that is served.
        least: Smallest saving that counts, as a share.
    """
    base = next(one for one in candidates if one.name == reference)
    base_curve, sizes = cost_curve(deployed, base.vocab_size), n_bytes.astype(np.float64)
    priced = []
    for one in candidates:
        curve = cost_curve(deployed, one.vocab_size)
        cost, other = (float(c(x.tokens.sum() / sizes.sum())) for c, x in ((curve, one), (base_curve, base)))
        priced.append(replace(one, cost=cost, relative=cost / other))
        if one is base or len(sizes) < LEAST_DOCUMENTS:
            continue
        numerators = np.stack([one.tokens, base.tokens]).astype(np.float64)[:, None]
        ratio = Ratio.of_function(lambda x, curve=curve: np.log(curve(x[0]) / base_curve(x[1])), numerators, sizes)  # type: ignore[misc]
        if (interval := ratio.known_interval(CONFIDENCE)) is not None:
            beyond = replace(ratio, value=ratio.value - np.log1p(-least))
            p = float(beyond.p_value()) if beyond.value < 0 and not one.lossy else 1.0
            priced[-1] = replace(priced[-1], low=float(np.exp(interval[0])), high=float(np.exp(interval[1])), p=p)
    corrected = holm([one.p for one in priced])
    usable = [one for one in priced if not one.lossy]
    return [
        replace(
            one,
            p=p,
            frontier=not one.lossy and one.cost <= min(x.cost for x in usable if x.vocab_size <= one.vocab_size),
        )
        for one, p in zip(priced, corrected, strict=True)
    ]


def finalists(priced: Sequence[Candidate], reference: str) -> list[Finalist]:
    """Return the reference, and those that are cheaper beyond chance: the cheapest, a smaller one, another recipe."""
    base = next(one for one in priced if one.name == reference)
    chosen = [Finalist(reference, "the reference of the comparison")]
    cheaper = sorted((one for one in priced if one.p < 1 - CONFIDENCE), key=lambda one: one.cost)
    if not cheaper:
        return chosen
    best = cheaper[0]
    ends = " to ".join(signed(100 * ((end or 1) - 1), 1) for end in (best.low, best.high))
    saving = f"{percent_change(best.cost, base.cost)} FLOPs per byte against {reference} (95 %: {ends} %)"
    chosen.append(Finalist(best.name, f"the cheapest to serve: {saving}"))
    near = [one for one in cheaper if one.cost <= best.cost * (1 + _NEAR) and one.vocab_size < best.vocab_size]
    if near:
        smaller = min(near, key=lambda one: one.vocab_size)
        sizes = f"{si(smaller.vocab_size)} instead of {si(best.vocab_size)} tokens"
        chosen.append(Finalist(smaller.name, f"the smallest vocabulary within {100 * _NEAR:g} % of that cost: {sizes}"))
    plain = next((one for one in cheaper if bool(one.superwords) != bool(best.superwords)), None)
    other = next((one for one in cheaper if one.recipe != best.recipe), None)
    for rival, what in ((plain, "no superwords" if best.superwords else "superwords"), (other, "another recipe")):
        if rival is not None and rival.name not in [one.name for one in chosen] and len(chosen) < MOST:
            saving = f"{percent_change(rival.cost, base.cost)} against {reference}"
            chosen.append(Finalist(rival.name, f"the cheapest with {what}: {saving}"))
    return chosen


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values so that the family-wise error rate of those below alpha is at most alpha.

    (Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6, 1979.)

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted
