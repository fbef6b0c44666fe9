"""Training of phase 2: from a tokenizer and a corpus to a tokenizer with superwords."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from superbpe.passes import Local, Runner
from superbpe.rules import PRESETS, Rules
from superbpe.search import Found, MergeSearch
from superbpe.sources import opened
from superbpe.start import Start, resolve_start
from tokenizer.corpus.seen import KEY, Recorder
from tokenizer.corpus.sources import Source
from tokenizer.corpus.texts import Text
from tokenizer.definition import LONGEST_TOKEN
from tokenizer.errors import UserError, check_choice, check_whole, quoted
from tokenizer.progress import Progress, thread_count
from tokenizer.tokenizer import Tokenizer
from tokenizer.train.bpe import MOST_TOKENS, TIE_BREAKS, warn_of_long_tokens


def train_superbpe(
    tokenizer: Tokenizer,
    text: Text | Source | Sequence[Source] | Runner,
    *,
    vocab_size: int,
    rules: Rules | str,
    field: str = "text",
    transition: float | str | None = None,
    transition_merges: int | None = None,
    keep_ids: bool = False,
    tie_break: str = "lowest-ids",
    threshold: int | None = None,
    threads: int | None = None,
    memory_bytes: int | None = None,
    progress: Progress | None = None,
    on_counts: Callable[[npt.NDArray[np.int64]], object] | None = None,
) -> Tokenizer:
    """Train phase 2: continue from the first merges of a tokenizer with merges that may cross pretokens.

    The merges do not depend on `threshold`, `threads`, `memory_bytes` or how documents are batched.

    Args:
        tokenizer: phase 1: plain BPE with at least as many merges as the transition keeps, of any pattern and unit
            (`superbpe.rules.PHASE1` lists each preset's). If its ids follow another layout than ours, as in most
            imported tokenizers, it is cut at the transition (`Tokenizer.cut`), and superwords get the ids after its
            special tokens.
        text: phase 1's text or another: anything that `count_pretokens` takes, apart from counts. It is read several
            times; an iterator, which can be read only once, is read into memory. Every source must have text (or
            documents in the sample). A `superbpe.passes.Runner` lets other machines read it.
        vocab_size: size of the result: bytes, merges of both phases, special tokens. If ids are kept: the highest id
            plus 1, including unused ids.
        rules: what may be merged: rules, or the name of a preset in `superbpe.rules.PRESETS`.
        field: field that holds the text, if `text` is rows or files of records.
        transition: where phase 2 starts; see `superbpe.transition.resolve_transition`. "auto", for whole pretokens
            only, lets superwords compete with phase-1 merges (`Rules.interleave`); the tokenizer must then have at
            least as many merges as fit into the vocabulary.
        transition_merges: the transition as a number of merges, instead of `transition`.
        keep_ids: keep the whole tokenizer with all ids, including special tokens, for a model trained with them;
            superwords get the ids after the highest one. Takes no transition.
        tie_break: which of the most frequent pairs is merged first, as in `train_bpe`, unless the rules set it.
        threshold: seams that occur less often are cut; None to choose it from a sample.
        threads: worker threads; None for SUPERBPE_THREADS or all cores.
        memory_bytes: memory limit for the fragments of text and the merge loop, in addition to about 110 MB and the
            vocabulary. If they need more, the corpus is read more often, for the most frequent merges first. None for
            no limit.
        progress: called with bytes of text and merges done.
        on_counts: called at the end with the count of each phase-2 merge, by rank, for
            `superbpe.inspection.history.merge_log`.

    Raises:
        UserError: the transition does not fit the tokenizer or the vocabulary, or a rule has an invalid value.
    """
    if not isinstance(tokenizer, Tokenizer):  # the arguments may be swapped
        raise UserError(
            f"phase 2 starts from a Tokenizer, not from a {type(tokenizer).__name__}: write train_superbpe(tokenizer, "
            "text, ...), with the result of train_bpe or Tokenizer.from_pretrained"
        )
    if isinstance(rules, str):
        rules = PRESETS.get(rules, rules)
    if not isinstance(rules, Rules):
        raise UserError(f"rules={quoted(rules)} is neither Rules nor the name of a preset: {', '.join(PRESETS)}")
    check_whole("vocab_size", vocab_size, 1, MOST_TOKENS)
    check_choice("tie_break", tie_break, TIE_BREAKS)
    for name, value in (("threshold", threshold), ("memory_bytes", memory_bytes)):
        if value is not None:
            check_whole(name, value, 1, 2**63 - 1)
    start = resolve_start(tokenizer, rules, vocab_size, transition, transition_merges, keep_ids=keep_ids)
    search = MergeSearch(
        start,
        tie_break=tie_break,
        threads=thread_count(threads),
        memory_bytes=memory_bytes,
        progress=progress,
    )
    normalizer = tokenizer if tokenizer.preparation.forms else None
    read = [tokenizer.provenance.get(KEY)]
    if isinstance(text, Runner):
        read.append(None)  # other machines do not record what they read
    recorder = Recorder(read)
    runner = text if isinstance(text, Runner) else Local(opened(text, recorder, field=field))
    result = search.run(runner, normalizer, threshold)
    missing = start.n_merges - result.n_kept - len(result.superwords.counts)
    if missing:
        warnings.warn(
            f"the corpus ran out of pairs after {len(result.superwords.counts)} of {start.n_merges - result.n_kept} "
            f"superword merges; the vocabulary has {vocab_size - missing} tokens, not {vocab_size}. Use more text, "
            "other rules or a smaller vocabulary",
            stacklevel=2,
        )
    if rules.max_bytes is None or rules.max_bytes > LONGEST_TOKEN:
        warn_of_long_tokens(result.about["too_long"], "max_bytes", stacklevel=2)
    if on_counts is not None:
        on_counts(result.superwords.counts)
    about = {"from": tokenizer.sha256, **_about(start, result)}
    provenance = start.tokenizer.provenance | {"phase2": about, KEY: recorder.read()}
    trained = start.result(result.n_kept, result.superwords, provenance)
    phase1 = [*trained.merge_ids[: trained.n_phase1_merges, 2].tolist(), *trained.unmerged.values()]
    n_unreachable = len(np.intersect1d(phase1, trained.unreachable_ids()))
    trained.provenance["phase2"]["unreachable_phase1_tokens"] = n_unreachable
    return trained


def _about(start: Start, result: Found) -> dict[str, Any]:
    """The tokenizer's provenance of phase 2."""
    n_superwords = len(result.superwords.counts)
    return {
        "rules": next((name for name, preset in PRESETS.items() if preset == start.rules), None),
        "transition": 256 + result.n_kept,
        **result.about,
        "ran_out_of_pairs": result.n_kept + n_superwords < start.n_merges,
        "last_count": int(result.superwords.counts[-1]) if n_superwords else None,
    }
