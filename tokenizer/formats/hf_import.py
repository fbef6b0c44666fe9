"""Reading `tokenizer.json`: any byte-level BPE that HF `tokenizers` opens. Errors name the unsupported part."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tokenizer import patterns
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
from tokenizer.files import parse_json, read_bytes
from tokenizer.formats import cuts
from tokenizer.formats.checks import check_ids, check_members
from tokenizer.formats.hf import NEVER_APPLY, TEMPLATE, forms_of, overlap, whole_pretoken
from tokenizer.formats.portable import unportable_part
from tokenizer.special import FORMS, Preparation, normalized

IGNORABLE = ("normalizer", "dropout", "regex", "lstrip", "rstrip", "single_word", "normalized")
_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding")
_MEMBERS: dict[str, Any] = {"model": dict, "added_tokens?": list[dict[str, Any]] | None}
_MEMBERS |= {f"{part}?": dict | None for part in _PARTS}
_MODEL_KEYS = {
    *("type", "vocab", "merges", "ignore_merges", "dropout", "continuing_subword_prefix", "end_of_word_suffix"),
    *NEVER_APPLY,
}


class Model(NamedTuple):
    """Vocabulary and merges.

    Attributes:
        byte_ids: see `Definition`.
        merges: uint32 [n, 3].
        as_strings: whether merges are strings with a space, not pairs.
        unmerged: see `Definition`.
    """

    byte_ids: list[int]
    merges: np.ndarray[Any, np.dtype[np.uint32]]
    as_strings: bool
    unmerged: dict[bytes, int]


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
    return parse(parse_json(read_bytes(path), path), path, ignore)


def parse(found: dict[str, Any], path: Path | None = None, ignore: Collection[str] = ()) -> Stored:
    """`read` for parsed content; `path` is for messages."""
    if unknown := set(ignore) - set(IGNORABLE):
        raise UserError(f"ignore={quoted(min(unknown))} cannot be ignored; these can: {', '.join(IGNORABLE)}")
    path = path or Path("tokenizer.json")
    try:
        return _stored(found, path, set(ignore))
    except KeyError as error:
        raise UserError(f"{path} is damaged: the key {error} is missing in one of its parts") from None
    except (AttributeError, IndexError, TypeError, OverflowError) as error:
        raise UserError(f"{path} is damaged ({quoted(error)})") from None


def _stored(found: dict[str, Any], path: Path, ignore: set[str]) -> Stored:
    check_members(found, _MEMBERS, path)
    options = found["model"]
    _check_options(options, path, ignore)
    forms = () if "normalizer" in ignore else _forms(found.get("normalizer"), path)
    regex = cuts.regex(found.get("pre_tokenizer"), path)
    pattern = patterns.resolve(regex or "none")
    if (part := unportable_part(pattern)) is not None and "regex" not in ignore:
        raise _refusal(
            path, f"HF's regex engine may interpret {part} in its pattern {quoted(regex)} differently", "regex"
        )
    vocab = options["vocab"]
    added = _added(found.get("added_tokens") or [], vocab, path, ignore)
    model = _model(options, added, path)
    if missing := missing_byte(lambda byte: model.byte_ids[byte] != NO_TOKEN):
        raise UserError(f"{path} is not byte-level: {missing}")
    ignore_merges = options.get("ignore_merges") is True
    inside = [string for string in added if string in vocab]
    if ignore_merges:
        _check_whole(inside, {string for string in inside if added[string].get("special")}, pattern, path)
    _warn_of_what_is_not_applied(found, path)
    template = {
        "version": found.get("version", "1.0"),
        **{part: found.get(part) if part not in ignore else None for part in _PARTS},
        "added_tokens": {
            string: {key: value for key, value in token.items() if key not in ("id", "content")}
            for string, token in added.items()
        },
        "specials_in_vocab": inside,
        "merges": "strings" if model.as_strings else "pairs",
        "model": {
            key: None if key in ignore else value for key, value in options.items() if key not in ("vocab", "merges")
        },
    }
    definition = Definition(
        byte_ids=model.byte_ids,
        merge_ids=model.merges,
        n_phase1_merges=len(model.merges),
        pattern=pattern,
        special_tokens={string: token["id"] for string, token in added.items() if token.get("special")},
        ignore_merges=ignore_merges,
        unmerged=model.unmerged,
        preparation=_preparation(added, forms, path),
    )
    return Stored(definition, {"imported": {"format": "hf", "ignored": sorted(ignore)}, TEMPLATE: template})


def _refusal(path: Path, why: str, part: str) -> UserError:
    return UserError(f"{path} cannot be followed exactly: {why}; pass ignore={{{part!r}}} to ignore this")


def _check_options(model: dict[str, Any], path: Path, ignore: set[str]) -> None:
    """Check the model's options; the vocabulary and the merges only have the right types."""
    kind = model.get("type", "BPE")
    if kind != "BPE":
        raise UserError(f"{path} has a model of the type {quoted(kind)}; only byte-level BPE can be read")
    check_members(model, {"vocab": dict, "merges": list}, path, "model.")
    for part in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(part):
            raise UserError(f"{path} is not byte-level: its {part} is {quoted(model[part])}")
    if model.get("dropout") and "dropout" not in ignore:
        raise _refusal(path, f"its dropout of {shortened(model['dropout'])} gives random ids", "dropout")
    if unknown := set(model) - _MODEL_KEYS:
        raise UserError(f"{path} has an unknown model option {quoted(min(unknown))}")
    check_ids(model["vocab"], path)


