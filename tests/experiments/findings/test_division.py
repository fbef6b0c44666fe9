"""The gap between two arms, divided among segments."""

import dataclasses
import math
import random
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from experiments.findings.compared import Findings
from experiments.findings.division import divide, table
from lm.data.sharding import write_shards
from lm.data.shards import Shards
from lm.evaluate.bits_per_byte import KIND, SOURCE, Evaluation, Grouping
from lm.evaluate.comparison import Eligibility, compare_all
from lm.evaluate.evaluation import evaluate
from tests import other_tokenizers
from tests.lm import tiny
from tests.lm.evaluate.evaluations import CONFIG, Table
from tests.properties import quick_first
from tokenizer import Batch, Tokenizer, patterns
from tokenizer.external.load import load_pretrained

_WORDS = ["the ", "of ", "in ", "town ", "of the ", "naïve ", "東京 ", "🙂", "x.y_z(", "12 ", ".\n", "    ", "ﬁn "]


def superwords(*texts):
    """A tokenizer of these words, all of which phase 2 made."""
    none = patterns.resolve("none")
    ranks = tiny.words(*texts).ranks()
    return Tokenizer.from_ranks(ranks, pattern=none, fence=none, n_phase1_merges=0, special_tokens=["<|endoftext|>"])


def documents(n=60, seed=0):
    rng = random.Random(seed)
    return ["", *("".join(rng.choices(_WORDS, k=rng.randint(1, 60))) for _ in range(n - 1))]


def arm(folder, label, tokenizer, texts, n_seeds=2, barred="", config=CONFIG, untrained=()):
    """An arm with random models, whose evaluations were saved and loaded."""
    write_shards(folder / "shards", tokenizer, [Batch.from_texts(texts)])
    shards = Shards.open(folder / "shards", tokenizer)
    kinds = Grouping(("prose", "code"), np.arange(len(texts), dtype=np.int32) % 2)
    sources = Grouping(tuple(f"s{i}" for i in range(20)), np.arange(len(texts), dtype=np.int32) % 20)
    evaluations = []
    for seed in range(n_seeds):
        size = tokenizer.vocab_size
        logits = torch.randn(size, size, generator=torch.Generator().manual_seed(seed))
        groups = {KIND: kinds, SOURCE: sources}
        found = evaluate(Table(logits), shards, shards.token_byte_lengths, config, groups=groups)
        found.save(folder / f"evaluation-{seed}")
        evaluations.append(Evaluation.load(folder / f"evaluation-{seed}"))
    return SimpleNamespace(
        label=label,
        barred=barred,
        tokenizer=tokenizer,
        evaluations=evaluations,
        heldout=SimpleNamespace(path=folder),
        untrained=lambda: np.isin(np.arange(tokenizer.vocab_size), untrained),
    )


def findings(*arms, kept=None):
    kept = np.ones(len(arms[0].evaluations[0].text_nats), bool) if kept is None else kept
    runs = [[run.only(kept) for run in one.evaluations] for one in arms]
    compared = compare_all(runs, Eligibility([one.barred for one in arms], kept))
    return Findings(arms, compared, documents=None if kept.all() else kept)


@pytest.mark.parametrize("weights", quick_first([{"prose": 0.9, "code": 0.1}, {}]))
def test_the_parts_sum_to_the_gap_of_the_comparison(tmp_path, monkeypatch, weights):
    config, texts = dataclasses.replace(CONFIG, weights=weights, context_bytes=32), documents()
    texts[5:7] = ["In the town", "THE END"]
    words = superwords(b"the ", b"of ", b"of the ", b"town ")
    assert len(words.superword_ids()) == 1
    file = other_tokenizers.write(tmp_path, "lowercased_bytes")
    arms = [
        arm(tmp_path / "bytes", "bytes", tiny.bytes_only(), texts, config=config),
        arm(tmp_path / "words", "words", words, texts, config=config, untrained=[words.vocab.index(b"town ")]),
        arm(tmp_path / "external", "external", load_pretrained(file).tokenizer, texts, config=config),
    ]
    kept = ~arms[2].evaluations[0].changed
    assert 0 < kept.sum() < len(texts)
    result = findings(*arms, kept=kept)
    whole = divide(result)
    monkeypatch.setattr("experiments.findings.division._CHUNK", 200)
    for numbers in (whole, divide(result)):
        assert (numbers["missing"], numbers["left_out"]) == ("", int((~kept).sum()) + 1)  # one has no text
        for place, label in ((1, "words"), (2, "external")):
            total, *parts = [row for row in numbers["rows"] if row["tokenizer"] == label]
            comparison = result.comparisons[0, place]
            assert abs(sum(row["percent"] for row in parts) - comparison.percent) < 1e-9
            assert total["percent"] == pytest.approx(comparison.percent, abs=1e-9)
            assert sum(row["share"] for row in parts) == pytest.approx(1, abs=1e-12)
            assert all(row["low"] < row["percent"] < row["high"] for row in parts if row["percent"])
            assert any(row["class"] == "untrained tokens" for row in parts) == (label == "words")
    assert [row["percent"] for row in numbers["rows"]] == pytest.approx([row["percent"] for row in whole["rows"]])
    assert numbers["segments"] == whole["segments"]
    assert numbers["documents"] == whole["documents"]


