"""Chooses among tokenizers by the cost of serving a model with them, as far as a text shows it beyond chance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import Polynomial

from experiments.cli.console import percent_change, signed
from experiments.fertility.measures import CONFIDENCE, LEAST_DOCUMENTS
from lm.evaluate.deployment import Deployment, serving_cost
from lm.evaluate.significance import Ratio, family_level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from experiments.fertility.counting import Tally

MARGIN = 0.005
"""Smallest saving that counts, however much text there is."""
MOST = 4
"""Most finalists."""
FACTS = ("name", "recipe", "vocab_size", "superwords", "lossy", "relative", "relative_low", "relative_high", "frontier")
"""What is reported of a candidate."""
_NEAR = 0.01
"""Difference in cost to the cheapest tokenizer up to which a smaller vocabulary is a finalist."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A tokenizer to choose from.

    Attributes:
        name: Its name.
        recipe: How it was trained, apart from the size and the transition; its name if it was not trained here.
        counted: Its tokens. One that loses text cannot be a finalist.
        relative: FLOPs of reading a byte of text and generating another, over the reference's; this and what follows
            are set by `price`.
        relative_low, relative_high: Interval of `relative` over documents, paired, with 95 % for all candidates
            together; None for the reference and if there are too few documents.
        frontier: Whether no candidate of at most its size is cheaper.
    """

    name: str
    recipe: str
    counted: Tally
    relative: float = 1.0
    relative_low: float | None = None
    relative_high: float | None = None
    frontier: bool = False

    @property
    def vocab_size(self) -> int:
        """Rows of the head."""
        return self.counted.tokenizer.vocab_size

    @cached_property
    def superwords(self) -> int:
        """Number of superwords."""
        return len(self.counted.tokenizer.superword_ids())

    @property
    def lossy(self) -> bool:
        """Whether it loses text."""
        return bool(self.counted.changed.any() or self.counted.lost.any())


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
    candidates: Sequence[Candidate], reference: str, n_bytes: NDArray[np.int64], deployed: Deployment
) -> list[Candidate]:
    """Price all candidates, and compare each with the reference on the documents on which both were measured.

    Args:
        candidates: The candidates.
        reference: Name of one of them.
        n_bytes: int64[n_documents], bytes of each document.
        deployed: The model that is served.
    """
    base = next(one for one in candidates if one.name == reference)
    level = family_level(CONFIDENCE, len(candidates) - 1)
    priced = []
    for one in candidates:
        curves, chosen = (
            [cost_curve(deployed, x.vocab_size) for x in (one, base)],
            one.counted.measured & base.counted.measured,
        )
        numerators = np.stack([x.counted.tokens[chosen] for x in (one, base)]).astype(np.float64)[:, None]
        ratio = Ratio.of_function(
            lambda x, of=curves: np.log(of[0](x[0]) / of[1](x[1])),  # type: ignore[misc]
            numerators,
            n_bytes[chosen].astype(np.float64),
        )
        interval = None if one is base or chosen.sum() < LEAST_DOCUMENTS else ratio.known_interval(level)
        low, high = (None, None) if interval is None else map(float, np.exp(interval))
        priced.append(replace(one, relative=float(np.exp(ratio.value)), relative_low=low, relative_high=high))
    usable = [one for one in priced if not one.lossy]
    best = {size: min(x.relative for x in usable if x.vocab_size <= size) for size in {x.vocab_size for x in usable}}
    return [replace(one, frontier=not one.lossy and one.relative <= best[one.vocab_size]) for one in priced]


def finalists(priced: Sequence[Candidate], reference: str, least: float) -> dict[str, str]:
    """Return the reference and at most three that are cheaper beyond chance, each with the reason in a sentence.

    Args:
        priced: The candidates with their prices.
        reference: Name of one of them.
        least: Smallest saving that counts, as a share.
    """
    chosen = {reference: "the reference of the comparison"}
    cheaper = [one for one in priced if (one.relative_high or 1) < 1 - least and not one.lossy]
    if not cheaper:
        return chosen
    cheaper.sort(key=lambda one: one.relative)
    best = cheaper[0]
    near = [one for one in cheaper if one.relative <= best.relative * (1 + _NEAR)]
    ends = " to ".join(signed(100 * ((end or 1) - 1), 1) for end in (best.relative_low, best.relative_high))
    reasons = (
        ([best], f"the cheapest to serve (95 %: {ends} %)"),
        (
            sorted(near, key=lambda one: one.vocab_size),
            f"the smallest vocabulary within {100 * _NEAR:g} % of that cost",
        ),
        (
            [one for one in cheaper if bool(one.superwords) != bool(best.superwords)],
            f"the cheapest with {'no ' * bool(best.superwords)}superwords",
        ),
        ([one for one in cheaper if one.recipe != best.recipe], "the cheapest with another recipe"),
    )
    for rivals, reason in reasons:
        if rivals and len(chosen) < MOST:
            saving = f"{percent_change(rivals[0].relative, 1)} FLOPs per byte against {reference}"
            chosen.setdefault(rivals[0].name, f"{reason}: {saving}")
    return chosen
