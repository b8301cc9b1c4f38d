"""Modules of machine code that interpreters besides Python may load: which of them a script does is not followed.

Where each interpreter has its own stands in rules/analysis/native_modules.toml. They may also lie beside the script, or
where words of the command point: in a directory (`-I/opt/lib`, `-Djava.library.path=/opt/jni`), or to one of them.
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import msgspec

from imgcheck.documents.image import IN_ARCHIVE
from imgcheck.globs import fits_any
from imgcheck.loader.expansion import GAP
from imgcheck.loader.glibc import family_of
from imgcheck.loader.interpreters import interpreter_of
from imgcheck.loader.node import fits_node
from imgcheck.loader.tree import Tree

_OPTION = re.compile(r"-[IL]|[-\w.]+=")
"""What stands before a path in a word of a command."""
_LITERAL = re.compile(r"(?<![\w.])/[\w.+@/-]+")
_SYSTEM = re.compile(
    r"/|/(?:home|mnt|opt|root|srv|tmp|usr|usr/local|var)|/(?:usr/|usr/local/)?(?:s?bin|lib|lib64|libexec|etc|share)(?:/[\w-]+)?"
)
"""Directories with files of all kinds."""
_INSTALLED = ("/usr/", "/lib/", "/lib64/", "/var/lib/")
"""Where systems and installers put modules."""


class Interpreted(msgspec.Struct, frozen=True):
    """How an interpreter starts."""

    program: str
    patterns: tuple[str, ...]
    """Of its modules."""
    beside: tuple[str, ...]
    """Directories where its script may lie."""
    searched: tuple[str, ...]
    """Directories that its environment names (PERL5LIB, LUA_CPATH)."""
    named: tuple[str, ...]
    """Its script, and paths in its words: options, and strings of what it is to run (`dyn.load("/opt/fast.so")`)."""


def interpreted(
    path: str, called: str, arguments: Sequence[str], directories: Sequence[str], variables: Iterable[str]
) -> Interpreted | None:
    """How the program at `path`, called by a name, starts in one of `directories`; None where it is no interpreter.

    `variables` are the values of those that it gets.
    """
    known = interpreter_of(posixpath.basename(path)) or interpreter_of(called)
    if known is None:
        return None
    places = [place for place in directories if GAP not in place]
    script = next((word for word in arguments if not word.startswith("-") and GAP not in word), "")
    scripts = [posixpath.join(place, script) for place in places if script]
    # LUA_CPATH has patterns: /opt/lua/?.so
    values = (each.partition("?")[0] for value in variables for each in re.split("[:;]", value))
    searched = (posixpath.join(place, each) for each in values if each for place in places)
    inside = (each for word in arguments for each in literals(word))
    options = (each for option in _options(arguments) for each in option.split(":"))
    named = (posixpath.join(place, each) for each in (*inside, *options) for place in places)
    beside = map(posixpath.dirname, scripts)
    return Interpreted(path, known.modules, *(_paths(each) for each in (beside, searched, (*scripts, *named))))


def _paths(found: Iterable[str]) -> tuple[str, ...]:
    paths = (each.removesuffix("*").rstrip("/") for each in found if each.startswith("/") and GAP not in each)
    return tuple(dict.fromkeys(paths))


def _options(words: Sequence[str]) -> Iterator[str]:
    """What options have for paths: `-I DIR`, `-IDIR`, `--path=DIR`."""
    for word, following in zip(words, (*words[1:], ""), strict=False):
        if option := _OPTION.match(word):
            yield word[option.end() :] or following


def native_modules(tree: Tree, starts: Iterable[Interpreted]) -> Iterator[str]:
    """Those that interpreters which start so may load."""
    kinds: dict[tuple[str, ...], list[Interpreted]] = defaultdict(list)
    for start in starts:
        own = tree.linkage[start.program]
        kinds[own.machine, str(own.elf_class), family_of(own), *start.patterns].append(start)
    for same in kinds.values():
        yield from _of_kind(tree, same)


def _of_kind(tree: Tree, starts: Sequence[Interpreted]) -> Iterator[str]:
    """The same of starts of one kind of interpreter, built for the same machine and C library."""
    own, found = tree.linkage[starts[0].program], dict(_led_to(tree, starts))
    fitting = [path for path, is_named in found.items() if is_named or fits_node(tree.linkage[path], own)]
    yield from fitting
    # An archive that has none for musl gives Alpine's Java what it has for other Linuxes.
    served = {_archive(path) for path in fitting if family_of(tree.linkage[path])}
    for path in found:
        if _archive(path) not in {"", *served} and family_of(tree.linkage[path]) == "glibc":
            yield path


def _led_to(tree: Tree, starts: Sequence[Interpreted]) -> Iterator[tuple[str, bool]]:
    """Libraries for the machine of an interpreter to which its starts lead, and whether they name the very file."""
    own, patterns = tree.linkage[starts[0].program], starts[0].patterns
    named = {tree.canonical(path) for start in starts for path in start.named}
    prefixes = {posixpath.dirname(posixpath.dirname(start.program)) for start in starts}
    searched = _special(tree, {*prefixes, *named, *(path for start in starts for path in start.searched)})
    beside, inside = _special(tree, {path for start in starts for path in start.beside}), _special(tree, named)
    for path, linkage in tree.linkage.items():
        if linkage.type != "shared" or (linkage.machine, linkage.elf_class) != (own.machine, own.elf_class):
            continue
        above = _above(path)
        is_named = not named.isdisjoint((path, path.removesuffix(".so"))) or posixpath.dirname(path) in inside
        installed = path.startswith(_INSTALLED) or not above.isdisjoint(searched)
        if is_named or not above.isdisjoint(beside) or (installed and fits_any(path, patterns)):
            yield path, is_named


def _archive(path: str) -> str:
    """The archive in which the library at `path` lies; "" for one that lies in none."""
    return path.rpartition(IN_ARCHIVE)[0]


def _above(path: str) -> set[str]:
    """The directories above `path`, and the archives in which it lies."""
    path = path.replace(IN_ARCHIVE, f"/{IN_ARCHIVE}")
    return set(accumulate(posixpath.dirname(path).split("/"), "{}/{}".format))


def _special(tree: Tree, directories: Iterable[str]) -> set[str]:
    """Those of `directories` that are not for files of all kinds."""
    return {place for place in map(tree.canonical, directories) if not _SYSTEM.fullmatch(place)}


def literals(word: str) -> list[str]:
    """Absolute paths in a word: in the value of an option, in the strings of code."""
    return _LITERAL.findall(word)


def pointed_to(tree: Tree, words: Sequence[str], directories: Sequence[str]) -> Iterator[str]:
    """Libraries that words of a command name by their paths, and those in directories that options name."""
    options = [path for option in _options(words) for path in option.split(":")]
    named = list(_canonical(tree, options, directories))
    inside = (each for place in named if not _SYSTEM.fullmatch(place) for each in tree.table(place).values())
    for path in (*_canonical(tree, words, directories), *named, *inside):
        if path in tree.linkage and tree.linkage[path].type == "shared":
            yield path


def _canonical(tree: Tree, paths: Iterable[str], directories: Sequence[str]) -> Iterator[str]:
    joined = (posixpath.join(place, path) for path in paths if path for place in directories)
    return map(tree.canonical, (path for path in joined if GAP not in path))
