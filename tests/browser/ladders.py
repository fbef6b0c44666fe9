"""A made-up ladder of budgets: measurements of four arms, and their page."""

import numpy as np

from experiments.findings.next_step import Step
from experiments.report.ladder_page import render
from experiments.report.over_compute import Assumptions, describe
from lm.evaluate.bits_per_byte import Grouping, SamplingUnits
from lm.evaluate.deployment import Deployment
from lm.scaling.pricing import Study
from tests.lm.scaling.ladders import FLOPS, points

SIZES = np.random.default_rng(1).integers(200, 4000, 150)
NAMES = ("bpe", "superbpe", "crossing", "lower")
GAPS = {"bpe": [0.0] * 4, "superbpe": [1.2, 0.9, 0.9, 0.7], "crossing": [2.0, 1.0, -0.5, -1.0], "lower": [-7.0] * 4}
BYTES_PER_TOKEN = {"bpe": 4.0, "superbpe": 5.5, "crossing": 3.0, "lower": 4.5}
BARRED = "lower changes or loses text in 98 of 98 documents"


def arms(n_rungs=4, n_seeds=3):
    return [
        points(
            name, gaps[-n_rungs:], n_seeds=n_seeds, scatter=0.1, documents=0.2, seed=number, sizes=SIZES,
            flops=FLOPS[-n_rungs:], bytes_per_token=BYTES_PER_TOKEN[name], barred=BARRED if name == "lower" else "",
        )
        for number, (name, gaps) in enumerate(GAPS.items())
    ]  # fmt: skip


def write(
    file,
    measured,
    sources=("code", "web", "<b>odd & “quoted”</b>"),
    *,
    run="outputs/a run",
):
    study = Study(measured, SamplingUnits.of(SIZES, Grouping(sources, np.repeat([0, 1, 2], 50).astype(np.int32)), {}))
    step = Step("train 5 seeds instead of 3", "to show a difference", "superbpe pipeline lm.n_seeds=5", 900.0)
    numbers = describe(study, Assumptions(Deployment()), step=step, run=run)
    file.write_text(render(numbers, study), encoding="utf-8")
    return study
