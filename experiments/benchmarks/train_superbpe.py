"""Both phases: `python -m experiments.benchmarks.train_superbpe FILES`.

Stock HF tokenizers cannot resume from given merges, so it trains from scratch on the phase-2 fence, which is
the nearest it can do and needs memory for every line: by default on the first 5 MB only. Compare times per
byte; that assumes, in its favour, that its time grows no faster than the text.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from experiments.benchmarks import common
from experiments.benchmarks.train_bpe import corpus
from superbpe import PRESETS, train_superbpe
from tokenizer import count_pretokens, patterns, train_bpe

if TYPE_CHECKING:
    import argparse


def ours(arguments: argparse.Namespace) -> dict[str, Any]:
    """Counting, phase 1, and both passes and the merges of phase 2; all reading included."""
    text = corpus(arguments)
    started = time.perf_counter()
    counts = count_pretokens(text.batches(), arguments.pattern)
    phase1 = train_bpe(counts, arguments.vocab_size)
    between = time.perf_counter()
    trained = train_superbpe(
        phase1,
        text.batches,
        vocab_size=arguments.vocab_size,
        transition=arguments.transition,
        rules=PRESETS[arguments.rules],
    )
    ended = time.perf_counter()
    return {
        "seconds": ended - started,
        "phase 1": f"{between - started:.2f}",
        "phase 2": f"{ended - between:.2f}",
        "bytes": counts.n_bytes,
        "threshold": trained.provenance["phase2"]["threshold"],
    }


def hugging_face(arguments: argparse.Namespace) -> dict[str, Any]:
    """`BpeTrainer` on lines cut at the phase-2 fence, from bytes."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    arguments.max_bytes = arguments.hf_bytes
    lines = [line for text in corpus(arguments).documents() for line in text.splitlines(keepends=True)]
    n_bytes = sum(len(line.encode()) for line in lines)
    started = time.perf_counter()
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(patterns.resolve(PRESETS[arguments.rules].fence).regex), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=arguments.vocab_size,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    trained.train_from_iterator(lines, trainer)
    return {"seconds": time.perf_counter() - started, "bytes": n_bytes}


def main() -> None:
    """Runs the contenders and prints the table."""
    options = common.parser("Both training phases beside what stock HF tokenizers can do.")
    options.add_argument("--vocab-size", type=int, default=32_000)
    options.add_argument("--transition", type=float, default=0.8, help="a share, or a number of tokens (default 0.8)")
    options.add_argument("--pattern", default="gpt2", help="phase 1's pattern (default gpt2)")
    options.add_argument("--rules", default="uw-2025", choices=sorted(PRESETS))
    options.add_argument("--hf-bytes", type=int, default=5_000_000, help="text for HF (default 5 MB); 0 leaves it out")
    arguments = options.parse_args()
    jobs: dict[str, common.Job] = {"ours": ours}
    if arguments.hf_bytes:
        jobs["HF, from scratch"] = hugging_face
    results = common.compare(jobs, arguments)
    title = f"BPE + SuperBPE, vocabulary {arguments.vocab_size}, transition {arguments.transition:g}, {arguments.rules}"
    common.CONSOLE.print(common.table(title, results, extra=("phase 1", "phase 2", "threshold")))


if __name__ == "__main__":
    main()
