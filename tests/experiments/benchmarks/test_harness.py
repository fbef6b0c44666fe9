"""Jobs in fresh processes, the peers' environment, and text for them."""

import argparse
import json
import subprocess
import sys

import pytest

from experiments.benchmarks import harness, jobs
from experiments.benchmarks.train import ours
from tokenizer import Corpus, CorpusConfig, count_pretokens, patterns, train_bpe
from tokenizer.errors import UserError


def test_hf_gives_the_same_merges(corpus, tmp_path):
    lines, documents = harness.plain_text(harness.corpus([str(corpus)], "text", None), tmp_path)
    options = argparse.Namespace(vocab_size=400, transition=300, memory=None, paths=[], field="text")
    options.max_bytes = None
    plain = {"paths": [str(documents)], "separator": harness.SEPARATOR}
    own = ours("ours", options, corpus=plain, unit="line")
    regex = patterns.resolve("gpt2").regex
    hf = harness.Job("HF", "train tokenizers", {"vocab_size": 400, "regexes": [regex], "paths": [str(lines)]})
    harness.in_turn([own, hf], 1)
    assert harness.agreement(own.lines, hf.lines) == len(own.lines) == len(hf.lines) == 144
    assert own.facts["bytes"] == lines.stat().st_size
    for job in (own, hf):
        assert 0 < job.facts["seconds"] < job.facts["wall"]
        assert 0 < job.facts["above bare"] < job.facts["peak MB"]
    counts = count_pretokens(Corpus(CorpusConfig(**plain)).batches(), "gpt2", unit="line")
    merges = train_bpe(counts, 400, special_tokens=()).merges
    assert own.lines == [f"{left.hex()} {right.hex()}" for left, right in merges]


def test_agreement_counts_the_first_common_merges():
    for expected, found, n in (
        (["61 62", "63 64"], ["61 62", "63 64", "65 66"], 2),
        (["61 62", "63 64", "65 66"], ["61 62", "63 65", "65 66"], 1),
        (["61 6263", "6162 63"], ["6162 63"], 0),
    ):
        assert harness.agreement(expected, found) == n


def test_plain_text_is_the_same_by_lines_and_by_documents(tmp_path):
    path, documents = tmp_path / "texts.jsonl", ["one\n two", "ends with a line feed\n", "\n\nlow lowest", "naïve 🙂"]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8")
    corpus = harness.corpus([str(path)], "text", None)
    lines, documents = harness.plain_text(corpus, tmp_path)
    found = documents.read_text(encoding="utf-8").split(harness.SEPARATOR)
    assert found == ["one\n two\n", "ends with a line feed\n", "\n\nlow lowest\n", "naïve 🙂\n"]
    assert lines.read_text(encoding="utf-8") == "".join(found)
    path.write_text(json.dumps({"text": f"before{harness.SEPARATOR}after"}))
    with pytest.raises(UserError, match="remove those documents"):
        harness.plain_text(harness.corpus([str(path)], "text", None), tmp_path)


def test_peak_memory_is_of_the_process_alone():
    big = bytearray(200_000_000)
    big[::4096] = b"x" * len(big[::4096])
    assert jobs.memory_mb("VmRSS") >= 200
    code = "from experiments.benchmarks.jobs import memory_mb; print(memory_mb('VmHWM'))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 5 < float(child.stdout) < 100  # ru_maxrss would hand down its parent's


def test_a_failing_job_reports_the_reason():
    with pytest.raises(RuntimeError, match=r"(?s)the job broken ended with exit code 1.*KeyError"):
        harness.Job("broken", "train tokenizers", {}).run()
    assert jobs.digest([1, 2]) == jobs.digest(bytes([1, 0, 0, 0, 2, 0, 0, 0]))
