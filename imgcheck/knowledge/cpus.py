"""CPU names and features: what a microarchitecture has, and what people call it.

The features of named microarchitectures come from archspec, mended by rules/cpus/microarchitectures.toml where its
tables have holes; product names are matched by the patterns of rules/cpus/products.toml.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache, partial
from typing import Literal

from msgspec import Struct

from imgcheck.errors import UsageError
from imgcheck.globs import fits_any
from imgcheck.knowledge import microarchitectures
from imgcheck.knowledge.store import Knowledge
from imgcheck.knowledge.types import Data

LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
ARCHITECTURES = ("x86_64", "aarch64", "ppc64le")


class Feature(Data, frozen=True):
    """An instruction-set extension (rules/cpus/features.toml, one table per architecture)."""

    id: str
    name: str
    source: str
    flags: tuple[str, ...] = ()
    """Spellings in /proc/cpuinfo; the id where empty."""
    hwcap2: int = 0
    """Bit of AT_HWCAP2 (ppc64le)."""
    level: Literal["", "baseline", "x86-64-v2", "x86-64-v3", "x86-64-v4"] = ""
    """Lowest x86-64 level that includes it; `baseline` is what every CPU of the architecture has."""
    without: Literal["trap", "other-result", "no-operation"] = "trap"
    """What its instructions do on a CPU that lacks it."""
    vector: Literal["", "gain", "listed"] = ""
    """`gain`: hot loops gain much from being compiled for it; `listed`: named along with those."""


class Microarchitecture(Data, frozen=True):
    """A supplement to archspec: features that its table of `id` lacks, other names, or a CPU that it does not know."""

    id: str
    sources: tuple[str, ...]
    parent: str = ""
    """For a CPU that archspec does not know: the one whose features it has besides `adds`."""
    adds: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    remark: str = ""
    """For who describes a host by this name, which many give to another CPU."""
    rare: bool = False
    """Hardly a host has it: another one is named where several would do."""


class Product(Data, frozen=True):
    """Product names of one microarchitecture, as /proc/cpuinfo and people write them."""

    id: str
    pattern: str
    """Regular expression, searched without regard to case."""
    microarchitecture: str
    source: str

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern, re.IGNORECASE)
        except re.error as error:
            # Who reads the data names the entry.
            raise ValueError(f"`pattern` {self.pattern!r} is no regular expression: {error}") from None


class LoaderDirectory(Data, frozen=True):
    """Directories that a loader opens only on CPUs that have `features` (rules/cpus/directories.toml)."""

    id: str
    architecture: str
    name: str
    below: tuple[str, ...]
    """Names of directories in which it lies."""
    sources: tuple[str, ...]
    between: tuple[str, ...] = ()
    """Shell patterns of what may stand between one of these and the directory."""
    features: tuple[str, ...] = ()
    level: str = ""
    """x86-64 level whose features they are, in place of `features`."""

    def holds(self, directories: Sequence[str]) -> bool:
        """Whether the innermost of nested `directories`, or one around it, is such a directory."""
        return any(name == self.name and self._is_above(directories[:index]) for index, name in enumerate(directories))

    def _is_above(self, directories: Sequence[str]) -> bool:
        for name in reversed(directories):
            if name in self.below:
                return True
            if not fits_any(name, self.between):
                return False
        return False


class NamedCpu(Struct, frozen=True):
    """What a name stands for."""

    architecture: str
    microarchitecture: str
    features: frozenset[str]


def feature_architecture(machine: str) -> str:
    """The architecture whose features code for `machine` uses: i386 shares those of x86_64."""
    return "x86_64" if machine == "i386" else machine


@lru_cache(maxsize=32)
def features(knowledge: Knowledge, architecture: str) -> dict[str, Feature]:
    """Id to feature for `architecture`, from the oldest to the newest; empty where none are known."""
    return {entry.id: entry for entry in knowledge.entries("cpus", feature_architecture(architecture), Feature)}


def display(knowledge: Knowledge, architecture: str, ids: Iterable[str]) -> str:
    """The names of features as people read them, in table order: "AVX, AVX2, FMA"."""
    table = features(knowledge, architecture)
    wanted = set(ids)
    listed = [entry.name for entry in table.values() if entry.id in wanted]
    return ", ".join(listed + sorted(wanted - table.keys()))


def ranked(knowledge: Knowledge, architecture: str, ids: Iterable[str]) -> list[str]:
    """`ids` from the oldest to the newest extension; unknown ones last."""
    order = _order(knowledge, architecture)
    return sorted(ids, key=lambda name: (order.get(name, len(order)), name))


@lru_cache(maxsize=32)
def _order(knowledge: Knowledge, architecture: str) -> dict[str, int]:
    return {name: index for index, name in enumerate(features(knowledge, architecture))}


@lru_cache(maxsize=32)
def baseline(knowledge: Knowledge, architecture: str) -> frozenset[str]:
    """Features that every CPU of `architecture` has."""
    table = features(knowledge, architecture).values()
    return frozenset(entry.id for entry in table if entry.level == "baseline")


def level_features(knowledge: Knowledge, level: str) -> frozenset[str]:
    """Features that a CPU must have to be of an x86-64 `level`. Raises KeyError for a name that is no level."""
    if level not in LEVELS:
        raise KeyError(level)
    names = {"baseline", *LEVELS[: LEVELS.index(level) + 1]}
    return frozenset(entry.id for entry in features(knowledge, "x86_64").values() if entry.level in names)


def level_of(knowledge: Knowledge, present: Iterable[str]) -> str:
    """The highest x86-64 level whose features are all among `present`."""
    have = set(present) | baseline(knowledge, "x86_64")
    reached = LEVELS[0]
    for level in LEVELS[1:]:
        if not level_features(knowledge, level) <= have:
            break
        reached = level
    return reached


def guarded_by(knowledge: Knowledge, architecture: str, path: str) -> frozenset[str] | None:
    """Features without which the loader never opens `path`; None for a file that no CPU test of the loader guards."""
    names, tests = _guards(knowledge, feature_architecture(architecture))
    directories = path.split("/")[:-1]
    if names.isdisjoint(directories):
        return None
    return next((features for entry, features in tests if entry.holds(directories)), None)


@lru_cache(maxsize=32)
def _guards(
    knowledge: Knowledge, architecture: str
) -> tuple[frozenset[str], tuple[tuple[LoaderDirectory, frozenset[str]], ...]]:
    """The tests that the loader makes on one architecture, and the names of directories that they are about."""
    found = [e for e in knowledge.entries("cpus", "directory", LoaderDirectory) if e.architecture == architecture]
    tests = ((e, level_features(knowledge, e.level) if e.level else frozenset(e.features)) for e in found)
    return frozenset(entry.name for entry in found), tuple(tests)


def from_flags(knowledge: Knowledge, architecture: str, flags: Iterable[str]) -> frozenset[str]:
    """Feature ids for the spellings of /proc/cpuinfo or archspec; the architecture's baseline is always in it."""
    given = set(flags)
    table = features(knowledge, architecture).values()
    present = {entry.id for entry in table if entry.id in given or given.intersection(entry.flags)}
    return baseline(knowledge, architecture) | present


