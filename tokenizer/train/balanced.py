"""Parity-aware phase 1: several sources, of which the one that is compressed worst chooses the next merge.

Variant `base` of Foroutan et al. (2025, arXiv 2508.04796); `tokenizer.reference.balanced` defines it. Each source has
words and pairs of its own, and rare pairs are tracked too: training took 29 bytes of memory per byte of the sources'
distinct pretokens (8,000 tokens, two sources, 7.3 MB), and BPE on their sum 12. Parallel text adds to that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tokenizer import _native
from tokenizer.corpus.corpus import Corpus
from tokenizer.corpus.parallel import parallel_documents
from tokenizer.errors import UserError, listed, quoted
from tokenizer.train.counting import PretokenCounts, mix_counts


@dataclass(frozen=True, kw_only=True)
class Balanced:
    """Sources of a text that shall have the same cost, for `train_bpe`.

    Attributes:
        sources: counts of the pretokens of each source, by name; at least two.
        parallel: counts of the same text in each source, translated. The source with the most tokens of it costs most.
        ratios: instead of `parallel`, the bytes that each source needs for the same content, compared with the others.
            The source with the lowest bytes per token, divided by its ratio, costs most. Ratios are required because
            plain bytes favor scripts with more bytes per character.

    Raises:
        UserError: there are too few sources, or not one measure with a positive number for each.
    """

    sources: Mapping[str, PretokenCounts]
    parallel: Mapping[str, PretokenCounts] | None = None
    ratios: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        if len(self.sources) < 2:
            raise UserError(f"only {len(self.sources)} source(s) to balance: name at least two")
        given = [measure for measure in (self.parallel, self.ratios) if measure is not None]
        if len(given) != 1:
            raise UserError("sources are balanced either by parallel text or by ratios; give one of them")
        if given[0].keys() != self.sources.keys():
            what = "ratios" if self.parallel is None else "parallel"
            raise UserError(
                f"{what} is for the sources {listed(given[0])}, but the sources are {listed(self.sources)}; give it "
                "for each"
            )
        for name, counts in [*self.sources.items(), *(self.parallel or {}).items()]:
            if not counts.n_total:
                raise UserError(f"the source {name} has no text")
            if counts.n_bytes >= 1 << 63:  # `_length` is exact below
                raise UserError(f"the counts of the source {name} stand for 2^63 bytes or more; divide them")
        _check_ratios(self.ratios or {})

    @classmethod
    def count(
        cls,
        corpus: Corpus,
        count: Callable[[Any], PretokenCounts],
        *,
        parallel: str | None = None,
        ratios: Mapping[str, float] | None = None,
    ) -> Balanced:
        """Count the named sources of a corpus.

        Args:
            corpus: the corpus.
            count: counts the pretokens of a corpus or a text.
            parallel: field whose values are equal in translations (`tokenizer.corpus.parallel.parallel_documents`).
            ratios: instead of `parallel`, the ratio of each source.

        Raises:
            UserError: see `check_balance`; there are no translations, or a source has no text.
        """
        translations = {} if parallel is None else parallel_documents(corpus, parallel, "train")
        counted = {name: count(text for _, text in documents) for name, documents in translations.items()}
        sources = {name: count(part) for name, part, _ in corpus.by_source()}
        return cls(sources=sources, parallel=counted or None, ratios=ratios)

    @cached_property
    def total(self) -> PretokenCounts:
        """Counts of all sources."""
        return mix_counts([(counts, 1) for counts in self.sources.values()])

    @property
    def _measured(self) -> Mapping[str, PretokenCounts]:
        return self.parallel or self.sources

    def about(self) -> dict[str, Any]:
        """The tokenizer's provenance: bytes of parallel text, or ratios, by source."""
        if self.parallel is None:
            return {"ratios": dict(self.ratios or {})}
        return {"parallel_bytes": {name: counts.n_bytes for name, counts in self.parallel.items()}}

    def costs(self, segment: Callable[[PretokenCounts], Any]) -> dict[str, float]:
        """Cost of each source: tokens of the parallel text, or tokens per byte times the ratio."""
        costs = self._costs([segment(counts) for counts in self._measured.values()])
        return {name: tokens / size * ratio for name, (tokens, size, ratio) in zip(self._measured, costs, strict=True)}

    def _costs(self, segments: Sequence[Any]) -> list[tuple[int, float, float]]:
        """Tokens of each measured text, given its segments, its bytes and its ratio; 1 and 1 for parallel text."""
        costs = []
        for (name, counts), cut in zip(self._measured.items(), segments, strict=True):
            size = _length(counts, counts.offsets) if self.ratios else 1
            costs.append((_length(counts, cut.offsets), float(size), float((self.ratios or {}).get(name, 1))))
        return costs

    def train(
        self,
        segment: Callable[[PretokenCounts], Any],
        tokens: list[bytes],
        n_merges: int,
        options: Mapping[str, Any],
    ) -> _native.BalancedResult:
        """Merges of the balanced sources. `tokens` belong to all segments; `options` as for `_native.train_bpe`."""

        def with_counts(of: Mapping[str, PretokenCounts], segments: Sequence[Any]) -> list[Any]:
            return [(*cut[1:], counts.counts) for counts, cut in zip(of.values(), segments, strict=True)]

        own = [segment(counts) for counts in self.sources.values()]
        measured = own if self.parallel is None else [segment(counts) for counts in self.parallel.values()]
        return _native.train_balanced(
            with_counts(self.sources, own),
            None if self.parallel is None else with_counts(self.parallel, measured),
            self._costs(measured),
            tokens,
            n_merges,
            **options,
        )


