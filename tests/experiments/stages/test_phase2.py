"""Phase 2 as a stage: the sources of its text."""

from __future__ import annotations

import json
import os
import random
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.experiments.conftest import run_stages
from tests.experiments.outputs import manifest, names_by_stage, rejected
from tests.experiments.outputs import run_until as run
from tokenizer.external.load import load_saved


def test_phase_2_on_other_text_with_weights_and_its_log(
    tiny: list[str], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = tmp_path / "more.jsonl"
    more.write_text("".join(json.dumps({"text": f"{i} and so on and so on."}) + "\n" for i in range(400)))
    sources = f"superbpe.sources=[{corpus}:2,{more}]"
    assert run("train_superbpe", [*tiny, sources]) == 0
    out = capsys.readouterr().out
    assert "is not checked" not in out  # documents are held out by their text, wherever they come from
    contents = manifest(tmp_path, "superbpe")["contents"]
    assert contents["mixture"] == [f"{corpus}:2", f"{more}:1"]
    heldout = json.loads(next((tmp_path / "artifacts").glob("count-*/manifest.json")).read_text())["contents"]
    assert contents["training"]["corpus_documents"] == pytest.approx(2 * heldout["n_documents"] + 0.9 * 400, abs=25)
    (log,) = (tmp_path / "artifacts").glob("superbpe-*/merges.parquet")
    rows = pq.read_table(log).to_pylist()
    assert [row["rank"] for row in rows] == list(range(400 - 257))
    assert rows[-1]["count"] == contents["training"]["last_count"]
    assert all(row["count"] >= following["count"] for row, following in pairwise(rows[:60]))  # of phase 1
    run_stages("train_superbpe", [*tiny, sources], tmp_path / "outputs")
    assert len(names_by_stage(tmp_path)["superbpe"]) == 1
    os.utime(more)
    run_stages("train_superbpe", [*tiny, sources], tmp_path / "outputs")
    assert len(names_by_stage(tmp_path)["superbpe"]) == 2


def test_held_out_text_is_left_out_of_sources(tiny: list[str], corpus: Path, tmp_path: Path) -> None:
    lines = corpus.read_text().splitlines(keepends=True)
    held = tmp_path / "held.jsonl"
    held.write_text("".join(lines[:40]))
    texts = [f"corpus.heldout_paths=[{held}]", f"superbpe.sources=[{corpus}]"]
    assert run("train_superbpe", [*tiny, "corpus.heldout_fraction=0", *texts]) == 0
    contents = manifest(tmp_path, "superbpe")["contents"]
    assert contents["training"]["corpus_documents"] == len(lines) - 40
    assert contents["without_heldout_of"] == manifest(tmp_path, "count")["contents"]["corpus"]


def test_sources_of_phase_2_that_do_not_fit_are_rejected(
    tiny: list[str], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "nowhere.jsonl: no such file" in rejected(
        "train_superbpe", [*tiny, "superbpe.sources=[nowhere.jsonl]"], tmp_path
    )
    assert "count" not in capsys.readouterr().out  # before any work
    for overrides, message in [
        (["superbpe=boundless", "superbpe.transition=0.5"], "these rules find the transition themselves"),
        ([f"superbpe.sources=[{corpus}:x]"], "superbpe.sources has"),
        (["runner.memory_mb=0"], "runner.memory_mb=0 must be at least 1"),
        (["superbpe.transition=auto"], "need atoms='pretokens'"),
        ([f"corpus.heldout_paths=[{corpus}]", f"superbpe.sources=[{corpus}]"], ""),
    ]:
        assert message in rejected("train_superbpe", [*tiny, *overrides], tmp_path)


PHRASES = {
    "english": ["of the house", "in the garden", "and the child", "with a friend"],
    "german": ["aus dem haus", "neben dem garten", "und das kind", "mit einem freund"],
    "french": ["de la maison", "dans le jardin", "et son enfant", "avec un ami"],
}


@pytest.mark.parametrize(
    ("limit", "languages"),
    [
        ("corpus.sample=0.2", set(PHRASES)),
        ("superbpe.sample=0.2", set(PHRASES)),
        ("corpus.max_bytes=7_000", {"english"}),
    ],
)
def test_a_sample_has_superwords_of_all_concatenated_domains(
    limit: str, languages: set[str], tiny: list[str], tmp_path: Path
) -> None:
    rng = random.Random(0)
    paths = []
    for language, phrases in PHRASES.items():
        documents = [f"{i}. " + ", ".join(rng.choices(phrases, k=8)) for i in range(100)]
        paths.append(tmp_path / f"{language}.jsonl")
        paths[-1].write_text("".join(json.dumps({"text": each}) + "\n" for each in documents))
    corpus = f"corpus.paths=[{','.join(map(str, paths))}]"
    run_stages("train_superbpe", [*tiny, corpus, limit], tmp_path / "outputs")
    contents = manifest(tmp_path, "superbpe")["contents"]
    assert 4_000 < contents["training"]["corpus_bytes"] < 10_000  # of 38,000
    tokenizer = load_saved(tmp_path / "artifacts" / contents["tokenizer"])
    superwords = [tokenizer.vocab[i].decode() for i in tokenizer.superword_ids()]
    found = {
        language
        for language, phrases in PHRASES.items()
        if any(word.strip() in phrase for word in superwords for phrase in phrases)
    }
    assert found == languages
