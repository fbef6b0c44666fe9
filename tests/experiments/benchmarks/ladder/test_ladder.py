import csv
import itertools
import json

import numpy as np
import pytest

from experiments.benchmarks.ladder.__main__ import main, parse
from experiments.benchmarks.ladder.measure import Curve, Seconds, Work
from experiments.benchmarks.ladder.trainers import RUNGS, TRAINERS
from experiments.benchmarks.ladder.training import stretches, symbols_left, work_of
from tests import texts
from tokenizer import Batch, count_pretokens, reference


def curve(at, **options):
    return Curve(**({"setup": 5, "at": at, "selecting": [0.0] * len(at), "finished": False} | options))


def test_measured_times_are_not_extrapolated():
    assert curve([1, 3, 6]).total(2) == Seconds(8)
    assert curve([1, 3, 6]).total(3) == Seconds(11)
    assert curve([1, 3, 6]).total(0) == Seconds(5)
    # A run that found no more pairs has no later merges to wait for.
    assert curve([1, 3, 6], finished=True).total(99) == Seconds(11)
    assert curve([], finished=True).total(99) == Seconds(5)
    # A run on a part of the corpus measures none of the whole.
    assert curve([1, 3, 6], scale=2).total(3) == Seconds(22, measured=False)


def test_few_merges_are_extrapolated_by_their_mean():
    assert curve([1, 3, 6]).total(6) == Seconds(5 + 6 + 3 * 2, measured=False)


@pytest.mark.parametrize("exponent", [-0.5, 0, 0.4])
def test_many_merges_are_extrapolated_by_a_power_of_their_number(exponent):
    at = list(itertools.accumulate(2e-3 * number**exponent for number in range(1, 4001)))
    guessed = curve(at[:1000], setup=0).total(4000)
    assert not guessed.measured
    assert guessed.value == pytest.approx(at[-1], rel=0.01)


def test_known_work_is_extrapolated_from():
    work = np.array([30.0, 10, 4, 2, 2, 2])
    # Two merges and forty units of work in four seconds; ten units are left.
    assert curve([3, 4], work=Work(work)).total(6).value == pytest.approx(5 + 4 + 1)
    # Selecting has its own trend: a second each.
    assert curve([4, 6], selecting=[1, 2], work=Work(work)).total(6).value == pytest.approx(5 + 6 + 1 + 4)
    # Unless all pairs are counted again, which is work of the same kind.
    assert curve([3, 4], selecting=[2, 3], work=Work(work, recounting=True)).total(6).value == pytest.approx(10)
    assert curve([4, 8], selecting=[1, 2]).selecting_share == 0.25
    assert curve([]).selecting_share is None


def test_symbols_left_are_those_of_the_reference():
    counts = count_pretokens([Batch.from_texts(["low lower newer newer"])], "gpt2")
    merges = TRAINERS["native"](dict(counts.items()), 12)
    assert len(merges) == 9
    expected = []
    for number in range(len(merges) + 1):
        listed = [(left, right) for left, right, _ in merges[:number]]
        lengths = {pretoken: len(reference.encode(pretoken.decode(), listed, None)) for pretoken, _ in counts.items()}
        expected.append((sum(lengths[pretoken] * count for pretoken, count in counts.items()), sum(lengths.values())))
    of_corpus, of_distinct = symbols_left(counts, merges)
    assert list(zip(of_corpus, of_distinct, strict=True)) == expected
    assert work_of("naive", 3, of_corpus, of_distinct).merging.tolist() == of_corpus[:-1].tolist()
    assert work_of("in-place", 3, of_corpus, of_distinct).merging.sum() == of_distinct[0] - of_distinct[-1]
    assert work_of("incremental", 3, of_corpus, of_distinct).merging.tolist() == (of_distinct[:-1] + 18).tolist()


def test_mean_time_of_a_stretch_of_merges():
    run = curve([1, 3, 6, 10])
    assert run.per_merge(1, 3) == 1.5
    assert run.per_merge(3, 5) == 3.5
    assert run.per_merge(3, 6) is None
    assert run.per_merge(3, 3) is None
    assert stretches(744) == [(1, 10), (10, 100), (100, 745)]
    assert stretches(9) == [(1, 10)]
    assert stretches(10) == [(1, 10), (10, 11)]


def test_times_show_what_was_measured():
    assert [str(Seconds(value)) for value in (0.125, 12.34, 1234.5)] == ["0.12", "12.3", "1,234"]
    assert str(Seconds(30338, measured=False)) == "~30,338"


def test_a_vocabulary_without_merges_is_rejected(capsys):
    with pytest.raises(SystemExit):
        parse(["text.txt", "--vocab-sizes", "256"])
    assert "must be at least 257" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_all_trainers_run_on_a_small_text(tmp_path, capsys):
    corpus = tmp_path / "text.jsonl"
    with corpus.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts.sample(60_000))
    out = tmp_path / "out"
    sizes = ["--vocab-sizes", "280", "500", "--limit", "0.2"]
    assert main([str(corpus), "--out", str(out), *sizes]) == 0
    said = capsys.readouterr().out
    assert "the merges of all exact trainers: equal" in said
    for name in ("training", "per_merge"):
        assert (out / f"{name}.svg").read_text(encoding="utf-8").startswith("<svg")
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with (out / "training.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = list(dict.fromkeys(row["trainer"] for row in rows))
    assert names == [*RUNGS, "native", "HF tokenizers"]
    assert len(rows) == 2 * len(names)
    assert {row["training_measured"] for row in rows if row["trainer"] == "native"} == {"True"}
    assert all(float(row["training_seconds"]) >= 0 for row in rows)
