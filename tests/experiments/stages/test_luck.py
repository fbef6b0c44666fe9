"""The luck of the text that tokenizers are trained on: halves, recipes, and the size of the effect."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.arms import resolve_arms
from experiments.compose import load
from experiments.findings.further import luck_of
from experiments.results import Luck
from experiments.stages import luck
from lm.evaluate.significance import Ratio
from tests.texts import prose
from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import Corpus
from tokenizer.errors import UserError
from tokenizer.train.bpe import train_bpe


def written(folder, rows, name="text.jsonl", **settings):
    """A corpus of (source, text)."""
    path = folder / name
    path.write_text("".join(json.dumps({"source": source, "text": text}) + "\n" for source, text in rows))
    return Corpus(CorpusConfig(**({"paths": [str(path)], "source_field": "source"} | settings)))


def _two_kinds():
    rng = np.random.default_rng(0)
    sources = [f"{kind}: {number}" for kind, n in (("prose", 12), ("code", 9), ("rare", 2)) for number in range(n)]
    return [(source, f"{source} {i} " + "x" * int(rng.integers(50, 150))) for source in sources for i in range(8)]


def test_halves_are_complementary_and_by_source_within_kinds(tmp_path):
    rows = _two_kinds()
    halves = luck.divide(written(tmp_path, rows))
    assert sorted(halves.texts) == sorted(text for _, text in rows)
    assert halves.share == 1
    sizes = np.array([len(text) for text in halves.texts])
    kinds = np.array([text.partition(": ")[0] for text in halves.texts])
    sources = np.array([text.partition(" ")[2].partition(" ")[0] for text in halves.texts])
    assert len({first.tobytes() for first in halves.first}) == luck.SPLITS
    for number, first in enumerate(halves.first):
        both = [half.batches for place in (0, 1) for half in halves.half(2 * number + place)]
        assert sorted(both[0] + both[1]) == sorted(halves.texts)
        for kind in ("prose", "code", "rare"):
            assert sizes[first & (kinds == kind)].sum() / sizes[kinds == kind].sum() == pytest.approx(0.5, abs=0.1)
            split = {
                source
                for source in sources[kinds == kind]
                if 0 < first[(kinds == kind) & (sources == source)].mean() < 1
            }
            assert bool(split) == (kind == "rare")  # it has too few sources
    again = luck.divide(written(tmp_path, rows))
    assert again.texts == halves.texts
    assert (again.first == halves.first).all()


def test_a_large_text_is_sampled_by_source(tmp_path, monkeypatch):
    rows = _two_kinds()
    n_bytes = sum(len(text) for _, text in rows)
    monkeypatch.setattr(luck, "MOST_BYTES", 0.6 * n_bytes)
    halves = luck.divide(written(tmp_path, rows))
    assert halves.share == pytest.approx(0.6, abs=0.08)
    assert halves.share == pytest.approx(sum(map(len, halves.texts)) / n_bytes)
    kept = [text for text in halves.texts if text.startswith("prose")]
    assert {kept.count(text) for text in kept} == {1}
    assert len(kept) == 8 * len({text.split()[1] for text in kept})  # whole sources


def test_documents_are_divided_where_sources_are_unnamed_and_weights_stay(tmp_path):
    for name in ("one", "two"):
        written(tmp_path, [("", f"{name} {i} " + "y" * 100) for i in range(30)], f"{name}.jsonl")
    sources = {"one": f"{tmp_path}/one.jsonl:3", "two": f"{tmp_path}/two.jsonl"}
    halves = luck.divide(Corpus(CorpusConfig(sources=sources)))
    assert halves.effective == pytest.approx(60, rel=0.01)
    for number in range(2 * luck.SPLITS):
        one, two = halves.half(number)
        assert (one.weight, two.weight) == (3, 1)
        assert {text.split()[0] for text in one.batches} == {"one"}
        assert len(one.batches) == len(two.batches) == 15


def _arms(*settings):
    return resolve_arms(load(["pattern=gpt2", *settings]))


@pytest.mark.slow
def test_a_tokenizer_of_choose_has_a_recipe_and_other_files_have_none():
    text, (file,) = SimpleNamespace(hash="text"), _arms("arms=[x]", "arms.x.file=x")
    texts = prose()[:20]
    for own in _arms("bpe.vocab_size=400", "arms=[bpe,superbpe]", "bpe.tie_break=lexicographic-greatest"):
        tokenizer = luck._trained(own, [luck.Source(texts)], 1)
        assert luck.recipe_of(own, tokenizer, text) is own
        assert luck.recipe_of(file, tokenizer, text) is None
        tokenizer.provenance["choose"] = {"corpus": "text"}
        recipe = luck.recipe_of(file, tokenizer, text)
        again = luck._trained(recipe, [luck.Source(texts)], 1)
        assert again.sha256 == tokenizer.sha256
        assert luck.recipe_of(file, tokenizer, SimpleNamespace(hash="another")) is None


def test_what_was_not_trained_from_bytes_on_enough_text_has_no_luck():
    (arm,), (file,) = _arms("arms=[bpe]", "bpe.vocab_size=400"), _arms("arms=[x]", "arms.x.file=x")
    with pytest.raises(UserError, match="only enough pairs for"):
        luck._trained(arm, [luck.Source(["abc abc"])], 1)
    tokenizer = train_bpe(["the text"] * 2, 260)
    tokenizer.provenance["choose"] = {"corpus": "text"}
    assert luck.recipe_of(file, tokenizer, SimpleNamespace(hash="text")).bpe.vocab_size == 260
    tokenizer.provenance["imported"] = {"format": "hf"}
    assert luck.recipe_of(file, tokenizer, SimpleNamespace(hash="text")) is None


def made(halves, bits, share=1.0, kinds=("",)):
    return Luck(halves=halves, kinds=list(kinds), n_bytes=[1, 3][: len(kinds)], share=share, bits_per_byte=bits)


def test_the_variance_by_hand():
    one = made("a", [[[2.0], [2.1]], [[2.0], [2.0]]])
    other = made("a", [[[2.2], [2.1]], [[2.0], [2.02]]])
    gaps = np.array([[10.0, 0.0], [0.0, 1.0]])
    paired = ((gaps[:, 0] - gaps[:, 1]) ** 2).sum() / 2 / 4
    found = luck_of([one, other, None], {})
    assert found.luck_degrees == 2
    assert found.luck[0, 1] == pytest.approx(paired)
    alone = (100 * np.log(2.1 / 2.0)) ** 2 / 2 / 4
    assert found.luck[0, 2] == pytest.approx(alone)  # against a vocabulary from elsewhere
    apart = luck_of([one, dataclasses.replace(one, halves="b")], {})
    assert apart.luck[0, 1] == pytest.approx(2 * alone)
    assert luck_of([one, one], {}).luck[0, 1] == 0
    sampled = [dataclasses.replace(arm, share=0.25) for arm in (one, other)]
    assert luck_of(sampled, {}).luck[0, 1] == pytest.approx(paired / 2)
    assert luck_of([], {}).luck == luck_of([None, None], {}).luck_of_kinds == {}


def test_kinds_have_their_own_luck_and_weights_count():
    one = made("a", [[[1.0, 2.0], [1.0, 2.0]]], kinds=("code", "prose"))
    other = made("a", [[[1.1, 2.0], [1.0, 2.0]]], kinds=("code", "prose"))
    found = luck_of([one, other], {})
    assert found.of_kind("code").luck[0, 1] == pytest.approx(10.0**2 / 4)
    assert found.of_kind("prose").luck[0, 1] == 0
    assert found.luck[0, 1] == pytest.approx((100 * 0.1 / 7) ** 2 / 4)  # a quarter of the bytes
    assert luck_of([one, other], {"code": 2.0}).luck[0, 1] == pytest.approx(10.0**2 / 4)
    assert found.of_kind("other") == found


def test_intervals_with_luck_contain_the_truth():
    """The text of a tokenizer shifts its difference by as much as documents do; halves by twice that variance."""
    rng, n = np.random.default_rng(0), 2000
    documents, seeds = rng.normal(0, 1.0, (n, 1, 40)), rng.normal(0, 0.05, (n, 3, 1))
    measured = Ratio.of(documents + seeds + rng.normal(0, np.sqrt(1 / 40), (n, 1, 1)), np.ones((n, 40)))
    equal = made("a", np.ones((5, 2, 1)).tolist())
    halves = 1 + rng.normal(0, np.sqrt(2 / 40), (n, 5, 2, 1)) / 100
    variances = [luck_of([equal, made("a", bits.tolist())], {}).luck[0, 1] for bits in halves]
    assert np.mean(variances) == pytest.approx(1 / 40, rel=0.1)
    low, high = measured.with_further(np.array(variances), 5, 0.0).interval(0.95)
    assert 0.945 < np.mean((low <= 0) & (high >= 0)) < 0.98
    low, high = measured.interval(0.95)
    assert np.mean((low <= 0) & (high >= 0)) < 0.9
