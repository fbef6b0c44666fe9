"""Finds the tokenizers that are worth a comparison for a text, as `superbpe choose` does.

`divide` the text; train a grid of tokenizers and count their tokens on documents that trained none of them
(`GridSearch.explore`), while the cheapest is at the edge of the grid; `decide` by the cost of serving a model with
each, against BPE of the same size.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import deployments
from experiments.fertility import measures
from experiments.fertility.choosing import CHEAPEST, LEAST_COUNT, Candidate, finalists, margin, price
from experiments.fertility.grid import GridTrainer, grid
from experiments.fertility.losses import Loss, measured_losses
from experiments.fertility.measures import Measured, MeasuredText
from experiments.fertility.search import GridSearch
from experiments.fertility.splitting import TEST_SHARE, Identity, SharedText, check_folder, divide
from experiments.fertility.tallies import SOURCE, read
from experiments.progress import Reporter, quiet
from experiments.shell import hydra_names, operand, reading_options, setting
from lm.evaluate.bits_per_byte import SOURCE as OF_SOURCES
from lm.evaluate.comparison import FEWEST_EFFECTIVE
from tokenizer import Corpus, CorpusConfig
from tokenizer.corpus.seen import saw
from tokenizer.durable import write_json, write_whole
from tokenizer.errors import UserError
from tokenizer.files import shown
from tokenizer.formats.readers import opens_in
from tokenizer.patterns import resolve
from tokenizer.progress import thread_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from experiments.fertility.tallies import Documents, Tally
    from tokenizer.external.load import Pretrained
    from tokenizer.formats.readers import Support
    from tokenizer.interface import TokenizerLike

PAGE, NUMBERS, TABLE, LATEX = "choose.html", "choose.json", "choose.csv", "choose.tex"
FOLDER, TRAINED = "tokenizers", "trained"
PATTERNS, PRESETS_TRIED = ("o200k", "llama3", "superbpe"), ("digits", "uw-2025", "sentence")
"""Patterns of BPE, of which the first is full-strength BPE's, and presets of superwords; `quick` tries the first."""
TEST_BYTES = 1_000_000
"""Most text, as stored, that the command for the models scores."""
CONTEXT_BYTES = 768
"""`eval.context_bytes` of `superbpe pipeline`, the length of the longest allowed token."""
BAKEOFF_BYTES, BAKEOFF_TOKENS = 3_200_000, 8192
"""Text that a model of `experiment=bakeoff` reads, and the size of its vocabulary; a larger one needs more text."""


@dataclass(frozen=True)
class Finalist:
    """A tokenizer that is worth a comparison by language models.

    Attributes:
        folder: Where it is saved.
        examples: The superwords that occur most in the text.
        opens_in: Software that opens an export of it, or does not.
        command: Words of the command, without `superbpe`, that extends the user's tokenizer to this one by all of the
            text; empty for others.
        cheapest: Whether it is the cheapest to serve, beyond chance.
    """

    name: str
    why: str
    folder: str
    examples: Sequence[str]
    longest: str
    tokenizer: TokenizerLike
    opens_in: list[Support] = field(default_factory=list)
    command: Sequence[str] = ()
    cheapest: bool = False

    def save(self) -> dict[str, Any]:
        """The entry of the JSON."""
        entries = {key: value for key, value in vars(self).items() if key != "tokenizer"}
        return {**entries, "opens_in": {answer.reader: answer.text for answer in self.opens_in}}


@dataclass(frozen=True)
class Bakeoff:
    """The comparison of the finalists by language models.

    Attributes:
        command: Words of the command, without `superbpe`; empty if there is a single finalist.
        seconds: How long training and evaluation take on two cores; None without a command.
        train_bytes: Text that the reference's model reads.
    """

    command: Sequence[str] = ()
    seconds: float | None = None
    train_bytes: int = BAKEOFF_BYTES


