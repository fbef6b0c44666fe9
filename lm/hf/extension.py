"""Rows of a `transformers` model for the new tokens of an extended tokenizer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lm.hf.pretrained import check_rows, rows_by_token
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from tokenizer import Tokenizer

_MOST_PADDING = 1024
"""Largest multiple to which the vocabulary size of a model is assumed to be padded."""


def constituents(old: Tokenizer, new: Tokenizer) -> dict[int, list[int]]:
    """Return the old ids that each new token consists of, by its derivation.

    A token without a merge is encoded with the old tokenizer.

    Raises:
        UserError: If an old id means something else in the new tokenizer.
    """
    size = old.vocab_size
    if new.vocab_size < size or new.vocab[:size] != old.vocab:
        changed = next(
            (i for i, (a, b) in enumerate(zip(old.vocab, new.vocab, strict=False)) if a != b), new.vocab_size
        )
        raise UserError(
            f"the new tokenizer does not keep the old ids: {changed} is another token or missing. The rows of a model "
            "are indexed by id; extend the model's own tokenizer with --keep-ids"
        )
    if moved := [string for string, i in old.special_tokens.items() if new.special_tokens.get(string) != i]:
        raise UserError(f"{moved[0]!r} is not a special token of the new tokenizer; extend the model's own tokenizer")
    parts: dict[int, list[int]] = {}
    for left, right, token in new.merge_ids[new.merge_ids[:, 2] >= size].tolist():
        if token not in parts:  # use the first of several derivations
            parts[token] = [i for part in (left, right) for i in parts.get(part, [part])]
    for token in range(size, new.vocab_size):
        if token not in parts and new.vocab[token]:
            parts[token] = old.encode_ordinary(new.vocab[token].decode(errors="replace"))
    if late := [token for token, ids in parts.items() if max(ids) >= size]:
        raise UserError(f"the new token {late[0]} uses a token of a later merge, so its old tokens are not defined")
    return parts


def extend_model(model: Any, old: Tokenizer, new: Tokenizer) -> None:
    """Add rows for the new tokens to a `transformers` causal language model, in place, and update its config.

    The row of a new token is the mean of the rows of its parts. Padding rows and rows of unused ids become the mean of
    all old tokens' rows. A padded model stays padded: to the largest power of two, up to 1024, that divides its rows.

    Args:
        model: The model.
        old: Its tokenizer.
        new: The larger tokenizer.

    Raises:
        UserError: If the tokenizers do not match, or the model has fewer rows than the old tokenizer has ids.
    """
    import torch

    parts = constituents(old, new)
    before = check_rows(model, old, "--old-tokenizer")
    multiple = 1 if before == old.vocab_size else math.gcd(before, _MOST_PADDING)
    rows = max(before, math.ceil(new.vocab_size / multiple) * multiple)
    weights = [matrix.detach().clone() for matrix in rows_by_token(model)]
    model.resize_token_embeddings(rows, mean_resizing=False)
    with torch.no_grad():
        for matrix, was in zip(rows_by_token(model), weights, strict=True):
            matrix[: old.vocab_size] = was[: old.vocab_size]
            matrix[old.vocab_size :] = was[: old.vocab_size].float().mean(dim=0).to(was.dtype)
            for token, ids in parts.items():
                matrix[token] = was[ids].float().mean(dim=0).to(was.dtype)
