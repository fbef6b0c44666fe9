"""The embedded corpus: real English text that ships with a Python package.

`botocore` contains the service models of AWS as data (`data/SERVICE/VERSION/service-2.json.gz`), with about
30 MB of documentation: modern technical prose with many recurring phrases, under Apache-2.0. Reading it needs
no download at run time and no file in the repository.

Duplicate *texts* are dropped (a text is one `documentation` value after stripping its HTML): each distinct text
stays at its first position in the fixed order of the corpus, and a document without text is dropped. Dropping
duplicate documents would not be enough: operations of one service share most of their members.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizer.durable import replacing
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tokenizer.progress import Progress

BOTOCORE_VERSION = "1.44.5"
HELDOUT_FRACTION = 0.05
FORMAT = 1
"""Version of the extraction rules below: part of the corpus's identity, so raise it when the text changes."""

# Block tags start a new line of text; inline tags are dropped. A tag in neither list is not markup but an unescaped
# placeholder ("arn:aws:kms:<region>:<account>"), and is kept as text.
# fmt: off
_BLOCK_TAGS = frozenset([
    "br", "dd", "div", "dl", "dt", "fullname", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "important", "li",
    "note", "ol", "p", "para", "pre", "table", "tr", "ul",
])
_INLINE_TAGS = frozenset([
    "a", "abbr", "b", "code", "em", "filename", "i", "link", "replaceable", "small", "span", "strong", "sub",
    "sup", "td", "text", "th", "tt", "u", "xhtml", "zonbook",
])
# fmt: on
_SENTENCE_END = re.compile(r"\n|(?<=[.!?])\s+")


@dataclass(frozen=True)
class EmbeddedDocument:
    """One document: its text, and its source (`SERVICE/Operation`, or `SERVICE` for leftovers)."""

    text: str
    source: str

    @property
    def group(self) -> str:
        """The service of the document; whole groups are held out."""
        return self.source.partition("/")[0]


