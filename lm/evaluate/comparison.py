"""Comparison of two or more tokenizers on the same documents: differences, intervals and p-values."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lm.bits import bits
from lm.evaluate.bits_per_byte import Evaluation, mean_or_none
from lm.evaluate.significance import FEWEST_IN_STRATUM, Needed, Ratio, effective_number, family_level, pool, reaches
from tokenizer.errors import UserError, counted

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Decision(StrEnum):
    """The outcome of a comparison for a tokenizer, or for its models, against the reference."""

    BETTER = "better"
    WORSE = "worse"
    UNDECIDED = "undecided"
    WITHHELD = "withheld"
    NOT_TESTED = "not tested"

    @classmethod
    def of(cls, interval: tuple[float, float]) -> Decision:
        """Decide by the interval of the change in loss."""
        if interval[0] > 0:
            return cls.WORSE
        return cls.BETTER if interval[1] < 0 else cls.UNDECIDED


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
        reasons: For each tokenizer, why it is left out of verdicts; empty if it is not.
        documents: bool[n_documents]: the documents that no tokenizer with a part in verdicts changes.
        note: A sentence about the other documents; empty if there are none.
        pooled: Names of the tokenizers whose variance between seeds is pooled; empty if none is.
        members: For each tokenizer, whether it is one of them.
    """

    reasons: list[str]
    documents: NDArray[np.bool_]
    note: str = ""
    pooled: tuple[str, ...] = ()
    members: Sequence[bool] = ()


def eligible(
    runs: Sequence[Runs],
    names: Sequence[str] | None = None,
    one_recipe: Sequence[bool] | None = None,
    reasons: Sequence[str] = (),
) -> Eligibility:
    """Decide which tokenizers may take part in verdicts.

    A tokenizer that changes or loses text is scored on other text than the others, a model that is no better than a
    uniform guess over bytes has learned nothing, and an arm with the models of an earlier arm adds no comparison.
    They are measured and shown, and decide nothing. A tokenizer that changes few documents (`MOST_CHANGED`), as NFC
    does, takes part. All tokenizers are then compared without them.

    Args:
        runs: For each tokenizer, an evaluation or one per seed, all of the same documents.
        names: Names of the tokenizers, for the reasons.
        one_recipe: For each tokenizer, whether it was trained by one family of recipes, so that its models' losses vary
            between seeds like the others'; None for none. With the reference and two others, their variances
            are pooled.
        reasons: For each tokenizer, another reason to leave it out of verdicts; empty if there is none.

    Raises:
        UserError: As for `compare`.
    """
    evaluations = [_runs(arm) for arm in runs]
    for other in itertools.chain(*evaluations):
        _check_comparable(evaluations[0][0], other)
    sizes = evaluations[0][0].document_bytes
    names = names or [f"tokenizer {i}" for i in range(1, len(runs) + 1)]
    given = reasons or [""] * len(runs)
    reasons = [why or _reason_barred(name, arm) for why, name, arm in zip(given, names, evaluations, strict=True)]
    for j, i in itertools.product(range(1, len(evaluations)), range(len(evaluations))):
        if i < j and not reasons[i] and not reasons[j] and _identical(evaluations[i], evaluations[j]):
            reasons[j] = f"{names[j]} has the losses of {names[i]}: they are the same tokenizer"
    compared = np.ones(len(sizes), bool)
    for arm, reason in zip(evaluations, reasons, strict=True):
        if not reason:
            compared &= ~arm[0].changed
    n = int((~compared).sum())
    share = float(sizes[~compared].sum() / sizes.sum())
    what = f"{n:,} of {len(compared):,} held-out documents ({100 * share:.2g} % of the bytes)"
    note = f"{what} are left out for all tokenizers, because a tokenizer changes their text." if n else ""
    members = [one and not reason for one, reason in zip(one_recipe or [False] * len(runs), reasons, strict=True)]
    if not members[0] or sum(members) < 3 or len(evaluations[0]) < 2:
        members = [False] * len(runs)
    pooled = tuple(name for name, member in zip(names, members, strict=True) if member)
    return Eligibility(reasons, compared, note, pooled, members)


