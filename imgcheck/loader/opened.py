"""Libraries that frameworks of an image open by themselves (dlopen) before they use a GPU: what they get, and miss.

dlopen seeks as the file that calls it would: by its RPATH and those of what loaded it, LD_LIBRARY_PATH, its RUNPATH,
the cache (dlopen(3)). Some frameworks look in directories of their own before.
"""

import posixpath
from collections.abc import Iterator
from typing import NamedTuple

from imgcheck.documents.image import ONE_OF, Component, Problem
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
        names = name.split(ONE_OF)
        if present := next(filter(None, map(opener.loaded, names)), None):
            chosen[component.opener, name] = present.real
            continue
        found = _found(component, opener, names)
        if not isinstance(found, Found):
            searched = _searched(component, opener, name)
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


def _found(component: Component, opener: Process, names: list[str]) -> Found | Refused | None:
    """The first that is there, by the directories where the component looks itself, then as dlopen seeks."""
    paths = [f"{place}/{name}" for place in component.seeks for name in names]
    answers = list[Refused]()
    for asked in (*paths, *names):
        answer = _answer(opener, asked)
        if isinstance(answer, Found):
            return answer
        answers += [answer] if answer else []
    return next(iter(answers), None)


def _searched(component: Component, opener: Process, name: str) -> tuple[str, ...]:
    own = (posixpath.normpath(opener.system.expand(place, opener.main.origin)) for place in component.seeks)
    return () if "/" in name else (*own, *opener.main.plan.searched)


def _answer(opener: Process, name: str) -> Found | Refused | None:
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
