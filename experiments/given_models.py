"""Scores and compares causal language models that were trained elsewhere, as `superbpe score` does.

Models go through the stages of the pipeline: the text is held out as a whole, every tokenizer encodes it once, and
every model has an artifact with its evaluation. So the same call scores only what is new, and `compare` opens the
result.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from experiments.api import ComparedRuns, write_comparison
from experiments.config import BudgetConfig, RunnerConfig
from experiments.findings.next_step import FROM_ELSEWHERE
from experiments.progress import Reporter, quiet
from experiments.results import TokenizerFolder, TrainedModel
from experiments.stages import heldout
from experiments.stages.context import open_context
from experiments.stages.corpus import Text
from experiments.stages.count import first_pass
from experiments.stages.shards import EncodedArm, encode
from experiments.stages.tokenizers import ArmTokenizer, keep
from experiments.store import records
from experiments.store.artifacts import Artifact, Store, artifact_at
from experiments.store.manifest import MANIFEST
from experiments.store.trained_models import tokenizer_place
from lm.data.sharding import ShardConfig
from lm.evaluate.config import EvalConfig
from lm.hf.pretrained import ADAPTER, FILES, base_of
from lm.tables import ABOVE_ZERO, Column, header, read_table
from tokenizer.corpus.origins import documents_by_origin
from tokenizer.corpus.text_files import format_of
from tokenizer.durable import write_json
from tokenizer.errors import UserError, counted, listed
from tokenizer.external.load import load_pretrained
from tokenizer.external.opening import is_repository_id, snapshot
from tokenizer.files import checksum, digest, read_json, shown
from tokenizer.formats.hf import HF_FILE

if TYPE_CHECKING:
    import torch

    from experiments.findings.compared import Findings, ScoredArm
    from experiments.stages.context import Context
    from lm.evaluate.deployment import Deployment
    from lm.evaluate.forward import ScorableModel
    from lm.hf.first_token import StartToken
    from lm.model.language_model import LanguageModel
    from tokenizer import Corpus
    from tokenizer.external.load import Pretrained

CONTEXT_BYTES = 4096
"""Default context of a scored token: far more than most models need, and within the positions of most."""
WEIGHTS = ".weights.json"
"""File among the artifacts that remembers hashes of weights."""


@dataclass(frozen=True)
class GivenModel:
    """A model to score.

    Attributes:
        arm: Name of the arm; models of one arm and budget are its seeds.
        model: Folder, or repository with an optional `@REVISION`: a causal language model of `transformers`, an adapter
            of PEFT, or a model of the pipeline (`lm-*`).
        train_flops: FLOPs of its training, if they are known.
        train_bytes: Bytes of text that it was trained on, if they are known.
    """

    arm: str
    model: str
    train_flops: float | None = None
    train_bytes: float | None = None


@dataclass(frozen=True)
class Loading:
    """How models from elsewhere are loaded.

    Attributes:
        device: `auto`, `cpu`, `cuda`, or `all` to spread a model over all GPUs (needs accelerate).
        dtype: Number format of the weights. `auto` means fp32 on a CPU, and the format of the files on a GPU.
        remote_code: Whether to execute code in the folders of models.
        starts: The token before the first one of a document, by arm, "" for all; see `lm.hf.first_token.start_of`.
    """

    device: str = "auto"
    dtype: str = "auto"
    remote_code: bool = False
    starts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def place(self) -> torch.device:
        """Return the device of models; for models that are spread over all GPUs, the device of their inputs."""
        import torch

        from lm.model.device import resolve_device

        if self.device == "all" and not torch.cuda.is_available():
            raise UserError("device='all', but Torch finds no CUDA device; use device=auto")
        return resolve_device("cuda" if self.device == "all" else self.device)


def read_models(path: Path) -> list[GivenModel]:
    """Read models from a CSV table: `arm`, `model`, and optionally `train_flops`, `train_bytes`.

    Other columns are ignored. Paths are relative to the table.

    Raises:
        UserError: If a column is missing, or a value is wrong.
    """
    amount = Column(float, ABOVE_ZERO, needed=False)
    columns = {"arm": Column(), "model": Column(), "train_flops": amount, "train_bytes": amount}
    models = []
    for _, row in read_table(path, columns):
        model = os.path.expanduser(row["model"])  # noqa: PTH111
        here = path.parent / model
        models.append(GivenModel(**{**row, "model": str(here) if here.exists() else model}))
    return models


def is_table(path: str) -> bool:
    """Whether a file is a table of models rather than text."""
    return {"arm", "model"} <= set(header(Path(path)))


def is_model(path: str) -> bool:
    """Whether the user names a model rather than a text: a folder with a model, or a repository."""
    place = Path(path)
    if place.exists():
        files = ("config.json", ADAPTER, "model.safetensors", HF_FILE, *[MANIFEST] * place.name.startswith("lm-"))
        return any((place / name).is_file() for name in files)
    return format_of(place) is None and is_repository_id(path.partition("@")[0])


def is_elsewhere(path: str) -> bool:
    """Whether the user names a model that is not one of ours; a path that is missing in an existing folder is."""
    place = Path(path)
    ours = (place / MANIFEST).is_file() if place.exists() else place.parent != Path() and place.parent.exists()
    return is_model(path) and not ours


class OpenedModel:
    """A model whose weights are loaded when it is scored; `cache` is a file that remembers hashes of weights."""

    def __init__(self, given: GivenModel, loading: Loading, cache: Path) -> None:
        self.given, self._loading, self._cache = given, loading, cache
        self.folder = Path(given.model)
        self.revision = None
        self.own = artifact_at(self.folder, TrainedModel) if self.folder.exists() else None
        if not self.folder.exists():
            name, _, revision = given.model.partition("@")
            patterns = (*FILES, *["*.py"] * loading.remote_code)
            self.folder, self.revision = snapshot(name, revision or None, None, patterns)
        self._base = None if self.own else base_of(self.folder)  # fails before any model is scored

    @cached_property
    def tokenizer(self) -> Pretrained:
        """The model's tokenizer. Without an end of text, the shards separate documents by the token before them."""
        found = self._named
        if found.tokenizer.end_of_text is not None:
            return found
        return load_pretrained(self.folder, end_of_text=self.start.token)

    @cached_property
    def _named(self) -> Pretrained:
        """The tokenizer as it is."""
        if self.own is None:
            with warnings.catch_warnings():
                # The token that it adds is `start`.
                warnings.filterwarnings("ignore", ".*its post-processor")
                return load_pretrained(self.folder)
        return load_pretrained(tokenizer_place(self.own.path, self.own.contents.tokenizer))

    @cached_property
    def end_id(self) -> int | None:
        """Id of the end of text, whose loss is reported; None if the tokenizer has none."""
        return None if self._named.tokenizer.end_of_text is None else self._named.tokenizer.end_id

    @cached_property
    def start(self) -> StartToken:
        """The token before the first one of a document."""
        from lm.hf.first_token import ENDS, StartToken, start_of

        tokenizer, starts = self._named.tokenizer, self._loading.starts
        if self.own is not None:
            return StartToken(str(tokenizer.end_of_text), tokenizer.end_id, ENDS)
        return start_of(self.folder, tokenizer, starts.get(self.given.arm, starts.get("")))

    def identity(self) -> dict[str, Any]:
        """Everything besides the tokenizer that determines the losses."""
        if self.own is not None:
            return {"own": self.own.hash}
        where = self.revision
        if where is None or self._base is not None:  # an adapter's commit does not determine its model
            where = fingerprint(self.folder, self._cache, self._base)
        start = [*self.start.before, self.start.id, self.start.everywhere, self.end_id]
        code = {"remote_code": True} if self._loading.remote_code else {}
        return {"model": where, "start": start, "dtype": self._dtype, **code}

    @property
    def artifact_name(self) -> str:
        """Name of the artifact that its scores refer to."""
        return Store.identify("model", self.identity(), {"tokenizer": self.tokenizer.tokenizer.sha256})[0]

    @property
    def _dtype(self) -> str:
        """Number format of the weights, on the device."""
        dtype = self._loading.dtype
        return dtype if dtype != "auto" or self._loading.place().type == "cuda" else "float32"

    @cached_property
    def loaded(self) -> tuple[ScorableModel, Deployment, tuple[int, int]]:
        """The model, its shape, and its parameters: in all, and without vocabulary tables."""
        from lm.evaluate.deployment import shape_of
        from lm.evaluate.forward import Forward
        from lm.hf import pretrained, scoring
        from lm.model.weights import load_model

        if self.own is not None:
            own = load_model(self.own.path, str(self._loading.place()))
            sizes = own.n_parameters()
            parameters = sizes["total"], sizes["non_embedding"]
            return Forward(own.eval(), self.tokenizer.tokenizer.end_id), shape_of(own, CONTEXT_BYTES), parameters
        spread = "auto" if self._loading.device == "all" else None
        model = pretrained.load(
            self.folder, dtype=self._dtype, remote_code=self._loading.remote_code, device_map=spread
        )
        if spread is None:
            model.to(self._loading.place())
        shape, parameters = scoring.deployment_of(model, CONTEXT_BYTES), scoring.parameters_of(model)
        return scoring.PretrainedModel(model, self.tokenizer.tokenizer, self.start, self.end_id), shape, parameters

    def open(self) -> tuple[ScorableModel, Deployment]:
        """Load the model; also its shape."""
        return self.loaded[:2]

    @property
    def spare_rows(self) -> int:
        """Rows of the embedding that belong to no id of the tokenizer; 0 unless the model is loaded from elsewhere."""
        return getattr(self.__dict__.get("loaded", (None,))[0], "spare_rows", 0)

    def close(self) -> None:
        """Free the memory of the weights."""
        self.__dict__.pop("loaded", None)

    def language_model(self) -> LanguageModel:
        """Load the model with its tokenizer."""
        from lm.model.language_model import LanguageModel

        found = LanguageModel(self.open()[0], self.tokenizer.tokenizer)
        self.close()  # the caller has the weights
        return found


