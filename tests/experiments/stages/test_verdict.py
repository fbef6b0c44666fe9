from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from experiments.stages.comparison import ArmResult, Result
from experiments.stages.verdict import decision, detail, show, verdict
from lm.data.shards import TextLoss
from lm.evaluate.comparison import Comparison
from lm.evaluate.significance import Needed

_REQUIRES = " A verdict about the tokenizers requires 3 seeds."


def scored(
    label: str,
    bits: float,
    vocab_size: int = 8192,
    parameters: int = 1000,
    layers: int = 600,
    n_seeds: int = 1,
    barred: str = "",
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
        barred=barred,
    )
    return cast("ArmResult", found)


def compared(difference: float, *, n_documents: int = 50, apart: bool = True, **settings: Any) -> Comparison:
    """A comparison whose interval contains 0 unless `apart`."""
    interval = (difference, difference) if apart else (-abs(difference), abs(difference))
    counts = {"n_clusters": n_documents, "effective_clusters": float(n_documents), "n_seeds": 3}
    settings = {**counts, "seed_error": 0.0021, "document_error": 0.0013, **settings}
    return Comparison(2.0, 2.0 + difference, difference, interval, 0.95, n_documents, **settings)


def result(difference: float, **settings: Any) -> Result:
    n = settings.get("n_seeds", 3)
    both = [scored("BPE", 2.0, n_seeds=n), scored("SuperBPE", 2.0 + difference, n_seeds=n)]
    return Result(both, {(0, 1): compared(difference, **settings)})


@pytest.mark.parametrize(
    ("difference", "apart", "sentence"),
    [
        (-0.2, True, "SuperBPE predicts held-out text better than BPE: 10.00 % fewer bits per byte (3 seeds each)."),
        (0.5, True, "BPE predicts held-out text better than SuperBPE; the other needs 25.00 % more bits per byte (3"),
        (0.1, False, "No significant difference between BPE and SuperBPE in how well they predict held-out text (3"),
    ],
)
def test_the_verdict_is_a_sentence(difference, apart, sentence):
    assert verdict(result(difference, apart=apart)).startswith(sentence)


def test_fewer_than_three_seeds_name_no_better_tokenizer():
    one = result(-0.2, n_seeds=1)
    assert one.winner is None
    assert verdict(one) == (
        "Of these two models, the lower held-out loss is that of SuperBPE: 10.00 % fewer bits per byte "
        f"(one training run each).{_REQUIRES}"
    )
    assert decision(one, (0, 1)) == "withheld: 1 seed, at least 3 are required"
    assert verdict(result(0.1, n_seeds=2, apart=False)) == (
        "No significant difference between these 4 models in how well they predict held-out text "
        f"(2 seeds each).{_REQUIRES}"
    )
    three = result(-0.2)
    assert three.winner is three.arms[1]
    assert decision(three, (0, 1)) == "SuperBPE"
    assert decision(result(0.1, apart=False), (0, 1)) == "undecided"


@pytest.mark.parametrize(
    ("unit", "n", "effective", "fewest"),
    [("document", 12, 8.04, 10), ("source", 21, 4.25, 5), ("document", 1, 1.0, 10)],
)
def test_few_effective_documents_allow_no_conclusion(unit, n, effective, fewest):
    few = result(-0.2, cluster=unit, n_clusters=n, effective_clusters=effective)
    assert few.leader is few.winner is None
    assert verdict(few) == (
        f"Too few held-out {unit}s to compare BPE and SuperBPE: there are {n}, worth {effective:.1f} of equal size, "
        f"and at least {fewest} are required."
    )
    assert decision(few, (0, 1)).startswith(f"withheld: {effective:.1f} effective {unit}s")
    assert ("eval.cluster=document" if unit == "source" else "corpus.heldout_fraction") in detail(few)


def test_the_detail_says_what_the_interval_holds():
    assert "so it does not include the spread between seeds" in detail(result(-0.2, n_seeds=1))
    assert "3 paired seeds; standard error from seeds 0.0021, from documents 0.0013" in detail(result(-0.2))
    clustered = detail(result(-0.2, n_documents=1000, cluster="source", n_clusters=40, effective_clusters=17.24))
    assert "the 40 sources of 1,000 held-out documents, worth 17.2 of equal size" in clustered
    assert "no interval, because one document has all of the text" in detail(
        Result(result(-0.2).arms, {(0, 1): Comparison(2.0, 1.8, -0.2, None, 0.95, 1)})
    )


@pytest.mark.parametrize(
    ("needed", "n_seeds", "sentence"),
    [
        (Needed(1234, 5), 3, "With a probability of 80 %, 5 seeds and about 1,234 documents like these would show a"),
        (Needed(40, 3), 3, "This run would show a difference of 0.5 % with a probability of 80 %."),
        (Needed(1234, None), 1, "about 1,234 documents like these would show a difference of 0.5 % between two models"),
    ],
)
def test_an_undecided_verdict_says_what_would_decide_it(needed, n_seeds, sentence):
    assert sentence in detail(result(0.01, apart=False, needed=needed, n_seeds=n_seeds))
    assert "80 %" not in detail(result(0.01, needed=needed, n_seeds=n_seeds))


