"""Arguments of the wrong type give an error that names them and the remedy."""

import warnings
from dataclasses import fields
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from lm.data.sharding import ShardConfig
from lm.evaluate.config import EvalConfig
from lm.evaluate.deployment import Deployment
from lm.model.config import ModelConfig
from lm.model.sampling import SamplingConfig
from lm.train.config import TrainConfig
from superbpe import Rules, train_superbpe
from tests.properties import examples
from tokenizer import Batch, Corpus, CorpusConfig, Tokenizer, UserError, count_pretokens, formats, patterns, train_bpe

TOKENIZER = Tokenizer.from_ranks([(0, 1)], pattern=patterns.resolve("gpt2"), special_tokens=["<|endoftext|>"])

OPEN = r"is not a Definition; Tokenizer\.load and from_file open files"
NO_TEXT = [None, 5, b"x", ["x"], {"a": 1}, pa.array(["x"])]
NO_BATCH = [
    (5, "texts are int; a batch is a list of strings"),
    (b"x", "texts are bytes"),
    ({"a": 1}, "texts are dict"),
    ("x", "a batch is a list of texts"),
    (["a", 5], "text 1 is not a string but int: 5"),
    (["a", "b\ud800"], r"text 1 contains a lone surrogate, U\+D800, at character 1"),
    (np.array([1]), "text 0 is not a string but int64"),
    (pa.table({"text": ["x"], "id": [1]}), r"an Arrow Table; a batch is .* such as a column: table\['NAME'\]"),
    (pa.record_batch({"text": ["x"]}), "an Arrow RecordBatch; a batch is"),
    (pa.array([1]), "texts are an Arrow array of int64; cast it"),
    (pa.array(["a", None]), "text 1 of the Arrow array is null"),
]


@pytest.mark.parametrize("value", NO_TEXT, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("method", ["encode", "encode_ordinary", "encode_with_offsets", "count_tokens"])
def test_text_must_be_a_string(method, value):
    with pytest.raises(UserError, match="the text is not a string but"):
        getattr(TOKENIZER, method)(value)
    with pytest.raises(UserError, match=r"the text contains a lone surrogate, U\+DC80, at character 2"):
        getattr(TOKENIZER, method)("ab\udc80")


@pytest.mark.parametrize(("value", "message"), NO_BATCH)
@pytest.mark.parametrize("method", ["encode_batch", "count_tokens_batch"])
def test_a_batch_must_hold_text(method, value, message):
    with pytest.raises(UserError, match=message):
        getattr(TOKENIZER, method)(value)


@pytest.mark.parametrize("name", ["allowed_special", "disallowed_special"])
@pytest.mark.parametrize("value", [None, 5, [5], [["x"]], "<|endoftext|>"], ids=repr)
def test_special_strings_must_be_a_set(name, value):
    for call in (TOKENIZER.encode, lambda text, **options: TOKENIZER.encode_batch([text], **options)):
        with pytest.raises(UserError, match=f"{name}=.* is not a set of strings; pass one, such as"):
            call("x", **{name: value})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TOKENIZER.encode_batch(["x"], threads="2"), "threads='2' must be a whole number, from 1 to"),
        (lambda: TOKENIZER.encode_batch(["x"], threads=True), "threads=True must be"),
        (lambda: TOKENIZER.encode_iter(["x"], max_pending_bytes=1.5), "max_pending_bytes=1.5 must be a whole"),
        (lambda: TOKENIZER.encode_iter(5), "encode_iter takes parts of a text"),
        (lambda: TOKENIZER.cut("300"), "vocab_size='300' must be"),
        (lambda: TOKENIZER.extended([(1, 2, 3)]), r"new merges are pairs of ids: integers of shape \[n, 2\], not"),
        (lambda: TOKENIZER.extended("ab"), "new merges are pairs of ids"),
        (lambda: Tokenizer.from_ranks([(0, 999)], pattern=TOKENIZER.pattern), r"merge 0 joins the ranks \[0, 999\]"),
        (lambda: Tokenizer.from_ranks([], pattern=TOKENIZER.pattern, special_tokens="<s>"), "'<s>' is not a list of"),
        (lambda: patterns.resolve(None), "the pattern None is not a string"),
        (lambda: Corpus(CorpusConfig(paths=[5])), "the path 5 is not a string"),
        (lambda: train_bpe(None, "300"), "vocab_size='300' must be a whole number"),
        (lambda: Rules(forbid=": "), "forbid=': ' is not a list of strings"),
        (lambda: Rules(max_words="4").check(), "max_words='4' must be a whole number or null"),
        (lambda: TrainConfig(matrix_lr=float("nan")), "matrix_lr=nan must be a number"),
        (lambda: Batch.from_texts(None), "a batch is made of a list of texts"),
        (lambda: Batch.from_texts("x"), "put the one text in a list"),
        (lambda: Batch.from_texts(["a", 5]), "text 1 is not a string but int"),
        (lambda: Batch.from_texts(["\ud800"]), "text 0 contains a lone surrogate"),
        *((lambda value=value: Tokenizer(value), OPEN) for value in ("folder", None, {"vocab": []})),
        (lambda: Deployment(mlp=[]), r"mlp=\[\] must be a string"),
        (lambda: ModelConfig(n_layers=True), "n_layers=True must be a whole number"),
    ],
)
def test_arguments_of_another_type_are_named(call, message):
    with pytest.raises(UserError, match=message):
        call()


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 400),
    st.sampled_from([2**31, 2**32, 2**63, 2**64, -(2**63), 10**30]),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.lists(st.integers(-1, 300), max_size=5),
    st.lists(st.text(max_size=5), max_size=4),
    st.sets(st.text(max_size=5), max_size=3),
    st.sampled_from(["all", "<|endoftext|>", "gpt2", "a\x00", "\ud800", {}, pa.array(["x"])]),
    st.sampled_from([np.array([1, 2]), np.array([[1.5]]), np.array([], np.int64)]),
)


