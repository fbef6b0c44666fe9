"""Definition of a tokenizer: ids, merges, patterns, and the bytes and names of its tokens."""

from __future__ import annotations

import codecs
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import count
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tokenizer import _native
from tokenizer.documents import check_text
from tokenizer.errors import UserError, check_choice, check_strings, check_whole, quoted
from tokenizer.patterns import Pattern
from tokenizer.special import END_OF_TEXT, NOTHING, Preparation

SPECIAL_LAYOUTS = ("last", "first", "after-bytes")
NO_TOKEN = -1

LONGEST_TOKEN = 1 << 16
"""Maximum length in bytes of a merged token. Without a limit, nested merges could require any amount of memory."""
_LONGEST_SPECIAL = 1 << 12  # preparing the search for strings takes time quadratic in their length
MOST_BYTES = 1 << 26
"""Maximum total size of all tokens in bytes. A merge takes few bytes in a file but may spell `LONGEST_TOKEN` bytes, so
a small file could otherwise require gigabytes. The largest vocabularies in use have less than 5 MB."""
MOST_IDS = 1 << 24  # ids may have gaps, so without a limit a single id could require any amount of memory
NOT_IN_UTF8 = frozenset([0xC0, 0xC1, *range(0xF5, 0x100)])
"""Bytes that never occur in UTF-8; imported tokenizers may have no token for them."""
_BYTES = frozenset(bytes([byte]) for byte in range(256))


