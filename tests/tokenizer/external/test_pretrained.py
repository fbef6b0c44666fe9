"""Off-the-shelf tokenizers: the software that runs them, their ids, their bytes, and saving."""

import copy
import hashlib
import json
import sys
from itertools import pairwise

import numpy as np
import pytest

from tests import other_tokenizers
from tests.other_tokenizers import JSON, SENTENCEPIECE, TEXTS
from tests.properties import quick_first
from tokenizer import Batch, Tokenizer, UserError, formats, patterns
from tokenizer.external.load import load_pretrained, load_saved
from tokenizer.external.opening import is_repository_id
from tokenizer.external.tokenizer import ExternalTokenizer, covered_bytes

END = "<|endoftext|>"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
# Offsets leave out what these drop: white space (at the ends), control characters.
DROPPING = {"unigram.model", "word_pieces", "words", "unigram", "clip"}
EXACT = {"byte-fallback.model", "byte_fallback"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrained")
    return lambda name: other_tokenizers.write(folder, name)


@pytest.fixture(scope="module")
def opened(files):
    found = {}

    def open_(name):
        if name not in found:
            found[name] = load_pretrained(files(name), add_special_tokens=[END]).tokenizer
        return found[name]

    return open_


def stream(tokenizer, texts):
    mark = tokenizer.special_tokens[END]
    lengths = np.asarray(tokenizer.token_byte_lengths(), np.uint32)
    return tokenizer.encode_stream(Batch.from_texts(texts), mark, lengths, narrow=False)


def trained(**options):
    return Tokenizer.from_ranks([(0, 1), (256, 2)], pattern=patterns.resolve("gpt2"), **options)


@pytest.mark.parametrize("name", quick_first(SENTENCEPIECE, 2))
def test_ids_of_a_sentencepiece_model_equal_the_package(opened, files, name):
    spm = pytest.importorskip("sentencepiece")
    tokenizer, original = opened(name), spm.SentencePieceProcessor(model_file=str(files(name)))
    names = list(map(original.id_to_piece, range(len(original))))
    assert [tokenizer.id_to_token(i) for i in range(len(names))] == names
    mistral = files(name).with_name(f"{name}.v3")  # Mistral's way of naming
    mistral.write_bytes(files(name).read_bytes())
    assert load_pretrained(mistral, add_special_tokens=[END]).tokenizer == tokenizer
    for text in TEXTS:
        ids = original.encode(text)
        assert tokenizer.encode_ordinary(text) == ids
        assert tokenizer.decode(ids) == original.decode(ids)
        assert tokenizer.tokenize(text) == [names[i] for i in ids]


@pytest.mark.parametrize("name", quick_first(JSON, 3))
def test_ids_of_a_tokenizer_json_equal_the_package(opened, files, name):
    hf = pytest.importorskip("tokenizers")
    original = hf.Tokenizer.from_file(str(files(name)))
    original.encode_special_tokens = True
    tokenizer = opened(name)
    ids, offsets = tokenizer.encode_batch(TEXTS)
    for i, text in enumerate(TEXTS):
        expected = original.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode_ordinary(text) == expected == ids[offsets[i] : offsets[i + 1]].tolist()
        assert tokenizer.decode(expected) == original.decode(expected, skip_special_tokens=False)
        assert tokenizer.tokenize(text) == list(map(original.id_to_token, expected))
    assert tokenizer.get_vocab() == original.get_vocab() | {END: tokenizer.special_tokens[END]}


@pytest.mark.parametrize("name", quick_first([*JSON, *SENTENCEPIECE], 5))
def test_covered_bytes_add_up_and_changed_documents_are_found(opened, name):
    tokenizer = opened(name)
    found = stream(tokenizer, TEXTS)
    sizes = np.array([len(text.encode()) for text in TEXTS])
    bounds = np.append(0, found.ends)
    assert (found.ids[bounds[:-1]] == tokenizer.special_tokens[END]).all()
    assert (found.covered[bounds[:-1]] == 0).all()
    sums = [found.covered[start:stop].sum() for start, stop in pairwise(bounds)]
    assert sums == found.spelled.tolist() == found.expected.tolist()
    assert (found.spelled <= sizes).all()
    # A document without white space, marks and control characters is covered by all of them.
    assert found.spelled[10] == sizes[10] - (name in ("word_pieces", "words", "clip"))
    if name not in DROPPING:
        assert found.spelled.tolist() == sizes.tolist()
    rows = [found.ids[start + 1 : stop] for start, stop in pairwise(bounds)]
    decoded = [tokenizer.decode(row) for row in rows]
    assert found.changed.tolist() == [one != text for one, text in zip(decoded, TEXTS, strict=True)]
    if name in EXACT:  # they cannot spell a literal meta-space
        assert [text for text, changed in zip(TEXTS, found.changed, strict=True) if changed] == [TEXTS[7]]
    assert found.marked is None


@pytest.mark.parametrize("name", sorted(EXACT))
def test_each_token_covers_its_own_bytes_where_nothing_is_shared(opened, name):
    tokenizer = opened(name)
    text = "the quick  brown fox, 7 times"
    found = stream(tokenizer, [text])
    spelled = [tokenizer.vocab[i] for i in found.ids[1:]]
    assert b"".join(spelled) == f" {text}".encode()
    assert found.covered[1:].tolist() == [len(token) - (i == 0) for i, token in enumerate(spelled)]


def test_tokens_that_share_characters_cover_them_once():
    def covered(*spans):
        return covered_bytes(np.array(spans, np.int64).reshape(-1, 2)).tolist()

    assert covered((0, 3), (0, 3), (0, 3)) == [3, 0, 0]  # byte fallback
    assert covered((0, 1), (0, 2)) == [1, 1]  # a prefix space
    assert covered((0, 3), (1, 4)) == [3, 1]  # byte-level tokens that cut a character
    assert covered((0, 1), (3, 4)) == [1, 1]  # dropped text is covered by none
    assert covered((0, 4), (1, 2), (2, 4)) == [4, 0, 0]
    assert covered() == []


@pytest.mark.parametrize("name", quick_first(["byte-fallback.model", "unigram", "clip"]))
def test_saved_folders_load_again(opened, tmp_path, name):
    tokenizer = opened(name)
    tokenizer.save(tmp_path / "saved")
    for again in (load_saved(tmp_path / "saved"), load_pretrained(tmp_path / "saved").tokenizer):
        assert isinstance(again, ExternalTokenizer)
        assert (again.sha256, again.vocab, again.reason) == (tokenizer.sha256, tokenizer.vocab, tokenizer.reason)
        assert again.special_tokens == tokenizer.special_tokens
        assert again.encode_ordinary(TEXTS[0]) == tokenizer.encode_ordinary(TEXTS[0])
    about = json.loads((tmp_path / "saved" / "external.json").read_text())
    (tmp_path / "saved" / "external.json").write_text(json.dumps(about | {"special_tokens": ["<other>"]}))
    with pytest.raises(UserError, match="changed after it was written"):
        load_saved(tmp_path / "saved")


def test_another_version_of_the_software_is_another_tokenizer(opened, tmp_path):
    tokenizer = opened("word_pieces")
    software = copy.copy(tokenizer.software)
    software.version = "tokenizers 0.0.1"
    other = ExternalTokenizer(software, special_tokens=[END])
    assert other.sha256 != tokenizer.sha256
    other.save(tmp_path / "other")
    with pytest.raises(UserError, match=r"written with tokenizers 0\.0\.1, but tokenizers [0-9.]+ is installed"):
        load_saved(tmp_path / "other")


def test_end_of_text_keeps_its_id_or_gets_a_new_one(opened, files, tmp_path):
    own = opened("lowercased_bytes")
    assert (own.special_tokens[END], own.added) == (0, [])
    other = opened("unigram")
    assert (other.special_tokens[END], other.added) == (other.vocab_size - 1, [END])
    bare = load_pretrained(files("unigram")).tokenizer
    assert bare.sha256 != other.sha256
    bare.save(tmp_path / "bare")
    found = load_pretrained(tmp_path / "bare", add_special_tokens=[END])
    assert (found.added, found.tokenizer.sha256) == ((END,), other.sha256)
    assert other.decode([other.vocab_size - 1, *other.encode_ordinary("the fox")]) == END + "the fox"
    # `tokenizers` finds control tokens of a Unigram vocabulary in ordinary text, so they are not used.
    new = load_pretrained(files("unigram"), add_special_tokens=["</s>"]).tokenizer
    assert new.special_tokens["</s>"] == new.vocab_size - 1 not in new.encode_ordinary("</s>")


def test_tokens_spell_text(opened):
    assert b" " in opened("unigram").vocab
    assert any(token.startswith(b" ") and len(token) > 1 for token in opened("byte-fallback.model").vocab)
    pieces = opened("word_pieces").vocab
    assert b" the" in pieces
    assert not any(token.startswith(b"##") for token in pieces[5:-1] if token != b" #")
    fallback = opened("byte_fallback")
    assert fallback.byte_ids == tuple(range(3, 259))
    assert [fallback.vocab[i] for i in fallback.byte_ids] == [bytes([byte]) for byte in range(256)]
    lowercased = opened("lowercased_bytes")
    assert lowercased.vocab[lowercased.encode_ordinary(" the")[0]] == b" the"
    clip = opened("clip")
    assert [clip.vocab[i] for i in clip.encode_ordinary("The fox")] == [b"the", b"fox"]
    assert [clip.vocab[i] for i in clip.byte_ids] == [bytes([byte]) for byte in range(256)]
    assert opened("no-space.model").token_to_id("▁") is None
    words = [fallback.vocab[i].decode().split() for i in fallback.superword_ids()]
    assert words
    assert all(len(parts) > 1 for parts in words)


@pytest.mark.parametrize("name", ["unigram.model", "unigram", "word_pieces", "words"])
def test_unknown_tokens_are_special_and_have_no_bytes(opened, name):
    tokenizer = opened(name)
    assert tokenizer.unknown_id in tokenizer.encode_ordinary("🙂")
    assert tokenizer.token_byte_lengths()[tokenizer.unknown_id] == 0
    assert tokenizer.unknown_id not in tokenizer.ordinary_ids()


def test_our_core_runs_what_it_can(tmp_path):
    tokenizer = trained(special_tokens=["<s>"])
    tokenizer.save(tmp_path / "ours")
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "tokenizer.json").write_bytes((tmp_path / "ours" / "tokenizer.json").read_bytes())
    for folder in ("ours", "hf", "hf/tokenizer.json"):
        found = load_pretrained(tmp_path / folder, add_special_tokens=["<s>"])
        assert isinstance(found.tokenizer, Tokenizer)
        assert found.tokenizer == Tokenizer.from_pretrained(str(tmp_path / folder)) == tokenizer
        assert (found.added, found.revision, found.about()["software"]) == ((), None, None)
    assert load_saved(tmp_path / "ours").sha256 == tokenizer.sha256
    found = load_pretrained(tmp_path / "ours", add_special_tokens=["<s>", END])
    assert (found.added, found.tokenizer.special_tokens) == ((END,), {"<s>": 258, END: 259})
    found.tokenizer.save(tmp_path / "more")
    assert load_saved(tmp_path / "more").sha256 == found.tokenizer.sha256
    hf = pytest.importorskip("tokenizers")
    assert hf.Tokenizer.from_file(str(tmp_path / "more" / "tokenizer.json")).token_to_id(END) == 259


