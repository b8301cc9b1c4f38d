"""GPU011: whether the process gets a GPU at all: of the host, by the runtime, past what the image itself says."""

import re

from msgspec import Struct

from imgcheck.check.context import Answers
from imgcheck.check.gpu_case import Case
from imgcheck.documents.report import Severity

_LONGEST = 80
"""Characters of a value that are shown."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_UUIDS = ("GPU-", "MIG-")
_INDEX = r"\s*(?:\+?(\d{1,9})|-0+(?!\d))"
"""The beginning of one; below nought there is none."""
_ELSEWHERE = "Check on a node with GPUs; a login node often has none (imgcheck probe -o HOST.json there)."
_INJECT = "Start it by a runtime that brings the driver in (docker run --gpus all, apptainer --nv)."
_UNHIDE = f"Take {_VISIBLE} out of the image, or set it at the start (docker run -e, apptainer --env)."


class _Lack(Struct, frozen=True):
    """Why the process gets no GPU."""

    reason: str
    remedy: str
    counted: bool = False
    """It rests on how many GPUs the host has."""


def no_gpu(case: Case, answers: Answers) -> None:
    """GPU011: the host has no GPU that the process sees, and the image has code for one or the user asks for one."""
    lack = _without_gpu(case)
    if lack is None:
        # A loaded driver has found a GPU; what somebody says of a driver does not tell what is in the machine.
        loaded = case.kernel_driver and not case.context.host.described
        if case.context.host.gpus.unknown and not loaded:
            return answers.answer("GPU011", "unknown", f"whether the host has a GPU is not known{_open(case)}")
        return answers.answer("GPU011", "ok", "the host has a GPU")
    amd = bool(case.amd_code) and not case.wants_nvidia
    finding = case.context.finding(
        "GPU011",
        _severity(case, lack),
        "GPU",
        case.evidence_of_use("GPU code or a CUDA runtime"),
        variant="amd" if amd else case.wording(frameworks=False),
        vendor=("AMD" if amd else "NVIDIA") if case.gpu_files else "usable",
        need="The image has GPU code" if case.gpu_files else "A GPU is asked for (--require-gpu)",
        reason=lack.reason,
        remedy=lack.remedy,
    )
    return answers.conclude("GPU011", [finding], "")


def _open(case: Case) -> str:
    """How who describes the host can say it."""
    host = case.context.host
    return f': {host.gpus.source} ("none" for a host without one)' if host.described and host.gpus.source else ""


def _severity(case: Case, lack: _Lack) -> Severity:
    if not case.context.require_gpu:
        return "degraded"
    # Who describes a host names its kinds of GPUs, maybe not each: there may be the one of an index.
    return "risk" if lack.counted and case.context.host.described else "fail"


def _without_gpu(case: Case) -> _Lack | None:
    """Why the process gets no GPU; None where it gets one, or where that is not known."""
    host, kinds = case.context.host, case.kinds or case.amd_kinds
    for_nvidia = case.wants_nvidia or not case.amd_code
    if case.kinds and case.context.require_gpu and not case.gpu_files and not case.context.runtime.injects_driver:
        return _Lack(f"{case.context.runtime.title} brings no driver into the container", _INJECT)
    if not case.lacks_gpu:
        return _hidden(case) if case.kinds and for_nvidia else None
    if kinds:
        return _Lack(f"this host's GPUs are {', '.join(kind.label for kind in kinds)}", _ELSEWHERE)
    if host.driver.kernel_module.absent and for_nvidia:
        return _Lack("this host has neither an NVIDIA GPU nor its driver", _ELSEWHERE)
    return _Lack("no GPU was found on this host", _ELSEWHERE)


def _hidden(case: Case) -> _Lack | None:
    """How the image hides the host's GPUs."""
    visible = case.environment.get(_VISIBLE)
    if visible is None:
        return None
    setting = f"ENV {_VISIBLE}={visible[:_LONGEST]} of the image"
    if hides_gpus(visible):
        return _Lack(f"{setting} hides every GPU", _UNHIDE)
    count = _count(case)
    if not count or not hides_gpus(visible, count):
        return None
    why = f"{setting} begins with a GPU that is not there, and so hides every one: of {count}, from 0"
    return _Lack(why, _UNHIDE, counted=True)


def _count(case: Case) -> int:
    """How many GPUs of NVIDIA the host has; 0 where slices of them (MIG) are numbered otherwise."""
    own = [gpu for gpu in case.context.host.gpus.value or () if gpu.vendor == "nvidia"]
    return 0 if any(gpu.mig for gpu in own) else len(own)


def hides_gpus(visible: str, count: int = 0) -> bool:
    """Whether a value of CUDA_VISIBLE_DEVICES leaves CUDA no device of `count`, or (0) whatever GPUs there are.

    CUDA reads the list up to the first entry that is no index of a GPU and no UUID (CUDA C++ Programming Guide, "CUDA
    Environment Variables"; run: docs/gpu.md), and of an index the digits that it begins with. A UUID that the host
    lacks is not judged.
    """
    if visible.startswith(_UUIDS):
        return False
    first = re.match(_INDEX, visible, re.ASCII)
    return first is None or 0 < count <= int(first[1] or 0)
