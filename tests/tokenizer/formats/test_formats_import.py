"""Reading and writing other programs' files: round trips, and what the files mean."""

import base64
import itertools
import json
import re

import numpy as np
import pytest

from superbpe import train_superbpe
from tests import texts
from tests.generated import ONE_PASS
from tests.properties import quick_first
from tests.tokenizer.formats.other_formats import added, hf_file, sequence, split, write_gpt2
from tokenizer import Tokenizer, UserError, formats, patterns, train_bpe
from tokenizer.definition import ALPHABET, printable, unprintable
from tokenizer.formats import gpt2, tiktoken


def test_the_alphabet_has_an_inverse():
    every = bytes(range(256))
    assert unprintable(printable(every)) == every
    assert unprintable("Ġthe") == b" the"
    for name in (" ", "the end", "日", "\x00", "ŀ\xad", "\x7f"):
        assert unprintable(name) is None
    assert printable(b" the\n\x00\xff") == "ĠtheĊĀÿ"
    assert len({printable(bytes([byte])) for byte in range(256)}) == 256
    assert ALPHABET[0] == ord("!")
    assert sorted(ALPHABET) == list(every)


# Round trips.


@pytest.mark.parametrize(("kind", "file"), [("hf", "ours.json"), ("tiktoken", "ours.tiktoken")])
@pytest.mark.parametrize("name", ONE_PASS)
def test_files_of_other_programs_round_trip(name, kind, file, trained, tmp_path):
    ours = trained[name]
    formats.write(ours, tmp_path / file, kind)
    again = Tokenizer.from_file(tmp_path / file)
    assert (again.vocab, again.merges, again.special_tokens) == (ours.vocab, ours.merges, ours.special_tokens)
    assert again.pattern == (ours.fence or ours.pattern)
    for path in formats.write(again, tmp_path / "again" / file, kind):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()
    documents = [*texts.various(), *texts.english()[1]]
    np.testing.assert_array_equal(again.encode_batch(documents)[0], ours.encode_batch(documents)[0])


@pytest.mark.parametrize(
    ("name", "header"),
    list(zip(ONE_PASS, itertools.cycle(["", "#version: 0.2\n", "#version: 0.2 - by a library\n"]), strict=False)),
)
def test_gpt2_files_are_read(name, header, trained, tmp_path):
    ours = trained[name]
    cut = ours.fence or ours.pattern
    write_gpt2(ours, tmp_path, header)
    expected = Tokenizer.from_ranks(ours.ranks(), pattern=cut, special_tokens=["<|endoftext|>"]).sha256
    for path in (tmp_path, tmp_path / "vocab.json"):
        assert Tokenizer.from_file(path, pattern=cut).sha256 == expected
    # GPT-2's first names of the files.
    (tmp_path / "vocab.json").rename(tmp_path / "encoder.json")
    (tmp_path / "merges.txt").rename(tmp_path / "vocab.bpe")
    for path in (tmp_path, tmp_path / "encoder.json", tmp_path / "vocab.bpe"):
        assert Tokenizer.from_file(path, pattern=cut).sha256 == expected


PHASE1 = [name for name in patterns.NAMES if not name.endswith("-fence")]


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
@pytest.mark.parametrize("name", quick_first(["rules digits", *ONE_PASS, *PHASE1], 6))
def test_the_default_of_gpt2_files_is_checked(name, trained, tmp_path):
    """Merges that fit GPT-2's pattern are read; otherwise, the tokenizer's own pattern is among those that fit."""
    documents = [*texts.sample(200_000), texts.code(), *texts.various()]
    if name == "rules digits":
        ours = train_superbpe(train_bpe(documents, 500), documents, vocab_size=700, rules="digits", transition=400)
    else:
        ours = trained.get(name) or train_bpe(documents, 900, pattern=name)
    own = ours.fence or ours.pattern
    write_gpt2(ours, tmp_path)
    cut_by_own = {t for t in ours.vocab[256:-1] if gpt2._never_whole(t, own.regex or "none")}
    assert cut_by_own <= ({b"'s"} if ours.fence else set())
    alone = [t for t in ours.vocab[256:-1] if len(patterns.split(t.decode(errors="ignore"), "gpt2")) > 1]
    try:
        assert Tokenizer.from_file(tmp_path).pattern.name == "gpt2"
        assert len(alone) < 3
    except UserError as error:
        what = r"gpt2.* cuts (\d+) of .*pattern=NAME.*: (.*)"
        cut, fitting = re.search(what, str(error)).groups()
        assert 0.9 * len(alone) <= int(cut) <= len(alone)
        known = "llama3" if own.name == "spans" else own.name
        assert known in fitting.split(", ")
        assert name != "gpt2"
        again = Tokenizer.from_file(tmp_path, pattern=known.removesuffix("-fence"))
        assert again.encode_ordinary(documents[0]) == ours.encode_ordinary(documents[0])


