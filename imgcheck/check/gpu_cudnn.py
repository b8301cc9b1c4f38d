"""GPU015: a cuDNN older than the one that a framework was built with."""

import posixpath
import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from imgcheck.check.context import Answers, Context
from imgcheck.check.gpu_case import Case
from imgcheck.documents.image import Component
from imgcheck.documents.report import Finding
from imgcheck.knowledge.cudnn import CudnnUser, cudnn_users
from imgcheck.loader.closure import PYTHON_DIRECTORIES
from imgcheck.versions import parse

_LIBRARY = "libcudnn.so."
_VERSIONED = re.compile(r"libcudnn\.so\.(\d+\.\d+(?:\.\d+)*)")
_PACKAGED = "nvidia/cudnn/lib/"
"""Where NVIDIA's Python package has it, in the directory of packages."""
_RECORD = "nvidia_cudnn_"
"""How the directory of that package's record begins, beside it."""


class _Use(Struct, frozen=True):
    """A framework, and a cuDNN that it gets."""

    component: Component
    user: CudnnUser
    path: str
    version: str
    """Empty where it is not known."""


def too_old(case: Case, answers: Answers) -> None:
    """GPU015: the framework refuses it."""
    context = case.context
    asking = [each for each in context.image.components if each.cudnn and any(_libraries(context))]
    known = cudnn_users(case.knowledge) if asking else {}  # a preflight has no time for the table otherwise
    uses = [use for each in asking if each.name in known for use in _uses(context, each, known[each.name])]
    if not uses:
        return answers.answer("GPU015", "not-applicable", "no framework with a cuDNN that it is known to compare")
    refused = [use for use in uses if use.version and not _is_fit(use.component.cudnn, use.version)]
    if refused and not context.host.gpus.known:
        said = "; ".join(_said(use) for use in refused)
        return answers.answer("GPU015", "unknown", f"the host's GPUs are not known; on one {said}")
    if not refused and not all(use.version for use in uses):
        paths = ", ".join(dict.fromkeys(use.path for use in uses if not use.version))
        return answers.answer("GPU015", "unknown", f"neither the name of {paths} nor a package tells its version")
    return answers.conclude("GPU015", [_finding(case, use) for use in refused], "; ".join(map(_said, uses)))


def _said(use: _Use) -> str:
    return f"{use.component.name} is built with cuDNN {_short(use.component.cudnn)} and gets {_short(use.version)}"


def _uses(context: Context, component: Component, user: CudnnUser) -> Iterator[_Use]:
    package = _package(component)
    chosen = context.closure.chosen.items()
    found = {path for (file, name), path in chosen if name.startswith(_LIBRARY) and file.startswith(package)}
    own = _in_packages(context, package) if user.loads_packages else None
    for path in sorted(found) if own is None else [own]:
        yield _Use(component, user, path, _version(context, path))


def _package(component: Component) -> str:
    """The directory of the framework's Python package; of its files where it is none."""
    place = component.opener or component.path
    for part in PYTHON_DIRECTORIES:
        before, found, behind = place.partition(part)
        if found:
            return f"{before}{part}{behind.partition('/')[0]}/"
    return place.rpartition("/")[0] + "/"


def _in_packages(context: Context, package: str) -> str | None:
    """The cuDNN of NVIDIA's Python package beside another one."""
    beginning = package.rstrip("/").rpartition("/")[0] + f"/{_PACKAGED}{_LIBRARY}"
    return next((path for path in _libraries(context) if path.startswith(beginning)), None)


def _libraries(context: Context) -> Iterable[str]:
    """Every cuDNN of the image."""
    return (record.path for record in context.image.files if _LIBRARY in record.path)


def _version(context: Context, path: str) -> str:
    """By the name of the file, or by the record of the package that has it."""
    named = _VERSIONED.fullmatch(path.rpartition("/")[2])
    if named:
        return named[1]
    site, packaged, _ = path.partition(_PACKAGED)
    if not packaged:
        return ""
    components = (each for each in context.image.components if each.name == "cuDNN")
    return next((each.version for each in components if each.path.startswith(site + _RECORD)), "")


def _is_fit(built: str, found: str) -> bool:
    """Whether code that was built with one cuDNN takes another: of the same major version, no lower minor one."""
    wanted, got = parse(built), parse(found)
    return wanted[:1] == got[:1] and got[1:2] >= wanted[1:2]


def _short(version: str) -> str:
    """As the frameworks print it: without the number of NVIDIA's build."""
    return ".".join(version.split(".")[:3])


def _finding(case: Case, use: _Use) -> Finding:
    context, found, built = case.context, _short(use.version), _short(use.component.cudnn)
    return context.finding(
        "GPU015",
        "risk" if context.roots.steered else use.user.severity,
        use.component.name,
        (context.evidence_at(use.path, f"cuDNN {use.version}"),),
        variant=context.variant("GPU015", use.user.id),
        framework=use.component.name,
        release=use.component.version,
        found=found,
        built=built,
        found_parts=found.replace(".", ", "),
        built_parts=built.replace(".", ", "),
        library=use.path,
        remedy=_remedy(context, use),
    )


def _remedy(context: Context, use: _Use) -> str:
    built = use.component.cudnn
    for path in _libraries(context):
        if (version := _version(context, path)) and _is_fit(built, version):
            return (
                f"The image has cuDNN {_short(version)}, too: name {posixpath.dirname(path)} first in LD_LIBRARY_PATH "
                f"(ENV in the Dockerfile), or take {posixpath.dirname(use.path)} out of it."
            )
    wanted, after = ".".join(built.split(".")[:2]), parse(built)[0] + 1
    return (
        f"Bring cuDNN {wanted} or newer, below {after}, into the image "
        f"(pip install 'nvidia-cudnn-cuNN>={wanted},<{after}', or a base image that has it), or take a release of "
        f"{use.component.name} that is built with cuDNN {_short(use.version)} or older."
    )
