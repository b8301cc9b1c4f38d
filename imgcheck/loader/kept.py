"""The loader's work on an image's own command, kept with its profile: packed once, unpacked by each check.

A host has a say in that work by the directories that its CPU opens, of which there are few kinds (hwcaps.KINDS), and
by what a runtime injects: then the model works anew on those starts that this may change (loader/outcomes.py).
"""

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from imgcheck.documents.image import ImageProfile, Loads, Reach
from imgcheck.loader import code
from imgcheck.loader.closure import Closure, Roots
from imgcheck.loader.hwcaps import KINDS

if TYPE_CHECKING:
    from imgcheck.loader.model import Loader

OF_LETTER: dict[str, Reach] = {"e": "entry", "i": "import", "p": "path", "u": "unreached"}
_NONE = "."
_OF_ROOTS = tuple(name for name in Roots.__struct_fields__ if name in Loads.__struct_fields__)
"""What a profile keeps of the roots as it is."""


class Worked(Struct, frozen=True, dict=True):
    """What an image's own command starts, and what that reaches."""

    image: ImageProfile
    loads: Loads
    """Where the outcomes of the single starts are kept, too (loader/outcomes.py)."""

    @cached_property
    def roots(self) -> Roots:
        """What runs."""
        config, loads = self.image.config, self.loads
        return Roots(
            command=(*config.entrypoint, *config.command),
            **{name: getattr(loads, name) for name in _OF_ROOTS},
        )

    @cached_property
    def closure(self) -> Closure | None:
        """What that reaches where nothing is injected; None where it is damaged."""
        try:
            return _unpacked(self.image, self.loads)
        except (ValueError, LookupError):
            return None


def with_loads(image: ImageProfile) -> ImageProfile:
    """The profile with the loader's work for every kind of CPU, for who keeps the document."""
    from imgcheck.loader.model import Loader
    from imgcheck.loader.roots import find_roots

    roots, made_by = find_roots(image), code.digest()
    found: list[tuple[Loads, list[str]]] = []
    for levels in KINDS:
        loads = _packed(image, roots, Loader(image, roots, levels), made_by)
        same = next((each for each in found if each[0] == loads), None)
        if same is None:
            found.append(same := (loads, []))
        same[1].append(" ".join(levels))
    return structs.replace(image, loads=tuple(structs.replace(loads, levels=tuple(levels)) for loads, levels in found))


def kept_work(image: ImageProfile, levels: tuple[str, ...]) -> Worked | None:
    """The work that `image` brings for a CPU that opens `levels`; None without it, or where another model made it."""
    loads = next((each for each in image.loads if " ".join(levels) in each.levels), None)
    return Worked(image, loads) if loads is not None and loads.made_by == code.digest() else None


def _packed(image: ImageProfile, roots: Roots, loader: "Loader", made_by: str) -> Loads:
    from imgcheck.loader import outcomes

    closure = loader.close()
    number = {record.path: index for index, record in enumerate(image.files)}
    letters = {reach: letter for letter, reach in OF_LETTER.items()}
    companies = dict.fromkeys(loaded[1:] for loaded in closure.loaded.values())
    company = {loaded: index for index, loaded in enumerate(companies)}
    names = {name: index for index, name in enumerate(dict.fromkeys(name for _, name in closure.chosen))}
    problems = (*closure.problems, *closure.contextual)
    searches = {place: index for index, place in enumerate(dict.fromkeys(problem.searched for problem in problems))}
    starts = ((number[path], company[loaded[1:]]) for path, loaded in closure.loaded.items())
    chosen = ((number[path], names[name], number[found]) for (path, name), found in closure.chosen.items())
    return Loads(
        made_by=made_by,
        **{name: getattr(roots, name) for name in _OF_ROOTS},
        reaches="".join(letters[closure.reaches[path]] if path in closure.reaches else _NONE for path in number),
        companies=tuple(row(number[path] for path in loaded) for loaded in companies),
        starts=row(each for pair in starts for each in pair),
        names=tuple(names),
        chosen=row(each for triple in chosen for each in triple),
        problems=tuple(structs.replace(problem, searched=()) for problem in closure.problems),
        contextual=tuple(structs.replace(problem, searched=()) for problem in closure.contextual),
        searches=tuple(searches),
        searched=row(searches[problem.searched] for problem in problems),
        opens=closure.opens,
        libcs=tuple(sorted(closure.libcs)),
        # `starts` begin with the one that is reached least (Closure.loaded).
        outcomes=outcomes.packed(image, loader.outcomes[::-1], names),
    )


def _unpacked(image: ImageProfile, loads: Loads) -> Closure:
    paths = [record.path for record in image.files]
    path, name = paths.__getitem__, loads.names.__getitem__
    companies = [tuple(map(path, numbers(row))) for row in loads.companies]
    starts, chosen = numbers(loads.starts), numbers(loads.chosen)
    asked = zip(map(path, chosen[::3]), map(name, chosen[1::3]), strict=True)
    searched = map(loads.searches.__getitem__, numbers(loads.searched))
    problems = [
        structs.replace(problem, searched=places)
        for problem, places in zip((*loads.problems, *loads.contextual), searched, strict=True)
    ]
    return Closure(
        reaches={each: OF_LETTER[letter] for each, letter in zip(paths, loads.reaches, strict=True) if letter != _NONE},
        problems=tuple(problems[: len(loads.problems)]),
        contextual=tuple(problems[len(loads.problems) :]),
        chosen=dict(zip(asked, map(path, chosen[2::3]), strict=True)),
        opens=loads.opens,
        loaded={
            begun: (begun, *companies[company])
            for begun, company in zip(map(path, starts[::2]), starts[1::2], strict=True)
        },
        libcs=frozenset(loads.libcs),
    )


def row(values: Iterable[int]) -> str:
    return " ".join(map(str, values))


def numbers(values: str) -> list[int]:
    return list(map(int, values.split()))
