"""Reading and writing other programs' files: round trips, refusals, sizes."""

import json

import numpy as np
import pytest

from experiments import export
from tests import texts
from tokenizer import Tokenizer, UserError, formats, patterns
from tokenizer.formats import printable, tiktoken, unprintable

ONE_PASS = ["gpt2", "llama3", "superbpe", "none", "superwords", "seed_superwords", "unfenced"]
TOKENS = {b"ab": 256, b"abc": 257, b"bc": 258, b"xyz": 259}  # nothing makes xyz


def hf_file(tmp_path, **change):
    """A small tokenizer.json; `change` replaces parts of it, `model_...` of its model."""
    model = {key[6:]: value for key, value in change.items() if key.startswith("model_")}
    vocab = {printable(bytes([i])): i for i in range(256)} | {printable(token): i for token, i in TOKENS.items()}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": ["a b", "ab c", "b c"], "ignore_merges": False} | model,
    } | {key: value for key, value in change.items() if not key.startswith("model_")}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    return path


def added(string, token_id, **flags):
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": token_id, "content": string} | plain | flags


def split(regex, behavior="Isolated", **change):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": False} | change


def sequence(*parts, use_regex=False):
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}
    return {"type": "Sequence", "pretokenizers": [*parts, byte_level]}


def test_the_alphabet_has_an_inverse():
    every = bytes(range(256))
    assert unprintable(printable(every)) == every
    assert unprintable("Ġthe") == b" the"
    for name in (" ", "the end", "日", "\x00", "ŀ\xad", "\x7f"):
        assert unprintable(name) is None


# Round trips.


@pytest.mark.parametrize("name", ONE_PASS)
def test_hf_files_give_the_tokenizer_again(name, trained, tmp_path):
    ours = trained[name]
    formats.write(ours, tmp_path / "one", "hf")
    again = formats.read(tmp_path / "one")
    assert (again.vocab, again.merges, again.special_tokens) == (ours.vocab, ours.merges, ours.special_tokens)
    assert again.pattern == (ours.fence or ours.pattern)
    formats.write(again, tmp_path / "two.json", "hf")
    assert (tmp_path / "two.json").read_bytes() == (tmp_path / "one" / "tokenizer.json").read_bytes()
    documents = [*texts.various(), *texts.english()[1]]
    np.testing.assert_array_equal(again.encode_batch(documents)[0], ours.encode_batch(documents)[0])


@pytest.mark.parametrize("name", ONE_PASS)
def test_gpt2_files_give_the_tokenizer_again(name, trained, tmp_path):
    ours = trained[name]
    cut = ours.fence or ours.pattern
    if name != "gpt2":
        with pytest.raises(UserError, match="hold no pattern, and programs take GPT-2's"):
            formats.write(ours, tmp_path / "two", "gpt2")
        assert not (tmp_path / "two").exists()
    formats.write(ours, tmp_path / "two", "gpt2", any_pattern=True)
    again = formats.read(tmp_path / "two", pattern=cut)
    assert again.sha256 == Tokenizer.from_ranks(ours.ranks(), pattern=cut, special_tokens=["<|endoftext|>"]).sha256
    body = (tmp_path / "two" / "merges.txt").read_text().removeprefix("#version: 0.2\n")
    for header in ("", "#version: 0.2\n", "#version: 0.2 - trained by a library\n"):
        (tmp_path / "two" / "merges.txt").write_text(header + body)
        read = formats.read(tmp_path / "two" / "vocab.json", pattern=cut)
        assert read.sha256 == again.sha256
        files = formats.gpt2.files(read, any_pattern=True)
        assert files["merges.txt"] == header + body
    assert json.loads(files["vocab.json"]) == json.loads((tmp_path / "two" / "vocab.json").read_text())


def test_gpt2s_first_names_are_known(trained, tmp_path):
    formats.write(trained["gpt2"], tmp_path, "gpt2")
    (tmp_path / "vocab.json").rename(tmp_path / "encoder.json")
    (tmp_path / "merges.txt").rename(tmp_path / "vocab.bpe")
    for path in (tmp_path, tmp_path / "encoder.json", tmp_path / "vocab.bpe"):
        assert Tokenizer.from_file(path).sha256 == trained["gpt2"].sha256


