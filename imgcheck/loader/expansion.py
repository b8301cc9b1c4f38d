"""What a shell knows while its commands are followed, and what their words become of that.

A word may become one of several: a variable that only one branch sets has its values before and after. What nothing
tells is a `GAP` in the word.
"""

import copy
import fnmatch
import posixpath
import re
from collections.abc import Callable
from typing import Literal

from msgspec import Struct, field

from imgcheck.documents.shell_commands import ShellCommand
from imgcheck.loader.environment import GIVEN, LOADER_VARIABLES
from imgcheck.loader.shell_words import RESOLVED, UNKNOWN
from imgcheck.loader.variables import may_be_given

GAP = "\0"
"""In place of text that only running tells; no path has it."""
ALTERNATIVES = 16
"""Of what a word, or a command, may become: of more some are left out."""
_LONGEST = 4096
"""Characters of an expanded word: no path is longer (PATH_MAX)."""
_LONGEST_CUT = 256
"""Of longer ones every beginning or end would have to be tried."""
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?(\+?)=", re.ASCII)
_TOKEN = re.compile(r"\$\$|\$\{([^}:]*)(:[-+]|\})|\$\((?:dirname|which) |[})]|[^$})]+|\$")
_CUT = re.compile(r"(\w+)(?:(##?|%%?)(.+)|/(\d+)/(\d+))", re.DOTALL)
_ALL = "${@}"
_MEMBERS = re.compile(r"\$\{\w+\[@\]\}", re.ASCII)
"""All members of an array, each a word; the array is kept as one word with blanks between them."""
_OPEN = re.compile(rf"{re.escape(GAP)}|[*?]")
"""In a path that nobody can tell, or that stands for some files."""


