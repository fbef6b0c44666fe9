"""A tokenizer of any format becomes a larger one, by the command line's own entry point."""

import pytest

from experiments.cli import main
from superbpe import PRESETS, train_superbpe
from tests import texts
from tests.tokenizer.formats.other_formats import write_gpt2
from tokenizer import Batch, Corpus, CorpusConfig, Tokenizer, count_pretokens, train_bpe


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("<|doc|>".join(texts.sample(60_000)), encoding="utf-8", newline="")
    return str(path)


@pytest.fixture(scope="module")
def corpus(text):
    return Corpus(CorpusConfig(paths=[text], separator="<|doc|>"))


@pytest.fixture(scope="module")
def trained():
    return train_bpe(count_pretokens([Batch.from_texts(texts.sample(60_000))], "gpt2"), 400)


@pytest.fixture
def small(trained, tmp_path):
    """A tokenizer, which is in the folder `small`."""
    trained.save(tmp_path / "small")
    return trained


def extend(start, text, *options):
    return main.run(["extend", str(start), text, "--separator", "<|doc|>", *map(str, options)])


@pytest.mark.parametrize("kind", ["superbpe", "hf", "gpt2", "tiktoken"])
def test_a_tokenizer_of_every_format_is_extended(kind, small, text, corpus, tmp_path, capsys):
    start = tmp_path / ("start.tiktoken" if kind == "tiktoken" else "start")
    if kind == "gpt2":
        write_gpt2(small, start)
    else:
        assert main.run(["export", str(tmp_path / "small"), str(start), "--to", kind]) == 0
    assert extend(start, text, "--vocab-size", 700, "--to", tmp_path / "large") == 0
    assert ": 700 tokens" in capsys.readouterr().out
    large = Tokenizer.load(tmp_path / "large")
    start_ids = Tokenizer.from_file(start)
    whole = train_bpe(count_pretokens(corpus, "gpt2", special_tokens=["<|endoftext|>"]), 700, start=start_ids)
    assert large.sha256 == whole.sha256
    assert large.vocab_size == 700
    # The same text in the same pieces, whatever the ids: bytes are numbered otherwise in other formats.
    held_out = texts.english()[1][0]
    direct = train_bpe(count_pretokens(corpus, "gpt2"), 700, start=small)
    pieces, expected = ([each.vocab[i] for i in each.encode_ordinary(held_out)] for each in (large, direct))
    assert pieces == expected


def test_ids_known_to_a_model_do_not_change(small, text, corpus, tmp_path):
    assert extend(tmp_path / "small", text, "--vocab-size", 500, "--keep-ids", "--to", tmp_path / "large") == 0
    large = Tokenizer.load(tmp_path / "large")
    assert large.vocab[:400] == small.vocab
    assert large.special_tokens == small.special_tokens == {"<|endoftext|>": 399}
    # The merges are those of a run that moves the special token.
    moved = train_bpe(count_pretokens(corpus, "gpt2", special_tokens=["<|endoftext|>"]), 500, start=small)
    assert moved.special_tokens == {"<|endoftext|>": 499}
    assert large.merges == moved.merges


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vocab-size", "300"], "--vocab-size 300 is below the"),
        (["--field", "body", "--pattern", "gpt2"], "takes no pattern"),
        (["--superbpe", "uw-2025", "--keep-ids", "--transition", "300"], "keep_ids keeps the whole tokenizer"),
        (["--superbpe", "boundless", "--keep-ids"], "such as digits"),
        (["--transition", "300"], "requires --superbpe"),
        (["--rule", "max_words=2"], "--rule max_words=2 needs phase 2"),
        (["--superbpe", "digits", "--rule", "fence=(("], "fence='((': the pattern"),
        (["--superbpe", "runs", "--transition", "auto"], "superwords compete with"),
    ],
)
def test_mistakes_exit_with_code_2(arguments, message, small, text, tmp_path, mistake):
    folder, to = tmp_path / "small", tmp_path / "large"
    assert message in mistake("extend", folder, text, "--vocab-size", "450", *arguments, "--to", to)
    assert not to.exists()
    assert f"--to {folder} exists" in mistake("extend", folder, text, "--vocab-size", "500", "--to", folder)


def test_the_size_is_rounded_up(small, text, tmp_path):
    folder = tmp_path / "small"
    for options, expected in (
        (["--multiple-of", 128], 512),
        (["--vocab-size", 513, "--multiple-of", 64], 576),
        (["--vocab-size", 576, "--multiple-of", 64], 576),
        (["--vocab-size", 500, "--multiple-of", 64, "--superbpe", "digits"], 512),
    ):
        to = tmp_path / f"to{options}"
        assert extend(folder, text, *options, "--to", to) == 0
        assert Tokenizer.load(to).vocab_size == expected
    assert extend(folder, text, "--to", tmp_path / "large") == 2


@pytest.mark.parametrize("rules", ["uw-2025", "runs"])
def test_phase_2_continues_on_request(rules, small, text, corpus, tmp_path):
    arguments = ["--vocab-size", 460, "--superbpe", rules]
    cases = {"": {"transition": 399}, "--keep-ids": {"keep_ids": True}, "--transition=380": {"transition": 380}}
    for option, expected in cases.items():
        to = tmp_path / f"large{option}"
        assert extend(tmp_path / "small", text, *arguments, *option.split(), "--to", to) == 0
        direct = train_superbpe(small, corpus.batches, vocab_size=460, rules=rules, **expected)
        assert Tokenizer.load(to).sha256 == direct.sha256
        assert len(direct.superword_ids())


def test_rules_and_special_tokens_are_added(small, text, corpus, tmp_path):
    options = ["--vocab-size", 460, "--superbpe", "digits", "--rule", r"fence=\p{N}+ #x", "--keep-ids"]
    assert extend(tmp_path / "small", text, *options, "--special", "[|a|]", "--to", tmp_path / "large") == 0
    large = Tokenizer.load(tmp_path / "large")
    assert (large.fence.regex, large.vocab_size) == (r"\p{N}+ #x", 460)
    assert large.special_tokens == {"<|endoftext|>": 399, "[|a|]": 400}
    start = Tokenizer(small.definition.with_special_tokens(["[|a|]"]))
    rules = PRESETS["digits"].changed([r"fence=\p{N}+ #x"])
    assert large == train_superbpe(start, corpus.batches, vocab_size=460, rules=rules, keep_ids=True)


def test_superwords_are_replaced_by_a_new_phase_2_and_the_dropped_ones_are_reported(
    small, text, tmp_path, mistake, capsys
):
    options = ["--superbpe", "uw-2025", "--vocab-size"]
    assert extend(tmp_path / "small", text, *options, 430, "--to", tmp_path / "first") == 0
    error = mistake("extend", tmp_path / "first", text, "--vocab-size", "500", "--to", tmp_path / "second")
    assert "first has superwords; add --superbpe RULES to replace them" in error
    assert extend(tmp_path / "first", text, *options, 450, "--to", tmp_path / "second") == 0
    assert "30 superword merges are replaced by new ones" in capsys.readouterr().out
    copy = tmp_path / "copy.json"
    assert main.run(["export", str(tmp_path / "first"), str(copy), "--to", "hf"]) == 0
    error = mistake("extend", copy, text, "--vocab-size", "500", "--to", tmp_path / "third")
    assert "copy.json is a copy of a tokenizer with superwords: its pattern uw-2025-fence does not cut between" in error
    assert extend(copy, text, *options, 450, "--to", tmp_path / "third") == 0
    assert "superwords stay; extend the original" in capsys.readouterr().out
