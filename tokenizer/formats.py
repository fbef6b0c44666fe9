"""Tokenizer folders: our own `superbpe.json`, and Hugging Face's `tokenizer.json` beside it."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenizer import patterns
from tokenizer.errors import UserError
from tokenizer.patterns import Pattern

if TYPE_CHECKING:
    from tokenizer.bpe import Tokenizer

FILE = "superbpe.json"
HF_FILE = "tokenizer.json"
HF_CONFIG_FILE = "tokenizer_config.json"
FORMAT_VERSION = 1


def _byte_characters() -> dict[int, str]:
    """The printable character that stands for each byte in HF's and GPT-2's files."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(rest)}


BYTE_CHARACTERS = _byte_characters()
BYTE_ORDER = bytes(byte for byte, _ in sorted(BYTE_CHARACTERS.items(), key=lambda item: item[1]))
_TABLE = {byte: ord(character) for byte, character in BYTE_CHARACTERS.items()}


def printable(token: bytes) -> str:
    """A token in HF's byte alphabet: b" the" is "Ġthe"."""
    return token.decode("latin-1").translate(_TABLE)


def content(tokenizer: Tokenizer) -> dict[str, Any]:
    """What decides which ids a text gets, as JSON values."""
    return {
        "mode": tokenizer.mode,
        "pattern": tokenizer.pattern.regex,
        "fence": None if tokenizer.fence is None else tokenizer.fence.regex,
        "byte_ids": list(tokenizer.byte_ids),
        "merges": tokenizer.merge_ids.tolist(),
        "phase1_merges": tokenizer.n_phase1_merges,
        "special_tokens": tokenizer.special_tokens,
    }


def hf_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """The tokenizer as HF `tokenizers` reads it.

    Raises:
        UserError: it is two-pass, which that format cannot express.
    """
    if tokenizer.mode != "one-pass":
        raise UserError(
            "a two-pass tokenizer cannot be written as tokenizer.json: phase 2 runs over whole phase-1 tokens there, "
            "which HF tokenizers cannot express; train with phase1_fence=lifted for an exact export"
        )
    cut = tokenizer.fence or tokenizer.pattern
    if (part := unportable_part(cut)) is not None:
        raise UserError(
            f"the pattern {cut.regex!r} cannot be written as tokenizer.json: "
            f"HF's regex engine may read {part} otherwise"
        )
    split = {"type": "Split", "pattern": {"Regex": cut.regex}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    special_ids = set(tokenizer.special_tokens.values())
    names = [printable(token) for token in tokenizer.vocab]
    if clash := set(tokenizer.special_tokens) & {name for i, name in enumerate(names) if i not in special_ids}:
        raise UserError(
            f"the special token {min(clash)!r} is also how tokenizer.json writes an ordinary token, and would get its "
            "id there; use another special string"
        )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token_id,
                "content": string,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for string, token_id in sorted(tokenizer.special_tokens.items(), key=lambda item: item[1])
        ],
        "normalizer": None,
        # Split before ByteLevel: the pattern is about text, not about its byte alphabet.
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]} if cut.regex else byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {name: i for i, name in enumerate(names) if i not in special_ids},
            "merges": [[names[left], names[right]] for left, right in tokenizer.merge_ids[:, :2].tolist()],
        },
    }