_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_REST = sorted({*range(256)} - {*_PRINTABLE})
BYTE_CHARACTERS = {byte: chr(byte) for byte in _PRINTABLE} | {byte: chr(256 + i) for i, byte in enumerate(_REST)}
ALPHABET = bytes(byte for byte, _ in sorted(BYTE_CHARACTERS.items(), key=lambda item: item[1]))
"""The 256 byte values, sorted by their characters. This is their order by rank."""
_TABLE = {byte: ord(character) for byte, character in BYTE_CHARACTERS.items()}
# Translating by this table and encoding as latin-1 gives the bytes; characters outside the alphabet must fail.
_BACK = {ord(character): byte for byte, character in BYTE_CHARACTERS.items()}
_OUTSIDE = {byte: 0x100 + byte for byte in range(256) if byte not in _BACK} | _BACK


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Definition:
    """Everything that decides which ids a text gets. `dataclasses.replace` makes a variant.

    Attributes:
        byte_ids: ids of the 256 bytes; -1 where an imported tokenizer has no token for a byte that UTF-8 never uses.
        merge_ids: uint32 [n_merges, 3]: (left, right, new) ids, by rank. If a pair is repeated, its last rank counts,
            as in HF `tokenizers`. Several merges may produce one token; at most one of them ever applies, because
            merging inside a token's bytes does not depend on the surrounding text.
        n_phase1_merges: number of phase-1 merges; they come first in `merge_ids`.
        pattern: phase 1's pretokenization pattern.
        fence: boundaries that phase-2 merges may not cross; None for plain BPE.
        mode: "one-pass" (the fence cuts the text, or the pattern if there is no fence; then merges apply by rank) or
            "two-pass" (phase-1 merges inside the pattern's pretokens, then phase-2 merges across them, up to
            the fence).
        eligible: two-pass only: a regex. Phase 2 merges only whole pretokens that are a single phase-1 token and
            match this regex; None to merge any tokens.
        special_tokens: string to id.
        ignore_merges: a whole pretoken that is a token becomes that token, even where merges would not produce it.
            Named as in tokenizer.json; tiktoken always does this.
        unmerged: bytes to id of ordinary tokens that no merge produces. Text contains them only with `ignore_merges`.
        preparation: preprocessing of text in imported tokenizers: added tokens and normalization.
        end_of_text: the special token that ends a document; by default `<|endoftext|>`, or None if there is none.
        vocab: bytes of each token, by id; the UTF-8 string of a special token, b"" for an unused id.

    Raises:
        UserError: the parts are inconsistent.
    """

    byte_ids: Sequence[int]
    merge_ids: npt.NDArray[np.uint32]
    n_phase1_merges: int
    pattern: Pattern
    fence: Pattern | None = None
    mode: str = "one-pass"
    eligible: str | None = None
    special_tokens: dict[str, int] = field(default_factory=dict)
    ignore_merges: bool = False
    unmerged: dict[bytes, int] = field(default_factory=dict)
    preparation: Preparation = NOTHING
    end_of_text: str | None = None
    vocab: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        """Normalize the types, spell out the tokens and check that the parts are consistent."""
        self._set("byte_ids", tuple(int(i) for i in self.byte_ids))
        self._set("merge_ids", np.ascontiguousarray(self.merge_ids, dtype=np.uint32).reshape(-1, 3))
        self._set("n_phase1_merges", operator.index(self.n_phase1_merges))
        self._set("special_tokens", dict(self.special_tokens))
        self._set("unmerged", dict(self.unmerged))
        if clash := set(self.special_tokens) & set(self.preparation.added_tokens):
            raise UserError(f"{quoted(min(clash))} is both a special token and an added token")
        if self.end_of_text in (None, END_OF_TEXT):
            self._set("end_of_text", END_OF_TEXT if END_OF_TEXT in self.special_tokens else None)
        if self.end_of_text not in (None, *self.special_tokens):
            raise UserError(f"end_of_text={quoted(self.end_of_text)} is not a special token")
        named = self.special_tokens | dict(self.preparation.added_tokens)
        if unknown := self.preparation.late - set(named):
            raise UserError(f"{quoted(min(unknown))} is to be found in normalized text, but it is not a token")
        self._set("vocab", spell(self.byte_ids, self.merge_ids, self.unmerged, named, self.preparation.added_tokens))
        check_choice("mode", self.mode, ("one-pass", "two-pass"))
        if not 0 <= self.n_phase1_merges <= len(self.merge_ids):
            raise UserError(f"{self.n_phase1_merges} phase-1 merges do not fit {len(self.merge_ids)} merges")
        if self.fence is None and (self.mode == "two-pass" or self.n_phase1_merges < len(self.merge_ids)):
            raise UserError("a tokenizer with two passes or phase-2 merges needs a fence (pattern 'none' cuts nothing)")
        if self.mode == "two-pass" and self.ignore_merges:
            raise UserError("a two-pass tokenizer cannot ignore merges: phase 2 merges across its pretokens")
        if self.eligible is not None:
            self._check_eligible(self.eligible)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_eligible(self, eligible: str) -> None:
        """Reject superwords of ineligible tokens, which encoding would never produce."""
        if self.mode != "two-pass":
            raise UserError("only a two-pass tokenizer has eligible pretokens: phase 2 of one pass has no pretokens")
        phase2 = self.merge_ids[self.n_phase1_merges :]
        atoms = np.setdiff1d(phase2[:, :2], phase2[:, 2])
        tokens = [self.vocab[i] for i in atoms.tolist()]
        for token, found in zip(tokens, _native.eligible(tokens, eligible), strict=True):
            if not found:
                raise UserError(
                    f"a superword contains the token {quoted(token)}, which the eligibility pattern {quoted(eligible)} "
                    "does not match"
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **{part.name: getattr(self, part.name) for part in fields(self) if part.init}), ()

    def __repr__(self) -> str:
        phase2 = "" if self.fence is None else f", phase 1: {256 + self.n_phase1_merges}, fence={self.fence}"
        return f"<Definition: {self.vocab_size} tokens, {self.pattern}{phase2}, {self.mode}>"

    @classmethod
    def from_ranks(
        cls,
        merges: npt.ArrayLike,
        *,
        pattern: Pattern,
        special_tokens: Sequence[str] = (),
        special_layout: str = "last",
        n_phase1_merges: int | None = None,
        fence: Pattern | None = None,
        mode: str = "one-pass",
        eligible: str | None = None,
        end_of_text: str | None = None,
    ) -> Definition:
        """Build a definition from merges as pairs of ranks: a byte's position in `ALPHABET`, or 256 + a merge's rank.

        `special_tokens` are in the order of their ids. `special_layout` is the order of all ids: "last" (bytes, merges,
        special tokens), "first" (special tokens, bytes, merges) or "after-bytes" (bytes, special tokens, merges). By
        default, all merges belong to phase 1. The other arguments are as for the class.
        """
        ranks = _rows(merges, "merges are pairs of ranks")
        check_strings("special_tokens", special_tokens)
        n, n_specials = len(ranks), len(special_tokens)
        wrong = np.flatnonzero((ranks < 0).any(axis=1) | (ranks >= 256 + n).any(axis=1))
        if len(wrong):
            first = int(wrong[0])
            raise UserError(f"merge {first} joins the ranks {ranks[first].tolist()}, one of which does not exist")
        check_choice("special_layout", special_layout, SPECIAL_LAYOUTS)
        first_byte, first_merge, first_special = _first_ids(special_layout, n, n_specials)
        id_of_rank = np.concatenate(
            [np.frombuffer(ALPHABET, np.uint8).astype(np.int64) + first_byte, np.arange(n) + first_merge]
        )
        return cls(
            byte_ids=range(first_byte, first_byte + 256),
            merge_ids=np.column_stack([id_of_rank[ranks], np.arange(n) + first_merge]).astype(np.uint32),
            n_phase1_merges=n if n_phase1_merges is None else n_phase1_merges,
            pattern=pattern,
            fence=fence,
            mode=mode,
            eligible=eligible,
            special_tokens={string: first_special + i for i, string in enumerate(special_tokens)},
            end_of_text=end_of_text,
        )

    @property
    def vocab_size(self) -> int:
        """Highest id plus 1. Includes unused ids between tokens, but no padding."""
        return len(self.vocab)

    def ranks(self) -> npt.NDArray[np.int64]:
        """The merges as [n, 2] ranks, the format that `from_ranks` takes. They do not depend on ids.

        Raises:
            UserError: ranks cannot describe the tokenizer: several merges or none produce a token, or a merge uses a
                token before it is produced.
        """
        n = len(self.merge_ids)
        rank_of_id = np.full(self.vocab_size, -1, dtype=np.int64)
        rank_of_id[[self.byte_ids[byte] for byte in ALPHABET]] = np.arange(256)
        whole = min(self.byte_ids) >= 0 and not self.unmerged
        rank_of_id[self.merge_ids[:, 2]] = 256 + np.arange(n)
        ranks: npt.NDArray[np.int64] = rank_of_id[self.merge_ids[:, :2]]
        if not whole or len(np.unique(self.merge_ids[:, 2])) < n or (ranks >= 256 + np.arange(n)[:, None]).any():
            raise UserError(
                "a list of merges alone does not describe this tokenizer: several merges or none produce some token, "
                "or a merge uses a token before it is produced, or a byte has no token. Work with its ids instead: "
                "merge_ids, ordinary_ids, extended"
            )
        return ranks

    def ordinary_ids(self) -> npt.NDArray[np.int64]:
        """Ids of all tokens except special and added tokens, by rank.

        Bytes come first, in the order of `ALPHABET`; then merged tokens, by the first merge that produces each; then
        tokens that no merge produces.
        """
        products, first = np.unique(self.merge_ids[:, 2], return_index=True)
        parts = [
            [self.byte_ids[byte] for byte in ALPHABET if self.byte_ids[byte] >= 0],
            products[np.argsort(first)],
            sorted(self.unmerged.values()),
        ]
        return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])

    @property
    def special_layout(self) -> str:
        """The member of `SPECIAL_LAYOUTS` that the ids follow.

        Raises:
            UserError: the ids follow none of them, so a list of merges alone does not determine the ids.
        """
        n, n_specials = len(self.merge_ids), len(self.special_tokens)
        for layout in SPECIAL_LAYOUTS:
            byte, merge, special = _first_ids(layout, n, n_specials)
            if (
                not self.unmerged
                and self.byte_ids == tuple(range(byte, byte + 256))
                and np.array_equal(self.merge_ids[:, 2], np.arange(merge, merge + n))
                and sorted(self.special_tokens.values()) == list(range(special, special + n_specials))
            ):
                return layout
        raise UserError("the tokenizer's ids are not contiguous blocks of bytes, merges and special tokens")

    def has_own_layout(self) -> bool:
        """Whether merges by rank and `special_layout` determine the whole definition, as after training here."""
        if self.ignore_merges or self.preparation:
            return False
        try:
            self.ranks()
            return bool(self.special_layout)
        except UserError:
            return False

    def cut(self, size: int) -> Definition:
        """Keep only the first tokens, and the merges whose parts and product are among them; see `Tokenizer.cut`."""
        check_whole("vocab_size", size, 0)
        total = self.vocab_size
        specials = self.special_tokens | dict(self.preparation.added_tokens)
        bytes_ = [i for i in self.byte_ids if i != NO_TOKEN]
        last = max(*bytes_, *self.merge_ids[:, 2].tolist(), *self.unmerged.values())
        # Special tokens after all others move down; all other ids stay.
        tail = {string: i for string, i in specials.items() if i > last}
        least = max(*bytes_, *(i for string, i in specials.items() if string not in tail)) + 1 + len(tail)
        if not least <= size <= total:
            raise UserError(
                f"cannot cut a vocabulary of {total} tokens to {size}: the size must be from {least} to {total}"
            )
        end = size - len(tail)
        products, ranks = np.unique(self.merge_ids[:, 2].astype(np.int64), return_index=True)  # the first of a token's
        dropped = products >= end
        ordered = ranks[~dropped].max(initial=-1) < ranks[dropped].min(initial=len(self.merge_ids))
        if last + 1 + len(tail) != total or not self.vocab[end - 1] or not ordered:
            raise UserError(
                f"the tokenizer cannot be cut to {size}: its ids do not follow the order of its merges, or some are "
                "unused, so the first ids are not the first tokens"
            )
        keep = self.merge_ids.max(axis=1, initial=0) < end
        merges, n_phase1 = self.merge_ids[keep], int(keep[: self.n_phase1_merges].sum())
        # A token whose merges are all dropped stays in the vocabulary with the same bytes.
        lost = set(products[~dropped].tolist()) - set(merges[:, 2].tolist())
        ids = {string: i - (total - size) if string in tail else i for string, i in specials.items()}
        added = {string: ids[string] for string in self.preparation.added_tokens}
        phase2: dict[str, Any] = {} if n_phase1 < len(merges) else {"fence": None, "mode": "one-pass", "eligible": None}
        return replace(
            self,
            merge_ids=merges,
            n_phase1_merges=n_phase1,
            special_tokens={string: ids[string] for string in self.special_tokens},
            preparation=replace(self.preparation, added_tokens=added),
            unmerged={token: i for token, i in self.unmerged.items() if i < end}
            | {self.vocab[i]: i for i in sorted(lost)},
            **phase2,
        )

    def with_special_tokens(self, strings: Sequence[str]) -> Definition:
        """Make strings special tokens. They keep the id of an added token, or of a token that no merge produces.

        Other strings get new ids.
        """
        if self.special_tokens.keys() >= set(strings):
            return self
        ids = self.special_tokens.copy()
        added = dict(self.preparation.added_tokens)
        new = count(self.vocab_size)
        unmerged = dict(self.unmerged)
        for string in strings:
            if string in added:
                ids[string] = added.pop(string)
            elif string not in ids:
                found = unmerged.pop(string.encode(errors="replace"), None)
                ids[string] = next(new) if found is None else found
        preparation = replace(self.preparation, added_tokens=added)
        return replace(self, special_tokens=ids, unmerged=unmerged, preparation=preparation)

    def applied_merges(self) -> npt.NDArray[np.int64]:
        """The merges that can apply, by rank, [n, 3]: of a one-pass tokenizer, those whose product its bytes merge to.

        If a token has several derivations, only one ever applies.
        """
        live = self.merge_ids[self.encoder.live_merges()].astype(np.int64)
        applied: npt.NDArray[np.int64] = live[self.encoder.tokens_in_tokens()[live[:, 2]] == 1]
        return applied

    def merges_with(self, pairs: npt.ArrayLike) -> npt.NDArray[np.uint32]:
        """`merge_ids` followed by new merges of [k, 2] ids. The new tokens get the ids after the highest one."""
        new = _rows(pairs, "new merges are pairs of ids")
        ids = self.vocab_size + np.arange(len(new))
        return np.concatenate([self.merge_ids, np.column_stack([new, ids]).astype(np.uint32)])

    @cached_property
    def encoder(self) -> _native.Encoder:
        """The native encoder."""
        return _native.Encoder(
            self.vocab,
            # Bytes without a token never occur in text; any byte's id serves as a placeholder.
            [self.byte_ids[0] if i < 0 else i for i in self.byte_ids],
            self.merge_ids.reshape(-1),
            phase1=self.n_phase1_merges,
            pattern=self.pattern.regex,
            fence=None if self.fence is None else self.fence.regex,
            two_pass=self.mode == "two-pass",
            whole=(self.ordinary_ids() if self.ignore_merges else np.empty(0)).astype(np.uint32),
            eligible=self.eligible,
        )


