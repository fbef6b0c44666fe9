"""Encoding and decoding: batches of any kind, special strings, spans, counts."""

import random
import threading
import time
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import texts
from tests.generated import ONE_PASS, TWO_PASS, defined
from tests.properties import quick_first
from tokenizer import Batch, Tokenizer, UserError, patterns
from tokenizer.definition import ALPHABET

DOCUMENTS = [*texts.various(), "", "é", "", *texts.english()[1][:20], "end"]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


# ------------------------------------------------------------------------------- batches


@pytest.mark.parametrize("name", ["gpt2", "superwords", "two_pass"])
def test_arrow_arrays_are_encoded_as_lists(name, trained):
    tokenizer = trained[name]
    expected = tokenizer.encode_batch(DOCUMENTS)
    for type_ in (pa.string(), pa.large_string()):
        array = pa.array(DOCUMENTS, type_)
        assert_same(tokenizer.encode_batch(array, threads=2), expected)
        assert_same(tokenizer.encode_batch(pa.chunked_array([array])), expected)
        chunked = pa.chunked_array([array[:7], array[7:7], array[7:]])
        assert_same(tokenizer.encode_batch(chunked), expected)
        assert_same(tokenizer.encode_batch(array[5:17]), tokenizer.encode_batch(DOCUMENTS[5:17]))
        assert_same(tokenizer.encode_batch(pa.array([], type_)), tokenizer.encode_batch([]))
        assert_same(tokenizer.encode_batch(pa.chunked_array([], type_)), tokenizer.encode_batch([]))
        assert_same(tokenizer.encode_batch(pa.array(["", ""], type_)), tokenizer.encode_batch(["", ""]))
        assert_same(tokenizer.encode_batch(array[3:3]), tokenizer.encode_batch([]))
    assert_same(tokenizer.encode_batch(tuple(DOCUMENTS)), expected)
    assert_same(tokenizer.encode_batch(Batch.from_texts(DOCUMENTS)), expected)


def test_nulls_and_malformed_buffers_are_rejected(trained):
    encode, count = trained["gpt2"].encode_batch, trained["gpt2"].count_tokens_batch
    null = pa.array(["a", None, "b", None])
    for array in (null, pa.chunked_array([["a"], [None, "b", None]])):
        for use in (encode, count):
            with pytest.raises(UserError, match=r"text 1 of the Arrow array is null \(2 are\).*drop_null\(\)"):
                use(array)
    assert_same(encode(null.drop_null()), encode(["a", "b"]))
    buffers = [None, pa.py_buffer(np.array([0, 1, 3], np.int32)), pa.py_buffer(b"a\xc3(")]
    with pytest.raises(UserError, match=r"is malformed: .* index 1"):
        encode(pa.Array.from_buffers(pa.string(), 2, buffers))


def test_other_threads_run_meanwhile(trained):
    """The GIL is released: Python runs while one text of 4 MB is encoded, decoded and searched."""
    tokenizer, text = trained["superwords"], "the quick brown fox, and so on. " * (1 << 17)
    ids = np.array(tokenizer.encode_ordinary(text), np.uint32)
    for work in (
        lambda: tokenizer.encode_batch([text], threads=1),
        lambda: tokenizer.count_tokens(text),
        lambda: list(tokenizer.encode_iter([text])),
        lambda: tokenizer._decoder.decode_batch(np.tile(ids, 8), np.array([0, 8 * len(ids)])),
    ):
        worker = threading.Thread(target=work)
        ticks = 0
        worker.start()
        while worker.is_alive():
            time.sleep(0.0005)
            ticks += 1
        assert ticks > 2


@pytest.mark.parametrize("name", ONE_PASS + TWO_PASS)
def test_counts_are_lengths(name, trained):
    tokenizer = trained[name]
    _, offsets = tokenizer.encode_batch(DOCUMENTS)
    for threads in (1, 3):
        counts = tokenizer.count_tokens_batch(DOCUMENTS, threads=threads)
        assert counts.dtype == np.int64
        np.testing.assert_array_equal(counts, np.diff(offsets))
    np.testing.assert_array_equal(tokenizer.count_tokens_batch(pa.array(DOCUMENTS)), np.diff(offsets))
    assert [tokenizer.count_tokens(text) for text in DOCUMENTS[:9]] == counts[:9].tolist()
    assert tokenizer.count_tokens_batch([]).tolist() == []


