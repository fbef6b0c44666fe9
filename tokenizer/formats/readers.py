"""Which other software opens a tokenizer and gives its ids."""

from __future__ import annotations

from typing import NamedTuple

from tokenizer.definition import Stored
from tokenizer.errors import UserError
from tokenizer.formats import tiktoken
from tokenizer.formats.hf import NEEDS_ENGINE, newest_readers
from tokenizer.formats.llama_cpp import CRASHES, pre_type
from tokenizer.interface import TokenizerLike
from tokenizer.tokenizer import Tokenizer

READERS = ("tokenizers 0.23", "tokenizers 1.0", "tiktoken", "llama.cpp", "nanochat")
"""The software, in the order of the answers."""


class Support(NamedTuple):
    """Whether a program gives a tokenizer's ids.

    Attributes:
        reader: the program, one of `READERS`.
        opens: whether it gives the ids, under the condition in `note` if there is one.
        note: the condition, or why it does not.
    """

    reader: str
    opens: bool
    note: str = ""

    @property
    def text(self) -> str:
        """The answer as one sentence."""
        if not self.opens:
            return f"no: {self.note}"
        return f"yes, but {self.note}" if self.note else "yes"


def opens_in(tokenizer: TokenizerLike) -> list[Support]:
    """For each of `READERS`, whether it opens an export of the tokenizer; empty if other software runs the tokenizer.

    >>> from tokenizer import train_bpe
    >>> [answer.text for answer in opens_in(train_bpe(["a text"], 260, pattern="gpt2"))[2:4]]
    ['yes', 'yes']
    """
    if not isinstance(tokenizer, Tokenizer):
        return []
    if tokenizer.mode == "two-pass":
        return [Support(reader, opens=False, note="it cannot encode in two passes") for reader in READERS]
    answers: list[Support] = []
    for reader, ask in zip(READERS, (_hf, _newest_hf, _tiktoken, _llama_cpp, _nanochat), strict=True):
        try:
            answers.append(Support(reader, opens=True, note=ask(tokenizer)))
        except UserError as error:
            answers.append(Support(reader, opens=False, note=str(error)))
    return answers


def summary(answers: list[Support]) -> str:
    """The answers as one line, without their reasons; empty if there are none.

    >>> summary([Answer("tiktoken", opens=True), Answer("llama.cpp", opens=True, note="long text crashes it")])
    'opens in tiktoken, llama.cpp (with a condition)'
    """
    opens = [f"{each.reader} (with a condition)" if each.note else each.reader for each in answers if each.opens]
    lacking = [each.reader for each in answers if not each.opens]
    parts = [f"opens in {', '.join(opens)}"] if opens else []
    parts += [f"not in {', '.join(lacking)}"] if lacking else []
    return "; ".join(parts)


def _hf(tokenizer: Tokenizer) -> str:
    newest_readers(tokenizer)
    return ""


def _newest_hf(tokenizer: Tokenizer) -> str:
    note = newest_readers(tokenizer)
    if note is None:
        return ""
    if note == NEEDS_ENGINE:
        raise UserError("it has no regex engine and does not know this pattern")
    return "ids differ for about 4,700 characters that Unicode 17 added"


def _tiktoken(tokenizer: Tokenizer) -> str:
    tiktoken.export(tokenizer)
    return ""


def _llama_cpp(tokenizer: Tokenizer) -> str:
    try:
        return CRASHES.get(pre_type(tokenizer), "")
    except UserError:
        pre_type(tokenizer, mixed_digits=True)
        return "ids differ for numbers that mix digits of scripts (export with --mixed-digits)"


def _nanochat(tokenizer: Tokenizer) -> str:
    tiktoken.export(Stored(tiktoken.for_nanochat(tokenizer.definition), {}))
    return ""
