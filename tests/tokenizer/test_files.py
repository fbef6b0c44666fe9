"""Paths that are not files of data, and JSON nested without end: one line each, and never a hang."""

import os
import socket
import sys
from pathlib import Path

import pytest

from tests.tokenizer.formats.other_formats import hf_file
from tokenizer import Corpus, CorpusConfig, PretokenCounts, Tokenizer, UserError, files
from tokenizer.files import check_sizes

TOKENIZERS = {
    "superbpe": ["superbpe.json"],
    "hf": ["tokenizer.json"],
    "gpt2": ["vocab.json", "merges.txt"],
    "tiktoken": ["a.tiktoken"],
}


@pytest.fixture
def special(tmp_path, monkeypatch):
    """Paths by kind that are something else than files of data; those that this system has."""
    found = {"a directory": tmp_path / "folder"}
    found["a directory"].mkdir()
    if hasattr(os, "mkfifo"):
        found["a FIFO"] = tmp_path / "fifo"
        os.mkfifo(found["a FIFO"])
    if hasattr(socket, "AF_UNIX"):
        found["a socket"] = tmp_path / "socket"
        with socket.socket(socket.AF_UNIX) as server:
            monkeypatch.chdir(tmp_path)  # a socket's path must be short
            server.bind("socket")
    if Path("/dev/zero").exists():
        found["a device"] = tmp_path / "device"
        found["a device"].symlink_to("/dev/zero")
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links of POSIX")
def test_only_files_of_data_are_read_as_text_counts_or_tokenizers(special, tmp_path):
    assert len(special) > 1
    for what, path in special.items():
        reads = [
            lambda path=path: files.read_bytes(path),
            lambda path=path: PretokenCounts.load(path),
            lambda path=path: files.read_arrays(path, "delete it"),
        ]
        if what != "a directory":
            reads.append(lambda path=path: Corpus(CorpusConfig(paths=[str(path)], format="txt")))
            reads.append(lambda path=path: check_sizes(tmp_path, {path.name: 0}))
        for read in reads:
            with pytest.raises(UserError, match=f"{path.name} is {what}, not a regular file"):
                read()
        for kind, names in TOKENIZERS.items():
            folder = tmp_path / f"{kind} {path.name}"
            folder.mkdir()
            for name in names:
                (folder / name).symlink_to(path)
            with pytest.raises(UserError, match=rf"{names[0]} is {what}, not a regular file"):
                Tokenizer.from_file(folder, **({"pattern": "gpt2"} if kind == "tiktoken" else {}))
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert files.read_bytes(tmp_path / "link") == b"text"
    with pytest.raises(FileNotFoundError):
        files.read_bytes(tmp_path / "none")


DEEP = {"lists": "[" * 100_000 + "]" * 100_000, "objects": '{"a":' * 100_000 + "1" + "}" * 100_000}


@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)
def test_deeply_nested_json_is_rejected(deep, tmp_path):
    for name in ("tokenizer.json", "superbpe.json", "vocab.json", "a.tiktoken.json"):
        folder = tmp_path / f"with {name}"
        folder.mkdir()
        (folder / "merges.txt").touch()
        (folder / "a.tiktoken").touch()
        (folder / name).write_text(deep)
        with pytest.raises(UserError, match=f"{name} nests JSON values too deeply"):
            Tokenizer.from_file(folder)
    for part in ("normalizer", "pre_tokenizer", "model_novel", "extra"):
        path = hf_file(tmp_path, **{part: "DEEP"})
        path.write_text(path.read_text().replace('"DEEP"', deep))
        with pytest.raises(UserError, match="nests JSON values too deeply"):
            Tokenizer.from_file(path)
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "a", "x": {deep}}}\n')  # harmless in a record
    assert list(Corpus(CorpusConfig(paths=[str(path)])).documents()) == ["a"]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "/etc/hostname", "../../x", "a/../b", "a//b", "./a", "a\\b", "C:b", "a\nb", 3, None]
)
def test_a_name_that_leaves_its_folder_is_rejected(name, tmp_path):
    with pytest.raises(UserError, match="not a plain path inside the folder"):
        files.confined(tmp_path, name)
    with pytest.raises(UserError, match="not a plain path inside the folder"):
        check_sizes(tmp_path, {name: 1})
