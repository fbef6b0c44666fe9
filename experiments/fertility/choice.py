"""Finds the tokenizers that are worth a comparison for a text, as `superbpe choose` does.

Four steps: `divide` the text, train a grid (`Trainer`), count tokens on documents that trained none of it (`tally`),
and decide by the cost of serving a model with each tokenizer (`choosing`).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.fertility import measures
from experiments.fertility.choosing import Candidate, Contender, cost_curve, finalists, margin, price
from experiments.fertility.grid import Cell, Trainer, grid
from experiments.fertility.measures import Measured, MeasuredText
from experiments.fertility.splitting import TEST_SHARE, Division, Identity, check_folder, divide
from experiments.fertility.tallies import SOURCE, read, tally
from experiments.progress import Reporter, quiet
from experiments.shell import hydra_names, setting
from lm.evaluate.bits_per_byte import SOURCE as OF_SOURCES
from lm.evaluate.comparison import FEWEST_EFFECTIVE
from tokenizer import CorpusConfig, Tokenizer
from tokenizer.corpus.seen import saw
from tokenizer.durable import write_json, write_whole
from tokenizer.errors import UserError
from tokenizer.files import shown
from tokenizer.patterns import resolve
from tokenizer.progress import thread_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from experiments.fertility.grid import Trained
    from experiments.fertility.tallies import Documents, Tally
    from lm.evaluate.deployment import Deployment
    from tokenizer import Corpus
    from tokenizer.external.load import Pretrained
    from tokenizer.interface import TokenizerLike

PAGE, NUMBERS, TABLE, FOLDER, TRAINED = "choose.html", "choose.json", "choose.csv", "tokenizers", "trained"
PATTERNS, PRESETS_TRIED = ("o200k", "llama3", "superbpe"), ("digits", "uw-2025", "sentence")
"""Patterns of BPE, of which the first is full-strength BPE's, and presets of superwords; `quick` tries the first."""
TEST_BYTES = 1_000_000
"""Most text, as stored, that the command for the models scores."""
CONTEXT_BYTES = 768
"""`eval.context_bytes` of `superbpe pipeline`, the length of the longest allowed token."""
SAMPLE_BYTES = 1_000_000
"""Text on which a tokenizer that only other software can run is measured: that software may take a second per MB."""


@dataclass(frozen=True)
class Finalist:
    """A tokenizer that is worth a comparison by language models.

    Attributes:
        name: Its name.
        why: Why it is a finalist.
        folder: Where it is saved.
        examples: The superwords that occur most in the text.
        tokenizer: The tokenizer.
    """

    name: str
    why: str
    folder: str
    examples: Sequence[str]
    tokenizer: TokenizerLike

    def save(self) -> dict[str, Any]:
        """The entry of the JSON."""
        return {"name": self.name, "why": self.why, "folder": self.folder, "examples": self.examples}


@dataclass(frozen=True)
class Bakeoff:
    """The comparison of the finalists by language models.

    Attributes:
        command: Words of the command, without `superbpe`; empty if there is a single finalist.
        seconds: How long it takes on two cores; None without a command.
    """

    command: Sequence[str]
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Choice(Measured):
    """Tokenizers for a text, priced, and the finalists.

    Attributes:
        split: How the text is divided.
        training_bytes: Bytes of the text that trains tokenizers.
        smallest_saving: Smallest saving that counts, as a share.
        tokenizers: All tokenizers with their prices.
        finalists: The finalists, the reference first.
        existing: Names of the tokenizers that the user has.
        unknown: For which of these it is unknown whether they were trained on this text, and why.
        missing: Tokenizers of the grid for which the text has too few pairs.
        bakeoff: The comparison of the finalists by language models.
    """

    split: Identity
    training_bytes: int
    smallest_saving: float
    tokenizers: Sequence[Candidate]
    finalists: Sequence[Finalist]
    existing: Sequence[str]
    unknown: Sequence[str]
    missing: Sequence[str]
    bakeoff: Bakeoff

    def save(self) -> dict[str, Any]:
        """The numbers of `choose.json`."""
        return {
            **super().save(),
            "split": asdict(self.split),
            "training_bytes": self.training_bytes,
            "smallest_saving": self.smallest_saving,
            "tokenizers": [one.save() for one in self.tokenizers],
            "finalists": [one.save() for one in self.finalists],
            "existing": self.existing,
            "unknown": self.unknown,
            "missing": self.missing,
            "bakeoff": asdict(self.bakeoff),
        }

    def write(self, folder: Path) -> None:
        """Write `choose.html`, `choose.json` and `choose.csv`."""
        from experiments.report import choose_page  # needs packages of an extra
        from experiments.report.figures import to_csv

        report = self.save()
        write_json(folder / NUMBERS, report)
        write_whole(folder / TABLE, to_csv(report["tokenizers"]))
        write_whole(folder / PAGE, choose_page.render(report))


