"""Our scanners, trainer and files beside HF `tokenizers`."""

import io
import json
import random
import unicodedata

import numpy as np
import pytest

from superbpe import train_superbpe
from tests import texts
from tests.parity.peers import hf_split, hf_trained
from tokenizer import Batch, count_pretokens, patterns, train_bpe
from tokenizer.definition import printable

tokenizers = pytest.importorskip("tokenizers")

# The first two come from the SuperBPE paper's scripts: the very first has only empty matches.
CUSTOM = [
    r"(?=(\d{3})+(?!\d))",
    r"(?=(\d{3})+(?!\d))| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r" ?[A-Za-z]+",
    r"[^\n]*\n",
    r"(?<=[.!?]) ",
    r"\s*",
]


@pytest.mark.parametrize("regex", CUSTOM)
def test_other_regexes_cut_where_hf_cuts(regex):
    for text in [*texts.various(), "1234567 1000, 12 1234", texts.prose()[0]]:
        assert patterns.split(text, regex) == hf_split(text, regex)


# ------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("name", ["gpt2", "superbpe", "llama3"])
def test_merges_equal_hf_in_order(name):
    documents = texts.sample(200_000)
    theirs = hf_trained(documents, patterns.resolve(name).regex, 1500)
    counts = count_pretokens([Batch.from_texts(documents)], name)
    ours = train_bpe(counts, 256 + 1500, special_tokens=())
    assert len(theirs["merges"]) == 1500
    assert [[printable(left), printable(right)] for left, right in ours.merges] == theirs["merges"]
    # Only the ids of the bytes differ: HF numbers them in the order of its alphabet.
    assert {printable(token): i for i, token in enumerate(ours.vocab[256:], 256)}.items() <= theirs["vocab"].items()
    assert {printable(token) for token in ours.vocab} == theirs["vocab"].keys()


def corpora(n):
    """Small corpora of few letters, where ties, runs and pairs that vanish are the rule."""
    rng = random.Random(336)
    alphabets = ["ab", "abc ", "aab \n", "é中a ", "a1 2\n", "🦊🦊 a", "xyz'st ", "\x00\x7f a"]
    for _ in range(n):
        letters = rng.choice(alphabets)
        documents = [
            "".join(rng.choices(letters, k=rng.randrange(1, 30))) * rng.choice([1, 1, 2, 5])
            for _ in range(rng.randrange(1, 6))
        ]
        yield documents, rng.choice(["gpt2", "llama3", "none"]), rng.random() < 0.5


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
@pytest.mark.parametrize("n", [400, pytest.param(2500, marks=pytest.mark.slow)])
def test_merges_of_generated_corpora_equal_hf(n):
    for number, (documents, name, lines) in enumerate(corpora(n)):
        # HF's file reader feeds lines with their line feed.
        fed = [line for text in documents for line in io.StringIO(text, newline="\n")] if lines else documents
        theirs = hf_trained(fed, patterns.resolve(name).regex, 40)["merges"]
        counts = count_pretokens([Batch.from_texts(documents)], name, unit="line" if lines else "document", threads=1)
        ours = train_bpe(counts, 256 + 40, special_tokens=())
        found = [[printable(left), printable(right)] for left, right in ours.merges]
        assert found == theirs, (number, documents, name, lines)


# ------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("name", ["gpt2", "llama3", "none", "superwords", "spans_superwords"])
def test_saved_folders_give_the_same_ids(name, trained, tmp_path):
    ours = trained[name]
    ours.save(tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    held_out = [*texts.english()[1], *texts.various()]
    ids, offsets = ours.encode_batch(held_out)
    for i, (text, encoding) in enumerate(zip(held_out, theirs.encode_batch_fast(held_out), strict=True)):
        np.testing.assert_array_equal(ids[offsets[i] : offsets[i + 1]], encoding.ids, err_msg=repr(text[:80]))
        assert theirs.decode(encoding.ids) == text
    assert theirs.get_vocab_size() == ours.vocab_size
    assert theirs.token_to_id("<|endoftext|>") == ours.special_tokens["<|endoftext|>"]


@pytest.mark.parametrize("name", ["gpt2", "superwords"])
def test_special_strings_in_files_mean_what_they_mean_here(name, trained, tmp_path):
    trained[name].save(tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "one <|endoftext|>two<|endoftext|><|endoftext| >\n"
    special = trained[name].encode(text, allowed_special="all")
    assert theirs.encode(text).ids == special
    assert special.count(trained[name].special_tokens["<|endoftext|>"]) == 2
    theirs.encode_special_tokens = True
    assert theirs.encode(text).ids == trained[name].encode_ordinary(text)


def test_two_pass_folders_hold_no_file_for_hf(trained, tmp_path):
    trained["two_pass"].save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["superbpe.json", "tokenizer_config.json"]
    with pytest.raises(Exception, match=r"(?i)no such file|not found"):
        tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))


def test_isolated_digits_need_no_regex_engine(tmp_path):
    """The default superword recipe is written with `Digits` alone. HF gives equal ids for all numbers of Unicode."""
    documents = texts.sample(200_000)
    superwords = train_superbpe(train_bpe(documents, 600), documents, vocab_size=700, rules="digits", transition=0.8)
    superwords.save(tmp_path)
    written = json.loads((tmp_path / "tokenizer.json").read_text())["pre_tokenizer"]["pretokenizers"]
    assert [part["type"] for part in written] == ["Digits", "ByteLevel"]
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    numbers = [chr(i) for i in range(0x110000) if unicodedata.category(chr(i))[0] == "N"]
    for text in [
        *documents,
        *texts.various(),
        " a".join(numbers),
        "a".join(numbers[i] + numbers[i + 1] for i in range(0, len(numbers) - 1, 2)),
    ]:
        assert theirs.encode(text, add_special_tokens=False).ids == superwords.encode_ordinary(text)
