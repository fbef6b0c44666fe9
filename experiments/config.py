"""The configuration of an experiment: typed groups built from the packages' own dataclasses.

Hydra merges YAML into the typed nodes of `schema`, so an unknown key or a value of the wrong type is an error.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from experiments.logging.tracking import LOGGERS
from lm.data.sharding import ShardConfig
from lm.evaluate.config import EvalConfig
from lm.evaluate.deployment import Deployment
from lm.model.config import ModelConfig
from lm.train.config import TrainConfig
from superbpe.rules import Rules
from tokenizer.corpus.config import CorpusConfig
from tokenizer.errors import UserError
from tokenizer.fields import check_fields, declare
from tokenizer.files import Verify, shown
from tokenizer.patterns import FULL_STRENGTH
from tokenizer.progress import MOST_THREADS

if TYPE_CHECKING:
    from omegaconf import DictConfig

T = TypeVar("T")
_FEWEST_RATES = 3
BUDGETS = ("equal_bytes", "equal_deployed_flops", "equal_flops", "equal_tokens")


@dataclass(frozen=True)
class CorpusSource(CorpusConfig):
    """The text of an experiment.

    Attributes:
        source: `files` (paths or a HF dataset, see `CorpusConfig`) or `embedded` (text of installed packages,
            written to files first, according to `max_bytes` and `heldout_fraction`; `sample` and the document filters
            apply to those files, paths and fields do not).
    """

    source: str = declare("files", choices=("files", "embedded"))


@dataclass(frozen=True)
class BpeConfig:
    """Settings of phase 1.

    Attributes:
        vocab_size: Vocabulary size (bytes, merges and special tokens together) of the BPE tokenizer and, unless it has
            its own, of the superword tokenizer.
        unit: Unit that a pretoken cannot cross: `document` or `line`.
        special_tokens: Strings that become one token each, at the end of the vocabulary.
        tie_break: Which of two equally frequent pairs is merged first.
        min_count: Minimum count of a pair to be merged.
        min_pretoken_count: Minimum count of a pretoken to be trained on.
        max_token_bytes: Maximum length of a token, in bytes.
        forbid: Regexes without look-around that no token of phase 1 may match; `superbpe.forbid` is for superwords.
        forced_tokens: Strings that become tokens by the first merges, whatever their counts.
        parallel: Field whose values are equal in translations: `corpus.sources` are balanced by these documents of the
            training text (`tokenizer.train.balanced`). Weights of sources then only apply to phase 2.
        ratios: Instead, the bytes that each source needs for the same content.
    """

    vocab_size: int = declare(
        8192,
        least=1,
        help="bytes, merges and special tokens together, of BPE and, unless it has its own, of SuperBPE",
    )
    unit: str = "document"
    special_tokens: list[str] = field(default_factory=lambda: ["<|endoftext|>"])
    tie_break: str = "lowest-ids"
    min_count: int = declare(1, least=1)
    min_pretoken_count: int = declare(1, least=1)
    max_token_bytes: int | None = declare(None, least=1)
    forbid: list[str] = field(default_factory=list)
    forced_tokens: list[str] = field(default_factory=list)
    parallel: str | None = None
    ratios: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self, "bpe.")

    @property
    def wanted(self) -> dict[str, Any]:
        """Later settings that are set; others are left out of identities."""
        later: dict[str, Any] = {"forbid": list(self.forbid), "forced_tokens": list(self.forced_tokens)}
        later |= {"parallel": self.parallel, "ratios": dict(self.ratios)}
        if self.min_pretoken_count > 1:
            later["min_pretoken_count"] = self.min_pretoken_count
        return {name: value for name, value in later.items() if value}

    @property
    def separate_counts(self) -> dict[str, Any]:
        """The settings of balance that decide which counts are made of each source; empty without balance."""
        return {"parallel": self.parallel} if self.parallel or self.ratios else {}


@dataclass(frozen=True)
class SuperbpeConfig(Rules):
    """Settings of superwords: the rules of phase 2, the transition, and what differs in their phase 1.

    Attributes:
        vocab_size: Size of the superword vocabulary. None for `bpe.vocab_size`, so that vocabularies of equal size
            are compared.
        transition: Vocabulary size, without special tokens, at which phase 2 starts: a number of tokens or a fraction
            of the vocabulary size. `auto` is for superwords of whole pretokens, which compete with phase-1 merges.
        phase1_pattern: Pattern of phase 1 of superwords; None for `pattern`. Each preset sets it and `phase1_unit`; an
            explicit `pattern` or `bpe.unit` applies to all arms.
        phase1_unit: Unit of phase 1 of superwords; None for `bpe.unit`.
    """

    vocab_size: int | None = None
    transition: int | float | str = declare(
        0.8, help="size at which phase 2 starts: a number of tokens or a fraction of the vocabulary size"
    )
    phase1_pattern: str | None = None
    phase1_unit: str | None = None


@dataclass  # OmegaConf cannot add items of a frozen class
class ArmConfig:
    """One tokenizer of the comparison: how to make it, or where to find it.

    Attributes:
        recipe: `bpe` (phase 1), `superbpe` (phases 1 and 2), `bpe_same` (BPE with the phase 1 of `superbpe`), `bytes`
            (no merges), `file` or `pretrained`. The last two are implied by the keys of the same name.
        label: Name in tables and charts; None for the arm's name.
        preset: A preset of `superbpe` with its phase 1, instead of the experiment's; it replaces all of `superbpe`.
        file: File or folder of an existing tokenizer, in any format that can be read.
        pretrained: Repository id of an existing tokenizer on the Hugging Face Hub, or `tiktoken:NAME`.
        revision: Branch, tag or commit of that repository; None for its main branch.
        end_of_text: Token that ends the documents of an existing tokenizer, if it does not name one itself or for
            another one; a string that is not one of its special tokens gets a new id.
        pattern: Pattern of phase 1, if it differs from the experiment's; of an existing tokenizer, its own, for
            formats without one.
        bpe: Keys of `bpe` that differ from the experiment's.
        superbpe: Keys of `superbpe` that differ from the experiment's.
    """

    recipe: str | None = None
    label: str | None = None
    preset: str | None = None
    file: str | None = None
    pretrained: str | None = None
    revision: str | None = None
    end_of_text: str | None = None
    pattern: str | None = None
    bpe: dict[str, Any] = field(default_factory=dict)
    superbpe: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LmConfig:
    """The language model that is trained to evaluate each tokenizer.

    Attributes:
        model: Shape of the model.
        train: Settings of the training.
        sizes: Numbers of layers to train models with, each as if it were `lm.model.n_layers`; empty for that number
            alone. The report is about the largest.
        n_seeds: Models per tokenizer, with the seeds `train.seed`, `train.seed` + 1, ... At least three are required to
            measure the spread between training runs, which a claim about tokenizers has to exceed.
        tune_rates: Factors on the four peak learning rates of `train`, such as [0.5, 1, 2]. Each arm's models are
            trained with the factor that is best in short runs of that arm; while the best one is at the end, up to
            three further ones are tried. Empty for the same rates for all arms.
        tune_bytes: Bytes of training text that the first arm's tuning runs read; None for a quarter
            of `budget.train_bytes`.
        tune_validation_bytes: Bytes of the training text, which the tuning runs do not read, to score them on.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    sizes: list[int] = field(default_factory=list)
    n_seeds: int = declare(
        1,
        least=1,
        remedy="; use 3 for a claim about tokenizers",
        help="models per tokenizer; a claim about tokenizers requires at least three",
    )
    tune_rates: list[float] = field(default_factory=list)
    tune_bytes: int | None = declare(None, least=1)
    tune_validation_bytes: int = declare(500_000, least=1)

    @property
    def all_sizes(self) -> list[int]:
        """Every number of layers, smallest first."""
        return sorted(set(self.sizes)) or [self.model.n_layers]

    @property
    def seeds(self) -> range:
        """The seeds of the models of each arm, size and budget."""
        return range(self.train.seed, self.train.seed + self.n_seeds)

    def __post_init__(self) -> None:
        check_fields(self, "lm.")
        factors = set(self.tune_rates)
        if factors and (len(factors) < _FEWEST_RATES or min(factors) <= 0):
            raise UserError(
                f"lm.tune_rates={list(self.tune_rates)}: use at least {_FEWEST_RATES} different factors above 0, such "
                "as [0.5,1,2]"
            )


