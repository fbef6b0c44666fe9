"""Comparison of two or more tokenizers on the same documents: differences, intervals and p-values."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from lm.evaluate.bits_per_byte import Evaluation
from lm.evaluate.significance import Needed, Ratio, holm, holm_levels
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Verdict = Literal["A better", "B better", "no significant difference", "withheld"]
Runs = Evaluation | Sequence[Evaluation]
"""Evaluations of one tokenizer's models, one per training seed."""

FEWEST_SEEDS = 3
"""Fewest seeds for a verdict about tokenizers rather than about these particular models."""
FEWEST_EFFECTIVE = {"document": 10, "source": 5}
"""Fewest effective documents or sources for a verdict: with fewer, the intervals of skewed differences cover the truth
less than 93 % of the time (`tests/lm/evaluate/test_significance.py`). Sources are sums over documents, so their
differences are less skewed."""
DETECTABLE = 0.005
"""Relative difference that `Comparison.needed` refers to."""
MOST_CHANGED = 0.01
"""Largest share of the bytes in documents that a tokenizer changes, for the tokenizer to take part in verdicts."""
UNIFORM_BITS = 8.0
"""Bits per byte of a uniform guess over bytes."""


class Eligibility(NamedTuple):
    """Tokenizers that take part in verdicts, and the documents that they are compared on.

    Attributes:
        reasons: For each tokenizer, why it takes part in no verdict; empty if it does.
        documents: bool[n_documents]: the documents that no tokenizer with a part in verdicts changes.
        note: A sentence about the other documents; empty if there are none.
    """

    reasons: list[str]
    documents: NDArray[np.bool_]
    note: str = ""


def eligible(runs: Sequence[Runs], names: Sequence[str] | None = None) -> Eligibility:
    """Decide which tokenizers may take part in verdicts.

    A tokenizer that changes or loses text is scored on other text than the others, and a model that is no better than a
    uniform guess over bytes has learned nothing. Both are measured and shown, and decide nothing. A tokenizer that
    changes few documents (`MOST_CHANGED`), as NFC does, takes part. All tokenizers are then compared without them.

    Args:
        runs: For each tokenizer, an evaluation or one per seed, all of the same documents.
        names: Names of the tokenizers, for the reasons.

    Raises:
        UserError: As for `compare`.
    """
    evaluations = [_runs(each) for each in runs]
    for other in itertools.chain(*evaluations):
        _check_comparable(evaluations[0][0], other)
    sizes = evaluations[0][0].document_bytes
    names = names or [f"tokenizer {i}" for i in range(1, len(runs) + 1)]
    reasons = [_reason_barred(name, each) for name, each in zip(names, evaluations, strict=True)]
    kept = np.ones(len(sizes), bool)
    for each, reason in zip(evaluations, reasons, strict=True):
        if not reason:
            kept &= ~each[0].changed
    n = int((~kept).sum())
    share = float(sizes[~kept].sum() / sizes.sum())
    what = f"{n:,} of {len(kept):,} held-out documents ({100 * share:.2g} % of the bytes)"
    note = f"{what} are left out for all tokenizers, because a tokenizer changes their text." if n else ""
    return Eligibility(reasons, kept, note)


def _reason_barred(name: str, evaluations: Sequence[Evaluation]) -> str:
    first, worst = evaluations[0], max(each.bits_per_byte for each in evaluations)
    share = float(first.document_bytes[first.changed].sum() / first.document_bytes.sum())
    if share > MOST_CHANGED:
        documents = f"{int(first.changed.sum()):,} of {len(first.changed):,} documents"
        return f"{name} changes or loses text in {documents}, {100 * share:.3g} % of the bytes"
    if not worst < UNIFORM_BITS:
        uniform = f"where a uniform guess over bytes needs {UNIFORM_BITS:g}"
        return f"a model of {name} needs {worst:,.1f} bits per byte, {uniform}"
    return ""


def enough(effective: float | NDArray[np.float64], cluster: str) -> Any:
    """Return whether there are enough effective documents or sources for a verdict; the slack is for rounding."""
    return effective >= FEWEST_EFFECTIVE[cluster] - 1e-6


def reason_withheld(effective: float, cluster: str, n_seeds: int) -> str:
    """Reason why a verdict about tokenizers is withheld; empty if it is not."""
    if not enough(effective, cluster):
        return f"{effective:.1f} effective {cluster}s, at least {FEWEST_EFFECTIVE[cluster]} are required"
    if n_seeds < FEWEST_SEEDS:
        return f"{n_seeds} seed{'s'[: n_seeds - 1]}, at least {FEWEST_SEEDS} are required"
    return ""