class Described(Protocol):
    """A definition with its provenance: a `Tokenizer`, or a `Stored` one."""

    @property
    def definition(self) -> Definition:
        """The definition of the tokenizer."""

    @property
    def provenance(self) -> dict[str, Any]:
        """JSON about how the tokenizer was made."""


class Stored(NamedTuple):
    """Content of a tokenizer file: a definition, and JSON about how the tokenizer was made."""

    definition: Definition
    provenance: dict[str, Any]


def _first_ids(layout: str, n_merges: int, n_specials: int) -> tuple[int, int, int]:
    """The first id of the bytes, of the merges and of the special tokens."""
    return {
        "last": (0, 256, 256 + n_merges),
        "first": (n_specials, 256 + n_specials, 0),
        "after-bytes": (0, 256 + n_specials, 256),
    }[layout]


def _rows(pairs: npt.ArrayLike, what: str) -> npt.NDArray[np.int64]:
    """Pairs as int64 [n, 2]; anything else is a UserError."""
    try:
        found = np.asarray(pairs)
    except ValueError:
        found = np.empty(0, object)
    if not found.size and found.dtype != object:
        return np.empty((0, 2), np.int64)
    if found.ndim != 2 or found.shape[1] != 2 or found.dtype.kind not in "iu":
        raise UserError(f"{what}: integers of shape [n, 2], not {pairs!r:.80}")
    return found.astype(np.int64)


