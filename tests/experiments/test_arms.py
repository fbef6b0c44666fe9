"""Arms: recipes, their own settings, and the command line that chooses them."""

import json
import re
from dataclasses import replace

import pytest

from experiments.arms import check_name, resolve_arms
from experiments.cli import main
from experiments.compose import load
from experiments.config import part
from experiments.store import records
from lm.evaluate.deployment import training_flops
from superbpe.rules import PHASE1, PRESETS, Rules
from tests import other_tokenizers
from tests.experiments.outputs import report
from tests.experiments.outputs import run_until as run
from tokenizer.errors import UserError
from tokenizer.patterns import FULL_STRENGTH
from tokenizer.tokenizer import Tokenizer


def test_the_default_is_bpe_and_superbpe():
    bpe, superbpe = resolve_arms(load())
    assert (bpe.name, bpe.label, bpe.recipe) == ("bpe", "BPE", "bpe")
    assert (superbpe.name, superbpe.label, superbpe.recipe) == ("superbpe", "SuperBPE", "superbpe")
    assert (bpe.pattern.name, bpe.bpe.unit) == (FULL_STRENGTH, "document")
    assert part(Rules, superbpe.superbpe) == PRESETS["digits"]
    assert (superbpe.pattern, superbpe.bpe.unit) == (bpe.pattern, bpe.bpe.unit)


def test_arms_keep_their_order_and_the_reference_comes_first():
    chosen = ["arms=[superbpe,llama3,bytes,bpe]", "arms.llama3.file=llama3/tokenizer.json"]
    assert [arm.name for arm in resolve_arms(load(chosen))] == ["superbpe", "llama3", "bytes", "bpe"]
    arms = resolve_arms(load([*chosen, "reference=bytes"]))
    assert [arm.name for arm in arms] == ["bytes", "superbpe", "llama3", "bpe"]
    assert (arms[2].recipe, arms[2].source, arms[2].label) == ("file", "llama3/tokenizer.json", "llama3")
    (arm,) = resolve_arms(load(["arms=[x]", "arms.x.file=a", "arms.x.pattern=cl100k"]))
    assert (arm.source_pattern, arm.pattern.name) == ("cl100k", FULL_STRENGTH)
    named = resolve_arms(load(["arms=[bpe,x]", "arms.x.pretrained=tiktoken:o200k_base"]))[1]
    assert (named.recipe, named.source) == ("pretrained", "tiktoken:o200k_base")


def test_an_arm_overrides_any_setting():
    own = (
        "recipe=superbpe",
        "bpe.vocab_size=4096",
        "superbpe.max_words=2",
        "superbpe.transition=0.5",
        "pattern=llama3",
    )
    chosen = ["arms=[bpe,superbpe,small]", "superbpe=uw-2025", *(f"arms.small.{setting}" for setting in own)]
    bpe, superbpe, small = resolve_arms(load(chosen))
    assert (bpe.vocab_size, superbpe.vocab_size, small.vocab_size) == (8192, 8192, 4096)
    assert (superbpe.superbpe.max_words, small.superbpe.max_words) == (4, 2)
    assert (superbpe.transition_size, small.transition_size) == (6554, 2048)
    assert small.pattern.name == "llama3" != superbpe.pattern.name


def test_a_preset_brings_its_phase_1_and_replaces_the_experiments_settings_of_superwords():
    arms = ["arms=[bpe,runs]", "arms.runs.recipe=superbpe", "arms.runs.preset=runs"]
    arm = resolve_arms(load(arms))[1]
    assert part(Rules, arm.superbpe) == PRESETS["runs"]
    assert (arm.pattern.name, arm.bpe.unit) == (PHASE1["runs"]["pattern"], PHASE1["runs"]["unit"])
    more = ["superbpe.max_words=4", "superbpe.transition=400", "arms.runs.superbpe.max_words=5"]
    runs = resolve_arms(load([*arms, *more]))[1]
    assert part(Rules, runs.superbpe) == replace(PRESETS["runs"], max_words=5)
    assert runs.superbpe.transition == 0.8


@pytest.mark.slow
def test_vetoes_and_forced_tokens_are_part_of_an_arm_once_they_are_set(tiny, mistake):
    for arm in resolve_arms(load()):
        assert arm.bpe.wanted == {}
    (arm,) = resolve_arms(load(["arms=[bpe]", "bpe.forbid=[e]", "arms.bpe.bpe.forced_tokens=[ab]"]))
    assert arm.bpe.wanted == {"forbid": ["e"], "forced_tokens": ["ab"]}
    for setting, message in (
        ("bpe.forbid=['a(?=b)']", 'the regex "a(?=b)" of forbid does not compile: look-around'),
        ("bpe.forced_tokens=['a b']", "forced token 'a b' can never be one token"),
        ("arms.bpe.bpe.forced_tokens=['a b']", "arm bpe: the forced token 'a b' can never be one token"),
    ):
        assert message in mistake("pipeline", *tiny, setting)
    boundless = ("superbpe=boundless", "superbpe.transition=auto", "bpe.forced_tokens=[ab]")
    assert "bpe.forced_tokens=['ab'] needs a transition" in mistake("pipeline", *tiny, *boundless)


