"""The embedded corpus: text of three kinds that ships with Python packages, so that nothing is downloaded at run time.

| kind | text | package, licence |
|---|---|---|
| `english` | documentation of AWS services; docstrings | botocore, Apache-2.0; the packages of `code` |
| `code` | Python source without docstrings | Django, SymPy, NetworkX; BSD-3-Clause |
| `languages` | translated messages of user interfaces | Django, BSD-3-Clause |

A *source* is a service, a subpackage or a language. Sources are cut to `MOST_BYTES` and left out below `LEAST_BYTES`,
so that no source dominates. A *piece* is the part of a source that is held out as a whole: the service, the subpackage,
or the messages of one application in one language. Each language is therefore on both sides of the split.

A message or a documentation text that occurs twice in a kind is kept at its first position only.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from html import unescape
from importlib import metadata
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizer.durable import write_whole
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tokenizer.progress import Progress

VERSIONS = {"botocore": "1.44.5", "Django": "5.2.19", "networkx": "3.6.1", "sympy": "1.14.0"}
"""The packages of the corpus. Another version has other text."""
KINDS = ("english", "code", "languages")
HELDOUT_FRACTION = 0.1
LEAST_BYTES, MOST_BYTES, MOST_SOURCES = 20_000, 45_000, 80
"""Text of a source, and sources of a kind."""
DOCUMENT_BYTES = 16_000
"""Longer documents are cut at line breaks."""
IDENTITY = {"packages": VERSIONS, "format": 3}
"""Everything that the text depends on, as JSON; `format` is the version of the extraction rules below."""

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
_TAG = re.compile(r"""<(?P<end>/?)(?P<name>[a-zA-Z][^\s/>]*)([^>"']|"[^"]*"|'[^']*')*>""")
_MESSAGE = re.compile(r'(msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?) (".*")')
_NO_SOURCE = {"locale", "migrations", "tests"}  # folders of a package without code, or with text of other kinds


@dataclass(frozen=True)
class EmbeddedDocument:
    """One document of the corpus.

    Attributes:
        kind: one of `KINDS`.
        source: `english/SERVICE`, `code/PACKAGE.SUBPACKAGE` or `languages/LANGUAGE`.
        piece: name of the part of the source that is held out as a whole.
    """

    text: str
    kind: str
    source: str
    piece: str


@dataclass
class _Source:
    """Text of a source by piece, each document once, up to `MOST_BYTES`."""

    n_bytes: int = 0
    pieces: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, piece: str, text: str) -> None:
        """Add a document, cut into several where it is too long; nothing if the source is full."""
        start = size = 0
        lines = text.splitlines(keepends=True)
        for end, line in enumerate([*lines, ""]):
            if end > start and (end == len(lines) or size + len(line.encode()) > DOCUMENT_BYTES):
                if self.n_bytes < MOST_BYTES:
                    self.pieces[piece].append("".join(lines[start:end]))
                    self.n_bytes += size
                start, size = end, 0
            size += len(line.encode())


def strip_html(html: str) -> str:
    r"""The text of a piece of HTML: entities decoded, one paragraph or list item per line, spaces collapsed.

    >>> strip_html("<p>One &amp; <i>two</i>.</p> <ul> <li> <p>Three</p> </li> </ul>")
    'One & two.\nThree'
    """
    if "<" in html or "&" in html:  # otherwise it is plain text, whose line breaks are kept
        html = unescape(_TAG.sub(_replaced, html)).replace("\n", " ").replace("\0", "\n")
    lines = (" ".join(line.split()) for line in html.split("\n"))
    return "\n".join(line for line in lines if line)


def _replaced(tag: re.Match[str]) -> str:
    if (name := tag["name"].lower()) in _BLOCK_TAGS:
        return "\0"
    return "" if name in _INLINE_TAGS or tag["end"] else tag[0]


def service_texts(model: Mapping[str, Any]) -> Iterator[list[str]]:
    """The `documentation` values (HTML) of one service model, grouped into documents.

    Yields:
        One list per operation: its own text, then the texts reachable from its input, output and errors, depth first,
        each shape once per service. Last, the texts that no operation reaches.
    """
    rest = dict(model)
    shapes: Mapping[str, Any] = rest.pop("shapes", {})
    seen: set[str] = set()

    def visit(node: Any, texts: list[str]) -> list[str]:
        for item in node if isinstance(node, list) else ():
            visit(item, texts)
        if not isinstance(node, dict):
            return texts
        text, shape = node.get("documentation"), node.get("shape")
        if isinstance(text, str):
            texts.append(text)
        # A member may itself be named "shape" or "documentation"; its value is then a dictionary, visited below.
        if isinstance(shape, str) and shape in shapes and shape not in seen:
            seen.add(shape)
            visit(shapes[shape], texts)
        for value in node.values():
            visit(value, texts)
        return texts

    for operation in rest.pop("operations", {}).values():
        yield visit({key: operation.get(key) for key in ("documentation", "input", "output", "errors")} | operation, [])
    yield visit([rest, *({"shape": name} for name in shapes)], [])


def _services() -> Iterator[tuple[str, _Source]]:
    newest: dict[str, Path] = {}
    for path in sorted((_folder("botocore") / "data").glob("*/*/service-2.json.gz")):  # versions are dates
        newest[path.parent.parent.name] = path
    seen: set[str] = set()
    for service in sorted(newest, key=_order):
        source = _Source()
        for values in service_texts(json.loads(gzip.decompress(newest[service].read_bytes()))):
            texts = dict.fromkeys(text for text in map(strip_html, values) if text and text not in seen)
            seen.update(texts)
            source.add(service, "".join(f"{text}\n" for text in texts))
        yield service, source


def without_docstrings(source: str) -> tuple[str, list[str]]:
    r"""Split Python source into the code without the docstrings of modules, classes and functions, and the docstrings.

    >>> without_docstrings('def f():\n    "Doc."\n    return 1  # one\n')
    ('def f():\n    return 1  # one\n', ['Doc.'])
    """
    lines = source.splitlines(keepends=True)
    docstrings = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if (docstring := ast.get_docstring(node)) is not None:
            first = node.body[0]
            last = first.end_lineno or first.lineno
            lines[first.lineno - 1 : last] = [""] * (last - first.lineno + 1)
            docstrings.append(docstring)
    return "".join(lines), docstrings


@cache
def _python() -> dict[str, dict[str, _Source]]:
    """The code of every subpackage, and its docstrings, which are English."""
    code: dict[str, _Source] = defaultdict(_Source)
    prose: dict[str, _Source] = defaultdict(_Source)
    for package in ("Django", "networkx", "sympy"):
        root = _folder(package)
        for path in sorted(root.rglob("*.py"), key=lambda path: _order(path.relative_to(root).as_posix())):
            inside = path.relative_to(root).parts
            depth = 2 if inside[0] in ("contrib", "db", "algorithms", "physics") else 1
            name = ".".join([package.lower(), *inside[:-1][:depth]])
            if not _NO_SOURCE & set(inside) and min(code[name].n_bytes, prose[name].n_bytes) < MOST_BYTES:
                text, docstrings = without_docstrings(path.read_text(encoding="utf-8"))
                code[name].add(name, f"{text.strip()}\n" if text.strip() else "")
                prose[name].add(name, "".join(f"{docstring}\n\n" for docstring in docstrings))
    return {"code": code, "english": prose}


def messages(catalogue: str) -> Iterator[str]:
    r"""The translations in a gettext catalogue (`.po`), without fuzzy and empty ones.

    >>> list(messages('msgid ""\nmsgstr "Language: fr"\n\nmsgid "a"\nmsgid_plural "b"\nmsgstr[0] "c"\nmsgstr[1] "d"\n'))
    ['c', 'd']
    """
    for entry in catalogue.split("\n\n"):
        strings: dict[str, str] = {}
        keyword = ""
        for line in entry.splitlines():
            if match := _MESSAGE.fullmatch(line):
                keyword = match[1]
                strings[keyword] = ast.literal_eval(match[2])
            elif keyword and line.startswith('"'):
                strings[keyword] += ast.literal_eval(line)
        if strings.get("msgid") and not re.search(r"^#,.*\bfuzzy\b", entry, re.MULTILINE):
            yield from (text for name, text in strings.items() if name.startswith("msgstr") and text)


def _languages() -> dict[str, _Source]:
    sources: dict[str, _Source] = defaultdict(_Source)
    seen: defaultdict[str, set[str]] = defaultdict(set)
    root = _folder("Django")
    for path in sorted(root.rglob("LC_MESSAGES/*.po"), key=lambda path: _order(path.relative_to(root).as_posix())):
        # Variants of a language have much text in common, except the two ways of writing Chinese.
        locale, _, variant = path.parts[-3].partition("_")
        language = f"{locale}_{variant}" if locale == "zh" else locale.partition("@")[0]
        application = "/".join(path.relative_to(root).parts[:-4])
        texts = dict.fromkeys(messages(path.read_text(encoding="utf-8")))
        new = "".join(f"{text.strip()}\n" for text in texts if text not in seen[language])
        sources[language].add(f"{language}/{application}", new)
        seen[language].update(texts)
    return sources


def _folder(package: str) -> Path:
    """Folder of an installed package, without importing it.

    Raises:
        UserError: the package is not installed in the version of `VERSIONS`.
    """
    installed = next(iter(metadata.distributions(name=package)), None)
    if installed is None or installed.version != VERSIONS[package]:
        there = f"{package} {installed.version} is installed" if installed else f"{package} is not installed"
        raise UserError(
            f"the embedded corpus needs {package} {VERSIONS[package]}, but {there}: run `pip install "
            f"{package}=={VERSIONS[package]}`, or choose another corpus (corpus=files)"
        )
    return Path(str(installed.locate_file(package.lower())))


def documents(progress: Progress | None = None) -> Iterator[EmbeddedDocument]:
    """The documents of the embedded corpus, in a fixed order.

    Args:
        progress: called with ("embedded corpus", kinds read, number of kinds).

    Raises:
        UserError: a package is not installed in the version of `VERSIONS`.
    """

    def large(named: Iterable[tuple[str, _Source]], most: int) -> Iterator[tuple[str, _Source]]:
        return islice(((name, source) for name, source in named if source.n_bytes >= LEAST_BYTES), most)

    def ordered(kind: str) -> Iterator[tuple[str, _Source]]:  # a generator: parsing the packages takes seconds
        named = _languages() if kind == "languages" else _python()[kind]
        yield from sorted(named.items(), key=lambda item: _order(item[0]))

    for number, kind in enumerate(KINDS):
        if progress is not None:
            progress("embedded corpus", number, len(KINDS))
        # As many services as subpackages.
        services = large(_services(), MOST_SOURCES // 2) if kind == "english" else ()
        for name, source in large(chain(services, ordered(kind)), MOST_SOURCES):
            for piece, texts in source.pieces.items():
                yield from (EmbeddedDocument(text, kind, f"{kind}/{name}", f"{kind}/{piece}") for text in texts)


def _order(name: str) -> bytes:
    """Sorts names in a fixed order that has nothing to do with their meaning."""
    return hashlib.sha256(name.encode()).digest()


def split(
    documents: Iterable[EmbeddedDocument], heldout_fraction: float = HELDOUT_FRACTION
) -> tuple[list[EmbeddedDocument], list[EmbeddedDocument]]:
    """Training and held-out documents. Whole pieces are held out: services and subpackages, and parts of languages.

    Both lists are ordered by hash, so that any prefix is a sample of all kinds. A larger fraction holds out the pieces
    of a smaller one and more.

    Args:
        documents: the corpus.
        heldout_fraction: fraction of the pieces of `english` and `code`, and of the bytes of each language, from 0 to
            below 1.
    """
    if not 0 <= heldout_fraction < 1:
        raise UserError(f"heldout_fraction={heldout_fraction} must be at least 0 and below 1")
    shuffled = sorted(documents, key=lambda document: _order(document.text))
    # A piece that is a whole source is drawn among its kind, a part of a language within the language.
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for document in shuffled:
        if document.piece == document.source:
            groups[document.kind][document.piece] = 1
        else:
            groups[document.source][document.piece] += len(document.text.encode())
    heldout: set[str] = set()
    for pieces in groups.values():
        missing = heldout_fraction * sum(pieces.values())
        # Parts of a language differ in size: the smallest first.
        for piece in sorted(pieces, key=lambda piece: (pieces[piece], _order(piece))):
            if missing <= 0 or len(pieces) == 1:
                break
            heldout.add(piece)
            missing -= pieces[piece]
    return (
        [document for document in shuffled if document.piece not in heldout],
        [document for document in shuffled if document.piece in heldout],
    )


def write(
    folder: Path,
    heldout_fraction: float = HELDOUT_FRACTION,
    max_bytes: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write `train.jsonl.zst` and `heldout.jsonl.zst`, lines of `{"text", "source": "KIND: NAME"}`, always the same.

    Args:
        folder: output folder; created if missing.
        heldout_fraction: see `split`.
        max_bytes: limit for the training text in bytes of UTF-8; does not apply to the held-out text.
        progress: see `documents`.

    Returns:
        JSON values: the `IDENTITY`, `heldout_fraction`, and `{"documents", "sources", "bytes"}` of "train" and
        "heldout".

    Raises:
        UserError: a package is missing, the fraction is out of range, or the limit leaves no training text.
    """
    import zstandard

    train, heldout = split(documents(progress=progress), heldout_fraction)
    if max_bytes is not None:
        sizes = accumulate(len(document.text.encode()) for document in train)
        train = train[: sum(size <= max_bytes for size in sizes)]
    if not train:
        raise UserError(f"max_bytes={max_bytes} is smaller than the first document; use at least 1000000")
    folder.mkdir(parents=True, exist_ok=True)
    about: dict[str, Any] = {**IDENTITY, "heldout_fraction": heldout_fraction}
    for name, side in (("train", train), ("heldout", heldout)):
        # The part of a source before a slash would be the source.
        records = ({"text": document.text, "source": document.source.replace("/", ": ", 1)} for document in side)
        content = "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)
        write_whole(folder / f"{name}.jsonl.zst", zstandard.compress(content.encode()))
        about[name] = {
            "documents": len(side),
            "sources": len({document.source for document in side}),
            "bytes": sum(len(document.text.encode()) for document in side),
        }
    return about
