"""Measurements at several budgets of training compute, and the held-out documents that they are averages over."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lm.evaluate.significance import strata
from tokenizer.errors import UserError, listed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm.evaluate.bits_per_byte import Grouping, Units


@dataclass(frozen=True, eq=False, kw_only=True)
class Points:
    """Measurements of one arm.

    Attributes:
        vocab_size: Rows of the head that the arm would be deployed with.
        flops: Training FLOPs of each budget, rising: those that were equal in training, of the measured models or at
            the configured deployment.
        seeds: Seeds of the models. The models of one seed share a trunk, so they are not independent.
        document_tokens: int64[n_documents], text tokens of each document.
        nats: float64[n_seeds, n_budgets, n_documents], loss of each document's text tokens.
        barred: Why the arm takes part in no verdict (`lm.evaluate.comparison.eligible`); empty if it does.
        pooled: Whether its variance between seeds may be pooled with that of other such arms.
        read: Tokens and bytes of text that the models of each budget read; None for arms that were measured elsewhere,
            whose `flops` hold for any deployment.
        proxy_flops: Training FLOPs of the measured models at each budget; None if they are unknown.
        superwords: Whether its tokenizer has superwords, or may have.
    """

    name: str
    vocab_size: int
    flops: Sequence[float]
    seeds: Sequence[int]
    document_tokens: NDArray[np.int64]
    nats: NDArray[np.float64]
    barred: str = ""
    pooled: bool = False
    read: Sequence[tuple[float, float]] | None = None
    proxy_flops: Sequence[float] | None = None
    superwords: bool = True

    @property
    def spent(self) -> Sequence[float]:
        """Training FLOPs that were spent on the measured models at each budget; `flops` if they are unknown."""
        return self.flops if self.proxy_flops is None else self.proxy_flops


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The documents that all arms are scored on.

    Attributes:
        document_bytes: int64[n_documents], UTF-8 bytes of each original document. Where documents are not independent,
            larger units, such as sites, take their place here and in everything that is given by document.
        shares: Share of each source in the averages, summing to 1.
        cluster: Unit of sampling: "document" or "source".
        strata: int64[n_documents], as for `significance.Ratio.of`; None for a single stratum.
    """

    document_bytes: NDArray[np.int64]
    sources: Grouping
    shares: Mapping[str, float]
    cluster: str = "document"
    strata: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        document_bytes: NDArray[np.int64],
        sources: Grouping,
        *,
        fixed: Mapping[str, float] | None = None,
        cluster: str = "document",
        units: Units | None = None,
    ) -> HeldOut:
        """Weight the sources.

        Args:
            document_bytes: int64[n_documents].
            sources: Source of each document.
            fixed: Shares that are set by hand. The other sources divide the rest in proportion to their bytes.
            cluster: Unit of sampling.
            units: The kinds of the documents, and factors on their bytes in the shares that are not fixed; None for a
                single kind.

        Raises:
            UserError: If a source is unknown, or the shares are negative or do not sum to 1.
        """
        sizes = sources.sums(document_bytes)
        fixed = dict(fixed or {})
        if unknown := sorted(set(fixed) - {name for name, size in zip(sources.names, sizes, strict=True) if size}):
            raise UserError(f"no held-out text is from {listed(unknown)}; the sources are {listed(sources.names)}")
        scaled = sizes if units is None else sources.sums(document_bytes * units.scale)
        rest = {name: float(size) for name, size in zip(sources.names, scaled, strict=True) if name not in fixed}
        left, total = 1 - sum(fixed.values()), sum(rest.values())
        if not math.isfinite(left) or min([left, *fixed.values()]) < -1e-9 or (total == 0 and abs(left) > 1e-9):
            raise UserError(
                f"the shares of the sources are {fixed}; each must be at least 0, and they must sum to "
                + ("at most 1" if total else "1")
            )
        shares = {name: max(left, 0.0) * share / (total or 1) for name, share in rest.items()}
        weighted = cls(document_bytes, sources, shares | fixed, cluster)
        if units is None or units.kinds is None:
            return weighted
        return replace(weighted, strata=strata(units.kinds.index, document_bytes * weighted.scales()))

    def scales(self) -> NDArray[np.float64]:
        """float64[n_documents] that turns a weighted average over sources into a ratio of sums over documents.

        sum(scale bits) / sum(scale bytes) is the sum over sources of share times (bits / bytes).
        """
        sizes = self.sources.sums(self.document_bytes)
        wanted = np.array([self.shares[name] for name in self.sources.names])
        scale: NDArray[np.float64] = np.divide(wanted * sizes.sum(), sizes, out=np.zeros(len(sizes)), where=sizes > 0)
        return scale[self.sources.index]

    def average(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Weighted average over sources of values per byte, for values[..., n_documents]."""
        scale = self.scales()
        average: NDArray[np.float64] = (values @ scale) / (self.document_bytes @ scale)
        return average
