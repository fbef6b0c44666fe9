"""Ids of tokens in JSON beside a definition: post-processors, `generation_config.json`, the `config.json` of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenizer.errors import UserError

_TEMPLATE_KEYS = ("ids", "cls", "sep", "pad_id")
_POSITIONS, _BIASES = "forced_decoder_ids", "sequence_bias"
"""Lists of pairs: a position and an id; a list of ids and a number."""
_ID_KEYS = (
    *("_token_id", "_token_ids", "_token_index", "_words_ids", "_to_id", "suppress_tokens"),
    *(_POSITIONS, _BIASES),
)
"""Ends of the settings of models and of generation that name tokens by their ids."""


def is_id(key: str) -> bool:
    """Whether a key of a `config.json` or `generation_config.json` names tokens by their ids."""
    return key.endswith(_ID_KEYS)


def with_new_ids(value: Any, is_id: Callable[[str], bool], new_id: Callable[[int], int], key: str = "") -> Any:
    """A copy of a JSON value in which the ids of tokens are replaced.

    Args:
        value: the value.
        is_id: whether the numbers under a key, in lists and objects too, are ids.
        new_id: returns the id that replaces one. Negative numbers, which stand for no token, are kept.
        key: the key of the value.
    """
    if isinstance(value, dict):
        return {name: with_new_ids(part, is_id, new_id, key if is_id(key) else name) for name, part in value.items()}
    if isinstance(value, list | tuple):
        nested = [isinstance(part, list | tuple) for part in value]
        other = None  # place of what is not an id: the position, or the bias
        if key == _POSITIONS and nested == [False, False]:
            other = 0
        elif key == _BIASES and nested == [True, False]:
            other = 1
        return [part if i == other else with_new_ids(part, is_id, new_id, key) for i, part in enumerate(value)]
    return new_id(value) if type(value) is int and value >= 0 and is_id(key) else value


def ids_in(value: Any, is_id: Callable[[str], bool]) -> set[int]:
    """The ids of tokens in a JSON value; see `with_new_ids`."""
    found: set[int] = set()

    def add(token_id: int) -> int:
        found.add(token_id)
        return token_id

    with_new_ids(value, is_id, add)
    return found


def ids_in_template(template: Any) -> set[int]:
    """The ids in the parts of an imported tokenizer.json that are kept for export."""
    return ids_in(template, _TEMPLATE_KEYS.__contains__)


def template_with_new_ids(template: Any, new_ids: Mapping[int, int]) -> Any:
    """These parts with new ids.

    Raises:
        UserError: they name an id that has no new one.
    """
    if lost := ids_in_template(template) - new_ids.keys():
        where = "the post-processor or the padding of the tokenizer.json"
        raise UserError(f"{where} names the id {min(lost)}, which has no token; correct the file")
    return with_new_ids(template, _TEMPLATE_KEYS.__contains__, new_ids.__getitem__)
