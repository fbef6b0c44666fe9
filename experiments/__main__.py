"""List and run the commands: `python -m experiments [COMMAND ...]`, the same as `superbpe`."""

from experiments.cli.commands import main

if __name__ == "__main__":
    main()