@dataclass(frozen=True)
class HeldoutConfig(EvalConfig):
    """How held-out text is scored, and checked for overlap with the training text.

    Attributes:
        contamination: Words of the n-grams by which held-out text is looked for in the training text, while it is
            encoded; 13 as in GPT-3 (Brown et al., 2020, appendix C). None for no measurement.
        tokenizer_luck: Whether every recipe is also trained on halves of the training text, so that intervals include
            the luck of the text that tokenizers are trained on; with three seeds or more.
    """

    contamination: int | None = declare(
        13, least=0, remedy=": a number of words such as 13, or null for no measurement"
    )
    tokenizer_luck: bool = True


@dataclass(frozen=True)
class BudgetConfig:
    """The training budget, which makes the comparison fair.

    Attributes:
        mode: The quantity that is equal for all models. The model of the first tokenizer reads `train_bytes`. The
            others take the same steps, each on
            `equal_bytes`: the same text (as much, with `lm.train.context_tokens`);
            `equal_deployed_flops`: as much text as costs the same training FLOPs in the model that will be deployed
                (`deployment`), whose head is a smaller share of the FLOPs than a small model's;
            `equal_flops`: the same number of training FLOPs of the small models (by the formula in their summaries);
            `equal_tokens`: the same number of tokens.
            In every mode, contexts are equal in bytes unless `lm.train.context_tokens` is set.
        train_bytes: Bytes of training text that the first model reads.
        train_flops: Training FLOPs of the first model, instead of `train_bytes`. They are converted to steps once the
            shards exist.
        ladder: Smaller budgets at which models are trained and compared too, as shares of the largest (below 1) or in
            its unit: bytes, or FLOPs if `train_flops` is set. All budgets of one arm and seed share a trunk if
            `lm.train.warmup_steps` is set and `lm.train.decay` is not `cosine`.
        tolerance: Accepted relative difference between two models in the equal quantity, and with `equal_flops` from
            `train_flops`.
        max_epochs: Most times that a model may read the training text. Repeating it more than about 40 times brings
            next to nothing (Muennighoff et al., 2023), so a budget above this is probably a mistake.
    """

    mode: str = declare("equal_bytes", choices=BUDGETS)
    train_bytes: int = declare(12_000_000, least=1, help="bytes of training text that the first model reads")
    train_flops: float | None = declare(
        None,
        least=1,
        below=math.inf,
        remedy=", or null for budget.train_bytes",
        help="training FLOPs of the first model, instead of budget.train_bytes",
    )
    ladder: list[float] = declare(
        factory=list,
        help="smaller budgets to compare at too: shares of the largest, or bytes (FLOPs with train_flops)",
    )
    tolerance: float = declare(0.01, least=0)
    max_epochs: float = declare(100.0, least=0)

    def __post_init__(self) -> None:
        check_fields(self, "budget.")

    @property
    def unit(self) -> str:
        """Unit of `rungs`: `bytes`, or `flops` if `train_flops` is set."""
        return "bytes" if self.train_flops is None else "flops"

    def check_epochs(self, text_bytes: float, read: float | None = None) -> None:
        """Raise a UserError if a model that reads `read` bytes, or `train_bytes`, repeats the text too often."""
        train_bytes = read or (self.train_bytes if self.train_flops is None else 0)
        if train_bytes > self.max_epochs * text_bytes:
            epochs = math.ceil(train_bytes / text_bytes)
            raise UserError(
                f"the models would read the training text {epochs:,} times ({train_bytes:,.0f} bytes of a text of "
                f"{text_bytes:,.0f}), and the limit is {self.max_epochs:g}; use more text or a smaller budget, or "
                f"raise the limit to at least budget.max_epochs={epochs}"
            )

    def rungs(self) -> list[int]:
        """Every budget of the ladder in its `unit`, smallest first.

        Raises:
            UserError: If an entry of the ladder is not between 0 and the largest budget.
        """
        largest = self.train_bytes if self.train_flops is None else round(self.train_flops)
        amounts = {largest}
        for entry in self.ladder:
            amount = round(entry * largest if entry <= 1 else entry)
            if not 0 < amount <= largest:
                unit = self.unit.replace("flops", "FLOPs")
                raise UserError(
                    f"budget.ladder has {entry:g}: use shares of budget.train_{self.unit} below 1, or {unit} up to "
                    f"{largest:,}"
                )
            amounts.add(amount)
        return sorted(amounts)


