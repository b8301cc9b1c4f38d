"""Reads the GPU code and the CUDA evidence of one file."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable

from msgspec import structs

from imgcheck.binaries.elf import ET_DYN, ET_EXEC, FATBIN_SECTIONS, MAGIC, Elf
from imgcheck.binaries.gpu import archive, cubin, fatbin, hip, runtime, strings, unpack, wrappers
from imgcheck.binaries.gpu.payloads import WHOLE
from imgcheck.documents.facts import LIBCUDA, UNREAD, GpuCode, GpuModule, GpuObject
from imgcheck.errors import ElfError
from imgcheck.versions import parse

_SAMPLE = 128
"""Cubins whose header is unpacked to find their toolkit; evenly spread, since a file has few toolkits."""
_STUB_LIMIT = 2560
"""Larger cubins are taken to hold code: those without any measure 960 to 1992 bytes."""
_MOST_OBJECTS = 64
"""Different objects of relocatable code; of more nothing is told."""
_PTX_HEAD = 1 << 16
"""Bytes of PTX text in which its version and target are sought."""
_APART = rb"(?:\s++|//[^\r\n]*+|/\*(?s:.*?)\*/)*+"
_PTX = re.compile(_APART + rb"\.version[ \t]++(\d+\.\d+)(?=[\s/])" + _APART + rb"\.target\s++sm_(\d+[af]?)")
"""What PTX begins with: comments and line ends of any kind stand where drivers take them (run: docs/gpu.md)."""


def read_gpu(data: memoryview, elf: Elf | None) -> GpuCode | None:
    """GPU code, CUDA runtime and driver evidence of a file; None where it has none.

    `elf` is the file's view where it is ELF (a cubin among them). Without one, `data` may be a `.fatbin`, PTX text or
    an `ar` archive. Raises ElfError for a fatbin of absurd size; damaged parts are left out.
    """
    data = memoryview(data).cast("B")
    if elf is None:
        return _read_plain(data)
    if elf.e_machine == cubin.MACHINE:
        return _of_cubin(elf)
    return _read_elf(elf)


def _read_plain(data: memoryview) -> GpuCode | None:
    if data[:4] == fatbin.MAGIC:
        modules, toolkit = _modules([data], [], linked=False, pure=True)
        return GpuCode(modules=modules, toolkit=toolkit) if modules else None
    if data[:8] == archive.MAGIC:
        return merge(read_gpu(member, _elf(member)) for member in archive.members(data))
    match = _PTX.match(bytes(data[:_PTX_HEAD]))
    if match:
        return GpuCode(modules=(GpuModule(1, ptx=(f"{match[2].decode()}@{match[1].decode()}",)),))
    return None


def _elf(data: memoryview) -> Elf | None:
    try:
        return Elf(data) if data[:4] == MAGIC else None
    except ElfError:
        return None


def _of_cubin(elf: Elf) -> GpuCode | None:
    target = cubin.target(elf)
    if not elf.sections:  # their headers come last: it was cut off
        module = GpuModule(1, other=(UNREAD,))
    else:
        module = GpuModule(1, sass=(target,)) if target else GpuModule(1, other=(f"cubin ABI {elf.abi_version}",))
    return GpuCode(modules=(module,), toolkit=cubin.toolkit(elf))


def _read_elf(elf: Elf) -> GpuCode | None:
    loaded, relocatable = areas(elf)
    made = _made(elf) if relocatable else None
    modules, toolkit = _modules(loaded, relocatable, elf.type in (ET_EXEC, ET_DYN), bool(elf.sections), made)
    name = runtime.soname(elf)
    is_driver = name == LIBCUDA
    driver_cuda = runtime.driver_cuda_version(elf) if is_driver else ""
    found = GpuCode(
        modules=modules,
        toolkit=toolkit,
        cudart="" if is_driver else runtime.cudart_version(elf, name),
        driver_cuda=driver_cuda,
        driver_version=runtime.driver_version(elf) if is_driver else "",
        stub=is_driver and runtime.is_stub(elf, driver_cuda),
        forward_compat=runtime.forward_compat(elf) if is_driver else None,
        built_for=strings.built_for(elf, name),
        libraries=strings.libraries(elf, name),
        amd=hip.targets(elf),
    )
    return None if found == GpuCode() else found


def areas(elf: Elf) -> tuple[list[memoryview], list[memoryview]]:
    """The fatbin areas of a file: those that the driver loads, and those with relocatable code.

    A file without section headers is searched as a whole.
    """
    if not elf.sections:
        return [elf.data], []
    loaded, relocatable = map(elf.areas, FATBIN_SECTIONS)
    return loaded, relocatable


def _made(elf: Elf) -> frozenset[tuple[int, int]] | None:
    """The containers that the device linker made, by the number of their area and the offset there; None if untold."""
    offsets = wrappers.linked(elf)
    if offsets is None:
        return None
    located = elf.located_areas(FATBIN_SECTIONS[0])
    starts = [start for start, _ in located]
    places = [(bisect_right(starts, at) - 1, at) for at in offsets]
    return frozenset((n, at - starts[n]) for n, at in places if n >= 0 and at - starts[n] < len(located[n][1]))


def _modules(
    loaded: list[memoryview],
    relocatable: list[memoryview],
    linked: bool,
    pure: bool,
    made: frozenset[tuple[int, int]] | None = None,
) -> tuple[tuple[GpuModule, ...], str]:
    """The modules with code, equal ones counted together, and the newest toolkit of their cubins.

    `linked`: the file is a program or library, whose relocatable code is no module by itself. `pure`: what is loaded
    lies in areas of its own. `made`: the containers that were made of the relocatable code (_made); without it, all.
    """
    empty = _Emptiness()
    objects = [(area, container) for area in relocatable for container in fatbin.containers(area)]
    parts = _objects(container for _, container in objects)
    # A library has thousands of containers and a few kinds of them: each kind is made a module once.
    found: Counter[tuple[tuple[fatbin.Code, ...], bool, bool]] = Counter()
    pairs = []
    for number, area in enumerate(loaded):
        for container in fatbin.containers(area, pure):
            own = bool(parts) and (made is None or (number, container.offset) in made)
            if not _is_stub(area, container, empty):
                found[_codes(container), own, container.whole] += 1
                pairs.append((area, container))
            elif own and made is not None:  # where there was PTX alone to link, all code lies with the objects
                found[(), True, True] += 1
    if not found and objects and linked:
        found[(), True, True] += 1
    elif not found:
        found.update((_codes(container), False, True) for _, container in objects)
    counts: Counter[GpuModule] = Counter()
    for (codes, own, whole), count in found.items():
        counts[_module(codes, parts if own else (), whole)] += count
    modules = tuple(_counted(module, count) for module, count in counts.items())
    return tuple(sorted(modules, key=_order)), _toolkit([*pairs, *objects])


def _objects(containers: Iterable[fatbin.Container]) -> tuple[GpuObject, ...]:
    """Different ones of relocatable code, from all of which the driver may make what a module lacks."""
    different = {_object(codes) for codes in set(map(_codes, containers))}
    return tuple(sorted(different, key=lambda each: (each.sass, each.ptx)))


def _codes(container: fatbin.Container) -> tuple[fatbin.Code, ...]:
    return tuple([entry.code for entry in container.entries])


def _object(codes: tuple[fatbin.Code, ...]) -> GpuObject:
    return GpuObject(_named(codes, (fatbin.CUBIN,), False), _named(codes, (fatbin.PTX,), True))


def _module(codes: tuple[fatbin.Code, ...], objects: tuple[GpuObject, ...], whole: bool) -> GpuModule:
    known = (fatbin.PTX, fatbin.CUBIN, fatbin.LTO, fatbin.RELOCATABLE_PTX, fatbin.OLD_CUBIN, fatbin.INDEX)
    # A driver of CUDA 13.0 does not find what is concatenated (run: docs/gpu.md); which one does nobody says here.
    rest = sorted({_other(code) for code in codes if code.concatenated or code.kind not in known})
    codes = tuple(code for code in codes if not code.concatenated)
    ptx = _named(codes, (fatbin.PTX,), True)
    if own := _named(codes, (fatbin.RELOCATABLE_PTX,), True):
        objects = (GpuObject(ptx=own),)
    crowded = len(objects) > _MOST_OBJECTS
    return GpuModule(
        count=0,
        sass=_named(codes, (fatbin.CUBIN,), False),
        ptx=ptx,
        lto=_named(codes, (fatbin.LTO,), False),
        other=tuple(rest) if whole and not crowded else (*rest, UNREAD),
        objects=() if ptx or crowded else objects,
    )


_KINDS = {fatbin.TILE: "tile IR", fatbin.CUBIN: "SASS", fatbin.PTX: "PTX"}


def _other(code: fatbin.Code) -> str:
    kind = _KINDS.get(code.kind, f"kind {code.kind:#x}")
    return f"{'concatenated ' if code.concatenated else ''}{kind} {code.target}"


def _named(codes: Iterable[fatbin.Code], kinds: tuple[int, ...], versioned: bool) -> tuple[str, ...]:
    names = {f"{c.target}@{c.version}" if versioned else c.target for c in codes if c.kind in kinds}
    return tuple(sorted(names, key=target_key))


def target_key(target: str) -> tuple[int, str]:
    """Sorts targets by number, then suffix: 70 before 100, 90 before 90a."""
    return (parse(target) or (0,))[0], target


def _counted(module: GpuModule, count: int) -> GpuModule:
    return structs.replace(module, count=count)


def _order(module: GpuModule) -> tuple:
    return [target_key(name) for name in module.sass], module.ptx, module.lto, module.other


def _is_stub(area: memoryview, container: fatbin.Container, empty: "_Emptiness") -> bool:
    # nvcc links a container without any code into every program (13), and makes one for every source file without
    # kernels; the driver never launches from it.
    return container.whole and all(
        entry.kind == fatbin.CUBIN and entry.unpacked <= _STUB_LIMIT and empty(area, entry)
        for entry in container.entries
    )


class _Emptiness:
    """Whether a small cubin is without code; equal ones, of which a library has hundreds, are unpacked once."""

    def __init__(self) -> None:
        self._known: dict[bytes, bool] = {}

    def __call__(self, area: memoryview, entry: fatbin.Entry) -> bool:
        payload = bytes(area[entry.offset : entry.offset + min(entry.size, _STUB_LIMIT)])
        if payload not in self._known:
            image = _elf(memoryview(unpack.image(area, entry, _STUB_LIMIT)))
            self._known[payload] = image is not None and not cubin.has_code(image)
        return self._known[payload]


def _toolkit(pairs: list[tuple[memoryview, fatbin.Container]]) -> str:
    cubins = [(area, entry) for area, c in pairs for entry in c.entries if entry.kind == fatbin.CUBIN]
    step = max(1, -(-len(cubins) // _SAMPLE))
    sample = cubins[::step]
    found = {cubin.header_toolkit(unpack.image(area, entry, cubin.HEADER)) for area, entry in sample}
    found.add(_noted_toolkit(sample))
    return max(found, key=parse, default="")


def _noted_toolkit(sample: list[tuple[memoryview, fatbin.Entry]]) -> str:
    """Toolkit in the notes of the smallest whole cubin whose header does not tell it (CUDA 12.8 and later)."""
    for area, entry in sorted(sample, key=lambda pair: pair[1].unpacked)[:4]:
        if entry.size > WHOLE or entry.unpacked > _UNPACKED_LIMIT:
            continue
        image = _elf(memoryview(unpack.image(area, entry, entry.unpacked)))
        version = cubin.toolkit(image) if image else ""
        if version:
            return version
    return ""


_UNPACKED_LIMIT = 1 << 22


def merge(parts: Iterable[GpuCode | None]) -> GpuCode | None:
    """Facts of several files as one, as for the members of an archive."""
    found = [part for part in parts if part is not None]
    if not found:
        return None
    counts: Counter[GpuModule] = Counter()
    for part in found:
        for module in part.modules:
            counts[_counted(module, 0)] += module.count
    texts = {name: max((getattr(p, name) for p in found), key=parse) for name in ("cudart", "toolkit")}
    return GpuCode(
        modules=tuple(sorted((_counted(module, count) for module, count in counts.items()), key=_order)),
        libraries=tuple(sorted({name for part in found for name in part.libraries})),
        built_for=tuple(sorted({name for part in found for name in part.built_for}, key=parse)),
        amd=tuple(sorted({name for part in found for name in part.amd})),
        **texts,
    )
