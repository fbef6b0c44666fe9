import tempfile

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import texts
from tests.properties import examples
from tests.tokenizer.formats.other_formats import added, hf_file
from tests.tokenizer.train.small import CORPORA, counts_of, pairs, train_native
from tokenizer import Batch, Tokenizer, UserError, count_pretokens, definition, formats, reference, train_bpe
from tokenizer.reference import TIE_BREAKS
from tokenizer.train.bpe import warn_of_memory
from tokenizer.train.forced import forced_merges


@pytest.fixture(scope="module")
def by_tie_break(real):
    return {tie_break: train_bpe(real, 256 + 900, special_tokens=[], tie_break=tie_break) for tie_break in TIE_BREAKS}


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_merges_of_real_text_equal_the_reference(real, by_tie_break, tie_break):
    tokenizer = by_tie_break[tie_break]
    expected = reference.train_incremental(dict(real.items()), 900, tie_break=tie_break)
    assert len(expected) == 900
    assert tokenizer.merges == pairs(expected)
    assert tokenizer.provenance["phase1"]["last_count"] == expected[-1][2]
    assert len({tokenizer.sha256 for tokenizer in by_tie_break.values()}) == 3
    # Smaller vocabularies have the first merges.
    smaller = train_bpe(real, 400, special_tokens=[], tie_break=tie_break)
    assert smaller.merges == tokenizer.merges[:144]
    assert tokenizer.cut(400).sha256 == smaller.sha256 != tokenizer.sha256


def test_merges_without_a_fence_equal_the_reference():
    documents = [text[:2000] for text in texts.sample(40_000)][:20]
    counts = count_pretokens([Batch.from_texts(documents)], "none", unit="line")
    assert train_bpe(counts, 556, special_tokens=[]).merges == pairs(
        reference.train_incremental(dict(counts.items()), 300)
    )


# Few letters and short words make runs, ties and pairs that vanish; a few high counts make sums that differ.


@given(
    corpus=CORPORA,
    tie_break=st.sampled_from(TIE_BREAKS),
    min_count=st.integers(1, 4),
    max_token_bytes=st.sampled_from([None, 2, 3, 5]),
    special_tokens=st.sampled_from([(), ("ab",), ("aa", "b a"), ("éé", "é!")]),
)
@settings(max_examples=40, deadline=None, derandomize=True)
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_merges_of_small_corpora_equal_the_reference(corpus, tie_break, min_count, max_token_bytes, special_tokens):
    options = {"tie_break": tie_break, "min_count": min_count, "max_token_bytes": max_token_bytes}
    tokenizer = train_bpe(counts_of(corpus), 300, special_tokens=special_tokens, **options)
    n_merges = 300 - 256 - len(special_tokens)
    expected = reference.train_naive(corpus, n_merges, special_tokens=special_tokens, **options)
    assert tokenizer.merges == pairs(expected)
    assert tokenizer.provenance["phase1"]["ran_out_of_pairs"] == (len(expected) < n_merges)


