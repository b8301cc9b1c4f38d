"""Digests as OCI writes them (image-spec, descriptor.md)."""

import re

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


def is_digest(text: str) -> bool:
    """Whether `text` is a digest that may become part of a path or URL: sha256 or sha512 in lower-case hex."""
    return bool(_DIGEST.fullmatch(text))
