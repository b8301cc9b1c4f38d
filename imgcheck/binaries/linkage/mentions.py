"""Names of libraries and of GPU code in a file's strings: what it may open by itself (dlopen, cuModuleLoad).

A name is a whole string, as C keeps them, with or without a path. What a format of printf leaves open (`lib%s_%d.so`)
stands as `*`; a name of little else tells nothing.
"""

import re
from collections.abc import Iterator

from imgcheck.binaries.elf import Elf

_SECTIONS = (".rodata", ".lrodata", ".data")
_END = re.compile(rb"\.(?:so(?:\.\d+){0,4}|cubin|fatbin|ptx|hsaco)\0")
_NAME = re.compile(rb"[\w+.,@/%*-]+")
_FORMAT = re.compile(r"%[-+#0]*\d*(?:\.\d+)?(?:hh|h|ll|l|z|j)?[sdiux]")
_FEWEST_LETTERS = 4
_LONGEST = 200
_MOST = 64
_CHUNK = 1 << 22


def mentions(elf: Elf) -> tuple[str, ...]:
    """The names, each once, in the order in which they stand there; in a file without sections none is looked for."""
    found: dict[str, None] = {}
    for text in _strings(elf):
        name = _FORMAT.sub("*", text)
        plain = name.rpartition("/")[2].partition(".so")[0]
        if "%" not in name and sum(map(str.isalpha, plain)) >= _FEWEST_LETTERS:
            found[name] = None
        if len(found) == _MOST:
            break
    return tuple(found)


def _strings(elf: Elf) -> Iterator[str]:
    for data in elf.areas_beginning(*_SECTIONS):
        for first in range(0, len(data), _CHUNK):
            begin = max(first - _LONGEST, 0)
            yield from _in(bytes(data[begin : first + _CHUNK]), first - begin)


def _in(data: bytes, first: int) -> Iterator[str]:
    """Strings of such a form that end behind `first`."""
    for match in _END.finditer(data, first):
        end = match.end() - 1
        begin = data.rfind(b"\0", max(end - _LONGEST, 0), end) + 1
        if (begin or end <= _LONGEST) and _NAME.fullmatch(data, begin, end):
            yield data[begin:end].decode("ascii")
