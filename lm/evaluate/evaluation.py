"""Evaluation of a model: loss per byte on held-out documents.

The rules (docs/evaluation.md explains why they make tokenizers comparable):

- `end_of_text` precedes every document. Every text token is scored exactly once. The `end_of_text` that ends a
  document is scored too, once per document, but reported separately: it has no bytes.
- The denominator is the UTF-8 bytes of the original documents, asserted equal to the bytes of the tokens.
- Averages are micro-averages: all nats over all bytes.
- Contexts are measured in bytes (`lm.evaluate.windows`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lm.evaluate.bits_per_byte import Evaluation, Grouping
from lm.evaluate.config import EvalConfig
from lm.evaluate.scoring import score_documents
from lm.evaluate.windows import plan_windows
from lm.model.device import memory_advice
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from lm.data.shards import Shards
    from lm.evaluate.forward import ScorableModel
    from lm.model.transformer import Transformer
    from tokenizer.progress import Progress


def evaluate(
    model: Transformer | ScorableModel,
    shards: Shards,
    token_byte_lengths: NDArray[Any],
    config: EvalConfig,
    *,
    groups: Mapping[str, Grouping] | None = None,
    progress: Progress | None = None,
    note: Callable[[str], object] | None = None,
) -> Evaluation:
    """Score every document of `shards`.

    All processes of a distributed run call this with the same arguments and share the documents. Each gets the whole
    result, which equals one process's to the last bit on equal hardware.

    Args:
        model: The model; one from elsewhere with its own start and end of documents.
        shards: The held-out documents.
        token_byte_lengths: int[vocab_size], raw bytes of each token, `Tokenizer.token_byte_lengths()`.
        config: Windows and intervals.
        groups: Groupings of the documents by name (`source`, `script`), for results per group.
        progress: Called after every group of documents with ("evaluate", documents done, documents).
        note: Called with the loss so far, in words.

    Raises:
        UserError: If model and shards have different tokenizers, a token is longer than the context, or the tokens do
            not have the documents' bytes.
    """
    lengths = np.asarray(token_byte_lengths, np.int64)
    _check(model, shards, lengths, config)
    plan = partial(
        plan_windows,
        context_bytes=config.context_bytes,
        min_context_bytes=config.min_context_bytes,
        context_tokens=model.context_tokens - getattr(model, "starts_windows", False),
    )
    with memory_advice(f"in evaluation; lower eval.batch_tokens ({config.batch_tokens})"):
        scores = score_documents(
            model,
            shards,
            lengths,
            plan,
            batch_tokens=config.batch_tokens,
            min_context_bytes=config.min_context_bytes,
            progress=progress,
            note=note,
        )
    limited, short = (int(total) for total in scores.totals)
    return Evaluation(
        config=config,
        tokenizer_sha256=shards.tokenizer_sha256,
        document_bytes=np.array(shards.document_bytes),
        document_tokens=np.diff(shards.document_ends, prepend=0) - 1,
        text_nats=scores.text_nats,
        eos_nats=scores.eos_nats,
        token_nats=scores.token_nats,
        changed=shards.normalized_bytes != 0,
        token_counts=scores.token_counts,
        limited_bytes=limited,
        short_context_bytes=short,
        groups=dict(groups or {}),
        document_hashes=shards.document_hashes(),
    )


def _check(model: Transformer | ScorableModel, shards: Shards, lengths: NDArray[np.int64], config: EvalConfig) -> None:
    if len(lengths) != shards.vocab_size or model.vocab_size != shards.vocab_size:
        raise UserError(
            f"vocabularies differ: model {model.vocab_size}, shards {shards.vocab_size}, byte lengths "
            f"{len(lengths)}; use the tokenizer that wrote the shards and a model trained with it"
        )
    if model.tokenizer_sha256 and model.tokenizer_sha256 != shards.tokenizer_sha256:
        raise UserError(
            f"the model was trained with tokenizer {model.tokenizer_sha256[:12]}, the shards were written by "
            f"{shards.tokenizer_sha256[:12]}; use shards and model of one tokenizer"
        )
    if lengths.max() > config.context_bytes:
        raise UserError(
            f"context_bytes={config.context_bytes} is below the longest token ({lengths.max()} bytes); "
            f"use at least {lengths.max()}"
        )
