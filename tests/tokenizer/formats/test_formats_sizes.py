"""Imported tokenizers cut and extended; the command that converts."""

import random
import time

import pytest

from experiments.cli import main
from tests.tokenizer.formats.other_formats import added, hf_file, write_gpt2
from tokenizer import Tokenizer, UserError, formats
from tokenizer.definition import printable
from tokenizer.formats.hf import overlap


def test_overlaps_of_added_tokens_are_those_of_the_definition_and_found_fast():
    rng, n_overlapping = random.Random(0), 0
    for _ in range(5000):
        letters = rng.choice(["ab", "abc", "abcdefgh"])
        names = {"".join(rng.choices(letters, k=rng.randint(1, 5))) for _ in range(rng.randint(0, 4))}
        flags = {name: {"normalized": rng.random() < 0.5} for name in names}
        pairs = [(a, b) for a in names for b in names if flags[a] != flags[b]]
        expected = any(a in b or any(a.endswith(b[:n]) for n in range(1, min(len(a), len(b)))) for a, b in pairs)
        assert overlap(flags) == expected, flags
        n_overlapping += expected
    assert 1000 < n_overlapping < 4000
    many = {f"<{'thing' if i % 2 else '|mark|'}{i}>": {"normalized": i % 2} for i in range(40_000)}
    started = time.process_time()
    assert not overlap(many)  # a billion pairs took hours
    assert time.process_time() - started < 20


def test_saving_many_added_tokens_takes_no_longer_than_loading_them(tmp_path):
    pytest.importorskip("transformers")
    from tokenizer.hf import SuperBPETokenizerFast

    tokens = [added(f"<thing{i}>", 260 + i, special=i % 2 == 0, normalized=i % 2 == 1) for i in range(2000)]
    tokenizer = Tokenizer.from_file(hf_file(tmp_path, added_tokens=tokens))
    started = time.process_time()
    SuperBPETokenizerFast.from_tokenizer(tokenizer).save_pretrained(tmp_path / "saved")
    assert time.process_time() - started < 20
    assert Tokenizer.load(tmp_path / "saved").sha256 == tokenizer.sha256


# Other sizes.


def test_imported_tokenizers_are_cut_where_their_ids_allow(trained, tmp_path):
    hf = {printable(token): i for i, token in enumerate(trained["gpt2"].vocab[:1199])}
    bytes_backwards = {printable(bytes([i])): 255 - i for i in range(256)}
    vocab = dict(sorted((hf | bytes_backwards).items(), key=lambda item: item[1]))
    merges = [f"{printable(left)} {printable(right)}" for left, right in trained["gpt2"].merges]
    specials = [added("<s>", 1199), added("</s>", 1200)]
    whole = Tokenizer.from_file(hf_file(tmp_path, model_vocab=vocab, model_merges=merges, added_tokens=specials))
    cut = whole.cut(700)
    assert (cut.vocab_size, cut.special_tokens) == (700, {"<s>": 698, "</s>": 699})
    assert cut.vocab[:698] == whole.vocab[:698]
    assert cut.merges == whole.merges[: 698 - 256]
    first = {name: i + 1 for name, i in vocab.items()} | {"<s>": 0}
    fixed = Tokenizer.from_file(
        hf_file(tmp_path, model_vocab=first, model_merges=merges, added_tokens=[added("<s>", 0)])
    )
    assert fixed.cut(700).special_tokens == {"<s>": 0}
    assert fixed.cut(700).vocab == fixed.vocab[:700]
    shuffled = Tokenizer.from_file(hf_file(tmp_path, model_merges=["b c", "a b"]))
    with pytest.raises(UserError, match=r"ids .*order of its merges"):
        shuffled.cut(258)
    assert shuffled.cut(259).unmerged == {b"abc": 257}
    derived = Tokenizer.from_file(hf_file(tmp_path, model_merges=["a b", "a bc", "b c"]))
    assert derived.cut(258).unmerged == {b"abc": 257}
    assert derived.cut(258).encode("abc") == [256, 99]