@pytest.mark.parametrize("name", ONE_PASS)
def test_tiktoken_files_give_the_tokenizer_again(name, trained, tmp_path):
    ours = trained[name]
    formats.write(ours, tmp_path / "ours.tiktoken", "tiktoken")
    again = formats.read(tmp_path / "ours.tiktoken")
    assert (again.vocab, again.merges, again.special_tokens) == (ours.vocab, ours.merges, ours.special_tokens)
    assert again.pattern == (ours.fence or ours.pattern)
    formats.write(again, tmp_path / "again.tiktoken", "tiktoken")
    for end in (".tiktoken", ".tiktoken.json"):
        assert (tmp_path / f"again{end}").read_bytes() == (tmp_path / f"ours{end}").read_bytes()
    documents = [*texts.various(), *texts.english()[1]]
    np.testing.assert_array_equal(again.encode_batch(documents)[0], ours.encode_batch(documents)[0])


@pytest.mark.parametrize("name", [*ONE_PASS, "two_pass"])
def test_our_folders_are_copied_exactly(name, trained, tmp_path):
    trained[name].save(tmp_path / "one")
    formats.write(formats.read(tmp_path / "one"), tmp_path / "two", "superbpe")
    for file in (tmp_path / "one").iterdir():
        assert (tmp_path / "two" / file.name).read_bytes() == file.read_bytes()
    with pytest.raises(UserError, match="exists already"):
        formats.write(trained[name], tmp_path / "two", "superbpe")


def test_imported_tokenizers_survive_in_our_folders(tmp_path):
    flags = [added("<s>", 260), added("<tool>", 261, special=False)]
    file = hf_file(tmp_path, added_tokens=flags, model_ignore_merges=True, model_merges=["a b", "ab c", "b c", "a bc"])
    tokenizer = formats.read(file)
    assert tokenizer.encode_ordinary("abc<tool><s>")[:2] == [257, 261]
    tokenizer.save(tmp_path / "folder")
    loaded = Tokenizer.load(tmp_path / "folder")
    assert loaded.sha256 == tokenizer.sha256
    assert (loaded.unmerged, loaded.ignore_merges) == ({b"xyz": 259}, True)
    assert loaded.encode_ordinary("xyz abc xyza") == tokenizer.encode_ordinary("xyz abc xyza")
    assert json.loads((tmp_path / "folder" / "superbpe.json").read_text())["version"] == 4
    assert len({formats.read(hf_file(tmp_path, model_ignore_merges=on)).sha256 for on in (True, False)}) == 2
    assert formats.hf_json(loaded)["added_tokens"] == flags


