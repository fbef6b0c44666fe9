from __future__ import annotations

__doc__ = """`superbpe choose TEXT...`: which tokenizer for this text, before any model is trained.

Trains a grid of tokenizers on most of the text, counts their tokens on documents that none of them was trained on, and
prices a model that is served with each. Names at most four finalists and the command that compares them by language
models on a third part of the text. Writes `choose.html`, a page that opens offline, its numbers as `choose.json` and
`choose.csv`, and the finalists as folders. NAME=PATH names the source of a text. An interrupted command resumes.
"""

import argparse
import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.cli.arguments import (
    Parser,
    add_text,
    add_threads,
    number,
    open_any,
    out_folder,
    tokenizers_of,
    transition,
    whole,
)
from experiments.cli.console import finish
from experiments.fertility import measures
from experiments.fertility.choosing import CHEAPEST, cost_curve, finalists, margin, price
from experiments.fertility.grid import Cell, Trainer, grid
from experiments.fertility.tallies import read, tally, text_of
from experiments.numbers import duration, si
from experiments.progress import Reporter
from experiments.report import choose_page as page
from experiments.report.figures import to_csv
from experiments.shell import hydra_names, operand, setting
from lm.evaluate.bits_per_byte import SOURCE
from lm.evaluate.comparison import FEWEST_EFFECTIVE
from superbpe import PRESETS
from tokenizer import Corpus, CorpusConfig, Tokenizer, UserError
from tokenizer.corpus.origins import documents_by_origin
from tokenizer.corpus.seen import about, saw
from tokenizer.durable import replacing, write_json, write_whole
from tokenizer.errors import listed
from tokenizer.files import checksum, digest, read_sealed, shown, write_sealed
from tokenizer.formats.readers import opens_in, summary
from tokenizer.patterns import resolve
from tokenizer.progress import Throttle, thread_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.fertility.tallies import Documents, Tally
    from tokenizer.progress import Progress

PAGE, NUMBERS, TABLE, SELECTION, FOLDER = "choose.html", "choose.json", "choose.csv", "selection.jsonl", "tokenizers"
PATTERNS, PRESETS_TRIED = ("o200k", "llama3", "superbpe"), ("digits", "uw-2025", "sentence")
"""Patterns of BPE, of which the first is full-strength BPE's, and presets of superwords; `--quick` tries the first."""
TEST_SHARE = 0.5
"""Share of the held-out documents that `choose` does not measure, for the comparison by language models."""
HELD_OUT, HELD_OUT_BYTES = 0.2, 10_000_000
"""Share of the documents that is held out, and the most text, as stored."""
TEST_BYTES = 1_000_000
"""Most text, as stored, that the command for the models scores."""
CONTEXT_BYTES = 768
"""`eval.context_bytes` of `superbpe pipeline`, the length of the longest allowed token."""
SAMPLE_BYTES = 1_000_000
"""Text on which a tokenizer that only other software can run is measured: that software may take a second per MB."""


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("choose", __doc__, "trained tokenizers are kept, and the same command resumes after them")
    add = options.add_argument
    add_text(options)
    add("--out", type=Path, default=Path("choose"), metavar="FOLDER", help="(%(default)s)")
    add("--against", nargs="+", default=[], metavar="[NAME=]TOKENIZER", help="existing tokenizers to compare")
    add("--reference", metavar="NAME", help="tokenizer to compare with (the cheapest BPE of the first pattern)")
    add("--sizes", nargs="+", type=whole(257), metavar="N", help="sizes of the vocabulary (8k 16k 32k 64k)")
    add("--patterns", nargs="+", metavar="PATTERN", help=f"patterns ({' '.join(PATTERNS)}, and those of the presets)")
    add("--presets", nargs="*", choices=PRESETS, metavar="PRESET", help=f"superwords ({' '.join(PRESETS_TRIED)})")
    add(
        "--transitions", nargs="+", type=transition, metavar="SHARE",
        help="where superwords start: shares of the vocabulary, or numbers of tokens (0.8 0.9)",
    )  # fmt: skip
    add("--quick", action="store_true", help="a small grid: o200k, digits at 0.9, 16k and 32k")
    add("--heldout", type=number(0, 0.5), help="share of documents to hold out, half for models (0.2, at most 10 MB)")
    add("--source-field", metavar="FIELD", help="field that names the source (default: the file)")
    measures.add_deployment(options)
    add_threads(options)
    return options


