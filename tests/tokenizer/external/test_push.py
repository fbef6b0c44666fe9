"""Upload to the hub: the files, the card, and the calls of huggingface_hub."""

import re
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from superbpe import train_superbpe
from tests import texts
from tokenizer import Tokenizer, UserError, patterns, train_bpe
from tokenizer.external.push import CARD

FILES = {CARD, "superbpe.json", "tokenizer.json", "tokenizer_config.json"}
FILES |= {"tokenizer.tiktoken", "tokenizer.tiktoken.json"}
TEXTS = texts.sample(60_000)


@pytest.fixture(scope="module")
def superwords():
    trained = train_bpe(TEXTS, 400, pattern="superbpe", unit="line")
    return train_superbpe(trained, TEXTS, vocab_size=400, rules="uw-2025", transition=0.8)


def test_a_dry_run_writes_the_files_and_the_card(superwords, tmp_path):
    to = superwords.push_to_hub("org/name", to=tmp_path / "out", license="apache-2.0")
    assert {path.name for path in Path(to).iterdir()} == FILES
    assert Tokenizer.load(to).sha256 == superwords.sha256
    card = Path(to, CARD).read_text(encoding="utf-8")
    n_bytes = sum(len(text.encode()) for text in TEXTS)
    for line in (
        "license: apache-2.0",
        "| vocabulary | 400 tokens |",
        f"| training, phase 1 | {n_bytes:,} bytes, {len(TEXTS)} documents, 143 merges |",
        f"| training, phase 2 | {n_bytes:,} bytes, {len(TEXTS)} documents, rules uw-2025, from 320 tokens |",
    ):
        assert f"\n{line}\n" in card
    with pytest.raises(UserError, match="already exists; name a new folder"):
        superwords.push_to_hub("org/name", to=to)
    bare = Tokenizer.from_ranks([(0, 1), (256, 2)], pattern=patterns.resolve("gpt2"))
    card = Path(bare.push_to_hub("org/name", to=tmp_path / "bare"), CARD).read_text(encoding="utf-8")
    for unknown in ("training", "special tokens", "phase 2", "None"):
        assert unknown not in card


@pytest.mark.slow
def test_the_examples_of_the_card_give_the_same_ids(superwords, tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    folder = Path(superwords.push_to_hub("org/name", to=tmp_path / "out"))
    card = (folder / CARD).read_text(encoding="utf-8")
    expected = superwords.encode(TEXTS[0])
    monkeypatch.setattr("tokenizer.external.opening.snapshot", lambda *_: (folder, "c0ffee"))
    load = transformers.AutoTokenizer.from_pretrained
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda _: load(str(folder)))
    for way in ("superbpe-framework", "transformers"):
        example = re.search(rf"^With {way}:\n\n```python\n(.*?)\n```", card, re.MULTILINE | re.DOTALL)
        found = {}
        exec(example[1], found)
        assert list(found["tokenizer"].encode(TEXTS[0])) == expected, way


@pytest.mark.parametrize("has_card", [False, True])
def test_an_upload_creates_the_repository_and_keeps_its_card(superwords, monkeypatch, has_card):
    hub = pytest.importorskip("huggingface_hub")
    calls = []

    class Api:
        def create_repo(self, repository, **options):
            calls.append((repository, options))

        def file_exists(self, repository, name):
            return has_card and name == CARD

        def upload_folder(self, *, folder_path, **options):
            calls.append(({path.name for path in folder_path.iterdir()}, options["ignore_patterns"]))
            # Left over from another tokenizer, they would give other ids.
            others = {"tokenizer.json", "tokenizer.tiktoken", "tokenizer.tiktoken.json", "training-documents.npy"}
            assert others == {*options["delete_patterns"]}
            return SimpleNamespace(commit_url="https://huggingface.co/org/name/commit/1")

    monkeypatch.setattr(hub, "HfApi", Api)
    assert superwords.push_to_hub("org/name", private=True) == "https://huggingface.co/org/name/commit/1"
    assert calls == [("org/name", {"private": True, "exist_ok": True}), (FILES, [CARD] if has_card else None)]


def test_a_failed_upload_names_the_remedy(superwords, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")

    create = mock.Mock(side_effect=RuntimeError("401 Unauthorized"))
    monkeypatch.setattr(hub, "HfApi", lambda: SimpleNamespace(create_repo=create))
    with pytest.raises(UserError, match=r"org/name cannot be uploaded \(401 Unauthorized\); .* `hf auth login`"):
        superwords.push_to_hub("org/name")
    with pytest.raises(UserError, match="'a/b/c' is not the id of a repository; write ORGANIZATION/NAME"):
        superwords.push_to_hub("a/b/c")
