"""The command `superbpe`, and the commands that need no configuration."""

import argparse
import dataclasses
import errno
import importlib
import json
import subprocess
import sys
from pathlib import Path
from string import ascii_lowercase
from types import SimpleNamespace

import pytest

from experiments.cli import arguments as arguments_of
from experiments.cli import main
from experiments.cli.arguments import size, tokenizers_of, whole
from experiments.commands import train
from experiments.compose import load
from experiments.store import artifacts, records
from lm.data.shard_writer import HashedFile
from lm.data.shards import Shards
from superbpe import PHASE1, PRESETS, train_superbpe
from tests import other_tokenizers, texts
from tests.properties import quick_first
from tokenizer import Corpus, CorpusConfig, Tokenizer, count_pretokens, formats, train_bpe
from tokenizer.patterns import FULL_STRENGTH


def test_every_command_is_listed_and_unknown_ones_and_options_are_one_line(capsys, mistake):
    names = [name.replace("-", "_") for name in main.NAMES]
    assert len(names) <= 16
    for name in names:
        module = importlib.import_module(f"experiments.commands.{name}")
        assert module.parser().prog == f"superbpe {name.replace('_', '-')}"
        assert callable(module.run)
    assert main.run([]) == 0
    assert capsys.readouterr().out.count("\n  ") == len(names)
    assert main.run(["status", "--help"]) == main.run(["--version"]) == 0
    help_, version = capsys.readouterr().out.rsplit("\n", 2)[:2]
    assert "usage: superbpe status" in help_
    assert version.startswith("superbpe 0.")
    assert "unknown command 'trian' (did you mean 'train'?)" in mistake("trian")
    error = mistake("encode", "tok", "a.txt", "--seperator", "x")
    assert "unknown option --seperator (did you mean '--separator'?); superbpe encode --help" in error


@pytest.mark.parametrize(
    ("options", "phase1", "rules", "transition"),
    [
        ("", {"pattern": FULL_STRENGTH}, None, None),
        ("--superbpe uw-2025 --transition 0.7", PHASE1["uw-2025"], PRESETS["uw-2025"], 0.7),
        (
            "--superbpe digits --pattern gpt2 --unit line --rule max_words=2",
            {"pattern": "gpt2", "unit": "line"},
            dataclasses.replace(PRESETS["digits"], max_words=2),
            0.9,
        ),
    ],
)
def test_train_and_encode(tmp_path, mistake, monkeypatch, capsys, options, phase1, rules, transition):
    path, out = tmp_path / "a.txt", tmp_path / "tokenizer"
    path.write_text(text := "\n".join(texts.sample(100_000)))
    arguments = [str(path), "--vocab-size", "400", "--to", str(out), *options.split(), "--memory", "100MB"]
    assert main.run(["train", *arguments]) == 0
    said = capsys.readouterr().out
    assert "opens in tokenizers 0.23: yes" in said
    assert "opens in llama.cpp: no: " in said
    corpus = Corpus(CorpusConfig(paths=[str(path)]))
    expected = train_bpe(count_pretokens(corpus, **phase1), 400)
    if rules:
        expected = train_superbpe(expected, corpus.batches, vocab_size=400, rules=rules, transition=transition)
    tokenizer = Tokenizer.load(out)
    assert tokenizer.sha256 == expected.sha256
    assert [text["places"] for text in tokenizer.provenance["read"]["texts"]] == [[str(path)]]
    again = ["train", "-", *arguments[1:3], "--to", str(tmp_path / "piped"), *arguments[5:]]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=path.open("rb")))
    assert main.run(again) == 0
    assert Tokenizer.load(tmp_path / "piped").sha256 == expected.sha256
    assert f"--to {out} exists" in mistake("train", *arguments)
    (records := tmp_path / "a.jsonl").write_text('{"text": "a"}')
    swapped = mistake("encode", records, out, "--to", tmp_path / "no")
    assert f"{records} is text; name the tokenizer first: {out} {records}" in swapped
    assert main.run(["encode", str(out), str(path), "--to", str(tmp_path / "shards")]) == 0

    def full_disk(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(HashedFile, "write", full_disk)
        error = mistake("encode", out, path, "--to", tmp_path / "more")
    assert f"error: {tmp_path / 'more'}: the disk is full" in error
    shards = Shards.open(tmp_path / "shards", tokenizer)
    assert shards.document(0).tolist() == tokenizer.encode(text)
    arguments_of._standard_input.cache_clear()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=records.open("rb")))
    capsys.readouterr()
    assert main.run(["encode", str(out), "-", "--to", str(tmp_path / "records")]) == 0
    said = capsys.readouterr()
    assert "JSON is read as plain text; add --format jsonl" in said.err
    assert "next:" not in said.out  # nobody can read the standard input again
    arguments_of._standard_input.cache_clear()


