"""What phase 2 starts from where a list of merges does not say what the ids are: imported tokenizers, ids that stay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from superbpe.rules import Rules
from superbpe.transition import Merges
from tokenizer import patterns
from tokenizer.alphabet import ALPHABET
from tokenizer.definition import Definition
from tokenizer.errors import UserError, quoted
from tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Start:
    """Phase 1 of a tokenizer whose ids stay.

    Attributes:
        tokenizer: all its tokens, without the merges that never apply; superwords get the ids behind its highest.
        ranks: int64 [n, 2], the merges that ever apply, as `Tokenizer.ranks` gives them. Of several derivations of a
            token only one does.
        ids: int64 [256 + n], ids of the bytes in the order of `ALPHABET` and of what those merges make.
    """

    tokenizer: Tokenizer
    ranks: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]

    @classmethod
    def of(cls, tokenizer: Tokenizer, rules: Rules) -> Start:
        """Phase 1 as it segments text under the rules.

        Raises:
            UserError: phase 2 cannot segment it exactly as the tokenizer does, or the rules would drop some of it.
        """
        if tokenizer.fence is not None:
            raise UserError(
                "the tokenizer has superwords already, behind which no other phase 2 can begin while ids stay; "
                "start from its phase 1"
            )
        if rules.interleave:
            raise UserError(
                "rules with interleave=True choose which phase-1 tokens stay; where ids stay, all of them do. "
                "Use rules with interleave=False"
            )
        merges = _applied(tokenizer)
        ids = np.concatenate([[tokenizer.byte_ids[byte] for byte in ALPHABET], merges[:, 2]]).astype(np.int64)
        rank_of_id = np.full(tokenizer.vocab_size, -1, dtype=np.int64)
        known = ids[ids >= 0]
        rank_of_id[known] = np.flatnonzero(ids >= 0)
        ranks: npt.NDArray[np.int64] = rank_of_id[merges[:, :2]]
        late = ranks >= 256 + np.arange(len(merges))[:, None]
        if late.any() or len(np.unique(known)) < len(known):
            raise UserError(
                "superwords cannot be trained on this tokenizer: a merge uses a token before the merge that makes it "
                "there, or two merges that both apply make one token, so that its merges are no list to go on from"
            )
        if rules.phase1_fence == "kept" and tokenizer.ignore_merges:
            _check_whole_pretokens(tokenizer)
        unmade = {tokenizer.vocab[i]: i for i in np.setdiff1d(tokenizer.ordinary_ids(), known).tolist()}
        base = replace(
            tokenizer.definition,
            merge_ids=merges.astype(np.uint32),
            n_phase1_merges=len(merges),
            ignore_merges=False,
            unmerged=unmade,
        )
        return cls(Tokenizer(base, tokenizer.provenance), ranks, ids)

    def with_superwords(
        self,
        superwords: Merges,
        *,
        pattern: patterns.Pattern,
        fence: patterns.Pattern,
        mode: str,
        eligible: str | None,
        provenance: dict[str, Any],
    ) -> Tokenizer:
        """The tokenizer with superword merges, by rank, behind its own.

        `ignore_merges` goes: the fence's pieces are not the pretokens that it was meant for, and training merged them.
        """
        base = self.tokenizer.definition
        ids = np.concatenate([self.ids, base.vocab_size + np.arange(len(superwords.counts))])
        merges = base.merges_with(ids[np.column_stack([superwords.left, superwords.right])])
        definition = replace(base, merge_ids=merges, pattern=pattern, fence=fence, mode=mode, eligible=eligible)
        return Tokenizer(definition, provenance)


def _applied(tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """The merges that can apply, by rank, int64 [n, 3]: not other derivations, nor what needs a token never made."""
    merges = tokenizer.merge_ids[tokenizer.definition.encoder.live_merges()].astype(np.int64)
    while True:
        made = np.concatenate([tokenizer.byte_ids, merges[:, 2]])
        apply = np.isin(merges[:, :2], made).all(axis=1)
        if apply.all():
            return merges
        merges = merges[apply]


def _check_whole_pretokens(tokenizer: Tokenizer) -> None:
    """Refuses `ignore_merges` where it matters: two passes know no pretokens that become a token at once."""
    merging = Tokenizer(
        Definition(
            byte_ids=tokenizer.byte_ids,
            merge_ids=tokenizer.merge_ids,
            n_phase1_merges=len(tokenizer.merge_ids),
            pattern=patterns.resolve("none"),
            unmerged=tokenizer.unmerged,
        )
    )
    whole = [text for i in tokenizer.ordinary_ids().tolist() if (text := _text(tokenizer.vocab[i])) is not None]
    _, offsets = merging.encode_batch(whole)
    only = [text for text, n in zip(whole, np.diff(offsets).tolist(), strict=True) if n > 1]
    if only:
        raise UserError(
            f"{len(only)} tokens, such as {quoted(only[0])}, are what whole pretokens become (ignore_merges) and "
            "merges do "
            "not make; with the phase-1 fence kept, phase 2 merges what merges make. Use rules with "
            "phase1_fence='lifted', such as 'uw-2025'"
        )


def _text(token: bytes) -> str | None:
    """The token as text; None where it is no whole characters, as no pretoken is."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return None


def cut_at(tokenizer: Tokenizer, t: int) -> Tokenizer:
    """The tokenizer with its first `t` ordinary tokens (bytes, and what merges make), special tokens beside them.

    Raises:
        UserError: it has fewer, or its ids do not let it be cut there.
    """
    ordinary = np.sort(tokenizer.ordinary_ids())
    if not 256 <= t <= len(ordinary):
        raise UserError(
            f"the transition {t} does not fit the tokenizer, which has {len(ordinary)} tokens without special ones; "
            f"use 256 to {len(ordinary)}"
        )
    if t == len(ordinary):
        return tokenizer
    ids = ordinary.tolist()
    behind = sum(i > ids[-1] for i in tokenizer.special_tokens.values())
    return tokenizer.cut(ids[t - 1] + 1 + behind)
