from itertools import pairwise

import numpy as np
import pytest
from hypothesis import strategies as st

from tests import texts
from tests.generated import TWO_PASS, arbitrary, by_definition, defined, hf, spelled
from tests.properties import examples, quick_first
from tokenizer import Batch, Tokenizer, UserError, patterns
from tokenizer.definition import NOT_IN_UTF8, Definition
from tokenizer.patterns import Pattern

NAMES = [*TWO_PASS, "gpt2", "none", "superwords", "llama3", "superbpe", "spans_superwords", "unfenced"]


@pytest.mark.parametrize("name", quick_first(NAMES, 5))
def test_ids_equal_the_reference(name, trained, disputed):
    tokenizer = trained[name]
    # The reference is quadratic in a piece's length, and without a fence the text is one piece.
    real = [document[:700] for document in [*texts.english()[1][:6], *texts.prose()[:2], texts.code()]]
    for text in [*(text[:700] for text in texts.various()), *real]:
        text = "".join(c for c in text if c not in disputed)
        assert spelled(tokenizer, tokenizer.encode_ordinary(text)) == by_definition(tokenizer, text)


@examples(
    80,
    250,
    tokenizer=st.randoms(use_true_random=False).map(arbitrary),
    text=st.text(alphabet="aab  .1\néè", max_size=40),
)
def test_ids_of_arbitrary_tokenizers_equal_the_reference_and_hf(tokenizer, text):
    ids = tokenizer.encode_ordinary(text)
    assert spelled(tokenizer, ids) == by_definition(tokenizer, text)
    assert Tokenizer.from_ranks(tokenizer.ranks(), pattern=tokenizer.pattern).merges == tokenizer.merges
    if (theirs := hf(tokenizer)) is not None:
        assert theirs.encode(text).ids == ids


@pytest.mark.parametrize("name", ["gpt2", "superwords", "two_pass"])
def test_batches_are_encoded_as_one_by_one_on_any_number_of_threads(name, trained):
    tokenizer = trained[name]
    documents = [*texts.various(), *texts.english()[1], ""]
    alone = [tokenizer.encode_ordinary(text) for text in documents]
    for threads in (1, 2, 9, None):
        ids, offsets = tokenizer.encode_batch(documents, threads=threads)
        assert (ids.dtype, offsets.dtype, len(offsets)) == (np.uint32, np.int64, len(documents) + 1)
        assert [ids[a:b].tolist() for a, b in pairwise(offsets)] == alone
    again, where = tokenizer.encode_batch(Batch.from_texts(documents))
    np.testing.assert_array_equal(again, ids)
    np.testing.assert_array_equal(where, offsets)


@pytest.mark.parametrize("name", ["gpt2", "two_pass", "unfenced"])
def test_long_runs_do_not_take_quadratic_time(name, trained):
    for unit in ("a", " ", "🙂", "ab"):
        text = unit * 200_000
        assert trained[name].decode(trained[name].encode_ordinary(text)) == text


# Special tokens.

SPECIALS = ("<|endoftext|>", "<|end", "<|end|>", "[+]")


@pytest.fixture(scope="module")
def specials(trained):
    return Tokenizer.from_ranks(trained["gpt2"].ranks(), pattern=patterns.resolve("gpt2"), special_tokens=SPECIALS)


def test_special_strings_raise_unless_allowed_or_ordinary(specials):
    """Which ones raise is compared with tiktoken (`tests/parity/test_tiktoken.py`)."""
    text = "a <|endoftext|> b"
    end = specials.special_tokens["<|endoftext|>"]
    with pytest.raises(UserError, match=r"special string '<\|endoftext\|>'.*allowed_special.*disallowed_special=\(\)"):
        specials.encode(text, allowed_special={"[+]"})
    with pytest.raises(UserError, match=r"'a'"):
        specials.encode(text, disallowed_special={"a"})
    with pytest.raises(UserError, match=r"'<x>' is not a special token; the special tokens are: \['<\|end"):
        specials.encode(text, allowed_special={"<x>"})
    ordinary = specials.encode(text, disallowed_special=())
    assert ordinary == specials.encode_ordinary(text) == specials.encode_batch([text])[0].tolist()
    assert end not in ordinary
    allowed = specials.encode(text, allowed_special="all")
    assert allowed == [*specials.encode_ordinary("a "), end, *specials.encode_ordinary(" b")]
    assert specials.decode(allowed) == text


