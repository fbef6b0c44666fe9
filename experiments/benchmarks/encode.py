"""Encoding beside HF tokenizers: `python -m experiments.benchmarks.encode FILES [--tokenizer FOLDER]`.

Without a tokenizer it trains one on the text first: 32,000 tokens, transition 0.8, rules uw-2025.
Cold is the first pass over the text in a fresh process, warm the second. HF encodes the first `--hf-bytes` of
the same documents; its ids are compared with ours.
"""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.benchmarks import common
from experiments.benchmarks.train_bpe import corpus
from superbpe import PRESETS, train_superbpe
from tokenizer import Tokenizer, count_pretokens, train_bpe
from tokenizer.formats import HF_FILE

if TYPE_CHECKING:
    import argparse


def ours(arguments: argparse.Namespace) -> dict[str, Any]:
    """From documents in memory to ids as arrays."""
    batches = list(corpus(arguments).batches())
    n_bytes = sum(batch.n_bytes for batch in batches)
    tokenizer = Tokenizer.load(arguments.tokenizer)
    tokenizer.encode_ordinary("builds the encoder")
    rates = []
    for _ in range(2):
        started = time.perf_counter()
        n_tokens = sum(len(tokenizer.encode_documents(batch, threads=arguments.threads)[0]) for batch in batches)
        rates.append(time.perf_counter() - started)
    return {
        "seconds": rates[0],
        "cold MB/s": f"{n_bytes / rates[0] / 1e6:.1f}",
        "warm MB/s": f"{n_bytes / rates[1] / 1e6:.1f}",
        "bytes/token": f"{n_bytes / n_tokens:.3f}",
        "bytes": n_bytes,
    }


def hugging_face(arguments: argparse.Namespace) -> dict[str, Any]:
    """`encode_batch` on as many threads; every document's ids are compared with ours."""
    import os

    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)
    from tokenizers import Tokenizer as HFTokenizer

    arguments.max_bytes = arguments.hf_bytes
    texts = list(corpus(arguments).documents())
    n_bytes = sum(len(text.encode()) for text in texts)
    hf = HFTokenizer.from_file(f"{arguments.tokenizer}/{HF_FILE}")
    hf.encode_special_tokens = True
    started = time.perf_counter()
    encoded = hf.encode_batch(texts, add_special_tokens=False)
    seconds = time.perf_counter() - started
    ids, offsets = Tokenizer.load(arguments.tokenizer).encode_batch(texts)
    differing = sum(not np.array_equal(ids[offsets[i] : offsets[i + 1]], encoded[i].ids) for i in range(len(texts)))
    return {
        "seconds": seconds,
        "cold MB/s": f"{n_bytes / seconds / 1e6:.1f}",
        "documents differing": f"{differing} of {len(texts)}",
        "bytes": n_bytes,
        "differing": differing,
    }


def train(arguments: argparse.Namespace) -> dict[str, Any]:
    """The tokenizer for those who name none."""
    text = corpus(arguments)
    phase1 = train_bpe(count_pretokens(text.batches(), "gpt2"), 32_000)
    trained = train_superbpe(phase1, text.batches, vocab_size=32_000, transition=0.8, rules=PRESETS["uw-2025"])
    trained.save(arguments.tokenizer)
    return {}


def report(arguments: argparse.Namespace) -> int:
    """Compares, prints, and returns how many documents got other ids than HF's."""
    results = common.compare({"ours": ours, "HF tokenizers": hugging_face}, arguments)
    extra = ("cold MB/s", "warm MB/s", "bytes/token", "documents differing")
    title = f"encoding, {arguments.threads} thread(s), {len(Tokenizer.load(arguments.tokenizer).vocab)} tokens"
    common.CONSOLE.print(common.table(title, results, extra))
    return int(results[1].facts["differing"])


def main() -> None:
    """Runs the contenders and prints the table."""
    options = common.parser("Encoding beside HF tokenizers.")
    options.add_argument("--tokenizer", help="folder of a one-pass tokenizer")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--hf-bytes", type=int, default=5_000_000, help="text for HF (default 5 MB)")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.tokenizer is None:
            arguments.tokenizer = folder
            common.run(train, arguments)
        differing = report(arguments)
    raise SystemExit(1 if differing else 0)


if __name__ == "__main__":
    main()
