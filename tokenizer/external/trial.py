"""Script: open a tokenizer in other software and try it on a sample, within limits on time and memory.

`tokenizer.external.software` runs it as a child process. It imports nothing of this package: NumPy takes longer to load
than most tokenizers.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

REJECTED = 3
"""Exit code: the software does not open the model. Any other code but 0 is a crash."""
_WORDS, _CHARACTERS, _PART_BYTES, _TOKENS = 6, 5000, 10_000, 5_000
"""Long words and their length; bytes of each component's JSON; tokens to decode one by one."""


def main(kind: str, seconds: int, n_bytes: int) -> None:
    """Open the model on standard input, encode the sample, and decode its ids and single tokens.

    Args:
        kind: The software, as in `Software.kind`.
        seconds: Limit on CPU time.
        n_bytes: Limit on memory.

    Raises:
        MemoryError: The limit on memory was reached.
    """
    for name, value in (("CPU", seconds), ("AS", n_bytes), ("CORE", 0)):
        with suppress(ImportError, OSError, ValueError):  # Windows has no limits, macOS not all of them
            import resource

            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    content = sys.stdin.buffer.read()
    if kind == "sentencepiece":
        from sentencepiece import SentencePieceProcessor

        model = _opened(lambda: SentencePieceProcessor(model_proto=content))
        size = model.vocab_size()
        texts = sample([model.id_to_piece(i) for i in _spread(size, _WORDS)])
        _use(texts, lambda text: model.encode_as_offset_mapping(text.encode())["ids"], model.decode, size)
    else:
        from tokenizers import Tokenizer

        model = _opened(lambda: Tokenizer.from_str(content.decode()))
        model.encode_special_tokens = True
        size = model.get_vocab_size()
        parts = [part.__getstate__() for part in (model.normalizer, model.pre_tokenizer, model.decoder) if part]
        texts = sample([model.id_to_token(i) or "" for i in _spread(size, _WORDS)], parts)
        _use(texts, lambda text: model.encode(text).ids, lambda ids: model.decode(ids, False), size)


def _opened(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except MemoryError:
        raise
    except BaseException:  # panics of Rust included
        sys.exit(REJECTED)


def _use(texts: list[str], encode: Callable[[str], list[int]], decode: Callable[[list[int]], str], size: int) -> None:
    """Encode and decode. Errors are no failure: a tokenizer may lack an unknown token, for example."""
    calls = [partial(lambda text: decode(encode(text)), text) for text in texts]
    for call in [*calls, *(partial(decode, [i]) for i in _spread(size, _TOKENS))]:
        try:
            call()
        except MemoryError:
            raise
        except BaseException:  # noqa: S110  (panics of Rust included)
            pass


def sample(names: Sequence[str], parts: Sequence[bytes] = ()) -> list[str]:
    """Return texts of 100 kB in all, and the same as one text.

    They are a quarter of the characters below U+D800, long words, a line of spaces, and the file's own strings.

    Args:
        names: Tokens of the vocabulary; each is repeated to a long word.
        parts: JSON of components, which may cut or replace strings that are nowhere else.
    """
    words = [name.strip("#▁Ġ ") or "a" for name in ("a", *names)]
    texts = [(word * (_CHARACTERS // len(word) + 1))[:_CHARACTERS] for word in [*words, " "]]
    texts.append("".join(map(chr, range(32, 0xD800, 4))))
    texts += [part[:_PART_BYTES].decode(errors="ignore") for part in parts]
    return [*texts, "\n".join(texts)]


def _spread(size: int, n: int) -> range:
    """At most n ids, over the whole vocabulary."""
    return range(0, size, -(-size // n) or 1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
