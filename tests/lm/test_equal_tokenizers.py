"""Tokenizers of one recipe from disjoint halves of a text are equally good: comparisons should name no winner.

`python -m tests.lm.test_equal_tokenizers 20` repeats the experiment 20 times, each with other halves, held-out text and
seeds, and prints the differences. A winner in more than three of 20 experiments has a probability of 1.6 % if 5 % of
the verdicts are wrong.
"""

import random
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from lm.data.sharding import write_shards
from lm.data.shards import Shards
from lm.evaluate.bits_per_byte import Grouping
from lm.evaluate.comparison import compare
from lm.evaluate.config import EvalConfig
from lm.evaluate.evaluation import evaluate
from lm.model.config import ModelConfig
from lm.model.weights import load_model
from lm.train.config import TrainConfig
from lm.train.loop import train
from tokenizer import Batch, Corpus, CorpusConfig, count_pretokens, train_bpe

MODEL = ModelConfig(n_layers=1, hidden_size=32, head_dim=16, vocab_multiple=16)
TRAIN = TrainConfig(train_bytes=400_000, bytes_per_step=2048, context_bytes=512, threads=1, device="cpu")
EVAL = EvalConfig(context_bytes=512, min_context_bytes=128)
SEEDS = 3
_BYTES = 4000


@cache
def modules():
    """Python's own modules, whose text every installation has."""
    paths = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")) + sorted(
        Path(sysconfig.get_paths()["stdlib"]).glob("*/*.py")
    )
    texts = (path.read_text(encoding="utf-8", errors="ignore") for path in paths if "test" not in path.parts[-2])
    return [text for text in texts if len(text) > _BYTES][:320]


def cut(text):
    return [text[i : i + _BYTES] for i in range(0, min(len(text), 4 * _BYTES), _BYTES)]


def experiment(seed, folder):
    """Compare two tokenizers that were trained on disjoint halves of the documents that the models read."""
    rng = random.Random(seed)
    texts = rng.sample(modules(), len(modules()))
    heldout, training = [cut(text)[:2] for text in texts[:40]], [part for text in texts[40:] for part in cut(text)]
    sources = np.repeat(np.arange(len(heldout), dtype=np.int32), [len(parts) for parts in heldout])
    groups = {"source": Grouping(tuple(map(str, range(len(heldout)))), sources)}
    runs = []
    for half in range(2):
        at = folder / f"{seed}-{half}"
        at.mkdir()
        (at / "half.txt").write_text("\n\0\n".join(training[half::2]), encoding="utf-8")
        corpus = Corpus(CorpusConfig(paths=[str(at / "half.txt")]))
        tokenizer = train_bpe(count_pretokens(corpus, pattern="gpt2"), 600, special_tokens=["<|endoftext|>"])
        for name, documents in (("train", training), ("heldout", [part for parts in heldout for part in parts])):
            write_shards(at / name, tokenizer, [Batch.from_texts(documents)], threads=1)
        text, scored = (Shards.open(at / name, verify="never") for name in ("train", "heldout"))
        evaluations = []
        for number in range(SEEDS):
            settings = {**vars(TRAIN), "seed": SEEDS * seed + number}
            train(MODEL, TrainConfig(**settings), text, at / str(number))
            lengths = tokenizer.token_byte_lengths()
            evaluations.append(evaluate(load_model(at / str(number), "cpu"), scored, lengths, EVAL, groups=groups))
        runs.append(evaluations)
    return compare(*runs)


@pytest.mark.slow
def test_equal_tokenizers_have_no_winner(tmp_path):
    found = [experiment(seed, tmp_path) for seed in range(3)]
    assert {each.withheld for each in found} == {""}
    assert all(each.percent for each in found), "the tokenizers differ"
    assert sum(each.decided for each in found) <= 1


if __name__ == "__main__":
    winners = 0
    for seed in range(int(sys.argv[1])):
        with tempfile.TemporaryDirectory() as name:
            one = experiment(seed, Path(name))
        low, high = one.interval or (0.0, 0.0)
        winners += one.decided
        print(f"{seed}: {one.percent:+.2f} % ({low:+.2f} to {high:+.2f}), {one.verdict}", flush=True)
    print(f"{winners} of {sys.argv[1]} experiments name a winner")
