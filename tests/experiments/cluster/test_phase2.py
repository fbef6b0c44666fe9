"""Phase 2 over the parts of a corpus equals phase 2 in one process."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from experiments.cluster import parts as cluster_parts
from experiments.cluster.parts import ClusterSources
from superbpe import Rules, Source, search, train_superbpe
from tests.experiments.cluster.fake_ray import FakeRay, cluster_of
from tests.properties import examples, quick_first
from tests.superbpe.oracle import CORPORA, RULES, SMALL_RULES
from tokenizer import UserError, count_pretokens, train_bpe
from tokenizer.formats.folder import dumps

pytestmark = pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")


def train(text, sources, rules, **options):
    options = {"vocab_size": 600, "transition": "auto" if rules.interleave else 450, "threads": 1, **options}
    return train_superbpe(text[1], sources, rules=rules, **options)


def split(sources, n):
    """Distribute the documents of sources over N parts; with many parts, some are empty."""
    return [[replace(source, batches=source.batches[i::n]) for source in sources] for i in range(n)]


def in_parts(sources, n, folder, **faults):
    return ClusterSources(cluster_of(FakeRay(**faults)), split(sources, n), "text", folder)


def check(text, sources, rules, folder, n_parts, **options):
    """Compare the tokenizers and their statistics; return those."""
    whole = train(text, sources, rules, **options)
    found = train(text, in_parts(sources, n_parts, folder, fragments_00000=["lost"]), rules, **options)
    assert found.sha256 == whole.sha256
    for tokenizer in (found, whole):  # `experiments.stages.phase2` writes the record of the text
        del tokenizer.provenance["read"]
    assert dumps(found, {}) == dumps(whole, {})  # the file of a saved tokenizer
    return found.provenance["phase2"]


QUICK = [("uw-2025", 1), *((name, 3) for name in ("uw-2025", "boundless", "spans", "truncated"))]
SLOW = [(name, 3) for name in ("uw-paper", "runs", "none", "sentence", "phrases")]


@pytest.mark.parametrize(("name", "n_parts"), [*QUICK, *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)])
def test_every_preset_in_parts_equals_the_whole(name, n_parts, text, tmp_path):
    check(text, [Source(text[0])], RULES[name], tmp_path, n_parts)


@pytest.mark.parametrize("memory_bytes", quick_first([100_000, None]))
def test_stages_in_parts_equal_those_of_the_whole(memory_bytes, text, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_parts, "FAN_IN", 2)
    options = {"memory_bytes": memory_bytes, "threshold": 2 if memory_bytes else 1000}
    assert check(text, [Source(text[0])], RULES["uw-2025"], tmp_path, 4, **options)["stages"] > 1
    if memory_bytes is None:  # a limit that cannot be kept is exceeded in parts too
        with pytest.warns(UserWarning, match="phase 2 needs more memory"):
            check(text, [Source(text[0])], RULES["words"], tmp_path / "words", 2, memory_bytes=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uw-2025", "none", "boundless"])
def test_a_sample_over_its_limit_does_not_depend_on_the_parts(name, text, tmp_path, monkeypatch):
    monkeypatch.setattr(search, "SAMPLE_EVERY", 1)
    found = check(text, [Source(text[0])], RULES[name], tmp_path / "a", 3)
    monkeypatch.setattr(search, "SAMPLE_CELLS", 500)
    limited = check(text, [Source(text[0])], RULES[name], tmp_path / "b", 3)
    assert limited["threshold"] != found["threshold"]
    assert limited["last_count"] == found["last_count"]


@pytest.mark.slow
def test_weights_and_samples_in_parts(text, tmp_path):
    sources = [Source(text[0][::2], weight=3, name="even"), Source(text[0][1::2], name="odd")]
    rules = replace(RULES["truncated"], sample=0.4, sample_salt="x")
    assert check(text, sources, rules, tmp_path, 3)["corpus_documents"] < 2 * len(text[0])


@examples(
    quick=2,
    full=6,
    documents=CORPORA,
    rules=SMALL_RULES,
    n_parts=st.sampled_from([1, 2, 3, 9]),
    threshold=st.sampled_from([None, 1, 2, 3, 7]),
    memory_bytes=st.sampled_from([None, None, 1000, 3000]),
)
@pytest.mark.filterwarnings("ignore:phase 2 needs more memory")
def test_random_texts_in_parts_equal_the_whole(documents, rules, n_parts, threshold, memory_bytes):
    documents = [text for text in documents if text]
    phase1 = train_bpe(count_pretokens(documents, "gpt2", unit=rules.unit), 300)
    transition = "auto" if rules.interleave else min(260, 256 + phase1.n_phase1_merges)
    options = {"vocab_size": 290, "transition": transition, "threshold": threshold, "memory_bytes": memory_bytes}
    with tempfile.TemporaryDirectory() as folder:
        check((documents, phase1), [Source(documents, weight=2)], rules, Path(folder), n_parts, **options)


def test_results_of_an_interrupted_run_are_used_again(text, tmp_path):
    failing = in_parts([Source(text[0])], 5, tmp_path, fragments_00003=["lost"] * 100)
    with pytest.raises(UserError, match="fragments-00003 was lost again and again"):
        train(text, failing, Rules())
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")}
    assert len(written) >= 5 + 1
    resumed = in_parts([Source(text[0])], 5, tmp_path)
    assert train(text, resumed, Rules()).sha256 == train(text, [Source(text[0])], Rules()).sha256
    assert {path: path.stat().st_mtime_ns for path in written} == written
    again = in_parts([Source(text[0])], 5, tmp_path)
    train(text, again, Rules())
    assert not again.cluster.ray.submitted
    other = replace(again, key="other")
    train(text, other, Rules())
    assert len(other.cluster.ray.submitted) > 10


def test_a_source_without_text_is_named(text, tmp_path):
    parts = [[Source(text[0]), Source([], name="code")], [Source([""], name="code")]]
    sources = ClusterSources(cluster_of(FakeRay()), parts, "text", tmp_path)
    with pytest.raises(UserError, match="code is empty"):
        train(text, sources, Rules())
