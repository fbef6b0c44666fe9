"""Reading `tokenizer.json`: any byte-level BPE that HF `tokenizers` opens. Errors name the unsupported part."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokenizer import _native, files, patterns
from tokenizer.definition import (
    BYTE_CHARACTERS,
    NO_TOKEN,
    Definition,
    Stored,
    missing_byte,
    named_as_text,
    unprintable,
    unprintable_all,
)
from tokenizer.errors import UserError, quoted, shortened
from tokenizer.formats import cuts
from tokenizer.formats.hf import NEVER_APPLY, TEMPLATE, forms_of, overlap, whole_pretoken
from tokenizer.formats.portable import unportable_part
from tokenizer.formats.text import check_ids, check_members, read_bytes
from tokenizer.special import FORMS, Preparation, normalized

IGNORABLE = ("normalizer", "dropout", "regex", "lstrip", "rstrip", "single_word", "normalized")


def read(path: Path, ignore: Collection[str] = ()) -> Stored:
    """Read a tokenizer.json.

    Special tokens are encoded only where the caller allows them. Other added tokens are found in any text, and Unicode
    normalization is applied, as in HF: see `Preparation`. Truncation, padding, post-processing and decoders other than
    ByteLevel are kept for export but not applied; a warning names those that change what HF returns.

    Args:
        path: the file.
        ignore: names from `IGNORABLE`: unsupported parts that change ids, to be ignored.

    Raises:
        UserError: the file is damaged, or a part of it is not supported.
    """
    content = read_bytes(path)
    quick = _native.read_hf_model(content)
    if quick is None:  # invalid file: the slower path reports the error
        return parse(files.parse_json(content, path), path, ignore)
    rest, n_tokens, added, byte_ids, merges, as_strings, unmerged = quick
    written = "strings" if as_strings else "pairs"
    model = _Model(n_tokens, dict(added), byte_ids, merges.reshape(-1, 3), written, dict(unmerged))
    return parse(files.parse_json(rest, path), path, ignore, model)


@dataclass(frozen=True)
class _Model:
    """Vocabulary and merges.

    Attributes:
        n_tokens: size of the vocabulary.
        ids: name to id; contains at least the added tokens that are in the vocabulary.
        byte_ids: see `Definition`.
        merges: uint32 [n, 3].
        written: format of the merges: "strings" or "pairs".
        unmerged: see `Definition`.
    """

    n_tokens: int
    ids: dict[str, int]
    byte_ids: list[int]
    merges: np.ndarray[Any, np.dtype[np.uint32]]
    written: str
    unmerged: dict[bytes, int]


def parse(
    found: dict[str, Any], path: Path | None = None, ignore: Collection[str] = (), model: _Model | None = None
) -> Stored:
    """`read` for parsed content; `path` is for messages. `model` is its vocabulary and merges, if already read."""
    if unknown := set(ignore) - set(IGNORABLE):
        raise UserError(f"ignore={quoted(sorted(unknown)[0])} cannot be ignored; these can: {', '.join(IGNORABLE)}")
    path = path or Path("tokenizer.json")
    try:
        return _stored(found, path, set(ignore), model)
    except KeyError as error:
        raise UserError(f"{path} is damaged: the key {error} is missing in one of its parts") from None
    except (AttributeError, IndexError, TypeError, OverflowError) as error:
        raise UserError(f"{path} is damaged ({quoted(error)})") from None


def _stored(found: dict[str, Any], path: Path, ignore: set[str], read: _Model | None) -> Stored:
    check_members(found, _MEMBERS, path)
    model = found["model"]
    _check_model(model, path, ignore)
    forms = () if "normalizer" in ignore else _forms(found.get("normalizer"), path)
    regex = cuts.regex(found.get("pre_tokenizer"), path)
    pattern = patterns.resolve(regex or "none")
    if (part := unportable_part(pattern)) is not None and "regex" not in ignore:
        raise _refusal(
            path, f"HF's regex engine may interpret {part} in its pattern {quoted(regex)} differently", "regex"
        )
    vocab: dict[str, int] = model["vocab"] if read is None else read.ids
    added = _added(found.get("added_tokens") or [], vocab, read.n_tokens if read else len(vocab), path, ignore)
    known = read or _model(model, added, path)
    if missing := missing_byte(lambda byte: known.byte_ids[byte] != NO_TOKEN):
        raise UserError(f"{path} is not byte-level: {missing}")
    preparation = _preparation(added, forms, path)
    ignore_merges = model.get("ignore_merges") is True
    if ignore_merges and (clash := named_as_text(string for string in added if string in vocab)) is not None:
        raise UserError(
            f"{path} cannot be followed exactly: its added token {quoted(clash)} is in the model's vocabulary, where "
            f"that name spells {quoted(unprintable(clash))}, and with ignore_merges HF also gives its id to that text"
        )
    inside = [string for string, token in added.items() if token.get("special") and string in vocab]
    if ignore_merges and (clash := whole_pretoken(inside, pattern)) is not None:
        raise UserError(
            f"{path} cannot be followed exactly: its special token {quoted(clash)} is in the model's vocabulary, and "
            "with ignore_merges HF gives its id to a pretoken that equals it, even where special strings are text"
        )
    _warn_of_what_is_not_applied(found, path)
    template = {
        "version": found.get("version", "1.0"),
        "truncation": found.get("truncation"),
        "padding": found.get("padding"),
        "normalizer": found.get("normalizer") if "normalizer" not in ignore else None,
        "pre_tokenizer": found.get("pre_tokenizer"),
        "post_processor": found.get("post_processor"),
        "decoder": found.get("decoder"),
        "added_tokens": {
            string: {key: value for key, value in token.items() if key not in ("id", "content")}
            for string, token in added.items()
        },
        "specials_in_vocab": [string for string in added if string in vocab],
        "merges": known.written,
        "model": {
            key: None if key in ignore else value for key, value in model.items() if key not in ("vocab", "merges")
        },
    }
    definition = Definition(
        byte_ids=known.byte_ids,
        merge_ids=known.merges,
        n_phase1_merges=len(known.merges),
        pattern=pattern,
        special_tokens={string: token["id"] for string, token in added.items() if token.get("special")},
        ignore_merges=ignore_merges,
        unmerged=known.unmerged,
        preparation=preparation,
    )
    return Stored(definition, {"imported": {"format": "hf", "ignored": sorted(ignore)}, TEMPLATE: template})


_MEMBERS = {
    "model": "an object",
    "added_tokens?": "a list of objects or null",
    "normalizer?": "an object or null",
    "pre_tokenizer?": "an object or null",
    "post_processor?": "an object or null",
    "decoder?": "an object or null",
    "truncation?": "an object or null",
    "padding?": "an object or null",
}


def _model(model: dict[str, Any], added: Collection[str], path: Path) -> _Model:
    """Vocabulary and merges; anything invalid is a UserError."""
    vocab: dict[str, int] = model["vocab"]
    names = [name for name in vocab if name not in added]
    spelled = unprintable_all(names)
    if spelled is None or not all(spelled):
        wrong = next(name for name in names if not unprintable(name))
        raise UserError(f"{path} is not byte-level: its token {quoted(wrong)} is not in the byte alphabet")
    tokens = dict(zip(names, spelled, strict=True))
    byte_ids = [vocab[name] if (name := BYTE_CHARACTERS[byte]) in tokens else NO_TOKEN for byte in range(256)]
    merges, written = _merges(model["merges"], tokens, vocab, path)
    made = set(byte_ids) | set(merges[:, 2].tolist())
    unmerged = {token: vocab[name] for name, token in tokens.items() if vocab[name] not in made}
    return _Model(len(vocab), vocab, byte_ids, merges, written, unmerged)


def _refusal(path: Path, why: str, part: str) -> UserError:
    return UserError(f"{path} cannot be followed exactly: {why}; pass ignore={{{part!r}}} to ignore this")


def _forms(normalizer: Any, path: Path) -> tuple[str, ...]:
    """The Unicode normalization forms that a normalizer applies, in order."""
    if (forms := forms_of(normalizer)) is None:
        raise _refusal(
            path,
            f"its normalizer {shortened(_name(normalizer))} changes text before it is encoded "
            f"({', '.join(FORMS)} are supported)",
            "normalizer",
        )
    return forms


def _name(part: Any) -> str:
    return " + ".join(str(each.get("type")) if isinstance(each, dict) else json.dumps(each) for each in _flat(part))


def _flat(part: Any) -> list[Any]:
    """The components of a sequence; a list of one for any other component."""
    if not isinstance(part, dict) or part.get("type") != "Sequence":
        return [part]
    members = next((value for value in part.values() if isinstance(value, list)), [])
    return [each for member in members for each in _flat(member)]


def _warn_of_what_is_not_applied(found: dict[str, Any], path: Path) -> None:
    """Warn about each component that changes HF's output but is not applied by `Tokenizer`."""
    unlike = {}
    if adding := [part for part in _flat(found.get("post_processor")) if _adds_tokens(part)]:
        unlike[f"post-processor {' + '.join(map(_name, adding))}"] = "adds special tokens to each text"
    if (decoder := _name(found.get("decoder"))) != "ByteLevel":
        unlike[f"decoder {decoder}"] = "makes decoded text differ from the bytes of the tokens"
    if found.get("truncation"):
        unlike["truncation"] = "drops ids of long texts"
    if found.get("padding"):
        unlike["padding"] = "appends ids to short texts"
    for part, effect in unlike.items():
        warnings.warn(f"{path}: its {part} is kept for export but not applied: in HF it {effect}", stacklevel=2)