def run(arguments: argparse.Namespace) -> None:
    """Train the grid, measure it, write the page, and print the answer."""
    threads, reporter = thread_count(arguments.threads), Reporter()
    deployed, quick = measures.deployment(arguments.deployment), arguments.quick
    for pattern in arguments.patterns or []:
        resolve(pattern)
    cells = grid(
        arguments.patterns,
        PRESETS_TRIED[: 1 if quick else None] if arguments.presets is None else arguments.presets,
        arguments.transitions or ([0.9] if quick else [0.8, 0.9]),
        sorted(arguments.sizes or ([16_000, 32_000] if quick else [8_000, 16_000, 32_000, 64_000])),
        PATTERNS[: 1 if quick else None],
    )
    paths = tokenizers_of(arguments.against)
    names = [*paths, *(cell.name for cell in cells)]
    if arguments.reference not in (None, *names):
        raise UserError(f"--reference {arguments.reference!r} is not a tokenizer; the names are {', '.join(names)}")
    existing = {name: open_any(path) for name, path in paths.items()}
    corpus = text_of(arguments, arguments.text)
    share = min(HELD_OUT, float(f"{HELD_OUT_BYTES / max(sum(corpus.sizes()), 1):.2g}"))
    corpus = Corpus(replace(corpus.config, heldout_fraction=arguments.heldout or share))
    split = {
        "text": about(corpus)["places"],
        "source_field": corpus.config.source_field,
        "corpus": digest(corpus.identity()),
        "heldout_fraction": corpus.config.heldout_fraction,
        "test_share": TEST_SHARE,
    }
    with out_folder(arguments.out) as out:
        with reporter.stage("text"):
            text = _selection(corpus, out / SELECTION, split, reporter.progress)
            documents = read(text)
            answers = {name: saw(one.tokenizer, documents.hashes, corpus) for name, one in existing.items()}
        for name, answer in answers.items():
            if answer.saw_much:
                raise UserError(
                    f"--against {answer.sentence(name)}, so it would seem too good for this text; give text that it "
                    "has not seen, or leave it out"
                )
        trainer = Trainer(corpus, out / "trained", split, reporter, threads)
        trained = trainer.train(cells)
        for name, loaded in existing.items() if any(cell.preset for cell in cells) else ():
            if isinstance(start := loaded.tokenizer, Tokenizer) and start.fence is None:
                try:
                    trained[f"{name}-extended"] = trainer.extend(start, name, PRESETS_TRIED[0])
                except UserError as error:
                    reporter.say(f"{name} cannot be extended with superwords: {error}", style="yellow")
        base = Cell(max(cell.size for cell in cells), cells[0].pattern)
        quarters = trainer.quarters(base)
        with reporter.stage("tokens"):
            measured = [one.tokenizer for one in existing.values()]
            measured += [one.tokenizer for one in (*trained.values(), *quarters)]
            tallies = tally(
                measured, text, documents, threads=threads, progress=reporter.progress, sample_bytes=SAMPLE_BYTES
            )
        counted = dict(zip([*existing, *trained], tallies, strict=False))
        report = measures.report(arguments, corpus, documents, "", deployed)
        n_bytes = report["text"]["bytes"]

        def cost(one: Tally) -> float:
            return float(cost_curve(deployed, one.tokenizer.vocab_size)(one.tokens.sum() / n_bytes))

        least = margin([cost(one) for one in tallies[len(counted) :]])
        recipes = {name: name for name in counted} | {cell.name: cell.recipe for cell in cells}
        plain = [name for name in trained if recipes[name] == base.recipe]
        reference = arguments.reference or min(plain, key=lambda name: cost(counted[name]), default="")
        if reference not in counted:
            raise UserError(f"the text is too small for {reference or base.name}; use smaller --sizes, or more text")
        priced = price(counted, recipes, reference, documents, deployed)
        chosen = finalists(priced, reference, least, paths)
        places = {name: paths.get(name, str(out / FOLDER / name)) for name in chosen}
        for name in places.keys() & trained.keys():
            trained[name].tokenizer.save(places[name])
        readers = {name: opens_in(counted[name].tokenizer) for name in chosen}
        report |= {
            "reference": reference,
            "split": split,
            "training_bytes": sum(one.tokenizer.provenance["phase1"]["corpus_bytes"] for one in quarters),
            "smallest_saving": least,
            "finalists": [
                {
                    "name": name,
                    "why": why,
                    "folder": places[name],
                    "examples": _examples(counted[name]),
                    "opens_in": {answer.reader: answer.text for answer in readers[name]},
                }
                for name, why in chosen.items()
            ],
            "existing": [*existing],
            "unknown": [answer.sentence(name) for name, answer in answers.items() if answer.saw or answer.unknown],
            "missing": [cell.name for cell in cells if cell.name not in trained],
            "bakeoff": _bakeoff(arguments, corpus, documents, places, [counted[name] for name in places]),
            "tokenizers": priced,
        }
        for one in priced:
            name = one["name"]
            rows = measures.rows(name, counted[name], documents, counted[reference], deployed=deployed)
            report["rows"] += rows
            counts = trained[name].counts.tolist() if name in trained else []
            one |= {key: rows[0][key] for key in ("documents", "bytes_per_token", "cache_bytes_per_byte")}
            one["parameters"] = 2 * deployed.hidden_size * one["vocab_size"]
            one["last_count"] = counts[-1] if counts else None
            one["software"] = existing[name].about()["software"] if name in existing else None
        write_json(out / NUMBERS, report)
        write_whole(out / TABLE, to_csv(report["tokenizers"]))
        write_whole(out / PAGE, page.render(report))
    title = f"{len(priced)} tokenizers on {si(n_bytes)}B of held-out text: finalists, and the cheapest up to a size; "
    title += f"costs of serving {report['deployment']['name']}"
    table = page.table(report, page.shown(report))
    reporter.table(title, table.header[:5], [row[:5] for row in table.rows])
    reporter.say(page.headline(report), style="bold")
    for name, why in list(chosen.items())[1:]:
        if not why.startswith(CHEAPEST):  # which the headline says
            reporter.say(f"{name} is {why}.")
    for name, opens in readers.items():
        if opens:
            reporter.say(f"{name} {summary(opens)}.")
    for note in page.notes(report):
        reporter.say(note, style="yellow")
    if report["bakeoff"]["seconds"]:
        reporter.say(f"comparing their models takes about {duration(report['bakeoff']['seconds'])} on two cores")
    then = report["bakeoff"]["command"] or ["inspect", operand(places[reference])]
    finish(*(arguments.out / name for name in (PAGE, TABLE, NUMBERS)), then=then)