def test_a_model_file_of_tiktoken_is_run_by_our_core(tmp_path):
    tokenizer = trained(special_tokens=[END])
    formats.write(tokenizer, tmp_path / "llama.tiktoken", "tiktoken")
    (tmp_path / "llama.tiktoken").rename(tmp_path / "tokenizer.model")
    options = {"pattern": "gpt2", "special_tokens": {"<s>": 258}}
    found = load_pretrained(tmp_path / "tokenizer.model", add_special_tokens=[END], **options)
    assert isinstance(found.tokenizer, Tokenizer)
    assert found.tokenizer.special_tokens == {"<s>": 258, END: 259}
    with pytest.raises(UserError, match="contains no pattern"):
        load_pretrained(tmp_path / "tokenizer.model")


def test_an_added_token_becomes_special_and_keeps_its_id(tmp_path):
    trained(special_tokens=[END, "<s>"]).save(tmp_path / "ours")
    content = json.loads((tmp_path / "ours" / "tokenizer.json").read_text())
    for token in content["added_tokens"]:
        token["special"] = False
    (tmp_path / "plain.json").write_text(json.dumps(content))
    bare = load_pretrained(tmp_path / "plain.json").tokenizer
    assert bare.encode_ordinary(f"a{END}b<s>") == [97, 258, 98, 259]
    found = load_pretrained(tmp_path / "plain.json", add_special_tokens=[END])
    assert (found.added, found.tokenizer.special_tokens) == ((), {END: 258})
    assert found.tokenizer.encode_ordinary(f"{END}<s>") == [*END.encode(), 259]
    found.tokenizer.save(tmp_path / "saved")
    assert load_saved(tmp_path / "saved").sha256 == found.tokenizer.sha256


