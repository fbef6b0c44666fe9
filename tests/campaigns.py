"""Attacks on runs and files: `python -m tests.campaigns NAME --n N [--seed S]`.

- kills: every command in turn is killed at a random time, or while it writes; the same command then finishes with the
  files of an undisturbed run, and leaves nothing unfinished.
- errors: the same with an error of the system (a full disk, a failing call, a limit); it is one line and exit code 2.
- damage: a file of a finished experiment is changed; reading it is an error that names it, unless its content is equal.
- tokenizers: a tokenizer file is changed or hostile; it loads as what other software reads, or is rejected in one line,
  within limits on time and memory.
- corpora: hostile text files; what is read is what Python's parsers read, and whatever is skipped is counted.

A case fails if a process ends in a traceback or a panic, takes a minute more than usual, or reads something else than
what is there without saying so. Prints the failures and the numbers of outcomes; exits with 1 if there was a failure.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import suppress
from functools import cached_property, partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash
import zstandard

from tests import changed_files, hostile_tokenizers
from tests.changed_files import changed_bytes, changed_json
from tests.experiments.commands.test_downstream import write_task
from tests.experiments.conftest import tiny_overrides, write_corpus
from tokenizer import Corpus, CorpusConfig, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
SETTINGS = ["budget.train_bytes=4096", "budget.tolerance=0.4", "bpe.vocab_size=340", "lm.train.bytes_per_step=2048"]
SETTINGS += ["lm.train.context_bytes=256", "runner.threads=2"]
SECONDS = 60
"""A process may take this much longer than an undisturbed one."""
BUG = re.compile(r"Traceback \(most recent|PanicException|panicked at|Logging error")
TOKENIZERS = ["folder", "folder of superwords", "folder of two passes", "hf", "gpt2", "tiktoken"]

FAULTS = """
import errno, itertools, os, resource, sys
kind, number = sys.argv[1], int(sys.argv[2])
if kind == "fsize":
    resource.setrlimit(resource.RLIMIT_FSIZE, (number, number))
elif kind == "files":
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
else:
    numbers, call, code = itertools.count(), getattr(os, kind), [errno.ENOSPC, errno.EIO, errno.EACCES][number % 3]
    def failing(*arguments, **options):
        if "artifacts" in str(arguments[0]) or kind == "fsync":
            if next(numbers) == number:
                raise OSError(code, os.strerror(code), *(() if kind == "fsync" else [str(arguments[0])]))
        return call(*arguments, **options)
    setattr(os, kind, failing)
