"""The profile of a job's image: given itself, kept beside the image, in the store, or attached in its registry.

No pathlib: importing it takes a tenth of a preflight.
"""

import os
from typing import TYPE_CHECKING, Literal, Union

from imgcheck.documents import ImageProfile
from imgcheck.documents.codec import open_document
from imgcheck.errors import ImgcheckError, SourceError
from imgcheck.preflight import kept
from imgcheck.preflight.belonging import belongs, for_another_platform, written_by_its_writers
from imgcheck.sources.splitting import split_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imgcheck.knowledge import Knowledge

SUFFIX = ".imgcheck.json"
"""What is appended to an image's path for its profile: x.sif has x.sif.imgcheck.json beside it."""
MAKE_ONE = "give a profile: imgcheck profile IMAGE -o FILE.json; or attach one (imgcheck attach) and trust it here"
_HOLDING = ("oci:", "oci-archive:", "docker-archive:")
"""Transports of what may hold several images."""
_LOCAL = (*_HOLDING, "dir:", "sif:")


class NoProfileError(ImgcheckError):
    """There is no profile, and none was made."""


StorePlace = Union["Path", Literal["default", "none"]]
"""The store to ask: a directory, the user's own, or none."""
DEFAULT: StorePlace = "default"


def find_profile(reference: str, inputs: dict[str, str], architecture: str) -> tuple[ImageProfile | None, list[str]]:
    """The profile that `reference` is, or that lies beside the image and is of it, and why one there is not believed.

    `architecture` is that of the host, "" where it is not known: an image may be of several platforms. The files looked
    at are added to `inputs`, also those that are absent: one that appears later is an answer. Raises DocumentError for
    a damaged or newer profile.
    """
    path, inside, digest = _located(reference)
    inputs[path] = kept.fingerprint(path)
    if (profile := open_document(path, ImageProfile, reference)) is not None:
        return profile, []
    beside = path + SUFFIX
    inputs[beside] = kept.fingerprint(beside)
    by_its_writers = written_by_its_writers(path, beside)
    profile = open_document(beside, ImageProfile, beside, by_its_writers)
    if profile is None:
        return None, _unused(beside, by_its_writers)
    watch(reference, inputs)
    if not belongs(profile, path, inside, digest):
        return None, [f"{beside} is of another image, or of an earlier state of this one, and was not used"]
    if for_another_platform(profile, path, inside, digest, architecture):
        return None, [f"{beside} is of the image for {profile.platform}, and was not used: there is one for this host"]
    return profile, []


def _unused(beside: str, by_its_writers: "Callable[[os.stat_result], bool]") -> list[str]:
    """Why what lies at `beside` gave no profile; nothing where nothing lies there."""
    if not os.path.lexists(beside):
        return []
    if os.path.exists(beside) and not by_its_writers(os.stat(beside)):
        return [f"{beside} may be written by others than the image, and was not used"]
    return [f"{beside} is no profile and was not used"]


def refuse_special(reference: str) -> None:
    """SourceError where the image is neither a file nor a directory.

    Opening a FIFO would wait for its writer: whoever names one would hold a prolog until its time is up.
    """
    path = local_path(reference)
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise SourceError(f"{reference}: neither a file nor a directory", "name an image that lies in files")


def stored_profile(reference: str, place: StorePlace, architecture: str) -> ImageProfile | None:
    """The profile of a local image that the store holds under its config digest; no layer is read for it.

    That for `architecture` where the image is of several platforms. Raises SourceError where there is no such image.
    """
    if place == "none" or not is_local(reference):
        return None
    from imgcheck.profile.build import engines
    from imgcheck.profile.store import open_store, store_key
    from imgcheck.sources.open import SourceOptions, open_image
    from imgcheck.sources.platforms import platform_for

    store = open_store(None if place == "default" else place, store_key(engines()))
    if store is None:
        return None
    with open_image(as_path(reference), SourceOptions(platform=platform_for(architecture))) as image:
        return store.profile(image.config_digest)


def registry_profile(reference: str, digest: str, architecture: str, knowledge: "Knowledge") -> ImageProfile:
    """The profile attached to an image in a registry, with `digest` that artifact alone; no layer is fetched.

    A short name leads where `knowledge` says.
    That for `architecture` where the image is of several platforms. Raises SourceError where the registry cannot be
    asked or no attached profile is of this image and version.
    """
    from imgcheck.attach.profile import attached_profile
    from imgcheck.sources.open import SourceOptions, open_image
    from imgcheck.sources.platforms import platform_for
    from imgcheck.sources.registries import short_names

    options = SourceOptions(platform=platform_for(architecture), short_names=short_names(knowledge))
    with open_image(reference, options) as image:
        profile, said = attached_profile(image, digest)
    if profile is None:
        raise NoProfileError(f"{reference}: {said.partition('; ')[0]}", MAKE_ONE)
    return profile


def is_local(reference: str) -> bool:
    """Whether the image lies in files of this machine."""
    return reference.startswith(_LOCAL) or os.path.exists(local_path(reference))


def watch(reference: str, inputs: dict[str, str]) -> bool:
    """Add what tells that the image has changed to `inputs`; False for an unpacked root, where nothing tells."""
    path = local_path(reference)
    index = f"{path}/index.json"  # of an OCI layout: it names all else by digest
    if os.path.isfile(index) and not reference.startswith("dir:") and _is_layout(path):
        inputs[index] = kept.fingerprint(index)
        return True
    return os.path.isfile(path)


def _is_layout(path: str) -> bool:
    """Whether a directory with an index.json is a layout, as sources.reference has it: a root may have such a file."""
    return os.path.isfile(f"{path}/oci-layout") or os.path.isdir(f"{path}/blobs")


def local_path(reference: str) -> str:
    """Where the image lies, without its transport and the tag behind it."""
    return _located(reference)[0]


def as_path(reference: str) -> str:
    """The reference as other commands take it for what lies here: a bare name would be one of a registry to them."""
    return f"./{reference}" if "/" not in reference and os.path.exists(reference) else reference


def recipe(reference: str) -> str:
    """How to make the profile of a local image where it is looked for."""
    import shlex

    command = ["imgcheck", "profile", as_path(reference), "-o", local_path(reference) + SUFFIX]
    return f"make its profile once: {shlex.join(command)}"


def _located(reference: str) -> tuple[str, str, str]:
    """Where the image lies, its name in there, and its digest."""
    scheme = next((scheme for scheme in _LOCAL if reference.startswith(scheme)), "")
    rest = reference.removeprefix(scheme)
    path, inside, digest = split_path(rest) if scheme in _HOLDING else (rest, "", "")
    # Not normalised: `..` behind a link leads elsewhere.
    return os.path.join(os.getcwd(), path).rstrip("/") or "/", inside, digest