def fingerprint(folder: Path, cache: Path, base: tuple[Path, str | None] | None = None) -> str:
    """XXH3 of the weights and configurations in a folder, remembered by path, size and time.

    Args:
        folder: Folder of a model.
        cache: File that remembers hashes.
        base: What the weights are merged into: `base_of` the folder.
    """
    try:
        known = read_json(cache)
    except (OSError, ValueError):
        known = {}
    files = [file for pattern in ("*.safetensors", "*config.json", "*.py") for file in sorted(folder.glob(pattern))]
    found = {}
    for file in files:
        state = file.stat()
        entry = known.get(str(file.resolve()))
        if entry is None or entry[:2] != [state.st_size, state.st_mtime_ns]:
            entry = known[str(file.resolve())] = [state.st_size, state.st_mtime_ns, checksum(file)]
        found[file.name] = entry[2]
    cache.parent.mkdir(parents=True, exist_ok=True)
    write_json(cache, known)
    if base is not None:
        found["base"] = base[1] or fingerprint(base[0], cache, base_of(base[0]))
    return digest(found)


def score_models(
    models: Sequence[GivenModel],
    text: Corpus,
    out: Path,
    *,
    loading: Loading | None = None,
    settings: EvalConfig | None = None,
    deployment: Deployment | None = None,
    tolerance: float = BudgetConfig.tolerance,
    artifacts: str = "artifacts",
    reporter: Reporter | None = None,
) -> ComparedRuns:
    """Score models on a text, and compare them with the first one.

    The same call resumes after an interruption, and scores only models, texts and settings that are new.

    Args:
        models: The models. Those of an arm with equal budgets are its seeds, in order. The first arm is the reference.
        text: The text; its held-out split is scored (`CorpusConfig.heldout_paths`).
        out: Folder for the page, its numbers, and the record that `compare_runs` reads.
        loading: How models are loaded.
        settings: How text is scored; None for contexts of 4,096 bytes.
        deployment: The model that will be deployed, for the page of several budgets; None for `dense-8b`.
        tolerance: Accepted relative difference of training budgets.
        artifacts: Folder where scores are kept.
        reporter: Shows the progress; None to show nothing.

    Raises:
        UserError: A model or the text cannot be read, or seeds of an arm have different tokenizers.
    """
    shown_by = reporter or quiet()
    settings = settings or default_settings()
    with (
        records.recorded(out, [], artifacts) as record,
        open_context(out, artifacts, RunnerConfig(), shown_by, on_use=record.uses) as context,
    ):
        return _score(context, record, models, text, out, loading or Loading(), settings, deployment, tolerance)


