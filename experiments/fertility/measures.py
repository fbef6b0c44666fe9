"""Measures of a tokenizer on groups of documents, with confidence intervals over documents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.fertility.tallies import ALL, SOURCE, by_text
from experiments.results import plain
from experiments.store.manifest import command_line
from lm.evaluate.deployment import Deployment, ServingCost, serving_cost
from lm.evaluate.significance import Ratio
from superbpe.inspection.measures import renyi_entropy
from tokenizer.external.load import Pretrained

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from experiments.fertility.tallies import Documents, Group, Tally
    from tokenizer import Corpus
    from tokenizer.interface import TokenizerLike

ALPHA, CONFIDENCE = 2.5, 0.95
LEAST_DOCUMENTS = 10
"""Fewer documents get no interval."""


class Measure(NamedTuple):
    """A ratio, and the ends of its interval; None where they are undefined."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def complement(self) -> Measure:
        """1 minus the ratio."""
        ends = [None if value is None else 1 - value for value in (self.value, self.high, self.low)]
        return Measure(*ends)

    def save(self, name: str) -> dict[str, float | None]:
        """Entries of the JSON: the ratio under this name, and the ends of its interval."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


UNDEFINED = Measure(None)


@dataclass(frozen=True, kw_only=True)
class Row:
    """Measures of a tokenizer on a group of documents: totals over the documents, divided once.

    Attributes:
        by: How documents are grouped: `all`, `kind`, `source` or `script`.
        words: Whitespace-separated words.
        bytes_per_token: Compression.
        tokens_per_word: Fertility.
        parity: Tokens divided by the reference's tokens of the same documents: the normalized sequence length (Dagan et
            al. 2024, arXiv 2402.01035).
        strr: Single-token retention rate: share of the words (`superbpe.inspection.boundaries`) that no token cuts
            (Nayeem et al. 2025, arXiv 2510.09947; per occurrence, as in TokLens, 2026).
        continued_words: Proportion of continued words, which is 1 - strr (Rust et al. 2021).
        digit_boundaries: Share of the numbers of four digits or more that are cut in groups of three from the right,
            and nowhere else (Singh & Strouse 2024, arXiv 2402.14903).
        cut_characters: Characters with a cut between their bytes, per character.
        premium: Tokens of parallel text divided by the same tokenizer's tokens of its translation in the first source
            (Petrov et al. 2023, arXiv 2305.15425); undefined unless the group is a source with such text.
        gini: Gini coefficient of the cost of the sources (`gini`; Foroutan et al. 2025, arXiv 2508.04796): tokens of
            parallel text, otherwise per byte; None unless the group is all text, with two sources or more.
        vocabulary: Number of tokens of text (`TokenizerLike.text_ids`).
        used: Number of these that occur; None unless the group is all text.
        renyi_efficiency: Rényi entropy of the token distribution over log2(vocabulary) (Zouhar et al. 2023); None
            unless the group is all text.
        changed_documents: Documents that decode to another text.
        lost_bytes: Bytes that no token stands for, or only the unknown token.
        in_training_bytes: Bytes of documents that are also in the training text; None if that is unknown.
        cost: Cost of serving per byte of text; None without tokens.
    """

    tokenizer: str
    by: str
    group: str
    documents: int
    bytes: int
    words: int
    tokens: int
    bytes_per_token: Measure
    tokens_per_word: Measure
    parity: Measure
    strr: Measure
    continued_words: Measure
    digit_boundaries: Measure
    cut_characters: Measure
    premium: Measure
    gini: float | None
    vocabulary: int
    used: int | None
    renyi_efficiency: float | None
    changed_documents: int
    lost_bytes: int
    in_training_bytes: int | None
    cost: ServingCost | None

    def save(self) -> dict[str, Any]:
        """The row as JSON."""
        values: dict[str, Any] = {}
        for name, value in vars(self).items():
            values |= value.save(name) if isinstance(value, Measure) else {name: value}
        cost: ServingCost | None = values.pop("cost")
        for phase in ("prefill", "decode"):
            for unit in ("flops", "seconds"):
                of_phase = getattr(cost, phase, None)
                values[f"{phase}_{unit}_per_byte"] = getattr(of_phase, f"{unit}_per_byte", None)
        values["cache_bytes_per_byte"] = None if cost is None else cost.cache_bytes_per_byte
        return values


@dataclass(frozen=True, kw_only=True)
class MeasuredText:
    """The text on which tokenizers are measured: its files, and its size in documents, bytes and words."""

    files: Sequence[str]
    documents: int
    bytes: int
    words: int

    @classmethod
    def of(cls, text: Corpus, documents: Documents) -> MeasuredText:
        """The text that the user named, of which these documents are measured."""
        return cls(
            files=[str(path) for path, _ in text.files],
            documents=len(documents),
            bytes=int(documents.n_bytes.sum()),
            words=int(documents.n_words.sum()),
        )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Tokenizers measured on a text.

    Attributes:
        reference: Name of the tokenizer with which the others are compared.
        deployment: The model whose serving is priced.
        deployment_name: How the user named it.
        alpha: Order of the Rényi entropy.
        rows: A row for each tokenizer and group of documents.
    """

    reference: str
    text: MeasuredText
    deployment: Deployment
    deployment_name: str
    alpha: float = ALPHA
    rows: Sequence[Row]

    def save(self) -> dict[str, Any]:
        """The numbers of the page, as JSON."""
        entries = {name: plain(value) for name, value in vars(self).items()}
        name = entries.pop("deployment_name")
        return {
            "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "command": command_line(),
            "confidence": CONFIDENCE,
            "least_documents": LEAST_DOCUMENTS,
            **entries,
            "deployment": {"name": name, **entries["deployment"]},
        }


