"""Results of the stages: one dataclass per kind of artifact, stored as `contents` of its manifest."""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from lm.bits import bytes_per_token
from lm.data.shards import TextLoss
from lm.evaluate.deployment import Cost
from lm.train.summary import TrainingSummary
from tokenizer.errors import UserError, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Result of a stage, JSON-able."""

    @classmethod
    def load(cls, values: Mapping[str, Any]) -> Self:
        """Load the result from the entries of a manifest; unknown entries are ignored.

        Raises:
            UserError: If an entry is missing, or has another type.
        """
        try:
            result: Self = typed(cls, values)
        except TypeError as error:
            raise UserError(f"it was made by another version of this program ({error})") from None
        return result

    def save(self) -> dict[str, Any]:
        """Return the entries for the manifest: all attributes that are not None."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


def plain(value: Any) -> Any:
    """A result as JSON: dataclasses, unless they have a `save`, and named tuples as dictionaries, all the way down."""
    if dataclasses.is_dataclass(value) and hasattr(value, "save"):
        return value.save()
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def typed(kind: Any, value: Any, name: str = "it") -> Any:
    """Convert the JSON value of a key (for messages) to a type; unknown keys of a dataclass are ignored.

    Raises:
        TypeError: If the value, or one inside it, has another type, or a key is missing.
    """
    choices, origin = typing.get_args(kind), typing.get_origin(kind)
    if origin is types.UnionType:  # of a type and None
        return None if value is None else typed(choices[0], value, name)
    if origin is list and isinstance(value, list):
        return [typed(choices[0], entry, name) for entry in value]
    if origin is tuple and isinstance(value, list | tuple) and len(value) == len(choices):
        return tuple(typed(choice, entry, name) for choice, entry in zip(choices, value, strict=True))
    if origin is dict and isinstance(value, dict):
        return {key: typed(choices[1], entry, key) for key, entry in value.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        return kind(**{key: typed(hints[key], entry, key) for key, entry in value.items() if key in hints})
    if origin is typing.Literal:
        fits = value in choices
    elif isinstance(value, bool):
        fits = kind in (bool, Any)
    else:
        fits = kind is Any or isinstance(value, int | float if kind is float else origin or kind)
    if not fits:
        raise TypeError(f"{name} is {quoted(value)}")
    return value


@dataclass(frozen=True, kw_only=True)
class Folder(Contents):
    """Contents of an artifact whose result is only in its files."""


@dataclass(frozen=True, kw_only=True)
class Reading(Contents):
    """The text that a stage read.

    Attributes:
        corpus: Hash of the corpus.
        split: `train` or `heldout`.
    """

    corpus: str
    split: str


@dataclass(frozen=True, kw_only=True)
class CorpusFiles(Contents):
    """The embedded corpus, written to files.

    Attributes:
        packages: Packages that the text comes from, with their versions.
        train: Size of the training split: `documents`, `sources` and `bytes`.
        heldout: Size of the held-out split.
    """

    packages: dict[str, str]
    train: dict[str, int]
    heldout: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Counts(Reading):
    """Counts of pretokens. With named sources, the file has them multiplied by the weights, and these numbers do not.

    Attributes:
        n_distinct: Distinct pretokens.
        n_pretokens: Occurrences of all pretokens.
        sources: The parts of the text by name, if they have names: `weight`, `n_documents`, `n_bytes`, `n_pretokens`.
        skipped: Records that `corpus.on_error=skip` left out: number, numbers by file, first places; empty if none.
    """

    n_distinct: int
    n_pretokens: int
    n_bytes: int
    n_documents: int
    sources: dict[str, dict[str, int]] = field(default_factory=dict)
    skipped: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TokenizerFolder(Contents):
    """A saved tokenizer.

    Attributes:
        source: File or repository that it was loaded from, if it was not trained here.
        revision: Commit of that repository.
        software: Library that runs it, if our core cannot.
    """

    vocab_size: int
    sha256: str
    source: str | None = None
    revision: str | None = None
    software: str | None = None


@dataclass(frozen=True, kw_only=True)
class TrainedTokenizer(Reading):
    """Training record of phase 1 or phase 2.

    Attributes:
        tokenizer: Name of the tokenizer's artifact.
        exhausted: Phase 1: whether the corpus ran out of pairs.
    """

    tokenizer: str
    sha256: str
    vocab_size: int
    exhausted: bool = False


@dataclass(frozen=True, kw_only=True)
class ShardsFolder(Reading):
    """One split of the corpus, encoded with one tokenizer.

    Attributes:
        n_tokens: Tokens, including one separator per document.
        dtype: Type of the stored ids.
        text_loss: Text that the tokenizer changes or cannot represent (`lm.data.shards.TextLoss`); None if it keeps
            all text.
    """

    n_tokens: int
    n_documents: int
    n_bytes: int
    dtype: str
    vocab_size: int
    text_loss: TextLoss | None = None

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text per token, without separators."""
        return bytes_per_token(self.n_bytes, self.n_tokens - self.n_documents)


@dataclass(frozen=True, kw_only=True)
class HeldoutDocuments(Reading):
    """Facts about the held-out documents that do not depend on the tokenizer.

    Attributes:
        names: Names of the groups of documents, by `source` and `script`.
        sha256: Hash of the documents in their order.
        skipped: As `Counts.skipped`.
    """

    n_documents: int
    names: dict[str, list[str]]
    sha256: str
    skipped: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Contamination(Contents):
    """Overlap of the held-out documents with the training text.

    Attributes:
        corpus: Hash of the corpus.
        n_documents: Held-out documents.
        clean_documents: Documents that share no n-gram with the training text.
        whole_documents: Documents that also are documents of the training text.
        n_words: Words of the held-out documents.
        shared_words: Words inside a shared n-gram.
    """

    corpus: str
    ngram_words: int
    n_documents: int
    clean_documents: int
    whole_documents: int
    n_words: int
    shared_words: int
    training_bytes: int


@dataclass(frozen=True, kw_only=True)
class TrainedModel(Contents):
    """A language model: trained here, or elsewhere.

    Attributes:
        tokenizer: Hash of the tokenizer.
        summary: Settings and cost of the training; None if it was trained elsewhere.
        source: Folder or repository of a model from elsewhere.
        revision: Commit of that repository.
        given_parameters: Parameters of a model from elsewhere, and those without vocabulary tables.
    """

    tokenizer: str
    summary: TrainingSummary | None = None
    source: str | None = None
    revision: str | None = None
    given_parameters: tuple[int, int] = (0, 0)

    @property
    def parameters(self) -> tuple[int, int]:
        """Parameters of the model, and those without vocabulary tables."""
        if self.summary is None:
            return self.given_parameters
        return self.summary.parameters_total, self.summary.parameters_non_embedding

    @property
    def trained(self) -> TrainingSummary:
        """The training of a model that was trained here."""
        assert self.summary is not None, "the callers ask `ScoredArm.trained_here` first"
        return self.summary

    @property
    def seed(self) -> int | None:
        """Seed of the training; None if it was trained elsewhere."""
        return None if self.summary is None else int(self.summary.run["train"]["seed"])

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that models with different seeds share; empty for one from elsewhere."""
        if self.summary is None:
            return {}
        train = {key: value for key, value in self.summary.run["train"].items() if key != "seed"}
        return {**self.summary.run, "train": train}


@dataclass(frozen=True, kw_only=True)
class TuningRun(Contents):
    """A short training run with a factor on the peak learning rates.

    Attributes:
        bits_per_byte: Loss on training documents that the run did not read; None if it diverged.
        n_documents: Number of these documents.
    """

    factor: float
    bits_per_byte: float | None = None
    n_documents: int = 0


@dataclass(frozen=True, kw_only=True)
class Tuning(Contents):
    """The factor on the peak learning rates of an arm's models.

    Attributes:
        factor: The chosen factor: the run with the lowest loss had it; 1 without tuning.
        runs: The runs, by increasing factor.
    """

    factor: float
    runs: list[TuningRun] = field(default_factory=list)

    @property
    def warning(self) -> str:
        """A warning if the chosen factor is the smallest or the largest; empty otherwise."""
        if not self.runs or self.factor not in (self.runs[0].factor, self.runs[-1].factor):
            return ""
        way = "smaller" if self.factor == self.runs[0].factor else "larger"
        return (
            f"the best factor on the learning rates, {self.factor:g}, is at the end of those tried; {way} ones may be "
            "better (lm.tune_rates)"
        )


@dataclass(frozen=True, kw_only=True)
class Luck(Contents):
    """Losses of a bigram model with the tokenizers of a recipe that were trained on halves of the training text.

    Attributes:
        halves: Identity of the halves and of the held-out text, which arms with the same text share.
        kinds: Kinds of the held-out text; [""] if it has none.
        n_bytes: Bytes of each kind.
        share: Bytes of the text that was divided over the bytes of the whole text.
        bits_per_byte: Losses of each division, half and kind; empty if they were not measured.
        missing: Why they were not measured; empty if they were.
    """

    halves: str
    kinds: list[str]
    n_bytes: list[int]
    share: float
    bits_per_byte: list[list[list[float]]] = field(default_factory=list)
    missing: str = ""


@dataclass(frozen=True, kw_only=True)
class Scores(Contents):
    """Held-out scores of one model, or of one tokenizer's models with several seeds (`aggregate`).

    Attributes:
        bits_per_byte: Loss of the text, in bits per byte of the original documents.
        bits_per_byte_interval: Confidence interval of the loss; None with too few documents (or sources).
        confidence: Confidence level of the interval.
        eos_nats_per_document: Loss of the separator that ends each document; None if the model has none.
        bytes_per_token: Bytes per token on the held-out text.
        position_limited_share: Share of bytes whose context was limited by the trained positions.
        short_context_share: Share of bytes with a context shorter than `eval.min_context_bytes`.
        seeds: Loss of each training seed and their standard deviation, if there are several.
    """

    bits_per_byte: float
    bits_per_byte_interval: tuple[float, float] | None = None
    confidence: float
    eos_nats_per_document: float | None = None
    bytes_per_token: float
    n_documents: int
    n_bytes: int
    n_tokens: int
    context_bytes: int
    position_limited_share: float
    short_context_share: float
    cost: Cost
    seeds: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class ArmRecord(Contents):
    """One arm of a finished comparison, as stored in `run.json`.

    Attributes:
        key: Name of the arm.
        label: Name of the arm in tables.
        tokenizer: Name of the tokenizer's artifact.
        training: Name of the training record, if the tokenizer was trained here.
        counts: Name of the counts that it was trained on.
        shards: Name of the training shards; None for models from elsewhere.
        heldout: Name of the held-out shards.
        lms: Names of the models, one per seed.
        evaluations: Names of the evaluations, one per seed.
        bytes_per_token: Bytes per token on the held-out text.
        bits_per_byte: Loss on the held-out text.
        interval: Confidence interval of the loss.
        percent: Difference of the bits per byte from the first arm's, in percent of the first arm's.
        verdict: `better`, `worse` or `undecided` against the first arm, or `withheld`.
        withheld: Why the difference allows no verdict about the tokenizers; empty if it does.
        settings: Settings of the arm and its models (`experiments.settings.resolved`).
        untraced: Why it is unknown whether its tokenizer was trained on the held-out text; empty if it is known.
        tuning: The choice of its learning rates; None if they were not tuned.
        luck: Its recipe on halves of the training text; None if it was not trained here or this was not measured.
    """

    key: str
    label: str
    tokenizer: str
    training: str | None = None
    counts: str | None = None
    shards: str | None = None
    heldout: str
    lms: list[str]
    evaluations: list[str]
    vocab_size: int
    bytes_per_token: float
    bits_per_byte: float
    interval: tuple[float, float] | None = None
    percent: float | None = None
    percent_interval: tuple[float, float] | None = None
    verdict: str = ""
    withheld: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    untraced: str = ""
    tuning: Tuning | None = None
    luck: Luck | None = None


@dataclass(frozen=True, kw_only=True)
class ComparisonRecord(Contents):
    """A finished comparison, as stored in `run.json`."""

    arms: list[ArmRecord]
    confidence: float
