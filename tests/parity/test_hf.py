"""Our trainer, files and spans beside HF `tokenizers`."""

import io
import json
import random
import unicodedata

import numpy as np
import pytest

from superbpe import train_superbpe
from tests import texts
from tests.parity.peers import hf_model, hf_trained
from tokenizer import Batch, count_pretokens, patterns, train_bpe
from tokenizer.definition import printable

tokenizers = pytest.importorskip("tokenizers")


@pytest.mark.parametrize("name", ["gpt2", "superbpe", "llama3"])
def test_merges_equal_hf_in_order(name):
    documents = texts.sample(200_000)
    theirs = hf_model(hf_trained(documents, patterns.resolve(name).regex, 1500))
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
        theirs = hf_model(hf_trained(fed, patterns.resolve(name).regex, 40))["merges"]
        counts = count_pretokens([Batch.from_texts(documents)], name, unit="line" if lines else "document", threads=1)
        ours = train_bpe(counts, 256 + 40, special_tokens=())
        found = [[printable(left), printable(right)] for left, right in ours.merges]
        assert found == theirs, (number, documents, name, lines)


@pytest.mark.parametrize("name", ["gpt2", "llama3", "none", "superwords", "spans_superwords", "unfenced"])
def test_saved_folders_give_the_same_ids_spans_and_names(name, trained, tmp_path):
    ours = trained[name]
    ours.save(tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    held_out = [*texts.english()[1], *texts.various()]
    ids, offsets = ours.encode_batch(held_out)
    for i, (text, encoding) in enumerate(zip(held_out, theirs.encode_batch_fast(held_out), strict=True)):
        np.testing.assert_array_equal(ids[offsets[i] : offsets[i + 1]], encoding.ids, err_msg=repr(text[:80]))
        assert theirs.decode(encoding.ids) == text
    special = ["", "x<|endoftext|>é<|endoftext|>", "one <|endoftext|>two<|endoftext|><|endoftext| >\n"]
    some = [*texts.various(), *texts.english()[1][:10], texts.generated(11), "🙂🙂é日本", *special]
    for text in some:
        expected = theirs.encode(text)
        found = ours.encode_with_offsets(text, allowed_special="all")
        assert found.ids.tolist() == expected.ids
        assert [tuple(span) for span in found.characters.tolist()] == expected.offsets
    assert found.ids.tolist().count(ours.special_tokens["<|endoftext|>"]) == 2
    theirs.encode_special_tokens = True
    for text in some:
        assert theirs.encode(text).ids == ours.encode_ordinary(text)
        assert theirs.encode(text).tokens == ours.tokenize(text)
    assert theirs.get_vocab() == ours.get_vocab()
    assert theirs.get_vocab_size() == ours.vocab_size
    assert [theirs.id_to_token(i) for i in range(1205)] == [ours.id_to_token(i) for i in range(1205)]
    assert theirs.token_to_id("Ġt") == ours.token_to_id("Ġt")
    assert theirs.token_to_id("<|endoftext|>") == ours.special_tokens["<|endoftext|>"]


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
