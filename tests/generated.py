"""Generated tokenizers and texts, and the encoders that must give the same ids for them.

Tokenizers out of merges that no training gave, and superwords trained on random parts of real text, some with merges
at other ranks, with and without normalisers and added tokens; texts that are cut, repeated and mixed.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from superbpe import train_superbpe
from tests import texts
from tokenizer import Batch, Tokenizer, UserError, count_pretokens, formats, patterns, reference, train_bpe
from tokenizer.definition import Definition
from tokenizer.special import FORMS, Preparation, normalized

ONE_PASS = ["gpt2", "llama3", "superbpe", "none", "superwords", "spans_superwords", "unfenced"]
TWO_PASS = ["two_pass", "two_pass_unfenced"]
"""Tokenizers of the fixture `trained`."""
DAMAGES = ["moved", "swapped", "repeated", "shuffled at the transition", "shuffled"]
ALPHABETS = [b"ab ", b"a .", b"\xc3\xa9\xa8 a", b"ab1\n", b"abc '.,\n1"]
FENCES = ["punctuation-fence", "uw-2025-fence", "uw-paper-fence", "[b]", "(?=a)"]
CHARACTERS = "aaabbc  .,1'\n\t eèé日\u0301\u0323>\u0338ﬁ🙂"


@cache
def sources() -> list[str]:
    """Real text."""
    return [source for source in [*texts.english()[1], *texts.various(), texts.code()[:50_000]] if source]


def spelled(tokenizer: Tokenizer, ids: list[int]) -> list[bytes]:
    """The bytes of each token."""
    return [tokenizer.vocab[i] for i in ids]


def by_definition(tokenizer: Tokenizer, text: str) -> list[bytes]:
    """Token bytes by the readable reference."""
    if tokenizer.mode == "one-pass":
        cut = tokenizer.fence or tokenizer.pattern
        return reference.encode(text, tokenizer.merges, cut.regex or None)
    phase1, phase2 = tokenizer.merges[: tokenizer.n_phase1_merges], tokenizer.merges[tokenizer.n_phase1_merges :]
    return reference.encode_two_pass(
        text, phase1, phase2, tokenizer.pattern.regex or None, tokenizer.fence.regex or None
    )


def arbitrary(rng: random.Random) -> Tokenizer:
    """Merges of any two known tokens, ids in any order, a transition anywhere."""
    alphabet = rng.choice(ALPHABETS)
    known = [(bytes([byte]), byte) for byte in alphabet]
    merges: list[tuple[int, int, int]] = []
    for _ in range(rng.randint(0, 40)):
        (left, left_id), (right, right_id) = rng.choice(known), rng.choice(known)
        if len(left + right) <= 16 and left + right not in dict(known):
            merges.append((left_id, right_id, 256 + len(merges)))
            known.append((left + right, merges[-1][2]))
    fence = rng.choice([None, *FENCES])
    size = 257 + len(merges)
    ids = np.random.default_rng(rng.randrange(1 << 30)).permutation(size) if rng.random() < 0.5 else np.arange(size)
    return Tokenizer(
        Definition(
            byte_ids=ids[:256].tolist(),
            merge_ids=ids[np.array(merges, np.int64).reshape(-1, 3)],
            n_phase1_merges=rng.randint(0, len(merges)) if fence else len(merges),
            pattern=patterns.resolve(rng.choice(["gpt2", "llama3", "superbpe", "none"])),
            fence=patterns.resolve(fence) if fence else None,
            mode=rng.choice(["one-pass", "two-pass"]) if fence else "one-pass",
            special_tokens={"<s>": int(ids[-1])},
        )
    )


def trained(rng: random.Random) -> Tokenizer:
    """Superwords of a random part of real text, by random rules."""
    batch = Batch.from_texts(rng.sample(sources(), rng.randint(2, 12)))
    size = rng.randint(300, 900)
    phase1 = train_bpe(count_pretokens([batch], rng.choice(["gpt2", "superbpe", "llama3"])), size)
    rules = rng.choice(["uw-paper", "uw-2025", "spans", "none", "runs"])
    transition = 256 + len(phase1.merge_ids)
    larger = phase1.vocab_size + rng.randint(1, 300)
    return train_superbpe(phase1, lambda: [batch], vocab_size=larger, transition=transition, rules=rules)


def damaged(ours: Tokenizer, how: str, *, n_merges: int = 20, seed: int = 7) -> Tokenizer:
    """The same tokens; some merges of each phase at other ranks, across the transition."""
    rng = np.random.default_rng(seed)
    n, first = len(ours.merge_ids), ours.n_phase1_merges
    order = np.arange(n)
    few = np.sort(rng.choice(first, n_merges, replace=False))
    if how == "moved":
        order = np.insert(np.delete(order, few), rng.integers(first - n_merges, n - n_merges, n_merges), few)
    elif how == "swapped":
        others = rng.choice(np.arange(first, n), n_merges, replace=False)
        order[few], order[others] = others, few
    elif how == "repeated":  # the last rank counts
        order = np.append(order, few)
    else:
        window = slice(max(first - 200, 0), first + 200) if how == "shuffled at the transition" else slice(None)
        order[window] = rng.permutation(order[window])
    return Tokenizer(replace(ours.definition, merge_ids=ours.merge_ids[order], n_phase1_merges=first))


def text(rng: random.Random) -> str:
    """Characters that merges meet, or cuttings of real text."""
    parts = []
    for _ in range(rng.randint(1, 5)):
        if rng.random() < 0.5:
            parts.append("".join(rng.choices(CHARACTERS, k=rng.randint(0, 40))) * rng.choice([1, 1, 1, 30]))
        else:
            source = rng.choice(sources())
            at = rng.randrange(len(source))
            parts.append(source[at : at + rng.randint(1, 400)])
    return "".join(parts)


def prepared(rng: random.Random, plain: Tokenizer) -> Tokenizer | None:
    """The same as if imported with a normaliser and added tokens."""
    if plain.mode != "one-pass":
        return None
    content = formats.hf_json(plain)
    forms = rng.choice([(), *((form,) for form in FORMS)])
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": form} for form in forms]}
    vocab = content["model"]["vocab"]
    following = max(len(vocab), *(token["id"] + 1 for token in content["added_tokens"]))
    strings = [string for string in ["<a>", "<a", " a", "  ", "b.", "éé", "the "] if string not in vocab]
    for i, string in enumerate(rng.sample(strings, rng.randint(0, 4))):
        flags = {
            "normalized": rng.random() < 0.5 and normalized(forms, string) == string,
            "special": rng.random() < 0.3,
        }
        plain_flags = {"id": following + i, "content": string, "single_word": False, "lstrip": False, "rstrip": False}
        content["added_tokens"].append(plain_flags | flags)
    return Tokenizer(*formats.hf_import.parse(content))


def tokenizer(rng: random.Random) -> Tokenizer:
    """Any of these tokenizers."""
    base = arbitrary(rng) if rng.random() < 0.8 else trained(rng)
    few = min(base.n_phase1_merges, len(base.merge_ids) - base.n_phase1_merges)
    if few and base.eligible is None and rng.random() < 0.4:
        base = damaged(base, rng.choice(DAMAGES), n_merges=rng.randint(1, min(few, 30)), seed=rng.randrange(1 << 30))
    return (prepared(rng, base) if rng.random() < 0.4 else None) or base


def difference(ours: Tokenizer, found: str, rng: random.Random) -> str | None:
    """Name of the encoder whose ids differ, or None: the reference, streams, batches, and HF `tokenizers`."""
    ids = ours.encode_ordinary(found)
    readable = ours.preparation == Preparation() and not ours.ignore_merges and ours.eligible is None
    if readable and len(found) < 400 and spelled(ours, ids) != by_definition(ours, found):
        return "the reference"
    cuts = sorted(rng.randint(0, len(found)) for _ in range(5))
    parts = [found[a:b] for a, b in pairwise([0, *cuts, len(found)])]
    if [i for part in ours.encode_iter(parts) for i in part.tolist()] != ids:
        return "a stream"
    batch, offsets = ours.encode_batch([found, "", found], threads=2)
    if batch[offsets[2] :].tolist() != ids or batch[: offsets[1]].tolist() != ids:
        return "a batch"
    theirs = hf(ours)
    return "HF" if theirs is not None and theirs.encode(found).ids != ids else None


def hf(ours: Tokenizer) -> Any:
    """The same tokenizer of HF `tokenizers`; None if it cannot express it."""
    if ours.mode != "one-pass":
        return None
    import tokenizers

    try:
        theirs = tokenizers.Tokenizer.from_str(json.dumps(formats.hf_json(ours)))
    except UserError:
        return None
    theirs.encode_special_tokens = True
    return theirs
