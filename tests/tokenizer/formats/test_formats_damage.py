"""Files that are forged, hold nonsense or exist already."""

import errno
import itertools
import json
import os

import pytest

from tests.tokenizer.formats.other_formats import added, edit, forge, hf_file, sequence, split, write_gpt2
from tokenizer import Tokenizer, UserError, definition, formats
from tokenizer.formats import hf_import, tiktoken

BYTES = {bytes([i]): i for i in range(256)}


# Ids.


@pytest.mark.parametrize("rank", [-1, 1 << 24, (1 << 32) + 256, 1 << 63, "2_56", "+256", "-1", "２５６"])
def test_ranks_are_digits_in_range(rank, tmp_path):
    (tmp_path / "x.tiktoken").write_text(f"YWI= {rank}\n", encoding="utf-8")
    if isinstance(rank, int):
        with pytest.raises(UserError, match=f"the rank {rank} of b'ab' is out of range"):
            Tokenizer(*tiktoken.from_ranks(BYTES | {b"ab": rank}, pattern="gpt2"))
    else:
        with pytest.raises(UserError, match=r"line 1: .* is not a base64 token and its rank"):
            tiktoken.parse(tmp_path / "x.tiktoken")


@pytest.mark.parametrize("token_id", [1 << 24, 1 << 32, 1 << 64, -1, True, 97])
def test_ids_out_of_range_or_of_two_tokens_are_rejected(token_id, trained, tmp_path):
    taken, wrong = r".* and 'x.*' both have the id 97", "an id is not a whole number from 0 to"
    message = taken if token_id == 97 else wrong
    write_gpt2(trained["gpt2"], tmp_path / "gpt2")
    edit(tmp_path / "gpt2" / "vocab.json", lambda vocab: vocab.update({"xĠthe": token_id}))
    with pytest.raises(UserError, match=rf"vocab\.json is damaged: {message}"):
        Tokenizer.from_file(tmp_path / "gpt2")
    file = hf_file(tmp_path)
    edit(file, lambda content: content["model"]["vocab"].update(xyz=token_id))
    with pytest.raises(UserError, match=rf"tokenizer\.json is damaged: {message}"):
        Tokenizer.from_file(file)


# Strings.


def test_half_a_surrogate_pair_is_rejected(trained, tmp_path):
    write_gpt2(trained["gpt2"], tmp_path / "gpt2")
    edit(tmp_path / "gpt2" / "vocab.json", lambda vocab: vocab.update({"\ud800": 5000}))
    for read in (
        lambda: Tokenizer(*tiktoken.from_ranks(BYTES, pattern="gpt2", special_tokens={"\ud800": 256})),
        lambda: Tokenizer.from_file(hf_file(tmp_path, added_tokens=[added("<\ud800>", 260)])),
        lambda: Tokenizer.from_file(hf_file(tmp_path, pre_tokenizer=sequence(split("\udfff")))),
        lambda: Tokenizer.from_file(tmp_path / "gpt2"),
    ):
        with pytest.raises(UserError, match="lone surrogate"):
            read()
    whole = Tokenizer.from_file(hf_file(tmp_path, added_tokens=[added("<🙂>", 260)]))  # json writes it as a pair
    assert whole.special_tokens == {"<🙂>": 260}


@pytest.mark.parametrize("pattern", [5, ["gpt2"], {"a": 1}])
def test_a_pattern_that_is_no_string_is_rejected(pattern, trained, tmp_path):
    formats.write(trained["gpt2"], tmp_path / "x.tiktoken", "tiktoken")
    edit(tmp_path / "x.tiktoken.json", lambda about: about.update(pattern=pattern))
    with pytest.raises(UserError, match=r"the pattern .* is not a string"):
        Tokenizer.from_file(tmp_path / "x.tiktoken")


@pytest.mark.parametrize(
    "pattern", [{}, {"Regex": None}, {"Regex": ""}, {"String": 5}, {"Other": "a"}, {"Regex": "a", "String": "b"}, "a"]
)
def test_a_split_without_one_pattern_is_rejected(pattern, tmp_path):
    with pytest.raises(UserError, match="its Split has the pattern"):
        Tokenizer.from_file(hf_file(tmp_path, pre_tokenizer=sequence(split("", pattern=pattern))))


@pytest.mark.parametrize(
    ("written", "regex"), [("\\\n", r"\n"), ("a\nb", r"a\nb"), ("\\\\\n", r"\\\n"), ("\\s\n+", r"\s\n+")]
)
def test_line_feeds_in_a_regex_stay_line_feeds(written, regex, tmp_path):
    assert Tokenizer.from_file(hf_file(tmp_path, pre_tokenizer=sequence(split(written)))).pattern.regex == regex


# Special tokens that are names of text.


