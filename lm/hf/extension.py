"""Rows of a `transformers` model for the new tokens of an extended tokenizer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lm.hf.pretrained import check_rows, rows_by_token
from tokenizer.errors import UserError

if TYPE_CHECKING:
    import torch

    from tokenizer import Tokenizer

INITS = ("mean", "fitted")
_MOST_FITTED = 1 << 15  # merges; more take gigabytes for wide models
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


def extend_model(model: Any, old: Tokenizer, new: Tokenizer, init: str = "mean") -> None:
    """Add rows for the new tokens to a `transformers` causal language model, in place, and update its config.

    Padding rows and rows of unused ids become the mean of all old tokens' rows. A padded model stays padded: to the
    largest power of two, up to 1024, that divides its rows.

    Args:
        model: The model.
        old: Its tokenizer.
        new: The larger tokenizer.
        init: Rows of new tokens: "mean" of their parts, or "fitted" (`fitted_rows`).

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
            if init == "fitted" and was.dim() == 2:
                for token, row in fitted_rows(was[: old.vocab_size].float(), old, new).items():
                    matrix[token] = row.to(was.dtype)


def fitted_rows(rows: torch.Tensor, old: Tokenizer, new: Tokenizer) -> dict[int, torch.Tensor]:
    """Rows of the new tokens that are merges, by the full additive model: left @ A + right @ B of their two parts.

    A and B are fitted to the old merges, whose products have rows of their own: ridge regression of what a row has
    beyond the mean of its parts, so that the mean remains where the merges show nothing else. Its strength is the best
    on a tenth of the merges that are not fitted. Source: Zanzotto et al., 2010, "Estimating Linear Models for
    Compositional Distributional Semantics".

    Args:
        rows: float32[old.vocab_size, width], the embedding or the output head.
        old: The model's tokenizer.
        new: The larger tokenizer.
    """
    import torch

    def sides(left: Any, right: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cat([left, right], dim=-1), (left + right) / 2

    merges = torch.from_numpy(old.merge_ids[-_MOST_FITTED:].astype("int64"))
    both, means = sides(rows[merges[:, 0]], rows[merges[:, 1]])
    beyond, test = rows[merges[:, 2]] - means, torch.arange(len(merges)) % 10 == 0
    gram, moment = both[~test].T @ both[~test], both[~test].T @ beyond[~test]
    ridge = torch.eye(len(gram)) * gram.diagonal().mean().clamp(min=1e-12)
    weights = [
        torch.zeros_like(moment),
        *(torch.linalg.solve(gram + strength * ridge, moment) for strength in (1e-3, 0.01, 0.1, 1)),
    ]
    best = min(weights, key=lambda weight: float((both[test] @ weight - beyond[test]).square().sum()))
    new_rows: dict[int, torch.Tensor] = {}
    for left, right, token in new.merge_ids[new.merge_ids[:, 2] >= old.vocab_size].tolist():
        if token not in new_rows:  # use the first of several derivations
            pair, mean = sides(*(new_rows[part] if part in new_rows else rows[part] for part in (left, right)))
            new_rows[token] = mean + pair @ best
    return new_rows
