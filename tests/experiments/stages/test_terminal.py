"""Tables that a run prints."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from experiments.stages.comparison import ArmResult, Result
from experiments.stages.terminal import show_result
from lm.data.shards import TextLoss
from tests.experiments.test_verdict import compared, scored


def _with_sources(label: str, bits: float, n_sources: int, **loss: int) -> ArmResult:
    found = cast("Any", scored(label, bits))
    model = {"bytes": 1, "steps": 1, "tokens": 1, "flops": 1000, "seconds": 1.0, "parameters_total": 1}
    found.lm.contents.summary = SimpleNamespace(**model)
    cost = dict.fromkeys(("prefill_flops_per_byte", "decode_flops_per_byte", "kv_bytes_per_byte"), 1.0)
    groups = [SimpleNamespace(name=f"s{i}", n_bytes=10, bits_per_byte=bits + i) for i in range(n_sources)]
    found.scores = SimpleNamespace(
        bits_per_byte=bits,
        bytes_per_token=4.0,
        bits_per_byte_interval=None,
        confidence=0.95,
        seeds=None,
        n_bytes=100,
        by=lambda name: groups if name == "source" else [],
        cost=SimpleNamespace(kv_dtype="bf16", **cost),
        save=dict,
    )
    found.tokenizer.superword_ids = list
    found.heldout.contents.text_loss = TextLoss(**loss)
    found.key = label
    found.arm = SimpleNamespace(settings={})
    return found


def _tables(*arms: ArmResult) -> dict[str, list[list[str]]]:
    """The tables of the console, with their headers, by the start of their titles."""
    tables: dict[str, list[list[str]]] = {}
    pairs = {(i, j): compared(0.0, apart=False) for i in range(len(arms)) for j in range(i + 1, len(arms))}
    reporter = SimpleNamespace(
        say=lambda *_, **__: None, table=lambda title, header, rows: tables.update({title: [header, *rows]})
    )
    tracker = SimpleNamespace(log=lambda *_: None, summary=lambda *_: None)
    context = cast("Any", SimpleNamespace(reporter=reporter, tracker=tracker))
    show_result(context, Result(arms, pairs), "equal_bytes")
    return tables


def test_every_arm_is_a_row() -> None:
    arms = [_with_sources(label, 2.0 - (label == "b"), 9, changed_documents=label == "d") for label in "abcd"]
    tables = _tables(*arms)
    header, *rows = tables["Held-out text, equal bytes of training text"]
    assert header == [
        *("", "vocabulary", "superwords", "bytes per token", "bits per byte", "change from a"),
        *("training FLOPs", "inference FLOPs per byte"),
    ]
    assert rows[0] == ["a", "8,192", "0", "4.000", "2.0000", "", "1k", "1"]
    assert rows[1] == ["b", "8,192", "0", "4.000", "1.0000", "−50.0 %", "1k", "1"]
    header, *rows = tables["Bits per byte by source, the 4 largest"]
    assert header == ["", *(f"s{i} (10.0 %)" for i in range(4))]
    assert rows[0] == ["a", "2.0000", "3.0000", "4.0000", "5.0000"]
    assert len(tables["All pairs, % of bits per byte"]) == 7


def test_an_arm_that_takes_part_in_no_verdict_has_no_change() -> None:
    arms = [_with_sources(label, bits, 1) for label, bits in (("a", 2.0), ("lower", 1.0))]
    cast("Any", arms[1]).barred = "lower changes or loses text"
    _, *rows = _tables(*arms)["Held-out text, equal bytes of training text"]
    assert rows[0][4:] == ["2.0000", "", "1k", "1", "yes"]
    assert rows[1][4:] == ["1.0000", "withheld", "1k", "1", "none"]
