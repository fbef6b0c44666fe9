"""What each stage hands to the next: one dataclass per kind of artifact, stored as `contents` of its manifest."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from lm.data.shards import TextLoss
from lm.train.summary import TrainingSummary
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Result of a stage, JSON-able."""

    @classmethod
    def load(cls, values: Mapping[str, Any]) -> Self:
        """Make the result of what a manifest holds; entries of other versions are ignored.

        Raises:
            UserError: If an entry is missing.
        """
        known = {each.name for each in dataclasses.fields(cls)}
        try:
            return cls(**{name: value for name, value in values.items() if name in known})
        except TypeError as error:
            raise UserError(f"it was made by another version of this program ({error})") from None

    def save(self) -> dict[str, Any]:
        """Return what the manifest holds: everything but entries that are None."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Folder(Contents):
    """An artifact whose files say everything."""


@dataclass(frozen=True, kw_only=True)
class Reading(Contents):
    """Which text a stage read.

    Attributes:
        corpus: Hash of the corpus; None for a mixture of other text.
        split: `train` or `heldout`.
        mixture: Names and weights of the text in place of the corpus.
        without_heldout_of: Hash of the corpus whose held-out documents were left out of the mixture.
    """

    corpus: str | None = None
    split: str | None = None
    mixture: list[str] | None = None
    without_heldout_of: str | None = None


@dataclass(frozen=True, kw_only=True)
class CorpusFiles(Contents):
    """The embedded corpus, written to files.

    Attributes:
        package: Package that the text comes from.
        version: Its version.
        fallback: Whether it is the small corpus for machines without that package.
        train: Documents, bytes and groups of the training split.
        heldout: The same of the held-out split.
        overlap: Sentences that both splits hold.
    """

    package: str
    version: str
    fallback: bool
    train: dict[str, int]
    heldout: dict[str, int]
    overlap: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Counts(Reading):
    """Counts of pretokens.

    Attributes:
        n_distinct: Different pretokens.
        n_pretokens: All pretokens.
        n_bytes: Bytes of text.
        n_documents: Documents.
    """

    n_distinct: int
    n_pretokens: int
    n_bytes: int
    n_documents: int


@dataclass(frozen=True, kw_only=True)
class TokenizerFolder(Contents):
    """A saved tokenizer.

    Attributes:
        vocab_size: Size of its vocabulary.
        mode: How it encodes.
        sha256: Its identity.
        source: The file or repository that it was read from, if it was not trained here.
        revision: Commit of that repository.
        added_special_tokens: Special tokens that it got here.
        software: What runs it, if our core does not.
        reason: Why our core does not.
    """

    vocab_size: int
    mode: str
    sha256: str
    source: str | None = None
    revision: str | None = None
    added_special_tokens: list[str] = field(default_factory=list)
    software: str | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class TrainedTokenizer(Reading):
    """Record of a training of phase 1 or phase 2.

    Attributes:
        tokenizer: Name of the artifact that holds the tokenizer.
        sha256: Identity of the tokenizer.
        vocab_size: Size of its vocabulary.
        exhausted: Phase 1: whether the corpus ran out of pairs.
        training: Phase 2: what the tokenizer's provenance says of it.
        early: Phase 2: what its first merges brought, rows of `superbpe.inspection.history.training_statistics`.
    """

    tokenizer: str
    sha256: str
    vocab_size: int
    exhausted: bool = False
    training: dict[str, Any] | None = None
    early: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ShardsFolder(Reading):
    """One split of the corpus in the tokens of one tokenizer.

    Attributes:
        n_tokens: Tokens, one separator per document among them.
        n_documents: Documents.
        n_bytes: Bytes of the documents.
        dtype: Type of the stored ids.
        vocab_size: Size of the vocabulary.
        text_loss: Text that the tokenizer changes or cannot represent (`lm.data.shards.TextLoss`); None if it keeps
            all text.
    """

    n_tokens: int
    n_documents: int
    n_bytes: int
    dtype: str
    vocab_size: int
    text_loss: TextLoss | None = None

    @classmethod
    def load(cls, values: Mapping[str, Any]) -> Self:
        """As `Contents.load`."""
        found = values.get("text_loss")
        return super().load({**values, "text_loss": None if found is None else TextLoss(**found)})

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text per token, separators not counted."""
        return self.n_bytes / max(self.n_tokens - self.n_documents, 1)


