"""Phase 1 as a stage: lists of merges that several vocabularies share."""

import shutil

from tests.experiments.conftest import run_stages
from tests.experiments.outputs import names_by_stage


def test_lists_of_merges_are_shared_where_they_suffice(tiny, tmp_path, capsys):
    def trained(*settings):
        run_stages("train_bpe", [*tiny, *settings], tmp_path / "outputs")
        found = names_by_stage(tmp_path)
        return set(found["bpe"]), set(found["tokenizer"])

    _, direct = trained("bpe.vocab_size=350")
    assert "reused" not in capsys.readouterr().out
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