@pytest.mark.parametrize("length", [2, 3, 4, 7, 64, 1000, 65_537])
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_runs_of_one_letter_merge_as_in_the_reference(length):
    corpus = {b"a" * length: 3, b"b" + b"a" * (length // 2): 2}
    tokenizer = train_bpe(counts_of(corpus), 256 + 6, special_tokens=[], max_token_bytes=40)
    assert tokenizer.merges == pairs(reference.train_naive(corpus, 6, max_token_bytes=40))


def test_rare_pairs_and_long_tokens_are_not_made(real):
    with pytest.warns(UserWarning, match="ran out of pairs"):
        tokenizer = train_bpe(real, 30_000, min_count=5, max_token_bytes=6)
    expected = reference.train_incremental(dict(real.items()), 30_000, min_count=5, max_token_bytes=6)
    assert tokenizer.merges == pairs(expected)
    assert max(map(len, (left + right for left, right in tokenizer.merges))) == 6
    assert tokenizer.provenance["phase1"]["last_count"] == 5


def test_rare_pretokens_are_left_out(real, monkeypatch):
    kept = {pretoken: count for pretoken, count in real.items() if count >= 5}
    tokenizer = train_bpe(real, 1000, min_pretoken_count=5)
    assert tokenizer.merges == pairs(reference.train_incremental(kept, 743))
    share = tokenizer.provenance["phase1"]["left_out"]
    assert share == pytest.approx(1 - sum(kept.values()) / real.n_total)
    # What is too large says how much smaller it has to be.
    monkeypatch.setattr("tokenizer.train.bpe.MOST_CELLS", sum(map(len, kept)) + len(kept) + 1)
    with pytest.raises(UserError, match="use min_pretoken_count=8, which leaves out"):
        train_bpe(real, 1000)
    assert train_bpe(real, 1000, min_pretoken_count=5).merges == tokenizer.merges
    # So does what exceeds the memory limit.
    with pytest.warns(UserWarning, match="the memory limit of 0 MB does not include; min_pretoken_count=10 would"):
        warn_of_memory(real, 14 * sum(map(len, kept)) - 1, 5)
    warn_of_memory(real, 14 * sum(map(len, kept)), 5)


def test_running_out_of_pairs_warns_and_is_recorded():
    counts = count_pretokens([Batch.from_texts(["abc abc"])], "gpt2")
    with pytest.warns(UserWarning, match=r"3 of 743 merges.* 260 tokens"):
        tokenizer = train_bpe(counts, 1000)
    assert tokenizer.vocab_size == 260
    assert tokenizer.provenance["phase1"]["ran_out_of_pairs"] is True
    assert tokenizer.provenance["phase1"]["vocab_size_asked"] == 1000
    assert tokenizer.special_tokens == {"<|endoftext|>": 259}
    assert train_bpe(counts, 259).provenance["phase1"]["ran_out_of_pairs"] is False
    assert train_bpe(counts, 257).vocab == [bytes([byte]) for byte in range(256)] + [b"<|endoftext|>"]


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_no_token_spells_a_special_string(tie_break):
    counts = count_pretokens([Batch.from_texts(["<|end|> <|end|> the the then"] * 9)], "none")
    with pytest.warns(UserWarning, match="ran out of pairs"):
        tokenizer = train_bpe(counts, 400, special_tokens=["<|end|>", "the"], tie_break=tie_break)
    learned = tokenizer.vocab[256:-2]
    assert b"<|end|>" not in learned
    assert b"the" not in learned
    assert any(b"<|end|" in token for token in learned)
    expected = reference.train_incremental(
        dict(counts.items()), 142, special_tokens=["<|end|>", "the"], tie_break=tie_break
    )
    assert tokenizer.merges == pairs(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 200}, r"vocab_size=200 is below 256 bytes \+ 1 special token\(s\); use at least 257"),
        ({"vocab_size": 257, "special_tokens": ["<a>", "<b>"]}, r"vocab_size=257 .* use at least 258"),
        ({"tie_break": "random"}, "lowest-ids"),
        ({"min_count": -1}, "min_count=-1"),
        ({"min_pretoken_count": 0}, "min_pretoken_count=0"),
        ({"min_pretoken_count": 10**9}, "leaves no pretoken: the most frequent one occurs"),
        ({"max_token_bytes": -1}, "max_token_bytes=-1"),
        ({"forbid": "a"}, "forbid='a' is not a list of strings"),
        ({"forbid": ["a(?=b)"]}, r'the regex "a\(\?=b\)" of forbid does not compile: look-around'),
        ({"forbid": ["(a"]}, r'the regex "\(a" of forbid does not compile: unclosed group'),
        ({"forbid": ["a*"]}, r'the regex "a\*" of forbid matches the empty string'),
        ({"forbid": ["\udc80"]}, "lone surrogate"),
        ({"forced_tokens": "ab"}, "forced_tokens='ab' is not a list of strings"),
        ({"forced_tokens": ["ok", ""]}, "forced_tokens contains an empty string"),
        ({"forced_tokens": ["ok", "a b"]}, "forced token 'a b' can never be one token: the pattern"),
        ({"forced_tokens": ["a<s>"], "special_tokens": ["<s>"]}, "'a<s>' contains the special token '<s>'"),
        ({"vocab_size": 260, "forced_tokens": ["words"]}, "the forced tokens take 4 merges, but phase 1 has 3"),
        ({"forced_tokens": ["abc"], "max_token_bytes": 2}, "'abc' needs the token b'abc', of more than 2 bytes"),
        ({"forced_tokens": ["abc"], "forbid": ["^ab$"]}, "'abc' needs the token b'ab', which forbid rules out"),
    ],
)
def test_impossible_options_are_errors(real, options, message):
    with pytest.raises(UserError, match=message):
        train_bpe(real, **{"vocab_size": 300} | options)


FORBID = st.lists(st.sampled_from(["b", "^a", "a $", "[ab]{3}", "!", r"^\w\w$", "é"]), max_size=2)
FORCED = st.lists(st.text(alphabet="ab é!", min_size=1, max_size=5), max_size=3)


