"""Tables that a run prints."""

import dataclasses
import io
import re
from types import SimpleNamespace

import numpy as np
from rich.console import Console

from experiments.config import BudgetConfig
from experiments.findings import answer
from experiments.findings.compared import Findings
from experiments.findings.next_step import FROM_ELSEWHERE
from experiments.findings.terminal import show_findings, show_result
from experiments.progress import Reporter
from lm.evaluate.bits_per_byte import KIND, SOURCE, Grouping
from lm.evaluate.deployment import Deployment
from tests.experiments.arms import N_DOCUMENTS, measured_arm

NAMES = ("English", "code")


def groups():
    """Documents 0 to 79 are English, the others code; each is a source of its own."""
    kind = (np.arange(N_DOCUMENTS) >= 80).astype(np.int32)
    sources = tuple(f"{NAMES[kind[i]]}: {i}" for i in range(N_DOCUMENTS))
    return {KIND: Grouping(NAMES, kind), SOURCE: Grouping(sources, np.arange(N_DOCUMENTS, dtype=np.int32))}


def test_every_arm_is_a_row_and_one_that_takes_part_in_no_verdict_has_no_change():
    arms = [measured_arm(label, shift, changed=n) for label, shift, n in (("a", 0, 0), ("b", -0.5, 0), ("c", 0, 98))]
    arms[1].tokenizer.superword_ids = lambda: [1, 2, 3]
    arms[1] = dataclasses.replace(arms[1], untraced="it has no record")
    tables = {}
    reporter = SimpleNamespace(say=lambda *_, **__: None)
    reporter.table = lambda table: tables.update({table.title: [table.header, *table.rows]})
    tracker = SimpleNamespace(log=lambda *_: None, summary=lambda *_: None)
    result = Findings.of(arms, BudgetConfig())
    show_result(SimpleNamespace(reporter=reporter, tracker=tracker), result, "equal_bytes")
    header, *rows = tables["Held-out text, equal bytes of training text"]
    assert header[:4] == ["", "text", "tokens", "cost of serving"]
    assert [row[0] for row in rows] == ["a", "b", "c"]
    assert rows[1][4].splitlines()[-1] == "b better"
    assert rows[1][5] == rows[1][4]  # the same number of tokens of as large a vocabulary
    assert rows[2][4] == "no verdict"
    header, *rows = tables["Models"]
    assert header == [
        "",
        "vocabulary",
        "bytes per token",
        "bits per byte",
        "training FLOPs",
        "inference FLOPs per byte, 16 B of context",
    ]
    assert rows[1][:3] == ["b\ntraining text unknown", "300\n3 superwords", "200.000"]


def test_every_kind_of_text_has_its_change_at_equal_text_and_at_equal_compute_in_80_columns():
    base = measured_arm("BPE", 0.0, groups=groups(), flops=4000)
    smaller = measured_arm("BPE", 0.4, groups=groups(), flops=1000)
    other = measured_arm("SuperBPE", 0.02, groups=groups(), tokens=80)
    result = Findings.of([base, other], BudgetConfig(), smaller=smaller)
    rate, interval = result.exchange.measure(base.compared)
    assert interval[0] < rate < interval[1]
    losses = [arm.scores.bits_per_byte for arm in (base, smaller)]
    assert np.isclose(rate, np.log(losses[1] / losses[0]) / np.log(4), rtol=1e-3)
    at_text, at_compute = result.at_text[0, 1], result.at_compute[0, 1]
    assert at_text is result.comparisons[0, 1]
    assert np.isclose(at_compute.percent - at_text.percent, 100 * rate * result.compute_e_folds(1), atol=0.01)
    assert np.isclose(result.compute_e_folds(1), np.log(0.8), atol=0.02)  # attention and the head are not in proportion
    width = [np.ptp(compared.interval) for compared in (at_text, at_compute)]
    assert width[1] > width[0]  # the rate has an interval, too

    printed = io.StringIO()
    show_findings(Reporter(Console(width=80, file=printed)), "Held-out text", result)
    lines = printed.getvalue().splitlines()
    assert max(map(len, lines[: lines.index("Models")][:-3])) <= 80
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines]
    assert [row[0] for row in rows if row[0] in (*NAMES, "BPE", "SuperBPE")][:6] == ["BPE", *NAMES, "SuperBPE", *NAMES]
    assert "published" in printed.getvalue()


def test_models_that_are_scored_as_given_are_priced_by_their_own_shapes_and_others_at_the_deployment():
    arms = [measured_arm(label, 0.0) for label in "ab"]
    deployed = [line.serving_flops_per_byte for line in answer.lines(Findings.of(arms, None))]
    assert deployed[0] == deployed[1] > 2
    arms[1].settings["recipe"] = FROM_ELSEWHERE
    assert [line.serving_flops_per_byte for line in answer.lines(Findings.of(arms, None))] == [2, 2]


def test_a_stated_rate_needs_no_second_budget_and_without_either_compute_is_not_measured():
    arms = [measured_arm("BPE", 0.0), measured_arm("SuperBPE", 0.02, tokens=80)]
    assert Findings.of(arms, BudgetConfig()).at_compute == {}
    result = Findings.of(arms, BudgetConfig(), Deployment(rate=0.04))
    change = result.at_compute[0, 1].percent - result.at_text[0, 1].percent
    assert np.isclose(change, 4 * result.compute_e_folds(1))