@dataclass(frozen=True)
class RunnerConfig:
    """Where text is processed and, on a cluster, where models are trained.

    Attributes:
        name: `local`: threads of this machine; `ray`: tasks on parts of the corpus, on a Ray cluster. Results do not
            depend on it.
        threads: Number of threads; None for all cores. On a cluster: threads of each task; None for one.
        memory_mb: Memory limit for count tables, in megabytes; None for no limit. Beyond it, phase 1 spills counts to
            disk and adds them up at the end, and phase 2 reads the corpus more often. This does not change the result.
            The limit does not cover the program, the text that is being read, the finished counts and the merge loop
            of phase 1, whose memory a warning names if it exceeds the limit. On a cluster, the limit of each task.
        address: Address of the Ray cluster, or `auto`; None for one that is started on this machine.
        part_mb: Size of the part of the corpus that a task reads, in megabytes as stored.
        timeout_s: A task that runs and makes no progress for this many seconds is ended and run again; None for no
            limit. Tasks may wait as long as it takes.
        gpus: 1 for one GPU per language model, 0 for models that are trained on the cores of the cluster. None for one
            per model if the Ray cluster has GPUs, and otherwise for training in this process.
    """

    name: str = declare("local", choices=("local", "ray"))
    threads: int | None = declare(None, least=1, most=MOST_THREADS, help="number of threads")
    memory_mb: int | None = declare(
        4096, least=1, remedy=", or null for no limit", help="memory limit for count tables, in megabytes"
    )
    address: str | None = None
    part_mb: int = declare(256, least=1)
    timeout_s: float | None = declare(3600.0, least=1)
    gpus: int | None = declare(  # torchrun trains one model on several
        None,
        least=0,
        most=1,
        help="1 for one GPU per language model, 0 for models that are trained on the cores of the cluster",
    )

    def __post_init__(self) -> None:
        check_fields(self, "runner.")


