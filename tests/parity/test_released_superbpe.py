"""Merges equal to those of the released SuperBPE trainer, in order, recorded on generated corpora.

How they were recorded: see `tests.parity.released`. What the released trainer does otherwise is its list of inherited
merges: it applies them to the text of stage 2 one by one, and leaves out those whose pair is not there.
"""

import json
from collections import Counter
from itertools import islice

import pytest

from superbpe import PHASE1, PRESETS, train_superbpe
from tests.parity import released
from tokenizer import Batch, count_pretokens, patterns, train_bpe

RULES = {recipe: PRESETS[recipe] for recipe in released.REGEXES}


def _matches(found, recorded):
    return found == recorded if isinstance(recorded, list) else released.digest(found) == recorded


@pytest.fixture(scope="module", params=[120, pytest.param(released.N_CASES, marks=pytest.mark.slow)])
def trained(request):
    """Each of the first cases, what was recorded for it, and our merges of both phases as lines of merges.txt."""
    rows = []
    recorded = json.loads(released.RECORDED.read_text(encoding="utf-8"))
    for case, row in zip(islice(released.cases(), request.param), recorded, strict=False):
        assert released.digest([case.text]) == row["text"], "the corpora are not those that were recorded"
        batch = Batch.from_texts([case.text])
        counts = count_pretokens([batch], **PHASE1[case.recipe], threads=1)
        phase1 = train_bpe(counts, 256 + case.phase1, special_tokens=())
        kept = min(case.kept, len(phase1.merges))
        options = {"vocab_size": 256 + kept + row["n_new"], "rules": RULES[case.recipe], "threads": 1}
        extended = train_superbpe(phase1, lambda batch=batch: [batch], transition_merges=kept, **options)
        rows.append((case, row, phase1, released.lines(phase1.merges), released.lines(extended.merges[kept:])))
    return rows


pytestmark = pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")


def test_the_recipes_are_the_recorded_ones():
    for recipe, (stage1, stage2) in released.REGEXES.items():
        runs = r"\p{N}+" + "\n" if recipe == "uw-paper" else ""
        assert patterns.resolve(PHASE1[recipe]["pattern"]).regex == runs + stage1
        assert patterns.resolve(RULES[recipe].fence).regex == runs + stage2


@pytest.mark.parametrize("recipe", released.REGEXES)
def test_merges_of_both_phases_equal_the_released_trainer(trained, recipe):
    cases = [row for row in trained if row[0].recipe == recipe]
    assert len(cases) >= len(trained) // 3
    for case, row, _, phase1, new in cases:
        assert _matches(phase1, row["phase1"]), case
        assert _matches(new, row["new"]), case


def test_the_cases_cover_their_rules(trained):
    spelled = [row for _, row, *_ in trained[: released.N_SPELLED]]
    tokens = [merge.replace(" ", "") for row in spelled for merge in row["new"]]
    words = Counter(sum(1 for part in token.split("Ġ") if part) for token in tokens)
    assert words[4] > 30
    assert max(words) == 4
    assert not any(":Ġ" in token for token in tokens)
    assert any(":" in token[:-1] for token in tokens)
    assert any(token.endswith("Ċ") for token in tokens)
