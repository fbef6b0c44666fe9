"""The command `superbpe`, and the commands that need no configuration."""

from __future__ import annotations

import argparse
import errno
import importlib
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import experiments
from experiments import count_tokens, encode, extend, train_tokenizer
from experiments.cli import help as help_text
from experiments.cli import main
from experiments.cli.commands import COMMANDS, run
from experiments.cli.compose import load
from experiments.cli.sizes import parse_count, parse_size
from lm.data.shard_files import HashedFile
from lm.data.shards import Shards
from superbpe import PHASE1, train_superbpe
from tests import other_tokenizers, texts
from tokenizer import Corpus, CorpusConfig, Tokenizer, count_pretokens, formats, train_bpe

_ROOT = Path(experiments.__file__).parent


def test_every_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    files = [path for path in _ROOT.glob("*.py") if path.stem != "__main__"]
    packages = [path.parent for path in _ROOT.glob("*/__main__.py")]
    runnable = {path.stem for path in [*files, *packages] if path in packages or "__main__" in path.read_text()}
    # `report` is the pipeline.
    assert {command.module.removesuffix(".command") for command in COMMANDS.values()} == runnable - {"report"}
    assert run([]) == 0
    assert capsys.readouterr().out.count("\n  ") == len(COMMANDS)


def test_commands_run_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--help"]) == 0
    assert "usage: superbpe status" in capsys.readouterr().out
    assert run(["bakeoff", "--help"]) == 0
    assert "usage: superbpe bakeoff" in capsys.readouterr().out
    assert run(["trian"]) == 2
    assert "unknown command 'trian' (did you mean 'train'?)" in capsys.readouterr().err


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("preset", [None, "uw-2025"])
def test_train_count_and_encode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, preset: str | None
) -> None:
    path, out = tmp_path / "a.txt", tmp_path / "tokenizer"
    path.write_text(text := "\n".join(texts.sample(100_000)))
    chosen = ["--superbpe", preset, "--transition", "0.7"] if preset else []
    arguments = [str(path), "--vocab-size", "400", "--to", str(out), *chosen, "--memory", "100MB"]
    assert train_tokenizer.run(arguments) == 0
    corpus = Corpus(CorpusConfig(paths=[str(path)]))
    expected = train_bpe(count_pretokens(corpus, **(PHASE1[preset] if preset else {"pattern": "gpt2"})), 400)
    if preset:
        expected = train_superbpe(expected, corpus.batches, vocab_size=400, rules=preset, transition=0.7)
    tokenizer = Tokenizer.load(out)
    assert tokenizer.sha256 == expected.sha256
    assert tokenizer.provenance["phase2" if preset else "phase1"]["text"] == [str(path)]
    assert train_tokenizer.run(arguments) == 2
    assert f"--to {out} exists" in capsys.readouterr().err

    assert count_tokens.run([str(out), str(path), str(path)]) == 0
    shown = capsys.readouterr().out
    n_tokens = len(tokenizer.encode(text))
    assert f"{n_tokens:,}" in shown
    assert f"{2 * n_tokens:,}" in shown
    (records := tmp_path / "a.jsonl").write_text('{"text": "a"}')
    assert count_tokens.run([str(records), str(out)]) == 2
    assert f"{records} is text; name the tokenizer first: {out} {records}" in capsys.readouterr().err
    assert encode.run([str(out), str(path), "--to", str(tmp_path / "shards")]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(HashedFile, "write", full_disk)
        assert encode.run([str(out), str(path), "--to", str(tmp_path / "more")]) == 2
    assert f"error: {tmp_path / 'more'}: the disk is full" in capsys.readouterr().err.replace("\n", "")
    shards = Shards.open(tmp_path / "shards", tokenizer)
    assert shards.document(0).tolist() == tokenizer.encode(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--transition", "0"], "--transition 0.0 needs phase 2; add --superbpe PRESET"),
        (["--superbpe", "uw-2025"], "is one document of more than 10B, which phase 2 cannot read; give the string"),
    ],
)
def test_training_is_rejected_before_it_starts(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a text of more than ten bytes")
    monkeypatch.setattr(
        train_tokenizer, "open_text", lambda *_: Corpus(CorpusConfig([str(path)], document_limit_bytes=10))
    )
    assert train_tokenizer.run([str(path), "--vocab-size", "300", "--to", str(tmp_path / "to"), *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def small(tmp_path: Path) -> tuple[str, str]:
    """A tokenizer and a text."""
    (tmp_path / "text.jsonl").write_text("\n".join(json.dumps({"body": text}) for text in texts.sample(20_000)))
    train_bpe(texts.sample(20_000), 300).save(tmp_path / "small")
    return str(tmp_path / "small"), str(tmp_path / "text.jsonl")


# Commands that take a tokenizer: what follows it, and whether they work on its merges.
TAKING = {
    "count-tokens": (["TEXT"], False),
    "encode": (["TEXT", "--to", "OUT"], False),
    "fertility": (["TEXT", "--out", "OUT"], False),
    "inspect": (["--text", "TEXT", "--out", "OUT"], True),
    "history": (["--text", "TEXT", "--out", "OUT"], True),
    "extend": (["TEXT", "--vocab-size", "310", "--to", "OUT"], True),
    "export": (["OUT", "--to", "hf"], True),
    "push": (["org/name", "--text", "TEXT", "--to", "OUT"], True),
}


@pytest.mark.parametrize("command", TAKING)
def test_every_command_takes_any_name_of_a_tokenizer_and_ends_with_the_next_command(
    small: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    folder, text = small
    rest, exact = TAKING[command]
    monkeypatch.setattr("tokenizer.external.hub.snapshot", lambda *_: (Path(folder), "c0ffee"))
    monkeypatch.setattr("tokenizer.external.opening.named_encoding", lambda _: formats.read(folder))
    module = importlib.import_module(f"experiments.{COMMANDS[command].module}")

    def ran(name: str, out: str) -> int:
        words = [{"TEXT": text, "OUT": str(tmp_path / out)}.get(word, word) for word in rest]
        return module.run([name, *words, *(["--field", "body"] if text in words else [])])

    for n, name in enumerate(("org/name", "tiktoken:small", f"{folder}/tokenizer.json")):
        assert ran(name, f"out{n}") == 0
        *_, wrote, following = capsys.readouterr().out.splitlines()
        assert following.startswith("next:  superbpe ")
        assert following.split()[2] in COMMANDS
        assert "OUT" not in rest or wrote.startswith(f"wrote: {tmp_path / f'out{n}'}")
    other = tmp_path / "unigram.json"
    other.write_bytes(other_tokenizers.write(tmp_path, "unigram").read_bytes())
    assert ran(str(other), "other") == (2 if exact else 0)
    error = capsys.readouterr().err
    reason = "and this command needs byte-level merges; encode, count-tokens and fertility accept any tokenizer"
    assert (reason in error) == exact
    assert len(error.splitlines()) == int(exact)


@pytest.mark.parametrize(
    ("record", "options", "message"),
    [
        ('{"content": "a"}', [], "name the one that holds the text with --field NAME"),
        (
            '{"text": 7}',
            [],
            "a string (the text), at column 10; fix the line, or leave damaged lines out with --on-error skip",
        ),
        ('{"text": "a"}', ["--vocab-size", "100"], "--vocab-size 100 is below 256 bytes + 1 special token(s)"),
        ('{"text": ""}', [], "the documents of ['PATH'], all are empty"),
        (
            '{"text": "a"}',
            ["--vocabsize", "300"],
            "unknown option --vocabsize (did you mean '--vocab-size'?); superbpe",
        ),
    ],
)
def test_messages_name_the_options_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record: str, options: list[str], message: str
) -> None:
    (path := tmp_path / "a.jsonl").write_text(record)
    with suppress(SystemExit):
        train_tokenizer.run([str(path), *(options or ["--vocab_size", "300"]), "--to", str(tmp_path / "to")])
    error = capsys.readouterr().err
    assert message.replace("PATH", str(path)) in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "to").exists()


def test_messages_name_the_keys_of_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path := tmp_path / "a.jsonl").write_text('{"content": "a"}\n')
    arguments = ["corpus=files", f"corpus.paths=[{path}]", f"hydra.run.dir={tmp_path}", f"artifacts={tmp_path}/a"]
    assert main.run("count", arguments) == 2
    assert "name the one that holds the text with corpus.field=NAME" in capsys.readouterr().err


def test_a_warning_shows_no_source_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path := tmp_path / "a.txt").write_text("a text")
    assert train_tokenizer.run([str(path), "--vocab-size", "9000", "--to", str(tmp_path / "to")]) == 0
    assert capsys.readouterr().err.startswith("warning: the corpus ran out of pairs after")


