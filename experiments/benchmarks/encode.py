"""Encoding against other encoders: `python -m experiments.benchmarks.encode FILES [--tokenizers NAMES]`.

One table per tokenizer: one call per document and one call for all, on one core and on several, new text (cold) and the
same text again (warm), whole documents and documents cut to `--length` bytes, and reading from a file. Every run is a
separate process. Encoders that read `tokenizer.json` get ours, tiktoken gets our ranks. The ids of the first
`--slow-bytes` are compared with HF's in the same run, document by document.

Tokenizers are folders, or names of `RECIPES`, which are trained on the text first.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.benchmarks import common, peers
from experiments.benchmarks.peers import Contender
from superbpe import train_superbpe
from tokenizer import Corpus, Tokenizer, UserError, count_pretokens, train_bpe
from tokenizer.formats import HF_FILE, write

HF, OURS = "tokenizers", "ours"
SLOW = (HF, "tiktoken")
LONG, SHORT, FILES = "long", "short", "file"
CALLS = {LONG: "batch", SHORT: "batch", FILES: "files"}
"""Name of the call for all documents."""

EQUAL = "equal"


@dataclass(frozen=True)
class Recipe:
    """Training of a tokenizer; with a transition, superwords are trained with the rules `uw-2025`."""

    pattern: str
    vocab_size: int
    transition: int | None = None


RECIPES = {
    "superwords": Recipe("superbpe", 50_000, 40_000),
    "plain": Recipe("superbpe", 50_000),
    "gpt2": Recipe("gpt2", 32_000),
    "cl100k": Recipe("cl100k", 100_000),
    "llama3": Recipe("llama3", 100_000),
}


@dataclass(frozen=True)
class Run:
    """Work of one process.

    Attributes:
        encoder: "ours", or the distribution.
        documents: Whole (`LONG`), cut (`SHORT`), or whole and in a file (`FILES`).
        call: "loop" (one call per document), "batch" (one call for all) or "files".
        cores: Number of cores that the process may use.
    """

    encoder: str
    documents: str
    call: str
    cores: int


def runs(options: argparse.Namespace) -> list[Run]:
    """Return all runs with one tokenizer, in order."""
    found = []
    for documents in (LONG, SHORT):
        for encoder in (OURS, *options.peers, HF):
            found.append(Run(encoder, documents, "loop", 1))
            found += [Run(encoder, documents, "batch", cores) for cores in (1, options.cores)]
    readers = [OURS, *(peer for peer in options.peers if peer == "gigatoken")]  # the only peer that reads files
    return found + [Run(encoder, FILES, "files", cores) for encoder in readers for cores in (1, options.cores)]


def trained(name: str, corpus: Corpus, options: argparse.Namespace) -> Path:
    """Return the folder of a recipe's tokenizer, and train it on the text if the folder does not exist.

    Raises:
        UserError: If the text cannot be read.
    """
    recipe = RECIPES[name]
    size = options.vocab_size or recipe.vocab_size

    def write_tokenizer(folder: Path) -> None:
        tokenizer = train_bpe(count_pretokens(corpus, recipe.pattern), size)
        if recipe.transition is not None:
            share = recipe.transition / recipe.vocab_size
            tokenizer = train_superbpe(tokenizer, corpus.batches, vocab_size=size, transition=share, rules="uw-2025")
        tokenizer.save(folder)

    return common.cached(options.cache, "tokenizer", [corpus.identity(), name, size], write_tokenizer)


@dataclass(frozen=True)
class Measured:
    """Results of all runs with one tokenizer, and a comparison of each one's ids with HF's."""

    results: dict[Run, common.Result]
    ids: dict[Run, str]

    def refused(self, run: Run) -> bool:
        """Whether the encoder rejects the tokenizer or the text."""
        return "refused" in self.results[run].facts

    def rate(self, run: Run, seconds: str) -> float:
        """Megabytes per second. `seconds` is "cold" or "warm" for clock time, "cold cpu" or "warm cpu" for CPU time."""
        result = self.results[run]
        return float(result.facts["bytes"]) / result.median(seconds) / 1e6

    def best_rate(self, run: Run) -> float:
        """Megabytes per CPU second of the fastest round, new text: for calls so short that one disturbance is half."""
        result = self.results[run]
        return float(result.facts["bytes"]) / result.least("cold cpu") / 1e6

    def cells(self, run: Run) -> tuple[str, str]:
        """The rate on one core, and ours as a multiple of it; empty if there is no such run."""
        if run not in self.results:
            return "", ""
        rate, own = self.rate(run, "cold cpu"), self.rate(replace(run, encoder=OURS), "cold cpu")
        return f"{rate:.1f}", f"{own / rate:.1f}"


def measure(
    folder: Path, documents: Path, wanted: Sequence[Run], options: argparse.Namespace, python: Path | None
) -> Measured:
    """Do runs with one tokenizer, among them HF's in one call on one core.

    Args:
        folder: The tokenizer.
        documents: Text file of documents with separators.
        wanted: The runs.
        options: The command line.
        python: Interpreter of the peers; None for this one.

    Raises:
        UserError: If the tokenizer has no tokenizer.json.
    """
    if not (folder / HF_FILE).is_file():
        raise UserError(f"{folder} has no {HF_FILE}, which the other encoders read; use a one-pass tokenizer")
    with tempfile.TemporaryDirectory() as work:
        arguments = {
            "folder": str(folder),
            "json": str(folder / HF_FILE),
            "text": str(documents),
            "separator": common.SEPARATOR,
            "checked_bytes": options.slow_bytes,
        } | _ranks(Tokenizer.load(folder), Path(work))
        outs = {run: Path(work) / str(number) for number, run in enumerate(wanted)}
        names = {run: f"{run.encoder}, {run.documents}, {run.call}, {run.cores}" for run in outs}
        calls = {names[run]: partial(peers.run, _contender(run, arguments, options, python), outs[run]) for run in outs}
        results = dict(zip(outs, common.in_turn(calls, options.rounds), strict=True))
        digests = {run: out.read_text(encoding="ascii").split() for run, out in outs.items()}
    for run, result in results.items():
        if run.encoder in (HF, OURS) and "refused" in result.facts:
            raise UserError(f"{run.encoder} cannot encode with {folder}: {result.facts['refused']}")
    words = {}
    for run, result in results.items():
        expected = digests[Run(HF, SHORT if run.documents == SHORT else LONG, "batch", 1)]
        refusal = result.facts.get("refused")
        words[run] = refusal.splitlines()[0] if refusal else _agreement(expected, digests[run])
    return Measured(results, words)


def _ranks(tokenizer: Tokenizer, work: Path) -> dict[str, Any]:
    """Arguments for encoders that cannot read tokenizer.json, or not with this pattern."""
    file, refusal = work / "ranks.tiktoken", None
    try:
        write(tokenizer, file, "tiktoken")
    except UserError as error:
        refusal = str(error)
    named = tokenizer.fence is None and tokenizer.pattern.name == "cl100k" and refusal is None
    return {"ranks": str(file), "no_ranks": refusal, "cl100k": named}


def _contender(run: Run, arguments: dict[str, Any], options: argparse.Namespace, python: Path | None) -> Contender:
    given = arguments | {
        "call": run.call,
        "cores": run.cores,
        "length": options.length if run.documents == SHORT else None,
        "max_bytes": options.slow_bytes if run.encoder in SLOW else None,
    }
    interpreter = Path(sys.executable) if run.encoder in (HF, OURS) or python is None else python
    return Contender(run.encoder, run.encoder, given, interpreter, Path(__file__).with_name("encode_jobs.py"))


def _agreement(expected: Sequence[str], found: Sequence[str]) -> str:
    differ = sum(one != other for one, other in zip_longest(expected, found))
    return f"wrong: {differ:,} of {len(expected):,}" if differ else f"{len(expected):,} {EQUAL}"


def show(title: str, measured: Measured, options: argparse.Namespace) -> bool:
    """Print a tokenizer's table and the encoders that reject it; return whether our ids equal HF's."""
    columns = (
        *("", "text", "MB", "each", "ours / its", "batch", "ours / its", "again"),
        *(f"{options.cores} cores", "times", "load s", "peak MB", "per thread", "ids"),
    )
    table = Table(
        title=title,
        caption="each: one call per document; batch: one call for all; MB/s by CPU time on one core, by the clock on "
        f"{options.cores}; medians of {options.rounds}; again: the same text a second time; per thread: MB that each "
        "additional thread keeps (ours); ids: documents with the same ids as HF's",
    )
    for column in columns:
        table.add_column(column, justify="left" if column in ("", "text", "ids") else "right", no_wrap=True)
    versions = {HF: importlib.metadata.version(HF), OURS: ""} | {peer: peers.ENCODERS[peer] for peer in options.peers}
    refusals = {}
    for encoder, documents in dict.fromkeys((run.encoder, run.documents) for run in measured.results):
        name = f"{encoder} {versions[encoder]}".strip()
        each = Run(encoder, documents, "loop", 1)
        one, several = (Run(encoder, documents, CALLS[documents], cores) for cores in (1, options.cores))
        if measured.refused(one):
            refusals[name] = measured.ids[one]
            continue
        said = [measured.ids[run] for run in (one, several, each) if run in measured.ids]
        wide = measured.rate(several, "cold")
        table.add_row(
            *(name, documents, f"{measured.results[one].facts['bytes'] / 1e6:.1f}"),
            *(*measured.cells(each), *measured.cells(one), f"{measured.rate(one, 'warm cpu'):.1f}"),
            *(f"{wide:.1f}", f"{wide / measured.rate(one, 'cold'):.2f}"),
            *(f"{measured.results[one].median(key):.{digits}f}" for key, digits in (("load", 2), ("peak_mb", 0))),
            f"{measured.results[one].median('thread_mb'):.0f}" if "thread_mb" in measured.results[one].facts else "",
            next((words for words in said if not words.endswith(EQUAL)), said[0]),
        )
    common.CONSOLE.print(table)
    for name, words in refusals.items():
        common.CONSOLE.print(f"{name} rejects it: {words}", markup=False)
    return all(words.endswith(EQUAL) for run, words in measured.ids.items() if run.encoder == OURS)


def add_tokenizers(options: argparse.ArgumentParser, default: Sequence[str]) -> None:
    """Add the options for tokenizers, peers and lengths of documents."""
    options.add_argument(
        "--tokenizers",
        nargs="+",
        default=default,
        help=f"folders of one-pass tokenizers, or recipes to train on the text: {', '.join(RECIPES)} "
        f"(default {' '.join(default)})",
    )
    options.add_argument("--vocab-size", type=common.positive, help="size of trained ones (default: the recipe's)")
    names = [name for name in peers.ENCODERS if name != HF]
    common.add_peers(options, names, "encoders to compare with, besides HF", "plain text and trained tokenizers")
    options.add_argument("--length", type=common.positive, default=200, help="bytes of short documents (default 200)")
    options.add_argument(
        "--slow-bytes",
        type=common.size,
        default="5MB",
        metavar="SIZE",
        help=f"text for {' and '.join(SLOW)}, and for the comparison of ids (default 5MB)",
    )


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    options = common.parser("Encoding beside other encoders.")
    add_tokenizers(options, list(RECIPES))
    options.add_argument("--cores", type=common.positive, default=2, help="number of cores besides one (default 2)")
    return common.parse_peers(options, argv)


@common.command
def main(argv: list[str]) -> int:
    """Run the contenders and print the tables; return 1 if our ids differ from HF's, 2 for a user error."""
    options = parse(argv)
    corpus = common.corpus(options.paths, options.field, options.max_bytes)
    text = common.PlainText.of(corpus, options.cache)
    folders = [trained(name, corpus, options) if name in RECIPES else Path(name) for name in options.tokenizers]
    loaded = [Tokenizer.load(folder) for folder in folders]
    python = peers.environment(options.peers_venv) if options.peers else None
    equal = []
    for name, folder, tokenizer in zip(options.tokenizers, folders, loaded, strict=True):
        title = f"{name}: {tokenizer.vocab_size:,} tokens, {(tokenizer.fence or tokenizer.pattern).name}"
        equal.append(show(title, measure(folder, text.documents, runs(options), options, python), options))
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
