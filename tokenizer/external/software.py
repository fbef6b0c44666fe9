"""Software for tokenizers that our core cannot run: the packages `tokenizers` and `sentencepiece`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from tokenizer.definition import BYTE_CHARACTERS, MOST_IDS, unprintable
from tokenizer.errors import UserError, needs_extra, quoted, shortened
from tokenizer.external import trial
from tokenizer.files import parse_json

_META_SPACE = "▁"
_BYTES = {f"<0x{byte:02X}>": byte for byte in range(256)}
"""The pieces that stand for bytes."""


@contextmanager
def foreign(failure: str) -> Iterator[None]:
    """Raise errors of other software as UserErrors that begin with `failure`.

    A panic of `tokenizers` is not an Exception, only a BaseException. Rust has then already printed it to stderr: the
    package has no setting for that, and redirecting the descriptor would take the output of other threads along.
    """
    try:
        yield
    except (UserError, MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise UserError(f"{failure} ({shortened(error)})") from None


SECONDS, GIGABYTES = 20, 4
"""Limits of a trial on CPU time and memory; the largest tokenizers of docs/guarantees.md need a second and 0.2 GB."""


def _try(kind: str, content: bytes, name: str) -> None:
    """Open a model and use it in a child process; raise a UserError if it crashes or exceeds the limits."""
    command = [sys.executable, "-P", trial.__file__, kind, str(SECONDS), str(GIGABYTES << 30)]
    modules = os.pathsep.join(filter(None, sys.path))  # without the working folder
    # Each thread reserves memory. A backtrace takes longer than a panic.
    settings = os.environ | {"PYTHONPATH": modules, "TOKENIZERS_PARALLELISM": "false", "RUST_BACKTRACE": "0"}
    run = partial(subprocess.run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=settings)
    try:
        status = run(command, input=content, timeout=5 * SECONDS).returncode
    except subprocess.TimeoutExpired:  # it sleeps, or this system has no limit on CPU time
        status = -1
    if status not in (0, trial.REJECTED):
        raise UserError(
            f"{name} is damaged or hostile: to open it and to encode 100 kB, {kind} crashes, or needs more than "
            f"{SECONDS} s of CPU time or {GIGABYTES} GB of memory, ten times what tokenizers in use need; use another"
        )


_T = TypeVar("_T")
running: set[Future[Any]] = set()
"""Calls of other software that have not returned."""


def _interruptible(call: Callable[[], _T]) -> _T:
    """Call other software in a thread of its own: it ignores signals, but the wait for the thread does not."""
    future: Future[_T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)
        running.discard(future)

    running.add(future)
    threading.Thread(target=work, daemon=True).start()  # does not keep the process alive
    try:
        return future.result()
    except KeyboardInterrupt:
        wait([future], timeout=1.5)  # a thread that returns while the process exits would crash it
        raise


Encoded: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Ids of a text [n], and spans [n, 2]: start and end of each token in the text's UTF-8. Tokens that share a character
may have the same span; dropped text is in no span."""


