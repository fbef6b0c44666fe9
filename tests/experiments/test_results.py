import json

import pytest

from experiments.results import CorpusFiles, TrainedTokenizer, Tuning, TuningRun
from tokenizer.errors import UserError


def test_nested_results_are_loaded_and_saved():
    tuning = Tuning.load({"factor": 1.0, "runs": [{"factor": 1.0, "bits_per_byte": 2.0, "more": 1}]})
    assert tuning.runs == [TuningRun(factor=1.0, bits_per_byte=2.0)]
    assert Tuning.load(json.loads(json.dumps(tuning.save()))) == tuning
    size = {"documents": 1, "sources": 2, "bytes": 3}
    files = CorpusFiles.load({"packages": {"p": "1"}, "train": size, "heldout": size})
    assert (files.train, files.packages) == (size, {"p": "1"})
    trained = {"tokenizer": "tokenizer-1", "sha256": "ab", "vocab_size": 400, "corpus": "c", "split": "train"}
    assert not TrainedTokenizer.load(trained).exhausted


def test_a_missing_entry_is_named():
    with pytest.raises(UserError, match=r"made by another version of this program .*vocab_size"):
        TrainedTokenizer.load({"tokenizer": "tokenizer-1", "sha256": "ab"})
    with pytest.raises(UserError, match=r"made by another version of this program"):
        Tuning.load({"factor": 1.0, "runs": [{"bits_per_byte": 1.0}]})
