"""The configuration of an experiment: typed groups, made of the packages' own dataclasses.

Hydra merges YAML into schemas that `schema` derives from these classes, so an unknown key or a value of the
wrong type is an error; `build` turns the merged result back into the classes.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from lm.data.sharding import ShardConfig
from lm.evaluate.config import EvalConfig
from lm.model.config import ModelConfig
from lm.train.config import TrainConfig
from superbpe.rules import Rules
from tokenizer.corpus.corpus import CorpusConfig
from tokenizer.durable import Verify
from tokenizer.errors import UserError

if typing.TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

T = TypeVar("T")
BUDGETS = ("equal_bytes", "equal_flops", "equal_tokens", "equal_steps")


@dataclass(frozen=True)
class CorpusSource(CorpusConfig):
    """The text of an experiment.

    Attributes:
        source: `files` (paths or a HF dataset, as `CorpusConfig` says) or `embedded` (the documentation texts
            of botocore, written to files first by `max_bytes` and `heldout_fraction`; `sample` and the bounds on
            documents apply to those files, paths and fields do not).
    """

    source: str = "files"


@dataclass(frozen=True)
class PatternConfig:
    """The phase-1 pretokenization pattern. The presets of `superbpe` choose it unless it is given.

    Attributes:
        name: A named pattern of `tokenizer.patterns`.
        regex: Any other regular expression, instead of the named one.
    """

    name: str = "gpt2"
    regex: str | None = None


@dataclass(frozen=True)
class BpeConfig:
    """Phase 1.

    Attributes:
        vocab_size: Bytes, merges and special tokens together, for the BPE tokenizer and (unless it has its
            own) for the superword tokenizer.
        train_size: Train the merge list for a vocabulary of at least this size, then cut. It changes no
            result; a sweep over sizes sets it to the largest, so that phase 1 is trained once.
        unit: What a pretoken cannot cross: `document` or `line`. The presets of `superbpe` choose it unless it is
            given.
        special_tokens: Strings that become one token each, at the end of the vocabulary.
        tie_break: Which of two equally frequent pairs is merged first.
        min_count: Pairs seen fewer times are not merged.
        max_token_bytes: Longest token, in bytes.
        counts: Train on these files of counts (`counts.parquet` of a count artifact) instead of the corpus: a data
            mixture. `FILE:3` counts one three times.
    """

    vocab_size: int = 8192
    train_size: int | None = None
    unit: str = "document"
    special_tokens: list[str] = field(default_factory=lambda: ["<|endoftext|>"])
    tie_break: str = "lowest-ids"
    min_count: int = 1
    max_token_bytes: int | None = None
    counts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SuperbpeConfig(Rules):
    """Phase 2: its rules, and where it takes over.

    Attributes:
        vocab_size: Size of the superword vocabulary; None for `bpe.vocab_size`, which makes the comparison
            one of equal vocabularies.
        transition: Size of the vocabulary at which phase 2 takes over, special tokens not counted: a number
            of tokens, or a fraction of the vocabulary size; or `auto`, for superwords of whole pretokens: they
            compete with phase-1 merges.
        transition_merges: The same as a number of phase-1 merges to keep; given instead of `transition`.
        sources: Text for phase 2 instead of the corpus: files, folders, globs, read as the corpus is (format, field,
            filters, held-out split). `PATH:3` counts every document three times.
    """

    vocab_size: int | None = None
    sources: list[str] = field(default_factory=list)
    transition: int | float | str = 0.8
    transition_merges: int | None = None


@dataclass(frozen=True)
class ArmConfig:
    """One tokenizer of the comparison: how it is made, or where it is.

    Attributes:
        recipe: `bpe` (phase 1), `superbpe` (phases 1 and 2), `bytes` (no merges), `file` or `pretrained`; the last two
            follow from the keys of the same name.
        label: Name in tables and charts; None for the arm's name.
        preset: A preset of `superbpe` with its phase 1, instead of the experiment's.
        file: A tokenizer that exists: a file or folder in any format that can be read.
        pretrained: A tokenizer that exists: the id of a repository on the Hugging Face hub.
        revision: Branch, tag or commit of that repository; None for its main branch.
        pattern: Keys of `pattern` that differ from the experiment's.
        bpe: Keys of `bpe` that differ.
        superbpe: Keys of `superbpe` that differ.
    """

    recipe: str | None = None
    label: str | None = None
    preset: str | None = None
    file: str | None = None
    pretrained: str | None = None
    revision: str | None = None
    pattern: dict[str, Any] = field(default_factory=dict)
    bpe: dict[str, Any] = field(default_factory=dict)
    superbpe: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LmConfig:
    """The language model that judges each tokenizer: its shape and its training.

    Attributes:
        n_seeds: Models of each tokenizer, with the seeds `train.seed`, `train.seed` + 1, ... Three or more say how far
            training runs differ, which is what a claim about tokenizers, not about two models, has to beat.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    n_seeds: int = 1


