r"""Rules for phase 2, the named presets, and the phase 1 of each preset.

The recipes differ in a few decisions, each of which is a setting here. `digits` is ours, and the default:

| | `uw-2025`, `uw-paper` | `runs`, `boundless` | `spans` | `none` | `sentence` | `digits` | `phrases` |
|---|---|---|---|---|---|---|---|
| pattern of phase 1 | `superbpe`, `uw-paper` | `o200k` | `spans` | `superbpe` | `o200k` | `o200k` | `phrases` |
| text of phase 1 | lines | documents | documents | lines | documents | documents | documents |
| text of phase 2 | lines | documents | documents | documents | documents | documents | documents |
| cut at | digits; 2025: punctuation | pretokens of 2+ tokens | punctuation | nothing | sentences | digits | non-words |
| merges | any tokens | whole pretokens | any tokens | any tokens | any tokens | any tokens | any tokens |
| a new token must not contain | `": "`, five words | | | | | | |
| `aaa` counts for | two pairs | one pair | two pairs | two pairs | two pairs | two pairs | two pairs |
| encoding | one pass | two passes | one pass | one pass | one pass | one pass | one pass |
| transition | 0.8 | 0.8, found by competition | 0.8 | 0.8 | 0.9 | 0.9 | 0.8 |
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from types import NoneType
from typing import Any, Self, TypedDict, get_args, get_origin, get_type_hints

from tokenizer import _native, patterns
from tokenizer.documents import check_text
from tokenizer.errors import UserError, check_choice, check_strings, did_you_mean, quoted
from tokenizer.fields import check_fields, declare
from tokenizer.train.bpe import TIE_BREAKS, check_forbid

_MOST = 2**31 - 1


@dataclass(frozen=True, repr=False)
class Rules:
    """The rules of a superword phase. Their `repr` shows those that differ from the defaults.

    Attributes:
        unit: "document" or "line" (including its line feed): text inside which merges are counted. Affects only
            training; encoding uses only the fence.
        fence: pattern (name or regex) whose matches are isolated; no phase-2 merge crosses their boundaries. "none" for
            no fence.
        phase1_fence: "lifted" (only the fence cuts text, for phase-1 merges too: one-pass encoding, exact in HF files)
            or "kept" (phase-1 merges stay inside pretokens: two-pass encoding).
        atoms: units that phase 2 merges: any "tokens", or only whole "pretokens" that are a single phase-1 token and
            match `eligible`. "pretokens" requires `phase1_fence="kept"`.
        eligible: regex for `atoms="pretokens"`.
        max_words: maximum number of words in a new token: non-empty parts between spaces (0x20).
        max_bytes: maximum length of a new token in bytes; None for the upper limit (`LONGEST_TOKEN`).
        max_tokens: maximum number of phase-1 tokens in a new token.
        forbid: regexes without look-around that no new token may match, as in `train_bpe`. A string without special
            characters, such as `": "`, matches itself.
        min_count: pairs that occur less often are not merged.
        counting: pairs that a run of equal tokens counts for: every adjacent pair ("overlapping", as in HF: three
            tokens count twice) or the pairs that one merge would join ("non-overlapping": three tokens count once).
        tie_break: which of the most frequent pairs is merged first, as in `train_bpe`; None for the argument of
            `train_superbpe`.
        span_trigger: spans between fences with more phase-1 tokens than this are cut. Affects only training.
        span_cap: length in tokens of the pieces of such a span.
        truncate_quantile: spans are first truncated to this quantile of their lengths in phase-1 tokens. Affects only
            training.
        interleave: phase-1 merges and superwords compete: the next merge is phase 1's, unless a superword has a higher
            count in phase 2's text. The number of phase-1 merges in the full vocabulary determines the transition.
            Requires `atoms="pretokens"`.
        sample: fraction of the documents of each source to train on, chosen by a hash of their text.
        sample_salt: changes which documents are in the sample.
    """

    unit: str = declare("document", choices=("document", "line"))
    fence: str = "none"
    phase1_fence: str = declare("lifted", choices=("lifted", "kept"))
    atoms: str = declare("tokens", choices=("tokens", "pretokens"))
    eligible: str = r"\p{L}"
    max_words: int | None = declare(None, least=1, most=_MOST)
    max_bytes: int | None = declare(None, least=2, most=_MOST)
    max_tokens: int | None = declare(None, least=2, most=_MOST)
    forbid: tuple[str, ...] = ()
    min_count: int = declare(1, least=1, most=_MOST)
    counting: str = declare("overlapping", choices=("overlapping", "non-overlapping"))
    tie_break: str | None = declare(None, choices=(None, *TIE_BREAKS))
    span_trigger: int | None = declare(None, least=2, most=_MOST)
    span_cap: int = declare(10, least=2, most=_MOST)
    truncate_quantile: float | None = declare(None, above=0, most=1)
    interleave: bool = False
    sample: float = declare(1.0, above=0, most=1)
    sample_salt: str = ""

    def __post_init__(self) -> None:
        """Make the rules hashable: `forbid` may be given as a list."""
        check_strings("forbid", self.forbid)
        object.__setattr__(self, "forbid", tuple(self.forbid))

    def __repr__(self) -> str:
        parts = (
            f"{part.name}={value!r}" for part in fields(self) if (value := getattr(self, part.name)) != part.default
        )
        return f"Rules({', '.join(parts)})"

    def changed(self, settings: Iterable[str]) -> Self:
        """Return these rules with some settings, each written as KEY=VALUE, after checking them.

        VALUE is everything after the first `=`, read by the type of the setting. Strings are taken as they are, so a
        regex needs no quotes. A list of strings is a JSON array, or one string that does not begin with `["`. `null`
        unsets a limit.

        Raises:
            UserError: a setting is unknown or repeated, or its value is invalid.
        """
        changes: dict[str, Any] = {}
        hints = get_type_hints(type(self))
        for setting in settings:
            check_text(setting, "--rule")
            key, equals, value = setting.partition("=")
            if not equals:
                raise UserError(f"--rule {setting} is not KEY=VALUE, such as max_words=3")
            if key not in hints:
                near = did_you_mean(key, hints)
                raise UserError(f"--rule {setting}: unknown rule {quoted(key)}{near}; known: {', '.join(hints)}")
            if key in changes:
                raise UserError(f"--rule {setting}: {key} is given twice; keep one of them")
            changes[key] = _parsed(key, value, hints[key])
        rules = replace(self, **changes)
        rules.check()
        return rules

    def check(self) -> None:
        """Reject invalid values.

        Raises:
            UserError: a value is invalid; the message names it and the allowed values.
        """
        check_fields(self)
        try:
            patterns.resolve(self.fence)
        except UserError as error:
            raise UserError(f"fence={quoted(self.fence)}: {error}") from None
        self._check_pretokens()
        check_forbid(self.forbid)

    def _check_pretokens(self) -> None:
        if self.phase1_fence == "lifted" and self.atoms == "pretokens":
            raise UserError(
                "atoms='pretokens' and phase1_fence='lifted' exclude each other: if phase-1 merges cross pretokens, no "
                "whole pretokens are left to merge. Use phase1_fence='kept' or atoms='tokens'"
            )
        if self.interleave and self.atoms != "pretokens":
            raise UserError(f"interleave=True {NO_AUTO}")
        if self.atoms == "pretokens":
            if not self.eligible or "\n" in self.eligible:
                raise UserError(
                    f"eligible={quoted(self.eligible)} is not a regex of one line; use one such as '\\\\p{{L}}'"
                )
            _native.split("", self.eligible)  # compiles it, or raises


def _parsed(key: str, text: str, hint: Any) -> Any:
    """The value of a setting that is written as text."""
    kinds = get_args(hint) or (hint,)  # of a union
    if get_origin(hint) is tuple:
        return _strings(key, text)
    if NoneType in kinds and text == "null":
        return None
    if str in kinds:
        return text
    if bool in kinds:
        check_choice(key, text.lower(), ("true", "false"))
        return text.lower() == "true"
    number: type = int if int in kinds else float
    try:
        return number(text)
    except ValueError:
        what = "a whole number" if number is int else "a number"
        end = ", or null for no limit" if NoneType in kinds else ""
        raise UserError(f"{key}={quoted(text)} must be {what}{end}") from None


def _strings(key: str, text: str) -> tuple[str, ...]:
    if not re.fullmatch(r"""\[\s*(["'].*|\]|\w+(,\w+)+\]|[^\]]*,\s.*)""", text, re.DOTALL):
        return (text,)  # a regex may begin with a class, such as [0-9]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(string, str) for string in found):
        remedy = 'such as ["a", "b"]; a regex that begins with such a class can be written as (?:[...])'
        raise UserError(f"{key}={quoted(text)} is not a JSON array of strings, {remedy}")
    return tuple(found)


NO_AUTO = (
    "needs whole pretokens, as in the presets runs and boundless: they do not change the counts of phase-1 merges. "
    "Superwords of any tokens change them; and pairs that straddle two words, like 'e' and ' ', are more frequent than "
    "most merges from the start, so a comparison by counts would end phase 1 before it learned words"
)


_UW = Rules(unit="line", max_words=4, forbid=(": ",))
_RUNS = Rules(phase1_fence="kept", atoms="pretokens", counting="non-overlapping", tie_break="lexicographic-smallest")

PRESETS: dict[str, Rules] = {
    # SuperBPE (Liu et al., 2025, arXiv 2503.13423) as released: PythonNut/superbpe, scripts/extend_tokenizer.sh of
    # 2025-11, and its fork of HF's trainer. Lines; runs of digits and of punctuation isolated; no ": " in a token; at
    # most four words.
    "uw-2025": replace(_UW, fence="uw-2025-fence"),
    # The paper's tokenizers (utils.py of that repository before 2025-11): only digits are isolated, in groups of three
    # from the right.
    "uw-paper": replace(_UW, fence="uw-paper-fence"),
    # Faster Superword Tokenization (Schmidt, Tanner, Pinter, 2026, arXiv 2604.05192), mode "SuperBPE": runs of
    # pretokens that are one token and contain a letter; non-overlapping counts; ties broken by the pair's bytes.
    # Their phase 1 counts the same way; ours counts like HF, which differs where a token follows itself.
    "runs": _RUNS,
    # Its mode "BoundlessBPE" (arXiv 2504.00178): superwords compete with phase-1 merges for the vocabulary. Phase-1
    # merges get the first ids, so vocabularies of two sizes do not nest.
    "boundless": replace(_RUNS, interleave=True),
    # Grigorev's experiment (sample_efficient_gpt; blog post of 2025): punctuation, including colons, ends a span; spans
    # over 20 tokens are cut every 10; p99 truncation; a quarter of the documents.
    "spans": Rules(fence="punctuation-fence", span_trigger=20, span_cap=10, truncate_quantile=0.99, sample=0.25),
    # No pretokenization in phase 2: the SuperBPE paper's baseline, and an upper bound on what a fence costs.
    "none": Rules(),
    # MUTANT, also IndicSuperTokenizer (2025, arXiv 2511.03237): no superword crosses the end of a sentence.
    "sentence": Rules(fence="sentence-fence"),
    # Ours: runs of digits are isolated, which takes no regex engine (docs/tokenizers.md).
    "digits": Rules(fence="digits-fence"),
    # K-EXAONE (LG, 2026): single spaces join words. Its split is published, its trainer and other rules are not.
    "phrases": Rules(fence="phrases-fence"),
}
"""The rules of each preset."""


class Phase1(TypedDict):
    """Arguments of `count_pretokens` for phase 1 of a recipe."""

    pattern: str
    unit: str


PHASE1: dict[str, Phase1] = {
    # The two stages of the released scripts: `train(files)` feeds lines to both.
    "uw-2025": {"pattern": "superbpe", "unit": "line"},
    "uw-paper": {"pattern": "uw-paper", "unit": "line"},
    # The trainer's default, GPT-4o's pattern, over the texts of a JSON-lines file.
    "runs": {"pattern": "o200k", "unit": "document"},
    "boundless": {"pattern": "o200k", "unit": "document"},
    "spans": {"pattern": "spans", "unit": "document"},
    # A baseline for `uw-2025`: phase 1 is the same, so they differ only in the fence of phase 2.
    "none": {"pattern": "superbpe", "unit": "line"},
    # The regex of MUTANT is not published as code. `o200k` is the closest named pattern: it does not cut Indic words at
    # combining marks, and Llama 4, the tokenizer that MUTANT is compared with, uses it too.
    "sentence": {"pattern": "o200k", "unit": "document"},
    "digits": {"pattern": "o200k", "unit": "document"},
    # The words of its fence, so that the fence makes no token of phase 1 unreachable.
    "phrases": {"pattern": "phrases", "unit": "document"},
}
"""Phase 1 of each preset: `count_pretokens(corpus, **PHASE1["uw-2025"])`."""

_TRANSITIONS: dict[str, float | str] = {"boundless": "auto", "sentence": 0.9, "digits": 0.9}
TRANSITION = {**dict.fromkeys(PRESETS, 0.8), **_TRANSITIONS}
"""Transition of each preset, as an argument of `train_superbpe`; our choice for `none`, `digits` and `phrases`."""
