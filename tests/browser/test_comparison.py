"""The comparison page in a browser: charts, downloads, light, dark and print, and no external resources."""

import csv

import pytest

from experiments.report import comparison_page
from tests.browser.waiting import wait_for
from tests.experiments.report.sample import sample_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("comparison") / "report.html"
    path.write_text(comparison_page.render(sample_report()), encoding="utf-8")
    return path


def test_the_page_draws_saves_its_data_and_prints(opened, file, tmp_path):
    page = opened.open(file)
    wait_for(page, "document.querySelectorAll('.chart svg').length === 4")
    for name in ("light", "dark"):
        page.emulate_media(color_scheme=name)
        page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) != "rgb(255, 255, 255)"

    def downloaded(kind):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Bytes per token against vocabulary size: download as {kind}").click()
        return download.value.path().read_bytes()

    rows = list(csv.DictReader(downloaded("CSV").decode().splitlines()))
    assert list(rows[0]) == ["tokenizer", "vocab_size", "bytes_per_token"]
    assert len(rows) == 2 * 9
    drawn = downloaded("SVG").decode()
    assert "#0068a8" in drawn
    assert "var(" not in drawn
    assert downloaded("PNG")[:4] == b"\x89PNG"
    # The printed page is light.
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('h2')).color") == "rgb(28, 30, 34)"
    assert page.get_by_role("button").count() == 0
    opened.check()


def test_only_scripts_of_the_page_run(opened, file):
    page = opened.open(file)
    page.evaluate("document.body.append(element('script', {}, 'window.injected = 1'))")
    assert page.evaluate("window.injected") is None
    assert any("Content Security Policy" in text for text in opened.complaints)
