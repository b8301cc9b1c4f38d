"""The instructions of a Dockerfile that bring files, each with the words by which a builder's history may tell it."""

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, takewhile
from pathlib import Path

from imgcheck.documents.codec import as_text

BRINGING = ("RUN", "COPY", "ADD")
"""Others make no layer, or one of directories alone (WORKDIR)."""
_LONGEST = 512
"""Letters of a word whose variables are filled in: variables made of variables grow without end."""
_LONGEST_SHELL = 200
_ESCAPE = re.compile(r"#\s*escape\s*=\s*([`\\])\s*$", re.IGNORECASE)
_OPTIONS = re.compile(r"(?:--[a-z][\w-]*(?:=(?:\"[^\"]*\"|\S*))?\s+)*")
_HEREDOC = re.compile(r"(?:^|\s)\d*<<-?([\"']?)(\w[^\s\"'<]*)\1(?=\s|$)")
_FROM = re.compile(r"(?:--\S+\s+)*(\S+)(?:\s+as\s+(\S+))?", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"(?<!\w)(\w++)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|\S*)")
_VARIABLE = re.compile(r"\$(?:(?P<bare>\w+)|\{(?P<name>\w++)(?::?-(?P<default>[^}$]*+))?\})")
_ANY_VARIABLE = re.compile(r"(?:\$\w+|\$\{[^}$]*+\})+")
_QUOTES = str.maketrans("", "", "\"'")


@dataclass(frozen=True)
class Instruction:
    """A RUN, COPY or ADD, and the line that it begins on."""

    line: int
    name: str
    texts: tuple[str, ...]
    """What a history line may say of it, as `command_text` or `words_text` has it: as written, and filled in."""
    loose: tuple[tuple[str, ...], ...] = ()
    """The same as pieces between the variables that a build may have given any value."""


@dataclass(frozen=True)
class Stage:
    instructions: tuple[Instruction, ...]
    parent: int | None
    """Index of the stage that it is built from; None for an image."""


@dataclass(frozen=True)
class Dockerfile:
    path: str
    stages: tuple[Stage, ...]

    def lineage(self, stage: int) -> list[Instruction]:
        """All that made an image of `stage`, in order, with the stages that it is built from."""
        stages: list[Stage] = []
        at: int | None = stage
        while at is not None:
            stages.append(self.stages[at])
            at = stages[-1].parent
        return [instruction for each in reversed(stages) for instruction in each.instructions]


def read_dockerfile(path: Path) -> Dockerfile:
    """The stages of the file at `path`. Raises OSError."""
    reader = _Reader()
    for line, words, documents in _logical_lines(path.read_text(encoding="utf-8", errors="replace")):
        reader.take(line, words, documents)
    # Annotations want the path within the repository, where the tool is run.
    absolute, here = path.absolute(), Path.cwd()
    shown = absolute.relative_to(here) if absolute.is_relative_to(here) else path
    return Dockerfile(as_text(str(shown)), reader.stages())


def command_text(text: str) -> str:
    """A shell's command without what builders add and drop when they join lines: white space; and without quotes."""
    return "".join(text.translate(_QUOTES).split())


def words_text(text: str) -> str:
    """Sources and destination of a COPY or ADD, in which the spaces tell."""
    return " ".join(text.translate(_QUOTES).split())


def without_options(arguments: str) -> str:
    """`arguments` without the leading --mount, --from, --chown and the like, of which a history has some or none."""
    return arguments[_OPTIONS.match(arguments).end() :]  # type: ignore[union-attr] # it matches nothing as well


def plain(arguments: str) -> list[str]:
    """The words of the JSON form; else `arguments` as one."""
    try:
        words = json.loads(arguments) if arguments.startswith("[") else None
    except (ValueError, RecursionError):
        words = None
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else [arguments]


def destination(text: str) -> str:
    """How the destination of a COPY or ADD is told where the history names no sources but a digest of them."""
    return words_text(f"in {posixpath.normpath(text.strip())}")