def loaded(tokenizers: Mapping[str, Pretrained | TokenizerLike]) -> dict[str, Pretrained]:
    """The tokenizers with their origin, which is empty for those that are not loaded from a place."""
    return {
        name: one if isinstance(one, Pretrained) else Pretrained(one, "", None, ()) for name, one in tokenizers.items()
    }


def rows(
    name: str,
    tally: Tally,
    documents: Documents,
    reference: Tally,
    *,
    alpha: float = ALPHA,
    deployed: Deployment,
    in_training: NDArray[np.bool_] | None = None,
) -> list[Row]:
    """Measure a tokenizer on every group.

    Args:
        name: Name of the tokenizer.
        tally: Its counts.
        documents: The documents.
        reference: Counts of the reference.
        alpha: Order of the Rényi entropy.
        deployed: The model whose serving is priced.
        in_training: bool[n_documents], whether a document is in its training text; None if that is unknown.

    Returns:
        A row for each group that has measured documents.
    """
    text_ids = tally.tokenizer.text_ids()
    fairness = gini_of_sources(tally, documents)
    efficiency = renyi_entropy(tally.counts, alpha) / math.log2(max(len(text_ids), 2)) if tally.counts.any() else 0.0

    def row(group: Group) -> Row:
        chosen = group.documents[tally.measured[group.documents]]
        whole = group.by == ALL
        hashes, sizes = documents.hashes[chosen], documents.n_bytes[chosen]
        words, tokens = documents.n_words[chosen], tally.tokens[chosen]
        common = chosen[reference.measured[chosen]]
        n_bytes, n_tokens = int(sizes.sum()), int(tokens.sum())
        split = cut_share(tally, documents, "words", chosen)
        cost = serving_cost(deployed, vocab_size=tally.tokenizer.vocab_size, tokens_per_byte=max(n_tokens, 1) / n_bytes)
        return Row(
            tokenizer=name,
            by=group.by,
            group=group.name,
            documents=len(chosen),
            bytes=n_bytes,
            words=int(words.sum()),
            tokens=n_tokens,
            bytes_per_token=ratio(*by_text(hashes, sizes, tokens)),
            tokens_per_word=ratio(*by_text(hashes, tokens, words)),
            parity=ratio(*by_text(documents.hashes[common], tally.tokens[common], reference.tokens[common])),
            strr=split.complement(),
            continued_words=split,
            digit_boundaries=cut_share(tally, documents, "numbers", chosen),
            cut_characters=cut_share(tally, documents, "characters", chosen),
            premium=premium(tally, documents, group.name) if group.by == SOURCE else UNDEFINED,
            gini=fairness if whole else None,
            vocabulary=len(text_ids),
            used=int(np.count_nonzero(tally.counts[text_ids])) if whole else None,
            renyi_efficiency=efficiency if whole else None,
            changed_documents=int(np.count_nonzero(tally.changed[chosen])),
            lost_bytes=int(tally.lost[chosen].sum()),
            in_training_bytes=None if in_training is None else int(sizes[in_training[chosen]].sum()),
            cost=cost if n_tokens else None,
        )

    return [row(group) for group in documents.groups if tally.measured[group.documents].any()]


def cut_share(tally: Tally, documents: Documents, units: str, chosen: NDArray[np.int64]) -> Measure:
    """Share of the `words`, `numbers` or `characters` of documents that a tokenizer cuts (`Counts`), and its interval.

    Only documents count whose tokens account for all of their bytes. Without any such unit, the share is undefined.
    """
    located = chosen[tally.located[chosen]]
    columns = (getattr(of, units)[located] for of in (tally.cut, tally.units))
    share = ratio(*by_text(documents.hashes[located], *columns))
    return Measure(*(None if end is None else min(max(end, 0.0), 1.0) for end in share))


def premium(tally: Tally, documents: Documents, source: str) -> Measure:
    """Tokens of a source's parallel text, per token of its translation in the first source, and the interval."""
    if source not in documents.parallel:
        return UNDEFINED
    original = next(iter(documents.parallel.values()))
    return ratio(tally.tokens[documents.parallel[source]].astype(float), tally.tokens[original].astype(float))


def gini_of_sources(tally: Tally, documents: Documents) -> float | None:
    """Gini coefficient of the sources' cost: tokens of parallel text, or tokens per byte; None for one source."""
    sources = [group.documents[tally.measured[group.documents]] for group in documents.groups if group.by == SOURCE]
    costs = [tally.tokens[chosen].sum() / documents.n_bytes[chosen].sum() for chosen in sources if len(chosen)]
    if documents.parallel:
        costs = [tally.tokens[chosen].sum() for chosen in documents.parallel.values()]
    return gini(costs) if len(costs) > 1 and any(costs) else None


def gini(costs: Sequence[float]) -> float:
    """Mean absolute difference of all pairs of costs, themselves included, over twice their mean.

    0 if all costs are equal, at most 1 - 1 / n.

    >>> gini([1, 1, 1, 1]), gini([0, 0, 0, 1]), round(gini([1, 2, 3]), 4)
    (0.0, 0.75, 0.2222)
    """
    each = np.asarray(costs, np.float64)
    return float(np.abs(each[:, None] - each).mean() / (2 * each.mean()))


def ratio(numerators: NDArray[np.float64], denominators: NDArray[np.float64]) -> Measure:
    """Ratio of totals over texts, and its interval.

    If both are counts of tokens, the interval is paired, since they are of the same documents.
    """
    if not denominators.any():
        return UNDEFINED
    measured = Ratio.of(numerators[None], denominators)
    interval = measured.known_interval(CONFIDENCE) if len(numerators) >= LEAST_DOCUMENTS else None
    return Measure(int(numerators.sum()) / int(denominators.sum()), *(interval or (None, None)))