def printable(token: bytes) -> str:
    """A token in HF's byte alphabet: b" the" is "Ġthe"."""
    return token.decode("latin-1").translate(_TABLE)


def unprintable(name: str) -> bytes | None:
    """The token that a name in HF's byte alphabet stands for; None if a character is not in the alphabet."""
    try:
        return name.translate(_OUTSIDE).encode("latin-1")
    except UnicodeEncodeError:
        return None


def other_text(string: str) -> bytes | None:
    r"""The bytes that a string names in HF's byte alphabet; None if they are its own bytes or cannot occur in text.

    >>> other_text("Ġthe"), other_text("é"), other_text("«a»"), other_text("<s>"), other_text("日")
    (b' the', b'\xe9', None, None, None)
    """
    named = unprintable(string)
    return None if named is None or named == string.encode() or whole_characters(named) is None else named


def whole_characters(token: bytes) -> str | None:
    """The whole characters of a token, whose first and last one may be cut off; None if it cannot occur in UTF-8."""
    start = next((i for i, byte in enumerate(token[:4]) if byte & 0xC0 != 0x80), min(3, len(token)))
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(token[start:])
    except UnicodeDecodeError:
        return None


def missing_byte(has: Callable[[int], bool]) -> str | None:
    """Message about bytes of UTF-8 without a token; None if all of them have one."""
    missing = [byte for byte in range(256) if byte not in NOT_IN_UTF8 and not has(byte)]
    others = f" (nor do {len(missing) - 1} others)" if len(missing) > 1 else ""
    return f"byte {missing[0]} has no token{others}" if missing else None


