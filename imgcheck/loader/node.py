"""Which addons a Node.js can load, by where it looks for packages and by the C library that they were built for."""

import posixpath
from collections.abc import Iterator

from imgcheck.documents.facts import Linkage
from imgcheck.loader.glibc import family_of

ADDON = ".node"
_PACKAGES = "node_modules"


def node_directories(arguments: tuple[str, ...], directories: list[str]) -> Iterator[str]:
    """Where a Node.js with `arguments`, started in one of `directories`, looks for packages: there, and above.

    See "Loading from node_modules folders" in its documentation of modules.
    """
    script = next((word for word in arguments if not word.startswith("-")), "")
    for directory in directories:
        for place in {directory, posixpath.dirname(posixpath.join(directory, script))}:
            while True:
                yield posixpath.join(place, _PACKAGES)
                if place in ("/", ""):
                    break
                place = posixpath.dirname(place)


def fits_node(addon: Linkage, node: Linkage) -> bool:
    """Whether the Node.js may load the addon: packages bring some for several machines and C libraries."""
    same_machine = (addon.machine, addon.elf_class) == (node.machine, node.elf_class)
    return same_machine and (not family_of(addon) or family_of(addon) == family_of(node))
