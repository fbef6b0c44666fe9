"""Samples of `tests.campaigns`, and all that changed files have found."""

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st

from experiments.cli.main import NAMES
from tests import campaigns, changed_files
from tests.properties import examples

# Each was once an error other than a UserError, a message as long as the file, or another tokenizer.
FINDINGS = [
    ("hf", 28),
    ("hf", 788),
    ("hf", 1387),
    ("hf", 47244640434),
    ("hf", 133143986852),  # HF applies a second ByteLevel to the byte alphabet
    ("parquet", 703),
    ("parquet", 759),
    ("parquet", 1030),
    ("tiktoken", 12884904610),  # a change that contained itself
    ("shards", 8589935967),  # quoted a format of thousands of letters
    ("parquet", 90194314156),  # ended the process
]


@pytest.mark.parametrize(("kind", "number"), FINDINGS)
def test_what_was_found_stays_fixed(kind, number, tmp_path):
    changed_files.case(random.Random(f"{kind} {number}"), kind, tmp_path)


@examples(70, 200, kind=st.sampled_from(list(changed_files.KINDS)), number=st.integers(0, 2**40))
def test_changed_files_are_rejected_or_read_as_they_are(kind, number):
    with tempfile.TemporaryDirectory() as folder:
        changed_files.case(random.Random(f"{kind} {number}"), kind, Path(folder))


@pytest.mark.filterwarnings("ignore")
def test_hostile_corpora_are_read_or_rejected():
    for number in range(40):
        campaigns.corpora(None, random.Random(f"corpora {number}"))


def test_every_command_is_killed():
    assert campaigns.KILLED.keys() == set(NAMES)
    assert all(line.split()[0] == name for name, lines in campaigns.KILLED.items() for line in lines)


@pytest.mark.slow
def test_a_killed_experiment_is_finished_by_the_same_command(tmp_path):
    campaigns.kills(campaigns.Experiment(tmp_path), random.Random("kills 1"))