def check_special_tokens(strings: Sequence[str], ordinary: Collection[bytes] = _BYTES) -> None:
    """Reject special tokens with which a trained tokenizer could not be saved.

    Files name ordinary tokens in HF's byte alphabet and special tokens by their strings, so no special token may have
    the name of an ordinary token. Training makes no token with the bytes of a special token; this function rejects the
    other clashes.

    Raises:
        UserError: a string is invalid; the message names it and the reason.
    """
    check_strings("special_tokens", strings)
    if len(set(strings)) < len(strings) or "" in strings:
        raise UserError(f"special_tokens={list(strings)!r} repeats a string or contains an empty one")
    for string in strings:
        check_text(string, f"the special token {string!r}")
        named = unprintable(string)
        taken = named if named is not None and named in ordinary else other_text(string)
        if taken is not None:
            raise UserError(
                f"the special token {string!r} is also how tokenizer.json writes the ordinary token {taken!r}; use "
                f"another string, such as {f'<|{string}|>'!r}"
            )


def longest_token(max_bytes: int | None) -> int:
    """Maximum length of a new token in bytes: the configured limit, capped at `LONGEST_TOKEN`."""
    return LONGEST_TOKEN if max_bytes is None else min(max_bytes, LONGEST_TOKEN)


def spell(
    byte_ids: Sequence[int],
    merge_ids: npt.NDArray[np.uint32],
    unmerged: Mapping[bytes, int],
    special_tokens: Mapping[str, int],
    text: Collection[str] = (),
) -> list[bytes]:
    """Bytes of each token, by id; b"" for unused ids. The strings of `text` may be ordinary tokens, too.

    Raises:
        UserError: two tokens have the same id, or two ordinary tokens the same bytes; a merge joins an id that does not
            exist; or tokens are too long.
    """
    if len(byte_ids) != 256:
        raise UserError(f"there are {len(byte_ids)} byte ids, not 256")
    largest = max(*byte_ids, *unmerged.values(), *special_tokens.values(), int(merge_ids[:, 2].max(initial=0)))
    if largest >= MOST_IDS:
        raise UserError(f"id {largest} is out of range: ids are below {MOST_IDS}")
    vocab = [b""] * (largest + 1)
    lengths = map(len, [*unmerged, *(string.encode(errors="replace") for string in special_tokens)])
    left_over = MOST_BYTES - 256 - sum(lengths)
    if left_over < 0:
        raise UserError(f"the tokens have more than {MOST_BYTES} bytes in total, the maximum for a vocabulary")

    def put(token_id: int, spelling: bytes, what: str) -> None:
        if token_id < 0 or vocab[token_id]:
            raise UserError(f"id {token_id} of {what} is out of range or taken (vocabulary of {len(vocab)} tokens)")
        vocab[token_id] = spelling

    for byte, token_id in enumerate(byte_ids):
        if token_id != NO_TOKEN or byte not in NOT_IN_UTF8:
            put(token_id, bytes([byte]), f"byte {byte}")
    for spelling, token_id in unmerged.items():
        if len(spelling) < 2:
            raise UserError(f"the token {quoted(spelling)} with id {token_id} has no merge, and less than two bytes")
        put(token_id, spelling, f"token {quoted(spelling)}")
    _put_merges(merge_ids, vocab, put, left_over)
    # Files name tokens by their bytes, so two ordinary tokens with the same bytes would be ambiguous.
    seen: set[bytes] = set()
    for token_id, spelling in enumerate(vocab):
        if spelling in seen:
            raise UserError(f"{quoted(spelling)} is spelled by two tokens, the second with id {token_id}")
        if spelling:
            seen.add(spelling)
    for string, token_id in special_tokens.items():
        if not string:
            raise UserError(f"the special token with id {token_id} is empty")
        check_text(string, f"the special token {quoted(string)}")
        spelling = string.encode()
        if len(spelling) > _LONGEST_SPECIAL:
            raise UserError(
                f"the special token {quoted(string)} has more than {_LONGEST_SPECIAL} bytes; use a shorter string"
            )
        if string not in text or token_id < 0 or vocab[token_id] != spelling:
            put(token_id, spelling, f"special token {quoted(string)}")
    return vocab