def test_other_defaults_of_gpt2_files_are_checked(tmp_path):
    characters = [chr(i) for i in range(0x100, 0x144)] + [chr(i) for i in range(0x21, 0x100)]
    latin = ["café", "naïve", "über", "fête à", "señor"]  # characters that look like the byte alphabet
    merges = [(word[:i], word[i]) for word in latin for i in range(1, len(word)) if " " not in word]
    names = dict.fromkeys([*characters, *map("".join, merges)])
    (tmp_path / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (tmp_path / "merges.txt").write_text("".join(f"{left} {right}\n" for left, right in merges))
    with pytest.raises(UserError, match=r"cuts \d+ of .* first: none of them"):
        Tokenizer.from_file(tmp_path)
    low = [text.lower() for text in texts.sample(100_000)]
    write_gpt2(train_bpe(low, 1400, pattern="gpt2"), tmp_path)
    with pytest.warns(UserWarning, match="upper-case.*lower-case text"):
        Tokenizer.from_file(tmp_path)
    for setting in ("add_prefix_space", "do_lower_case"):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({setting: True}))
        with pytest.raises(UserError, match=f"vocab.json cannot be followed: .* has {setting}, which changes text"):
            Tokenizer.from_file(tmp_path)


@pytest.mark.parametrize("name", [*ONE_PASS, "two_pass"])
def test_our_folders_are_copied_exactly(name, trained, tmp_path):
    trained[name].save(tmp_path / "one")
    formats.write(Tokenizer.from_file(tmp_path / "one"), tmp_path / "two", "superbpe")
    for file in (tmp_path / "one").iterdir():
        assert (tmp_path / "two" / file.name).read_bytes() == file.read_bytes()
    with pytest.raises(UserError, match="already exists"):
        formats.write(trained[name], tmp_path / "two", "superbpe")


def test_imported_tokenizers_survive_in_our_folders(tmp_path):
    flags = [added("<s>", 260), added("<tool>", 261, special=False)]
    file = hf_file(tmp_path, added_tokens=flags, model_ignore_merges=True, model_merges=["a b", "ab c", "b c", "a bc"])
    tokenizer = Tokenizer.from_file(file)
    assert tokenizer.encode_ordinary("abc<tool><s>")[:2] == [257, 261]
    tokenizer.save(tmp_path / "folder")
    loaded = Tokenizer.load(tmp_path / "folder")
    assert loaded.sha256 == tokenizer.sha256
    assert (loaded.unmerged, loaded.ignore_merges) == ({b"xyz": 259}, True)
    assert loaded.encode_ordinary("xyz abc xyza") == tokenizer.encode_ordinary("xyz abc xyza")
    assert json.loads((tmp_path / "folder" / "superbpe.json").read_text())["version"] == 5
    assert len({Tokenizer.from_file(hf_file(tmp_path, model_ignore_merges=on)).sha256 for on in (True, False)}) == 2
    assert formats.hf_json(loaded)["added_tokens"] == flags


