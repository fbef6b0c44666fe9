"""Chooses among tokenizers by the cost of serving a model with them, as far as a text shows it beyond chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial import Polynomial

from experiments.fertility.measures import CONFIDENCE, LEAST_DOCUMENTS
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


def price(
    counted: Mapping[str, Tally],
    recipes: Mapping[str, str],
    reference: str,
    documents: Documents,
    deployed: Deployment,
) -> list[dict[str, Any]]:
    """Price all tokenizers, and compare each with the reference on the documents on which both were measured.

    Args:
        counted: Tokens of each tokenizer, by name.
        recipes: How each was trained, apart from the size and the transition.
        reference: Name of one of them.
        documents: The measured documents.
        deployed: The model that is served.

    Returns:
        A row for each tokenizer, as JSON. `relative` is the cost over the reference's, of reading a byte of text and
        generating another. Its interval, `relative_low` to `relative_high`, is over documents, paired, with 95 % for
        all tokenizers together; None for the reference and if there are too few documents. `frontier` says whether no
        tokenizer of at most its size is cheaper; one that loses text (`lossy`) is left out.
    """
    base, level = counted[reference], family_level(CONFIDENCE, len(counted) - 1)
    rows: list[dict[str, Any]] = []
    for name, one in counted.items():
        curves = [cost_curve(deployed, x.tokenizer.vocab_size) for x in (one, base)]
        chosen = one.measured & base.measured
        columns = (one.tokens[chosen], base.tokens[chosen], documents.n_bytes[chosen])
        *numerators, n_bytes = by_text(documents.hashes[chosen], *columns)
        ratio = Ratio.of_function(
            lambda x, of=curves: np.log(of[0](x[0]) / of[1](x[1])),  # type: ignore[misc]
            np.stack(numerators)[:, None],
            n_bytes,
        )
        interval = None if one is base or len(n_bytes) < LEAST_DOCUMENTS else ratio.known_interval(level)
        rows.append(
            {
                "name": name,
                "recipe": recipes[name],
                "vocab_size": one.tokenizer.vocab_size,
                "superwords": len(one.tokenizer.superword_ids()),
                "lossy": bool(one.changed.any() or one.lost.any()),
                "relative": float(np.exp(ratio.value)),
                "relative_low": None if interval is None else float(np.exp(interval[0])),
                "relative_high": None if interval is None else float(np.exp(interval[1])),
            }
        )
    for row in rows:
        rivals = [x["relative"] for x in rows if x["vocab_size"] <= row["vocab_size"] and not x["lossy"]]
        row["frontier"] = not row["lossy"] and row["relative"] <= min(rivals)
    return rows


def finalists(
    priced: Sequence[Mapping[str, Any]], reference: str, least: float, existing: Collection[str] = ()
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
    kept = sorted((one for one in priced if not one["lossy"]), key=lambda one: one["relative"])
    reasons = [([one], "one of --against") for one in kept if one["name"] in existing]
    if cheaper := [one for one in kept if (one["relative_high"] or 1) < 1 - least]:
        best = cheaper[0]
        near = [one for one in cheaper if one["relative"] <= best["relative"] * (1 + _NEAR)]
        near.sort(key=lambda one: one["vocab_size"])
        others = [one for one in cheaper if bool(one["superwords"]) != bool(best["superwords"])]
        reasons = [
            ([best], CHEAPEST),
            *reasons,
            (near, f"the smallest vocabulary within {100 * _NEAR:g} % of that cost"),
            (others, f"the cheapest with{'out' * bool(best['superwords'])} superwords"),
            ([one for one in cheaper if one["recipe"] != best["recipe"]], "the cheapest with another recipe"),
        ]
    for rivals, reason in reasons:
        if rivals and len(chosen) < MOST:
            one = rivals[0]
            ends = [signed(100 * (end - 1), 1) for end in (one["relative_low"], one["relative_high"]) if end]
            interval = f" (95 %: {' to '.join(ends)} %)" if ends else ""
            saving = f"{percent_change(one['relative'], 1)} FLOPs per byte against {reference}"
            chosen.setdefault(one["name"], f"{reason}: {saving}{interval}")
    return chosen
