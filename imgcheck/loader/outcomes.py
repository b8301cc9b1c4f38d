"""What becomes of each start of an image, apart from all others: what a runtime injects changes but a few of them."""

from collections.abc import Iterator

from msgspec import Struct

from imgcheck.documents.image import ImageProfile, Loads, Opener, Outcomes, Problem, Reach
from imgcheck.loader.kept import OF_LETTER, numbers, row

_CONTEXTS: dict[str, Opener] = {"e": "entry", "m": "module", "h": "helper", "l": "library", "f": "frozen"}
_NOT = -1
"""In place of the number of what is not there."""


class Start(Struct, frozen=True):
    """A file that begins a process, or that something opens by itself."""

    path: str
    context: Opener
    reach: Reach
    within: str = ""
    """The program that opens it, where that is known."""


class Company(Struct, frozen=True, eq=False):
    """What a file loads besides itself; one for all that load the same."""

    loaded: tuple[str, ...]
    """Canonical paths in ld.so's order."""
    found: tuple[tuple[str, str], ...]
    """What the names that the file itself asks for became."""
    chosen: dict[tuple[str, str], str]
    """What became of those of all others, as Closure.chosen."""


class Outcome(Struct, frozen=True):
    """What became of one start."""

    start: Start
    company: Company | None
    """None where the kernel does not even begin."""
    problems: tuple[Problem, ...]

    @property
    def loaded(self) -> tuple[str, ...]:
        """Canonical paths in ld.so's order."""
        return (self.start.path, *self.company.loaded) if self.company else (self.start.path,)


def packed(image: ImageProfile, outcomes: list[Outcome], names: dict[str, int]) -> Outcomes:
    """`outcomes` in the order of `Loads.starts`, with `names` numbered.

    Those with a problem are always worked out anew: of them the start is kept alone.
    """
    number = {record.path: index for index, record in enumerate(image.files)}
    well = [outcome.company for outcome in outcomes if outcome.company and not outcome.problems]
    companies = {company: index for index, company in enumerate(dict.fromkeys(well))}
    chosen = dict.fromkeys(each for company in companies for each in company.chosen.items())
    choice = {each: index for index, each in enumerate(chosen)}
    contexts = {context: letter for letter, context in _CONTEXTS.items()}
    reaches = {reach: letter for letter, reach in OF_LETTER.items()}
    return Outcomes(
        contexts="".join(contexts[outcome.start.context] for outcome in outcomes),
        reaches="".join(reaches[outcome.start.reach] for outcome in outcomes),
        within=row(number[outcome.start.within] if outcome.start.within else _NOT for outcome in outcomes),
        taken=row(_NOT if each.problems or not each.company else companies[each.company] for each in outcomes),
        chosen=row(n for (path, name), found in chosen for n in (number[path], names[name], number[found])),
        choices=tuple(row(choice[each] for each in company.chosen.items()) for company in companies),
        found=tuple(row(n for name, path in each.found for n in (names[name], number[path])) for each in companies),
    )


def unpacked(image: ImageProfile, loads: Loads) -> list[Outcome] | None:
    """The outcomes that `loads` keeps, as Loader.outcomes has them; None where they are damaged."""
    try:
        return list(_outcomes([record.path for record in image.files], loads))[::-1]
    except (ValueError, LookupError):
        return None


def _outcomes(paths: list[str], loads: Loads) -> Iterator[Outcome]:
    kept, path, name = loads.outcomes, paths.__getitem__, loads.names.__getitem__
    starts, chosen = numbers(loads.starts), numbers(kept.chosen)
    files, asked, got = map(path, chosen[::3]), map(name, chosen[1::3]), map(path, chosen[2::3])
    choices = list(zip(zip(files, asked, strict=True), got, strict=True))
    companies: dict[int, Company] = {}
    rows = (starts[::2], starts[1::2], kept.contexts, kept.reaches, numbers(kept.within), numbers(kept.taken))
    for begun, loaded, context, reach, within, taken in zip(*rows, strict=True):
        if taken != _NOT and taken not in companies:
            found = numbers(kept.found[taken])
            companies[taken] = Company(
                loaded=tuple(map(path, numbers(loads.companies[loaded]))),
                found=tuple(zip(map(name, found[::2]), map(path, found[1::2]), strict=True)),
                chosen=dict(map(choices.__getitem__, numbers(kept.choices[taken]))),
            )
        program = "" if within == _NOT else path(within)
        yield Outcome(Start(path(begun), _CONTEXTS[context], OF_LETTER[reach], program), companies.get(taken), ())