class Software(ABC):
    """A tokenizer opened by other software.

    Attributes:
        kind: name of the package: "tokenizers" or "sentencepiece"; recorded in saved folders.
        file: name of the file for `content`.
        content: content of the model file; it determines all ids.
        version: package and version.
        vocab: bytes of each token in text, by id; b"" for an unused id.
        names: name of each token in the software's vocabulary, by id; None for an unused id.
        special_tokens: string to id of the tokens that are not text, including the unknown token.
        end_of_text: the special token that the model itself names as the end of a text; None if it names none.
        byte_ids: ids of the 256 bytes; -1 where a byte has no token.
        unknown_id: id of the unknown token; None if there is none.
    """

    kind: str
    file: str
    content: bytes
    version: str
    vocab: list[bytes]
    names: list[str | None]
    special_tokens: dict[str, int]
    end_of_text: str | None = None
    byte_ids: tuple[int, ...]
    unknown_id: int | None

    @abstractmethod
    def __init__(self, content: bytes, name: str, *, tried: bool = False) -> None:
        """Open the content of a model file with a name for messages; if it was not `tried` before, within limits."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Encode texts. Special strings are ordinary text, and no tokens are added around the texts."""

    @abstractmethod
    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The texts that rows of ids decode to."""


class SentencePiece(Software):
    """A SentencePiece model, Unigram or BPE, run by the package `sentencepiece`.

    Raises:
        UserError: the package is missing, or the content is not a model.
    """

    kind, file = "sentencepiece", "tokenizer.model"

    def __init__(self, content: bytes, name: str, *, tried: bool = False) -> None:
        with needs_extra(f"to read {name}: "):
            import sentencepiece
        if not tried:
            _try(self.kind, content, name)
        with foreign(f"{name} is not a SentencePiece model"):
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=content)
        self.content, self.version = content, f"sentencepiece {sentencepiece.__version__}"
        model = self._processor
        pieces = [str(model.id_to_piece(i)) for i in range(model.vocab_size())]
        self.names = list(pieces)
        self.unknown_id = int(model.unk_id())
        special = {i for i in range(len(pieces)) if model.is_control(i) or model.is_unknown(i)}
        self.special_tokens = {pieces[i]: i for i in sorted(special)}
        if int(model.eos_id()) in special:
            self.end_of_text = pieces[model.eos_id()]
        in_bytes = {piece: i for i, piece in enumerate(pieces) if model.is_byte(i)}
        self.byte_ids = tuple(in_bytes.get(name, -1) for name in _BYTES)
        self.vocab = [piece.replace(_META_SPACE, " ").encode() for piece in pieces]
        for i in range(len(pieces)):
            if model.is_unused(i):
                self.vocab[i] = b""
            elif model.is_byte(i):
                self.vocab[i] = bytes([_BYTES[pieces[i]]])
            elif i in special:
                self.vocab[i] = pieces[i].encode()

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Encode texts. They are passed as bytes, so that offsets are in bytes."""
        with foreign("sentencepiece cannot encode the text"):
            encode = self._processor.encode_as_offset_mapping
            found = _interruptible(lambda: [encode(text.encode()) for text in texts])
        return [(_row(one["ids"]), _row(one["offsets"]).reshape(-1, 2)) for one in found]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The texts that rows of ids decode to."""
        with foreign("sentencepiece cannot decode the ids"):
            return _interruptible(lambda: [str(self._processor.decode(list(row))) for row in ids])


class HuggingFace(Software):
    """A tokenizer.json, run by Hugging Face `tokenizers`.

    Post-processing, truncation and padding are disabled: they add or drop tokens, or trim offsets.

    Raises:
        UserError: the package is missing or cannot read the file, or the tokenizer gives random ids.
    """

    kind, file = "tokenizers", "tokenizer.json"

    def __init__(self, content: bytes, name: str, *, tried: bool = False) -> None:
        with needs_extra(f"to read {name}: "):
            import tokenizers
        config = parse_json(content, Path(name)) | {"post_processor": None, "truncation": None, "padding": None}
        _check(config.get("model"), name)
        self.content = json.dumps(config, ensure_ascii=False, sort_keys=True).encode()
        self.version = f"tokenizers {tokenizers.__version__}"
        if not tried:
            _try(self.kind, self.content, name)
        with foreign(f"tokenizers cannot read {name}"):
            self._tokenizer = tokenizers.Tokenizer.from_str(self.content.decode())
        model = config["model"] | {"type": type(self._tokenizer.model).__name__}
        parsed = {"model": model} | {part: config.get(part) for part in ("normalizer", "pre_tokenizer", "decoder")}
        self._tokenizer.encode_special_tokens = True
        added = self._tokenizer.get_added_tokens_decoder()
        names: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        self.unknown_id = model.get("unk_id") if model["type"] == "Unigram" else names.get(model.get("unk_token") or "")
        self.special_tokens = {token.content: i for i, token in added.items() if token.special}
        by_id = {i: string for string, i in names.items()}
        if self.unknown_id is not None:
            self.special_tokens.setdefault(by_id[self.unknown_id], self.unknown_id)
        literal = {*added, *self.special_tokens.values()}
        spelled = _spelling(parsed)
        self.vocab = [b""] * (max(names.values(), default=-1) + 1)
        self.names = [by_id.get(i) for i in range(len(self.vocab))]
        for string, i in names.items():
            self.vocab[i] = string.encode() if i in literal else spelled(string)
        falls_back = _has(parsed, "ByteFallback") or model.get("byte_fallback")
        byte_level = _has(parsed, "ByteLevel")
        in_bytes = [BYTE_CHARACTERS[byte] for byte in range(256)] if byte_level else [*_BYTES]
        self.byte_ids = tuple(names.get(name, -1) if byte_level or falls_back else -1 for name in in_bytes)

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Encode texts, converting character offsets to byte offsets."""
        with foreign("tokenizers cannot encode the text"):
            encode = partial(self._tokenizer.encode_batch, add_special_tokens=False)
            found = _interruptible(lambda: encode(list(texts)))
        return [
            (_row(one.ids), _character_starts(text)[_row(one.offsets)].reshape(-1, 2))
            for text, one in zip(texts, found, strict=True)
        ]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The texts that rows of ids decode to."""
        with foreign("tokenizers cannot decode the ids"):
            decode = partial(self._tokenizer.decode_batch, skip_special_tokens=False)
            texts: list[str] = _interruptible(lambda: decode([list(row) for row in ids]))
        return texts


SOFTWARE: dict[str, type[Software]] = {each.kind: each for each in (SentencePiece, HuggingFace)}
"""The software by the name of its package."""


def _check(model: Any, name: str) -> None:
    """Reject a model that gives random ids, or with which `tokenizers` would take any time or memory, or abort."""
    if not isinstance(model, dict):
        return
    if model.get("dropout"):
        raise UserError(f"{name} has a dropout of {quoted(model['dropout'])}, which gives random ids; set it to 0")
    ids = model["vocab"].values() if isinstance(model.get("vocab"), dict) else ()
    if (largest := max((i for i in ids if isinstance(i, int)), default=0)) >= MOST_IDS:
        raise UserError(f"{name} has the id {largest}: ids are below {MOST_IDS}")
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    for merge in merges if prefix and isinstance(merges, list) else ():
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not (isinstance(parts, list) and parts and str(parts[-1]).startswith(str(prefix))):
            raise UserError(
                f"{name} is damaged: the right part of the merge {quoted(merge)} does not begin with its "
                f"continuing_subword_prefix {quoted(prefix)}"
            )


def _row(values: Any) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def _character_starts(text: str) -> npt.NDArray[np.int64]:
    """int64 [characters + 1]: start of each character in the text's UTF-8, and the end of the text."""
    data = np.frombuffer(text.encode(), np.uint8)
    return np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))


