from __future__ import annotations

from experiments.report.robustness import decision, figure, measured, render, sentences, table

from .perturbed import report, row, usual

ABOUT_MODELS = "This is about these models"


def test_a_verdict_about_tokenizers_requires_three_seeds() -> None:
    worst, compared = sentences(report(usual()))
    assert worst == (
        "Most harmful: upper case. Change of bits per original byte: A +1.0000 (+50\N{NO-BREAK SPACE}%), "
        "B +1.2000 (+60\N{NO-BREAK SPACE}%)."
    )
    assert compared == (
        "B against A under 2 perturbations: B loses more under 1 (most under upper case: 0.2000 bits per original "
        "byte, 0.1500 to 0.2500); 1 shows no significant difference."
    )
    *_, last = sentences(report(usual(withheld="1 seed, at least 3 are required"), n_seeds=1))
    assert last.startswith(f"{ABOUT_MODELS} (one training run each)")


def test_too_few_documents_decide_nothing() -> None:
    rows = [row("A", "wrapped", 1.0), row("B", "wrapped", 2.0, difference=1.0, too_few=True, withheld="2 documents")]
    _, compared = sentences(report(rows, n_seeds=1))
    assert compared == (
        "Too few changed documents to say whether B or A loses more: all 40 are worth 38.0 of equal size, and at least "
        "10 are required."
    )
    assert decision(report(rows), rows[1]) == "too few changed documents"
    some = [*usual(), *rows]
    assert "; 1 changes too few documents." in sentences(report(some))[1]


def test_lost_text_is_no_result() -> None:
    lost = {"text_lost": "3 documents changed", "withheld": "text is lost"}
    rows = [row("A", "upper case", 1.0), row("B", "upper case", 3.0, **lost)]
    worst, compared = sentences(report(rows))
    assert "B" not in worst
    assert compared == "B is not compared with A: one of them loses text under every perturbation."
    page = render(report(rows))
    assert "B loses text under: upper case." in page
    assert "loses text: 3 documents changed" in page
    assert figure(report(rows)).caption.endswith("Faint: the tokenizer loses text.")
    assert table(report(rows))[1][1][-1] == "text is lost"


def test_perturbations_are_sorted_by_their_cost_and_those_without_effect_are_named() -> None:
    found = report(list(reversed(usual())))
    assert [rows[0]["title"] for rows in measured(found)] == ["upper case", "typing errors"]
    page = render(found)
    assert "No document changes under: accents dropped." in page
    assert "10 % of the words" in page
    nothing = report([row("A", "accents dropped", None), row("B", "accents dropped", None)])
    assert sentences(nothing) == ["No perturbation changes any of these documents."]
    assert "<table>" not in render(nothing)
