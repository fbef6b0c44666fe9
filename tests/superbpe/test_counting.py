"""Phase 2 over a corpus in parts equals phase 2 in one process."""

import multiprocessing
import random
import shutil
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import strategies as st

from superbpe import Rules, Source, counting, passes, train_superbpe
from superbpe.counting import Parts, count_part
from tests.properties import examples
from tests.superbpe.oracle import CORPORA, RULES, SMALL_RULES
from tokenizer import UserError, count_pretokens, train_bpe

pytestmark = pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")


def train(larger, text, rules, **options):
    transition = "auto" if rules.interleave else 800
    options = {"vocab_size": 1200, "transition": transition, "threads": 1, **options}
    return train_superbpe(larger[1], text, rules=rules, **options)


def split(sources, n):
    """Distribute the documents of sources over N parts; with many parts, some are empty."""
    return [[replace(source, batches=source.batches[i::n]) for source in sources] for i in range(n)]


def about(tokenizer):
    """Statistics of phase 2 except the time."""
    return {name: value for name, value in tokenizer.provenance["phase2"].items() if name != "seconds"}


def check(larger, sources, rules, folder, n_parts, *, map_=map, fan_in=16, **options):
    whole = train(larger, sources, rules, **options)
    parts = Parts(split(sources, n_parts), folder, map_, fan_in=fan_in)
    in_parts = train(larger, parts, rules, **options)
    assert in_parts.sha256 == whole.sha256
    assert about(in_parts) == about(whole)
    assert list(folder.iterdir()) == []
    return about(whole)


def shuffled(function, arguments):
    """Results in another order; some arguments are counted twice, as after a lost worker."""
    arguments = list(arguments)
    random.Random(len(arguments)).shuffle(arguments)
    for i, argument in enumerate(arguments):
        if i % 2:
            function(argument)
        yield function(argument)


@pytest.mark.parametrize("n_parts", [1, 3])
@pytest.mark.parametrize("name", ["uw-2025", "uw-paper", "runs", "boundless", "spans", "none", "sentence", "truncated"])
def test_every_preset_in_parts_equals_the_whole(name, n_parts, larger, tmp_path):
    check(larger, [Source(larger[0])], RULES[name], tmp_path, n_parts, map_=shuffled)


@pytest.mark.parametrize("memory_bytes", [None, 300_000, 100_000])
def test_stages_in_parts_equal_those_of_the_whole(memory_bytes, larger, tmp_path):
    options = {"memory_bytes": memory_bytes, "threshold": 2 if memory_bytes else 1000}
    stages = check(larger, [Source(larger[0])], RULES["uw-2025"], tmp_path, 7, fan_in=2, **options)["stages"]
    assert stages > 1


def test_a_memory_limit_that_cannot_be_kept_is_exceeded_in_parts_too(larger, tmp_path):
    with pytest.warns(UserWarning, match="phase 2 needs more memory"):
        check(larger, [Source(larger[0])], RULES["words"], tmp_path, 2, memory_bytes=1)


@pytest.mark.parametrize("name", ["uw-2025", "none", "boundless"])
def test_a_sample_over_its_limit_does_not_depend_on_the_parts(name, larger, tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "SAMPLE_EVERY", 1)
    found = check(larger, [Source(larger[0])], RULES[name], tmp_path, 3, map_=shuffled)
    monkeypatch.setattr(passes, "SAMPLE_CELLS", 500)
    limited = check(larger, [Source(larger[0])], RULES[name], tmp_path, 3, map_=shuffled)
    assert limited["threshold"] != found["threshold"]
    assert limited["last_count"] == found["last_count"]


@pytest.mark.parametrize("sample", [{"sample": 0.5}, {"sample_bytes": 60_000, "sample_salt": "x"}], ids=str)
def test_weights_and_samples_in_parts(sample, larger, tmp_path):
    documents = larger[0]
    sources = [Source(documents[::2], weight=3, name="even"), Source(documents[1::2], name="odd")]
    found = check(larger, sources, replace(RULES["truncated"], **sample), tmp_path, 3)
    assert found["corpus_documents"] < 2 * len(documents)


@examples(
    quick=25,
    full=60,
    documents=CORPORA,
    rules=SMALL_RULES,
    n_parts=st.sampled_from([1, 2, 3, 7]),
    threshold=st.sampled_from([None, 1, 2, 3, 7]),
    memory_bytes=st.sampled_from([None, None, 1000, 3000]),
    fan_in=st.sampled_from([2, 16]),
)
@pytest.mark.filterwarnings("ignore:phase 2 needs more memory")
def test_random_texts_in_parts_equal_the_whole(documents, rules, n_parts, threshold, memory_bytes, fan_in):
    documents = [text for text in documents if text]
    phase1 = train_bpe(count_pretokens(documents, "gpt2", unit=rules.unit), 300)
    transition = "auto" if rules.interleave else min(260, 256 + phase1.n_phase1_merges)
    options = {"vocab_size": 290, "transition": transition}
    options |= {"threshold": threshold, "memory_bytes": memory_bytes}
    with tempfile.TemporaryDirectory() as folder:
        sources = [Source(documents, weight=2)]
        check((documents, phase1), sources, rules, Path(folder), n_parts, fan_in=fan_in, **options)


