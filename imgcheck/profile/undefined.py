"""Symbols of all files of an image -> those that a file may not get (TreeIndex.undefined).

Most are settled here, whatever is loaded with what: every file that may stand for a library which the file needs, or
which such a library needs, has them. What is left names the files that have them, and the loader's model asks whether
one of these is in the process. Symbols count by their names alone: whether a library has the version of one is asked
of its versions.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec import structs

from imgcheck.binaries.kernels.names import hashes
from imgcheck.binaries.linkage.binding import hashes_of
from imgcheck.documents.image import CXX, ImageProfile, Undefined
from imgcheck.loader.tree import Tree

_MOST_STEPS = 32
"""How far libraries that need each other are followed: what lies beyond is left to the loader's model."""
_MOST_GROUPS = 1 << 18
"""Of symbols of one file that the same files define: an image with 2,000 libraries has some ten thousand."""
_MOST_PROVIDERS = 64
"""Files that define a symbol of which it is asked whether one is loaded: what more have is hardly ever missing."""
_SHIFT = 12
"""Bits of a hash that its beginning leaves out."""
Paths = frozenset[str]


def with_undefined(image: ImageProfile, tree: Tree) -> ImageProfile:
    """The profile with TreeIndex.undefined, made of the symbols in its facts, which these lose; `tree` is its own.

    It stays None where these are of more kinds than any real image's.
    """
    objects = {key: structs.replace(facts, symbols=None) for key, facts in image.objects.items()}
    return structs.replace(image, objects=objects, tree=structs.replace(image.tree, undefined=_undefined(image, tree)))


def _undefined(image: ImageProfile, tree: Tree) -> dict[str, tuple[Undefined, ...]] | None:
    abis: dict[tuple[str, int], list[str]] = defaultdict(list)
    for path, linkage in tree.linkage.items():
        abis[linkage.machine, linkage.elf_class].append(path)
    try:
        return dict(sorted(each for paths in abis.values() for each in _Files(image, tree, paths).undefined()))
    except _TooManyError:
        return None


class _TooManyError(Exception):
    """There are more groups than any real image has."""


class _Group(NamedTuple):
    """Symbols of one file that the same files define, all of C++ or none."""

    symbol: bytes
    number: int
    at_load: bool
    providers: Paths

    def told(self) -> Undefined:
        name = self.symbol.decode("utf-8", "backslashreplace")
        return Undefined(name, self.number, self.at_load, tuple(sorted(self.providers)))


class _Asked(NamedTuple):
    """Symbols that a content asks for."""

    key: str
    at_load: bool
    names: bytes
    """Each with a NUL behind it."""


