"""Differences from the reference on all held-out text and on parts of it."""

import math
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.findings.compared import Findings, rate_changes
from experiments.findings.differences import differences
from experiments.results import Tuning, TuningRun
from lm.evaluate.bits_per_byte import Grouping
from lm.evaluate.comparison import compare, compare_all
from tests.lm.evaluate.evaluations import made_up

_N = 120
_SOURCES = Grouping(tuple(f"s{i}" for i in range(12)), np.arange(_N, dtype=np.int32) % 12)
_SCRIPTS = Grouping(("Latin", "Greek"), (np.arange(_N) >= 100).astype(np.int32))


def _result(*shifts, clean=60):
    """Arms with three seeds, whose losses differ from those of the first by these shifts."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(500, 900, _N)
    base = sizes * rng.normal(1.0, 0.2, _N)
    groups = {"source": _SOURCES, "script": _SCRIPTS}
    arms = []
    for i, shift in enumerate([0.0, *shifts]):
        evaluations = [made_up(base + sizes * rng.normal(shift, 0.01, _N), sizes, groups) for _ in range(3)]
        arms.append(SimpleNamespace(label=f"arm {i}", barred="", compared=evaluations))
    overlap = SimpleNamespace(path=Path(tempfile.mkdtemp()))
    np.savez(overlap.path / "contamination.npz", shared_words=np.arange(_N) >= clean)
    return Findings(arms, compare_all([arm.compared for arm in arms]), overlap=overlap)


def test_rows_cover_every_arm_and_part():
    result = _result(-0.05, 0.0)
    rows = differences(result)
    assert [sum(row["by"] == by for row in rows) for by in ("all", "clean", "source", "script")] == [3, 3, 36, 6]
    assert {row["reference"] for row in rows if row["by"] != "all"} == {"arm 0"}
    assert [row["percent"] is None for row in rows if row["by"] == "clean"] == [True, False, False]
    columns = "by group tokenizer reference documents n_bytes bytes_per_token bits_per_byte reference_bits_per_byte "
    columns += "percent low high level p seeds_pooled_over decision withheld"
    assert list(rows[0]) == columns.split()
    better, equal = rows[:2]
    assert (better["decision"], equal["decision"]) == ("arm 1", "undecided")
    whole = result.comparisons[0, 1]
    assert (better["low"], better["high"], better["level"]) == (*whole.interval, 0.975)
    low, high = compare(*(arm.compared for arm in result.arms[:2])).interval
    assert better["low"] < low < high < better["high"] < 0


def test_parts_are_compared_on_their_documents_alone():
    result = _result(-0.05)
    rows = {(row["by"], row["group"]): row for row in differences(result) if row["tokenizer"] == "arm 1"}
    clean = rows["clean", ""]
    assert clean["documents"] == 60
    a, b = (
        np.array([each.text_nats[:60].sum() / each.document_bytes[:60].sum() for each in arm.compared])
        for arm in result.arms
    )
    assert clean["percent"] == pytest.approx(100 * np.mean(b / a - 1))
    assert (clean["decision"], clean["level"]) == ("not tested", 0.95)
    assert clean["high"] < 0
    source = rows["source", "s3"]  # its ten documents have unequal sizes
    assert source["documents"] == 10
    assert source["decision"] == "withheld"
    assert "effective documents, at least 10 are required" in source["withheld"]


def test_parts_without_text_or_with_all_of_it_have_no_rows():
    for clean in (0, _N):
        assert "clean" not in {row["by"] for row in differences(_result(0.0, clean=clean))}
    result = _result(-0.05)
    for arm in result.arms:
        for each in arm.compared:
            each.document_bytes[_SOURCES.index == 3] = 0
    assert "s3" not in {row["group"] for row in differences(result)}


def test_kinds_have_verdicts_and_the_other_parts_have_none():
    kinds = Grouping(("english", "code"), (np.arange(_N) % 12 >= 6).astype(np.int32))
    result = _result(-0.05)
    for arm in result.arms:
        for run in arm.compared:
            run.groups["kind"] = kinds
    result = Findings(result.arms, compare_all([arm.compared for arm in result.arms]), overlap=result.overlap)
    rows = [row for row in differences(result) if row["by"] == "kind" and row["tokenizer"] == "arm 1"]
    assert {row["group"] for row in rows} == {"english", "code"}
    for row in rows:
        kind = result.comparisons[0, 1].kinds[row["group"]]
        assert (row["decision"], row["level"], row["documents"]) == ("arm 1", 0.975, 60)
        assert (row["low"], row["high"], row["bits_per_byte"]) == (*kind.interval, pytest.approx(kind.bits_per_byte_b))


def test_other_learning_rates_count_where_both_arms_are_about_as_good_with_them():
    def tuned(losses):
        return Tuning(
            factor=1.0, runs=[TuningRun(factor=factor, bits_per_byte=loss) for factor, loss in losses.items()]
        )

    one, other = tuned({0.5: 2.01, 1.0: 2.0, 2.0: 2.01}), tuned({0.5: 3.0, 1.0: 3.0, 2.0: 3.3, 4.0: None})
    assert rate_changes([one, other, None]) == {(0, 1): pytest.approx(100 * math.log(1.005))}