@dataclass(frozen=True)
class BudgetConfig:
    """What makes the comparison fair.

    Attributes:
        mode: What is equal. The first tokenizer's model reads `train_bytes`; the others
            `equal_bytes`: the same documents in the same order, in equally many steps;
            `equal_flops`: as much as the first model's training FLOPs buy (by the formula in each run's summary);
            `equal_tokens`: as many tokens as it;
            `equal_steps`: as many steps.
            Contexts are equal in bytes in each of them, unless `lm.train.context_tokens` is given.
        train_bytes: Bytes of training text that the first model reads.
        tolerance: By how much two models may differ in what is equal, as a fraction.
    """

    mode: str = "equal_bytes"
    train_bytes: int = 12_000_000
    tolerance: float = 0.01


@dataclass(frozen=True)
class RunnerConfig:
    """Where maps over text run.

    Attributes:
        name: `local`: threads of this machine.
        threads: How many; None for all cores.
        memory_mb: Megabytes for tables of counts. Past it, phase 1's counts go to disk and are added up at the end, and
            phase 2 reads the corpus some times more. It changes no result. None for no limit.
    """

    name: str = "local"
    threads: int | None = None
    memory_mb: int | None = 4096


@dataclass(frozen=True)
class ReportConfig:
    """What the report shows.

    Attributes:
        title: Heading; None to name the arms.
        demonstration: Say that the result shows how things work and is no evidence about tokenizers; None:
            say so if each model reads less than 100 MB.
        n_superwords: Length of each list of superwords.
        curve_points: Vocabulary sizes on the compression curve of each tokenizer.
        curve_bytes: Bytes of held-out text that the compression curve and the superword frequencies are
            measured on.
        sample_document: Which held-out document to show segmented; None for the first one long enough.
        sample_bytes: How much of it, in bytes.
        n_samples: Beginnings of held-out documents that every model continues; 0 for none.
        prompt_bytes: How long these beginnings are, at most.
        sample_new_bytes: How much the models write.
        sample_temperature: Of sampling; 0 for the most probable token.
        sample_top_p: Of sampling: the most probable tokens that together reach this probability.
        counted_tokens: Tokens are counted in the training text of models that read at most so many of them, in
            held-out text of others.
        undertrained_candidates: Tokens of each model, the least trained by their embeddings, that it is asked to
            repeat; 0 for no list of under-trained tokens.
        undertrained_listed: Length of that list.
    """

    title: str | None = None
    demonstration: bool | None = None
    n_superwords: int = 60
    curve_points: int = 10
    curve_bytes: int = 2_000_000
    sample_document: int | None = None
    sample_bytes: int = 1_600
    n_samples: int = 3
    prompt_bytes: int = 80
    sample_new_bytes: int = 240
    sample_temperature: float = 0.8
    sample_top_p: float = 0.8
    counted_tokens: int = 500_000_000
    undertrained_candidates: int = 200
    undertrained_listed: int = 40


