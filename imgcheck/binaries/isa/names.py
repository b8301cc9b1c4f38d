"""Naming conventions that tell implementations and CPU queries apart, read from rules/analysis."""

import fnmatch
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import accumulate

from imgcheck.knowledge.store import rules_directory


@cache
def analysis(name: str = "isa") -> dict:
    """One file of rules/analysis."""
    return tomllib.loads((rules_directory() / "analysis" / f"{name}.toml").read_text(encoding="utf-8"))


def queries(machine: str) -> dict:
    """Patterns of the `functions` that report the CPU's features and of the `data` that holds them."""
    return analysis()["queries"]["x86" if machine in ("x86_64", "i386") else machine]


def switches(machine: str) -> dict:
    """By feature the `functions` with uses of it that run only where somebody asks for them, and who does."""
    return analysis()["switches"].get(machine, {})


def generations(machine: str) -> list[dict]:
    """What rules/analysis/clones.toml names implementations by, the generations of CPUs from old to new."""
    return analysis("clones")["x86" if machine in ("x86_64", "i386") else machine]


@cache
def _tokens(machine: str) -> dict[str, int]:
    """Each token with the number of its generation."""
    return {token: i for i, generation in enumerate(generations(machine)) for token in generation["tokens"]}


def _number(token: str, machine: str) -> int:
    """The number of the generation that a token tells of: a kind of CPU that goes by a number may be the newest."""
    return _tokens(machine).get(token, len(generations(machine)) - 1)


@cache
def _forms(machine: str) -> list[str]:
    """Patterns, in small letters and the longest first, of the tokens and of the arguments of templates."""
    kinds = [f"{re.escape(kind)}e[1-9]" for kind in analysis("clones")["kinds"]]
    return sorted([*map(re.escape, _tokens(machine)), *kinds], key=len, reverse=True)


_BEFORE = r"._@\d"
"""What stands before a token in a name. Mangled names put a length before and an E behind a namespace: N3foo4avx2E."""


_BEHIND = r"[._@\dEI]|C[12]"
"""And what stands behind it, where the name does not end."""
_ENDED = re.compile(rf"\0|{_BEHIND}".encode())


@cache
def _any_form(machine: str) -> str:
    """One pattern of all forms, grouped by their first letter: each place costs one comparison, not one a form."""
    by_letter: dict[str, list[str]] = {}
    for form in _forms(machine):
        by_letter.setdefault(form[0], []).append(form[1:])
    return "|".join(f"{letter}(?:{'|'.join(rest)})" for letter, rest in by_letter.items())


@cache
def _clone_pattern(machine: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|[{_BEFORE}])({_any_form(machine)})(?=$|(?-i:{_BEHIND}))", re.IGNORECASE)


@cache
def _clone_finder(machine: str) -> re.Pattern[bytes]:
    """The same for many lowered names, each behind a NUL; it takes capitals behind a token for small letters."""
    return re.compile(rf"[\0{_BEFORE}](?:{_any_form(machine)})(?=[\0._@\dei]|c[12])".encode())


def generation(name: str, machine: str) -> int | None:
    """The number of the newest of `generations` that `name` follows a convention of; None for all other names.

    What compilers name after a source file, as they do the initialiser of what it holds, is none: nothing chooses it.
    """
    if matches(name, analysis("clones")["of_files"]):
        return None
    found = _clone_pattern(machine).findall(name)
    return max((_number(token.lower(), machine) for token in found), default=None)


def family(name: str, machine: str) -> str:
    """What all versions of a function share of their names: that without such tokens, and without numbers."""
    return _without_numbers(_clone_pattern(machine).sub("", name))


def _without_numbers(name: str) -> str:
    return re.sub(r"\d+", "", name)


@cache
def _words_for_any_cpu() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """In names of C and Fortran, and in mangled ones of C++."""
    any_cpu = analysis("clones")["any_cpu"]
    ends, parts = ("|".join([*any_cpu[key], *map(str.upper, any_cpu[key])]) for key in ("ends", "parts"))
    spaces = "|".join(f"{len(space)}{space}" for space in any_cpu["namespaces"])
    # The name of a Fortran module stands before that of its function: __moment_generic_MOD_sums.
    of_c = rf"_(?:(?:{ends})(?=$|_MOD_)|(?:{parts})(?=_))"
    return re.compile(of_c), re.compile(rf"(?<!\d)(?:{spaces})(?=\d)")


def family_for_any_cpu(name: str) -> str:
    """The `family` of a function that is named for the implementation which is left where no other fits the CPU.

    Empty for all other names.
    """
    rest, found = _words_for_any_cpu()[name.startswith("_Z")].subn("", name.partition(".")[0])
    return _without_numbers(rest) if found else ""


def clones(names: list[bytes], machine: str) -> dict[int, int]:
    """Indices of the clones among `names`, in no order, with the number of the newest generation each is named for."""
    joined = b"\0" + b"\0".join(names) + b"\0"
    hits = list(_clone_finder(machine).finditer(joined.lower()))
    held = _holding(names, [hit.start() for hit in hits])
    hit_names = list(dict.fromkeys(held))
    of_files = {hit_names[k] for k in matching([names[i] for i in hit_names], analysis("clones")["of_files"])}
    found: dict[int, int] = {}
    doubtful: set[int] = set()
    for i, hit in zip(held, hits, strict=True):
        if not _ENDED.match(joined, hit.end()):
            doubtful.add(i)
        elif i not in of_files:
            found[i] = max(found.get(i, 0), _number(hit[0][1:].decode(), machine))
    for i in doubtful:
        newest = generation(names[i].decode("utf-8", "backslashreplace"), machine)
        if newest is not None:
            found[i] = newest
    return found


def _holding(names: list[bytes], hits: list[int]) -> list[int]:
    """For each position the index of that of `names`, joined with a byte between, in which it lies."""
    starts = list(accumulate((len(name) + 1 for name in names), initial=0)) if hits else []
    return [bisect_right(starts, hit) - 1 for hit in hits]


@cache
def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))


def matches(name: str, patterns: list[str]) -> bool:
    """Whether a glob of `patterns` fits `name`."""
    return bool(_pattern(tuple(patterns)).match(name))


@cache
def _literals(patterns: tuple[str, ...]) -> tuple[bytes, ...]:
    """Of each glob the longest part without a wildcard: no name fits that does not contain one of them."""
    longest = {max(re.split(r"[*?]", pattern), key=len).encode() for pattern in patterns}
    return tuple(sorted(one for one in longest if not any(other != one and other in one for other in longest)))


def matching(names: list[bytes], patterns: list[str]) -> dict[int, str]:
    """Index and text of those of `names` that a glob of `patterns` fits."""
    joined = b"\0".join(names)
    there = [literal for literal in _literals(tuple(patterns)) if literal in joined]
    hits = [at for literal in there for at in _occurrences(joined, literal)]
    found = {i: names[i].decode("utf-8", "backslashreplace") for i in _holding(names, hits)}
    return {i: name for i, name in found.items() if matches(name, patterns)}


def _occurrences(text: bytes, literal: bytes) -> Iterator[int]:
    at = text.find(literal)
    while at >= 0:
        yield at
        at = text.find(literal, at + 1)
