"""Tokenizers out of merges that no training gave, and what must give the same ids for them."""

import json
from dataclasses import replace

import numpy as np

from tokenizer import Tokenizer, UserError, formats, patterns, reference
from tokenizer.definition import ALPHABET, Definition
from tokenizer.special import Preparation

ONE_PASS = ["gpt2", "llama3", "superbpe", "none", "superwords", "spans_superwords", "unfenced"]
TWO_PASS = ["two_pass", "two_pass_unfenced"]
"""Tokenizers of the fixture `trained`."""
ALPHABETS = [b"ab ", b"a .", b"\xc3\xa9\xa8 a", b"ab1\n", b"abc '.,\n1"]
FENCES = ["punctuation-fence", "uw-2025-fence", "uw-paper-fence", "[b]", "(?=a)"]


def merged(tokens, pattern="gpt2", *, fence=None, n_phase1=None, special_tokens=("<|endoftext|>",), **options):
    """A tokenizer whose merges are the given (left, right) pairs of byte strings, in order."""
    rank = {bytes([byte]): i for i, byte in enumerate(ALPHABET)}
    ranks = []
    for left, right in tokens:
        ranks.append((rank[left], rank[right]))
        rank.setdefault(left + right, 256 + len(ranks) - 1)
    return Tokenizer.from_ranks(
        ranks,
        pattern=patterns.resolve(pattern),
        special_tokens=list(special_tokens),
        fence=None if fence is None else patterns.resolve(fence),
        n_phase1_merges=n_phase1,
        **options,
    )


def defined(merges, *, byte_ids=range(256), pattern="gpt2", **options):
    """A tokenizer out of ids: those of the bytes, and rows of left, right and new id."""
    options = {"n_phase1_merges": len(merges), **options}
    rows = np.array(merges, np.int64).reshape(-1, 3)
    return Tokenizer(Definition(byte_ids=byte_ids, merge_ids=rows, pattern=patterns.resolve(pattern), **options))


def spelled(tokenizer, ids):
    """The bytes of each token."""
    return [tokenizer.vocab[i] for i in ids]


def by_definition(tokenizer, text):
    """Token bytes by the readable reference."""
    if tokenizer.mode == "one-pass":
        cut = tokenizer.fence or tokenizer.pattern
        return reference.encode(text, tokenizer.merges, cut.regex or None)
    phase1, phase2 = tokenizer.merges[: tokenizer.n_phase1_merges], tokenizer.merges[tokenizer.n_phase1_merges :]
    return reference.encode_two_pass(
        text, phase1, phase2, tokenizer.pattern.regex or None, tokenizer.fence.regex or None
    )


def arbitrary(rng):
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
    return defined(
        ids[np.array(merges, np.int64).reshape(-1, 3)],
        byte_ids=ids[:256].tolist(),
        n_phase1_merges=rng.randint(0, len(merges)) if fence else len(merges),
        pattern=rng.choice(["gpt2", "llama3", "superbpe", "none"]),
        fence=patterns.resolve(fence) if fence else None,
        mode=rng.choice(["one-pass", "two-pass"]) if fence else "one-pass",
        special_tokens={"<s>": int(ids[-1])},
    )


def several_derivations(rng):
    """Any tokenizer; tokens may also have other merges, or none, or be found in text as added tokens."""
    base = arbitrary(rng).definition
    vocab, merges = base.vocab, base.merge_ids.tolist()
    ids = {vocab[i]: i for i in base.ordinary_ids().tolist()}
    for left, right in [(token[:cut], token[cut:]) for token in ids for cut in range(1, len(token))]:
        if rng.random() < 0.5 and left in ids and right in ids:
            merges.insert(rng.randint(0, len(merges)), [ids[left], ids[right], ids[left + right]])
    ignore = base.mode == "one-pass" and rng.random() < 0.5
    alone = [bytes(rng.choices(b"ab .1", k=rng.randint(2, 4))) for _ in range(5 * ignore)]
    unmerged = {token: len(vocab) + 2 + i for i, token in enumerate(dict.fromkeys(alone)) if token not in ids}
    tokens = {"[x]": len(vocab)} if rng.random() < 0.3 else {}
    whole = [token.decode() for token in ids if len(token) > 1 and token.isascii()]
    if whole and rng.random() < 0.3:
        found = rng.choice(whole)
        tokens[found] = ids[found.encode()]
    return Tokenizer(
        replace(
            base,
            merge_ids=np.array(merges, np.int64).reshape(-1, 3),
            n_phase1_merges=rng.randint(0, len(merges)) if base.fence else len(merges),
            ignore_merges=ignore,
            unmerged=unmerged,
            preparation=Preparation(added_tokens=tokens),
        )
    )


def hf(ours):
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
