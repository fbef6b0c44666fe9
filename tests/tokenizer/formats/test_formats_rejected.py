"""Parts of other programs' files that cannot be read or written are rejected by name."""

import json
from base64 import b64encode

import pytest

from tests import texts
from tests.tokenizer.formats.other_formats import added, hf_file, sequence, split, write_gpt2
from tokenizer import Tokenizer, UserError, formats
from tokenizer.formats import tiktoken
from tokenizer.patterns import resolve

# Rejected parts, by name.

REFUSED = {
    "WordPiece": ({"model": {"type": "WordPiece", "vocab": {}}}, "has a model of the type 'WordPiece'; only"),
    "Unigram": ({"model": {"type": "Unigram", "vocab": []}}, "has a model of the type 'Unigram'"),
    "prefix": ({"model_continuing_subword_prefix": "##"}, "continuing_subword_prefix is '##'"),
    "suffix": ({"model_end_of_word_suffix": "</w>"}, "end_of_word_suffix is '</w>'"),
    "dropout": ({"model_dropout": 0.1}, r"dropout of 0\.1 gives random ids"),
    "option": ({"model_novel": 1}, "unknown model option 'novel'"),
    "Lowercase": (
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}},
        r"normalizer NFC \+ Lowercase changes text .*NFC, NFD, NFKC, NFKD are supported",
    ),
    "no pre-tokenizer": ({"pre_tokenizer": None}, "no ByteLevel pre-tokenizer"),
    "Metaspace": ({"pre_tokenizer": sequence({"type": "Metaspace"})}, "pre-tokenizer Metaspace is not supported"),
    "prefix space": (
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False}},
        "add_prefix_space",
    ),
    "late split": (
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [sequence(), split("a")]}},
        "Split after ByteLevel is applied to the byte alphabet",
    ),
    "behavior": ({"pre_tokenizer": sequence(split("a", "MergedWithNext"))}, "behavior MergedWithNext; Isolated is"),
    "removed": ({"pre_tokenizer": sequence(split("a", "Removed", invert=True))}, "it may drop text"),
    "regex": ({"pre_tokenizer": sequence(split(r"\w+"))}, r"may interpret '\\\\w'"),
    "not bytes": ({"model_vocab": {"▁a": 0}, "model_merges": []}, "'▁a' is not in the byte alphabet"),
    "few bytes": ({"model_vocab": {"a": 0}, "model_merges": []}, "not byte-level: byte 0 has no token"),
    "unknown merge": ({"model_merges": ["a z"]}, "merge 0, 'a z', is not in its vocabulary"),
    "merge of three": ({"model_merges": ["a b c"]}, "merge 0, 'a b c', is not in its vocabulary"),
    "lstrip": ({"added_tokens": [added("<m>", 260, lstrip=True)]}, r"'<m>' has lstrip"),
    "single_word": ({"added_tokens": [added("<m>", 260, single_word=True)]}, "'<m>' has single_word"),
    "normalized": (
        {"normalizer": {"type": "NFD"}, "added_tokens": [added("éé", 260, normalized=True)]},
        r"'éé' is normalized and matches text that becomes 'e.e.'",
    ),
    "added id": ({"added_tokens": [added("<m>", 300)]}, "'<m>' has id 300, not 260"),
    "ordinary token": (
        {"added_tokens": [added("ab", 256)]},
        "added token 'ab' is an ordinary token too, so its id would stand for text and a special token; remove it",
    ),
    "other bytes": (
        {"added_tokens": [added("Ġ", 32, special=False)]},
        r"'Ġ' is an ordinary token too, so its id would stand for the bytes b' ' and b'\\xc4\\xa0'; remove it from",
    ),
    "damage": ({"model_vocab": {"a": "x"}}, "an id is not a whole number"),
    "no content": ({"added_tokens": [{"id": 260}]}, "the key 'content' is missing in one of its parts"),
    "content": ({"added_tokens": [{"id": 260, "content": 5}]}, "tokenizer.json is damaged"),
    "added tokens": ({"added_tokens": ["<m>"]}, "tokenizer.json is damaged"),
    "no merges": ({"model": {"type": "BPE", "vocab": {}}}, "the key 'merges' is missing"),
    "merges": ({"model_merges": None}, "tokenizer.json is damaged: its merges and its added_tokens are not lists"),
    "vocab": ({"model_vocab": ["a"]}, "tokenizer.json is damaged .*'list' object has no attribute"),
    "model": ({"model": [1]}, "tokenizer.json is damaged .*'list' object has no attribute"),
    "normalizer": ({"normalizer": "NFC"}, "'normalizer' is 'NFC', not an object"),
    "split": ({"pre_tokenizer": sequence({"type": "Split"})}, "the key 'pattern' is missing in one of its parts"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_unsupported_parts_are_rejected_by_name(what, tmp_path):
    change, message = REFUSED[what]
    with pytest.raises(UserError, match=message):
        Tokenizer.from_file(hf_file(tmp_path, **change))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("merges.txt", "a\n", r"merge 0, \['a'\], is not in its vocabulary"),
        ("merges.txt", "#version: 0.2\na b\n\nĠ zz\n", r"merge 1, \['Ġ', 'zz'\], is not in its vocabulary"),
        (
            "merges.txt",
            "t h\nth e</w>\n",
            "not byte-level: its end-of-word suffix is '</w>'; .* writes a tokenizer.json",
        ),
        ("vocab.json", "{}", "merge 0, .* is not in its vocabulary"),
        ("vocab.json", '{"a": "b"}', "an id is not a whole number"),
        ("vocab.json", "[]", "not a JSON object"),
        ("vocab.json", "{", "is not JSON"),
    ],
)
def test_damaged_gpt2_files_are_rejected(file, content, message, trained, tmp_path):
    write_gpt2(trained["gpt2"], tmp_path)
    (tmp_path / file).write_text(content)
    with pytest.raises(UserError, match=message):
        Tokenizer.from_file(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("YQ== 0\nYQ== 1\n", "line 2: the token b'a' is empty or a duplicate"),
        ("YQ==\n", "line 1: 'YQ==' is not a base64 token"),
        ("%% 3\n", "is not a base64 token"),
        (" \n", "line 1: ' ' is not a base64 token"),
        ("YQ== x\n", "is not a base64 token"),
        ("YQ== 0\n", r"byte 0 has no token \(nor do 241 others\)"),
        pytest.param(
            "".join(f"{b64encode(bytes([i])).decode()} {i}\n" for i in range(256) if i != 241),
            "byte 241 has no token$",
            id="no byte 241, as in StarCoder",
        ),
        ("\ufffd", "is not a base64"),
    ],
)
def test_damaged_ranks_are_rejected(content, message, tmp_path):
    (tmp_path / "x.tiktoken").write_text(content)
    with pytest.raises(UserError, match=message):
        Tokenizer.from_file(tmp_path, pattern="gpt2")
    (tmp_path / "x.tiktoken").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not UTF-8"):
        Tokenizer.from_file(tmp_path, pattern="gpt2")