def _identical(one: Sequence[Evaluation], other: Sequence[Evaluation]) -> bool:
    """Whether the models of two arms, one per seed, are the same; the family of comparisons has each once."""
    return len(one) == len(other) and all(
        bool(a.tokenizer_sha256)
        and a.tokenizer_sha256 == b.tokenizer_sha256
        and np.array_equal(a.text_nats, b.text_nats)
        for a, b in zip(one, other, strict=True)
    )


def _reason_barred(name: str, evaluations: Sequence[Evaluation]) -> str:
    first = evaluations[0]
    worst = max(run.bits_per_byte for run in evaluations)
    share = float(first.document_bytes[first.changed].sum() / first.document_bytes.sum())
    if share > MOST_CHANGED:
        documents = f"{int(first.changed.sum()):,} of {len(first.changed):,} documents"
        return f"{name} changes or loses text in {documents}, {100 * share:.3g} % of the bytes"
    if not worst < UNIFORM_BITS:
        uniform = f"where a uniform guess over bytes needs {UNIFORM_BITS:g}"
        return f"a model of {name} needs {worst:,.1f} bits per byte, {uniform}"
    return ""


def enough(effective: float | NDArray[np.float64], cluster: str) -> Any:
    """Return whether there are enough effective documents or sources for a verdict."""
    return reaches(effective, FEWEST_EFFECTIVE[cluster])


def reason_withheld(effective: float, cluster: str, n_seeds: int) -> str:
    """Reason why a verdict about tokenizers is withheld; empty if it is not."""
    if not enough(effective, cluster):
        return f"{effective:.1f} effective {cluster}s, at least {FEWEST_EFFECTIVE[cluster]} are required"
    if n_seeds < FEWEST_SEEDS:
        return f"{counted(n_seeds, 'seed')}, at least {FEWEST_SEEDS} are required"
    return ""


@dataclass(frozen=True)
class Exchange:
    """The worth of training compute: the decrease of ln(bits per byte) per e-fold (factor of 2.718) of FLOPs.

    Attributes:
        smaller: The reference's models at a smaller budget, one per seed; empty if the rate is stated.
        e_folds: ln of the FLOPs of the compared budget over the FLOPs of the smaller one.
        stated: The rate; None if it is measured between the two budgets.
    """

    smaller: Sequence[Evaluation] = ()
    e_folds: float = 1.0
    stated: float | None = None

    def rate(self, reference: NDArray[np.float64], smaller: NDArray[np.float64]) -> Any:
        """The rate, from the bits per byte of the reference at both budgets."""
        return np.log(smaller / reference) / self.e_folds if self.stated is None else self.stated

    def only(self, documents: NDArray[np.bool_]) -> Exchange:
        """The rate on some of the documents, bool[n_documents]."""
        return dataclasses.replace(self, smaller=[run.only(documents) for run in self.smaller])

    def measure(self, reference: Runs) -> tuple[float, tuple[float, float] | None]:
        """The rate and its interval, which is None if the rate is stated or there are too few documents (or sources).

        Args:
            reference: The reference at the compared budget, an evaluation or one per seed.
        """
        if self.stated is not None:
            return self.stated, None
        runs = _runs(reference)
        base = _runs(reference)[0]
        losses, _ = _measured([runs, list(self.smaller)])
        rate = Ratio.of_function(lambda x: self.rate(*x), np.array(losses.bits), losses.sizes, losses.strata)
        return float(rate.value), _interval(rate, base, base.config.confidence)


class Trade(NamedTuple):
    """A comparison at other amounts of training than the models had, by an exchange rate.

    Attributes:
        exchange: The rate.
        e_folds: For each arm, ln of how many times as much training as the reference it had, of what is to be equal.
    """

    exchange: Exchange
    e_folds: Sequence[float]