class _TextExtractor(HTMLParser):
    """Collects the text of a piece of HTML; `text` parses one value at a time."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []

    def text(self, html: str) -> str:
        self.reset()
        self._pieces = []
        self.feed(html)
        self.close()
        return "".join(self._pieces)

    def set_cdata_mode(self, elem: str, *, escapable: bool = False) -> None:
        """Do nothing: an unescaped <script> or <title> in prose does not change how the rest is parsed.

        The base class would treat the rest of the text as the element's content, for a list of elements that
        differs between patch releases of Python.
        """

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCK_TAGS:
            self._pieces.append("\n")
        elif tag not in _INLINE_TAGS:
            self._pieces.append(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in _BLOCK_TAGS:
            self._pieces.append("\n")

    def handle_data(self, data: str) -> None:
        # Line breaks in HTML source are spaces; line breaks in the text come from block tags.
        self._pieces.append(data.replace("\n", " "))


def strip_html(html: str) -> str:
    r"""The text of a piece of HTML: entities decoded, one paragraph or list item per line, spaces collapsed.

    >>> strip_html("<p>One &amp; <i>two</i>.</p> <ul> <li> <p>Three</p> </li> </ul>")
    'One & two.\nThree'
    """
    # A value without tags and entities is plain text; its line breaks are kept.
    text = _TextExtractor().text(html) if "<" in html or "&" in html else html
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def _documentation(node: Any, shapes: Mapping[str, Any], seen: set[str], found: list[str]) -> None:
    """Append the `documentation` values below `node` to `found`, depth first, following shapes not yet `seen`."""
    if isinstance(node, list):
        for item in node:
            _documentation(item, shapes, seen, found)
    if not isinstance(node, dict):
        return
    text, shape = node.get("documentation"), node.get("shape")
    if isinstance(text, str):
        found.append(text)
    # A member may itself be named "shape" or "documentation"; its value is then a dictionary, visited below.
    if isinstance(shape, str) and shape in shapes and shape not in seen:
        seen.add(shape)
        _documentation(shapes[shape], shapes, seen, found)
    for value in node.values():
        _documentation(value, shapes, seen, found)


def service_texts(model: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """The `documentation` values (HTML) of one service model, grouped into documents.

    Yields:
        `(operation, texts)` per operation: its own text, then the texts reachable from its input, output and
        errors, depth first, each shape once per service. Last, `("", texts)`: texts that no operation reaches.
    """
    rest = dict(model)
    shapes: Mapping[str, Any] = rest.pop("shapes", {})
    seen: set[str] = set()
    for name, operation in rest.pop("operations", {}).items():
        ordered = {key: operation.get(key) for key in ("documentation", "input", "output", "errors")}
        found: list[str] = []
        _documentation(ordered | operation, shapes, seen, found)
        yield name, found
    leftovers: list[str] = []
    _documentation(rest, shapes, seen, leftovers)
    for name in shapes:
        _documentation({"shape": name}, shapes, seen, leftovers)
    yield "", leftovers


def _botocore_data() -> Path:
    """Folder of botocore's service models."""
    # Locate the package without importing it: only its data is needed, and importing it is slow.
    spec = importlib.util.find_spec("botocore")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"the embedded corpus is the documentation of botocore {BOTOCORE_VERSION}, which is not installed: run "
            f"`pip install botocore=={BOTOCORE_VERSION}`, or choose another corpus (corpus=files)"
        )
    version = metadata.version("botocore")
    if version != BOTOCORE_VERSION:
        raise UserError(
            f"the embedded corpus is the documentation of botocore {BOTOCORE_VERSION}, but botocore {version} is "
            f"installed: run `pip install botocore=={BOTOCORE_VERSION}`, or choose another corpus"
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def _botocore_texts(data: Path) -> Iterator[tuple[str, list[str]]]:
    newest: dict[str, Path] = {}
    for path in sorted(data.glob("*/*/service-2.json.gz")):  # versions are dates: the last one is the newest
        newest[path.parent.parent.name] = path
    if not newest:
        raise UserError(f"no service models below {data}: reinstall botocore=={BOTOCORE_VERSION}")
    for service, path in newest.items():
        model = json.loads(gzip.decompress(path.read_bytes()))
        for operation, texts in service_texts(model):
            yield f"{service}/{operation}" if operation else service, texts


def identity() -> dict[str, Any]:
    """Everything the corpus's text depends on, as JSON: package, version, extraction format, and "fallback" (False).

    Raises:
        UserError: `BOTOCORE_VERSION` of botocore is not installed.
    """
    _botocore_data()
    return {"package": "botocore", "version": BOTOCORE_VERSION, "format": FORMAT, "fallback": False}


def documents() -> Iterator[EmbeddedDocument]:
    """The documents of the embedded corpus, in a fixed order, each distinct text once.

    Raises:
        UserError: `BOTOCORE_VERSION` of botocore is not installed.
    """
    # Also compare the HTML before parsing it: most values are verbatim repeats, and parsing is slow.
    seen_html: set[str] = set()
    seen_text: set[str] = set()
    for source, values in _botocore_texts(_botocore_data()):
        texts = []
        for html in values:
            if html in seen_html:
                continue
            seen_html.add(html)
            text = strip_html(html)
            if text and text not in seen_text:
                seen_text.add(text)
                texts.append(text)
        if texts:
            yield EmbeddedDocument(text="\n".join(texts) + "\n", source=source)


def is_heldout(group: str, fraction: float) -> bool:
    """Whether the service `group` is held out, if an expected `fraction` of the services is.

    Depends only on the hash of the name: services do not affect each other, and a larger fraction contains the
    services held out by a smaller one.
    """
    hashed = int.from_bytes(hashlib.sha256(group.encode()).digest()[:8], "big")
    return hashed < fraction * 2**64


def split(
    documents: Iterable[EmbeddedDocument], heldout_fraction: float = HELDOUT_FRACTION
) -> tuple[list[EmbeddedDocument], list[EmbeddedDocument]]:
    """Training and held-out documents. Whole services are held out.

    Both lists are ordered by the hash of the source, which is a fixed order. Any prefix is thus a sample of all
    services, as byte budgets and language models that read the documents in order need.

    Args:
        documents: the corpus.
        heldout_fraction: expected fraction of services held out, from 0 to below 1; the fraction of bytes is similar.
    """
    if not 0 <= heldout_fraction < 1:
        raise UserError(f"heldout_fraction={heldout_fraction} must be at least 0 and below 1")
    shuffled = sorted(documents, key=lambda document: hashlib.sha256(document.source.encode()).digest())
    train = [document for document in shuffled if not is_heldout(document.group, heldout_fraction)]
    heldout = [document for document in shuffled if is_heldout(document.group, heldout_fraction)]
    return train, heldout


def sentences(text: str) -> list[str]:
    """The sentences of a text, split at line breaks and at whitespace after `.`, `!` or `?`."""
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence]


