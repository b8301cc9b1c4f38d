"""Whether a profile that lies beside an image is of this image: files are replaced, and one layout holds many images.

A file is told from others by its size and checksums of its ends, where SIF, squashfs and archives say what they hold
and when it was made: reading all of it would take longer than the check. An OCI layout names its images by digest.
"""

import binascii
import os
from collections.abc import Callable
from typing import Any

import msgspec

from imgcheck import oci
from imgcheck.documents import ImageProfile
from imgcheck.documents.codec import read_regular

_ENDS = 1 << 16
"""Bytes at the beginning and at the end."""
_LARGEST_INDEX = 4 << 20
_BY_OTHERS = 0o022
"""Modes by which others than its owner may write a file."""
_NAMES = (oci.REF_NAME, oci.IMAGE_NAME)
"""The annotations that tag an image of a layout (containerd's have the full name)."""


def file_identity(path: str, inside: str) -> str:
    """What tells the image called `inside` (of an archive with several) in the file at `path` from others.

    "" where there is no regular file.
    """
    try:
        if not os.path.isfile(path):
            return ""
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            first = file.read(_ENDS)
            file.seek(max(size - _ENDS, 0))
            return f"{size} {binascii.crc32(first):08x} {binascii.crc32(file.read(_ENDS)):08x} {inside}".rstrip()
    except OSError:
        return ""


def belongs(profile: ImageProfile, path: str, inside: str, digest: str) -> bool:
    """Whether `profile` is of the image called `inside` in the file or layout at `path`, as far as can be told.

    Of a layout `digest` names it before `inside` does; "" names none.

    A profile made elsewhere, say of an image in a registry, says nothing of a file; nothing tells unpacked roots apart.
    """
    if os.path.isfile(f"{path}/index.json"):
        return not profile.manifest_digest or profile.manifest_digest in map(_digest, _listed(path, inside, digest))
    return not profile.file_identity or profile.file_identity == file_identity(path, inside)


def written_by_its_writers(path: str, beside: str) -> Callable[[os.stat_result], bool]:
    """Whether the file at `beside`, by its status, is this user's, root's or of the owner of the image at `path`, and
    nobody may write it who may not write the image: anybody else's could say that the image is fine.
    """
    try:
        image = os.stat(path)
        owners = {0, os.geteuid(), image.st_uid}
        link_owner = os.lstat(beside).st_uid
    except OSError:
        return lambda status: False

    def believed(status: os.stat_result) -> bool:
        shared = image.st_mode if status.st_gid == image.st_gid else 0
        return {status.st_uid, link_owner} <= owners and not status.st_mode & ~shared & _BY_OTHERS

    return believed


def for_another_platform(profile: ImageProfile, path: str, inside: str, digest: str, architecture: str) -> bool:
    """Whether `profile` is not for `architecture`, and the layout at `path` has the image called `inside` for it."""
    if not architecture or not profile.manifest_digest or not os.path.isfile(f"{path}/index.json"):
        return False
    from imgcheck.sources.platforms import goarch

    wanted = goarch(architecture)
    if profile.platform.architecture == wanted:
        return False
    return any(_object(entry, "platform").get("architecture") == wanted for entry in _listed(path, inside, digest))


def _listed(layout: str, name: str, digest: str) -> list[dict[str, Any]]:
    """What a layout has under a name or digest: entries of its index, and those that image indexes among them list."""
    entries = _manifests(f"{layout}/index.json")
    if digest:
        # It may stand below an index; its blob is named by the digest all the same.
        entries = [entry for entry in entries if _digest(entry) == digest] or [{"digest": digest}]
    elif name:
        entries = [entry for entry in entries if name in map(_object(entry, "annotations").get, _NAMES)]
    found = list(entries)
    for each in sorted(set(map(_digest, entries))):
        algorithm, _, encoded = each.partition(":")
        if algorithm.isalnum() and encoded.isalnum():
            found += _manifests(f"{layout}/blobs/{algorithm}/{encoded}")
    return found


def _digest(entry: dict[str, Any]) -> str:
    return str(entry.get("digest", ""))


def _manifests(path: str) -> list[dict[str, Any]]:
    """The entries of an image index; none where it is something else."""
    try:
        document = msgspec.json.decode(read_regular(path, _LARGEST_INDEX))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    entries = document.get("manifests") if isinstance(document, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _object(entry: dict[str, Any], key: str) -> dict[str, Any]:
    found = entry.get(key)
    return found if isinstance(found, dict) else {}
