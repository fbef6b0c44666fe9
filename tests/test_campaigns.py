"""Changed files and hostile text: all that was found, and generated cases, of which FUZZ_CASES sets the number."""

import gzip
import json
import random
import tempfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import strategies as st

from tests import changed_files
from tests.properties import examples
from tokenizer import Corpus, CorpusConfig, UserError

# Each was once an error other than a UserError, a message as long as the file, or another tokenizer.
FINDINGS = [
    ("hf", 28),
    ("hf", 788),
    ("hf", 1387),
    ("hf", 47244640434),
    ("hf", 133143986852),  # HF applies a second ByteLevel to the byte alphabet
    ("parquet", 703),
    ("parquet", 759),
    ("parquet", 1030),
    ("tiktoken", 12884904610),  # a change that contained itself
    ("shards", 8589935967),  # quoted a format of thousands of letters
    ("parquet", 90194314156),  # ended the process
]


@pytest.mark.parametrize(("kind", "number"), FINDINGS)
def test_what_was_found_stays_fixed(kind, number, tmp_path):
    changed_files.case(random.Random(f"{kind} {number}"), kind, tmp_path)


@examples(70, 200, kind=st.sampled_from(list(changed_files.KINDS)), number=st.integers(0, 2**40))
def test_changed_files_are_rejected_or_read_as_they_are(kind, number):
    with tempfile.TemporaryDirectory() as folder:
        changed_files.case(random.Random(f"{kind} {number}"), kind, Path(folder))


LINES = [
    b'{"text": "a"}',
    '{"text": "caf\u00e9 \u2028 x", "n": NaN}'.encode(),
    b'{"text": "first", "text": "last"}',
    b'{"text": "x", "text ": "y", "more": {"text": [1, {}]}}',
    b' \t{"text" : "b\\u0000\\n\\ud83d\\ude42"} \r',
    b'{"text": ""}',
    b"",
    b"   ",
    b'{"n": 1}',
    b'{"text": null}',
    b'{"text": 5}',
    b'{"text": "\\ud800"}',
    b'{"text": "\xff\xfe"}',
    b'{"text": "a"',
    b'{"text": "a"} {"text": "b"}',
    b'["text"]',
    b'"text"',
    b"\xef\xbb\xbf" + b'{"text": "bom"}',
    b'{"text": "' + b"x" * 300_000 + b'"}',
    b"[" * 5000,
    b'{"text": "tab\there"}',
]
"""Lines of JSON lines files: well-formed and odd ones, blank ones, and ones that are not documents."""


def parsed(lines: list[bytes]) -> tuple[list[str], bool]:
    """Documents of the lines by Python's parser, and whether a line is not a document with a text in UTF-8."""
    found, wrong = [], False
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            decoded = line.decode("utf-8" if number else "utf-8-sig")
            text = json.loads(decoded, strict=False)["text"]  # control characters in strings are read
            found += [text] if text.encode() else []
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            wrong = True
    return found, wrong


def compressed(rng: random.Random, content: bytes) -> tuple[str, bytes, bool]:
    """Suffix, content, and whether the end is missing."""
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}
    suffix = rng.choice(list(pack))
    at = rng.randint(0, len(content))
    members = [content] if rng.random() < 0.5 else [content[:at], content[at:]]
    packed = b"".join(map(pack[suffix], members))
    if suffix and rng.random() < 0.2:
        return suffix, packed[: -rng.randint(1, 8)], True
    padding = bytes(512) if suffix == ".gz" and rng.random() < 0.3 else b""  # as tapes add it
    return suffix, packed + padding, False


def read(path: Path, on_error: str) -> tuple[list[str], int] | str:
    """Non-empty documents and the number of what was skipped, or the error."""
    corpus = Corpus(CorpusConfig(paths=[str(path)], on_error=on_error, document_limit_bytes=1 << 20))
    try:
        with changed_files.limited():
            return [text for text in corpus.documents() if text], corpus.skipped.count
    except UserError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore")
@examples(40, 200, number=st.integers(0, 2**40))
def test_hostile_corpora_are_read_or_rejected(number):
    """What is read is what Python's parsers read, and whatever is skipped is counted."""
    rng = random.Random(f"corpora {number}")
    few = LINES[:8] if rng.random() < 0.4 else LINES
    lines = [rng.choice(few) for _ in range(rng.randint(0, 30))]
    texts, wrong = parsed(lines)
    content = rng.choice([b"\n", b"\r\n"]).join(lines) + rng.choice([b"", b"\n", b"\n\n \n"])
    with tempfile.TemporaryDirectory() as folder:
        suffix, content, cut = compressed(rng, content)
        path = Path(folder) / f"a.jsonl{suffix}"
        path.write_bytes(content)
        found = {on_error: read(path, on_error) for on_error in ("error", "skip")}
    strict, skipping = found["error"], found["skip"]
    if isinstance(strict, str):
        assert wrong or cut or not texts, f"{suffix} {lines!r:.3000}: {strict}"
        assert len(strict) < changed_files.LONGEST_MESSAGE, strict
    else:
        assert not cut, f"a cut {suffix} was read"
        assert strict[0] == texts, f"{suffix} {lines!r:.3000}: {strict[0]!r:.2000}"
    if not isinstance(skipping, str):
        documents, n_skipped = skipping
        assert n_skipped or (documents == texts and not cut), f"{suffix} {lines!r:.3000}: skipped without a word"
        assert cut or len(documents) + n_skipped >= len(texts), f"{suffix} {lines!r:.3000}: {n_skipped}"
