"""Shell completion: `superbpe completion bash|zsh|fish` prints a script that asks `superbpe` for the candidates."""

from __future__ import annotations

import importlib
import sys
from argparse import SUPPRESS
from typing import TYPE_CHECKING

from experiments.cli.commands import COMMANDS, GROUPS, SETTINGS
from experiments.cli.console import console
from experiments.cli.options import Parser

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterable

# Bash divides words at '=' and ':', so it inserts only what follows the last of them. Without candidates, each shell
# completes files.
SCRIPTS = {
    "bash": """\
_superbpe() {
    local line=${COMP_LINE:0:COMP_POINT} IFS=$'\\n'
    local word=${line##* }
    COMPREPLY=($(superbpe completion bash --line "$line" 2>/dev/null))
    COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*[=:]}"}"}")
    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
}
complete -o default -F _superbpe superbpe""",
    "zsh": """\
#compdef superbpe
_superbpe() {
    local -a found
    found=(${(f)"$(superbpe completion zsh --line "${(j: :)words[1,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -Q -S '' -- $found; else _files; fi
}
compdef _superbpe superbpe""",
    "fish": """\
complete -c superbpe -a '(superbpe completion fish --line (commandline -cp | string collect))'""",
}


def parser() -> Parser:
    """Options of the command."""
    options = Parser(
        "completion",
        "Print the completion script of a shell.",
        epilog='bash: eval "$(superbpe completion bash)" in ~/.bashrc; zsh: the same in ~/.zshrc, after compinit; '
        "fish: superbpe completion fish > ~/.config/fish/completions/superbpe.fish",
    )
    options.add_argument("shell", choices=SCRIPTS, metavar="SHELL", help=", ".join(SCRIPTS))
    options.add_argument("--line", help=SUPPRESS)
    return options


def run(argv: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    arguments = parser().parse_args(argv)
    found = SCRIPTS[arguments.shell] if arguments.line is None else "\n".join(candidates(arguments.line))
    console.out(found, highlight=False)  # unlike print, ends quietly when the reader of a pipe does
    return 0


def candidates(line: str) -> list[str]:
    """Return the words that can replace the last one of a command line; an empty list for a file.

    Args:
        line: What was typed up to the cursor, from the name of the program.
    """
    *before, word = line.split(" ")[1:] or [""]
    before = [each for each in before if each]
    if not before:
        return _starting(COMMANDS, word)
    if before[0] not in COMMANDS:
        return []
    if before[0] in GROUPS[SETTINGS]:
        return _settings(word)
    module = importlib.import_module(f"experiments.{COMMANDS[before[0]].module}")
    return _options(module.parser(), before[-1], word)


def _options(options: ArgumentParser, previous: str, word: str) -> list[str]:
    """The values of the option before the word, or the names of options."""
    values = options._option_string_actions.get(previous)
    if values is not None and values.choices is not None:
        return _starting(map(str, values.choices), word)
    if word.startswith("-"):
        return _starting(options._option_string_actions, word)
    return _starting((str(each) for a in options._get_positional_actions() for each in a.choices or ()), word)


def _settings(word: str) -> list[str]:
    """The keys and groups of a configuration, or the choices of a group."""
    from experiments.cli.compose import choices, known_keys

    key, equals, value = word.partition("=")
    if equals:
        return [f"{key}={choice}" for choice in _starting(choices(key), value)]
    return [f"{name}=" for name in _starting(known_keys(), word)]


def _starting(words: Iterable[str], start: str) -> list[str]:
    return sorted(word for word in words if word.startswith(start))


if __name__ == "__main__":
    sys.exit(run())
