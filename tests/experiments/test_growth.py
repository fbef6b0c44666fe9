"""Work grows no faster than the number of files and of sources: calls, requests, and bytes that are sent to tasks."""

import io
import json
import os
import pickle
import random
from functools import wraps

import pytest

from experiments.cli.main import run
from experiments.cluster import tasks
from tests.experiments.cluster.fake_ray import FakeRay
from tests.experiments.conftest import run_stages, tiny_overrides
from tokenizer import Corpus, count_pretokens, train_bpe

FEW, MANY, MORE = 20, 60, 1.2
"""Numbers of files, and how much more than in proportion is accepted."""


def write_text(folder, n):
    """Write files of 8 documents."""
    rng = random.Random(n)
    folder.mkdir(parents=True)
    words = ["".join(rng.choices("abcdefgh", k=4)) for _ in range(300)]
    paths = [folder / f"{i:03}.jsonl" for i in range(n)]
    for path in paths:
        path.write_text("".join(json.dumps({"text": " ".join(rng.choices(words, k=40))}) + "\n" for _ in range(8)))
    return paths


def assert_linear(of_few, of_many):
    assert 0 < of_many <= MORE * MANY / FEW * of_few, (of_few, of_many)


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Paths of the text of which this process asked for the state, or which Python opened."""
    named = []

    def counted(function):
        @wraps(function)
        def call(path, *arguments, **options):
            if str(path).startswith(str(tmp_path / "text")):
                named.append(path)
            return function(path, *arguments, **options)

        return call

    for module, name in ((os, "stat"), (os, "lstat"), (io, "open")):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    return named


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    train_bpe(count_pretokens(["some text of words"] * 9, "gpt2"), 264).save(
        folder := tmp_path_factory.mktemp("tokenizer") / "gpt2"
    )
    return folder


def command(name, tokenizer, texts, out):
    return {
        "train": ["train", *texts, "--to", out, "--vocab-size", 300, "--superbpe", "uw-2025", "--transition", 0.9],
        "fertility": ["fertility", tokenizer, "--text", *texts, "--out", out],
        "inspect": ["inspect", tokenizer, "--text", *texts, "--out", out],
        "encode": ["encode", tokenizer, *texts, "--to", out],
        "choose": ["choose", *texts, "--out", out, "--quick", "--sizes", 300, "--patterns", "gpt2", "--presets"],
    }[name]


@pytest.mark.parametrize(
    ("name", "named"),
    [
        *((name, False) for name in ("train", "fertility", "inspect", "encode")),
        ("fertility", True),
        *(pytest.param("choose", named, marks=pytest.mark.slow) for named in (False, True)),
    ],
)
def test_calls_of_commands(name, named, tokenizer, calls, tmp_path):
    n_calls = []
    for n in (FEW, MANY):
        paths = write_text(tmp_path / "text" / str(n), n)
        texts = [f"s{path.stem}={path}" if named else path for path in paths]
        calls.clear()
        assert run(list(map(str, command(name, tokenizer, texts, tmp_path / f"out{n}")))) == 0
        n_calls.append(len(calls))
    assert_linear(*n_calls)


@pytest.mark.parametrize("name", ["fertility", pytest.param("encode", marks=pytest.mark.slow)])
def test_requests_of_commands(name, tokenizer, endpoint, tmp_path):
    n_requests = []
    for n in (FEW // 5, MANY // 5):
        for path in write_text(tmp_path / str(n), n):
            endpoint.objects[f"bucket/{n}/{path.name}"] = path.read_bytes()
        endpoint.requests.clear()
        assert run(list(map(str, command(name, tokenizer, [f"s3://bucket/{n}"], tmp_path / f"out{n}")))) == 0
        n_requests.append(len(endpoint.requests))
    assert_linear(*n_requests)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["files", "sources"])
def test_stages(kind, calls, tmp_path, monkeypatch):
    """Calls of the stages up to the shards, and pickled tasks, of which each has one file."""
    sent = []

    class Ray(FakeRay):
        def sent(self, arguments):
            sent.append(len(pickle.dumps(arguments[1])))
            return arguments

    monkeypatch.setattr(tasks, "started", lambda _: Ray())
    parts = Corpus.parts
    monkeypatch.setattr(Corpus, "parts", lambda self, split="train", target=0: parts(self, split, 0))
    measured = []
    for n in (FEW, MANY):
        paths = write_text(tmp_path / "text" / str(n), n)
        heldout = [*map(str, write_text(tmp_path / "text" / f"{n}h", n // 10))]
        places = [f"corpus.paths={[*map(str, paths)]}"]
        if kind == "sources":
            places = ["corpus.paths=[]", f"corpus.sources={{{', '.join(f's{path.stem}: {path}' for path in paths)}}}"]
        overrides = [
            *tiny_overrides("", tmp_path),
            *places,
            f"corpus.heldout_paths={heldout}",
            f"artifacts={tmp_path}/a{n}",
        ]
        calls.clear()
        sent.clear()
        run_stages("shard", [*overrides, "corpus.heldout_fraction=0", "runner=ray"], tmp_path / f"run{n}")
        measured.append((len(calls), sum(sent)))
    for of_few, of_many in zip(*measured, strict=True):
        assert_linear(of_few, of_many)