def sentence_overlap(train: Iterable[EmbeddedDocument], heldout: Iterable[EmbeddedDocument]) -> dict[str, int | float]:
    """Verbatim overlap between held-out and training text, by sentence.

    Returns:
        The number of held-out sentences and of their UTF-8 bytes, and the fraction (0 to 1) of each that occurs
        in `train`.
    """
    trained = {sentence for document in train for sentence in sentences(document.text)}
    n_sentences = n_bytes = shared_sentences = shared_bytes = 0
    for document in heldout:
        for sentence in sentences(document.text):
            size = len(sentence.encode())
            n_sentences += 1
            n_bytes += size
            if sentence in trained:
                shared_sentences += 1
                shared_bytes += size
    return {
        "heldout_sentences": n_sentences,
        "heldout_sentence_bytes": n_bytes,
        "shared_sentences": shared_sentences / max(n_sentences, 1),
        "shared_sentence_bytes": shared_bytes / max(n_bytes, 1),
    }


def _take(documents: Iterable[EmbeddedDocument], max_bytes: int | None) -> list[EmbeddedDocument]:
    """The first documents whose texts have at most `max_bytes` bytes of UTF-8 in total."""
    taken: list[EmbeddedDocument] = []
    total = 0
    for document in documents:
        total += len(document.text.encode())
        if max_bytes is not None and total > max_bytes:
            break
        taken.append(document)
    return taken


def _write_jsonl(path: Path, documents: Sequence[EmbeddedDocument]) -> dict[str, int]:
    """Write zstd-compressed JSON lines atomically; returns sizes."""
    import zstandard

    with replacing(path) as file, zstandard.ZstdCompressor(level=3).stream_writer(file) as compressed:
        for document in documents:
            line = json.dumps({"text": document.text, "source": document.source}, ensure_ascii=False)
            compressed.write(line.encode() + b"\n")
    return {
        "documents": len(documents),
        "groups": len({document.group for document in documents}),
        "bytes": sum(len(document.text.encode()) for document in documents),
    }


def write(
    folder: Path,
    heldout_fraction: float = HELDOUT_FRACTION,
    max_bytes: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write `train.jsonl.zst` and `heldout.jsonl.zst`, lines of `{"text", "source"}`. The output is deterministic.

    Args:
        folder: output folder; created if missing.
        heldout_fraction: see `split`.
        max_bytes: budget of training text in bytes of UTF-8; does not apply to the held-out text.
        progress: called with ("embedded corpus", services read, None).

    Returns:
        JSON values: the `identity()`, `heldout_fraction`, `{"documents", "groups", "bytes"}` of "train" and
        "heldout", and the `sentence_overlap` of the written files as "overlap".

    Raises:
        UserError: another version of botocore is installed, or the fraction or budget leaves one side without text.
    """
    collected: list[EmbeddedDocument] = []
    groups = 0
    for document in documents():
        if progress is not None and (not collected or collected[-1].group != document.group):
            groups += 1
            progress("embedded corpus", groups, None)
        collected.append(document)
    train, heldout = split(collected, heldout_fraction)
    train = _take(train, max_bytes)
    if not train:
        raise UserError(f"max_bytes={max_bytes} is smaller than the first document; use at least 1000000")
    if heldout_fraction > 0 and not heldout:
        raise UserError(f"heldout_fraction={heldout_fraction} holds out no service; use at least {HELDOUT_FRACTION}")
    folder.mkdir(parents=True, exist_ok=True)
    return {
        **identity(),
        "heldout_fraction": heldout_fraction,
        "train": _write_jsonl(folder / "train.jsonl.zst", train),
        "heldout": _write_jsonl(folder / "heldout.jsonl.zst", heldout),
        "overlap": sentence_overlap(train, heldout),
    }