def test_the_parts_of_classes_documents_and_segments_are_those_of_a_plain_search(tmp_path):
    texts, tokenizers = documents(30, seed=1), [tiny.words(b"the ", b"of ", b"in "), superwords(b"of the ", b"town ")]
    arms = [arm(tmp_path / str(i), f"arm {i}", tokenizer, texts, n_seeds=1) for i, tokenizer in enumerate(tokenizers)]
    numbers = divide(findings(*arms))
    spanned, found, place = 0.0, [], [0, 0]
    spanning = set(tokenizers[1].superword_ids().tolist())
    for number, text in enumerate(texts):
        ends, spans = [], []
        for i, one in enumerate(arms):
            ids, end, losses = one.tokenizer.encode_ordinary(text), 0, {0: 0.0}
            nats = one.evaluations[0].token_nats[place[i] : place[i] + len(ids)].tolist()
            place[i] += len(ids)
            for token, loss in zip(ids, nats, strict=True):
                end += len(one.tokenizer.vocab[token])
                losses[end] = losses[max(losses)] + loss
                spans += [end] * (i == 1 and token in spanning)
            ends.append(losses)
        cuts = sorted(set(ends[0]) & set(ends[1]) & {len(text[:i].encode()) for i in range(len(text) + 1)})
        for start, stop in pairwise(cuts):
            change = (ends[1][stop] - ends[1][start] - ends[0][stop] + ends[0][start]) / math.log(2)
            segment = text.encode()[start:stop].decode()
            found.append((change, segment, number))
            spanned += change * any(start < end <= stop for end in spans)
    nats = arms[0].evaluations[0].text_nats.sum() / math.log(2)
    assert sum(change for change, *_ in found) == pytest.approx(numbers["rows"][0]["percent"] * nats / 100)
    (row,) = [row for row in numbers["rows"] if row["class"] == "superwords"]
    assert row["percent"] == pytest.approx(100 * spanned / nats)
    largest, smallest = max(found), min(found)
    for (change, segment, _), row in ((largest, numbers["segments"][0]), (smallest, numbers["segments"][-1])):
        assert (row["text"], row["change"]) == (segment, pytest.approx(change))  # several documents may have it
        assert row["before"] + row["text"] + row["after"] in texts[row["document"]]
    by_document = [sum(change for change, _, n in found if n == number) for number in range(len(texts))]
    first = numbers["documents"][0]
    assert (first["document"], first["change"]) == (int(np.argmax(by_document)), pytest.approx(max(by_document)))


def test_what_cannot_be_divided_says_why(tmp_path):
    texts = documents(12)
    one, other = (arm(tmp_path / name, name, tiny.words(), texts) for name in ("one", "other"))
    printed = table(divide(findings(one, other)), "other")
    assert printed.rows[0] == ["all", "100.0 %", "0.00 %", ""]
    assert divide(findings(one)) is None
    (tmp_path / "other" / "evaluation-1" / "token_nats.npy").unlink()
    other.evaluations[1] = Evaluation.load(tmp_path / "other" / "evaluation-1")
    assert "were not kept for other; evaluate again" in divide(findings(one, other))["missing"]
    other.barred = "other changes text"
    assert "no other arm can be compared" in divide(findings(one, other))["missing"]
