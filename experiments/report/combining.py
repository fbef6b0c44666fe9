"""Combines the results of several runs into one comparison."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from experiments.config import BudgetConfig
from experiments.findings.compared import LARGEST_SMALLER, Findings, ScoredArm, scored
from experiments.report.labels import label_all
from experiments.results import (
    ArmRecord,
    ComparisonRecord,
    Contamination,
    Counts,
    HeldoutDocuments,
    Scores,
    ShardsFolder,
    TokenizerFolder,
    TrainedModel,
    TrainedTokenizer,
)
from experiments.stages.contamination import KIND
from experiments.stages.plan import DEFAULT_DEPLOYMENT
from experiments.stages.shards import EncodedArm
from experiments.store.artifacts import Artifact, Store
from tokenizer.errors import UserError
from tokenizer.external.load import load_saved
from tokenizer.files import digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from experiments.store.records import Record
    from lm.evaluate.deployment import Deployment


@dataclass
class _Group:
    """Models that differ only in their seed, and the runs that contain them.

    Attributes:
        entry: The arm of the first of these runs.
        store: Artifacts of that run.
        settings: The arm's settings that all of these runs share.
        models: The models and their scores by seed.
        untraced: Reasons of the runs (`ScoredArm.untraced`).
    """

    entry: ArmRecord
    store: Store
    settings: dict[str, Any]
    models: dict[int, tuple[Artifact[TrainedModel], Artifact[Scores]]] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    untraced: set[str] = field(default_factory=set)


def combine(
    done: Sequence[Record],
    reference: str | None = None,
    artifacts: str | None = None,
    *,
    tolerance: float | None = None,
    deployment: Deployment = DEFAULT_DEPLOYMENT,
) -> tuple[Findings, list[str]]:
    """Return all tokenizers of the runs as one result, and notes about what was left out.

    A model that several runs share appears once. Models that differ only in their seed are seeds of one arm. Arms are
    labelled by the settings in which they differ: `SuperBPE t=0.8`.

    Args:
        done: Runs that finished a comparison.
        reference: Label of the tokenizer that others are compared with; None for the first.
        artifacts: Folder of the runs' artifacts; None for the folder where the runs stored them.
        tolerance: Accepted relative difference between two models in the amount that the mode of the first arm
            equalizes; None for the smallest of the runs.
        deployment: The model that will be deployed.

    Raises:
        UserError: If an artifact is missing, two runs scored different text, or no seed is common to all.
    """
    groups: dict[str, _Group] = {}
    for run in done:
        store = Store.at(artifacts or run.store)
        assert run.results is not None
        for entry in run.results.arms:
            for seed, model, evaluation in _models(entry, store):
                key = digest([entry.key, model.manifest.inputs, model.contents.settings])
                group = groups.setdefault(key, _Group(entry, store, entry.settings))
                if any(
                    earlier.manifest.inputs["heldout"] != evaluation.manifest.inputs["heldout"]
                    for _, earlier in group.models.values()
                ):
                    raise UserError(
                        f"{entry.label} was scored on different held-out documents in {min(group.folders)} and "
                        f"{run.folder} (corpus.heldout_sample); name only one of them"
                    )
                if model.contents.seed is None and group.models.get(seed, (model,))[0].hash != model.hash:
                    raise UserError(
                        f"different models are called {entry.label} in {min(group.folders)} and {run.folder}; give one "
                        "of the arms another name and score it again"
                    )
                group.models[seed] = (model, evaluation)
                before = group.settings.items()
                group.settings = {key: value for key, value in before if entry.settings.get(key, ...) == value}
                group.folders.add(run.folder)
                group.untraced |= {entry.untraced} - {""}
    # Arms for which the experiment trained a phase 2 come last.
    ordered = sorted(groups.values(), key=lambda group: (group.entry.training or "").startswith("superbpe-"))
    labels = label_all(
        [group.entry.label for group in ordered],
        [group.settings for group in ordered],
        [f"{group.entry.key} of {'/'.join(Path(min(group.folders)).parts[-2:])}" for group in ordered],
    )
    if reference is not None:
        if reference not in labels:
            raise UserError(f"unknown tokenizer {reference!r}; the tokenizers are: {', '.join(labels)}")
        first = labels.index(reference)
        order = [first, *(i for i in range(len(labels)) if i != first)]
        ordered, labels = [ordered[i] for i in order], [labels[i] for i in order]
    if len(ordered) < 2:
        raise UserError(f"these runs contain only {labels[0]}: nothing to compare it with; add a run of another arm")
    seeds = set.intersection(*(set(group.models) for group in ordered))
    if not seeds:
        raise UserError("these models have no training seed in common; train them with the same lm.train.seed")
    notes = [
        f"{label}: seed {seed} is left out because other arms lack it"
        for label, group in zip(labels, ordered, strict=True)
        for seed in sorted(set(group.models) - seeds)
    ]
    arms = [_scored(label, group, sorted(seeds)) for label, group in zip(labels, ordered, strict=True)]
    _check_text([group.store for group in ordered], arms)
    mode = arms[0].settings.get("budget.mode", BudgetConfig.mode)
    budget = BudgetConfig(mode=mode, tolerance=tolerance or min(map(tolerance_of, done))) if mode else None
    smaller = _at_smaller_budget(done, ordered[0], labels[0], sorted(seeds), artifacts)
    return (
        Findings.of(
            arms,
            budget,
            deployment,
            smaller=smaller,
            tuning=[group.entry.tuning for group in ordered],
            luck=[group.entry.luck for group in ordered],
            overlap=_overlap(done, artifacts),
        ),
        notes,
    )


def _at_smaller_budget(
    done: Sequence[Record], reference: _Group, label: str, seeds: Sequence[int], artifacts: str | None
) -> ScoredArm | None:
    """The reference's models at the largest budget of at most half, if the runs have one with all of these seeds."""
    if reference.models[seeds[0]][0].contents.summary is None:
        return None
    largest = reference.models[seeds[0]][0].contents.trained.bytes * LARGEST_SMALLER
    found: dict[float, _Group] = {}
    for run in done:
        store = Store.at(artifacts or run.store)
        for entry in (entry for rung in run.rungs[:-1] for entry in rung.arms):
            if entry.key != reference.entry.key or entry.tokenizer != reference.entry.tokenizer:
                continue
            for seed, model, evaluation in _models(entry, store):
                if model.contents.trained.bytes <= largest:
                    group = found.setdefault(model.contents.trained.bytes, _Group(entry, store, entry.settings))
                    group.models[seed] = (model, evaluation)
    complete = [read for read, group in found.items() if group.models.keys() >= set(seeds)]
    return _scored(label, found[max(complete)], seeds) if complete else None