class Further(NamedTuple):
    """Uncertainty of the differences beyond seeds and text, by pair of arms, in points of percent.

    Attributes:
        rates: Largest change of a difference over learning rates that are about as good as the chosen ones.
        luck: Variance from the text that the tokenizers were trained on.
        luck_degrees: Its degrees of freedom.
        luck_of_kinds: The same on each kind of held-out text.
    """

    rates: Mapping[tuple[int, int], float] = {}
    luck: Mapping[tuple[int, int], float] = {}
    luck_degrees: int = 0
    luck_of_kinds: Mapping[str, Mapping[tuple[int, int], float]] = {}

    def of_kind(self, name: str) -> Further:
        """The uncertainty of the differences on a kind of text."""
        return self._replace(luck=self.luck_of_kinds.get(name, self.luck))

    def widen(self, pair: tuple[int, int], ratio: Ratio) -> Ratio:
        """Add the uncertainty of a pair to its difference."""
        return ratio.with_further(self.luck.get(pair, 0.0), self.luck_degrees, self.rates.get(pair, 0.0))


NOTHING_FURTHER = Further()


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Evidence for a difference between an arm and another one, in percent of the other one's bits per byte.

    Attributes:
        confidence: Confidence level of all tested differences together.
        level: Confidence level of each interval: corrected by Bonferroni for the number of arms if it is tested.
        n_seeds: Pairs of runs; the two runs of a seed read the same documents in the same order.
        cluster: Unit of sampling: "document" or "source".
        n_clusters: Number of these units.
        effective_clusters: Number of units of equal size that would give the same precision.
        needed: Sample that would show a difference of 0.5 % (over budgets: the one at the largest, if that is larger)
            with a probability of 80 %; None without an interval.
        pooled: Names of the arms over which the variance of seeds is pooled; empty if it is this pair's alone.
        barred: Why one of the two is left out of verdicts; empty if neither is (`eligible`).
    """

    confidence: float
    level: float = 0.95
    n_seeds: int = 1
    cluster: str = "document"
    n_clusters: int = 0
    effective_clusters: float = 0.0
    needed: Needed | None = None
    pooled: tuple[str, ...] = ()
    barred: str = ""

    @property
    def too_few(self) -> bool:
        """Whether there is too little held-out text for any conclusion."""
        return not enough(self.effective_clusters, self.cluster)

    @property
    def withheld(self) -> str:
        """Reason why the verdict about the tokenizers is withheld; empty if it is not."""
        return self.barred or reason_withheld(self.effective_clusters, self.cluster, self.n_seeds)


@dataclass(frozen=True, kw_only=True)
class Comparison(Difference):
    """Models of two tokenizers on the same documents; differences are B minus A, in percent of A's bits per byte.

    With one seed each, the interval is about these two models on other text. With several seeds, it is about other
    training runs too (`significance.Ratio`).

    Attributes:
        bits_per_byte_a: Bits per byte of A, mean over its seeds.
        bits_per_byte_b: Bits per byte of B, mean over its seeds.
        percent: The difference, mean over the seeds; negative means that B is better.
        interval: Its interval at `level`; None with too few documents (or sources).
        by_seed: Difference of each pair of runs.
        p_value: Two-sided p-value against no difference, corrected like `level`; None without an interval.
        tested: Whether the comparison is one of those that may decide: with the reference, on all documents.
        seed_error: Standard error from seeds alone; None with one seed.
        document_error: Standard error from documents (or sources) alone; None without an interval.
        luck_error: Standard error from the text of the tokenizers alone; 0 if it was not measured.
        rates_change: Largest change over learning rates that are about as good; 0 if it was not measured.
        kinds: The comparison on each kind of text, the largest first; empty if there is a single one. They are a second
            family: corrected for the number of arms times that of the kinds with enough documents (or sources). The
            strata of `interval` are these kinds.
        weights: Weights of the kinds in the total, if they are not their shares of the bytes; they sum to 1.
    """

    bits_per_byte_a: float
    bits_per_byte_b: float
    percent: float
    interval: tuple[float, float] | None
    n_documents: int
    by_seed: tuple[float, ...] = ()
    p_value: float | None = None
    tested: bool = True
    seed_error: float | None = None
    document_error: float | None = None
    luck_error: float = 0.0
    rates_change: float = 0.0
    kinds: Mapping[str, Comparison] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def decision(self) -> Decision:
        """Whether B's models have a significantly lower (better) or higher (worse) loss than A's, of those compared."""
        if self.barred or not self.tested or self.interval is None or self.too_few:
            return Decision.UNDECIDED
        return Decision.of(self.interval)

    @property
    def decided(self) -> bool:
        """Whether a difference between these models is shown."""
        return self.decision is not Decision.UNDECIDED

    @property
    def verdict(self) -> Decision:
        """The verdict about B's tokenizer against A's."""
        if self.withheld:
            return Decision.WITHHELD
        return self.decision if self.tested else Decision.NOT_TESTED

    def summary(self) -> dict[str, Any]:
        """The fields and the verdict as a JSON-able dictionary."""
        content = {key: list(value) if type(value) is tuple else value for key, value in vars(self).items()}
        needed = None if self.needed is None else self.needed._asdict()
        content["kinds"] = {name: part.summary() for name, part in self.kinds.items()}
        return content | {
            "needed": needed,
            "decision": self.decision,
            "verdict": self.verdict,
            "withheld": self.withheld,
        }


def compare(a: Runs, b: Runs) -> Comparison:
    """Compare two tokenizers' models on the same documents.

    Args:
        a: The reference: an evaluation, or one per seed.
        b: The other one, with the same seeds in the same order.

    Raises:
        UserError: If they scored different documents or used different settings.
    """
    (comparison,) = compare_all([a, b]).values()
    return comparison


def compare_all(
    runs: Sequence[Runs],
    eligibility: Eligibility | None = None,
    *,
    tested: bool = True,
    further: Further = NOTHING_FURTHER,
    trade: Trade | None = None,
) -> dict[tuple[int, int], Comparison]:
    """Compare every tokenizer with every later one.

    The comparisons with the first one, the reference, are tested together: their intervals are corrected by Bonferroni
    for the number of tokenizers that take part in verdicts. The other pairs are shown uncorrected, and decide nothing.

    Args:
        runs: For each tokenizer, an evaluation or one per seed.
        eligibility: Result of `eligible`, if the runs are already restricted to its documents.
        tested: False for a look at a part of the documents: nothing is corrected and nothing decides, and kinds are not
            compared.
        further: Uncertainty beyond seeds and text.
        trade: Compares at other amounts of training; None for those that the models had.

    Returns:
        Comparisons by (index of A, index of B).

    Raises:
        UserError: As for `compare`.
    """
    if eligibility is None:
        eligibility = eligible(runs)
        if not eligibility.documents.all():
            runs = [[run.only(eligibility.documents) for run in _runs(arm)] for arm in runs]
    arms = [_runs(arm) for arm in runs]
    reasons = eligibility.reasons
    whole, kinds = _measured(arms, trade)
    n_arms = sum(not reason for reason in reasons[1:]) if tested and not reasons[0] else 0
    compared = _compared(arms[0][0], whole, eligibility, n_arms, further)
    if not tested or len(kinds) < 2:
        return compared
    n_judged = sum(bool(enough(part.effective, whole.cluster)) for part in kinds.values())
    family = n_arms * max(1, n_judged)
    by_kind = {
        name: _compared(arms[0][0], part, eligibility, family, further.of_kind(name)) for name, part in kinds.items()
    }
    weights = arms[0][0].config.weights
    shares = {name: weight / sum(weights.values()) for name, weight in weights.items()}
    return {
        pair: dataclasses.replace(comparison, kinds={name: by_kind[name][pair] for name in by_kind}, weights=shares)
        for pair, comparison in compared.items()
    }


def aggregate(runs: Runs) -> dict[str, Any]:
    """Summary of one tokenizer's models: the first one's, with losses averaged over the seeds.

    With several seeds, `seeds` holds the values and their standard deviation, and the interval is computed from seeds
    and documents as in `compare`.
    """
    evaluations = _runs(runs)
    base, values = evaluations[0], [evaluation.bits_per_byte for evaluation in evaluations]
    interval = _interval(base.ratio([run.text_nats for run in evaluations]), base, base.config.confidence)
    summary = base.summary() | {"bits_per_byte_interval": interval and list(interval)}
    if len(values) == 1:
        return summary
    return summary | {
        "bits_per_byte": float(np.mean(values)),
        "eos_nats_per_document": mean_or_none(np.array([run.eos_nats.mean() for run in evaluations])),
        "seeds": {"bits_per_byte": values, "standard_deviation": float(np.std(values, ddof=1))},
    }


def percent_difference(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Difference of b to a in percent of a: what every comparison of losses is about."""
    return 100 * (b / a - 1)