def test_names_of_arms_are_plain_words_and_files_are_not_asked_for_on_the_hub(tiny, tmp_path, mistake):
    for name in ("bpe:seed1", "bpe (1 layer, seed 0, 1k)", "1bpe", "bpe.x"):
        with pytest.raises(UserError, match="the name of an arm consists of letters"):
            check_name(name)
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\narms:\n  'bpe:seed1': {recipe: bytes}\n")
    with pytest.raises(UserError, match="arms=bpe:seed1: the name of an arm"):
        load(["experiment=mine"], config_dir=str(tmp_path))
    absent = ["arms=[bpe,x]", "arms.x.file=org/tokenizr"]
    assert "arms.x.file=org/tokenizr does not exist" in mistake("pipeline", "--until", "train-bpe", *tiny, *absent)


def test_a_tokenizer_that_was_trained_on_the_held_out_text_is_rejected(tiny, corpus, tmp_path, mistake):
    assert main.run(["train", str(corpus), "--vocab-size", "400", "--to", str(tmp_path / "mine")]) == 0
    arms = [*tiny, "arms=[bpe,mine]", f"arms.mine.file={tmp_path / 'mine'}"]
    said = mistake("pipeline", "--until", "train-bpe", *arms)
    assert re.search(r"arms.mine: .*mine was trained on (\d+) of the \1 documents, which this run holds out", said)
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "unseen"}\n')
    arms += ["corpus.heldout_fraction=0", f"corpus.heldout_paths=['{other}']"]
    assert run("train_bpe", arms) == 0
    large = mistake("pipeline", *tiny, "bpe.vocab_size=99k", "superbpe.transition=300")
    assert "the sizes of vocabularies would differ; use bpe.vocab_size=" in large
    short = mistake("pipeline", *arms, "eval.min_context_bytes=0", "eval.context_bytes=5")
    assert re.search(r"arms\.mine has a token of (\d+) bytes \(id .*; add eval\.context_bytes=\1\b", short)


def test_two_equal_arms_are_noticed(tiny, capsys):
    twins = ["arms=[bpe,superbpe,twin]", "arms.twin.recipe=bpe"]
    assert run("train_bpe", [*tiny, *twins]) == 0
    assert "bpe and twin are the same tokenizer" in capsys.readouterr().out


def test_cfg_job_shows_every_arm(tiny, capsys):
    arms = ["arms=[bpe,mine]", "arms.mine.recipe=superbpe", "arms.mine.bpe.vocab_size=500"]
    assert main.run(["pipeline", "--cfg", "job", *tiny, *arms]) == 0
    shown = capsys.readouterr().out
    assert "  mine:\n" in shown
    assert "    recipe: superbpe\n" in shown
    assert "      vocab_size: 500" in shown


@pytest.mark.slow
def test_six_arms_from_tokenizers_to_the_report(tiny, tmp_path, capsys):
    """Trained, cut, without merges, and from a file: each in every table, phase 1 trained once where it is shared."""
    assert run("train_bpe", [*tiny, "arms=[bpe]"]) == 0
    file = next((tmp_path / "artifacts").glob("tokenizer-*"))
    chosen = ["arms=[bpe,superbpe,bytes,small,fences,mine]", f"arms.mine.file={file}"]
    chosen += ["arms.small.recipe=bpe", "arms.small.bpe.vocab_size=300", "arms.small.label=small BPE"]
    chosen += ["arms.fences.recipe=superbpe", "arms.fences.preset=runs", "reference=small"]
    assert run("report", [*tiny, *chosen]) == 0
    assert "bpe and mine are the same tokenizer" in capsys.readouterr().out
    numbers = report(tmp_path)
    labels = ["small BPE", "BPE", "SuperBPE", "bytes", "fences", "mine"]
    assert [row["label"] for row in numbers["tokenizers"]] == labels
    assert sum(row["by"] == "all" for row in numbers["differences"]) == 15
    assert [side["label"] for side in numbers["sample"]["sides"]] == labels
    assert [arm["label"] for arm in numbers["superwords"]] == ["SuperBPE", "fences"]
    assert {row["tokenizer"] for row in numbers["compression"]} == set(labels)
    by_label = {row["label"]: row for row in numbers["tokenizers"]}
    assert by_label["bytes"]["bytes_per_token"] == 1.0
    assert by_label["mine"]["bits_per_byte"] == by_label["BPE"]["bits_per_byte"]  # the same tokenizer, the same model
    assert len(list((tmp_path / "artifacts").glob("bpe-*"))) == 1  # one list of merges for all four trained arms
    (found,) = records.find(tmp_path / "outputs")
    assert [arm.label for arm in found.results.arms] == labels
    page = next((tmp_path / "artifacts").glob("report-*/report.html")).read_text()
    assert all(label in page for label in labels)
    assert Tokenizer.load(file).sha256 == by_label["mine"]["sha256"]
    # Another reference is another report about the same models.
    models = {path.name for path in (tmp_path / "artifacts").glob("lm-*")}
    assert run("report", [*tiny, *chosen[:-1], "reference=superbpe", "arms.bpe.label=plain"]) == 0
    assert {path.name for path in (tmp_path / "artifacts").glob("lm-*")} == models
    reports = [json.loads(path.read_text()) for path in (tmp_path / "artifacts").glob("report-*/report.json")]
    labels = ["SuperBPE", "plain", "bytes", "small BPE", "fences", "mine"]
    assert labels in [[row["label"] for row in each["tokenizers"]] for each in reports]


