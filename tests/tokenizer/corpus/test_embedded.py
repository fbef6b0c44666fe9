import gzip
import importlib.util
import json
import re
from importlib import metadata
from pathlib import Path

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
        (
            "<p>arn:aws:kms:<region>:<account-id>:key/<uuid></p>",
            "arn:aws:kms:<region>:<account-id>:key/<uuid>",
        ),
        # Nothing is swallowed after an element whose content HTML would not parse.
        ("<p>the <script> tag &amp; <b>more</b></p><p>end</p>", "the <script> tag & more\nend"),
        ("<p/>", ""),
        ("", ""),
    ],
)
def test_html_is_stripped_to_clean_text(html, text):
    assert embedded.strip_html(html) == text


MODEL = {
    "metadata": {"serviceId": "Toy"},
    "operations": {
        "Get": {
            "output": {"shape": "Thing"},
            "input": {"shape": "GetRequest"},
            "errors": [{"shape": "Broken", "documentation": "when broken"}],
            "documentation": "get it",
        },
        "Put": {"input": {"shape": "Thing"}, "documentation": "put it"},
    },
    "shapes": {
        "Unused": {"type": "string", "documentation": "unused"},
        "Broken": {"type": "structure", "members": {}, "documentation": "broken"},
        "GetRequest": {
            "type": "structure",
            "members": {
                "documentation": {"shape": "Text", "documentation": "a member called documentation"},
                "shape": {"shape": "Text", "documentation": "a member called shape"},
            },
        },
        "Text": {"type": "string", "documentation": "text"},
        "Thing": {
            "type": "structure",
            "members": {"Children": {"shape": "Things", "documentation": "children"}},
            "documentation": "thing",
        },
        "Things": {"type": "list", "member": {"shape": "Thing"}, "documentation": "things"},
    },
    "documentation": "toy service",
}


def test_one_document_per_operation_depth_first_each_shape_once():
    assert list(embedded.service_texts(MODEL)) == [
        (
            "Get",
            [
                *("get it", "a member called documentation", "text", "a member called shape"),
                *("thing", "children", "things", "when broken", "broken"),
            ],
        ),
        ("Put", ["put it"]),
        ("", ["toy service", "unused"]),
    ]


def test_heldout_text_is_whole_services_and_grows_with_the_fraction():
    documents = [EmbeddedDocument("x", f"service{i}/{name}") for i in range(200) for name in "abc"]
    smaller: set[str] = set()
    for fraction in (0.0, 0.05, 0.2, 0.5):
        train, heldout = embedded.split(reversed(documents), fraction)
        groups = {document.group for document in heldout}
        assert groups.isdisjoint(document.group for document in train)
        assert sorted(d.source for d in train + heldout) == sorted(d.source for d in documents)
        assert smaller <= groups
        assert abs(len(groups) / 200 - fraction) < 0.1
        assert (train, heldout) == embedded.split(documents, fraction)  # whatever the order of the input
        smaller = groups
    with pytest.raises(UserError, match=r"heldout_fraction=1\.5"):
        embedded.split(documents, 1.5)


def test_overlap_counts_verbatim_sentences():
    train = [EmbeddedDocument("The same. Another one.\nA line\n", "a")]
    heldout = [EmbeddedDocument("The same. Something new!\nA line\nAnother\n", "b")]
    overlap = embedded.sentence_overlap(train, heldout)
    assert overlap["heldout_sentences"] == 4
    assert overlap["shared_sentences"] == 2 / 4
    assert overlap["heldout_sentence_bytes"] == 9 + 14 + 6 + 7
    assert overlap["shared_sentence_bytes"] == 15 / 36
    assert embedded.sentence_overlap(train, [])["shared_sentences"] == 0


def read(path: Path) -> list[dict[str, str]]:
    with zstandard.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """Some services of the toy model instead of botocore's."""
    for i in range(30):
        folder = tmp_path / "data" / f"service{i}" / "2020-01-01"
        folder.mkdir(parents=True)
        text = json.dumps(MODEL).replace('"documentation": "', f'"documentation": "{i} says ' + "very " * 60)
        (folder / "service-2.json.gz").write_bytes(gzip.compress(text.encode()))
    monkeypatch.setattr(embedded, "_botocore_data", lambda: tmp_path / "data")


@pytest.mark.usefixtures("toy")
def test_the_written_files_are_described_and_the_same_every_time(tmp_path):
    statistics = embedded.write(tmp_path / "a", heldout_fraction=0.2)
    assert (statistics["package"], statistics["fallback"]) == ("botocore", False)
    train, heldout = read(tmp_path / "a" / "train.jsonl.zst"), read(tmp_path / "a" / "heldout.jsonl.zst")
    assert {"service1/Get", "service1/Put"} <= {document["source"] for document in train + heldout}
    for name, documents in (("train", train), ("heldout", heldout)):
        assert statistics[name]["documents"] == len(documents)
        assert statistics[name]["bytes"] == sum(len(document["text"].encode()) for document in documents)
    embedded.write(tmp_path / "b", heldout_fraction=0.2)
    for name in ("train.jsonl.zst", "heldout.jsonl.zst"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["heldout.jsonl.zst", "train.jsonl.zst"]


@pytest.mark.usefixtures("toy")
def test_a_budget_limits_only_the_training_text(tmp_path):
    whole = embedded.write(tmp_path / "whole", 0.2)
    part = embedded.write(tmp_path / "part", 0.2, max_bytes=20_000)
    assert 10_000 < part["train"]["bytes"] <= 20_000
    assert part["heldout"] == whole["heldout"]
    sources = [document["source"] for document in read(tmp_path / "whole" / "train.jsonl.zst")]
    kept = [document["source"] for document in read(tmp_path / "part" / "train.jsonl.zst")]
    assert kept == sources[: len(kept)]
    with pytest.raises(UserError, match="max_bytes=3"):
        embedded.write(tmp_path / "none", 0.2, max_bytes=3)
    with pytest.raises(UserError, match="holds out no service"):
        embedded.write(tmp_path / "none", 1e-9)
    assert not (tmp_path / "none").exists()


def test_without_botocore_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(
        UserError, match=r"botocore 1\.44\.5, which is not installed: run `pip install botocore==1\.44\.5`"
    ):
        embedded.identity()


def test_another_botocore_is_rejected_with_the_remedy(monkeypatch):
    pytest.importorskip("botocore")
    monkeypatch.setattr(metadata, "version", lambda name: "1.0.0")
    with pytest.raises(UserError, match=r"botocore 1\.0\.0 is installed: run `pip install botocore==1\.44\.5`"):
        embedded.identity()


@pytest.fixture(scope="module")
def corpus() -> list[EmbeddedDocument]:
    pytest.importorskip("botocore")
    return list(embedded.documents())


@pytest.mark.slow
def test_the_corpus_is_what_its_description_says(corpus):
    assert 30.0e6 < sum(len(document.text.encode()) for document in corpus) < 31.0e6
    assert len({document.group for document in corpus}) > 430
    assert len({document.source for document in corpus}) == len(corpus)
    lengths = {document.source: len(document.text) for document in corpus}
    assert lengths["ec2/RunInstances"] > 10_000
    text = next(document.text for document in corpus if document.source == "s3/PutObject")
    assert "Adds an object to a bucket." in text
    assert not any(re.search(r"</?(p|li|code|note|ul|a)>|&(lt|gt|amp|quot);", d.text[:2000]) for d in corpus[::20])
    assert all(document.text.endswith("\n") and document.text.strip() for document in corpus)


@pytest.mark.slow
def test_every_documentation_value_is_in_the_corpus(corpus):
    def values(node):
        if isinstance(node, list):
            node = dict(enumerate(node))
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "documentation" and isinstance(value, str):
                    yield value
                yield from values(value)

    lines = {line for document in corpus for line in document.text.splitlines()}
    (package,) = importlib.util.find_spec("botocore").submodule_search_locations
    for service in ("account", "sqs", "dynamodb", "apigateway"):
        newest = max((Path(package) / "data" / service).glob("*/service-2.json.gz"))
        model = json.loads(gzip.decompress(newest.read_bytes()))
        expected = {line for value in values(model) for line in embedded.strip_html(value).split("\n") if line}
        assert len(expected) > 40
        assert expected <= lines


@pytest.mark.slow
def test_about_a_twentieth_is_held_out_with_little_overlap(corpus):
    train, heldout = embedded.split(corpus)
    share = sum(len(d.text.encode()) for d in heldout) / sum(len(d.text.encode()) for d in corpus)
    assert 0.04 < share < 0.065
    assert 0.01 < embedded.sentence_overlap(train, heldout)["shared_sentence_bytes"] < 0.15