class _Losses(NamedTuple):
    """Losses of all arms on all units of sampling, or on the units of a kind of text.

    Attributes:
        bits: For each arm, float64[n_seeds, n_units].
        sizes: float64[n_units], bytes.
        strata: int64[n_units], as for `Ratio.of`.
        cluster: Unit of sampling: "document" or "source".
        fewest: Fewest effective units for an interval.
        trade: The amounts of training to compare at; None for those that the models had.
        smaller: float64[n_seeds, n_units], losses of the reference at the smaller budget of `trade`, if it has one.
    """

    bits: list[NDArray[np.float64]]
    sizes: NDArray[np.float64]
    strata: NDArray[np.int64]
    n_documents: int
    cluster: str
    fewest: float
    trade: Trade | None = None
    smaller: NDArray[np.float64] | None = None

    @property
    def effective(self) -> float:
        return float(effective_number(self.sizes))

    def difference(self, i: int, j: int) -> Ratio:
        """Difference of bits per byte between the paired runs of two arms, in percent of the first."""
        used = [self.bits[i], self.bits[j], self.bits[0]]
        used.append(self.bits[0] if self.smaller is None else self.smaller)

        def difference(ratios: NDArray[np.float64]) -> NDArray[np.float64]:
            change = percent_difference(*ratios[:2])
            if self.trade is None:
                return change
            e_folds = self.trade.e_folds[j] - self.trade.e_folds[i]
            worth: NDArray[np.float64] = change + 100 * e_folds * self.trade.exchange.rate(*ratios[2:])
            return worth

        n_used = 2 if self.trade is None else 4
        return Ratio.of_function(difference, np.array(used[:n_used]), self.sizes, self.strata)

    def bits_per_byte(self, arm: int) -> float:
        """Bits per byte of an arm, mean over its seeds."""
        return float(np.mean(self.bits[arm].sum(-1) / self.sizes.sum()))


