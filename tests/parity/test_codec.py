"""Spans beside HF `tokenizers`, special strings beside `tiktoken`, on generated text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import texts
from tests.parity.peers import as_tiktoken
from tokenizer import Tokenizer, UserError, patterns

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("tiktoken")


@pytest.mark.parametrize("name", ["gpt2", "llama3", "none", "superwords", "spans_superwords", "unfenced"])
def test_character_spans_equal_hf(name, trained, tmp_path):
    ours = trained[name]
    ours.save(tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in [
        *texts.various(),
        *texts.english()[1][:10],
        texts.generated(11),
        "🙂🙂é日本",
        "",
        "x<|endoftext|>é<|endoftext|>",
    ]:
        expected = theirs.encode(text)
        found = ours.encode_with_offsets(text, allowed_special="all")
        assert found.ids.tolist() == expected.ids
        assert [tuple(span) for span in found.characters.tolist()] == expected.offsets


# No string is the start of another: where one is, tiktoken takes whichever its table lists first, we the longest.
SPECIALS = ["<|a|>", "<|b|>", "[x]", "|>[", "日本", " y "]


@pytest.fixture(scope="module")
def both(trained):
    ours = Tokenizer.from_ranks(trained["gpt2"].ranks(), pattern=patterns.resolve("gpt2"), special_tokens=SPECIALS)
    return ours, as_tiktoken(ours)


@given(
    text=st.text(alphabet="<|ab>[x] y日本", max_size=24),
    allowed=st.one_of(st.just("all"), st.sets(st.sampled_from(SPECIALS))),
    disallowed=st.one_of(st.just("all"), st.sets(st.sampled_from([*SPECIALS, "a", "<|"]))),
)
@settings(max_examples=500, deadline=None, derandomize=True)
def test_special_strings_of_generated_text_equal_tiktoken(both, text, allowed, disallowed):
    ours, theirs = both
    options = {"allowed_special": allowed, "disallowed_special": disallowed}
    try:
        expected = theirs.encode(text, **options)
    except ValueError:
        with pytest.raises(UserError, match="contains the special string"):
            ours.encode(text, **options)
    else:
        assert ours.encode(text, **options) == expected