def check_balance(
    weights: Mapping[str, int],
    *,
    parallel: str | None,
    ratios: Mapping[str, float] | None = None,
    min_pretoken_count: int = 1,
    competing: bool = False,
    weighted: bool = False,
    at: str = "",
) -> None:
    """Find mistakes of settings that balance sources, before text is read. Without such settings, nothing is checked.

    Args:
        weights: weights of the sources by name.
        parallel: field whose values are equal in translations; None for no such text.
        ratios: ratio of each source; None or empty for no ratios.
        min_pretoken_count: see `train_bpe`.
        competing: whether superwords compete with the merges of phase 1.
        weighted: whether anything is trained that the weights change.
        at: start of the names of settings in messages.

    Raises:
        UserError: the settings contradict each other, or do not suit the sources.
    """
    if parallel == "":
        raise UserError(f"{at}parallel= names no field; name the one that is equal in translations, or leave it out")
    if not parallel and not ratios:
        return
    option = f"{at}parallel={parallel}" if parallel else f"{at}ratios={listed(ratios or ())}"
    if parallel and ratios:
        raise UserError(f"{option} balances by translations, and {at}ratios without them; leave one out")
    if min_pretoken_count > 1:
        raise UserError(f"{at}min_pretoken_count={min_pretoken_count} is not for balanced sources; leave it out")
    if len(weights) < 2:
        raise UserError(f"{option} needs at least two sources: name them, such as en=en.jsonl and de=de.jsonl")
    if ratios and ratios.keys() != weights.keys():
        raise UserError(f"{option}: give a ratio for each of the sources, which are {listed(weights)}")
    _check_ratios(ratios or {})
    if competing:
        raise UserError(f"{option} needs a transition: superwords would compete with merges of small sources")
    if not weighted and any(weight != 1 for weight in weights.values()):
        raise UserError(
            f"{option} compares sources by themselves, so that weights do not change phase 1; drop the weights"
        )


def _check_ratios(ratios: Mapping[str, Any]) -> None:
    for name, ratio in ratios.items():  # types are not checked in user code
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio < math.inf:
            raise UserError(f"the ratio of {name} is {quoted(ratio)}; it must be a number above 0")


def _length(counts: PretokenCounts, offsets: Any) -> int:
    """Length of all counted pretokens, with these offsets."""
    return int((counts.counts * np.diff(offsets).astype(np.uint64)).sum())
