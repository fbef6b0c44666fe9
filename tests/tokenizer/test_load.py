"""Many threads, calls and loads on one tokenizer without growth of memory.

`LOAD=30 pytest -m slow tests/tokenizer/test_load.py` makes thirty times as many calls and loads.
"""

import os
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from tests import texts
from tokenizer import Batch, Tokenizer, count_pretokens, train_bpe

resource = pytest.importorskip("resource")
linux = pytest.mark.skipif(sys.platform != "linux", reason="memory as Linux reports it")
MOST_MB = 20
TIMES = int(os.environ.get("LOAD", "1"))
WARM_UP = 20_000
"""Calls before memory is measured: the caches of the encoder are full then."""


@pytest.fixture(scope="module")
def ours():
    return train_bpe(count_pretokens([Batch.from_texts(texts.sample(100_000))], "gpt2"), 1000)


def memory_mb():
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


@linux
def test_many_threads_share_a_tokenizer(ours):
    documents = [*texts.various(), texts.code()[:3000]]
    expected = [ours.encode(text) for text in documents]
    failures: list[BaseException] = []

    def work(rounds):
        try:
            for _ in range(rounds):
                assert [ours.encode(text) for text in documents] == expected
                ids, offsets = ours.encode_batch(documents, threads=2)
                assert [ids[start:end].tolist() for start, end in pairwise(offsets.tolist())] == expected
                assert ours.decode_batch(ids, offsets) == documents
        except BaseException as error:  # reported by the main thread
            failures.append(error)

    for rounds in (2, 3 * TIMES):
        before = memory_mb()
        workers = [threading.Thread(target=work, args=(rounds,)) for _ in range(32)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not failures
    assert memory_mb() - before < MOST_MB


@pytest.mark.slow
@linux
def test_memory_does_not_grow_with_calls(ours):
    for i in range(WARM_UP + 100_000 * TIMES):
        if i == WARM_UP:
            before = memory_mb()
        text = f"the cat {i} sat"
        assert ours.decode(ours.encode(text)) == text
    assert memory_mb() - before < MOST_MB


@pytest.mark.slow
@linux
def test_memory_does_not_grow_with_loads(ours, tmp_path):
    expected = ours.encode("the cat sat on the mat")
    ours.save(tmp_path)
    for n in (20, 80 * TIMES):
        before = memory_mb()
        for _ in range(n):
            assert Tokenizer.load(tmp_path).encode("the cat sat on the mat") == expected
    assert memory_mb() - before < MOST_MB