@examples(30, 120, corpus=CORPORA, forbid=FORBID, forced=FORCED, tie_break=st.sampled_from(TIE_BREAKS))
def test_vetoes_and_forced_tokens_as_in_the_reference(corpus, forbid, forced, tie_break):
    options = {"forbid": forbid, "forced_tokens": forced, "tie_break": tie_break}
    n_merges = len(forced_merges(forced)) + 6
    merges = reference.train_naive(corpus, n_merges, **options)
    assert reference.train_incremental(corpus, n_merges, **options) == merges
    if any(reference.is_forbidden(left + right, forbid) for left, right, _ in merges):
        with pytest.raises(UserError, match="which forbid rules out"):
            train_native(corpus, n_merges, **options)
        return
    assert train_native(corpus, n_merges, **options) == merges
    ranks = reference.ranks_of(pairs(merges))
    for string in forced:
        assert len(reference.merge_by_rank(reference.as_bytes(string), ranks)) == 1


def test_forced_tokens_are_whole_whatever_the_counts():
    # The pairs ("t", "h") and ("h", "e") are far more frequent than those of the forced tokens.
    text = ["the then he hex"] * 10_000 + ["thex zebra"]
    forced = [" thex", "thes", " zebra", "zéb", "x", "thes"]
    tokenizer = train_bpe(text, 275, pattern="gpt2", forced_tokens=forced)
    for string in forced:
        assert len(tokenizer.encode(string)) == 1
    assert tokenizer.vocab_size == 275
    made = [left + right for left, right in tokenizer.merges]
    assert made[:7] == [b" t", b" th", b" the", b" thex", b"th", b"the", b"thes"]
    assert len(made) == len(set(made))
    assert tokenizer.provenance["phase1"]["forced_tokens"] == forced
    with pytest.raises(UserError, match="start has merges already"):
        train_bpe(text, 400, start=tokenizer, forced_tokens=["abc"])
    # A line includes its line feed.
    assert (
        b"a\n" in train_bpe(["a\n"], 257, pattern="none", unit="line", forced_tokens=["a\n"], special_tokens=()).vocab
    )


def test_forbidden_tokens_are_counted(real):
    plain, vetoed = (train_bpe(real, 500, forbid=forbid) for forbid in ((), ("e", r"^ \w$")))
    assert plain.provenance["phase1"]["rejected"] == 0
    assert vetoed.provenance["phase1"]["rejected"] > 10
    assert vetoed.provenance["phase1"]["forbid"] == ["e", r"^ \w$"]
    made = [left + right for left, right in vetoed.merges]
    assert not any(reference.is_forbidden(token, ["e", r"^ \w$"]) for token in made)
    assert vetoed.merges == pairs(reference.train_incremental(dict(real.items()), 243, forbid=["e", r"^ \w$"]))
    again = train_bpe(real, 500, start=train_bpe(real, 400, forbid=["e", r"^ \w$"]), forbid=["e", r"^ \w$"])
    assert again.merges == vetoed.merges


NEVER_SAVED = [
    ("abc", "special_tokens='abc' is not a list of strings"),
    ([5], r"special_tokens=\[5\] is not a list of strings"),
    (["<a>", "<a>"], "repeats a string"),
    ([""], "contains an empty one"),
    (["<\udc80>"], "lone surrogate"),
    (["a"], r"'a' is also how tokenizer.json writes the ordinary token b'a'; use another string, such as '<\|a\|>'"),
    (["é"], r"'é' is also how tokenizer.json writes the ordinary token b'\\xe9'"),
    (["Ġ"], "'Ġ' is also how tokenizer.json writes the ordinary token b' '"),
    (["Ġt"], "'Ġt' is also how tokenizer.json writes the ordinary token b' t'"),
    (["Ã©t"], "'Ã©t' is also how"),
    (["©t"], "'©t' is also how"),  # the end of é, and t
]


@pytest.mark.parametrize(("special_tokens", "message"), NEVER_SAVED)
def test_special_tokens_that_cannot_be_saved_are_rejected_at_the_start(real, special_tokens, message):
    with pytest.raises(UserError, match=message):
        count_pretokens([], "gpt2", special_tokens=special_tokens)
    with pytest.raises(UserError, match=message):
        train_bpe(real, 300, special_tokens=special_tokens)


STRINGS = st.text(st.sampled_from("at é日Ġ©«\n<"), min_size=1, max_size=3)