def test_real_processes_count_the_same(larger, tmp_path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        map_ = partial(pool.imap_unordered, chunksize=1)
        check(larger, [Source(larger[0])], RULES["uw-2025"], tmp_path, 3, map_=map_, fan_in=2)
        check(larger, [Source(larger[0])], RULES["boundless"], tmp_path, 3, map_=map_, memory_bytes=100_000)


def test_results_of_an_interrupted_run_are_used_again(larger, tmp_path):
    def run(**parts):
        counted = []

        def map_(function, arguments):
            for argument in arguments:
                if function.func is count_part and len(counted) == failing:
                    raise ZeroDivisionError
                before = set(tmp_path.iterdir())
                yield function(argument)
                counted.extend(set(tmp_path.iterdir()) - before)

        parts = {"key": "a", "fan_in": 3, **parts}
        try:
            return counted, train(larger, Parts(split([Source(larger[0])], 5), tmp_path, map_, **parts), Rules())
        except ZeroDivisionError:
            return counted, None

    failing = 7
    first, _ = run()
    assert len(first) == 7
    failing = None
    second, resumed = run()
    assert not set(first) & set(second)
    assert resumed.sha256 == train(larger, [Source(larger[0])], Rules()).sha256
    assert run()[0] == []
    assert len(run(key="b")[0]) == len(first + second)


@pytest.mark.parametrize("at", [None, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1])
def test_damaged_results_are_named(at, larger, tmp_path):
    def damaging(function, arguments):
        for result in map(function, arguments):
            path = Path(result.path)
            content = bytearray(path.read_bytes())
            if at is not None:
                content[int(at * (len(content) - 1))] ^= 16
            path.write_bytes(content if at is not None else b"")
            yield result

    parts = Parts(split([Source(larger[0][:5])], 2), tmp_path, damaging)
    with pytest.raises(UserError, match=r"seams-\S* (is damaged; delete it|belongs to another pass)"):
        train(larger, parts, Rules())


def test_mistakes_with_parts_are_named(larger, tmp_path):
    with pytest.raises(UserError, match="no sources given"):
        Parts([[]], tmp_path)
    with pytest.raises(UserError, match="web is an iterator, which can be read only once"):
        Parts([[Source(iter(["a"]), name="web")]], tmp_path)
    with pytest.raises(UserError, match="fan_in=1 must be at least 2"):
        Parts([[Source(["a"])]], tmp_path, fan_in=1)
    parts = [[Source(larger[0]), Source([], name="code")], [Source([""], name="code")]]
    with pytest.raises(UserError, match="code is empty, and superwords cannot be trained without text"):
        train(larger, Parts(parts, tmp_path), Rules())


def disk_of(free):
    """`shutil.disk_usage` of a disk with this many free bytes."""
    return lambda _: SimpleNamespace(free=free)


def test_a_full_disk_is_foreseen_from_the_first_part(larger, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", disk_of(1000))
    parts = Parts(split([Source(larger[0])], 8), tmp_path)
    with pytest.raises(UserError, match=r"results of the other parts need about .* GB, but 1e-06 GB .*runner.folder"):
        train(larger, parts, Rules())
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_just_large_enough_is_not_rejected(larger, tmp_path, monkeypatch):
    used = []

    def counting(function, arguments):
        for argument in arguments:
            yield function(argument)
            used.append(sum(path.stat().st_size for path in tmp_path.iterdir()))

    parts = split([Source(larger[0])], 8)
    expected = train(larger, Parts(parts, tmp_path, counting), Rules())
    monkeypatch.setattr(shutil, "disk_usage", disk_of(max(used)))
    assert train(larger, Parts(parts, tmp_path), Rules()).sha256 == expected.sha256


def test_fragments_take_less_space_on_disk_than_in_memory(larger, tmp_path, monkeypatch):
    """Without a threshold, all of the text is in fragments, and random words do not compress."""
    sizes, write = [], counting._write

    def measured(trainer, path, task, n_bytes, *, full):
        part = write(trainer, path, task, n_bytes, full=full)
        if task.pass_.kind == "fragments":
            sizes.append((part.size, trainer.memory - task.trainer().memory))
        return part

    monkeypatch.setattr(counting, "_write", measured)
    random_words = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz" + " " * 6
    texts = ["".join(random_words.choices(letters, k=2000)) for _ in range(200)]
    train(larger, Parts(split([Source(texts)], 2), tmp_path), Rules(), threshold=1, vocab_size=810)
    assert len(sizes) == 2
    assert all(100_000 < size < memory for size, memory in sizes), sizes
