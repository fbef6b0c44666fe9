"""Superwords on imported tokenizers: ids out of order, special tokens among the others, tokens of several merges."""

import json
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from superbpe import PRESETS, Rules, reference, train_superbpe
from superbpe.start import cut_at
from tests.properties import quick_first
from tests.superbpe.oracle import batches, documents_of, imported, pairs, pieces_of, segmentation
from tokenizer import Tokenizer, UserError, formats, train_bpe
from tokenizer.reference import TIE_BREAKS

LIFTED = {name: PRESETS[name] for name in ("uw-2025", "none")}
LIFTED |= {"words": Rules(fence="punctuation-fence", max_words=2, counting="non-overlapping")}
KEPT = {"runs": PRESETS["runs"], "kept": Rules(phase1_fence="kept", fence="punctuation-fence")}


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
@pytest.mark.parametrize("name", [*LIFTED, *KEPT])
@pytest.mark.parametrize("seed", quick_first(range(6), 2))
def test_superwords_on_imported_tokenizers_equal_the_reference(name, seed):
    rng, rules = random.Random(seed), (LIFTED | KEPT)[name]
    ignoring = name in LIFTED and seed % 2 == 0
    base = imported(rng, ignore_merges=ignoring, special_inside=seed % 3 > 0, n_late=seed % 4)
    assert len(np.unique(base.merge_ids[:, 2])) < len(base.merge_ids)
    documents, tie_break = documents_of(rng), TIE_BREAKS[seed % len(TIE_BREAKS)]
    size = base.vocab_size + 25
    grown = train_superbpe(base, batches(documents), vocab_size=size, rules=rules, keep_ids=True, tie_break=tie_break)
    existing = [base.vocab[i] for i in base.ordinary_ids()[256:]]
    pieces, specials = pieces_of(documents, base, rules, len(base.merges)), list(base.special_tokens)
    learned = reference.train(pieces, 25, rules, tie_break, existing, special_tokens=specials)
    assert grown.merges[grown.n_phase1_merges :] == pairs(learned)
    assert len(learned) > 2
    assert grown.vocab[: base.vocab_size] == base.vocab
    assert (grown.special_tokens, grown.byte_ids) == (base.special_tokens, base.byte_ids)
    assert grown.vocab_size == base.vocab_size + len(learned)
    assert (grown.mode, grown.ignore_merges) == ("two-pass" if name in KEPT else "one-pass", False)
    for document in documents:
        assert grown.decode(grown.encode(document, allowed_special="all")) == document
        assert grown.decode(grown.encode_ordinary(document)) == document


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
@pytest.mark.parametrize("rules", [PRESETS["none"], KEPT["kept"], PRESETS["runs"]])
@pytest.mark.parametrize("seed", range(3))
def test_encoding_is_the_segmentation_that_training_ended_with(rules, seed):
    rng = random.Random(50 + seed)
    base, documents = imported(rng, ignore_merges=False), documents_of(rng)
    grown = train_superbpe(base, batches(documents), vocab_size=base.vocab_size + 20, rules=rules, keep_ids=True)
    special = set(base.special_tokens.values())
    ids = [i for document in documents for i in grown.encode(document, allowed_special="all") if i not in special]
    assert Counter(grown.vocab[i] for i in ids) == segmentation(documents, grown, base, rules)


def test_own_tokenizers_keep_their_ids_and_merges():
    documents = documents_of(random.Random(1)) * 2
    base = train_bpe(documents, 256 + 12 + 1, pattern="gpt2", special_tokens=["<s>"])
    for name in ("uw-2025", "runs"):
        options = {"vocab_size": 256 + 12 + 1 + 8, "rules": name}
        moved = train_superbpe(base, batches(documents), transition=256 + 12, **options)
        kept = train_superbpe(base, batches(documents), keep_ids=True, **options)
        assert kept.merges == moved.merges
        assert (kept.fence, kept.mode, kept.eligible) == (moved.fence, moved.mode, moved.eligible)
        assert moved.special_tokens == {"<s>": 276}
        assert kept.special_tokens == {"<s>": 268}
        assert kept.vocab[:269] == base.vocab
        assert kept.provenance["phase2"]["transition"] == moved.provenance["phase2"]["transition"] == 268


def test_imported_tokenizers_are_cut_at_the_transition():
    base, documents = imported(random.Random(4), ignore_merges=True), documents_of(random.Random(4))
    n_ordinary = 256 + len(set(base.merge_ids[:, 2].tolist())) + len(base.unmerged)
    assert n_ordinary == 279
    with pytest.warns(UserWarning, match=r"1 tokens.*'cda'.*ignore_merges"):
        grown = train_superbpe(base, batches(documents), vocab_size=290, transition=270, rules="uw-2025")
    cut = base.cut(272)
    assert cut.special_tokens == {"<s>": 256, "<end>": 271} == grown.special_tokens
    assert grown.vocab[:272] == cut.vocab
    kept = train_superbpe(cut, batches(documents), vocab_size=290, keep_ids=True, rules="uw-2025")
    assert kept.sha256 == grown.sha256
    whole = train_superbpe(base, batches(documents), vocab_size=290, transition=279, rules="uw-2025")
    assert whole == train_superbpe(base, batches(documents), vocab_size=290, keep_ids=True, rules="uw-2025")