@given(special_tokens=st.lists(STRINGS, min_size=1, max_size=3), pattern=st.sampled_from(["gpt2", "none"]))
@example(special_tokens=["at"], pattern="none")
@example(special_tokens=["«a«", " ", "\n"], pattern="gpt2")
@settings(max_examples=20, deadline=None, derandomize=True)
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_every_trained_tokenizer_can_be_saved(special_tokens, pattern):
    batch = Batch.from_texts(["at at étét 日日 «a« a t\n\n é" * 3])
    try:
        counts = count_pretokens([batch], pattern, special_tokens=special_tokens)
    except UserError:
        with pytest.raises(UserError):
            train_bpe(count_pretokens([batch], pattern), 300, special_tokens=special_tokens)
        return
    for kept in (special_tokens, []):  # strings that did not cut the text are in it
        counts = count_pretokens([batch], pattern, special_tokens=kept)
        tokenizer = train_bpe(counts, 300, special_tokens=special_tokens)
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save(folder)
            again = Tokenizer.load(folder)
        assert again.sha256 == tokenizer.sha256
        assert [again.encode(string, allowed_special="all") for string in special_tokens] == [
            [again.special_tokens[string]] for string in special_tokens
        ]


def test_training_from_a_tokenizer_makes_no_token_with_the_bytes_of_an_added_one(tmp_path):
    start = Tokenizer.from_file(hf_file(tmp_path, added_tokens=[added("th", 260, special=False)]))
    counts = count_pretokens([Batch.from_texts(["the thin that"] * 3)], start.pattern)
    grown = train_bpe(counts, 263, start=start)
    assert b"th" not in [grown.vocab[i] for i in grown.ordinary_ids()]
    formats.write(grown, tmp_path / "grown", "hf")
    assert Tokenizer.from_file(tmp_path / "grown").encode("thin") == grown.encode("thin")
    named = Tokenizer.from_file(hf_file(tmp_path, added_tokens=[added("Ġt", 260, special=False)]))
    with pytest.raises(UserError, match=r"'Ġt' is also how tokenizer\.json writes the ordinary token b' t'"):
        train_bpe(counts, 263, start=named)


def test_progress_begins_before_the_first_merge_and_its_exceptions_end_training(real):
    seen = []
    train_bpe(real, 600, progress=lambda *report: seen.append(report))
    assert (seen[0], seen[-1]) == (("merges", 0, 343), ("merges", 343, 343))

    def stop(what, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_bpe(real, 1200, progress=stop)


def test_no_merge_makes_a_token_that_is_too_long():
    with pytest.warns(UserWarning, match="pair") as warned:
        tokenizer = train_bpe(counts_of({b"=" * 131_074: 1}), 296)
    messages = sorted(str(warning.message) for warning in warned)
    assert len(messages) == 2
    assert messages[0].startswith("2 pair(s) were not merged, since a token has at most 65,536 bytes")
    assert "Lower max_token_bytes, to" in messages[0]
    assert "ran out of pairs after 16 of 39 merges" in messages[1]
    assert max(map(len, tokenizer.vocab)) == definition.LONGEST_TOKEN == 65_536
    assert tokenizer.provenance["phase1"]["too_long"] == 2
    assert tokenizer.decode(tokenizer.encode("=" * 200_000)) == "=" * 200_000


@pytest.mark.parametrize("train", [reference.train_naive, reference.train_incremental])
def test_the_longest_token_equals_the_reference(monkeypatch, train):
    monkeypatch.setattr(definition, "LONGEST_TOKEN", 5)
    corpus = {b"abcabcabcabc": 5, b"xyxyxyxyxy": 4, b"aaaaaaaaaaa": 3}
    merges = train(corpus, 30)
    assert max(len(left + right) for left, right, _ in merges) <= 5
    with pytest.warns(UserWarning, match="ran out of pairs"), pytest.warns(UserWarning, match="were not merged"):
        tokenizer = train_bpe(counts_of(corpus), 256 + 30, special_tokens=[])
    assert tokenizer.merges == pairs(merges)
    assert tokenizer.provenance["phase1"]["too_long"] > 0


def test_counts_up_to_64_bits_are_exact():
    with pytest.raises(UserError, match="64 bits"):
        train_bpe(counts_of({b"ab": 2**63, b"abc": 2**63}), 260)
    assert counts_of({b"ab": 2**63, b"abc": 2**63}).n_total == 2**64
    close = {b"cd": 2**40 + 1, b"ab": 2**40, b"ef": 2**40 - 1}
    assert train_bpe(counts_of(close), 259, special_tokens=[]).merges == [(b"c", b"d"), (b"a", b"b"), (b"e", b"f")]
    found = []
    counts = counts_of({b"ab": 2**63 - 100, b"abc": 10, b"bcd": 7})
    tokenizer = train_bpe(counts, 260, special_tokens=[], on_counts=lambda counts: found.extend(counts.tolist()))
    assert tokenizer.merges == [(b"a", b"b"), (b"ab", b"c"), (b"b", b"c"), (b"bc", b"d")]
    assert found == [2**63 - 90, 10, 7, 7]
