"""Counts and compares the tokens that tokenizers need for a text, as `superbpe fertility` does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from experiments import deployments
from experiments.fertility import measures
from experiments.fertility.measures import ALPHA, Measured, MeasuredText
from experiments.fertility.tallies import SOURCE, read, tally
from experiments.progress import Reporter, quiet
from experiments.report.labels import describe_phase1
from tokenizer.corpus.seen import KEY, Answer, Read, Recorder, saw
from tokenizer.durable import write_json, write_whole
from tokenizer.errors import UserError
from tokenizer.progress import Throttle, thread_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from experiments.fertility.measures import Row
    from tokenizer import Corpus
    from tokenizer.external.load import Pretrained
    from tokenizer.interface import TokenizerLike
    from tokenizer.progress import Progress

PAGE, NUMBERS, TABLE, LATEX = "fertility.html", "fertility.json", "fertility.csv", "fertility.tex"


@dataclass(frozen=True)
class InTraining:
    """Measured documents that are also in a tokenizer's training text.

    Attributes:
        looked_up: Number of documents that could be looked up.
        files: Measured files that training cut into other documents, which cannot be looked up.
    """

    documents: int
    looked_up: int
    bytes: int
    files: Sequence[str]
    sources: Sequence[str]


@dataclass(frozen=True)
class MeasuredTokenizer:
    """A tokenizer that is measured.

    Attributes:
        training_text: Names of the files that trained it; None if they are unknown.
        in_training: Measured documents in its training text; None if that is unknown.
        unknown_training: Why more of them may be in its training text; empty if none are.
    """

    name: str
    loaded: Pretrained
    superwords: int
    training_text: Sequence[str] | None
    in_training: InTraining | None
    unknown_training: str
    loses_text: bool

    def save(self) -> dict[str, Any]:
        """The entry of the JSON."""
        seen = None if self.in_training is None else asdict(self.in_training)
        entries = {key: value for key, value in vars(self).items() if key != "loaded"}
        return {**entries, **self.loaded.about(), "in_training": seen}


@dataclass(frozen=True, kw_only=True)
class Fertility(Measured):
    """Tokens that tokenizers need for a text.

    Attributes:
        phase1: How their phases 1 differ; empty if they do not.
        parallel: Field whose values are equal in translations; None without translations.
        original: The source that the others translate; None without translations.
    """

    tokenizers: Sequence[MeasuredTokenizer]
    phase1: str
    parallel: str | None
    original: str | None

    def write(self, folder: Path) -> None:
        """Write `fertility.html`, `fertility.json`, `fertility.csv` and `fertility.tex`."""
        from experiments.report import fertility_page  # needs packages of an extra
        from experiments.report.figures import to_csv, to_latex

        report = self.save()
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / NUMBERS, report)
        write_whole(folder / TABLE, to_csv(report["rows"]))
        write_whole(folder / LATEX, to_latex(fertility_page.tables(report).values()))
        write_whole(folder / PAGE, fertility_page.render(report))


def measure_fertility(
    tokenizers: Mapping[str, Pretrained | TokenizerLike],
    text: Corpus,
    *,
    reference: str | None = None,
    training: Mapping[str, Corpus] | None = None,
    parallel: str | None = None,
    alpha: float = ALPHA,
    deployment: Sequence[str] = ("dense-8b",),
    out: Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
) -> Fertility:
    """Count and compare the tokens that tokenizers need for a text.

    Args:
        tokenizers: The tokenizers by name.
        text: The text. Documents are grouped by the names of its sources.
        reference: Name of the tokenizer with which the others are compared; None for the first.
        training: Training text of tokenizers, by name, in which measured documents are looked up; without it, they are
            looked up in what the tokenizer itself recorded.
        parallel: Field whose values are equal in translations (`tokenizer.corpus.parallel.parallel_documents`): the
            premium of each named source of the text is measured, against the first one.
        alpha: Order of the Rényi entropy.
        deployment: The model whose serving is priced: a preset and settings KEY=VALUE.
        out: Folder for the page, `fertility.json` and `fertility.csv`; None to write nothing.
        threads: Number of threads; None for all cores.
        reporter: Shows the progress; None to show nothing.

    Raises:
        UserError: There is no tokenizer of the reference's name, the text cannot be read or has no such translations,
            or a tokenizer gives no token.
    """
    arms = measures.loaded(tokenizers)
    reporter = reporter or quiet()
    deployed = deployments.read(deployment)
    reference = reference or next(iter(arms))
    if reference not in arms:
        raise UserError(f"reference={reference!r} is not a tokenizer; the names are {', '.join(arms)}")
    with reporter.stage("text"):
        documents = read(text, reporter.progress, parallel=parallel)
        reads = _reads(arms, training or {}, reporter.progress)
        answers = {name: saw(one.tokenizer, documents.hashes, text, read=reads[name]) for name, one in arms.items()}
    with reporter.stage("tokens"):
        every = [one.tokenizer for one in arms.values()]
        counted = tally(every, text, documents, threads=thread_count(threads), progress=reporter.progress)
        tallies = dict(zip(arms, counted, strict=True))
    rows: list[Row] = []
    described = []
    for name, arm in arms.items():
        answer = answers[name]
        if not tallies[name].tokens.any():
            raise UserError(f"{name} gives no token for this text; leave it out")
        own = measures.rows(
            name, tallies[name], documents, tallies[reference], alpha=alpha, deployed=deployed,
            in_training=None if answer.unknown and not answer.saw else answer.seen,
        )  # fmt: skip
        rows += own
        described.append(_described(name, arm, own, reads[name], answer))
    found = Fertility(
        reference=reference,
        text=MeasuredText.of(text, documents),
        deployment=deployed,
        deployment_name=" ".join(deployment),
        alpha=alpha,
        rows=rows,
        tokenizers=described,
        phase1=describe_phase1({name: arm.tokenizer for name, arm in arms.items()}),
        parallel=parallel,
        original=next(iter(documents.parallel), None),
    )
    if out is not None:
        found.write(out)
    return found


def _reads(
    arms: Mapping[str, Pretrained], training: Mapping[str, Corpus], progress: Progress | None
) -> dict[str, Read | None]:
    """The record of the training text of each tokenizer, by name: its own, or the record of `training`, read once."""
    recorded: dict[int, Read] = {}
    for text in training.values():
        if id(text) not in recorded:
            recorder = Recorder()
            n_bytes = 0
            tick = Throttle(progress, "bytes of training text")
            for batch in recorder.batches(text, readers=2, in_order=False):
                n_bytes += batch.n_bytes
                tick(n_bytes)
            recorded[id(text)] = recorder.read()
    reads: dict[str, Read | None] = {}
    for name, arm in arms.items():
        own = getattr(arm.tokenizer, "provenance", {}).get(KEY)
        reads[name] = recorded[id(training[name])] if name in training else own
    return reads


def _described(name: str, arm: Pretrained, rows: Sequence[Row], read: Read | None, answer: Answer) -> MeasuredTokenizer:
    whole = rows[0]
    in_training = None
    if answer.saw or not answer.unknown:
        sources = [row.group for row in rows if row.by == SOURCE and row.in_training_bytes]
        in_training = InTraining(
            documents=int(answer.seen.sum()),
            looked_up=answer.looked_up,
            bytes=whole.in_training_bytes or 0,
            files=answer.files,
            sources=sources or [whole.group],
        )
    places = None if read is None else [place for text in read["texts"] for place in text["places"]]
    return MeasuredTokenizer(
        name=name,
        loaded=arm,
        superwords=len(arm.tokenizer.superword_ids()),
        training_text=None if places is None else [PurePath(place).name or place for place in places],
        in_training=in_training,
        unknown_training=answer.unknown,
        loses_text=bool(whole.changed_documents or whole.lost_bytes),
    )
