"""Script: open a tokenizer in other software and try it on a sample, within limits on time and memory.

`tokenizer.external.software` runs it as a child process. It imports nothing slow: NumPy takes longer to load than most
tokenizers.
"""

import sys
from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any

from tokenizer.system import limit_process

REJECTED = 3
"""Exit code: the software does not open the model. Any other code but 0 is a crash."""
_WORDS, _CHARACTERS, _TOKENS = 6, 5000, 5000
"""Long words and their length; tokens to decode one by one."""


def main(kind: str, seconds: int, n_bytes: int) -> None:
    """Open the model on standard input, of a `Software.kind`; encode the sample; decode its ids and single tokens."""
    limit_process(seconds, n_bytes)
    content = sys.stdin.buffer.read()
    parts = [b""]
    ids_of: Callable[[Any], Any]
    if kind == "sentencepiece":
        from sentencepiece import SentencePieceProcessor

        model = _attempt(SentencePieceProcessor, None, content) or sys.exit(REJECTED)
        size, name_of = model.vocab_size(), model.id_to_piece
        encode, ids_of = model.encode_as_offset_mapping, itemgetter("ids")
    else:
        from tokenizers import Tokenizer

        model = _attempt(Tokenizer.from_str, content.decode()) or sys.exit(REJECTED)
        size, name_of = model.get_vocab_size(), model.id_to_token
        encode, ids_of = model.encode, attrgetter("ids")
        parts = [part.__getstate__() for part in (model.normalizer, model.pre_tokenizer, model.decoder) if part]
    # Long words, spaces, a quarter of the characters below U+D800, and the strings that components cut or replace.
    words = [(name_of(i) or "").strip("#▁Ġ ") or "a" for i in range(0, size, size // _WORDS + 1)]
    texts = [(word * (_CHARACTERS // len(word) + 1))[:_CHARACTERS] for word in ("a", " ", *words)]
    texts.append("".join(map(chr, range(32, 0xD800, 4))))
    texts += [part[: 2 * _CHARACTERS].decode(errors="ignore") for part in parts]

    def use(text: str) -> None:
        model.decode(ids_of(encode(text)))

    for text in [*texts, "\n".join(texts)]:
        _attempt(use, text)
    for i in range(0, size, size // _TOKENS + 1):
        _attempt(model.decode, [i])


def _attempt(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result, or None after an error, which is no crash: a tokenizer may lack an unknown token, for example."""
    try:
        return call(*arguments)
    except MemoryError:
        raise
    except BaseException:  # panics of Rust included
        return None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
