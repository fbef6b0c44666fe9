"""Combines the results of several runs into one comparison."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.report.labels import Told, name_all, settings
from experiments.report.texts import documents
from experiments.results import ArmRecord, Counts, Scores, ShardsFolder, TokenizerFolder, TrainedModel, TrainedTokenizer
from experiments.stages.comparison import ArmModels, ArmResult, Result, scored
from experiments.stages.tokenizers import ArmTokenizer
from experiments.stages.verdict import LEAST_EVIDENCE
from experiments.store import runs
from experiments.store.artifacts import Artifact, C, Store
from lm.evaluate.comparison import compare_all
from tokenizer.checksums import digest
from tokenizer.errors import UserError
from tokenizer.files import read_json
from tokenizer.pretrained import load_saved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.store.runs import Run


@dataclass
class _Group:
    """Models that differ only in their seed, and the runs that contain them."""

    entry: ArmRecord
    store: Store
    models: dict[int, tuple[Artifact[TrainedModel], Artifact[Scores]]] = field(default_factory=dict)
    overrides: list[list[str]] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)


def find(folders: Sequence[Path]) -> tuple[list[Run], list[Run]]:
    """Return the runs in these folders that finished a comparison, and the others.

    Raises:
        UserError: If a folder is missing or has no run, or none of the runs finished a comparison.
    """
    found: list[Run] = []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} does not exist; name the folder of a run or of a sweep (outputs/…, multirun/…)")
        inside = runs.find(folder)
        if not inside:
            raise UserError(
                f"{folder} contains no run (there is no {runs.RECORD}); name a folder that "
                "python -m experiments.pipeline wrote under outputs/ or multirun/"
            )
        found += [run for run in inside if run.folder not in {known.folder for known in found}]
    done = [run for run in found if run.results is not None]
    if not done:
        raise UserError("none of these runs finished a comparison; run their commands again to resume them")
    return done, [run for run in found if run.results is None]


def combine(
    done: Sequence[Run], reference: str | None = None, artifacts: Path | None = None
) -> tuple[Result, list[str]]:
    """Return all tokenizers of the runs as one result, and notes about what was left out.

    A model that several runs share appears once. Models that differ only in their seed are seeds of one arm. Arms are
    labelled by the overrides on which all runs with that model agree: `SuperBPE t=0.8`.

    Args:
        done: Runs that finished a comparison.
        reference: Label of the tokenizer that others are compared with; None for the first.
        artifacts: Folder of the runs' artifacts; None for the folder where the runs stored them.

    Raises:
        UserError: If an artifact is missing, two runs scored different text, or no seed is common to all.
    """
    groups: dict[str, _Group] = {}
    for run in done:
        store = Store(artifacts or Path(run.store))
        assert run.results is not None
        for entry in run.results.arms:
            asked = settings(run.overrides, entry).get("lm.train.max_steps")
            models = _open(store, entry.lms, TrainedModel)
            for model, evaluation in zip(models, _open(store, entry.evaluations, Scores), strict=True):
                key = digest([entry.key, model.manifest.inputs, model.contents.settings, asked])
                group = groups.setdefault(key, _Group(entry, store))
                group.models[model.contents.seed] = (model, evaluation)
            group.overrides.append(run.overrides)
            group.folders.add(run.folder)
    ordered = sorted(groups.values(), key=lambda group: group.entry.trained_phase2)
    named = _named(ordered)
    labels = [told.label for told in named]
    if reference is not None:
        if reference not in labels:
            raise UserError(f"there is no tokenizer {reference!r} to compare with; there are: {', '.join(labels)}")
        first = labels.index(reference)
        order = [first, *(i for i in range(len(labels)) if i != first)]
        ordered, named = [ordered[i] for i in order], [named[i] for i in order]
        labels = [told.label for told in named]
    if len(ordered) < 2:
        raise UserError("these runs contain only one tokenizer; add a run of another tokenizer")
    seeds = set.intersection(*(set(group.models) for group in ordered))
    if not seeds:
        raise UserError("these models have no training seed in common; train them with the same lm.train.seed")
    notes = [
        f"{label}: seed {seed} is left out because other arms lack it"
        for label, group in zip(labels, ordered, strict=True)
        for seed in sorted(set(group.models) - seeds)
    ]
    arms = [
        dataclasses.replace(_scored(told.label, group, sorted(seeds)), series=told.series, partner=_partner(ordered, i))
        for i, (told, group) in enumerate(zip(named, ordered, strict=True))
    ]
    _same_text(arms)
    comparisons = compare_all([each.evaluations for each in arms])
    return Result(arms, comparisons, fixed_reference=reference is not None), notes


def _same_text(arms: Sequence[ArmResult]) -> None:
    """Raise a UserError unless all arms were scored on the same held-out documents."""
    first = arms[0]
    corpus, text = first.heldout.contents.corpus, ""
    for other in arms[1:]:
        if other.heldout.contents.corpus == corpus:
            continue
        text = text or digest(list(documents(first)))
        if digest(list(documents(other))) != text:
            one, two = first.label, other.label
            raise UserError(
                f"{one} and {two} were scored on different held-out documents ({first.scores.n_documents} and "
                f"{other.scores.n_documents}); compare runs with the same held-out text (corpus.heldout_paths)"
            )


def _named(groups: Sequence[_Group]) -> list[Told]:
    """Name each group by the overrides that all of its runs share and that distinguish it from other groups."""
    told = []
    for group in groups:
        runs_told = [settings(overrides, group.entry) for overrides in group.overrides]
        told.append(dict(set.intersection(*(set(each.items()) for each in runs_told))))
    entries = [group.entry for group in groups]
    return name_all(
        [entry.label for entry in entries],
        [entry.trained_phase2 for entry in entries],
        told,
        [entry.lms[0] for entry in entries],
    )


def _partner(groups: Sequence[_Group], place: int) -> int | None:
    """Index of the arm with phase 1 alone that some run compared this one with; None for an arm without superwords."""
    if not groups[place].entry.trained_phase2:
        return None
    for i, group in enumerate(groups):
        phase1_alone = group.entry.training is not None and not group.entry.trained_phase2
        if phase1_alone and group.folders & groups[place].folders:
            return i
    return None


def _scored(label: str, group: _Group, seeds: Sequence[int]) -> ArmResult:
    entry, store = group.entry, group.store
    models, evaluations = zip(*(group.models[seed] for seed in seeds), strict=True)
    (artifact,) = _open(store, [entry.tokenizer], TokenizerFolder)
    arm = ArmTokenizer(
        key=label,
        label=label,
        tokenizer=load_saved(artifact.path),
        artifact=artifact,
        record=next(iter(_open(store, [entry.training] if entry.training else [], TrainedTokenizer)), None),
        counts=next(iter(_open(store, [entry.counts] if entry.counts else [], Counts)), None),
    )
    training, heldout = _open(store, [entry.shards, entry.heldout], ShardsFolder)
    return scored(ArmModels(arm, training, heldout, models), evaluations)


def _open(store: Store, names: Sequence[str], result: type[C]) -> list[Artifact[C]]:
    found = []
    for name in names:
        artifact = store.find(name, result)
        if artifact is None:
            raise UserError(
                f"{store.root / name} does not exist; run the command of its run again to rebuild it, or name the "
                "folder that it was moved to with --artifacts"
            )
        found.append(artifact)
    return found


def folder_facts(done: Sequence[Run]) -> list[list[str]]:
    """Facts about the runs of a page: their folders and commands. The command of a sweep is listed once."""
    facts = []
    for command in dict.fromkeys(run.command for run in done):
        cells = [run for run in done if run.command == command]
        if len(cells) > 1:
            facts.append([f"{len(cells)} runs", f"{command} ({cells[0].started})"])
            facts += [[run.folder, " ".join(run.swept)] for run in cells]
        else:
            facts.append([cells[0].folder, f"{command} ({cells[0].started})"])
    return facts


def unfinished(others: Sequence[Run]) -> list[str]:
    """Return a line for each run that did not finish a comparison."""
    return [f"{run.folder}: {run.status}{': ' + run.error if run.error else ''}" for run in others]


def demonstration(result: Result) -> bool:
    """Return whether the models read too little text for evidence."""
    return any(each.lm.contents.summary.bytes < LEAST_EVIDENCE for each in result.arms)


_SCORE = ("task", "metric", "value", "stderr", "straddle_share")


def with_downstream(result: Result, path: Path) -> Result:
    """Return the result with the task scores of a `downstream.json`, which identifies models by their artifacts.

    Raises:
        UserError: If `experiments.downstream` did not write the file, or it has none of these models.
    """
    try:
        content = read_json(path)
        labels = {model["lm"]: model["label"] for model in content["models"]}
        rows = {
            label: [{key: row[key] for key in _SCORE} for row in content["rows"] if row["model"] == label]
            for label in labels.values()
        }
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path} was not written by experiments.downstream; name a downstream.json") from None
    arms = [
        dataclasses.replace(
            each,
            downstream=[row for model in each.lms for row in rows.get(labels.get(model.name, ""), [])],
        )
        for each in result.arms
    ]
    if not any(each.downstream for each in arms):
        known = ", ".join(each.lm.name for each in arms)
        raise UserError(f"{path} has scores of {', '.join(labels)}, but the models of these runs are {known}")
    return dataclasses.replace(result, arms=arms)


def rename(result: Result, labels: Sequence[str]) -> Result:
    """Return the result with other labels, one per tokenizer.

    Raises:
        UserError: If the number of labels is wrong.
    """
    if len(labels) != len(result.arms) or len(set(labels)) != len(labels):
        raise UserError(
            f"{len(labels)} labels were given for {len(result.arms)} tokenizers; give one distinct label for each of "
            + ", ".join(result.labels)
        )
    arms = [
        dataclasses.replace(each, arm=dataclasses.replace(each.arm, key=label, label=label))
        for label, each in zip(labels, result.arms, strict=True)
    ]
    return dataclasses.replace(result, arms=arms)
