"""Settings and files beside a tokenizer survive every command, or are named; code is never copied."""

import json
import os
import random

import pytest

from experiments.cli import main
from tests import texts
from tests.properties import quick_first
from tests.tokenizer.formats.other_formats import write_gpt2
from tokenizer import Tokenizer, UserError, train_bpe
from tokenizer.formats import carried, write
from tokenizer.formats.carried import GENERATION_FILE, MAP_FILE, TEMPLATE_FILE, TEMPLATE_FOLDER

CONFIG = "tokenizer_config.json"
SPECIALS = ["<|endoftext|>", "[|user|]", "[|done|]", "[|pad|]"]
TEMPLATE = "{% for m in messages %}[|user|]{{ m.content }}[|done|]{% endfor %}\r\n"


@pytest.fixture(scope="module")
def tokenizer():
    return train_bpe(texts.sample(20_000), 300, special_tokens=SPECIALS)


@pytest.fixture
def source(tokenizer, tmp_path):
    """A folder of `transformers` with a chat model's settings, some of them random."""
    folder = tmp_path / "source"
    write(tokenizer, folder, "hf")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": {"__type": "AddedToken", "content": "[|done|]", "lstrip": False, "special": True},
        "model_max_length": 2048,
        "padding_side": "left",
        "truncation_side": "left",
        "auto_map": {"AutoTokenizer": ["code.Tokenizer", None]},
        **EXTRA,
    }
    (folder / CONFIG).write_text(json.dumps(config))
    (folder / MAP_FILE).write_text(json.dumps({"pad_token": "[|pad|]", "additional_special_tokens": ["[|user|]"]}))
    (folder / GENERATION_FILE).write_text(json.dumps({"eos_token_id": [tokenizer.special_tokens["[|done|]"]]}))
    (folder / TEMPLATE_FILE).write_bytes(TEMPLATE.encode())
    (folder / TEMPLATE_FOLDER).mkdir()
    (folder / TEMPLATE_FOLDER / "tool_use.jinja").write_text("{{ tools }}")
    (folder / "code.py").write_text("raise SystemExit")
    (folder / TEMPLATE_FOLDER / "notes.txt").write_text("mine")
    (folder / "NOTES.md").write_text("mine")
    return folder


def _random_keys():
    draw = random.Random(54)
    values = [None, True, 0, -1.5, "é\n{{ }}", [1, "a"], {"a": {"b": []}}]
    letters = "abcdefghij_é"
    return {"x" + "".join(draw.choices(letters, k=draw.randint(1, 12))): draw.choice(values) for _ in range(20)}


EXTRA = _random_keys()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(texts.sample(20_000)))
    return path