@pytest.mark.slow
def test_after_a_kill_at_any_change_of_a_file_the_same_command_finishes(tmp_path):
    command = [sys.executable, "-m", "tests.experiments.commands.killed", tmp_path]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[-1]) > 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--transition", "0.5"], "--transition 0.5 needs phase 2; add --superbpe PRESET"),
        (["--superbpe", "uw-2025", "--transition", "1.5"], "'1.5' is not a transition; write a share of"),
        (["--superbpe", "uw-2025", "--transition", "300"], "300.0 is 300 tokens, which is not between 256"),
        (["--superbpe", "boundless", "--transition", "0.5"], "these rules find the transition themselves"),
        (["--pattern", "gtp2"], "did you mean 'gpt2'"),
        (["--rule", "max_words=2"], "--rule max_words=2 needs phase 2; add --superbpe PRESET"),
        (["--superbpe", "digits", "--rule", "max_wrds=2"], "unknown rule 'max_wrds' (did you mean 'max_words'?)"),
        (["--superbpe", "digits", "--rule", "min_count=0"], "min_count=0 must be at least 1"),
        (["--superbpe", "digits", "--rule", "max_words=-3"], "max_words=-3 must be at least 1"),
        (["--superbpe", "digits", "--rule", "fence=(("], "fence='((': the pattern"),
        (["--threads", "0"], "'0' is not a whole number from 1 to 1024"),
        (["--special", "a"], "special token 'a'"),
        (["--forbid", "x", "a(?=b)"], 'the regex "a(?=b)" of forbid does not compile'),
        (["--superbpe", "digits", "--rule", "forbid=(?=a)"], 'the regex "(?=a)" of forbid does not compile'),
        (["--force", "two words"], "forced token 'two words' can never be one token: the pattern o200k cuts it"),
        (["--force", "a\nb", "--pattern", "none", "--unit", "line"], "forced token 'a\\nb' can never be one token"),
        (["--force", ascii_lowercase, ascii_lowercase[::-1]], "the forced tokens take 50 merges, but phase 1 has 43"),
        (["--superbpe", "digits", "--transition", "260", "--force", "longer"], "take 5 merges, but phase 1 has 4"),
        (["--superbpe", "boundless", "--force", "word"], "--force word needs a transition"),
        (["--force", "word", "--forbid", "^wo$"], "forced token 'word' needs the token b'wo', which forbid rules out"),
        (["--to", "/proc/x"], "--to /proc/x: cannot write there"),
    ],
)
def test_training_is_rejected_before_it_starts(tmp_path, mistake, monkeypatch, arguments, message):
    path = tmp_path / "a.txt"
    path.write_text("a text of more than ten bytes")
    monkeypatch.setattr(
        train, "open_sources", lambda *_, **__: Corpus(CorpusConfig([str(path)], document_limit_bytes=10))
    )
    monkeypatch.setattr(train, "count_pretokens", lambda *_, **__: pytest.fail("work has started"))
    assert message in mistake("train", path, "--vocab-size", "300", "--to", tmp_path / "to", *arguments)
    assert not (tmp_path / "to").exists()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A tokenizer and a text with two damaged records."""
    tmp_path = tmp_path_factory.mktemp("small")
    lines = [*(json.dumps({"body": text}) for text in texts.sample(20_000)), '{"body": 7}', "not JSON"]
    (tmp_path / "text.jsonl").write_text("\n".join(lines))
    train_bpe(texts.sample(20_000), 300).save(tmp_path / "small")
    return str(tmp_path / "small"), str(tmp_path / "text.jsonl")


# Commands that take a tokenizer: what follows it, and whether they work on its merges.
TAKING = {
    "encode": (["TEXT", "--to", "OUT", "--end-of-text", "<|endoftext|>"], False),
    "fertility": (["TEXT", "--out", "OUT"], False),
    "inspect": (["--text", "TEXT", "--out", "OUT"], True),
    "extend": (["TEXT", "--vocab-size", "310", "--to", "OUT"], True),
    "export": (["OUT", "--to", "hf"], True),
    "trim": (["TEXT", "--to", "OUT"], True),
    "push": (["org/name", "--to", "OUT"], True),
}
REST = {"train": ["--vocab-size", "300", "--to", "OUT"], "compare": ["--out", "OUT"]}
REST |= {command: rest for command, (rest, _) in TAKING.items()}


@pytest.mark.parametrize("command", quick_first(TAKING, 3))
def test_every_command_takes_any_name_of_a_tokenizer_and_ends_with_the_next_command(
    small, tmp_path, monkeypatch, capsys, command
):
    folder, text = small
    rest, exact = TAKING[command]
    monkeypatch.setattr("tokenizer.external.opening.snapshot", lambda *_: (Path(folder), "c0ffee"))
    monkeypatch.setattr("tokenizer.external.opening.named_encoding", lambda _: formats.read(folder))

    skipping = ["--field", "body", "--on-error", "skip"]

    def ran(name, out):
        words = [{"TEXT": text, "OUT": str(tmp_path / out)}.get(word, word) for word in rest]
        return main.run([command, name, *words, *(skipping if text in words else [])])

    for n, name in enumerate(("org/name", "tiktoken:small", f"{folder}/tokenizer.json")):
        assert ran(name, f"out{n}") == 0
        out, warnings = capsys.readouterr()
        assert ("warning: 2 damaged records" in warnings) == ("TEXT" in rest)
        *_, wrote, following = out.splitlines()
        assert following.startswith("next:  superbpe ")
        assert following.split()[2] in main.NAMES
        assert not {word for word in following.split() if word.isupper()} - {"<TEXT>"}
        assert "OUT" not in rest or wrote.startswith(f"wrote: {tmp_path / f'out{n}'}")
    other = tmp_path / "unigram.json"
    other.write_bytes(other_tokenizers.write(tmp_path, "unigram").read_bytes())
    assert ran(str(other), "other") == (2 if exact else 0)
    error = capsys.readouterr().err
    reason = "and this command needs byte-level merges; encode and fertility accept any tokenizer"
    assert (reason in error) == exact
    assert not exact or len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("record", "options", "message"),
    [
        ('{"content": "a"}', [], "name the one that holds the text with --field NAME"),
        ('{"text": 7}', [], "at column 10; fix the line, or leave damaged lines out with --on-error skip"),
        ('{"text": "a"}', ["--vocab-size", "100"], "--vocab-size: '100' is not a whole number of at least 257"),
        ('{"text": ""}', [], "the corpus is empty: no document of PATH contains text"),
    ],
)
def test_messages_name_the_options_of_the_command(tmp_path, mistake, record, options, message):
    (path := tmp_path / "a.jsonl").write_text(record)
    error = mistake("train", path, *(options or ["--vocab-size", "300"]), "--to", tmp_path / "to")
    assert message.replace("PATH", str(path)) in error
    assert not (tmp_path / "to").exists()


def test_messages_name_real_values_and_the_keys_of_a_configuration(tiny, tmp_path, mistake):
    assert "write apache-2.0, mit," in mistake("push", tmp_path, "org/name", "--license", "LICENSE")
    (path := tmp_path / "a.jsonl").write_text('{"content": "a"}\n')
    count = ["pipeline", "--until", "count", *tiny]
    assert "name the one that holds the text with corpus.field=NAME" in mistake(*count, f"corpus.paths=[{path}]")
    # Before any work.
    assert "corpus.source_field=orign" in mistake(*count, "corpus.source_field=orign")
    assert not list((tmp_path / "artifacts").glob("count-*"))


@pytest.mark.parametrize("command", REST)
def test_a_place_that_cannot_be_written_is_found_before_any_work(command, small, mistake, monkeypatch):
    monkeypatch.setattr(Corpus, "batches", lambda *_, **__: pytest.fail("text is read"))
    words = [{"TEXT": small[1], "OUT": "/proc/x/y", "hf": "tiktoken"}.get(word, word) for word in REST[command]]
    error = mistake(command, small[command == "train"], *words)
    assert "cannot write there (No such file or directory); name another place" in error


def test_a_tilde_is_the_home_in_every_spelling(tmp_path, monkeypatch, mistake):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a text")
    assert main.run(["train", "~/*.txt", "--vocab-size", "258", "--to=~/to"]) == 0
    assert main.run(["fertility", "~/to", "a=~/a.txt", "--out=~/out"]) == 0
    assert {path.name for path in tmp_path.iterdir()} >= {"to", "out"}
    assert not (tmp_path / "~").exists()
    assert "(name the text without an option)" in mistake("train", "--text", "a.txt")
    assert "(name the model without an option)" in mistake("generate", "--models", "a")
    assert "--format hf: did you mean --to hf?" in mistake("export", "a", "b", "--format", "hf")
    assert "a=a.txt:2: these texts have no names and no weights; write a.txt" in mistake(
        "encode", "to", "a=a.txt:2", "--to", "shards"
    )
    assert "unrecognized arguments: a.txt (text follows --text)" in mistake("inspect", "to", "a.txt")
    assert "none.jsonl: no such file" in mistake("score", "a/b", "a/none.jsonl")
    assert "none does not exist" in mistake("generate", "none", "--prompt", "a")


def test_a_warning_shows_no_source_line_and_an_empty_folder_that_a_full_disk_left_is_used(tmp_path, capsys):
    (path := tmp_path / "a.jsonl").write_text('{"text": "a text"}\nnot JSON\n')
    (tmp_path / "to").mkdir()
    words = [str(path), "--vocab-size", "9000", "--to", str(tmp_path / "to"), "--on-error", "skip"]
    assert main.run(["train", *words]) == 0
    skipped, pairs = sorted(capsys.readouterr().err.splitlines())
    assert skipped.startswith("warning: 1 damaged records")
    assert pairs.startswith("warning: the corpus ran out of pairs after")


def test_help_fits_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main.run(["pipeline", "--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.partition("examples:")[0].splitlines())) < 80
    shown = " ".join(shown.split())
    # The words of the settings' own dataclasses, and the choices of the groups.
    assert "at which phase 2 starts: a number of tokens or a fraction" in shown
    assert all(words in shown for words in ("superbpe.transition=", "uw-2025, uw-paper", "train-lm, evaluate, report"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--transition", "0.7"], "settings are written KEY=VALUE, without dashes: superbpe.transition=…"),
        (["--train-bytes=1MB"], "or budget.train_bytes=…"),
        (["--multirunn", "a=1,2"], "unknown option --multirunn (did you mean '--multirun'?)"),
        (["--until", "trian-lm"], "--until='trian-lm' (did you mean 'train-lm'?); it is one of: count, "),
        (["-m", "pattern=gpt2,llama3", "hydra/launcher=ray"], "an extra: pip install '.[sweep]' in the clone"),
    ],
)
def test_flags_that_are_settings_are_named(words, message, mistake):
    assert message in mistake("pipeline", *words)


def test_help_and_mistakes_load_no_slow_package(tmp_path):
    (tmp_path / "a.txt").write_text("a text")
    (tmp_path / "points.csv").write_text("arm;seed\na;1\n")
    train_bpe(["a text"], 257).save(tmp_path / "bpe")
    others = [name for name in main.NAMES if name != "pipeline"]  # which runs without arguments
    lines = [
        "pipeline --nothere", "pipeline nothere=1", "pipeline --help", *others, *(f"{name} --help" for name in others),
        *(f"{name} --nothere" for name in others), *(f"{name} nothere" for name in others),
        "train nothere --vocab-size 300 --to b", "encode nothere a.txt --to b", "fertility nothere --text a.txt",
        "export nothere b --to hf", "extend nothere a.txt --vocab-size 300 --to b", "trim nothere a.txt --to b",
        "push nothere a/b", "score nothere a.txt", "generate nothere --prompt a", "compare nothere.csv",
        "downstream nothere --tasks a --out b", "downstream a/b --tasks . --out b", "extend-model nothere nothere b",
        "compare points.csv", "export lm-a b --to hf", "score a/b a.txt --device tpu",
        "choose a.txt --deployment a", "fertility bpe a.txt --deployment a", "inspect bpe --text nothere",
    ]  # fmt: skip
    code = f"""import sys