def _put_merges(
    merge_ids: npt.NDArray[np.uint32], vocab: list[bytes], put: Callable[[int, bytes, str], None], left_over: int
) -> None:
    """Spell out merged tokens. Imported lists may use a token before the merge that produces it; such merges wait."""
    merges, size = merge_ids.tolist(), len(vocab)
    waiting: dict[int, list[int]] = {}
    for first in range(len(merges)):
        ready = [first]
        while ready:
            rank = ready.pop()
            left, right, new = merges[rank]
            if left >= size or not vocab[left] or right >= size or not vocab[right]:
                missing = left if left >= size or not vocab[left] else right
                waiting.setdefault(missing, []).append(rank)
                continue
            token = vocab[left] + vocab[right]
            if len(token) > LONGEST_TOKEN:
                raise UserError(f"merge {rank} produces a token of more than {LONGEST_TOKEN} bytes")
            if vocab[new] != token:  # several merges may produce the same token
                left_over -= len(token)
                if left_over < 0:
                    raise UserError(
                        f"the tokens up to merge {rank} of {len(merges)} have more than {MOST_BYTES} bytes in total, "
                        "the maximum for a vocabulary; train fewer or shorter tokens (max_token_bytes, Rules.max_bytes)"
                    )
                if vocab[new]:
                    put(new, token, f"merge {rank}")  # raises
                vocab[new] = token
                if waiting:
                    ready.extend(waiting.pop(new, ()))
    if waiting:
        rank = min(rank for ranks in waiting.values() for rank in ranks)
        left, right, _ = merges[rank]
        raise UserError(
            f"merge {rank} joins the ids {left} and {right}, one of which does not exist yet or is a special token"
        )