# ------------------------------------------------------------------------------- special strings

NESTED = ("<a>", "<a><b>", "a><", "<", "日", "<|long special token|>")


@pytest.fixture(scope="module")
def nested(trained):
    return Tokenizer.from_ranks(trained["gpt2"].ranks(), pattern=patterns.resolve("gpt2"), special_tokens=NESTED)


def by_definition(tokenizer, text, allowed):
    """Ids by looking for every allowed string at every place; the longest first."""
    ids, start, at = [], 0, 0
    while at < len(text):
        here = max((string for string in allowed if text.startswith(string, at)), key=len, default=None)
        if here is None:
            at += 1
            continue
        ids += [*tokenizer.encode_ordinary(text[start:at]), tokenizer.special_tokens[here]]
        start = at = at + len(here)
    return ids + tokenizer.encode_ordinary(text[start:])


@given(text=st.text(alphabet="<a>b |日", max_size=20), allowed=st.sets(st.sampled_from(NESTED)))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_special_strings_are_found_leftmost_and_longest(nested, text, allowed):
    expected = by_definition(nested, text, allowed)
    assert nested.encode(text, allowed_special=allowed, disallowed_special=()) == expected
    as_array = nested.encode_batch([text], allowed_special=allowed)[0]
    assert as_array.dtype == np.uint32
    assert as_array.tolist() == expected
    forbidden = [string for string in NESTED if string not in allowed and string in text]
    if forbidden:
        with pytest.raises(UserError, match="contains the special string") as error:
            nested.encode(text, allowed_special=allowed)
        named = next(string for string in NESTED if f"special string {string!r}:" in str(error.value))
        first = min(text.index(string) for string in forbidden)
        assert named == max((string for string in forbidden if text.startswith(string, first)), key=len)
    else:
        assert nested.encode(text, allowed_special=allowed) == expected
    ids, offsets = nested.encode_batch(["x", text, ""], allowed_special=allowed, threads=2)
    assert ids[offsets[1] : offsets[2]].tolist() == expected


def test_batches_take_special_strings_as_text_by_default(nested):
    documents = ["plain", "a <a> b", "日"]
    ordinary = nested.encode_batch(documents)
    assert ordinary[0].tolist() == [i for text in documents for i in nested.encode_ordinary(text)]
    with pytest.raises(UserError, match="text 1 contains the special string '<a>': pass allowed_special"):
        nested.encode_batch(documents, disallowed_special="all")
    with pytest.raises(UserError, match="text 2 contains the special string '日'"):
        nested.encode_batch(pa.array(documents), allowed_special={"<a>"}, disallowed_special={"日", "no token"})
    ids, offsets = nested.encode_batch(documents, allowed_special="all", disallowed_special="all")
    assert [ids[a:b].tolist() for a, b in pairwise(offsets)] == [
        nested.encode(text, allowed_special="all") for text in documents
    ]


# ------------------------------------------------------------------------------- spans


@pytest.mark.parametrize("name", quick_first([TWO_PASS[0], *ONE_PASS, *TWO_PASS[1:]], 3))
def test_spans_show_the_tokens(name, trained):
    tokenizer = trained[name]
    for text in [*texts.various(), texts.english()[1][0], ""]:
        spans = tokenizer.encode_with_offsets(text, disallowed_special=())
        assert spans.ids.dtype == np.uint32
        assert spans.ids.tolist() == tokenizer.encode_ordinary(text)
        data = text.encode()
        assert [data[a:b] for a, b in spans.bytes.tolist()] == [tokenizer.vocab[i] for i in spans.ids]
        for places in (spans.bytes, spans.characters):
            assert (places.dtype, places.shape) == (np.int64, (len(spans.ids), 2))
        for (start, end), (first, last) in zip(spans.characters.tolist(), spans.bytes.tolist(), strict=True):
            before, inside = text[:start].encode(), text[start:end].encode()
            # The characters cover the token, and not one of them could be left out.
            assert len(before) <= first < last <= len(before) + len(inside)
            assert len(text[: start + 1].encode()) > first
            assert len(text[: end - 1].encode()) < last


