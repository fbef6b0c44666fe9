"""Chooses among tokenizers by the cost of serving a model with them, as far as a text shows it beyond chance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.polynomial import Polynomial

from experiments.fertility.measures import (
    CONFIDENCE,
    LEAST_DOCUMENTS,
    UNDEFINED,
    Measure,
    cut_share,
    gini_of_sources,
)
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
LEAST_COUNT = 10
"""A vocabulary whose last merge is rarer in the training text is no finalist: the text is too small for it."""
_NEAR = 0.01
"""Difference in cost to the cheapest tokenizer up to which a smaller vocabulary is a finalist."""


def cost_curve(deployed: Deployment, vocab_size: int) -> Polynomial:
    """FLOPs of reading a byte and generating a byte, as a function of the tokens per byte: it is a parabola."""
    points = np.array([0.1, 0.3, 0.5])
    costs = [serving_cost(deployed, vocab_size=vocab_size, tokens_per_byte=float(point)) for point in points]
    return Polynomial.fit(points, [cost.flops_per_byte for cost in costs], 2)


def margin(differences: Sequence[float]) -> float:
    """Smallest saving that counts, as a share: more than another half of the training text would change.

    Args:
        differences: Logarithms of the cost of a tokenizer over its reference's, both trained on the same quarter of the
            training text, for disjoint quarters. The variance falls with the amount of text, so two random halves
            differ with the standard deviation of quarters.
    """
    return max(MARGIN, 2 * float(np.std(differences, ddof=1)))


class Contender(NamedTuple):
    """A tokenizer whose tokens are counted.

    Attributes:
        recipe: How it was trained, apart from the size and the transition.
        last_count: Count of its last merge in the training text, or the least that it can be if sources have weights;
            None if that is unknown.
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
        recipe: How it was trained, apart from the size and the transition.
        lossy: Whether it loses some of the text.
        flops_per_byte: Cost of serving: FLOPs of reading a byte of text and generating another.
        reference: Name of the tokenizer that it is compared with: full-strength BPE of the same size, unless the user
            chose another; None if there is none of this size.
        relative: Cost over the reference's. The interval is over documents, paired, with 95 % for all tokenizers
            together; there is none for the reference itself, or of too few documents.
        supported: Whether the text is large enough for this vocabulary and the reference's: their last merges occur at
            least `LEAST_COUNT` times.
        frontier: Whether no tokenizer of at most its size is cheaper; False if it loses text.
        documents: Number of documents on which it was measured.
        parameters: Parameters of the embedding and the head.
        last_count: Count of its last merge in the training text; None if that is unknown.
        software: Software that runs it, if our core cannot.
        strr: Share of the words that are in one token; None if that is not known. See `measures.Row`.
        gini: Gini coefficient of the sources' tokens per byte; None with a single source.
        bits_per_byte: Loss of its models in the run that the user named; None if it has none there.
        loss_percent: Difference of this loss to the loss of the run's first tokenizer, in percent.
    """

    name: str
    recipe: str
    vocab_size: int
    superwords: int
    lossy: bool
    flops_per_byte: float
    reference: str | None
    relative: Measure
    supported: bool
    frontier: bool = False
    documents: int
    bytes_per_token: float
    cache_bytes_per_byte: float
    parameters: int
    last_count: int | None
    software: str | None
    strr: float | None = None
    gini: float | None = None
    bits_per_byte: float | None = None
    loss_percent: Measure = UNDEFINED

    def save(self) -> dict[str, Any]:
        """The entry of the JSON."""
        return {
            **vars(self),
            "rare": is_rare(self.last_count),
            **self.relative.save("relative"),
            **self.loss_percent.save("loss_percent"),
        }


def price(
    contenders: Mapping[str, Contender],
    references: Mapping[str, str | None],
    documents: Documents,
    deployed: Deployment,
) -> list[Candidate]:
    """Price all tokenizers, and compare each with its reference on the documents on which both were measured."""
    compared = sum(reference not in (None, name) for name, reference in references.items())
    level = family_level(CONFIDENCE, max(compared, 1))
    priced = []
    for name, one in contenders.items():
        tally, size, reference = one.tally, one.tally.tokenizer.vocab_size, references[name]
        n_tokens, n_bytes = int(tally.tokens.sum()), int(documents.n_bytes[tally.measured].sum())
        cost = serving_cost(deployed, vocab_size=size, tokens_per_byte=n_tokens / n_bytes)
        base = None if reference is None else contenders[reference]
        priced.append(
            Candidate(
                name=name,
                recipe=one.recipe,
                vocab_size=size,
                superwords=len(tally.tokenizer.superword_ids()),
                lossy=bool(tally.changed.any() or tally.lost.any()),
                flops_per_byte=cost.flops_per_byte,
                reference=reference,
                relative=relative_cost(tally, base.tally, documents, deployed, level) if base else UNDEFINED,
                supported=not is_rare(one.last_count) and (base is None or not is_rare(base.last_count)),
                documents=int(tally.measured.sum()),
                bytes_per_token=n_bytes / n_tokens,
                strr=cut_share(tally, documents, "words", np.flatnonzero(tally.measured)).complement().value,
                gini=gini_of_sources(tally, documents),
                cache_bytes_per_byte=cost.cache_bytes_per_byte,
                parameters=2 * deployed.hidden_size * size,
                last_count=one.last_count,
                software=one.software,
            )
        )
    return [replace(one, frontier=_on_frontier(one, priced)) for one in priced]


def is_rare(last_count: int | None) -> bool:
    """Whether the last merge of a vocabulary is too rare in the training text; False if its count is unknown."""
    return last_count is not None and last_count < LEAST_COUNT


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
    rivals = [x.flops_per_byte for x in priced if x.vocab_size <= one.vocab_size and not x.lossy]
    return not one.lossy and one.flops_per_byte <= min(rivals)


def finalists(
    priced: Sequence[Candidate],
    least: float,
    existing: Collection[str] = (),
    extended: Mapping[str, str] | None = None,
    reference: str | None = None,
) -> dict[str, str]:
    """Return the reference, the cheapest, existing tokenizers, and others that are cheaper, each with the reason.

    They are at most `MOST`. All but existing and extended ones are cheaper than their reference beyond chance. The text
    supports all but existing ones.

    Args:
        priced: The tokenizers with their prices.
        least: Smallest saving that counts, as a share.
        existing: Names of the tokenizers that the user has.
        extended: Names of tokenizers that extend one of these, and of that one.
        reference: Name of the reference that the user chose; None for the reference of the cheapest.
    """
    kept = sorted((one for one in priced if not one.lossy), key=lambda one: one.flops_per_byte)
    supported = [one for one in kept if one.supported and one.name not in existing]
    extended = extended or {}
    cheaper = [one for one in supported if one.name not in extended and (one.relative.high or 1) < 1 - least]
    reasons = [([one], "one of the tokenizers that you have") for one in kept if one.name in existing]
    for new, old in extended.items():
        on_frontier = [one for one in supported if one.name == new and one.frontier]
        reasons.append((on_frontier, f"the cheapest up to its size, and it keeps the ids of {old} and a trained model"))
    if cheaper:
        best = cheaper[0]
        near = [one for one in cheaper if one.flops_per_byte <= best.flops_per_byte * (1 + _NEAR)]
        near.sort(key=lambda one: one.vocab_size)
        equal = [one for one in cheaper if one.vocab_size == best.vocab_size]
        others = [one for one in equal if bool(one.superwords) != bool(best.superwords)]
        reasons = [
            ([best], CHEAPEST),
            *reasons,
            (near, f"the smallest vocabulary within {100 * _NEAR:g} % of that cost"),
            (others, "the cheapest without superwords" if best.superwords else "the cheapest with superwords"),
            ([one for one in equal if one.recipe != best.recipe], "the cheapest with another recipe"),
        ]
        reference = reference or best.reference
    plain = [one.name for one in kept if one.name == one.reference]
    supported_plain = [one.name for one in supported if one.name == one.reference]
    reference = reference or next(iter([*supported_plain, *plain, *(one.name for one in kept)]))
    chosen = {reference: "the reference of the comparison"}
    for rivals, reason in reasons:
        if rivals and len(chosen) < MOST:
            chosen.setdefault(rivals[0].name, reason + saving(rivals[0]))
    return chosen


def saving(one: Candidate) -> str:
    """The cost over the reference's as the end of a sentence; empty without a reference."""
    if one.relative.value is None or one.reference == one.name:
        return ""
    ends = [signed(100 * (end - 1), 1) for end in one.relative[1:] if end]
    interval = f" (95 %: {' to '.join(ends)} %)" if ends else ""
    return f": {percent_change(one.relative.value, 1, 1)} FLOPs per byte against {one.reference}{interval}"
