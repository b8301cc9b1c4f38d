"""What a root's own ld.so says of each file, traced in a chroot, beside what the model says."""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from imgcheck.documents.image import ImageProfile
from imgcheck.loader.environment import environment_of
from imgcheck.loader.process import Process
from imgcheck.loader.system import System, Systems
from imgcheck.loader.tree import Tree
from tests.tools import need

_LINE = re.compile(r"^\s+(?:(?P<name>\S+) => )?(?P<path>not found|\S+?)(?: \(0x[0-9a-f]+\))?$")
_MUSL_MISSING = re.compile(r"^Error loading shared library (\S+): ")
_VERSION = re.compile(
    r"^(?P<main>.*?): (?P<provider>\S+): version `(?P<version>[^']+)' not found \(required by (?P<by>.+)\)$"
)


@dataclass(frozen=True)
class Answer:
    """Names with the canonical paths that they became (empty: not found), and versions not found."""

    libraries: frozenset[tuple[str, str]] = frozenset()
    versions: frozenset[tuple[str, str, str]] = frozenset()
    """(file that needs it, provider, version), canonical."""
    error: str = ""


@dataclass
class Parity:
    """Agreement over one root."""

    total: int = 0
    agreed: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    differences: dict[str, tuple[Answer, Answer]] = field(default_factory=dict)


def compare(
    root: Path,
    image: ImageProfile,
    environment: tuple[str, ...] = (),
    levels: tuple[str, ...] = (),
    below: str = "/",
) -> Parity:
    """Every dynamic ELF file of `image` under `below`, whose tree lies at `root`, by both loaders."""
    tree = Tree(image)
    systems = Systems(tree, environment_of(image), None, levels)
    parity = Parity()
    todo = []
    for path, linkage in tree.linkage.items():
        if not path.startswith(below):
            continue
        system = systems.of(path, linkage)
        if not system.real or linkage.machine != "x86_64" or path == system.real:
            parity.skipped[path] = "no loader to ask"
        else:
            todo.append((path, system))
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(lambda item: real_answer(root, tree, item[1], item[0], environment), todo)
        for (path, system), real in zip(todo, answers, strict=True):
            if real.error:
                parity.skipped[path] = real.error
                continue
            parity.total += 1
            mine = model_answer(system, path)
            if mine == real:
                parity.agreed += 1
            else:
                parity.differences[path] = (real, mine)
    return parity


def real_answer(root: Path, tree: Tree, system: System, path: str, environment: tuple[str, ...]) -> Answer:
    # `ld.so --list` of glibc 2.36 gives up at a missing library of a library; the variable does not. musl has --list.
    trace = (
        ["LD_TRACE_LOADED_OBJECTS=1", system.interpreter] if system.kind == "glibc" else [system.interpreter, "--list"]
    )
    done = subprocess.run(
        [need("chroot"), str(root), "/usr/bin/env", "-i", *environment, *trace, path],
        capture_output=True, text=True, errors="backslashreplace", timeout=60, check=False,
    )  # fmt: skip
    libraries, versions = set(), set()
    for line in (done.stdout + done.stderr).splitlines():
        if version := _VERSION.match(line):
            by, provider = tree.canonical(version["by"]), tree.canonical(version["provider"])
            versions.add((by, provider, version["version"]))
        elif missing := _MUSL_MISSING.match(line):
            libraries.add((missing[1], ""))
        elif (match := _LINE.match(line)) and not (match["name"] or match["path"]).startswith("linux-vdso"):
            found = match["path"]
            name = match["name"] or found
            libraries.add((name.rpartition("/")[2], "" if found == "not found" else tree.canonical(found)))
    if done.returncode and not libraries and not versions:
        return Answer(error=(done.stderr or done.stdout).strip() or f"exit {done.returncode}")
    return _answer(system, libraries, versions)


def _answer(system: System, libraries: set[tuple[str, str]], versions: set[tuple[str, str, str]]) -> Answer:
    if system.kind == "musl":  # names itself always, under whatever name it was asked for
        libraries = {(name, path) for name, path in libraries if path != system.real}
    return Answer(frozenset(libraries), frozenset(versions))


def model_answer(system: System, path: str) -> Answer:
    """The model's answer in the form of `ldd`: each loaded object once under the first name that asked for it."""
    process = Process(system, path)
    if not process.main.libraries:
        return Answer()  # "statically linked": ld.so names not even itself
    used = {item for loaded in process.objects for _, item in loaded.libraries}
    libraries = {(item.opened.rpartition("/")[2], item.real) for item in process.objects[1:] if item in used}
    libraries |= {(miss.name, "") for miss in process.misses}
    versions = {(miss.object.real, miss.provider.real, miss.version) for miss in process.version_misses()}
    return _answer(system, libraries, versions)
