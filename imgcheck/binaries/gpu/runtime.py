"""The CUDA runtime and the driver library, told by their code and strings: version, stub, forward compatibility.

cudaRuntimeGetVersion and cuDriverGetVersion store a constant through their argument. That store survives static
linking and stripping, so the version stands in the code of whatever holds the function (docs/gpu.md, "Versions").
"""

import json
import re
from collections.abc import Iterator
from itertools import chain

import numpy as np

from imgcheck.binaries.elf import Elf
from imgcheck.documents.facts import ForwardCompat
from imgcheck.knowledge.cuda import version_of

_RUNTIME_ERROR = b"CUDA driver version is insufficient for CUDA runtime version"
_PROFILES = re.compile(rb"nvidia-application-profiles-(\d{3,4}\.\d+(?:\.\d+)?)-rc")
_STORE_X86 = re.compile(rb"\xc7\x07(..\x00\x00)([^\x00]{0,6}?\xc3)?", re.DOTALL)
_STUB_X86 = b"\xb8\x22\x00\x00\x00"
_COMPAT_NOTE = ".note.cuda.fwd_compatibility"
_DT_SONAME, _DT_STRTAB = 14, 5
_CHUNK = 1 << 22
_LARGEST_BRANCH = 1 << 16
_OVERLAP = 256
_STUB_SIZE = 1 << 19


def soname(elf: Elf) -> str:
    name, table = elf.dynamic_value(_DT_SONAME), elf.dynamic_value(_DT_STRTAB)
    offset = elf.offset_of(table) if name is not None and table is not None else None
    return elf.string(offset + name, 256) if offset is not None and name is not None else ""


def cudart_version(elf: Elf, name: str) -> str:
    """Version of the CUDA runtime whose code is in `elf`, whose soname is `name`; empty where there is none.

    Static copies are recognised by the runtime's table of error texts.
    """
    if not name.startswith("libcudart.so") and not _in_data(elf, _RUNTIME_ERROR):
        return ""
    return _stored_version(elf)


def driver_cuda_version(elf: Elf) -> str:
    """CUDA version that this libcuda's cuDriverGetVersion returns; empty before 390, which computes it."""
    return _stored_version(elf)


def driver_version(elf: Elf) -> str:
    """Version of a libcuda, from the name of the profile file that it reads: "390.157"."""
    matches = (_PROFILES.search(chunk) for chunk in read_only_data(elf))
    return next((match[1].decode() for match in matches if match), "")


def is_stub(elf: Elf, driver_cuda: str) -> bool:
    """Whether a libcuda is the toolkit's link stub, whose functions only return an error."""
    if driver_cuda or len(elf.data) > _STUB_SIZE:
        return False
    code = (bytes(elf.section_data(section)) for section in elf.code)
    return elf.machine != "x86_64" or any(_STUB_X86 in text for text in code) or not elf.code


def forward_compat(elf: Elf) -> ForwardCompat | None:
    """The note by which cuda-compat's libcuda says over which driver branches it works."""
    section = elf.section(_COMPAT_NOTE)
    raw = bytes(elf.section_data(section)[:65536]) if section else b""
    begin, end = raw.find(b"{"), raw.rfind(b"}")
    if begin < 0 or end < begin:
        return None
    try:
        note = {key.lower(): value for key, value in json.loads(raw[begin : end + 1]).items()}
        release = re.fullmatch(r"\d{1,3}\.\d{1,3}", str(note.get("cuda version", "")), re.ASCII)
        return ForwardCompat(
            release[0] if release else "", _branches(note.get("driver", ())), _branches(note.get("device", ()))
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _branches(numbers: list[str | int]) -> tuple[int, ...]:
    """The numbers of a list of a note; ValueError or TypeError where one is none that NVIDIA could mean."""
    found = tuple(int(number) for number in map(str, numbers))
    if any(not 0 <= number < _LARGEST_BRANCH for number in found):
        raise ValueError("no branch")
    return found


def _stored_version(elf: Elf) -> str:
    if elf.machine == "x86_64":
        found = _stores_x86(elf)
    elif elf.machine == "aarch64":
        found = _stores_aarch64(elf)
    else:
        return ""
    sure = {number for number, returns in found if returns}
    numbers = sure or {number for number, _ in found}
    return version_of(numbers.pop()) if len(numbers) == 1 else ""


def _stores_x86(elf: Elf) -> list[tuple[int, bool]]:
    """(constant, whether a `ret` follows closely) of each `mov dword ptr [rdi], imm32` that may be a version."""
    found = set()
    for section in elf.code:
        for chunk in _chunks(elf.section_data(section)):
            for match in _STORE_X86.finditer(chunk):
                found.add((int.from_bytes(match[1], "little"), match[2] is not None))
    return [(number, returns) for number, returns in found if _plausible(number)]


def _stores_aarch64(elf: Elf) -> list[tuple[int, bool]]:
    """The same for `movz wN, #imm16` with `str wN, [xM]` and `ret` within the next three instructions."""
    found = []
    for section in elf.code:
        words = np.frombuffer(elf.section_data(section)[: section.size & ~3], "<u4")
        for at in np.flatnonzero((words & 0xFFE00000) == 0x52800000).tolist():
            word = int(words[at])
            number = word >> 5 & 0xFFFF
            if not _plausible(number):
                continue
            after = [int(value) for value in words[at + 1 : at + 5]]
            stores = [i for i, value in enumerate(after) if value & 0xFFFFFC1F == 0xB9000000 | word & 31]
            if stores and 0xD65F03C0 in after[stores[0] :]:
                found.append((number, True))
    return found


def _plausible(number: int) -> bool:
    return 5000 <= number < 30000 and number % 10 == 0 and number % 1000 < 100


def read_only_data(elf: Elf) -> Iterator[bytes]:
    """What holds a file's constant strings, in pieces as `_chunks` has them."""
    return chain.from_iterable(map(_chunks, elf.areas_beginning(".rodata", ".lrodata")))


def _in_data(elf: Elf, text: bytes) -> bool:
    return any(text in chunk for chunk in read_only_data(elf))


def _chunks(data: memoryview) -> Iterator[bytes]:
    """A section's bytes in pieces that overlap, so that a short pattern is never cut in all of them."""
    for at in range(0, len(data), _CHUNK):
        yield bytes(data[at : at + _CHUNK + _OVERLAP])
