"""What runs in an image: its command, through PATH, `env`, shebangs and shell wrappers, down to ELF files."""

import posixpath
import re
from collections.abc import Container, Iterator

from imgcheck.documents.image import ImageProfile, Script
from imgcheck.loader.closure import Roots
from imgcheck.loader.environment import environment_of
from imgcheck.loader.tree import Tree

_SHELLS = frozenset({"sh", "ash", "bash", "dash", "ksh", "mksh", "zsh", "fish", "csh", "tcsh", "busybox"})
# Programs that run the command in their arguments.
_WRAPPERS = frozenset({
    "catchsegv", "chroot", "chrt", "conda", "docker-init", "dumb-init", "env", "exec", "gosu", "ionice", "mamba",
    "micromamba", "mpiexec", "mpirun", "nice", "nohup", "numactl", "setarch", "setpriv", "setsid", "srun", "stdbuf",
    "su-exec", "sudo", "taskset", "time", "timeout", "tini", "tini-static", "unshare", "xvfb-run",
})  # fmt: skip
_PYTHON = r"(?:python|pypy)(\d+(?:\.\d+)?)?[a-z]*(?:\.exe)?"
_OPERATORS = frozenset({"&&", "||", ";", "|", "&", "(", ")", "{", "}", "!", "then", "do", "else", "if", "while"})
_DEPTH = 16


def find_roots(image: ImageProfile, command: tuple[str, ...] | None = None, entries: tuple[str, ...] = ()) -> Roots:
    """What runs: `command` (the user's words after `--`) in place of CMD, ENTRYPOINT before it, and `entries`.

    `command` None means the image's own. `entries` (`--entry PATH`) replace the command where that is None, else
    they add to it.
    """
    search = _Search(image)
    words: tuple[str, ...] = ()
    if command is not None or not entries:
        tail = image.config.command if command is None else command
        words = (*image.config.entrypoint, *tail)
        search.run(words)
        if command:  # Apptainer's exec and `docker run --entrypoint` start it without the image's entrypoint
            search.run(command)
    for entry in entries:
        search.run((entry,))
    # A command that is not in the image comes from outside: like an unknown one, it may use anything.
    everything = search.open_ended or not search.found
    return Roots(words, tuple(search.found), tuple(search.imports()), everything, tuple(search.missing))


