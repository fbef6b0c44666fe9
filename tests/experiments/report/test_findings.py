from __future__ import annotations

from typing import Any

from experiments.report import comparison, findings
from experiments.report.characters import harmless

from .sample import sample_report


def headings(**verdict: Any) -> dict[str, str]:
    made = sample_report()
    made["verdict"] |= verdict
    return findings.comparison(made)


def test_a_heading_claims_no_more_than_the_verdict() -> None:
    assert headings(withheld="1 seed, at least 3 are required")["loss"] == (
        "No verdict about the tokenizers: 1 seed, at least 3 are required"
    )
    assert headings(withheld="")["loss"] == "Undecided which tokenizer predicts held-out text best"
    decided = headings(withheld="", winner="superbpe")
    assert decided["loss"] == "SuperBPE needs fewer bits per byte than BPE"
    # One seed withholds the verdict although the models differ.
    assert headings(withheld="1 seed", winner="superbpe")["loss"].startswith("No verdict")


def test_compression_is_stated_of_tokenizers_that_lose_no_text() -> None:
    made = sample_report(["BPE", "SuperBPE", "third"])
    assert (
        findings.comparison(made)["compression"] == "SuperBPE needs 20.1 % fewer tokens than BPE for the held-out text"
    )
    made["tokenizers"][1]["text_lost"] = "3 documents changed"
    assert findings.comparison(made)["compression"].startswith("third needs 18.6 % fewer tokens")
    made["tokenizers"] = made["tokenizers"][:2]
    assert "compression" not in findings.comparison(made)


def fertility(*, low: float, efficiency: float) -> dict[str, Any]:
    def line(name: str, by: str, group: str, parity: float, renyi: float) -> dict[str, Any]:
        return {
            "tokenizer": name, "by": by, "group": group, "tokens": 100 * parity, "bytes_per_token": 4 / parity,
            "parity": parity, "parity_low": parity - low, "parity_high": parity + low,
            "renyi_efficiency": renyi, "renyi_efficiency_low": renyi - 0.1, "renyi_efficiency_high": renyi + 0.1,
        }  # fmt: skip

    groups = (("all", "all text", 0.9), ("source", "code", 0.8), ("source", "web", 0.95))
    rows = [line("A", by, group, 1.0, 0.4) for by, group, _ in groups]
    rows += [line("B", by, group, parity, efficiency) for by, group, parity in groups]
    return {"reference": "A", "rows": rows}


def test_intervals_decide_the_headings_of_fertility() -> None:
    found = findings.fertility(fertility(low=0.01, efficiency=0.7))
    assert found["source"] == "From −20.0 % (code) to −5.0 % (web) tokens for B against A"
    assert found["efficiency"] == "B has the highest Rényi efficiency: 0.700"
    found = findings.fertility(fertility(low=0.1, efficiency=0.5))
    assert found["source"].endswith("; undecided in 1 of 2 sources")
    assert found["efficiency"] == "Undecided which tokenizer has the highest Rényi efficiency"


def test_the_topic_stays_above_the_finding() -> None:
    page = comparison.render(sample_report())
    assert "<h2><small>Compression and learning</small>SuperBPE needs 20.1\N{NO-BREAK SPACE}% fewer" in page
    assert "<h2>Provenance</h2>" in page


def test_characters_that_hide_or_reorder_text_are_shown() -> None:
    assert harmless("a\u202eb\u2028c\x85d\ud800\r\n\t") == "a\\u202eb\\u2028c\\u0085d\\ud800␍\n\t"
    page = comparison.render(sample_report(["BPE \u202e\x00", "other\ud800"]))
    assert "BPE \\u202e␀" in page
    assert "other\\ud800" in page
