"""Input of the encoder in the page: a tokenizer's merges, bytes and patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.report.regexes import UntranslatableError, to_javascript
from tokenizer import _native

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenizer.tokenizer import Tokenizer


def engine(tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, npt.NDArray[np.integer]]]:
    """Return the facts and columns for `Encoder` in `encoder.js`, to be packed with `packing.pack`.

    The fact `refused` is null, or says which pattern cannot run in a page and why. In that case the page does not
    segment text, but everything else works.
    """
    two_pass = tokenizer.mode == "two-pass"
    cutter = tokenizer.pattern if two_pass or tokenizer.fence is None else tokenizer.fence
    fence = tokenizer.fence if two_pass else None
    facts: dict[str, Any] = {
        "twoPass": two_pass,
        "wholePieces": tokenizer.ignore_merges,
        "phase1": tokenizer.n_phase1_merges,
        "pattern": [],
        "fence": [],
        "refused": None,
    }
    for key, pattern in (("pattern", cutter), ("fence", fence)):
        if pattern is None:
            continue
        try:
            facts[key] = to_javascript(pattern.regex)
        except UntranslatableError as error:
            facts["refused"] = (
                f"the {'fence' if pattern is tokenizer.fence else 'pattern'} {pattern.name!r} ({pattern.regex}) cannot "
                f"run in a page: JavaScript has no counterpart for {error}"
            )
    eligible: list[bool] = [] if tokenizer.eligible is None else _native.eligible(tokenizer.vocab, tokenizer.eligible)
    special = set(tokenizer.special_tokens.values())
    vocab = [b"" if i in special else token for i, token in enumerate(tokenizer.vocab)]
    columns: dict[str, npt.NDArray[np.integer]] = {
        "byteIds": np.asarray(tokenizer.byte_ids, dtype=np.int64) + 1,
        "left": tokenizer.merge_ids[:, 0],
        "right": tokenizer.merge_ids[:, 1],
        "made": tokenizer.merge_ids[:, 2],
        "lengths": np.fromiter(map(len, vocab), dtype=np.int64, count=len(vocab)),
        "bytes": np.frombuffer(b"".join(vocab), dtype=np.uint8),
        "eligible": np.asarray(eligible, dtype=np.uint8),
        "ordinary": np.sort(tokenizer.ordinary_ids()) if tokenizer.ignore_merges else np.empty(0, dtype=np.int64),
    }
    return facts, columns
