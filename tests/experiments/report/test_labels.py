from dataclasses import asdict
from types import SimpleNamespace

from experiments.report.labels import describe_phase1, label_all
from superbpe.rules import PHASE1, PRESETS
from tokenizer import train_bpe

BPE = {"recipe": "bpe", "vocab_size": 400, "pattern": "superbpe", "bpe.unit": "line", "lm.model.n_layers": 1}


def superword(preset="uw-2025", **changes):
    """Settings of an arm with phase 2; `changes` has `_` for the dot of a key."""
    rules = {f"superbpe.{key}": value for key, value in asdict(PRESETS[preset]).items()}
    rules["superbpe.forbid"] = list(PRESETS[preset].forbid)
    phase1 = {"pattern": PHASE1[preset]["pattern"], "bpe.unit": PHASE1[preset]["unit"]}
    changed = {key.replace("__", "."): value for key, value in changes.items()}
    return {**BPE, "recipe": "superbpe", "superbpe.transition": 0.8, **rules, **phase1, **changed}


def labelled(*settings):
    kinds = ["BPE" if each.get("recipe") == "bpe" else "SuperBPE" for each in settings]
    return label_all(kinds, settings, [f"lm-{i}" for i in range(len(settings))])


def test_a_label_has_only_the_settings_that_differ():
    cases = [
        ([BPE, superword(superbpe__transition=0.7)], ["BPE", "SuperBPE"]),
        (
            [BPE, superword(superbpe__transition=0.7), superword(superbpe__transition=0.9)],
            ["BPE", "SuperBPE t=0.7", "SuperBPE t=0.9"],
        ),
        (
            [BPE, {**BPE, "vocab_size": 900, "lm.model.n_layers": 2}],
            ["BPE lm.model.n_layers=1 vocab=400", "BPE lm.model.n_layers=2 vocab=900"],
        ),
        # A preset replaces the rules that it sets.
        (
            [superword(), superword("runs", superbpe__max_words=3)],
            ["SuperBPE preset=uw-2025", "SuperBPE preset=runs superbpe.max_words=3"],
        ),
        (
            [superword(), superword(superbpe__max_words=3)],
            ["SuperBPE superbpe.max_words=4", "SuperBPE superbpe.max_words=3"],
        ),
        # Arms without settings have a unique suffix.
        ([BPE, {}, superword(), {}], ["BPE", "SuperBPE (lm-1)", "SuperBPE (lm-2)", "SuperBPE (lm-3)"]),
        ([BPE, {}], ["BPE", "SuperBPE"]),
    ]
    for settings, expected in cases:
        assert labelled(*settings) == expected
    # Long values are shortened.
    _, label = labelled(superword(superbpe__forbid=["a"]), superword(superbpe__forbid=["x" * 50]))
    assert label.endswith('…xxxxxxxxxxxxxx"]')


def test_tokenizers_that_differ_in_phase_1_say_so():
    text = ["one two three four"] * 3
    full, lines = (train_bpe(text, 260, unit=unit) for unit in ("document", "line"))
    gpt2 = train_bpe(text, 260, pattern="gpt2")
    assert describe_phase1({"a": full, "b": full}) == ""
    assert describe_phase1({"a": full, "b": lines, "c": gpt2, "d": full}) == (
        "The tokenizers differ in the pattern or unit of phase 1: o200k in documents (a, d); o200k in lines (b); "
        "gpt2 in documents (c)."
    )
    # Tokenizers from elsewhere do not record their unit; those that other software runs have no pattern.
    imported, other = SimpleNamespace(pattern=full.pattern, superword_ids=list), SimpleNamespace()
    assert describe_phase1({"a": full, "b": imported}) == ""
    told = describe_phase1({"a": full, "b": imported, "c": other})
    assert told.endswith(": o200k in documents (a); o200k (b); unknown (c).")
