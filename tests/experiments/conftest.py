"""A corpus of made-up documents with recurring phrases, and the smallest run over it."""

import copy
import functools
import json
import random

import pytest

from experiments import pipeline
from experiments.compose import load
from tests.composition import reuse_parts

reuse_parts()

_SUBJECTS = ["the service", "an operation", "the user", "a volume", "your account", "the request", "this value"]
_VERBS = ["returns", "creates", "describes", "deletes", "updates", "requires"]
_OBJECTS = ["a list of items", "the name of the resource", "an error", "the following parameters"]
_ENDS = ["for more information", "in the specified region", "if you do not specify a value", "as well as tags"]


def write_corpus(path):
    """Write a JSONL file of 300 documents, about 200 kB."""
    rng = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(300):
            sentences = [
                " ".join(map(rng.choice, (_SUBJECTS, _VERBS, _OBJECTS, _ENDS))).capitalize() + f" {rng.randint(1, 99)}."
                for _ in range(rng.randint(5, 15))
            ]
            file.write(json.dumps({"text": f"Document {number}.\n" + " ".join(sentences) + "\n"}) + "\n")
    return path


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """The corpus of `write_corpus`."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "tiny.jsonl")


@pytest.fixture
def tiny(corpus, tmp_path):
    """Overrides of a run that takes seconds, with artifacts and outputs of its own."""
    return tiny_overrides(corpus, tmp_path)


@pytest.fixture(scope="module")
def tiny_module(corpus, tmp_path_factory):
    """The same, with artifacts that the tests of a module share."""
    return tiny_overrides(corpus, tmp_path_factory.mktemp("runs"))


def run_stages(stage, overrides, folder):
    """Run every stage up to `stage`. Without the command line, a small run takes a third of the time."""
    pipeline.run(copy.deepcopy(_loaded(*overrides)), stage, folder)


@functools.cache
def _loaded(*overrides):
    return load(overrides)


def tiny_overrides(corpus, folder):
    """Overrides of a run that takes seconds, with everything it writes in `folder`."""
    return [
        "corpus=files",
        f"corpus.paths=['{corpus}']",
        "corpus.heldout_fraction=0.1",
        f"artifacts={folder / 'artifacts'}",
        f"hydra.run.dir={folder / 'outputs'}",
        f"hydra.sweep.dir={folder / 'sweep'}",
        "bpe.vocab_size=400",
        "superbpe.transition=0.8",
        "budget.train_bytes=40960",
        "budget.tolerance=0.1",
        "lm.model.n_layers=1",
        "lm.model.hidden_size=32",
        "lm.model.head_dim=16",
        "lm.train.bytes_per_step=4096",
        "lm.train.context_bytes=512",
        "runner.threads=1",
    ]
