"""Phase 1 beside HF tokenizers: `python -m experiments.benchmarks.train_bpe FILES`.

Both read the same files, whole documents, and train the same vocabulary with the same pattern; the merges are
compared. HF gets its documents through our reader, since it reads no compressed JSON itself.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

from experiments.benchmarks import common
from tokenizer import Corpus, CorpusConfig, count_pretokens, patterns, train_bpe
from tokenizer.formats import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


def corpus(arguments: argparse.Namespace) -> Corpus:
    """The text that the command line names."""
    return Corpus(CorpusConfig(paths=arguments.paths, field=arguments.field, max_bytes=arguments.max_bytes))


def digest(merges: list[tuple[str, str]]) -> str:
    """A short hash of merges in HF's notation."""
    return hashlib.sha256(json.dumps([list(merge) for merge in merges]).encode()).hexdigest()[:12]


def ours(arguments: argparse.Namespace) -> dict[str, Any]:
    """Counts and trains; the time includes reading."""
    started = time.perf_counter()
    counts = count_pretokens(corpus(arguments).batches(), arguments.pattern)
    counted = time.perf_counter()
    tokenizer = train_bpe(counts, arguments.vocab_size, special_tokens=())
    ended = time.perf_counter()
    return {
        "seconds": ended - started,
        "bytes": counts.n_bytes,
        "counting": f"{counted - started:.2f}",
        "merging": f"{ended - counted:.2f}",
        "merges": digest([(printable(left), printable(right)) for left, right in tokenizer.merges]),
    }


def hugging_face(arguments: argparse.Namespace) -> dict[str, Any]:
    """The same with `BpeTrainer`."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    started = time.perf_counter()
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(patterns.resolve(arguments.pattern).regex), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=arguments.vocab_size,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    n_bytes = 0

    def texts() -> Iterator[str]:
        nonlocal n_bytes
        for batch in corpus(arguments).batches():
            n_bytes += batch.n_bytes
            yield from map(batch.text, range(len(batch)))

    trained.train_from_iterator(texts(), trainer)
    seconds = time.perf_counter() - started
    merges = json.loads(trained.to_str())["model"]["merges"]
    return {"seconds": seconds, "bytes": n_bytes, "merges": digest([tuple(merge) for merge in merges])}


def main() -> None:
    """Runs the contenders and prints the table."""
    options = common.parser("Phase-1 training beside HF tokenizers.")
    options.add_argument("--vocab-size", type=int, default=32_000)
    options.add_argument("--pattern", default="gpt2", help="a named pattern (default gpt2)")
    arguments = options.parse_args()
    results = common.compare({"ours": ours, "HF tokenizers": hugging_face}, arguments)
    title = f"BPE, vocabulary {arguments.vocab_size}, pattern {arguments.pattern}"
    common.CONSOLE.print(common.table(title, results, extra=("counting", "merging", "merges")))
    same = len({result.facts["merges"] for result in results}) == 1
    common.CONSOLE.print("merges: identical, in order" if same else "merges: THEY DIFFER")
    raise SystemExit(0 if same else 1)


if __name__ == "__main__":
    main()
