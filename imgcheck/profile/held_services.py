"""Services that a supervisor finds and does not start: those that are held down, and those in no bundle of s6-rc."""

import posixpath
from collections.abc import Iterable, Iterator

from imgcheck.layers.tree import MergedTree

_STARTING = ("run", "up")
"""Names of what starts a service."""
_RC = "s6-rc.d"
_BUNDLES = ("user", "user2")
"""What s6-overlay starts (github.com/just-containers/s6-overlay, "Writing a service")."""
_BELOW = ("contents.d", "dependencies.d")
"""Directories whose files have the names of what a bundle holds, or a service needs
(skarnet.org/software/s6-rc/s6-rc-compile.html)."""
_OF_PIPELINES = ("pipeline-name", "producer-for", "consumer-for")
"""Files of services whose output and input are joined."""


def held(tree: MergedTree, paths: Iterable[str]) -> Iterator[str]:
    """Those of absolute `paths` by which no service is started: a file `down` is beside them, as runit, s6 and
    daemontools have it, or what s6-rc starts does not lead to them.
    """
    started: dict[str, set[str] | None] = {}
    for path in paths:
        directory, name = posixpath.split(path)
        if name not in _STARTING:
            continue
        above, service = posixpath.split(directory)
        if posixpath.basename(above) == _RC and above not in started:
            started[above] = _started(tree, above)
        among = started.get(above)
        if tree.lookup(f"{directory}/down") or (among is not None and service not in among):
            yield path


def _started(tree: MergedTree, directory: str) -> set[str] | None:
    """Bundles and services below an s6-rc directory that are started; None where it has no bundle for that."""
    found = _reached(tree, directory, (name for name in _BUNDLES if tree.lookup(f"{directory}/{name}")))
    if any(not tree.lookup(f"{directory}/{name}") for name in found):
        # That is the name of a pipeline: of which, a file of its last service has in its text.
        found |= _reached(tree, directory, _of_pipelines(tree, directory))
    return found or None


def _reached(tree: MergedTree, directory: str, names: Iterable[str]) -> set[str]:
    """What bundles and services hold and need, these with it."""
    found, pending = set[str](), list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += (each for below in _BELOW for each in _names(tree, f"{directory}/{name}/{below}"))
    return found


def _of_pipelines(tree: MergedTree, directory: str) -> Iterator[str]:
    for name in _names(tree, directory):
        if any(tree.lookup(f"{directory}/{name}/{file}") for file in _OF_PIPELINES):
            yield name


def _names(tree: MergedTree, directory: str) -> Iterable[str]:
    node = tree.lookup(directory)
    return (node.children or ()) if node else ()
