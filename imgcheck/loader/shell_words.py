r"""Words of a shell's text, with all that is expanded in them -> templates, and the commands of substitutions.

    $$               a dollar sign
    ${NAME}          a variable or positional parameter (`@` for all of them, `0` for the script)
    ${NAME:-TEXT}    with a default, a template itself; `${NAME:+TEXT}` where it is set
    ${NAME#PATTERN}  without what a pattern is of its beginning, `##`, `%` and `%%` as shells have them
    ${NAME/0/1}      its characters from a place on, so many
    ${#}             how many positional parameters there are
    $(dirname TEXT)  the directory of a path
    ${0/}            the script, or the text that it reads, with links resolved
    ${uname -m}      the machine, as `uname -m` and `arch` print it
    ${?}             what only running tells
    $(which TEXT)    the word itself where the image has such a program; else only running tells

Other command substitutions that give a path back (`$(readlink -f X)`) stand as that path.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Self

from imgcheck.documents.shell_commands import ShellCommand

UNKNOWN = "${?}"
BELOW = "**"
"""The last part of a pattern of file names that stands for all below a directory."""
RESOLVED = "0/"
"""What templates call the script's own path with its links resolved; no variable is called so."""
_NESTED = 6
"""Substitutions inside substitutions that are read."""
_PLAIN = re.compile(r"""[^ \t\n;&|<>()'"\\$`]+""")
_QUOTED = re.compile(r"""[^"\\$`]+""")
_BACKQUOTED = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)
_SUBSTITUTION = re.compile(r"\\.|\$\(|`", re.DOTALL)
"""In a text that is no word; a backslash takes its meaning from what follows."""
_BLANKS = re.compile(r"[ \t]+")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=", re.ASCII)
NAME = re.compile(r"[A-Za-z_]\w*|[\d@*]", re.ASCII)
_PARAMETER = re.compile(r"([A-Za-z_]\w*|\d+|[@*])(\[[^\]]*\])?(.*)", re.ASCII | re.DOTALL)
_TRIMMING = re.compile(r"[#%][^$`'\"\\{}:]+")
_SUBSTRING = re.compile(r":(\d{1,3}):(\d{1,3})")
_KEY = re.compile(r"\[[^\]]*\]=")
"""Before a member of an array."""
_BRACES = re.compile(r"\{[^{}$]*\}")
"""What may be a brace expansion of bash: `{a,b}`, `{1..3}`."""
_HOME = re.compile(r"(?<=[=:])~(?=[/:]|$)")
"""In an assignment."""
_MACHINE = ("uname -m", "uname --machine", "arch")
_SYSTEM = ("uname", "uname -s", "uname --kernel-name")
_PIPELINE = re.compile(r"(?![ \t]*!)(?:[^;&|\n]|>&|&>|\|(?![|&]))+")
ASSIGNED = re.compile(r"([A-Za-z_]\w*)\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))", re.ASCII)
"""In arithmetic."""
_RESOLVING = ("readlink", "realpath")
_SEEKING = {("which",), ("command", "-v"), ("type", "-p"), ("type", "-P")}


class UnreadableError(Exception):
    """The text ends where more must follow, or nests too deeply."""


