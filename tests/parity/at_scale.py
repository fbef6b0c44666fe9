"""Compare ids with HF `tokenizers` and tiktoken on much text: `python -m tests.parity.at_scale FILES --bytes 1GB`.

Tokenizers are trained here, on the first `--train-bytes` of the text. Batches of documents go to each tokenizer and to
each of the two libraries in turn; half of the documents are damaged first. After the last batch the text is read again,
shifted by one turn. Prints the bytes, documents and tokens compared with each; the exit code is 1 if any id differs.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import TYPE_CHECKING

import numpy as np
import tokenizers

from experiments.benchmarks import harness
from experiments.cli.arguments import size, whole
from superbpe import train_superbpe
from tests import texts
from tokenizer import Tokenizer, count_pretokens, formats, train_bpe
from tokenizer.formats.tiktoken import to_encoding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from tokenizer import Corpus

HF, TIKTOKEN = "tokenizers", "tiktoken"
PATTERNS = ("gpt2", "cl100k", "o200k", "llama3", "superbpe")
SUPERWORDS = "superwords"
_BATCH_BYTES = 1 << 18


def trained(corpus: Corpus, vocab_size: int) -> dict[str, Tokenizer]:
    """A tokenizer of each pattern, and superwords by the rules `uw-2025`."""
    batches = list(corpus.batches())
    plain = {pattern: train_bpe(count_pretokens(batches, pattern), vocab_size) for pattern in PATTERNS}
    superwords = train_superbpe(
        plain["superbpe"], lambda: batches, vocab_size=vocab_size, transition=0.8, rules="uw-2025"
    )
    return plain | {SUPERWORDS: superwords}


def encoders(ours: Tokenizer) -> dict[str, Callable[[list[str]], list[Sequence[int]]]]:
    """The same tokenizer in each library, as a function from texts to ids. Special strings are ordinary text."""
    hf = tokenizers.Tokenizer.from_str(json.dumps(formats.hf_json(ours)))
    hf.encode_special_tokens = True
    tiktoken = to_encoding(ours)
    return {
        HF: lambda batch: [encoding.ids for encoding in hf.encode_batch_fast(batch, add_special_tokens=False)],
        TIKTOKEN: lambda batch: tiktoken.encode_ordinary_batch(batch, num_threads=1),
    }


def damaged(rng: random.Random, document: str) -> str:
    """The document with parts repeated, left out, moved, upper-cased, and replaced by generated Unicode text."""
    generated = texts.generated(rng.randrange(64))
    parts, at = [], 0
    while at < len(document):
        end = at + rng.randint(1, 400)
        part = document[at:end]
        place = rng.randrange(len(generated))
        parts.append(
            rng.choice(
                [
                    part,
                    part,
                    part.upper(),
                    part[: rng.randint(0, len(part))],
                    part.replace(" ", rng.choice(texts.SPACES)),
                    part + generated[place : place + rng.randint(1, 60)],
                    "".join(chr(_scalar(rng)) for _ in range(rng.randint(1, 8))) + part,
                    part[: rng.randint(1, 3)] * rng.randint(1, 40),
                ]
            )
        )
        at = end
    if rng.random() < 0.3:
        rng.shuffle(parts)
    return "".join(parts)


def _scalar(rng: random.Random) -> int:
    """Any Unicode scalar value, mostly in the lower planes."""
    code = rng.randrange(rng.choice([0x80, 0x800, 0x3000, 0x10000, 0x20000, 0x110000]))
    return code if not 0xD800 <= code < 0xE000 else 0xFFFD


@dataclass
class Compared:
    """Counts of a comparison with one library under one tokenizer."""

    counts: Counter[str] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)
    """The first differences."""


def first_difference(ours: npt.NDArray[np.uint32], theirs: Sequence[int]) -> int | None:
    """Index of the first different id; None if all are equal."""
    other = np.asarray(theirs, dtype=np.uint32)
    if np.array_equal(ours, other):
        return None
    n = min(len(ours), len(other))
    different = np.flatnonzero(ours[:n] != other[:n])
    return int(different[0]) if len(different) else n


def batches(documents: Iterable[str]) -> Iterator[list[str]]:
    """Documents in lists of about `_BATCH_BYTES`."""
    batch, size = [], 0
    for document in documents:
        batch.append(document)
        size += len(document)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def compare(
    corpus: Corpus, made: dict[str, Tokenizer], n_bytes: int, *, seed: int = 0, progress: Callable[[int], None]
) -> dict[tuple[str, str], Compared]:
    """Compare the ids of at least `n_bytes` bytes of text."""
    libraries = {name: encoders(ours) for name, ours in made.items()}
    turns = [(name, library) for name in made for library in (HF, TIKTOKEN)]
    found = {turn: Compared() for turn in turns}
    done = 0
    for turn_of_text in count():
        for number, batch in enumerate(batches(corpus.documents())):
            name, library = turn = turns[(number + turn_of_text) % len(turns)]
            rng = random.Random(f"{seed} {turn_of_text} {number}")
            given = [damaged(rng, document) if rng.random() < 0.5 else document for document in batch]
            ids, offsets = made[name].encode_batch(given, threads=1)
            result = found[turn]
            for text, (start, end), theirs in zip(
                given, pairwise(offsets.tolist()), libraries[name][library](given), strict=True
            ):
                size = len(text.encode())
                done += size
                result.counts.update(bytes=size, documents=1, tokens=end - start)
                if (at := first_difference(ids[start:end], theirs)) is not None:
                    result.counts["differences"] += 1
                    before = len(made[name].decode(ids[start : start + at]))
                    result.first.append(repr(text[max(before - 40, 0) : before + 40]))
            progress(done)
            if done >= n_bytes:
                return found
    raise AssertionError


def main(argv: list[str]) -> int:
    """Compare and print a line for each tokenizer and library; return 1 if any id differs."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("paths", nargs="+", help="text: .txt, .jsonl[.gz|.zst] or .parquet files, directories, globs")
    options.add_argument("--bytes", type=size, default="10MB", metavar="SIZE", help="default 10MB")
    options.add_argument("--train-bytes", type=size, default="50MB", metavar="SIZE", help="default 50MB")
    options.add_argument("--vocab-size", type=whole(), default=32_000, help="default 32000")
    options.add_argument("--field", default="text", help="field that holds the text (default text)")
    options.add_argument("--seed", type=int, default=0)
    arguments = options.parse_args(argv)
    corpus = harness.corpus(arguments.paths, arguments.field, None)
    made = trained(harness.corpus(arguments.paths, arguments.field, arguments.train_bytes), arguments.vocab_size)
    began = said = time.monotonic()

    def progress(done: int) -> None:
        nonlocal said
        if (now := time.monotonic()) > said + 60:
            said = now
            print(f"{done / 1e6:,.0f} MB in {now - began:.0f} s", file=sys.stderr, flush=True)

    found = compare(corpus, made, arguments.bytes, seed=arguments.seed, progress=progress)
    total: Counter[str] = Counter()
    for (name, library), result in found.items():
        total.update(result.counts)
        print(f"{name}, {library}: {_words(result.counts)}", *result.first[:5], sep="\n    ")
    print(f"in all: {_words(total)}, {time.monotonic() - began:.0f} s")
    return 1 if total["differences"] else 0


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[what]:,} {what}" for what in ("bytes", "documents", "tokens", "differences"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
