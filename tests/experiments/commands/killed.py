"""Kill commands that write at every change of a file, repeat them, and look at what they left.

A process of its own, so that it can fork before any thread runs: `python -m tests.experiments.commands.killed FOLDER`.
Prints the number of kills.
"""

import os
import sys
from pathlib import Path

# Imported once, and not in every fork.
from huggingface_hub import HfApi, ModelCardData  # noqa: F401

from experiments.cli import main
from experiments.commands import encode, export, extend, push, train  # noqa: F401
from experiments.store import trained_models  # noqa: F401
from tests.kills import kills

COMMANDS = [
    "train a.txt --vocab-size 300 --to out",
    "extend bpe a.txt --vocab-size 300 --to out",
    "encode bpe a.txt --to out",
    "encode bpe a.txt --to out --layout automodel",
    "export bpe out --to superbpe",
    "export bpe out --to hf",
    "export bpe out.json --to hf",
    "export bpe out.tiktoken --to tiktoken",
    "push bpe a/b --to out",
]


def apart(work):
    """Do something in a process of its own, since it starts threads."""
    if (child := os.fork()) == 0:
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill(words, folder):
    """Kill a command at each of its changes; returns the number of kills.

    Killed after its last rename, the command has finished, and says so when it is repeated.
    """

    def work(n):
        (folder / f"at-{n}").mkdir(parents=True, exist_ok=True)
        for name in ("a.txt", "bpe"):
            if not (folder / f"at-{n}" / name).is_symlink():
                (folder / f"at-{n}" / name).symlink_to(folder.parent / name)
        os.chdir(folder / f"at-{n}")
        return main.run(words)

    codes = [apart(lambda n=n: work(n)) for n in kills(work)]
    assert codes == sorted(codes), f"{words}: {codes}"
    assert codes.count(0) >= len(codes) - 2, f"{words}: {codes}"
    left = [sorted(path.name for path in (folder / f"at-{n}").rglob("*")) for n in range(len(codes) + 1)]
    assert all(names == left[-1] for names in left), f"{words}: {left}"
    assert not [name for name in left[-1] if name.startswith(".")]
    return len(codes)


if __name__ == "__main__":
    os.fsync = lambda _: None  # takes most of the time
    root = Path(sys.argv[1])
    (root / "a.txt").write_text("some text of some words, " * 100)
    os.chdir(root)
    assert apart(lambda: main.run(["train", "a.txt", "--vocab-size", "280", "--to", "bpe"])) == 0
    print(sum(kill(words.split(), root / str(number)) for number, words in enumerate(COMMANDS)))