@pytest.mark.slow
def test_a_tokenizer_of_other_software_is_an_arm(tiny, tmp_path, capsys):
    """WordPiece drops white space: its lost text is in the table, and its model is scored all the same."""
    file = other_tokenizers.write(tmp_path, "word_pieces")
    chosen = [*tiny, "arms=[bpe,words]", f"arms.words.file={file}"]
    assert run("report", chosen) == 2
    assert "name one, its own or a new one, with arms.words.end_of_text='\"STRING\"'" in capsys.readouterr().err
    chosen += ['arms.words.end_of_text="<|endoftext|>"']
    assert run("report", chosen) == 0
    assert "documents end with <|endoftext|> (a new id)" in capsys.readouterr().out
    numbers = report(tmp_path)
    bpe, words_row = numbers["tokenizers"]
    assert bpe["text_lost"] == ""
    assert "documents changed" in words_row["text_lost"]
    assert words_row["software"].startswith("tokenizers")
    assert "words loses text" in numbers["verdict"]["detail"]
    assert (bpe["untraced"], words_row["untraced"]) == ("", "it has no record of its training text")
    assert "Training text unknown: words may have been trained on the held-out" in numbers["verdict"]["detail"]
    assert run("report", chosen) == 0  # reused


@pytest.mark.slow
def test_arms_that_are_lossy_diverged_smaller_or_of_another_pattern_in_one_comparison(tiny, tmp_path):
    """The first two are shown and decide nothing; the others are compared, and the page says what else differs."""
    assert run("train_bpe", [*tiny, "arms=[bpe]"]) == 0
    content = json.loads(next((tmp_path / "artifacts").glob("tokenizer-*/tokenizer.json")).read_text())
    (tmp_path / "lower.json").write_text(json.dumps(content | {"normalizer": {"type": "Lowercase"}}))
    chosen = ["arms=[bpe,lower,small,llama]", f"arms.lower.file={tmp_path / 'lower.json'}"]
    chosen += ["arms.small.recipe=bpe", "arms.small.bpe.vocab_size=300"]
    chosen += ["arms.llama.recipe=bpe", "arms.llama.pattern=llama3"]
    assert run("evaluate", [*tiny, "lm.n_seeds=3", *chosen]) == 0
    rates = [f"lm.train.{name}_lr=1000" for name in ("matrix", "embedding", "head", "vector")]
    other = ["arms=[bpe]", "arms.bpe.label=diverged", *rates, f"hydra.run.dir={tmp_path / 'other'}"]
    assert run("evaluate", [*tiny, "lm.n_seeds=3", *other]) == 0
    out = tmp_path / "comparison"
    assert main.run(["compare", str(tmp_path / "outputs"), str(tmp_path / "other"), "--out", str(out)]) == 0
    numbers = json.loads((out / "comparison.json").read_text())
    rows = {row["label"]: row for row in numbers["tokenizers"]}
    assert "lower changes or loses text in" in rows["lower"]["barred"]
    learned_nothing = r"a model of diverged needs [\d,.]+ bits per byte, where a uniform guess"
    assert re.search(learned_nothing, rows["diverged"]["barred"])
    assert {label for label, row in rows.items() if not row["barred"]} == {"BPE", "small", "llama"}
    every = [row for row in numbers["differences"] if row["by"] == "all"]
    tested = {row["tokenizer"]: row for row in every if row["reference"] == "BPE"}
    for label in ("lower", "diverged"):
        assert (tested[label]["decision"], tested[label]["withheld"]) == ("withheld", rows[label]["barred"])
        assert rows[label]["barred"] in numbers["verdict"]["sentence"]
    assert all(not tested[label]["withheld"] for label in ("small", "llama"))
    pooled = {label for row in numbers["differences"] for label in (row["seeds_pooled_over"] or "BPE").split(" + ")}
    assert pooled <= {"BPE", "small", "llama"}
    for row in rows.values():
        amounts = {"vocab_size": row["vocab_size"], "tokens": row["train_tokens"], "n_bytes": row["train_bytes"]}
        assert row["deployed_flops"] == training_flops(load().deployment, **amounts)
    assert "The tokenizers differ in the pattern or unit of phase 1" in numbers["conditions"]