def unportable_part(pattern: Pattern) -> str | None:
    r"""What of a custom regex HF's engine (Oniguruma) may read otherwise than ours, or None.

    Known differences: `$` and `^` are the ends of any line there, flags have other letters, `\w`, `\b` and `\h` mean
    other characters, and `{n,m}+` is a repetition. Named patterns avoid them all.
    """
    if pattern.name != "custom":
        return None
    tokens = re.findall(r"\\.|\(\?[\w^-]*[:=!<>)]?|\[\[?:?|\{[\d,]+\}\+|.", pattern.regex, re.DOTALL)
    in_class = 0
    for part in tokens:
        if part[0] in "[]":
            in_class = max(0, in_class + part.count("[") - part.count("]"))
        if (
            (part in "^$" and not in_class)
            or part == "[[:"
            or (len(part) == 2 and part[0] == "\\" and part[1] in "wWbBhHRXKGAzZ")
            or (part.startswith("(?") and part not in ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(?<", "(?>", "(?i:"))
            or part.endswith("}+")
        ):
            return repr(part)
    cased = re.search(r"\\[pP]\{L[ult]\}|\[:(upper|lower):", pattern.regex)
    return "classes of case in a (?i:...)" if cased and "(?i" in pattern.regex else None


def _hf_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """`tokenizer_config.json`. Without the class, transformers guesses one from the model and gives wrong ids."""
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 10**30,
        "clean_up_tokenization_spaces": False,
    }
    if "<|endoftext|>" in tokenizer.special_tokens:
        config |= {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    return config


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes the folder. Where `tokenizer.json` could not be exact there is none, so that stock loaders fail loudly."""
    files = {HF_CONFIG_FILE: json.dumps(_hf_config(tokenizer), indent=2) + "\n"}
    part = unportable_part(tokenizer.fence or tokenizer.pattern)
    if part is not None:
        warnings.warn(
            f"no {HF_FILE} is written: HF's regex engine may read {part} of the pattern otherwise", stacklevel=3
        )
    elif tokenizer.mode == "one-pass":
        files[HF_FILE] = json.dumps(hf_json(tokenizer), ensure_ascii=False, indent=1) + "\n"
    fence = tokenizer.fence
    about = {
        "format": "superbpe-tokenizer",
        "version": FORMAT_VERSION,
        "sha256": tokenizer.sha256,
        "files": {name: _hash(text.encode()) for name, text in files.items()},
        "pattern_name": tokenizer.pattern.name,
        "fence_name": None if fence is None else fence.name,
        "provenance": tokenizer.provenance,
        "content": content(tokenizer),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (HF_FILE, HF_CONFIG_FILE, FILE):
        (folder / stale).unlink(missing_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    # Last: a folder without it is no tokenizer.
    (folder / FILE).write_text(json.dumps(about) + "\n", encoding="utf-8")


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def load(folder: Path) -> dict[str, Any]:
    """Arguments of `Tokenizer` out of a folder, checked.

    Raises:
        UserError: files are missing or damaged, or what decides the ids was changed.
    """
    about = _read(folder / FILE, f"{folder} is not a tokenizer folder: it has no {FILE}")
    if about.get("format") != "superbpe-tokenizer" or about.get("version") != FORMAT_VERSION:
        raise UserError(f"{folder / FILE} is not a tokenizer of format version {FORMAT_VERSION}; train it again")
    stored = about.get("content")
    if not isinstance(stored, dict) or _hash(json.dumps(stored, sort_keys=True).encode()) != about.get("sha256"):
        raise UserError(
            f"{folder / FILE} was changed after it was written: its mode, patterns, ids, merges or special tokens do "
            "not match its hash. Restore the file or train again"
        )
    try:
        arguments = {
            "byte_ids": _integers(stored["byte_ids"]),
            "merge_ids": np.array([_integers(merge) for merge in stored["merges"]], dtype=np.uint32).reshape(-1, 3),
            "n_phase1_merges": _integers([stored["phase1_merges"]])[0],
            "pattern": _pattern(about["pattern_name"], stored["pattern"]),
            "fence": None if stored["fence"] is None else _pattern(about["fence_name"], stored["fence"]),
            "mode": stored["mode"],
            "special_tokens": dict(
                zip(stored["special_tokens"], _integers(stored["special_tokens"].values()), strict=True)
            ),
            "provenance": dict(about.get("provenance") or {}),
        }
        written = dict(about.get("files") or {})
        "".join(stored["special_tokens"]).encode()
    except UserError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{folder / FILE} is damaged ({error!r}); restore the file or train again") from None
    _check_hf_files(folder, written, arguments)
    return arguments


def _integers(values: Iterable[Any]) -> list[int]:
    """The values, if all are whole numbers: a fraction must not be cut off silently."""
    found = list(values)
    if not all(type(value) is int for value in found):
        raise TypeError("a number is not a whole one")
    return found


def _pattern(name: str, regex: str) -> Pattern:
    """A stored pattern: a name must still mean its regex, a custom regex must compile."""
    resolved = patterns.resolve(regex)
    if name in patterns.NAMES and patterns.resolve(name).regex == regex:
        return patterns.resolve(name)
    return resolved


def _read(path: Path, missing: str) -> dict[str, Any]:
    try:
        parsed = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(missing) from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}); restore the file or train again") from None
    if not isinstance(parsed, dict):
        raise UserError(f"{path} is not a JSON object; restore the file or train again")
    return parsed


_HF_PARTS = (
    *("added_tokens", "truncation", "padding"),
    *("normalizer", "pre_tokenizer", "post_processor", "decoder", "model"),
)
"""What of tokenizer.json decides ids or text."""


def _check_hf_files(folder: Path, written: dict[str, str], arguments: dict[str, Any]) -> None:
    """Refuses HF files that no longer say what the tokenizer is; other edits only warn."""
    from tokenizer.bpe import Tokenizer

    path = folder / HF_FILE
    if HF_FILE not in written or arguments["mode"] == "two-pass":
        if path.exists():
            raise UserError(f"{path} must not exist: this tokenizer has no exact tokenizer.json. Delete it")
    elif _hash(path.read_bytes() if path.exists() else b"") != written.get(HF_FILE):
        found = _read(path, f"{path} is missing; restore it or train again")
        expected = hf_json(Tokenizer(**arguments))
        for part in _HF_PARTS:
            if found.get(part) != expected[part]:
                raise UserError(f"{path} was changed in its {part!r}: it would give other ids than {FILE}. Restore it")
        warnings.warn(f"{path} was edited after it was written, in parts that do not change ids", stacklevel=4)
    config = folder / HF_CONFIG_FILE
    if not config.exists():
        warnings.warn(f"{config} is missing: transformers may guess another class and give wrong ids", stacklevel=4)
    elif _hash(config.read_bytes()) != written.get(HF_CONFIG_FILE):
        _check_hf_config(config, arguments["special_tokens"])
        warnings.warn(f"{config} was edited after it was written; ids here do not depend on it", stacklevel=4)


_HF_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
_HF_TOKEN_KEYS = re.compile(r".*_tokens?|added_tokens_decoder|.*special_tokens")


def _check_hf_config(path: Path, special_tokens: dict[str, int]) -> None:
    """Refuses another class, and tokens that transformers would add: both give other ids there."""
    config = _read(path, f"{path} is missing")
    if config.get("tokenizer_class") not in _HF_CLASSES:
        raise UserError(f"{path} was changed in its tokenizer_class: transformers would give other ids. Restore it")

    def strings(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from strings(value["content"] if "content" in value else list(value.values()))
        elif isinstance(value, list):
            for item in value:
                yield from strings(item)

    for key, value in config.items():
        if _HF_TOKEN_KEYS.fullmatch(key) and (new := set(strings(value)) - set(special_tokens)):
            raise UserError(
                f"{path} adds the token {min(new)!r} in {key!r}: transformers would give other ids. Remove it"
            )