@pytest.fixture
def cache(tmp_path, monkeypatch, files):
    """The cache of huggingface_hub, offline, with one repository."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    root = tmp_path / "cache"
    repository = root / "models--some--model"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "abc").write_bytes(files("unigram").read_bytes())
    (snapshot / "tokenizer.json").symlink_to("../../blobs/abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return root


@pytest.mark.parametrize("revision", [None, COMMIT])
def test_a_cached_repository_is_read_offline_and_its_commit_reported(cache, files, revision):
    found = load_pretrained("some/model", revision=revision, cache=cache, add_special_tokens=[END])
    assert (found.source, found.revision) == ("some/model", COMMIT)
    assert found.tokenizer.sha256 == load_pretrained(files("unigram"), add_special_tokens=[END]).tokenizer.sha256
    assert found.about()["revision"] == COMMIT


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("other/model", {}, r"neither a local file or folder nor in the cache.*check the name and"),
        ("some/model", {"revision": "v2"}, "some/model at revision v2"),
        (None, {"revision": "v2"}, "revision='v2' is for repositories"),
        ("llama3/tokenizer.json", {}, r"llama3/tokenizer.json does not exist"),
    ],
)
def test_an_uncached_repository_is_an_error_with_a_remedy(source, options, message, cache):
    with pytest.raises(UserError, match=message):
        load_pretrained(source or cache, cache=cache, **options)


def test_repository_ids_are_distinguished_from_paths():
    assert all(map(is_repository_id, ["gpt2", "openai-community/gpt2", "google/byt5-small"]))
    wrong = ["llama3/tokenizer.json", "./gpt2", "/models/gpt2", "a/b/c", "vocab.txt", "spiece.model", ""]
    assert not any(map(is_repository_id, wrong))


@pytest.mark.parametrize(
    ("package", "name", "message"),
    [
        ("tokenizers", "unigram", ""),
        ("sentencepiece", "unigram.model", ""),
        ("huggingface_hub", None, "not a local file or folder.*"),
    ],
)
def test_a_missing_package_is_one_line_with_the_remedy(files, monkeypatch, package, name, message):
    path = files(name) if name else "some/model"
    monkeypatch.setitem(sys.modules, package, None)
    message += rf"{package} is not installed; .* run: pip install .*\[hf\]"
    with pytest.raises(UserError, match=message) as found:
        load_pretrained(path)
    assert "\n" not in str(found.value)


def test_damaged_files_are_errors(tmp_path, files):
    unigram, fallback = (json.loads(files(name).read_text()) for name in ("unigram", "byte_fallback"))
    words = {"type": "WordLevel", "vocab": {"a": 4_000_000_000, "[UNK]": 1}, "unk_token": "[UNK]"}
    for content, message in (
        (
            unigram | {"model": {"type": "Unigram", "vocab": 3}},
            "only byte-level BPE can be read; and tokenizers cannot read",
        ),
        (fallback | {"model": fallback["model"] | {"dropout": 0.1}}, r"dropout of 0\.1, which gives random ids"),
        # Limits are checked before anything is built.
        ({"version": "1.0", "added_tokens": [], "model": words}, "has the id 4000000000: ids are below"),
    ):
        (tmp_path / "file.json").write_text(json.dumps(content))
        with pytest.raises(UserError, match=message):
            load_pretrained(tmp_path / "file.json")
    (tmp_path / "damaged.model").write_bytes(b"\nnot a model")
    (tmp_path / "empty").mkdir()
    pytest.importorskip("sentencepiece")
    for name, message in (
        ("damaged.model", r"damaged\.model is not a SentencePiece model"),
        ("empty", "contains no tokenizer"),
    ):
        with pytest.raises(UserError, match=message):
            load_pretrained(tmp_path / name)
    with pytest.raises(UserError, match="lone surrogate"):
        load_pretrained(files("unigram")).tokenizer.encode_ordinary("\ud800")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_panics_of_other_software_are_errors(tmp_path, files):
    """They are BaseExceptions; a wrong prefix can also end the process."""
    found = json.loads(files("lowercased_bytes").read_text())
    backtracking = {"type": "Split", "pattern": {"Regex": r"(?=(a+)+$)(\1)b|(a|a)*c\1"}, "behavior": "Isolated"}
    (tmp_path / "regex.json").write_text(json.dumps(found | {"pre_tokenizer": backtracking | {"invert": False}}))
    tokenizer = load_pretrained(tmp_path / "regex.json").tokenizer
    for encode in (tokenizer.encode_ordinary, lambda text: tokenizer.encode_batch([text])):
        with pytest.raises(UserError, match=r"tokenizers cannot encode the text .*retry-limit"):
            encode("a" * 40 + "!")
    for merges in (["a b"], [["a", "é"]], [[]]):
        model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "é": 2, "ab": 3, "aé": 4}, "merges": merges}
        prefixed = found | {"model": model | {"continuing_subword_prefix": "##"}}
        (tmp_path / "prefix.json").write_text(json.dumps(prefixed))
        with pytest.raises(UserError, match="does not begin with its continuing_subword_prefix '##'"):
            load_pretrained(tmp_path / "prefix.json")


def test_a_lone_surrogate_anywhere_in_a_file_is_an_error(tmp_path, files):
    for part in ("comment", "decoder", "normalizer"):
        found = json.loads(files("unigram").read_text()) | {part: {"type": "Replace", "content": "\ud800"}}
        (tmp_path / "file.json").write_text(json.dumps(found))
        with pytest.raises(UserError, match=r"file\.json is damaged: .* lone surrogate"):
            load_pretrained(tmp_path / "file.json")


@pytest.mark.parametrize("pattern", ["none", "gpt2"])
def test_a_tokenizer_without_merges_is_written_in_every_format(tmp_path, pattern):
    tokenizer = Tokenizer.from_ranks([], pattern=patterns.resolve(pattern), special_tokens=[END])
    for kind, name in (("superbpe", "folder"), ("hf", "tokenizer.json"), ("tiktoken", "bytes.tiktoken")):
        formats.write(tokenizer, tmp_path / name, kind)
        again = load_pretrained(tmp_path / name, add_special_tokens=[END]).tokenizer
        assert isinstance(again, Tokenizer)
        assert again.special_tokens == {END: 256}
        for text in TEXTS:
            assert again.encode_ordinary(text) == list(text.encode())


# ------------------------------------------------------------------ Tokenizer.from_pretrained, tiktoken


@pytest.fixture
def encoding(tmp_path, monkeypatch):
    """An encoding of tiktoken whose file is in tiktoken's cache, and one whose file is not, without a network."""
    load, registry = pytest.importorskip("tiktoken.load"), pytest.importorskip("tiktoken.registry")

    def constructor(name, expected_hash):
        def build():
            ranks = load.load_tiktoken_bpe(f"https://example.invalid/{name}.tiktoken", expected_hash=expected_hash)
            return {"name": name, "pat_str": GPT2, "mergeable_ranks": ranks, "special_tokens": {END: len(ranks)}}

        return build

    def unreachable(*arguments, **options):
        raise ConnectionError("no network")

    formats.write(trained(), tmp_path / "ranks.tiktoken", "tiktoken")
    content = (tmp_path / "ranks.tiktoken").read_bytes()
    (tmp_path / "cache").mkdir()
    url = b"https://example.invalid/small_base.tiktoken"
    (tmp_path / "cache" / hashlib.sha1(url, usedforsecurity=False).hexdigest()).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(load, "read_file", unreachable)
    monkeypatch.setattr(registry, "ENCODINGS", {})
    names = ("small_base", "absent_base")
    monkeypatch.setattr(registry, "ENCODING_CONSTRUCTORS", {name: constructor(name, digest) for name in names})
    return registry.get_encoding("small_base")


GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"  # as tiktoken spells it


def test_an_encoding_of_tiktoken_is_loaded_by_name(encoding, tmp_path):
    found = load_pretrained("tiktoken:small_base", from_hub=True, add_special_tokens=[END])
    assert (found.source, found.revision, found.added) == ("tiktoken:small_base", None, ())
    tokenizer = Tokenizer.from_pretrained("tiktoken:small_base")
    assert tokenizer == found.tokenizer
    assert (tokenizer.pattern.name, tokenizer.special_tokens) == ("gpt2", {END: 258})
    for text in TEXTS:
        assert tokenizer.encode_ordinary(text) == encoding.encode_ordinary(text)
    tokenizer.save(tmp_path / "saved")
    assert load_saved(tmp_path / "saved") == tokenizer


@pytest.mark.usefixtures("encoding")
def test_mistakes_with_encodings_are_one_line_with_the_remedy(monkeypatch):
    for name, options, message in (
        ("o2000k", {}, r"encoding='o2000k'; it is one of: small_base, absent_base"),
        ("absent_base", {}, r"cannot load absent_base \(no network\); run once with network access, or set"),
        ("small_base", {"revision": "v2"}, "revision='v2' is for repositories, but tiktoken:small_base is an encoding"),
        ("small_base", {"pattern": "gpt2"}, "has its own pattern and special tokens, so it takes no pattern"),
        (None, {}, r"tiktoken is not installed; .*, run: pip install .*\[hf\]"),
    ):
        if name is None:
            monkeypatch.setitem(sys.modules, "tiktoken", None)
        with pytest.raises(UserError, match=message):
            load_pretrained(f"tiktoken:{name or 'small_base'}", **options)


def test_from_pretrained_takes_what_the_loader_takes(cache, files, tmp_path):
    tokenizer = trained(special_tokens=[END])
    tokenizer.save(tmp_path / "ours")
    assert Tokenizer.from_pretrained(tmp_path / "ours", add_special_tokens=["<s>"]).special_tokens["<s>"] == 259
    snapshot = cache / "models--some--model" / "snapshots" / COMMIT
    (snapshot / "tokenizer.json").unlink()
    (snapshot / "tokenizer.json").write_bytes((tmp_path / "ours" / "tokenizer.json").read_bytes())
    for revision in (None, COMMIT):
        assert Tokenizer.from_pretrained("some/model", revision=revision, cache=cache) == tokenizer
    with pytest.raises(UserError, match=r"unigram.json is not byte-level BPE .*; load_pretrained and"):
        Tokenizer.from_pretrained(files("unigram"))
