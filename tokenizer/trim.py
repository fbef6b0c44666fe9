"""Trimming: the vocabulary that a text needs."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer.corpus.seen import KEY, Read, Recorder
from tokenizer.corpus.texts import Text
from tokenizer.definition import NO_TOKEN, Definition
from tokenizer.errors import UserError, check_whole
from tokenizer.formats import carried
from tokenizer.formats.hf import TEMPLATE
from tokenizer.formats.renumbering import ids_in_template, template_with_new_ids
from tokenizer.progress import Progress, Throttle, thread_count
from tokenizer.tokenizer import Tokenizer


class IdCounts(NamedTuple):
    """How often each token occurs in a text.

    Attributes:
        counts: int64 [vocab_size], by id.
    """

    counts: npt.NDArray[np.int64]
    n_bytes: int
    read: Read


class Trimmed(NamedTuple):
    """A smaller tokenizer.

    Attributes:
        old_ids: int64 [vocab_size], increasing: the id that each token had before.
    """

    tokenizer: Tokenizer
    old_ids: npt.NDArray[np.int64]


def count_ids(
    tokenizer: Tokenizer,
    text: Text,
    *,
    field: str = "text",
    threads: int | None = None,
    progress: Progress | None = None,
) -> IdCounts:
    """Encode a text and count its tokens. Special strings are ordinary text. The text is streamed.

    Args:
        tokenizer: the tokenizer.
        text: documents of any kind, as for `train_bpe`.
        field: field that holds the text of rows and records.
        threads: see `Tokenizer`.
        progress: called with the bytes encoded.

    Raises:
        UserError: the text cannot be read, or is empty.
    """
    n_threads = thread_count(threads)
    recorder, tick = Recorder(), Throttle(progress, "bytes encoded")
    counts, n_bytes = np.zeros(tokenizer.vocab_size, np.int64), 0
    # Reading takes about a third of the time of encoding.
    for batch in recorder.batches(text, field=field, readers=max(n_threads // 3, 1), in_order=False):
        ids, _ = tokenizer.encode_batch(batch, threads=n_threads)
        counts += np.bincount(ids, minlength=len(counts))
        n_bytes += batch.n_bytes
        tick(n_bytes)
    tick.finish(n_bytes)
    if n_bytes == 0:
        raise UserError("the text is empty; name files that contain text")
    return IdCounts(counts, n_bytes, recorder.read())


def trim(
    tokenizer: Tokenizer,
    counts: npt.ArrayLike,
    *,
    vocab_size: int | None = None,
    least_count: int | None = None,
    keep: Iterable[int] = (),
    read: Read | None = None,
) -> Trimmed:
    """Remove tokens that a text does not need.

    Bytes, special tokens and added tokens stay. With a token, the two parts of each merge that can produce it stay, and
    these merges. So text whose tokens all stay is encoded as before: every merge on the way to a token builds a part of
    it. The other tokens are removed from the leaves: a leaf is part of no remaining token. The leaf with the lowest
    count goes first (of several, the highest id), and each of its parts gets its count. Ids keep their order, without
    gaps.

    >>> from tokenizer import train_bpe
    >>> tokenizer = train_bpe(["low lower newer"] * 3, 260, special_tokens=())
    >>> trim(tokenizer, count_ids(tokenizer, ["new lower"]).counts).tokenizer.vocab[256:]
    [b'er', b'lo', b'wer']

    Args:
        tokenizer: the tokenizer.
        counts: [vocab_size], occurrences by id, as `count_ids` returns them.
        vocab_size: size of the result.
        least_count: leaves that occur less often are removed; 1 if `vocab_size` is not given.
        keep: ids of further tokens that stay. Those that the post-processor and `generation_config.json` of an imported
            tokenizer name stay anyway.
        read: record of the text, to recognize it later; None if it is unknown.

    Raises:
        UserError: the counts do not fit the tokenizer, or the size cannot be reached.
    """
    if vocab_size is not None and least_count is not None:
        raise UserError(f"vocab_size={vocab_size} and least_count={least_count} exclude each other; use one of them")
    found = np.asarray(counts)
    if found.shape != (tokenizer.vocab_size,) or found.dtype.kind not in "iu" or found.min(initial=0) < 0:
        raise UserError(
            f"counts of shape {list(found.shape)} and type {found.dtype} are not occurrences of the "
            f"{tokenizer.vocab_size} ids of the tokenizer; count_ids counts them"
        )
    definition, provenance = tokenizer.definition, tokenizer.provenance
    beside, template = carried.collected(tokenizer), provenance.get(TEMPLATE)
    required = {*keep, *map(int, beside["ids"]), *ids_in_template(template)}
    if vocab_size is None:
        least = 1 if least_count is None else least_count
        check_whole("least_count", least, 0)
        kept = _without_leaves(definition, found.tolist(), required, least_count=least)
    else:
        check_whole("vocab_size", vocab_size, 1)
        kept = _without_leaves(definition, found.tolist(), required, size=vocab_size)
        if len(kept) != vocab_size:
            least = len(_without_leaves(definition, found.tolist(), required, size=1))
            raise UserError(
                f"vocab_size={vocab_size} must be from {least} (bytes, special and added tokens, with their parts) to "
                f"{sum(map(bool, definition.vocab))}, the tokenizer's own size"
            )
    old_ids = np.array(kept, np.int64)
    new_ids = {old: new for new, old in enumerate(old_ids.tolist())}
    about: dict[str, Any] = {"trimmed": {"from": tokenizer.sha256, "vocab_size": tokenizer.vocab_size}}
    about[KEY] = Recorder([provenance.get(KEY), read]).read()
    about[carried.KEY] = carried.with_new_ids(beside, new_ids)
    if template is not None:
        about[TEMPLATE] = template_with_new_ids(template, new_ids)
    return Trimmed(Tokenizer(_renumbered(definition, new_ids), provenance | about), old_ids)


def _without_leaves(
    definition: Definition, counts: list[int], required: set[int], *, size: int = 0, least_count: float = math.inf
) -> list[int]:
    """Ids that stay when leaves are removed, as long as there are too many and their count is too low.

    The graph has the merges that can apply, of both phases. Tokens without one are leaves. The counts are changed.
    """
    pairs: dict[int, list[tuple[int, int]]] = {}
    for left, right, new in definition.merge_ids[definition.encoder.live_merges()].tolist():
        pairs.setdefault(new, []).append((left, right))
    kept = {i for i, token in enumerate(definition.vocab) if token}
    required = {*required, *definition.byte_ids, *definition.special_tokens.values()}
    required |= {*definition.preparation.added_tokens.values()}
    uses = Counter(part for token in kept for pair in pairs.get(token, ()) for part in pair)
    leaves = [(counts[i], -i) for i in kept - required if uses[i] == 0]
    heapq.heapify(leaves)
    while leaves and len(kept) > size and leaves[0][0] < least_count:
        count, negative_id = heapq.heappop(leaves)
        kept.remove(-negative_id)
        of_leaf = pairs.get(-negative_id, [])
        for part in of_leaf[0] if of_leaf else ():
            counts[part] += count  # only one of several merges applies to a stretch of text
        for part in (part for pair in of_leaf for part in pair):
            uses[part] -= 1
            if uses[part] == 0 and part not in required:
                heapq.heappush(leaves, (counts[part], -part))
    return sorted(kept)


def _renumbered(definition: Definition, new_ids: dict[int, int]) -> Definition:
    """The definition with only these tokens, whose new ids are given, and the merges that can produce them."""
    live = definition.encoder.live_merges()
    ranks = live[np.isin(definition.merge_ids[live, 2], list(new_ids))]
    merges = definition.merge_ids[ranks].tolist()
    produced = {*definition.byte_ids, *(new for _, _, new in merges)}
    # A token whose merges never apply is found as a whole pretoken only.
    unmerged = [i for i in definition.ordinary_ids().tolist() if i in new_ids and i not in produced]
    added = {string: new_ids[i] for string, i in definition.preparation.added_tokens.items()}
    return replace(
        definition,
        byte_ids=[i if i == NO_TOKEN else new_ids[i] for i in definition.byte_ids],
        merge_ids=np.array([[new_ids[i] for i in merge] for merge in merges], np.uint32).reshape(-1, 3),
        n_phase1_merges=int((ranks < definition.n_phase1_merges).sum()),
        special_tokens={string: new_ids[i] for string, i in definition.special_tokens.items()},
        preparation=replace(definition.preparation, added_tokens=added),
        unmerged={definition.vocab[i]: new_ids[i] for i in unmerged},
    )
