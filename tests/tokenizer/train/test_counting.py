from collections import Counter
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import texts
from tests.flipping import flips
from tokenizer import (
    Batch,
    Corpus,
    CorpusConfig,
    PretokenCounts,
    UserError,
    count_pretokens,
    mix_counts,
    patterns,
    reference,
)
from tokenizer.train.counting import Counters

SPECIALS = ["<|endoftext|>", "<|end", "\n\n", "éé"]


@pytest.fixture(scope="module")
def documents(disputed):
    """Real and generated text with special strings in it, without what newer Unicode classes otherwise."""
    found = ["", *texts.sample(25_000), "a<|endoftext|> b<|endoftext|><|end|>", "é" * 9, "last line\n"]
    return ["".join(c for c in text if c not in disputed) for text in found]


def counted(documents, pattern, **options):
    return count_pretokens([Batch.from_texts(documents)], pattern, **options)


def assert_same(one, other):
    for name in ("data", "offsets", "counts"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()


@pytest.mark.parametrize("specials", [[], SPECIALS])
@pytest.mark.parametrize("unit", ["document", "line"])
@pytest.mark.parametrize("pattern", ["superbpe", "none", r"\w+"])
def test_counts_equal_the_reference(documents, pattern, unit, specials):
    ours = counted(documents, pattern, unit=unit, special_tokens=specials)
    regex = patterns.resolve(pattern).regex or None
    expected = reference.count_pretokens(documents, regex, unit=unit, special_tokens=specials)
    pairs = list(ours.items())
    assert dict(pairs) == expected
    assert pairs == sorted(expected.items())
    assert ours.n_total == expected.total()
    assert ours.n_distinct == len(expected)
    assert ours.n_documents == len(documents)
    assert ours.n_bytes == sum(len(text.encode()) for text in documents)


@given(
    documents=st.lists(st.text(alphabet="ab \n'é<", max_size=20), min_size=1, max_size=5).filter(any),
    pattern=st.sampled_from(["gpt2", "o200k", "none", "a|b+", "punctuation-fence"]),
    unit=st.sampled_from(["document", "line"]),
    specials=st.sampled_from([[], ["<<"], ["a<b", "a<", "<a", "aa"], ["éé"], [" "]]),
)
@settings(max_examples=50, deadline=None, derandomize=True)
def test_counts_of_dense_text_equal_the_reference(documents, pattern, unit, specials):
    ours = counted(documents, pattern, unit=unit, special_tokens=specials)
    regex = patterns.resolve(pattern).regex or None
    assert dict(ours.items()) == reference.count_pretokens(documents, regex, unit=unit, special_tokens=specials)


def test_pretokens_of_every_length_are_counted():
    # Table slots, short and long keys: lengths around every power of two.
    lengths = sorted({n + d for n in (1, 2, 4, 8, 16, 32, 64, 128, 4096, 70_000) for d in (-1, 0, 1)} - {0})
    documents = ["x" * length for length in lengths] * 2 + ["y" * length for length in lengths]
    expected = Counter(document.encode() for document in documents)
    assert dict(counted(documents, "none", threads=3).items()) == expected


def test_saved_counts_load_unchanged(documents, tmp_path):
    counts = counted(documents, r"[a-z]+", unit="line", special_tokens=["éa日"])
    counts.save(str(tmp_path / "counts.parquet"))
    loaded = PretokenCounts.load(str(tmp_path / "counts.parquet"))
    assert_same(loaded, counts)
    for name in ("pattern", "unit", "special_tokens", "n_bytes", "n_documents", "n_distinct", "n_total"):
        assert getattr(loaded, name) == getattr(counts, name)
    table = pq.read_table(tmp_path / "counts.parquet")
    assert table.column_names == ["bytes", "count"]
    assert table["bytes"].to_pylist() == [key for key, _ in counts.items()]


def test_files_that_hold_no_counts_are_rejected(tmp_path):
    with pytest.raises(UserError, match=r"no pretoken counts at .*nothing\.parquet"):
        PretokenCounts.load(tmp_path / "nothing.parquet")
    path = _saved(tmp_path)
    pq.write_table(pq.read_table(path).replace_schema_metadata({}), tmp_path / "foreign.parquet")
    with pytest.raises(UserError, match=r"foreign\.parquet .* version 2"):
        PretokenCounts.load(tmp_path / "foreign.parquet")
    for content in (b"", b"PAR1", b"not a Parquet file at all", path.read_bytes()[:-20]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"counts\.parquet"):
            PretokenCounts.load(path)


def test_no_flipped_bit_is_used(tmp_path):
    path = _saved(tmp_path)
    expected = list(PretokenCounts.load(path).items())
    rejected = 0
    for bit in flips(path, 120):
        try:
            assert list(PretokenCounts.load(path).items()) == expected, f"bit {bit}"
        except UserError:
            rejected += 1
    assert rejected > 40  # the others are in parts of Parquet's metadata that decide nothing


def _saved(folder):
    counted(["some text"], "gpt2").save(folder / "counts.parquet")
    return folder / "counts.parquet"


@pytest.mark.parametrize(
    ("documents", "pattern", "options", "message"),
    [
        ([], "gpt2", {}, "the corpus is empty"),
        (["", ""], "gpt2", {}, "the corpus is empty"),
        (["a"], "gpt2", {"unit": "page"}, "unit"),
        (["a"], "lama3", {}, "did you mean 'llama3'"),
        (["a"], "gpt2", {"threads": 0}, "threads=0"),
        (["a"], "gpt2", {"memory_bytes": 0}, "memory_bytes=0"),
        (["a"], "gpt2", {"spill_folder": "no/nowhere"}, r"spill_folder=.*nowhere"),
    ],
)
def test_uncountable_input_is_an_error(documents, pattern, options, message):
    with pytest.raises(UserError, match=message):
        counted(documents, pattern, **options)


# ------------------------------------------------------------------------------------------ memory and disk


@pytest.mark.parametrize(("threads", "memory"), [(1, 1), (2, 1), (3, 600_000), (2, 10**9)])
def test_memory_changes_no_byte(documents, tmp_path, threads, memory):
    whole = counted(documents, "gpt2", threads=1, memory_bytes=None)
    batches = [Batch.from_texts(documents[i : i + 9]) for i in range(0, len(documents), 9)]
    parts = count_pretokens(batches, "gpt2", threads=threads, memory_bytes=memory, spill_folder=tmp_path)
    assert_same(parts, whole)
    assert list(tmp_path.iterdir()) == []


def test_more_runs_than_one_merge_takes(tmp_path):
    documents, seen = [f"w{i} w{i % 7} the" for i in range(200)], []
    batches = [Batch.from_texts([text]) for text in documents]
    options = {"spill_folder": tmp_path, "progress": lambda *report: seen.append(report)}
    counts = count_pretokens(batches, "gpt2", threads=2, memory_bytes=1, **options)
    assert dict(counts.items()) == reference.count_pretokens(documents, patterns.resolve("gpt2").regex)
    assert seen[-1] == ("bytes counted", counts.n_bytes, None)


def test_every_thread_learns_why_counting_failed():
    counters = Counters([(None, Mock(add=Mock(side_effect=[OSError("the disk is full"), None])))])
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is full"):
            counters.add(Batch.from_texts(["a"]))


def test_an_interrupted_count_leaves_no_files(tmp_path):
    def batches():
        for i in range(100):
            yield Batch.from_texts([f"word{i} " * 100])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count_pretokens(batches(), "gpt2", memory_bytes=1, spill_folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------- files and mixtures


def test_one_long_text_file_is_counted_in_parts(documents, tmp_path):
    text = "\n".join(documents).replace("\r", " ") * 40
    (tmp_path / "long.txt").write_text(text, encoding="utf-8", newline="")
    (tmp_path / "short.txt").write_text("A second file.", encoding="utf-8")
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path)]))
    for pattern in ("gpt2", "llama3", "o200k", "none"):
        counts = count_pretokens(corpus, pattern, threads=2)
        assert counts.n_documents == 2
        whole = counted([text, "A second file."], pattern, threads=1)
        assert list(counts.items()) == list(whole.items())
    (tmp_path / "long.txt").write_text("a b " * 300_000)  # special strings with word ends in them are not cut
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path / "long.txt")]))
    assert dict(count_pretokens(corpus, "gpt2", special_tokens=["a b"], threads=2).items()) == {b" ": 300_000}