def test_the_detail_says_what_else_differs():
    both = [scored("BPE", 2.0), scored("SuperBPE", 1.8, vocab_size=9000, parameters=1200)]
    told = detail(Result(both, {(0, 1): compared(-0.2)}))
    assert "The vocabularies differ: 8,192 and 9,000 tokens." in told
    assert "The models differ: 1,000 and 1,200 parameters, only in the embeddings." in told
    both[1] = scored("SuperBPE", 1.8, parameters=1300, layers=700)
    assert "600 and 700 of them in the layers" in detail(Result(both, {(0, 1): compared(-0.2)}))


def test_of_three_the_winner_is_better_than_each():
    three = [scored("BPE", 2.0), scored("SuperBPE", 1.8), scored("BoundlessBPE", 1.9)]
    pairs = {
        (0, 1): compared(-0.2),
        (0, 2): compared(-0.1),
        (1, 2): compared(0.1),
    }
    assert verdict(Result(three, pairs)).startswith(
        "SuperBPE predicts held-out text better than all others: "
        "5.26 % fewer bits per byte than BoundlessBPE, the next best"
    )
    pairs[1, 2] = compared(0.1, apart=False)
    unclear = Result(three, pairs)
    assert unclear.winner is None
    assert verdict(unclear).startswith(
        "SuperBPE has the lowest held-out loss of 3 tokenizers, but does not differ significantly from BoundlessBPE"
    )
    assert "corrected for 3 comparisons" in detail(unclear)


def test_of_many_the_verdict_stays_a_sentence():
    many = [scored(f"SuperBPE t={i}", 2 + i / 100) for i in range(13)]
    pairs = {(i, j): compared((j - i) / 100, apart=False, n_seeds=1) for i in range(13) for j in range(i + 1, 13)}
    level = "does not differ significantly from SuperBPE t=1, SuperBPE t=2 and 10 more"
    assert verdict(Result(many, pairs)) == (
        f"Of these 13 models, the lowest held-out loss is that of SuperBPE t=0, which {level} (one training run each)."
        + _REQUIRES
    )
    seeds = {pair: replace(found, n_seeds=3) for pair, found in pairs.items()}
    assert verdict(Result(many, seeds)).startswith(
        f"SuperBPE t=0 has the lowest held-out loss of 13 tokenizers, but {level}"
    )
    few = {pair: replace(found, effective_clusters=3.0) for pair, found in pairs.items()}
    assert verdict(Result(many, few)).startswith(
        "Too few held-out documents to compare 13 tokenizers: there are 50, worth 3.0"
    )


def test_the_winner_is_measured_against_its_own_baseline_and_the_next_best():
    four = [scored("BPE a", 2.0), scored("BPE b", 2.1), scored("SuperBPE a", 1.9), scored("SuperBPE b", 1.8)]
    four[2].partner, four[3].partner = 0, 1
    pairs = {
        (i, j): compared(d, p_adjusted=0.012)
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
    found = result(-0.2)
    loss = TextLoss(changed_documents=3, unknown_tokens=5, unaccounted_bytes=7)
    cast("Any", found.arms[1]).heldout.contents.text_loss = loss
    assert "SuperBPE loses text (3 documents changed, 5 unknown tokens, 7 bytes covered by no token)" in detail(found)
    assert verdict(found).endswith("(3 seeds each; it loses some text).")


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
    return found


def _tables(*arms: ArmResult) -> dict[str, list[list[str]]]:
    """The tables of the console, with their headers, by the start of their titles."""
    tables: dict[str, list[list[str]]] = {}
    pairs = {(i, j): compared(0.0, apart=False) for i in range(len(arms)) for j in range(i + 1, len(arms))}
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
    assert rows[3] == ["d", "8,192", "4.000", "2.0000", "0.0 %", "1k", "yes"]
    header, *rows = tables["Bits per byte by source, the 4 largest"]
    assert header == ["", *(f"s{i} (10.0 %)" for i in range(4))]
    assert rows[0] == ["a", "2.0000", "3.0000", "4.0000", "5.0000"]


def test_few_arms_are_columns_of_every_table():
    tables = _tables(*(_with_sources(label, bits, 2) for label, bits in (("a", 2.0), ("b", 1.0))))
    header, *rows = tables["Bits per byte by source"]
    assert header == ["source", "share of bytes", "a", "b", "change"]
    assert rows[0] == ["s0", "10.0 %", "2.0000", "1.0000", "−50.0 %"]
    header, *rows = tables["Held-out text, equal bytes of training text"]
    assert header == ["", "a", "b", "change"]
    assert ["bits per byte", "2.0000", "1.0000", "−50.0 %"] in rows
