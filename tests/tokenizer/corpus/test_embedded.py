import json
import re
from collections import Counter
from importlib import metadata
from types import SimpleNamespace

import pytest
import zstandard

from tokenizer.corpus import embedded
from tokenizer.corpus.embedded import EmbeddedDocument
from tokenizer.errors import UserError


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>One.</p><p>Two &amp; <i>three</i>.</p>", "One.\nTwo & three."),
        ("<ul> <li> <p>a </p> </li> <li>b</li> </ul>", "a\nb"),
        ("<dl><dt>Name</dt><dd>Value</dd></dl>", "Name\nValue"),
        ("<p>broken\n   source   line</p>", "broken source line"),
        ("plain\n\n  text ", "plain\ntext"),
        ("a &lt;b&gt; &quot;c&quot; &#150; d", 'a <b> "c" – d'),
        # Placeholders that somebody forgot to escape are text, not markup.
        ("<p>arn:aws:kms:<region>:<account-id>:key/<uuid></p>", "arn:aws:kms:<region>:<account-id>:key/<uuid>"),
        # Nothing is swallowed after an element whose content HTML would not parse.
        ("<p>the <script> tag &amp; <b>more</b></p><p>end</p>", "the <script> tag & more\nend"),
        ("<p/>", ""),
        ("", ""),
    ],
)
def test_html_is_stripped_to_clean_text(html, text):
    assert embedded.strip_html(html) == text


def structure(members, **about):
    """A shape whose members have a shape and a documentation each."""
    members = {name: {"shape": shape, "documentation": text} for name, (shape, text) in members.items()}
    return {"type": "structure", "members": members} | about


GET = {"output": {"shape": "Thing"}, "input": {"shape": "GetRequest"}, "documentation": "get it"}
MEMBERS = {name: ("Text", f"a member called {name}") for name in ("documentation", "shape")}
MODEL = {
    "metadata": {"serviceId": "Toy"},
    "operations": {
        "Get": GET | {"errors": [{"shape": "Broken", "documentation": "when broken"}]},
        "Put": {"input": {"shape": "Thing"}, "documentation": "put it"},
    },
    "shapes": {
        "Unused": {"type": "string", "documentation": "unused"},
        "Broken": structure({}, documentation="broken"),
        "GetRequest": structure(MEMBERS),
        "Text": {"type": "string", "documentation": "text"},
        "Thing": structure({"Children": ("Things", "children")}, documentation="thing"),
        "Things": {"type": "list", "member": {"shape": "Thing"}, "documentation": "things"},
    },
    "documentation": "toy service",
}


def test_one_document_per_operation_depth_first_each_shape_once():
    assert list(embedded.service_texts(MODEL)) == [
        [
            *("get it", "a member called documentation", "text", "a member called shape"),
            *("thing", "children", "things", "when broken", "broken"),
        ],
        ["put it"],
        ["toy service", "unused"],
    ]


def test_docstrings_are_taken_out_of_code():
    source = '''"""Module."""\nx = """no docstring"""\n\n\nclass A:\n    """Two\n    lines."""\n\n    y = 1  # "z"\n'''
    code, docstrings = embedded.without_docstrings(source)
    assert code == 'x = """no docstring"""\n\n\nclass A:\n\n    y = 1  # "z"\n'
    assert docstrings == ["Module.", "Two\nlines."]


def test_messages_are_the_translations_that_a_catalogue_has():
    catalogue = (
        'msgid ""\nmsgstr ""\n"Language: fr\\n"\n\n#: a.py\nmsgctxt "c"\nmsgid "one"\nmsgstr ""\n"u"\n"n\\n"\n\n'
        '#, fuzzy\nmsgid "old"\nmsgstr "vieux"\n\nmsgid "none"\nmsgstr ""\n\n'
        'msgid "day"\nmsgid_plural "days"\nmsgstr[0] "jour"\nmsgstr[1] "jours"\n\n#~ msgid "gone"\n#~ msgstr "parti"\n'
    )
    assert list(embedded.messages(catalogue)) == ["un\n", "jour", "jours"]


def named(kind, source, piece, n=3):
    return [EmbeddedDocument(f"{piece} {i}\n", kind, f"{kind}/{source}", f"{kind}/{piece}") for i in range(n)]