def test_extending_appends_and_changes_no_id(trained):
    plain = trained["gpt2"]
    size = plain.vocab_size
    the, of = (plain.vocab.index(token) for token in (b" the", b" of"))
    longer = plain.extended([(the, of), (size, the)], provenance={"more": 2})
    assert longer.vocab[:size] == plain.vocab
    assert longer.vocab[size:] == [b" the of", b" the of the"]
    assert longer.special_tokens == plain.special_tokens
    assert longer.n_phase1_merges == len(plain.merge_ids) + 2
    assert longer.provenance["more"] == 2
    assert plain.extended([]).sha256 == plain.sha256
    superwords = trained["superwords"]
    again = superwords.extended([(superwords.merge_ids[-1, 2], the)])
    assert (again.fence, again.n_phase1_merges) == (superwords.fence, superwords.n_phase1_merges)
    for pairs, message in [
        ([(the, size)], f"merge .* joins the ids .*{size}"),
        ([(-1, the)], "does not exist yet"),
        ([(the, plain.special_tokens["<|endoftext|>"])], "or is a special token"),
        ([(the, of), (the, of)], "spelled by two tokens"),
    ]:
        with pytest.raises(UserError, match=message):
            plain.extended(pairs)


def test_incomplete_lists_are_not_exported_as_ranks(tmp_path):
    for merges in (["a b", "ab c", "b c", "a bc"], ["a b", "b c"], ["ab c", "a b", "b c"]):
        with pytest.raises(UserError, match="a list of merges"):
            Tokenizer.from_file(hf_file(tmp_path, model_merges=merges)).ranks()
    tokenizer = Tokenizer.from_file(hf_file(tmp_path, model_merges=["b c", "ab c", "a b"]))
    ordinary = tokenizer.ordinary_ids().tolist()
    assert ordinary[:2] == [ord("!"), ord('"')]
    assert ordinary[256:] == [258, 257, 256, 259]


# The command.


def test_the_command_converts(trained, tmp_path, capsys):
    trained["superwords"].save(tmp_path / "ours")
    for source, output, *options in (
        ("ours", "a.tiktoken", "--to", "tiktoken"),
        ("a.tiktoken", "hf", "--to", "hf"),
        ("hf", "small", "--to", "superbpe", "--cut", "600"),
    ):
        assert main.run(["export", str(tmp_path / source), str(tmp_path / output), *options]) == 0
        assert output in capsys.readouterr().out
    small = Tokenizer.load(tmp_path / "small")
    assert small.vocab_size == 600
    assert small.vocab[:599] == trained["superwords"].vocab[:599]
    assert not [path for path in tmp_path.rglob("*") if "partial" in path.name]


def test_mistakes_of_the_command_are_one_line_and_code_2(trained, tmp_path, mistake):
    trained["two_pass"].save(tmp_path / "ours")
    write_gpt2(trained["gpt2"], tmp_path / "gpt2")
    for source, options, message in (
        ("ours", ["--to", "hf"], "error: a two-pass tokenizer cannot be written as tokenizer.json"),
        ("nothing", ["--to", "hf"], "nothing"),
        ("gpt2", ["--pattern", "gpt3", "--to", "hf"], "unknown pattern 'gpt3' (did you mean 'gpt2'?)"),
        ("gpt2", ["--special", "x", "--to", "hf"], "--special"),
        ("gpt2", ["--to", "sp"], "--to"),
    ):
        assert message in mistake("export", tmp_path / source, tmp_path / "x", *options)
        assert not (tmp_path / "x").exists()


def test_special_tokens_of_ranks_come_from_the_command(trained, tmp_path):
    formats.write(trained["gpt2"], tmp_path / "x.tiktoken", "tiktoken")
    (tmp_path / "x.tiktoken.json").unlink()
    options = ["--pattern", "gpt2", "--special", "<|endoftext|>=1199", "--special", "a=b=1200", "--to", "superbpe"]
    assert main.run(["export", str(tmp_path / "x.tiktoken"), str(tmp_path / "y"), *options]) == 0
    assert Tokenizer.load(tmp_path / "y").special_tokens == {"<|endoftext|>": 1199, "a=b": 1200}
