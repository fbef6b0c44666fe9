"""Tokenizers of few characters, and the definition of their paths by brute force."""

import itertools
import random
from bisect import bisect_left as bisect
from dataclasses import replace
from functools import cache

import numpy as np

from lm.bytelevel.tokenization_paths import split_utf8
from superbpe import train_superbpe
from tests.lm import tiny
from tokenizer import Batch, Tokenizer, count_pretokens, train_bpe
from tokenizer.special import Preparation

# Few characters, so that they can be tried in all orders; the first of each kind is in the merges, ꙛ and ᠑ are not.
LETTERS = "abs 1\n'.ꙛ"
NUMBERS = "a12,. %᠑e"
MIXED = "a1 s'.\n᠑ꙛ"


def made_up(alphabet, n=400, length=24, seed=0):
    rng = random.Random(seed)
    weights = [1 + 8 * (i < 3) for i in range(len(alphabet))]
    return ["".join(rng.choices(alphabet, weights, k=length)) for _ in range(n)]


def bpe(pattern, alphabet, vocab_size=295):
    texts = made_up(alphabet[:-1].replace("᠑", ""))
    return train_bpe(count_pretokens([Batch.from_texts(texts)], pattern), vocab_size)


def superwords(rules, alphabet, pattern="llama3", vocab_size=330):
    batches = [Batch.from_texts(made_up(alphabet[:-1].replace("᠑", "")))]
    start = train_bpe(count_pretokens(batches, pattern), 290)
    return train_superbpe(start, lambda: batches, vocab_size=vocab_size, transition=285, rules=rules)


def brute(tokenizer, data, alphabet, n):
    """TokenizationPaths of data by all continuations of at most n characters, and by completions of a cut character."""
    text, partial = split_utf8(data)
    characters = [c for c in alphabet if c.encode().startswith(partial) and len(c.encode()) > len(partial)]
    found, following = set(), set()
    continuations = ["".join(w) for k in range(n + 1) for w in itertools.product(alphabet, repeat=k)]
    if partial:
        continuations = [c + w for c in characters for w in continuations]
    ids, offsets = tokenizer.encode_batch([text + w for w in continuations])
    lengths = tokenizer.token_byte_lengths()
    for start, stop in itertools.pairwise(offsets.tolist()):
        if tokenizer.changes_text and not tokenizer.decode_bytes(ids[start:stop]).startswith(data):
            continue
        ends = np.cumsum(lengths[ids[start:stop]])
        last = int(np.searchsorted(ends, len(data)))
        if data:
            found.add(tuple(ids[start : start + last + 1].tolist()))
        after = last + 1 if data and ends[last] == len(data) else 0 if not data else None
        if after is not None and start + after < stop:
            following.add(tuple(ids[start : start + after + 1].tolist()))
    return found, following


def flat(groups):
    return {(*group.prefix, last) for group in groups for last in group.last.tolist()}


EXTRA = "abs 1\n\t'’.ꙛꙚꀀ᠑½中é⁂%,eé\u0300🦀\ufe0f\u2005"


@cache
def unicode():
    return [chr(point).encode() for point in range(0x80, 0x110000) if not 0xD800 <= point < 0xE000]


@cache
def completions(partial, most):
    """Up to N characters from all of Unicode that begin with these bytes."""
    found = unicode()[bisect(unicode(), partial) : bisect(unicode(), partial[:-1] + bytes([partial[-1] + 1]))]
    return [c.decode() for c in found[:: 1 + len(found) // most]]


def is_canonical(tokenizer, sequence):
    """Whether any of many texts begins so; of the encoder nothing but its results is used."""
    text, partial = split_utf8(tokenizer.decode_bytes(sequence))
    if partial:
        some, all_ = completions(partial, 50), completions(partial, 1 << 20)
        return any(
            begins(tokenizer, sequence, text, [c + more for c in characters for more in ends])
            for characters, ends in ((some, [""]), (all_, ["", "\n", "1", "11"]))
        )
    pairs = [*map("".join, itertools.product(EXTRA, repeat=2)), "111", "᠑᠑᠑", "᠑᠑᠑᠑", "᠑᠑᠑᠑᠑"]
    return any(begins(tokenizer, sequence, text, more) for more in ([""], EXTRA, pairs))


def begins(tokenizer, sequence, text, continuations):
    ids, offsets = tokenizer.encode_batch([text + more for more in continuations], threads=1)
    return any(ids[start : start + len(sequence)].tolist() == list(sequence) for start in offsets[:-1].tolist())


ACCENTS = [(b"\xcc", b"\x81"), (b"e", b"\xcc"), (b"e", b"\xcc\x81"), (b"\xcc", b"\x85"), (b"\xc3", b"\xa9")]
ACCENTS += [(b" ", b"e"), (b"\xe1", b"\x85"), (b"\xe1\x85", b"\xa1")]  # the last two make a vowel of Hangul


def normalizing(form, pattern="gpt2"):
    return Tokenizer(replace(tiny.merged(ACCENTS, pattern).definition, preparation=Preparation(forms=(form,))))
