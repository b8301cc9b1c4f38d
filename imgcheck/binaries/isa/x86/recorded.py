"""What compilers recorded of their -march: extensions that all of a file, or some of it, was compiled for.

GCC writes its options into DW_AT_producer, which stands in .debug_str (-grecord-gcc-switches, on by default with -g),
and with -frecord-gcc-switches into .GCC.command.line: strings such as "GNU C17 12.2.0 -march=haswell -O2". Other
compilers record no options by default, so that nothing is known of what they made (GCC manual, "Debugging Options").
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.conditions import implied
from imgcheck.errors import UsageError
from imgcheck.knowledge import Knowledge, cpus

_SECTIONS = (".debug_str", ".GCC.command.line")
_COMPRESSED = 1 << 11
"""SHF_COMPRESSED."""
_LIMIT = 64 << 20
"""Bytes of a section that are searched: larger ones are left, as compressed ones are."""
_MOST = 64
"""Different sets of options of one file: more are left."""
_GNU = b"GNU "
_ASSEMBLER = b"GNU AS "
_OTHERS = (b"clang version ", b"clang LLVM (", b"Go cmd/compile ", b"flang ", b"Intel(R) ")
_LADDER = frozenset({"sse3", "ssse3", "sse4_1", "sse4_2", "popcnt", "avx", "avx2", "avx512f"})
"""What an option for a newer extension allows besides, of what CPUs with that have (GCC manual, "x86 Options")."""
_MARCH = re.compile(rb" -march=(\S+)")
_OPTION = re.compile(rb" -m(no-)?([a-z0-9.]+)(?= |$)")


@dataclass(frozen=True)
class Recorded:
    """Features that the compiler was free to use."""

    everywhere: frozenset[str]
    somewhere: frozenset[str]


def recorded(elf: Elf) -> Recorded | None:
    """What the compilations of `elf` that left a record were for; None where not all that left a trace tell it."""
    producers: set[bytes] = set()
    for name in _SECTIONS:
        section = elf.section(name)
        if section is None:
            continue
        if section.flags & _COMPRESSED or section.size > _LIMIT:
            return None
        text = bytes(elf.section_data(section))
        if any(other in text for other in _OTHERS):
            return None
        producers.update(_producers(text))
    allowed = [_allowed(producer) for producer in producers] if len(producers) <= _MOST else []
    known = [features for features in allowed if features is not None]
    if not known or len(known) < len(allowed):
        return None
    return Recorded(frozenset.intersection(*known), frozenset.union(*known))


def _producers(text: bytes) -> Iterator[bytes]:
    """The strings in which GCC tells itself and its options; assembled code is no compiler's."""
    at = text.find(_GNU)
    while at >= 0:
        end = text.find(b"\0", at)
        end = len(text) if end < 0 else end
        if (at == 0 or text[at - 1] == 0) and not text.startswith(_ASSEMBLER, at):
            yield text[at:end]
        at = text.find(_GNU, end)


def _allowed(producer: bytes) -> frozenset[str] | None:
    """Features that one compilation was given, None where its -march is missing or unknown."""
    march = _MARCH.findall(producer)
    if not march:
        return None
    knowledge = Knowledge()
    try:
        features = cpus.resolve(knowledge, march[-1].decode("ascii", "replace")).features
    except UsageError:
        return None
    options = {(bool(no), name.decode().replace(".", "_")) for no, name in _OPTION.findall(producer)}
    forbidden = {name for no, name in options if no}
    given = {name for no, name in options if not no} & cpus.features(knowledge, "x86_64").keys()
    features |= given | {each for name in given for each in implied(name) & _LADDER}
    return frozenset(feature for feature in features if not forbidden & implied(feature))