def test_files_keep_settings_that_do_not_change_ids(tmp_path):
    post = {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}
    file = hf_file(
        tmp_path,
        post_processor=post,
        truncation={"max_length": 9, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        added_tokens=[added("<unk>", 260, normalized=True)],
    )
    original = json.loads(file.read_text())
    written = formats.hf_json(Tokenizer.from_file(file))
    assert written | {"model": None} == original | {"model": None}


# What the files mean.


@pytest.mark.parametrize(
    ("pre_tokenizer", "pattern"),
    [
        (sequence(use_regex=True), "gpt2"),
        (sequence(), "none"),
        (sequence(split(r"\d+")), r"\d+"),
        (sequence(split(patterns.resolve("llama3").regex)), "llama3"),
        (sequence(split(patterns.resolve("llama3").regex, "Removed", invert=True)), "llama3"),
        (sequence(split(r" ?\p{L}+", invert=True)), r" ?\p{L}+"),
        (sequence({"type": "Digits", "individual_digits": True}), patterns.resolve("digits-fence").regex[:-1]),
        (
            sequence({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": False}]}),
            "digits-fence",
        ),
        (sequence(split("", pattern={"String": "a.b*\n"})), r"a\.b\*\n"),
    ],
)
def test_pre_tokenizers_become_patterns(pre_tokenizer, pattern, tmp_path):
    file = hf_file(tmp_path, pre_tokenizer=pre_tokenizer)
    assert Tokenizer.from_file(file).pattern == patterns.resolve(pattern)
    assert formats.hf_json(Tokenizer.from_file(file))["pre_tokenizer"] == pre_tokenizer


def test_whole_pretokens_become_tokens_where_merges_are_ignored(tmp_path):
    for ignoring in (False, True):
        tokenizer = Tokenizer.from_file(hf_file(tmp_path, model_ignore_merges=ignoring, model_merges=["b c", "ab c"]))
        whole = [259] if ignoring else [*b"xyz"]
        assert tokenizer.unmerged == {b"ab": 256, b"xyz": 259}
        assert tokenizer.encode("xyz") == whole
        assert tokenizer.encode("xyz1abc") == [*whole, ord("1"), *([257] if ignoring else [97, 258])]
        assert tokenizer.encode("xyzx" + "long" * 9) == [*b"xyzx", *b"long" * 9]
        assert tokenizer.decode([259]) == "xyz"


def test_the_empty_token_of_whispers_ranks_is_an_unused_id(tmp_path):
    ranks = [base64.b64encode(token).decode() for token in [*(bytes([i]) for i in range(256)), b"ab"]]
    lines = "".join(f"{token} {rank}\n" for rank, token in enumerate([*ranks, "="]))
    (tmp_path / "multilingual.tiktoken").write_text(lines)
    tokenizer = Tokenizer.from_file(tmp_path, pattern="gpt2", special_tokens={"<s>": 258})
    assert tokenizer.encode("ab<s>", allowed_special="all") == [256, 258]


def test_ids_may_have_gaps(tmp_path):
    ranks = {bytes([i]): i for i in range(256)} | {b"ab": 300}
    tokenizer = Tokenizer(*tiktoken.from_ranks(ranks, pattern="gpt2", special_tokens={"<s>": 400}))
    assert tokenizer.vocab_size == 401
    assert tokenizer.encode("ab<s>", allowed_special="all") == [300, 400]
    assert tokenizer.token_byte_lengths()[[300, 301, 400]].tolist() == [2, 0, 0]
    with pytest.raises(UserError, match="in a gap of the vocabulary"):
        tokenizer.decode([301])
    plain = Tokenizer(*tiktoken.from_ranks(ranks | {b"cd": 256, b"abc": 310}, pattern="gpt2"))
    assert plain.cut(257).vocab_size == 257
    for one in (tokenizer, plain):
        with pytest.raises(UserError, match=r"cannot be cut to 300: .* some are unused"):
            one.cut(300)
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).sha256 == tokenizer.sha256


def test_a_special_string_that_is_text_hides_the_added_tokens_inside_as_in_hf(tmp_path):
    tokens = [added("<xy>", 260), added("xy", 261, special=False)]
    tokenizer = Tokenizer.from_file(hf_file(tmp_path, added_tokens=tokens))
    assert tokenizer.encode("xy", disallowed_special=()) == [261]
    assert 261 not in tokenizer.encode("<xy>", disallowed_special=())
