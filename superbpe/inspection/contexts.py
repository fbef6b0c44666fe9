"""Occurrences of tokens in a text: a few per token, with the surrounding text."""

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
    """Occurrences of tokens in excerpts of a text.

    Attributes:
        data: the concatenated excerpts, UTF-8, uint8.
        starts: int64: start of each excerpt in `data`; excerpts do not cross the ends of documents.
        tokens: int64 [n]: ids, sorted.
        places: int64 [n]: start of each occurrence in `data`.
        reach: bytes of context on either side of a token; less at the ends of documents.
    """

    data: npt.NDArray[np.uint8]
    starts: Ints
    tokens: Ints
    places: Ints
    reach: int


def contexts(
    encoded: Encoded, tokens: Tokens, *, per_token: int = 3, reach: int = 48, most_bytes: int = 6_000_000
) -> Contexts:
    """Select up to `per_token` occurrences of each token, spread over the text, with the surrounding text.

    If not all fit into `most_bytes`, the first occurrences of superwords have priority, then the first occurrences of
    other tokens, then the second ones, and so on.

    Args:
        encoded: a text and its ids.
        tokens: description of the tokens.
        per_token: maximum number of occurrences per token.
        reach: bytes of context on either side.
        most_bytes: maximum size of the excerpts, before overlapping ones are joined.
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
        # Occurrences 0, n/3 and 2n/3 of n, for three per token.
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
