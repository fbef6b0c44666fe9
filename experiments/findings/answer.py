"""The answer as a table: tokens, price and loss of every arm, by kind of text and for the mix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from experiments.findings.compared import NO_DIFFERENCE
from experiments.findings.verdict import decision
from experiments.numbers import signed
from experiments.progress import Lines, Table
from lm.bits import bytes_per_token
from lm.evaluate.bits_per_byte import KIND
from lm.evaluate.comparison import Decision
from lm.evaluate.deployment import PUBLISHED_RATE, serving_cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.findings.compared import Findings, ScoredArm
    from lm.evaluate.comparison import Comparison

MIX = "all"
"""Name of the mix of all kinds of text."""
NOT_MEASURED = "not measured"
NO_VERDICT = "no verdict"
AS_GIVEN = "bits per byte, models as given"


@dataclass(frozen=True)
class Line:
    """An arm on a kind of text, or on the mix.

    Attributes:
        kind: The kind of text, or `MIX`.
        bytes_per_token: Bytes per token of the kind's held-out text.
        serving_flops_per_byte: FLOPs of reading and generating a byte in the deployed model, or the arm's own
            (`Findings.as_given`).
        bits_per_byte: Loss as measured, mean over the seeds.
        tokens_percent: Change of the tokens from the reference.
        serving_percent: Change of the serving cost from the reference.
        as_given: Comparison of the models as they are with the reference's; None for the reference.
        at_text: Comparison with the reference at equal training text; None for the reference, or if not measured.
        at_compute: Comparison at equal FLOPs of training the deployed model; likewise.
    """

    label: str
    kind: str
    bytes_per_token: float
    serving_flops_per_byte: float
    bits_per_byte: float
    tokens_percent: float
    serving_percent: float
    as_given: Comparison | None = None
    at_text: Comparison | None = None
    at_compute: Comparison | None = None


def lines(result: Findings) -> list[Line]:
    """The lines of the table, arm by arm, the mix first."""
    base = result.arms[0].compared[0]
    kinds, names = base.groups.get(KIND), [MIX]
    if kinds is not None and len(kinds.names) > 1:
        names += [kinds.names[i] for i in kinds.largest_first(base.document_bytes)]
    found: list[Line] = []
    for place, arm in enumerate(result.arms):
        for number, kind in enumerate(names):
            density, loss = _measured(arm, kind)
            cost = _serving_flops_per_byte(result, arm, density)
            reference = found[number] if place else None
            found.append(
                Line(
                    label=arm.label,
                    kind=kind,
                    bytes_per_token=density,
                    serving_flops_per_byte=cost,
                    bits_per_byte=loss,
                    tokens_percent=100 * (reference.bytes_per_token / density - 1) if reference else 0.0,
                    serving_percent=100 * (cost / reference.serving_flops_per_byte - 1) if reference else 0.0,
                    as_given=_of_kind(result.comparisons.get((0, place)), kind),
                    at_text=_of_kind(result.at_text.get((0, place)), kind),
                    at_compute=_of_kind(result.at_compute.get((0, place)), kind),
                )
            )
    return found


def table(title: str, measured: Sequence[Line]) -> Table:
    """The lines as a table of the terminal and the page; those of the reference come first."""
    rows, reference = [], measured[0].label
    others = [line for line in measured if line.label != reference]
    traded = any(line.at_text or line.at_compute for line in others)
    header = ["", "text", "tokens", "cost of serving"]
    header += [f"bits per byte, equal {what}" for what in ("text", "training compute")] if traded else [AS_GIVEN]
    for line in measured:
        name = line.label if line.kind == MIX else ""
        if line.label == reference:
            density = f"{line.bytes_per_token:.3f} B each"
            rows.append([name, line.kind, density, "", f"{line.bits_per_byte:.4f}", *[""] * traded])
            continue
        compared = (line.at_text, line.at_compute) if traded else (line.as_given,)
        losses = [_cell(one, reference, line.label) for one in compared]
        rows.append(
            [name, line.kind, f"{signed(line.tokens_percent, 1)} %", f"{signed(line.serving_percent, 1)} %", *losses]
        )
    return Table(title, header, rows)


def _cell(compared: Comparison | None, reference: str, label: str) -> str:
    if compared is None:
        return NOT_MEASURED
    if compared.barred:
        return NO_VERDICT
    ends = compared.interval
    better = decision(compared, (reference, label))
    found = better if better in (reference, label) else ""
    undecided = NO_VERDICT if better == Decision.WITHHELD else better
    return Lines(
        f"{signed(compared.percent, 2)} %",
        f"{signed(ends[0], 2)} to {signed(ends[1], 2)}" if ends else "",
        f"{found} better" if found else undecided,
    )


def exchange_sentences(result: Findings) -> list[str]:
    """Sentences about the worth of training compute, and about the arm of `Findings.pair` at equal compute; or none."""
    if result.exchange is None or len(result.arms) < 2:
        return []
    reference, arm = (result.arms[i] for i in result.pair)
    rate, ends = result.exchange.measure(reference.compared)
    interval = f" ({100 * ends[0]:.1f} to {100 * ends[1]:.1f})" if ends else ""
    how = "as stated by deployment.rate" if result.exchange.stated is not None else f"measured on {reference.label}"
    others = f"between 6e19 and 2.6e20 FLOPs, published models have {100 * PUBLISHED_RATE:.1f} %"
    worth = f"An e-fold (2.7 times) of training compute is worth {100 * rate:.1f} % of the bits per byte{interval}"
    sentences = [f"{worth}, {how}; {others}."]
    compared = result.at_text.get(result.pair)
    e_folds = result.compute_e_folds(result.pair[1])
    if compared is not None and abs(e_folds) >= NO_DIFFERENCE:
        change = 100 * (math.exp(e_folds) - 1)
        which = "fewer" if change < 0 else "more"
        at_compute = result.at_compute.get(result.pair)  # as in the table
        first = compared.percent + 100 * rate * e_folds if at_compute is None else at_compute.percent
        published = compared.percent + 100 * PUBLISHED_RATE * e_folds
        at_rates = [f"{signed(first, 2)} % at the first rate", f"{signed(published, 2)} % at the published rate"]
        costs = f"On equal text, training the deployed model with {arm.label} takes {abs(change):.1f} % {which} FLOPs"
        sentences.append(f"{costs}: the same compute gives {' and '.join(at_rates)}.")
    return sentences


def _serving_flops_per_byte(result: Findings, arm: ScoredArm, density: float) -> float:
    """FLOPs of reading and generating a byte: in the deployed model, or in the arm's own."""
    if not result.as_given:
        served = serving_cost(result.deployment, vocab_size=arm.tokenizer.vocab_size, tokens_per_byte=1 / density)
        return served.flops_per_byte
    cost = arm.scores.cost  # of all text, nearly proportional to the tokens
    return (cost.prefill_flops_per_byte + cost.decode_flops_per_byte) * arm.scores.bytes_per_token / density


def _measured(arm: ScoredArm, kind: str) -> tuple[float, float]:
    """Bytes per token and bits per byte of a kind, or of the mix with its weights."""
    first = arm.compared[0]
    if kind == MIX:
        scale = first.units().scale
        n_bytes = float(first.clustered(first.document_bytes) @ scale)
        n_tokens = float(first.clustered(first.document_tokens) @ scale)
        return bytes_per_token(n_bytes, n_tokens), arm.scores.bits_per_byte
    kinds = first.groups[KIND]
    inside = kinds.index == kinds.names.index(kind)
    parts = [run.only(inside) for run in arm.compared]
    return parts[0].bytes_per_token, fmean(part.bits_per_byte for part in parts)


def _of_kind(compared: Comparison | None, kind: str) -> Comparison | None:
    if compared is None or kind == MIX:
        return compared
    return compared.kinds.get(kind)
