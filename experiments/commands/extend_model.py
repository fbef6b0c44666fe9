"""`superbpe extend-model MODEL TOKENIZER OUT`: extend a model to a tokenizer with more tokens.

MODEL is a causal language model saved by `transformers`, with its tokenizer (or use `--old-tokenizer`). TOKENIZER is
the same tokenizer with more tokens and unchanged old ids, as made by `superbpe extend --keep-ids`. Each new token gets
a row in the embedding, and in the output head if it is not tied; padding rows of the model are used first. By default,
a new row is the mean of the rows of the old tokens that the token consists of. With `--init fitted`, it is a linear
function of the rows of its two parts, fitted to the merges that the model was trained with. Old rows are copied bit for
bit.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.cli.arguments import TOKENIZER, Parser, open_exact, out_folder
from experiments.cli.console import Reporter, console, finish
from tokenizer import Tokenizer, UserError
from tokenizer.durable import new_folder

if TYPE_CHECKING:
    import argparse

    import torch

INITS = ("mean", "fitted")
_MOST_FITTED = 1 << 15  # merges; more take gigabytes for wide models
_MOST_PADDING = 1024
"""Largest multiple to which the vocabulary size of a model is assumed to be padded."""


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("extend-model", __doc__)
    add = options.add_argument
    add("model", type=Path, metavar="MODEL", help="folder of a transformers model in safetensors")
    add("tokenizer", metavar="TOKENIZER", help=f"the larger tokenizer: {TOKENIZER}")
    add("out", type=Path, metavar="OUT", help="folder to write; must not exist yet")
    add("--old-tokenizer", help="the model's tokenizer, if its folder has none")
    add("--init", choices=INITS, default="mean", help="new rows: mean of their parts, or fitted (%(default)s)")
    return options


def run(arguments: argparse.Namespace) -> None:
    """Extend the model and write it with its tokenizer."""
    source, out = arguments.model, arguments.out
    if out.exists():
        raise UserError(f"{out} already exists; choose a new folder")
    old = open_exact(arguments.old_tokenizer or str(source))
    new = open_exact(arguments.tokenizer)
    constituents(old, new)  # fails early if the tokenizers do not match
    with out_folder(out.absolute().parent, "OUT in"):
        model = _load(source)
        rows = model.get_input_embeddings().weight.shape[0]
        extend_model(model, old, new, arguments.init)
        with new_folder(out) as partial:
            partial.mkdir()
            model.save_pretrained(partial)
            for weights in partial.glob("*.safetensors"):
                weights.chmod(partial.stat().st_mode & 0o666)  # safetensors writes files that only their owner can read
            new.save(partial)
    Reporter(console).say(
        f"{new.vocab_size - old.vocab_size} new ids; {rows} rows extended to "
        f"{model.get_input_embeddings().weight.shape[0]}"
    )
    finish(out, then=["inspect", out])


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
    for left, right, made in new.merge_ids[new.merge_ids[:, 2] >= size].tolist():
        if made not in parts:  # use the first of several derivations
            parts[made] = [i for part in (left, right) for i in parts.get(part, [part])]
    for made in range(size, new.vocab_size):
        if made not in parts and new.vocab[made]:
            parts[made] = old.encode_ordinary(new.vocab[made].decode(errors="replace"))
    if late := [made for made, ids in parts.items() if max(ids) >= size]:
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
    before = model.get_input_embeddings().weight.shape[0]
    if before < old.vocab_size:
        raise UserError(
            f"the model has {before} rows, but its tokenizer has {old.vocab_size} ids; name the model's own tokenizer "
            "with --old-tokenizer"
        )
    multiple = 1 if before == old.vocab_size else math.gcd(before, _MOST_PADDING)
    rows = max(before, math.ceil(new.vocab_size / multiple) * multiple)
    weights = [matrix.detach().clone() for matrix in _rows_by_token(model)]
    model.resize_token_embeddings(rows, mean_resizing=False)
    with torch.no_grad():
        for matrix, was in zip(_rows_by_token(model), weights, strict=True):
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
    found: dict[int, torch.Tensor] = {}
    for left, right, made in new.merge_ids[new.merge_ids[:, 2] >= old.vocab_size].tolist():
        if made not in found:  # use the first of several derivations
            pair, mean = sides(*(found[part] if part in found else rows[part] for part in (left, right)))
            found[made] = mean + pair @ best
    return found


def _rows_by_token(model: Any) -> list[torch.Tensor]:
    """The embedding, the untied output head and its bias, as far as they exist."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    found = [embedding.weight]
    if head is not None:
        if head.weight.data_ptr() != embedding.weight.data_ptr():
            found.append(head.weight)
        if getattr(head, "bias", None) is not None:
            found.append(head.bias)
    return found


def _load(folder: Path) -> Any:
    """Load the model of a local folder."""
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} has no config.json; name the folder of a model saved by transformers")
    import transformers
    from safetensors import SafetensorError

    try:
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            str(folder), dtype="auto", local_files_only=True, use_safetensors=True, output_loading_info=True
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{folder} cannot be read as a causal language model in safetensors: {error}") from error
    if info["missing_keys"]:
        raise UserError(f"{folder} is incomplete: {min(info['missing_keys'])} is missing; copy all files of the model")
    return model
