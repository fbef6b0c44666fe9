import hashlib
import json
import warnings

import numpy as np
import pytest

from tests import texts
from tests.tokenizer.formats.other_formats import edit, forge
from tokenizer import Tokenizer, UserError, formats, patterns, train_bpe
from tokenizer.corpus.seen import FILE
from tokenizer.patterns import Pattern

NAMES = ["gpt2", "none", "superwords", "spans_superwords", "two_pass"]


@pytest.fixture
def folder(trained, tmp_path):
    """The folder of a tokenizer with superwords, one-pass."""
    trained["superwords"].save(tmp_path / "one")
    return tmp_path / "one"


@pytest.fixture
def two_pass_folder(trained, tmp_path):
    trained["two_pass"].save(tmp_path / "two")
    return tmp_path / "two"


@pytest.mark.parametrize("name", NAMES)
def test_saved_tokenizers_load_unchanged(name, trained, tmp_path):
    tokenizer = trained[name]
    tokenizer.save(tmp_path / "deep" / "folder")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = Tokenizer.load(tmp_path / "deep" / "folder")
    for attribute in ("sha256", "vocab", "merges", "mode", "pattern", "fence", "special_tokens", "n_phase1_merges"):
        assert getattr(loaded, attribute) == getattr(tokenizer, attribute)
    assert loaded.provenance == tokenizer.provenance
    documents = [*texts.various(), *texts.english()[1][:5]]
    np.testing.assert_array_equal(loaded.encode_batch(documents)[0], tokenizer.encode_batch(documents)[0])


@pytest.mark.parametrize("layout", ["first", "after-bytes"])
def test_layouts_and_odd_special_strings_survive(layout, trained, tmp_path):
    odd = ["<|endoftext|>", 'a "quoted" \\ one', "日本", "\n", " "]
    tokenizer = Tokenizer.from_ranks(
        trained["gpt2"].ranks(), pattern=Pattern("custom", r" ?\p{L}+|\s"), special_tokens=odd, special_layout=layout
    )
    tokenizer.save(str(tmp_path))
    loaded = Tokenizer.load(str(tmp_path))
    assert loaded.special_tokens == tokenizer.special_tokens
    assert loaded.sha256 == tokenizer.sha256
    assert loaded.pattern == Pattern("custom", r" ?\p{L}+|\s")
    assert loaded.encode("x日本\n", allowed_special="all") == tokenizer.encode("x日本\n", allowed_special="all")


def test_saving_writes_the_same_bytes_every_time_and_leaves_other_files_alone(trained, tmp_path):
    names = {}
    (tmp_path / "README.md").write_text("mine")
    for name in ("superwords", "two_pass", "superwords"):
        trained[name].save(tmp_path)
        assert Tokenizer.load(tmp_path).sha256 == trained[name].sha256
        files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert names.setdefault(name, files) == files
    assert set(names["two_pass"]) == {"superbpe.json", "tokenizer_config.json", "README.md", FILE}
    assert set(names["superwords"]) == names["two_pass"].keys() | {"tokenizer.json"}
    assert names["two_pass"]["README.md"] == b"mine"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("indent", [None, 1])
def test_the_identity_is_the_hash_of_the_content_however_it_is_written(name, indent, trained, tmp_path):
    tokenizer = trained[name]
    content = json.dumps(formats.folder.content(tokenizer.definition), sort_keys=True)
    assert tokenizer.sha256 == hashlib.sha256(content.encode()).hexdigest()
    tokenizer.save(tmp_path)
    file = tmp_path / formats.FILE
    file.write_text(json.dumps(json.loads(file.read_text()), indent=indent))
    again = Tokenizer.load(tmp_path)
    assert (again.sha256, again.vocab, again.merge_ids.dtype) == (tokenizer.sha256, tokenizer.vocab, np.uint32)


@pytest.mark.parametrize("special", ["a", "Ġ", "é", "Ġthe"])
def test_a_special_string_that_hf_writes_for_another_token_is_rejected(special, trained, tmp_path):
    """In tokenizer.json both would have one name, and HF would take one id for the two."""

    def save():
        plain = trained["gpt2"]
        Tokenizer.from_ranks(plain.ranks(), pattern=plain.pattern, special_tokens=[special]).save(tmp_path / "new")

    with pytest.raises(UserError, match="special"):
        save()
    assert not (tmp_path / "new").exists()


# Tampering with what decides the ids.


def swap_ids(content):
    content["byte_ids"][97], content["byte_ids"][98] = content["byte_ids"][98], content["byte_ids"][97]


