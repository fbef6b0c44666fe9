"""Preparation of text before the pattern cuts it: added tokens and normalization of imported tokenizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizer import _native
from tokenizer.errors import UserError, quoted

FORMS = ("NFC", "NFD", "NFKC", "NFKD")


@dataclass(frozen=True)
class Preparation:
    """Preparation of text by an imported tokenizer, in HF's order (`tokenizers`, `AddedVocabulary`). Usually empty.

    First, the added tokens that are not `late` are found in the original text. Then each stretch between them is
    normalized separately. Then late tokens are found in the normalized text. If several tokens start at the same
    position, the longest is taken. Special tokens that a call does not allow are found too, but stay text: no other
    token is found inside them.

    Attributes:
        forms: Unicode normalization forms, applied in order. The tables are those of HF's crate, Unicode 9.0:
            characters of later versions are unchanged, as in HF.
        added_tokens: string to id of tokens that are found in any text. They are not special: their bytes count as
            text.
        late: added and special tokens that are searched for in normalized text.
    """

    forms: tuple[str, ...] = ()
    added_tokens: Mapping[str, int] = field(default_factory=dict)
    late: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Reject unknown forms."""
        for form in self.forms:
            if form not in FORMS:
                raise UserError(f"unknown normalizer {quoted(form)}; the forms are: {', '.join(FORMS)}")

    def __bool__(self) -> bool:
        return bool(self.forms or self.added_tokens or self.late)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.of, (self.content(),)  # not a set, whose order differs between processes

    def content(self) -> dict[str, Any]:
        """The preparation as JSON; unused parts are omitted."""
        parts = {
            "normalizer": list(self.forms),
            "added_tokens": dict(self.added_tokens),
            "late_tokens": sorted(self.late),
        }
        return {name: part for name, part in parts.items() if part}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Preparation:
        """The preparation from its `content`, whose types must already be checked."""
        return cls(
            forms=tuple(content.get("normalizer", [])),
            added_tokens=dict(content.get("added_tokens", {})),
            late=frozenset(content.get("late_tokens", [])),
        )


NOTHING = Preparation()


def normalized(forms: Sequence[str], text: str) -> str:
    """Apply normalization forms to a text, in order."""
    if not forms:
        return text
    return _native.Preparation(None, list(forms)).normalize(_native.Batch.from_texts([text])).text(0)


def refuse(preparation: Preparation, what: str) -> None:
    """Reject a preparation in a format that cannot express one. `what` starts the message.

    Raises:
        UserError: the preparation is not empty.
    """
    if preparation.forms:
        raise UserError(f"{what}: the tokenizer normalizes text ({' + '.join(preparation.forms)})")
    if preparation.added_tokens:
        first = min(preparation.added_tokens)
        raise UserError(f"{what}: the tokenizer has added tokens that are found in any text, such as {quoted(first)}")
