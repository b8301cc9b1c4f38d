"""The driver's rules of which GPU code runs where, for one target, one module and one file.

Machine code runs on the same major version with an equal or higher minor one; an `a` target on its own compute
capability alone, an `f` target on its family. PTX runs on every compute capability from its own on, if the driver
reads its ISA version. Sources: CUDA C++ Programming Guide, "Compute Capabilities"; docs/gpu.md.
"""

from collections import Counter
from typing import Literal

from msgspec import Struct

from imgcheck.documents.facts import GpuCode, GpuModule, GpuObject
from imgcheck.knowledge import Knowledge, cuda, gpus
from imgcheck.knowledge.changes import does
from imgcheck.versions import at_least, parse

Fit = Literal["native", "jit", "too-new", "undecided", "none"]
"""`too-new`: PTX would serve, but the driver does not read its ISA version."""

_RANK: tuple[Fit, ...] = ("native", "jit", "undecided", "too-new", "none")
"""The best first."""
_FERMI = (2, 0)
_RENAMED = {"10.1": "11.0"}
"""sm_101 of CUDA 12.8 and 12.9 is sm_110 since 13.0; whether its machine code runs there nobody has seen."""


class Tally(Struct, frozen=True):
    """How the modules of one file fit one compute capability."""

    counts: dict[Fit, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def count(self, fit: Fit) -> int:
        return self.counts.get(fit, 0)

    @property
    def best(self) -> Fit:
        return next(fit for fit in _RANK if self.counts.get(fit))


def capability_of(target: str) -> str:
    """Compute capability of a target: "70" gives "7.0", "100f" gives "10.0", "101" gives "11.0"; "" for nonsense."""
    own = _stated(target)
    return _RENAMED.get(own, own)


def _stated(target: str) -> str:
    """The same as the target says it."""
    digits = target.rstrip("af")
    if not digits.isascii() or not digits.isdecimal() or not 2 <= len(digits) <= 3:
        return ""
    return f"{digits[:-1]}.{digits[-1]}"


def sass_fits(knowledge: Knowledge, target: str, capability: str) -> Literal["yes", "no", "undecided"]:
    """Whether machine code for `target` ("80", "90a") runs on `capability` ("8.6")."""
    own = capability_of(target)
    if own == capability and own:
        return "yes" if own == _stated(target) else "undecided"
    if not own or target.endswith("a"):
        return "no"
    if target.endswith("f"):
        return "yes" if capability in _family(knowledge, target) else "no"
    same_major = parse(own)[0] == parse(capability)[0] and parse(own) <= parse(capability)
    if not same_major:
        return "no"
    known = gpus.capabilities(knowledge)
    parts = [known[c] for c in (own, capability) if c in known and known[c].tegra]
    if not parts:
        return "yes"
    return "undecided" if any(part.unverified for part in parts) else "no"


def ptx_fits(knowledge: Knowledge, target: str, capability: str) -> bool:
    """Whether PTX for `target` ("70", "90a", "100f") may be compiled for `capability`."""
    own = capability_of(target)
    if not own or target.endswith("a"):
        return own == capability and bool(own)
    if target.endswith("f"):
        return capability in _family(knowledge, target)
    return parse(own) <= parse(capability)


def _family(knowledge: Knowledge, target: str) -> tuple[str, ...]:
    renamed = capability_of(target).replace(".", "") + "f"
    return cuda.families(knowledge).get(renamed, (capability_of(target),))


def module_fit(knowledge: Knowledge, module: GpuModule, capability: str, driver_cuda: str) -> Fit:
    """How a module runs on `capability` under a driver of CUDA version `driver_cuda` (empty: not known).

    Without the driver's version PTX counts as readable; the caller says that this is not decided.
    """
    own = _image_fit(knowledge, module.sass, module.ptx, capability, driver_cuda)
    if own in ("native", "jit"):
        return own
    best = min(own, _linked_fit(knowledge, module.objects, capability, driver_cuda), key=_RANK.index)
    # Of tile IR, and of what has no name, nobody says here which driver makes code of it for which GPU.
    return "undecided" if module.other and best != "jit" else best


def _linked_fit(knowledge: Knowledge, objects: tuple[GpuObject, ...], capability: str, driver_cuda: str) -> Fit:
    """How relocatable code runs: the driver links every object, or the module does not load (run: docs/gpu.md)."""
    fits = (_image_fit(knowledge, each.sass, each.ptx, capability, driver_cuda) for each in objects)
    worst: Fit = max(fits, key=_RANK.index, default="none")
    return "jit" if worst == "native" else worst


def _image_fit(
    knowledge: Knowledge, sass: tuple[str, ...], ptx: tuple[str, ...], capability: str, driver_cuda: str
) -> Fit:
    answers = {sass_fits(knowledge, target, capability) for target in sass}
    if "yes" in answers:
        return "native"
    isas = chosen_ptx(knowledge, ptx, capability, driver_cuda)
    read = {readable(knowledge, isa, driver_cuda) for isa in isas}
    if read == {True}:
        return "jit"
    if "undecided" in answers or True in read:
        return "undecided"
    return "too-new" if isas else "none"


def chosen_ptx(knowledge: Knowledge, ptx: tuple[str, ...], capability: str, driver_cuda: str) -> tuple[str, ...]:
    """ISA versions of those of `ptx` ("70@6.0") that the driver compiles for `capability`, oldest first.

    It takes the PTX of the highest target that fits, `a` before plain, and fails where it cannot read that, whatever
    older PTX lies beside it (run: docs/gpu.md, "On a GPU"). Several where they are for the same target.
    """
    listed = (entry.partition("@") for entry in ptx)
    fitting = [(target, isa) for target, _, isa in listed if _compiles(knowledge, target, capability, driver_cuda)]
    best = max((_preference(target) for target, _ in fitting), default=None)
    return tuple(sorted({isa for target, isa in fitting if _preference(target) == best}, key=parse))


def _preference(target: str) -> tuple[tuple[int, ...], bool, bool]:
    return parse(capability_of(target)), target.endswith("a"), target.endswith("f")


def _compiles(knowledge: Knowledge, target: str, capability: str, driver_cuda: str) -> bool:
    if not ptx_fits(knowledge, target, capability):
        return False
    return parse(capability_of(target)) >= _FERMI or not does(knowledge, "driver-drops-ptx-1x", driver_cuda)


def readable(knowledge: Knowledge, isa: str, driver_cuda: str) -> bool:
    """Whether a driver reads a PTX ISA version; one that the table lacks is newer than all it knows."""
    first = cuda.ptx_cuda(knowledge, isa)
    return not driver_cuda or (first is not None and at_least(driver_cuda, first))


def tally(knowledge: Knowledge, code: GpuCode, capability: str, driver_cuda: str) -> Tally:
    """How the modules of one file fit `capability`; modules are counted, not targets."""
    counts: Counter[Fit] = Counter()
    for module in code.modules:
        counts[module_fit(knowledge, module, capability, driver_cuda)] += module.count
    return Tally(dict(counts))


def describe(code: GpuCode) -> str:
    """The targets of a file in one line: "SASS 3.5 3.7, PTX 7.0 (ISA 6.0)"."""
    sass = _capabilities({target for module in code.modules for target in module.sass})
    ptx = {entry for module in code.modules for entry in module.ptx}
    relocatable = {entry for module in code.modules for entry in module.relocatable} if not ptx else set()
    lto = _capabilities({target for module in code.modules for target in module.lto})
    parts = [f"SASS for {sass}"] if sass else ["no SASS"]
    parts.append(f"PTX for {_versioned(ptx)}" if ptx else "no PTX")
    if relocatable:
        parts.append(f"relocatable PTX for {_versioned(relocatable)}")
    if lto and not sass and not ptx:
        parts.append(f"LTO code for {lto}, which the driver does not load")
    return ", ".join(parts)


def _versioned(ptx: set[str]) -> str:
    listed = sorted((entry.partition("@") for entry in ptx), key=lambda part: (parse(part[0]), part))
    return " ".join(f"{_named(target)} (ISA {isa})" for target, _, isa in listed)


def _capabilities(targets: set[str]) -> str:
    return " ".join(_named(target) for target in sorted(targets, key=lambda target: (parse(target), target)))


def _named(target: str) -> str:
    suffix = target[-1] if target.endswith(("a", "f")) else ""
    return capability_of(target) + suffix if capability_of(target) else target
