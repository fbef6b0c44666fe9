"""Vetoes in Python."""

import pytest

from superbpe import Rules, train_superbpe
from tests.superbpe.oracle import RULES, batches, expected, pairs


def recorded(refuse):
    """A veto, and the candidates it was called with."""
    asked = []

    def veto(left, right, count):
        asked.append((left, right, count))
        return refuse(left, right, count)

    return veto, asked


VETOES = {
    "right parts": lambda left, right, count: right.startswith(b" t"),
    "counts": lambda left, right, count: count % 3 == 0,
    "nothing": lambda left, right, count: False,
    "everything": lambda left, right, count: True,
}


@pytest.mark.parametrize("name", VETOES)
@pytest.mark.parametrize("threshold", [None, 1, 4, 10_000])
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_a_veto_sees_every_candidate_once(name, threshold, documents, phase1):
    veto, asked = recorded(VETOES[name])
    expected_veto, expected_asked = recorded(VETOES[name])
    rules, options = RULES["words"], {"vocab_size": 256 + 140 + 1, "transition": 356}
    some = documents if name != "everything" else ["it is so. it is so"]
    tokenizer = train_superbpe(phase1, batches(some), rules=rules, veto=veto, threshold=threshold, **options)
    _, merges = expected(some, phase1, rules, 100, 40, veto=expected_veto)
    assert tokenizer.merges[100:] == pairs(merges)
    assert asked == expected_asked
    assert len(set(asked)) == len(asked)


def test_an_exception_in_a_veto_propagates(documents, phase1):
    def veto(left, right, count):
        raise ZeroDivisionError(f"{left!r} {right!r} {count}")

    with pytest.raises(ZeroDivisionError, match=r"b'\S* ?' b'.*' \d+"):
        train_superbpe(phase1, batches(documents), vocab_size=400, transition=300, rules=Rules(), veto=veto)


def test_vetoes_and_competition(documents, longer):
    veto, asked = recorded(lambda left, right, count: b"t" in right)
    tokenizer = train_superbpe(longer, batches(documents), vocab_size=417, rules="boundless", veto=veto)
    made = [right for _, right in tokenizer.merges[tokenizer.n_phase1_merges :]]
    assert made
    assert not any(b"t" in right for right in made)
    assert len({pair[:2] for pair in asked}) == len(asked)