def _spelling(config: dict[str, Any]) -> Callable[[str], bytes]:
    """Returns a function from a token's name in the vocabulary to its bytes in text."""
    model = config["model"]
    byte_level = _has(config, "ByteLevel")
    spaces = {part.get("replacement", _META_SPACE) for part in _parts(config) if part.get("type") == "Metaspace"}
    spaces |= {
        part["pattern"]["String"]
        for part in _parts(config.get("decoder"))
        if part.get("type") == "Replace" and part.get("content") == " " and "String" in part["pattern"]
    }
    falls_back = _has(config, "ByteFallback") or model.get("byte_fallback")
    prefix = model.get("continuing_subword_prefix") if model["type"] == "WordPiece" else None
    suffix = model.get("end_of_word_suffix") or ""

    def spell(name: str) -> bytes:
        name = name.removesuffix(suffix)
        if byte_level:
            return name.encode() if (found := unprintable(name)) is None else found
        if falls_back and name in _BYTES:
            return bytes([_BYTES[name]])
        for space in spaces:
            name = name.replace(space, " ")
        if prefix is not None:  # decoding inserts a space before a word
            name = name.removeprefix(prefix) if name.startswith(prefix) else f" {name}"
        return name.encode()

    return spell


def _has(config: dict[str, Any], kind: str) -> bool:
    return any(part.get("type") == kind for part in _parts({**config, "model": None}))


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    """All objects inside a JSON value."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _parts(part)
