from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from experiments.report.page import render, version, visible

from . import sample

if TYPE_CHECKING:
    from pathlib import Path


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def page() -> str:
    return render(sample.sample_report())


def test_tokens_cannot_break_out(page: str) -> None:
    elements = _Elements()
    elements.feed(page)
    assert elements.tags.count("script") == 2
    assert "img" not in elements.tags
    assert "</script><script>alert(1)</script>" in elements.text


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    elements = _Elements()
    elements.feed(page)
    assert elements.addresses == []
    assert "default-src 'none'" in page
    assert "@import" not in page


def test_the_numbers_are_there(page: str) -> None:
    for shown in (
        "1.7020",
        "1.6950",
        "5.520",
        "2.72M",
        "No significant difference",
        "+25.2 %",
        "not evidence",
    ):
        assert shown in page, shown


def test_charts_are_json_that_cannot_close_its_script(page: str) -> None:
    specs = re.search(r"const specs = (.*);\n", page)
    assert specs is not None
    assert "<" not in specs[1]
    assert set(json.loads(specs[1])) == {"compression", "loss", "interval", "words"}


def test_a_comparison_without_superwords_still_renders() -> None:
    report = sample.sample_report(winner="bpe")
    report["superwords"] |= {"n": 0, "by_words": [], "longest": [], "most_frequent": []}
    report["demonstration"] = False
    page = render(report)
    assert "How many words" not in page
    assert "not evidence" not in page


def test_visible_shows_control_characters() -> None:
    assert visible(" a\n\t\r\x00\x7f") == " a↵⇥␍␀␡"


def test_version_is_stable() -> None:
    assert version() == version()


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.slow
def test_it_draws_in_a_browser_without_errors(tmp_path: Path, page: str) -> None:
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=5000"]
    command = ["chromium", *flags, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert result.stdout.count('class="marks"') == 4
    assert "CONSOLE" not in result.stderr
