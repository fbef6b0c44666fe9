"""Measures the tokenizers of a run on perturbed text: `superbpe compare RUN --perturb`.

RUN is the folder of a finished run or sweep. Its held-out documents get typing errors, another case, other spaces and
more (`lm.evaluate.perturbations`). The run's models score them: the models of all seeds, and of the largest budget.
Nothing is trained. Scores are stored with the run's artifacts, so an interrupted command resumes. Writes
`robustness.html`, a page that opens offline, and its numbers as `robustness.json` and `robustness.csv`.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.cli.console import Reporter, duration, finish, si
from experiments.results import Contents
from experiments.store import registry, runs
from experiments.store.artifacts import Store
from experiments.store.manifest import command_line
from lm.data.shards import TextLoss
from lm.evaluate.perturbations import SHARE
from tokenizer import storage
from tokenizer.durable import write_json, write_whole
from tokenizer.errors import UserError
from tokenizer.files import digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from experiments.stages.comparison import ArmResult, Result
    from experiments.store.artifacts import Artifact
    from lm.evaluate.perturbations import Perturbation
    from lm.evaluate.robustness import Change, Perturbed, Sample

STAGE = "robustness"
PAGE, NUMBERS, TABLE = "robustness.html", "robustness.json", "robustness.csv"
# Increased when the same text and model would get other scores.
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class PerturbedScores(Contents):
    """Scores of one model on perturbed documents; the losses are in the files of an `Evaluation`.

    Attributes:
        text_loss: What the tokens lack of the perturbed documents.
    """

    text_loss: TextLoss


@dataclass(frozen=True)
class Documents:
    """Held-out documents of a run.

    Attributes:
        places: int64[n_documents], their indices among the held-out documents.
        texts: Their texts.
    """

    places: NDArray[np.int64]
    texts: list[str]


@dataclass(frozen=True)
class Version:
    """The documents under one perturbation.

    Attributes:
        texts: The perturbed texts of all documents.
        changed: bool[n_documents], whether the perturbation changes a document.
    """

    texts: list[str]
    changed: NDArray[np.bool_]

    @property
    def scored(self) -> list[str]:
        """The texts that differ from the original, which models have to score."""
        return [text for text, changed in zip(self.texts, self.changed, strict=True) if changed]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """int64[n_documents], UTF-8 bytes of each perturbed document."""
        return np.array([len(text.encode()) for text in self.texts])


def measure_run(
    folder: Path,
    out: Path,
    chosen: Sequence[Perturbation],
    *,
    n_documents: int = 128,
    share: float = SHARE,
    seed: int = 0,
    reference: str | None = None,
    artifacts: str | None = None,
    device: str = "auto",
) -> None:
    """Measure the models of a run on perturbed text; write the page and print the result.

    Args:
        folder: Folder of a finished run or sweep.
        out: Folder for `robustness.html`, `robustness.json` and `robustness.csv`.
        chosen: The perturbations.
        n_documents: Held-out documents to perturb.
        share: Share of the words that random perturbations affect.
        seed: Seed of the documents and of random perturbations.
        reference: Label of the tokenizer that the others are compared with; None for the first.
        artifacts: Folder of the artifacts; None for the folder where the run stored them.
        device: Device, as in `lm.train.config.TrainConfig`.
    """
    from experiments.report import combining  # imports Torch, which is slow
    from experiments.report import robustness as page
    from experiments.report.figures import to_csv
    from lm.evaluate.robustness import Sample, measure

    done, _ = combining.find([folder])
    result, notes = combining.combine(done, reference, artifacts)
    reporter = Reporter()
    for note in notes:
        reporter.say(f"left out: {note}", style="yellow")
    documents = draw(result, n_documents, seed)
    versions = {each.name: perturb(each, documents, share, seed) for each in chosen}
    with _recorded(artifacts or done[0].store, out) as (store, recorder):
        with reporter.stage(STAGE):
            scored = score(store, result, versions, device, reporter)
        sample = Sample.of([each.evaluations for each in result.arms], documents.places)
        perturbed = {name: gather(sample, version, scored[name]) for name, version in versions.items()}
        confidence = result.arms[0].evaluations[0].config.confidence
        changes = measure(sample, perturbed, confidence)
        report = {
            "title": f"Perturbed text: {', '.join(result.labels)}",
            "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "command": command_line(),
            "confidence": confidence,
            "share": share,
            "seed": seed,
            "n_seeds": result.n_seeds,
            "demonstration": combining.demonstration(result),
            "cluster": sample.cluster,
            "n_clusters": len(sample.units.names),
            "effective_clusters": sample.effective(np.ones(len(documents.places), bool)),
            "n_documents": len(documents.places),
            "n_bytes": int(sample.n_bytes.sum()),
            "tokenizers": _originals(result, sample),
            "rows": rows(result.labels, chosen, sample, perturbed, changes, scored),
        }
        write_json(out / NUMBERS, report)
        write_whole(out / TABLE, to_csv(report["rows"]))
        write_whole(out / PAGE, page.render(report))
        recorder.done(None, out / PAGE)
    header, cells = page.table(report)
    reporter.table(f"Change under perturbations, {len(documents.places):,} documents", header, cells)
    for sentence in page.sentences(report):
        reporter.say(sentence)
    finish(*(out / name for name in (PAGE, TABLE, NUMBERS)), then=["compare", folder])


@contextmanager
def _recorded(artifacts: str, out: Path) -> Iterator[tuple[Store, runs.Recorder]]:
    """Open the store, and keep a record in the folder of results, as long as which the scores are needed."""
    record = out / runs.RECORD
    if record.exists() and runs.load(record).stage != STAGE:
        raise UserError(f"--out {out} is the folder of a run; choose another folder")
    storage.disk.make_folder(out)
    recorder = runs.Recorder(runs.Run(str(out), STAGE, [], store=Store.at(artifacts).where), out)
    store = Store.at(artifacts, on_use=recorder.uses)
    try:
        with registry.running(store, out):
            yield store, recorder
    except KeyboardInterrupt:
        recorder.interrupted()
        raise
    except Exception as error:
        recorder.failed(error)
        raise


def draw(result: Result, n: int, seed: int) -> Documents:
    """Draw held-out documents, evenly over the sources if these are the units of sampling.

    The texts are decoded from the shards. Documents that no tokenizer decodes to their own text are left out.

    Args:
        result: The run.
        n: Maximum number of documents.
        seed: Seed of the choice.
    """
    from experiments.stages.models import open_shards

    shards = [open_shards(each.heldout, each.arm) for each in result.arms]
    known = np.flatnonzero(np.any([each.normalized_bytes == 0 for each in shards], axis=0))
    if not len(known):
        raise UserError(
            "no tokenizer of this run decodes its held-out documents to their own text; measure a run that also has a "
            "byte-level tokenizer"
        )
    order = known[random.Random(seed).sample(range(len(known)), len(known))]
    _, sources = result.arms[0].evaluations[0].cluster()
    if sources is not None:
        seen: dict[int, int] = {}
        turns = []
        for source in sources.index[order].tolist():
            seen[source] = seen.get(source, 0) + 1
            turns.append(seen[source])
        order = order[np.argsort(turns, kind="stable")]
    places = np.sort(order[:n])
    texts = []
    for place in places.tolist():
        arm = next(i for i, each in enumerate(shards) if not each.normalized_bytes[place])
        texts.append(result.arms[arm].tokenizer.decode(shards[arm].document(place)))
    return Documents(places, texts)


def perturb(perturbation: Perturbation, documents: Documents, share: float, seed: int) -> Version:
    """Perturb documents; the settings are those of `Perturbation`."""
    texts = [perturbation(text, share=share, seed=seed) for text in documents.texts]
    return Version(texts, np.array([new != old for new, old in zip(texts, documents.texts, strict=True)]))


def score(
    store: Store, result: Result, versions: Mapping[str, Version], device: str, reporter: Reporter
) -> dict[str, list[list[Artifact[PerturbedScores]]]]:
    """Score the changed documents of every perturbation with every model.

    Args:
        store: Where the scores are stored.
        result: The run.
        versions: The perturbed documents by perturbation.
        device: Device, as in `lm.train.config.TrainConfig`.
        reporter: Shows the progress and an estimate of the time.

    Returns:
        For each perturbation, the scores of each arm, one per seed; none if no document changes.
    """
    sizes = {name: int(version.sizes[version.changed].sum()) for name, version in versions.items()}
    jobs = [
        (name, place, seed)
        for name in versions
        if sizes[name]
        for place, each in enumerate(result.arms)
        for seed in range(len(each.lms))
    ]
    named = {job: _identify(versions[job[0]], result.arms[job[1]], job[2]) for job in jobs}
    missing = [job for job in jobs if store.find(named[job][0], PerturbedScores) is None]
    total, done = sum(sizes[name] for name, *_ in missing), 0
    if missing:
        seconds = sum(_seconds(versions[name], result.arms[place], seed) for name, place, seed in missing)
        reporter.say(
            f"{len(missing)} of {len(jobs)} perturbed texts to score, {si(total)}B: about {duration(seconds)}, by the "
            "time of the run's own evaluation"
        )
    found: dict[str, list[list[Artifact[PerturbedScores]]]] = {
        name: [[] for _ in result.arms] if sizes[name] else [] for name in versions
    }
    for job in jobs:
        name, place, seed = job
        build = functools.partial(_score, version=versions[name], each=result.arms[place], seed=seed, device=device)
        artifact = store.write(PerturbedScores, *named[job], build)
        if artifact.fresh:
            done += sizes[name]
            reporter.progress("bytes of text", done, total)
        found[name][place].append(artifact)
    return found


def _seconds(version: Version, each: ArmResult, seed: int) -> float:
    """Estimated time to score a perturbed text: as long per token as the run took to score its held-out documents."""
    ids, _ = each.tokenizer.encode_batch(version.scored)
    return len(ids) * each.artifacts[seed].seconds / int(each.evaluations[seed].document_tokens.sum())


def _identify(version: Version, each: ArmResult, seed: int) -> tuple[str, dict[str, Any]]:
    """Name and identity of the scores of one model: the perturbed texts, and how they are scored."""
    return Store.identify(
        STAGE,
        config={**dataclasses.asdict(each.evaluations[seed].config), "version": _VERSION},
        inputs={"lm": each.lms[seed].hash, "text": digest(version.scored)},
    )


def _score(folder: Path, version: Version, each: ArmResult, seed: int, device: str) -> PerturbedScores:
    """Encode the changed documents with a tokenizer, and score them with one of its models."""
    from lm.data.sharding import write_shards
    from lm.data.shards import Shards
    from lm.evaluate.distributed import load_and_evaluate
    from tokenizer import Batch

    encoded = folder / "shards"
    write_shards(encoded, each.tokenizer, [Batch.from_texts(version.scored)])
    shards = Shards.open(encoded, each.tokenizer, verify="never")
    # Only the losses of the documents are used; the sources are those of the run.
    config = dataclasses.replace(each.evaluations[seed].config, cluster="document")
    lengths = each.tokenizer.token_byte_lengths()
    _, evaluation = load_and_evaluate(each.lms[seed].path, shards, lengths, config, device=device)
    evaluation.save(folder)
    storage.disk.remove_folder(encoded)
    return PerturbedScores(text_loss=shards.text_loss)


def gather(sample: Sample, version: Version, scored: Sequence[Sequence[Artifact[PerturbedScores]]]) -> Perturbed:
    """Return the scores of all documents under one perturbation; unchanged documents keep those of the run."""
    from lm.evaluate.bits_per_byte import Evaluation
    from lm.evaluate.robustness import Perturbed, Scored

    places = np.flatnonzero(version.changed)
    arms = [
        before.replaced(places, Scored.of([Evaluation.load(each.path) for each in artifacts]))
        for before, artifacts in zip(sample.arms, scored, strict=bool(scored))
    ]
    loses = [bool(_lost(artifacts)) for artifacts in scored]
    return Perturbed(version.changed, version.sizes, arms, loses)


def _lost(artifacts: Sequence[Artifact[PerturbedScores]]) -> str:
    from experiments.stages.verdict import describe_loss

    return describe_loss(artifacts[0].contents.text_loss)


def _originals(result: Result, sample: Sample) -> list[dict[str, Any]]:
    """The tokenizers, and their scores of the unperturbed documents."""
    return [
        {
            "name": each.label,
            "vocab_size": each.tokenizer.vocab_size,
            "bytes_per_token": int(sample.n_bytes.sum()) / int(scored.tokens.sum()),
            "bits_per_byte": float(sample.bits_per_byte(scored.nats).value),
        }
        for each, scored in zip(result.arms, sample.arms, strict=True)
    ]


def rows(
    labels: Sequence[str],
    chosen: Sequence[Perturbation],
    sample: Sample,
    perturbed: Mapping[str, Perturbed],
    changes: Mapping[str, Sequence[Change]],
    scored: Mapping[str, Sequence[Sequence[Artifact[PerturbedScores]]]],
) -> list[dict[str, Any]]:
    """One row per perturbation and tokenizer, as in `robustness.csv`; values are None if no document changes."""
    found = []
    for each in chosen:
        changed = perturbed[each.name].changed
        for place, label in enumerate(labels):
            change = changes[each.name][place] if each.name in changes else None
            found.append(
                {
                    "perturbation": each.name,
                    "title": each.title,
                    "random": each.random,
                    "tokenizer": label,
                    "changed_documents": int(changed.sum()),
                    "changed_share": float(changed.mean()),
                    "effective_changed": sample.effective(changed),
                    "text_lost": _lost(scored[each.name][place]) if change else "",
                    **_flat(change),
                }
            )
    return found


def _flat(change: Change | None) -> dict[str, Any]:
    """The fields of a change; an interval is two columns."""
    from lm.evaluate.robustness import Change

    row: dict[str, Any] = {}
    for name in (field.name for field in dataclasses.fields(Change)):
        value = None if change is None else getattr(change, name)
        if name.endswith("interval"):
            prefix = name.replace("interval", "") or "difference_"
            row |= dict(zip((f"{prefix}low", f"{prefix}high"), value or (None, None), strict=True))
        else:
            row[name] = value
    return row
