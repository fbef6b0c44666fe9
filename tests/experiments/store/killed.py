"""Kill the making of an artifact at every change of a file, repeat it, and compare.

A process of its own, so that it can fork before any thread runs:
`python -m tests.experiments.store.killed FOLDER [resumable]`. Prints the number of kills.
"""

import sys
from pathlib import Path

from experiments.store.artifacts import Store
from tests.experiments.store.demo import make
from tests.kills import kills
from tokenizer.durable import write_whole


def build(folder):
    # What a resumable stage does: a checkpoint for as long as it takes, then the result.
    if not (folder / "result").exists():
        write_whole(folder / "checkpoint", "state")
        write_whole(folder / "result", "model")
    (folder / "checkpoint").unlink(missing_ok=True)
    return {"size": 5}


def main(root, *, resumable):
    def work(n):
        (root / f"at-{n}").mkdir(exist_ok=True)
        return make(Store(root / f"at-{n}"), "lm", config={}, inputs={}, build=build, resumable=resumable)

    n = 0
    for n in kills(work):
        artifact = work(n)
        assert set(artifact.manifest.files) == {"result"}, n
        assert (artifact.path / "result").read_text() == "model"
        assert sorted(path.name for path in artifact.path.iterdir()) == ["manifest.json", "result"], n
        assert not work(n).fresh
    print(n + 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), resumable=sys.argv[2:] == ["resumable"])
