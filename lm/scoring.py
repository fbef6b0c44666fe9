"""Scoring every token of every document once, in batches of windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from lm.windows import Window, plan_windows
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from lm.evaluation import EvalConfig
    from lm.model import Transformer
    from lm.shards import Shards
    from tokenizer.progress import Progress

# Windows of similar length make full batches; this many tokens are sorted at a time, to bound memory.
_TOKENS_PLANNED = 1 << 16


class Scores:
    """Nats by document, and how the limits on the context worked out; see `lm.evaluation.Evaluation`."""

    def __init__(self, n_documents: int) -> None:
        self.text_nats = np.zeros(n_documents)
        self.eos_nats = np.zeros(n_documents)
        self.limited_bytes = self.short_context_bytes = self.context_bytes_sum = 0


def score_documents(
    model: Transformer,
    shards: Shards,
    lengths: NDArray[np.int64],
    config: EvalConfig,
    progress: Progress | None,
) -> Scores:
    """Score all documents; `lengths` are the bytes of each token, int64[vocab_size]."""
    scores = Scores(shards.n_documents)
    training = model.training
    model.eval()
    for group in _groups(shards):
        _score(model, shards, lengths, config, group, scores)
        if progress is not None:
            progress("evaluate", group.stop, shards.n_documents)
    model.train(training)
    return scores


def _groups(shards: Shards) -> Iterator[range]:
    """Consecutive documents of about _TOKENS_PLANNED tokens together, at least one."""
    first = 0
    while first < shards.n_documents:
        begin = int(shards.document_ends[first - 1]) if first else 0
        stop = int(np.searchsorted(shards.document_ends, begin + _TOKENS_PLANNED, side="right"))
        stop = max(first + 1, stop)
        yield range(first, stop)
        first = stop


def _score(
    model: Transformer,
    shards: Shards,
    lengths: NDArray[np.int64],
    config: EvalConfig,
    group: range,
    scores: Scores,
) -> None:
    """Score the documents of one group; every target exactly once."""
    sequences: list[NDArray[np.int64]] = []
    jobs: list[tuple[int, Window]] = []
    for document in group:
        x = np.concatenate(([shards.eos_id], shards.document(document), [shards.eos_id]))
        before = np.concatenate(([0], np.cumsum(lengths[x[:-1]])))
        if before[-1] != shards.spelled_bytes(document):
            raise UserError(
                f"document {document} has {shards.spelled_bytes(document)} bytes, but its tokens have "
                f"{before[-1]}: these byte lengths do not belong to the tokenizer that wrote {shards.folder}"
            )
        windows = plan_windows(
            before,
            context_bytes=config.context_bytes,
            min_context_bytes=config.min_context_bytes,
            context_tokens=model.context_tokens,
        )
        for window in windows:
            targets = np.arange(window.first, window.last + 1)
            weights = lengths[x[targets]]
            context = before[targets] - before[window.start]
            scores.context_bytes_sum += int(context @ weights)
            scores.limited_bytes += int(weights.sum()) if window.limited else 0
            scores.short_context_bytes += int(weights[context < config.min_context_bytes].sum()) if window.start else 0
            jobs.append((len(sequences), window))
        sequences.append(x)
    nats = [np.full(len(x), np.nan) for x in sequences]
    for batch in _batches(jobs, config.batch_tokens):
        scored = _forward(model, [(sequences[i], window) for i, window in batch], shards.eos_id)
        for (i, window), values in zip(batch, scored, strict=True):
            assert np.isnan(nats[i][window.first : window.last + 1]).all(), "a token is scored twice"
            nats[i][window.first : window.last + 1] = values
    for document, values in zip(group, nats, strict=True):
        if not np.isfinite(values[1:]).all():
            raise UserError(f"the model's loss on document {document} is not finite; train it again with lower rates")
        scores.text_nats[document] = values[1:-1].sum()
        scores.eos_nats[document] = values[-1]


def _batches(jobs: list[tuple[int, Window]], batch_tokens: int) -> Iterator[list[tuple[int, Window]]]:
    """Windows of similar length together, at most `batch_tokens` tokens with padding."""
    batch: list[tuple[int, Window]] = []
    for job in sorted(jobs, key=lambda job: job[1].start - job[1].last):  # longest first
        width = (batch or [job])[0][1]
        if batch and (len(batch) + 1) * (width.last - width.start) > batch_tokens:
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch


@torch.no_grad()
def _forward(
    model: Transformer, windows: list[tuple[NDArray[np.int64], Window]], padding_id: int
) -> list[NDArray[np.float64]]:
    """Nats of the scored targets of each window. Causal attention keeps padding on the right harmless.

    In fp32 on every device: bf16 would round the logits that the losses are read from.
    """
    device = next(model.parameters()).device
    width = max(window.last - window.start for _, window in windows)
    inputs = np.full((len(windows), width), padding_id)
    targets = np.full((len(windows), width), padding_id)
    keep = np.zeros((len(windows), width), bool)
    for row, (x, window) in enumerate(windows):
        size = window.last - window.start
        inputs[row, :size] = x[window.start : window.last]
        targets[row, :size] = x[window.start + 1 : window.last + 1]
        keep[row, window.first - 1 - window.start : size] = True
    mask = torch.from_numpy(keep).to(device)
    logits = model(torch.from_numpy(inputs).to(device), mask)
    kept = torch.from_numpy(targets).to(device)[mask]
    nats = F.cross_entropy(logits.float(), kept, reduction="none").double().cpu().numpy()
    ends = np.cumsum(keep.sum(axis=1))
    return np.split(nats, ends[:-1])