def choose_tokenizers(
    text: Corpus,
    *,
    against: Mapping[str, Pretrained | TokenizerLike] | None = None,
    reference: str | None = None,
    sizes: Sequence[int] | None = None,
    patterns: Sequence[str] | None = None,
    presets: Sequence[str] | None = None,
    transitions: Sequence[float | str] | None = None,
    quick: bool = False,
    heldout: float | None = None,
    deployment: Sequence[str] = ("dense-8b",),
    out: Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
) -> Choice:
    """Train a grid of tokenizers, and find those that are worth a comparison by language models.

    Args:
        text: The text. It is divided here, so it holds nothing out.
        against: Existing tokenizers by name, which become finalists.
        reference: Name of the tokenizer with which the others are compared; None for the cheapest BPE of the first
            pattern.
        sizes: Sizes of the vocabulary; None for 8k, 16k, 32k and 64k.
        patterns: Patterns of phase 1; None for `PATTERNS`, and those of the presets.
        presets: Presets of superwords; None for `PRESETS_TRIED`.
        transitions: Where superwords start: shares of the vocabulary, numbers of tokens, or `auto`; None for 0.8
            and 0.9.
        quick: Whether the defaults are a small grid: o200k, digits at 0.9, 16k and 32k.
        heldout: Share of documents to hold out, half of them for models; None for 0.2, at most 10 MB.
        deployment: The model whose serving is priced: a preset and settings KEY=VALUE.
        out: Folder for the page, the numbers, all trained tokenizers, with which the same call resumes, and the
            finalists; None to write nothing, and then there is no command for the comparison.
        threads: Number of threads; None for all cores.
        reporter: Shows the progress; None to show nothing.

    Raises:
        UserError: A setting is wrong, the text is too small, or an existing tokenizer was trained on it.
    """
    existing, reporter, deployed = measures.loaded(against or {}), reporter or quiet(), measures.deployment(deployment)
    for pattern in patterns or []:
        resolve(pattern)
    cells = grid(
        patterns,
        PRESETS_TRIED[: 1 if quick else None] if presets is None else presets,
        transitions or ([0.9] if quick else [0.8, 0.9]),
        sorted(sizes or ([16_000, 32_000] if quick else [8_000, 16_000, 32_000, 64_000])),
        PATTERNS[: 1 if quick else None],
    )
    names = [*existing, *(cell.name for cell in cells)]
    if reference not in (None, *names):
        raise UserError(f"reference={reference!r} is not a tokenizer; the names are {', '.join(names)}")
    with _folder(out) as folder:
        if (folder / NUMBERS).exists():
            check_folder(folder, text)
        with reporter.stage("text"):
            division = divide(text, folder, heldout, reporter.progress)
            documents = read(division.selection)
        unknown = _check_unseen(existing, documents, division)
        trainer = Trainer(division.corpus, folder / TRAINED, asdict(division.identity), reporter, thread_count(threads))
        trained = trainer.train(cells) | _extended(trainer, existing if any(cell.preset for cell in cells) else {})
        base = Cell(max(cell.size for cell in cells), cells[0].pattern)
        quarters = trainer.quarters(base)
        contenders, of_quarters = _count(existing, trained, quarters, cells, division, documents, trainer)
        chosen = _decide(contenders, of_quarters, reference, base, documents, deployed, list(existing))
        places = {name: _place(name, existing, folder) for name in chosen.why}
        for name in places.keys() & trained.keys():
            trained[name].tokenizer.save(places[name])
        choice = Choice(
            reference=chosen.reference,
            text=MeasuredText.of(text, documents),
            deployment=deployed,
            deployment_name=" ".join(deployment),
            rows=[
                row
                for name, one in contenders.items()
                for row in measures.rows(
                    name, one.tally, documents, contenders[chosen.reference].tally, deployed=deployed
                )
            ],
            split=division.identity,
            training_bytes=sum(one.tokenizer.provenance["phase1"]["corpus_bytes"] for one in quarters),
            smallest_saving=chosen.smallest_saving,
            tokenizers=chosen.candidates,
            finalists=[
                Finalist(name, why, places[name], _examples(tallied), tallied.tokenizer)
                for name, why in chosen.why.items()
                for tallied in [contenders[name].tally]
            ],
            existing=list(existing),
            unknown=unknown,
            missing=[cell.name for cell in cells if cell.name not in trained],
            bakeoff=_bakeoff(
                division.corpus,
                documents,
                {name: (places[name], contenders[name].tally) for name in places},
                deployment,
            )
            if out
            else Bakeoff([], None),
        )
        if out is not None:
            choice.write(out)
    return choice


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder of the results, or one that is removed at the end."""
    if out is None:
        with TemporaryDirectory() as folder:
            yield Path(folder)
    else:
        out.mkdir(parents=True, exist_ok=True)
        yield out


def _check_unseen(existing: Mapping[str, Pretrained], documents: Documents, division: Division) -> list[str]:
    """What is unknown about the training text of the tokenizers.

    Raises:
        UserError: A tokenizer was trained on the measured documents.
    """
    unknown = []
    for name, one in existing.items():
        answer = saw(one.tokenizer, documents.hashes, division.corpus)
        if answer.saw_much:
            raise UserError(
                f"against={answer.sentence(name)}, so it would seem too good for this text; give text that it has not "
                "seen, or leave it out"
            )
        if answer.saw or answer.unknown:
            unknown.append(answer.sentence(name))
    return unknown


def _extended(trainer: Trainer, existing: Mapping[str, Pretrained]) -> dict[str, Trained]:
    """Existing tokenizers without superwords, extended with some."""
    extended = {}
    for name, loaded in existing.items():
        if isinstance(start := loaded.tokenizer, Tokenizer) and start.fence is None:
            try:
                extended[f"{name}-extended"] = trainer.extend(start, name, PRESETS_TRIED[0])
            except UserError as error:
                trainer.reporter.say(f"{name} cannot be extended with superwords: {error}", style="yellow")
    return extended


def _count(
    existing: Mapping[str, Pretrained],
    trained: Mapping[str, Trained],
    quarters: Sequence[Trained],
    cells: Sequence[Cell],
    division: Division,
    documents: Documents,
    trainer: Trainer,
) -> tuple[dict[str, Contender], list[Tally]]:
    """Count the tokens of all tokenizers, and of those of the quarters."""
    recipes = {cell.name: cell.recipe for cell in cells}
    tokenizers = [one.tokenizer for one in existing.values()]
    tokenizers += [one.tokenizer for one in (*trained.values(), *quarters)]
    with trainer.reporter.stage("tokens"):
        tallies = tally(
            tokenizers,
            division.selection,
            documents,
            threads=trainer.threads,
            progress=trainer.reporter.progress,
            sample_bytes=SAMPLE_BYTES,
        )
    counted = dict(zip([*existing, *trained], tallies, strict=False))
    contenders = {}
    for name, one in counted.items():
        counts = trained[name].counts.tolist() if name in trained else []
        contenders[name] = Contender(
            tally=one,
            recipe=recipes.get(name, name),
            last_count=counts[-1] if counts else None,
            software=existing[name].about()["software"] if name in existing else None,
        )
    return contenders, tallies[len(counted) :]


@dataclass(frozen=True)
class _Decision:
    """The reference, the smallest saving that counts, all tokenizers with their prices, and why some are finalists."""

    reference: str
    smallest_saving: float
    candidates: Sequence[Candidate]
    why: Mapping[str, str]


def _decide(
    contenders: Mapping[str, Contender],
    quarters: Sequence[Tally],
    reference: str | None,
    base: Cell,
    documents: Documents,
    deployed: Deployment,
    existing: Sequence[str],
) -> _Decision:
    """Choose the finalists."""
    n_bytes = documents.n_bytes.sum()

    def cost(one: Tally) -> float:
        return float(cost_curve(deployed, one.tokenizer.vocab_size)(one.tokens.sum() / n_bytes))

    plain = {name: cost(one.tally) for name, one in contenders.items() if one.recipe == base.recipe}
    reference = reference or min(plain, key=lambda name: plain[name], default=base.name)
    if reference not in contenders:
        raise UserError(f"the text is too small for {reference}; use smaller vocabularies, or more text")
    least = margin([cost(one) for one in quarters])
    priced = price(contenders, reference, documents, deployed)
    return _Decision(reference, least, priced, finalists(priced, reference, least, existing))


def _place(name: str, existing: Mapping[str, Pretrained], folder: Path) -> str:
    """Where a finalist is: where the user has it, or among the results."""
    source = existing[name].source if name in existing else ""
    return source or str(folder / FOLDER / name)


def _examples(counted: Tally) -> list[str]:
    """The superwords that occur most in the text."""
    tokenizer = counted.tokenizer
    ids = tokenizer.superword_ids()
    best = ids[np.argsort(-counted.counts[ids], kind="stable")[:12]].tolist()
    return [tokenizer.vocab[i].decode(errors="replace") for i in best if counted.counts[i]]


def _bakeoff(
    corpus: Corpus,
    documents: Documents,
    made: Mapping[str, tuple[str, Tally]],
    deployment: Sequence[str],
) -> Bakeoff:
    """The command that compares the finalists on text not measured here, and its seconds on two cores.

    The model of `experiment=bakeoff` has 4 layers of width 128, 0.8 million weights, and a head of 128 per token. Its
    runs with 8,192 tokens take 600 s per tokenizer.

    Args:
        corpus: The text and its split.
        documents: The measured documents.
        made: Place and tokens of each finalist, by name.
        deployment: The words that name the deployment.
    """
    if len(made) < 2:
        return Bakeoff([], None)
    config, usual = corpus.config, asdict(CorpusConfig())
    text = {key: value for key, value in asdict(config).items() if value != usual[key]}
    if config.sources:
        text["sources"] = {name: config.sources[old] for old, name in hydra_names(config.sources, ":. ").items()}
    text["heldout_sample"] = min(
        TEST_SHARE, float(f"{TEST_BYTES / max(config.heldout_fraction * sum(corpus.sizes()), 1):.2g}")
    )
    arms = {name: made[old][0] for old, name in hydra_names(made).items()}  # the reference first
    words = ["pipeline", "experiment=bakeoff", "corpus=files", f"arms=[{','.join(arms)}]"]
    words += [setting(f"corpus.{key}", value) for key, value in text.items()]
    for arm, place in arms.items():
        words.append(setting(f"arms.{arm}.{'file' if Path(place).exists() else 'pretrained'}", place))
    words += [f"deployment{'.' if '=' in word else '='}{word}" for word in deployment]
    if sum(group.by == SOURCE for group in documents.groups) < FEWEST_EFFECTIVE[OF_SOURCES]:  # so few decide nothing
        words.append("eval.cluster=document")
    tokenizers = [one.tokenizer for _, one in made.values()]
    longest = max(int(one.token_byte_lengths().max()) for one in tokenizers)
    if longest > CONTEXT_BYTES:
        words.append(f"eval.context_bytes={longest}")
    seconds = sum(600 * (0.8e6 + 128 * one.vocab_size) / (0.8e6 + 128 * 8192) for one in tokenizers)
    return Bakeoff(list(map(shown, words)), seconds)
