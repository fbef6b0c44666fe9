"""Bits per byte, and the rest of an evaluation: losses by document, by token and by group of documents."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lm.bits import bits, bits_per_byte, bytes_per_token
from lm.evaluate.config import EvalConfig
from lm.evaluate.significance import Ratio, strata
from tokenizer.durable import is_damage, replacing, write_json
from tokenizer.errors import UserError
from tokenizer.files import read_arrays, read_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

FORMAT_VERSION = 6
ARRAYS = "arrays.npz"
LOSSES = "token_nats.npy"
FEWEST_CLUSTERS = 2
"""`auto` takes single documents as the unit of sampling if there are fewer sources than this."""
SOURCE = "source"
"""Name of the grouping that `cluster: source` takes as the unit of sampling."""
KIND = "kind"
"""Name of the grouping by kinds of text, which are strata."""


def sampling_unit(cluster: str, n_sources: int) -> str:
    """Unit of sampling, `document` or `source`, for a value of `EvalConfig.cluster` and a number of known sources."""
    return SOURCE if cluster == SOURCE or (cluster == "auto" and n_sources >= FEWEST_CLUSTERS) else "document"


def sampling_units(hashes: NDArray[np.uint64], source: NDArray[np.int32] | None) -> NDArray[np.int64]:
    """Unit of sampling of each document, int64[n_documents]; documents of equal text are in one unit.

    Args:
        hashes: uint64[n_documents], equal for documents of equal text.
        source: int32[n_documents], sources as units: that of the first document of a text has its copies too. None for
            texts as units, in the order of their first documents.
    """
    _, first, text = np.unique(hashes, return_index=True, return_inverse=True)
    if source is not None:
        return source[first[text]].astype(np.int64)
    places = np.empty(len(first), np.int64)
    places[np.argsort(first)] = np.arange(len(first))
    return places[text]


@dataclass(frozen=True)
class Grouping:
    """Which group each document belongs to.

    Attributes:
        index: int32[n_documents], index into `names`.
    """

    names: tuple[str, ...]
    index: NDArray[np.int32]

    def __post_init__(self) -> None:
        if len(self.index) and not 0 <= int(self.index.min()) <= int(self.index.max()) < len(self.names):
            raise UserError(f"the index of a group is out of range ({len(self.names)} names)")

    @classmethod
    def of(cls, names: Sequence[str]) -> Grouping:
        """Documents by the name of their group, in the order of first appearance."""
        distinct = {name: place for place, name in enumerate(dict.fromkeys(names))}
        return cls(tuple(distinct), np.array([distinct[name] for name in names], np.int32))

    def sums(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Sum of a per-document array over each group, float64[n_groups]."""
        return np.bincount(self.index, weights=values, minlength=len(self.names)).astype(np.float64)

    def largest_first(self, values: NDArray[Any]) -> list[int]:
        """The groups with any of a per-document array, by their sums of it."""
        sums = self.sums(values)
        return [i for i in np.argsort(-sums, kind="stable").tolist() if sums[i]]


