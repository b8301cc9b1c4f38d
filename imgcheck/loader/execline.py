"""Text of execline -> the commands in it, as shell.py has them (skarnet.org/software/execline).

Such a text is one long command: each program that it names does its work and becomes the one behind it. They are
written one on a line, or in blocks in braces; several on a line are told apart where the first ones are execline's own.
"""

import re
from collections.abc import Iterator

from imgcheck.documents.shell_commands import ShellCommand
from imgcheck.loader.shell import COMMANDS_LIMIT
from imgcheck.loader.shell_words import UNKNOWN

EXECLINE = "execlineb"
"""The program that reads such texts."""
_TOKEN = re.compile(
    r"""[ \t]+ | (?P<end>\n) | \#[^\n]* | (?P<brace>[{}])(?=\s|$) | (?P<word>(?:\\.|"(?:\\.|[^"\\])*"|[^\s"\\])+)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPED = re.compile(r'\\(.)|"', re.DOTALL)
_VARIABLE = re.compile(r"\$\{(\w+|[@#!?])\}|\$(\w+|@)|\$")
_CHOOSE = frozenset({
    "case", "forbacktickx", "forstdin", "forx", "ifelse", "ifte", "ifthenelse", "loopwhilex", "trap", "tryexec",
})  # fmt: skip
"""Programs that run one of several blocks, or none."""
_WITH_BLOCKS = _CHOOSE | {"backtick", "background", "foreground", "if", "multisubstitute", "pipeline", "wait"}
_OPERANDS = {
    "cd": 1, "define": 2, "elgetopt": 1, "elgetpositionals": 0, "emptyenv": 0, "envfile": 1, "exec": 0, "export": 2,
    "fdclose": 1, "fdmove": 2, "fdreserve": 1, "fdswap": 2, "getcwd": 1, "getpid": 1, "import": 1, "importas": 2,
    "redirfd": 2, "umask": 1, "unexport": 1,
}  # fmt: skip
"""Words that stand between a program and the one that it becomes, options left out."""
_VALUED = ("-D", "-a")
"""Options with a value of their own."""


def read_execline(text: str) -> tuple[ShellCommand, ...]:
    """The commands of `text` in their order; one that cannot be told where it is no text of execline."""
    lines = _lines(text)
    if lines is None:
        return (ShellCommand((UNKNOWN,), conditional=True),)
    chooses = any(_name(line[0]) in _CHOOSE for line in lines)
    commands = (words for line in lines for words in _commands(line))
    return tuple(ShellCommand(words, conditional=chooses) for words in commands if words)[:COMMANDS_LIMIT]


def _lines(text: str) -> list[tuple[str, ...]] | None:
    """Words that stand together on a line, without blocks; None where a word does not end."""
    lines: list[list[str]] = [[]]
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        at = match.end()
        if match["end"] or match["brace"]:
            lines.append([])
        elif match["word"]:
            lines[-1].append(_template(match["word"]))
    return [tuple(line) for line in lines if line]


def becomes(name: str, words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The operands of execline's program `name`, and the program behind them that it becomes; None for another one."""
    count = _OPERANDS.get(name)
    if count is None:
        return None
    index = 0
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] in _VALUED else 1
    return words[index : index + count], words[index + count :]


def _commands(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The commands of one line: of execline's own programs what a shell would be told for them."""
    while words and (parts := becomes(name := _name(words[0]), words[1:])):
        operands, words = parts
        if len(operands) == _OPERANDS[name]:
            yield _as_shell(name, operands)
    if words and _name(words[0]) not in _WITH_BLOCKS:
        yield words


def _as_shell(name: str, operands: tuple[str, ...]) -> tuple[str, ...]:
    if name == "cd":
        return "cd", *operands
    if name == "export":
        return "export", "=".join(operands)
    if name == "unexport":
        return "unset", *operands
    if name == "define":
        return ("=".join(operands),)
    if name == "importas" and operands[0] != operands[1]:
        return (f"{operands[0]}=${{{operands[1]}}}",)
    return ()


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _template(word: str) -> str:
    """A word with its variables as shell_words.py has them; most are imported under the names of the environment."""
    plain = _ESCAPED.sub(lambda match: match[1] or "", word)

    def named(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return "$$" if name is None else UNKNOWN if name in ("!", "?") else f"${{{name}}}"

    return _VARIABLE.sub(named, plain)
