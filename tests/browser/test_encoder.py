"""The encoder in the page gives Python's ids, and its regexes cut as ours do."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.report import packing, regexes
from experiments.report.engine import engine
from superbpe import PRESETS, train_superbpe
from tests import texts
from tokenizer import Batch, Tokenizer, _native, patterns
from tokenizer.definition import Definition

pytestmark = pytest.mark.slow

CUSTOM = [
    r"\p{Lu}?\p{Ll}++|\d{2,}?x|[^\W\d]+?(?=\s)|.",
    r"(?i)straße|ſ|[k-m&&[^l]]+|(?>\s+)\b\w",
    r"(?i:i)(?s:.)|[[:punct:]]{1,2}+|(?<![a-z])\P{L}|\x41\u{e9}",
    r"(?<=\.)|(?=\p{Han})|$",
    r"(?P<word>\w+)\B|^\s|\A-|[]^-]\z",
    "\\p{N}\n[^,]+(?=,)\n(?<=a).",
]


@pytest.fixture
def page(opened: Any, tmp_path: Path) -> Iterator[Any]:
    script = importlib.resources.files("experiments.report").joinpath("encoder.js").read_text(encoding="utf-8")
    path = tmp_path / "encoder.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><script>{script}</script>", encoding="utf-8")
    yield opened.open(path)
    opened.check()


def _ids(page: Any, tokenizer: Tokenizer, documents: list[str]) -> list[list[int]]:
    facts, columns = engine(tokenizer)
    assert facts["refused"] is None
    script = """async ([packed, texts]) => {
        const encoder = new Encoder(await unpack(packed));
        return JSON.stringify(texts.map((text) => Array.from(encoder.encode(text))));
    }"""
    found: list[list[int]] = json.loads(page.evaluate(script, [packing.pack(facts, columns), documents]))
    return found


def _compare(page: Any, tokenizer: Tokenizer, documents: list[str], what: str) -> None:
    for document, ids in zip(documents, _ids(page, tokenizer, documents), strict=True):
        assert ids == tokenizer.encode_ordinary(document), (what, document[:200])


def _heldout() -> list[str]:
    return [*texts.various(), *texts.english()[1], *(texts.generated(seed, 300) for seed in range(100, 110))]


def test_every_mode_encodes_heldout_text_as_python_does(page: Any, trained: dict[str, Tokenizer]) -> None:
    documents = _heldout()
    for name, tokenizer in trained.items():
        _compare(page, tokenizer, documents, name)


def test_eligible_pretokens_and_whole_pieces(page: Any, trained: dict[str, Tokenizer]) -> None:
    documents = texts.various()
    batches = [Batch.from_texts(texts.sample(200_000))]
    eligible = train_superbpe(
        trained["superbpe"], lambda: batches, vocab_size=1000, transition=700, rules=PRESETS["runs"]
    )
    assert eligible.eligible
    plain = trained["gpt2"]
    whole = Tokenizer(Definition(
        byte_ids=plain.byte_ids, merge_ids=plain.merge_ids, n_phase1_merges=plain.n_phase1_merges,
        pattern=plain.pattern, ignore_merges=True, unmerged={b" zebra": 5000, b"qqq": 5001, "é!".encode(): 5002},
    ))  # fmt: skip
    for name, tokenizer in (("eligible", eligible), ("whole", whole)):
        _compare(page, tokenizer, [*documents, "a zebra qqq é! xqqq"], name)


def test_repeated_pairs_and_tokens_made_in_several_ways(page: Any) -> None:
    """The last rank of a pair that is listed twice counts. Random lists have all such oddities."""
    rng = np.random.default_rng(5)
    letters = np.frombuffer(b"abcd", dtype=np.uint8)
    for _ in range(6):
        vocab: dict[bytes, int] = {bytes([byte]): byte for byte in range(256)}
        merges = []
        for _ in range(60):
            known = [token for token in vocab if set(token) <= set(b"abcd") and len(token) < 6]
            left, right = (known[int(rng.integers(len(known)))] for _ in range(2))
            made = vocab.setdefault(left + right, len(vocab))
            merges.append((vocab[left], vocab[right], made))
        tokenizer = Tokenizer(Definition(
            byte_ids=range(256), merge_ids=np.array(merges, dtype=np.uint32), n_phase1_merges=len(merges),
            pattern=patterns.resolve("none"),
        ))  # fmt: skip
        documents = [rng.choice(letters, size=n).tobytes().decode() for n in (1, 2, 30, 400)]
        _compare(page, tokenizer, documents, str(merges))


def test_patterns_cut_as_ours_do(page: Any) -> None:
    documents = [*texts.various(), *(texts.generated(seed, 200) for seed in range(200, 206)), "a,b,1,c-]\nab é AÉ a.b"]
    script = """([sources, texts]) => {
        const regexes = sources.map((source) => new RegExp(source, "gu"));
        return texts.map((text) => pieceEnds(text, regexes));
    }"""
    for pattern in [*(patterns.resolve(name).regex for name in patterns.NAMES), *CUSTOM]:
        found = page.evaluate(script, [regexes.to_javascript(pattern), documents])
        for document, ends in zip(documents, found, strict=True):
            lengths = [len(piece.encode("utf-16-le")) // 2 for piece in _native.split(document, pattern)]
            assert ends == list(accumulate(lengths)), (pattern, document[:200])


def test_lone_surrogates_are_replacement_characters(page: Any, trained: dict[str, Tokenizer]) -> None:
    packed = packing.pack(*engine(trained["gpt2"]))
    script = "async (packed) => new Encoder(await unpack(packed)).encode('a\\ud800b')"
    assert page.evaluate(script, packed) == trained["gpt2"].encode_ordinary("a\ufffdb")


def test_columns_of_every_width_are_unpacked(page: Any) -> None:
    columns = {f"to{highest}": [0, 1, highest // 3, highest] for highest in (1, 255, 256, 70_000, 1 << 24, 2**32 - 1)}
    packed = packing.pack({"name": "é</script>"}, {**columns, "empty": []})
    script = (
        "async (packed) => JSON.stringify(await unpack(packed), (_, v) => ArrayBuffer.isView(v) ? Array.from(v) : v)"
    )
    assert json.loads(page.evaluate(script, packed)) == {"name": "é</script>", **columns, "empty": []}


def test_derivations_are_the_merges_that_apply(page: Any, trained: dict[str, Tokenizer]) -> None:
    script = """async (packed) => {
        const encoder = new Encoder(await unpack(packed));
        return Array.from(encoder.made, (id) => encoder.derivation(id).map((n) => [n.id, n.parts.map((p) => p.id)]));
    }"""
    for name in ("gpt2", "superwords"):
        tokenizer = trained[name]
        expected = [[[made, [left, right]]] for left, right, made in tokenizer.merge_ids.tolist()]
        assert page.evaluate(script, packing.pack(*engine(tokenizer))) == expected
