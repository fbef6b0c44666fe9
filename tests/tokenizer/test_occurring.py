"""`Tokenizer.text_ids` and `unreachable_ids`: which tokens text can become, whatever family a tokenizer is of."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from superbpe import train_superbpe
from superbpe.inspection import tokens
from tests import other_tokenizers, texts
from tests.generated import arbitrary, merged, several_derivations
from tests.properties import examples
from tests.tokenizer.formats.other_formats import hf_file
from tokenizer import Tokenizer
from tokenizer.external.load import load_pretrained
from tokenizer.interface import is_text
from tokenizer.special import Preparation


def _check(tokenizer, rng, documents=()):
    """The ids of documents, of every token's text and of tokens in random order are not declared impossible."""
    whole = [tokenizer.vocab[i].decode() for i in tokenizer.text_ids().tolist() if is_text(tokenizer.vocab[i])]
    around = [rng.choice(whole) + text + rng.choice(whole) for text in whole for _ in range(3)]
    lines = ["".join(rng.choices(whole, k=rng.randint(1, 12))) for _ in range(300)]
    letters = ["".join(rng.choices("ab1 .,'\n\té🙂日", k=40)) for _ in range(50)]
    occurring = np.unique(tokenizer.encode_batch([*documents, *whole, *around, *lines, *letters])[0])
    found_by_others = [] if isinstance(tokenizer, Tokenizer) else tokenizer.special_tokens.values()
    assert set(occurring.tolist()) <= {*tokenizer.text_ids().tolist(), *found_by_others}
    if isinstance(tokenizer, Tokenizer):
        unreachable = tokenizer.unreachable_ids()
        assert np.isin(unreachable, tokenizer.text_ids()).all()
        wrong = np.intersect1d(occurring, unreachable).tolist()
        assert not wrong, [tokenizer.vocab[i] for i in wrong]
        about = tokens.describe(tokenizer)
        assert np.array_equal(np.flatnonzero(about.ordinary), tokenizer.text_ids())
        assert np.array_equal(np.flatnonzero(about.unreachable), unreachable)


@examples(40, 500, seed=st.integers(0, 2**32))
def test_any_merges(seed):
    rng = random.Random(seed)
    _check(rng.choice([arbitrary, several_derivations])(rng), rng)


def test_trained_tokenizers(trained):
    for tokenizer in trained.values():
        _check(tokenizer, random.Random(1), texts.various())


@pytest.mark.parametrize("name", [*other_tokenizers.SENTENCEPIECE, *other_tokenizers.JSON])
def test_tokenizers_of_other_software(name, tmp_path):
    _check(load_pretrained(other_tokenizers.write(tmp_path, name)).tokenizer, random.Random(1), other_tokenizers.TEXTS)


def test_added_tokens_special_tokens_and_whole_pretokens(tmp_path, trained):
    base = trained["gpt2"].definition
    added = {"the": base.vocab_size, " of<": base.vocab_size + 1}
    tokenizer = Tokenizer(replace(base, preparation=Preparation(added_tokens=added)))
    _check(tokenizer, random.Random(1), texts.various())
    assert set(added.values()) <= set(tokenizer.text_ids().tolist()) - set(tokenizer.unreachable_ids().tolist())
    assert tokenizer.end_id not in tokenizer.text_ids()
    # Text is cut at an added token, also inside the tokens of merges.
    assert [tokenizer.vocab[i] for i in tokenizer.unreachable_ids() if tokenizer.vocab[i] == b" the"] == [b" the"]
    whole = Tokenizer.from_file(hf_file(tmp_path, model_ignore_merges=True))
    assert whole.unmerged
    assert np.intersect1d([*whole.unmerged.values()], whole.unreachable_ids()).size == 0
    without = Tokenizer(replace(whole.definition, ignore_merges=False))
    assert np.isin([*without.unmerged.values()], without.unreachable_ids()).all()


def test_a_two_pass_token_with_part_of_a_character_may_be_cut_before_it_is_merged():
    merges = [(b" ", b" "), (b" ", b"\xe2"), (b" ", b" \xe2")]
    tokenizer = merged(merges, fence="none", n_phase1=1, mode="two-pass")
    token = tokenizer.vocab.index(b"  \xe2")
    assert token in tokenizer.encode_ordinary("  \u2020")
    assert token not in tokenizer.unreachable_ids()


def test_training_counts_the_unreachable_tokens_of_phase_1(tmp_path):
    with pytest.warns(UserWarning, match="no text becomes these tokens"):
        grown = train_superbpe(
            Tokenizer.from_file(hf_file(tmp_path, model_ignore_merges=True)),
            ["ab ab ab"],
            vocab_size=263,
            rules="uw-2025",
            keep_ids=True,
        )
    unmerged = [*grown.unmerged.values()]
    assert np.isin(unmerged, grown.unreachable_ids()).all()
    assert grown.provenance["phase2"]["unreachable_phase1_tokens"] == len(unmerged)