def default_settings(context_bytes: int = CONTEXT_BYTES, **settings: Any) -> EvalConfig:
    """How text is scored: contexts of this many bytes, and at least a quarter of it where the document has that."""
    return EvalConfig(context_bytes=context_bytes, min_context_bytes=context_bytes // 4, **settings)


def check_starts(loading: Loading, arms: Collection[str]) -> None:
    """Reject tokens for arms that do not exist."""
    for name in filter(None, loading.starts):
        if name not in arms:
            raise UserError(f"--start {name}={loading.starts[name]}: no arm is called {name}; {listed(arms)} are")


def _score(
    context: Context,
    record: records.Record,
    models: Sequence[GivenModel],
    corpus: Corpus,
    out: Path,
    loading: Loading,
    settings: EvalConfig,
    deployment: Deployment | None,
    tolerance: float,
) -> ComparedRuns:
    rungs = _rungs(models)
    check_starts(loading, rungs[0])
    text = Text(corpus, digest(corpus.identity()), [("text", listed(map(shown, corpus.config.heldout_paths)))], None)
    context.reporter.say(f"text: {text.facts[0][1]}", style="dim")
    next(documents_by_origin(corpus, "heldout"), None)  # a wrong field is found before PyTorch is imported
    cache = context.store.root / WEIGHTS
    with context.reporter.stage("find the models"):
        opened = {given: OpenedModel(given, loading, cache) for given in models}
        tokenizers = {given: model.tokenizer.tokenizer.sha256 for given, model in opened.items()}
        for model in opened.values():
            model.start  # noqa: B018 (fails before any model is scored)
        loading.place()  # fails before any text is encoded, and imports Torch
    for given, sha256 in tokenizers.items():
        other = next(one for one in models if one.arm == given.arm)
        if tokenizers[other] != sha256:
            raise UserError(
                f"{given.model} and {other.model} are models of the arm {given.arm}, but have different tokenizers; "
                "give each tokenizer its own arm"
            )
    documents = first_pass(context, text, [], documents=True).documents
    assert documents is not None
    heldout.check_weights(heldout.kinds_of(documents.contents.names["source"]), settings.weights)
    with context.reporter.stage("load PyTorch"):
        from experiments.stages import evaluate
        from experiments.stages.plan import DEFAULT_DEPLOYMENT

    deployed = deployment or DEFAULT_DEPLOYMENT
    tokenizer_of = {given.arm: _tokenizer(context, given.arm, model) for given, model in reversed(opened.items())}
    shards, _ = encode(context, ShardConfig(), text, {name: tokenizer_of[name] for name in rungs[0]}, documents)
    encoded = {name: EncodedArm.of(tokenizer_of[name], None, heldout_of) for name, heldout_of in shards.items()}
    scores = {}
    of_arm = Counter(given.arm for given in models)
    numbers = {name: count(1) for name in of_arm}
    for given, model in opened.items():
        name = given.arm if of_arm[given.arm] == 1 else f"{given.arm} {next(numbers[given.arm])}"
        try:
            artifact = _artifact(context, name, given, model)
            found = evaluate.score(
                context, settings, artifact, encoded[given.arm], documents, name=name, device=loading.device,
                opened=model.open,
            )  # fmt: skip
        except UserError as error:
            raise UserError(f"{name}: {error}") from error
        scores[given] = artifact, found
        if spare := model.spare_rows:
            context.reporter.say(
                f"{name}: {spare:,} rows of the embedding belong to no id of the tokenizer; they get probability 0",
                style="dim",
            )
        model.close()
    results = []
    for rung in rungs:
        arms = [_arm(encoded[name], given, opened, scores) for name, given in rung.items()]
        results.append(_findings(arms, tolerance, deployed))
    return _finished(context, record, results, text, deployed, tolerance, out)


def _rungs(models: Sequence[GivenModel]) -> list[dict[str, list[GivenModel]]]:
    """The models of each arm at each budget, smallest budget first."""
    if len(set(models)) < len(models):
        raise UserError("a model is named twice in one arm; seeds are different models")
    arms: dict[str, dict[float, list[GivenModel]]] = {}
    for given in models:
        budget = given.train_flops or given.train_bytes or 0.0
        arms.setdefault(given.arm, {}).setdefault(budget, []).append(given)
    reference = next(iter(arms))
    rungs = []
    for name, budgets in arms.items():
        if len(budgets) != len(arms[reference]):
            raise UserError(
                f"{name} has models of {counted(len(budgets), 'training budget')}, and {reference} of "
                f"{len(arms[reference])}; give each arm the same budgets, or leave out train_flops and train_bytes"
            )
    for place in range(len(arms[reference])):
        rung = {name: budgets[sorted(budgets)[place]] for name, budgets in arms.items()}
        seeds = {name: len(given) for name, given in rung.items()}
        if len(set(seeds.values())) > 1:
            raise UserError(f"the arms have different numbers of models ({seeds}); seeds are compared in pairs")
        rungs.append(rung)
    return rungs


def _tokenizer(context: Context, name: str, model: OpenedModel) -> ArmTokenizer:
    about = TokenizerFolder.load(model.tokenizer.about())
    tokenizer = model.tokenizer.tokenizer
    return ArmTokenizer(name, name, tokenizer, keep(context, tokenizer, {}, about))


def _artifact(context: Context, name: str, given: GivenModel, model: OpenedModel) -> Artifact[TrainedModel]:
    """The artifact of a model, which its scores refer to."""
    sha256 = model.tokenizer.tokenizer.sha256

    def build(_: Path) -> TrainedModel:
        if model.own is not None:
            return dataclasses.replace(model.own.contents, source=given.model)
        return TrainedModel(
            tokenizer=sha256, source=given.model, revision=model.revision, given_parameters=model.loaded[2]
        )

    return context.make(
        f"model {name}",
        TrainedModel,
        "model",
        config=model.identity(),
        inputs={"tokenizer": sha256},
        build=build,
        describe=lambda _: given.model,
    )


def _arm(
    arm: EncodedArm,
    given: Sequence[GivenModel],
    opened: Mapping[GivenModel, OpenedModel],
    scores: Mapping[GivenModel, tuple[Artifact[TrainedModel], Artifact[Any]]],
) -> ScoredArm:
    """An arm with its models at a budget."""
    from experiments.findings.compared import scored

    models, evaluations = zip(*(scores[one] for one in given), strict=True)
    start = opened[given[0]].start
    stated = {
        name: fmean(getattr(one, name) for one in given)
        for name in ("train_flops", "train_bytes")
        if all(getattr(one, name) is not None for one in given)
    }
    settings = {"recipe": FROM_ELSEWHERE, "start": f"{start.token} ({start.why})", **stated}
    return scored(dataclasses.replace(arm, settings=settings), models, evaluations)


def _findings(arms: Sequence[ScoredArm], tolerance: float, deployment: Deployment) -> Findings:
    """Compare the arms; what their training has in common is what the table states, or the models record."""
    from experiments.findings.compared import Findings

    amounts: dict[str, list[float]] = {"equal_bytes": [], "equal_flops": []}
    for arm in arms:
        for mode, name in (("equal_bytes", "train_bytes"), ("equal_flops", "train_flops")):
            if arm.trained_here:
                values = [getattr(model.contents.trained, name.removeprefix("train_")) for model in arm.lms]
                amounts[mode].append(fmean(values))
            elif name in arm.settings:
                amounts[mode].append(arm.settings[name])
    mode = next(
        (
            mode
            for mode, values in amounts.items()
            if len(values) == len(arms) and max(values) <= min(values) * (1 + tolerance)
        ),
        "",
    )
    arms = [dataclasses.replace(arm, settings=arm.settings | {"budget.mode": mode}) for arm in arms]
    budget = BudgetConfig(mode=mode, tolerance=tolerance) if mode else None
    return Findings.of(arms, budget, deployment)


def _finished(
    context: Context,
    record: records.Record,
    results: Sequence[Findings],
    text: Text,
    deployment: Deployment,
    tolerance: float,
    out: Path,
) -> ComparedRuns:
    """Write the page and the record."""
    from experiments.findings.compared import record as recorded
    from experiments.report.artifact import provenance

    rungs = [recorded(result) for result in results]
    facts = [list(fact) for fact in text.facts]
    facts += [[arm.label, model.contents.source or model.name] for arm in results[-1].arms for model in arm.lms]
    written, numbers = write_comparison(
        results[-1], deployment, out, command="", origin=provenance(results[-1], [], corpus=facts, config="")
    )
    if len(rungs) > 1:
        from experiments.report import over_compute

        over_compute.show(context, results, deployment, tolerance, out)
    record.done(rungs, written[0])
    return ComparedRuns(results[-1], [record], [], numbers, written)