def test_files_keep_what_decides_no_ids(tmp_path):
    post = {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}
    known = {"dropout": None, "unk_token": "<unk>", "fuse_unk": True, "continuing_subword_prefix": ""}
    file = hf_file(
        tmp_path,
        version="1.0",
        post_processor=post,
        truncation={"max_length": 9, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        added_tokens=[added("<unk>", 260, normalized=True)],
        **{f"model_{key}": value for key, value in known.items()},
    )
    original = json.loads(file.read_text())
    written = formats.hf_json(formats.read(file))
    assert written == original


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
        (sequence({"type": "Digits", "individual_digits": True}), r"\p{N}"),
        (sequence({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": False}]}), r"\p{N}+"),
        (sequence(split("", pattern={"String": "a.b*\n"})), r"a\.b\*\n"),
    ],
)
def test_pre_tokenizers_become_patterns(pre_tokenizer, pattern, tmp_path):
    file = hf_file(tmp_path, pre_tokenizer=pre_tokenizer)
    assert formats.read(file).pattern == patterns.resolve(pattern)
    assert formats.hf_json(formats.read(file))["pre_tokenizer"] == pre_tokenizer


def test_whole_pretokens_become_tokens_where_merges_are_ignored(tmp_path):
    for ignoring in (False, True):
        tokenizer = formats.read(hf_file(tmp_path, model_ignore_merges=ignoring, model_merges=["b c", "ab c"]))
        whole = [259] if ignoring else [*b"xyz"]
        assert tokenizer.unmerged == {b"ab": 256, b"xyz": 259}
        assert tokenizer.encode("xyz") == whole
        assert tokenizer.encode("xyz1abc") == [*whole, ord("1"), *([257] if ignoring else [97, 258])]
        assert tokenizer.encode("xyzx" + "long" * 9) == [*b"xyzx", *b"long" * 9]
        assert tokenizer.decode([259]) == "xyz"


def test_of_a_repeated_pair_the_last_rank_counts(tmp_path):
    merges = ["a b", "b c", "a b"]
    tokenizer = formats.read(hf_file(tmp_path, model_merges=merges))
    assert tokenizer.encode("abc") == [97, 258]
    assert formats.hf_json(tokenizer)["model"]["merges"] == merges


def test_ids_may_have_gaps(tmp_path):
    ranks = {bytes([i]): i for i in range(256)} | {b"ab": 300}
    tokenizer = tiktoken.from_ranks(ranks, pattern="gpt2", special_tokens={"<s>": 400})
    assert tokenizer.vocab_size == 401
    assert tokenizer.encode("ab<s>", allowed_special="all") == [300, 400]
    assert tokenizer.token_byte_lengths()[[300, 301, 400]].tolist() == [2, 0, 0]
    with pytest.raises(UserError, match="in a gap of the vocabulary"):
        tokenizer.decode([301])
    with pytest.raises(UserError, match="cannot be cut: there are unused ids"):
        tokenizer.cut(300)
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).sha256 == tokenizer.sha256


# What is refused, by name.

REFUSED = {
    "WordPiece": ({"model": {"type": "WordPiece", "vocab": {}}}, "no BPE tokenizer but WordPiece"),
    "Unigram": ({"model": {"type": "Unigram", "vocab": []}}, "no BPE tokenizer but Unigram"),
    "prefix": ({"model_continuing_subword_prefix": "##"}, "continuing_subword_prefix is '##'"),
    "suffix": ({"model_end_of_word_suffix": "</w>"}, "end_of_word_suffix is '</w>'"),
    "dropout": ({"model_dropout": 0.1}, r"dropout of 0\.1 .*ignore=\{'dropout'\}"),
    "option": ({"model_novel": 1}, "model option 'novel' that is not known"),
    "Lowercase": (
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}},
        r"normalizer NFC \+ Lowercase changes text .*NFC, NFD, NFKC, NFKD are followed.*ignore=\{'normalizer'\}",
    ),
    "no pre-tokenizer": ({"pre_tokenizer": None}, "no ByteLevel pre-tokenizer"),
    "Metaspace": ({"pre_tokenizer": sequence({"type": "Metaspace"})}, "pre-tokenizer Metaspace is not supported"),
    "prefix space": (
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False}},
        "add_prefix_space",
    ),
    "late split": (
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [sequence(), split("a")]}},
        "Split after ByteLevel cuts the byte alphabet",
    ),
    "behavior": ({"pre_tokenizer": sequence(split("a", "MergedWithNext"))}, "behavior MergedWithNext; Isolated is"),
    "removed": ({"pre_tokenizer": sequence(split("a", "Removed", invert=True))}, "it may drop text"),
    "regex": ({"pre_tokenizer": sequence(split(r"\w+"))}, r"may read '\\\\w' .*ignore=\{'regex'\}"),
    "not bytes": ({"model_vocab": {"▁a": 0}, "model_merges": []}, "'▁a' is not in the byte alphabet"),
    "few bytes": ({"model_vocab": {"a": 0}, "model_merges": []}, "not byte-level: byte 0 is no token"),
    "unknown merge": ({"model_merges": ["a z"]}, "merge 0, 'a' and 'z', is not of its vocabulary"),
    "merge of three": ({"model_merges": ["a b c"]}, "merge 0 is 'a b c'"),
    "lstrip": ({"added_tokens": [added("<m>", 260, lstrip=True)]}, r"'<m>' has lstrip; pass ignore=\{'lstrip'\}"),
    "single_word": ({"added_tokens": [added("<m>", 260, single_word=True)]}, "'<m>' has single_word"),
    "normalized": (
        {"normalizer": {"type": "NFD"}, "added_tokens": [added("éé", 260, normalized=True)]},
        r"'éé' is normalized, and found where text becomes 'e.e.'; pass ignore=\{'normalized'\}",
    ),
    "added id": ({"added_tokens": [added("<m>", 300)]}, "'<m>' has id 300, not 260"),
    "ordinary token": ({"added_tokens": [added("ab", 256)]}, "merge 0, 'a' and 'b', is not of its vocabulary"),
    "damage": ({"model_vocab": {"a": "x"}}, "an id is not a whole number"),
    "no content": ({"added_tokens": [{"id": 260}]}, "is damaged"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_followed_is_refused_by_name(what, tmp_path):
    change, message = REFUSED[what]
    with pytest.raises(UserError, match=message):
        formats.read(hf_file(tmp_path, **change))


def test_parts_can_be_ignored_and_that_is_recorded(tmp_path):
    file = hf_file(
        tmp_path,
        normalizer={"type": "Lowercase"},
        model_dropout=0.1,
        added_tokens=[added("<m>", 260, lstrip=True)],
        pre_tokenizer=sequence(split(r"\w+")),
    )
    with pytest.raises(UserError, match=r"ignore='nothing' is nothing that can be ignored; there are normalizer"):
        formats.read(file, ignore={"nothing"})
    tokenizer = formats.read(file, ignore={"normalizer", "dropout", "lstrip", "regex"})
    assert tokenizer.provenance["imported"]["ignored"] == ["dropout", "lstrip", "normalizer", "regex"]
    with pytest.raises(UserError, match="cannot be written as tokenizer"):
        formats.hf_json(tokenizer)
    file = hf_file(tmp_path, normalizer={"type": "Lowercase"}, model_dropout=0.1)
    written = formats.hf_json(formats.read(file, ignore={"normalizer", "dropout"}))
    assert (written["normalizer"], written["model"]["dropout"]) == (None, None)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("merges.txt", "a\n", "line 1: 'a' is not two tokens"),
        ("merges.txt", "#version: 0.2\na b\n\nĠ zz\n", "line 4: 'zz' is no token"),
        ("vocab.json", "{}", "byte 0 is no token"),
        ("vocab.json", '{"a": "b"}', "an id is not a whole number"),
        ("vocab.json", "[]", "not a JSON object"),
        ("vocab.json", "{", "is not JSON"),
    ],
)
def test_damaged_gpt2_files_are_refused(file, content, message, trained, tmp_path):
    formats.write(trained["gpt2"], tmp_path, "gpt2")
    (tmp_path / file).write_text(content)
    with pytest.raises(UserError, match=message):
        formats.read(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("YQ== 0\nYQ== 1\n", "line 2: the token b'a' is empty or there twice"),
        ("YQ==\n", "line 1: 'YQ==' is not a base64 token"),
        ("%% 3\n", "is not a base64 token"),
        ("YQ== x\n", "is not a base64 token"),
        ("YQ== 0\n", "byte 0 is no token"),
        ("\ufffd", "is not a base64"),
    ],
)
def test_damaged_ranks_are_refused(content, message, tmp_path):
    (tmp_path / "x.tiktoken").write_text(content)
    with pytest.raises(UserError, match=message):
        formats.read(tmp_path, pattern="gpt2")
    (tmp_path / "x.tiktoken").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not UTF-8"):
        formats.read(tmp_path, pattern="gpt2")


