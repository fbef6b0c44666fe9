"""Tests of generated examples: a quick sample in the default suite, all of them among the slow tests.

The environment variable FUZZ_CASES sets the number of the slow tests, which then draw new examples in each run. The
properties of the Rust core read it, too.
"""

import os

import pytest
from hypothesis import given, settings


def quick_first(values, n=1):
    """Parameters of a test: the first `n` values, and the others as slow tests. A tuple is several parameters."""
    values = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*value, marks=[pytest.mark.slow] if i >= n else []) for i, value in enumerate(values)]


def examples(quick, full, **arguments):
    """Test a function on examples of its arguments: `quick` of them, and `full` of them as a slow test."""

    more = os.environ.get("FUZZ_CASES")

    def decorate(check):
        @pytest.mark.parametrize("n_examples", [quick, pytest.param(int(more or full), marks=pytest.mark.slow)])
        def test(n_examples):
            settings(max_examples=n_examples, deadline=None, derandomize=more is None)(given(**arguments)(check))()

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate
