"""The minimum statement of an image as labels of its configuration."""

import hashlib
from collections.abc import Mapping

from imgcheck import __version__
from imgcheck.check.needs import needs
from imgcheck.documents.image import ImageProfile
from imgcheck.knowledge import Knowledge
from imgcheck.report.text import safe

_PREFIX = "imgcheck.needs."
_OF = "imgcheck.of-layers"
_LONGEST = 1000
"""Bytes of one value: a configuration is fetched before every layer, and some tools cut labels."""


def labels(image: ImageProfile, knowledge: Knowledge) -> dict[str, str]:
    """Label to value, in the order of `needs`; values are one line each.

    `imgcheck.of-layers` is the chain ID of the image's layers (OCI image specification, config.md): an image that is
    built upon this one inherits the labels but not the chain ID, which tells that they are not its own.
    """
    result = {_PREFIX + _slug(need.what): _value(need.needed) for need in needs(image, knowledge)}
    if image.unreadable:
        result[_PREFIX + "unread-files"] = str(len(image.unreadable))
    chain = chain_id(image)
    if chain:
        result[_OF] = chain
    result["imgcheck.version"] = __version__
    return result


def stale(image: ImageProfile, derived: dict[str, str]) -> list[str]:
    """How the labels that `image` carries differ from its own, a line each; the version of imgcheck does not count."""
    carried, own = _statements(image.config.labels), _statements(derived)
    if not carried:
        return ["it carries no labels of imgcheck"]
    if _OF in own and carried.get(_OF) != own[_OF]:
        return ["its labels are those of another image, which it was built upon or from which it was changed"]
    return [
        f"{key} is {carried.get(key, 'missing')!r}, and should be {own.get(key, 'missing')!r}"
        for key in sorted(carried.keys() | own.keys())
        if carried.get(key) != own.get(key)
    ]


def _statements(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key == _OF or key.startswith(_PREFIX)}


def chain_id(image: ImageProfile) -> str:
    """The chain ID of all layers, or "" where a layer's diff ID is not known."""
    chain = ""
    for layer in image.layers:
        if not layer.diff_id:
            return ""
        below = f"{chain} {layer.diff_id}".encode()
        chain = "sha256:" + hashlib.sha256(below).hexdigest() if chain else layer.diff_id
    return chain


def _slug(what: str) -> str:
    return what.lower().replace(",", "").replace(" ", "-")


def _value(needed: str) -> str:
    value = safe(needed)
    return value if len(value) <= _LONGEST else value[:_LONGEST].rsplit(" ", 1)[0] + " ..."