@pytest.mark.parametrize(
    ("layout", "first_byte", "first_merge", "special"),
    [("last", 0, 256, 1199), ("first", 1, 257, 0), ("after-bytes", 0, 257, 256)],
)
def test_layouts_of_special_tokens(layout, first_byte, first_merge, special, trained):
    plain = trained["gpt2"]
    tokenizer = Tokenizer.from_ranks(
        plain.ranks(), pattern=plain.pattern, special_tokens=["<|endoftext|>"], special_layout=layout
    )
    assert tokenizer.special_tokens == {"<|endoftext|>": special}
    assert tokenizer.vocab[special] == b"<|endoftext|>"
    assert tokenizer.vocab[first_byte : first_byte + 256] == [bytes([byte]) for byte in range(256)]
    assert tokenizer.merge_ids[0, 2] == first_merge
    assert tokenizer.merges == plain.merges
    assert (tokenizer.sha256 == plain.sha256) == (layout == "last")
    for text in texts.various():
        ids, ours = plain.encode_ordinary(text), tokenizer.encode_ordinary(text)
        assert spelled(tokenizer, ours) == spelled(plain, ids)
    np.testing.assert_array_equal(tokenizer.ranks(), plain.ranks())
    assert tokenizer.definition.special_layout == layout
    # Cutting keeps the layout.
    options = {"special_tokens": ["<s>", "</s>"], "special_layout": layout}
    more, fewer = (Tokenizer.from_ranks(plain.ranks()[:n], pattern=plain.pattern, **options) for n in (9, 3))
    assert more.cut(more.vocab_size).sha256 == more.sha256
    assert more.cut(261).sha256 == fewer.sha256
    with pytest.raises(UserError, match="special_layout='middle'; it is one of: last, first, after-bytes"):
        Tokenizer.from_ranks([], pattern=plain.pattern, special_layout="middle")


# Decoding, sizes, properties.


def test_byte_lengths_add_up_to_the_bytes_of_the_text(trained):
    for tokenizer in trained.values():
        lengths = tokenizer.token_byte_lengths()
        assert (lengths.dtype, lengths.shape) == (np.int32, (tokenizer.vocab_size,))
        assert lengths[tokenizer.special_tokens["<|endoftext|>"]] == 0
        assert (lengths == 0).sum() == 1
        for text in texts.various():
            assert lengths[tokenizer.encode_ordinary(text)].sum() == len(text.encode())


@pytest.mark.parametrize("name", ["gpt2", "superwords", "two_pass"])
def test_cuts_hold_the_first_merges(name, trained):
    tokenizer = trained[name]
    for size in (257, 258, 700, 701, 1199, 1200):
        cut = tokenizer.cut(size)
        assert cut.vocab_size == size
        assert cut.merges == tokenizer.merges[: size - 257]
        assert cut.special_tokens == {"<|endoftext|>": size - 1}
        assert cut.n_phase1_merges == min(size - 257, tokenizer.n_phase1_merges)
        assert cut.provenance["cut_from"] == 1200
        superwords = size - 257 > tokenizer.n_phase1_merges
        assert cut.mode == (tokenizer.mode if superwords else "one-pass")
        assert (cut.fence is not None) == superwords
    assert tokenizer.cut(1200).sha256 == tokenizer.sha256
    for size in (256, 0, 1201):
        with pytest.raises(UserError, match=f"cannot cut a vocabulary of 1200 tokens to {size}"):
            tokenizer.cut(size)


