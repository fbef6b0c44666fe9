"""The command `superbpe`; `python -m experiments` is the same."""

from experiments.cli.process import prepare


def main() -> None:
    """Run the command that the command line names, and exit."""
    prepare()
    from experiments.cli.main import main  # imported after `prepare`, which makes signals safe during slow imports

    main()


if __name__ == "__main__":
    main()