class WordReader(ABC):
    """Reads words from a place of its text on. Who derives from it says what becomes of the commands in them."""

    def __init__(self, text: str, nested: int = 0) -> None:
        self._text = text
        self._at = 0
        self._nested = nested
        self.commands: list[ShellCommand] = []
        self._defaults: list[str] = []
        """Assignments that the words make which have been read since the last command (`: ${NAME:=DEFAULT}`)."""

    @abstractmethod
    def read(self) -> None:
        """Read all commands of the text."""

    @abstractmethod
    def _keep_inside(self, commands: Iterable[ShellCommand], pipeline: bool = False) -> None:
        """Commands of a text inside this one may run as well, in a subshell; `pipeline`: it has no others."""

    def _skip_blanks(self) -> int:
        """Go on to the next word or operator."""
        if match := _BLANKS.match(self._text, self._at):
            self._at = match.end()
        if self._text.startswith("#", self._at):
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end
        return self._at

    # Words

    def _word(self) -> str:
        """The template of the word that begins here; empty, without a step, where none does."""
        text = self._text
        parts: list[str] = []
        begun = self._at
        while self._at < len(text):
            if match := _PLAIN.match(text, self._at):
                plain = _expanded(match[0], first=self._at == begun)
                assigning = ASSIGNMENT.match(parts[0] if parts else plain)
                parts.append(_HOME.sub("${HOME}", plain) if assigning else plain)
                self._at = match.end()
                continue
            character = text[self._at]
            if character in "<>" and text.startswith("(", self._at + 1) and self._at == begun:
                self._at = closed(text, self._at + 1, "(", ")")
                self._substitution(text[begun + 2 : self._at - 1])
                parts.append(UNKNOWN)
            elif character == "(" and len(parts) == 1 and ASSIGNMENT.fullmatch(parts[0]):
                parts.append(self._array() if parts[0][-2] != "+" else " " + self._array())
            elif character == "(" and parts and parts[-1][-1:] in ("@", "!", "?", "*", "+"):
                self._at = closed(text, self._at, "(", ")")  # a pattern of bash, which `*` includes
                parts[-1] = parts[-1][:-1] + "*"
            elif character in "'\"\\$`":
                parts.append(self._part(character))
            else:
                break
        return "".join(parts)

    def _part(self, character: str) -> str:
        text = self._text
        if character == "'":
            begun = self._at + 1
            self._at = _found(text, "'", begun) + 1
            return _literal(text[begun : self._at - 1])
        if character == '"':
            return self._double()
        if character == "\\":
            self._at += 2
            return _literal(text[self._at - 1 : self._at])
        return self._dollar() if character == "$" else self._backquoted()

    def _double(self) -> str:
        text, parts = self._text, []
        self._at += 1
        while self._at < len(text):
            if match := _QUOTED.match(text, self._at):
                parts.append(match[0])
                self._at = match.end()
            elif text[self._at] == '"':
                self._at += 1
                return "".join(parts)
            elif text[self._at] == "\\":
                escaped = text[self._at + 1 : self._at + 2]
                parts.append(_literal(escaped if escaped in '"\\$`' else "\\" + escaped))
                self._at += 2
            else:
                parts.append(self._dollar() if text[self._at] == "$" else self._backquoted())
        raise UnreadableError

    def _backquoted(self) -> str:
        match = _BACKQUOTED.match(self._text, self._at)
        if not match:
            raise UnreadableError
        self._at = match.end()
        return self._substitution(re.sub(r"\\([`\\$])", r"\1", match[1]))

    def _array(self) -> str:
        """`NAME=(WORDS)`: the words, with blanks between."""
        self._at += 1
        words: list[str] = []
        while self._skip_blanks() < len(self._text):
            if self._text[self._at] == ")":
                self._at += 1
                keyed = any(_KEY.match(word) for word in words)
                return UNKNOWN if keyed and len(words) > 1 else " ".join(_KEY.sub("", word) for word in words)
            begun = self._at
            words.append(self._word())
            self._at += self._at == begun
        raise UnreadableError

    def _dollar(self) -> str:
        text, at = self._text, self._at
        follower = text[at + 1 : at + 2]
        if follower == "{":
            self._at = closed(text, at + 1, "{", "}")
            return self._expansion(text[at + 2 : self._at - 1])
        if text.startswith("$((", at):
            self._at = closed(text, at + 1, "(", ")")
            inner = text[at + 3 : self._at - 2]
            self._substitutions(inner)
            self._defaults += [f"{match[1]}={UNKNOWN}" for match in ASSIGNED.finditer(inner)]
            return UNKNOWN
        if follower == "(":
            self._at = closed(text, at + 1, "(", ")")
            return self._substitution(text[at + 2 : self._at - 1])
        if follower in ("'", '"') and follower:
            self._at += 1
            return self._part(follower)
        if follower == "#":
            self._at += 2
            return "${#}"
        if match := NAME.match(text, at + 1):
            self._at = match.end()
            return f"${{{'@' if match[0] == '*' else match[0]}}}"
        self._at += 2 if follower in ("?", "$", "!", "-") and follower else 1
        return UNKNOWN if self._at == at + 2 else "$$"

    def _expansion(self, inner: str) -> str:
        match = _PARAMETER.fullmatch(inner)
        if not match:
            return UNKNOWN
        name, operation = "@" if match[1] == "*" else match[1], match[3]
        if match[2] == "[@]" and not operation:
            return f"${{{name}[@]}}"
        if not operation or operation.lstrip(":").startswith("?"):
            return f"${{{name}}}"
        if operation in ("%/*", "%%/*"):
            return f"$(dirname ${{{name}}})"
        if _TRIMMING.fullmatch(operation):
            return f"${{{name}{operation}}}"
        if part := _SUBSTRING.fullmatch(operation):
            return f"${{{name}/{part[1]}/{part[2]}}}"
        operator = operation.lstrip(":")[:1]
        if operator in ("-", "=", "+") and operator:
            other = self._inside(operation.lstrip(":")[1:])
            text = other._text_template()
            self._keep_inside(other.commands)
            self._defaults += other._defaults
            if operator == "=":
                self._defaults.append(f"{name}=${{{name}:-{text}}}")
            return f"${{{name}:{'-' if operator == '=' else operator}{text}}}"
        return UNKNOWN

    def _inside(self, text: str) -> Self:
        if self._nested == _NESTED:
            raise UnreadableError
        return type(self)(text, self._nested + 1)

    def _text_template(self) -> str:
        """The template of this whole text, as one word."""
        parts: list[str] = []
        while self._at < len(self._text):
            begun = self._at
            parts.append(self._word())
            if self._at == begun:
                parts.append(self._text[begun])
                self._at += 1
        return "".join(parts)

    def _substitution(self, text: str) -> str:
        """What `$(TEXT)` gives, as far as it is a path, or nothing that matters; the commands in it run as well."""
        if text.strip() in _MACHINE:
            return "${uname -m}"
        if text.strip() in _SYSTEM:
            return "Linux"
        commands = self._commands_of(text)
        if _is_hook(commands):
            self._keep_inside(commands)
            return ":"  # it is not empty
        told = _path_given(commands, text)
        if told is None:
            self._keep_inside(commands, _PIPELINE.fullmatch(text) is not None)
        return UNKNOWN if told is None else told

    def _substitutions(self, text: str) -> None:
        """Those in a text that is no word: arithmetic, and here-documents."""
        inner, at = self._inside(text), 0
        while match := _SUBSTITUTION.search(text, at):
            inner._at = match.start()
            if match[0] == "`":
                inner._backquoted()
            elif match[0] == "$(":
                inner._dollar()
            at = max(inner._at, match.end())
        self._keep_inside(inner.commands)

    def _commands_of(self, text: str) -> list[ShellCommand]:
        """Those in a text inside this one, without the conditions that they depend on."""
        inner = self._inside(text)
        inner.read()
        return [command for command in inner.commands if not command.decides]