def test_the_identity_covers_what_decides_the_ids(trained):
    assert len({tokenizer.sha256 for tokenizer in trained.values()}) == len(trained)
    one = trained["gpt2"]
    same = Tokenizer.from_ranks(
        one.ranks(), pattern=Pattern("another name", one.pattern.regex), special_tokens=["<|endoftext|>"]
    )
    assert same.sha256 == one.sha256
    assert one.name == one.sha256[:12]
    assert one.name in repr(one)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "three-pass"}, "mode='three-pass' (did you mean 'two-pass'?); it is one of: one-pass, two-pass"),
        ({"mode": "two-pass"}, "two passes or phase-2 merges needs a fence"),
        ({"n_phase1_merges": 1}, "two passes or phase-2 merges needs a fence"),
        ({"n_phase1_merges": 3}, "3 phase-1 merges do not fit 2 merges"),
        ({"n_phase1_merges": -1}, "-1 phase-1 merges do not fit 2 merges"),
        ({"byte_ids": range(255)}, "there are 255 byte ids, not 256"),
        ({"byte_ids": [0, *range(255)]}, "id 0 of byte 1 is out of range or taken"),
        ({"byte_ids": range(100, 356)}, "merge 0 joins the ids 97 and 98, one of which does not exist yet"),
        ({"merge_ids": [[97, 98, 256], [98, 99, 256]]}, "id 256 of merge 1 is out of range or taken"),
        (
            {"merge_ids": [[97, 257, 256], [98, 256, 257]]},
            "merge 0 joins the ids 97 and 257, one of which does not exist yet",
        ),
        ({"merge_ids": [[97, 98, 256], [98, 99, 257], [256, 99, 258], [97, 257, 259]], "n_phase1_merges": 4}, "b'abc'"),
        ({"special_tokens": {"<s>": 7}}, "id 7 of special token '<s>' is out of range or taken"),
        ({"special_tokens": {"<s>": -1}}, "id -1 of special token '<s>' is out of range"),
        ({"special_tokens": {"<s>": 1 << 24}}, "id 16777216 is out of range: ids are below 16777216"),
        ({"special_tokens": {"": 300}}, "the special token with id 300 is empty"),
        ({"unmerged": {b"ab": 300}}, "b'ab' is spelled by two tokens, the second with id 300"),
        ({"unmerged": {b"x": 300}}, "the token b'x' with id 300 has no merge, and less than two bytes"),
        ({"unmerged": {b"xy": 257}}, "id 257 of merge 1 is out of range or taken"),
    ],
)
def test_mismatched_parts_are_rejected(change, message):
    fitting = {
        "byte_ids": range(256),
        "merge_ids": np.array([[97, 98, 256], [256, 99, 257]], np.uint32),
        "n_phase1_merges": 2,
        "pattern": patterns.resolve("gpt2"),
    }
    assert Tokenizer(Definition(**fitting)).encode("abc") == [257]
    with pytest.raises(UserError) as error:
        Tokenizer(Definition(**fitting | {key: np.array(v) if key == "merge_ids" else v for key, v in change.items()}))
    assert message in str(error.value)


def test_tokens_that_are_too_long_are_rejected():
    doubling = [(0, 0), *((256 + i, 256 + i) for i in range(30))]
    with pytest.raises(UserError, match="a token of more than 65536 bytes"):
        Tokenizer.from_ranks(doubling, pattern=patterns.resolve("none"))


def test_a_byte_without_a_token_does_not_become_another_token():
    # No text has the byte 0xFF, and id 0 is of a token that no merge makes: nothing is ever made of that.
    byte_ids = [-1 if byte in NOT_IN_UTF8 else 1 + byte for byte in range(256)]
    a, b, c = (byte_ids[byte] for byte in b"abc")
    tokenizer = defined([[0, c, 300], [300, a, 301]], byte_ids=byte_ids, unmerged={b"ab": 0})
    assert tokenizer.encode("abc abca") == [a, b, c, byte_ids[ord(" ")], a, b, c, a]
    assert tokenizer.count_tokens("abc") == 3
