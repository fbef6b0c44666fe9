"""Chooses among tokenizers by the cost of serving a model with them, by what a text shows beyond chance."""

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
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

MARGIN = 0.005
"""Smallest saving that counts, however much text there is."""
MOST = 4
"""Most finalists."""
_NEAR = 0.01
"""Difference in cost to the cheapest tokenizer up to which a smaller vocabulary is a finalist."""


@dataclass(frozen=True)
class Candidate:
    """A tokenizer to choose from.

    Attributes:
        name: Its name.
        recipe: How it was trained, apart from the size and the transition; its name if it was not trained here.
        vocab_size: Rows of the head.
        tokens: int64[n_documents], tokens of each document.
        superwords: Number of its superwords.
        lossy: Whether it loses text, which excludes it.
    """

    name: str
    recipe: str
    vocab_size: int
    tokens: NDArray[np.int64]
    superwords: int = 0
    lossy: bool = False


class Priced(NamedTuple):
    """The cost of a candidate at a deployment.

    Attributes:
        cost: FLOPs of reading one byte of text and generating another.
        relative: That cost over the reference's.
        low, high: 95 % interval of `relative` over documents, paired; None if there are too few.
        p: P-value of saving less than what counts, corrected for the number of candidates; 1 for the reference.
        frontier: Whether no other candidate is at most as large and cheaper.
    """

    cost: float
    relative: float
    low: float | None
    high: float | None
    p: float
    frontier: bool

    @property
    def cheaper(self) -> bool:
        """Whether it is cheaper than the reference by more than the smallest saving that counts, beyond chance."""
        return self.p < 1 - CONFIDENCE


class Finalist(NamedTuple):
    """A tokenizer that is worth a comparison by language models, and the reason in a sentence."""

    name: str
    why: str


def cost_curve(deployed: Deployment, vocab_size: int) -> Polynomial:
    """FLOPs of reading a byte and generating a byte, as a function of the tokens per byte: it is a parabola.

    Args:
        deployed: The model that is served.
        vocab_size: Rows of its head.
    """
    points = np.array([0.1, 0.3, 0.5])
    costs = [serving_cost(deployed, vocab_size=vocab_size, tokens_per_byte=float(point)) for point in points]
    return Polynomial.fit(points, [cost.prefill.flops_per_byte + cost.decode.flops_per_byte for cost in costs], 2)


def serving_costs(
    candidates: Sequence[Candidate], n_bytes: NDArray[np.int64], deployed: Deployment
) -> dict[str, float]:
    """FLOPs of reading a byte and generating a byte, by candidate."""
    total = n_bytes.sum()
    return {one.name: float(cost_curve(deployed, one.vocab_size)(one.tokens.sum() / total)) for one in candidates}


def margin(costs: Sequence[float]) -> float:
    """Smallest saving that counts, as a share: more than another half of the training text would change.

    Args:
        costs: Costs of tokenizers of one recipe, from disjoint quarters of the training text. The variance falls with
            the amount of text, so two halves differ with the standard deviation of these.
    """
    return max(MARGIN, 2 * float(np.std(np.log(costs), ddof=1)))


def price(
    candidates: Sequence[Candidate], reference: str, n_bytes: NDArray[np.int64], deployed: Deployment, least: float
) -> dict[str, Priced]:
    """Price all candidates, and compare them with the reference on the same documents.

    Args:
        candidates: The candidates.
        reference: Name of one of them.
        n_bytes: int64[n_documents], bytes of each document.
        deployed: The model that is served.
        least: Smallest saving that counts, as a share.
    """
    curves = {one.name: cost_curve(deployed, one.vocab_size) for one in candidates}
    base = next(one for one in candidates if one.name == reference)
    sizes = n_bytes.astype(np.float64)
    costs = serving_costs(candidates, n_bytes, deployed)
    intervals: dict[str, tuple[float | None, float | None]] = {}
    p_values: dict[str, float] = {}
    for one in candidates:
        curve, other = curves[one.name], curves[reference]
        intervals[one.name] = (None, None)
        if one is base or len(sizes) < LEAST_DOCUMENTS:
            continue
        numerators = np.stack([one.tokens, base.tokens]).astype(np.float64)[:, None]
        ratio = Ratio.of_function(lambda x, a=curve, b=other: np.log(a(x[0]) / b(x[1])), numerators, sizes)  # type: ignore[misc]
        if (interval := ratio.known_interval(CONFIDENCE)) is None:
            continue
        intervals[one.name] = (float(np.exp(interval[0])), float(np.exp(interval[1])))
        if not one.lossy:
            beyond = replace(ratio, value=ratio.value - np.log1p(-least))
            p_values[one.name] = float(beyond.p_value()) if beyond.value < 0 else 1.0
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))

    def leads(one: Candidate) -> bool:
        rivals = [other for other in candidates if not other.lossy and other.vocab_size <= one.vocab_size]
        return not one.lossy and costs[one.name] == min(costs[other.name] for other in rivals)

    return {
        one.name: Priced(
            costs[one.name], costs[one.name] / costs[reference], *intervals[one.name],
            corrected.get(one.name, 1.0), leads(one),
        )
        for one in candidates
    }  # fmt: skip


def finalists(candidates: Sequence[Candidate], prices: Mapping[str, Priced], reference: str) -> list[Finalist]:
    """Return the reference, and tokenizers that are cheaper beyond chance: the cheapest, a smaller one, another recipe.

    Args:
        candidates: The candidates.
        prices: Their prices.
        reference: Name of the reference.
    """

    def cost(one: Candidate) -> float:
        return prices[one.name].cost

    def against(one: Candidate, other: str = reference) -> str:
        return percent_change(cost(one), prices[other].cost)

    chosen = [Finalist(reference, "the reference of the comparison")]
    cheaper = sorted((one for one in candidates if prices[one.name].cheaper), key=cost)
    if not cheaper:
        return chosen
    best = cheaper[0]
    low, high = (signed(100 * ((end or 0) - 1), 1) for end in (prices[best.name].low, prices[best.name].high))
    chosen.append(
        Finalist(
            best.name,
            f"the cheapest to serve: {against(best)} FLOPs per byte against {reference} (95 %: {low} to {high} %)",
        )
    )
    smaller = min((one for one in cheaper if cost(one) <= cost(best) * (1 + _NEAR)), key=lambda one: one.vocab_size)
    if smaller.vocab_size < best.vocab_size:
        chosen.append(
            Finalist(
                smaller.name,
                f"the smallest vocabulary within {100 * _NEAR:g} % of that cost: {si(smaller.vocab_size)} instead of "
                f"{si(best.vocab_size)} tokens",
            )
        )
    plain = next((one for one in cheaper if bool(one.superwords) != bool(best.superwords)), None)
    other = next((one for one in cheaper if one.recipe != best.recipe), None)
    what = "superwords" if not best.superwords else "no superwords"
    for rival, how in ((plain, what), (other, f"another recipe, {other.recipe}" if other else "")):
        if rival is not None and rival.name not in [one.name for one in chosen] and len(chosen) < MOST:
            chosen.append(Finalist(rival.name, f"the cheapest with {how}: {against(rival)} against {reference}"))
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
