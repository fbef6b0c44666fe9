import csv

from experiments.report import charts
from experiments.report.figures import Figure, to_csv

ROWS = [
    {"tokenizer": label, "vocab_size": size, "bytes_per_token": size / 1000}
    for label in ("BPE", 'Super, "200k"')
    for size in (1000, 2000, 4000)
]
TRANSITIONS = [{"tokenizer": "BPE", "vocab_size": 1500}]


def _figure():
    return Figure("growth", "Growth", charts.compression(ROWS, ["BPE", 'Super, "200k"'], TRANSITIONS))


def test_csv_is_the_rows_of_the_chart():
    text = to_csv(_figure().spec["datasets"]["rows"])
    read = list(csv.DictReader(text.splitlines()))
    assert [
        {**row, "vocab_size": int(row["vocab_size"]), "bytes_per_token": float(row["bytes_per_token"])} for row in read
    ] == ROWS


def test_transitions_are_a_layer_of_their_own():
    one = charts.compression(ROWS, ["BPE"], TRANSITIONS)
    none = charts.compression(ROWS, ["BPE"], [])
    assert (len(one["layer"]), "layer" in none) == (2, False)
