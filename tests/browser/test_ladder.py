"""The page of a ladder in a browser: what Python computed for the chosen deployment, and nothing else."""

import dataclasses

import pytest

from lm.evaluate.deployment import Deployment
from tests.browser.ladders import BARRED, arms, write
from tests.browser.waiting import wait_for

pytestmark = pytest.mark.slow


def test_the_page_shows_what_python_computed_and_names_the_commands(opened, tmp_path):
    study = write(file := tmp_path / "ladder.html", arms())
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
    wait_for(page, "document.querySelectorAll('.chart svg').length === 2")
    header = page.locator("header").inner_text()
    assert "superbpe pipeline lm.n_seeds=5" in header
    assert "superbpe compare 'outputs/a run' deployment.context_bytes=262144" in header
    with page.expect_download() as download:
        page.get_by_role("button", name="Change against bpe, in percent: download as CSV").click()
    assert "lower" not in download.value.path().read_text(encoding="utf-8")
    opened.check()
