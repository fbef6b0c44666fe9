import csv

from experiments.report import charts
from experiments.report.figures import Figure, to_csv


def test_csv_is_the_rows_of_the_chart_and_transitions_are_a_layer_of_their_own():
    labels, sizes, transitions = ["BPE", 'Super, "200k"'], (1000, 2000), [{"tokenizer": "BPE", "vocab_size": 1500}]
    rows = [{"tokenizer": label, "vocab_size": n, "bytes_per_token": n / 1000} for label in labels for n in sizes]
    figure = Figure("growth", "Growth", charts.compression(rows, labels, transitions))
    read = list(csv.DictReader(to_csv(figure.spec["datasets"]["rows"]).splitlines()))
    numbers = [{"vocab_size": int(row["vocab_size"]), "bytes_per_token": float(row["bytes_per_token"])} for row in read]
    assert [row | values for row, values in zip(read, numbers, strict=True)] == rows
    one, none = (charts.compression(rows, ["BPE"], each) for each in (transitions, []))
    assert (len(one["layer"]), "layer" in none) == (2, False)
