"""Training and encoding agree: merging by rank, and the encoder, give the segmentation that training ended with."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from superbpe import PRESETS
from tests import texts
from tests.properties import examples, quick_first
from tests.superbpe.oracle import CORPORA, RULES, SMALL_RULES, segmentation, small, train
from tokenizer import Tokenizer, UserError
from tokenizer.formats import hf_json
from tokenizer.reference import as_bytes, merge_by_rank, ranks_of

WHOLE = {"unit": "document", "span_trigger": None, "truncate_quantile": None}
"""Units are documents and spans are whole, so that training and encoding cut the same pieces."""


@pytest.fixture(scope="module")
def ordinary(documents):
    """Documents without special strings."""
    return [text for text in documents if "<|endoftext|>" not in text]


def phase1_of(tokenizer):
    """Phase-1 merges that the tokenizer keeps."""
    return Tokenizer.from_ranks(tokenizer.ranks()[: tokenizer.n_phase1_merges], pattern=tokenizer.pattern)


@pytest.mark.parametrize("name", quick_first(RULES, len(PRESETS)))
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_encoding_documents_gives_the_tokens_of_training(name, ordinary, phase1):
    tokenizer = train(phase1, ordinary, name)
    rules = replace(RULES[name], **WHOLE)
    seen = phase1 if rules.interleave else phase1_of(tokenizer)
    encoded = Counter(tokenizer.vocab[i] for text in ordinary for i in tokenizer.encode_ordinary(text))
    assert encoded == segmentation(ordinary, tokenizer, seen, rules)


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
@examples(
    quick=15,
    full=100,
    documents=CORPORA,
    rules=SMALL_RULES.map(lambda rules: replace(rules, **WHOLE)),
    n_kept=st.integers(0, 6),
)
def test_encoding_small_corpora_gives_the_tokens_of_training(documents, rules, n_kept):
    tokenizer, _ = small(documents, rules, n_kept)
    for text in filter(None, documents):
        tokens = segmentation([text], tokenizer, phase1_of(tokenizer), rules)
        assert Counter(tokenizer.vocab[i] for i in tokenizer.encode_ordinary(text)) == tokens


# ------------------------------------------------------------------------------- eligibility is the tokenizer's


@pytest.fixture(scope="module")
def runs(ordinary, phase1):
    return train(phase1, ordinary, "runs")


def test_only_whole_pretokens_become_superwords(runs):
    """Pretokens of several tokens do not form a superword, even if they spell its bytes."""
    superwords = [runs.vocab[i].decode() for i in runs.superword_ids()]
    assert " the the" in superwords
    assert [runs.vocab[i] for i in runs.encode(" the thexq")][:1] == [b" the"]
    # " thexq" is several tokens, the first of which is " the".
    assert merge_by_rank(as_bytes(" thexq"), ranks_of(runs.merges[: runs.n_phase1_merges]))[0] == b" the"
    loose = Tokenizer(replace(runs.definition, eligible=None))
    assert [loose.vocab[i] for i in loose.encode(" the thexq")][:1] == [b" the the"]


def test_eligibility_is_saved_cut_and_hashed(runs, ordinary, tmp_path):
    runs.save(tmp_path / "runs")
    files = {path.name for path in (tmp_path / "runs").iterdir()}
    assert files == {"superbpe.json", "tokenizer_config.json", "training-documents.npy"}
    loaded = Tokenizer.load(tmp_path / "runs")
    assert (loaded.eligible, loaded.sha256) == (r"\p{L}", runs.sha256)
    assert all(loaded.encode_ordinary(text) == runs.encode_ordinary(text) for text in ordinary)
    assert Tokenizer(replace(runs.definition, eligible=".")).sha256 != runs.sha256
    assert runs.cut(runs.vocab_size - 5).eligible == r"\p{L}"
    assert runs.cut(300).eligible is None  # no superword is left
    atom = runs.vocab.index(b" the")
    assert runs.extended([[runs.merge_ids[-1, 2], atom]]).eligible == runs.eligible
    with pytest.raises(UserError, match="does not match"):
        runs.extended([[atom, runs.byte_ids[ord(".")]]])
    with pytest.raises(UserError, match=r"two-pass tokenizer cannot be written as tokenizer\.json"):
        hf_json(runs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eligible": "^x$"}, "which the eligibility pattern '\\^x\\$' does not match"),
        ({"eligible": "(open"}, "does not compile"),
        ({"mode": "one-pass"}, "only a two-pass tokenizer has eligible pretokens"),
    ],
)
def test_impossible_eligibility_is_an_error(changes, message, runs):
    with pytest.raises(UserError, match=message):
        Tokenizer(replace(runs.definition, **changes))


@pytest.mark.parametrize("name", [name for name, rules in PRESETS.items() if rules.phase1_fence == "lifted"])
def test_one_pass_presets_are_the_same_in_hugging_face(name, ordinary, phase1, tmp_path):
    hf = pytest.importorskip("tokenizers")
    tokenizer = train(phase1, ordinary, name)
    tokenizer.save(tmp_path)
    theirs = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in [*ordinary, texts.sample(20_000)[0]]:
        assert theirs.encode(text, add_special_tokens=False).ids == tokenizer.encode_ordinary(text)
