"""Evaluation of any model on texts in memory, from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lm.data.sharding import temporary_shards
from lm.evaluate.bits_per_byte import KIND, SOURCE, Evaluation, Grouping
from lm.evaluate.config import EvalConfig
from lm.evaluate.evaluation import evaluate
from lm.evaluate.forward import LogitsModel, ScorableModel
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from lm.model.transformer import Transformer
    from tokenizer.interface import TokenizerLike
    from tokenizer.progress import Progress


def evaluate_texts(
    model: Transformer | ScorableModel | Callable[[Tensor], Any],
    tokenizer: TokenizerLike,
    documents: Sequence[str],
    *,
    sources: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    config: EvalConfig | None = None,
    context_tokens: int | None = None,
    start: str | None = None,
    starts_windows: bool = False,
    progress: Progress | None = None,
) -> Evaluation:
    """Score documents with a model from anywhere; `lm.evaluate.comparison.compare` takes the results.

    Args:
        model: A function from ids, int64[batch, seq_len], to logits, float[batch, seq_len, rows] (Torch or
            NumPy), such as `lambda ids: hf_model(ids).logits`; or one of our models, or a `ScorableModel`.
        tokenizer: Its tokenizer, such as `load_pretrained(FOLDER).tokenizer`, which names an end of text.
        documents: The texts.
        sources: Source of each document; documents of one source are not independent. None if all are independent.
        kinds: Kind of text of each document, for results by kind.
        config: Windows and intervals; None for the defaults.
        context_tokens: Maximum number of positions of a function.
        start: String of the token before the first one of a document, for a function; None for its end of text.
        starts_windows: Whether every window begins with that token, for models that never saw text without it.
        progress: As for `evaluate`.

    Raises:
        UserError: If an argument is missing or contradicts another, or as for `evaluate`.
    """
    if not documents:
        raise UserError("documents is empty; give at least one text")
    for name, given in (("sources", sources), ("kinds", kinds)):
        if given is not None and len(given) != len(documents):
            raise UserError(f"{name} has {len(given)} entries for {len(documents)} documents; give one for each")
    if not isinstance(model, ScorableModel) and not hasattr(model, "hidden"):
        if context_tokens is None:
            raise UserError("a function needs context_tokens, the number of positions that its model was trained for")
        start_id = None if start is None else tokenizer.special_tokens.get(start, tokenizer.token_to_id(start))
        if start is not None and start_id is None:
            raise UserError(f"start={start!r} is not a token of {tokenizer!r}")
        scorable: Transformer | ScorableModel = LogitsModel(
            model, tokenizer, context_tokens=context_tokens, start_id=start_id, starts_windows=starts_windows
        )
    else:
        scorable = model  # type: ignore[assignment]
    with temporary_shards(tokenizer, documents) as shards:
        groups = {name: Grouping.of(given) for name, given in ((SOURCE, sources), (KIND, kinds)) if given is not None}
        return evaluate(
            scorable, shards, tokenizer.token_byte_lengths(), config or EvalConfig(), groups=groups, progress=progress
        )
