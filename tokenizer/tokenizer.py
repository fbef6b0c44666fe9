"""The tokenizer: what it is made of; save, load."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenizer import _native, formats, vocabulary
from tokenizer.codec import Codec
from tokenizer.errors import UserError, quoted
from tokenizer.patterns import Pattern
from tokenizer.preparation import NOTHING, Preparation

ALPHABET: bytes = formats.BYTE_ORDER
"""The 256 byte values in the order of HF's alphabet: the order in which `lowest-ids` ranks them."""

SPECIAL_LAYOUTS = vocabulary.SPECIAL_LAYOUTS


def n_words(token: bytes) -> int:
    r"""The number of words in a token: its non-empty parts between white space.

    >>> [n_words(token) for token in (b" of the", b" ", b".\n", b".\nThe")]
    [2, 0, 1, 2]
    """
    return len(token.decode(errors="replace").split())


class Tokenizer(Codec):
    """A byte-level BPE tokenizer, with or without superwords. What it does with text is in `Codec`.

    Attributes:
        mode: "one-pass" (the fence, or without one the pattern, cuts the text; then merges apply by rank) or
            "two-pass" (phase-1 merges inside the pattern's pretokens, then phase-2 merges across them, up to
            the fence).
        pattern: phase 1's pretokenization pattern.
        fence: what phase-2 merges may not cross; None for plain BPE.
        vocab: bytes of each token, by id; a special token's are its UTF-8 string, an unused id's are b"".
        merge_ids: uint32 [n_merges, 3]: (left, right, new) ids, by rank. Of a repeated pair the last rank counts, as
            in HF `tokenizers`. Several merges may make one token; at most one of them ever applies, since merging
            inside a token's bytes does not depend on what surrounds them.
        n_phase1_merges: how many of the merges, from the first, are phase 1's.
        byte_ids: ids of the 256 bytes; -1 where an imported tokenizer has no token for a byte that UTF-8 never uses.
        special_tokens: string to id.
        ignore_merges: a whole pretoken that is a token becomes it, also where merges would not make it. As in
            tokenizer.json; and what tiktoken does.
        eligible: two-pass only: a regex. Phase 2 merges only whole pretokens which are one phase-1 token and in which
            it is found; None for any tokens.
        unmerged: bytes to id, of ordinary tokens that no merge makes. Text only holds them where `ignore_merges`.
        preparation: what happens to text first, of imported tokenizers: added tokens, normalisation.
        provenance: JSON about how it was made; not part of its identity.
    """

    def __init__(
        self,
        *,
        byte_ids: Sequence[int],
        merge_ids: npt.NDArray[np.uint32],
        n_phase1_merges: int,
        pattern: Pattern,
        fence: Pattern | None = None,
        mode: str = "one-pass",
        eligible: str | None = None,
        special_tokens: dict[str, int] | None = None,
        ignore_merges: bool = False,
        unmerged: Mapping[bytes, int] | None = None,
        preparation: Preparation = NOTHING,
        provenance: dict[str, Any] | None = None,
    ) -> None:
        self.byte_ids = tuple(int(i) for i in byte_ids)
        self.merge_ids = np.ascontiguousarray(merge_ids, dtype=np.uint32).reshape(-1, 3)
        self.n_phase1_merges = n_phase1_merges
        self.pattern = pattern
        self.fence = fence
        self.mode = mode
        self.eligible = eligible
        self.special_tokens = dict(special_tokens or {})
        self.provenance = dict(provenance or {})
        self.ignore_merges = ignore_merges
        self.unmerged = dict(unmerged or {})
        self.preparation = preparation
        if clash := set(self.special_tokens) & set(preparation.added_tokens):
            raise UserError(f"{quoted(min(clash))} is a special token and an added one")
        named = self.special_tokens | dict(preparation.added_tokens)
        if unknown := preparation.late - set(named):
            raise UserError(f"{quoted(min(unknown))} is to be found in normalised text, but is no token")
        self.vocab = vocabulary.spell(self.byte_ids, self.merge_ids, self.unmerged, named)
        if mode not in ("one-pass", "two-pass"):
            raise UserError(f"mode is {quoted(mode)}; it is one of: one-pass, two-pass")
        if not 0 <= n_phase1_merges <= len(self.merge_ids):
            raise UserError(f"{n_phase1_merges} phase-1 merges do not fit {len(self.merge_ids)} merges")
        if fence is None and n_phase1_merges < len(self.merge_ids):
            raise UserError("a tokenizer with phase-2 merges needs a fence (pattern 'none' cuts nothing)")
        if mode == "two-pass" and fence is None:
            raise UserError("a two-pass tokenizer needs a fence (pattern 'none' cuts nothing)")
        if mode == "two-pass" and ignore_merges:
            raise UserError("a two-pass tokenizer cannot ignore merges: its pretokens are not its last pieces")
        if eligible is not None:
            self._check_eligible(eligible)

    def _check_eligible(self, eligible: str) -> None:
        """Refuses superwords of what is not eligible: they would never be made."""
        if self.mode != "two-pass":
            raise UserError("only a two-pass tokenizer has eligible pretokens: one pass knows no pretokens")
        phase2 = self.merge_ids[self.n_phase1_merges :]
        atoms = np.setdiff1d(phase2[:, :2], phase2[:, 2])
        tokens = [self.vocab[i] for i in atoms.tolist()]
        for token, found in zip(tokens, _native.eligible(tokens, eligible), strict=True):
            if not found:
                raise UserError(
                    f"a superword is made of {quoted(token)}, in which the eligibility pattern {quoted(eligible)} "
                    "is not found"
                )

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
        provenance: dict[str, Any] | None = None,
    ) -> Tokenizer:
        """A new tokenizer out of merges by rank, with ids of our own.

        Args:
            merges: [n, 2] ranks: below 256 a byte's place in `ALPHABET`, then 256 + the rank of a merge.
            special_tokens: strings, in the order of their ids.
            special_layout: "last": bytes, merges, specials; "first": specials, bytes, merges; "after-bytes".
            n_phase1_merges: all, unless given.
            pattern: as the attribute, like the rest.
            fence: see the class.
            mode: see the class.
            eligible: see the class.
            provenance: see the class.
        """
        ranks = vocabulary.rows(merges, "merges are pairs of ranks")
        if isinstance(special_tokens, str) or not all(isinstance(string, str) for string in special_tokens):
            raise UserError(f"special_tokens={quoted(special_tokens)} is no list of strings")
        n, n_specials = len(ranks), len(special_tokens)
        wrong = np.flatnonzero((ranks < 0).any(axis=1) | (ranks >= 256 + n).any(axis=1))
        if len(wrong):
            first = int(wrong[0])
            raise UserError(f"merge {first} joins ranks {ranks[first].tolist()}, of which one does not exist")
        if special_layout not in SPECIAL_LAYOUTS:
            raise UserError(f"special_layout is {quoted(special_layout)}; it is one of: {', '.join(SPECIAL_LAYOUTS)}")
        first_byte, first_merge, first_special = vocabulary.first_ids(special_layout, n, n_specials)
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
            provenance=provenance,
        )

    def ranks(self) -> npt.NDArray[np.int64]:
        """The merges by rank, [n, 2], as `from_ranks` takes them: ids play no part in them.

        Raises:
            UserError: they do not say all of it: a token is made by several merges or by none, or used before it is
                made.
        """
        n = len(self.merge_ids)
        rank_of_id = np.full(self.vocab_size, -1, dtype=np.int64)
        rank_of_id[[self.byte_ids[byte] for byte in ALPHABET]] = np.arange(256)
        whole = min(self.byte_ids) >= 0 and not self.unmerged
        rank_of_id[self.merge_ids[:, 2]] = 256 + np.arange(n)
        ranks: npt.NDArray[np.int64] = rank_of_id[self.merge_ids[:, :2]]
        if not whole or len(np.unique(self.merge_ids[:, 2])) < n or (ranks >= 256 + np.arange(n)[:, None]).any():
            raise UserError(
                "a list of merges alone does not describe this tokenizer: some token is made by several merges or by "
                "none, or is used before it is made, or some byte has no token. Work with its ids instead: merge_ids, "
                "ordinary_ids, extended"
            )
        return ranks

    def ordinary_ids(self) -> npt.NDArray[np.int64]:
        """Ids of all but special tokens, by rank: bytes in the order of `ALPHABET`, then each token where the first
        merge that makes it stands, then tokens that no merge makes.
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
        """Which of `SPECIAL_LAYOUTS` the ids follow.

        Raises:
            UserError: none of them, so that a list of merges alone does not say what the ids are.
        """
        return vocabulary.special_layout(self)

    @property
    def vocab_size(self) -> int:
        """One more than the highest id: all tokens, and unused ids between them; without padding."""
        return len(self.vocab)

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The merges as byte strings, by rank."""
        return [(self.vocab[left], self.vocab[right]) for left, right in self.merge_ids[:, :2].tolist()]

    @cached_property
    def sha256(self) -> str:
        """Hash of everything that decides which ids a text gets; names the tokenizer."""
        return formats.identity(self)

    @property
    def name(self) -> str:
        """A short name for folders and tables."""
        return self.sha256[:12]

    def token_byte_lengths(self) -> npt.NDArray[np.int32]:
        """int32 [vocab_size]: raw bytes of each token; 0 for special tokens, which are no text."""
        lengths = np.fromiter(map(len, self.vocab), dtype=np.int32, count=self.vocab_size)
        lengths[list(self.special_tokens.values())] = 0
        return lengths

    def superword_ids(self) -> npt.NDArray[np.int64]:
        """Ids, by rank, of superwords: phase-2 tokens that span two words or more (`n_words`)."""
        phase2 = self.merge_ids[self.n_phase1_merges :, 2].tolist()
        return np.array([i for i in phase2 if n_words(self.vocab[i]) > 1], dtype=np.int64)

    def crossing_ids(self) -> npt.NDArray[np.int64]:
        """Ids, by rank, of phase-2 tokens that phase 1's pattern would cut, superwords or not."""
        phase2 = self.merge_ids[self.n_phase1_merges :, 2].tolist()
        crossing = [
            i for i in phase2 if len(_native.split(self.vocab[i].decode(errors="replace"), self.pattern.regex)) > 1
        ]
        return np.array(crossing, dtype=np.int64)

    @cached_property
    def _encoder(self) -> _native.Encoder:
        encoder = _native.Encoder(
            self.vocab,
            # For bytes that no text has: any other byte's id, not that of a token which bytes do not make.
            [self.byte_ids[0] if i < 0 else i for i in self.byte_ids],
            self.merge_ids.reshape(-1),
            phase1=self.n_phase1_merges,
            pattern=self.pattern.regex,
            fence=None if self.fence is None else self.fence.regex,
            two_pass=self.mode == "two-pass",
            whole=(self.ordinary_ids() if self.ignore_merges else np.empty(0)).astype(np.uint32),
            eligible=self.eligible,
        )
        if encoder.late_merges:
            warnings.warn(
                f"{encoder.late_merges} merges rank before those of superwords, but join what only superword merges "
                "make; they are applied among these, which is as exact and can be slower",
                stacklevel=3,
            )
        return encoder

    # --- other sizes, storage ---

    def cut(self, vocab_size: int) -> Tokenizer:
        """The tokenizer with its first tokens only, and every merge whose parts and product are among them.

        Ids stay, except those of special tokens behind all others: they move down, as training to this size would
        have given them.

        Raises:
            UserError: it is not that large, or its ids do not follow the order of its merges.
        """
        return Tokenizer(**vocabulary.cut(self, vocab_size))

    def extended(
        self,
        new_merges: npt.ArrayLike,
        *,
        fence: Pattern | None = None,
        mode: str = "one-pass",
        provenance: dict[str, Any] | None = None,
    ) -> Tokenizer:
        """The tokenizer with more merges, which rank after its own; no id changes.

        Args:
            new_merges: [k, 2] ids; the token of merge i has the id `vocab_size + i`, special tokens or not.
            fence: makes the new merges phase 2's, with this fence; None to add them to the last phase there is.
            mode: with a fence: "one-pass" or "two-pass".
            provenance: added to this one's.

        Raises:
            UserError: a merge joins what does not exist, or spells a token that does.
        """
        if fence is not None and self.fence is not None:
            raise UserError("the tokenizer has a phase 2 already: leave out the fence to extend it")
        merges = vocabulary.append(self, new_merges)
        plain = self.fence is None and fence is None
        return Tokenizer(
            byte_ids=self.byte_ids,
            merge_ids=merges,
            n_phase1_merges=len(merges) if plain else self.n_phase1_merges,
            pattern=self.pattern,
            fence=fence or self.fence,
            mode=mode if fence else self.mode,
            eligible=self.eligible,
            special_tokens=self.special_tokens,
            ignore_merges=self.ignore_merges,
            unmerged=self.unmerged,
            preparation=self.preparation,
            provenance=self.provenance | (provenance or {}),
        )

    def save(self, folder: Path | str) -> None:
        """Writes the tokenizer's folder: `superbpe.json`, and where HF can express it, `tokenizer.json`."""
        formats.save(self, Path(folder))

    @classmethod
    def load(cls, folder: Path | str) -> Tokenizer:
        """Reads a folder that `save` wrote.

        Raises:
            UserError: it is missing, damaged, or its files were changed in what decides the ids.
        """
        return cls(**formats.load(Path(folder)))

    @classmethod
    def from_file(cls, path: Path | str, **options: Any) -> Tokenizer:
        """Reads a tokenizer of any known format: see `tokenizer.formats.read`."""
        return formats.read(path, **options)

    def __repr__(self) -> str:
        superwords = "" if self.fence is None else f", phase 1: {256 + self.n_phase1_merges}, fence={self.fence.name}"
        return f"<Tokenizer {self.name}: {self.vocab_size} tokens, {self.pattern.name}{superwords}, {self.mode}>"