@cache
def _known() -> dict[str, str]:
    """Microarchitectures of archspec to their architectures, where these count here."""
    found = {name: microarchitectures.architecture(name) for name in microarchitectures.targets()}
    return {name: root for name, root in found.items() if root in ARCHITECTURES}


@lru_cache(maxsize=256)
def named(knowledge: Knowledge, microarchitecture: str) -> NamedCpu | None:
    """The CPU of archspec's or our own name `microarchitecture`, None where neither knows it.

    Features are those of the name and of its parents, so a hole that is mended once is mended for all successors.
    """
    own = _supplements(knowledge).get(microarchitecture)
    if microarchitecture in _known():
        architecture, target = _known()[microarchitecture], microarchitectures.targets()[microarchitecture]
        parents = [named(knowledge, parent) for parent in target.parents]
        present = from_flags(knowledge, architecture, target.features)
    elif own is not None and own.parent:
        parents = [named(knowledge, own.parent)]
        architecture, present = parents[0].architecture if parents[0] else "", frozenset()
    else:
        return None
    present = present.union(*(parent.features for parent in parents if parent))
    if own is not None:
        present = present.union(own.adds) - frozenset(own.removes)
    return NamedCpu(architecture, microarchitecture, present)


def resolve(knowledge: Knowledge, name: str) -> NamedCpu:
    """The CPU that people call `name`: a microarchitecture, a compiler's `-march`, an x86-64 level or a product.

    Raises UsageError that suggests near names where nothing is called so.
    """
    plain = _plain(name)
    known = _names(knowledge)
    if plain in known and (cpu := named(knowledge, known[plain])):
        return cpu
    product = product_of(knowledge, name)
    if product and (cpu := named(knowledge, product)):
        return cpu
    near = _near(plain, known)
    hint = f"did you mean {' or '.join(near)}?" if near else ""
    raise UsageError(
        f"no CPU is known as {name!r}",
        hint=hint or "name a microarchitecture (haswell, zen3, power9), a level (x86-64-v3) or a product (EPYC 7742)",
    )


