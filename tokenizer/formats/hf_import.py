"""Reading `tokenizer.json`: any byte-level BPE that HF `tokenizers` opens. Errors name the unsupported part."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenizer import patterns
from tokenizer.definition import BYTE_CHARACTERS, MOST_IDS, NO_TOKEN, Definition, Stored, missing_byte, unprintable
from tokenizer.errors import quoted, shortened
from tokenizer.formats import cuts
from tokenizer.formats.checks import Unsupported, reading
from tokenizer.formats.hf import ADDED_TOKEN, MODEL, TEMPLATE, overlap, taken_as_text
from tokenizer.formats.portable import unportable_part
from tokenizer.special import FORMS, Preparation, normalized

_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding")
_MODEL_KEYS = {*MODEL, "vocab", "merges", "ignore_merges"}
REMEDY = "a fast tokenizer of transformers writes a tokenizer.json with save_pretrained"
"""For files of other formats."""


def parse(found: dict[str, Any], path: Path = Path("tokenizer.json"), *, portable: bool = True) -> Stored:
    """Read the content of a tokenizer.json.

    Special tokens are encoded only where the caller allows them. Other added tokens are found in any text, and Unicode
    normalization is applied, as in HF: see `Preparation`. Truncation, padding, post-processing and decoders other than
    ByteLevel are kept for export but not applied; a warning names those that change what HF returns.

    Raises:
        UserError: the content is damaged, or a part of it is not supported.
    """
    with reading(path):
        if "model" not in found:  # the JSON of another program, such as a vocab.json
            raise Unsupported(f"is not a tokenizer.json: it has no 'model'; {REMEDY}")
        if wrong := [part for part in _PARTS if not isinstance(found.get(part), dict | None)]:
            raise Unsupported(f"is damaged: {wrong[0]!r} is {quoted(found[wrong[0]])}, not an object")
        options = found["model"]
        _check_options(options)
        if not isinstance(options["merges"], list) or not isinstance(found.get("added_tokens"), list | None):
            raise Unsupported("is damaged: its merges and its added_tokens are not lists")
        forms = _forms(found.get("normalizer"))
        regex = cuts.regex(found.get("pre_tokenizer"))
        pattern = patterns.resolve(regex or "none")
        if portable and (part := unportable_part(pattern)) is not None:
            raise Unsupported(
                f"cannot be followed exactly: HF's regex engine may interpret {part} differently in {quoted(regex)}"
            )
        vocab = options["vocab"]
        added = _added(found.get("added_tokens") or [], vocab)
        # HF finds an added token in text, and its merges produce it as well.
        produced = {*BYTE_CHARACTERS.values(), *("".join(merge).replace(" ", "") for merge in options["merges"])}
        byte_ids, merges, unmerged = _model(options, added.keys() - produced)
        for string in sorted(produced & added.keys() & vocab.keys()):
            spelled, literal = unprintable(string), string.encode()
            if spelled != literal or added[string].get("special"):
                both = "text and a special token" if spelled == literal else f"the bytes {spelled!r} and {literal!r}"
                raise Unsupported(
                    f"cannot be followed exactly: its added token {quoted(string)} is an ordinary token too, so its id "
                    f"would stand for {both}; remove it from added_tokens"
                )
        if missing := missing_byte(lambda byte: byte_ids[byte] != NO_TOKEN):
            raise Unsupported(f"is not byte-level: {missing}")
        ignore_merges = options.get("ignore_merges") is True
        inside = [string for string in added if string in vocab]
        special = sorted(string for string in inside if added[string].get("special"))
        if ignore_merges and (why := taken_as_text(inside, special, pattern)) is not None:
            raise Unsupported(f"cannot be followed exactly: {why}")
        _warn_of_what_is_not_applied(found, path)
        template = {
            **{part: found.get(part) for part in _PARTS if part != "normalizer"},
            "added_tokens": {
                string: {key: value for key, value in token.items() if key not in ("id", "content")}
                for string, token in added.items()
            },
            "specials_in_vocab": inside,
        }
        definition = Definition(
            byte_ids=byte_ids,
            merge_ids=merges,
            n_phase1_merges=len(merges),
            pattern=pattern,
            special_tokens={string: token["id"] for string, token in added.items() if token.get("special")},
            ignore_merges=ignore_merges,
            unmerged=unmerged,
            preparation=_preparation(added, forms),
        )
        return Stored(definition, {"imported": {"format": "hf"}, TEMPLATE: template})


def with_named(found: dict[str, Any], named: Collection[str], path: Path) -> dict[str, Any]:
    """A tokenizer.json in which named tokens that only the model's vocabulary lists are special, as in `transformers`.

    Tokens that merges produce stay ordinary: their ids would stand for text, too.
    """
    if not named or not isinstance(found.get("model"), dict):
        return found
    with reading(path):
        model = found["model"]
        listed = found.get("added_tokens") or []
        vocab = model["vocab"]
        ids = vocab if isinstance(vocab, dict) else {entry[0]: i for i, entry in enumerate(vocab)}
        only = ids.keys() & {*named} - {token["content"] for token in listed} - {*BYTE_CHARACTERS.values()}
        if only:
            only -= {"".join(merge).replace(" ", "") for merge in model.get("merges") or []}
        return found | {
            "added_tokens": [*listed, *(ADDED_TOKEN | {"id": ids[name], "content": name} for name in sorted(only))]
        }


def _check_options(model: dict[str, Any]) -> None:
    """Check the model's options and ids; the merges and the names only have the right types."""
    kind = model.get("type", "BPE")
    if kind != "BPE":
        raise Unsupported(f"has a model of the type {quoted(kind)}; only byte-level BPE can be read")
    for part in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(part):
            raise Unsupported(f"is not byte-level: its {part} is {quoted(model[part])}")
    if model.get("dropout"):
        raise Unsupported(f"cannot be followed exactly: its dropout of {shortened(model['dropout'])} gives random ids")
    if unknown := set(model) - _MODEL_KEYS:
        raise Unsupported(f"has an unknown model option {quoted(min(unknown))}")
    names: dict[int, str] = {}
    for name, token_id in model["vocab"].items():
        if type(token_id) is not int or not 0 <= token_id < MOST_IDS:
            what = f"{quoted(token_id)} ({quoted(name)})"
            raise Unsupported(f"is damaged: an id is not a whole number from 0 to {MOST_IDS - 1}, but {what}")
        if names.setdefault(token_id, name) != name:
            both = f"{quoted(names[token_id])} and {quoted(name)}"
            raise Unsupported(f"is damaged: {both} both have the id {token_id}")