def test_spans_of_special_tokens_and_parts_of_a_character(nested):
    ids, in_bytes, in_characters = Tokenizer.from_ranks([], pattern=patterns.resolve("none")).encode_with_offsets("aé")
    assert ids.tolist() == [97, 0xC3, 0xA9]
    assert in_bytes.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert in_characters.tolist() == [[0, 1], [1, 2], [1, 2]]
    text = "é<a>日 x"
    with pytest.raises(UserError, match="the special string '<a>'"):
        nested.encode_with_offsets(text)
    spans = nested.encode_with_offsets(text, allowed_special="all")
    assert spans.ids.tolist() == nested.encode(text, allowed_special="all")
    for string, in_bytes, in_characters in (("<a>", [2, 5], [1, 4]), ("日", [5, 8], [4, 5])):
        i = spans.ids.tolist().index(nested.special_tokens[string])
        assert (spans.bytes[i].tolist(), spans.characters[i].tolist()) == (in_bytes, in_characters)


# ------------------------------------------------------------------------------- decoding


def test_ids_of_any_kind_are_decoded(trained):
    tokenizer = trained["gpt2"]
    expected = "Decoding, 日本 and 🙂"
    ids = tokenizer.encode_ordinary(expected)
    kinds = [ids, tuple(ids), iter(ids), *(np.array(ids, kind) for kind in ("u2", "u4", "i4", "i8", "u8", ">u4"))]
    for kind in [*kinds, np.repeat(np.array(ids, np.uint32), 2)[::2]]:
        assert tokenizer.decode(kind) == expected
    assert tokenizer.decode(range(97, 99)) == "ab"
    assert tokenizer.decode([1199]) == "<|endoftext|>"
    row, no_ids = "ids are one row of whole numbers", ([0.5], ["a"], [[1, 2]], [[1], [2, 3]], [True])
    for wrong, message in (
        *((value, row) for value in (*no_ids, None, 5, 1.5, "abc", {"a": 1}, np.array([1.0]))),
        *((value, f"{row}, not 1-dimensional object") for value in ([10**30], [1, None])),
        (np.array([[1, "a"]], object), f"{row}, not 2-dimensional object"),
        (np.array([97, 1200], np.uint32), "the id 1200 is not in the vocabulary: ids are below the vocabulary size 12"),
        ([0, 10**12], "the id 1000000000000 is not in the vocabulary: ids are below the vocabulary size 1200"),
        (np.array([97, -1]), "the id -1 is not in the vocabulary: ids are below the vocabulary size 1200"),
    ):
        with pytest.raises(UserError, match=message):
            tokenizer.decode_bytes(wrong)


def test_unknown_ids_are_named():
    gap = defined([], pattern="none", special_tokens={"<s>": 300})
    assert gap.decode([97, 300]) == "a<s>"
    for decode in (gap.decode_bytes, lambda ids: gap.decode_batch(ids, [0, 1])):
        with pytest.raises(UserError, match=r"id 299 .*no token"):
            decode([299])


@pytest.mark.parametrize("name", ["gpt2", "two_pass"])
def test_batches_round_trip(name, trained):
    tokenizer = trained[name]
    ids, offsets = tokenizer.encode_batch(DOCUMENTS)
    assert tokenizer.decode_batch(ids, offsets) == DOCUMENTS
    assert tokenizer.decode_batch(ids.tolist(), offsets.tolist(), errors="strict") == DOCUMENTS
    assert tokenizer.decode_batch(ids.astype(np.uint16), offsets[5:9]) == DOCUMENTS[5:8]
    assert tokenizer.decode_batch([], [0]) == []
    assert tokenizer.decode_batch([], [0, 0]) == [""]


