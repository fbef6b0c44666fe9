"""The work of the commands `inspect`, `compare` and `pipeline` as functions, for Python and for the commands."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.numbers import si
from experiments.progress import Reporter, quiet
from experiments.shell import command_text
from experiments.store import records
from tokenizer import Batch, Corpus
from tokenizer.corpus.seen import saw
from tokenizer.durable import replacing, write_json, write_whole
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.findings.compared import Findings
    from experiments.pipeline import Outcome
    from experiments.report.vocabulary import Side
    from experiments.store.records import Record
    from lm.evaluate.deployment import Deployment
    from tokenizer.tokenizer import Tokenizer

VOCABULARY_PAGE, VOCABULARY = "vocabulary.html", "vocabulary.json"
COMPARISON = "comparison"


@dataclass(frozen=True)
class Vocabulary:
    """Vocabularies of tokenizers.

    Attributes:
        sides: The tokenizers with descriptions of their tokens, and measurements on the text.
        numbers: The content of `vocabulary.json`.
        batches: The measured text; empty without text.
    """

    sides: Sequence[Side]
    numbers: Mapping[str, Any]
    batches: Sequence[Batch]
    written: Sequence[Path]


def inspect_vocabulary(
    tokenizers: Mapping[str, Tokenizer],
    text: Corpus | Sequence[str] | None = None,
    *,
    sources: Mapping[str, str] | None = None,
    text_name: str | None = None,
    max_bytes: int = 10_000_000,
    alpha: float = 2.5,
    history: bool = False,
    out: Path | None = None,
) -> Vocabulary:
    """Describe the vocabulary of a tokenizer, alone or against others.

    Args:
        tokenizers: The tokenizer, and others to compare it with, by name.
        text: Text on which tokens are counted: a corpus, or its documents; None without text.
        sources: Where the tokenizers were loaded from, by name.
        text_name: How the text is called; None for the places of the corpus.
        max_bytes: Most text of a corpus, an even share of each file.
        alpha: Order of the Rényi entropy.
        history: Whether to write the effect of each merge on the text.
        out: Folder for the page, its numbers and the tables of tokens; None to write nothing.

    Raises:
        UserError: The text cannot be read, or the history has no text or no folder.
    """
    from experiments.report import vocabulary

    if history and (text is None or out is None):
        raise UserError("history=True needs a text on which merges are counted, and a folder")
    corpus = text if isinstance(text, Corpus) else None
    batches = _read(text, max_bytes) if text else []
    sides = [
        vocabulary.side(name, (sources or {}).get(name, ""), tokenizer, batches, alpha=alpha)
        for name, tokenizer in tokenizers.items()
    ]
    report = vocabulary.gather(sides, _described(sides, batches, corpus, text_name, max_bytes) if batches else None)
    written = [] if out is None else _write_vocabulary(out, report, sides)
    if history and out is not None:
        written += _write_history(out, sides, batches)
    return Vocabulary(sides, report, batches, written)


def _read(text: Corpus | Sequence[str], max_bytes: int) -> list[Batch]:
    """The documents; of a corpus the beginning of each file, an even share of `max_bytes`, or all of its text."""
    if not isinstance(text, Corpus):
        return [Batch.from_texts(list(text))]
    batches = list[Batch]()
    parts = sorted(text.parts("all", target_bytes=0), key=lambda part: part.stored_bytes)
    for n, part in enumerate(parts):
        room = max_bytes // (len(parts) - n)
        part.config, part.skipped = replace(part.config, max_bytes=max(room, 1)), text.skipped
        for batch in part.batches("all"):
            batches.append(batch)
            max_bytes -= batch.n_bytes
    text.report_skipped()
    return batches or list(text.batches("all"))  # an error, with the reason


def _described(
    sides: Sequence[Side], batches: Sequence[Batch], corpus: Corpus | None, name: str | None, max_bytes: int
) -> str:
    """The text in words: its name, how much of it, and who was trained on it."""
    said = name or (", ".join(corpus.config.places) if corpus else "the given documents")
    n_bytes = sum(batch.n_bytes for batch in batches)
    if n_bytes >= max_bytes:
        said += f", of which {si(n_bytes)}B, a share of each file (--max-bytes)"
    hashes = np.concatenate([batch.hashes() for batch in batches])
    answers = {side.label: saw(side.tokenizer, hashes, corpus) for side in sides}
    seen = [answer.sentence(label) for label, answer in answers.items() if answer.saw or answer.unknown]
    return f"{said} ({'; '.join(seen)})" if seen else said


def _write_vocabulary(out: Path, report: dict[str, Any], sides: Sequence[Side]) -> list[Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from experiments.report import vocabulary, vocabulary_page

    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / VOCABULARY_PAGE, vocabulary_page.render(report, sides))
    write_json(out / VOCABULARY, report)
    written = [out / VOCABULARY_PAGE, out / VOCABULARY]
    for one in sides:
        path = _table_of(out, "tokens", one)
        others = [other for other in sides if other is not one]
        with replacing(path) as file:
            pq.write_table(pa.table(vocabulary.table(one, others)), file, compression="zstd")
        written.append(path)
    return written


def _write_history(out: Path, sides: Sequence[Side], batches: Sequence[Batch]) -> list[Path]:
    """Write the effect of each merge on the text."""
    import pyarrow.parquet as pq

    from superbpe.inspection import history

    written = []
    for side in sides:
        measured = history.measure(side.tokenizer, batches)
        path = _table_of(out, "merges", side)
        with replacing(path) as file:
            pq.write_table(history.merge_log(side.tokenizer, history=measured), file, compression="zstd")
        written.append(path)
    return written


def _table_of(folder: Path, what: str, side: Side) -> Path:
    return folder / f"{what}-{re.sub(r'[^A-Za-z0-9._-]+', '-', side.label).strip('-')}.parquet"


@dataclass(frozen=True)
class ComparedRuns:
    """The results of several runs as one comparison.

    Attributes:
        runs: The records of the runs, without those that have no result.
        notes: Runs and models that were left out, and why.
        numbers: The content of `comparison.json`.
    """

    result: Findings
    runs: Sequence[Record]
    notes: Sequence[str]
    numbers: Mapping[str, Any]
    written: Sequence[Path]


def compare_runs(
    runs: Sequence[Path],
    *,
    reference: str | None = None,
    artifacts: str | None = None,
    tolerance: float | None = None,
    out: Path | None = None,
) -> ComparedRuns:
    """Compare the models of finished runs by loss per byte. Nothing is trained.

    Args:
        runs: Folders of runs or sweeps.
        reference: Label of the tokenizer with which the others are compared; None for the first BPE.
        artifacts: Folder to which the runs' artifacts were moved; None if they are where the runs made them.
        tolerance: Accepted relative difference of equal budgets; None for the runs' own.
        out: Folder for the page and its numbers; None to write nothing.

    Raises:
        UserError: There is no finished run, or the runs cannot be compared.
    """
    done, others = records.finished(runs)
    # These import Torch, which takes seconds.
    from experiments.report import combining
    from experiments.report.artifact import provenance
    from experiments.report.over_compute import deployment_of
    from lm.evaluate.deployment import Deployment

    notes: list[str] = []
    try:
        deployment = deployment_of(done[0])
    except UserError as error:  # it may be in a configuration folder of the run
        deployment = Deployment()
        notes.append(f"the run's own deployment, so training FLOPs if deployed assume the default ({error})")
    result, left_out = combining.combine(done, reference, artifacts, tolerance=tolerance, deployment=deployment)
    notes += left_out
    notes += [f"{run.folder}: {run.why}" for run in others]
    # Their folders, and their commands with the values of a cell of a sweep.
    facts = [[run.folder, f"{run.command} {command_text(run.swept)} ({run.started})"] for run in done]
    origin = provenance(result, [], corpus=facts, config="")
    command = done[0].command if len({run.command for run in done}) == 1 else ""
    more = {"notes": notes}
    written, numbers = write_comparison(result, deployment, out, command=command, origin=origin, more=more)
    return ComparedRuns(result, done, notes, numbers, written)


def write_comparison(
    result: Findings,
    deployment: Deployment,
    out: Path | None,
    *,
    command: str,
    origin: Mapping[str, Any],
    more: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[list[Path], dict[str, Any]]:
    """Write the page of a comparison with its numbers; the files and the numbers are returned.

    Args:
        result: The comparison.
        deployment: The model that will be deployed.
        out: Folder; None to write nothing.
        command: Command line that a next step would change; empty if there is none.
        origin: Output of `experiments.report.artifact.provenance`.
        more: Further entries of the numbers.
    """
    from experiments.report.comparison_page import write
    from experiments.report.data import gather

    numbers = gather(result, deployment=deployment, command=command, provenance=origin) | dict(more)
    if out is None:
        return [], numbers
    return write(out, COMPARISON, numbers), numbers


def run_pipeline(
    settings: Sequence[str],
    folder: Path,
    *,
    until: str = "report",
    reporter: Reporter | None = None,
) -> Outcome:
    """Run the stages of an experiment. Stages whose results exist are skipped, so the same call resumes.

    Args:
        settings: Settings of `superbpe pipeline`: `["experiment=small", "bpe.vocab_size=8192"]`.
        folder: Folder for the record of the run, which `compare_runs` reads.
        until: The last stage to run, one of `experiments.stages.STAGES`.
        reporter: Shows the progress; None to show nothing.

    Raises:
        UserError: A setting is wrong, or something that the user can fix happened during the run.
    """
    from experiments import compose, pipeline

    config = compose.load(settings)
    with records.recorded(folder, settings, config.artifacts) as record:
        outcome = pipeline.run(config, until, folder, reporter=reporter or quiet(), on_artifact=record.uses)
    record.done(outcome.records, outcome.page)
    return outcome
