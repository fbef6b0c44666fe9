"""Normalisers and added tokens of imported tokenizers beside HF `tokenizers`: the same ids and offsets."""

import random
import unicodedata
from itertools import pairwise

import numpy as np
import pytest

from tests import texts
from tests.parity.prepared import SEQUENCES, generated, imported
from tests.properties import quick_first
from tokenizer import Batch, Tokenizer
from tokenizer.special import FORMS, normalized

tokenizers = pytest.importorskip("tokenizers")


@pytest.mark.parametrize("forms", quick_first([(forms,) for forms in SEQUENCES], 3))
def test_ids_and_offsets_equal_hf(forms, trained):
    rng = random.Random(str(forms))
    changed = added = 0
    for _ in range(4):
        theirs, ours = imported(trained, rng, forms)
        for text in [generated(rng) for _ in range(25)] + rng.sample(texts.various(), 4):
            for special in (True, False):
                theirs.encode_special_tokens = not special
                expected = theirs.encode(text)
                found = ours.encode_with_offsets(
                    text, allowed_special="all" if special else frozenset(), disallowed_special=()
                )
                assert found.ids.tolist() == expected.ids, (forms, text, special, ours.preparation)
                assert [tuple(span) for span in found.characters.tolist()] == expected.offsets, (forms, text, special)
                if not special:
                    assert ours.encode_ordinary(text) == expected.ids
                    assert ours.count_tokens(text) == len(expected.ids)
            changed += normalized(forms, text) != text
            added += any(string in text for string in ours.preparation.added_tokens)
    assert added > 15
    assert changed > 15 or not forms


@pytest.mark.parametrize("forms", [("NFC",), ("NFD", "NFKC"), ()])
def test_batches_streams_and_sizes_are_those_of_single_texts(forms, trained):
    rng = random.Random(7)
    for _ in range(3):
        _, ours = imported(trained, rng, forms)
        batch = [generated(rng) for _ in range(30)] + texts.english()[1][:2]
        for allowed in ("all", frozenset(list(ours.special_tokens)[:1])):
            ids, offsets = ours.encode_batch(batch, allowed_special=allowed, threads=2)
            for text, (start, end) in zip(batch, pairwise(offsets), strict=True):
                whole = ours.encode(text, allowed_special=allowed, disallowed_special=())
                assert ids[start:end].tolist() == whole
                short = text[:300]
                cuts = sorted(rng.randint(0, len(short)) for _ in range(6))
                parts = [short[a:b] for a, b in pairwise([0, *cuts, len(short)])]
                streamed = np.concatenate([*ours.encode_iter(parts, allowed_special=allowed), np.empty(0, np.uint32)])
                assert streamed.tolist() == ours.encode(short, allowed_special=allowed, disallowed_special=())
        lengths = ours.token_byte_lengths().astype(np.uint32)
        stream = ours.encode_stream(Batch.from_texts(batch), 0, lengths, narrow=False)
        decoded = [ours.decode(ours.encode_ordinary(text)) for text in batch]
        assert stream.spelled.tolist() == [len(text.encode()) for text in decoded]
        if forms:
            assert stream.expected.tolist() == stream.spelled.tolist()
            assert stream.changed.tolist() == [one != other for one, other in zip(decoded, batch, strict=True)]


def test_imported_settings_survive_in_our_folders_and_in_hf(trained, tmp_path):
    rng = random.Random(3)
    for number, forms in enumerate(SEQUENCES):
        theirs, ours = imported(trained, rng, forms)
        ours.save(tmp_path / str(number))
        loaded = Tokenizer.load(tmp_path / str(number))
        assert (loaded.sha256, loaded.preparation) == (ours.sha256, ours.preparation)
        again = tokenizers.Tokenizer.from_file(str(tmp_path / str(number) / "tokenizer.json"))
        longer = ours.extended([(ours.byte_ids[0], ours.byte_ids[1])])
        assert longer.preparation == ours.preparation
        for text in [generated(rng) for _ in range(50)]:
            assert again.encode(text).ids == theirs.encode(text).ids
            assert loaded.encode_ordinary(text) == ours.encode_ordinary(text)


def test_tables_equal_hf_and_the_standard():
    """HF's crate has Unicode 9.0: it leaves what came later alone, which Python's tables (14 and up) do not."""
    planes = [range(0x20000), range(0x2F7F0, 0x2FA30), range(0xE0000, 0xE0200)]
    joined = "\n".join(chr(i) for plane in planes for i in plane if not 0xD800 <= i < 0xE000 and i != 10)
    later = {}
    for form in FORMS:
        ours = normalized([form], joined)
        assert ours == getattr(tokenizers.normalizers, form)().normalize_str(joined)
        rows = zip(joined.split("\n"), ours.split("\n"), unicodedata.normalize(form, joined).split("\n"), strict=True)
        later[form] = [c for c, one, other in rows if one != other]
        assert normalized([form], "\n".join(later[form])) == "\n".join(later[form])
    assert len(later["NFC"]) <= 2, later["NFC"]
    # Letters of historic scripts, and compatibility forms as U+32FF, the square name of the era Reiwa (Unicode 12.1).
    assert "\u32ff" in later["NFKC"]
    assert all(ord(c) > 0x10000 or c in "\u32ff\ua69c\uab69\ua7f2\ua7f3\ua7f4" for c in later["NFKC"]), later
