"""Arguments of the wrong type give an error that names them and the remedy."""

import numpy as np
import pyarrow as pa
import pytest

from tokenizer import Batch, Corpus, CorpusConfig, Tokenizer, UserError, patterns, train_bpe

TOKENIZER = Tokenizer.from_ranks([(0, 1)], pattern=patterns.resolve("gpt2"), special_tokens=["<|endoftext|>"])

NO_TEXT = [None, 5, b"x", ["x"], {"a": 1}, pa.array(["x"])]
NO_BATCH = [
    (5, "texts are int; a batch is a list of strings"),
    (b"x", "texts are bytes"),
    ({"a": 1}, "texts are dict"),
    ("x", "a batch is a list of texts"),
    (["a", 5], "text 1 is not a string but int: 5"),
    (["a", "b\ud800"], r"text 1 contains a lone surrogate, U\+D800, at character 1"),
    (np.array([1]), "text 0 is not a string but int64"),
    (pa.table({"text": ["x"], "id": [1]}), r"an Arrow Table, not a column of it: pass table\['NAME'\] \(text, id\)"),
    (pa.record_batch({"text": ["x"]}), "an Arrow RecordBatch, not a column"),
    (pa.array([1]), "texts are an Arrow array of int64; cast it"),
    (pa.array(["a", None]), "text 1 of the Arrow array is null"),
]


@pytest.mark.parametrize("value", NO_TEXT, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "method", ["encode", "encode_ordinary", "encode_to_numpy", "encode_with_offsets", "count_tokens"]
)
def test_text_must_be_a_string(method, value):
    with pytest.raises(UserError, match="the text is not a string but"):
        getattr(TOKENIZER, method)(value)
    with pytest.raises(UserError, match=r"the text contains a lone surrogate, U\+DC80, at character 2"):
        getattr(TOKENIZER, method)("ab\udc80")


@pytest.mark.parametrize(("value", "message"), NO_BATCH)
@pytest.mark.parametrize("method", ["encode_batch", "count_tokens_batch", "normalized_sizes"])
def test_a_batch_must_hold_text(method, value, message):
    with pytest.raises(UserError, match=message):
        getattr(TOKENIZER, method)(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "a batch is made of a list of texts"),
        ("x", "put the one text in a list"),
        (["a", 5], "text 1 is not a string but int"),
        (["\ud800"], "text 0 contains a lone surrogate"),
    ],
)
def test_a_batch_is_made_of_a_list_of_texts(value, message):
    with pytest.raises(UserError, match=message):
        Batch.from_texts(value)


@pytest.mark.parametrize("value", [None, 5, 1.5, "abc", [1.5], [[1]], [-1], [999], np.array([1.0]), {"a": 1}], ids=repr)
def test_ids_must_be_integers(value):
    with pytest.raises(UserError, match=r"ids are one row of whole numbers|is not in the vocabulary"):
        TOKENIZER.decode(value)


@pytest.mark.parametrize("name", ["allowed_special", "disallowed_special"])
@pytest.mark.parametrize("value", [None, 5, [5], [["x"]], "<|endoftext|>"], ids=repr)
def test_special_strings_must_be_a_set(name, value):
    for call in (TOKENIZER.encode, lambda text, **options: TOKENIZER.encode_batch([text], **options)):
        with pytest.raises(UserError, match=f"{name}=.* is (not a set of strings|one string)"):
            call("x", **{name: value})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TOKENIZER.encode_batch(["x"], threads="2"), "threads='2' must be a whole number, from 1 to"),
        (lambda: TOKENIZER.encode_batch(["x"], threads=True), "threads=True must be"),
        (lambda: TOKENIZER.encode_dropout("x", "0.1", seed=1), "p='0.1' is not a probability"),
        (lambda: TOKENIZER.encode_dropout("x", 0.1, seed=1.5), "seed=1.5 must be a whole number, from 0 to"),
        (
            lambda: TOKENIZER.encode_iter(["x"], max_pending_bytes=1.5),
            "max_pending_bytes=1.5 must be a whole",
        ),
        (lambda: TOKENIZER.encode_iter(5), "encode_iter takes parts of a text"),
        (lambda: TOKENIZER.cut("300"), "vocab_size='300' must be"),
        (lambda: TOKENIZER.extended([(1, 2, 3)]), r"new merges are pairs of ids: integers of shape \[n, 2\], not"),
        (lambda: TOKENIZER.extended("ab"), "new merges are pairs of ids"),
        (lambda: Tokenizer.from_ranks([(0, 999)], pattern=TOKENIZER.pattern), r"merge 0 joins the ranks \[0, 999\]"),
        (lambda: Tokenizer.from_ranks([], pattern=TOKENIZER.pattern, special_tokens="<s>"), "'<s>' is not a list of"),
        (lambda: patterns.resolve(None), "the pattern None is not a string"),
        (lambda: Corpus(CorpusConfig(paths=[5])), "the path 5 is not a string"),
        (lambda: train_bpe(None, "300"), "vocab_size='300' must be a whole number"),
    ],
)
def test_arguments_of_another_type_are_named(call, message):
    with pytest.raises(UserError, match=message):
        call()
