"""Balanced merges equal to those of Hugging Face's crate, recorded on generated corpora.

`ParityBpeTrainer` of `tokenizers` 1.0.0-rc.3 (feature `parity-aware-bpe`), fed with words that nothing cuts. Of equally
frequent pairs, it merges the greatest one in the byte-level alphabet. No such choice matters in these cases: every
order of ties gives the same merges.
"""

import itertools
import json
from pathlib import Path

import pytest

from tokenizer import count_pretokens, train_bpe
from tokenizer.definition import printable
from tokenizer.train.balanced import Balanced
from tokenizer.train.bpe import TIE_BREAKS

CASES = json.loads(Path(__file__).with_name("parity_aware.json").read_text(encoding="utf-8"))


def counted(sources):
    named = {str(i): words for i, words in enumerate(sources)}
    return {name: count_pretokens(words, "none", pretokenized=True) for name, words in named.items()}


@pytest.mark.parametrize(("case", "tie_break"), list(zip(CASES, itertools.cycle(TIE_BREAKS), strict=False)))
def test_merges_equal_those_of_the_crate(case, tie_break):
    sources, parallel = counted(case["sources"]), case["parallel"] and counted(case["parallel"])
    ratios = case["ratios"] and dict(zip(sources, case["ratios"], strict=True))
    balanced = Balanced(sources=sources, parallel=parallel, ratios=ratios)
    tokenizer = train_bpe(balanced, 256 + len(case["merges"]), special_tokens=(), tie_break=tie_break)
    assert [" ".join(map(printable, pair)) for pair in tokenizer.merges] == case["merges"]
