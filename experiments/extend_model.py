"""Extend a model to a larger vocabulary: `python -m experiments.extend_model MODEL_FOLDER TOKENIZER_FOLDER OUT_FOLDER`.

MODEL_FOLDER is a causal language model saved by `transformers`, with its tokenizer (or use `--old-tokenizer`).
TOKENIZER_FOLDER is the same tokenizer with more tokens and unchanged old ids, as made by `experiments.extend
--keep-ids`. Each new token gets a row in the embedding, and in the output head if it is not tied: the mean of the rows
of the old tokens that it consists of. Old rows are copied bit for bit.

With `--text`, the bits per byte of the old model with the old tokenizer and of the new model with the new one are
printed: the loss of all text tokens divided by the UTF-8 bytes of the documents.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from experiments.cli.console import Reporter, console, finish, si
from experiments.cli.options import TOKENIZER, Parser, add_text_settings, command, open_exact, open_text
from lm.evaluate.windows import plan_windows
from tokenizer import Tokenizer, UserError, storage
from tokenizer.durable import new_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

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
    for left, right, made in new.merge_ids[new.merge_ids[:, 2] >= size].tolist():
        if made not in parts:  # use the first of several derivations
            parts[made] = [i for part in (left, right) for i in parts.get(part, [part])]
    for made in range(size, new.vocab_size):
        if made not in parts and new.vocab[made]:
            parts[made] = old.encode_ordinary(new.vocab[made].decode(errors="replace"))
    if late := [made for made, ids in parts.items() if max(ids) >= size]:
        raise UserError(f"the new token {late[0]} uses a token of a later merge, so its old tokens are not defined")
    return parts


def padded_size(needed: int, old_tokens: int, old_rows: int, multiple: int | None) -> int:
    """Return the rows of an extended embedding: never fewer than before, and padded like the old one.

    Args:
        needed: Number of ids of the new tokenizer.
        old_tokens: Number of ids of the old tokenizer.
        old_rows: Rows of the model's embedding.
        multiple: Multiple to pad to. None for the largest power of two (up to 1024) that divides `old_rows`, or for no
            padding if the old embedding has none.

    >>> padded_size(50_300, 50_257, 50_257, None), padded_size(50_300, 50_257, 50_304, None)
    (50300, 50304)
    >>> padded_size(160_000, 151_665, 151_936, None)
    160000
    """
    if multiple is None:
        multiple = 1 if old_rows == old_tokens else math.gcd(old_rows, _MOST_PADDING)
    return max(old_rows, -(-needed // multiple) * multiple)


def extend_model(model: Any, old: Tokenizer, new: Tokenizer, *, multiple: int | None = None) -> None:
    """Add rows for the new tokens to a `transformers` causal language model, in place, and update its config.

    Padding rows and rows of unused ids become the mean of all old tokens' rows.

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
    multiple = multiple or getattr(model.config, "pad_vocab_size_multiple", None)
    rows = padded_size(new.vocab_size, old.vocab_size, before, multiple)
    weights = [matrix.detach().clone() for matrix in _rows_by_token(model)]
    model.resize_token_embeddings(rows, mean_resizing=False)
    with torch.no_grad():
        for matrix, was in zip(_rows_by_token(model), weights, strict=True):
            matrix[: old.vocab_size] = was[: old.vocab_size]
            matrix[old.vocab_size :] = was[: old.vocab_size].float().mean(dim=0).to(was.dtype)
            for token, ids in parts.items():
                matrix[token] = was[ids].float().mean(dim=0).to(was.dtype)


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


def bits_per_byte(
    model: Any, tokenizer: Tokenizer, documents: Sequence[str], *, context_bytes: int, min_context_bytes: int
) -> tuple[float, int]:
    """Return the loss of all text tokens per UTF-8 byte of the documents, and the number of tokens.

    The model's BOS token, or else its EOS token, precedes every document. Each token is scored once, in windows limited
    by `context_bytes` and the model's positions, with at least `min_context_bytes` of context where available.

    Raises:
        UserError: If the model has neither token, or a token is longer than the context.
    """
    import torch

    first = _first_token(model)
    lengths = tokenizer.token_byte_lengths().astype(np.int64)
    if lengths.max() > context_bytes:
        raise UserError(f"--context-bytes {context_bytes} must be at least the longest token ({lengths.max()} bytes)")
    positions = getattr(model.config, "max_position_embeddings", None) or context_bytes
    nats, n_bytes, n_tokens = 0.0, 0, 0
    ids, offsets = tokenizer.encode_batch(documents)
    model.eval()
    for document, (start, end) in zip(documents, itertools.pairwise(offsets.tolist()), strict=True):
        tokens = ids[start:end].astype(np.int64)
        size = len(document.encode())
        if int(lengths[tokens].sum()) != size:
            raise AssertionError("tokens do not have the bytes of their document")
        before: npt.NDArray[np.int64] = np.concatenate([[0, 0], np.cumsum(lengths[tokens])])[:-1]
        x = torch.from_numpy(np.concatenate([[first], tokens])).to(model.device)
        n_bytes, n_tokens = n_bytes + size, n_tokens + len(tokens)
        if not len(tokens):
            continue
        for window in plan_windows(
            before, context_bytes=context_bytes, min_context_bytes=min_context_bytes, context_tokens=positions
        ):
            with torch.inference_mode():
                logits = model(x[None, window.start : window.last], use_cache=False).logits[0]
            scored = logits[window.first - 1 - window.start :].float()
            targets = x[window.first : window.last + 1]
            nats += float(torch.nn.functional.cross_entropy(scored, targets, reduction="sum").double())
    if not n_bytes:
        raise UserError("the text is empty, so bits per byte cannot be computed; name files that contain text")
    return nats / math.log(2) / n_bytes, n_tokens


