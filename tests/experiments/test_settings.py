import json

from experiments.arms import resolve_arms
from experiments.compose import load
from experiments.settings import resolved


def test_an_arm_has_the_settings_that_it_uses():
    arms = ["arms=[bpe,superbpe,bytes,gpt]", "arms.gpt.file=gpt.json", "superbpe=runs", "superbpe.vocab_size=900"]
    config = load(["corpus=files", "corpus.paths=[a.txt]", *arms])
    found = {arm.name: resolved(config, arm, config.lm.model) for arm in resolve_arms(config)}
    bpe, superbpe = found["bpe"], found["superbpe"]
    assert not any(key.startswith("superbpe.") for key in bpe)
    assert (superbpe["superbpe.atoms"], superbpe["superbpe.transition"]) == ("pretokens", 0.8)
    assert (bpe["pattern"], superbpe["pattern"], superbpe["vocab_size"]) == ("o200k", "o200k", 900)
    assert found["gpt"]["file"] == "gpt.json"
    assert not {"pattern", "vocab_size", "bpe.unit"} & found["gpt"].keys()
    assert "pattern" not in found["bytes"]
    for each in found.values():
        assert {"lm.model.n_layers", "lm.train.context_bytes", "budget.mode", "corpus.heldout_salt"} <= each.keys()
        assert not {"lm.train.seed", "lm.train.device", "superbpe.phase1_unit"} & each.keys()
        assert json.loads(json.dumps(each)) == each