@dataclass(frozen=True)
class Comparison:
    """Models of two tokenizers on the same documents; differences are B minus A.

    With one seed each, the interval is about these two models on other text. With several seeds, it is about other
    training runs too (`significance.Ratio`).

    Attributes:
        bits_per_byte_a: Bits per byte of A, mean over its seeds.
        bits_per_byte_b: Bits per byte of B, mean over its seeds.
        difference: bits_per_byte_b - bits_per_byte_a; negative means that B is better.
        interval: Interval of the difference, corrected for the number of comparisons; None if a single document (or
            source) has all of the text.
        confidence: Confidence level of all comparisons together.
        n_documents: Number of documents.
        n_seeds: Pairs of runs; the two runs of a seed read the same documents in the same order.
        cluster: Unit of sampling: "document" or "source".
        n_clusters: Number of these units.
        effective_clusters: Number of units of equal size that would give the same precision.
        seed_differences: Difference of each pair of runs.
        p_value: Two-sided p-value against no difference; None without an interval.
        p_adjusted: The p-value after Holm's correction for all comparisons of an experiment.
        level: Confidence level of `interval`: that at which Holm's method tests this comparison.
        seed_error: Standard error from seeds alone; None with one seed.
        document_error: Standard error from documents (or sources) alone; None without an interval.
        needed: Sample that would show a difference of 0.5 % with a probability of 80 %; None without an interval.
        interval_uncorrected: Interval of the difference at `confidence`.
        barred: Why A or B takes part in no verdict; empty if both do (`eligible`).
    """

    bits_per_byte_a: float
    bits_per_byte_b: float
    difference: float
    interval: tuple[float, float] | None
    confidence: float
    n_documents: int
    n_seeds: int = 1
    cluster: str = "document"
    n_clusters: int = 0
    effective_clusters: float = 0.0
    seed_differences: tuple[float, ...] = ()
    p_value: float | None = None
    p_adjusted: float | None = None
    level: float = 0.95
    seed_error: float | None = None
    document_error: float | None = None
    needed: Needed | None = None
    interval_uncorrected: tuple[float, float] | None = None
    barred: str = ""

    @property
    def too_few(self) -> bool:
        """Whether there is too little held-out text for any conclusion."""
        return self.interval is None or not enough(self.effective_clusters, self.cluster)

    @property
    def lower(self) -> Literal["A", "B"] | None:
        """Whose models, of those compared, have the significantly lower loss; None if neither, or if one is barred."""
        if self.barred or self.interval is None or self.too_few or self.interval[0] <= 0 <= self.interval[1]:
            return None
        return "A" if self.interval[0] > 0 else "B"

    @property
    def decided(self) -> bool:
        """Whether a difference between these models is shown."""
        return self.lower is not None

    @property
    def withheld(self) -> str:
        """Reason why the verdict about the tokenizers is withheld; empty if it is not."""
        return self.barred or reason_withheld(self.effective_clusters, self.cluster, self.n_seeds)

    @property
    def verdict(self) -> Verdict:
        """The verdict about the tokenizers."""
        if self.withheld:
            return "withheld"
        if self.lower is None:
            return "no significant difference"
        return "A better" if self.lower == "A" else "B better"

    def summary(self) -> dict[str, Any]:
        """The fields and the verdict as a JSON-able dictionary."""
        content = {key: list(value) if type(value) is tuple else value for key, value in vars(self).items()}
        needed = None if self.needed is None else self.needed._asdict()
        return content | {"needed": needed, "lower": self.lower, "verdict": self.verdict, "withheld": self.withheld}


def compare(a: Runs, b: Runs) -> Comparison:
    """Compare two tokenizers' models on the same documents.

    Args:
        a: The baseline: an evaluation, or one per seed.
        b: The other one, with the same seeds in the same order.

    Raises:
        UserError: If they scored different documents or used different settings.
    """
    (comparison,) = compare_all([a, b]).values()
    return comparison


