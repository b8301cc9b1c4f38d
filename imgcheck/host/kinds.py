"""Equal hosts as one: 412 profiles of a cluster are three kinds."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

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


_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.ASCII | re.DOTALL)


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


def unfold(names: str) -> list[str]:
    """The host names that `names` stands for, as `fold` and Slurm write them; what is of another form stays as it is.

    The first number of a range has the zeros of all, as `scontrol show hostnames` expands it (in tests/slurm).
    """
    return [name for word in _OUTER_COMMA.split(names) for name in _unfolded(word)]


def _unfolded(word: str) -> Iterator[str]:
    # Every other part is what stood in brackets; a name may have several of them: rack[1-2]n[1-4].
    parts = _RANGES.split(word)
    choices = [_numbers(part) if index % 2 else [part] for index, part in enumerate(parts)]
    return map("".join, itertools.product(*choices))


def _numbers(ranges: str) -> Iterator[str]:
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield f"{number:0{len(first)}}"


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
