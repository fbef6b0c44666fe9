import math

import pytest

from lm.train.schedule import Schedule


def test_linear_decay_is_half_way_at_half_of_its_steps():
    schedule = Schedule(steps=100, warmup=10, decay=20, shape="linear")
    assert schedule.factor(4.5) == 0.5
    assert schedule.factor(9.5) == schedule.factor(79.5) == 1.0
    assert schedule.factor(89.5) == 0.5
    assert schedule.factor(99.5) == 0.0


def test_no_warmup_and_no_decay_keep_the_rate_constant():
    schedule = Schedule(steps=100, warmup=0, decay=0, shape="sqrt")
    assert {schedule.factor(step) for step in range(100)} == {1.0}


def test_sqrt_decay_falls_as_one_minus_the_square_root():
    schedule = Schedule(steps=100, warmup=0, decay=20, shape="sqrt")
    assert schedule.factor(84.5) == pytest.approx(1 - math.sqrt(5 / 20))


def test_cosine_decays_from_the_end_of_the_warmup():
    schedule = Schedule(steps=100, warmup=20, decay=20, shape="cosine")
    assert schedule.factor(9.5) == 0.5
    assert schedule.factor(59.5) == pytest.approx(0.5)
    assert schedule.factor(79.5) == pytest.approx((1 - math.cos(math.pi / 4)) / 2)


@pytest.mark.parametrize("decay", [0, 0.4, 0.5, 1, 19.5, 20, 20.5, 99.7, 100])
def test_constant_steps_end_where_the_decay_begins(decay):
    schedule = Schedule(steps=100, warmup=0, decay=decay, shape="linear")
    constant = [step for step in range(100) if schedule.factor(step) == 1.0]
    assert schedule.constant_steps == len(constant)
    assert constant == list(range(len(constant)))
