"""What the words of commands mean in an image: programs that PATH leads to, scripts, patterns of file names."""

import fnmatch
import posixpath
import re
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, islice
from typing import Literal

from msgspec import Struct

from imgcheck.documents.image import ImageProfile, Script, Services
from imgcheck.loader.expansion import GAP, Shell
from imgcheck.loader.shell_words import BELOW
from imgcheck.loader.tree import Tree

_GLOB = re.compile(r"[*?]|\[.+\]")
_TOLD = (".py", ".sh")
"""How files are called of which a profile tells that they are there."""
_OF_PROGRAMS = re.compile(r"/(?:s?bin|libexec|exec)/")
"""Directories of programs."""
MATCHES = 128
"""Files that one pattern of file names may stand for."""


class Place(Struct, frozen=True):
    """What a word leads to: a path that starts, or the reason why it does not; no reason and no path: unknown."""

    path: str = ""
    called: str = ""
    """The same as it was found, links not resolved."""
    reason: Literal["", "absent", "not-executable", "no-format"] = ""
    searched: tuple[str, ...] = ()
    """Directories in which PATH would have it, where none has, links resolved."""


class Places:
    """Programs, scripts and configurations of an image, and which of them a word stands for."""

    def __init__(self, image: ImageProfile, tree: Tree) -> None:
        self._tree = tree
        self._others, self._unread_at = frozenset(image.tree.files), image.unread_at
        self.scripts: dict[str, Script] = {script.path: script for script in image.tree.scripts}
        self.services: dict[str, Services] = {services.path: services for services in image.tree.services}
        self.programs = tree.linkage.keys() | self.scripts.keys()
        """ELF files and scripts."""
        self._texts = {code.path for code in image.tree.python_code}
        self.may_run = {record.path for record in image.files if record.executable}
        self.may_run |= {script.path for script in image.tree.scripts if script.executable}

    def look(self, word: str, shell: Shell) -> Place:
        """The file that `word` names: an executable one first, as the search in PATH goes on past the others."""
        if GAP in word:
            return Place()
        found = {each: self._tree.canonical(each) for each in places(word, shell)}
        for called, path in found.items():
            if path in self.may_run and path in self.programs:
                return Place(path, called)
        if not found or shell.vague or any(GAP in path or self._unread_at(path) for path in found.values()):
            return Place()
        for called, path in found.items():
            if path in self.programs:
                return Place(path, called, "not-executable")
            if path in self._others:
                return Place(path, called, "no-format")
        searched = () if "/" in word else tuple(dict.fromkeys(map(posixpath.dirname, found.values())))
        return Place(reason="absent", searched=searched)

    def may_be_program(self, word: str, shell: Shell) -> bool:
        """Whether a word of a command may be the program that this starts."""
        place = self.look(word, shell)
        return not word.startswith("-") and "=" not in word and bool(place.path) and not place.reason

    def is_only(self, name: str) -> bool:
        """Whether whatever PATH is, at most one program of the image is found by a name."""
        return len(self._by_name.get(name, ())) <= 1

    @cached_property
    def _by_name(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for path in (*self.may_run, *self._tree.links):
            if (real := self._tree.canonical(path)) in self.may_run:
                found.setdefault(posixpath.basename(path), set()).add(real)
        return found

    def script(self, word: str, shell: Shell) -> Script | None:
        """The script that an interpreter reads which gets `word`."""
        paths = [self._tree.canonical(path) for path in places(word, shell, file=True) if GAP not in path]
        return next((self.scripts[path] for path in paths if path in self.scripts), None)

    def file(self, word: str, shell: Shell) -> str:
        """The path of the file of the image that a `word` names, wherever it lies; "" where that is not known."""
        paths = {self._tree.canonical(posixpath.join(place, word)) for place in shell.directories}
        path = paths.pop() if len(paths) == 1 else GAP
        return path if path in self.programs or path in self._texts or path in self._others else ""

    def exists(self, shell: Shell, path: str, executable: bool) -> bool | None:
        """Whether a path is a file of the image, for whoever tests that; None where that cannot be told.

        Told are programs, scripts and texts of Python; and that there is none where users mount none (`shell.usual`)
        and no program has run that may have made it.
        """
        joined = [posixpath.join(place, path) for place in shell.directories if GAP not in place]
        paths = {self._tree.canonical(each) for each in joined}
        if not paths.isdisjoint(self.may_run if executable else self.programs | self._texts):
            return True
        unmade = shell.usual and not shell.touched and len(joined) == len(shell.directories)
        return False if unmade and all(self._is_absent(each, executable) for each in paths) else None

    def _is_absent(self, path: str, executable: bool) -> bool:
        """Whether the image has no script or text of Python at `path`, or nothing that may be executed, where it would
        be told: of packages the texts are told together, and files for no use may be executed anywhere.
        """
        above = accumulate(path.split("/"), "{}/{}".format)
        told = path.endswith(_TOLD) or (executable and _OF_PROGRAMS.search(path))
        return bool(told) and self._texts.isdisjoint(above) and path not in self.programs

    def is_directory(self, path: str) -> bool:
        """Whether any of these files lies in the directory or below it."""
        return self._tree.canonical(path) in self._names

    def programs_like(self, word: str, shell: Shell) -> list[str]:
        """What may be started of what a pattern of file names stands for."""
        return [path for path in self._matching(word, shell) if path in self.may_run]

    def scripts_like(self, word: str, shell: Shell) -> list[Script]:
        """The scripts that a pattern stands for."""
        return [self.scripts[path] for path in self._matching(word, shell) if path in self.scripts]

    def services_like(self, word: str, shell: Shell) -> list[Services]:
        """The configurations of supervisors that a pattern stands for."""
        return [self.services[path] for path in self._matching(word, shell) if path in self.services]

    def _matching(self, word: str, shell: Shell) -> dict[str, None]:
        patterns = [path for path in places(word, shell, file=True) if GAP not in path]
        return dict.fromkeys(each for pattern in patterns for each in self._expanded(pattern))

    def _expanded(self, pattern: str) -> list[str]:
        """The canonical paths that an absolute pattern of file names stands for."""
        found = ["/"]
        for part in pattern.split("/"):
            if part == BELOW:
                found = list(islice((each for place in found for each in self._below(place)), MATCHES))
            elif is_pattern(part):
                names = ((place, name) for place in found for name in sorted(self._names.get(place, ())))
                fit = (posixpath.join(place, name) for place, name in names if _stands_for(part, name))
                found = [self._tree.canonical(path) for path in islice(fit, MATCHES)]
            else:
                found = [self._tree.canonical(posixpath.join(place, part)) for place in found]
        return found

    def _below(self, place: str) -> Iterator[str]:
        """What leads to programs, scripts and configurations below a directory."""
        waiting = [place]
        while waiting:
            above = waiting.pop()
            for name in sorted(self._names.get(above, ())):
                path = self._tree.canonical(posixpath.join(above, name))
                yield path
                if path.startswith(f"{above}/"):  # no link that leads up or elsewhere
                    waiting.append(path)

    @cached_property
    def _names(self) -> dict[str, set[str]]:
        """Names in each directory that lead to programs, scripts and configurations."""
        found: dict[str, set[str]] = {}
        for path in (*self.programs, *self.services, *self._tree.links):
            above = self._tree.canonical(posixpath.dirname(path))
            name = posixpath.basename(path)
            while name and name not in found.setdefault(above, set()):
                found[above].add(name)
                above, name = posixpath.split(above)
        return found


def is_pattern(word: str) -> bool:
    """Whether it stands for names of files."""
    return _GLOB.search(word) is not None


def places(word: str, shell: Shell, file: bool = False) -> list[str]:
    """Paths that `word` may mean; `file`: of a file that a shell reads, which it seeks in its directory, too."""
    if word.startswith("/"):
        return [word]
    here = [place if GAP in place else posixpath.join(place, word) for place in shell.directories]
    if "/" in word:
        return here
    found = here if file else []
    for place in shell.path:
        if GAP in place:
            found.append(GAP)
        elif place.startswith("/"):
            found.append(posixpath.join(place, word))
        else:
            found += [GAP if GAP in at else posixpath.join(at, place, word) for at in shell.directories]
    return found


def _stands_for(pattern: str, name: str) -> bool:
    """Whether a pattern stands for a name: those that begin with a dot have to be named so."""
    return fnmatch.fnmatchcase(name, pattern) and (name[0] != "." or pattern[0] == ".")
