"""Trimmed tokenizers encode text as before if all of its tokens stay, whatever family they are of."""

import json

import numpy as np
import pytest
from hypothesis import strategies as st

from tests import texts
from tests.generated import ONE_PASS, TWO_PASS, by_definition, hf, several_derivations, spelled
from tests.properties import examples
from tests.tokenizer.formats.other_formats import added, edit, hf_file
from tokenizer import Batch, Tokenizer, UserError, patterns
from tokenizer.corpus.seen import saw
from tokenizer.definition import ALPHABET
from tokenizer.formats import carried
from tokenizer.trim import count_ids, trim


def _slowly(tokenizer, counts, n_removed, keep):
    """Ids that are left after removing one leaf after the other, by the definition; and how many must stay."""
    definition, counts = tokenizer.definition, list(counts)
    live = definition.merge_ids[definition.encoder.live_merges()].tolist()
    kept = {i for i, token in enumerate(tokenizer.vocab) if token}
    stay = {
        *keep,
        *definition.byte_ids,
        *definition.special_tokens.values(),
        *definition.preparation.added_tokens.values(),
    }
    for _ in live:
        stay |= {part for left, right, new in live if new in stay for part in (left, right)}
    for _ in range(n_removed):
        parts = {part for left, right, new in live if new in kept for part in (left, right)}
        _, least = min((counts[i], -i) for i in kept - parts - stay)
        kept.remove(-least)
        for left, right, _ in [merge for merge in live if merge[2] == -least][:1]:
            counts[left] += counts[-least]
            counts[right] += counts[-least]
    return sorted(kept), len(stay)


def _same(tokenizer, trimmed, text):
    """Whether all tokens of the text were kept; if so, they are the same."""
    before = tokenizer.encode_ordinary(text)
    if not {*before} <= {*trimmed.old_ids.tolist()}:
        return False
    assert trimmed.old_ids[trimmed.tokenizer.encode_ordinary(text)].tolist() == before
    return True


def test_the_count_of_a_removed_token_goes_to_its_parts():
    byte = {bytes([value]): rank for rank, value in enumerate(ALPHABET)}
    merges = [(byte[b"a"], byte[b"b"]), (256, byte[b"c"]), (byte[b"x"], byte[b"y"])]
    tokenizer = Tokenizer.from_ranks(merges, pattern=patterns.resolve("gpt2"), special_tokens=())
    counts = np.zeros(259, int)
    counts[256:] = 2, 2, 3  # ab, abc, xy: without abc, ab occurs four times
    assert trim(tokenizer, counts, vocab_size=257).tokenizer.vocab[256:] == [b"ab"]


@examples(
    6,
    60,
    rng=st.randoms(use_true_random=False),
    samples=st.lists(st.text(alphabet="aab  .1\néè", max_size=30), min_size=1, max_size=6),
)
def test_any_tokenizer_keeps_what_it_needs(rng, samples):
    tokenizer = several_derivations(rng)
    counts = np.array([rng.choice([0, 0, 1, 2, 9]) for _ in tokenizer.vocab])
    keep = [i for i, token in enumerate(tokenizer.vocab) if token and rng.random() < 0.05]
    most = sum(map(bool, tokenizer.vocab))
    _, least = _slowly(tokenizer, counts, 0, keep)
    with pytest.raises(UserError, match=f"vocab_size={least - 1} must be from {least} "):
        trim(tokenizer, counts, vocab_size=least - 1, keep=keep)
    size = rng.randint(least, most)
    trimmed = trim(tokenizer, counts, vocab_size=size, keep=keep)
    small, old_ids = trimmed.tokenizer, trimmed.old_ids
    assert old_ids.tolist() == _slowly(tokenizer, counts.tolist(), most - size, keep)[0]
    assert small.vocab == [tokenizer.vocab[i] for i in old_ids.tolist()]
    live = tokenizer.definition.encoder.live_merges()
    left = live[np.isin(tokenizer.merge_ids[live, 2], old_ids)]
    np.testing.assert_array_equal(old_ids[small.merge_ids], tokenizer.merge_ids[left])
    assert small.n_phase1_merges == (left < tokenizer.n_phase1_merges).sum()
    assert old_ids[[*small.byte_ids]].tolist() == [*tokenizer.byte_ids]
    for was, now in (
        (tokenizer.special_tokens, small.special_tokens),
        (tokenizer.preparation.added_tokens, small.preparation.added_tokens),
    ):
        assert {string: old_ids[i] for string, i in now.items()} == was
    assert (small.mode, small.fence, small.vocab_size) == (tokenizer.mode, tokenizer.fence, size)
    for text in samples:
        _same(tokenizer, trimmed, text)
        ids = small.encode_ordinary(text)
        if not (small.ignore_merges or small.preparation):
            assert spelled(small, ids) == by_definition(small, text)
        if (theirs := hf(small)) is not None:
            assert theirs.encode(text).ids == ids
    # What occurs stays, so these texts cost nothing.
    unused = trim(tokenizer, count_ids(tokenizer, samples).counts) if any(samples) else trimmed
    assert all(_same(tokenizer, unused, text) for text in samples) or not any(samples)