class Shell(Struct):
    """The state of a shell. Of all that may have several values the newest comes first."""

    variables: dict[str, list[str]]
    directories: list[str]
    """Working directory; with a GAP where it is not known."""
    finds: Callable[[str, "Shell"], bool] = lambda word, shell: False
    """Whether a word names a program that the image has."""
    elsewhere: bool = False
    """It has gone to a whole path, or asked what lies where the container starts: it does not depend on that place."""
    asked: bool = False
    """It has asked whether a file is there, or may be read."""
    script: str = "sh"
    """What `$0` is,"""
    resolved: str = ""
    """and where it lies, links resolved."""
    source: str = ""
    """The file that is read by `.`, or in which the function that runs was defined; empty for the script itself."""
    arguments: list[tuple[str, ...]] = field(default_factory=lambda: [()])
    given: tuple[str, ...] = ()
    """What these were at first."""
    functions: dict[str, list[ShellCommand]] = {}
    defined_in: dict[str, str] = {}
    """By the name of a function the `source` at its definition."""
    exported: set[str] = set()
    """Variables that programs get."""
    plain: bool = False
    """It knows `[` and `.` alone, and no `[[`, `==` or `source` (dash)."""
    keeps: bool = True
    """Assignments before a special builtin stay behind it."""
    errexit: bool = False
    """It ends where a command fails (`set -e`)."""
    steered: bool = False
    """LD_LIBRARY_PATH or LD_PRELOAD may have any value."""
    asks_cpu: bool = False
    """A script was read that looks at what the CPU has."""
    vague: bool = False
    """Something was read that cannot be followed: PATH and functions may have changed."""
    local: dict[str, tuple[list[str] | None, bool]] | None = None
    """What the variables were before that are a function's own, where one runs."""
    touched: bool = False
    """A program has run, and may have made files."""
    usual: bool = False
    """Users give the container nothing of their own: what nothing sets is empty, but for what others may set
    (loader/variables.py)."""
    left: bool = False
    """It may have ended, or become a program."""
    over: bool = False
    """It has ended, or become a program."""
    round: Literal["", "ended", "left", "unsure"] = ""
    """Of a loop: `continue` or `break` has ended the one that runs, or may have."""

    def child(self) -> "Shell":
        """A process that this one starts: it inherits, and gives nothing back."""
        other = copy.copy(self)
        other.variables = dict(self.variables)
        other.directories = list(self.directories)
        other.arguments = list(self.arguments)
        other.functions, other.defined_in = dict(self.functions), dict(self.defined_in)
        other.exported = set(self.exported)
        other.local = None if self.local is None else dict(self.local)
        return other

    @property
    def stopped(self) -> bool:
        """Whether nothing runs that stands behind, at least in this round of a loop."""
        return self.over or self.round in ("ended", "left")

    @property
    def loader_variables(self) -> tuple[str, ...] | None:
        """What a program gets as LOADER_VARIABLES; None where that cannot be told."""
        found = [
            self.variables.get(name, [""]) if name in self.exported else [untouched]
            for name, untouched in zip(LOADER_VARIABLES, (GIVEN, ""), strict=True)
        ]
        if self.steered or any(len(values) != 1 or _OPEN.search(values[0]) for values in found):
            return None
        (library_path,), (preload,) = found
        # ld.so takes an empty one for none, and an empty part of one for the directory where it starts.
        places = [self._from_here(place) for place in re.split("[:;]", library_path)] if library_path else []
        names = [self._from_here(name) if "/" in name else name for name in re.split("[: ]", preload)]
        told = ":".join(places), ":".join(names)
        return None if GAP in "".join(told) else told

    def _from_here(self, path: str) -> str:
        """A directory that ld.so is told, as an absolute path."""
        known = len(self.directories) == 1 and GAP not in self.directories[0]
        if path[:1] in ("/", "$") or not (path or known):
            return path
        return posixpath.join(self.directories[0], path).rstrip("/") if known else GAP

    def declare(self, word: str, exports: bool, conditional: bool) -> None:
        """A word of `export` and its like, or an assignment by itself; `exports`: programs get it from here on."""
        match = ASSIGNMENT.match(word)
        for value in [word] if match or not exports else self.expand_word(word):
            told = ASSIGNMENT.match(value)
            if GAP in value and not told:
                self.steered = True  # `export "$LINE"`, `export $(grep ...)`: any variable
                continue
            self.assign(value if match else value.replace("$", "$$").replace(GAP, UNKNOWN), conditional)
            if exports:
                self.exported.add(told[1] if told else value)

    def make_local(self, word: str) -> None:
        """`local NAME`, or a declaration in a function: what the variable was comes back with its end."""
        if self.local is not None:
            match = ASSIGNMENT.match(word)
            name = match[1] if match else word
            self.local.setdefault(name, (self.variables.get(name), name in self.exported))

    def lend(self, assignments: tuple[str, ...]) -> dict[str, tuple[list[str] | None, bool]]:
        """`NAME=TEMPLATE` before a command, which gets it; what the names were before."""
        lent: dict[str, tuple[list[str] | None, bool]] = {}
        for word in assignments:
            if match := ASSIGNMENT.match(word):
                lent.setdefault(match[1], (self.variables.get(match[1]), match[1] in self.exported))
                self.assign(word, conditional=False)
                self.exported.add(match[1])
        return lent

    def take_back(self, lent: dict[str, tuple[list[str] | None, bool]]) -> None:
        """The command has ended that such assignments stood before."""
        for name, (values, exported) in lent.items():
            self.variables.pop(name, None)
            if values is not None:
                self.variables[name] = values
            (self.exported.add if exported else self.exported.discard)(name)

    def unset(self, name: str, conditional: bool) -> None:
        """`unset NAME`."""
        before = self.variables.pop(name, [""])
        if conditional or name in LOADER_VARIABLES:
            self.variables[name] = _distinct(["", *before]) if conditional else [""]
            self.exported.add(name)

    @property
    def path(self) -> list[str]:
        """Directories of PATH, those of all its values."""
        places = (place or "." for value in self.variables.get("PATH", ()) if value for place in value.split(":"))
        return list(dict.fromkeys(places))

    def assign(self, word: str, conditional: bool) -> bool:
        """Take `NAME=TEMPLATE`; False where `word` is none."""
        match = ASSIGNMENT.match(word)
        if not match:
            return False
        name, template = match[1], word[match.end() :]
        every = self.arguments if _uses_arguments(template) else self.arguments[:1]
        values = _distinct([value for arguments in every for value in self.expand_word(template, arguments)])
        before = self.variables.get(name, [GAP])
        if match[2]:
            values = _joined([("" if value == GAP else value) for value in before], values)
        self.variables[name] = _distinct([*values, *before] if conditional else values)
        return True

    def change_directory(self, template: str, conditional: bool) -> None:
        """`cd TEMPLATE`."""
        goals = [goal or GAP for goal in self.expand_word(template)]  # of what is unset users are to say where
        changed = [
            GAP if GAP in goal or (GAP in place and not goal.startswith("/")) else posixpath.join(place, goal)
            for place in self.directories
            for goal in goals
        ]
        self.directories = _distinct([*changed, *self.directories] if conditional else changed)
        self.elsewhere |= any(GAP in goal or goal.startswith("/") for goal in goals)

    def set_arguments(self, templates: tuple[str, ...], conditional: bool) -> None:
        """`set -- TEMPLATES`."""
        values = self.expand(templates)
        self.arguments = [*values, *self.arguments][:ALTERNATIVES] if conditional else values

    def shift(self, count: int, conditional: bool) -> None:
        values = [words[count:] for words in self.arguments]
        if conditional:
            values = [*self.arguments, *values]
        self.arguments = list(dict.fromkeys(values))[:ALTERNATIVES]

    def shift_some(self) -> None:
        """`shift`, nobody knows how often."""
        values = [words[at:] for words in self.arguments for at in range(len(words) + 1)]
        self.arguments = list(dict.fromkeys(values))[:ALTERNATIVES]

    def expand(self, templates: tuple[str, ...]) -> list[tuple[str, ...]]:
        """What the words of a command may become."""
        found: list[tuple[str, ...]] = []
        for arguments in self.arguments if any(map(_uses_arguments, templates)) else self.arguments[:1]:
            lines: list[tuple[str, ...]] = [()]
            for template in templates:
                if template == _ALL:
                    lines = [line + arguments for line in lines]
                else:
                    values = self.expand_word(template, arguments)
                    words = [tuple(value.split()) if _MEMBERS.fullmatch(template) else (value,) for value in values]
                    lines = [line + each for line in lines for each in words][:ALTERNATIVES]
            found += lines
        return list(dict.fromkeys(found))[:ALTERNATIVES]

    def expand_word(self, template: str, arguments: tuple[str, ...] | None = None, absent: str = GAP) -> list[str]:
        """What one word may become; `absent` stands in place of a positional parameter that is not there."""
        if "$" not in template:
            return [template]
        arguments = self.arguments[0] if arguments is None else arguments
        return _distinct(_Expansion(self, template, arguments, absent).text(""))

    def tested(self, template: str) -> list[str]:
        """What one word of a test may become: a positional parameter that is not there is empty."""
        return _distinct([value for words in self.arguments for value in self.expand_word(template, words, absent="")])

    def values(self, name: str, arguments: tuple[str, ...]) -> list[str] | None:
        """Of a variable or positional parameter; None where it is not set."""
        if name == "?":
            return [GAP]
        if name == "@":
            return [" ".join(arguments)] if arguments else None
        if name == "#":
            return [str(len(arguments))]
        if name == "0":
            return [self.script]
        if name == RESOLVED:
            return [self.source or self.resolved or self.script]
        if name == "BASH_SOURCE":
            return [self.source or self.script]
        if name.isdigit():
            index = int(name[:4]) - 1
            return [arguments[index]] if index < len(arguments) else None
        if name == "PWD":
            return self.directories
        return self.variables.get(name)