def _forms(normalizer: Any) -> tuple[str, ...]:
    """The Unicode normalization forms that a normalizer applies, in order."""
    parts = [] if normalizer is None else cuts.flat(normalizer, "normalizers")
    if all(isinstance(part, dict) and part.get("type") in FORMS for part in parts):
        return tuple(part["type"] for part in parts)
    what = f"its normalizer {shortened(_name(normalizer, 'normalizers'))} changes text before it is encoded"
    raise Unsupported(f"cannot be followed exactly: {what} ({', '.join(FORMS)} are supported)")


def _name(part: Any, members: str) -> str:
    parts = cuts.flat(part, members)
    return " + ".join(str(each.get("type")) if isinstance(each, dict) else json.dumps(each) for each in parts)


def _warn_of_what_is_not_applied(found: dict[str, Any], path: Path) -> None:
    """Warn about each component that changes HF's output but is not applied by `Tokenizer`."""
    unlike = {}
    parts = [part for part in cuts.flat(found.get("post_processor"), "processors") if isinstance(part, dict)]
    if adding := [part for part in parts if part["type"] != "ByteLevel" and part.get("special_tokens") != {}]:
        unlike[f"post-processor {' + '.join(part['type'] for part in adding)}"] = "adds special tokens to each text"
    if (decoder := _name(found.get("decoder"), "decoders")) != "ByteLevel":
        unlike[f"decoder {decoder}"] = "makes decoded text differ from the bytes of the tokens"
    if found.get("truncation"):
        unlike["truncation"] = "drops ids of long texts"
    if found.get("padding"):
        unlike["padding"] = "appends ids to short texts"
    for part, effect in unlike.items():
        warnings.warn(f"{path}: its {part} is kept for export but not applied: in HF it {effect}", stacklevel=2)


def _added(listed: list[dict[str, Any]], vocab: dict[str, int]) -> dict[str, dict[str, Any]]:
    added: dict[str, dict[str, Any]] = {}
    following = len(vocab)
    for token in listed:
        string, token_id = token["content"], token["id"]
        if flags := [flag for flag in ("lstrip", "rstrip", "single_word") if token.get(flag)]:
            raise Unsupported(f"cannot be followed exactly: its added token {quoted(string)} has {flags[0]}")
        # HF ignores the id in the file and assigns the vocabulary's id, or else the next free one.
        expected = vocab.get(string, following)
        if string in added or token_id != expected:
            raise Unsupported(f"is damaged: its added token {quoted(string)} has id {quoted(token_id)}, not {expected}")
        following = max(following, expected + 1)
        added[string] = token | {"id": expected}
    return added


def _preparation(added: dict[str, dict[str, Any]], forms: tuple[str, ...]) -> Preparation:
    """HF's preprocessing. Without a normalizer and overlaps, `late` has no effect and is left empty."""
    late = [string for string, token in added.items() if token.get("normalized")]
    for string in late:
        if (normal := normalized(forms, string)) != string:
            what = f"its added token {quoted(string)} is normalized and matches text that becomes {quoted(normal)}"
            raise Unsupported(f"cannot be followed exactly: {what}")
    return Preparation(
        forms=forms,
        added_tokens={string: token["id"] for string, token in added.items() if not token.get("special")},
        late=frozenset(late if forms or overlap(added) else ()),
    )


def _model(
    options: dict[str, Any], added: Collection[str]
) -> tuple[list[int], npt.NDArray[np.uint32], dict[bytes, int]]:
    """The ids of the bytes, the merges and the tokens without one, as in `Definition`"""
    vocab: dict[str, int] = options["vocab"]
    names = [name for name in vocab if name not in added]
    spelled = [unprintable(name) or b"" for name in names]
    if b"" in spelled:
        wrong = names[spelled.index(b"")]
        raise Unsupported(f"is not byte-level: its token {quoted(wrong)} is not in the byte alphabet")
    ids = {name: vocab[name] for name in names}
    byte_ids = [ids.get(BYTE_CHARACTERS[byte], NO_TOKEN) for byte in range(256)]
    rows: list[int] = []
    for rank, entry in enumerate(options["merges"]):
        try:
            left, right = entry.split(" ") if isinstance(entry, str) else entry
            rows += ids[left], ids[right], ids[left + right]
        except (KeyError, ValueError):
            raise Unsupported(f"is damaged: merge {rank}, {quoted(entry)}, is not in its vocabulary") from None
    merges = np.array(rows, dtype=np.uint32).reshape(-1, 3)
    made = set(byte_ids) | set(merges[:, 2].tolist())
    unmerged = {token: ids[name] for name, token in zip(names, spelled, strict=True) if ids[name] not in made}
    return byte_ids, merges, unmerged
