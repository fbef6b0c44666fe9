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


def test_the_page_draws_and_saves_its_data(opened, file, tmp_path):
    page = opened.open(file)
    wait_for(page, "document.querySelectorAll('.chart svg').length === 2")
    for name in ("light", "dark"):
        page.emulate_media(color_scheme=name)
        page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    with page.expect_download() as download:
        page.get_by_role("button", name="Bytes per token against vocabulary size: download as CSV").click()
    rows = list(csv.DictReader(download.value.path().open(encoding="utf-8")))
    assert list(rows[0]) == ["tokenizer", "vocab_size", "bytes_per_token"]
    assert len(rows) == 2 * 9
    with page.expect_download() as download:
        page.get_by_role("button", name="Bytes per token against vocabulary size: download as SVG").click()
    drawn = download.value.path().read_text(encoding="utf-8")
    assert "#0068a8" in drawn
    assert "var(" not in drawn
    with page.expect_download() as download:
        page.get_by_role("button", name="Bytes per token against vocabulary size: download as PNG").click()
    assert download.value.path().read_bytes()[:4] == b"\x89PNG"
    opened.check()


def test_only_scripts_of_the_page_run(opened, file):
    page = opened.open(file)
    page.evaluate("document.body.append(element('script', {}, 'window.injected = 1'))")
    assert page.evaluate("window.injected") is None
    assert any("Content Security Policy" in text for text in opened.complaints)


def test_the_printed_page_is_light(opened, file):
    opened.page.emulate_media(media="print", color_scheme="dark")
    page = opened.open(file)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('h2')).color") == "rgb(28, 30, 34)"
    assert page.get_by_role("button").count() == 0
    opened.check()
