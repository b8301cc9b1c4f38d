"""What an image needs of any host, derived from its evidence alone."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from imgcheck import versions
from imgcheck.check.context import Context
from imgcheck.check.cpu import Demand, demands
from imgcheck.check.gpu_minimum import minimum
from imgcheck.documents.host import SCHEMA_VERSION, HostProfile
from imgcheck.documents.image import FileRecord, ImageProfile, Statement
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Runtime
from imgcheck.loader.closure import Closure
from imgcheck.loader.model import close
from imgcheck.loader.roots import find_roots

_FROM_OUTSIDE = {"library": "needed by", "opened": "opened for the GPU by"}
"""Problems that a library from outside of the image would settle."""
_SHOWN = 3


class Need(Struct, frozen=True):
    what: str
    """CPU, kernel, GPU driver, libraries."""
    needed: str
    because: tuple[str, ...] = ()


def needs(image: ImageProfile, knowledge: Knowledge) -> Iterator[Need]:
    """Every need in the order in which a run would meet it."""
    return needs_of(anywhere(image, knowledge))


def needs_of(context: Context) -> Iterator[Need]:
    """The same, of the image in a context that `anywhere` has made."""
    image, knowledge, closure = context.image, context.knowledge, context.closure
    yield Need("architecture", str(image.platform))
    of_cpu = list(demands(context))
    yield _cpu(of_cpu, certain=True)
    undecided = _cpu(of_cpu, certain=False)
    if undecided.needed:
        yield undecided
    yield from _kernel(image, closure)
    yield from (Need(what, needed, because) for what, needed, because in minimum(image, knowledge))
    yield from _libraries(closure)


def anywhere(image: ImageProfile, knowledge: Knowledge) -> Context:
    """The image's own command on a host of which nothing is known, as no runtime changes what it finds."""
    roots = find_roots(image)
    host, runtime = HostProfile(SCHEMA_VERSION, "any host"), Runtime("none", "no runtime", ())
    return Context(image, host, runtime, knowledge, close(image, roots), roots=roots)


def with_minimum(image: ImageProfile, knowledge: Knowledge) -> ImageProfile:
    """The profile with the minimum that its GPU code states, for who keeps the document."""
    return msgspec.structs.replace(image, minimum=tuple(Statement(*each) for each in minimum(image, knowledge)))


def _reached(image: ImageProfile, closure: Closure) -> Iterator[FileRecord]:
    return (record for record in image.files if closure.runs(record.path))


def _cpu(demands: list[Demand], certain: bool) -> Need:
    found = {each.name: f"{each.record.path}: {each.why}" for each in reversed(demands) if each.certain is certain}
    because = tuple(f"{name}: {why}" for name, why in sorted(found.items()))
    if not certain:
        return Need("CPU, undecided", " ".join(sorted(found)), because)
    return Need("CPU", " ".join(sorted(found)) or "the architecture's baseline", because)


def _kernel(image: ImageProfile, closure: Closure) -> Iterator[Need]:
    floors = [
        (linkage.abi.removeprefix("linux "), record.path)
        for record in _reached(image, closure)
        if (linkage := image.facts(record).linkage) and linkage.abi.startswith("linux ")
    ]
    if floors:
        floor, path = max(floors, key=lambda each: versions.parse(each[0]))
        yield Need("kernel", f"Linux {floor} or newer", (f"ABI note of {path}",))


def _libraries(closure: Closure) -> Iterator[Need]:
    missing: dict[str, str] = {}
    for problem in closure.problems:
        if problem.kind in _FROM_OUTSIDE and closure.runs(problem.path):
            missing.setdefault(problem.needed, f"{_FROM_OUTSIDE[problem.kind]} {problem.path}")
    if missing:
        because = [f"{name}: {why}" for name, why in list(missing.items())[:_SHOWN]]
        if len(missing) > _SHOWN:
            because.append(f"and {len(missing) - _SHOWN} more")
        yield Need("from outside", ", ".join(sorted(missing)), tuple(because))
