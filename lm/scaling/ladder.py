"""Points of one arm on a ladder of budgets: (training FLOPs, bits per byte) for every seed, and their documents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lm.evaluate.significance import effective_number
from tokenizer.errors import UserError, listed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm.evaluate.bits_per_byte import Grouping

Average = Literal["micro", "macro"]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The documents that all arms are scored on.

    Attributes:
        document_bytes: int64[n_documents], UTF-8 bytes of each original document. Where documents are not independent,
            larger units, such as sites, take their place here and in everything that is given by document.
        sources: Source of each document.
        shares: Share of each source in the averages, summing to 1; see `source_shares`.
        cluster: Unit of sampling: "document" or "source".
    """

    document_bytes: NDArray[np.int64]
    sources: Grouping
    shares: Mapping[str, float]
    cluster: str = "document"

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


def source_shares(
    document_bytes: NDArray[np.int64],
    sources: Grouping,
    *,
    average: Average = "micro",
    fixed: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Share of each source in an average over sources.

    Args:
        document_bytes: int64[n_documents].
        sources: Source of each document.
        average: `micro`: in proportion to the bytes of each source, as if all documents were one text; `macro`: the
            same share for every source that has text.
        fixed: Shares that are set by hand. The other sources divide the rest as `average` says.

    Raises:
        UserError: If a source is unknown, or the shares are negative or do not sum to 1.
    """
    sizes = sources.sums(document_bytes)
    fixed = dict(fixed or {})
    if unknown := sorted(set(fixed) - {name for name, size in zip(sources.names, sizes, strict=True) if size}):
        raise UserError(f"no held-out text is from {listed(unknown)}; the sources are {listed(sources.names)}")
    base = sizes if average == "micro" else (sizes > 0).astype(float)
    rest = {name: float(share) for name, share in zip(sources.names, base, strict=True) if name not in fixed}
    left, total = 1 - sum(fixed.values()), sum(rest.values())
    if not math.isfinite(left) or min([left, *fixed.values()]) < -1e-9 or (total == 0 and abs(left) > 1e-9):
        raise UserError(
            f"the shares of the sources are {fixed}; each must be at least 0, and they must sum to "
            + ("at most 1" if total else "1")
        )
    return {
        name: fixed[name] if name in fixed else max(left, 0.0) * rest[name] / (total or 1) for name in sources.names
    }


@dataclass(frozen=True, eq=False)
class Ladder:
    """Bits per byte of one arm at every budget, by seed.

    Attributes:
        name: Name of the arm.
        flops: float64[n_rungs], training FLOPs of each rung, rising.
        bits_per_byte: float64[n_seeds, n_rungs].
        seeds: Seeds of the rows; rungs of one seed share a trunk, so they are not independent.
        shares: Share of each source in the average.
        document_bits: float64[n_seeds, n_rungs, n_documents], scaled by `HeldOut.scales`; None if only averages are
            known.
        document_bytes: float64[n_documents], scaled in the same way.
        cluster: Unit of sampling: "document" or "source".
    """

    name: str
    flops: NDArray[np.float64]
    bits_per_byte: NDArray[np.float64]
    seeds: tuple[int, ...]
    shares: Mapping[str, float]
    document_bits: NDArray[np.float64] | None = None
    document_bytes: NDArray[np.float64] | None = None
    cluster: str = "document"

    def __post_init__(self) -> None:
        if self.bits_per_byte.shape != (len(self.seeds), len(self.flops)) or not self.bits_per_byte.size:
            raise UserError(
                f"{self.name} has {len(self.seeds)} seeds and {len(self.flops)} budgets, but its bits per byte are "
                f"{'x'.join(map(str, self.bits_per_byte.shape))} numbers; give one for each seed and budget"
            )
        if not (np.all(np.diff(self.flops) > 0) and self.flops[0] > 0 and math.isfinite(self.flops[-1])):
            raise UserError(
                f"the budgets of {self.name} are {listed(self.flops)}; give positive FLOPs, each once, rising"
            )
        if not (np.all(np.isfinite(self.bits_per_byte)) and np.all(self.bits_per_byte > 0)):
            raise UserError(f"the bits per byte of {self.name} are not all positive numbers; a run may have diverged")

    @property
    def mean(self) -> NDArray[np.float64]:
        """float64[n_rungs]: bits per byte of each rung, mean over the seeds."""
        mean: NDArray[np.float64] = self.bits_per_byte.mean(axis=0)
        return mean

    @property
    def effective_units(self) -> float | None:
        """Number of units of equal size that would give the same precision; None if the documents are not known."""
        if self.document_bytes is None:
            return None
        return float(effective_number(self.document_bytes))

    def resampled(self, samples: int, seed: int) -> NDArray[np.float64] | None:
        """float64[samples, n_rungs]: `mean` for resampled documents; None if the documents are not known.

        The draws depend only on the seed and the number of documents with bytes, so those of two arms are paired.
        """
        if self.document_bits is None or self.document_bytes is None:
            return None
        kept = self.document_bytes > 0
        rows, sizes = self.document_bits.mean(axis=0)[:, kept], self.document_bytes[kept]
        n = len(sizes)
        if n < 2:
            return None
        rng, found = np.random.default_rng(seed), np.empty((samples, len(rows)))
        for i in range(samples):
            weights = np.bincount(rng.integers(0, n, n), minlength=n)
            found[i] = rows @ weights / (weights @ sizes)
        return found

    def rungs(self, keep: Sequence[int]) -> Ladder:
        """The ladder with some of its rungs only."""
        bits = self.document_bits
        return replace(
            self,
            flops=self.flops[list(keep)],
            bits_per_byte=self.bits_per_byte[:, list(keep)],
            document_bits=None if bits is None else bits[:, list(keep)],
        )


def document_ladder(
    name: str, flops: Sequence[float], nats: NDArray[np.float64], heldout: HeldOut, *, seeds: Sequence[int]
) -> Ladder:
    """A ladder from the losses of documents.

    Args:
        name: Name of the arm.
        flops: Training FLOPs of each rung.
        nats: float64[n_seeds, n_rungs, n_documents], loss of each document's text tokens.
        heldout: The documents.
        seeds: Seeds of the rows.
    """
    bits, scale = nats / math.log(2), heldout.scales()
    return Ladder(
        name,
        np.array(flops, np.float64),
        heldout.average(bits),
        tuple(seeds),
        dict(heldout.shares),
        bits * scale,
        heldout.document_bytes * scale,
        heldout.cluster,
    )


def check_comparable(reference: Ladder, other: Ladder, *, tolerance: float = 0.01) -> None:
    """Reject two arms that were not measured on the same documents, sources, seeds and budgets.

    Args:
        reference: An arm.
        other: Another arm.
        tolerance: Accepted relative difference of the FLOPs of a rung.

    Raises:
        UserError: With the first reason.
    """
    names = f"{other.name} cannot be compared with {reference.name}"
    if set(other.shares) != set(reference.shares):
        extra = sorted(set(other.shares) ^ set(reference.shares))
        raise UserError(f"{names}: only one of them is scored on {listed(extra)}; score both on the same sources")
    if any(abs(other.shares[source] - share) > 1e-9 for source, share in reference.shares.items()):
        raise UserError(f"{names}: their sources have different shares; use the same for both")
    documents = [each.document_bytes for each in (reference, other)]
    if (documents[0] is None) != (documents[1] is None) or (
        documents[0] is not None and documents[1] is not None and not np.array_equal(documents[0], documents[1])
    ):
        raise UserError(f"{names}: they are scored on different documents; evaluate both on the same held-out text")
    if len(other.flops) != len(reference.flops):
        raise UserError(
            f"{names}: it has {len(other.flops)} budgets instead of {len(reference.flops)}; train the missing ones, "
            "or leave them out of both"
        )
    for one, two in zip(reference.flops, other.flops, strict=True):
        if abs(two / one - 1) > tolerance:
            raise UserError(
                f"{names}: a budget is {two:.4g} instead of {one:.4g} FLOPs, more than {100 * tolerance:.0f} % apart; "
                "train both with budget=equal_flops, or accept a larger tolerance"
            )
    if other.seeds != reference.seeds:
        raise UserError(
            f"{names}: its seeds are {listed(other.seeds)} instead of {listed(reference.seeds)}; train the same seeds"
        )