COMMANDS = {
    "hf": ["export", "SOURCE", "OUT", "--to", "hf"],
    "superbpe": ["export", "SOURCE", "OUT", "--to", "superbpe"],
    "push": ["push", "SOURCE", "org/name", "--to", "OUT"],
    "extend": ["extend", "SOURCE", "TEXT", "--vocab-size", "310", "--to", "OUT"],
    "trim": ["trim", "SOURCE", "TEXT", "--vocab-size", "280", "--to", "OUT"],
    "two-pass": ["extend", "SOURCE", "TEXT", "--vocab-size", "310", "--superbpe", "runs", "--keep-ids", "--to", "OUT"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_keeps_or_names_everything(name, source, text, tmp_path, capsys):
    out, again = tmp_path / "out", tmp_path / "again"
    paths = {"SOURCE": source, "TEXT": text, "OUT": out}
    assert main.run([str(paths.get(word, word)) for word in COMMANDS[name]]) == 0
    printed = capsys.readouterr().out
    for left in (f"auto_map of {CONFIG}", "code.py", "NOTES.md", f"{TEMPLATE_FOLDER}/notes.txt"):
        assert left in printed
    _check(out)
    # From our own folder, everything is carried once more.
    if name != "two-pass":
        assert main.run(["export", str(out), str(again), "--to", "hf"]) == 0
        assert json.loads((again / CONFIG).read_text()) == json.loads((out / CONFIG).read_text())
        _check(again)


def _check(folder):
    config = json.loads((folder / CONFIG).read_text())
    assert "auto_map" not in config
    assert not list(folder.glob("*.py"))
    expected = EXTRA | {"bos_token": None, "eos_token": "[|done|]", "pad_token": "[|pad|]", "padding_side": "left"}
    expected |= {"truncation_side": "left", "model_max_length": 2048, "additional_special_tokens": ["[|user|]"]}
    assert {key: config.get(key, "missing") for key in expected} == expected
    assert (folder / TEMPLATE_FILE).read_bytes() == TEMPLATE.encode()
    assert (folder / TEMPLATE_FOLDER / "tool_use.jinja").read_text() == "{{ tools }}"
    tokenizer = Tokenizer.from_file(folder)
    generation = json.loads((folder / GENERATION_FILE).read_text())
    assert generation == {"eos_token_id": [tokenizer.special_tokens["[|done|]"]]}


@pytest.mark.parametrize("kind", ["hf", "superbpe"])
def test_transformers_opens_the_same_settings(kind, source, tmp_path):
    transformers = pytest.importorskip("transformers")
    from tokenizer.hf import SuperBPETokenizerFast

    (source / "code.py").unlink()
    config = json.loads((source / CONFIG).read_text())
    del config["auto_map"]
    (source / CONFIG).write_text(json.dumps(config))
    loaded = Tokenizer.from_file(source)
    write(loaded, tmp_path / "out", kind)
    load = transformers.AutoTokenizer.from_pretrained
    before, after = _settings(load(source)), _settings(load(tmp_path / "out"))
    assert before == after
    assert before["chat_template"].keys() == {"default", "tool_use"}
    assert _settings(SuperBPETokenizerFast.from_tokenizer(loaded)) == before


def _settings(opened):
    names = ("chat_template", "model_max_length", "padding_side", "truncation_side", "extra_special_tokens")
    tokens = ("bos_token", "eos_token", "pad_token")
    return {name: getattr(opened, name) for name in (*names, *tokens)}


def test_the_identity_is_that_without_settings(source, tokenizer, tmp_path):
    loaded = Tokenizer.from_file(source)
    for path in source.iterdir():
        if path.name not in ("tokenizer.json", CONFIG, TEMPLATE_FOLDER):
            path.unlink()
    for path in (source / TEMPLATE_FOLDER).iterdir():
        path.unlink()
    (source / CONFIG).write_text(json.dumps({"eos_token": "[|done|]"}))
    assert Tokenizer.from_file(source).sha256 == loaded.sha256
    # The files of a folder are the record, so users may edit them.
    loaded.save(tmp_path / "saved")
    (tmp_path / "saved" / TEMPLATE_FILE).write_text("edited")
    again = Tokenizer.load(tmp_path / "saved")
    assert again.sha256 == loaded.sha256
    assert carried.carried(again).files[TEMPLATE_FILE] == "edited"
    tokenizer.save(tmp_path / "saved")  # another one, without templates
    assert TEMPLATE_FILE not in carried.carried(Tokenizer.load(tmp_path / "saved")).files


@pytest.mark.parametrize("kind", ["gpt2", "tiktoken"])
def test_formats_without_settings_take_those_beside_them(kind, tokenizer, source, tmp_path):
    folder = tmp_path / kind
    if kind == "gpt2":
        write_gpt2(tokenizer, folder)
        (folder / "added_tokens.json").write_text(json.dumps(tokenizer.special_tokens))
    else:
        folder.mkdir()
        write(tokenizer, folder / "mine.tiktoken", "tiktoken")
    (folder / CONFIG).write_text('{"eos_token": "[|done|]", "padding_side": "left", "bos_token": null}')
    (folder / TEMPLATE_FILE).write_text(TEMPLATE)
    found = carried.carried(Tokenizer.from_file(folder, pattern="o200k"))
    assert found.config["bos_token"] is None
    assert (found.config["padding_side"], found.files, found.left) == ("left", {TEMPLATE_FILE: TEMPLATE}, [])


def test_what_does_not_fit_the_result_is_named(source, text, tmp_path, capsys):
    config = json.loads((source / CONFIG).read_text())
    tokens = {"pad_token": "[|no|]", "mask_token": "[|mask|]", "extra_special_tokens": {"image_token": "[|img|]"}}
    listed = {"added_tokens_decoder": {"400": {"content": "[|new|]"}, "299": {"content": "[|user|]"}, "401": None}}
    (source / CONFIG).write_text(json.dumps(config | tokens | listed | {"tokenizer_class": "Qwen2Tokenizer"}))
    (source / "added_tokens.json").write_text('{"[|old|]": 402, "[|pad|]": 299, "e": 68}')
    (source / MAP_FILE).unlink()
    assert main.run(["export", str(source), str(tmp_path / "out"), "--to", "hf"]) == 0
    printed = capsys.readouterr().out
    assert "the added tokens 'None', '[|new|]', '[|old|]', which the tokenizer's own file lacks" in printed
    for left in ("pad_token '[|no|]'", "mask_token '[|mask|]'", "extra_special_tokens '[|img|]'", "Qwen2Tokenizer"):
        assert left in printed
    assert json.loads((tmp_path / "out" / CONFIG).read_text())["pad_token"] == "[|done|]"  # the default of our folders
    assert main.run(["export", str(source), str(tmp_path / "x.json"), "--to", "hf"]) == 0
    assert f"left: {GENERATION_FILE}, {TEMPLATE_FILE}, " in capsys.readouterr().out
    # In our own layout, special tokens move, and ids in generation_config.json would be those of other tokens.
    own = train_bpe(texts.sample(20_000), 300)
    own.save(tmp_path / "own")
    (tmp_path / "own" / GENERATION_FILE).write_text('{"eos_token_id": 299, "max_new_tokens": 5}')
    words = ["extend", str(tmp_path / "own"), str(text), "--vocab-size", "310"]
    assert main.run([*words, "--to", str(tmp_path / "moved")]) == 0
    assert f"{GENERATION_FILE}, whose ids are other tokens here" in capsys.readouterr().out
    assert not (tmp_path / "moved" / GENERATION_FILE).exists()
    assert main.run([*words, "--keep-ids", "--special", "[|user|]", "--to", str(tmp_path / "kept")]) == 0
    assert (tmp_path / "kept" / GENERATION_FILE).exists()
    assert Tokenizer.load(tmp_path / "kept").special_tokens == {"<|endoftext|>": 299, "[|user|]": 300}


DAMAGE = {
    "not JSON": lambda path: path.write_text("{"),
    "a list": lambda path: path.write_text("[]"),
    "a number that is not finite": lambda path: path.write_text('{"a": NaN}'),
    "nested": lambda path: path.write_text("[" * 10_000 + "]" * 10_000),
    "surrogates": lambda path: path.write_text('{"a": "\\ud800"}'),
    "not UTF-8": lambda path: path.write_bytes(b'{"a": "\xff"}'),
    "large": lambda path: os.truncate(path, 1 << 40),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a FIFO": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path)),
    "a link out": lambda path: (path.unlink(), path.symlink_to("/etc/hostname")),
}
JSON_ONLY = ("not JSON", "a list", "a number that is not finite", "nested", "surrogates")
JSON_FILES = (GENERATION_FILE, MAP_FILE, CONFIG)


@pytest.mark.parametrize("damage", quick_first(DAMAGE, 4))
@pytest.mark.parametrize("name", [*JSON_FILES, TEMPLATE_FILE, f"{TEMPLATE_FOLDER}/tool_use.jinja"])
def test_damaged_files_are_named_or_rejected(damage, name, source, tmp_path):
    if damage in JSON_ONLY and name not in JSON_FILES:
        return
    own = tmp_path / "own"
    Tokenizer.from_file(source).save(own)
    (own / name).touch()
    for folder, load in ((own, Tokenizer.load), (source, Tokenizer.from_file)):
        DAMAGE[damage](folder / name)
        found, error = _opened(load, folder)
        if error:
            assert folder == source
            assert name in (MAP_FILE, CONFIG)  # they name the token that ends documents
            assert name in error
        else:
            assert name not in found.files
            assert any(str(folder / name) in left for left in found.left)


def _opened(load, folder):
    try:
        return carried.carried(load(folder)), ""
    except UserError as error:
        return None, str(error)


def test_a_tokenizer_with_a_template_replaces_the_template_of_the_model():
    model, tokenizer = (
        {"config": {}, "files": {TEMPLATE_FILE: name, **more}, "ids": {}, "left": []}
        for name, more in (("model", {GENERATION_FILE: "{}"}), ("tokenizer", {}))
    )
    model["files"][f"{TEMPLATE_FOLDER}/tool.jinja"] = "model"
    assert carried.merged(model, tokenizer)["files"] == {TEMPLATE_FILE: "tokenizer", GENERATION_FILE: "{}"}
    assert carried.merged(model, {**tokenizer, "files": {}})["files"] == model["files"]