@dataclass(frozen=True)
class Config:
    """Configuration of a run.

    Attributes:
        pattern: Pretokenization pattern of phase 1: a name of `tokenizer.patterns`, or a regular expression.
        arms: The tokenizers to compare, by name (`experiments.arms`).
        reference: Name of the arm that the others are compared with; None for the first arm.
        artifacts: Folder for results, shared between runs: on this machine, or an s3:// or gs:// URL.
        verify: When artifacts are compared with their checksums: `always` before they are used, `once` per process,
            or `never` (only sizes are compared).
        logger: `none`, `wandb` or `wandb-offline`; `metrics.jsonl` is always written.
        project: Name of the wandb project.
    """

    arms: dict[str, ArmConfig] = declare(factory=dict, help="the tokenizers to compare, by name")
    reference: str | None = declare(None, help="name of the arm that the others are compared with")
    corpus: CorpusSource = declare(factory=CorpusSource, help="the text of an experiment")
    pattern: str = declare(FULL_STRENGTH, help="pretokenization pattern of phase 1: a name or a regular expression")
    bpe: BpeConfig = field(default_factory=BpeConfig)
    superbpe: SuperbpeConfig = declare(
        factory=SuperbpeConfig,
        help="superwords: the rules of phase 2, the transition, and what differs in their phase 1",
    )
    shards: ShardConfig = field(default_factory=ShardConfig)
    runner: RunnerConfig = declare(
        factory=RunnerConfig,
        help="where text is processed and, on a cluster, where models are trained",
    )
    lm: LmConfig = declare(factory=LmConfig, help="the language model that is trained to evaluate each tokenizer")
    budget: BudgetConfig = declare(factory=BudgetConfig, help="the training budget, which makes the comparison fair")
    eval: HeldoutConfig = field(default_factory=HeldoutConfig)
    deployment: Deployment = declare(factory=Deployment, help="the model that will be deployed, and how it is served")
    artifacts: str = declare(
        "artifacts", help="folder for results, shared between runs: on this machine, or an s3:// or gs:// URL"
    )
    verify: str = declare("once", choices=typing.get_args(Verify))
    logger: str = declare("none", choices=LOGGERS, help="none, wandb or wandb-offline; metrics.jsonl is always written")
    project: str = "superbpe"

    def __post_init__(self) -> None:
        check_fields(self)


@cache
def schema(cls: type) -> DictConfig:
    """Return a typed node that YAML can be merged into. The node of a frozen class would be read-only."""
    from omegaconf import DictConfig, OmegaConf  # slow to import

    def writable(node: Any) -> DictConfig:
        OmegaConf.set_readonly(node, None)
        for name in node:
            if not OmegaConf.is_missing(node, name) and isinstance(node[name], DictConfig):
                writable(node[name])
        return typing.cast("DictConfig", node)

    return writable(OmegaConf.structured(cls))


def recorded(config: Config) -> dict[str, Any]:
    """Return the configuration as it may be stored."""
    return storable(dataclasses.asdict(config))  # type: ignore[no-any-return]


def storable(value: Any) -> Any:
    """Return a JSON-able value with every string as in `tokenizer.files.shown`: URLs without secrets."""
    if isinstance(value, dict):
        return {storable(name): storable(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(storable, value))
    return shown(value) if isinstance(value, str) else value


def part(cls: type[T], config: Any) -> T:
    """Return the part of a configuration that belongs to one class: `part(Rules, config.superbpe)`."""
    names = [f.name for f in dataclasses.fields(typing.cast("Any", cls))]
    return cls(**{name: getattr(config, name) for name in names})