def compare_all(runs: Sequence[Runs], eligibility: Eligibility | None = None) -> dict[tuple[int, int], Comparison]:
    """Compare every tokenizer with every later one, with Holm's correction for the number of comparisons.

    Args:
        runs: For each tokenizer, an evaluation or one per seed.
        eligibility: Result of `eligible`, if the runs are already restricted to its documents.

    Returns:
        Comparisons by (index of A, index of B).

    Raises:
        UserError: As for `compare`.
    """
    if eligibility is None:
        eligibility = eligible(runs)
        if not eligibility.documents.all():
            runs = [[each.only(eligibility.documents) for each in _runs(arm)] for arm in runs]
    pairs = list(itertools.combinations(range(len(runs)), 2))
    barred = [eligibility.reasons[i] or eligibility.reasons[j] for i, j in pairs]
    return dict(zip(pairs, compare_pairs([(runs[i], runs[j]) for i, j in pairs], barred), strict=True))


def compare_pairs(pairs: Sequence[tuple[Runs, Runs]], barred: Sequence[str] = ()) -> list[Comparison]:
    """Compare the tokenizers of each pair, with Holm's correction for the number of pairs.

    Args:
        pairs: Evaluations of A and of B. Pairs may be about different documents.
        barred: For each pair, why it decides nothing, or empty; it is then not corrected for, nor corrected.

    Raises:
        UserError: As for `compare`.
    """
    both = [(_runs(a), _runs(b)) for a, b in pairs]
    reasons = list(barred) or [""] * len(both)
    ratios = [_difference(a, b) for a, b in both]
    confidences = [a[0].config.confidence for a, _ in both]
    family = [float(ratio.p_value()) if ratio.known_interval(0.5) else 1.0 for ratio in ratios]
    family = [p_value for p_value, reason in zip(family, reasons, strict=True) if not reason]
    tests = iter(zip(family, holm(family), holm_levels(family, max(confidences, default=0.0)), strict=True))
    return [
        _comparison(a, b, ratio, (None, None, confidence) if reason else next(tests), reason)
        for (a, b), ratio, confidence, reason in zip(both, ratios, confidences, reasons, strict=True)
    ]


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
    mean = float(np.mean(values))
    interval = base.ratio([each.text_nats for each in evaluations]).known_interval(base.config.confidence)
    return summary | {
        "bits_per_byte": mean,
        "bits_per_byte_interval": None if interval is None else list(interval),
        "nats_per_byte": mean * math.log(2),
        "nats_per_token": mean * math.log(2) * summary["bytes_per_token"],
        "nats_per_document": mean * math.log(2) * summary["n_bytes"] / summary["n_documents"],
        "eos_nats_per_document": float(np.mean([each.eos_nats.mean() for each in evaluations])),
        **{f"by_{name}": _mean_rows([each.by(name) for each in evaluations]) for name in base.groups},
        "seeds": {"bits_per_byte": values, "standard_deviation": float(np.std(values, ddof=1))},
    }


def _difference(first: list[Evaluation], second: list[Evaluation]) -> Ratio:
    """Difference of bits per byte between the paired runs of two tokenizers."""
    if len(first) != len(second):
        raise UserError(f"{len(first)} seeds cannot be compared with {len(second)}; train the same number of both")
    for other in (*first[1:], *second):
        _check_comparable(first[0], other)
    return first[0].ratio([two.text_nats - one.text_nats for one, two in zip(first, second, strict=True)])


def _comparison(
    first: list[Evaluation],
    second: list[Evaluation],
    ratio: Ratio,
    test: tuple[float | None, float | None, float],
    barred: str,
) -> Comparison:
    base = first[0]
    p_value, p_adjusted, level = test
    values_a, values_b = ([run.bits_per_byte for run in runs] for runs in (first, second))
    by_seed = [two - one for one, two in zip(values_a, values_b, strict=True)]
    interval = ratio.known_interval(level)
    mean_a = float(np.mean(values_a))
    found: dict[str, Any] = {}
    if interval is not None:
        found = {"p_value": p_value, "p_adjusted": p_adjusted, "document_error": math.sqrt(ratio.unit_variance)}
        found["needed"] = ratio.needed(DETECTABLE * mean_a, level)
        found["interval_uncorrected"] = ratio.known_interval(base.config.confidence)
    return Comparison(
        bits_per_byte_a=mean_a,
        bits_per_byte_b=float(np.mean(values_b)),
        difference=float(np.mean(by_seed)),
        interval=interval,
        confidence=base.config.confidence,
        n_documents=len(base.document_bytes),
        n_seeds=len(first),
        cluster=base.cluster()[0],
        n_clusters=ratio.n_units,
        effective_clusters=float(ratio.effective_units),
        seed_differences=tuple(by_seed),
        level=level,
        seed_error=math.sqrt(ratio.seed_variance) if len(first) > 1 else None,
        barred=barred,
        **found,
    )


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