def swap_merges(content):
    merges = content["merges"]
    merges[3], merges[4] = merges[4], merges[3]


TAMPERING = {
    "byte ids": swap_ids,
    "merge order": swap_merges,
    "fence": lambda content: content.update(fence=patterns.resolve("punctuation-fence").regex),
    "special string": lambda content: content.update(special_tokens={"<s>": 1199}),
    "mode": lambda content: content.update(mode="two-pass" if content["mode"] == "one-pass" else "one-pass"),
    "more keys": lambda content: content.update(extra=1),
}


@pytest.mark.parametrize("what", TAMPERING)
@pytest.mark.parametrize("kind", ["folder", "two_pass_folder"])
def test_tampering_with_the_content_is_rejected(what, kind, request):
    folder = request.getfixturevalue(kind)
    edit(folder / "superbpe.json", lambda about: TAMPERING[what](about["content"]))
    with pytest.raises(UserError, match=r"superbpe\.json was changed after it was written.*Restore"):
        Tokenizer.load(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about.update(sha256="0" * 64),
        lambda about: about.pop("sha256"),
        lambda about: about.pop("content"),
        lambda about: about.update(content=[]),
        lambda about: about.update(format="other"),
        lambda about: about.update(version=6),
        lambda about: about.pop("seal"),
        lambda about: about.pop("pattern_name"),
        lambda about: about.update(fence_name="gpt2"),
        lambda about: about["provenance"].update(note="mine"),
        lambda about: about.update(files={}),
    ],
)
def test_tampering_around_the_content_is_rejected(folder, change):
    edit(folder / "superbpe.json", change)
    with pytest.raises(UserError, match=r"superbpe\.json"):
        Tokenizer.load(folder)


HF_TAMPERING = {
    "merges": lambda hf: hf["model"]["merges"].reverse(),
    "fewer merges": lambda hf: hf["model"]["merges"].pop(),
    "vocab": lambda hf: hf["model"]["vocab"].update({"a": 98, "b": 97}),
    "dropout": lambda hf: hf["model"].update(dropout=0.1),
    "ignore_merges": lambda hf: hf["model"].update(ignore_merges=True),
    "pre_tokenizer": lambda hf: hf["pre_tokenizer"]["pretokenizers"].pop(0),
    "no pre_tokenizer": lambda hf: hf.update(pre_tokenizer=None),
    "regex": lambda hf: hf["pre_tokenizer"]["pretokenizers"][0].update(pattern={"Regex": r"\s+"}),
    "normalizer": lambda hf: hf.update(normalizer={"type": "NFC"}),
    "decoder": lambda hf: hf.update(decoder=None),
    "added token's id": lambda hf: hf["added_tokens"][0].update(id=5),
    "added token's string": lambda hf: hf["added_tokens"][0].update(content="<s>"),
    "one more added token": lambda hf: hf["added_tokens"].append({"id": 1200, "content": "the"}),
    "no added tokens": lambda hf: hf.update(added_tokens=[]),
    "stripping token": lambda hf: hf["added_tokens"][0].update(lstrip=True, rstrip=True),
    "normalized token": lambda hf: hf["added_tokens"][0].update(special=False),
    "truncation": lambda hf: hf.update(truncation={"max_length": 2, "strategy": "LongestFirst", "stride": 0}),
    **{f"{value}": lambda hf, value=value: hf.update(added_tokens=value) for value in (3, [1], None)},
    "padding": lambda hf: hf.update(padding={"strategy": {"Fixed": 9}, "pad_id": 0, "pad_token": "!"}),
}


@pytest.mark.parametrize("what", HF_TAMPERING)
def test_tampering_with_hfs_file_is_rejected(what, folder):
    edit(folder / "tokenizer.json", HF_TAMPERING[what])
    with pytest.raises(UserError, match=r"tokenizer\.json (was changed|is damaged)"):
        Tokenizer.load(folder)


