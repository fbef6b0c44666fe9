"""Two or more tokenizers compared on the same documents: differences with what is known about their spread."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lm.evaluate.bootstrap import multi_bootstrap, percentile_interval, percentile_p_value
from lm.evaluate.evaluation import Evaluation
from lm.evaluate.significance import estimate, holm, ratio_component, seed_component
from tokenizer.errors import UserError

Verdict = Literal["A better", "B better", "no significant difference"]
Runs = Evaluation | Sequence[Evaluation]
"""Evaluations of one tokenizer's models, one per training seed."""


@dataclass(frozen=True)
class Comparison:
    """Two tokenizers' models on the same documents; B minus A.

    With one seed each, the interval is a paired bootstrap over documents (or sources), and says nothing about other
    training runs. With several, its variance is the sum of two: between the seeds' differences, and between the
    documents' mean differences, each with its own quantile of Student's t (`significance.estimate`). Noise that
    belongs to one run and one document counts in both, so the interval is, if anything, too wide.

    Attributes:
        bits_per_byte_a: Of A, mean over its seeds; likewise `bits_per_byte_b`.
        difference: bits_per_byte_b - bits_per_byte_a; negative means that B is better.
        interval: Of the difference; None below two documents.
        confidence: Of the interval.
        n_documents: Documents that both scored.
        verdict: "no significant difference" if the interval contains 0, or the p-value adjusted for the number of
            comparisons is not small enough.
        n_seeds: Pairs of runs; those of one seed read the same documents in the same order.
        cluster: What was resampled: "document" or "source".
        n_clusters: How many of these there are.
        seed_differences: Difference of each pair of runs.
        p_value: Two-sided, against no difference; None below two documents. With one seed, from the bootstrap; where
            that has no resample on the other side of 0, from Student's t over documents if it is less: twice one in
            2000 resamples, corrected for 78 comparisons of 13 tokenizers, would never be significant.
        p_adjusted: After Holm's correction for all comparisons of one experiment; `p_value` where there is one.
        bootstrap_interval: With several seeds, the percentile interval of resampled seeds and documents: a check on
            `interval`, and too narrow with few seeds.
        seed_error: Standard error from seeds alone; None with one seed.
        document_error: Standard error from documents alone; None below two documents.
    """

    bits_per_byte_a: float
    bits_per_byte_b: float
    difference: float
    interval: tuple[float, float] | None
    confidence: float
    n_documents: int
    verdict: Verdict
    n_seeds: int = 1
    cluster: str = "document"
    n_clusters: int = 0
    seed_differences: tuple[float, ...] = ()
    p_value: float | None = None
    p_adjusted: float | None = None
    bootstrap_interval: tuple[float, float] | None = None
    seed_error: float | None = None
    document_error: float | None = None

    def summary(self) -> dict[str, Any]:
        """The same, JSON-able."""
        content = dataclasses.asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in content.items()}


def compare(a: Runs, b: Runs) -> Comparison:
    """Compare two tokenizers' models on the same documents.

    Args:
        a: The baseline: an evaluation, or one per seed.
        b: The other, with as many seeds in the same order.

    Raises:
        UserError: If they scored different documents, or scored them differently.
    """
    first, second = _runs(a), _runs(b)
    if len(first) != len(second):
        raise UserError(f"{len(first)} seeds are compared with {len(second)}; train equally many of both")
    for other in (*first[1:], *second):
        _same_or_refuse(first[0], other)
    base, config = first[0], first[0].config
    sizes = base.clustered(base.document_bytes)
    bits = np.array(
        [base.clustered((two.text_nats - one.text_nats) / math.log(2)) for one, two in _pairs(first, second)]
    )
    values_a, values_b = ([run.bits_per_byte for run in runs] for runs in (first, second))
    by_seed = [two - one for one, two in zip(values_a, values_b, strict=True)]
    difference = float(np.mean(by_seed))
    found: dict[str, Any] = {}
    if len(sizes) > 1:
        resampled = multi_bootstrap(bits, sizes, samples=config.bootstrap_samples, seed=config.seed)
        interval = percentile_interval(resampled, config.confidence)
        documents = ratio_component(bits.mean(axis=0), sizes)
        p_value = percentile_p_value(resampled)
        if p_value * (1 + len(resampled)) < 3:  # no resample on the other side: all that they say is "at most"
            p_value = min(p_value, estimate(difference, [documents], config.confidence).p_value)
        found = {"interval": interval, "p_value": p_value}
        if len(first) > 1:
            seeds = seed_component(by_seed)
            both = estimate(difference, [seeds, documents], config.confidence)
            found = {"interval": both.interval, "p_value": both.p_value, "bootstrap_interval": interval}
            found["seed_error"] = math.sqrt(seeds.variance)
        found["document_error"] = math.sqrt(documents.variance)
    comparison = Comparison(
        bits_per_byte_a=float(np.mean(values_a)),
        bits_per_byte_b=float(np.mean(values_b)),
        difference=difference,
        confidence=config.confidence,
        n_documents=len(base.document_bytes),
        verdict="no significant difference",
        n_seeds=len(first),
        cluster=base.cluster()[0],
        n_clusters=len(sizes),
        seed_differences=tuple(by_seed),
        **{"interval": None, **found},
    )
    return _judged(comparison, comparison.p_value)


