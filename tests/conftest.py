"""Fixtures of several test files."""

import functools
import os
import signal

import numpy as np
import pytest
import regex

from superbpe import PRESETS, Rules, train_superbpe
from tests import texts
from tokenizer import Batch, count_pretokens, train_bpe
from tokenizer.system import HANG_UP

# A shell that starts the tests in the background makes them, and what they start, ignore Ctrl-C; nohup, SIGHUP.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(HANG_UP) is signal.SIG_IGN:
    signal.signal(HANG_UP, signal.SIG_DFL)

# Tests never reach for the network: before anything imports Hugging Face's libraries.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
# Before anything imports Torch: threads that share tiny matrices spin, and beside other workers take ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Syncing protects against power failures only, which no test causes, and takes much of the time.
os.fsync = lambda _: None

CLASSES = [r"\p{L}", r"\p{N}", r"\s", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"]


def plane_of_scalars(plane):
    """Code points of one plane of Unicode, without surrogates."""
    return (code for code in range(plane << 16, (plane + 1) << 16) if not 0xD800 <= code < 0xE000)


@pytest.fixture(scope="session")
def scalars():
    """Every Unicode scalar value of planes 0 to 3 and 14, in order: the others hold no letter, number or space."""
    return "".join(chr(code) for plane in (0, 1, 2, 3, 14) for code in plane_of_scalars(plane))


@pytest.fixture(scope="session")
def classes(scalars):
    """By class of the named patterns: which scalars are in it in HF's engine, and in the `regex` module."""
    tokenizers = pytest.importorskip("tokenizers")

    def hf_members(class_):
        members = np.ones(len(scalars), dtype=bool)
        split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(class_ + "+"), "removed")
        for _, (start, stop) in split.pre_tokenize_str(scalars):
            members[start:stop] = False
        return members

    def regex_members(class_):
        members = np.zeros(len(scalars), dtype=bool)
        for match in regex.finditer(class_ + "+", scalars):
            members[slice(*match.span())] = True
        return members

    return {class_: (hf_members(class_), regex_members(class_)) for class_ in CLASSES}


@pytest.fixture(scope="session")
def disputed(scalars, classes):
    """Characters which the two put into different classes: newer versions of Unicode assign what was free."""
    differ = np.any([hf != newer for hf, newer in classes.values()], axis=0)
    return {scalars[i] for i in np.flatnonzero(differ)}


@pytest.fixture(scope="session")
def trained():
    """Tokenizers of 1,200 tokens: plain ones by pattern, and superwords with one and with two passes."""
    batches = [Batch.from_texts(texts.sample(200_000))]
    plain = {name: train_bpe(count_pretokens(batches, name), 1200) for name in ("gpt2", "llama3", "superbpe", "none")}
    rules = {
        "superwords": PRESETS["uw-2025"],
        "spans_superwords": PRESETS["spans"],
        "unfenced": Rules(),
        "two_pass": Rules(phase1_fence="kept", fence="uw-2025-fence"),
        "two_pass_unfenced": Rules(phase1_fence="kept"),
    }
    return plain | {
        name: train_superbpe(
            plain["llama3" if name.startswith("spans") else "superbpe"],
            lambda: batches,
            vocab_size=1200,
            transition=700,
            rules=rule,
        )
        for name, rule in rules.items()
    }


@pytest.fixture
def mistake(capsys):
    """Runs a command that must exit with code 2 and one line of error, and returns that line."""
    from experiments.cli import main

    def run(*words):
        capsys.readouterr()
        assert main.run(list(map(str, words))) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert error.count("\n") == 1, error
        return error

    return run


@pytest.fixture
def endpoint(monkeypatch):
    """A loopback server of objects, with credentials for it in the environment."""
    from tests.tokenizer.corpus.endpoint import Endpoint
    from tokenizer.corpus import remote

    server = Endpoint()
    for name, value in {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "AKIDSECRET",
        "AWS_SECRET_ACCESS_KEY": "verysecret",
        "AWS_REGION": "us-east-1",
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",  # otherwise there are checksums between parts of a body
        "HF_ENDPOINT": server.url,
        "HF_TOKEN": "hf_token",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(remote, "FIRST_DELAY", 0.001)
    monkeypatch.setattr(remote, "BLOCK_BYTES", 1 << 12)
    # Threads of an earlier test, which may still connect without these variables, have connections of their own.
    monkeypatch.setattr(remote, "_connected", functools.lru_cache(remote._connected.__wrapped__))
    monkeypatch.setattr("huggingface_hub.utils._http._GLOBAL_CLIENT", None)
    yield server
    server.close()