def test_hfs_file_of_another_tokenizer_is_rejected(folder, two_pass_folder, trained, tmp_path):
    (two_pass_folder / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    with pytest.raises(UserError, match=r"tokenizer\.json must not exist"):
        Tokenizer.load(two_pass_folder)
    trained["gpt2"].save(tmp_path / "other")
    (folder / "tokenizer.json").write_bytes((tmp_path / "other" / "tokenizer.json").read_bytes())
    with pytest.raises(UserError, match=r"tokenizer\.json was changed"):
        Tokenizer.load(folder)


# Edits without effect.


def test_edits_that_change_no_ids_are_accepted(folder, trained):
    edit(folder / "tokenizer_config.json", lambda config: config.update(chat_template="{{ messages }}"))
    edit(folder / "tokenizer.json", lambda hf: hf.update(comment="mine"))  # and other spaces
    assert Tokenizer.load(folder).sha256 == trained["superwords"].sha256
    forge(folder, lambda about: about.update(pattern_name="gpt2", provenance=about["provenance"] | {"note": "mine"}))
    tokenizer = Tokenizer.load(folder)
    assert (tokenizer.provenance["note"], tokenizer.pattern) == ("mine", patterns.resolve("superbpe"))
    assert tokenizer.sha256 == trained["superwords"].sha256
    forge(folder, lambda about: about["files"].update({"../../etc/passwd": "0"}))
    with pytest.raises(UserError, match=r"names the file '\.\./\.\./etc/passwd', which no tokenizer folder has"):
        Tokenizer.load(folder)


# Damage.


@pytest.mark.parametrize("file", ["superbpe.json", "tokenizer.json"])
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.999])
def test_truncated_files_are_rejected(file, keep, folder):
    data = (folder / file).read_bytes()
    (folder / file).write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(UserError, match=f"{file} .*(is not JSON|is missing)"):
        Tokenizer.load(folder)


@pytest.mark.parametrize("content", ["[]", "null", "3", '"text"', "{}", "\ufeff{}", "NaN"])
@pytest.mark.parametrize("file", ["superbpe.json", "tokenizer.json"])
def test_files_that_hold_something_else_are_rejected(file, content, folder):
    (folder / file).write_text(content)
    with pytest.raises(UserError, match=file):
        Tokenizer.load(folder)


def test_missing_folders_and_files_are_errors(folder, tmp_path):
    with pytest.raises(UserError, match=r"nowhere is not a tokenizer folder: it has no superbpe\.json"):
        Tokenizer.load(tmp_path / "nowhere")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"tokenizer\.json is missing"):
        Tokenizer.load(folder)
    (folder / "superbpe.json").unlink()
    with pytest.raises(UserError, match="is not a tokenizer folder"):
        Tokenizer.load(folder)


VALUES = (1.5, [[None]], {"a": [1]})
CONTENT = ("mode", "pattern", "fence", "byte_ids", "merges", "phase1_merges", "special_tokens", "eligible", "unmerged")
NONSENSE = [
    lambda about: about["content"]["merges"].append([1, 2]),
    lambda about: about["content"]["merges"].append([10**12, 2, 3]),
    lambda about: about["content"]["merges"].append(["a", "b", "c"]),
    lambda about: about["content"]["merges"].append([-1, 2, 1200]),
    lambda about: about["content"].update(pattern="(("),
    lambda about: about["content"].update(special_tokens={"<|endoftext|>": "x"}),
    lambda about: about["content"].update(special_tokens={"<|endoftext|>": 1.0}),
    lambda about: about["content"].update(normalizer=1.5),
    lambda about: about["content"].update(added_tokens=[[None]]),
    lambda about: about["content"].update(late_tokens=[[None]]),
    lambda about: about["content"].pop("mode"),
    lambda about: about.update(files=None),
    lambda about: about.update(files=["tokenizer.json"]),
    lambda about: about.update(provenance=[1]),
    lambda about: about.pop("files"),
    lambda about: about.pop("pattern_name"),
    *(lambda about, key=key, value=value: about["content"].update({key: value}) for key in CONTENT for value in VALUES),
]


@pytest.mark.parametrize("change", NONSENSE)
def test_nonsense_with_a_matching_hash_is_a_user_error(change, folder):
    forge(folder, change)
    with pytest.raises(UserError):
        Tokenizer.load(folder)


@pytest.mark.parametrize(
    "regex",
    [r"\S+$|\s+|\S", r"^\s+|\S+", r"(?m).+", r"(?s).{1,7}", r"(?i:\p{Lu}+)|\s+", r"\w+|\W", r"a{1,3}+b|[[:alpha:]]"],
)
def test_a_pattern_that_hf_reads_differently_gets_no_tokenizer_json(tmp_path, regex):
    documents = ["Some text, some more text."] * 5
    tokenizer = train_bpe(documents, 257, pattern=regex, special_tokens=())
    with pytest.warns(UserWarning, match=r"no tokenizer\.json is written"):
        tokenizer.save(tmp_path)
    assert not (tmp_path / "tokenizer.json").exists()
    assert Tokenizer.load(tmp_path).sha256 == tokenizer.sha256
    train_bpe(documents, 257, pattern=r"[^$^]+|\s").save(tmp_path)
    assert (tmp_path / "tokenizer.json").exists()