def test_an_empty_folder_that_a_full_disk_left_is_used(tmp_path: Path) -> None:
    (path := tmp_path / "a.txt").write_text("a text")
    (tmp_path / "to").mkdir()
    assert train_tokenizer.run([str(path), "--vocab-size", "258", "--to", str(tmp_path / "to")]) == 0


def test_the_completion_script_ends_quietly_when_its_reader_does() -> None:
    read, write = os.pipe()
    os.close(read)
    script = subprocess.run(
        [sys.executable, "-m", "experiments", "completion", "bash"], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert "Traceback" not in script.stderr


@pytest.mark.parametrize("stage", help_text.STAGES)
def test_help_fits_the_terminal(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    settings = help_text.text(stage).partition("examples:")[0]
    assert max(map(len, settings.splitlines())) < 80


def test_a_mistake_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        count_tokens.run(["tok", "a.txt", "--seperator", "x"])
    error = capsys.readouterr().err
    assert "unknown option --seperator (did you mean '--separator'?); superbpe count-tokens --help" in error
    assert len(error.splitlines()) == 1


def test_the_version() -> None:
    started = [sys.executable, "-m", "experiments", "--version"]
    assert subprocess.run(started, capture_output=True, text=True).stdout.startswith("superbpe 0.")


@pytest.mark.parametrize("arguments", [[], ["completion", "bash", "--line", "superbpe tr"]])
def test_listing_and_completion_load_no_numpy(arguments: list[str]) -> None:
    code = f"import sys; from experiments.cli.commands import run; run({arguments}); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize("arguments", [[], ["train", "--help"]])
def test_help_loads_no_torch(arguments: list[str]) -> None:
    code = f"import sys; from experiments.cli.commands import run; run({arguments}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_sizes() -> None:
    assert parse_size("1.5 gb") == 1_500_000_000
    config = load(["budget.train_bytes=1MB", "budget.ladder=[0.1,500KB]", "report.title=1MB"])
    assert (config.budget.train_bytes, config.budget.rungs()) == (1_000_000, [100_000, 500_000, 1_000_000])
    assert config.report.title == "1MB"
    for wrong in ("10 apples", "", "0"):
        with pytest.raises(Exception, match="is not a size; write a number of bytes, or 400MB"):
            parse_size(wrong)


def test_counts() -> None:
    assert {parse_count(text) for text in ("50000", "50_000", "50,000", "50k", "50K", "0.05M")} == {50_000}
    for wrong in ("5,00", "0", "-5", "1.5", "50kB", "many"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a count; write 50000, 50,000, 50k"):
            parse_count(wrong)
    for module in (train_tokenizer, extend):
        assert module.parser().parse_args(["a", "b", "--vocab-size", "50k", "--to", "c"]).vocab_size == 50_000