def test_arguments_of_another_format_and_unknown_paths_are_refused(trained, tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        formats.read(tmp_path / "none")
    with pytest.raises(UserError, match="holds no tokenizer: looked for superbpe"):
        formats.read(tmp_path)
    (tmp_path / "a.bin").write_text("")
    with pytest.raises(UserError, match=r"a\.bin is not known"):
        formats.read(tmp_path / "a.bin")
    trained["gpt2"].save(tmp_path / "ours")
    with pytest.raises(UserError, match="of the kind superbpe, which takes no pattern"):
        formats.read(tmp_path / "ours", pattern="gpt2")
    formats.write(trained["gpt2"], tmp_path / "x.tiktoken", "tiktoken")
    (tmp_path / "x.tiktoken.json").unlink()
    with pytest.raises(UserError, match="holds no pattern; pass pattern="):
        formats.read(tmp_path / "x.tiktoken")
    read = formats.read(tmp_path / "x.tiktoken", pattern="gpt2", special_tokens={"<|endoftext|>": 1199})
    assert read.vocab == trained["gpt2"].vocab
    for path, kind, message in [
        ("x", "tiktoken", "should end in .tiktoken"),
        ("x", "sentencepiece", "'sentencepiece' is not known; there are superbpe, hf"),
        ("a.bin", "hf", "is a file; name a folder"),
    ]:
        with pytest.raises(UserError, match=message):
            formats.write(trained["gpt2"], tmp_path / path, kind)
    with pytest.raises(UserError, match="any_pattern is for gpt2"):
        formats.write(trained["gpt2"], tmp_path / "y", "hf", any_pattern=True)


@pytest.mark.parametrize("kind", ["hf", "gpt2", "tiktoken"])
def test_two_pass_tokenizers_are_ours_alone(kind, trained, tmp_path):
    with pytest.raises(UserError, match="two-pass"):
        formats.write(trained["two_pass"], tmp_path / "x.tiktoken", kind)
    assert not list(tmp_path.iterdir())


def test_tiktoken_is_refused_where_its_ranks_would_mean_something_else(tmp_path):
    file = hf_file(tmp_path, model_merges=["b c", "a b"])
    with pytest.raises(UserError, match="b'ab' has a lower id than b'bc', which is merged before it"):
        tiktoken.export(formats.read(file))
    file = hf_file(tmp_path, model_merges=["a b", "b c"])
    with pytest.raises(UserError, match=r"merges leave b'abc' in two parts, which tiktoken would join"):
        tiktoken.export(formats.read(file))
    file = hf_file(tmp_path, model_merges=["a b", "ab c", "b c"])
    with pytest.raises(UserError, match=r"merges never make the token b'xyz', but tiktoken takes"):
        tiktoken.export(formats.read(file))
    file = hf_file(tmp_path, model_merges=["a b", "ab c", "a bc", "b c"], model_ignore_merges=True)
    assert len(tiktoken.export(formats.read(file))["mergeable_ranks"]) == 260
    file = hf_file(tmp_path, pre_tokenizer=sequence(split(r"(?=a)|b")), model_ignore_merges=True)
    with pytest.raises(UserError, match="can match nothing between two characters"):
        tiktoken.export(formats.read(file))


def test_special_strings_with_an_ordinary_tokens_name_are_refused(trained):
    plain = trained["gpt2"]
    clash = Tokenizer.from_ranks(plain.ranks(), pattern=plain.pattern, special_tokens=["Ġthe"])
    with pytest.raises(UserError, match="'Ġthe' is also how vocab"):
        formats.gpt2.files(clash)


# Other sizes.


def test_imported_tokenizers_are_cut_where_their_ids_allow(trained, tmp_path):
    hf = {printable(token): i for i, token in enumerate(trained["gpt2"].vocab[:1199])}
    bytes_backwards = {printable(bytes([i])): 255 - i for i in range(256)}
    vocab = dict(sorted((hf | bytes_backwards).items(), key=lambda item: item[1]))
    merges = [f"{printable(left)} {printable(right)}" for left, right in trained["gpt2"].merges]
    specials = [added("<s>", 1199), added("</s>", 1200)]
    whole = formats.read(hf_file(tmp_path, model_vocab=vocab, model_merges=merges, added_tokens=specials))
    cut = whole.cut(700)
    assert (cut.vocab_size, cut.special_tokens) == (700, {"<s>": 698, "</s>": 699})
    assert cut.vocab[:698] == whole.vocab[:698]
    assert cut.merges == whole.merges[: 698 - 256]
    first = {name: i + 1 for name, i in vocab.items()} | {"<s>": 0}
    fixed = formats.read(hf_file(tmp_path, model_vocab=first, model_merges=merges, added_tokens=[added("<s>", 0)]))
    assert fixed.cut(700).special_tokens == {"<s>": 0}
    assert fixed.cut(700).vocab == fixed.vocab[:700]
    shuffled = formats.read(hf_file(tmp_path, model_merges=["b c", "a b"]))
    with pytest.raises(UserError, match="its ids do not follow the order of its merges"):
        shuffled.cut(258)
    assert shuffled.cut(259).unmerged == {b"abc": 257}
    derived = formats.read(hf_file(tmp_path, model_merges=["a b", "a bc", "b c"]))
    assert derived.cut(258).unmerged == {b"abc": 257}
    assert derived.cut(258).encode("abc") == [256, 99]


def test_extending_appends_and_changes_no_id(trained):
    plain = trained["gpt2"]
    size = plain.vocab_size
    the, of = (plain.vocab.index(token) for token in (b" the", b" of"))
    longer = plain.extended([(the, of), (size, the)], provenance={"more": 2})
    assert longer.vocab[:size] == plain.vocab
    assert longer.vocab[size:] == [b" the of", b" the of the"]
    assert longer.special_tokens == plain.special_tokens
    assert longer.n_phase1_merges == len(plain.merge_ids) + 2
    assert longer.provenance["more"] == 2
    assert plain.extended([]).sha256 == plain.sha256
    super_ = plain.extended([(the, of)], fence=patterns.resolve("none"))
    assert super_.n_phase1_merges == len(plain.merge_ids)
    assert super_.encode(" the of") == [size]
    again = super_.extended([(size, size)])
    assert (again.fence, again.n_phase1_merges) == (super_.fence, super_.n_phase1_merges)
    for pairs, message in [
        ([(the, size)], f"new merge 0 joins ids .*{size}"),
        ([(-1, the)], "does not exist yet"),
        ([(the, plain.special_tokens["<|endoftext|>"])], "special tokens are not merged"),
        ([(the, of), (the, of)], "spelled by two tokens"),
    ]:
        with pytest.raises(UserError, match=message):
            plain.extended(pairs)
    with pytest.raises(UserError, match="has a phase 2 already"):
        super_.extended([(the, of)], fence=patterns.resolve("none"))


def test_lists_that_say_too_little_are_not_given_as_ranks(tmp_path):
    for merges in (["a b", "ab c", "b c", "a bc"], ["a b", "b c"], ["ab c", "a b", "b c"]):
        with pytest.raises(UserError, match="a list of merges alone does not describe this tokenizer"):
            formats.read(hf_file(tmp_path, model_merges=merges)).ranks()
    tokenizer = formats.read(hf_file(tmp_path, model_merges=["b c", "ab c", "a b"]))
    ordinary = tokenizer.ordinary_ids().tolist()
    assert ordinary[:2] == [ord("!"), ord('"')]
    assert ordinary[256:] == [258, 257, 256, 259]


# The command.


def test_the_command_converts(trained, tmp_path, capsys):
    trained["superwords"].save(tmp_path / "ours")
    steps = [
        ([str(tmp_path / "ours"), str(tmp_path / "a.tiktoken"), "--to", "tiktoken"], "a.tiktoken"),
        ([str(tmp_path / "a.tiktoken"), str(tmp_path / "hf"), "--to", "hf"], "hf"),
        ([str(tmp_path / "hf"), str(tmp_path / "small"), "--to", "superbpe", "--cut", "600"], "small"),
    ]
    for arguments, output in steps:
        assert export.run(arguments) == 0
        assert output in capsys.readouterr().out
    small = Tokenizer.load(tmp_path / "small")
    assert small.vocab_size == 600
    assert small.vocab[:599] == trained["superwords"].vocab[:599]
    assert not [path for path in tmp_path.rglob("*") if "partial" in path.name]


def test_the_commands_mistakes_are_one_line_and_code_2(trained, tmp_path, capsys):
    trained["two_pass"].save(tmp_path / "ours")
    assert export.run([str(tmp_path / "ours"), str(tmp_path / "x"), "--to", "hf"]) == 2
    assert "error: a two-pass tokenizer cannot be written as tokenizer.json" in capsys.readouterr().err
    assert export.run([str(tmp_path / "nothing"), str(tmp_path / "x"), "--to", "hf"]) == 2
    assert not (tmp_path / "x").exists()
    formats.write(trained["gpt2"], tmp_path / "gpt2", "gpt2")
    options = ["--pattern", "gpt3", "--to", "hf"]
    assert export.run([str(tmp_path / "gpt2"), str(tmp_path / "x"), *options]) == 2
    assert "unknown pattern 'gpt3'; did you mean 'gpt2'" in capsys.readouterr().err
    for bad in (["--special", "x", "--to", "hf"], ["--to", "sp"], ["--ignore", "all", "--to", "hf"]):
        with pytest.raises(SystemExit) as exit_:
            export.run([str(tmp_path / "gpt2"), str(tmp_path / "x"), *bad])
        assert exit_.value.code == 2


def test_special_tokens_of_ranks_come_from_the_command(trained, tmp_path):
    formats.write(trained["gpt2"], tmp_path / "x.tiktoken", "tiktoken")
    (tmp_path / "x.tiktoken.json").unlink()
    options = ["--pattern", "gpt2", "--special", "<|endoftext|>=1199", "--special", "a=b=1200", "--to", "superbpe"]
    assert export.run([str(tmp_path / "x.tiktoken"), str(tmp_path / "y"), *options]) == 0
    assert Tokenizer.load(tmp_path / "y").special_tokens == {"<|endoftext|>": 1199, "a=b": 1200}