def test_added_tokens_are_not_among_those_of_the_transition():
    base = imported(random.Random(4), ignore_merges=False)
    added = {"<tool>": base.vocab_size, "<think>": base.vocab_size + 1}
    more = Tokenizer(replace(base.definition, preparation=replace(base.preparation, added_tokens=added)))
    for tokenizer in (base, more):
        assert len(cut_at(tokenizer, 270).ordinary_ids()) == 270


def _where_merges_do_not_make_a_token():
    base = imported(random.Random(0), ignore_merges=True)
    return Tokenizer(replace(base.definition, unmerged=base.unmerged | {b"lonely": base.vocab_size}))


def _with_superwords():
    base, documents = imported(random.Random(2), ignore_merges=False), batches(documents_of(random.Random(2)))
    return train_superbpe(base, documents, vocab_size=285, rules="none", keep_ids=True)


@pytest.mark.parametrize(
    ("base", "options", "message"),
    [
        (_with_superwords, {"vocab_size": 290, "rules": "none"}, "already has superwords"),
        (_where_merges_do_not_make_a_token, {"rules": "runs"}, "ignore_merges.*phase1_fence='lifted'"),
        (None, {"transition": 256}, "keep_ids keeps the whole tokenizer"),
        (None, {"transition_merges": 0}, "keep_ids keeps the whole tokenizer"),
        (None, {"vocab_size": 270}, "vocab_size=270 is less than the 281 ids that are kept"),
        (None, {"rules": "boundless"}, "chooses which phase-1 tokens to keep"),
        (None, {"keep_ids": False, "transition": 280}, "transition 280 does not fit the tokenizer, which has 279"),
        (None, {"keep_ids": False, "transition": 256}, "cannot cut a vocabulary of"),
    ],
)
def test_inexact_starts_are_rejected_with_the_reason(base, options, message):
    tokenizer = base() if base else imported(random.Random(0), ignore_merges=False)
    options = {"vocab_size": 300, "rules": "uw-2025", "keep_ids": True} | options
    with pytest.raises(UserError, match=message):
        train_superbpe(tokenizer, batches(documents_of(random.Random(0))), **options)


@pytest.mark.parametrize("rules", ["uw-2025", "runs"])
def test_ignore_merges_does_not_matter_where_merges_make_every_token(rules):
    documents = documents_of(random.Random(3)) * 2
    base = train_bpe(documents, 256 + 12 + 1, pattern="gpt2")
    ignoring = Tokenizer(replace(base.definition, ignore_merges=True))
    options = {"vocab_size": 276, "rules": rules, "keep_ids": True}
    assert train_superbpe(base, documents, **options) == train_superbpe(ignoring, documents, **options)


# As HF reads the result.


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
@pytest.mark.parametrize("rules", ["uw-2025", "none"])
@pytest.mark.parametrize("seed", range(3))
def test_a_tokenizer_json_grows_into_one_with_the_same_ids(rules, seed, tmp_path):
    hf = pytest.importorskip("tokenizers")
    rng = random.Random(seed)
    (tmp_path / "tokenizer.json").write_text(json.dumps(formats.hf_json(imported(rng, ignore_merges=seed % 2 == 0))))
    base = Tokenizer.from_file(tmp_path)
    documents = documents_of(rng)
    grown = train_superbpe(base, batches(documents), vocab_size=base.vocab_size + 20, rules=rules, keep_ids=True)
    grown.save(tmp_path / "grown")
    again = hf.Tokenizer.from_file(str(tmp_path / "grown" / "tokenizer.json"))
    vocab = again.get_vocab()
    old = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab()
    assert {token: vocab[token] for token in old} == old
    assert Tokenizer.load(tmp_path / "grown").sha256 == grown.sha256
    held_out = documents_of(random.Random(seed + 100))
    assert any(max(again.encode(text).ids, default=0) >= base.vocab_size for text in documents)
    for text in [*documents, *held_out, *(token.decode(errors="ignore") for token in grown.vocab)]:
        assert again.encode(text).ids == grown.encode(text, allowed_special="all")


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_tiktokens_ranks_with_gaps_grow():
    hf = pytest.importorskip("tokenizers")
    rng = random.Random(3)
    tokens = [b"ab", b" a", b"abc", b" ab", b"da", b"dad", b" dada", b"c "]
    ranks = {bytes([i]): 255 - i for i in range(256)} | {token: 256 + i for i, token in enumerate(tokens)}
    base = Tokenizer(*formats.tiktoken.from_ranks(ranks, pattern="gpt2", special_tokens={"<s>": 300, "<end>": 310}))
    documents = documents_of(rng)
    for rules in ("uw-2025", "none"):
        grown = train_superbpe(base, batches(documents), vocab_size=330, rules=rules, keep_ids=True)
        assert grown.vocab[: base.vocab_size] == base.vocab
        assert grown.vocab_size == 330
        again = hf.Tokenizer.from_str(json.dumps(formats.hf_json(grown)))
        for text in documents:
            assert again.encode(text).ids == grown.encode(text, allowed_special="all")
            assert grown.decode(grown.encode_ordinary(text)) == text
