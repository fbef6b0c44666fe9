"""Tokenizer folders: our own `superbpe.json`, and Hugging Face's `tokenizer.json` beside it where that is exact."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenizer import _native, files, patterns
from tokenizer.definition import Definition, Described, Stored
from tokenizer.errors import UserError, quoted
from tokenizer.formats.hf import HF_CONFIG_FILE, HF_FILE, hf_config, hf_json
from tokenizer.formats.portable import unportable_part
from tokenizer.formats.text import check_members, write_files
from tokenizer.patterns import Pattern
from tokenizer.preparation import Preparation

FILE = "superbpe.json"
# 2 has tokens that merges do not make, 3 eligible pretokens, 4 a preparation of text; without them, less is written.
FORMAT_VERSION = 4
_REMEDY = "restore the file or train again"
_MERGES = b'"merges": '
_NO_MERGES = _MERGES + b"[]"  # a quotation mark inside a string has a backslash, so that this is the key and its value


def content(definition: Definition, merges: Sequence[Any] | None = None) -> dict[str, Any]:
    """What decides which ids a text gets, as JSON values; `merges` in the place of its own."""
    known: dict[str, Any] = {
        "mode": definition.mode,
        "pattern": definition.pattern.regex,
        "fence": None if definition.fence is None else definition.fence.regex,
        "byte_ids": list(definition.byte_ids),
        "merges": definition.merge_ids.tolist() if merges is None else list(merges),
        "phase1_merges": definition.n_phase1_merges,
        "special_tokens": definition.special_tokens,
    }
    # Only where they are used: what has none of them keeps its hash.
    if definition.eligible is not None:
        known["eligible"] = definition.eligible
    if definition.ignore_merges:
        known["ignore_merges"] = True
    known |= definition.preparation.content()
    if definition.unmerged:
        known["unmerged"] = [[token.hex(), token_id] for token, token_id in sorted(definition.unmerged.items())]
    return known


def identity(definition: Definition) -> str:
    """The hash of `content`."""
    return _identity(content(definition, merges=()), _native.write_merges(definition.merge_ids.reshape(-1)).encode())


def _identity(content: dict[str, Any], merges: bytes) -> str:
    """The hash of a content without merges, and of what `json` writes for them: most of it is merges."""
    before, _, behind = json.dumps(content | {"merges": []}, sort_keys=True).encode().partition(_NO_MERGES)
    digest = hashlib.sha256(before + _MERGES)
    digest.update(merges)
    digest.update(behind)
    return digest.hexdigest()


def _stored_identity(stored: dict[str, Any], written_merges: bytes | None) -> str:
    if written_merges is None:
        return _hash(json.dumps(stored, sort_keys=True).encode())
    return _identity(stored, written_merges)


def save(tokenizer: Described, folder: Path, config: dict[str, Any] | None = None) -> None:
    """Writes the folder. Where `tokenizer.json` could not be exact there is none, so that stock loaders fail loudly.

    Args:
        tokenizer: Any.
        folder: Made if missing.
        config: What `tokenizer_config.json` says, if more than `hf_config`.
    """
    definition = tokenizer.definition
    texts = {HF_CONFIG_FILE: json.dumps(config or hf_config(definition), indent=2) + "\n"}
    part = unportable_part(definition.fence or definition.pattern)
    if part is not None:
        warnings.warn(
            f"no {HF_FILE} is written: HF's regex engine may read {part} of the pattern otherwise", stacklevel=3
        )
    elif definition.mode == "one-pass":
        texts[HF_FILE] = json.dumps(hf_json(tokenizer), ensure_ascii=False, indent=1) + "\n"
    fence = definition.fence
    about = {
        "format": "superbpe-tokenizer",
        "version": _version(definition),
        "sha256": identity(definition),
        "files": {name: _hash(text.encode()) for name, text in texts.items()},
        "pattern_name": definition.pattern.name,
        "fence_name": None if fence is None else fence.name,
        "provenance": tokenizer.provenance,
        "content": content(definition),
    }
    # Last: a folder without it is no tokenizer, and beside files of another one it is refused.
    texts[FILE] = json.dumps(about) + "\n"
    write_files(folder, texts, remove=() if HF_FILE in texts else (HF_FILE,))


def _version(definition: Definition) -> int:
    """The oldest version that says all of it, so that older programs read what they can."""
    if definition.preparation:
        return 4
    if definition.eligible is not None:
        return 3
    return 2 if definition.ignore_merges or definition.unmerged else 1


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def load(folder: Path) -> Stored:
    """What a folder holds, checked.

    Raises:
        UserError: files are missing or damaged, or what decides the ids was changed.
    """
    about, merges, written_merges = _read_quickly(folder)
    path, end = folder / FILE, f"; {_REMEDY}"
    if about.get("format") != "superbpe-tokenizer" or about.get("version") not in range(1, FORMAT_VERSION + 1):
        raise UserError(f"{folder / FILE} is not a tokenizer of format version 1 to {FORMAT_VERSION}; train it again")
    stored = about.get("content")
    if not isinstance(stored, dict) or _stored_identity(stored, written_merges) != about.get("sha256"):
        raise UserError(
            f"{folder / FILE} was changed after it was written: its mode, patterns, ids, merges or special tokens do "
            "not match its hash. Restore the file or train again"
        )
    check_members(about, _ABOUT, path, end=end)
    check_members(stored, _CONTENT, path, "content.", end)
    try:
        "".join(stored["special_tokens"]).encode()
        definition = Definition(
            byte_ids=stored["byte_ids"],
            merge_ids=np.array(stored["merges"], dtype=np.uint32) if merges is None else merges,
            n_phase1_merges=stored["phase1_merges"],
            pattern=_pattern(about["pattern_name"], stored["pattern"]),
            fence=None if stored["fence"] is None else _pattern(about.get("fence_name"), stored["fence"]),
            mode=stored["mode"],
            eligible=stored.get("eligible"),
            special_tokens=stored["special_tokens"],
            ignore_merges=stored.get("ignore_merges", False),
            unmerged={bytes.fromhex(token): token_id for token, token_id in stored.get("unmerged", [])},
            preparation=Preparation.of(stored),
        )
    except UserError:
        raise
    except (ValueError, OverflowError) as error:  # ids out of range, surrogates, digits that are not hexadecimal
        raise UserError(f"{path} is damaged ({quoted(error)}){end}") from None
    found = Stored(definition, about.get("provenance") or {})
    _check_hf_files(folder, about["files"], found)
    return found


_ABOUT = {
    "files": "an object of strings",
    "pattern_name": "a string",
    "fence_name?": "a string or null",
    "provenance?": "an object or null",
}
_CONTENT = {
    "mode": "a string",
    "pattern": "a string",
    "fence": "a string or null",
    "byte_ids": "a list of whole numbers",
    "merges": "a list of lists of three whole numbers",
    "phase1_merges": "a whole number",
    "special_tokens": "an object of whole numbers",
    "eligible?": "a string or null",
    "ignore_merges?": "true or false",
    "unmerged?": "a list of pairs of a string and a whole number",
    "normalizer?": "a list of strings",
    "added_tokens?": "an object of whole numbers",
    "late_tokens?": "a list of strings",
}


def _pattern(name: str | None, regex: str) -> Pattern:
    """A stored pattern: a name must still mean its regex, a custom regex must compile."""
    resolved = patterns.resolve(regex)
    if name in patterns.NAMES and patterns.resolve(name).regex == regex:
        return patterns.resolve(name)
    return resolved


def _read(path: Path, missing: str) -> dict[str, Any]:
    try:
        return files.read_json(path, _REMEDY)
    except FileNotFoundError:
        raise UserError(missing) from None


def _read_quickly(folder: Path) -> tuple[dict[str, Any], npt.NDArray[np.uint32] | None, bytes | None]:
    """`FILE`, its merges and how they are written: without a Python object for each of their numbers.

    None for merges that are not written as `save` does; they are in the file's content as always then.
    """
    path = folder / FILE
    try:
        text = files.read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder} is not a tokenizer folder: it has no {FILE}") from None
    place = text.find(_MERGES + b"[[", max(text.rfind(b'"content": {'), 0))
    start = place + len(_MERGES)
    found = _native.read_merges(text, start) if place >= 0 else None
    if found is not None:
        merges, end = found
        about = files.parse_json(text[:start] + b"[]" + text[end:], path, _REMEDY)
        stored = about.get("content")
        if isinstance(stored, dict) and stored.get("merges") == []:
            return about, merges.reshape(-1, 3), text[start:end]
    return files.parse_json(text, path, _REMEDY), None, None


_HF_PARTS = (
    *("added_tokens", "truncation", "padding"),
    *("normalizer", "pre_tokenizer", "post_processor", "decoder", "model"),
)
"""What of tokenizer.json decides ids or text."""


def _check_hf_files(folder: Path, written: dict[str, str], tokenizer: Stored) -> None:
    """Refuses HF files that no longer say what the tokenizer is; other edits only warn."""
    definition = tokenizer.definition
    path = folder / HF_FILE
    if HF_FILE not in written or definition.mode == "two-pass":
        if path.exists():
            raise UserError(f"{path} must not exist: this tokenizer has no exact tokenizer.json. Delete it")
    elif _hash(files.read_bytes(path) if path.exists() else b"") != written.get(HF_FILE):
        found = _read(path, f"{path} is missing; restore it or train again")
        expected = hf_json(tokenizer)
        for part in _HF_PARTS:
            if found.get(part) != expected[part]:
                raise UserError(f"{path} was changed in its {part!r}: it would give other ids than {FILE}. Restore it")
        warnings.warn(f"{path} was edited after it was written, in parts that do not change ids", stacklevel=4)
    config = folder / HF_CONFIG_FILE
    if not config.exists():
        warnings.warn(f"{config} is missing: transformers may guess another class and give wrong ids", stacklevel=4)
    elif _hash(files.read_bytes(config)) != written.get(HF_CONFIG_FILE):
        _check_hf_config(config, {*definition.special_tokens, *definition.preparation.added_tokens})
        warnings.warn(f"{config} was edited after it was written; ids here do not depend on it", stacklevel=4)


_HF_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
_HF_TOKEN_KEYS = re.compile(r".*_tokens?|added_tokens_decoder|.*special_tokens")


def _check_hf_config(path: Path, known_tokens: set[str]) -> None:
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
        if _HF_TOKEN_KEYS.fullmatch(key) and (new := set(strings(value)) - known_tokens):
            raise UserError(
                f"{path} adds the token {quoted(min(new))} in {quoted(key)}: transformers would give other ids. "
                "Remove it"
            )
