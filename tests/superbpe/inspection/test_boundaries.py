"""Words, numbers and characters against regexes, and what tokens cut against their spans, one by one."""

import numpy as np
import pytest
import regex

from superbpe.inspection.boundaries import find_units, worst_split
from tests import texts
from tests.generated import merged
from tokenizer import Batch

ALONE = r"[[\p{Line_Break=SA}\p{Han}\p{Hiragana}\p{Katakana}]&&\p{L}]"
MARK = "[\\p{M}\u200c\u200d]"
INSIDE = rf"(?:[\p{{L}}--{ALONE}]|{MARK}|(?<=[\p{{L}}--{ALONE}]|{MARK})['’](?=[\p{{L}}--{ALONE}]))"
WORD = regex.compile(rf"(?V1)(?:{ALONE}(?={MARK})|{MARK}|[\p{{L}}--{ALONE}]){INSIDE}*|{ALONE}")
DOCUMENTS = [*texts.SCRIPTS.values(), *texts.EMOJI, *texts.MARKS, *texts.CONTRACTIONS, *texts.NUMBERS]
DOCUMENTS += ["", "a'", "b", "don't can’t 'quoted' rock'n'roll l'été", "1234 12345 1234567 ١٢٣٤٥٦٧ 12,345.6789x1000y"]
DOCUMENTS += [texts.generated(seed) for seed in range(12)]


def words_of(document):
    """Spans of the words in characters."""
    return [match.span() for match in WORD.finditer(document) if regex.search(r"\p{L}", match[0])]


def numbers_of(document):
    return [match.span() for match in regex.finditer(r"\p{Nd}{4,}", document)]


def units_of(documents):
    batch = Batch.from_texts(documents)
    return batch, find_units(batch.data, batch.offsets[1:])


def test_words_numbers_and_characters():
    assert [text[a:b] for text in ["I don't 中文 กา x2y"] for a, b in words_of(text)] == [
        "I", "don't", "中", "文", "ก", "า", "x", "y",
    ]  # fmt: skip
    batch, units = units_of(DOCUMENTS)
    expected = [
        (start + len(text[:a].encode()), start + len(text[:b].encode()))
        for text, start in zip(DOCUMENTS, batch.offsets.tolist(), strict=False)
        for a, b in words_of(text)
    ]
    assert units.words.tolist() == [list(span) for span in expected]
    assert units.counts.words.tolist() == [len(words_of(text)) for text in DOCUMENTS]
    assert units.counts.numbers.tolist() == [len(numbers_of(text)) for text in DOCUMENTS]
    assert units.counts.characters.tolist() == [len(text) for text in DOCUMENTS]
    _, units = units_of(["", ""])
    assert [column.tolist() for column in (*units.counts, *units.cut(np.array([0])))] == [[0, 0]] * 6


@pytest.mark.parametrize("name", ["superwords", "gpt2", "two_pass", "unfenced", "bytes"])
def test_what_tokens_cut(trained, name):
    tokenizer = merged([], "none") if name == "bytes" else trained[name]
    batch, units = units_of(DOCUMENTS)
    ids, _ = tokenizer.encode_batch(batch)
    ends = np.cumsum([len(tokenizer.vocab[i]) for i in ids.tolist()])
    found = units.cut(ends)
    every = set(ends.tolist())
    for i, (text, start) in enumerate(zip(DOCUMENTS, batch.offsets.tolist(), strict=False)):
        at = [start + len(text[:k].encode()) for k in range(len(text) + 1)]

        def inside(a, b, at=at):
            return every & set(range(at[a] + 1, at[b]))

        assert found.words[i] == sum(bool(inside(a, b)) for a, b in words_of(text))
        assert found.characters[i] == sum(bool(inside(k, k + 1)) for k in range(len(text)))
        groups = [inside(a, b) == {at[k] for k in range(b - 3, a, -3)} for a, b in numbers_of(text)]
        assert found.numbers[i] == sum(groups)


def test_digits_are_grouped_from_the_right():
    """1|234|567 is grouped; 123|456|7, 1|2|34567 and numbers in one piece are not."""
    _, units = units_of(["a1234567", "1234"])
    for cuts, expected in (([1, 2, 5, 8, 12], [1, 0]), ([1, 4, 7, 9], [0, 1]), ([2, 3, 8], [0, 0]), ([2, 5], [1, 0])):
        assert units.cut(np.array(cuts)).numbers.tolist() == expected


def test_worst_split():
    tokenizer = merged([(b"a", b"b"), (b"c", b"d"), (b" ", b"ab"), (b"ab", b"c")], "none", fence="none", n_phase1=3)
    documents = ["abcd abcd x", "é abd abcd", "ab ab abd"]
    batch, units = units_of(documents)
    ids, _ = tokenizer.encode_batch(batch)
    found = worst_split(batch.data, units, ids, np.cumsum([len(tokenizer.vocab[i]) for i in ids.tolist()]))
    split = {word.text: [tokenizer.vocab[i] for i in word.ids] for word in found}
    assert split == {"abcd": [b" ab", b"cd"], "abd": [b" ab", b"d"], "é": [b"\xc3", b"\xa9"]}
    assert [(word.text, word.n, word.cuts) for word in found] == [("abcd", 3, 3), ("abd", 2, 2), ("é", 1, 1)]
    places = {word.text: word.place for word in found}
    assert batch.data[places["abd"] :].tobytes().startswith(b"abd abcd")
