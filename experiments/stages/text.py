"""Corpus and counts."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.cli.console import si
from experiments.config import part
from experiments.store.artifacts import Artifact
from superbpe.sources import Source
from tokenizer import Batch
from tokenizer._native import DocumentFilter
from tokenizer.corpus import embedded
from tokenizer.corpus.corpus import Corpus, CorpusConfig
from tokenizer.durable import digest
from tokenizer.errors import UserError
from tokenizer.files import check_file
from tokenizer.patterns import resolve
from tokenizer.train.counting import PretokenCounts, count_pretokens, mix_counts, weighted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from experiments.config import BpeConfig
    from experiments.stages.context import Context
    from tokenizer.patterns import Pattern


COUNTS = "counts.parquet"


@dataclass(frozen=True)
class Text:
    """The corpus of an experiment.

    Attributes:
        corpus: Yields its documents, split into `train` and `heldout`.
        hash: Of what decides its text; every stage that reads text records it.
        facts: What the report says about it, as (name, value).
        artifact: The folder that holds it, if we wrote it.
    """

    corpus: Corpus
    hash: str
    facts: list[tuple[str, str]]
    artifact: Artifact | None


@dataclass(frozen=True)
class Mixture:
    """The text of phase 2.

    Attributes:
        sources: It.
        hash: Of what decides it.
        read: What the record of the training says that it read.
    """

    sources: list[Source]
    hash: str
    read: dict[str, Any]


def prepare(context: Context) -> Text:
    """Find the corpus; write it to files first if it is the embedded one."""
    config = context.config.corpus
    if config.source == "files":
        corpus = Corpus(part(CorpusConfig, config))
        where = config.dataset or ", ".join(config.paths)
        next(corpus.batches("heldout"))  # before hours of work: some document must be held out
        heldout = ", ".join(config.heldout_paths) or f"{config.heldout_fraction:g} of the documents, by hash"
        return Text(corpus, digest(corpus.identity()), [("corpus", where), ("held out", heldout)], None)

    def build(folder: Path) -> dict[str, Any]:
        return embedded.write(folder, config.heldout_fraction, config.max_bytes, context.reporter.progress)

    chosen = {
        **embedded.identity(),
        "heldout_fraction": config.heldout_fraction,
        "max_bytes": config.max_bytes,
    }
    with context.reporter.stage("corpus"):
        artifact = context.store.make("corpus", config=chosen, inputs={}, build=build)
    facts = _embedded_facts(artifact.contents)
    context.done("corpus", artifact, dict(facts)["training text"])
    files = dataclasses.replace(
        part(CorpusConfig, config),
        paths=[str(artifact.path / "train.jsonl.zst")],
        heldout_paths=[str(artifact.path / "heldout.jsonl.zst")],
        heldout_fraction=0.0,
        max_bytes=None,
        source_field=config.source_field or "source",  # the service
    )
    corpus = Corpus(files)
    # The files stand for themselves by their artifact's hash; filters on documents come on top.
    chosen = {"artifact": artifact.hash, "config": corpus.identity()["config"]}
    return Text(corpus, digest(chosen), facts, artifact)


def count(context: Context, text: Text) -> Artifact:
    """Count the pretokens of the training text, or add up the counts that `bpe.counts` names."""
    config = context.config
    pattern = resolve(config.pattern.regex or config.pattern.name)
    mixture = [_counts_file(entry) for entry in config.bpe.counts]

    def build(folder: Path) -> dict[str, Any]:
        if mixture:
            counts = mix_counts([(PretokenCounts.load(path), weight) for path, weight in mixture])
            _check_counts(counts, pattern, config.bpe)
        else:
            memory = config.runner.memory_mb
            counts = count_pretokens(
                text.corpus,
                pattern,
                unit=config.bpe.unit,
                special_tokens=config.bpe.special_tokens,
                threads=config.runner.threads,
                memory_bytes=None if memory is None else memory * 1_000_000,
                spill_folder=folder,
                progress=context.reporter.progress,
            )
        counts.save(folder / COUNTS)
        return {
            # A mixture may have been counted anywhere: it claims no corpus.
            **({"mixture": [str(path) for path, _ in mixture]} if mixture else {"corpus": text.hash, "split": "train"}),
            "n_distinct": counts.n_distinct,
            "n_pretokens": counts.n_total,
            "n_bytes": counts.n_bytes,
            "n_documents": counts.n_documents,
        }

    chosen: dict[str, Any] = {
        "pattern": pattern.regex,
        "unit": config.bpe.unit,
        "special_tokens": config.bpe.special_tokens,
    }
    inputs = {"corpus": text.hash}
    if mixture:
        chosen["mixture"] = [[hashlib.sha256(path.read_bytes()).hexdigest(), weight] for path, weight in mixture]
        inputs = {}
        context.reporter.say(
            "phase 1 trains on bpe.counts: nothing checks that held-out text was not counted there", style="yellow"
        )
    with context.reporter.stage("count"):
        artifact = context.store.make("count", config=chosen, inputs=inputs, build=build)
    found = artifact.contents
    what = (
        f"{si(found['n_distinct'])} distinct pretokens of {si(found['n_pretokens'])}, "
        f"{si(found['n_bytes'])}B in {si(found['n_documents'])} documents"
    )
    context.done("count", artifact, what)
    return artifact


def _check_counts(counts: PretokenCounts, pattern: Pattern, bpe: BpeConfig) -> None:
    """Raise a UserError, with the setting that helps, if counts were made otherwise than this run would."""
    name = counts.pattern.name
    for found, asked, setting in (
        (counts.pattern.regex, pattern.regex, f"pattern={name}" + (" pattern.regex=…" if name == "custom" else "")),
        (counts.unit, bpe.unit, f"bpe.unit={counts.unit}"),
        (counts.special_tokens, tuple(bpe.special_tokens), f"bpe.special_tokens=[{','.join(counts.special_tokens)}]"),
    ):
        if found != asked:
            raise UserError(
                f"bpe.counts were counted with {setting.partition('=')[0]} {found!r}, and this run has {asked!r}; add "
                f"{setting}, or count again"
            )


def _counts_file(entry: str) -> tuple[Path, int]:
    """Split FILE or FILE:WEIGHT of `bpe.counts`; a folder stands for the counts in it."""
    name, weight = weighted(entry, "bpe.counts")
    path = Path(name)
    if path.is_dir():
        path /= COUNTS
    try:
        check_file(path)
    except FileNotFoundError:
        raise UserError(
            f"bpe.counts names {name!r}, and there is no such file; `python -m experiments.count` makes counts, and "
            f"prints the name of the folder (in artifacts/) that holds them as {COUNTS}"
        ) from None
    return path, weight


def phase2_sources(context: Context, text: Text) -> Mixture:
    """Find the text of phase 2: the corpus, or what `superbpe.sources` names.

    Raises:
        UserError: If a path does not exist, or is a file of held-out text.
    """
    named = [weighted(entry, "superbpe.sources") for entry in context.config.superbpe.sources]
    if not named:
        return Mixture(
            [Source(lambda: text.corpus.batches("train"))], text.hash, {"corpus": text.hash, "split": "train"}
        )
    # Budgets and datasets are about the corpus; what decides which documents are held out stays.
    shared = dataclasses.replace(text.corpus.config, dataset=None, max_bytes=None)
    corpora = [(Corpus(dataclasses.replace(shared, paths=[path])), path, weight) for path, weight in named]
    return Mixture(
        [Source(partial(_training, corpus), weight, f"superbpe.sources {path}") for corpus, path, weight in corpora],
        digest([text.hash, [[corpus.identity(), weight] for corpus, _, weight in corpora]]),
        {"mixture": [f"{path}:{weight}" for path, weight in named], "without_heldout_of": text.hash},
    )


def _training(corpus: Corpus) -> Iterator[Batch]:
    """Training documents; of files besides held-out ones, none whose text is held out."""
    if not corpus.heldout_files:
        yield from corpus.batches("train")
        return
    keep = DocumentFilter()
    for batch in corpus.batches("heldout"):
        keep.exclude(batch)
    for batch in corpus.batches("train"):
        yield keep.apply(batch)[0]


def _embedded_facts(contents: dict[str, Any]) -> list[tuple[str, str]]:
    name = f"{contents['package']} {contents['version']}".strip()
    facts = [("corpus", f"embedded: the documentation texts of {name}")]
    if contents["fallback"]:
        facts.append(("note", "a small fallback; `pip install 'superbpe-framework[demo]'` brings the real one"))
    for split, label in (("train", "training text"), ("heldout", "held-out text")):
        part_ = contents[split]
        facts.append(
            (
                label,
                f"{si(part_['bytes'])}B in {part_['documents']:,} documents of {part_['groups']} services",
            )
        )
    shared = contents["overlap"]
    overlap = (
        f"{shared['shared_sentences']:.1%} of the held-out sentences ({shared['shared_sentence_bytes']:.1%} of "
        "their bytes) also occur somewhere in the training text"
    )
    facts.append(("overlap that remains", overlap))
    return facts
