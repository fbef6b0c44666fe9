from types import SimpleNamespace
from typing import cast

import pytest

from experiments.stages.evaluation import FEWEST_DOCUMENTS, Judged, Result, verdict
from lm.evaluation import Comparison


def result(n_documents, difference, said):
    judged = [
        SimpleNamespace(
            candidate=SimpleNamespace(trained=SimpleNamespace(label=label)), summary={"bits_per_byte": bits}
        )
        for label, bits in (("BPE", 2.0), ("SuperBPE", 2.0 + difference))
    ]
    comparison = Comparison(2.0, 2.0 + difference, difference, (difference, difference), 0.95, n_documents, said)
    return Result(cast("list[Judged]", judged), comparison)


@pytest.mark.parametrize(
    ("difference", "said", "sentence"),
    [
        (-0.2, "B better", "SuperBPE predicts held-out text better than BPE: 10.00% fewer bits per byte."),
        (0.5, "A better", "BPE predicts held-out text better than SuperBPE: 20.00% fewer bits per byte."),
        (0.0, "no significant difference", "No significant difference between BPE and SuperBPE"),
    ],
)
def test_the_verdict_is_a_sentence(difference, said, sentence):
    assert verdict(result(FEWEST_DOCUMENTS, difference, said)).startswith(sentence)


def test_few_documents_allow_no_verdict():
    few = result(2, -0.2, "B better")
    assert few.winner is None
    assert verdict(few) == "Too few held-out documents to tell BPE and SuperBPE apart: 2, and it takes 30."
