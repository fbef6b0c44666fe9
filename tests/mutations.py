"""Random changes of valid files: of any bytes, and of JSON by its structure."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

_NUMBERS = [0, -1, 1, 255, 256, 65_536, (1 << 24) - 1, 1 << 24, 1 << 31, 1 << 32, 1 << 63, 1 << 64, 1e308, 0.5, -0.0]
_STRINGS = [
    "",
    " ",
    "a",
    "Ġ",
    "Ġthe",
    "\x00",
    "\ud800",
    "\ufeff",
    "<|endoftext|>",
    "é",
    "(",
    "(a+)+$",
    "gpt2",
    "a" * 5000,
]
_VALUES: list[Any] = [*_NUMBERS, *_STRINGS, None, True, False, [], {}, [[]], {"a": 1}, [["a", "b"]], float("nan")]


def changed_bytes(rng: random.Random, content: bytes) -> bytes:
    """The content with one to four changes: bits flipped, parts removed, repeated, moved or overwritten, or cut off."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if not changed:
            changed += bytes([rng.randrange(256)])
        start = rng.randrange(len(changed))
        end = min(start + rng.choice([1, 2, 4, 8, 30, 300]), len(changed))
        part = bytes(changed[start:end])
        match rng.randrange(9):
            case 0 | 1:
                changed[start] ^= 1 << rng.randrange(8)
            case 2:
                changed[start] = rng.choice(b'\x00\xff"{}[],:\\ \n\r0-9eE.\xed')
            case 3:
                del changed[start:end]
            case 4:
                changed[start:start] = part * rng.choice([1, 2, 50])
            case 5:
                to = rng.randrange(len(changed))
                changed[to : to + len(part)] = part
            case 6:
                changed[start:end] = bytes(rng.choice([[0], [255]]) * (end - start))
            case 7:
                width = rng.choice([1, 2, 4, 8])
                number = rng.choice([0, 1, (1 << 8 * width) - 1, 1 << (8 * width - 1), (1 << (8 * width - 1)) - 1])
                changed[start : start + width] = number.to_bytes(width, "little")
            case _:
                del changed[start:]
    return bytes(changed)


def changed_json(rng: random.Random, content: bytes) -> bytes:
    """A JSON file with one to three values replaced, removed, repeated or moved; most changes are near the root."""
    value = json.loads(content)
    for _ in range(rng.choice([1, 1, 2, 3])):
        _change(rng, value)
    return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _change(rng: random.Random, holder: list[Any] | dict[str, Any]) -> None:
    """Change a random value of `holder` or of a container in it."""
    keys: list[Any] = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    if not keys:
        return
    key = rng.choice(keys)
    value = holder[key]  # type: ignore[index]
    if isinstance(value, list | dict) and value and rng.random() < 0.85:
        _change(rng, value)
        return
    match rng.randrange(6):
        case 0:
            del holder[key]  # type: ignore[arg-type]
        case 1:
            other = rng.choice(keys)
            holder[key], holder[other] = holder[other], value  # type: ignore[index]
        case 2 if isinstance(holder, dict):
            holder[rng.choice([*_STRINGS, *map(str, keys[:3])])] = value
        case 2:
            holder.insert(rng.randrange(len(keys) + 1), value)
        case 3 if isinstance(value, int):
            holder[key] = value + rng.choice([-1, 1, 256])  # type: ignore[index]
        case 3 if isinstance(value, str):
            at = rng.randrange(len(value) + 1)
            holder[key] = value[:at] + rng.choice(_STRINGS) + value[at + rng.randrange(2) :]  # type: ignore[index]
        case _:
            holder[key] = copy.deepcopy(rng.choice(_VALUES))  # type: ignore[index]