def _check_whole(inside: list[str], special: set[str], pattern: patterns.Pattern, path: Path) -> None:
    """With ignore_merges, HF gives the id of an added token in the vocabulary to any pretoken of that name."""
    if (clash := named_as_text(inside)) is not None:
        raise UserError(
            f"{path} cannot be followed exactly: its added token {quoted(clash)} is in the model's vocabulary, where "
            f"that name spells {quoted(unprintable(clash))}, and with ignore_merges HF also gives its id to that text"
        )
    if (clash := whole_pretoken(sorted(special), pattern)) is not None:
        raise UserError(
            f"{path} cannot be followed exactly: its special token {quoted(clash)} is in the model's vocabulary, and "
            "with ignore_merges HF gives its id to a pretoken that equals it, even where special strings are text"
        )


def _forms(normalizer: Any, path: Path) -> tuple[str, ...]:
    """The Unicode normalization forms that a normalizer applies, in order."""
    if (forms := forms_of(normalizer)) is None:
        what = f"its normalizer {shortened(_name(normalizer))} changes text before it is encoded"
        raise _refusal(path, f"{what} ({', '.join(FORMS)} are supported)", "normalizer")
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


def _added(
    listed: list[dict[str, Any]], vocab: dict[str, int], path: Path, ignore: set[str]
) -> dict[str, dict[str, Any]]:
    """The added tokens by string, without the flags to ignore."""
    added: dict[str, dict[str, Any]] = {}
    following = len(vocab)
    for i, token in enumerate(listed):
        check_members(token, {"content": str, "id": int}, path, f"added_tokens[{i}].")
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
            what = f"its added token {quoted(string)} is normalized and matches text that becomes {quoted(normal)}"
            raise _refusal(path, what, "normalized")
    return Preparation(
        forms=forms,
        added_tokens={string: token["id"] for string, token in added.items() if not token.get("special")},
        late=frozenset(late if forms or overlap(added) else ()),
    )


def _model(options: dict[str, Any], added: Collection[str], path: Path) -> Model:
    """Vocabulary and merges; anything invalid is a UserError."""
    vocab: dict[str, int] = options["vocab"]
    names = [name for name in vocab if name not in added]
    spelled = unprintable_all(names)
    if spelled is None or not all(spelled):
        wrong = next(name for name in names if not unprintable(name))
        raise UserError(f"{path} is not byte-level: its token {quoted(wrong)} is not in the byte alphabet")
    ids = {name: vocab[name] for name in names}
    byte_ids = [ids.get(BYTE_CHARACTERS[byte], NO_TOKEN) for byte in range(256)]
    as_strings = bool(options["merges"]) and isinstance(options["merges"][0], str)
    rows: list[int] = []
    for rank, entry in enumerate(options["merges"]):
        pair = entry.split(" ") if isinstance(entry, str) else entry
        if len(pair) != 2 or isinstance(entry, str) != as_strings:
            raise UserError(f"{path} is damaged: merge {rank} is {quoted(entry)}")
        left, right = pair
        try:
            rows += ids[left], ids[right], ids[left + right]
        except KeyError:
            raise UserError(
                f"{path} is damaged: merge {rank}, {quoted(left)} and {quoted(right)}, is not in its vocabulary"
            ) from None
    merges = np.array(rows, dtype=np.uint32).reshape(-1, 3)
    made = set(byte_ids) | set(merges[:, 2].tolist())
    unmerged = {token: ids[name] for name, token in zip(names, spelled, strict=True) if ids[name] not in made}
    return Model(byte_ids, merges, as_strings, unmerged)
