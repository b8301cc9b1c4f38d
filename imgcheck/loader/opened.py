"""Libraries that frameworks of an image open by themselves (dlopen) before they use a GPU: what they get, and miss.

dlopen seeks as the file that calls it would: by its RPATH and those of what loaded it, LD_LIBRARY_PATH, its RUNPATH,
the cache (dlopen(3)).
"""

from collections.abc import Iterator
from typing import NamedTuple

from imgcheck.documents.image import Component, Problem
from imgcheck.loader.process import Process
from imgcheck.loader.system import UNSTOPPED, Found, Refused


class Opened(NamedTuple):
    """What one framework opens."""

    opener: str
    loaded: tuple[str, ...]
    """Canonical paths of what it gets, with all that this loads."""
    problems: tuple[Problem, ...]
    chosen: dict[tuple[str, str], str]
    """(opener, soname) to the canonical path of what it gets."""


def open_libraries(component: Component, opener: Process, injected: frozenset[str]) -> Opened:
    """What `component` opens one after the other in the process of its `opener`.

    `injected` are the paths at which files of the host lie.
    """
    loaded: dict[str, None] = {}
    problems: list[Problem] = []
    chosen: dict[tuple[str, str], str] = {}
    for name in component.opens:
        if present := opener.loaded(name):
            chosen[component.opener, name] = present.real
            continue
        found = _found(opener, name)
        if not isinstance(found, Found):
            searched = () if "/" in name else opener.main.plan.searched
            problems.append(_problem(component, component.opener, name, searched, found or UNSTOPPED))
            continue
        library = Process(opener.system, found.real, found.opened, within=opener)
        missed = list(_missed(component, library, injected))
        if not missed:  # else dlopen takes back what it has loaded
            opener.keep(library)
            chosen[component.opener, name] = found.real
            loaded |= dict.fromkeys(item.real for item in library.objects)
        problems += missed
    return Opened(component.opener, tuple(loaded), tuple(problems), chosen)


def _found(opener: Process, name: str) -> Found | Refused | None:
    system, main = opener.system, opener.main
    return system.at_path(name, main.origin) if "/" in name else system.find(name, main.plan)


def _missed(component: Component, library: Process, injected: frozenset[str]) -> Iterator[Problem]:
    for miss in library.misses:
        if miss.object.real not in injected:
            yield _problem(component, miss.object.real, miss.name, miss.object.plan.searched, miss.refused)


def _problem(component: Component, path: str, name: str, searched: tuple[str, ...], refused: Refused) -> Problem:
    return Problem(
        "opened",
        path,
        name,
        searched=searched,
        root=component.opener,
        context="library",
        refused=refused.opened,
        complaint=refused.complaint,
    )