def _measured(arms: Sequence[list[Evaluation]], trade: Trade | None = None) -> tuple[_Losses, dict[str, _Losses]]:
    """Losses on all units of sampling, and on the units of each kind of text, the largest first."""
    base = arms[0][0]
    smaller = [] if trade is None else list(trade.exchange.smaller)
    for arm in [*arms, smaller] if smaller else arms:
        if len(arm) != len(arms[0]):
            raise UserError(f"{len(arms[0])} seeds cannot be compared with {len(arm)}; train the same number of both")
        for run in arm:
            _check_comparable(base, run)
    units = base.units()
    cluster = base.cluster()[0]

    def bits_of(arm: Sequence[Evaluation]) -> NDArray[np.float64]:
        return np.array([base.clustered(bits(run.text_nats)) for run in arm])

    bits_of_arms, bits_of_smaller = [bits_of(arm) for arm in arms], bits_of(smaller) if smaller else None
    documents = base.clustered(np.ones(len(base.document_bytes)))

    def losses(
        inside: NDArray[np.bool_], scale: NDArray[np.float64], strata: NDArray[np.int64], fewest: float
    ) -> _Losses:
        return _Losses(
            bits=[(each * scale)[:, inside] for each in bits_of_arms],
            sizes=(units.sizes * scale)[inside],
            strata=strata[inside],
            n_documents=int(documents[inside].sum()),
            cluster=cluster,
            fewest=fewest,
            trade=trade,
            smaller=None if bits_of_smaller is None else (bits_of_smaller * scale)[:, inside],
        )

    whole = losses(units.scale > 0, units.scale, units.strata, FEWEST_EFFECTIVE[cluster])
    if units.kinds is None:
        return whole, {}
    kinds = units.kinds
    single, same = np.zeros(len(units.sizes), np.int64), np.ones(len(units.sizes))
    return whole, {
        kinds.names[i]: losses(kinds.index == i, same, single, FEWEST_IN_STRATUM)
        for i in kinds.largest_first(units.sizes)
    }


