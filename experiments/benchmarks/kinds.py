"""Encoding of every kind of text: `python -m experiments.benchmarks.kinds [FILES]`.

One table per tokenizer with a row per kind (prose, code, markup, scripts), for whole documents and for documents cut to
`--length` bytes, each against the fastest other encoder whose ids equal HF's. One core, new text (cold).

The kind of a document is a field of its record. Without files, the text is what every machine with this framework has:
sources, headers, data and descriptions of installed packages. Every other document of each kind
trains the tokenizers, and the rest is encoded, so that the tokenizers have not seen it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import sys
import sysconfig
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

import xxhash
from rich.table import Table

from experiments.benchmarks import common, encode, peers
from experiments.benchmarks.encode import HF, LONG, OURS, SHORT, Measured, Run
from tokenizer import Corpus, CorpusConfig, Tokenizer
from tokenizer.corpus.origins import documents_by_origin
from tokenizer.errors import check_choice

TRAINING = "training.jsonl"
KINDS_OF_FILES = {"python": "*.py", "c": "*.h", "javascript": "*.js", "json": "*.json.gz", "markdown": "METADATA"}
"""Files of installed packages."""

Texts = dict[str, list[str]]
"""Documents by kind."""

T = TypeVar("T")


def of_files(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Kind and text of each document of the files."""
    config = CorpusConfig(paths=options.paths, field=options.field, source_field=options.kind_field)
    return documents_by_origin(Corpus(config), "train")


def installed(n_bytes: int) -> Iterator[tuple[str, str]]:
    """Kind and text of files that are on every machine with this framework, about `n_bytes` of each kind."""
    folders = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    for kind, pattern in KINDS_OF_FILES.items():
        # Files in the order of a hash, because those of one package are alike.
        paths = set(chain.from_iterable(folder.rglob(pattern) for folder in folders))
        left = n_bytes
        for path in sorted(paths, key=lambda path: xxhash.xxh64_digest(str(path).encode())):
            data = path.read_bytes()
            text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace")
            yield kind, text
            left -= len(text)
            if left <= 0:
                break


def collected(documents: Iterator[tuple[str, str]], n_bytes: int) -> tuple[Texts, Texts]:
    """Return documents to train on and documents to encode, about `n_bytes` of each kind; no document is in both."""
    sizes: Counter[tuple[str, bool]] = Counter()
    training: Texts = defaultdict(list)
    encoded: Texts = defaultdict(list)
    seen = set()
    for kind, text in documents:
        trains = sizes[kind, True] <= sizes[kind, False]
        text = text.replace(common.SEPARATOR, "")[:n_bytes]
        digest = xxhash.xxh3_128_digest(text.encode())
        if not text or digest in seen or sizes[kind, trains] >= n_bytes:
            continue
        seen.add(digest)
        (training if trains else encoded)[kind].append(text)
        sizes[kind, trains] += len(text.encode())
    return training, encoded


def written(texts: tuple[Texts, Texts], cache: Path) -> tuple[Corpus, dict[str, Path]]:
    """Write the texts into `cache`: a corpus to train on, and per kind a text file of documents with separators."""
    training, encoded = texts

    def write(folder: Path) -> None:
        with (folder / TRAINING).open("w", encoding="utf-8") as file:
            for text in chain.from_iterable(training.values()):
                file.write(json.dumps({"text": text}) + "\n")
        for kind, documents in encoded.items():
            (folder / f"{kind}.txt").write_text(common.SEPARATOR.join(documents), encoding="utf-8", newline="")

    key = [{kind: xxhash.xxh3_128_hexdigest("\0".join(found[kind]).encode()) for kind in found} for found in texts]
    folder = common.cached(cache, "kinds", key, write)
    return common.corpus([str(folder / TRAINING)], "text", None), {kind: folder / f"{kind}.txt" for kind in encoded}


def add_kinds(options: argparse.ArgumentParser) -> None:
    """Add the options for the kinds of text."""
    options.add_argument(
        "--kind-field", default="source", help="field that names the kind of a document (default source)"
    )
    options.add_argument("--kinds", nargs="+", help="kinds to measure (default: all)")


