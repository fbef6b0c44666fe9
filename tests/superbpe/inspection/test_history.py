import numpy as np
import pytest

from superbpe import Rules, train_superbpe
from superbpe.inspection import history
from tests import texts
from tokenizer import Batch, UserError, count_pretokens, train_bpe

RULES = {"uw-2025": "uw-2025", "kept": Rules(phase1_fence="kept", max_words=3)}
RULES |= {"documents": Rules(fence="punctuation-fence")}


@pytest.fixture(scope="module")
def documents():
    return [*(text[:1500] for text in texts.english()[0][:4]), "aaaaaaa aaaa " * 9, "", "    x\n\n" * 4, "é中é中中中"]


@pytest.fixture(scope="module", params=RULES)
def trained(request, documents):
    """(phase 1, both phases, counts of each)."""
    batch = Batch.from_texts(documents)
    counts = []
    phase1 = train_bpe(count_pretokens([batch], "gpt2"), 256 + 130 + 1, on_counts=counts.append)
    options = {"vocab_size": 256 + 200 + 1, "rules": RULES[request.param], "transition_merges": 120}
    whole = train_superbpe(phase1, lambda: [batch], **options, on_counts=counts.append)
    return phase1, whole, counts


@pytest.mark.slow
def test_tokens_by_size_are_those_of_the_tokenizer_cut_to_each_size(trained, documents):
    phase1, whole, _ = trained
    plain = history.measure(phase1, [Batch.from_texts(documents[:3]), Batch.from_texts(documents[3:])])
    assert plain.tokens()[-1] == len(phase1.encode_batch(documents)[0])
    assert np.array_equal(plain.applied, plain.lifted)
    found = history.measure(whole, [Batch.from_texts(documents)])
    sizes = list(range(257, whole.vocab_size + 1))
    assert found.first_size == 257
    assert found.transition == 257 + 120
    assert found.tokens().tolist() == [len(whole.cut(size).encode_batch(documents)[0]) for size in sizes]
    for points in (2, 5, 50):
        curve = dict(found.curve(points))
        assert list(curve) == sorted(curve)
        assert {257, found.transition, whole.vocab_size} <= curve.keys() <= set(sizes)
        assert curve[whole.vocab_size] == found.bytes_per_token()[-1]


def test_applications_equal_training_counts_except_in_runs(trained, documents):
    """This holds on the text of training, cut only by documents and fences."""
    phase1, whole, (counts1, counts2) = trained
    if whole.fence.name == "uw-2025-fence":  # trained on lines, which encoding does not cut
        documents = [line for text in documents for line in text.splitlines(keepends=True)]
    found = history.measure(whole, [Batch.from_texts(documents)])
    counts = np.concatenate([counts1[:120], counts2])
    equal = np.array([left == right for left, right in whole.merges])
    lines = whole.fence.name == "uw-2025-fence"
    inside = np.arange(200) >= 120 if lines else np.ones(200, dtype=bool)  # phase 1 was counted in whole documents
    assert np.array_equal(found.applied[inside & ~equal], counts[inside & ~equal])
    assert (found.applied[inside & equal] <= counts[inside & equal]).all()
    assert lines or (found.applied[equal] < counts[equal]).any()
    assert len(counts1) == len(phase1.merges)


def test_log_of_both_phases(trained, documents, tmp_path):
    _, whole, counts = trained
    found = history.measure(whole, [Batch.from_texts(documents)])
    log = history.merge_log(whole, counts=counts, history=found).to_pylist()
    assert [row["rank"] for row in log] == list(range(200))
    assert [row["phase"] for row in log] == [1] * 120 + [2] * 80
    assert [row["vocab_size"] for row in log] == list(range(258, whole.vocab_size + 1))
    assert [row["count"] for row in log] == [*counts[0][:120].tolist(), *counts[1].tolist()]
    ids = whole.merge_ids[:, 2]
    whole_characters = [(whole.vocab[i], row) for i, row in zip(ids, log, strict=True) if "\\x" not in row["text"]]
    assert all(row["text"].encode() == token for token, row in whole_characters)
    assert [row["superword"] for row in log] == np.isin(ids, whole.superword_ids()).tolist()
    assert all(row["words"] <= 4 for row in log if row["phase"] == 2) or whole.fence.name == "punctuation-fence"
    assert log[-1]["tokens"] == len(whole.encode_batch(documents)[0])
    assert all(len(row["left"]) + len(row["right"]) == len(row["text"]) for row in log if row["text"].isascii())
    assert "count" not in history.merge_log(whole).column_names
    phase2_only = history.merge_log(whole, counts=[[], counts[1]])["count"].to_pylist()
    assert phase2_only == [None] * 120 + counts[1].tolist()


def test_counts_of_another_tokenizer_are_rejected(trained, documents):
    phase1, whole, counts = trained
    with pytest.raises(UserError, match="counts of 80 merges for a phase of 120"):
        history.merge_log(whole, counts=[counts[1], counts[1]])
    with pytest.raises(UserError, match="another training"):
        history.merge_log(whole, counts=[counts[0], counts[0]])
    with pytest.raises(UserError, match="measure it again"):
        history.merge_log(whole, history=history.measure(phase1, [Batch.from_texts(documents)]))