from experiments.cli.main import run
run([])
assert "numpy" not in sys.modules
for line in {lines}:
    code = run(line.split())
    slow = {{"torch", "pandas", "transformers", "lm_eval", "altair", "pyarrow", "scipy", "datasets"}} & {{*sys.modules}}
    assert not slow and code == (0 if "--help" in line else 2), (line, code, slow)
import experiments.given_losses
assert "torch" not in sys.modules
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_sizes_and_numbers_have_bounds():
    assert size("1.5 gb") == 1_500_000_000
    config = load(["budget.train_bytes=1MB", "budget.ladder=[0.1,500KB]", "project=1MB", "bpe.vocab_size=8k"])
    assert config.bpe.vocab_size == 8000
    assert (config.budget.train_bytes, config.budget.rungs()) == (1_000_000, [100_000, 500_000, 1_000_000])
    assert config.project == "1MB"
    assert {whole()(text) for text in ("50000", "50_000", "50,000", "50k")} == {50_000}
    for parsed, wrong, message in (
        (size, ("10 apples", "", "0", "4"), "is not a size; write it with its unit, as in 400MB"),
        (whole(2, 4), ("1", "5", "3.0", "5,00", "-3", "3kB", "many", ""), "is not a whole number from 2 to 4"),
    ):
        for text in wrong:
            with pytest.raises(argparse.ArgumentTypeError, match=message):
                parsed(text)


def test_artifacts_have_the_names_of_their_arms(monkeypatch, tmp_path):
    def artifact_at(path, _):
        return SimpleNamespace(name=path.name, folder=path) if "-" in path.name else None

    monkeypatch.setattr(artifacts, "artifact_at", artifact_at)
    monkeypatch.setattr(records, "arm_labels", lambda _: {"tokenizer-4444": ["my arm"]})
    names = ("tokenizer-1111", "tokenizer-4444", "plain")
    for name in names:
        (tmp_path / name).mkdir()
    found = list(tokenizers_of([*(str(tmp_path / name) for name in names), "openai/gpt2"]))
    assert found == ["tokenizer-1111", "my arm", "plain", "openai/gpt2"]
    a, b = (str(tmp_path / parent / "tokenizer") for parent in ("one", "two"))
    assert tokenizers_of([f"a={a}", f"b={b}"]) == {"a": a, "b": b}