def _near(plain: str, known: dict[str, str]) -> list[str]:
    """Microarchitectures that `plain` begins, holds the name of, or misspells: none for a make ("xeon", "amd")."""
    from imgcheck.spelling import misspelt

    if len(plain) > 100:
        return []
    begun = sorted({each for each in known.values() if len(plain) >= 4 and _plain(each).startswith(plain)})
    held = sorted((each for each in known if len(each) >= 5 and each in plain), key=len)[-1:]
    return begun[:4] or sorted({known[each] for each in held or misspelt(plain, known)})


def remark(knowledge: Knowledge, microarchitecture: str) -> str:
    """What who names `microarchitecture` should know: of which others it is often taken for."""
    own = _supplements(knowledge).get(microarchitecture)
    return own.remark if own else ""


def product_of(knowledge: Knowledge, model: str) -> str:
    """The microarchitecture of a product name such as "Intel(R) Xeon(R) CPU E7-4830 v3 @ 2.10GHz", else ""."""
    text = re.sub(r"\((?:r|tm)\)", "", model, flags=re.IGNORECASE)
    for product in knowledge.entries("cpus", "product", Product):
        if re.search(product.pattern, text, re.IGNORECASE):
            return product.microarchitecture
    return ""


def _plain(name: str) -> str:
    """`name` as people might have spelt it: case, blanks, dots, dashes and underscores make no difference."""
    return re.sub(r"[\s\-._]+", "", name.lower())


@lru_cache(maxsize=4)
def _supplements(knowledge: Knowledge) -> dict[str, Microarchitecture]:
    return {entry.id: entry for entry in knowledge.entries("cpus", "microarchitecture", Microarchitecture)}


@lru_cache(maxsize=4)
def _names(knowledge: Knowledge) -> dict[str, str]:
    """Every plain spelling to the microarchitecture it names; ours go before archspec's."""
    names = {_plain(name): name for name in _known()}
    for entry in _supplements(knowledge).values():
        names |= {_plain(name): entry.id for name in (entry.id, *entry.names)}
    return names


def closest(knowledge: Knowledge, architecture: str, vendor: str, part: str, present: frozenset[str]) -> str:
    """The richest microarchitecture of archspec whose features are all `present`, else "".

    `vendor` is /proc/cpuinfo's `vendor_id`; `part` AArch64's `CPU part`, which decides where archspec knows it.
    """
    fitting: list[tuple[int, int, str]] = []
    for name, root in _known().items():
        target = microarchitectures.targets()[name]
        if root != architecture or target.vendor not in ("generic", vendor or target.vendor):
            continue
        cpu = named(knowledge, name)
        if part and target.part == part:
            return name
        if cpu and cpu.features <= present:
            fitting.append((len(cpu.features), len(microarchitectures.ancestors(name)), name))
    return max(fitting)[2] if fitting else ""


_VENDORS = {"x86_64": ("GenuineIntel", "AuthenticAMD"), "aarch64": ("ARM", "Fujitsu"), "ppc64le": ("IBM",)}


def first_with(knowledge: Knowledge, architecture: str, wanted: frozenset[str]) -> list[str]:
    """For each large vendor the microarchitecture with the fewest features that has all of `wanted`."""
    first, targets = [], microarchitectures.targets()
    for vendor in _VENDORS.get(feature_architecture(architecture), ()):
        named_by_vendor = [named(knowledge, name) for name in _known() if targets[name].vendor == vendor]
        fitting = [cpu for cpu in named_by_vendor if cpu and wanted <= cpu.features]
        if fitting:
            first.append(min(fitting, key=partial(_rank_of_example, knowledge)).microarchitecture)
    return first


def _rank_of_example(knowledge: Knowledge, cpu: NamedCpu) -> tuple[bool, int]:
    own = _supplements(knowledge).get(cpu.microarchitecture)
    return own is not None and own.rare, len(cpu.features)
