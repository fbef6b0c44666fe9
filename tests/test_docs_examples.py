"""Every code block of the README and of docs/ is run, or says why not: `<!-- not run: REASON -->` before the block.

Blocks of a page run in order in a folder of its own, in this process. Corpus and models are tiny.
"""

import contextlib
import itertools
import json
import os
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from experiments.cli import main
from tests import texts
from tests.experiments.conftest import tiny_overrides, write_corpus
from tests.tokenizer.formats.other_formats import write_gpt2
from tokenizer import Corpus, CorpusConfig, train_bpe

transformers = pytest.importorskip("transformers")

_ROOT = Path(__file__).parents[1]
_PAGES = [_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"(?:^<!-- not run: ([^\n]*) -->\n+)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OUTPUT = "text"  # language of what commands print, and of tables of characters
_TEXT = "data/*.jsonl.zst"
# Sizes of vocabularies in the examples, and smaller ones in the same order.
_SIZES = {"20000": "300", "20_000": "300", "32_000": "400", "50000": "400", "60000": "450", "60_000": "450"}
# Settings whose documented value takes too long.
_SMALL = {
    "arms.small.bpe.vocab_size": "300",
    "bpe.vocab_size": "400",
    "budget.train_bytes": "40960",
    "budget.train_flops": "1e10",
    "lm.model.hidden_size": "32",
    "lm.model.n_layers": "1",
    "lm.n_seeds": "1",
    "lm.train.bytes_per_step": "1024",
    "lm.train.warmup_steps": "2",
    "superbpe.vocab_size": "400",
}
_TASK = """\
task: items
dataset_path: json
dataset_kwargs: {data_files: {test: tasks/items.jsonl}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: bits_per_byte}]
"""
# Settings in configs/experiment/bakeoff.yaml that take too long.
_BAKEOFF = {
    "lm.tune_validation_bytes": "5000",
    "budget.ladder": "[0.5]",
    "corpus.heldout_sample": "1",
    "corpus.source_field": "source",
    "lm.n_seeds": "1",
    "lm.train.warmup_steps": "2",
}


class _Block(NamedTuple):
    reason: str  # why it is not run
    language: str
    code: str


def _blocks(page):
    return [_Block(*groups) for groups in _BLOCK.findall(page.read_text())]


def _overrides(written):
    """Settings of a tiny run, and the documented ones where they do not make it longer."""
    documented = dict(word.split("=", 1) for word in written)
    ladder = documented.get("experiment") == "bakeoff"
    tiny = dict(word.split("=", 1) for word in tiny_overrides(Path(_TEXT), Path()))
    small = {key: value for key, value in _SMALL.items() if key in documented}
    bakeoff = {key: value for key, value in _BAKEOFF.items() if key not in documented} if ladder else {}
    steps = {"lm.train.bytes_per_step": "1024", "budget.tolerance": "0.3"}
    steps = steps if bakeoff or "budget.ladder" in documented else {}
    return {**tiny, **documented, **bakeoff, **small, **steps, "corpus.heldout_fraction": "0.1"}


def _run_command(line, *, last=True):
    program, *words = shlex.split(line, comments=True)
    if program == "python":
        sys.argv = words[1:]
        with pytest.raises(SystemExit) as end:
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        assert not end.value.code, line
        return
    assert program == "superbpe", f"{line!r} cannot be run here: write <!-- not run: REASON --> before its block"
    name, *words = words
    if name == "pipeline":
        settings = [word for word in words if "=" in word and not word.startswith("--")]
        flags = [word for word in words if word not in settings]
        trained_by_another = not last or settings == ["experiment=bakeoff"]
        if trained_by_another and "--until" not in flags:
            flags += ["--until", "shard"]
        words = [*flags, *(f"{key}={value}" for key, value in _overrides(settings).items())]
    assert main.run([name, *words]) == 0, line


def _small(code):
    """The code with smaller sizes, and with names of this folder where it has examples of names."""
    code = re.sub(r"\b[2-6]0_?000\b|\b32_000\b", lambda size: _SIZES[size[0]], code)
    code = code.replace("--max-bytes 100kB", "--max-bytes 5kB")
    code = code.replace("outputs/2026-11-22/10-00-00-sweep", "sweep")
    if "artifacts/lm-" in code:
        names = [arm["lms"][0] for arm in json.loads(Path("outputs/run.json").read_text())["results"]["arms"]]
        code = code.replace("lm-0123456789ab", names[0])
        two = " ".join(f"artifacts/{name}" for name in names[:2])  # not those of all examples of the page
        code = re.sub(r"(?m)^superbpe (generate|downstream) artifacts\b", rf"superbpe \1 {two}", code)
    return re.sub(r"\bRUN\b", "outputs", code)


def _run(block, page, names):
    code = _small(block.code)
    if block.language == "sh":
        lines = [line for line in code.replace("\\\n", " ").splitlines() if line.strip()]
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            # Of experiments in a row, and of two bakeoffs, only the last one trains models.
            _run_command(line, last=not following.startswith("superbpe pipeline"))
    else:
        assert block.language == "python", f"{page.name}: no test runs blocks of the language {block.language!r}"
        exec(compile(code, str(page), "exec"), names)


@pytest.fixture(scope="session")
def taken_for_granted(tmp_path_factory):
    """A folder with the text, tokenizers and models that the examples mention."""
    folder = tmp_path_factory.mktemp("docs")
    sources = itertools.cycle([b'{"source": "web", ', b'{"source": "code", '])
    documents = write_corpus(folder / "text.jsonl").read_bytes().splitlines(keepends=True)
    lines = [next(sources) + line.removeprefix(b"{") for line in documents]
    for name in ("data", "heldout"):
        (folder / name).mkdir()
    prose = [json.dumps({"text": text}).encode() + b"\n" for text in sorted(topics.values(), key=len)[20:50]]
    for name in ("data/part.jsonl.zst", "heldout.jsonl.zst", "heldout/web.jsonl.zst"):
        (folder / name).write_bytes(zstandard.compress(b"".join(lines if name.startswith("data") else prose)))
    pq.write_table(pa.table({"text": ["def f(x):\n    return x + 1\n"] * 20}), folder / "heldout" / "code.parquet")
    pq.write_table(pa.table({"text": ["a text", "another text"], "count": [5, 3]}), folder / "words.parquet")
    for name, text in (("en", "a text of number"), ("ja", "番号の文")):
        (folder / f"{name}.jsonl").write_text("".join(f'{{"text": "{text} {i}", "id": {i}}}\n' for i in range(9)))
    (folder / "book.txt").write_text("\n".join(texts.prose()))
    (folder / "tasks").mkdir()
    (folder / "tasks" / "items.jsonl").write_text('{"text": "one two three"}\n' * 4)
    (folder / "tasks" / "items.yaml").write_text(_TASK)
    (folder / "text.jsonl").unlink()
    with contextlib.chdir(folder):
        sizes = {"pattern": "gpt2", "bpe.unit": "document", "bpe.vocab_size": "350", "superbpe.vocab_size": "350"}
        settings = [f"{key}={value}" for key, value in (_overrides([]) | sizes).items()]
        assert main.run(["pipeline", "--until", "evaluate", *settings]) == 0
        corpus = Corpus(CorpusConfig(paths=[_TEXT], heldout_fraction=0.0))
        others = {"meta-llama/Meta-Llama-3-8B": "llama3", "my-tokenizer": "gpt2", "mine": "gpt2"}
        for name, pattern in (others | {name: name for name in ("llama3", "o200k")}).items():
            (folder / name).parent.mkdir(exist_ok=True)
            train_bpe(corpus, 350, pattern=pattern).save(folder / name)
        (folder / "llama3" / "superbpe.json").unlink()  # somebody else's, trained on unknown text
        gpt2 = train_bpe(corpus, 350, pattern="gpt2")
        write_gpt2(gpt2, folder / "gpt2")
        size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
        transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=350, **size)).save_pretrained("model")
        gpt2.save("model")
    return folder


@pytest.fixture
def place(taken_for_granted, tmp_path, monkeypatch):
    """A copy of that folder, as the current one."""
    shutil.copytree(taken_for_granted, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["superbpe"])
    return tmp_path


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_every_block_can_be_run_or_says_why_not(page):
    text, blocks = page.read_text(), _blocks(page)
    assert len(re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE)) == 2 * len(blocks), "a block is not seen"
    assert text.count("<!-- not run:") == sum(bool(block.reason) for block in blocks), "a marker is not before a block"
    for block in blocks:
        assert block.reason or block.language in ("sh", "python", _OUTPUT), block.code


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in _PAGES if any(b.language != _OUTPUT and not b.reason for b in _blocks(page))],
    ids=lambda page: page.stem,
)
@pytest.mark.usefixtures("place")
def test_every_example_runs(page):
    names = {"__name__": "__main__"}
    if "--to my-tokenizer" in page.read_text():
        shutil.rmtree("my-tokenizer")
    for block in _blocks(page):
        if not block.reason and block.language != _OUTPUT:
            _run(block, page, names)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((_ROOT / "docs" / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_every_notebook_runs(path, tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "strip the outputs"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
