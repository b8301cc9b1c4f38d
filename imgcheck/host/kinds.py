"""Equal hosts as one: 412 profiles of a cluster are three kinds."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from imgcheck.documents.facts import Document
from imgcheck.documents.host import Fact, HostProfile


def kinds(hosts: Sequence[HostProfile]) -> list[HostProfile]:
    """One profile for all `hosts` that offer the same, named after them and with their number; most numerous first.

    Names, and where a fact was read, do not count; everything that a check may ask does.
    """
    groups: dict[bytes, list[HostProfile]] = {}
    for host in hosts:
        groups.setdefault(offer(host), []).append(host)
    merged = [_merged(group) for group in groups.values()]
    return sorted(merged, key=lambda host: (-host.count, host.name))


def named_apart(hosts: Iterable[HostProfile]) -> list[HostProfile]:
    """`hosts` with a number behind a name that an earlier one has: reports and baselines tell hosts by their names."""
    seen: Counter[str] = Counter()
    found = []
    for host in hosts:
        seen[host.name] += 1
        number = f" ({seen[host.name]})" if seen[host.name] > 1 else ""
        found.append(msgspec.structs.replace(host, name=host.name + number))
    return found


def _merged(group: list[HostProfile]) -> HostProfile:
    if len(group) == 1:
        return group[0]
    count = sum(host.count for host in group)
    return msgspec.structs.replace(group[0], name=fold(host.name for host in group), count=count)


def offer(host: HostProfile) -> bytes:
    """What is the same for hosts of one kind, and for no others."""
    return msgspec.json.encode(_plain(msgspec.structs.replace(host, schema_version="", name="", count=1)))


def _plain(value: object) -> object:
    """`value` without the sources of facts and without an order of GPUs, libraries and runtimes."""
    if isinstance(value, Fact):
        return [value.state, _plain(value.value)]
    if isinstance(value, Document):
        return [_plain(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, tuple):
        return sorted((_plain(each) for each in value), key=repr)
    return value


_DIGITS = 10
"""Most digits of a name that count as its number: Python refuses to convert thousands of them."""
_NUMBERED = re.compile(rf"(.*?)(\d{{1,{_DIGITS}}})(\D*)", re.ASCII | re.DOTALL)


def fold(names: Iterable[str]) -> str:
    """Host names as schedulers write them: node1, node2, node3 and login are `login,node[1-3]`.

    Numbers are folded with their leading zeros; of several in a name the last one is.
    """
    plain: list[str] = []
    families: dict[tuple[str, str], set[str]] = {}
    for name in set(names):
        match = _NUMBERED.fullmatch(name)
        if match:
            families.setdefault((match[1], match[3]), set()).add(match[2])
        else:
            plain.append(name)
    folded = [f"{head}{words}{tail}" for (head, tail), digits in families.items() for words in _folded(digits)]
    return ",".join(sorted((*plain, *folded)))


_OUTER_COMMA = re.compile(r",(?![^\[]*\])")
_RANGES = re.compile(r"\[(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)\]", re.ASCII)


_MOST_NAMES = 1 << 17
"""Names that a list may stand for, several times what the largest clusters have: lists come from files of others."""


def unfold(names: str) -> list[str] | None:
    """The host names that `names` stands for, as `fold` and Slurm write them; what is of another form stays as it is.

    The first number of a range has the zeros of all, as `scontrol show hostnames` expands it (in tests/slurm). None for
    more names than any cluster has.
    """
    found: list[str] = []
    for word in _OUTER_COMMA.split(names):
        # Every other part is what stood in brackets; a name may have several of them: rack[1-2]n[1-4].
        parts = [_numbers(part) if index % 2 else _Choices([part], 1) for index, part in enumerate(_RANGES.split(word))]
        if len(found) + math.prod(part.many for part in parts) > _MOST_NAMES:
            return None
        found += map("".join, itertools.product(*(part.names for part in parts)))
    return found


class _Choices(NamedTuple):
    """What may stand at one place of a name."""

    names: Iterable[str]
    many: int


def _numbers(ranges: str) -> _Choices:
    numbers = [_range(each) for each in ranges.split(",")]
    names = (f"{number:0{width}}" for width, each in numbers for number in each)
    # At least one, or an empty range would hide a vast one beside it.
    return _Choices(names, max(sum(len(each) for _, each in numbers), 1))


def _range(text: str) -> tuple[int, range]:
    """The numbers of FIRST-LAST, and how wide they are written."""
    first, _, last = text.partition("-")
    last = last or first
    if max(len(first), len(last)) > _DIGITS:
        return len(first), range(_MOST_NAMES + 1)
    return len(first), range(int(first), int(last) + 1)


def _folded(digits: set[str]) -> list[str]:
    padded = any(each.startswith("0") and len(each) > 1 for each in digits)
    by_width: dict[int, set[int]] = {}
    for each in digits:
        by_width.setdefault(len(each) if padded else 0, set()).add(int(each))
    return [_ranges(numbers, width) for width, numbers in by_width.items()]


def _ranges(numbers: set[int], width: int) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = [f"{first:0{width}}" if first == last else f"{first:0{width}}-{last:0{width}}" for first, last in runs]
    return words[0] if len(numbers) == 1 else f"[{','.join(words)}]"
