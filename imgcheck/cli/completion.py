"""`imgcheck completion`: what bash, zsh and fish complete, written from the commands' own parsers."""

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from imgcheck.cli import COMMANDS, OK, options
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.schedulers import schedulers

_EXAMPLES = """
source <(imgcheck completion bash)                                      in ~/.bashrc
imgcheck completion zsh > "${fpath[1]}/_imgcheck"
imgcheck completion fish > ~/.config/fish/completions/imgcheck.fish
"""


@dataclass(frozen=True)
class _Option:
    names: tuple[str, ...]
    help: str
    takes_value: bool
    words: tuple[str, ...]
    """What the value may be; none of it known: a file."""


@dataclass(frozen=True)
class _Command:
    name: str
    help: str
    options: tuple[_Option, ...]
    words: tuple[str, ...]
    """What an argument without a dash may be, besides a file."""


def run(arguments: Sequence[str]) -> int:
    parser = options.parser("completion", "Prints the completion script of a shell.", _EXAMPLES)
    parser.add_argument("shell", choices=tuple(_SHELLS))
    parsed = parser.parse_args(arguments)
    sys.stdout.write(_SHELLS[parsed.shell](list(_commands())))
    return OK


def _commands() -> Iterator[_Command]:
    knowledge = Knowledge()
    values = {"--runtime": tuple(knowledge.runtimes), "--scheduler": tuple(schedulers(knowledge))}
    arguments = {"explain": tuple(sorted(knowledge.catalogue))}
    for name, what in COMMANDS.items():
        actions = _parser(name)._actions
        listed = tuple(_option(action, values) for action in actions if action.option_strings and _shown(action))
        words = [str(word) for action in actions if not action.option_strings for word in action.choices or ()]
        yield _Command(name, what, listed, (*words, *arguments.get(name, ())))


def _parser(command: str) -> argparse.ArgumentParser:
    try:
        importlib.import_module(f"imgcheck.cli.{command}").run([options.LIST_OPTIONS])
    except options.Listed as listed:
        return listed.parser
    raise AssertionError(f"the parser of {command} is not made by options.parser")


def _shown(action: argparse.Action) -> bool:
    return action.help != argparse.SUPPRESS


def _option(action: argparse.Action, values: dict[str, tuple[str, ...]]) -> _Option:
    names = tuple(action.option_strings)
    words = tuple(action.choices or ()) or getattr(action, options.VALUES, ()) or values.get(names[-1], ())
    return _Option(names, (action.help or "").replace("%%", "%"), action.nargs != 0, words)


def _bash(commands: Sequence[_Command]) -> str:
    cases = "\n".join(_bash_case(command) for command in commands)
    return f"""\
# bash completion of imgcheck
_imgcheck() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} options="" words="" values=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{" ".join(command.name for command in commands)} --help --version" -- "$current"))
        return
    fi
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    if [ -n "$values" ]; then
        COMPREPLY=($(compgen -W "$values" -- "$current"))
    elif [ "${{current#-}}" != "$current" ]; then
        COMPREPLY=($(compgen -W "$options" -- "$current"))
    else
        COMPREPLY=($(compgen -W "$words" -- "$current"))
    fi
}}
complete -o default -F _imgcheck imgcheck
"""


def _bash_case(command: _Command) -> str:
    names = " ".join(name for option in command.options for name in option.names)
    lines = [f"    {command.name})", f'        options="{names}"']
    if command.words:
        lines.append(f'        words="{" ".join(command.words)}"')
    fixed = [option for option in command.options if option.takes_value and option.words]
    if fixed:
        lines.append("        case $previous in")
        lines += [f'        {"|".join(option.names)}) values="{" ".join(option.words)}" ;;' for option in fixed]
        lines.append("        esac")
    return "\n".join([*lines, "        ;;"])


def _zsh(commands: Sequence[_Command]) -> str:
    named = "\n".join(f"        {_quoted(f'{command.name}:{command.help}')}" for command in commands)
    cases = "\n".join(_zsh_case(command) for command in commands)
    return f"""\
#compdef imgcheck
# zsh completion of imgcheck
_imgcheck() {{
    local -a commands
    commands=(
{named}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
{cases}
    esac
}}
if [ "$funcstack[1]" = _imgcheck ]; then _imgcheck "$@"; else compdef _imgcheck imgcheck; fi
"""


def _zsh_case(command: _Command) -> str:
    specs = [_zsh_spec(name, option) for option in command.options for name in option.names]
    specs.append(_quoted(f"*:argument:{_zsh_values(command.words)}"))
    return f"    {command.name})\n        _arguments -s " + " \\\n            ".join(specs) + "\n        ;;"


def _zsh_spec(name: str, option: _Option) -> str:
    text = "".join(f"\\{c}" if c in "[]:\\" else c for c in option.help)
    # The star: an option may be given again.
    return _quoted(f"*{name}[{text}]" + (f":value:{_zsh_values(option.words)}" if option.takes_value else ""))


def _zsh_values(words: Sequence[str]) -> str:
    return f"({' '.join(words)})" if words else "_files"


def _fish(commands: Sequence[_Command]) -> str:
    first = "complete -c imgcheck -f -n __fish_use_subcommand -a"
    lines = ["# fish completion of imgcheck"]
    lines += [f"{first} {command.name} -d {_fished(command.help)}" for command in commands]
    for command in commands:
        within = f"complete -c imgcheck -n '__fish_seen_subcommand_from {command.name}'"
        if command.words:
            lines.append(f"{within} -f -a {_fished(' '.join(command.words))}")
        lines += [f"{within} {_fish_option(option)}" for option in command.options]
    return "\n".join(lines) + "\n"


def _fish_option(option: _Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    value = [f"-x -a {_fished(' '.join(option.words))}" if option.words else "-r"] if option.takes_value else []
    return " ".join([*names, *value, "-d", _fished(option.help)])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fished(text: str) -> str:
    # fish knows no other way out of single quotes than its backslash.
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SHELLS: dict[str, Callable[[Sequence[_Command]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