def _first_token(model: Any) -> int:
    for name in ("bos_token_id", "eos_token_id"):
        found = getattr(model.config, name, None)
        if isinstance(found, list):
            found = found[0] if found else None
        if found is not None and int(found) >= model.get_input_embeddings().num_embeddings:
            raise UserError(
                f"the model's config.json says {name}={found}, but the model has only "
                f"{model.get_input_embeddings().num_embeddings} embeddings; fix config.json"
            )
        if found is not None:
            return int(found)
    raise UserError("the model's config.json has no bos_token_id or eos_token_id, one of which must precede documents")


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


def _run(arguments: argparse.Namespace) -> None:
    reporter = Reporter(console)
    source, out = Path(arguments.model), Path(arguments.out)
    if out.exists():
        raise UserError(f"{out} already exists; choose a new folder")
    if not 0 <= arguments.min_context_bytes < arguments.context_bytes:
        raise UserError(
            f"--min-context-bytes {arguments.min_context_bytes} must be at least 0 and below --context-bytes "
            f"{arguments.context_bytes}; a quarter of it is a good choice"
        )
    if arguments.pad_to is not None and arguments.pad_to < 1:
        raise UserError(f"--pad-to {arguments.pad_to} must be at least 1")
    old = open_exact(arguments.old_tokenizer or str(source))
    new = open_exact(arguments.tokenizer)
    constituents(old, new)  # fails early if the tokenizers do not match
    documents: list[str] = []
    if arguments.text:
        documents = list(open_text(arguments, arguments.text).documents())
    model = _load(source)
    windows = {"context_bytes": arguments.context_bytes, "min_context_bytes": arguments.min_context_bytes}
    before = bits_per_byte(model, old, documents, **windows) if documents else None
    rows = model.get_input_embeddings().weight.shape[0]
    extend_model(model, old, new, multiple=arguments.pad_to)
    after = bits_per_byte(model, new, documents, **windows) if documents else None
    storage.disk.make_folder(out.parent)
    with new_folder(out) as partial:
        partial.mkdir()
        model.save_pretrained(partial)
        for weights in partial.glob("*.safetensors"):
            weights.chmod(partial.stat().st_mode & 0o666)  # safetensors writes files that only their owner can read
        new.save(partial)
    reporter.say(
        f"{new.vocab_size - old.vocab_size} new ids; {rows} rows extended to "
        f"{model.get_input_embeddings().weight.shape[0]}"
    )
    if before and after:
        size = sum(len(document.encode()) for document in documents)
        title = (
            f"Bits per byte: {len(documents)} documents, {si(size)}B, windows of {arguments.min_context_bytes} to "
            f"{arguments.context_bytes} bytes of context"
        )
        table = [
            [name, f"{found[0]:.4f}", f"{found[1]:,}", f"{size / found[1]:.3f}"]
            for name, found in (("before", before), ("after", after))
        ]
        reporter.table(title, ["", "bits per byte", "tokens", "bytes per token"], table)
    finish(out, then=["inspect", out])


def parser() -> Parser:
    """Options of the command."""
    options = Parser("extend-model", "Extend a model to a tokenizer with more tokens.")
    options.add_argument("model", help="folder of a transformers model in safetensors")
    options.add_argument("tokenizer", help=f"the larger tokenizer: {TOKENIZER}")
    options.add_argument("out", help="folder to write; must not exist yet")
    options.add_argument("--old-tokenizer", help="the model's tokenizer, if its folder has none")
    options.add_argument("--pad-to", type=int, help="pad rows to a multiple of this (default: the model's padding)")
    options.add_argument("--text", nargs="+", help="score .txt, .jsonl[.gz|.zst], .parquet before and after")
    add_text_settings(options)
    options.add_argument("--context-bytes", type=int, default=2048, help="maximum context of a token (default 2048)")
    options.add_argument(
        "--min-context-bytes", type=int, default=512, help="minimum context, where available (default 512)"
    )
    return options


run = command(parser, _run)


if __name__ == "__main__":
    sys.exit(run())
