"""Start of phase 2: the tokenizer, the transition and the ids, resolved before any text is read."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from superbpe.rules import Rules
from superbpe.transition import Merges, competes, resolve_transition
from tokenizer import patterns
from tokenizer.definition import ALPHABET, check_special_tokens
from tokenizer.errors import UserError, quoted
from tokenizer.tokenizer import Tokenizer
from tokenizer.train.bpe import merges_that_fit


@dataclass(frozen=True)
class Start:
    """The state that phase 2 starts from; created by `resolve_start`.

    Attributes:
        tokenizer: phase 1. If ids are kept, it is cut at the transition and has only merges that can apply.
        rules: what phase 2 may merge.
        ranks: int64 [n, 2], the phase-1 merges that phase 2 starts from, in the format of `Tokenizer.ranks`.
        ids: int64 [256 + n], ids in `tokenizer` of the bytes in the order of `ALPHABET`, then of the merged tokens.
        n_merges: number of merges of both phases that fit into the vocabulary.
        competing: superwords compete with the phase-1 merges for the vocabulary; training finds the transition.
        keeps_ids: existing ids do not change, and superwords get the ids after the highest one. Otherwise ids are
            assigned again from the list of merges, in the layout of `tokenizer` (`Definition.special_layout`).
    """

    tokenizer: Tokenizer
    rules: Rules
    ranks: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    n_merges: int
    competing: bool
    keeps_ids: bool

    @property
    def specials(self) -> list[str]:
        """The special tokens in the order of their ids."""
        ids = self.tokenizer.special_tokens
        return sorted(ids, key=ids.__getitem__)

    def result(self, n_kept: int, superwords: Merges, provenance: dict[str, Any]) -> Tokenizer:
        """Build the tokenizer with superwords.

        If ids are kept, `ignore_merges` is dropped: it applied to pretokens, but phase 2 merges the fence's pieces.

        Args:
            n_kept: number of merges of `ranks` to keep; all of them unless superwords compete.
            superwords: the merges of phase 2, by rank.
            provenance: provenance of the result.
        """
        base, rules = self.tokenizer, self.rules
        phases: dict[str, Any] = {
            "pattern": base.pattern,
            "fence": patterns.resolve(rules.fence),
            "mode": "two-pass" if rules.phase1_fence == "kept" else "one-pass",
            "eligible": rules.eligible if rules.atoms == "pretokens" else None,
        }
        merges = np.column_stack([superwords.left, superwords.right])
        if not self.keeps_ids:
            return Tokenizer.from_ranks(
                np.concatenate([self.ranks[:n_kept], merges]),
                special_tokens=self.specials,
                special_layout=base.definition.special_layout,
                end_of_text=base.end_of_text,
                n_phase1_merges=n_kept,
                provenance=provenance,
                **phases,
            )
        ids = np.concatenate([self.ids, base.vocab_size + np.arange(len(merges))])
        longer = replace(base.definition, merge_ids=base.definition.merges_with(ids[merges]), **phases)
        return Tokenizer(longer, provenance)


def resolve_start(
    tokenizer: Tokenizer,
    rules: Rules,
    vocab_size: int,
    transition: float | str | None = None,
    transition_merges: int | None = None,
    *,
    keep_ids: bool = False,
) -> Start:
    """Resolve the start of phase 2. See `superbpe.train_superbpe` for the arguments.

    Raises:
        UserError: the rules, the transition, the vocabulary size and the tokenizer are inconsistent.
    """
    rules.check()
    if not isinstance(keep_ids, bool):
        raise UserError(f"keep_ids={quoted(keep_ids)} is neither True nor False")
    if rules.phase1_fence == "lifted":  # a tokenizer.json will be written, which names tokens by their text
        strings = [*tokenizer.special_tokens, *tokenizer.preparation.added_tokens]
        check_special_tokens(strings, {tokenizer.vocab[i] for i in tokenizer.ordinary_ids()})
    if keep_ids:
        if transition is not None or transition_merges is not None:
            raise UserError("keep_ids keeps the whole tokenizer: leave out the transition, or leave out keep_ids")
        return _keeping_ids(tokenizer, rules, vocab_size)
    competing = competes(rules, transition, transition_merges)
    if competing or tokenizer.definition.has_own_layout():
        n_merges = merges_that_fit(vocab_size, list(tokenizer.special_tokens))
        if competing:
            _check_rivals(n_merges, tokenizer)
            n_kept = min(n_merges, tokenizer.n_phase1_merges)
        else:
            n_kept = resolve_transition(vocab_size, transition, transition_merges) - 256
            _check_transition(n_kept, n_merges, vocab_size, tokenizer)
        ranks, ids = tokenizer.ranks()[:n_kept], tokenizer.ordinary_ids()[: 256 + n_kept]
        return Start(tokenizer, rules, ranks, ids, n_merges, competing, keeps_ids=False)
    return _keeping_ids(
        cut_at(tokenizer, resolve_transition(vocab_size, transition, transition_merges)), rules, vocab_size
    )


def _check_transition(n_kept: int, n_merges: int, vocab_size: int, tokenizer: Tokenizer) -> None:
    """Reject a transition outside the vocabulary or after the end of the phase-1 tokenizer."""
    t, have = 256 + n_kept, 256 + tokenizer.n_phase1_merges
    if not 256 <= t <= 256 + n_merges:
        raise UserError(
            f"the transition {t} is outside the vocabulary: "
            f"with vocab_size={vocab_size} it must be from 256 to {256 + n_merges}"
        )
    if t > have and (tokenizer.provenance.get("phase1") or {}).get("ran_out_of_pairs"):
        raise UserError(
            f"the text is too small: its pairs gave {have - 256} phase-1 merges, the transition {t} needs {n_kept}; "
            f"use more text, or at most vocab_size={have}"
        )
    if t > have:
        raise UserError(
            f"the transition {t} needs {n_kept} phase-1 merges, but the tokenizer has {have - 256}; "
            f"use at most {have}, or train phase 1 to a larger vocabulary"
        )


def _check_rivals(n_merges: int, tokenizer: Tokenizer) -> None:
    """Reject a phase 1 with fewer merges than the vocabulary: the missing merges would compete too."""
    have, phase1 = tokenizer.n_phase1_merges, tokenizer.provenance.get("phase1") or {}
    complete = phase1.get("ran_out_of_pairs") and have >= phase1.get("merges", have + 1)
    if have < n_merges and not complete:
        raise UserError(
            f"superwords compete with {n_merges} phase-1 merges, but the tokenizer has {have}; "
            f"train phase 1 to the vocabulary size of phase 2, or to a larger one"
        )


def cut_at(tokenizer: Tokenizer, t: int) -> Tokenizer:
    """Keep the first `t` ordinary tokens (bytes and merged tokens), the special tokens and the added ones.

    Raises:
        UserError: the tokenizer has fewer tokens, or its ids do not allow this cut.
    """
    ordinary = np.sort(tokenizer.ordinary_ids())
    if not 256 <= t <= len(ordinary):
        raise UserError(
            f"the transition {t} does not fit the tokenizer, which has {len(ordinary)} tokens without special tokens; "
            f"use 256 to {len(ordinary)}"
        )
    if t == len(ordinary):
        return tokenizer
    ids = ordinary.tolist()
    apart = [*tokenizer.special_tokens.values(), *dict(tokenizer.preparation.added_tokens).values()]
    n_last = sum(i > ids[-1] for i in apart)  # these move down, and are not among the t tokens
    return tokenizer.cut(ids[t - 1] + 1 + n_last)


def _keeping_ids(tokenizer: Tokenizer, rules: Rules, vocab_size: int) -> Start:
    """Start from all tokens of a tokenizer without changing their ids.

    Raises:
        UserError: phase 2 cannot segment text exactly like the tokenizer, or the rules would drop some of its tokens.
    """
    if vocab_size < tokenizer.vocab_size:
        raise UserError(
            f"vocab_size={vocab_size} is less than the {tokenizer.vocab_size} ids that are kept (including special "
            "tokens and unused ids); use a larger size"
        )
    if tokenizer.fence is not None:
        raise UserError(
            "the tokenizer already has superwords, and a second phase 2 cannot follow them if ids are kept; "
            "start from its phase 1"
        )
    if rules.interleave:
        raise UserError(
            "the preset boundless (interleave=True) chooses which phase-1 tokens to keep, but keeping ids keeps all of "
            "them. Use another preset, such as digits"
        )
    if tokenizer.ignore_merges:
        _check_whole_pretokens(tokenizer, rules)
    merges = tokenizer.definition.applied_merges()
    ids, ranks = _ranked(tokenizer, merges)
    unmade = {tokenizer.vocab[i]: i for i in np.setdiff1d(tokenizer.ordinary_ids(), ids).tolist()}
    base = replace(
        tokenizer.definition,
        merge_ids=merges.astype(np.uint32),
        n_phase1_merges=len(merges),
        ignore_merges=False,
        unmerged=unmade,
    )
    n_merges = len(ranks) + vocab_size - base.vocab_size
    return Start(Tokenizer(base, tokenizer.provenance), rules, ranks, ids, n_merges, competing=False, keeps_ids=True)


def _ranked(tokenizer: Tokenizer, merges: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Ids by rank, [256 + n], and the merges as ranks, [n, 2]; see `Start`."""
    ids = np.concatenate([[tokenizer.byte_ids[byte] for byte in ALPHABET], merges[:, 2]]).astype(np.int64)
    rank_of_id = np.full(tokenizer.vocab_size, -1, dtype=np.int64)
    used = ids[ids >= 0]
    rank_of_id[used] = np.flatnonzero(ids >= 0)
    ranks: npt.NDArray[np.int64] = rank_of_id[merges[:, :2]]
    if len(np.unique(used)) < len(used):
        raise UserError(
            "superwords cannot be trained on this tokenizer: two merges that both apply produce the same token, so "
            "training cannot continue its list of merges"
        )
    return ids, ranks


def _check_whole_pretokens(tokenizer: Tokenizer, rules: Rules) -> None:
    """Name the tokens that only `ignore_merges` produces, from whole pretokens: no phase 2 can keep that.

    Two-pass encoding would give other ids than the tokenizer, so it rejects them. One-pass encoding never makes them.
    """
    ids = tokenizer.ordinary_ids()
    unmerged = ids[tokenizer.definition.encoder.tokens_in_tokens()[ids] > 1].tolist()
    # A pretoken is text, so it is never a token with part of a character.
    tokens = [tokenizer.vocab[i] for i in unmerged]
    only = [token for token in tokens if token.decode(errors="ignore").encode() == token]
    if not only:
        return
    such = quoted(only[0].decode())
    which = f"{len(only)} tokens, such as {such}, come only from whole pretokens (ignore_merges), not merges"
    if rules.phase1_fence == "kept":
        raise UserError(
            f"{which}; with the phase-1 fence kept, phase 2 needs tokens that merges produce. Use rules with "
            "phase1_fence='lifted', such as 'uw-2025'"
        )
    warnings.warn(f"{which}: with superwords, no text becomes these tokens; their ids stay", stacklevel=4)
