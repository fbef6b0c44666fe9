"""Points that were measured elsewhere: the table, and the public bake-off."""

from pathlib import Path

import numpy as np
import pytest

from lm.bits import bits
from lm.evaluate.bits_per_byte import SamplingUnits
from lm.scaling.measured import read_points
from lm.scaling.pricing import Study
from tokenizer.errors import UserError

EXAMPLE = Path(__file__).parents[3] / "configs" / "points" / "public_bakeoff.csv"
TABLE = """arm,seed,flops,vocab_size,tokens_per_byte,web,code
a,0,1e18,50000,0.25,1.0,0.8
a,0,2e18,50000,0.25,0.9,0.7
b,0,1e18,50000,0.2,1.1,0.8
b,0,2e18,50000,0.2,1.0,0.7
"""


def table(tmp_path, text):
    path = tmp_path / "points.csv"
    path.write_text(text)
    return path


def studied(path):
    arms, sizes, sources = read_points(path)
    return Study(arms, SamplingUnits.of(sizes, sources, {}), "source")


def test_a_table_of_points(tmp_path):
    arms, sizes, sources = read_points(table(tmp_path, TABLE))
    assert [(arm.name, arm.flops, arm.seeds, arm.vocab_size) for arm in arms] == [
        (name, [1e18, 2e18], [0], 50_000) for name in "ab"
    ]
    assert sources.names == ("web", "code")
    assert bits(arms[1].nats) / sizes == pytest.approx(np.array([[[1.1, 0.8], [1.0, 0.7]]]))
    found = Study(arms, SamplingUnits.of(sizes, sources, {}), "source")
    assert found.tokens_per_byte() == pytest.approx([0.25, 0.2])
    assert found.gaps[0].percent == pytest.approx([100 * 0.1 / 1.8, 100 * 0.1 / 1.6])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("flops", "FLOPs", "no column flops"),
        (",web,code", "", "line 2: 7 fields, but the header has 5"),
        (TABLE, "arm,seed,flops,vocab_size,tokens_per_byte\na,0,1e18,50000,0.25\n", "no bits per byte"),
        ("b,0,2e18,50000,0.2,1.0,0.7\n", "", "b cannot be compared with a: it has 1 budgets instead of 2"),
        ("b,0,2e18,50000,0.2,1.0,0.7", "b,1,2e18,50000,0.2,1.0,0.7", "b has no row of seed 0 at 2e"),
        ("b,0,2e18,50000,0.2,1.0", "b,0,2e18,50000,0.2,much", "row 4: web='much' must be a number above 0"),
        ("b,0,2e18", "b,0,1e18", "row 4: b has seed 0 at 1e\\+18 FLOPs twice"),
        ("\nb,", "\na,", "twice"),
    ],
)
def test_mistakes_in_a_table_are_named(tmp_path, old, new, message):
    with pytest.raises(UserError, match=message):
        studied(table(tmp_path, TABLE.replace(old, new)))


def test_a_public_bake_off_has_a_slope_and_names_no_tokenizer():
    (gap,) = studied(EXAMPLE).gaps
    assert gap.percent == pytest.approx([0.4, 0.4, 1.1, 1.5, 1.9], abs=0.01)
    assert gap.slope is not None
    assert gap.slope.scatter
    assert (gap.slope.points, *(gap.slope.interval or ())) == pytest.approx((1.09, 0.41, 1.76), abs=0.005)
    assert set(gap.decisions) == {"undecided"}
    assert gap.withheld == "1.0 effective sources, at least 5 are required"
