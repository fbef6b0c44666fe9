"""Load files that were changed at random: what loads is what was written, or what other software reads; else one line.

Of a file with a checksum, every change that loads gives the content that was written. A file of other software may be
changed into another valid one: then that software gives the same ids, or the same texts. Anything else is a
`UserError`.
A load takes at most `SECONDS` and `MEGABYTES`.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import zstandard

from tests import texts
from tests.tokenizer.corpus.corpora import write_jsonl, write_parquet
from tests.tokenizer.formats.other_formats import added, hf_file, sequence, split, write_gpt2
from tokenizer import Batch, Corpus, CorpusConfig, PretokenCounts, Tokenizer, UserError, count_pretokens, formats
from tokenizer import train_bpe as train

if TYPE_CHECKING:
    import random

SECONDS = 20
MEGABYTES = 2000
LONGEST_MESSAGE = 4000

TEXTS = [
    "",
    "the cat sat on the mat, abc",
    "a  b\n\ncafé ab abc bc xyz 1234 <s> don't",
    "日本語 🙂 <a> \x00" + "ab" * 50,
]


@dataclass(frozen=True)
class Kind:
    """A file format.

    Attributes:
        write: Write a valid file or folder below an empty folder.
        load: Load it, completely; the result is compared with `==`.
        other: Load with other software; None where only the original content may be loaded. It may raise any error.
    """

    write: Callable[[Path], object]
    load: Callable[[Path], Any]
    other: Callable[[Path], Any] | None = None


def case(rng: random.Random, kind: str, folder: Path) -> str:
    """Change a file of a valid sample and load it.

    Returns:
        "loaded", "rejected", or "loaded here alone" where other software rejects the file.

    Raises:
        AssertionError: The content is another one than it should be.
        BaseException: Anything else than a `UserError` is raised.
    """
    shutil.copytree(_sample(kind), folder, dirs_exist_ok=True)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = rng.choice(files)
    content = path.read_bytes()
    structured = path.suffix == ".json" and rng.random() < 0.6
    path.write_bytes((changed_json if structured else changed_bytes)(rng, content))
    form = KINDS[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with limited():
                found = form.load(folder)
        except UserError as error:
            message = str(error)
            if not 0 < len(message) < LONGEST_MESSAGE:
                raise AssertionError(message) from error
            return "rejected"
    if form.other is None:
        assert found == _original(kind), f"another {kind} was loaded"
        return "loaded"
    try:
        expected = form.other(folder)
    except KeyboardInterrupt:
        raise
    except BaseException:  # panics of Rust included
        return "loaded here alone"
    assert found == expected, f"other software reads {expected!r:.2000}, not {found!r:.2000}"
    return "loaded"


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Limit time and memory: more of them is an error."""
    import resource

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)

    def stop(*_: object) -> None:
        raise TimeoutError(f"a load takes more than {SECONDS} s of CPU")

    before = signal.signal(signal.SIGPROF, stop)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEGABYTES * 1_000_000, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)


@cache
def _sample(kind: str) -> Path:
    folder = Path(_scratch().name) / kind
    folder.mkdir()
    KINDS[kind].write(folder)
    return folder


@cache
def _original(kind: str) -> Any:
    return KINDS[kind].load(_sample(kind))


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fuzz-")


# ------------------------------------------------------------------------------------------------------ tokenizers


def ids(tokenizer: Tokenizer) -> list[list[int]]:
    """Ids of some texts, special strings included as ordinary text."""
    return [tokenizer.encode_ordinary(text) for text in TEXTS]


def load_folder(folder: Path) -> tuple[str, list[list[int]], list[bytes]]:
    """Definition and behaviour of a tokenizer in a folder of ours."""
    tokenizer = Tokenizer.load(folder)
    return tokenizer.sha256, ids(tokenizer), list(tokenizer.vocab)


@cache
def plain() -> Tokenizer:
    """60 merges."""
    return train(count_pretokens([Batch.from_texts(texts.sample(20_000))], "gpt2"), 317)


@cache
def superwords(mode: str) -> Tokenizer:
    """30 merges of phase 1 and 30 of phase 2."""
    from superbpe import Rules, train_superbpe

    rules = Rules(phase1_fence="kept", fence="uw-2025-fence") if mode == "two-pass" else "uw-2025"
    batch = Batch.from_texts(texts.sample(20_000))
    return train_superbpe(plain(), lambda: [batch], vocab_size=317, transition=286, rules=rules)


