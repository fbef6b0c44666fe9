import io
import logging
import time

import pytest
from rich.console import Console

from experiments.numbers import duration, si
from experiments.progress import Lines, Reporter, Table


def test_numbers_and_times_are_short():
    numbers = {0: "0", 512: "512", 999.9: "1k", 8192: "8.19k", 94_200_000: "94.2M", 2.5e12: "2.5T"}
    assert {value: si(value) for value in numbers} == numbers
    seconds = {0: "0.0 s", 59.96: "1 min 00 s", 83: "1 min 23 s", 3600: "1 h 00 min"}
    assert {value: duration(value) for value in seconds} == seconds


def test_without_a_terminal_progress_is_occasional_lines_and_time_left_is_by_recent_speed(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    out = io.StringIO()
    reporter = Reporter(Console(file=out, width=40))
    reporter.progress("outside a stage", 1, None)
    with reporter.stage("count"):
        for done in range(31):
            reporter.progress("bytes", done * 1_000_000, 40_000_000)
            clock[0] += 1
    assert out.getvalue() == "  count: bytes 16M of 40M, 1M/s, 24.0 s left\n"
    with reporter.stage("lm bpe"):
        done = 0
        for speed in [10] * 60 + [1] * 60:
            clock[0] += 1
            done += speed
            reporter.note("loss 2.345")
            reporter.progress("steps", done, 760)
    assert out.getvalue().endswith("  lm bpe: steps 652 of 760, 1/s, loss 2.345, 1 min 48 s left\n")


def test_steps_are_printed_and_details_are_only_logged(caplog):
    caplog.set_level(logging.INFO)
    out = io.StringIO()
    reporter = Reporter(Console(file=out))
    reporter.detail("10.5 us each")
    for name in ("count", "lm"):
        reporter.line(name, fresh=name == "lm", seconds=3, artifact=f"{name}-1", what="")
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert lines == ["· reused count count-1", "✓ 3.0 s lm lm-1"]
    assert [" ".join(record.getMessage().split()) for record in caplog.records] == ["10.5 us each", *lines]


def test_on_a_terminal_progress_is_a_line_with_rate_and_time_left():
    out = io.StringIO()
    reporter = Reporter(Console(file=out, force_terminal=True, width=100))
    reporter.progress("outside a stage", 1, None)
    assert out.getvalue() == ""
    with reporter.stage("count"):
        for done in (1, 2_000_000, 30_000_000):
            reporter.progress("counting", done, 40_000_000)
            time.sleep(0.2)  # the line is drawn by another thread
    assert "count: counting 30M/40M" in out.getvalue()


ARMS = [
    "BPE vocab_size=131,072",
    "SuperBPE transition=0.8 max_words=4",
    "SuperBPE transition=0.9 max_words=4",
    "SuperBPE preset=runs max_words=3",
    "bytes-without-any-merges-at-all",
    "meta-llama/Llama-3.1-8B-Instruct",
]


def shown(header, rows, width=80):
    out = io.StringIO()
    Reporter(Console(file=out, width=width)).table(Table("Held-out text", header, rows))
    return out.getvalue()


@pytest.mark.parametrize("by_arm", [True, False])
def test_tables_of_six_arms_keep_their_words_in_80_columns(*, by_arm):
    quantities = {"vocabulary": "131,072", "bits per byte, clean documents": "0.8731", "training FLOPs": "8.26T"}
    names = list(quantities)
    rows = [[arm, *quantities.values()] for arm in ARMS] if by_arm else [[n, *[quantities[n]] * 6] for n in names]
    text = shown(["", *(names if by_arm else ARMS)], rows)
    assert max(map(len, text.splitlines())) <= 80
    for word in " ".join([*ARMS, *names, *quantities.values()]).split():
        assert word in text
    assert ("─" in text) == by_arm


def test_a_wide_table_becomes_a_list():
    header, rows = ["", Lines("a", "a" * 50), "b" * 50], [["one", Lines("1", "of 2"), "2"], ["two", "", "4"]]
    text = shown(header, rows)
    expected = ["Held-out text", "one", f"  a {'a' * 50}: 1, of 2", f"  {'b' * 50}: 2", "two", f"  {'b' * 50}: 4"]
    assert text.splitlines() == expected


def test_columns_share_the_width_that_words_leave_and_have_no_lines_between_them():
    long = "a name of several words that needs more than one line of this table"
    text = shown(["", "value"], [[long, "1"]], width=40)
    assert max(map(len, text.splitlines())) <= 40
    assert "a name of several words that" in text
    header, row = ["", "transition", "max_words", "", *["number"] * 4], ["0", "0.8", "4", "SuperBPE", *["1.7021"] * 4]
    text = shown(header, [row], width=68)
    assert max(map(len, text.splitlines())) <= 68
    assert text.splitlines()[-2].split() == row
