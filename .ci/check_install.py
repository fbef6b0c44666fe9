"""Check an installed copy from outside the clone: `check_install.py base|EXTRA CLONE DIST`; DIST has the sdist."""

from __future__ import annotations

import gzip
import importlib
import subprocess
import sys
import tarfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from tokenizer.errors import DISTRIBUTION

PACKAGES = {"tokenizer", "superbpe", "lm", "configs", "experiments"}
OF_EXTRAS = ("altair", "hydra", "omegaconf", "pyarrow", "ray", "torch", "transformers", "wandb")

TEXT = "the cat sat on the mat, the other cat sat there\n"
BIN = Path(sys.prefix) / "bin"


def run(*command: object, code: int = 0) -> str:
    """Run a command of the environment; return what it prints."""
    done = subprocess.run([BIN / str(command[0]), *map(str, command[1:])], capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    assert done.returncode == code, f"{command} exits with code {done.returncode}: {printed}"
    return printed


def tracked(clone: Path, *folders: str) -> set[Path]:
    """Files of the clone in these folders, new ones included."""
    command = ["git", "-C", str(clone), "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    return {Path(name) for name in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()}


def same(what: str, found: set[Path], wanted: set[Path]) -> None:
    """Nothing is missing, and there is nothing else."""
    assert not wanted - found, f"{what} lacks {sorted(map(str, wanted - found))}"
    assert not found - wanted, f"{what} contains {sorted(map(str, found - wanted))}"
    print(f"{what} has the {len(wanted)} files of the clone that belong there, and no other")


def sdist(clone: Path, dist: Path) -> None:
    """The source distribution has the packages and the Rust core."""
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        found = {Path(*Path(member.name).parts[1:]) for member in file if member.isfile()}
    top = {Path(name) for name in ("PKG-INFO", "LICENSE", "README.md", "pyproject.toml")}
    same("the sdist", found, tracked(clone, *sorted(PACKAGES), "native") | top)


def wheel(clone: Path) -> None:
    """The wheel has every file of the packages, and its core."""
    core = {file for file in metadata.files(DISTRIBUTION) or () if file.match("tokenizer/_native*")}
    installed = {
        Path(file)
        for file in metadata.files(DISTRIBUTION) or ()
        if not file.parts[0].endswith(".dist-info") and file.suffix != ".pyc" and file.name != "superbpe"
    }
    assert {file.suffix for file in core} == {".so", ".pyi"}, core
    same("the wheel", installed, tracked(clone, *sorted(PACKAGES)) | {Path(file) for file in core})
    for name in PACKAGES:
        origin = Path(importlib.import_module(name).__file__ or "")
        assert Path(sys.prefix) in origin.parents, f"{name} comes from {origin}, not from {sys.prefix}"


def base(clone: Path) -> None:
    """Train, encode, save and load; then the commands; nothing of the extras is installed."""
    present = [name for name in OF_EXTRAS if find_spec(name)]
    assert not present, f"the base installs {present}"
    from tokenizer import Tokenizer, train_bpe

    tokenizer = train_bpe([TEXT] * 20, 270)
    tokenizer.save(Path("saved"))
    ids = Tokenizer.load(Path("saved")).encode(TEXT)
    assert tokenizer.decode(ids) == TEXT
    assert len(ids) < len(TEXT)
    reference = importlib.import_module("tokenizer.reference")
    merges = reference.train_incremental(reference.count_pretokens([TEXT], tokenizer.pattern.regex), 13)
    assert [merge[:2] for merge in merges] == tokenizer.merges
    Path("text.txt").write_bytes((clone / "LICENSE").read_bytes())
    Path("paragraphs.txt").write_bytes((clone / "docs/decisions.md").read_bytes())
    with gzip.open("text.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write('{"text": "the cat sat on the mat"}\n' * 20)
    # One frame of one raw block, because Python's standard library cannot compress with Zstandard before 3.14.
    line = b'{"text": "the cat sat"}\n'
    block = (len(line) << 3 | 1).to_bytes(3, "little")
    Path("text.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd\x20" + bytes([len(line)]) + block + line)
    run("superbpe", "train", "text.txt", "text.jsonl.gz", "--vocab-size", 400, "--to", "bpe")
    run("superbpe", "train", "text.txt", "--vocab-size", 400, "--superbpe", "uw-2025", "--to", "sup")
    run("superbpe", "encode", "bpe", "text.txt", "text.jsonl.zst", "--to", "shards")
    run("superbpe", "export", "bpe", "hf", "--to", "hf")
    run("superbpe", "extend", "bpe", "text.txt", "--vocab-size", 410, "--to", "extended")
    print("trains, encodes, saves, loads, exports and extends tokenizers")
    for extra, command in {"pages": ("inspect", "bpe"), "experiments": ("pipeline",)}.items():
        printed = run("superbpe", *command, code=2)
        assert f"pip install '.[{extra}]'" in printed, printed
        assert len(printed.splitlines()) == 1, printed
    assert len(run("python", "-m", "experiments", "pipeline", code=2).splitlines()) == 1
    print("names the extra of a missing package")


def parquet() -> None:
    """Counts are saved and loaded."""
    from tokenizer import PretokenCounts, count_pretokens

    counts = count_pretokens([TEXT], "gpt2")
    counts.save(Path("counts.parquet"))
    assert PretokenCounts.load(Path("counts.parquet")) == counts


def pages() -> None:
    """The pages of a vocabulary, of a comparison by tokens and of a choice."""
    run("superbpe", "inspect", "bpe", "--text", "text.txt", "--out", "page")
    assert Path("page/vocabulary.html").stat().st_size > 100_000
    run("superbpe", "fertility", "bpe", "sup", "--text", "text.txt", "--out", "fertility")
    run("superbpe", "choose", "paragraphs.txt", "--separator", r"\n\n", "--quick", "--sizes", 400, "--heldout", 0.5)
    assert Path("choose/choose.html").exists()


def lm() -> None:
    """A model is made."""
    from lm.model.config import ModelConfig
    from lm.model.transformer import Transformer

    model = Transformer(ModelConfig(n_layers=1), 280, 16)
    assert sum(weights.numel() for weights in model.parameters())


def experiments() -> None:
    """The pipeline composes its configuration, and names the packages that the embedded corpus needs."""
    assert "vocab_size" in run("superbpe", "pipeline", "--cfg", "job")
    assert "the embedded corpus needs" in run("superbpe", "pipeline", "--until", "count", code=2)


def hf() -> None:
    """`transformers` loads an exported tokenizer."""
    from transformers import AutoTokenizer

    from tokenizer import Tokenizer

    assert AutoTokenizer.from_pretrained("hf").encode(TEXT) == Tokenizer.load(Path("bpe")).encode(TEXT)


def eval() -> None:  # noqa: A001  (the name of the extra)
    """The adapter to lm-eval."""
    importlib.import_module("lm.evaluate.lm_eval")


if __name__ == "__main__":
    if sys.argv[1] == "base":
        sdist(Path(sys.argv[2]), Path(sys.argv[3]))
        wheel(Path(sys.argv[2]))
        base(Path(sys.argv[2]))
    else:
        globals()[sys.argv[1]]()
    print(f"{sys.argv[1]}: passed")
