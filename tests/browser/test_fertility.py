"""The fertility page in a browser: draws its charts, fits the window, and loads nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import main
from tests import texts
from tests.browser.waiting import wait_for
from tokenizer import Tokenizer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, trained: dict[str, Tokenizer]) -> Path:
    root = tmp_path_factory.mktemp("fertility")
    for name, tokenizer in trained.items():
        tokenizer.save(root / name)
    for name, documents in (("english", texts.english()[1][:40]), ("scripts", list(texts.SCRIPTS.values()))):
        lines = [json.dumps({"text": text}) for text in documents]
        (root / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    given = [str(root / name) for name in (*trained, "english.jsonl", "scripts.jsonl")]
    assert main.run(["fertility", *given, "--title", "<b>a & b</b>", "--out", str(root / "out")]) == 0
    return root / "out" / "fertility.html"


def test_it_draws(opened: Any, file: Path, tmp_path: Path) -> None:
    page = opened.open(file)
    wait_for(page, "document.querySelectorAll('.chart svg').length === 3")
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert page.locator("h1").inner_text() == "<b>a & b</b>"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    opened.check()
