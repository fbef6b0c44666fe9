"""Compare encoders on generated input, and load changed files: `python -m tests.fuzz --minutes 10 [--seed 1]`.

Tokenizers out of merges that no training gave, and superwords trained on random parts of real text, some with merges
at other ranks, with and without normalisers and added tokens; texts that are cut, repeated and mixed. The native
encoder must give the ids of the readable reference and, for one-pass tokenizers, of HF `tokenizers`; streams and
batches those of single texts. In between, files of every format are changed and loaded
(`tests.fuzz_files`). CI runs the same comparisons for some seconds, as ordinary tests. Ends at the first failure, with
the case and exit code 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import tokenizers

from superbpe import train_superbpe
from tests import fuzz_files, texts
from tests.parity.test_damaged_merges import DAMAGES, damaged
from tests.tokenizer.test_bpe import by_definition, spelled
from tokenizer import Batch, Tokenizer, UserError, count_pretokens, formats, patterns, train_bpe
from tokenizer.definition import Definition
from tokenizer.special import FORMS, Preparation, normalized

ALPHABETS = [b"ab ", b"a .", b"\xc3\xa9\xa8 a", b"ab1\n", b"abc '.,\n1"]
FENCES = ["punctuation-fence", "uw-2025-fence", "uw-paper-fence", "[b]", "(?=a)"]
CHARACTERS = "aaabbc  .,1'\n\t eèé日\u0301\u0323>\u0338ﬁ🙂"


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


def trained(rng: random.Random, sources: list[str]) -> Tokenizer:
    """Superwords of a random part of real text, by random rules."""
    batch = Batch.from_texts(rng.sample(sources, min(len(sources), rng.randint(2, 12))))
    size = rng.randint(300, 900)
    phase1 = train_bpe(count_pretokens([batch], rng.choice(["gpt2", "superbpe", "llama3"])), size)
    rules = rng.choice(["uw-paper", "uw-2025", "spans", "none", "runs"])
    transition = 256 + len(phase1.merge_ids)
    larger = phase1.vocab_size + rng.randint(1, 300)
    return train_superbpe(phase1, lambda: [batch], vocab_size=larger, transition=transition, rules=rules)


def text(rng: random.Random, sources: list[str]) -> str:
    """Characters that merges meet, or cuttings of real text."""
    parts = []
    for _ in range(rng.randint(1, 5)):
        if rng.random() < 0.5:
            parts.append("".join(rng.choices(CHARACTERS, k=rng.randint(0, 40))) * rng.choice([1, 1, 1, 30]))
        else:
            source = rng.choice(sources)
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


def difference(ours: Tokenizer, found: str, rng: random.Random, *, readable: bool) -> str | None:
    """Name of the encoder whose ids differ, or None."""
    ids = ours.encode_ordinary(found)
    if readable and spelled(ours, ids) != by_definition(ours, found):
        return "the reference"
    cuts = sorted(rng.randint(0, len(found)) for _ in range(5))
    parts = [found[a:b] for a, b in pairwise([0, *cuts, len(found)])]
    if [i for part in ours.encode_iter(parts) for i in part.tolist()] != ids:
        return "a stream"
    batch, offsets = ours.encode_batch([found, "", found], threads=2)
    if batch[offsets[2] :].tolist() != ids or batch[: offsets[1]].tolist() != ids:
        return "a batch"
    return None


def files(number: int) -> Counter[str]:
    """Change and load a file of each format."""
    outcome: Counter[str] = Counter()
    for kind in fuzz_files.KINDS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcome["files " + fuzz_files.case(random.Random(f"{kind} {number}"), kind, Path(folder))] += 1
            except BaseException:
                print(f"the file {kind!r} {number}:")
                raise
    return outcome


def main(argv: list[str]) -> int:
    """Runs until the time is up; 1 at the first failure."""
    options = argparse.ArgumentParser(description="Encoders beside each other, and changed files.")
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("--seed", type=int, default=0)
    arguments = options.parse_args(argv)
    warnings.simplefilter("ignore")
    sources = [source for source in [*texts.english()[1], *texts.various(), texts.code()[:50_000]] if source]
    end = time.monotonic() + 60 * arguments.minutes
    counts: Counter[str] = Counter()
    number = arguments.seed << 32
    while time.monotonic() < end:
        number += 1
        rng = random.Random(number)
        counts += files(number)
        try:
            base = arbitrary(rng) if rng.random() < 0.8 else trained(rng, sources)
        except UserError:  # a sample left no text
            continue
        few = min(base.n_phase1_merges, len(base.merge_ids) - base.n_phase1_merges)
        if few and base.eligible is None and rng.random() < 0.4:
            n_merges = rng.randint(1, min(few, 30))
            base = damaged(base, rng.choice(DAMAGES), n_merges=n_merges, seed=rng.randrange(1 << 30))
            counts["of them damaged"] += 1
        ours = prepared(rng, base) if rng.random() < 0.4 else base
        ours = ours or base
        theirs = None
        if ours.mode == "one-pass":
            try:
                theirs = tokenizers.Tokenizer.from_str(json.dumps(formats.hf_json(ours)))
                theirs.encode_special_tokens = True
            except UserError:  # HF has no such tokenizer
                theirs = None
        readable = ours.preparation == Preparation() and not ours.ignore_merges and ours.eligible is None
        counts["tokenizers"] += 1
        for _ in range(20):
            found = text(rng, sources)
            wrong = difference(ours, found, rng, readable=readable and len(found) < 400)
            if wrong is None and theirs is not None and theirs.encode(found).ids != ours.encode_ordinary(found):
                wrong = "HF"
            if wrong is not None:
                print(f"seed {number}: {wrong} differs: {ours!r} {ours.preparation} {found!r}")
                return 1
            counts["texts"] += 1
            counts["beside the reference"] += readable and len(found) < 400
            counts["beside HF"] += theirs is not None
    print(f"no failure: {', '.join(f'{n:,} {what}' for what, n in counts.items())}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
