import random

import numpy as np
import pytest

from lm.evaluate.windows import plan_windows


def check(lengths, context_bytes, min_context_bytes, context_tokens):
    """The promises of `plan_windows`, token by token; returns the windows."""
    before = np.concatenate(([0, 0], np.cumsum(lengths))).astype(np.int64)
    limits = {"context_bytes": context_bytes, "min_context_bytes": min_context_bytes}
    windows = plan_windows(before, context_tokens=context_tokens, **limits)
    scored = [t for w in windows for t in range(w.first, w.last + 1)]
    assert scored == list(range(1, len(lengths) + 2))
    for w in windows:
        assert 0 <= w.start < w.first <= w.last
        assert w.last - w.start <= context_tokens
        for t in range(w.first, w.last + 1):
            context = before[t] - before[w.start]
            assert context <= context_bytes
            longest = max(lengths, default=0)
            if w.start and not w.limited and min_context_bytes + longest <= context_bytes:
                assert context >= min_context_bytes
    return windows


@pytest.mark.parametrize("seed", range(50))
def test_invariants_on_random_documents(seed):
    rng = random.Random(seed)
    context_bytes = rng.randint(12, 60)
    lengths = [rng.choice([1, 1, 2, 3, 5, 12]) for _ in range(rng.randint(0, 80))]
    check(lengths, context_bytes, rng.randint(0, context_bytes - 1), rng.choice([1, 2, 5, 12, 30, 100]))


def test_long_and_empty_documents():
    windows = check([2] * 1000, context_bytes=100, min_context_bytes=50, context_tokens=10**6)
    assert not any(w.limited for w in windows)
    # Each window but the first adds 50 bytes of scored text.
    assert len(windows) == pytest.approx(2000 / 50, abs=2)
    # Positions bound windows of short tokens.
    windows = check([1] * 1000, context_bytes=100, min_context_bytes=50, context_tokens=20)
    assert all(w.limited for w in windows[:-1])
    # Work stays in proportion: at least a quarter of the positions score something new.
    assert len(windows) <= 1000 / 5 + 1
    # An empty document scores only its end.
    assert check([], 10, 5, 10) == [(0, 1, 1, False)]
