"""Check an installed copy, run from outside the clone: `check_install.py CLONE`."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

PACKAGES = ("tokenizer", "superbpe", "lm", "configs", "experiments")


def main() -> None:
    """Compare the installed files with the clone's, then use them."""
    clone = Path(sys.argv[1])
    for name in PACKAGES:
        installed = Path(importlib.import_module(name).__file__ or "").parent
        assert Path(sys.prefix) in installed.parents, f"{name} comes from {installed}, not from {sys.prefix}"
        for kind in ("*.py", "*.pyi", "*.yaml", "*.html", "*.css", "*.js", "*.typed"):
            wanted = {path.relative_to(clone / name) for path in (clone / name).rglob(kind)}
            missing = wanted - {path.relative_to(installed) for path in installed.rglob(kind)}
            assert not missing, f"the wheel lacks {sorted(str(Path(name) / path) for path in missing)}"
        print(f"{name}: complete in {installed}")

    from tokenizer import train_bpe
    from tokenizer._native import Batch
    from tokenizer.train.counting import count_pretokens

    text = "the cat sat on the mat, the other cat sat there\n" * 20
    counts = count_pretokens([Batch.from_texts([text])], "gpt2")
    tokenizer = train_bpe(counts, vocab_size=280)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert len(ids) < len(text) // 2
    print(f"trained {tokenizer.vocab_size} tokens; {len(text)} bytes become {len(ids)} tokens")

    from tokenizer.corpus import embedded

    # Without the `demo` extra: the small fallback.
    assert embedded.identity()["fallback"]
    print(f"the embedded corpus falls back to {sum(1 for _ in embedded.documents())} documents")

    command = [sys.executable, "-m", "experiments.pipeline", "--cfg", "job"]
    composed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "vocab_size" in composed
    print("python -m experiments.pipeline composes its configuration")


if __name__ == "__main__":
    main()