def _models(entry: ArmRecord, store: Store) -> Iterator[tuple[int, Artifact[TrainedModel], Artifact[Scores]]]:
    """Seed (of a model from elsewhere its place in the arm), model and scores of each model of an arm."""
    models, scores = store.open_all(entry.lms, TrainedModel), store.open_all(entry.evaluations, Scores)
    for place, (model, evaluation) in enumerate(zip(models, scores, strict=True)):
        seed = model.contents.seed
        yield place if seed is None else seed, model, evaluation


def tolerance_of(run: Record) -> float:
    """`budget.tolerance` of a run."""
    values = dict(text.lstrip("+").partition("=")[::2] for text in run.overrides)
    recorded = values.get("budget.tolerance", BudgetConfig.tolerance)
    try:
        return float(recorded)
    except ValueError:
        raise UserError(f"{run.folder}: budget.tolerance={recorded} is not a number; use another run") from None


def _overlap(done: Sequence[Record], artifacts: str | None) -> Artifact[Contamination] | None:
    """The overlap of held-out and training text that all runs share; None if they have different ones, or none."""
    names = {next((name for name in run.artifacts if name.startswith(f"{KIND}-")), None) for run in done}
    name = names.pop()
    if names or name is None:
        return None
    return Store.at(artifacts or done[0].store).find(name, Contamination)


def _check_text(stores: Sequence[Store], arms: Sequence[ScoredArm]) -> None:
    """Raise a UserError unless all arms were scored on the same held-out documents.

    Corpora with different training text may have the same held-out documents, which then have the same hash. Of one
    corpus, a sample may be scored.
    """
    names = [f"documents-{arm.artifacts[0].manifest.inputs['documents'][:12]}" for arm in arms]
    described = [store.find(name, HeldoutDocuments) for store, name in zip(stores, names, strict=True)]
    hashes = [None if documents is None else documents.contents.sha256 for documents in described]
    first = arms[0]
    for other, documents in zip(arms, hashes, strict=True):
        read, scored_first = other.heldout.contents, first.heldout.contents
        if (read.corpus, read.n_documents, read.n_bytes) == (
            scored_first.corpus, scored_first.n_documents, scored_first.n_bytes
        ):  # fmt: skip
            continue
        one, two = (shorten(arm.label, 60, placeholder=" ...") for arm in (first, other))
        if documents is None or documents != hashes[0]:
            raise UserError(
                f"{one} and {two} were scored on different held-out documents ({first.scores.n_documents} and "
                f"{other.scores.n_documents}); compare runs with the same held-out text (corpus.heldout_paths)"
            )


def _scored(label: str, group: _Group, seeds: Sequence[int]) -> ScoredArm:
    models, evaluations = zip(*(group.models[seed] for seed in seeds), strict=True)
    entry, store = group.entry, group.store
    training = next(iter(store.open_all([entry.shards] if entry.shards else [], ShardsFolder)), None)
    arm = replace(_encoded(entry, store), key=label, label=label, training=training, settings=group.settings)
    return replace(scored(arm, models, evaluations), untraced="; ".join(sorted(group.untraced)))


def _encoded(entry: ArmRecord, store: Store) -> EncodedArm:
    """The arm of a record, with the held-out text that it encoded, and without its training text."""
    (artifact,) = store.open_all([entry.tokenizer], TokenizerFolder)
    (heldout,) = store.open_all([entry.heldout], ShardsFolder)
    return EncodedArm(
        key=entry.key,
        label=entry.label,
        tokenizer=load_saved(artifact.path),
        artifact=artifact,
        record=next(iter(store.open_all([entry.training] if entry.training else [], TrainedTokenizer)), None),
        counts=next(iter(store.open_all([entry.counts] if entry.counts else [], Counts)), None),
        settings=entry.settings,
        training=None,
        heldout=heldout,
    )


def stored_rungs(rungs: Sequence[ComparisonRecord], store: Store) -> list[Findings]:
    """The arms of a run at each of its budgets, without comparisons."""
    arms = [_encoded(entry, store) for entry in rungs[0].arms]
    found = []
    for rung in rungs:
        at_budget = []
        for arm, entry in zip(arms, rung.arms, strict=True):
            models, scores = store.open_all(entry.lms, TrainedModel), store.open_all(entry.evaluations, Scores)
            at_budget.append(scored(replace(arm, settings=entry.settings), models, scores))
        tuning, luck = [entry.tuning for entry in rung.arms], [entry.luck for entry in rung.arms]
        found.append(Findings(at_budget, {}, tuning=tuning, luck=luck))
    return found
