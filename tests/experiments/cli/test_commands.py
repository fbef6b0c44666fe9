"""The command `superbpe`, and the commands that need no configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

import experiments
from experiments import count_tokens, encode, train_tokenizer
from experiments.cli.commands import COMMANDS, run
from experiments.cli.compose import load
from experiments.cli.sizes import parse_size
from lm.data.shards import Shards
from superbpe import PHASE1, train_superbpe
from tests import texts
from tokenizer import Corpus, CorpusConfig, Tokenizer, count_pretokens, train_bpe

_ROOT = Path(experiments.__file__).parent


def test_every_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    files = [path for path in _ROOT.glob("*.py") if path.stem != "__main__"]
    packages = [path.parent for path in _ROOT.glob("*/__main__.py")]
    runnable = {path.stem for path in [*files, *packages] if path in packages or "__main__" in path.read_text()}
    # `report` is the pipeline.
    assert {command.module for command in COMMANDS.values()} == runnable - {"report"}
    assert run([]) == 0
    assert capsys.readouterr().out.count("\n  ") == len(COMMANDS)


def test_commands_run_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--help"]) == 0
    assert "experiments.status" in capsys.readouterr().out
    assert run(["bakeoff", "--help"]) == 0
    assert "experiments.bakeoff" in capsys.readouterr().out
    assert run(["trian"]) == 2
    assert "superbpe trian is not a command; did you mean 'train'?" in capsys.readouterr().err


@pytest.mark.parametrize("preset", [None, "uw-2025"])
def test_train_count_and_encode(tmp_path: Path, capsys: pytest.CaptureFixture[str], preset: str | None) -> None:
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
    assert train_tokenizer.run(arguments) == 2
    assert f"--to {out} exists" in capsys.readouterr().err

    assert count_tokens.run([str(out), str(path), str(path)]) == 0
    shown = capsys.readouterr().out
    n_tokens = len(tokenizer.encode(text))
    assert f"{n_tokens:,}" in shown
    assert f"{2 * n_tokens:,}" in shown
    assert encode.run([str(out), str(path), "--to", str(tmp_path / "shards")]) == 0
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


def test_sizes() -> None:
    assert parse_size("1.5 gb") == 1_500_000_000
    config = load(["budget.train_bytes=1MB", "budget.ladder=[0.1,500KB]", "report.title=1MB"])
    assert (config.budget.train_bytes, config.budget.rungs()) == (1_000_000, [100_000, 500_000, 1_000_000])
    assert config.report.title == "1MB"
    for wrong in ("10 apples", "", "0"):
        with pytest.raises(Exception, match="is not a size; write a number of bytes, or 400MB"):
            parse_size(wrong)
