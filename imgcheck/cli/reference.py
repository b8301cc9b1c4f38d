"""The ImageProfile of what the user named: a document is read, anything else is opened and analysed."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imgcheck.cli import note
from imgcheck.cli.options import source_options, store
from imgcheck.cli.progress import progress
from imgcheck.documents import HostProfile, ImageProfile, decode
from imgcheck.documents.codec import read_document
from imgcheck.knowledge import Knowledge
from imgcheck.progress import Progress

if TYPE_CHECKING:
    from imgcheck.profile.store import Store
    from imgcheck.sources.model import Image


def profile_of(arguments: argparse.Namespace, knowledge: Knowledge, hosts: Sequence[HostProfile] = ()) -> ImageProfile:
    """The profile of `arguments.reference`; what should be known of how it was had goes to stderr.

    It tells of what the runtimes of `knowledge` ask for, and short names are those of its registries.
    Without --platform the platform is that of `hosts`, where they agree. Raises ImgcheckError where there is none.
    """
    stored = _stored_profile(arguments.reference)
    if stored is not None:
        return stored
    from imgcheck.sources.open import open_image

    kept = store(arguments)
    choose_platform(arguments, hosts)
    with (
        progress(arguments.quiet) as shown,
        open_image(arguments.reference, source_options(arguments, knowledge, kept), shown) as image,
    ):
        profile, said = _profile(arguments, image, shown, kept, knowledge)
    for text in (*image.notes, *said, *((kept.trouble,) if kept and kept.trouble else ())):
        note(text)
    return profile


def _profile(
    arguments: argparse.Namespace, image: "Image", shown: Progress, kept: "Store | None", knowledge: Knowledge
) -> tuple[ImageProfile, tuple[str, ...]]:
    """The profile of `image`: kept, attached where that is trusted, else made now. And what is to be told of it."""
    from imgcheck.profile.build import build_profile, kept_profile

    digest = getattr(arguments, "attached_digest", None) or ""
    if not digest and not getattr(arguments, "trust_attached", False):
        return build_profile(image, shown, kept, knowledge), ()
    known = kept_profile(image, kept, knowledge)
    if known:
        return known, ("the facts kept in the store were used; no attached profile was looked for",)
    from imgcheck.attach.profile import attached_profile

    attached, said = attached_profile(image, digest)
    return attached or build_profile(image, shown, kept, knowledge), (said,)


def choose_platform(arguments: argparse.Namespace, hosts: Sequence[HostProfile]) -> None:
    """Set the platform to that of `hosts` where none was asked for: one that was asked for must be there."""
    arguments.platform_asked = bool(arguments.platform)
    arguments.platform = arguments.platform or platform_of(hosts)


def platform_of(hosts: Sequence[HostProfile]) -> str | None:
    """The architecture that all `hosts` have; None where they differ or it is not known."""
    architectures = {host.cpu.architecture.value for host in hosts}
    return architectures.pop() if len(architectures) == 1 else None


def _stored_profile(reference: str) -> ImageProfile | None:
    # A bare name is always one of a registry, whatever lies here.
    data = read_document(reference) if "/" in reference or "." in reference else None
    return None if data is None else decode(data, ImageProfile, reference)
