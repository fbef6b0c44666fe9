"""The page of a ladder in a browser: what Python computed for the chosen deployment, and nothing else."""

import dataclasses

import pytest

from lm.evaluate.deployment import Deployment
from tests.browser.ladders import BARRED, arms, write
from tests.browser.waiting import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    file = tmp_path_factory.mktemp("ladder") / "ladder.html"
    return file, write(file, arms())


def test_the_selector_shows_what_python_computed(opened, written):
    file, study = written
    page = opened.open(file)

    def shown():
        rows = page.locator("[data-cell]:not([hidden]) .scroll tbody tr").all()
        cells = [[cell.inner_text() for cell in row.locator("td").all()] for row in rows]
        return {cell[0].removeprefix("●\xa0"): (cell[1].split("\n")[0], cell[4]) for cell in cells}

    for model, rho, phase in (("dense-8b", "1", "decode"), ("dense-1b", "0", "prefill"), ("dense-8b", "4.5", "decode")):
        page.select_option("#model", model)
        page.select_option("#rho", rho)
        page.select_option("#phase", phase)
        assert page.locator("[data-cell]:visible").count() == 1
        if model != "dense-8b":
            continue
        found = study.at(dataclasses.replace(Deployment(), rho=float(rho)))
        for gap, each in zip(study.gaps, found[1:], strict=True):
            answer, equal = shown()[gap.arm]
            expected = each.equivalents[phase]
            assert {"yes": "worth it", "no": "not worth it", "withheld": "no verdict"}[expected.answer] == answer
            if expected.percent is not None:
                assert equal.replace("\xa0", " ").startswith(f"{expected.percent:+.1f} %".replace("-", "−"))
    assert BARRED in page.locator("[data-cell]:visible").first.inner_text()
    opened.check()


def test_it_draws_and_names_the_commands(opened, written, tmp_path):
    page = opened.open(written[0])
    wait_for(page, "document.querySelectorAll('.chart svg').length === 2")
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert "superbpe pipeline lm.n_seeds=5" in page.locator("header").inner_text()
    assert "superbpe compare 'outputs/a run' deployment.context_bytes=262144" in page.locator("header").inner_text()
    gap = "Change against bpe, in percent: download as CSV"
    with page.expect_download() as download:
        page.get_by_role("button", name=gap).click()
    assert "lower" not in download.value.path().read_text(encoding="utf-8")
    opened.check()
