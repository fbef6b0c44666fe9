"""The encoder in the page gives Python's ids, and its regexes cut as ours do."""

import dataclasses
import importlib.resources
import json

import pytest

from experiments.report import packing, vocabulary, vocabulary_page
from tests import texts
from tokenizer import Tokenizer, _native, patterns

pytestmark = pytest.mark.slow


@pytest.fixture
def page(opened, tmp_path):
    script = importlib.resources.files("experiments.report").joinpath("encoder.js").read_text(encoding="utf-8")
    path = tmp_path / "encoder.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><script>{script}</script>", encoding="utf-8")
    yield opened.open(path)
    opened.check()


def _packed(tokenizer):
    one = vocabulary.side("one", "nowhere", tokenizer, [], alpha=2.5)
    return vocabulary_page._packed(one, [], "")


def _compare(page, tokenizer, documents, what):
    script = """async ([packed, texts]) => {
        const encoder = new Encoder(await unpack(packed));
        return JSON.stringify(texts.map((text) => encoder.encode(text)));
    }"""
    found = json.loads(page.evaluate(script, [_packed(tokenizer), documents]))
    for document, ids in zip(documents, found, strict=True):
        assert ids == tokenizer.encode_ordinary(document), (what, document[:200])


def test_heldout_text_is_encoded_as_python_does(page, trained):
    generated = (texts.generated(seed, 300) for seed in range(100, 110))
    documents = [*texts.various(), *texts.english()[1], *generated]
    live = {name: each for name, each in trained.items() if vocabulary_page.to_javascript(each) is not None}
    assert {name for name, each in trained.items() if each.mode == "one-pass"} == set(live)
    for name, tokenizer in live.items():
        _compare(page, tokenizer, documents, name)
    unmerged = {b" zebra": 5000, b"qqq": 5001, "é!".encode(): 5002}
    whole = Tokenizer(dataclasses.replace(trained["gpt2"].definition, ignore_merges=True, unmerged=unmerged))
    _compare(page, whole, [*texts.various(), "a zebra qqq é! xqqq"], "whole pieces")
    # Lone surrogates are replacement characters.
    script = "async (packed) => new Encoder(await unpack(packed)).encode('a\\ud800b')"
    assert page.evaluate(script, _packed(trained["gpt2"])) == trained["gpt2"].encode_ordinary("a\ufffdb")


def test_patterns_cut_as_ours_do(page, trained):
    documents = [*texts.various(), *(texts.generated(seed, 200) for seed in range(200, 206)), "a,b,1,c-]\nab é AÉ a.b"]
    script = """([sources, texts]) =>
        texts.map((text) => pieces(text, sources.map((source) => new RegExp(source, "gu"))).filter((piece) => piece))"""
    plain = trained["gpt2"].definition
    for name in patterns.NAMES:
        pattern = patterns.resolve(name)
        sources = vocabulary_page.to_javascript(Tokenizer(dataclasses.replace(plain, pattern=pattern)))
        assert sources is not None, name
        found = page.evaluate(script, [sources, documents])
        for document, cut in zip(documents, found, strict=True):
            assert cut == _native.split(document, pattern.regex), (name, document[:200])


def test_columns_of_every_width_are_unpacked(page):
    columns = {f"to{highest}": [0, 1, highest // 3, highest] for highest in (1, 255, 256, 70_000, 1 << 24, 2**32 - 1)}
    packed = packing.pack({"name": "é</script>"}, {**columns, "empty": []})
    listed = "(_, v) => ArrayBuffer.isView(v) ? Array.from(v) : v"
    script = f"async (packed) => JSON.stringify(await unpack(packed), {listed})"
    assert json.loads(page.evaluate(script, packed)) == {"name": "é</script>", **columns, "empty": []}
