"""A bigram model, and evaluations with made-up losses."""

import numpy as np
import torch

from lm.evaluate.bits_per_byte import Evaluation
from lm.evaluate.config import EvalConfig
from lm.evaluate.evaluation import evaluate

CONFIG = EvalConfig(context_bytes=16, min_context_bytes=6, batch_tokens=64)


class Table(torch.nn.Module):
    """A bigram model: row i of the table holds the logits that follow token i."""

    def __init__(self, table, context_tokens=12, sha256=""):
        super().__init__()
        self.table = torch.nn.Parameter(table)
        self.vocab_size = len(table)
        self.context_tokens = context_tokens
        self.tokenizer_sha256 = sha256

    def hidden(self, ids):
        assert ids.shape[1] <= self.context_tokens
        return ids[..., None]

    def head(self, hidden):
        return self.table[hidden[:, 0]]


def uniform(vocab_size):
    return Table(torch.zeros(vocab_size, vocab_size))


def score(model, shards, config=CONFIG):
    return evaluate(model, shards, shards.token_byte_lengths, config)


def made_up(text_nats, document_bytes, groups=None, changed=None):
    n = len(text_nats)
    return Evaluation(
        config=CONFIG,
        tokenizer_sha256="",
        document_bytes=np.asarray(document_bytes),
        document_tokens=np.full(n, 5),
        text_nats=np.asarray(text_nats, float),
        eos_nats=np.ones(n),
        changed=np.zeros(n, bool) if changed is None else np.asarray(changed),
        token_counts=np.zeros(3, np.int64),
        limited_bytes=0,
        short_context_bytes=0,
        groups={} if groups is None else groups,
    )
