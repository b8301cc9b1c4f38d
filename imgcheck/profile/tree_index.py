"""Merged tree -> TreeIndex: what the loader's model and the runtimes ask of an image besides its ELF files."""

import ast
import posixpath
import re
from collections.abc import Iterable, Iterator, Set
from itertools import chain, islice
from typing import NamedTuple

import msgspec

from imgcheck.documents.codec import as_text
from imgcheck.documents.image import IN_ARCHIVE, ImageConfig, Script, Services, TreeIndex
from imgcheck.documents.shell_commands import packed
from imgcheck.globs import fits_any
from imgcheck.layers.entry import Kind
from imgcheck.layers.tree import MergedTree, Node
from imgcheck.loader.abi import multiarch_directories
from imgcheck.loader.cache import read_cache
from imgcheck.loader.closure import top_levels
from imgcheck.loader.conf import read_conf, read_musl_path, read_preload
from imgcheck.loader.environment import path_of
from imgcheck.loader.shell import without_conditions
from imgcheck.loader.statements import Statements
from imgcheck.loader.supervisors import service_places
from imgcheck.profile.held_services import held
from imgcheck.profile.python_packages import PythonTexts
from imgcheck.profile.requirements import plugins, requires
from imgcheck.profile.scan import Code, PythonText, Unloadable

OWN_PATHS = (
    "/root",  # RUN005
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", *multiarch_directories(),  # where a runtime finds its way by them
)  # fmt: skip
"""What the checks and the loader's model ask for under every runtime."""
_PYTHON = ("site-packages", "dist-packages")
PATH_FILES = tuple(f"*/{directory}/{name}" for directory in _PYTHON for name in ("*.pth", "__editable___*_finder.py"))
"""What adds directories to a Python's sys.path: path configuration files, which editable installations have, or where
their directory holds more than what is installed the finder that setuptools writes instead.
"""
_FINDERS_MAPPING = re.compile(r"^MAPPING(?::[^=\n]*)?\s*=\s*(\{[^}]{,65536}\})", re.MULTILINE)
"""`MAPPING: dict[str, str] = {'PACKAGE': '/src/PACKAGE'}` (setuptools/command/editable_wheel.py)."""
_MODULES = r"(?:^|/)(?:(?:site|dist)-packages|python\d[\d.]*)/"
_MODULE_NAME = r"[a-zA-Z_]\w*(?:\.[a-zA-Z_]\w*)+"
_OF_SYSTEM = ("bin/", "sbin/", "lib/", "etc/", "usr/bin/", "usr/sbin/", "usr/lib/", "usr/libexec/", "usr/share/")
"""Directories whose scripts are packages' of a distribution. There are hundreds, whose conditions would take a tenth of
a profile, and hardly one is what an image starts.
"""
_FEW = 16
"""A layer that brings no more scripts there has those of an author, who may start them, and no package's."""
_WORDS = 64
"""Words of the command that are looked up, those of a shell's line among them."""
_MOST_IN_PATH = 1024
"""Links, and files that are neither programs nor scripts, in directories of PATH: BusyBox has some 400 links there."""


def absolute(path: str) -> str:
    """A path of the tree as a profile writes it."""
    return as_text("/" + path)


def index_tree(
    tree: MergedTree,
    nodes: Iterable[tuple[str, Node]],
    recorded: Iterable[str],
    texts: dict[str, bytes],
    config: ImageConfig,
    asked: Iterable[str],
) -> TreeIndex:
    """The index of `tree`, of which `nodes` are directories, links and whatever has a payload.

    `recorded` are the tree's paths of files with code, `texts` the kept ones by path, `asked` the paths and globs of
    which it shall tell whether they are there (knowledge.Knowledge.asked_paths).
    """
    found = _gathered(nodes, set(map(posixpath.basename, (*config.entrypoint, *config.command))))
    others = _others(tree, config)
    reached = [*recorded, *found.reached, *others.files]
    goals = _with_parents(reached)
    looked_for = sorted({*OWN_PATHS, *asked, *_working_directory(config)})
    files = [path for path in looked_for if _is(tree, path, "file")]
    python_paths = (*found.python, *_added_paths(tree, texts, found.python))
    python = PythonTexts(found.texts, map(absolute, recorded), python_paths, _named_modules(found.scripts, config))
    return TreeIndex(
        symlinks=_symlinks(tree, found.links, goals, looked_for, others.dangling),
        ld_so_conf=read_conf(texts),
        ld_so_cache=read_cache(texts.get("/etc/ld.so.cache", b"")),
        ld_so_preload=read_preload(texts.get("/etc/ld.so.preload", b"")),
        musl_paths={path: read_musl_path(data) for path, data in texts.items() if path.startswith("/etc/ld-musl-")},
        scripts=tuple(found.scripts),
        services=tuple(found.services),
        held=tuple(held(tree, [*(each.path for each in found.scripts), *(each.path for each in found.services)])),
        python_paths=python_paths,
        python_code=python.code(),
        python_modules=python.modules(),
        python_requires=requires(texts, _modules(found, recorded)),
        python_plugins=plugins(texts),
        directories=tuple(path for path in looked_for if _is(tree, path, "directory")),
        files=tuple(sorted({*files, *map(absolute, others.files)})),
        looked_for=tuple(looked_for),
        unloadable=found.unloadable,
        closed=tuple(absolute(path) for path in found.closed if path in goals),
        frozen=found.frozen,
    )


