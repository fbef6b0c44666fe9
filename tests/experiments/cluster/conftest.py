import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.cluster import tasks
from tests import texts
from tests.experiments.cluster.fake_ray import FakeRay, cluster_of
from tokenizer import Batch, Corpus, CorpusConfig, count_pretokens, train_bpe


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(tasks, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(tasks, "BEAT_SECONDS", 0.02)


@pytest.fixture(scope="session")
def text():
    """40 kB of text, and a phase 1 of 600 tokens."""
    documents = texts.sample(40_000)
    return documents, train_bpe(count_pretokens([Batch.from_texts(documents)], "superbpe"), 600)


@pytest.fixture
def files(tmp_path):
    """A corpus of three formats with a damaged record."""
    folder = tmp_path / "text"
    folder.mkdir()
    texts = [f"document {i}: " + f"word{i % 7} naïve text\n" * (i % 23) for i in range(400)]
    for i in range(0, 400, 20):
        rows = "".join(json.dumps({"text": text}) + "\n" for text in texts[i : i + 20])
        (folder / f"a{i:03}.jsonl").write_text(rows + "damaged\n" * (i == 380))
        pq.write_table(pa.table({"text": texts[::-1][i : i + 20]}), folder / f"b{i:03}.parquet")
    (folder / "c.txt").write_text("a text of its own")
    return Corpus(CorpusConfig(paths=[str(folder)], on_error="skip", heldout_fraction=0.2))


@pytest.fixture
def cluster():
    made = cluster_of(FakeRay())
    made.part_bytes = 3000
    return made