@dataclass(frozen=True, kw_only=True)
class HeldoutDocuments(Reading):
    """What is known about the held-out documents, whatever the tokenizer.

    Attributes:
        n_documents: Documents.
        names: Names of the groups that documents are in, by `source` and `script`.
    """

    n_documents: int
    names: dict[str, list[str]]


@dataclass(frozen=True, kw_only=True)
class TrainedModel(Contents):
    """A trained language model.

    Attributes:
        tokenizer: Identity of the tokenizer.
        summary: What the training was and what it cost.
    """

    tokenizer: str
    summary: TrainingSummary

    @classmethod
    def load(cls, values: Mapping[str, Any]) -> Self:
        """As `Contents.load`."""
        try:
            return super().load({**values, "summary": TrainingSummary(**values["summary"])})
        except (KeyError, TypeError) as error:
            raise UserError(f"it was made by another version of this program ({error})") from None

    @property
    def seed(self) -> int:
        """Seed of the training."""
        return int(self.summary.run["train"]["seed"])

    @property
    def shuffle(self) -> bool:
        """Whether documents were shuffled."""
        return bool(self.summary.run["train"]["shuffle"])

    @property
    def settings(self) -> dict[str, Any]:
        """What models that differ in their seed alone have in common; steps follow from the budget, seed by seed."""
        train = {key: value for key, value in self.summary.run["train"].items() if key not in ("seed", "max_steps")}
        return {**self.summary.run, "train": train}


@dataclass(frozen=True, kw_only=True)
class InferenceCost(Contents):
    """What a model costs when it is used, per byte of text (`lm.evaluate.cost`).

    Attributes:
        context_bytes: Bytes of the context that is read.
        context_tokens: The same in tokens.
        bytes_per_token: Of the held-out text.
        prefill_flops_per_byte: FLOPs of reading the context.
        decode_flops_per_byte: FLOPs of decoding after it.
        kv_bytes_per_byte: Bytes of the KV cache per byte of context.
        kv_dtype: Type of the numbers in the KV cache.
        parameters_total: Parameters of the model.
        formulas: How they are counted.
        decode_seconds_per_byte: Measured time; None where the text was too short.
        decode_device: Where it was measured.
    """

    context_bytes: int
    context_tokens: float
    bytes_per_token: float
    prefill_flops_per_byte: float
    decode_flops_per_byte: float
    kv_bytes_per_byte: float
    kv_dtype: str
    parameters_total: int
    formulas: dict[str, str]
    decode_seconds_per_byte: float | None = None
    decode_device: str | None = None


@dataclass(frozen=True, kw_only=True)
class GroupScores(Contents):
    """Scores of the documents of one source or script; see `Scores`."""

    name: str
    bits_per_byte: float
    nats_per_byte: float
    bytes_per_token: float
    eos_nats_per_document: float
    n_bytes: int
    n_documents: int


@dataclass(frozen=True, kw_only=True)
class SeedScores(Contents):
    """Bits per byte of each training seed, and their standard deviation."""

    bits_per_byte: list[float]
    standard_deviation: float


