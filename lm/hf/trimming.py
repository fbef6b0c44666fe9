"""Rows of a `transformers` model for the tokens that a trimmed tokenizer keeps."""

from __future__ import annotations

import copy
from itertools import chain
from typing import TYPE_CHECKING, Any

from lm.hf.pretrained import check_rows, rows_by_token
from tokenizer.errors import UserError
from tokenizer.formats.renumbering import ids_in, is_id, with_new_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import torch

    from tokenizer import Tokenizer

_MORE_ROWS = 64


def size_of(model: Any) -> dict[str, int]:
    """Rows of a model's embedding, its parameters and their bytes. Tied weights count once."""
    tensors = list(model.parameters())
    return {
        "rows": len(model.get_input_embeddings().weight),
        "parameters": sum(tensor.numel() for tensor in tensors),
        "bytes of weights": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
    }


def check_model(model: Any, tokenizer: Tokenizer) -> list[int]:
    """Check that a model can be trimmed, and return the ids of the tokens that its settings name.

    A tensor depends on the size of the vocabulary if it has another shape in a model with a larger `vocab_size`.

    Raises:
        UserError: If a tensor other than the embedding and the output head depends on the size of the vocabulary, the
            model has fewer rows than the tokenizer has ids, or a setting names an id without a token.
    """
    import torch

    check_rows(model, tokenizer, "TOKENIZER")
    larger = copy.deepcopy(model.config)
    for settings in _settings(larger):
        sizes = {key: value for key, value in settings.items() if _is_size(key) and type(value) is int}
        settings |= {key: value + _MORE_ROWS for key, value in sizes.items()}
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in _tensors(type(model)(larger))}
    rows = {tensor.data_ptr() for tensor in rows_by_token(model)}
    for name, tensor in _tensors(model):
        depends = shapes.get(name) != tensor.shape
        if depends and tensor.data_ptr() not in rows:
            raise UserError(
                f"{name} of the model depends on the size of the vocabulary, but is neither its embedding nor its "
                "output head, and other tensors cannot be trimmed; trim the tokenizer alone"
            )
        if not depends and tensor.data_ptr() in rows:
            raise UserError(f"{name} of the model does not follow vocab_size of its config; trim the tokenizer alone")
    ids: set[int] = set()
    for settings in _settings(model.config, model.generation_config):
        for key in settings:
            named = ids_in({key: settings[key]}, is_id)
            ids |= named
            if lost := [i for i in named if i >= tokenizer.vocab_size or not tokenizer.vocab[i]]:
                raise UserError(f"the model's {key} names the id {lost[0]}, which has no token; correct its config")
    return sorted(ids)


def trim_model(model: Any, old_ids: npt.NDArray[Any]) -> None:
    """Keep the rows of some tokens, in place, and change the ids in the model's settings.

    Rows are copied bit for bit, and padding rows are dropped. Logits of the tokens that stay are the same, unless a
    matrix product sums in another order: PyTorch's product with a single position does on some CPUs.

    Args:
        model: A model that `check_model` accepts.
        old_ids: int64 [vocab_size], the old id of each token: `Trimmed.old_ids`. The ids of `check_model` are among
            them.
    """
    import torch

    new_ids = {old: new for new, old in enumerate(old_ids.tolist())}
    rows = torch.from_numpy(old_ids)
    kept = [tensor.detach()[rows] for tensor in rows_by_token(model)]
    padding = model.get_input_embeddings().padding_idx
    model.resize_token_embeddings(len(old_ids), mean_resizing=False)
    model.get_input_embeddings().padding_idx = new_ids.get(padding)
    with torch.no_grad():
        for tensor, values in zip(rows_by_token(model), kept, strict=True):
            tensor.copy_(values)
    for settings in _settings(model.config, model.generation_config):
        named = {key: value for key, value in settings.items() if is_id(key)}
        settings |= with_new_ids(named, is_id, new_ids.__getitem__)


def _is_size(key: str) -> bool:
    return "vocab_size" in key and key != "type_vocab_size"  # types are segments, in BERT


def _settings(*configs: Any) -> Iterator[dict[str, Any]]:
    """The attributes of configs and of the configs inside them."""
    from transformers import PretrainedConfig

    for config in configs:
        yield vars(config)
        yield from _settings(*(part for part in vars(config).values() if isinstance(part, PretrainedConfig)))


def _tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    return chain(model.named_parameters(), model.named_buffers())