def test_tekken(trained, tmp_path):
    ranks = tiktoken.export(trained["gpt2"])["mergeable_ranks"]
    vocab = [{"rank": i, "token_bytes": b64encode(token).decode(), "token_str": None} for token, i in ranks.items()]
    config = {"pattern": resolve("gpt2").regex, "default_vocab_size": len(vocab), "default_num_special_tokens": 100}
    config["num_vocab_tokens"] = len(vocab)  # the last 100 are unused
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps({"config": config, "vocab": vocab}))
    tokenizer = Tokenizer.from_file(path)
    expected = Tokenizer(tiktoken.from_ranks(dict(list(ranks.items())[:-100]), pattern="gpt2").definition)
    text = texts.generated(0)
    assert tokenizer.encode(text) == [100 + i for i in expected.encode(text)]
    assert (tokenizer.end_of_text, tokenizer.special_tokens) == ("</s>", {"<unk>": 0, "<s>": 1, "</s>": 2})
    for damage, message in [
        ({"vocab": vocab[1:]}, "it has 1098 different tokens, not 1099"),
        ({"vocab": [*vocab[1:], {"rank": 0}]}, "the key 'token_bytes' is missing"),
        ({"special_tokens": [{"rank": 0}]}, "the key 'token_str' is missing"),
    ]:
        path.write_text(json.dumps({"config": config, "vocab": vocab} | damage))
        with pytest.raises(UserError, match=f"tekken.json is damaged: {message}"):
            Tokenizer.from_file(path)


