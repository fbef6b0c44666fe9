"""Writing `tokenizer.json`, the file of Hugging Face `tokenizers`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from tokenizer import _native
from tokenizer.definition import Definition, Described, other_text, printable
from tokenizer.errors import UserError, quoted
from tokenizer.formats import cuts
from tokenizer.formats.checks import Unsupported
from tokenizer.formats.portable import unportable_part
from tokenizer.patterns import Pattern, resolve

HF_FILE = "tokenizer.json"
HF_CONFIG_FILE = "tokenizer_config.json"
TEMPLATE = "tokenizer.json"
"""Provenance key for the parts of an imported tokenizer.json that are kept for export."""

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
ADDED_TOKEN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
MODEL = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
}
_DIGITS = {f"{_native.DIGITS}+": False, _native.DIGITS: True}
"""Regexes written as `Digits`, for readers without a regex engine, such as tokenizers 1.0: whether individual."""
_KNOWN = {resolve(name).regex for name in ("llama3", "digits1", "o200k")}
"""Regexes that these readers know by their text."""

NEEDS_ENGINE = (
    "`tokenizer.json` is for `tokenizers` before 1.0, and `transformers` with it: 1.0 has no regex engine, and may not "
    "know this pattern. It then opens the file and raises an error on any text."
)
NEWER_TABLES = (
    "With `tokenizer.json`, `tokenizers` 1.0 gives other ids for about 4,700 characters that Unicode 17 added, because "
    "its tables are newer than in earlier versions."
)


def hf_json(tokenizer: Described, *, encodes: bool = True) -> dict[str, Any]:
    """Content of the tokenizer.json of a tokenizer.

    A tokenizer imported from a tokenizer.json keeps its post-processor, decoder and added token flags.

    Args:
        tokenizer: the tokenizer.
        encodes: whether the file must give the tokenizer's ids. If not, its model raises on any text, and any
            tokenizer can be written: the file then has the tokens and the decoder.

    Raises:
        UserError: the tokenizer is two-pass, which the format cannot express; HF may interpret its pattern differently;
            or a special token has the name of an ordinary token.
    """
    definition = tokenizer.definition
    cut = definition.fence or definition.pattern
    if encodes and definition.mode != "one-pass":
        raise UserError(
            "a two-pass tokenizer cannot be written as tokenizer.json: its phase 2 merges whole phase-1 tokens, "
            "which HF tokenizers cannot express; train it without the rules runs or boundless, with digits for example"
        )
    if encodes and (part := unportable_part(cut)) is not None:
        raise UserError(
            f"the pattern {quoted(cut.regex)} cannot be written as tokenizer.json: "
            f"HF's regex engine may interpret {part} differently"
        )
    template = _parts(tokenizer.provenance, TEMPLATE)
    added = definition.special_tokens | dict(definition.preparation.added_tokens)
    special_ids = set(added.values()) - set(definition.ordinary_ids().tolist())
    names = [printable(token) for token in definition.vocab]
    vocab = {name: i for i, name in enumerate(names) if name and i not in special_ids}
    if clash := [string for string, i in added.items() if vocab.get(string, i) != i]:
        raise UserError(
            f"the special token {quoted(min(clash))} is also how tokenizer.json writes an ordinary token, and would "
            "get its id there; use another special string"
        )
    if encodes:
        outside = {string: i for string, i in added.items() if string not in vocab}
        inside = _specials_in_vocab(outside, len(vocab), template.get("specials_in_vocab"))
        if definition.ignore_merges and (why := taken_as_text(inside, inside, cut)) is not None:
            raise UserError(f"the tokenizer cannot be written as tokenizer.json: {why}; use another special string")
        model = MODEL | {
            "ignore_merges": definition.ignore_merges,
            "vocab": dict(sorted((vocab | inside).items(), key=lambda item: item[1])),
            "merges": [[names[left], names[right]] for left, right in definition.merge_ids[:, :2].tolist()],
        }
    else:
        unknown = "no model can encode this; use SuperBPETokenizerFast"
        model = {"type": "WordLevel", "vocab": vocab | added, "unk_token": unknown}
    forms: list[dict[str, Any]] = [{"type": form} for form in definition.preparation.forms]
    if len(forms) > 1:
        forms = [{"type": "Sequence", "normalizers": forms}]
    return {
        "version": "1.0",
        "truncation": template.get("truncation"),
        "padding": template.get("padding"),
        "added_tokens": added_tokens(definition, _parts(template, "added_tokens")),
        "normalizer": forms[0] if forms else None,
        "pre_tokenizer": pre_tokenizer(cut, _parts(template, "pre_tokenizer")) if encodes else None,
        "post_processor": template.get("post_processor"),
        "decoder": template.get("decoder", BYTE_LEVEL),
        "model": model,
    }


def taken_as_text(inside: Collection[str], special: Iterable[str], cut: Pattern) -> str | None:
    """Why HF, with ignore_merges, would give an added token's id to ordinary text; None if it would not.

    Args:
        inside: added tokens that the model's vocabulary lists.
        special: the special ones among them.
        cut: the pattern.
    """
    for name in inside:
        if (text := other_text(name)) is not None:
            return (
                f"its added token {quoted(name)} is in the model's vocabulary, where that name spells {quoted(text)}, "
                "and with ignore_merges that text gets its id"
            )
    around = ("{}", " {}", "{} ", "\n{}", "{}\n", "a{}a")
    for name in special:
        if any(name in _native.split(text.replace("{}", name), cut.regex) for text in around):
            return (
                f"its special token {quoted(name)} is in the model's vocabulary, and with ignore_merges a pretoken "
                "that equals it gets its id, even where special strings are text"
            )
    return None


def _parts(parent: dict[str, Any], key: str) -> dict[str, Any]:
    """A part of the provenance, which is not hashed; {} if it is not an object."""
    found = parent.get(key)
    return found if isinstance(found, dict) else {}


def added_tokens(definition: Definition, flags: dict[str, Any]) -> list[dict[str, Any]]:
    """Special and other added tokens by id. `normalized` keeps its imported value where it does not affect ids."""
    preparation = definition.preparation
    ids = definition.special_tokens | dict(preparation.added_tokens)
    tokens = {
        string: {"special": string in definition.special_tokens, "normalized": string in preparation.late}
        for string in ids
    }
    kept = {
        string: token | {"normalized": _parts(flags, string).get("normalized") is True}
        for string, token in tokens.items()
    }
    if not preparation.forms and not preparation.late and not overlap(kept):
        tokens = kept
    ordered = sorted(ids.items(), key=lambda item: item[1])
    return [{"id": token_id, "content": string} | ADDED_TOKEN | tokens[string] for string, token_id in ordered]


def overlap(added: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a normalized and another added token can overlap in text.

    HF searches for tokens that are not normalized first. Without overlaps, the order makes no difference.
    """
    normalized = [string for string, token in added.items() if token.get("normalized")]
    others = [string for string, token in added.items() if not token.get("normalized")]
    return _run_into(normalized, others) or _run_into(others, normalized)