def _compared(
    base: Evaluation, losses: _Losses, eligibility: Eligibility, family: int, further: Further
) -> dict[tuple[int, int], Comparison]:
    """Describe the comparisons of all pairs; those with the reference are in a family of this size, if it is not 0."""
    reasons = eligibility.reasons
    confidence = base.config.confidence
    n_seeds = len(losses.bits[0])
    pairs = itertools.combinations(range(len(losses.bits)), 2)
    ratios = pool({(i, j): losses.difference(i, j) for i, j in pairs}, eligibility.members)
    compared = {}
    for (i, j), narrow in ratios.items():
        ratio = further.widen((i, j), narrow)
        barred = reasons[i] or reasons[j]
        tested = 0 if i or barred else family
        level = family_level(confidence, tested)
        interval = ratio.known_interval(level) if reaches(losses.effective, losses.fewest) else None
        described: dict[str, Any] = {}
        if interval is not None:
            described = {
                "document_error": math.sqrt(ratio.unit_variance),
                "needed": ratio.needed(100 * DETECTABLE, level),
                "p_value": min(1.0, max(1, tested) * float(ratio.p_value())),
            }
        compared[i, j] = Comparison(
            bits_per_byte_a=losses.bits_per_byte(i),
            bits_per_byte_b=losses.bits_per_byte(j),
            percent=float(ratio.value),
            interval=interval,
            confidence=confidence,
            n_documents=losses.n_documents,
            n_seeds=n_seeds,
            cluster=losses.cluster,
            n_clusters=ratio.n_units,
            effective_clusters=float(ratio.effective_units),
            by_seed=tuple(map(float, ratio.by_seed)),
            level=level,
            tested=bool(tested),
            seed_error=math.sqrt(ratio.seed_variance) if n_seeds > 1 else None,
            pooled=eligibility.pooled if ratio.seed_degrees >= n_seeds else (),
            luck_error=math.sqrt(ratio.luck_variance),
            rates_change=ratio.settings_change,
            barred=barred,
            **described,
        )
    return compared


def _interval(ratio: Ratio, scored: Evaluation, confidence: float) -> tuple[float, float] | None:
    return ratio.known_interval(confidence) if enough(ratio.effective_units, scored.cluster()[0]) else None


def _runs(runs: Runs) -> list[Evaluation]:
    return [runs] if isinstance(runs, Evaluation) else list(runs)


def _check_comparable(a: Evaluation, b: Evaluation) -> None:
    if not np.array_equal(a.document_bytes, b.document_bytes):
        raise UserError(
            f"the two evaluations scored different documents ({len(a.document_bytes)} and "
            f"{len(b.document_bytes)}, or of different sizes); evaluate both on the same held-out text"
        )
    # The size of a forward pass does not affect results.
    one, two = (dataclasses.replace(run.config, batch_tokens=1) for run in (a, b))
    if one != two:
        raise UserError(f"the two evaluations have different settings ({a.config} and {b.config}); use the same")
    group_a, group_b = a.cluster()[1], b.cluster()[1]
    if (group_a is None) != (group_b is None) or (
        group_a is not None and group_b is not None and not np.array_equal(group_a.index, group_b.index)
    ):
        raise UserError("the two evaluations have different sources for the same documents; evaluate both again")
