"""An image's profile as an artifact beside it, and the way back, with everything checked that can be."""

import gzip
import zlib
from itertools import islice

import msgspec

from imgcheck import __version__, oci
from imgcheck.attach.push import Artifact
from imgcheck.documents import ImageProfile, decode
from imgcheck.errors import DocumentError, SourceError
from imgcheck.profile.build import engines, named_as
from imgcheck.sources.model import Attached, Image

ARTIFACT_TYPE = "application/vnd.imgcheck.profile.v1+json"
BLOB_TYPE = "application/vnd.imgcheck.profile.v1+json+gzip"
_BLOB_LIMIT = 64 << 20
_PROFILE_LIMIT = 512 << 20
_MOST_LOOKED_AT = 20
"""Artifacts that are fetched: anybody who may push can add some."""


def artifact_of(profile: ImageProfile) -> Artifact:
    """`profile` as gzipped JSON: any tool can read it."""
    annotations = {oci.TITLE: "imgcheck profile", "dev.imgcheck.version": __version__}
    return Artifact(ARTIFACT_TYPE, BLOB_TYPE, gzip.compress(msgspec.json.encode(profile), mtime=0), annotations)


def attached_profile(image: Image, digest: str = "") -> tuple[ImageProfile | None, str]:
    """The newest profile attached to `image` that says what this version would say, and in words what was found.

    With `digest` only the artifact of that digest counts. Whether its author is to be believed is not judged here.
    """
    if image.attached is None:
        return None, "no profile can be attached to an image outside a registry; it was analysed"
    why = f"no attached profile has the digest {digest}" if digest else "no profile is attached to the image"
    found = (artifact for artifact in image.attached(ARTIFACT_TYPE) if digest in ("", artifact.digest))
    for artifact in islice(found, _MOST_LOOKED_AT):
        try:
            profile = _checked(image, artifact)
        except (DocumentError, SourceError) as error:
            why = error.message
            continue
        return named_as(image, profile), f"the attached profile {artifact.digest} was used ({artifact.created})"
    return None, f"{why}; the image was analysed"


def _checked(image: Image, artifact: Attached) -> ImageProfile:
    """The profile in `artifact`; DocumentError where it is not about `image` or not by these engines."""
    name = f"the attached profile {artifact.digest}"
    try:
        unpacker = zlib.decompressobj(wbits=31)
        data = unpacker.decompress(artifact.read(_BLOB_LIMIT), _PROFILE_LIMIT)
    except zlib.error as error:
        raise DocumentError(f"{name} is damaged: {error}") from None
    if not unpacker.eof:
        raise DocumentError(f"{name} is truncated or larger than {_PROFILE_LIMIT >> 20} MiB")
    profile = decode(data, ImageProfile, name)
    if (profile.manifest_digest, profile.config_digest) != (image.manifest_digest, image.config_digest):
        raise DocumentError(f"{name} is about another image")
    if profile.engines != engines():
        raise DocumentError(f"{name} was made by another version of imgcheck")
    return profile