class _Reader:
    """Takes instruction by instruction, and remembers what those that follow depend on."""

    def __init__(self) -> None:
        self._stages: list[tuple[int | None, list[Instruction]]] = []
        self._names: dict[str, int] = {}
        # Of all stages together: few give one name two meanings.
        self._variables: dict[str, str] = {}
        # Of ENV in this stage alone, which wins over --build-arg: what is known whatever the options of the build.
        self._settled: dict[str, str] = {}
        self._shell = ""

    def stages(self) -> tuple[Stage, ...]:
        return tuple(Stage(tuple(instructions), parent) for parent, instructions in self._stages)

    def take(self, line: int, words: str, documents: list[tuple[str, str]]) -> None:
        name, _, rest = words.partition(" ")
        name, arguments = name.upper(), rest.strip()
        if name == "FROM":
            self._begin(arguments)
        elif name in ("ENV", "ARG"):
            self._assign(name, arguments)
        elif name == "SHELL":
            shell = " ".join(plain(arguments))
            self._shell = shell if len(shell) <= _LONGEST_SHELL else ""
        elif name in BRINGING and self._stages:
            made = self._run if name == "RUN" else self._copy
            self._stages[-1][1].append(made(line, name, without_options(arguments), documents))

    def _begin(self, arguments: str) -> None:
        found = _FROM.match(arguments)
        base, name = found.groups() if found else ("", None)
        self._settled = {}
        self._stages.append((self._names.get(_filled(base, self._variables).lower()), []))
        if name:
            self._names[name.lower()] = len(self._stages) - 1

    def _assign(self, instruction: str, arguments: str) -> None:
        pairs = _ASSIGNMENT.findall(arguments)
        if "=" not in arguments.partition(" ")[0]:
            name, _, value = arguments.partition(" ")  # ENV NAME VALUE; ARG NAME sets nothing
            pairs = [(name, value.strip())] if value else []
        for name, value in pairs:
            value = value.strip("\"'")
            self._variables[name] = _filled(value, self._variables)
            if instruction == "ENV":
                self._settled[name] = _filled(value, self._settled, defaults=False)

    def _run(self, line: int, name: str, arguments: str, documents: list[tuple[str, str]]) -> Instruction:
        # No builder fills in the variables of a RUN: its shell does.
        command = " ".join(plain(arguments))
        texts = [command, *_scripts(command, documents)]
        texts += [f"{self._shell} {text}" for text in texts] if self._shell else []
        return Instruction(line, name, tuple(dict.fromkeys(map(command_text, texts))))

    def _copy(self, line: int, name: str, arguments: str, _documents: list[tuple[str, str]]) -> Instruction:
        words = plain(arguments)
        words = [word.replace("<<-", "<<") for word in (arguments.split() if words == [arguments] else words)]
        written = _told(words)
        if "$" not in arguments:
            return Instruction(line, name, written)
        filled = _told([_filled(word, self._variables) for word in words])
        settled = _told([_filled(word, self._settled, defaults=False) for word in words])
        loose = tuple(pieces for text in settled if len(pieces := _pieces(text)) > 1)
        return Instruction(line, name, tuple(dict.fromkeys((*written, *filled))), loose)


def _told(words: list[str]) -> tuple[str, str]:
    return words_text(" ".join(words)), destination(words[-1] if words else "")


def _pieces(text: str) -> tuple[str, ...]:
    """What stands between the variables of `text`; nothing where that is too little to be known by."""
    pieces = tuple(_ANY_VARIABLE.split(text))
    return pieces if "".join(pieces).strip() not in ("", "in") else ()


def _filled(text: str, variables: Mapping[str, str], defaults: bool = True) -> str:
    """`text` with the values of `variables`; of others with what `${NAME:-DEFAULT}` says, if `defaults`."""

    def value(found: re.Match[str]) -> str:
        known = variables.get(found["bare"] or found["name"], found["default"] if defaults else None)
        return found[0] if known is None else known

    if len(text) > _LONGEST:
        return text
    filled = _VARIABLE.sub(value, text)
    return filled if len(filled) <= _LONGEST else text


def _scripts(command: str, documents: list[tuple[str, str]]) -> Iterator[str]:
    """What BuildKit runs for a RUN with here-documents (dispatchRun of its dockerfile2llb/convert.go)."""
    if not documents:
        return
    name, body = documents[0]
    if _HEREDOC.fullmatch(command):
        yield f"/dev/pipes/{name}" if body.startswith("#!") else body
    yield command + "".join(f"{body}{name}" for name, body in documents)


def _logical_lines(text: str) -> Iterator[tuple[int, str, list[tuple[str, str]]]]:
    """Number of the first line, continuation lines joined, here-documents with their names (parser.go of BuildKit)."""
    raw = text.removeprefix("\ufeff").split("\n")
    directives = takewhile(lambda line: line.startswith("#"), raw)
    escape = next((found[1] for line in directives if (found := _ESCAPE.match(line))), "\\")
    lines = enumerate(raw, 1)
    for number, line in lines:
        if _says_nothing(line):
            continue
        words = _joined(line, lines, escape)
        takes_documents = words.partition(" ")[0].upper() in BRINGING
        names = [found[2] for found in _HEREDOC.finditer(words)] if takes_documents else []
        yield number, words, [(name, _document(name, lines)) for name in names]


def _says_nothing(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _joined(first: str, lines: Iterator[tuple[int, str]], escape: str) -> str:
    parts = []
    for line in chain([first], (line for _, line in lines)):
        if _says_nothing(line):
            continue
        part = line.strip()
        goes_on = part.endswith(escape) and not part.endswith(escape * 2)
        parts.append(part.removesuffix(escape) if goes_on else part)
        if not goes_on:
            break
    return " ".join(" ".join(parts).split(None, 1))


def _document(name: str, lines: Iterator[tuple[int, str]]) -> str:
    return "\n".join(takewhile(lambda line: line.strip("\t\r") != name, (line for _, line in lines)))
