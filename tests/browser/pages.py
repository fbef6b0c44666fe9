"""Every page that we write, with any names of tokenizers; `say` gives the text that replaces other untrusted text."""

import dataclasses
import functools
import json
import tempfile
from pathlib import Path

from experiments.cli import main
from experiments.report import choose_page, comparison_page, fertility_page, vocabulary, vocabulary_page
from tests import texts
from tests.browser import ladders
from tests.experiments.report.sample import sample_report
from tokenizer import Batch, Tokenizer


def said(value, say, keys):
    """Replace all strings under these keys of a JSON-able value."""

    def replaced(each):
        if isinstance(each, str):
            return say(each)
        return [replaced(part) for part in each] if isinstance(each, list) else said(each, say, keys)

    if isinstance(value, dict):
        return {key: replaced(each) if key in keys else said(each, say, keys) for key, each in value.items()}
    return [said(each, say, keys) for each in value] if isinstance(value, list) else value


def write_comparison(file, names, say, _):
    keys = {"title", "sentence", "detail", "conditions", "text", "corpus", "command", "config", "platform", "prompts"}
    keys |= {"what", "why", "barred", "task", "metric", "category", "stage", "artifacts", "finish", "withheld"}
    report = said(sample_report(names), say, {*keys, "decision"})
    report["differences"] = said(report["differences"], say, {"group"})
    report["notes"] = [say("seed 2 is left out")]
    report["provenance"]["versions"] = {say("python"): say("3.11")}
    file.write_text(comparison_page.render(report), encoding="utf-8")


def write_fertility(file, names, say, trained):
    root = file.parent / "fertility"
    chosen = dict(zip(trained, names, strict=False))
    for name in chosen:
        trained[name].save(root / name)
    for name, documents in (("english", texts.english()[1][:30]), ("scripts", list(texts.SCRIPTS.values()))):
        lines = [json.dumps({"text": text}) for text in documents]
        (root / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    given = [str(root / name) for name in (*chosen, "english.jsonl", "scripts.jsonl")]
    assert main.run(["fertility", *given, "--out", str(root / "out")]) == 0
    report = json.loads((root / "out" / "fertility.json").read_text(encoding="utf-8"))
    for row in report["rows"]:
        row["group"] = row["group"] if row["by"] == "all" else say(row["group"])
    report = said(report, lambda name: chosen.get(name, name), {"name", "tokenizer", "reference"})
    report = said(report, say, {"source", "software", "training_text", "files", "made", "command"})
    file.write_text(fertility_page.render(report), encoding="utf-8")


@functools.cache
def _choice():
    """The numbers of `superbpe choose` for a small grid."""
    with tempfile.TemporaryDirectory() as root:
        file, prose = Path(root) / "text.jsonl", [part for text in texts.prose() for part in text.split("\n\n")]
        lines = [json.dumps({"text": f"{text} {i}", "from": f"kind{i % 2}: {i % 4}"}) for i, text in enumerate(prose)]
        file.write_text("\n".join(lines), encoding="utf-8")
        words = ["choose", str(file), "--heldout", "0.4", "--source-field", "from", "--out", str(Path(root) / "out")]
        words += ["--presets", "uw-2025", "--patterns", "o200k", "--transitions", "0.5"]
        words += ["--sizes", "600", "800", "1200"]
        assert main.run(words) == 0
        return (Path(root) / "out" / "choose.json").read_text(encoding="utf-8")


def write_choose(file, names, say, _):
    report = json.loads(_choice())
    chosen = dict(zip([one["name"] for one in report["tokenizers"]], names, strict=False))
    report = said(report, lambda name: chosen.get(name, name), {"name", "tokenizer", "reference"})
    for one in report["tokenizers"]:
        one["recipe"] = one["name"]
    for row in report["rows"]:
        row["group"] = say(row["group"])
    report = said(report, say, {"why", "folder", "examples", "missing", "files", "command", "made"})
    report["deployment"]["name"] = say("dense-8b")
    file.write_text(choose_page.render(report), encoding="utf-8")


def write_vocabulary(file, names, say, trained):
    """The page of a vocabulary; one token and a special token are also untrusted."""
    batches = [Batch.from_texts([*texts.english()[1][:20], say("of the volume")])]
    special = {say("<s>"): 1199}
    sides = []
    for name, tokenizer in zip(names, trained.values(), strict=False):
        definition = dataclasses.replace(
            tokenizer.definition, merge_ids=tokenizer.definition.merge_ids[:943], special_tokens=special
        )
        sides.append(vocabulary.side(name, say("tokenizers"), Tokenizer(definition), batches, alpha=2.5))
    report = vocabulary.gather(sides, say("text.jsonl"))
    file.write_text(vocabulary_page.render(said(report, say, {"title", "command"}), sides), encoding="utf-8")


def write_ladder(file, names, say, _):
    measured = [dataclasses.replace(arm, name=name) for arm, name in zip(ladders.arms(3), names, strict=False)]
    ladders.write(file, measured, tuple(map(say, ("code", "web", "odd"))), run=say("outputs/run"))


PAGES = {
    "comparison": write_comparison,
    "fertility": write_fertility,
    "choose": write_choose,
    "vocabulary": write_vocabulary,
    "ladder": write_ladder,
}
