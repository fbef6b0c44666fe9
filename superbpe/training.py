"""Phase 2: a tokenizer and a corpus to a tokenizer with superwords."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from superbpe.passes import Passes, Veto
from superbpe.rules import NO_AUTO, PRESETS, Rules, script_aware
from superbpe.sources import Batches, Source, sources_of
from superbpe.start import Start, cut_at
from superbpe.transition import AUTO, check_rivals, check_transition, resolve_transition
from tokenizer import _native, patterns
from tokenizer.errors import UserError
from tokenizer.progress import Progress, thread_count
from tokenizer.special import check_special_tokens
from tokenizer.spelling import LONGEST_TOKEN
from tokenizer.tokenizer import Tokenizer
from tokenizer.train.bpe import merges_that_fit, warn_of_long_tokens


def train_superbpe(
    tokenizer: Tokenizer,
    text: Batches | Sequence[Source],
    *,
    vocab_size: int,
    rules: Rules | str,
    transition: float | str | None = None,
    transition_merges: int | None = None,
    keep_ids: bool = False,
    tie_break: str = "lowest-ids",
    veto: Veto | None = None,
    threshold: int | None = None,
    threads: int | None = None,
    memory_bytes: int | None = None,
    progress: Progress | None = None,
    on_counts: Callable[[npt.NDArray[np.int64]], object] | None = None,
) -> Tokenizer:
    """Resumes training from the first merges of a tokenizer, with the whitespace fence lifted.

    The merges do not depend on `threshold`, `threads`, `memory_bytes` or how documents are batched.

    Args:
        tokenizer: phase 1; plain BPE with at least as many merges as the transition keeps, by any pattern and unit (a
            preset's own are in `superbpe.rules.PHASE1`). One with ids of another
            layout than ours, as imported ones have, is cut at the transition (`Tokenizer.cut`), and superwords get the
            ids behind its special tokens.
        text: the corpus, phase 1's or any other: a callable that gives it from its beginning each time (`batches` of a
            `Corpus`), or sources with weights. Every source must have text (or documents in the sample).
        vocab_size: of the result: bytes, merges of both phases, special tokens. Where ids stay: one more than the
            highest id, unused ones included.
        rules: what may be merged: rules, or the name of a preset in `superbpe.rules.PRESETS`.
        transition: where phase 2 takes over; see `resolve_transition`. "auto", for whole pretokens only, lets
            superwords compete with phase-1 merges (`Rules.interleave`); the tokenizer has as many as the vocabulary
            has room for, or more.
        transition_merges: the same as a number of merges, instead.
        keep_ids: keep the whole tokenizer with every id, special tokens' too, for a model that knows them; superwords
            get the ids behind the highest. It takes no transition.
        tie_break: which of the most frequent pairs is merged first, as in `train_bpe`, unless the rules say.
        veto: called once with each candidate (left part, right part, count) that the rules allow, as it comes up to be
            merged; true refuses it for good. For experiments: a call costs about as much as a merge. What it raises is
            raised here.
        threshold: seams that occur less often are cut; None to choose it from a sample.
        threads: worker threads; None for SUPERBPE_THREADS or all cores.
        memory_bytes: for the fragments of text and the merge loop (some 60 MB, and what the vocabulary takes, come on
            top); where they need more, the corpus is read some times more, for the frequent merges first. None for no
            limit.
        progress: called with bytes of text and merges done.
        on_counts: called at the end with the count at which each phase-2 merge was made, by rank, for
            `superbpe.inspection.history.merge_log`.

    Raises:
        UserError: the transition does not fit the tokenizer or the vocabulary, or a rule is not possible.
    """
    if isinstance(rules, str):
        if rules not in PRESETS:
            raise UserError(f"rules={rules!r} is no preset; there are: {', '.join(PRESETS)}")
        rules = PRESETS[rules]
    rules.check()
    sources = sources_of(text)
    if tokenizer.preparation.forms:  # superwords are of the text as it is encoded
        sources = [replace(source, batches=partial(_normalized, tokenizer, source)) for source in sources]
    for name, value in (("threshold", threshold), ("memory_bytes", memory_bytes)):
        if value is not None and (value != int(value) or value < 1):
            raise UserError(f"{name}={value} is not possible; use a whole number of 1 or more, or leave it out")
    specials = sorted(tokenizer.special_tokens, key=tokenizer.special_tokens.__getitem__)
    strings = [*specials, *tokenizer.preparation.added_tokens]
    if rules.phase1_fence == "lifted":  # else no tokenizer.json is written, which names tokens
        check_special_tokens(strings, {tokenizer.vocab[i] for i in tokenizer.ordinary_ids()})
    competing = not keep_ids and _competing(rules, transition, transition_merges)
    started = time.perf_counter()
    start = None
    if keep_ids or not (competing or tokenizer.definition.has_own_layout()):
        start = _start(tokenizer, vocab_size, rules, transition, transition_merges, keep_ids)
        given, n_given = start.ranks, len(start.ranks)
        n_total = n_given + vocab_size - start.tokenizer.vocab_size
        veto = _refusing(start.tokenizer.unmerged, veto)
    else:
        n_total = merges_that_fit(vocab_size, specials)
        if competing:
            check_rivals(n_total, tokenizer.n_phase1_merges, tokenizer.provenance)
            n_given = min(n_total, tokenizer.n_phase1_merges)
        else:
            t = resolve_transition(vocab_size, transition, transition_merges)
            check_transition(t, vocab_size, n_total, tokenizer.n_phase1_merges)
            n_given = t - 256
        given = tokenizer.ranks()[:n_given]
    pattern = script_aware(tokenizer.pattern) if rules.script_atoms else tokenizer.pattern
    passes = Passes(
        given,
        rules,
        pattern=pattern,
        special_tokens=strings,
        tie_break=tie_break,
        veto=veto,
        threads=thread_count(threads),
        memory_bytes=memory_bytes,
        progress=progress,
    )
    found = passes.run(sources, n_total, threshold, competing=competing)
    kept, made = len(found.kept), len(found.superwords.counts)
    if kept + made < n_total:
        size = vocab_size - (n_total - kept - made)
        warnings.warn(
            f"the corpus ran out of pairs after {made} of {n_total - kept} superword merges; the vocabulary has "
            f"{size} tokens, not {vocab_size}. Use more text, other rules or a smaller vocabulary",
            stacklevel=2,
        )
    if rules.max_bytes is None or rules.max_bytes > LONGEST_TOKEN:
        warn_of_long_tokens(found.about["too_long"], "max_bytes", stacklevel=2)
    if on_counts is not None:
        on_counts(found.superwords.counts)
    fence = patterns.resolve(rules.fence)
    mode = "two-pass" if rules.phase1_fence == "kept" else "one-pass"
    eligible = rules.eligible if rules.atoms == "pretokens" else None
    new_ids = tokenizer.merge_ids[:n_given, 2] if start is None else start.ids[256:]
    phase1_tokens = [tokenizer.vocab[i] for i in new_ids.tolist()]
    unmade = 0 if start is None else len(start.tokenizer.unmerged)
    provenance = (tokenizer if start is None else start.tokenizer).provenance | {
        "phase2": {
            "from": tokenizer.sha256,
            "transition": 256 + kept if competing else 256 + n_given,
            **found.about,
            "ran_out_of_pairs": kept + made < n_total,
            "last_count": int(found.superwords.counts[-1]) if made else None,
            "unreachable_phase1_tokens": unmade + _unreachable(phase1_tokens, pattern, fence, rules),
            "seconds": round(time.perf_counter() - started, 3),
        }
    }
    if start is not None:
        return start.with_superwords(
            found.superwords, pattern=pattern, fence=fence, mode=mode, eligible=eligible, provenance=provenance
        )
    return Tokenizer.from_ranks(
        np.concatenate([found.kept, np.stack([found.superwords.left, found.superwords.right], axis=1)]),
        pattern=pattern,
        special_tokens=specials,
        special_layout=tokenizer.special_layout,
        n_phase1_merges=kept,
        fence=fence,
        mode=mode,
        eligible=eligible,
        provenance=provenance,
    )


def _start(
    tokenizer: Tokenizer,
    vocab_size: int,
    rules: Rules,
    transition: float | str | None,
    transition_merges: int | None,
    keep_ids: bool,
) -> Start:
    """What phase 2 goes on from where ids stay: the whole tokenizer, or what is left of it at the transition."""
    if keep_ids:
        if transition is not None or transition_merges is not None:
            raise UserError("keep_ids keeps the whole tokenizer: leave out the transition, or leave out keep_ids")
    else:
        tokenizer = cut_at(tokenizer, resolve_transition(vocab_size, transition, transition_merges))
    if vocab_size < tokenizer.vocab_size:
        raise UserError(
            f"vocab_size={vocab_size} is less than the {tokenizer.vocab_size} ids that are kept (special tokens and "
            "unused ids included); use a larger one"
        )
    return Start.of(tokenizer, rules)


def _refusing(tokens: Mapping[bytes, int], veto: Veto | None) -> Veto | None:
    """A veto that also refuses to make tokens that exist, though no merge makes them."""
    if not tokens:
        return veto
    return lambda left, right, count: left + right in tokens or (veto is not None and veto(left, right, count))


def _competing(rules: Rules, transition: float | str | None, transition_merges: int | None) -> bool:
    """Whether training finds the transition itself."""
    if rules.interleave and (transition not in (None, AUTO) or transition_merges is not None):
        raise UserError("these rules find the transition themselves (interleave=True): leave it out, or say 'auto'")
    if transition == AUTO:
        if transition_merges is not None:
            raise UserError("give the transition either as transition or as transition_merges")
        if rules.atoms != "pretokens":
            raise UserError(f"interleave=True {NO_AUTO}")
    return rules.interleave or transition == AUTO


def _unreachable(tokens: list[bytes], pattern: patterns.Pattern, fence: patterns.Pattern, rules: Rules) -> int:
    """Phase-1 tokens that encoding never gives, because what cuts text first cuts their own text."""
    if rules.phase1_fence == "kept" and not rules.script_atoms:
        return 0
    first = pattern if rules.phase1_fence == "kept" else fence
    return sum(len(_native.split(token.decode(errors="replace"), first.regex)) > 1 for token in tokens)


def _normalized(tokenizer: Tokenizer, source: Source) -> Iterator[_native.Batch]:
    return map(tokenizer.normalized, source.batches())