def test_a_mixture_adds_up(documents):
    half = len(documents) // 2
    parts = [counted(documents[:half], "gpt2"), counted(documents[half:], "gpt2")]
    assert list(mix_counts([(parts[0], 1), (parts[1], 1)]).items()) == list(counted(documents, "gpt2").items())
    mixed = mix_counts([(parts[0], 3), (parts[1], 2)])
    expected = Counter()
    for part, weight in zip(parts, (3, 2), strict=True):
        expected.update({pretoken: count * weight for pretoken, count in part.items()})
    assert list(mixed.items()) == sorted(expected.items())
    assert mixed.n_bytes == 3 * parts[0].n_bytes + 2 * parts[1].n_bytes
    assert mixed.n_documents == 3 * parts[0].n_documents + 2 * parts[1].n_documents


def test_impossible_mixtures_are_errors():
    counts = counted(["some text"], "gpt2")
    for parts in ([], [counts], counts, [(counts,)], [("counts", 1)], None):
        with pytest.raises(UserError, match=r"no counts to add up: .*write mix_counts\(\[\(counts, 1\)"):
            mix_counts(parts)
    for weight in (0, -1, 0.5, True):
        with pytest.raises(UserError, match="not a positive integer"):
            mix_counts([(counts, weight)])
    with pytest.raises(UserError, match="differ in their pattern"):
        mix_counts([(counts, 1), (counted(["some text"], "llama3"), 1)])
    with pytest.raises(UserError, match="differ in their unit"):
        mix_counts([(counts, 1), (counted(["some text"], "gpt2", unit="line"), 1)])
    with pytest.raises(UserError, match="64 bits"):
        mix_counts([(counts, 2**63), (counts, 2**63)])