def _run_into(strings: Collection[str], others: Collection[str]) -> bool:
    """Whether one of `strings` contains one of `others`, or ends with the first characters of one."""
    first: list[str] = []  # without those that begin with another: then only two neighbors can match in a search
    for other in sorted(others):
        if not first or not other.startswith(first[-1]):
            first.append(other)
    longest = max(map(len, first), default=0)
    for string in strings if first else ():
        for start in range(len(string)):
            rest = string[start : start + longest]
            at = bisect_right(first, rest)
            if at > 0 and rest.startswith(first[at - 1]):
                return True
            if at < len(first) and first[at].startswith(rest):
                return True
    return False


def _specials_in_vocab(specials: dict[str, int], n_ordinary: int, listed: Any) -> dict[str, int]:
    """Special tokens that the model's vocabulary must list too, or listed on import.

    HF ignores the written ids of the others and numbers them from the vocabulary's size on, in order.
    """
    names = {string for string in listed if isinstance(string, str)} if isinstance(listed, list) else set()
    inside = {string: i for string, i in specials.items() if string in names}
    following = n_ordinary + len(inside)
    for string, i in sorted(specials.items(), key=lambda item: item[1]):
        if string not in inside and i != following:
            return specials
        following = max(following, i + 1)
    return inside


def pre_tokenizer(cut: Pattern, as_read: dict[str, Any] | None = None) -> dict[str, Any]:
    """The pre-tokenizer for tokenizer.json: `as_read` if it cuts by the same pattern."""
    with suppress(Unsupported, AttributeError, KeyError, TypeError):
        if as_read and cuts.regex(as_read) == cut.regex:
            return as_read
    if not cut.regex:
        return BYTE_LEVEL
    # Split before ByteLevel: the pattern applies to text, not to the byte alphabet.
    splits = [
        {"type": "Digits", "individual_digits": _DIGITS[regex]}
        if regex in _DIGITS
        else {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
        for regex in cut.regex.split("\n")
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, BYTE_LEVEL]}


def newest_readers(tokenizer: Described) -> str | None:
    """The difference that `tokenizers` 1.0 makes, which has no regex engine and newer tables; None if our ids."""
    pre = hf_json(tokenizer)["pre_tokenizer"]
    parts = [part for part in cuts.flat(pre, "pretokenizers") if part and part["type"] != "Digits"]
    if any(part["type"] == "Split" and part["pattern"].get("Regex") not in _KNOWN for part in parts):
        return NEEDS_ENGINE
    return NEWER_TABLES if any(part.get("use_regex", True) for part in parts) else None
