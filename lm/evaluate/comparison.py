"""Comparison of two or more tokenizers on the same documents: differences, intervals and p-values."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lm.evaluate.bits_per_byte import Evaluation
from lm.evaluate.bootstrap import multi_bootstrap, percentile_interval, percentile_p_value
from lm.evaluate.significance import estimate, holm, ratio_component, seed_component
from tokenizer.errors import UserError

Verdict = Literal["A better", "B better", "no significant difference"]
Runs = Evaluation | Sequence[Evaluation]
"""Evaluations of one tokenizer's models, one per training seed."""


@dataclass(frozen=True)
class Comparison:
    """Models of two tokenizers on the same documents; differences are B minus A.

    With one seed each, the interval is a paired bootstrap over documents (or sources) and does not cover other training
    runs. With several seeds, two variances add up: between the seeds' differences and between the documents' mean
    differences, each with its own quantile of Student's t (`significance.estimate`). Noise specific to one run and one
    document counts in both, so the interval is too wide if anything.

    Attributes:
        bits_per_byte_a: Bits per byte of A, mean over its seeds.
        bits_per_byte_b: Bits per byte of B, mean over its seeds.
        difference: bits_per_byte_b - bits_per_byte_a; negative means that B is better.
        interval: Interval of the difference; None for fewer than two documents.
        confidence: Confidence level of the interval.
        n_documents: Number of documents.
        verdict: "no significant difference" if the interval contains 0, or if the p-value adjusted for the number of
            comparisons is too large.
        n_seeds: Pairs of runs; the two runs of a seed read the same documents in the same order.
        cluster: Unit of resampling: "document" or "source".
        n_clusters: Number of these units.
        seed_differences: Difference of each pair of runs.
        p_value: Two-sided p-value against no difference; None for fewer than two documents. With one seed, from the
            bootstrap. If no resample is on the other side of 0, from Student's t over documents if that is smaller: two
            in 2000 resamples could never be significant after correction for 78 comparisons of 13 tokenizers.
        p_adjusted: The p-value after Holm's correction for all comparisons of an experiment.
        bootstrap_interval: With several seeds, the percentile interval of resampled seeds and documents, as a check on
            `interval`; too narrow with few seeds.
        seed_error: Standard error from seeds alone; None with one seed.
        document_error: Standard error from documents alone; None for fewer than two documents.
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
        """The fields as a JSON-able dictionary."""
        content = dataclasses.asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in content.items()}


def compare(a: Runs, b: Runs) -> Comparison:
    """Compare two tokenizers' models on the same documents.

    Args:
        a: The baseline: an evaluation, or one per seed.
        b: The other one, with the same seeds in the same order.

    Raises:
        UserError: If they scored different documents or used different settings.
    """
    first, second = _runs(a), _runs(b)
    if len(first) != len(second):
        raise UserError(f"{len(first)} seeds cannot be compared with {len(second)}; train the same number of both")
    for other in (*first[1:], *second):
        _check_comparable(first[0], other)
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
        if p_value * (1 + len(resampled)) < 3:  # no resample on the other side: only an upper bound
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
    return _with_verdict(comparison, comparison.p_value)


def compare_all(runs: Sequence[Runs]) -> dict[tuple[int, int], Comparison]:
    """Compare every tokenizer with every later one, with Holm's correction for the number of comparisons.

    Args:
        runs: For each tokenizer, an evaluation or one per seed.

    Returns:
        Comparisons by (index of A, index of B).
    """
    pairs = list(itertools.combinations(range(len(runs)), 2))
    found = [compare(runs[i], runs[j]) for i, j in pairs]
    tested = [1.0 if comparison.p_value is None else comparison.p_value for comparison in found]
    return {
        pair: _with_verdict(comparison, None if comparison.p_value is None else p)
        for pair, comparison, p in zip(pairs, found, holm(tested), strict=True)
    }


def aggregate(runs: Runs) -> dict[str, Any]:
    """Summary of one tokenizer's models: that of the first one, with losses averaged over the seeds.

    With several seeds, `seeds` holds the values and their standard deviation, and the interval is computed from seeds
    and documents as in `compare`.
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


def _with_verdict(comparison: Comparison, p_adjusted: float | None) -> Comparison:
    """Add the verdict; for a single test, the interval decides."""
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
    """Average tables of `Evaluation.by` over seeds; the documents are the same, so the rows are too."""
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


def _check_comparable(a: Evaluation, b: Evaluation) -> None:
    if not np.array_equal(a.document_bytes, b.document_bytes):
        raise UserError(
            f"the two evaluations scored different documents ({len(a.document_bytes)} and "
            f"{len(b.document_bytes)}, or of different sizes); evaluate both on the same held-out text"
        )
    # The size of a forward pass does not affect results.
    one, two = (dataclasses.replace(each.config, batch_tokens=1) for each in (a, b))
    if one != two:
        raise UserError(f"the two evaluations have different settings ({a.config} and {b.config}); use the same")
    (_, group_a), (_, group_b) = a.cluster(), b.cluster()
    if (group_a is None) != (group_b is None) or (
        group_a is not None and group_b is not None and not np.array_equal(group_a.index, group_b.index)
    ):
        raise UserError("the two evaluations have different sources for the same documents; evaluate both again")