class _Gathered:
    """What one pass over the tree finds."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.services: list[Services] = []
        self.links: list[tuple[str, Node]] = []
        self.python: list[str] = []
        self.texts: dict[str, Statements] = {}
        """Of Python, by path."""
        self.unloadable: dict[str, str] = {}
        self.frozen: dict[str, str] = {}
        self.reached: list[str] = []
        """Paths of the tree that are recorded here, so that links to them matter."""
        self.closed: list[str] = []
        """Paths that others than owner and group may not use."""


def _gathered(nodes: Iterable[tuple[str, Node]], named: Set[str]) -> _Gathered:
    """`named`: names of files that the image's command names."""
    found = _Gathered()
    of_system: dict[int, list[int]] = {}  # by layer, where among the scripts
    for path, node in nodes:
        if _is_closed(node):
            found.closed.append(path)
        script = node.payload.script if isinstance(node.payload, PythonText) else node.payload
        if isinstance(node.payload, PythonText):
            found.texts[absolute(path)] = node.payload.statements
            found.reached += () if re.search(_MODULES, path) else (path,)
        if isinstance(script, Script):
            if _may_start(path, script):
                found.reached.append(path)
                # Services, and what the command names, are what an image starts, wherever they lie.
                own = absolute(path).startswith(service_places()) or posixpath.basename(path) in named
                if path.startswith(_OF_SYSTEM) and not own:
                    of_system.setdefault(node.layer, []).append(len(found.scripts))
                found.scripts.append(msgspec.structs.replace(script, path=absolute(path)))
        elif isinstance(node.payload, Services):
            found.reached.append(path)
            found.services.append(msgspec.structs.replace(node.payload, path=absolute(path)))
        elif isinstance(node.payload, Unloadable):
            found.reached.append(path)
            found.unloadable[absolute(path)] = node.payload.complaint
        elif isinstance(node.payload, Code) and node.payload.frozen:
            found.frozen[absolute(path)] = _home(absolute(path), node.payload.frozen.home)
        elif node.kind == "symlink":
            found.links.append((path, node))
        elif node.children is not None and path.rpartition("/")[2] in _PYTHON:
            found.python.append(absolute(path))
    for place in chain.from_iterable(places for places in of_system.values() if len(places) > _FEW):
        script = found.scripts[place]
        found.scripts[place] = msgspec.structs.replace(script, packed=packed(without_conditions(script.commands)))
    return found


def _is_closed(node: Node) -> bool:
    """Whether others than owner and group may not enter a directory, or neither read nor execute a file."""
    if node.kind == "directory":
        return not node.mode & 0o001
    return node.kind == "file" and not node.mode & 0o005


