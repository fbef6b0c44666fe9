import json
import re

import pytest

from experiments.characters import harmless
from experiments.report.comparison_page import figures, render
from experiments.report.page import visible

from . import sample
from .elements import Elements


@pytest.fixture(scope="module")
def page():
    return render(sample.sample_report())


def test_tokens_cannot_inject_markup_and_nothing_is_loaded_from_elsewhere(page):
    elements = Elements(page)
    assert elements.tags.count("script") == 3
    assert "img" not in elements.tags
    assert "</script><script>alert(1)</script>" in elements.text
    assert elements.addresses == []
    assert "default-src 'none'" in page
    assert "@import" not in page


def test_the_page_shows_the_numbers_and_charts_that_cannot_close_their_script(page):
    for shown in ("1.7020", "1.6950", "5.520", "2.72M", "+25.2\N{NO-BREAK SPACE}%", "No significant difference"):
        assert shown in page, shown
    assert "superbpe pipeline lm.n_seeds=3" in page
    charts = re.search(r'<script id="charts" type="application/json">(.*?)</script>', page)
    assert "<" not in charts[1]
    assert set(json.loads(charts[1])["specs"]) == {"compression", "differences", "learning_bytes", "learning_flops"}
    for figure in figures(sample.sample_report()):
        assert figure.source in ("", "held-out evaluations of BPE, SuperBPE", "training of BPE, SuperBPE")


def test_what_a_comparison_lacks_is_left_out(page):
    report = sample.sample_report(winner="bpe")
    report["superwords"], report["demonstration"] = [], False
    report["division"]["missing"] = "the losses of single tokens were not kept for BPE; evaluate again"
    report["tokenizers"][1] |= {"barred": "SuperBPE changes or loses text", "text_lost": "98 documents changed"}
    other = render(report)
    for words, shown in (
        ("that span at least two words", (True, False)),
        ("not evidence", (True, False)),
        ("the parts sum to the gap", (True, False)),
        ("Not measured: the losses of single tokens were not kept for BPE", (False, True)),
        ("not part of the verdict", (False, True)),
        ("loses text: 98 documents changed", (False, True)),
    ):
        assert (words in page, words in other) == shown, words


def test_characters_that_hide_or_reorder_text_are_shown():
    assert visible(" a\n\t\r\x00\x7f") == " a↵⇥␍␀␡"
    assert harmless("a\u202eb\u2028c\x85d\ud800\r\n\t") == "a\\u202eb\\u2028c\\u0085d\\ud800␍\n\t"
    page = render(sample.sample_report(["BPE \u202e\x00", "other\ud800"]))
    assert "BPE \\u202e␀" in page
    assert "other\\ud800" in page
