"""The pipeline trains the released SuperBPE recipe in both phases.

`test_released_superbpe` shows the same of the Python functions, given the recipe's arguments. Here nothing is given
but sizes: pattern, unit, fence and vetoes come from the configuration.
"""

import json

import pytest

from tests import texts
from tests.experiments.outputs import run_until as run
from tests.parity import released
from tokenizer import Tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")


def _train(folder, text, recipe, **sizes):
    """Train both phases on a file; return the tokenizers of phase 1 and of both."""
    file, heldout = folder / "text.txt", folder / "heldout.txt"
    file.write_bytes(text.encode())
    heldout.write_text("held out")
    command = [
        *recipe,
        "corpus=files",
        f"corpus.paths=[{file}]",
        f"corpus.heldout_paths=[{heldout}]",
        f"artifacts={folder / 'artifacts'}",
        f"hydra.run.dir={folder / 'outputs'}",
        "runner.threads=1",
        f"bpe.vocab_size={256 + sizes['phase1'] + 1}",
        f"superbpe.transition={256 + sizes['kept']}",
        f"superbpe.vocab_size={256 + sizes['total'] + 1}",
    ]
    assert run("train_superbpe", command) == 0
    record = json.loads((folder / "outputs" / "run.json").read_text())
    names = [name for name in record["artifacts"] if name.startswith("tokenizer-")]
    found = [Tokenizer.load(folder / "artifacts" / name) for name in dict.fromkeys(names)]
    return found[0], found[-1]


_RECORDED = json.loads(released.RECORDED.read_text(encoding="utf-8"))[: released.N_SPELLED]
_SPELLED = zip(released.cases(), _RECORDED, strict=False)
CASES = [(case, row) for case, row in _SPELLED if case.recipe == "uw-2025" and row["new"]]
"""Corpora for which the merges of the recipe `uw-2025` are recorded in full."""
_PRESET = ["arms=[bpe_same,superbpe]", "superbpe=uw-2025"]


@pytest.mark.parametrize(
    ("number", "recipe"), [(0, _PRESET), (1, ["experiment=uw_2025"])], ids=["preset", "experiment"]
)
def test_the_pipeline_gives_the_merges_of_the_released_trainer(number, recipe, tmp_path):
    case, row = CASES[number]
    kept = min(case.kept, len(row["phase1"]))
    sizes = {"phase1": len(row["phase1"]), "kept": kept, "total": kept + len(row["new"])}
    phase1, both = _train(tmp_path, case.text, recipe, **sizes)
    assert released.lines(phase1.merges) == row["phase1"]
    assert released.lines(both.merges[kept:]) == row["new"]


def test_phase_1_of_real_text_equals_hf(tmp_path):
    """Code and prose with numbers, punctuation and indented lines, read by HF's trainer as the released scripts do."""
    tokenizers = pytest.importorskip("tokenizers", reason="HF tokenizers comes with the extra 'hf'")
    text = "\n".join(texts.sample(120_000))
    phase1, _ = _train(tmp_path, text, _PRESET, phase1=1500, kept=1400, total=1500)
    theirs, pre = tokenizers.Tokenizer(tokenizers.models.BPE()), tokenizers.pre_tokenizers
    split = pre.Split(tokenizers.Regex(released.REGEXES["uw-2025"][0]), "isolated")
    theirs.pre_tokenizer = pre.Sequence([split, pre.ByteLevel(add_prefix_space=False, use_regex=False)])
    size = len(set(text.encode())) + 1500
    theirs.train([str(tmp_path / "text.txt")], tokenizers.trainers.BpeTrainer(show_progress=False, vocab_size=size))
    merges = json.loads(theirs.to_str())["model"]["merges"]
    assert released.lines(phase1.merges) == [" ".join(merge) for merge in merges]