def _adds_tokens(processor: Any) -> bool:
    if not isinstance(processor, dict) or processor.get("type") == "ByteLevel":
        return False
    return processor.get("type") != "TemplateProcessing" or bool(processor.get("special_tokens"))


def _check_model(model: Any, path: Path, ignore: set[str]) -> None:
    kind = model.get("type", "BPE")
    if kind != "BPE":
        raise UserError(f"{path} has a model of the type {quoted(kind)}; only byte-level BPE can be read")
    check_members(model, {"vocab": "an object", "merges": "a list"}, path, "model.")
    for part in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(part):
            raise UserError(f"{path} is not byte-level: its {part} is {quoted(model[part])}")
    if model.get("dropout") and "dropout" not in ignore:
        raise _refusal(path, f"its dropout of {shortened(model['dropout'])} gives random ids", "dropout")
    known = {"type", "vocab", "merges", "ignore_merges", "dropout", "continuing_subword_prefix", "end_of_word_suffix"}
    if unknown := set(model) - known - set(NEVER_APPLY):
        raise UserError(f"{path} has an unknown model option {quoted(min(unknown))}")
    check_ids(model["vocab"], path)


def _added(
    listed: list[Any], vocab: dict[str, int], n_tokens: int, path: Path, ignore: set[str]
) -> dict[str, dict[str, Any]]:
    added: dict[str, dict[str, Any]] = {}
    following = n_tokens
    for i, token in enumerate(listed):
        check_members(token, {"content": "a string", "id": "a whole number"}, path, f"added_tokens[{i}].")
        string, token_id = token["content"], token["id"]
        for flag in ("lstrip", "rstrip", "single_word"):
            if token.get(flag) and flag not in ignore:
                raise _refusal(path, f"its added token {quoted(string)} has {flag}", flag)
        # HF ignores the id in the file and assigns the vocabulary's id, or else the next free one.
        expected = vocab.get(string, following)
        if string in added or token_id != expected:
            raise UserError(
                f"{path} is damaged: its added token {quoted(string)} has id {quoted(token_id)}, not {expected}"
            )
        following = max(following, token_id + 1)
        added[string] = {key: value for key, value in token.items() if key not in ignore}
    return added


