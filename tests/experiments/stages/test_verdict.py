from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from experiments.stages.comparison import FEWEST_DOCUMENTS, ArmResult, Result
from experiments.stages.verdict import detail, show, verdict
from lm.data.shards import TextLoss
from lm.evaluate.comparison import Comparison

_TOO_FEW = "Too few held-out {} to compare BPE and SuperBPE: there are {}, and at least 30 are required."


def scored(
    label: str, bits: float, vocab_size: int = 8192, parameters: int = 1000, layers: int = 600, n_seeds: int = 1
) -> ArmResult:
    summary = SimpleNamespace(parameters_total=parameters, parameters_non_embedding=layers)
    model = SimpleNamespace(contents=SimpleNamespace(summary=summary))
    found = SimpleNamespace(
        label=label,
        tokenizer=SimpleNamespace(vocab_size=vocab_size),
        lm=model,
        lms=[model] * n_seeds,
        scores=SimpleNamespace(bits_per_byte=bits),
        heldout=SimpleNamespace(contents=SimpleNamespace(text_loss=None)),
        partner=None,
    )
    return cast("ArmResult", found)


def compared(difference: float, said: Any, n_documents: int = FEWEST_DOCUMENTS, **settings: Any) -> Comparison:
    settings = {"n_clusters": n_documents, **settings}
    return Comparison(2.0, 2.0 + difference, difference, (difference, difference), 0.95, n_documents, said, **settings)


def result(n_documents: int, difference: float, said: Any, **settings: Any) -> Result:
    n = settings.get("n_seeds", 1)
    both = [scored("BPE", 2.0, n_seeds=n), scored("SuperBPE", 2.0 + difference, n_seeds=n)]
    return Result(both, {(0, 1): compared(difference, said, n_documents, **settings)})


@pytest.mark.parametrize(
    ("difference", "said", "sentence"),
    [
        (-0.2, "B better", "SuperBPE predicts held-out text better than BPE: 10.00% fewer bits per byte"),
        (0.5, "A better", "BPE predicts held-out text better than SuperBPE, which needs 25.00% more bits per byte"),
        (0.0, "no significant difference", "No significant difference between BPE and SuperBPE"),
    ],
)
def test_the_verdict_is_a_sentence(difference, said, sentence):
    said_of_one = verdict(result(FEWEST_DOCUMENTS, difference, said))
    assert said_of_one.startswith(sentence)
    assert said_of_one.endswith("(one training run each).")
    assert verdict(result(FEWEST_DOCUMENTS, difference, said, n_seeds=3)).endswith("(3 seeds each).")


def test_few_documents_allow_no_verdict():
    few = result(2, -0.2, "B better")
    assert few.winner is None
    assert (
        verdict(few)
        == "Too few held-out documents to compare BPE and SuperBPE: there are 2, and at least 30 are required."
    )
    sources = result(1000, -0.2, "B better", cluster="source", n_clusters=4)
    assert (
        verdict(sources)
        == "Too few held-out sources to compare BPE and SuperBPE: there are 4, and at least 30 are required."
    )


def test_the_detail_says_what_the_interval_holds():
    assert "so it does not include the spread between seeds" in detail(result(50, -0.2, "B better"))
    seeds = {"seed_error": 0.0021, "document_error": 0.0013}
    two = detail(result(50, -0.2, "B better", n_seeds=2, **seeds))
    assert "standard error from seeds 0.0021, from documents 0.0013" in two
    assert "requires 3 seeds" in two
    assert "requires 3 seeds" not in detail(result(50, -0.2, "B better", n_seeds=3, **seeds))
    clustered = detail(result(1000, -0.2, "B better", cluster="source", n_clusters=40))
    assert "the 40 sources of 1,000 held-out documents" in clustered


def test_the_detail_says_what_else_differs():
    both = [scored("BPE", 2.0), scored("SuperBPE", 1.8, vocab_size=9000, parameters=1200)]
    told = detail(Result(both, {(0, 1): compared(-0.2, "B better")}))
    assert "The vocabularies differ: 8,192 and 9,000 tokens." in told
    assert "The models differ: 1,000 and 1,200 parameters, only in the embeddings." in told
    both[1] = scored("SuperBPE", 1.8, parameters=1300, layers=700)
    assert "600 and 700 of them in the layers" in detail(Result(both, {(0, 1): compared(-0.2, "B better")}))


def test_of_three_the_winner_is_better_than_each():
    three = [scored("BPE", 2.0), scored("SuperBPE", 1.8), scored("BoundlessBPE", 1.9)]
    pairs = {
        (0, 1): compared(-0.2, "B better"),
        (0, 2): compared(-0.1, "B better"),
        (1, 2): compared(0.1, "A better"),
    }
    assert verdict(Result(three, pairs)).startswith(
        "SuperBPE predicts held-out text better than all others: "
        "5.26% fewer bits per byte than BoundlessBPE, the next best"
    )
    pairs[1, 2] = compared(0.1, "no significant difference")
    unclear = Result(three, pairs)
    assert unclear.winner is None
    assert verdict(unclear).startswith(
        "SuperBPE has the lowest held-out loss of 3 tokenizers, but does not differ significantly from BoundlessBPE"
    )
    assert "not corrected for multiple comparisons" in detail(unclear)


