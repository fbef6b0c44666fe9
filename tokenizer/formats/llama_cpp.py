"""llama.cpp's name for a tokenizer's pattern.

llama.cpp knows a fixed list of pretokenization patterns (`src/llama-vocab.cpp`); a file only names one of them. A
tokenizer whose pattern is not in the list would get other ids.
"""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterable
from dataclasses import replace

from tokenizer import patterns
from tokenizer._native import DIGITS
from tokenizer.errors import UserError, quoted
from tokenizer.formats.hf import hf_json
from tokenizer.tokenizer import Tokenizer

# (pattern, ignore_merges) to llama.cpp's type. "trillion" is GPT-2's pattern, and "smaug-bpe" is Llama 3's with merges;
# unlike the type "gpt-2", "trillion" does not remove spaces before punctuation from decoded text.
TYPES = {
    ("gpt2", False): "trillion",
    ("llama3", False): "smaug-bpe",
    ("llama3", True): "llama-bpe",
    ("digits1", False): "qwen2",
    ("uw-paper-fence", False): "superbpe",
    ("phrases-fence", False): "exaone-moe",
}
# llama.cpp's `\d` matches ASCII digits only.
_ASCII_DIGITS = {"superbpe": "\\p{N}+\n(?=([0-9]{3})+(?![0-9]))"}
CRASHES = {
    "exaone-moe": "it crashes on tens of thousands of characters without punctuation, a digit or a line feed, because "
    "its regex engine recurses"
}
"""Types whose texts have a limit in llama.cpp."""


def pre_type(tokenizer: Tokenizer, *, mixed_digits: bool = False, texts: Iterable[str] = ()) -> str:
    """llama.cpp's name of the tokenizer's pretokenization pattern (`tokenizer.ggml.pre`).

    Args:
        tokenizer: the tokenizer.
        mixed_digits: accept other ids for numbers that mix ASCII digits with digits of another script.
        texts: more texts to look for such numbers in.

    Raises:
        UserError: llama.cpp would give other ids.
    """
    definition = tokenizer.definition
    hf_json(tokenizer)  # rejects two-pass tokenizers and ambiguous special tokens
    if definition.preparation:
        raise UserError("llama.cpp does not normalize text and this tokenizer does, or has added tokens: not exported")
    cut = definition.fence or definition.pattern
    named = patterns.equivalent(cut.regex.replace(DIGITS, r"\p{N}"))  # equal in the Unicode of llama.cpp
    name = "custom" if named is None else named.name
    if name == "spans":
        name = "llama3"  # the same pattern
    pre = TYPES.get((name, definition.ignore_merges))
    if pre is None:
        merges = " with ignore_merges" if definition.ignore_merges else ""
        words = sorted({name for name, _ in TYPES if not name.endswith("-fence")})
        raise UserError(
            f"llama.cpp has no pretokenizer type for {quoted(cut.name)}{merges} and would give other ids; train with "
            f"the pattern {' or '.join(words)} (superwords: rules phrases, or uw-paper with mixed_digits=True), or "
            "deploy with transformers or vLLM"
        )
    if regex := _ASCII_DIGITS.get(pre):
        theirs = Tokenizer(replace(definition, fence=patterns.resolve(regex)))

        def check(texts: Iterable[str], remedy: str) -> None:
            for text in texts:
                if tokenizer.encode_ordinary(text) != theirs.encode_ordinary(text):
                    raise UserError(
                        f"llama.cpp groups ASCII digits only, so {text[:20]!r} would get other ids; {remedy}"
                    )

        check(_numbers(""), "deploy with transformers or vLLM")
        if not mixed_digits:
            remedy = "accept that with mixed_digits=True, or deploy with transformers or vLLM"
            check([*_numbers("0123456789"), *texts], remedy)
    return pre


def _numbers(others: str) -> list[str]:
    """For each script, 400 random numbers of its digits, mixed with other digits."""
    rng = random.Random(0)
    zeros = [ord(c) for c in map(chr, range(0x110000)) if unicodedata.decimal(c, None) == 0]
    digits = [others + "".join(map(chr, range(zero, zero + 10))) for zero in zeros]
    return [" ".join("".join(rng.choices(script, k=rng.randint(2, 9))) for _ in range(400)) for script in digits]
