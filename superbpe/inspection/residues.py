"""Residues: tokens that occur almost only inside other tokens.

A merge whose product is later merged again leaves a token behind: 5 to 10 % of published vocabularies (LiteToken, Sun
et al. 2026, arXiv 2602.04706, whose final/intermediate ratio F1 / (F1 + F2) is `alone / (alone + inside)` here). Such
a token takes a row of the embedding, and a model hardly sees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tokenizer.tokenizer import Tokenizer

MOST_ALONE = 0.05
"""Largest share of a residue's occurrences that are tokens of the text. With it, 5.5 to 6.2 % of the measured tokens of
r50k, cl100k, o200k and Qwen are residues (140 MB of English, code and languages)."""
LEAST_COUNT = 30
"""Fewest occurrences, alone and inside others, with which a token is measured."""

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Occurrences:
    """Where the tokens of a vocabulary occur in a text; all columns are [vocab_size], by id.

    Attributes:
        alone: int64: occurrences as a token of the text.
        inside: int64: occurrences inside tokens of the text, by the merges that make these.
        host: int64: the token of the text inside which a token occurs most; -1 if it occurs inside none.
        place: int64: start of the token in its host, in bytes.
        merged: bool: whether a merge makes the token.
    """

    alone: Ints
    inside: Ints
    host: Ints
    place: Ints
    merged: Flags

    @property
    def measured(self) -> Flags:
        """Merged tokens that occur often enough to tell: bool [vocab_size]."""
        return self.merged & (self.alone + self.inside >= LEAST_COUNT)

    @property
    def residue(self) -> Flags:
        """Tokens that occur almost only inside others: bool [vocab_size]."""
        return self.measured & (self.alone <= MOST_ALONE * (self.alone + self.inside))

    @property
    def share(self) -> float | None:
        """Residues per measured token; None if no token is measured."""
        return int(self.residue.sum()) / int(self.measured.sum()) if self.measured.any() else None


def occurrences(tokenizer: Tokenizer, counts: npt.ArrayLike) -> Occurrences:
    """Count the occurrences of each token inside the tokens of a text.

    A token that several merges make is taken apart by the first of them. So is one that the tokenizer emits without
    merging (`ignore_merges`).

    Args:
        tokenizer: any tokenizer.
        counts: int64 [vocab_size]: occurrences of each token in the encoded text.
    """
    alone = np.asarray(counts, dtype=np.int64)
    lengths = [len(token) for token in tokenizer.vocab]
    products, first = np.unique(tokenizer.merge_ids[:, 2], return_index=True)
    merges = tokenizer.merge_ids[first[np.argsort([-lengths[i] for i in products.tolist()], kind="stable")]]
    total, emitted = alone.tolist(), alone.tolist()
    inside, host, place = [0] * len(total), [-1] * len(total), [0] * len(total)
    most = [0] * len(total)  # occurrences of the host
    for left, right, made in merges.tolist():  # longer tokens first: their own occurrences are final
        n, at = (emitted[made], 0) if emitted[made] >= most[made] else (most[made], place[made])
        token = made if emitted[made] >= most[made] else host[made]
        for part, start in ((left, at), (right, at + lengths[left])):
            inside[part] += total[made]
            total[part] += total[made]
            if n > most[part]:
                most[part], host[part], place[part] = n, token, start
    return Occurrences(
        alone=alone,
        inside=np.array(inside, np.int64),
        host=np.array(host, np.int64),
        place=np.array(place, np.int64),
        merged=np.isin(np.arange(len(total)), products),
    )