@dataclass(frozen=True)
class Config:
    """Configuration of a run.

    Attributes:
        arms: The tokenizers to compare, by name (`experiments.arms`).
        reference: Name of the arm that the others are compared with; None for the first.
        artifacts: Folder for results, shared between runs.
        verify: When the files of artifacts are compared with their checksums: `always` they are used, `once` per
            process, or `never` (their sizes only).
        wandb: `off`, `offline` or `online`; `metrics.jsonl` is written in any case.
        project: Name of the wandb project.
    """

    corpus: CorpusSource = field(default_factory=CorpusSource)
    pattern: PatternConfig = field(default_factory=PatternConfig)
    bpe: BpeConfig = field(default_factory=BpeConfig)
    superbpe: SuperbpeConfig = field(default_factory=SuperbpeConfig)
    arms: dict[str, ArmConfig] = field(default_factory=dict)
    reference: str | None = None
    shards: ShardConfig = field(default_factory=ShardConfig)
    lm: LmConfig = field(default_factory=LmConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    runner: RunnerConfig = field(default_factory=RunnerConfig)
    report: ReportConfig = field(default_factory=ReportConfig)
    artifacts: str = "artifacts"
    verify: Verify = "once"
    wandb: str = "off"
    project: str = "superbpe"


@cache
def schema(cls: type) -> type:
    """Return a dataclass that OmegaConf can merge YAML into: not frozen, and `Literal` widened to `str`."""
    hints = typing.get_type_hints(cls)
    fields = []
    for f in dataclasses.fields(cls):
        kind = hints[f.name]
        if dataclasses.is_dataclass(kind):
            nested = schema(typing.cast("type", kind))
            fields.append((f.name, nested, field(default_factory=nested)))
        elif (item := _item_class(kind)) is not None:
            fields.append((f.name, dict[str, schema(item)], field(default_factory=dict)))  # type: ignore[misc, arg-type]
        elif f.default_factory is not dataclasses.MISSING:
            fields.append((f.name, _widened(kind), field(default_factory=f.default_factory)))
        elif f.default is not dataclasses.MISSING:
            fields.append((f.name, _widened(kind), field(default=f.default)))
        else:
            fields.append((f.name, _widened(kind), field(default=typing.cast("Any", "???"))))
    return dataclasses.make_dataclass(cls.__name__, fields)


def build(cls: type[T], values: Mapping[str, Any], at: str = "") -> T:
    """Make a configuration dataclass of plain values, as `OmegaConf.to_container` returns them.

    Raises:
        UserError: If a value is not among its field's choices.
    """
    hints = typing.get_type_hints(cls)
    made: dict[str, Any] = {}
    for name, value in values.items():
        kind, key = hints[name], f"{at}{name}"
        if dataclasses.is_dataclass(kind):
            made[name] = build(typing.cast("type[Any]", kind), value, f"{key}.")
        elif (item := _item_class(kind)) is not None:
            made[name] = {each: build(item, values, f"{key}.{each}.") for each, values in value.items()}
        elif typing.get_origin(kind) is tuple:
            made[name] = tuple(value)
        else:
            if typing.get_origin(kind) is typing.Literal:
                check_choice(key, value, typing.get_args(kind))
            made[name] = value
    return cls(**made)


def _item_class(kind: Any) -> type[Any] | None:
    """Return the dataclass of the values of `dict[str, DATACLASS]`; None for any other type."""
    found = typing.get_args(kind)[1] if typing.get_origin(kind) is dict else None
    return found if dataclasses.is_dataclass(found) else None  # type: ignore[return-value]


def part(cls: type[T], config: Any) -> T:
    """Return the part of a configuration that one class describes: `part(Rules, config.superbpe)`."""
    names = [f.name for f in dataclasses.fields(typing.cast("Any", cls))]
    return cls(**{name: getattr(config, name) for name in names})


def check_choice(key: str, value: Any, choices: Iterable[Any]) -> None:
    """Raise a UserError that names the near choice unless `value` is one of `choices`."""
    known = [str(choice) for choice in choices]
    if str(value) not in known:
        raise UserError(f"{key}={value} is not one of {', '.join(known)}{did_you_mean(str(value), known)}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the known word nearest to `word`, or nothing if none is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""


def _widened(kind: Any) -> Any:
    """Replace `Literal[...]` by the type of its values: OmegaConf knows no literals."""
    if typing.get_origin(kind) is typing.Literal:
        return type(typing.get_args(kind)[0])
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return typing.Union[tuple(_widened(argument) for argument in typing.get_args(kind))]  # noqa: UP007
    return kind


ArmSchema = schema(ArmConfig)
"""The type of `Config.arms`' values in OmegaConf; launchers that start processes pickle it by this name."""
ArmSchema.__module__, ArmSchema.__qualname__, ArmSchema.__name__ = __name__, "ArmSchema", "ArmSchema"
