"""Chooses among tokenizers by the cost of serving a model with them, as far as a text shows it beyond chance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.polynomial import Polynomial

from experiments.fertility.measures import CONFIDENCE, LEAST_DOCUMENTS, Measure
from experiments.fertility.tallies import by_text
from experiments.numbers import percent_change, signed
from lm.evaluate.deployment import Deployment, serving_cost
from lm.evaluate.significance import Ratio, family_level

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from experiments.fertility.tallies import Documents, Tally

MARGIN = 0.005
"""Smallest saving that counts, however much text there is."""
MOST, CHEAPEST = 4, "the cheapest to serve"
"""Most finalists, and why one of them is a finalist."""
_NEAR = 0.01
"""Difference in cost to the cheapest tokenizer up to which a smaller vocabulary is a finalist."""


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


class Contender(NamedTuple):
    """A tokenizer whose tokens are counted.

    Attributes:
        tally: Its tokens.
        recipe: How it was trained, apart from the size and the transition.
        last_count: Count of its last merge in the training text; None if that is unknown.
        software: Software that runs it, if our core cannot.
    """

    tally: Tally
    recipe: str
    last_count: int | None = None
    software: str | None = None


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A tokenizer with its price.

    Attributes:
        name: Its name.
        recipe: How it was trained, apart from the size and the transition.
        vocab_size: Size of the vocabulary.
        superwords: Number of superwords.
        lossy: Whether it loses some of the text.
        relative: Cost over the reference's, of reading a byte of text and generating another. The interval is over
            documents, paired, with 95 % for all tokenizers together; there is none for the reference, or of too few
            documents.
        frontier: Whether no tokenizer of at most its size is cheaper; False if it loses text.
        documents: Number of documents on which it was measured.
        bytes_per_token: Bytes per token of all text.
        cache_bytes_per_byte: Bytes of the KV cache per byte of text.
        parameters: Parameters of the embedding and the head.
        last_count: Count of its last merge in the training text; None if that is unknown.
        software: Software that runs it, if our core cannot.
    """

    name: str
    recipe: str
    vocab_size: int
    superwords: int
    lossy: bool
    relative: Measure
    frontier: bool = False
    documents: int
    bytes_per_token: float
    cache_bytes_per_byte: float
    parameters: int
    last_count: int | None
    software: str | None

    def save(self) -> dict[str, Any]:
        """The entry of the JSON."""
        return {**vars(self), **self.relative.save("relative")}

    @property
    def cost(self) -> float:
        """Cost over the reference's, to order tokenizers by."""
        assert self.relative.value is not None
        return self.relative.value


def price(
    contenders: Mapping[str, Contender], reference: str, documents: Documents, deployed: Deployment
) -> list[Candidate]:
    """Price all tokenizers, and compare each with the reference on the documents on which both were measured.

    Args:
        contenders: The tokenizers by name.
        reference: Name of one of them.
        documents: The measured documents.
        deployed: The model that is served.
    """
    base, level = contenders[reference].tally, family_level(CONFIDENCE, len(contenders) - 1)
    priced = []
    for name, one in contenders.items():
        tally, size = one.tally, one.tally.tokenizer.vocab_size
        n_tokens, n_bytes = int(tally.tokens.sum()), int(documents.n_bytes[tally.measured].sum())
        cost = serving_cost(deployed, vocab_size=size, tokens_per_byte=n_tokens / n_bytes)
        priced.append(
            Candidate(
                name=name,
                recipe=one.recipe,
                vocab_size=size,
                superwords=len(tally.tokenizer.superword_ids()),
                lossy=bool(tally.changed.any() or tally.lost.any()),
                relative=relative_cost(tally, base, documents, deployed, level),
                documents=int(tally.measured.sum()),
                bytes_per_token=n_bytes / n_tokens,
                cache_bytes_per_byte=cost.cache_bytes_per_byte,
                parameters=2 * deployed.hidden_size * size,
                last_count=one.last_count,
                software=one.software,
            )
        )
    return [replace(one, frontier=_on_frontier(one, priced)) for one in priced]


def relative_cost(one: Tally, base: Tally, documents: Documents, deployed: Deployment, level: float) -> Measure:
    """Cost of serving with a tokenizer over the cost with another, and its interval at this level of confidence."""
    curves = [cost_curve(deployed, x.tokenizer.vocab_size) for x in (one, base)]
    chosen = one.measured & base.measured
    columns = (one.tokens[chosen], base.tokens[chosen], documents.n_bytes[chosen])
    *numerators, n_bytes = by_text(documents.hashes[chosen], *columns)
    ratio = Ratio.of_function(
        lambda x: np.log(curves[0](x[0]) / curves[1](x[1])), np.stack(numerators)[:, None], n_bytes
    )
    interval = None if one is base or len(n_bytes) < LEAST_DOCUMENTS else ratio.known_interval(level)
    ends = (None, None) if interval is None else (float(np.exp(interval[0])), float(np.exp(interval[1])))
    return Measure(float(np.exp(ratio.value)), *ends)


def _on_frontier(one: Candidate, priced: Sequence[Candidate]) -> bool:
    rivals = [x.cost for x in priced if x.vocab_size <= one.vocab_size and not x.lossy]
    return not one.lossy and one.cost <= min(rivals)


def finalists(
    priced: Sequence[Candidate], reference: str, least: float, existing: Collection[str] = ()
) -> dict[str, str]:
    """Return the reference, the cheapest, existing tokenizers, and others that are cheaper, each with the reason.

    They are at most `MOST`, and all but existing ones are cheaper beyond chance.

    Args:
        priced: The tokenizers with their prices.
        reference: Name of one of them.
        least: Smallest saving that counts, as a share.
        existing: Names of the tokenizers that the user has.
    """
    chosen = {reference: "the reference of the comparison"}
    kept = sorted((one for one in priced if not one.lossy), key=lambda one: one.cost)
    reasons = [([one], "one of --against") for one in kept if one.name in existing]
    if cheaper := [one for one in kept if (one.relative.high or 1) < 1 - least]:
        best = cheaper[0]
        near = [one for one in cheaper if one.cost <= best.cost * (1 + _NEAR)]
        near.sort(key=lambda one: one.vocab_size)
        others = [one for one in cheaper if bool(one.superwords) != bool(best.superwords)]
        reasons = [
            ([best], CHEAPEST),
            *reasons,
            (near, f"the smallest vocabulary within {100 * _NEAR:g} % of that cost"),
            (others, "the cheapest without superwords" if best.superwords else "the cheapest with superwords"),
            ([one for one in cheaper if one.recipe != best.recipe], "the cheapest with another recipe"),
        ]
    for rivals, reason in reasons:
        if rivals and len(chosen) < MOST:
            one = rivals[0]
            ends = [signed(100 * (end - 1), 1) for end in one.relative[1:] if end]
            interval = f" (95 %: {' to '.join(ends)} %)" if ends else ""
            saving = f"{percent_change(one.cost, 1, 1)} FLOPs per byte against {reference}"
            chosen.setdefault(one.name, f"{reason}: {saving}{interval}")
    return chosen
