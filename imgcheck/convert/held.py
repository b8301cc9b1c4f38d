"""What becomes of a check's findings when the image is converted, and how both read a remote image only once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from imgcheck.convert import udocker
from imgcheck.convert.squash import readable_twice
from imgcheck.convert.stage import staged
from imgcheck.documents.host import HostProfile
from imgcheck.documents.report import Finding
from imgcheck.knowledge import Knowledge
from imgcheck.sources.model import Image

_FAMILIES = {
    "sandbox": "apptainer",
    "sif": "apptainer",
    "udocker": "udocker",
    "charliecloud": "charliecloud",
    "enroot": "enroot",
    "docker-archive": "docker",
}
"""The runtimes that a target is made for; the other targets suit several."""
_ENTERED = "the printed command enters WORKDIR"
_QUOTED = "imgcheck writes ENV in a form that every shell reads alike"
_ADDED = "added by the conversion"
_REPLACED = "replaced by the conversion"
_MENDED = {
    "sandbox": {"RUN009": _ENTERED, "RUN010": _QUOTED, "RUN013": _REPLACED, "RUN014": _ADDED},
    "sif": {"RUN009": _ENTERED, "RUN010": _QUOTED, "RUN013": _REPLACED, "RUN014": _ADDED},
    "udocker": {"RUN004": _ADDED, "RUN005": _ADDED, "RUN006": "written as uid:gid", "RUN007": _ADDED},
    "charliecloud": {"RUN004": _ADDED, "RUN009": _ENTERED},
}
"""Rules whose findings hold for the image as it was, and no more for what `convert` makes of it; with the reason."""


def runtimes_of(target: str, hosts: Sequence[HostProfile], knowledge: Knowledge) -> tuple[str, ...]:
    """The runtimes that run `target`: those found on the hosts, else all of its kind; empty where any will do."""
    family = [name for name, runtime in knowledge.runtimes.items() if runtime.family == _FAMILIES.get(target)]
    installed = {entry.id for host in hosts for entry in host.runtimes.value or ()}
    return tuple(name for name in family if name in installed) or tuple(family)


class Mended:
    """Marks what the conversion to `target` has taken care of (check.run.Review)."""

    def __init__(self, target: str) -> None:
        self._reasons = _MENDED.get(target, {})

    def __call__(self, finding: Finding, host: HostProfile, runtime: str) -> Finding:
        reason = self._reasons.get(finding.rule)
        return msgspec.structs.replace(finding, waived=reason) if reason else finding


def adds_to(target: str, destination: Path) -> bool:
    """Whether the conversion to `target` adds to what lies at `destination`, and does not make it or replace it."""
    return target == "udocker" and udocker.is_repository(destination)


@contextmanager
def read_once(image: Image, target: str, destination: Path) -> Iterator[Image]:
    """The image with its remote layers fetched to a hidden directory, for more than one pass.

    It lies beside `destination`, or in it where the conversion to `target` adds to that: on the same filesystem.
    """
    with staged(destination if adds_to(target, destination) else destination.absolute().parent) as stage:
        yield replace(image, layers=readable_twice(image.layers, stage))
