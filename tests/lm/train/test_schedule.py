import math

import pytest

from lm.train.schedule import Schedule


@pytest.mark.parametrize(
    ("shape", "warmup", "decay", "factors"),
    [
        ("linear", 10, 20, {4.5: 0.5, 9.5: 1.0, 79.5: 1.0, 89.5: 0.5, 99.5: 0.0}),
        ("sqrt", 0, 0, dict.fromkeys(range(100), 1.0)),
        ("sqrt", 0, 20, {84.5: 1 - math.sqrt(5 / 20)}),
        # The cosine begins at the end of the warm-up.
        ("cosine", 20, 20, {9.5: 0.5, 59.5: 0.5, 79.5: (1 - math.cos(math.pi / 4)) / 2}),
    ],
)
def test_factors_of_the_learning_rate(shape, warmup, decay, factors):
    schedule = Schedule(steps=100, warmup=warmup, decay=decay, shape=shape)
    assert {step: schedule.factor(step) for step in factors} == pytest.approx(factors)


@pytest.mark.parametrize("decay", [0, 0.4, 0.5, 1, 19.5, 20, 20.5, 99.7, 100])
def test_constant_steps_end_where_the_decay_begins(decay):
    schedule = Schedule(steps=100, warmup=0, decay=decay, shape="linear")
    constant = [step for step in range(100) if schedule.factor(step) == 1.0]
    assert schedule.constant_steps == len(constant)
    assert constant == list(range(len(constant)))