@dataclass(frozen=True, kw_only=True)
class Scores(Contents):
    """Held-out scores of one model, or of one tokenizer's models with several seeds (`lm.evaluate.aggregate`).

    Attributes:
        bits_per_byte: Loss of the text, in bits per byte of the original documents.
        bits_per_byte_interval: Its interval; None below two documents.
        confidence: Of the interval.
        nats_per_byte: The loss in nats.
        nats_per_token: Per token.
        nats_per_document: Per document.
        eos_nats_per_document: Loss of the separator that ends each document.
        bytes_per_token: Of the held-out text.
        n_documents: Documents.
        n_bytes: Their bytes.
        n_tokens: Their tokens.
        context_bytes: Bytes of context at most.
        min_context_bytes: Bytes of context that each token should see.
        mean_context_bytes: What they saw.
        position_limited_share: Share of bytes whose context the trained positions limited.
        short_context_share: Share of bytes with less than `min_context_bytes`.
        overlap_share: Share of computed positions that served as context only.
        padding_share: Share of computed positions that were padding.
        cluster: What the bootstrap resamples: `document` or `source`.
        tokenizer_sha256: Identity of the tokenizer.
        cost: What inference costs.
        by_source: Scores by source.
        by_script: Scores by script.
        seeds: Of each training seed, if there are several.
    """

    bits_per_byte: float
    bits_per_byte_interval: tuple[float, float] | None = None
    confidence: float
    nats_per_byte: float
    nats_per_token: float
    nats_per_document: float
    eos_nats_per_document: float
    bytes_per_token: float
    n_documents: int
    n_bytes: int
    n_tokens: int
    context_bytes: int
    min_context_bytes: int
    mean_context_bytes: float
    position_limited_share: float
    short_context_share: float
    overlap_share: float
    padding_share: float
    cluster: str
    tokenizer_sha256: str
    cost: InferenceCost
    by_source: list[GroupScores] = field(default_factory=list)
    by_script: list[GroupScores] = field(default_factory=list)
    seeds: SeedScores | None = None

    @classmethod
    def load(cls, values: Mapping[str, Any]) -> Self:
        """As `Contents.load`."""
        interval, seeds = values.get("bits_per_byte_interval"), values.get("seeds")
        nested = {
            "bits_per_byte_interval": None if interval is None else tuple(interval),
            "cost": InferenceCost.load(values["cost"]),
            "seeds": None if seeds is None else SeedScores.load(seeds),
            **{f"by_{name}": [GroupScores.load(row) for row in values.get(f"by_{name}", [])] for name in GROUPS},
        }
        return super().load({**values, **nested})

    def by(self, name: str) -> list[GroupScores]:
        """Scores by `source` or `script`."""
        return self.by_source if name == "source" else self.by_script


GROUPS = ("source", "script")
"""What held-out documents are grouped by."""


@dataclass(frozen=True, kw_only=True)
class ReportFolder(Contents):
    """A report.

    Attributes:
        verdict: Its result.
    """

    verdict: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ArmRecord(Contents):
    """One arm of a finished comparison, as `run.json` holds it.

    Attributes:
        key: Name of the arm.
        label: Its name in tables.
        tokenizer: Artifact of the tokenizer; the following are names of artifacts, too.
        training: Training of the tokenizer, if it was trained here.
        counts: Counts that it was trained on.
        shards: Training text in its tokens.
        heldout: Held-out text in its tokens.
        lms: Models, one per seed.
        evaluations: Their scores.
        vocab_size: Size of the vocabulary.
        bytes_per_token: Of the held-out text.
        bits_per_byte: Loss on the held-out text.
        interval: Its interval.
        difference: Bits per byte minus those of the first arm.
        difference_interval: Its interval.
    """

    key: str
    label: str
    tokenizer: str
    training: str | None = None
    counts: str | None = None
    shards: str
    heldout: str
    lms: list[str]
    evaluations: list[str]
    vocab_size: int
    bytes_per_token: float
    bits_per_byte: float
    interval: tuple[float, float] | None = None
    difference: float | None = None
    difference_interval: tuple[float, float] | None = None

    @property
    def trained_phase2(self) -> bool:
        """Whether the experiment trained a phase 2 for it."""
        return self.training is not None and self.training.startswith("superbpe-")

    @classmethod
    def load(cls, values: Mapping[str, Any]) -> Self:
        """As `Contents.load`; version 0.1 listed counts, training and shards as `readers`."""
        if readers := values.get("readers"):
            values = {**values, "counts": readers[0], "shards": readers[-1]}
        return super().load(values)


@dataclass(frozen=True, kw_only=True)
class ComparisonRecord(Contents):
    """A finished comparison, as `run.json` holds it.

    Attributes:
        arms: The arms.
        confidence: Confidence of all intervals.
    """

    arms: list[ArmRecord]
    confidence: float

    @classmethod
    def load(cls, values: Mapping[str, Any]) -> Self:
        """As `Contents.load`; version 0.1 called the arms `tokenizers`."""
        rows = values.get("arms", values.get("tokenizers", []))
        return cls(arms=[ArmRecord.load(row) for row in rows], confidence=values["confidence"])