def settings(cls, check=None):
    """The class, any of its fields, and a check of the whole."""

    def make(**given):
        made = cls(**given)
        if check is not None:
            check(made)

    return make, [], [field.name for field in fields(cls)]


SPECIAL = "allowed_special"
# Required arguments, and others.
CALLS = {
    "encode": (TOKENIZER.encode, ["text"], [SPECIAL, "disallowed_special"]),
    "encode_batch": (TOKENIZER.encode_batch, ["texts"], [SPECIAL, "disallowed_special", "threads"]),
    "encode_iter": (lambda **given: list(TOKENIZER.encode_iter(**given)), ["parts"], ["max_pending_bytes", SPECIAL]),
    "decode": (TOKENIZER.decode, ["ids"], []),
    "decode_batch": (TOKENIZER.decode_batch, ["ids", "offsets"], []),
    "cut": (TOKENIZER.cut, ["vocab_size"], []),
    "extended": (TOKENIZER.extended, ["new_merges"], []),
    "from_ranks": (Tokenizer.from_ranks, ["merges", "pattern"], ["special_tokens"]),
    "count_pretokens": (count_pretokens, ["text", "pattern"], ["unit", "special_tokens", "threads", "memory_bytes"]),
    "train_bpe": (train_bpe, ["counts", "vocab_size"], ["special_tokens", "min_count", "max_token_bytes", "tie_break"]),
    "train_superbpe": (
        lambda vocab_size, **given: train_superbpe(TOKENIZER, ["a b a b"], vocab_size=vocab_size, **given),
        ["vocab_size", "rules"],
        ["transition", "transition_merges", "keep_ids", "tie_break", "threshold", "threads", "memory_bytes"],
    ),
    "split": (patterns.split, ["text", "pattern"], []),
    "Batch": (Batch.from_texts, ["texts"], []),
    "Rules": settings(Rules, lambda rules: rules.check()),
    "ModelConfig": settings(ModelConfig, lambda shape: shape.intermediate_size),
    "TrainConfig": settings(TrainConfig, lambda run: (run.steps, run.schedule.factor(0), run.batch_size, run.trunk)),
    "SamplingConfig": settings(SamplingConfig),
    "ShardConfig": settings(ShardConfig),
    "EvalConfig": settings(EvalConfig),
    "Deployment": settings(Deployment),
}


@examples(80, 300, name=st.sampled_from(list(CALLS)), data=st.data())
def test_any_arguments_give_a_result_or_a_user_error(name, data):
    call, required, optional = CALLS[name]
    given = {argument: data.draw(VALUES, argument) for argument in required}
    for argument in data.draw(st.sets(st.sampled_from(optional), max_size=5)) if optional else ():
        given[argument] = data.draw(VALUES, argument)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call(**given)
        except UserError as error:
            assert str(error)  # noqa: PT017


FILE_NAMES = {
    "train_bpe": lambda names: train_bpe(names, 300),
    "count_pretokens": lambda names: count_pretokens(names, "gpt2"),
    "of a function": lambda names: count_pretokens(lambda: names, "gpt2"),
    "train_superbpe": lambda names: train_superbpe(
        TOKENIZER, names, vocab_size=260, transition_merges=0, rules="uw-2025"
    ),
}


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
@pytest.mark.parametrize("function", FILE_NAMES)
def test_strings_that_are_all_names_of_files_are_not_texts(function, tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("some text of a file")
    names = sorted(map(str, tmp_path.glob("*.txt")))
    message = r"strings are names of files, such as '.*a\.txt'.*pathlib\.Path.*Batch\.from_texts"
    for texts in (names, tuple(names), (name for name in names), chain(repeat(names[0], 50), ["some text"])):
        with pytest.raises(UserError, match=message):
            FILE_NAMES[function](texts)


def test_strings_that_are_not_all_names_of_files_are_texts(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    for texts in (["a.txt", "text"], ["folder"], ["."], ["x" * 5000], ["a\0"], iter(["a.txt", "text"])):
        assert count_pretokens(texts, "gpt2").n_documents >= 1
    names = Batch.from_texts(["a.txt"])
    assert count_pretokens(names, "gpt2").n_bytes == 5
    for texts in (["a.txt"], ("a.txt",), iter(["a.txt"]), names):  # encoding never looks at files
        assert TOKENIZER.encode_batch(texts)[0].tolist() == TOKENIZER.encode("a.txt")
    assert TOKENIZER.count_tokens_batch(["a.txt"]).tolist() == [5]
    assert TOKENIZER(["a.txt"])["input_ids"] == [TOKENIZER.encode("a.txt")]


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs a folder that nobody can write to")
@pytest.mark.parametrize("kind", ["superbpe", "hf", "tiktoken"])
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, kind):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "inside", Path("/proc/x"), Path("/dev/null/x")):
        path = folder / "a.tiktoken" if kind == "tiktoken" else folder
        with pytest.raises(UserError, match=rf"{folder} (cannot be written|already exists|is a file).*; name a"):
            formats.write(TOKENIZER, path, kind)
        with pytest.raises(UserError, match=rf"{folder} cannot be written \(.+\); name a folder that can be"):
            TOKENIZER.save(folder)
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(UserError, match=r"/proc cannot be written"):
        formats.write(TOKENIZER, "/proc/a.tiktoken", "tiktoken")
    for path in (tmp_path, tmp_path / "none" / "counts.parquet"):
        with pytest.raises(UserError, match="cannot be written: name a file in an existing folder"):
            count_pretokens(["some text"], "gpt2").save(path)