def hf_ids(path: Path) -> list[list[int]]:
    """Ids of HF `tokenizers`."""
    import tokenizers

    theirs = tokenizers.Tokenizer.from_file(str(path))
    theirs.encode_special_tokens = True
    theirs.no_truncation()
    theirs.no_padding()
    return [theirs.encode(text, add_special_tokens=False).ids for text in TEXTS]


def write_hf(folder: Path) -> None:
    """A tokenizer.json with everything that can be imported."""
    hf_file(
        folder,
        pre_tokenizer=sequence(split(r"\p{N}{1,3}"), split(r" ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+")),
        normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}]},
        added_tokens=[added("<s>", 260), added("<a>", 261, special=False, normalized=True)],
    )


def gpt2_ids(folder: Path) -> list[list[int]]:
    """Ids of HF `tokenizers` for GPT-2's files; our reader takes tokens that nothing makes as special tokens."""
    import tokenizers

    model = tokenizers.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    theirs = tokenizers.Tokenizer(model)
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return [theirs.encode(text).ids for text in TEXTS]


def tiktoken_ids(folder: Path) -> list[list[int]]:
    """Ids of tiktoken, with the regex that the file beside the ranks names."""
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe

    ranks = load_tiktoken_bpe(str(folder / "t.tiktoken"))
    about = json.loads((folder / "t.tiktoken.json").read_bytes())
    pattern = formats.tiktoken.covering(formats.tiktoken.patterns.resolve(about["pattern"]))
    special = about.get("special_tokens", {})
    theirs = tiktoken.Encoding("other", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
    return [theirs.encode_ordinary(text) for text in TEXTS]


# ------------------------------------------------------------------------------------------------------ the others


def write_shards_of(folder: Path) -> None:
    from lm.data.sharding import ShardConfig, write_shards

    write_shards(folder / "s", plain(), [Batch.from_texts(texts.various()[16:22])], ShardConfig(500))


def read_shards(folder: Path) -> Any:
    from lm.data.shards import Shards

    shards = Shards.open(folder / "s", plain(), verify="always")
    documents = [shards.document(i).tolist() for i in range(shards.n_documents)]
    return documents, shards.document_bytes.tolist(), shards.n_bytes, shards.n_tokens


def write_counts(folder: Path) -> None:
    count_pretokens([Batch.from_texts(texts.sample(3000))], "gpt2").save(folder / "counts.parquet")


def write_model(folder: Path) -> None:
    from lm.model.weights import save_model
    from tests.lm import tiny

    save_model(tiny.model(300), folder)


def read_model(folder: Path) -> Any:
    from lm.model.weights import load_model

    model = load_model(folder)
    return {name: value.tolist() for name, value in model.state_dict().items()}, model.vocab_size, model.context_tokens


DOCUMENTS = [{"text": text, "n": i, "more": {"a": [1.5, None, True]}} for i, text in enumerate(texts.various()[:20])]


def read_texts(folder: Path) -> list[str]:
    return list(Corpus(CorpusConfig(paths=[str(next(folder.iterdir()))], document_limit_bytes=1 << 20)).documents())


def read_lines(folder: Path) -> list[str]:
    """Non-empty texts of JSON lines, by Python's parser and decompressors."""
    path = next(folder.iterdir())
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    elif path.suffix == ".zst":
        content = zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True).read()
    lines = content.split(b"\n")
    found = [json.loads(line.decode("utf-8"), strict=False)["text"] for line in lines if line.strip()]
    return [text for text in found if text]


def read_table(folder: Path) -> list[str]:
    """Non-empty texts of a Parquet file, by pyarrow."""
    found = pq.read_table(next(folder.iterdir()), columns=["text"])["text"].to_pylist()
    return [text.decode() if isinstance(text, bytes) else text for text in found if text]


