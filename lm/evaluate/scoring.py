"""Score every token of every document once, in batches of windows, on one or several devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from lm.bits import bits_per_byte
from lm.evaluate.forward import Forward, ScorableModel
from lm.evaluate.windows import Window
from lm.train.distributed import current
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from lm.data.shards import Shards
    from lm.model.transformer import Transformer
    from tokenizer.progress import Progress

Plan = Callable[["NDArray[np.int64]"], "list[Window]"]
"""Windows of one document, given the number of text bytes before each position."""

# Windows are sorted by length within groups of this many tokens, to fill batches in bounded memory. Devices share whole
# groups, so that batches do not depend on the number of devices.
_TOKENS_PLANNED = 1 << 16


@dataclass
class NatSums:
    """Sums of nats and context statistics; see `lm.evaluate.bits_per_byte.Evaluation`.

    Scores of disjoint sets of documents add up exactly: floats are per document, and sums over documents are integers.

    Attributes:
        text_nats: float64[n_documents].
        eos_nats: float64[n_documents].
        token_nats: float32[n_text_tokens].
        token_counts: int64[vocab_size].
        totals: int64[2]: limited_bytes, short_context_bytes.
    """

    text_nats: NDArray[np.float64]
    eos_nats: NDArray[np.float64]
    token_nats: NDArray[np.float32]
    token_counts: NDArray[np.int64]
    totals: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, np.int64))

    @classmethod
    def zeros(cls, shards: Shards) -> NatSums:
        """Scores of no documents yet."""
        n, n_tokens = shards.n_documents, shards.n_tokens - shards.n_documents
        return cls(np.zeros(n), np.zeros(n), np.zeros(n_tokens, np.float32), np.zeros(shards.vocab_size, np.int64))

    def arrays(self) -> list[NDArray[Any]]:
        """All arrays, each of which adds up."""
        return [getattr(self, f.name) for f in dataclasses.fields(self)]


def score_documents(
    model: Transformer | ScorableModel,
    shards: Shards,
    lengths: NDArray[np.int64],
    plan: Plan,
    *,
    batch_tokens: int,
    min_context_bytes: int = 0,
    progress: Progress | None = None,
    note: Callable[[str], object] | None = None,
) -> NatSums:
    """Score all documents.

    Args:
        model: The model.
        shards: The documents.
        lengths: int64[vocab_size], raw bytes of each token.
        plan: Chooses the windows of a document.
        batch_tokens: Maximum number of tokens of a forward pass, padding included.
        min_context_bytes: Contexts below this count as short.
        progress: As for `lm.evaluate.evaluation.evaluate`.
        note: As for `lm.evaluate.evaluation.evaluate`.
    """
    world = current()
    scores = NatSums.zeros(shards)
    with _in_evaluation(model), world.together():
        forward = model if isinstance(model, ScorableModel) else Forward(model, shards.eos_id)
        finish: Callable[[], None] | None = None
        scored, nats, n_bytes = 0, 0.0, 0
        for number, group in enumerate(_groups(shards)):
            previous, finish = finish, None
            if number % world.size == world.rank:
                finish = _queue(
                    forward, shards, lengths, plan, group, scores, batch_tokens=batch_tokens,
                    min_context_bytes=min_context_bytes,
                )  # fmt: skip
            if previous is not None:  # a GPU computes this group meanwhile
                previous()
                if note is not None and world.size == 1:
                    new = slice(scored, group.start)
                    nats += float(scores.text_nats[new].sum())
                    n_bytes += int(shards.document_bytes[new].sum())
                    scored = group.start
                    note(f"{bits_per_byte(nats, n_bytes):.3f} bits per byte")
            if progress is not None:
                progress("evaluate", group.stop, shards.n_documents)
        if finish is not None:
            finish()
    return scores if world.size == 1 else _sum_over_processes(scores, forward.device)


@contextmanager
def _in_evaluation(model: Transformer | ScorableModel) -> Iterator[None]:
    """Switch our models to evaluation mode in the block; others are in it."""
    if isinstance(model, ScorableModel):
        yield
        return
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _sum_over_processes(scores: NatSums, device: torch.device) -> NatSums:
    place = device if dist.get_backend() == "nccl" else torch.device("cpu")
    summed = []
    for array in scores.arrays():
        tensor = torch.from_numpy(array).to(place)
        dist.all_reduce(tensor)
        summed.append(tensor.cpu().numpy())
    return NatSums(*summed)


def _groups(shards: Shards) -> Iterator[range]:
    """Consecutive documents with about _TOKENS_PLANNED tokens in total, at least one."""
    first = 0
    while first < shards.n_documents:
        begin = int(shards.document_ends[first - 1]) if first else 0
        stop = int(np.searchsorted(shards.document_ends, begin + _TOKENS_PLANNED, side="right"))
        stop = max(first + 1, stop)
        yield range(first, stop)
        first = stop


def _queue(
    forward: ScorableModel,
    shards: Shards,
    lengths: NDArray[np.int64],
    plan: Plan,
    group: range,
    scores: NatSums,
    *,
    batch_tokens: int,
    min_context_bytes: int,
) -> Callable[[], None]:
    """Queue the forward passes of one group; return a function that adds its scores, every target exactly once."""
    sequences: list[NDArray[np.int64]] = []
    jobs: list[tuple[int, Window]] = []
    limited = short = 0
    for document in group:
        text = shards.document(document)
        end = [] if forward.end_id is None else [forward.end_id]
        x = np.concatenate(([forward.start_id], text, end)).astype(np.int64)
        # By the given lengths, or by what each token covers of this document.
        covered = lengths[text] if shards.covered_bytes is None else shards.document_token_bytes(document)
        sizes = np.concatenate(([0], covered, np.zeros_like(end, np.int64)))
        before = np.concatenate(([0], np.cumsum(sizes[:-1])))
        if covered.sum() != shards.spelled_bytes(document):
            raise UserError(
                f"document {document} has {shards.spelled_bytes(document)} bytes, but its tokens have "
                f"{covered.sum()}: these byte lengths do not belong to the tokenizer that wrote {shards.folder}"
            )
        for window in plan(before) if len(x) > 1 else ():
            targets = slice(window.first, window.last + 1)
            weights = sizes[targets]
            context = before[targets] - before[window.start]
            limited += int(weights.sum()) if window.limited else 0
            short += int(weights[context < min_context_bytes].sum()) if window.start else 0
            jobs.append((len(sequences), window))
        sequences.append(x)
    batches = list(_batches(jobs, batch_tokens))
    queued = [run for batch in batches for run in _halving(forward, batch, sequences)]

    def finish() -> None:
        nats = [np.full(len(x), np.nan) for x in sequences]
        for batch, scored in queued:
            for (i, window), values in zip(batch, scored(), strict=True):
                assert np.isnan(nats[i][window.first : window.last + 1]).all(), "a token is scored twice"
                nats[i][window.first : window.last + 1] = values
        for document, values in zip(group, nats, strict=True):
            if not np.isfinite(values[1:]).all():
                raise UserError(
                    f"the model's loss on document {document} is not finite: its weights are damaged or too large "
                    "for their number format; train it with lower learning rates, or use --dtype float32"
                )
            text, end = np.split(values[1:], [len(values) - 1 - (forward.end_id is not None)])
            first = shards.span(document).start - document
            stored = scores.token_nats[first : first + len(text)] = text.astype(np.float32)
            scores.text_nats[document] = stored.sum(dtype=np.float64)
            scores.eos_nats[document] = end.sum() if len(end) else np.nan
        ids = np.concatenate([x[1:] for x in sequences])
        scores.token_counts += np.bincount(ids, minlength=shards.vocab_size)
        scores.totals += [limited, short]

    return finish


def _halving(
    forward: ScorableModel, batch: list[tuple[int, Window]], sequences: Sequence[NDArray[np.int64]]
) -> Iterator[tuple[list[tuple[int, Window]], Callable[[], list[NDArray[np.float64]]]]]:
    """Queue a batch; in halves, if the memory of a GPU is too small for it."""
    try:
        yield batch, forward([(sequences[i], window) for i, window in batch])
    except torch.OutOfMemoryError:
        if len(batch) == 1:
            raise
    else:
        return
    torch.cuda.empty_cache()
    for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
        yield from _halving(forward, half, sequences)


def _batches(jobs: list[tuple[int, Window]], batch_tokens: int) -> Iterator[list[tuple[int, Window]]]:
    """Batches of windows of similar length, longest first, of at most `batch_tokens` tokens with padding.

    A batch that is a quarter full ends before a window that is a fifth shorter than its first: in batches of 32,768
    tokens from 65,536, windows of lognormal documents then had 6 to 21 % of padding instead of 6 to 66 %.
    """
    batch: list[tuple[int, Window]] = []
    width = 0
    for job in sorted(jobs, key=lambda job: job[1].start - job[1].last):
        n_inputs = job[1].last - job[1].start
        full = (len(batch) + 1) * width > batch_tokens
        if batch and (full or (n_inputs < 0.8 * width and len(batch) * width >= batch_tokens / 4)):
            yield batch
            batch = []
        if not batch:
            width = n_inputs
        batch.append(job)
    if batch:
        yield batch
