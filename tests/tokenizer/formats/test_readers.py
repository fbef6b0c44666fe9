"""Answers about other software are those of the exports."""

import pickle

import pytest

from superbpe import PHASE1, PRESETS, train_superbpe
from tests import other_tokenizers, texts
from tests.generated import merged
from tokenizer import Tokenizer, UserError, formats, patterns, train_bpe
from tokenizer.external.load import load_pretrained
from tokenizer.formats import tiktoken
from tokenizer.formats.readers import READERS, Support, opens_in, summary
from tokenizer.formats.tiktoken import NANOCHAT


def answers(tokenizer):
    found = opens_in(tokenizer)
    assert [answer.reader for answer in found] == list(READERS)
    return {answer.reader: answer for answer in found}


def superwords(name, documents):
    phase1 = train_bpe(documents, 420, pattern=PHASE1[name]["pattern"])
    transition = "auto" if name == "boundless" else 350
    return train_superbpe(phase1, documents, vocab_size=410, rules=name, transition=transition)


def is_written(write, tokenizer, *more):
    try:
        write(tokenizer, *more)
    except UserError:
        return False
    return True


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_answers_agree_with_the_exports():
    documents = texts.sample(20_000)
    made = {name: superwords(name, documents) for name in PRESETS}
    made |= {f"bpe {name}": train_bpe(documents, 300, pattern=name) for name in patterns.NAMES}
    llama_cpp = set()
    for name, tokenizer in made.items():
        found = answers(tokenizer)
        assert found["tokenizers 0.23"].opens == is_written(formats.hf_json, tokenizer)
        assert found["tiktoken"].opens == found["nanochat"].opens == is_written(tiktoken.export, tokenizer)
        if found["llama.cpp"].opens:
            llama_cpp.add(name)
        assert all(answer.opens or answer.note for answer in found.values())
    plain = {f"bpe {name}" for name in ("gpt2", "llama3", "spans", "digits1", "uw-paper-fence", "phrases-fence")}
    assert llama_cpp == {"uw-paper", "phrases"} | plain


def test_conditions_and_reasons():
    documents = texts.sample(40_000)
    found = answers(superwords("phrases", documents))
    assert "no: it has no regex engine" in found["tokenizers 1.0"].text
    assert "yes, but it crashes on tens of thousands of characters without punctuation" in found["llama.cpp"].text
    assert summary(list(found.values())) == (
        "opens in tokenizers 0.23, tiktoken, llama.cpp (with a condition), nanochat; not in tokenizers 1.0"
    )
    found = answers(train_bpe(documents, 300, pattern="o200k"))
    assert "about 4,700 characters" in found["tokenizers 1.0"].text
    assert "no pretokenizer type for 'o200k'" in found["llama.cpp"].text
    assert "rules phrases" in found["llama.cpp"].text
    mixed = merged([(b"1", b"2")], "uw-paper", fence="uw-paper-fence", n_phase1=1)
    assert "yes, but ids differ for numbers that mix digits" in answers(mixed)["llama.cpp"].text
    two_pass = merged([(b"a", b"b"), (b"ab", b"c")], fence="none", n_phase1=1, mode="two-pass")
    assert {answer.text for answer in opens_in(two_pass)} == {"no: it cannot encode in two passes"}
    assert summary([Support("tiktoken", opens=False, note="why")]) == "not in tiktoken"


@pytest.mark.parametrize("existing", [(), NANOCHAT[:2]])
def test_nanochat_opens_its_files(existing, tmp_path):
    """As nanochat/tokenizer.py opens `tokenizer.pkl`, and scripts/tok_train.py computes `token_bytes.pt`."""
    pytest.importorskip("tiktoken")
    torch = pytest.importorskip("torch")
    documents = texts.sample(40_000)
    tokenizer = train_bpe(documents, 300, special_tokens=[*existing, "<|endoftext|>"])
    assert answers(tokenizer)["nanochat"].text == "yes"
    formats.write(tokenizer, tmp_path / "out", "nanochat")
    ours = Tokenizer.load(tmp_path / "out")
    assert (ours.end_of_text, ours.special_tokens["<|bos|>"]) == ("<|bos|>", ours.end_id)
    assert ours.encode_ordinary(documents[0]) == tokenizer.encode_ordinary(documents[0])
    encoding = pickle.loads((tmp_path / "out" / "tokenizer.pkl").read_bytes())
    assert encoding.n_vocab == ours.vocab_size
    specials = [encoding.encode_single_token(string) for string in NANOCHAT]
    assert specials[: len(existing)] == [tokenizer.special_tokens[string] for string in existing]
    assert specials[len(existing) :] == list(range(300, encoding.n_vocab))
    assert encoding.encode_ordinary_batch(documents) == [tokenizer.encode_ordinary(text) for text in documents]
    marked = {encoding.encode_single_token(string) for string in encoding.special_tokens_set}
    expected = [0 if i in marked else len(encoding.decode_single_token_bytes(i)) for i in range(encoding.n_vocab)]
    lengths = torch.load(tmp_path / "out" / "token_bytes.pt", weights_only=True)
    assert (lengths.dtype, lengths.tolist()) == (torch.int32, expected)


def test_a_start_of_a_special_token_is_rejected(tmp_path):
    tokenizer = train_bpe(texts.sample(4_000), 270, special_tokens=["<|bos"])
    assert "its special token '<|bos' is a prefix of '<|bos|>'" in answers(tokenizer)["nanochat"].text
    with pytest.raises(UserError, match="is a prefix of"):
        formats.write(tokenizer, tmp_path / "out", "nanochat")
    assert not (tmp_path / "out").exists()


def test_nothing_is_said_about_tokenizers_of_other_software(tmp_path):
    pytest.importorskip("tokenizers")
    path = other_tokenizers.write(tmp_path, "lowercased_bytes")
    assert opens_in(load_pretrained(path).tokenizer) == []
