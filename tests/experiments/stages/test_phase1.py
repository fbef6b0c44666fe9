"""Phase 1 as a stage: lists of merges that several vocabularies share."""

import json
import shutil

import pytest

from tests.experiments.conftest import run_stages
from tests.experiments.outputs import names_by_stage, run_until
from tokenizer import Corpus, CorpusConfig, train_bpe


@pytest.mark.slow
def test_lists_of_merges_are_shared_where_they_suffice(tiny, tmp_path, capsys, monkeypatch):
    def trained(*settings):
        run_stages("train_bpe", [*tiny, *settings], tmp_path / "outputs")
        found = names_by_stage(tmp_path)
        return set(found["bpe"]), set(found["tokenizer"])

    with monkeypatch.context() as patch:
        patch.setattr("tokenizer.train.bpe._LOOP_MEMORY", 10**9)
        _, direct = trained("bpe.vocab_size=350")
    printed = capsys.readouterr().out
    assert "which the memory limit of 4096 MB does not include" in printed
    assert "reused" not in printed
    shutil.rmtree(tmp_path / "artifacts")
    lists, shorter = trained("bpe.vocab_size=400")
    found = trained("bpe.vocab_size=350")
    assert found[0] == lists
    assert direct < found[1]
    # A larger vocabulary trains a longer list.
    longer, tokenizers = trained("bpe.vocab_size=420")
    assert len(longer) == 2
    assert shorter < tokenizers
    # Vetoes and forced tokens make another list.
    vetoed, _ = trained("bpe.vocab_size=350", "bpe.forbid=[e]", "bpe.forced_tokens=[zzz]")
    assert len(vetoed) == len(longer) + 1
    # So does leaving out rare pretokens.
    assert len(trained("bpe.vocab_size=350", "bpe.min_pretoken_count=3")[0]) == len(vetoed) + 1
    # Presets with the same phase 1 share its merges.
    runs, _ = trained("superbpe=runs")
    assert trained("superbpe=runs", "superbpe.max_words=3")[0] == runs


def test_a_sweep_over_balance_trains_as_python_does(tiny, tmp_path, capsys):
    """Cells by translations and without, and an arm of its own ratios."""
    sources = {}
    for name, words, more in (("en", "the quick brown fox", 60), ("de", "der schnelle braune Fuchs", 0)):
        rows = [{"text": f"{words} {i}", "id": i} for i in range(60)] + [{"text": f"{words} again {words}"}] * more
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        sources[name] = str(tmp_path / f"{name}.jsonl")
    settings = [word for word in tiny if not word.startswith("corpus.paths")] + ["bpe.vocab_size=300"]
    settings += ["arms=[bpe,ratios]", "arms.ratios.recipe=bpe"]
    balance = ["bpe.parallel=null,id", "arms.ratios.bpe.parallel=null", "arms.ratios.bpe.ratios={en:1,de:1.5}"]

    def sweep(weight=""):
        named = [f"corpus.sources.en={sources['en']}{weight}", f"corpus.sources.de={sources['de']}"]
        return run_until("train_bpe", [*settings, *named, "--multirun", *balance])

    assert sweep() == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines() if line[1:3].strip().isdecimal()] == [
        ["0", "null"],
        ["1", "id"],
    ]
    corpus = Corpus(CorpusConfig(sources=sources, heldout_fraction=0.1))
    trained = [train_bpe(corpus, 300, **x) for x in ({}, {"parallel": "id"}, {"ratios": {"en": 1, "de": 1.5}})]
    names = {f"tokenizer-{tokenizer.sha256[:12]}" for tokenizer in trained}
    assert len(names) == 3
    assert names == set(names_by_stage(tmp_path)["tokenizer"])
    # The weights apply to the first cell; nothing in the second has them.
    assert sweep(":2") == 2
    assert "bpe.parallel=id compares sources by themselves, so that weights" in capsys.readouterr().err