def test_arguments_of_another_format_and_unknown_paths_are_rejected(trained, tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        Tokenizer.from_file(tmp_path / "none")
    with pytest.raises(UserError, match="contains no tokenizer: looked for superbpe"):
        Tokenizer.from_file(tmp_path)
    for name, message in {
        "a.bin": r"a\.bin is not a known tokenizer file.*save_pretrained$",
        "vocab.bin.json": r"vocab\.bin\.json is not a tokenizer\.json: it has no 'model'.*save_pretrained$",
    }.items():
        (tmp_path / name).write_text('{"vocab": []}')
        with pytest.raises(UserError, match=message):
            Tokenizer.from_file(tmp_path / name)
    trained["gpt2"].save(tmp_path / "ours")
    with pytest.raises(UserError, match="of the kind superbpe, which takes no pattern"):
        Tokenizer.from_file(tmp_path / "ours", pattern="gpt2")
    formats.write(trained["gpt2"], tmp_path / "x.tiktoken", "tiktoken")
    (tmp_path / "x.tiktoken.json").unlink()
    with pytest.raises(UserError, match="contains no pattern; give one with pattern="):
        Tokenizer.from_file(tmp_path / "x.tiktoken")
    read = Tokenizer.from_file(tmp_path / "x.tiktoken", pattern="gpt2", special_tokens={"<|endoftext|>": 1199})
    assert read.vocab == trained["gpt2"].vocab
    for path, kind, message in [
        ("x", "tiktoken", "must end in .tiktoken"),
        ("x", "sentencepiece", "format='sentencepiece'; it is one of: superbpe, hf"),
        ("a.bin", "hf", "is a file; name a folder"),
    ]:
        with pytest.raises(UserError, match=message):
            formats.write(trained["gpt2"], tmp_path / path, kind)
    for name, kind in {"new": "hf", "new.tiktoken": "tiktoken"}.items():
        with pytest.raises(UserError, match="two-pass"):
            formats.write(trained["two_pass"], tmp_path / name, kind)
    assert not (tmp_path / "new.tiktoken").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_merges": ["b c", "a b"]}, "b'ab' has a lower id than b'bc', which is merged before it"),
        ({"model_merges": ["a b", "b c"]}, r"merges leave b'abc' in two parts, which tiktoken would join"),
        ({"model_merges": ["a b", "ab c", "b c"]}, r"merges never produce the token b'xyz', but in tiktoken"),
        ({"model_merges": ["a b", "ab c", "a bc", "b c"], "model_ignore_merges": True}, None),
        (
            {"pre_tokenizer": sequence(split(r"(?=a)|b")), "model_ignore_merges": True},
            "can match the empty string between two characters",
        ),
    ],
)
def test_export_to_tiktoken_is_rejected_where_ranks_mean_something_else(change, message, tmp_path):
    tokenizer = Tokenizer.from_file(hf_file(tmp_path, **change))
    if message is None:
        assert len(tiktoken.export(tokenizer)["mergeable_ranks"]) == 260
    else:
        with pytest.raises(UserError, match=message):
            tiktoken.export(tokenizer)
