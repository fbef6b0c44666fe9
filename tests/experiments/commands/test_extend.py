"""A tokenizer of any format becomes a larger one, by the command line's own entry point."""

from __future__ import annotations

import pytest

from experiments.cli import main
from superbpe import train_superbpe
from tests import texts
from tests.tokenizer.formats.other_formats import write_gpt2
from tokenizer import Batch, Corpus, CorpusConfig, Tokenizer, count_pretokens, train_bpe


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("<|doc|>".join(texts.sample(60_000)), encoding="utf-8", newline="")
    return str(path)


def _small() -> Tokenizer:
    return train_bpe(count_pretokens([Batch.from_texts(texts.sample(60_000))], "gpt2"), 400)


@pytest.mark.parametrize("kind", ["superbpe", "hf", "gpt2", "tiktoken"])
def test_a_tokenizer_of_every_format_is_extended(kind, text, tmp_path, capsys):
    small = _small()
    small.save(tmp_path / "small")
    start = tmp_path / ("start.tiktoken" if kind == "tiktoken" else "start")
    if kind == "gpt2":
        write_gpt2(small, start)
    else:
        assert main.run(["export", str(tmp_path / "small"), str(start), "--to", kind]) == 0
    arguments = [str(start), text, "--separator", "<|doc|>", "--vocab-size", "700", "--to", str(tmp_path / "large")]
    assert main.run(["extend", *arguments]) == 0
    assert ": 700 tokens" in capsys.readouterr().out
    large = Tokenizer.load(tmp_path / "large")
    start_ids = Tokenizer.from_file(start)
    corpus = Corpus(CorpusConfig(paths=[text], separator="<|doc|>"))
    whole = train_bpe(count_pretokens(corpus, "gpt2", special_tokens=["<|endoftext|>"]), 700, start=start_ids)
    assert large.sha256 == whole.sha256
    assert large.vocab_size == 700
    # The same text in the same pieces, whatever the ids: bytes are numbered otherwise in other formats.
    held_out = texts.english()[1][0]
    direct = train_bpe(count_pretokens(corpus, "gpt2"), 700, start=small)
    assert [large.vocab[i] for i in large.encode_ordinary(held_out)] == [
        direct.vocab[i] for i in direct.encode_ordinary(held_out)
    ]


def test_ids_known_to_a_model_do_not_change(text, tmp_path):
    small = _small()
    small.save(tmp_path / "small")
    arguments = [str(tmp_path / "small"), text, "--separator", "<|doc|>", "--vocab-size", "500", "--keep-ids"]
    assert main.run(["extend", *arguments, "--to", str(tmp_path / "large")]) == 0
    large = Tokenizer.load(tmp_path / "large")
    assert large.vocab[:400] == small.vocab
    assert large.special_tokens == small.special_tokens == {"<|endoftext|>": 399}
    # The merges are those of a run that moves the special token.
    corpus = Corpus(CorpusConfig(paths=[text], separator="<|doc|>"))
    moved = train_bpe(count_pretokens(corpus, "gpt2", special_tokens=["<|endoftext|>"]), 500, start=small)
    assert moved.special_tokens == {"<|endoftext|>": 499}
    assert large.merges == moved.merges


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vocab-size", "300"], "--vocab-size 300 is below the"),
        (["--vocab-size", "500", "--field", "body", "--pattern", "gpt2"], "takes no pattern"),
    ],
)
def test_mistakes_exit_with_code_2(arguments, message, text, tmp_path, capsys):
    _small().save(tmp_path / "small")
    assert main.run(["extend", str(tmp_path / "small"), text, *arguments, "--to", str(tmp_path / "large")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "large").exists()


def test_an_existing_folder_is_not_written_over(text, tmp_path, capsys):
    _small().save(tmp_path / "small")
    small = str(tmp_path / "small")
    assert main.run(["extend", small, text, "--vocab-size", "500", "--to", small]) == 2
    assert f"--to {small} exists" in capsys.readouterr().err


@pytest.mark.parametrize("rules", ["uw-2025", "runs"])
def test_phase_2_continues_on_request(rules, text, tmp_path):
    small = _small()
    small.save(tmp_path / "small")
    corpus = Corpus(CorpusConfig(paths=[text], separator="<|doc|>"))
    arguments = [text, "--separator", "<|doc|>", "--vocab-size", "460", "--superbpe", rules]
    for options, expected in (
        ([], {"transition": 399}),
        (["--keep-ids"], {"keep_ids": True}),
        (["--transition", "380"], {"transition": 380}),
    ):
        to = tmp_path / "-".join(["large", *options])
        assert main.run(["extend", str(tmp_path / "small"), *arguments, *options, "--to", str(to)]) == 0
        direct = train_superbpe(small, corpus.batches, vocab_size=460, rules=rules, **expected)
        assert Tokenizer.load(to).sha256 == direct.sha256
        assert len(direct.superword_ids())


def test_imported_tokenizers_keep_their_ids_beneath_superwords(text, tmp_path):
    _small().save(tmp_path / "small")
    assert main.run(["export", str(tmp_path / "small"), str(tmp_path / "start.tiktoken"), "--to", "tiktoken"]) == 0
    start = Tokenizer.from_file(tmp_path / "start.tiktoken")
    arguments = [str(tmp_path / "start.tiktoken"), text, "--separator", "<|doc|>", "--vocab-size", "450"]
    assert main.run(["extend", *arguments, "--superbpe", "uw-2025", "--to", str(tmp_path / "large")]) == 0
    large = Tokenizer.load(tmp_path / "large")
    assert large.vocab[: start.vocab_size] == start.vocab
    assert large.special_tokens == start.special_tokens
    assert (large.vocab_size, large.fence is None) == (450, False)


def test_a_tokenizer_with_superwords_continues_phase_2(text, tmp_path, capsys):
    corpus = Corpus(CorpusConfig(paths=[text], separator="<|doc|>"))
    train_superbpe(_small(), corpus, vocab_size=400, rules="runs", transition=0.8).save(tmp_path / "start")
    assert (
        main.run(["extend", str(tmp_path / "start"), text, "--vocab-size", "500", "--to", str(tmp_path / "large")]) == 2
    )
    assert "start has superwords; add --superbpe RULES to continue phase 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--superbpe", "uw-2025", "--keep-ids", "--transition", "300"], "keep_ids keeps the whole tokenizer"),
        (["--superbpe", "boundless", "--keep-ids"], "interleave=True choose"),
        (["--transition", "300"], "requires --superbpe"),
        (["--superbpe", "runs", "--transition", "auto"], "superwords compete with"),
    ],
)
def test_mistakes_about_phase_2_exit_with_code_2(arguments, message, text, tmp_path, capsys):
    _small().save(tmp_path / "small")
    to = tmp_path / "large"
    assert main.run(["extend", str(tmp_path / "small"), text, "--vocab-size", "450", *arguments, "--to", str(to)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not to.exists()


def test_dropped_superwords_are_reported(text, tmp_path, capsys):
    _small().save(tmp_path / "small")
    arguments = [text, "--separator", "<|doc|>", "--superbpe", "uw-2025"]
    first = [str(tmp_path / "small"), *arguments, "--vocab-size", "430", "--to", str(tmp_path / "first")]
    assert main.run(["extend", *first]) == 0
    capsys.readouterr()
    again = [str(tmp_path / "first"), *arguments, "--vocab-size", "450", "--to", str(tmp_path / "second")]
    assert main.run(["extend", *again]) == 0
    assert "30 superword merges are replaced by new ones" in capsys.readouterr().out