def compare_all(runs: Sequence[Runs]) -> dict[tuple[int, int], Comparison]:
    """Compare every tokenizer with every later one, with Holm's correction for the number of comparisons.

    Args:
        runs: Of each tokenizer, as for `compare`.

    Returns:
        Comparisons by (number of A, number of B).
    """
    pairs = list(itertools.combinations(range(len(runs)), 2))
    found = [compare(runs[i], runs[j]) for i, j in pairs]
    tested = [1.0 if comparison.p_value is None else comparison.p_value for comparison in found]
    return {
        pair: _judged(comparison, None if comparison.p_value is None else p)
        for pair, comparison, p in zip(pairs, found, holm(tested), strict=True)
    }


def aggregate(runs: Runs) -> dict[str, Any]:
    """The summary of one tokenizer's models: the first one's, with bits per byte averaged over the seeds.

    With several seeds, `seeds` says what each one gave and their standard deviation, and the interval is that of
    `compare`, of one tokenizer alone.
    """
    evaluations = _runs(runs)
    summary = evaluations[0].summary()
    values = [evaluation.bits_per_byte for evaluation in evaluations]
    if len(values) == 1:
        return summary
    base = evaluations[0]
    sizes = base.clustered(base.document_bytes)
    components = [seed_component(values)]
    if len(sizes) > 1:
        bits = np.mean([base.clustered(each.text_nats / math.log(2)) for each in evaluations], axis=0)
        components.append(ratio_component(bits, sizes))
    mean = float(np.mean(values))
    interval = estimate(mean, components, base.config.confidence).interval
    return summary | {
        "bits_per_byte": mean,
        "bits_per_byte_interval": list(interval) if len(sizes) > 1 else None,
        "nats_per_byte": mean * math.log(2),
        "nats_per_token": mean * math.log(2) * summary["bytes_per_token"],
        "nats_per_document": mean * math.log(2) * summary["n_bytes"] / summary["n_documents"],
        "eos_nats_per_document": float(np.mean([each.eos_nats.mean() for each in evaluations])),
        **{f"by_{name}": _mean_rows([each.by(name) for each in evaluations]) for name in base.groups},
        "seeds": {"bits_per_byte": values, "standard_deviation": float(np.std(values, ddof=1))},
    }


def _judged(comparison: Comparison, p_adjusted: float | None) -> Comparison:
    """The comparison with its verdict; of one test alone, the interval decides."""
    verdict: Verdict = "no significant difference"
    alone = p_adjusted == comparison.p_value
    significant = alone or (p_adjusted is not None and p_adjusted < 1 - comparison.confidence)
    if comparison.interval is not None and significant:
        if comparison.interval[0] > 0:
            verdict = "A better"
        elif comparison.interval[1] < 0:
            verdict = "B better"
    return dataclasses.replace(comparison, verdict=verdict, p_adjusted=p_adjusted)


def _mean_rows(tables: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Tables of `Evaluation.by` averaged over seeds: same documents, so the same rows in the same order."""
    return [
        {
            key: value if isinstance(value, str | int) else float(np.mean([row[key] for row in rows]))
            for key, value in rows[0].items()
        }
        for rows in zip(*tables, strict=True)
    ]


def _runs(runs: Runs) -> list[Evaluation]:
    return [runs] if isinstance(runs, Evaluation) else list(runs)


def _pairs(first: list[Evaluation], second: list[Evaluation]) -> list[tuple[Evaluation, Evaluation]]:
    return list(zip(first, second, strict=True))


def _same_or_refuse(a: Evaluation, b: Evaluation) -> None:
    if not np.array_equal(a.document_bytes, b.document_bytes):
        raise UserError(
            f"the two evaluations scored different documents ({len(a.document_bytes)} and "
            f"{len(b.document_bytes)}, or of different sizes); evaluate both on the same held-out text"
        )
    # How many tokens a forward pass takes changes nothing.
    one, two = (dataclasses.replace(each.config, batch_tokens=1) for each in (a, b))
    if one != two:
        raise UserError(f"the two evaluations differ in their settings ({a.config} and {b.config}); use the same")
    (_, group_a), (_, group_b) = a.cluster(), b.cluster()
    if (group_a is None) != (group_b is None) or (
        group_a is not None and group_b is not None and not np.array_equal(group_a.index, group_b.index)
    ):
        raise UserError("the two evaluations know different sources of the same documents; evaluate both again")