def test_whole_pieces_are_held_out_and_more_with_a_larger_fraction():
    documents = [d for i in range(100) for d in named("english", f"s{i}", f"s{i}")]
    documents += [d for language in "abcd" for i in range(20) for d in named("languages", language, f"{language}/{i}")]
    smaller: set[str] = set()
    for fraction in (0.0, 0.05, 0.2, 0.5):
        train, heldout = embedded.split(reversed(documents), fraction)
        pieces = {document.piece for document in heldout}
        assert pieces.isdisjoint(document.piece for document in train)
        assert sorted(d.text for d in train + heldout) == sorted(d.text for d in documents)
        assert smaller <= pieces
        by_source = Counter(piece.split("/")[0] for piece in pieces)
        assert by_source["english"] == round(100 * fraction)
        for language in "abcd":  # on both sides
            held = sum(document.source == f"languages/{language}" for document in heldout)
            assert held >= 60 * fraction
            assert held < 60
        assert (train, heldout) == embedded.split(documents, fraction)  # whatever the order of the input
        smaller = pieces
    with pytest.raises(UserError, match=r"heldout_fraction=1\.5"):
        embedded.split(documents, 1.5)


def read(path):
    with zstandard.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture
def small(monkeypatch):
    """The corpus, replaced by few documents."""
    documents = [d for i in range(30) for d in named("code", f"s{i}", f"s{i}")]
    monkeypatch.setattr(embedded, "documents", lambda **_: iter(documents))


@pytest.mark.usefixtures("small")
def test_the_files_are_deterministic_and_a_limit_applies_to_the_training_text(tmp_path):
    whole = embedded.write(tmp_path / "a", 0.2)
    train, heldout = read(tmp_path / "a" / "train.jsonl.zst"), read(tmp_path / "a" / "heldout.jsonl.zst")
    for name, documents in (("train", train), ("heldout", heldout)):
        assert whole[name] == {
            "documents": len(documents),
            "sources": len({document["source"] for document in documents}),
            "bytes": sum(len(document["text"].encode()) for document in documents),
        }
    part = embedded.write(tmp_path / "b", 0.2, max_bytes=100)
    assert 50 < part["train"]["bytes"] <= 100
    assert read(tmp_path / "b" / "train.jsonl.zst") == train[: part["train"]["documents"]]
    assert (tmp_path / "a" / "heldout.jsonl.zst").read_bytes() == (tmp_path / "b" / "heldout.jsonl.zst").read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["heldout.jsonl.zst", "train.jsonl.zst"]
    with pytest.raises(UserError, match="max_bytes=3"):
        embedded.write(tmp_path / "none", 0.2, max_bytes=3)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("installed", "said"), [("1.0.0", r"botocore 1\.0\.0 is installed"), (None, "not installed")])
def test_another_version_of_a_package_is_rejected_with_the_remedy(installed, said, monkeypatch):
    found = [] if installed is None else [SimpleNamespace(version=installed)]
    monkeypatch.setattr(embedded, "_python", lambda: {"english": {}})  # read before, or else Django is named
    monkeypatch.setattr(metadata, "distributions", lambda **_: found)
    with pytest.raises(UserError, match=rf"{said}: run `pip install botocore==1\.44\.5`"):
        next(embedded.documents())


@pytest.fixture(scope="module")
def corpus():
    return list(embedded.documents())


@pytest.mark.slow
def test_the_corpus_is_what_its_description_says(corpus):
    sizes = Counter()
    for document in corpus:
        sizes[document.source] += len(document.text.encode())
    for kind in embedded.KINDS:
        own = sorted(size for source, size in sizes.items() if source.startswith(f"{kind}/"))
        assert 40 <= len(own) <= embedded.MOST_SOURCES
        assert own[-1] <= 2 * own[len(own) // 2]  # the largest source has at most twice the text of the median
        assert 2e6 < sum(own) < 4e6
    # Only a line that is itself longer makes a longer document.
    sizes_of_lines = [[len(line.encode()) for line in document.text.splitlines(keepends=True)] for document in corpus]
    assert all(sum(lines) <= embedded.DOCUMENT_BYTES or len(lines) == 1 for lines in sizes_of_lines)
    assert all(document.text.endswith("\n") and document.text.strip() for document in corpus)
    aws = [document.text[:2000] for document in corpus if document.source.startswith("english/")]
    assert not any(re.search(r"</?(p|li|note|ul|a)>|&(lt|gt|amp|quot);", text) for text in aws[:300:20])


@pytest.mark.slow
def test_the_split_leaves_enough_independent_sources(corpus):
    train, heldout = embedded.split(corpus)
    sizes = Counter()
    for document in heldout:
        sizes[document.source] += len(document.text.encode())
    assert sum(sizes.values()) ** 2 / sum(size**2 for size in sizes.values()) >= 20  # effective sources
    languages = {document.source for document in train if document.kind == "languages"}
    assert languages == {document.source for document in heldout if document.kind == "languages"}
