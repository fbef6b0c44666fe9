"""What happens to text before the pattern cuts it: what tokenizer.json says of added tokens and normalisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizer import _native
from tokenizer.errors import UserError, quoted

FORMS = ("NFC", "NFD", "NFKC", "NFKD")


@dataclass(frozen=True)
class Preparation:
    """How an imported tokenizer prepares text, in HF's order (`tokenizers`, `AddedVocabulary`); most do nothing.

    First the added tokens that are not `late` are found in the text as it is; then each stretch between them is
    normalised on its own; then late tokens are found in what came out. Of several that begin at one place the longest
    is taken. Special tokens that a call does not allow are found as well, and stay text: nothing is found inside them.

    Attributes:
        forms: Unicode normalisation forms, applied one after the other. The tables are those of HF's crate, Unicode
            9.0: characters of later versions are left alone, as HF leaves them.
        added_tokens: string to id, of tokens that any text has where their strings occur. They are not special: their
            bytes count as text.
        late: those of the added and the special tokens that are looked for in normalised text.
    """

    forms: tuple[str, ...] = ()
    added_tokens: Mapping[str, int] = field(default_factory=dict)
    late: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for form in self.forms:
            if form not in FORMS:
                raise UserError(f"the normalizer {quoted(form)} is not known; there are {', '.join(FORMS)}")

    def __bool__(self) -> bool:
        return bool(self.forms or self.added_tokens or self.late)

    def content(self) -> dict[str, Any]:
        """What of it decides ids, as JSON; what is not used is left out."""
        parts = {
            "normalizer": list(self.forms),
            "added_tokens": dict(self.added_tokens),
            "late_tokens": sorted(self.late),
        }
        return {name: part for name, part in parts.items() if part}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Preparation:
        """The one whose `content` is in this, whose values are of the right types."""
        return cls(
            forms=tuple(content.get("normalizer", [])),
            added_tokens=dict(content.get("added_tokens", {})),
            late=frozenset(content.get("late_tokens", [])),
        )


NOTHING = Preparation()


def normalized(forms: Sequence[str], text: str) -> str:
    """The text in these forms, one after the other."""
    if not forms:
        return text
    return _native.Preparation(None, list(forms)).normalize(_native.Batch.from_texts([text])).text(0)


def refuse(preparation: Preparation, what: str) -> None:
    """Refuses what can neither normalise text nor find added tokens in it.

    Raises:
        UserError: the preparation does something.
    """
    if preparation.forms:
        raise UserError(f"{what}: the tokenizer normalises text ({' + '.join(preparation.forms)})")
    if preparation.added_tokens:
        first = min(preparation.added_tokens)
        raise UserError(f"{what}: the tokenizer has added tokens that are found in any text, as {quoted(first)}")