class SamplingUnits(NamedTuple):
    """Units of sampling and their kinds of text.

    Attributes:
        sizes: float64[n_units], bytes of each unit.
        kinds: The kind of each unit, which has most of its bytes; None if the kinds are unknown.
        strata: int64[n_units], stratum of each unit (`significance.strata`).
        scale: float64[n_units], factors on losses and bytes with which a ratio of sums over units is the average over
            kinds with `EvalConfig.weights`; 1 without weights.
    """

    sizes: NDArray[np.float64]
    kinds: Grouping | None
    strata: NDArray[np.int64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, sizes: NDArray[np.float64], kinds: Grouping | None, weights: Mapping[str, float]) -> SamplingUnits:
        """Units of these kinds."""
        if kinds is None:
            return cls(sizes, None, np.zeros(len(sizes), np.int64), np.ones(len(sizes)))
        scale = _scale(kinds, sizes, weights)
        return cls(sizes, kinds, strata(kinds.index, sizes * scale), scale)

    def average(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Weighted average of values per byte, for values[..., n_units]."""
        average: NDArray[np.float64] = (values @ self.scale) / (self.sizes @ self.scale)
        return average


@dataclass(frozen=True)
class Evaluation:
    """Scores of one model on one set of documents.

    Attributes:
        config: How it was scored.
        document_bytes: int64[n_documents], UTF-8 bytes of each original document.
        document_tokens: int64[n_documents], text tokens of each.
        text_nats: float64[n_documents], loss of the text tokens of each: the sum of `token_nats`.
        eos_nats: float64[n_documents], loss of the `end_of_text` that ends each; NaN if the model has none.
        changed: bool[n_documents], whether the tokens of a document decode to another text.
        token_counts: int64[vocab_size], number of times each id was a target, `end_of_text` included.
        limited_bytes: Bytes scored in windows that were limited by the number of positions.
        short_context_bytes: Bytes scored with less than the minimum context although the document had more.
        groups: Groupings of the documents, by name: `kind`, `source`, `script`.
        document_hashes: uint64[n_documents], equal for documents of equal text; by default, no texts are equal.
        token_nats: float32[n_text_tokens], loss of each text token of all documents, in order, memory-mapped if it was
            loaded; None if it was not kept.
    """

    config: EvalConfig
    tokenizer_sha256: str
    document_bytes: NDArray[np.int64]
    document_tokens: NDArray[np.int64]
    text_nats: NDArray[np.float64]
    eos_nats: NDArray[np.float64]
    changed: NDArray[np.bool_]
    token_counts: NDArray[np.int64]
    limited_bytes: int
    short_context_bytes: int
    groups: Mapping[str, Grouping] = field(default_factory=dict)
    document_hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    token_nats: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if len(self.document_hashes) != len(self.document_bytes):
            object.__setattr__(self, "document_hashes", np.arange(len(self.document_bytes), dtype=np.uint64))
        for name, grouping in self.groups.items():
            if len(grouping.index) != len(self.document_bytes):
                raise UserError(
                    f"the grouping by {name} has {len(grouping.index)} documents, but {len(self.document_bytes)} "
                    "were scored; group the held-out documents of the shards"
                )

    @property
    def bits_per_byte(self) -> float:
        """Loss of all text tokens in bits over all original bytes, or the average over kinds with `weights`."""
        if not self.config.weights:
            return bits_per_byte(float(self.text_nats.sum()), int(self.document_bytes.sum()))
        return float(bits(self.units().average(self.clustered(self.text_nats))))

    def cluster(self) -> tuple[str, Grouping | None]:
        """Unit of sampling: `source` with its grouping, or `document` with None.

        Raises:
            UserError: If the configuration says `source`, but there are fewer than two known sources.
        """
        sources = self.groups.get(SOURCE)
        n_sources = 0 if sources is None else len(sources.names)
        unit = sampling_unit(self.config.cluster, n_sources)
        if unit == SOURCE and n_sources < FEWEST_CLUSTERS:
            raise UserError(
                "cluster=source, but the documents have fewer than two known sources; set corpus.source_field, "
                "use several files, or set eval.cluster=document"
            )
        return unit, sources if unit == SOURCE else None

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text per token of text."""
        return bytes_per_token(self.document_bytes.sum(), self.document_tokens.sum())

    def clustered(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Sum a per-document array over each unit of sampling."""
        index, n_units = self._unit_of()
        return np.bincount(index, values, n_units).astype(np.float64)

    def _unit_of(self) -> tuple[NDArray[np.int64], int]:
        """Unit of sampling of each document, and the number of units."""
        _, grouping = self.cluster()
        index = sampling_units(self.document_hashes, None if grouping is None else grouping.index)
        return index, int(index.max(initial=-1)) + 1 if grouping is None else len(grouping.names)

    def units(self) -> SamplingUnits:
        """Units of sampling, of which kinds of text are strata."""
        sizes, by_kind = self.clustered(self.document_bytes), self.groups.get(KIND)
        if by_kind is None:
            return SamplingUnits.of(sizes, None, {})
        index, n_units = self._unit_of()
        n_kinds = len(by_kind.names)
        in_kind = np.bincount(index * n_kinds + by_kind.index, self.document_bytes, n_units * n_kinds)
        kinds = Grouping(by_kind.names, in_kind.reshape(n_units, n_kinds).argmax(1).astype(np.int32))
        return SamplingUnits.of(sizes, kinds, self.config.weights)

    def ratio(self, nats: Sequence[NDArray[np.float64]]) -> Ratio:
        """Bits per byte of these losses with their uncertainty.

        Args:
            nats: One float64[n_documents] per seed.
        """
        units = self.units()
        losses = np.array([self.clustered(bits(loss)) for loss in nats])
        return Ratio.of(losses * units.scale, units.sizes * units.scale, units.strata)

    def only(self, documents: NDArray[np.bool_]) -> Evaluation:
        """Return the scores of some documents; sums over tokens remain those of all documents, without `token_nats`.

        If whole sources are sampled, but the documents have a single source, documents are sampled.

        Args:
            documents: bool[n_documents], the documents to keep.
        """
        groups = {}
        for name, grouping in self.groups.items():
            present, index = np.unique(grouping.index[documents], return_inverse=True)
            groups[name] = Grouping(tuple(grouping.names[i] for i in present), index.astype(np.int32))
        cluster = "auto" if self.config.cluster == SOURCE else self.config.cluster
        return dataclasses.replace(
            self,
            config=dataclasses.replace(self.config, cluster=cluster),
            groups=groups,
            token_nats=None,
            **{name: getattr(self, name)[documents] for name in _PER_DOCUMENT},
        )

    def summary(self) -> dict[str, Any]:
        """Results as a JSON-able dictionary; the interval is None if one document (or source) has all of the text."""
        n_bytes, n_tokens = int(self.document_bytes.sum()), int(self.document_tokens.sum())
        interval = self.ratio([self.text_nats]).known_interval(self.config.confidence)
        return {
            "bits_per_byte": self.bits_per_byte,
            "bits_per_byte_interval": None if interval is None else list(interval),
            "confidence": self.config.confidence,
            "eos_nats_per_document": mean_or_none(self.eos_nats),
            "bytes_per_token": self.bytes_per_token,
            "n_documents": len(self.text_nats),
            "n_bytes": n_bytes,
            "n_tokens": n_tokens,
            "context_bytes": self.config.context_bytes,
            "min_context_bytes": self.config.min_context_bytes,
            "position_limited_share": self.limited_bytes / n_bytes,
            "short_context_share": self.short_context_bytes / n_bytes,
            "cluster": self.cluster()[0],
            "tokenizer_sha256": self.tokenizer_sha256,
        }

    def save(self, folder: Path) -> None:
        """Write `arrays.npz`, `token_nats.npy`, then `evaluation.json`, which marks the folder as complete."""
        folder.mkdir(parents=True, exist_ok=True)
        index = {f"group:{name}": grouping.index for name, grouping in self.groups.items()}
        arrays = {name: getattr(self, name) for name in (*_PER_DOCUMENT, _COUNTS)}
        with replacing(folder / ARRAYS) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays, **index)
        if self.token_nats is not None:
            with replacing(folder / LOSSES) as file:
                np.save(file, self.token_nats, allow_pickle=False)
        content = {
            "format_version": FORMAT_VERSION,
            "config": dataclasses.asdict(self.config),
            "groups": {name: list(grouping.names) for name, grouping in self.groups.items()},
            **{name: getattr(self, name) for name in _SCALARS},
            "summary": self.summary(),
        }
        write_json(folder / "evaluation.json", content)

    @classmethod
    def load(cls, folder: Path) -> Evaluation:
        """Read what `save` wrote.

        Raises:
            UserError: If the folder has no complete evaluation.
        """
        try:
            content = read_json(folder / "evaluation.json")
            version = content["format_version"]
            if version != FORMAT_VERSION:
                raise UserError(f"{folder} has an evaluation of format version {version}; evaluate again")
            saved = read_arrays(folder / ARRAYS, "evaluate again")
            arrays: dict[str, Any] = {name: saved[name] for name in _PER_DOCUMENT}
            groups = {name: Grouping(tuple(names), saved[f"group:{name}"]) for name, names in content["groups"].items()}
            scalars = {name: content[name] for name in _SCALARS}
            config = EvalConfig(**content["config"])
            counts = saved[_COUNTS]
            kept = folder / LOSSES
            token_nats = np.load(kept, mmap_mode="r", allow_pickle=False) if kept.exists() else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, UserError) or not is_damage(error):
                raise
            raise UserError(f"{folder} has no complete evaluation ({error!r}); evaluate again") from error
        n_tokens = None if token_nats is None else len(token_nats)
        if len({len(array) for array in arrays.values()}) != 1 or n_tokens not in (
            None,
            arrays["document_tokens"].sum(),
        ):
            raise UserError(f"{folder} has a damaged evaluation; evaluate again")
        return cls(config=config, groups=groups, token_counts=counts, token_nats=token_nats, **arrays, **scalars)


def mean_or_none(values: NDArray[np.float64]) -> float | None:
    """The mean as a JSON-able number; None if a value is NaN."""
    mean = float(np.mean(values))
    return None if np.isnan(mean) else mean


def _scale(kinds: Grouping, sizes: NDArray[np.float64], weights: Mapping[str, float]) -> NDArray[np.float64]:
    """`SamplingUnits.scale`. If none of the kinds with a weight has text, each byte has the same weight."""
    of_kind = kinds.sums(sizes)
    wanted = np.array([weights.get(name, 0.0) for name in kinds.names]) * (of_kind > 0)
    if not wanted.any():
        return np.ones(len(sizes))
    factors: NDArray[np.float64] = wanted / wanted.sum() * sizes.sum() / np.where(of_kind > 0, of_kind, 1.0)
    return factors[kinds.index]


_PER_DOCUMENT = ("document_bytes", "document_tokens", "text_nats", "eos_nats", "changed", "document_hashes")
_COUNTS = "token_counts"
_SCALARS = ("tokenizer_sha256", "limited_bytes", "short_context_bytes")