def _preparation(added: dict[str, dict[str, Any]], forms: tuple[str, ...], path: Path) -> Preparation:
    """HF's preprocessing. Without a normalizer and overlaps, `late` has no effect and is left empty."""
    late = [string for string, token in added.items() if token.get("normalized")]
    for string in late:
        if (normal := normalized(forms, string)) != string:
            raise _refusal(
                path,
                f"its added token {quoted(string)} is normalized and matches text that becomes {quoted(normal)}",
                "normalized",
            )
    return Preparation(
        forms=forms,
        added_tokens={string: token["id"] for string, token in added.items() if not token.get("special")},
        late=frozenset(late if forms or overlap(added) else ()),
    )


def _merges(
    listed: list[Any], tokens: dict[str, bytes], vocab: dict[str, int], path: Path
) -> tuple[np.ndarray[Any, np.dtype[np.uint32]], str]:
    strings = bool(listed) and isinstance(listed[0], str)
    rows = []
    for rank, entry in enumerate(listed):
        pair = entry.split(" ") if isinstance(entry, str) else entry
        if len(pair) != 2 or isinstance(entry, str) != strings:
            raise UserError(f"{path} is damaged: merge {rank} is {quoted(entry)}")
        left, right = pair
        if not (left in tokens and right in tokens and left + right in tokens):
            raise UserError(
                f"{path} is damaged: merge {rank}, {quoted(left)} and {quoted(right)}, is not in its vocabulary"
            )
        rows.append((vocab[left], vocab[right], vocab[left + right]))
    return np.array(rows, dtype=np.uint32).reshape(-1, 3), "strings" if strings else "pairs"