@dataclass(frozen=True, kw_only=True)
class Choice(Measured):
    """Tokenizers for a text, priced, and the finalists.

    Attributes:
        split: How the text is divided.
        overlap: Text by which the tokenizers are chosen that occurs in the training text.
        training_bytes: Bytes of the text that trains tokenizers.
        smallest_saving: Smallest saving that counts, as a share.
        finalists: The finalists, the reference first.
        existing: Names of the tokenizers that the user has.
        unknown: For which of these it is unknown whether they were trained on this text, and why.
        missing: Tokenizers of the grid for which the text has too few pairs.
        unmatched: Tokenizers of the run of models that are not among these.
        edges: What of the cheapest tokenizer is at the edge of what was tried, as sentences.
        bakeoff: The comparison of the finalists by language models.
    """

    split: Identity
    overlap: SharedText
    training_bytes: int
    smallest_saving: float
    tokenizers: Sequence[Candidate]
    finalists: Sequence[Finalist]
    existing: Sequence[str]
    unknown: Sequence[str]
    missing: Sequence[str]
    unmatched: Sequence[str]
    edges: Sequence[str]
    bakeoff: Bakeoff

    def save(self) -> dict[str, Any]:
        """The numbers of the page, as JSON."""
        return {**super().save(), "least_count": LEAST_COUNT}

    def write(self, folder: Path) -> None:
        """Write `choose.html`, `choose.json`, `choose.csv` and `choose.tex`."""
        from experiments.report import choose_page  # needs packages of an extra
        from experiments.report.figures import to_csv, to_latex

        report = self.save()
        write_json(folder / NUMBERS, report)
        write_whole(folder / TABLE, to_csv(report["tokenizers"]))
        write_whole(folder / LATEX, to_latex([choose_page.table(report, report["tokenizers"])]))
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
    run: Path | None = None,
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
        reference: Name of the tokenizer with which the others are compared; None to compare each with BPE of the first
            pattern and the same size.
        sizes: Sizes of the vocabulary; None for 8k, 16k, 32k and 64k, and larger ones while they are cheaper and the
            text supports them.
        patterns: Patterns of phase 1; None for `PATTERNS` and the presets' own.
        presets: Presets of superwords; None for `PRESETS_TRIED`.
        transitions: Where superwords start: shares of the vocabulary, numbers of tokens, or `auto`; None for 0.8 and
            0.9, and lower ones, to 0.4, while they are cheaper.
        quick: Whether the defaults are a small grid: o200k, digits at 0.9, 16k and 32k.
        run: Folder of a finished run of the pipeline, whose losses are shown beside the prices; None without.
        heldout: Share of documents to hold out, half of them for models; None for 0.2, at most 10 MB.
        deployment: The model whose serving is priced: a preset and settings KEY=VALUE.
        out: Folder for the page, the numbers, all trained tokenizers, with which the same call resumes, and the
            finalists; None to write nothing, and then there is no command for the comparison.
        threads: Number of threads; None for all cores.
        reporter: Shows the progress; None to show nothing.

    Raises:
        UserError: A setting is wrong, the text is too small, or an existing tokenizer was trained on it.
    """
    existing = measures.loaded(against or {})
    reporter = reporter or quiet()
    deployed = deployments.read(deployment)
    losses = measured_losses(run) if run else {}
    for pattern in patterns or []:
        resolve(pattern)
    if presets is None:
        presets = PRESETS_TRIED[:1] if quick else PRESETS_TRIED
    cells = grid(
        patterns,
        presets,
        transitions or ([0.9] if quick else [0.8, 0.9]),
        sorted(sizes or ([16_000, 32_000] if quick else [8_000, 16_000, 32_000, 64_000])),
        PATTERNS[:1] if quick else PATTERNS,
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
        unknown = _check_unseen(existing, documents, text)
        trainer = GridTrainer(
            division.corpus, folder / TRAINED, asdict(division.identity), reporter, thread_count(threads)
        )
        search = GridSearch(trainer, division.selection, documents, deployed, cells[0].pattern, existing)
        search.explore(
            cells,
            extend_by=PRESETS_TRIED[0] if any(cell.preset for cell in cells) else None,
            equal_sizes=reference is None,
            fixed_sizes=bool(sizes),
            fixed_transitions=bool(transitions),
        )
        shortlist = decide(search, reference)
        made = [_finalist(name, why, search, text, folder) for name, why in shortlist.why.items()]
        base = search.contenders[shortlist.reference].tally
        every = search.contenders.items()
        choice = Choice(
            reference=shortlist.reference,
            text=MeasuredText.of(text, documents),
            deployment=deployed,
            deployment_name=" ".join(deployment),
            rows=[
                row for name, one in every for row in measures.rows(name, one.tally, documents, base, deployed=deployed)
            ],
            split=division.identity,
            overlap=division.overlap,
            training_bytes=shortlist.training_bytes,
            smallest_saving=shortlist.smallest_saving,
            tokenizers=_with_losses(shortlist.candidates, search, losses),
            finalists=made,
            existing=list(existing),
            unknown=unknown,
            missing=[cell.name for cell in cells if cell.name not in search.trained],
            edges=search.edges,
            unmatched=_unmatched(losses, search),
            bakeoff=_bakeoff(division.corpus, documents, made, deployment) if out else Bakeoff(),
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


def _check_unseen(existing: Mapping[str, Pretrained], documents: Documents, text: Corpus) -> list[str]:
    """Say for which tokenizers it is unknown whether they were trained on the measured documents.

    Raises:
        UserError: A tokenizer was trained on the measured documents.
    """
    unknown = []
    for name, one in existing.items():
        answer = saw(one.tokenizer, documents.hashes, text)
        if answer.saw_much:
            raise UserError(
                f"against={answer.sentence(name)}, so it would seem too good for this text; give text that it has not "
                "seen, or leave it out"
            )
        if answer.saw or answer.unknown:
            unknown.append(answer.sentence(name))
    return unknown


@dataclass(frozen=True)
class Shortlist:
    """The choice among tokenizers.

    Attributes:
        reference: Name of the tokenizer with which the cheapest is compared.
        smallest_saving: Smallest saving that counts, as a share.
        training_bytes: Bytes of the text that trains tokenizers.
        why: Why each finalist is one, by name, the reference first.
    """

    reference: str
    smallest_saving: float
    training_bytes: int
    candidates: Sequence[Candidate]
    why: Mapping[str, str]


def decide(search: GridSearch, reference: str | None = None) -> Shortlist:
    """Price the tokenizers, and choose the finalists.

    Args:
        search: The tokenizers, trained and counted.
        reference: Name of the tokenizer with which the others are compared; None for BPE of the same size.

    Raises:
        UserError: The text is too small for the reference, or for any tokenizer.
    """
    made_here = [search.trained[name] for name in search.cells if name in search.trained]
    if reference not in (None, *search.contenders) or not made_here:
        smallest = reference or min(search.cells.values(), key=lambda cell: cell.size).name
        raise UserError(f"the text is too small for {smallest}; use smaller vocabularies, or more text")
    own = reference if reference in search.existing else None
    least = margin(search.differences(search.cheapest(), own))
    priced = price(search.contenders, search.references(reference), search.documents, search.deployed)
    why = finalists(priced, least, search.existing, search.parents, reference)
    n_bytes = made_here[0].tokenizer.provenance["phase1"]["corpus_bytes"]
    return Shortlist(next(iter(why)), least, n_bytes, priced, why)


def _finalist(name: str, why: str, search: GridSearch, text: Corpus, folder: Path) -> Finalist:
    """A finalist, which is saved among the results unless the user has it."""
    counted = search.contenders[name].tally
    place = search.existing[name].source if name in search.existing else ""
    if not place:
        place = str(folder / FOLDER / name)
        counted.tokenizer.save(Path(place))
    parent = search.existing[search.parents[name]] if name in search.parents else None
    return Finalist(
        name=name,
        why=why,
        cheapest=why.startswith(CHEAPEST),
        folder=place,
        examples=_examples(counted),
        longest=_longest(counted.tokenizer),
        tokenizer=counted.tokenizer,
        opens_in=opens_in(counted.tokenizer),
        command=_extend_command(parent, name, text, counted.tokenizer.vocab_size) if parent else (),
    )


def _with_losses(candidates: Sequence[Candidate], search: GridSearch, losses: Mapping[str, Loss]) -> list[Candidate]:
    """The tokenizers with the losses of their models."""
    found = []
    for one in candidates:
        loss = losses.get(search.contenders[one.name].tally.tokenizer.sha256)
        found.append(one if loss is None else replace(one, bits_per_byte=loss.bits_per_byte, loss_percent=loss.percent))
    return found


def _unmatched(losses: Mapping[str, Loss], search: GridSearch) -> list[str]:
    here = {one.tally.tokenizer.sha256 for one in search.contenders.values()}
    return [loss.label for sha256, loss in losses.items() if sha256 not in here]


def _extend_command(parent: Pretrained, name: str, text: Corpus, size: int) -> list[str]:
    """Words of the command that extends an existing tokenizer by all of the text.

    Empty if the tokenizer was not loaded from a place, or the text is not in files.
    """
    if not parent.source or text.config.dataset:
        return []
    options = reading_options(vars(text.config))
    paths = text.config.paths or [f"{name}={entry}" for name, entry in text.config.sources.items()]
    words = ["extend", operand(parent.source), *(operand(shown(path)) for path in paths), *options]
    return [*words, "--vocab-size", str(size), "--superbpe", PRESETS_TRIED[0], "--keep-ids", "--to", name]


def _longest(tokenizer: TokenizerLike) -> str:
    """The longest token."""
    return tokenizer.vocab[int(tokenizer.token_byte_lengths().argmax())].decode(errors="replace")


def _examples(counted: Tally) -> list[str]:
    """The superwords that occur most in the text."""
    tokenizer = counted.tokenizer
    ids = tokenizer.superword_ids()
    best = ids[np.argsort(-counted.counts[ids], kind="stable")[:12]].tolist()
    return [tokenizer.vocab[i].decode(errors="replace") for i in best if counted.counts[i]]


def _bakeoff(corpus: Corpus, documents: Documents, made: Sequence[Finalist], deployment: Sequence[str]) -> Bakeoff:
    """The command that compares the finalists on text not measured here, and its seconds on two cores.

    Models read text in proportion to the largest vocabulary, so that each token occurs as often as in the models of
    `experiment=bakeoff`, which have 8,192 tokens. These have 4 layers of width 128, 0.8 million weights, and a head of
    128 per token. The six of a tokenizer take 650 s with the choice of the learning rates, and each scores 1 MB in
    20 s.
    """
    if len(made) < 2:
        return Bakeoff()
    config, usual = corpus.config, asdict(CorpusConfig())
    text = {key: value for key, value in asdict(config).items() if value != usual[key]}
    if config.sources:
        text["sources"] = {name: config.sources[old] for old, name in hydra_names(config.sources, ":. ").items()}
    heldout = Corpus(CorpusConfig(config.heldout_paths)).sizes() if config.heldout_paths else corpus.sizes()
    heldout_bytes = sum(heldout) * (1 if config.heldout_paths else config.heldout_fraction)
    text["heldout_sample"] = min(TEST_SHARE, float(f"{TEST_BYTES / max(heldout_bytes, 1):.2g}"))
    names = hydra_names(one.name for one in made)
    arms = {names[one.name]: one.folder for one in made}
    words = ["pipeline", "experiment=bakeoff", "corpus=files", f"arms=[{','.join(arms)}]"]
    words += [setting(f"corpus.{key}", value) for key, value in text.items()]
    for arm, place in arms.items():
        key = "file" if Path(place).exists() else "pretrained"
        words.append(setting(f"arms.{arm}.{key}", place))
    words += [f"deployment.{word}" if "=" in word else f"deployment={word}" for word in deployment]
    if sum(group.by == SOURCE for group in documents.groups) < FEWEST_EFFECTIVE[OF_SOURCES]:  # so few decide nothing
        words.append("eval.cluster=document")
    tokenizers = [one.tokenizer for one in made]
    longest = max(int(one.token_byte_lengths().max()) for one in tokenizers)
    if longest > CONTEXT_BYTES:
        words.append(f"eval.context_bytes={longest}")
    largest = max(one.vocab_size for one in tokenizers)
    train_bytes = int(float(f"{BAKEOFF_BYTES * max(largest / BAKEOFF_TOKENS, 1):.2g}"))
    if train_bytes > BAKEOFF_BYTES:
        words.append(f"budget.train_bytes={train_bytes}")
    test_bytes = text["heldout_sample"] * heldout_bytes
    weights = sum((0.8e6 + 128 * one.vocab_size) / (0.8e6 + 128 * BAKEOFF_TOKENS) for one in tokenizers)
    seconds = weights * (650 * train_bytes / BAKEOFF_BYTES + 6 * 20 * test_bytes / 1e6)
    return Bakeoff(list(map(shown, words)), seconds, train_bytes)
