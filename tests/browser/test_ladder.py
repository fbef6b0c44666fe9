"""The page of a ladder in a browser: its numbers equal Python's under any assumptions, and it shows them."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.report.ladder import presets
from experiments.reprice import assumptions
from experiments.stages import ladder
from lm.evaluate.deployment import Deployment
from lm.scaling.ladder import source_shares
from tests.browser.ladders import SIZES, SOURCES, measurements, write
from tests.browser.waiting import wait_for
from tests.lm.scaling.ladders import reprice

pytestmark = pytest.mark.slow

CASES: dict[str, tuple[Deployment, dict[str, Any]]] = {
    "stored": (Deployment(), {}),
    "mixture of experts": (dataclasses.replace(presets()["moe-250b"], rho=4.5, context_bytes=262_144, batch=8), {}),
    "windows": (Deployment(window_layers=20, window_bytes=4096, mlp="plain", kv_format="fp8", rho=0.3), {}),
    "rho = 0": (dataclasses.replace(presets()["dense-1b"], rho=0.0, context_bytes=1024), {}),
    "far": (dataclasses.replace(presets()["dense-70b"], rho=10.0), {}),
    "macro": (Deployment(rho=2.0), {"average": "macro"}),
    "more code": (presets()["dense-70b"], {"shares": {"code": 0.6}}),
    "only web": (Deployment(), {"shares": {"web": 1.0}}),
    "a line": (Deployment(), {"average": "macro", "shares": {SOURCES.names[3]: 0.9}}),
}


@pytest.fixture(scope="module")
def measured() -> ladder.Measurements:
    return measurements()


@pytest.fixture(scope="module")
def expected(measured: ladder.Measurements) -> Callable[[str], dict[str, Any]]:
    """The result of Python for a case."""

    @functools.cache
    def result(case: str) -> dict[str, Any]:
        deployment, weights = CASES[case]
        return reprice(measured.depths[None], *measured[1:3], deployment, **weights)

    return result


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, measured: ladder.Measurements) -> Path:
    folder = tmp_path_factory.mktemp("ladder")
    write(folder, measured)
    return folder / ladder.PAGE


def computed(page: Any, deployment: Deployment, average: str = "micro", shares: dict[str, float] | None = None) -> Any:
    given = {"deployment": dataclasses.asdict(deployment), "average": average, "shares": shares or {}}
    return page.evaluate("(given) => ladder.compute(ladder.about.data, ladder.about.stored, given)", given)


def differences(ours: Any, theirs: Any, where: str, *, same: bool) -> list[str]:
    """Where the page's result differs from Python's. Under other weights it has no intervals and no verdicts."""
    if isinstance(ours, dict):
        left_out = {"same"} if same else {"same", "interval", "intervals", "low", "high", "signs", "decisions", "worth"}
        return [
            line
            for key in set(ours) - left_out
            for line in differences(ours[key], theirs[key], f"{where}.{key}", same=same)
        ]
    if isinstance(ours, list) and len(ours) == len(theirs):
        return [
            line
            for i, pair in enumerate(zip(ours, theirs, strict=True))
            for line in differences(*pair, f"{where}[{i}]", same=same)
        ]
    # A gap in percent is a difference of two numbers near 1.
    if isinstance(ours, float | int) and isinstance(theirs, float | int):
        return [] if ours == pytest.approx(theirs, rel=1e-9, abs=1e-11) else [f"{where}: {ours!r} is not {theirs!r}"]
    return [] if ours == theirs else [f"{where}: {ours!r} is not {theirs!r}"]


@pytest.mark.parametrize("case", CASES)
def test_numbers_are_those_of_python(opened: Any, file: Path, expected: Callable[[str], Any], case: str) -> None:
    deployment, weights = CASES[case]
    ours = computed(opened.open(file), deployment, **weights)
    theirs = expected(case)
    assert ours["same"] == (not weights)
    assert differences(ours, theirs, case, same=not weights) == []
    opened.check()


def test_cases_reach_every_branch(expected: Callable[[str], Any]) -> None:
    found = {case: expected(case) for case in CASES}
    laws = {case: [arm["curve"]["law"] is not None for arm in each["arms"]] for case, each in found.items()}
    assert laws["stored"] == [True] * 4
    assert not all(laws["a line"])
    assert len({each["arms"][0]["curve"]["law"]["floor"] for each in found.values()}) == 5  # one for each weighting
    reasons = " ".join(
        row["reason"] for each in found.values() for arm in each["arms"] for row in arm["equivalent"]["decode"]
    )
    assert "cannot be matched" in reasons
    assert "by more than a factor of 4" in reasons
    assert "only interpolates" in reasons
    assert any(gap["crossings"] for gap in found["stored"]["gaps"])
    answers = {gap["worth"]["decode"]["answer"] for each in found.values() for gap in each["gaps"]}
    assert answers >= {"yes", "no", "undecided"}


@pytest.mark.parametrize(
    ("shape", "reason"), [({"n_rungs": 3}, ""), ({"n_seeds": 1, "noise": 1e-5}, "1 seed,"), ({"noise": 0.01}, "")]
)
def test_other_ladders(opened: Any, tmp_path: Path, shape: dict[str, Any], reason: str) -> None:
    measured = measurements(**shape)
    write(tmp_path, measured, average="macro", shares={"code": 0.25})
    page = opened.open(tmp_path / ladder.PAGE)
    for weights in ({"average": "macro", "shares": {"code": 0.25}}, {"shares": {"web": 0.9}}):
        deployment = Deployment(rho=0.5)
        theirs = reprice(measured.depths[None], *measured[1:3], deployment, **weights)
        ours = computed(page, deployment, **weights)
        assert differences(ours, theirs, str(shape), same="average" in weights) == []
        assert [gap["withheld"] for gap in ours["gaps"]] == [gap["withheld"] for gap in theirs["gaps"]]
        assert (theirs["ranking"]["withheld"] or "").startswith(reason)
    opened.check()


def test_controls_change_what_is_shown(opened: Any, file: Path) -> None:
    page = opened.open(file)
    wait_for(page, "document.querySelectorAll('.chart svg').length === 3")
    assert page.locator("#preset option").all_inner_texts() == ["dense-1b", "dense-70b", "dense-8b", "moe-250b"]
    assert page.locator("#preset").input_value() == "dense-8b"
    rows = page.locator("#worth tbody tr")
    assert rows.count() == 4
    assert "Worth it" in rows.nth(1).inner_text()
    before = rows.nth(1).inner_text()
    assert "extrapolated" in before  # the saving is spent beyond the largest budget
    page.locator("#rho").fill("0")
    wait_for(page, "document.querySelector('#rho-value').textContent === '0'")
    assert rows.nth(1).inner_text() != before
    assert "deployment.rho=0" in page.locator("footer code.command").inner_text()
    page.locator("#phase").select_option("prefill")
    wait_for(page, "document.querySelector('#frontier-caption').textContent.includes('to read a byte')")
    assert page.locator("#without").is_hidden()
    page.locator("#reset").click()
    wait_for(page, "document.querySelector('#rho-value').textContent === '1'")
    assert rows.nth(1).inner_text() == before
    opened.check()


def test_other_weights_hide_intervals_and_name_the_command(opened: Any, file: Path) -> None:
    page = opened.open(file)
    page.locator("#weights summary").click()
    sliders = page.locator("#sources input")
    assert sliders.count() == 3  # a source without text has no weight
    for i in range(3):
        sliders.nth(i).fill("0.9")
    wait_for(page, "!document.querySelector('#without').hidden")
    assert page.locator("#statements").is_hidden()
    outputs = "[...document.querySelectorAll('#sources output')].map((each) => parseFloat(each.textContent))"
    # The command means the same to Python.
    command, run, *settings = shlex.split(page.locator("#without code").inner_text())[2:]
    assert (command, run) == ("experiments.reprice", "outputs/a run")
    given = assumptions(settings)
    shares = source_shares(SIZES, SOURCES, average=given.average, fixed=given.shares)
    del shares["empty"]
    assert page.evaluate(outputs) == pytest.approx([100 * share for share in shares.values()], abs=0.1)
    assert given.deployment == Deployment()
    assert "Unknown" in page.locator("#worth").inner_text()
    assert not page.evaluate(
        "views.curves && views.curves.then((view) => view.data('rows').some((row) => row.low !== null))"
    )
    page.locator("#free").click()
    wait_for(page, "document.querySelector('#without').hidden")
    opened.check()


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_the_window(opened: Any, file: Path, width: int) -> None:
    page = opened.page
    page.set_viewport_size({"width": width, "height": 900})
    opened.open(file)
    wait_for(page, "document.querySelectorAll('.chart svg').length === 3")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    opened.check()