def _selection(corpus: Corpus, path: Path, split: dict[str, Any], progress: Progress | None) -> Corpus:
    """The documents to choose by, as a file that `fertility` can measure too; a whole one is used."""
    record, done = path.with_suffix(".json"), dict[str, Any]()
    with suppress(OSError, UserError):  # there is none, or it is damaged
        done = read_sealed(record)
    answered = done.get("text", []) if path.with_name(NUMBERS).exists() else []
    if answered and not set(answered) & set(split["text"]):
        raise UserError(
            f"--out {path.parent} has the answer for other text ({listed(answered)}); name another folder, or remove it"
        )
    if not path.exists() or done != {**split, "checksum": checksum(path, again=True)}:
        test = Corpus(replace(corpus.config, heldout_sample=TEST_SHARE))
        tested = {hashlib.sha256(text.encode()).digest() for _, text in documents_by_origin(test, "heldout")}
        tick, n_bytes, kept = Throttle(progress, "bytes held out"), 0, set[bytes]()
        with replacing(path) as file:
            for source, text in documents_by_origin(corpus, "heldout"):
                data = text.encode()
                hashed = hashlib.sha256(data).digest()
                if hashed not in tested:
                    file.write(json.dumps({"text": text, "source": source}).encode() + b"\n")
                    kept.add(hashed)
                tick(n_bytes := n_bytes + len(data))
        if len(kept) < measures.LEAST_DOCUMENTS:
            raise UserError(
                f"only {len(kept)} different documents are held out to choose by, and at least "
                f"{measures.LEAST_DOCUMENTS} are required; use more documents (a .txt file is one, unless --separator "
                "splits it) or a larger --heldout"
            )
        write_sealed(record, {**split, "checksum": checksum(path)})
    return Corpus(CorpusConfig(paths=[str(path)], source_field="source"))


def _examples(counted: Tally) -> list[str]:
    """The superwords that occur most in the text."""
    tokenizer = counted.tokenizer
    ids = tokenizer.superword_ids()
    best = ids[np.argsort(-counted.counts[ids], kind="stable")[:12]].tolist()
    return [tokenizer.vocab[i].decode(errors="replace") for i in best if counted.counts[i]]


def _bakeoff(
    arguments: argparse.Namespace, corpus: Corpus, documents: Documents, places: dict[str, str], made: Sequence[Tally]
) -> dict[str, Any]:
    """Words of the command that compares the finalists on text not measured here, and its seconds on two cores.

    The model of `experiment=bakeoff` has 4 layers of width 128, 0.8 million weights, and a head of 128 per token. Its
    runs with 8,192 tokens take 600 s per tokenizer.
    """
    if len(places) < 2:
        return {"command": [], "seconds": None}
    config, usual = corpus.config, asdict(CorpusConfig())
    text = {key: value for key, value in asdict(config).items() if value != usual[key]}
    if config.sources:
        text["sources"] = {name: config.sources[old] for old, name in hydra_names(config.sources, ":. ").items()}
    text["heldout_sample"] = min(
        TEST_SHARE, float(f"{TEST_BYTES / max(config.heldout_fraction * sum(corpus.sizes()), 1):.2g}")
    )
    arms = {name: places[old] for old, name in hydra_names(places).items()}  # the reference first
    words = ["pipeline", "experiment=bakeoff", "corpus=files", f"arms=[{','.join(arms)}]"]
    words += [setting(f"corpus.{key}", value) for key, value in text.items()]
    for arm, place in arms.items():
        words.append(setting(f"arms.{arm}.{'file' if Path(place).exists() else 'pretrained'}", place))
    words += [f"deployment{'.' if '=' in word else '='}{word}" for word in arguments.deployment]
    if sum(group.by == SOURCE for group in documents.groups) < FEWEST_EFFECTIVE[SOURCE]:  # so few decide nothing
        words.append("eval.cluster=document")
    if (longest := max(int(one.tokenizer.token_byte_lengths().max()) for one in made)) > CONTEXT_BYTES:
        words.append(f"eval.context_bytes={longest}")
    seconds = sum(600 * (0.8e6 + 128 * one.tokenizer.vocab_size) / (0.8e6 + 128 * 8192) for one in made)
    return {"command": list(map(shown, words)), "seconds": seconds}