@pytest.mark.parametrize("name", ONE_PASS + TWO_PASS)
def test_trained_tokenizers_encode_what_they_were_trimmed_for_as_before(name, trained):
    tokenizer, documents = trained[name], [*texts.english()[1][:20], texts.code()[:2000]]
    counted = count_ids(tokenizer, documents, threads=2)
    ids, _ = tokenizer.encode_batch(documents)
    np.testing.assert_array_equal(counted.counts, np.bincount(ids, minlength=1200))
    assert counted.n_bytes == sum(len(document.encode()) for document in documents)
    trimmed = trim(tokenizer, counted.counts, read=counted.read)
    small = trimmed.tokenizer
    assert 300 < small.vocab_size < 1150
    assert all(_same(tokenizer, trimmed, text) for text in documents)
    assert small.definition.has_own_layout() == tokenizer.definition.has_own_layout()
    assert small.ranks().shape == (small.vocab_size - 257, 2)
    unused = {small.vocab[i] for i in np.flatnonzero(count_ids(small, documents).counts == 0).tolist()}
    parts = {part for merge in small.merges for part in merge}
    assert unused <= {*parts, *(bytes([byte]) for byte in range(256)), b"<|endoftext|>"}
    # The price is seen only where a token was removed, and the smallest size is bytes and special tokens.
    least = trim(tokenizer, counted.counts, vocab_size=257).tokenizer
    assert least.decode_bytes(least.encode_ordinary(documents[0])) == documents[0].encode()
    assert len(least.encode_ordinary(documents[0])) == len(documents[0].encode())
    assert trim(tokenizer, counted.counts, least_count=0).tokenizer == tokenizer


@pytest.mark.parametrize("name", ["gpt2", "superwords", "two_pass"])
def test_a_trimmed_tokenizer_is_saved_and_remembers_its_text(name, trained, tmp_path):
    documents = texts.english()[1][:5]
    counted = count_ids(trained[name], documents)
    small = trim(trained[name], counted.counts, vocab_size=700, read=counted.read).tokenizer
    small.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again, again.vocab_size) == (small, 700)
    assert again.provenance["trimmed"] == {"from": trained[name].sha256, "vocab_size": 1200}
    hashes = Batch.from_texts([documents[0], "another text"]).hashes()
    assert saw(again, hashes, None).seen.tolist() == [True, False]
    assert (tmp_path / "tokenizer.json").exists() == (name != "two_pass")


def test_whole_pretokens_stay_or_go_with_their_own_counts(tmp_path):
    """Tokens that no merge makes, as in Llama 3, and one whose merge never applies."""
    path = hf_file(tmp_path, model_ignore_merges=True)
    tokenizer = Tokenizer.from_file(path)
    edit(path, lambda content: content["model"]["merges"].reverse())  # now `b c` is first, and `ab c` never applies
    reverse = Tokenizer.from_file(path)
    for each, parts in ((tokenizer, [b"ab", b"abc"]), (reverse, [b"ab", b"abc"])):
        counts = count_ids(each, ["abc abc", "abc", "x"]).counts
        trimmed = trim(each, counts)
        assert set(parts) <= set(trimmed.tokenizer.vocab)
        assert b"xyz" not in trimmed.tokenizer.vocab
        assert all(_same(each, trimmed, text) for text in ("abc", "abc abc", "ab", "x.abc"))
    trimmed = trim(tokenizer, count_ids(tokenizer, ["xyz"]).counts)
    assert trimmed.tokenizer.vocab[256:] == [b"xyz"]
    assert _same(tokenizer, trimmed, "xyz")


