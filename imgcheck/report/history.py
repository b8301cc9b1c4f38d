"""Finds the lines of a Dockerfile that brought the layers of an image, from the history that its builder wrote."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from imgcheck.documents.image import LayerInfo
from imgcheck.documents.report import Evidence
from imgcheck.report.dockerfile import (
    BRINGING,
    Dockerfile,
    Instruction,
    command_text,
    destination,
    plain,
    without_options,
    words_text,
)

_TARGETS = 20
"""Stages, from the last, that are tried as the one that was built (`--target`)."""
_SHELLS = 8
"""Places of a history line at which its command may begin."""
_TRIED = 50
"""Instructions with variables that are compared with a history line."""
_NOP = re.compile(r"[^#]*#\(nop\)\s+")
_DIGEST = re.compile(r"\S+ in (?P<destination>.*)", re.DOTALL)
_ARGUMENTS = re.compile(r"\|(\d{1,4}) ")
_SHELL = re.compile(r"\s-[A-Za-z]*c\s+")


@dataclass(frozen=True)
class Origins:
    """The lines of one Dockerfile by the layers that they brought."""

    path: str
    lines: Mapping[tuple[int, str], int]

    def line_of(self, evidence: Evidence) -> int | None:
        """The line that brought the file; None where none is known to: it came with the base image, for one."""
        return self.lines.get((evidence.layer, evidence.history))


def origins(dockerfile: Dockerfile, images: Iterable[Sequence[LayerInfo]]) -> Origins:
    """Where `dockerfile` brought each layer of `images`, which are one image for several platforms."""
    lines: dict[tuple[int, str], int] = {}
    for layers in images:
        histories = [layer.history for layer in layers]
        found = lines_of(dockerfile, histories)
        lines |= {(layer, histories[layer]): line for layer, line in found.items()}
    return Origins(dockerfile.path, lines)


def lines_of(dockerfile: Dockerfile, histories: Sequence[str]) -> dict[int, int]:
    """Line by index of each history line that `dockerfile` explains, for the stage that explains most of them."""
    told = [_told(history) for history in histories]
    stages = range(len(dockerfile.stages))[-_TARGETS:]
    lineages = [dockerfile.lineage(stage) for stage in reversed(stages)]
    return max((_aligned(lineage, told) for lineage in lineages), key=len, default={})


class _Told(NamedTuple):
    """What a history line says."""

    name: str
    texts: tuple[str, ...]
    """As of an Instruction, the likeliest reading first."""


def _told(history: str) -> _Told:
    """A line of any builder.

    BuildKit: `RUN |1 A=b /bin/sh -c CMD # buildkit`, `COPY SOURCE... DEST # buildkit` (commitToHistory of its
    dockerfile2llb); Docker's classic builder and Buildah: `|1 A=b /bin/sh -c CMD`, `/bin/sh -c #(nop) COPY file:DIGEST
    in DEST`; Kaniko: the instruction itself.
    """
    text = history.strip().removesuffix("# buildkit").rstrip()
    silent = _NOP.match(text)
    text = text[silent.end() :] if silent else text
    name, _, rest = text.partition(" ")
    if name == "RUN" or not (silent or name in BRINGING):
        command = rest if name == "RUN" else text
        return _Told("RUN", tuple(dict.fromkeys(command_text(" ".join(plain(each))) for each in _commands(command))))
    arguments = without_options(rest.lstrip())
    digest = _DIGEST.fullmatch(arguments) if silent else None
    return _Told(name, (destination(digest["destination"]) if digest else words_text(arguments),))


def _commands(text: str) -> Iterator[str]:
    """What may be the command: all of it, what follows build arguments, what follows a shell and its `-c`.

    Values of build arguments may hold spaces, and even a `-c`; no builder quotes them.
    """
    yield without_options(text)
    counted = _ARGUMENTS.match(text)
    if counted:
        yield text.split(" ", int(counted[1]) + 1)[-1]
    for shell in islice(_SHELL.finditer(text), _SHELLS):
        yield without_options(text[shell.end() :])


def _aligned(lineage: Sequence[Instruction], told: Sequence[_Told]) -> dict[int, int]:
    """Line by index of `told`. From the end, since the layers of the base image come first; both are in one order."""
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    loose: dict[str, list[int]] = defaultdict(list)
    for number, instruction in enumerate(lineage):
        for text in instruction.texts:
            places[instruction.name, text].append(number)
        if instruction.loose:
            loose[instruction.name].append(number)
    found: dict[int, int] = {}
    before = len(lineage)
    for index in range(len(told) - 1, -1, -1):
        line = told[index]
        exact = (_last(places.get((line.name, text), ()), before) for text in line.texts)
        place = next((each for each in exact if each is not None), None)
        if place is None:
            place = _last_loose(lineage, loose.get(line.name, ()), before, line)
        if place is not None:
            found[index], before = lineage[place].line, place
    return found


def _last(places: Sequence[int], before: int) -> int | None:
    at = bisect_left(places, before)
    return places[at - 1] if at else None


def _last_loose(lineage: Sequence[Instruction], places: Sequence[int], before: int, line: _Told) -> int | None:
    at = bisect_left(places, before)
    for place in reversed(places[max(0, at - _TRIED) : at]):
        if any(_fits(text, pieces) for text in line.texts for pieces in lineage[place].loose):
            return place
    return None


def _fits(text: str, pieces: tuple[str, ...]) -> bool:
    """Whether `text` is `pieces` with anything between them."""
    first, *inner, last = pieces
    if not text.startswith(first):
        return False
    at = len(first)
    for piece in inner:
        at = text.find(piece, at) + len(piece)
        if at < len(piece):
            return False
    return text[at:].endswith(last)