def _home(program: str, home: str) -> str:
    """Where the libraries of a program lie, by frozen_programs.Frozen.home."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(program), home) if home else program + IN_ARCHIVE)


def _added_paths(tree: MergedTree, texts: dict[str, bytes], python_paths: list[str]) -> list[str]:
    """Other directories of the tree that editable installations and path configuration files bring."""
    found: dict[str, None] = {}
    for path, data in texts.items():
        directory = posixpath.dirname(path)
        if directory in python_paths and fits_any(path, PATH_FILES):
            text = data.decode("utf-8", "backslashreplace")
            named = _named_by_path_file(text) if path.endswith(".pth") else _named_by_finder(text)
            places = (tree.resolve(posixpath.join(directory, name).lstrip("/")) for name in named)
            found |= dict.fromkeys(absolute(place) for place in places if place and _is(tree, place, "directory"))
    return [path for path in found if path not in python_paths]


def _named_by_path_file(text: str) -> Iterable[str]:
    """One on a line (Python's module `site`)."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("#", "import ", "import\t"))]


def _named_by_finder(text: str) -> Iterable[str]:
    """Those that hold the packages which setuptools' finder maps."""
    written = _FINDERS_MAPPING.search(text)
    try:
        mapping = ast.literal_eval(written[1]) if written else {}
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    named = ((str(name), str(place)) for name, place in mapping.items()) if isinstance(mapping, dict) else ()
    # Of a package whose directory has another name the files are not found under its own.
    return [posixpath.dirname(place) for name, place in named if name.rpartition(".")[2] == posixpath.basename(place)]


def _modules(found: _Gathered, recorded: Iterable[str]) -> set[str]:
    """Names of the modules that lie in directories of packages."""
    return top_levels((*found.texts, *map(absolute, recorded)), [f"{path}/" for path in found.python])


def _named_modules(scripts: Iterable[Script], config: ImageConfig) -> set[str]:
    """Words of commands and scripts that look like names of modules of packages."""
    commands = (command.words for script in scripts for command in script.commands)
    words = {word for command in ((*config.entrypoint, *config.command), *commands) for word in command}
    return {word for word in words if re.fullmatch(_MODULE_NAME, word)}


def _may_start(path: str, script: Script) -> bool:
    """Whether a command may name the script at `path`: modules of Python begin with `#!` as well."""
    return script.executable or not re.search(_MODULES, path)


class _Others(NamedTuple):
    """What a command may name besides programs and scripts."""

    files: set[str]
    """Paths of the tree that may be executed, or are named by their path, whatever they hold, and"""
    dangling: set[str]
    """links to what is not there."""


def _others(tree: MergedTree, config: ImageConfig) -> _Others:
    """What words of the command name by their path or in PATH, and of what else lies in PATH as much as people put
    there.
    """
    command = (*config.entrypoint, *config.command)
    words = list(dict.fromkeys((*command, *(word for line in command for word in line.split()))))[:_WORDS]
    called = (f"{place}/{word}" for word in words if "/" not in word for place in path_of(config))
    files, dangling = set[str](), set[str]()
    for path in (*called, *islice(_in_path(tree, config), _MOST_IN_PATH)):
        node, resolved = tree.lookup(path), tree.resolve(path)
        if node is None or resolved is None:
            dangling.add(path.lstrip("/"))
        elif _may_be_executed(tree, node):
            files.add(resolved)
    # By its path a word may also name what an interpreter reads.
    named = [tree.resolve(posixpath.join("/", config.working_directory, word)) for word in words]
    files.update(path for path in named if path and _is(tree, path, "file"))
    return _Others(files, dangling)


def _in_path(tree: MergedTree, config: ImageConfig) -> Iterator[str]:
    """Paths of links in directories of PATH, and of files there that may be executed, but for programs and scripts."""
    for place in dict.fromkeys(map(tree.resolve, path_of(config))):
        directory = tree.lookup(place) if place is not None else None
        for name, node in (directory.children or {}).items() if directory else ():
            if node.kind == "symlink" or _may_be_executed(tree, node):
                yield f"{place}/{name}"


def _may_be_executed(tree: MergedTree, node: Node) -> bool:
    """Whether it is a file, no program or script, that may be executed, as far as its mode is known."""
    return node.kind == "file" and not node.payload and (node is tree.plain or bool(node.mode & 0o111))


def _working_directory(config: ImageConfig) -> tuple[str, ...]:
    if not config.working_directory:
        return ()
    path = posixpath.normpath("/" + config.working_directory.lstrip("/"))
    return (path,) if path != "/" else ()


def _with_parents(paths: Iterable[str]) -> set[str]:
    """`paths` and every directory above them."""
    found: set[str] = set()
    for path in paths:
        while path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return found


def _symlinks(
    tree: MergedTree,
    links: Iterable[tuple[str, Node]],
    goals: set[str],
    looked_for: Iterable[str],
    dangling: set[str],
) -> dict[str, str]:
    """Links that lead to one of `goals`, those that stand at what is looked for or above it, and `dangling` ones."""
    places, globs = _with_parents(looked_for), _globs(looked_for)
    found: dict[str, str] = {}
    for path, node in links:
        name = absolute(path)
        if name in places or path in dangling or tree.resolve(path) in goals or _is_named(name, globs):
            found[name] = as_text(node.link)
    return found


def _globs(looked_for: Iterable[str]) -> dict[str, list[str]]:
    """The globs among these paths, by the directory that they are about."""
    found: dict[str, list[str]] = {}
    for path in looked_for:
        directory, _, name = path.rpartition("/")
        if "*" in name:
            found.setdefault(directory, []).append(name)
    return found


def _is_named(path: str, globs: dict[str, list[str]]) -> bool:
    directory, _, name = path.rpartition("/")
    return fits_any(name, globs.get(directory, ()))


def _is(tree: MergedTree, path: str, kind: Kind) -> bool:
    node = tree.lookup(path)
    return node is not None and node.kind == kind