KINDS = {
    "folder": Kind(plain().save, load_folder),
    "folder of superwords": Kind(lambda folder: superwords("one-pass").save(folder), load_folder),
    "folder of two passes": Kind(lambda folder: superwords("two-pass").save(folder), load_folder),
    "hf": Kind(
        write_hf,
        lambda folder: ids(Tokenizer.from_file(folder / "tokenizer.json")),
        lambda folder: hf_ids(folder / "tokenizer.json"),
    ),
    "gpt2": Kind(lambda folder: write_gpt2(plain(), folder), lambda folder: ids(Tokenizer.from_file(folder)), gpt2_ids),
    "tiktoken": Kind(
        lambda folder: formats.write(plain(), folder / "t.tiktoken", "tiktoken"),
        lambda folder: ids(Tokenizer.from_file(folder / "t.tiktoken")),
        tiktoken_ids,
    ),
    "shards": Kind(write_shards_of, read_shards),
    "counts": Kind(write_counts, lambda folder: list(PretokenCounts.load(folder / "counts.parquet").items())),
    "model": Kind(write_model, read_model),
    "jsonl": Kind(lambda folder: write_jsonl(folder / "a.jsonl", DOCUMENTS), read_texts, read_lines),
    "jsonl.gz": Kind(lambda folder: write_jsonl(folder / "a.jsonl.gz", DOCUMENTS), read_texts, read_lines),
    "jsonl.zst": Kind(lambda folder: write_jsonl(folder / "a.jsonl.zst", DOCUMENTS), read_texts, read_lines),
    "parquet": Kind(lambda folder: write_parquet(folder / "a.parquet", DOCUMENTS), read_texts, read_table),
}


# ------------------------------------------------------------------------------------------------------ changes

_NUMBERS = [0, -1, 1, 255, 256, 65_536, (1 << 24) - 1, 1 << 24, 1 << 31, 1 << 32, 1 << 63, 1 << 64, 1e308, 0.5, -0.0]
_STRINGS = [
    "",
    " ",
    "a",
    "Ġ",
    "Ġthe",
    "\x00",
    "\ud800",
    "\ufeff",
    "<|endoftext|>",
    "é",
    "(",
    "(a+)+$",
    "gpt2",
    "a" * 5000,
]
_VALUES: list[Any] = [*_NUMBERS, *_STRINGS, None, True, False, [], {}, [[]], {"a": 1}, [["a", "b"]], float("nan")]


def changed_bytes(rng: random.Random, content: bytes) -> bytes:
    """The content with one to four changes: bits flipped, parts removed, repeated, moved or overwritten, or cut off."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if not changed:
            changed += bytes([rng.randrange(256)])
        start = rng.randrange(len(changed))
        end = min(start + rng.choice([1, 2, 4, 8, 30, 300]), len(changed))
        part = bytes(changed[start:end])
        match rng.randrange(9):
            case 0 | 1:
                changed[start] ^= 1 << rng.randrange(8)
            case 2:
                changed[start] = rng.choice(b'\x00\xff"{}[],:\\ \n\r0-9eE.\xed')
            case 3:
                del changed[start:end]
            case 4:
                changed[start:start] = part * rng.choice([1, 2, 50])
            case 5:
                to = rng.randrange(len(changed))
                changed[to : to + len(part)] = part
            case 6:
                changed[start:end] = bytes(rng.choice([[0], [255]]) * (end - start))
            case 7:
                width = rng.choice([1, 2, 4, 8])
                number = rng.choice([0, 1, (1 << 8 * width) - 1, 1 << (8 * width - 1), (1 << (8 * width - 1)) - 1])
                changed[start : start + width] = number.to_bytes(width, "little")
            case _:
                del changed[start:]
    return bytes(changed)


def changed_json(rng: random.Random, content: bytes) -> bytes:
    """A JSON file with one to three values replaced, removed, repeated or moved; most changes are near the root."""
    value = json.loads(content)
    for _ in range(rng.choice([1, 1, 2, 3])):
        _change(rng, value)
    return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _change(rng: random.Random, holder: list[Any] | dict[str, Any]) -> None:
    """Change a random value of `holder` or of a container in it."""
    keys: list[Any] = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    if not keys:
        return
    key = rng.choice(keys)
    value = holder[key]
    if isinstance(value, list | dict) and value and rng.random() < 0.85:
        _change(rng, value)
        return
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1:
            other = rng.choice(keys)
            holder[key], holder[other] = holder[other], value
        case 2 if isinstance(holder, dict):
            holder[rng.choice([*_STRINGS, *map(str, keys[:3])])] = deepcopy(value)
        case 2:
            holder.insert(rng.randrange(len(keys) + 1), deepcopy(value))
        case 3 if isinstance(value, int):
            holder[key] = value + rng.choice([-1, 1, 256])
        case 3 if isinstance(value, str):
            at = rng.randrange(len(value) + 1)
            holder[key] = value[:at] + rng.choice(_STRINGS) + value[at + rng.randrange(2) :]
        case _:
            holder[key] = deepcopy(rng.choice(_VALUES))