def _is_hook(commands: list[ShellCommand]) -> bool:
    """Whether they print the functions by which conda and its kin change the shell (`conda shell.bash hook`).

    What these do when they are called is known without them (Launcher.activates).
    """
    words = commands[-1].words if commands else ()
    return words[2:3] == ("hook",) and (words[1] == "shell" or words[1].startswith("shell."))


def _path_given(commands: list[ShellCommand], text: str) -> str | None:
    """The path that a substitution prints, where it is one of the usual ways to find a path."""
    words = [command.words for command in commands if not command.function]
    if not words:
        plain = text.split()
        return "." if plain == ["pwd"] else None
    name, last = words[0][0], words[0][-1]
    if len(words) == 1 and name == "cd" and "pwd" in text:
        return last if len(words[0]) > 1 else None
    if len(words) == 1 and name == "dirname" and len(words[0]) > 1:
        return f"$(dirname {last})"
    if len(words) == 1 and name in _RESOLVING and last in ("${0}", "${BASH_SOURCE}"):
        return f"${{{RESOLVED}}}"
    if len(words) > 1 or len(words[0]) == 1:
        return None
    if words[0][:1] in _SEEKING or words[0][:2] in _SEEKING:
        return f"$(which {last})"
    return last if name in _RESOLVING else None


def _literal(text: str) -> str:
    return text.replace("$", "$$")


def _found(text: str, character: str, begun: int) -> int:
    at = text.find(character, begun)
    if at < 0:
        raise UnreadableError
    return at


def _expanded(plain: str, first: bool) -> str:
    """Unquoted text with `~` as the home directory where a word begins with it; what braces make of it is not told."""
    if first and plain[0] == "~":
        user, slash, rest = plain[1:].partition("/")
        plain = ("${HOME}" if not user else UNKNOWN) + slash + rest
    return _BRACES.sub(lambda found: UNKNOWN if "," in found[0] or ".." in found[0] else found[0], plain)


def closed(text: str, at: int, opener: str, closer: str) -> int:
    """The place behind the bracket that closes the one at `at`; brackets in quotes do not count."""
    depth = 0
    for match in _brackets(text, at):
        character = match[0]
        if character == opener:
            depth += 1
        elif character == closer:
            depth -= 1
            if not depth:
                return match.end()
    raise UnreadableError


_BRACKET = re.compile(r"""\\.|'[^']*'|"(?:[^"\\]|\\.)*"|(?<=[ \t\n;])\#[^\n]*|[(){}]""", re.DOTALL)


def _brackets(text: str, at: int) -> Iterator[re.Match[str]]:
    return _BRACKET.finditer(text, at)