class _Files:
    """The files of one ABI that the loader could map."""

    def __init__(self, image: ImageProfile, tree: Tree, paths: list[str]) -> None:
        key_of = {record.path: record.object for record in image.files}
        self._paths: dict[str, Paths] = {}
        """Files by their content."""
        for path in paths:
            self._paths[key_of[path]] = self._paths.get(key_of[path], frozenset()) | {path}
        self._facts = {key: image.objects[key] for key in self._paths}
        self._linkage = {key_of[path]: tree.linkage[path] for path in paths}
        own = frozenset(paths)
        self._named = {name: own.intersection(found) for name, found in tree.by_name.items()}
        """Name of a library to the files that may stand for it."""
        self._key_of = key_of

    def undefined(self) -> Iterator[tuple[str, tuple[Undefined, ...]]]:
        """Files with what they may not get."""
        certain = self._certainly_loaded()
        for key, groups in self._groups().items():
            settled = [self._paths[key], *(self._named[name] for name in certain[key])]
            asked = (group for group in groups if len(group.providers) <= _MOST_PROVIDERS)
            left = [group for group in asked if not any(group.providers >= each for each in settled)]
            if self._linkage[key].type == "shared" and not self._linkage[key].soname:
                left = _without_opener(left, frozenset().union(*settled))
            if left:
                told = tuple(group.told() for group in left)
                yield from ((path, told) for path in self._paths[key])

    def _certainly_loaded(self) -> dict[str, Paths]:
        """For each content the names that it needs and the image has, and those that all that have one need."""
        needed = {
            key: frozenset(name for name in linkage.needed if self._named.get(name))
            for key, linkage in self._linkage.items()
        }
        certain = needed
        for _ in range(_MOST_STEPS):
            behind = {
                name: frozenset.intersection(*(certain[self._key_of[path]] for path in self._named[name]))
                for name in frozenset().union(*needed.values())
            }
            more = {key: names.union(*(behind[name] for name in names)) for key, names in needed.items()}
            if more == certain:
                break
            certain = more
        return certain

    def _groups(self) -> dict[str, list[_Group]]:
        """What each content asks for, by who defines it."""
        parts = [part for key in self._facts for part in self._asked(key)]
        text = b"".join(part.names for part in parts)
        table = np.frombuffer(text, np.uint8)
        ends = np.flatnonzero(table == 0)
        starts = np.append(0, ends + 1)[:-1]
        part_of = np.searchsorted(np.cumsum([len(part.names) for part in parts]), ends, side="right")
        names = hashes(table, starts)
        set_of, sets = self._providers(names)
        wanted = np.flatnonzero(~self._of_driver(parts, part_of, names))
        groups: dict[str, list[_Group]] = {key: [] for key in self._facts}
        of_cxx = np.all([table[starts + at] == byte for at, byte in enumerate(CXX.encode())], axis=0)
        kinds = _counted(((part_of * len(sets) + set_of) * 2 + of_cxx)[wanted])
        if len(kinds[0]) > _MOST_GROUPS:
            raise _TooManyError
        for kind, first, count in zip(*kinds, strict=True):
            (number, own), at = divmod(kind // 2, len(sets)), wanted[first]
            part, symbol = parts[number], text[starts[at] : ends[at]]
            groups[part.key].append(_Group(symbol, count, part.at_load, sets[own]))
        return groups

    def _asked(self, key: str) -> Iterator[_Asked]:
        symbols = self._facts[key].symbols
        if symbols and symbols.at_load:
            yield _Asked(key, True, symbols.at_load)
        if symbols and symbols.at_call:
            yield _Asked(key, "now" in self._linkage[key].flags, symbols.at_call)

    def _of_driver(self, parts: list[_Asked], part_of: np.ndarray, names: np.ndarray) -> np.ndarray:
        """Which of `names`, by their hashes, are functions of the CUDA driver, for which GPU009 asks."""
        found = np.zeros(len(names), bool)
        bounds = np.searchsorted(part_of, np.arange(len(parts) + 1)).tolist()
        for part, first, end in zip(parts, bounds, bounds[1:], strict=False):
            if functions := self._linkage[part.key].driver_functions:
                found[first:end] = np.isin(names[first:end], hashes_of([name.encode() for name in functions]))
        return found

    def _providers(self, names: np.ndarray) -> tuple[np.ndarray, list[Paths]]:
        """For each of `names`, by their hashes, the number of the set of files that define it, and these sets.

        What is unreadable may define everything.
        """
        wanted, row_of = np.unique(names, return_inverse=True)
        keys = list(self._facts)
        every = wanted.astype("<u4").tobytes()
        defined = [facts.symbols.defined if facts.symbols else every for facts in self._facts.values()]
        row, owner = _rows(wanted, np.frombuffer(b"".join(defined), "<u4"), [len(each) // 4 for each in defined])
        ends = np.searchsorted(row, np.arange(len(wanted) + 1))
        # Sets are told apart by the sum of a random number for each member.
        weights = np.random.default_rng().integers(0, 1 << 63, len(keys), np.uint64)
        sums = np.concatenate([[np.uint64(0)], np.cumsum(weights[owner], dtype=np.uint64)])
        _, first, number = np.unique(sums[ends[1:]] - sums[ends[:-1]], return_index=True, return_inverse=True)
        members = (owner[ends[index] : ends[index + 1]].tolist() for index in first.tolist())
        sets = [frozenset().union(*(self._paths[keys[each]] for each in found)) for found in members]
        return number[row_of], sets


def _rows(wanted: np.ndarray, defined: np.ndarray, counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Where the `defined` stand in the sorted `wanted`, with the numbers of their owners, each pair once and sorted.

    Of `defined` the owners have `counts` each.
    """
    if not len(wanted):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    beginnings = np.zeros(1 << 32 - _SHIFT, bool)
    beginnings[wanted >> _SHIFT] = True
    likely = np.flatnonzero(beginnings[defined >> _SHIFT])  # one in ten, which leaves little to search for
    at = np.minimum(np.searchsorted(wanted, defined[likely]), len(wanted) - 1)
    found = wanted[at] == defined[likely]
    owner = np.searchsorted(np.cumsum(counts), likely[found], side="right")
    pairs = np.unique(at[found] * len(counts) + owner)
    return pairs // len(counts), pairs % len(counts)


def _counted(kinds: np.ndarray) -> tuple[list[int], list[int], list[int]]:
    """Each of `kinds` in the order in which they come, where it stands first, and how often it stands there."""
    chosen, first, counts = np.unique(kinds, return_index=True, return_counts=True)
    order = np.argsort(first)
    return chosen[order].tolist(), first[order].tolist(), counts[order].tolist()


def _without_opener(groups: list[_Group], around: Paths) -> list[_Group]:
    """What is left of a plug-in's symbols (a module of Python, Perl, ...) without those that what opens it has.

    These are such as no file has that may be loaded with the plug-in for itself.
    """
    return [group for group in groups if not group.providers or not around.isdisjoint(group.providers)]
