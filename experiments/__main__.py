"""The command `superbpe`; `python -m experiments` is the same."""

import sys
from importlib.util import find_spec
from pathlib import Path

_HOME = Path(__file__).parents[1]


def foreign(home: Path = _HOME) -> str | None:
    """Say which package of this project is another's: of a folder earlier on the path, or of a later installation."""
    record = "".join(path.read_text("utf-8") for path in home.glob("superbpe_framework-*.dist-info/RECORD"))
    for name in ("tokenizer", "superbpe", "lm", "configs", "experiments"):
        spec, file = find_spec(name), home / name / "__init__.py"
        origin = "nothing" if spec is None else spec.origin or "a folder without __init__.py"
        _, known, entry = record.partition(f"\n{name}/__init__.py,sha256=")
        size = int(entry.partition("\n")[0].rpartition(",")[2]) if known else None
        if not Path(origin).exists() or not file.samefile(origin) or size not in (None, file.stat().st_size):
            return (
                f"import {name} finds {origin} of another project; install superbpe-framework in an environment of its "
                f"own, or run the command in a folder without a package {name}"
            )
    return None


def main() -> None:
    """Run the command that the command line names, and exit."""
    if (clash := foreign()) is not None:
        print(f"error: {clash}", file=sys.stderr)
        sys.exit(2)
    from experiments.cli.process import prepare

    prepare()
    from experiments.cli.main import main  # imported after `prepare`, which makes signals safe during slow imports

    main()


if __name__ == "__main__":
    main()
