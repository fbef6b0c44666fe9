"""Tables that a run prints."""

import io
import itertools
import re
from types import SimpleNamespace

from experiments.cli.console import Console
from experiments.findings.compared import Findings
from experiments.findings.terminal import show_result, show_tables
from experiments.progress import Reporter
from lm.data.shards import TextLoss
from tests.experiments.arms import compared, scored


def _arm(label, bits):
    arm = scored(label, bits)
    model = {"bytes": 1, "steps": 1, "tokens": 1, "flops": 1000, "seconds": 1.0, "parameters_total": 1}
    arm.lm.contents.summary = SimpleNamespace(**model)
    cost = SimpleNamespace(decode_flops_per_byte=1.0)
    numbers = {"bits_per_byte": bits, "bytes_per_token": 4.0, "bits_per_byte_interval": None, "confidence": 0.95}
    arm.scores = SimpleNamespace(**numbers, seeds=None, cost=cost, save=dict)
    arm.tokenizer.superword_ids = list
    arm.heldout.contents.text_loss = TextLoss()
    arm.key, arm.arm = label, SimpleNamespace(settings={})
    return arm


def test_every_arm_is_a_row_and_one_that_takes_part_in_no_verdict_has_no_change():
    arms = [_arm(label, 2.0 - (label == "b")) for label in "abcd"]
    arms[2].barred, arms[1].tokenizer.superword_ids = "c changes or loses text", lambda: [1, 2, 3]
    pairs = {pair: compared(0.0, apart=False) for pair in itertools.combinations(range(4), 2)}
    tables = {}
    reporter = SimpleNamespace(say=lambda *_, **__: None)
    reporter.table = lambda title, header, rows: tables.update({title: [header, *rows]})
    tracker = SimpleNamespace(log=lambda *_: None, summary=lambda *_: None)
    show_result(SimpleNamespace(reporter=reporter, tracker=tracker), Findings(arms, pairs), "equal_bytes")
    header, *rows = tables["Held-out text, equal bytes of training text"]
    named = ["", "vocabulary", "bytes per token", "bits per byte", "change from a", "training FLOPs"]
    assert header == [*named, "inference FLOPs per byte"]
    assert rows[0] == ["a", "8,192", "4.000", "2.0000", "", "1k", "1"]
    assert rows[1] == ["b", "8,192\n3 superwords", "4.000", "1.0000", "−50.0 %", "1k", "1"]
    assert rows[2] == ["c", "8,192", "4.000", "2.0000", "withheld", "1k", "1"]


def test_every_kind_of_text_is_a_row_that_fits_a_terminal():
    arms = [_arm(label, 2.0) for label in ("BPE", "SuperBPE")]
    few = {"n_clusters": 2, "effective_clusters": 2.0, "interval": None, "cluster": "source"}
    kinds = {
        "english": compared(-0.04, cluster="source", interval=(-2.41, -1.02), tested=True),
        "languages": compared(0.01, apart=False, cluster="source"),
        "code": compared(0.02, **few),
    }
    result = Findings(arms, {(0, 1): compared(0.0, apart=False, kinds=kinds)})
    printed = io.StringIO()
    show_tables(Reporter(Console(width=80, file=printed)), "Held-out text", result)
    lines = printed.getvalue().partition("by kind of text\n")[2].splitlines()
    cells = [re.split(r"\s{2,}", line.strip()) for line in lines if line.strip("─ ")]
    assert cells[0] == ["tokenizer", "held-out text", "change", "interval", "better"]
    assert cells[1] == ["english", "SuperBPE", "50 sources", "−2.00 %", "−2.41 to −1.02", "SuperBPE"]
    assert cells[2] == ["languages", "SuperBPE", "50 sources", "+0.50 %", "−0.50 to +0.50", "undecided"]
    assert cells[3] == ["code", "SuperBPE", "2 sources", "+1.00 %", "withheld"]