sys.argv = ["superbpe", *sys.argv[3:]]
from experiments.__main__ import main
main()
"""
"""A run of `superbpe` with a limit, or with one failing call."""


KILLED = {
    "choose": ["choose TEXT --quick --sizes 300 --heldout 0.5 --out OUT"],
    "train": ["train TEXT --vocab-size 300 --superbpe digits --to OUT/tokenizer"],
    "encode": ["encode BPE TEXT --to OUT/shards"],
    "fertility": ["fertility BPE TEXT --out OUT"],
    "inspect": ["inspect BPE --text TEXT --history --out OUT"],
    "export": [
        "export BPE OUT/own --to superbpe",
        "export BPE OUT/hf --to hf",
        "export BPE OUT/ranks.tiktoken --to tiktoken",
        "export LM OUT/model --to hf",
    ],
    "extend": ["extend BPE TEXT --vocab-size 360 --to OUT/extended"],
    "trim": ["trim BPE TEXT --vocab-size 300 --to OUT/trimmed", "trim MODEL TEXT --model MODEL --to OUT/model"],
    "push": ["push BPE organization/name --to OUT/pushed"],
    "pipeline": [],  # the experiment itself
    "compare": ["compare RUN --artifacts RUN/../artifacts --out OUT"],
    "status": ["status OUT/artifacts --clean --yes"],
    "score": [f"score {model} TEXT --artifacts OUT/artifacts --out OUT/score" for model in ("LM", "MODEL")],
    "generate": ["generate LM --prompt the --max-bytes 20"],
    "downstream": ["downstream LM --tasks TASKS --limit 1 --device cpu --out OUT"],
    "extend-model": ["extend-model MODEL LARGER OUT/model"],
}
"""Command lines of every command of `superbpe`; words in capitals are paths."""
TASK = {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}"}
TASK |= {"metric_list": [{"metric": "bits_per_byte"}]}


class Experiment:
    """A small experiment in real processes, and the hashes of its files after undisturbed runs."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "run"
        self.outputs = self.folder / "artifacts"
        lines = write_corpus(root / "tiny.jsonl").read_text().splitlines(keepends=True)
        (root / "tiny.jsonl").write_text("".join(lines[:80]))
        self.command = ["pipeline", *tiny_overrides(root / "tiny.jsonl", self.folder), *SETTINGS]

    @cached_property
    def commands(self) -> Iterator[Experiment]:
        """The experiment and the lines of `KILLED`, in turn and without end."""
        assert self.expected
        run = shutil.copytree(self.folder, self.root / "finished")
        places = {name: self.root / name.lower() for name in ("BPE", "LARGER", "MODEL", "TASKS")}
        (model,) = json.loads((run / "outputs" / "run.json").read_text())["results"]["arms"][0]["lms"]
        places |= {"TEXT": self.root / "tiny.jsonl", "RUN": run / "outputs", "LM": run / "artifacts" / model}
        for line in (
            "train TEXT --vocab-size 330 --to BPE",
            "export LM MODEL --to hf",
            "extend MODEL TEXT --vocab-size 420 --keep-ids --to LARGER",
        ):
            code, said = Command(self.root, line, places).run()
            assert code == 0, said
        write_task(places["TASKS"], "small", [{"text": "the name of the request"}], **TASK)
        lines = enumerate(line for lines in KILLED.values() for line in lines)
        return cycle([self, *(Command(self.root / f"command-{number}", line, places) for number, line in lines)])

    def clear(self) -> None:
        """Remove what the command wrote."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def unfinished(self) -> list[Path]:
        """Temporary folders of the command."""
        return [*self.folder.parent.glob(".*.partial"), *self.folder.rglob("*.partial")]

    @cached_property
    def expected(self) -> tuple[dict[str, str], float]:
        """Hashes of the files that do not hold times, and the seconds of a run."""
        found = []
        for _ in range(2):
            self.clear()
            began = time.monotonic()
            code, said = self.run()
            assert code == 0, said
            found.append(hashes(self.outputs))
        return {name: found[0][name] for name in found[0] if found[0][name] == found[1].get(name)}, (
            time.monotonic() - began
        )

    def start(self, *before: str) -> subprocess.Popen[str]:
        """Start the command, in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, *(before or ["-m", "experiments"]), *self.command],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *before: str, seconds: float = 300) -> tuple[int, str]:
        """Run the command; returns the exit code and the output."""
        process = self.start(*before)
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"a hang of {seconds:.0f} s: {process.communicate()[0][-2000:]}") from None
        assert not BUG.search(said), said
        return process.returncode, said

    def finish(self) -> None:
        """Run the command to its end, and compare the files with those of an undisturbed run."""
        expected, seconds = self.expected
        code, said = self.run(seconds=seconds + SECONDS)
        # Killed after its last rename, the command had finished; its files are complete.
        assert code == 0 or "exists; name a" in said, said
        found = hashes(self.outputs)
        wrong = [name for name, value in expected.items() if found.get(name) != value]
        assert not wrong, f"other files: {wrong}"
        assert not self.unfinished(), self.unfinished()


class Command(Experiment):
    """A line of `KILLED`, which writes into `root / "run"`."""

    def __init__(self, root: Path, line: str, places: dict[str, Path]) -> None:
        self.folder = self.outputs = root / "run"
        self.given = root.parent / "finished" / "artifacts"
        self.command = [
            re.sub("^[A-Z]+", lambda found: str((places | {"OUT": self.folder})[found[0]]), word)
            for word in line.split()
        ]

    def clear(self) -> None:
        """Remove what the command wrote, and give `status` artifacts that no run needs."""
        super().clear()
        self.folder.mkdir(parents=True)
        if self.command[0] == "status":
            shutil.copytree(self.given, self.folder / "artifacts", ignore=lambda *_: [".runs"])


def hashes(artifacts: Path) -> dict[str, str]:
    """Checksums of all files of finished artifacts, without dates; JSON without seconds."""

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: timeless(each) for key, each in value.items() if "second" not in key and key != "seal"}
        return [timeless(each) for each in value] if isinstance(value, list) else value

    found = {}
    for path in (path for path in artifacts.rglob("*") if path.is_file() and path.name != "manifest.json"):
        if "/." in str(path.relative_to(artifacts.parent)):  # the store's own
            continue
        content = re.sub(rb"\d{4}-\d\d-\d\d \d\d:\d\d UTC", b"", path.read_bytes())
        if path.suffix == ".json":
            content = json.dumps(timeless(json.loads(content))).encode()
        found[path.relative_to(artifacts).as_posix()] = xxhash.xxh3_128_hexdigest(content)
    return found


def kills(experiment: Experiment, rng: random.Random) -> str:
    """Kill the next command at a random time or when it writes, and finish it."""
    experiment = next(experiment.commands)
    _, seconds = experiment.expected
    experiment.clear()
    process = experiment.start()
    if rng.random() < 0.5:
        time.sleep(rng.uniform(0.1, seconds))
    else:
        while process.poll() is None and not experiment.unfinished():
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.02))
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    said, _ = process.communicate()
    assert not BUG.search(said), said
    experiment.finish()
    end = "killed" if process.returncode == -signal.SIGKILL else "finished before"
    return f"{experiment.command[0]}: {end}"


