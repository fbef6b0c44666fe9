"""The benchmarks on a tiny corpus: their tables, what they measure, and how they compare merges."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from experiments.benchmarks import common, encode, encode_jobs, peers, scanning, shard, train_bpe
from experiments.benchmarks.peers_jobs import memory_mb
from superbpe import train_superbpe
from tokenizer import Corpus, CorpusConfig, count_pretokens
from tokenizer import train_bpe as train
from tokenizer.errors import UserError


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    documents = ["one\n two", "ends with a line feed\n", "\n\nlow lower lowest", "naïve 🙂"]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8")
    return path


@pytest.mark.slow
def test_our_trainer_alone_prints_a_table_per_pattern_and_size(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--peers", "none", "--rounds", "1", "--vocab-size", "300", "--cache", str(tmp_path)]
    sizes = ["--max-bytes", "50kB", "all"]
    assert train_bpe.main([str(corpus), *options, *sizes, "--patterns", "gpt2", "cl100k"]) == 0
    out = capsys.readouterr().out
    for words in ("gpt2 pattern, vocabulary 300", "by pattern", "cl100k", "by amount of text", "│ 0.05"):
        assert words in out
    assert not (tmp_path / "peers-venv").exists()


def test_a_mistake_is_one_line(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--peers", "none", "--cache", str(tmp_path)]
    assert train_bpe.main([str(corpus), *options, "--patterns", "gtp2", "cl100k"]) == 2
    assert "did you mean 'gpt2'" in capsys.readouterr().err
    assert train_bpe.main([str(tmp_path / "none.txt"), *options]) == 2
    assert "no such file" in capsys.readouterr().err


def test_hf_gives_the_same_merges(corpus: Path, tmp_path: Path) -> None:
    text = common.PlainText.of(common.corpus([str(corpus)], "text", None), tmp_path)
    options = train_bpe.parse([str(corpus), "--vocab-size", "400"])
    plain = {"paths": [str(text.documents)], "separator": common.SEPARATOR, "unit": train_bpe.LINES}
    ours = peers.run(train_bpe.ours("ours", options, **plain), tmp_path / "ours")
    regex = train_bpe.patterns.resolve("gpt2").regex
    arguments = {"paths": [str(text.lines)], "vocab_size": 400, "regex": regex}
    hf = peers.run(peers.Contender("HF", "tokenizers", arguments), tmp_path / "hf")
    assert peers.agreement(tmp_path / "ours", tmp_path / "hf") == (144, 144, 144)
    assert ours["bytes"] == text.n_bytes
    for facts in (ours, hf):
        assert 0 < facts["seconds"] < facts["wall"]
        assert 0 < facts["bare_mb"] < facts["bare_mb"] + facts["imports_mb"] <= facts["peak_mb"]


def test_the_file_of_merges_holds_those_of_the_library(corpus: Path, tmp_path: Path) -> None:
    options = train_bpe.parse([str(corpus), "--vocab-size", "300"])
    peers.run(train_bpe.ours("ours", options), tmp_path / "merges")
    counts = count_pretokens(Corpus(CorpusConfig(paths=[str(corpus)])).batches(), "gpt2")
    lines = [f"{left.hex()} {right.hex()}" for left, right in train(counts, 300, special_tokens=()).merges]
    assert (tmp_path / "merges").read_text().splitlines() == lines


def test_a_failing_peer_reports_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)the contender broken ended with exit code 1.*KeyError"):
        peers.run(peers.Contender("broken", "tokenizers", {}), tmp_path / "merges")


@pytest.mark.parametrize(
    ("expected", "found", "result"),
    [
        (["61 62", "63 64"], ["61 62", "63 64"], (2, 2, 2)),
        (["61 62", "63 64"], ["61 62", "63 64", "65 66"], (2, 2, 3)),
        (["61 62", "63 64", "65 66"], ["61 62", "63 65", "65 66"], (1, 3, 3)),
        (["61 6263", "6162 63"], ["6162 63"], (0, 2, 1)),
        (["61 6263", "63 64"], ["616263", "6364"], (2, 2, 2)),  # whole tokens against pairs
    ],
)
def test_agreement_counts_the_first_common_merges(
    tmp_path: Path, expected: list[str], found: list[str], result: tuple[int, int, int]
) -> None:
    for name, lines in (("expected", expected), ("found", found)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    assert peers.agreement(tmp_path / "expected", tmp_path / "found") == result


def test_plain_text_is_the_same_by_lines_and_by_documents(texts: Path, tmp_path: Path) -> None:
    corpus = common.corpus([str(texts)], "text", None)
    text = common.PlainText.of(corpus, tmp_path)
    documents = text.documents.read_text(encoding="utf-8").split(common.SEPARATOR)
    assert documents == ["one\n two\n", "ends with a line feed\n", "\n\nlow lower lowest\n", "naïve 🙂\n"]
    assert text.lines.read_text(encoding="utf-8") == "".join(documents)
    assert text.n_bytes == text.lines.stat().st_size
    written = text.lines.stat().st_mtime_ns
    assert common.PlainText.of(corpus, tmp_path) == text
    assert text.lines.stat().st_mtime_ns == written


def test_text_that_holds_the_separator_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"before{common.SEPARATOR}after")
    with pytest.raises(UserError, match="remove those documents"):
        common.PlainText.of(common.corpus([str(tmp_path / "a.txt")], "text", None), tmp_path)
    assert not list(tmp_path.glob("text-*"))


def test_scanning_agrees_with_hf_and_the_regex_module(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scanning.main([str(corpus), "--rounds", "1", "--slow-bytes", "20kB", "--patterns", "gpt2", "o200k"]) == 0
    out = capsys.readouterr().out
    for way in ("scanning", "counting, 1 thread", "counting, 2 threads", "HF pre-tokenizer", "regex module"):
        assert out.count(way) >= 2
    assert "ours:" not in out


def test_peak_memory_is_of_the_process_alone() -> None:
    big = bytearray(200_000_000)
    big[::4096] = b"x" * len(big[::4096])
    assert memory_mb("VmRSS") >= 200
    code = "from experiments.benchmarks.peers_jobs import memory_mb; print(memory_mb('VmHWM'))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 5 < float(child.stdout) < 100  # ru_maxrss would hand down its parent's


@pytest.mark.parametrize(("text", "n_bytes"), [("5000", 5000), ("1.5MB", 1_500_000), ("1e3", 1000), ("all", None)])
def test_sizes(text: str, n_bytes: int | None) -> None:
    assert common.size(text) == n_bytes


@pytest.mark.parametrize("text", ["many", "-1MB", "0", "5mb", "", "nan", "infMB"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="100MB, or all"):
        common.size(text)


def test_a_foreign_folder_is_not_cleared(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    with pytest.raises(UserError, match="not an environment that this benchmark made"):
        peers.environment(tmp_path)
    assert (tmp_path / "precious").read_text() == "data"


@pytest.mark.slow
def test_without_a_package_index_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for _ in range(2):  # and a folder left half made is made again
        with pytest.raises(UserError, match=r"No matching distribution found for gigabpe.*use --peers none"):
            peers.environment(tmp_path / "venv")


ENCODE = ["--rounds", "1", "--vocab-size", "400", "--slow-bytes", "20kB", "--length", "50"]


@pytest.mark.slow
def test_encoding_beside_hf_prints_a_table_for_each_tokenizer(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*ENCODE, "--peers", "none", "--cache", str(tmp_path), "--tokenizers", "superwords"]
    assert encode.main([str(corpus), *options]) == 0
    out = capsys.readouterr().out
    assert "superwords: 400 tokens, uw-2025-fence" in out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.count("│") > 12]
    assert [row[:2] for row in rows] == [
        [name, text] for text in ("long", "short") for name in ("ours", f"tokenizers {version('tokenizers')}")
    ] + [["ours", "file"]]
    for row in rows:
        assert row[-1].endswith(" equal")
        assert all(float(cell) >= 0 for cell in row[2:-1] if cell)
    (folder,) = tmp_path.glob("tokenizer-*")  # and it serves again, by its path
    options[-1] = str(folder)
    trained = folder.stat().st_mtime_ns
    assert encode.main([str(corpus), *options, "--cores", "1"]) == 0
    assert folder.stat().st_mtime_ns == trained


@pytest.mark.slow
def test_different_ids_and_rejections_are_shown(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = peers.run

    def run(contender: peers.Contender, out: Path) -> dict[str, Any]:
        """HF stands for the peers; one of them has a tokenizer with other merges, the other cannot load one."""
        if contender.job not in ("tiktoken", "gigatoken"):
            return found(contender, out)
        arguments = contender.arguments | {"json": str(tmp_path / f"{contender.job}.json")}
        return found(replace(contender, job="tokenizers", arguments=arguments), out)

    monkeypatch.setattr(peers, "run", run)
    monkeypatch.setattr(peers, "environment", lambda folder: Path(sys.executable))
    train(count_pretokens(common.corpus([str(corpus)], "text", None), "gpt2"), 300).save(tmp_path / "other")
    (tmp_path / "other" / "tokenizer.json").rename(tmp_path / "tiktoken.json")
    (tmp_path / "gigatoken.json").write_text("{}")
    options = [*ENCODE, "--peers", "tiktoken", "gigatoken", "--cache", str(tmp_path), "--tokenizers", "llama3"]
    assert encode.main([str(corpus), *options]) == 0
    out = capsys.readouterr().out
    assert out.count("wrong: ") == 2
    assert out.count("gigatoken 0.10.0 rejects it: ") == 1


@pytest.mark.slow
def test_from_files_to_shards_prints_a_table_and_compares_the_shards(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [str(corpus), "--rounds", "1", "--vocab-size", "300", "--cache", str(tmp_path), "--tokenizers", "gpt2"]
    assert shard.main([*options, "--cores", "1"]) == 0
    out = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.count("│") > 4]
    works = [f"{work}, {form}" for form in shard.FORMS for work in ("read", "shards")]
    assert [row[0] for row in rows] == ["in memory", *works, "shuffled, .jsonl"]
    for row in rows:
        assert all(float(cell) >= 0 for cell in row[1:] if cell)
        assert (row[2] != "") == row[0].startswith("sh")

    def run(_: Any, arguments: argparse.Namespace) -> dict[str, Any]:
        files = ["another"] if arguments.run.form == ".parquet" else ["one"]
        return {"seconds": 1.0, "cpu seconds": 1.0, "kernel": 0.5, "files": files}

    monkeypatch.setattr(common, "run", run)
    assert shard.main(options) == 1
    assert "shards of the same documents differ" in capsys.readouterr().out
    assert shard.main([*options[:-1], str(tmp_path / "none")]) == 2


def test_encoding_rejects_a_two_pass_tokenizer(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = common.corpus([str(corpus)], "text", None)
    phase1 = train(count_pretokens(text, "gpt2"), 300)
    train_superbpe(phase1, text.batches, vocab_size=300, transition=299, rules="runs").save(tmp_path / "runs")
    options = ["--peers", "none", "--cache", str(tmp_path), "--tokenizers", str(tmp_path / "runs")]
    assert encode.main([str(corpus), *options]) == 2
    assert "has no tokenizer.json" in capsys.readouterr().err


def test_documents_are_cut_between_characters() -> None:
    assert encode_jobs.cut(["naïve!", "", "🙂🙂"], 5) == ["naïv", "e!", "🙂", "🙂"]
    assert encode_jobs.cut(["abcdef"], 3) == ["abc", "def"]
    assert encode_jobs.first(["ab", "éé", "c"], 3) == ["ab", "éé"]
    assert encode_jobs.first(["ab", "c"], None) == ["ab", "c"]
    assert encode_jobs.digest([1, 2]) == encode_jobs.digest(bytes([1, 0, 0, 0, 2, 0, 0, 0]))
