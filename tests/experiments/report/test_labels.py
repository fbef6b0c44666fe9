"""Names of tokenizers of several runs."""

from __future__ import annotations

from experiments.report.labels import name_all, settings
from experiments.results import ArmRecord


def _arm(superwords: bool, key: str = "superbpe") -> ArmRecord:
    return ArmRecord(
        key=key if superwords else "bpe", label="", tokenizer="", training="superbpe-1" if superwords else "bpe-1",
        shards="", heldout="", lms=[], evaluations=[], vocab_size=1, bytes_per_token=1, bits_per_byte=1,
    )  # fmt: skip


def _named(told: list[list[str]]) -> list[tuple[str, str]]:
    """Of the first, a BPE tokenizer, and of the others, superword tokenizers."""
    second = [i > 0 for i in range(len(told))]
    kinds = ["SuperBPE" if each else "BPE" for each in second]
    found = [settings(each, _arm(two)) for each, two in zip(told, second, strict=True)]
    return [tuple(each) for each in name_all(kinds, second, found, [f"lm-{i}" for i in range(len(told))])]


def test_names_hold_only_the_settings_that_differ() -> None:
    common = ["corpus=files", "superbpe.max_words=3", "lm.train.seed=4", "runner.threads=1", "bpe.train_size=900"]
    found = _named([[*common, *more] for more in ([], ["superbpe.transition=0.7"], ["superbpe.transition=0.9"])])
    assert found == [("BPE", ""), ("SuperBPE t=0.7", ""), ("SuperBPE t=0.9", "")]


def test_one_superword_tokenizer_needs_no_settings() -> None:
    assert _named([["superbpe.transition=0.7"], ["superbpe.transition=0.7"]]) == [("BPE", ""), ("SuperBPE", "")]


def test_a_series_is_named_without_size_and_transition() -> None:
    a, b = ["pattern=gpt2", "superbpe.transition=0.7"], ["pattern=llama3", "superbpe=runs", "bpe.vocab_size=900"]
    assert _named([["pattern=gpt2"], a, b]) == [
        ("BPE pattern=gpt2", "pattern=gpt2"),
        ("SuperBPE t=0.7 pattern=gpt2", "pattern=gpt2"),
        ("SuperBPE vocab=900 pattern=llama3 preset=runs", "pattern=llama3 preset=runs"),
    ]


def test_a_preset_names_the_bpe_whose_phase_1_it_brings() -> None:
    one, two = ["superbpe=uw-2025"], ["superbpe=runs", "superbpe.max_words=3"]
    found = [settings(each, _arm(second)) for each in (one, two) for second in (False, True)]
    told = name_all(["BPE", "SuperBPE"] * 2, [False, True] * 2, found, ["a", "b", "c", "d"])
    assert [each.label for each in told] == [
        "BPE preset=uw-2025", "SuperBPE preset=uw-2025", "BPE preset=runs", "SuperBPE preset=runs max_words=3",
    ]  # fmt: skip


def test_keys_with_equal_ends_are_shown_in_full_and_values_without_quotes() -> None:
    told = [
        "bpe.vocab_size=400",
        "superbpe.vocab_size=500",
        "+pattern.regex='a b'",
        "superbpe.forbid=['" + 50 * "x" + "']",
    ]
    ((_, _), (label, _)) = _named([[], told[:3]])
    assert label == "SuperBPE vocab=400 regex=a b"
    (_, (label, _), _) = _named([[], told, []])
    assert "bpe.vocab_size=400" in label
    assert "superbpe.vocab_size=500" in label
    assert "…" in label
    assert len(label) < 130


def test_tokenizers_with_equal_settings_are_named_by_their_model() -> None:
    assert [label for label, _ in _named([[], [], []])] == ["BPE", "SuperBPE (lm-1)", "SuperBPE (lm-2)"]


def test_an_arm_is_named_by_its_own_settings_alone() -> None:
    told = ["arms=[bpe,a,b]", "++arms.a.superbpe.max_words=2", "++arms.b.superbpe.max_words=3", "reference=a"]
    assert settings(told, _arm(True, "a")) == {"arms.a.superbpe.max_words": "2"}
    assert settings(told, _arm(True, "b")) == {"arms.b.superbpe.max_words": "3"}
    assert settings(told, _arm(False)) == {}