@pytest.mark.parametrize("offsets", [[0, 3], [-1, 1], [2, 1], [], [0.5], [[0, 1]]])
def test_offsets_that_do_not_fit_are_rejected(offsets, trained):
    fit = "offsets of document 0 do not fit the 2 ids"
    row = "offsets must be a 1-D array of integers, one more than there are texts"
    with pytest.raises(UserError, match=fit if np.shape(offsets) == (2,) else row):
        trained["gpt2"].decode_batch([97, 98], offsets)


def test_decoding_is_python_decoding_of_the_tokens(trained):
    data, offsets = [0xF0, 0x9F, 0xFF, 0x61], [0, 2, 4]  # malformed text in each document
    assert trained["none"].decode_batch(data, offsets) == ["\ufffd", "\ufffda"]
    assert trained["none"].decode_batch(data, offsets, errors="ignore") == ["", "a"]
    with pytest.raises(UnicodeDecodeError):
        trained["none"].decode_batch(data, offsets, errors="strict")
    tokenizer, choose = trained["superwords"], random.Random(4)
    for _ in range(200):
        ids = [choose.randrange(tokenizer.vocab_size) for _ in range(choose.randrange(12))]
        data = b"".join(tokenizer.vocab[i] for i in ids)
        assert tokenizer.decode_bytes(ids) == data
        for errors in ("replace", "ignore", "backslashreplace"):
            assert tokenizer.decode(ids, errors=errors) == data.decode(errors=errors)


# ------------------------------------------------------------------------------- ids in the layout of token files

STREAMED = ["the theory of the thing", "", "naïve 🙂\n\n", "the <|endoftext|> of it", "x" * 5000, "t", " the" * 3000]


@pytest.fixture(scope="module")
def streaming():
    space, t, h, e, x = map(ALPHABET.index, b" thex")
    merges = [(t, h), (256, e), (space, 257), (x, x), *((259 + i, 259 + i) for i in range(9))]  # up to 1,024 times x
    return Tokenizer.from_ranks(merges, pattern=patterns.resolve("gpt2"), special_tokens=["<|endoftext|>"])


def stream(tokenizer, texts, *, narrow=True):
    lengths = np.asarray(tokenizer.token_byte_lengths(), np.uint32)
    return tokenizer.encode_stream(Batch.from_texts(texts), tokenizer.vocab_size - 1, lengths, narrow=narrow)


@pytest.mark.parametrize(("narrow", "dtype"), [(True, np.uint16), (False, np.uint32)])
def test_each_document_follows_its_mark(streaming, narrow, dtype):
    tokenizer = streaming
    mark = tokenizer.vocab_size - 1
    ids, offsets = tokenizer.encode_batch(Batch.from_texts(STREAMED))
    assert max(len(tokenizer.vocab[i]) for i in ids) > 255  # longer than a byte says
    found = stream(tokenizer, STREAMED, narrow=narrow)
    assert found.ids.dtype == dtype
    assert found.ids.tolist() == [i for start, end in pairwise(offsets) for i in (mark, *ids[start:end])]
    assert found.ends.tolist() == (offsets[1:] + np.arange(1, len(offsets))).tolist()
    assert found.spelled.tolist() == [len(text.encode()) for text in STREAMED]
    assert found.marked is None
    assert stream(tokenizer, [], narrow=narrow).ids.tolist() == []


def test_buffers_are_reused_only_without_views(streaming):
    documents = [[f"{i} the {word}" * 50 for word in STREAMED] for i in range(8)]
    expected = [stream(streaming, one).ids.tolist() for one in documents]
    kept = [stream(streaming, one).ids[3:] for one in documents]  # views hold what they show
    for one in reversed(documents):
        stream(streaming, one)
    assert [part.tolist() for part in kept] == [one[3:] for one in expected]


def test_ids_without_a_length_are_rejected(streaming):
    with pytest.raises(UserError, match="has no length"):
        streaming.encode_stream(Batch.from_texts(["the"]), 0, np.ones(257, np.uint32), narrow=True)
