"""Our trainer, files and spans beside HF `tokenizers`."""

import io
import json
import random

import numpy as np
import pytest

from superbpe import train_superbpe
from tests import texts
from tests.parity.peers import around, hf_model, hf_trained, joining
from tests.properties import quick_first
from tokenizer import Batch, Tokenizer, count_pretokens, formats, patterns, train_bpe
from tokenizer.definition import printable

tokenizers = pytest.importorskip("tokenizers")


@pytest.mark.parametrize("name", ["gpt2", "superbpe"])
def test_merges_equal_hf_in_order(name):
    documents = texts.sample(100_000)
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
@pytest.mark.parametrize("n", [100, pytest.param(600, marks=pytest.mark.slow)])
def test_merges_of_generated_corpora_equal_hf(n):
    for number, (documents, name, lines) in enumerate(corpora(n)):
        # HF's file reader feeds lines with their line feed.
        fed = [line for text in documents for line in io.StringIO(text, newline="\n")] if lines else documents
        theirs = hf_model(hf_trained(fed, patterns.resolve(name).regex, 40))["merges"]
        counts = count_pretokens([Batch.from_texts(documents)], name, unit="line" if lines else "document", threads=1)
        ours = train_bpe(counts, 256 + 40, special_tokens=())
        found = [[printable(left), printable(right)] for left, right in ours.merges]
        assert found == theirs, (number, documents, name, lines)


@pytest.mark.parametrize("name", ["llama3", "none", "superwords", "unfenced"])
def test_saved_folders_give_the_same_ids_spans_and_names(name, trained, tmp_path):
    ours = trained[name]
    ours.save(tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    held_out = [*texts.english()[1][:30], *texts.various()]
    ids, offsets = ours.encode_batch(held_out)
    for i, (text, encoding) in enumerate(zip(held_out, theirs.encode_batch_fast(held_out), strict=True)):
        np.testing.assert_array_equal(ids[offsets[i] : offsets[i + 1]], encoding.ids, err_msg=repr(text[:80]))
        assert theirs.decode(encoding.ids) == text
    special = ["", "x<|endoftext|>é<|endoftext|>", "one <|endoftext|>two<|endoftext|><|endoftext| >\n"]
    some = [*texts.various(), *texts.english()[1][:4], texts.generated(11), "🙂🙂é日本", *special]
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
    """The default superword recipe is written with `Digits` alone."""
    documents = texts.sample(60_000)
    superwords = train_superbpe(train_bpe(documents, 600), documents, vocab_size=700, rules="digits", transition=0.8)
    superwords.save(tmp_path)
    written = json.loads((tmp_path / "tokenizer.json").read_text())["pre_tokenizer"]["pretokenizers"]
    assert [part["type"] for part in written] == ["Digits", "ByteLevel"]
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in [*documents, *texts.various()]:
        assert theirs.encode(text, add_special_tokens=False).ids == superwords.encode_ordinary(text)


@pytest.fixture(scope="module")
def edges(scalars, classes):
    """The characters at which a class of HF's changes: of its regex engine, or of its `Digits`."""
    kinds = np.stack([hf for hf, _ in classes.values()])
    changes = np.flatnonzero((kinds[:, 1:] != kinds[:, :-1]).any(axis=0)).tolist()
    numbers = tokenizers.pre_tokenizers.Digits(individual_digits=False).pre_tokenize_str(scalars)
    changes += [start - 1 for _, (start, _) in numbers[1:]]
    return [scalars[i] for i in sorted({*changes, *(change + 1 for change in changes), *range(0x250)})]


DIGITS = patterns.resolve("digits-fence").regex
READ = [
    DIGITS[:-1],
    *(patterns.resolve(name).regex.replace(r"\p{N}", DIGITS[:-1], 1) for name in ("uw-paper", "uw-paper-fence")),
]


@pytest.mark.parametrize("pattern", quick_first([*patterns.NAMES, r"\p{N}", r"\p{N}+", *READ], 7))
def test_exports_give_the_same_ids_at_every_edge_of_a_class(pattern, edges):
    """For every pattern and every fence of a preset, also as it is written with `Digits`: HF and tiktoken."""
    ours, rng = joining(pattern), random.Random(0)
    hf = tokenizers.Tokenizer.from_str(json.dumps(formats.hf_json(ours)))
    again = Tokenizer(*formats.hf_import.parse(formats.hf_json(ours)))
    assert again.pattern.regex == ours.pattern.regex
    third = [*patterns.NAMES, *READ].index(pattern) % 3 if pattern in (*patterns.NAMES, *READ) else 0
    found = [around(character) for character in edges[third::3]]  # together, the patterns see all of them
    found += ["".join(rng.choices([*edges[-400:], *"aA1! \n", "\U00011de0"], k=30)) for _ in range(100)]
    ids = [ours.encode_ordinary(text) for text in found]
    assert [one.ids for one in hf.encode_batch_fast(found)] == ids
    if "\n" not in ours.pattern.regex and pattern != "sentence-fence":
        tiktoken = pytest.importorskip("tiktoken")
        theirs = tiktoken.Encoding("exported", **formats.tiktoken.export(ours))
        assert theirs.encode_ordinary_batch(found) == ids