def _uses_arguments(template: str) -> bool:
    return "${@" in template or re.search(r"\$\{\d", template) is not None


class _Expansion:
    """One pass over a template."""

    def __init__(self, shell: Shell, template: str, arguments: tuple[str, ...], absent: str) -> None:
        """`absent` stands in place of a positional parameter that is not there."""
        self._shell, self._template, self._arguments, self._absent = shell, template, arguments, absent
        self._at = 0

    def text(self, closer: str) -> list[str]:
        """What stands up to `closer`, or to the end."""
        found = [""]
        while match := _TOKEN.match(self._template, self._at):
            self._at = match.end()
            token = match[0]
            if token == closer:
                break
            found = _joined(found, self._token(match))
        return found

    def _token(self, match: re.Match[str]) -> list[str]:
        token = match[0]
        if token == "$$":
            return ["$"]
        if token == "$(dirname ":
            return [GAP if GAP in path else posixpath.dirname(path) or "." for path in self.text(")")]
        if token == "$(which ":  # of what the image lacks, which something may bring, it prints nothing
            found = ([word] if self._shell.finds(word, self._shell) else [word, GAP] for word in self.text(")"))
            return [each for alternatives in found for each in alternatives]
        if match[1] is None:
            return [token]
        if cut := _CUT.fullmatch(match[1]):
            return [_cut(value, cut) for value in self._values(cut[1])]
        if match[2] == "}":
            return self._values(match[1])
        values = self._shell.values(match[1], self._arguments)
        text = self.text("}")
        if match[2] == ":+":
            sure = match[1] in LOADER_VARIABLES and values and "" not in values
            return text if sure else [*text, ""] if values else [""]
        told = [value for value in values or () if value and value != GAP]
        return told if values and len(told) == len(values) else _distinct([*told, *text])

    def _values(self, name: str) -> list[str]:
        name = name.removesuffix("[@]")
        values = self._shell.values(name, self._arguments)
        if values is not None:
            return values
        if name.isdigit() or name == "@":
            return [self._absent]
        return ["" if self._shell.usual and not may_be_given(name) else GAP]


def _cut(value: str, cut: re.Match[str]) -> str:
    """A value without what a pattern is of its beginning or end, or a part of it."""
    _, operator, pattern, first, count = cut.groups()
    if GAP in value or len(value) > _LONGEST_CUT:
        return GAP
    if not operator:
        return value[int(first) :][: int(count)]
    places = range(len(value) + 1)
    if operator[0] == "#":
        shorter = (at for at in places if fnmatch.fnmatchcase(value[:at], pattern))
        return value[min(shorter, default=0) if operator == "#" else max(shorter, default=0) :]
    shorter = (at for at in places if fnmatch.fnmatchcase(value[at:], pattern))
    return value[: max(shorter, default=None) if operator == "%" else min(shorter, default=None)]


def _joined(left: list[str], right: list[str]) -> list[str]:
    whole = [before + after for before in left for after in right]
    return [word if len(word) <= _LONGEST else GAP for word in _distinct(whole)]


def _distinct(values: list[str]) -> list[str]:
    """The different ones; of too many some, and that there are others."""
    found = list(dict.fromkeys(values))
    return found if len(found) <= ALTERNATIVES else [*found[: ALTERNATIVES - 1], GAP]