def documents(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Kind and text of each document that the command line names."""
    return of_files(options) if options.paths else installed(3 * options.max_bytes)


def chosen(options: argparse.Namespace, found: Mapping[str, T]) -> dict[str, T]:
    """Return what was found of the kinds that the command line names.

    Raises:
        UserError: If a kind does not occur in the text.
    """
    for kind in options.kinds or ():
        check_choice("--kinds", kind, list(found))
    return {kind: found[kind] for kind in options.kinds or found}


def runs(encoders: Sequence[str]) -> list[Run]:
    """Return the runs on a text."""
    lengths_and_calls = [(LONG, "batch"), (LONG, "loop"), (SHORT, "batch"), (SHORT, "loop")]
    return [Run(encoder, documents, call, 1) for documents, call in lengths_and_calls for encoder in encoders]


def against_best(measured: Measured, documents: str, call: str) -> tuple[float, float, str]:
    """Our MB/s, that of the fastest other encoder with HF's ids, and its name."""
    rates = {
        run.encoder: measured.best_rate(run)
        for run in measured.results
        if (run.documents, run.call) == (documents, call) and measured.ids[run].endswith(encode.EQUAL)
    }
    own = rates.pop(OURS, math.nan)
    best = max(rates, key=rates.__getitem__)
    return own, rates[best], best


def show(title: str, found: dict[str, Measured], options: argparse.Namespace) -> bool:
    """Print a tokenizer's table; return whether our ids equal HF's."""
    table = Table(
        title=title,
        caption="MB per CPU second on one core, new text: ours / the fastest other encoder with the ids of HF, ratio; "
        f"batch: one call for all documents; each: one call per document; short: {options.length} bytes; the "
        f"fastest of {options.rounds} rounds",
    )
    calls = [(documents, call) for documents in (LONG, SHORT) for call in ("batch", "loop")]
    for column in ("kind", "MB", *(f"{documents}, {'each' if call == 'loop' else call}" for documents, call in calls)):
        table.add_column(column, justify="left" if column == "kind" else "right", no_wrap=True)
    equal = True
    for kind, measured in found.items():
        cells = []
        for documents, call in calls:
            own, best, name = against_best(measured, documents, call)
            cells.append(f"{own:.0f} / {best:.0f} {name} {own / best:.2f}")
        n_bytes = measured.results[Run(OURS, LONG, "batch", 1)].facts["bytes"]
        table.add_row(kind, f"{n_bytes / 1e6:.1f}", *cells)
        equal &= all(words.endswith(encode.EQUAL) for run, words in measured.ids.items() if run.encoder == OURS)
    common.CONSOLE.print(table)
    return equal


def show_shares(superwords: dict[str, Measured], plain: dict[str, Measured]) -> None:
    """Print our speed with superwords as a share of that without them."""
    table = Table(title="superwords", caption="our speed with superwords / our speed with plain, the same without them")
    for column in ("kind", "long, batch", "long, each", "short, batch", "short, each"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for kind, measured in superwords.items():
        calls = [Run(OURS, length, call, 1) for length in (LONG, SHORT) for call in ("batch", "loop")]
        shares = [measured.best_rate(run) / plain[kind].best_rate(run) for run in calls]
        table.add_row(kind, *(f"{share:.2f}" for share in shares))
    common.CONSOLE.print(table)


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    options = common.parser("Encoding of every kind of text beside other encoders.", paths="*")
    add_kinds(options)
    encode.add_tokenizers(options, ["gpt2", "llama3", "plain", "superwords"])
    options.set_defaults(max_bytes=2_000_000, length=300, slow_bytes=500_000)
    return common.parse_peers(options, argv)


@common.command
def main(argv: list[str]) -> int:
    """Measure and print the tables; return 1 if our ids differ from HF's, 2 for a user error."""
    options = parse(argv)
    encoders = (OURS, *options.peers, HF)
    corpus, files = written(collected(documents(options), options.max_bytes), options.cache)
    files = chosen(options, files)
    python = peers.environment(options.peers_venv) if options.peers else None
    equal, found = True, {}
    for name in options.tokenizers:
        folder = encode.trained(name, corpus, options) if name in encode.RECIPES else Path(name)
        loaded = Tokenizer.load(folder)
        rows = {kind: encode.measure(folder, file, runs(encoders), options, python) for kind, file in files.items()}
        equal &= show(f"{name}: {loaded.vocab_size:,} tokens", rows, options)
        found[name] = rows
    if {"plain", "superwords"} <= found.keys():
        show_shares(found["superwords"], found["plain"])
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
