from __future__ import annotations

import json
from typing import Any

import pytest

from experiments.results import ComparisonRecord, CorpusFiles, Phase2Training, SplitSize, TrainedTokenizer
from tokenizer.errors import UserError

TRAINING = dict.fromkeys(Phase2Training.__dataclass_fields__, 3)
TRAINED: dict[str, Any] = {"tokenizer": "tokenizer-1", "sha256": "ab", "vocab_size": 400}


def test_nested_results_are_loaded_and_saved() -> None:
    found = TrainedTokenizer.load({**TRAINED, "training": {**TRAINING, "more": 1}})
    assert found.training == Phase2Training(**TRAINING)
    assert TrainedTokenizer.load(json.loads(json.dumps(found.save()))) == found
    assert TrainedTokenizer.load(TRAINED).training is None


def test_the_embedded_corpus_has_sizes() -> None:
    size = {"documents": 1, "sources": 2, "bytes": 3}
    found = CorpusFiles.load({"packages": {"p": "1"}, "train": size, "heldout": size})
    assert found.train == SplitSize(documents=1, sources=2, bytes=3)
    assert found.packages == {"p": "1"}


def test_a_missing_entry_is_named() -> None:
    with pytest.raises(UserError, match=r"made by another version of this program .*vocab_size"):
        TrainedTokenizer.load({"tokenizer": "tokenizer-1", "sha256": "ab"})
    with pytest.raises(UserError, match=r"made by another version of this program"):
        TrainedTokenizer.load({**TRAINED, "training": {"last_count": 1}})


def test_a_record_of_version_0_1_is_loaded() -> None:
    row = {"key": "bpe", "label": "BPE", "tokenizer": "t", "heldout": "h", "lms": [], "evaluations": []}
    numbers = {"vocab_size": 1, "bytes_per_token": 1.0, "bits_per_byte": 2.0, "interval": [1.9, 2.1]}
    (arm,) = ComparisonRecord.load({"tokenizers": [{**row, **numbers, "readers": ["c", "s"]}], "confidence": 0.9}).arms
    assert (arm.counts, arm.shards, arm.interval, arm.settings) == ("c", "s", (1.9, 2.1), {})
