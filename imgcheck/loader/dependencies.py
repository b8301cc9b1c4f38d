"""The dependency tree of one file, with the reason for each choice: what ldd tells, without running anything."""

from collections.abc import Iterator

from msgspec import Struct

from imgcheck.documents.image import ImageProfile
from imgcheck.loader.environment import environment_of
from imgcheck.loader.process import Object, Process
from imgcheck.loader.system import Systems
from imgcheck.loader.tree import Tree


class Dependency(Struct, frozen=True):
    """A library that a file asks for."""

    depth: int
    """1 for what the file itself needs."""
    name: str
    """As DT_NEEDED writes it."""
    opened: str
    """Path by which the loader opens it; empty where it finds none."""
    path: str
    """Canonical path."""
    reason: str
    """`RPATH of FILE`, `RUNPATH`, `LD_LIBRARY_PATH`, `ld.so.cache`, `default directory`, `path`, `interpreter`, or
    `not found`; of the first file that asked."""
    repeated: bool = False
    """Shown before, with its own dependencies."""
    missing_versions: tuple[str, ...] = ()
    """Symbol versions that the file above needs and this one does not define."""
    searched: tuple[str, ...] = ()
    """Where it was sought, for one that is not found."""


def dependencies(image: ImageProfile, path: str, levels: tuple[str, ...] = ()) -> Iterator[Dependency]:
    """What `path` (canonical, an ELF file of `image`) loads, depth first. `levels` as in model.close.

    Raises KeyError where the image holds no ELF program or library at `path`.
    """
    tree = Tree(image)
    system = Systems(tree, environment_of(image), None, levels).of(path, tree.linkage[path])
    process = Process(system, path)
    versions: dict[tuple[Object, str], list[str]] = {}
    for miss in process.version_misses():
        versions.setdefault((miss.object, miss.name), []).append(miss.version)
    seen = {process.main}
    pending = [(1, process.main, name, found) for name, found in reversed(process.main.libraries)]
    while pending:
        depth, above, name, found = pending.pop()
        if found is None:
            yield Dependency(depth, name, "", "", "not found", searched=above.plan.searched)
            continue
        missing = tuple(versions.get((above, name), ()))
        yield Dependency(depth, name, found.opened, found.real, found.reason, found in seen, missing)
        if found not in seen:
            seen.add(found)
            pending += [(depth + 1, found, inner, item) for inner, item in reversed(found.libraries)]
