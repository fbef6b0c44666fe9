"""A run on named, weighted sources."""

import shutil

from experiments.results import Counts, TrainedTokenizer
from experiments.store.artifacts import Store
from tests.experiments.conftest import write_corpus
from tests.experiments.outputs import run_until as run


def trained(folder, *settings):
    """Train both tokenizers; return the counts, the hashes of the tokenizers, and the count file."""
    overrides = ["corpus=files", "corpus.heldout_fraction=0.1", "bpe.vocab_size=400", "runner.threads=1"]
    folders = [f"artifacts={folder / 'artifacts'}", f"hydra.run.dir={folder / 'run'}"]
    assert run("train_superbpe", [*overrides, *folders, *settings]) == 0
    store = Store(folder / "artifacts")
    (counts,) = store.open_all(store.names("count-"), Counts)
    tokenizers = store.open_all([*store.names("bpe-"), *store.names("superbpe-")], TrainedTokenizer)
    hashes = {artifact.name.partition("-")[0]: artifact.contents.sha256 for artifact in tokenizers}
    return counts.contents, hashes, (counts.path / "counts.parquet").read_bytes()


def test_a_weight_counts_documents_several_times(tmp_path, capsys):
    for name in ("web", "code", "copies"):
        (tmp_path / name).mkdir()
    text = write_corpus(tmp_path / "web" / "a.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "web" / "a.jsonl").write_text("".join(text[:150]))
    (tmp_path / "code" / "b.jsonl").write_text("".join(text[150:]))
    for i in range(3):
        shutil.copy(tmp_path / "web" / "a.jsonl", tmp_path / "copies" / f"{i}.jsonl")
    shutil.copy(tmp_path / "code" / "b.jsonl", tmp_path / "copies")
    sources = f"corpus.sources={{web: '{tmp_path}/web:3', code: '{tmp_path}/code'}}"
    counts, hashes, file = trained(tmp_path / "weighted", sources)
    printed = capsys.readouterr().out
    copied, expected, same = trained(tmp_path / "repeated", f"corpus.paths=[{tmp_path}/copies]")
    assert (hashes, file) == (expected, same)
    assert "web" in printed
    assert "×3" in printed
    web, code = counts.sources["web"], counts.sources["code"]
    assert (web["weight"], code["weight"]) == (3, 1)
    for name in ("n_documents", "n_bytes", "n_pretokens"):
        assert getattr(counts, name) == web[name] + code[name]
        assert getattr(copied, name) == 3 * web[name] + code[name]