def test_of_many_the_verdict_stays_a_sentence():
    many = [scored(f"SuperBPE t={i}", 2 + i / 100) for i in range(13)]
    pairs = {(i, j): compared((j - i) / 100, "no significant difference") for i in range(13) for j in range(i + 1, 13)}
    said = verdict(Result(many, pairs))
    assert said == (
        "SuperBPE t=0 has the lowest held-out loss of 13 tokenizers, but does not differ significantly from "
        "SuperBPE t=1, SuperBPE t=2 and 10 more (one training run each)."
    )
    few = {pair: replace(found, n_documents=3, n_clusters=3) for pair, found in pairs.items()}
    assert verdict(Result(many, few)) == _TOO_FEW.format("documents", 3).replace("BPE and SuperBPE", "13 tokenizers")


def test_the_winner_is_measured_against_its_own_baseline_and_the_next_best():
    four = [scored("BPE a", 2.0), scored("BPE b", 2.1), scored("SuperBPE a", 1.9), scored("SuperBPE b", 1.8)]
    four[2].partner, four[3].partner = 0, 1
    pairs = {
        (i, j): compared(d, "B better" if d < 0 else "A better", p_adjusted=0.012)
        for i in range(4)
        for j in range(i + 1, 4)
        for d in [four[j].scores.bits_per_byte - four[i].scores.bits_per_byte]
    }
    found = Result(four, pairs)
    assert found.pair == (1, 3)
    assert "SuperBPE b − BPE b = −0.3000" in detail(found)
    assert "SuperBPE b − SuperBPE a = −0.1000 bits per byte (−0.1000 to −0.1000, p = 0.012 after" in detail(found)
    assert Result(four, pairs, fixed_reference=True).pair == (0, 3)


def test_an_arm_that_loses_text_is_named():
    found = result(FEWEST_DOCUMENTS, -0.2, "B better")
    loss = TextLoss(changed_documents=3, unknown_tokens=5, unaccounted_bytes=7)
    cast("Any", found.arms[1]).heldout.contents.text_loss = loss
    assert "SuperBPE loses text (3 documents changed, 5 unknown tokens, 7 bytes covered by no token)" in detail(found)
    assert verdict(found).endswith("(one training run each; it loses some text).")


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
        cost=SimpleNamespace(kv_dtype="bf16", decode_seconds_per_byte=None, **cost),
        save=dict,
    )
    found.tokenizer.superword_ids = list
    found.heldout.contents.text_loss = TextLoss(**loss)
    found.key = label
    return found


def _tables(*arms: ArmResult) -> dict[str, list[list[str]]]:
    """The tables of the console, with their headers, by the start of their titles."""
    tables: dict[str, list[list[str]]] = {}
    pairs = {
        (i, j): compared(0.0, "no significant difference") for i in range(len(arms)) for j in range(i + 1, len(arms))
    }
    reporter = SimpleNamespace(
        say=lambda *_, **__: None, table=lambda title, header, rows: tables.update({title: [header, *rows]})
    )
    tracker = SimpleNamespace(log=lambda *_: None, summary=lambda *_: None)
    config = SimpleNamespace(
        budget=SimpleNamespace(mode="equal_bytes", train_bytes=1), report=SimpleNamespace(demonstration=False)
    )
    show(cast("Any", SimpleNamespace(reporter=reporter, tracker=tracker, config=config)), Result(arms, pairs))
    return tables


def test_many_arms_are_rows_of_every_table():
    arms = [_with_sources(label, 2.0, 9, changed_documents=label == "d") for label in "abcd"]
    tables = _tables(*arms)
    names = ["vocabulary", "bytes per token", "bits per byte", "change from a", "training FLOPs", "held-out text lost"]
    header, *rows = tables["Held-out text, equal bytes of training text"]
    assert header == ["", *names]
    assert rows[0] == ["a", "8,192", "4.000", "2.0000", "", "1k", ""]
    assert rows[3] == ["d", "8,192", "4.000", "2.0000", "+0.0 %", "1k", "yes"]
    header, *rows = tables["Bits per byte by source, the 4 largest"]
    assert header == ["", *(f"s{i} (10.0%)" for i in range(4))]
    assert rows[0] == ["a", "2.0000", "3.0000", "4.0000", "5.0000"]


def test_few_arms_are_columns_of_every_table():
    tables = _tables(*(_with_sources(label, bits, 2) for label, bits in (("a", 2.0), ("b", 1.0))))
    header, *rows = tables["Bits per byte by source"]
    assert header == ["source", "share of bytes", "a", "b", "change"]
    assert rows[0] == ["s0", "10.0%", "2.0000", "1.0000", "−50.0 %"]
    header, *rows = tables["Held-out text, equal bytes of training text"]
    assert header == ["", "a", "b", "change"]
    assert ["bits per byte", "2.0000", "1.0000", "−50.0 %"] in rows
