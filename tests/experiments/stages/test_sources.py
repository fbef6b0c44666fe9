"""A run on named, weighted sources."""

import shutil

from tests.experiments.conftest import run_stages, write_corpus
from tests.experiments.outputs import manifest, manifests
from tokenizer.train.counting import PretokenCounts


def trained(tiny, folder, setting):
    """Train both tokenizers; return the counts, the tokenizers, and the loaded counts."""
    words = [word for word in tiny if not word.startswith("corpus.paths")]
    run_stages("train_superbpe", [*words, f"artifacts={folder / 'artifacts'}", setting], folder)
    file = next((folder / "artifacts").glob("count-*/counts.parquet"))
    tokenizers = {one["contents"]["sha256"] for kind in ("bpe", "superbpe") for one in manifests(folder, kind)}
    return manifest(folder, "count")["contents"], tokenizers, PretokenCounts.load(file)


def test_a_weight_counts_documents_several_times(tiny, tmp_path, capsys):
    for name in ("web", "code", "copies"):
        (tmp_path / name).mkdir()
    text = write_corpus(tmp_path / "all.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "web" / "a.jsonl").write_text("".join(text[:150]))
    (tmp_path / "code" / "b.jsonl").write_text("".join(text[150:]))
    for i in range(3):
        shutil.copy(tmp_path / "web" / "a.jsonl", tmp_path / "copies" / f"{i}.jsonl")
    shutil.copy(tmp_path / "code" / "b.jsonl", tmp_path / "copies")
    sources = f"corpus.sources={{web: '{tmp_path}/web:3', code: '{tmp_path}/code'}}"
    counts, hashes, file = trained(tiny, tmp_path / "weighted", sources)
    printed = capsys.readouterr().out
    copied, expected, same = trained(tiny, tmp_path / "repeated", f"corpus.paths=[{tmp_path}/copies]")
    assert (hashes, file) == (expected, same)
    assert "web" in printed
    assert "×3" in printed
    web, code = counts["sources"]["web"], counts["sources"]["code"]
    assert (web["weight"], code["weight"]) == (3, 1)
    for name in ("n_documents", "n_bytes", "n_pretokens"):
        assert counts[name] == web[name] + code[name]
        assert copied[name] == 3 * web[name] + code[name]