def test_ids_beside_the_definition_change_too(tmp_path):
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}], "pair": []}
    template["special_tokens"] = {"<s>": {"id": "<s>", "ids": [260], "tokens": ["<s>"]}}
    processor = {"type": "Sequence", "processors": [template, {"type": "ByteLevel", "trim_offsets": True}]}
    padding = {"strategy": "BatchLongest", "pad_id": 260, "pad_type_id": 0, "pad_token": "<s>"}
    parts = {"added_tokens": [added("<s>", 260)], "post_processor": processor, "padding": padding}
    path = hf_file(tmp_path, **parts)
    generation = {"eos_token_id": [260, 258], "suppress_tokens": [98], "pad_token_id": -1, "top_k": 258}
    generation |= {"forced_decoder_ids": [[258, 260]], "lang_to_id": {"<s>": 260}}
    generation |= {"sequence_bias": [[[260, 258], 258], [[260], -1.5]], "bad_words_ids": [[260, 258]]}
    (tmp_path / carried.GENERATION_FILE).write_text(json.dumps(generation))
    with pytest.warns(UserWarning, match="kept for export"):
        tokenizer = Tokenizer.from_file(path)
    trimmed = trim(tokenizer, np.zeros(261, np.int64))
    assert trimmed.old_ids.tolist() == [*range(256), 258, 260]
    trimmed.tokenizer.save(tmp_path / "small")
    written = json.loads((tmp_path / "small" / "tokenizer.json").read_text())
    assert written["post_processor"]["processors"][0]["special_tokens"]["<s>"]["ids"] == [257]
    assert written["padding"] == padding | {"pad_id": 257}
    assert written["added_tokens"] == [added("<s>", 257)]
    changed = {"eos_token_id": [257, 256], "forced_decoder_ids": [[258, 257]], "lang_to_id": {"<s>": 257}}
    changed |= {"sequence_bias": [[[257, 256], 258], [[257], -1.5]], "bad_words_ids": [[257, 256]]}
    assert json.loads((tmp_path / "small" / carried.GENERATION_FILE).read_text()) == generation | changed
    # A file that names no token cannot get new ids.
    (tmp_path / carried.GENERATION_FILE).write_text('{"eos_token_id": 5000}')
    with pytest.warns(UserWarning, match="kept for export"):
        tokenizer = Tokenizer.from_file(path)
    found = carried.carried(trim(tokenizer, np.zeros(261, np.int64)).tokenizer)
    assert carried.GENERATION_FILE not in found.files
    assert f"{carried.GENERATION_FILE}, which names the id 5000, but no token has it" in found.left
    edit(path, lambda content: content["padding"].update(pad_id=5000))
    with pytest.warns(UserWarning, match="kept for export"):
        tokenizer = Tokenizer.from_file(path)
    with pytest.raises(UserError, match=r"padding.* 5000.*; correct"):
        trim(tokenizer, np.zeros(261, np.int64))


def test_mistakes_name_the_value_and_the_remedy(trained):
    tokenizer, zeros = trained["gpt2"], np.zeros(1200, np.int64)
    for counts, options, message in (
        (zeros, {"vocab_size": 256}, "vocab_size=256 must be from 257 .*added tokens.* to 1200"),
        (zeros, {"vocab_size": 1201}, "vocab_size=1201 must be from 257 .* to 1200"),
        (zeros, {"vocab_size": 300, "least_count": 1}, "exclude each other; use one"),
        (zeros, {"least_count": -1}, "least_count=-1 must be at least 0"),
        (zeros[1:], {}, r"counts of shape \[1199\].*1200 ids.*count_ids"),
        (zeros - 1, {}, "not occurrences of the 1200 ids"),
        (zeros + 0.5, {}, "float64 are not occurrences"),
    ):
        with pytest.raises(UserError, match=message):
            trim(tokenizer, counts, **options)
    with pytest.raises(UserError, match="the text is empty; name files"):
        count_ids(tokenizer, [])
    kept = trim(tokenizer, zeros, keep=[1100])
    assert kept.tokenizer.encode_ordinary(tokenizer.decode([1100])) == [kept.old_ids.tolist().index(1100)]