def errors(experiment: Experiment, rng: random.Random) -> str:
    """Inject one error, which must be one line with exit code 2, and finish the experiment."""
    _, seconds = experiment.expected
    shutil.rmtree(experiment.folder)
    kind = rng.choice(["fsize", "files", "fsync", "replace", "mkdir", "open", "unlink"])
    number = {"fsize": rng.choice([0, 100, 5000, 60_000]), "files": rng.randint(20, 60)}.get(kind, rng.randrange(40))
    code, said = experiment.run("-c", FAULTS, kind, str(number), seconds=seconds + SECONDS)
    assert code in (0, 2), f"{kind} {number}: exit code {code}\n{said}"
    if code == 2:
        complaints = [line for line in said.splitlines() if line.startswith("error: ")]
        assert len(complaints) == 1, f"{kind} {number}: {said}"
    experiment.finish()
    return f"{kind}: {'an error, then the same' if code else 'no effect'}"


def damage(experiment: Experiment, rng: random.Random) -> str:
    """Change one file of the finished experiment, which may not be used; sometimes by running the experiment again."""
    from experiments.results import Folder
    from experiments.store.artifacts import Store

    expected, _ = experiment.expected
    artifacts = experiment.folder / "artifacts"
    path = rng.choice(sorted(path for path in artifacts.glob("[a-z]*/**/*") if path.is_file()))
    content = path.read_bytes()
    structured = path.suffix == ".json" and rng.random() < 0.6
    changed = (changed_json if structured else changed_bytes)(rng, content)
    if changed == content:
        return "not changed"
    try:
        path.write_bytes(changed)
        name = path.relative_to(artifacts).parts[0]
        if rng.random() < 0.03:
            code, said = experiment.run()
            assert code in (0, 2), said
            assert code == 2 or hashes(artifacts).items() >= expected.items(), f"{path}: was used\n{said}"
            assert code == 0 or name in said, f"{path}: {said}"
            return f"run again: exit code {code}"
        try:
            artifact = Store(artifacts, verify="always").find(name, Folder)
            assert artifact is not None
            assert artifact.path
        except UserError as error:
            if name not in str(error):
                raise
            return "rejected"
        assert path.name == "manifest.json", f"{path} was not noticed"
        assert json.loads(changed) == json.loads(content), f"{path} was not noticed"
        return "other white space"
    finally:
        path.write_bytes(content)


def tokenizers(_: Experiment, rng: random.Random) -> str:
    """Change a file of a tokenizer and load it, see `changed_files.case`; or reject a file that is made to hang."""
    kind = rng.choice([*TOKENIZERS, "hostile"])
    with tempfile.TemporaryDirectory() as folder:
        if kind == "hostile":
            return hostile_tokenizers.case(rng, Path(folder))
        return f"{kind}: {changed_files.case(rng, kind, Path(folder))}"


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


def corpora(_: Experiment, rng: random.Random) -> str:
    """Read a hostile file of text; what is skipped must be counted."""
    if rng.random() < 0.4:
        kind = rng.choice(["jsonl", "jsonl.gz", "jsonl.zst", "parquet"])
        with tempfile.TemporaryDirectory() as folder:
            return f"changed {kind}: {changed_files.case(rng, kind, Path(folder))}"
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
    return f"{suffix or 'plain'}{', cut' * cut}: {'rejected' if isinstance(strict, str) else 'read'}"


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


CAMPAIGNS: dict[str, Callable[[Experiment, random.Random], str]] = {
    campaign.__name__: campaign for campaign in (kills, errors, damage, tokenizers, corpora)
}


def main(argv: list[str]) -> int:
    """Run the cases of a campaign; returns 1 if one of them failed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("campaign", choices=CAMPAIGNS)
    options.add_argument("--n", type=int, default=100, help="number of cases (default 100)")
    options.add_argument("--seed", type=int, default=0, help="number of the first case (default 0)")
    arguments = options.parse_args(argv)
    warnings.simplefilter("ignore")
    outcomes, failed, began = Counter[str](), 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        experiment = Experiment(Path(folder))
        for number in range(arguments.seed, arguments.seed + arguments.n):
            case = partial(CAMPAIGNS[arguments.campaign], experiment, random.Random(f"{arguments.campaign} {number}"))
            try:
                outcomes[case()] += 1
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # panics of Rust included
                failed += 1
                print(f"FAILED {number}: {type(error).__name__}: {error}", flush=True)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:6}  {outcome}")
    print(f"{failed} of {arguments.n} failed, {time.monotonic() - began:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