class _Search:
    """Follows commands down to ELF files."""

    def __init__(self, image: ImageProfile) -> None:
        self._tree = Tree(image)
        self._environment = environment_of(image)
        self._scripts: dict[str, Script] = {script.path: script for script in image.tree.scripts}
        self._python_paths = image.tree.python_paths
        self._programs = self._tree.linkage.keys() | self._scripts.keys()
        self._unreadable = image.unreadable
        self._called: dict[str, None] = {}
        self._seen: set[tuple[str, ...]] = set()
        self.found: dict[str, None] = {}
        self.missing: dict[str, None] = {}
        self.open_ended = False
        """A shell waits for commands, or runs some that cannot be read."""

    def run(self, words: tuple[str, ...], depth: int = _DEPTH) -> None:
        """Add what executing `words` starts."""
        if not words or depth == 0 or words in self._seen:
            return
        self._seen.add(words)
        path = self._which(words[0])
        if not path:
            if not self._find(words[0], self._unreadable):
                self.missing[words[0]] = None
            return
        if path in self._scripts:
            self._script(self._scripts[path], words[1:], depth)
            return
        self.found[path] = None
        self._called[words[0]] = None
        self._arguments(posixpath.basename(words[0]), posixpath.basename(path), words[1:], depth)

    def _arguments(self, called: str, real: str, arguments: tuple[str, ...], depth: int) -> None:
        if called in _SHELLS or (real in _SHELLS and real != "busybox"):
            self._shell(arguments, depth)
        elif called in _WRAPPERS:
            self.run(self._wrapped(arguments), depth - 1)

    def _wrapped(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        """The command in a wrapper's arguments: from the first word on that is a program of the image."""
        for index, word in enumerate(arguments):
            if word.startswith("-S") and len(arguments) == index + 2:  # env -S "words"
                return _split(arguments[index + 1])
            if not word.startswith("-") and "=" not in word and self._which(word):
                return arguments[index:]
        return ()

    def _shell(self, arguments: tuple[str, ...], depth: int) -> None:
        if arguments[:1] == ("sh",):  # busybox sh
            arguments = arguments[1:]
        for index, word in enumerate(arguments):
            if word.startswith("-") and not word.startswith("--") and "c" in word:
                self._line(arguments[index + 1 : index + 2], depth)
                return
            if not word.startswith(("-", "+")):
                self.run((word, *arguments[index + 1 :]), depth - 1)
                return
        self.open_ended = True

    def _line(self, line: tuple[str, ...], depth: int) -> None:
        """The commands of `sh -c LINE` whose names stand there plainly."""
        started = False
        for command in _commands(line[0] if line else ""):
            if self._which(command[0]):
                self.run(command, depth - 1)
                started = True
        self.open_ended |= not started

    def _script(self, script: Script, arguments: tuple[str, ...], depth: int) -> None:
        words = script.interpreter
        shell = any(posixpath.basename(word) in _SHELLS for word in words[:3])
        # The interpreter of a shell script is reached, yet its own arguments are the script: not to be followed again.
        self.run(words if not shell else (words[0],), depth - 1) if not shell else self._interpreter(words)
        if not shell:
            return
        for command in script.execs:
            self.run(arguments if command == "$@" else (command, *arguments), depth - 1)
        plain = [command for command in script.execs if command != "$@"]
        if not (plain or ("$@" in script.execs and arguments)):
            self.open_ended = True

    def _interpreter(self, words: tuple[str, ...]) -> None:
        for word in words:
            if path := self._which(word):
                self.found[path] = None

    def _which(self, word: str) -> str:
        """Canonical path of the program or script that `word` starts; empty where there is none."""
        return self._find(word, self._programs)

    def _find(self, word: str, known: Container[str]) -> str:
        places = (self._environment.working_directory,) if "/" in word else self._environment.path
        paths = (self._tree.canonical(posixpath.join(place, word)) for place in places)
        return next((path for path in paths if path in known), "")

    def imports(self) -> Iterator[str]:
        """Shared libraries below the module directories of the Pythons that were found."""
        pythons = [posixpath.basename(path) for path in self.found]
        named = [name for name in pythons if name.startswith(("python", "pypy"))]
        matches = [match for name in named if (match := re.fullmatch(_PYTHON, name))]
        if not matches:
            return
        for path, linkage in self._tree.linkage.items():
            if linkage.type != "shared":
                continue
            inside = "/lib-dynload/" in path or path.startswith(tuple(p + "/" for p in self._python_paths))
            if inside and any(python_fits(match[1] or "", path) for match in matches):
                yield path


_VERSION_IN_PATH = r"/(?:python|pypy)(\d+\.\d+)/"
_VERSION_IN_NAME = r"\.cpython-(\d)(\d+)"


def python_fits(version: str, path: str) -> bool:
    """Whether a Python of `version` ("3.11", "3" or unknown "") can load the module at `path`, by its names."""
    named = re.search(_VERSION_IN_NAME, posixpath.basename(path))
    directory = re.search(_VERSION_IN_PATH, path)
    found = f"{named[1]}.{named[2]}" if named else directory[1] if directory else ""
    if not found or not version:
        return True
    return found == version if "." in version else found.partition(".")[0] == version


def _split(line: str) -> tuple[str, ...]:
    import shlex

    try:
        return tuple(shlex.split(line))
    except ValueError:
        return ()


def _commands(line: str) -> Iterator[tuple[str, ...]]:
    """Simple commands of a shell line, assignments and keywords before them taken off."""
    import shlex

    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    try:
        tokens = list(lexer)
    except ValueError:
        return
    for token in (*tokens, ";"):
        if token in _OPERATORS or set(token) <= set("();<>|&"):
            if words:
                yield tuple(words)
            words = []
        elif words or not re.fullmatch(r"exec|[A-Za-z_]\w*=.*", token):
            words.append(token)