def test_a_special_token_that_names_text_is_rejected_where_merges_are_ignored(tmp_path):
    vocab = json.loads(hf_file(tmp_path).read_text())["model"]["vocab"] | {"Ġx": 260}
    parts = {"model_vocab": vocab, "added_tokens": [added("Ġx", 260)]}
    assert Tokenizer.from_file(hf_file(tmp_path, **parts)).encode(" x") == [32, 120]
    with pytest.raises(UserError, match=r"added token 'Ġx' .* spells b' x', and with ignore_merges"):
        Tokenizer.from_file(hf_file(tmp_path, **parts, model_ignore_merges=True))
    assert [definition.other_text(string) for string in ("<|endoftext|>", "日", "a", "Ġx")] == [None] * 3 + [b" x"]
    # The id makes tokenizer.json list it in the model's vocabulary, too.
    ours = Tokenizer(*tiktoken.from_ranks(BYTES | {b"ab": 300}, pattern="gpt2", special_tokens={"Ġx": 256}))
    with pytest.raises(UserError, match=r"added token 'Ġx' .* spells b' x', and with ignore_merges"):
        formats.hf_json(ours)


def test_a_special_token_that_is_a_whole_pretoken_is_rejected_where_merges_are_ignored(tmp_path):
    """HF gives its id to the pretoken, even with encode_special_tokens; `<s>` is always cut by the pattern."""
    vocab = json.loads(hf_file(tmp_path).read_text())["model"]["vocab"] | {"<s>": 260, "end": 261}
    parts = {"model_vocab": vocab, "model_ignore_merges": True}
    assert Tokenizer.from_file(hf_file(tmp_path, **parts, added_tokens=[added("<s>", 260)])).encode_ordinary("<s>")
    with pytest.raises(UserError, match=r"special token 'end' .*ignore_merges"):
        Tokenizer.from_file(hf_file(tmp_path, **parts, added_tokens=[added("end", 261)]))
    ours = Tokenizer(*tiktoken.from_ranks(BYTES | {b"ab": 300}, pattern="gpt2", special_tokens={"end": 256}))
    with pytest.raises(UserError, match=r"cannot be written as tokenizer\.json: its special token 'end'"):
        formats.hf_json(ours)


# Provenance decides no ids.

FORGED = {
    "normalizer": {"normalizer": {"type": "Lowercase"}},
    "pre-tokenizer": {"pattern": r"\p{L}+", "pre_tokenizer": sequence(split("[b]"))},
    "damaged pre-tokenizer": {"pre_tokenizer": {"type": "Split"}},
    "dropout": {"model": {"type": "BPE", "dropout": 0.5}},
    "prefix": {"model": {"continuing_subword_prefix": "##", "end_of_word_suffix": "</w>", "type": "WordPiece"}},
    "ignore_merges": {"model": {"ignore_merges": True, "other": 1}},
    "stripping": {"added_tokens": {"<s>": {"lstrip": True, "rstrip": True, "single_word": True}}},
    "other token": {"added_tokens": {"<s>": {"id": 5, "content": "a"}}},
    "overlap": {"added_tokens": {"<s>": {"normalized": True}}},
    "other types": {"added_tokens": [1], "model": 5, "specials_in_vocab": 3, "normalizer": "NFC", "pre_tokenizer": 1},
    "no object": 7,
}


@pytest.mark.parametrize("what", FORGED)
def test_forged_provenance_does_not_change_tokenizer_json(what, tmp_path):
    specials = [added("<s>", 260), added("<s><s>", 261)]
    plain = Tokenizer.from_file(hf_file(tmp_path, pre_tokenizer=sequence(split(r"\p{L}+")), added_tokens=specials))
    plain.save(tmp_path / "a")
    part = FORGED[what]
    change = {"tokenizer.json": part if isinstance(part, int) else plain.provenance["tokenizer.json"] | part}
    forge(tmp_path / "a", lambda about: about["provenance"].update(change))
    loaded = Tokenizer.load(tmp_path / "a")
    assert loaded.sha256 == plain.sha256
    again = Tokenizer(*hf_import.parse(formats.hf_json(loaded)))
    assert again.sha256 == plain.sha256
    written = formats.hf_json(loaded)
    assert written["normalizer"] is None
    assert set(written["model"]) <= {"type", "vocab", "merges", "ignore_merges", *formats.hf.MODEL}
    assert not written["model"].get("ignore_merges")


# Files that are there.


@pytest.mark.parametrize(("kind", "name"), [("hf", ""), ("hf", "x.json"), ("tiktoken", "x.tiktoken")])
def test_files_are_not_overwritten(kind, name, trained, tmp_path):
    written = formats.write(trained["gpt2"], tmp_path / name, kind)
    written[0].unlink()
    if len(written) > 1:
        written[1].write_text('{"chat_template": "mine"}')
    else:
        written[0].write_text("mine")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match="already exists; name a new"):
        formats.write(trained["gpt2"], tmp_path / name, kind)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_save_that_fails_leaves_the_folder_as_it_was(failing, trained, tmp_path, monkeypatch):
    trained["superwords"].save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    synced = itertools.count(1)

    def full(_):
        if next(synced) == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        trained["gpt2"].save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
