"""Where tokens occur: a few places of each, and only the text around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from superbpe.inspection.measures import Encoded
    from superbpe.inspection.tokens import Tokens

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Contexts:
    """Places of tokens in excerpts of a text.

    Attributes:
        data: the excerpts one after the other, UTF-8, uint8.
        starts: int64: where each excerpt starts in `data`; a document's end is also one's end.
        tokens: int64 [n]: ids, in order.
        places: int64 [n]: where in `data` the token starts.
        reach: bytes on either side of a token that an excerpt has, less at a document's ends.
    """

    data: npt.NDArray[np.uint8]
    starts: Ints
    tokens: Ints
    places: Ints
    reach: int


def contexts(
    encoded: Encoded, tokens: Tokens, *, per_token: int = 3, reach: int = 48, most_bytes: int = 6_000_000
) -> Contexts:
    """Chooses up to `per_token` places of each token, spread over its occurrences, and cuts out the text around them.

    Where not all fit, every superword gets its first before any other token gets one, and all tokens theirs before any
    gets a second.

    Args:
        encoded: a text and its ids.
        tokens: what the ids are.
        per_token: places of each token, at most.
        reach: bytes on either side.
        most_bytes: of text, before excerpts that overlap are joined.
    """
    n = len(encoded.ids)
    ids = encoded.ids.astype(np.int64)
    order = np.argsort(ids, kind="stable")
    counts = encoded.counts
    first = np.cumsum(counts) - counts
    seen = np.flatnonzero(counts)
    seen = seen[np.argsort(~tokens.superword[seen], kind="stable")]
    chosen = []
    for turn in range(per_token):
        # The first, then places ever further on: occurrence 0, then of n those at n/3, 2n/3.
        several = seen[counts[seen] > turn]
        chosen.append(order[first[several] + turn * counts[several] // per_token])
    places = np.concatenate(chosen) if n else np.empty(0, dtype=np.int64)
    widths = tokens.n_bytes[ids[places]] + 2 * reach
    places = np.sort(places[: int(np.searchsorted(np.cumsum(widths), most_bytes, side="right"))])

    token_ends = np.cumsum(tokens.n_bytes[ids])
    token_starts = token_ends - tokens.n_bytes[ids]
    document = np.searchsorted(encoded.byte_ends, token_starts[places], side="right")
    document_starts = np.concatenate([[0], encoded.byte_ends])
    low = np.maximum(token_starts[places] - reach, document_starts[document])
    high = np.minimum(token_ends[places] + reach, encoded.byte_ends[document])
    change = np.zeros(len(encoded.data) + 1, dtype=np.int64)
    np.add.at(change, low, 1)
    np.add.at(change, high, -1)
    covered = np.cumsum(change[:-1]) > 0
    begins = covered & ~np.concatenate([[False], covered[:-1]])
    begins[encoded.byte_ends[encoded.byte_ends < len(covered)]] = True
    new_place: Ints = np.cumsum(covered) - covered
    result = np.lexsort((places, ids[places]))
    return Contexts(
        data=encoded.data[covered],
        starts=new_place[np.flatnonzero(begins & covered)],
        tokens=ids[places][result],
        places=new_place[token_starts[places]][result],
        reach=reach,
    )
