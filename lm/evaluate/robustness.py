"""What a perturbation of the text costs each tokenizer: more tokens, more bits per original byte, and who loses more.

Denominators are the bytes of the unperturbed documents, so that text which a perturbation makes longer does not seem
easier to predict. All differences are paired: the same documents, and the same training seeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lm.evaluate.bits_per_byte import Grouping
from lm.evaluate.comparison import enough, reason_withheld
from lm.evaluate.significance import Ratio, effective_number, holm, holm_levels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lm.evaluate.bits_per_byte import Evaluation

Interval = tuple[float, float] | None


@dataclass(frozen=True)
class Scored:
    """Documents as one tokenizer's models scored them.

    Attributes:
        tokens: int64[n_documents], tokens of each document.
        nats: float64[n_seeds, n_documents], loss of each document with each seed's model.
    """

    tokens: NDArray[np.int64]
    nats: NDArray[np.float64]

    @classmethod
    def of(cls, evaluations: Sequence[Evaluation], documents: NDArray[np.int64] | slice = slice(None)) -> Scored:
        """Scores of some documents of evaluations, one per seed."""
        nats = np.array([each.text_nats[documents] for each in evaluations])
        return cls(evaluations[0].document_tokens[documents], nats)

    def replaced(self, documents: NDArray[np.int64], scored: Scored) -> Scored:
        """Scores in which those of some documents are replaced.

        Args:
            documents: Indices of these documents.
            scored: Scores of these documents alone.
        """
        tokens, nats = self.tokens.copy(), self.nats.copy()
        tokens[documents], nats[:, documents] = scored.tokens, scored.nats
        return Scored(tokens, nats)


@dataclass(frozen=True)
class Perturbed:
    """Documents under one perturbation.

    Attributes:
        changed: bool[n_documents], whether the perturbation changes a document.
        n_bytes: int64[n_documents], UTF-8 bytes of each perturbed document.
        arms: Scores of each tokenizer.
        loses_text: Whether each tokenizer drops or replaces some of the perturbed text.
    """

    changed: NDArray[np.bool_]
    n_bytes: NDArray[np.int64]
    arms: Sequence[Scored]
    loses_text: Sequence[bool]


@dataclass(frozen=True)
class Sample:
    """Unperturbed documents.

    Attributes:
        n_bytes: int64[n_documents], UTF-8 bytes of each document.
        cluster: Unit of sampling: "document" or "source".
        units: The unit of each document.
        arms: Scores of each tokenizer.
    """

    n_bytes: NDArray[np.int64]
    cluster: str
    units: Grouping
    arms: Sequence[Scored]

    @classmethod
    def of(cls, arms: Sequence[Sequence[Evaluation]], documents: NDArray[np.int64]) -> Sample:
        """Take some documents of evaluations.

        Args:
            arms: Evaluations of each tokenizer, one per seed, all of the same documents.
            documents: int64[n_documents], indices of the documents.
        """
        first = arms[0][0]
        cluster, sources = first.cluster()
        chosen = documents if sources is None else sources.index[documents]
        known, index = np.unique(chosen, return_inverse=True)
        units = Grouping(tuple(map(str, known)), index.astype(np.int32))
        return cls(first.document_bytes[documents], cluster, units, [Scored.of(each, documents) for each in arms])

    def effective(self, documents: NDArray[np.bool_]) -> float:
        """Effective number of units among some documents, 0 if there are none."""
        sizes = self.units.sums(self.n_bytes * documents)
        return float(effective_number(sizes)) if sizes.any() else 0.0

    def bits_per_byte(self, nats: NDArray[np.float64]) -> Ratio:
        """Bits per original byte of float64[n_seeds, n_documents] nats."""
        return self._ratio(nats / math.log(2), self.n_bytes)

    def tokens_per_token(self, tokens: NDArray[np.int64], original: NDArray[np.int64]) -> Ratio:
        """Tokens per token of the original documents, both int64[n_documents]."""
        return self._ratio(tokens[None], original)

    def _ratio(self, numerators: NDArray[Any], denominators: NDArray[np.int64]) -> Ratio:
        return Ratio.of(np.array([self.units.sums(row) for row in numerators]), self.units.sums(denominators))


@dataclass(frozen=True)
class Change:
    """What one perturbation costs one tokenizer.

    Attributes:
        tokens: Change of the number of tokens, as a share of the tokens of the original documents.
        tokens_interval: Its interval; None if one unit of sampling has all of the text.
        tokens_per_byte: Tokens per byte of the perturbed text, 1 / bytes per token.
        bits: Change of the bits per original byte, mean over the seeds.
        bits_interval: Its interval, for this tokenizer and perturbation alone.
        difference: Change of the bits minus that of the reference; None for the reference.
        interval: Interval of the difference, corrected for the number of comparisons.
        level: Confidence level of that interval alone.
        p_adjusted: p-value of the difference after Holm's correction.
        too_few: Whether too few documents change for any conclusion about the difference.
        withheld: Reason why the verdict about the two tokenizers is withheld; empty if it is not.
        loses_more: "this" or "reference" if the models of one lose significantly more; None if neither do, or if they
            are not compared.
    """

    tokens: float
    tokens_interval: Interval
    tokens_per_byte: float
    bits: float
    bits_interval: Interval
    difference: float | None = None
    interval: Interval = None
    level: float | None = None
    p_adjusted: float | None = None
    too_few: bool = False
    withheld: str = ""
    loses_more: str | None = None


def measure(sample: Sample, perturbed: Mapping[str, Perturbed], confidence: float) -> dict[str, list[Change]]:
    """Measure every perturbation that changes a document.

    Args:
        sample: The unperturbed documents; its first tokenizer is the reference.
        perturbed: The documents under each perturbation.
        confidence: Confidence level of the intervals.

    Returns:
        For each perturbation that changes a document, the changes of all tokenizers.
    """
    found = {name: each for name, each in perturbed.items() if each.changed.any()}
    losses = {
        name: [after.nats - before.nats for after, before in zip(each.arms, sample.arms, strict=True)]
        for name, each in found.items()
    }
    compared = [
        (name, place)
        for name, each in found.items()
        for place in range(1, len(sample.arms))
        if not (each.loses_text[0] or each.loses_text[place])
    ]
    ratios = {(name, place): sample.bits_per_byte(losses[name][place] - losses[name][0]) for name, place in compared}
    p_values = [1.0 if each.known_interval(0.5) is None else float(each.p_value()) for each in ratios.values()]
    tests = zip(holm(p_values), holm_levels(p_values, confidence), strict=True)
    adjusted = dict(zip(compared, tests, strict=True))

    def change(name: str, place: int) -> Change:
        each, before, after = found[name], sample.arms[place], found[name].arms[place]
        tokens = sample.tokens_per_token(after.tokens - before.tokens, before.tokens)
        bits = sample.bits_per_byte(losses[name][place])
        comparison: dict[str, Any] = {}
        if (name, place) in ratios:
            comparison = _comparison(sample, each, ratios[name, place], *adjusted[name, place])
        elif place:
            comparison = {"withheld": "text is lost"}
        return Change(
            tokens=float(tokens.value),
            tokens_interval=tokens.known_interval(confidence),
            tokens_per_byte=int(after.tokens.sum()) / int(each.n_bytes.sum()),
            bits=float(bits.value),
            bits_interval=bits.known_interval(confidence),
            **comparison,
        )

    return {name: [change(name, place) for place in range(len(sample.arms))] for name in found}


def _comparison(sample: Sample, perturbed: Perturbed, ratio: Ratio, p_adjusted: float, level: float) -> dict[str, Any]:
    """The last fields of a `Change`."""
    interval, n_seeds = ratio.known_interval(level), ratio.by_seed.shape[-1]
    # Documents that do not change have a difference of 0: they are no evidence.
    effective = min(float(ratio.effective_units), sample.effective(perturbed.changed))
    too_few = interval is None or not enough(effective, sample.cluster)
    loses_more = None
    if interval is not None and not too_few and not interval[0] <= 0 <= interval[1]:
        loses_more = "this" if interval[0] > 0 else "reference"
    return {
        "difference": float(ratio.value),
        "interval": interval,
        "level": level,
        "p_adjusted": None if interval is None else p_adjusted,
        "too_few": too_few,
        "withheld": reason_withheld(effective, sample.cluster, n_seeds),
        "loses_more": loses_more,
    }
