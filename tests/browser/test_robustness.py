"""The page of perturbed text in a browser: draws its chart, fits the window, and loads nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.report.robustness import render
from tests.browser.waiting import wait_for
from tests.experiments.report.perturbed import report, usual

pytestmark = pytest.mark.slow


def test_it_draws(opened: Any, tmp_path: Path) -> None:
    file = tmp_path / "robustness.html"
    file.write_text(render(report(usual(text_lost="3 documents changed"))), encoding="utf-8")
    page = opened.open(file)
    wait_for(page, "document.querySelectorAll('.chart svg').length === 1")
    assert page.locator(".chart svg .mark-symbol.role-mark path").count() == 4
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    opened.check()
