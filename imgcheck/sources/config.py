"""An OCI or Docker image config (image-spec config.md) taken apart. Any optional field may be null."""

from dataclasses import dataclass
from typing import Any

from imgcheck.digests import is_digest
from imgcheck.documents.image import ImageConfig, Platform
from imgcheck.errors import SourceError
from imgcheck.sources.blobs import CONFIG_FIELDS, parse_document, parse_platform, text_of


@dataclass(frozen=True)
class ParsedConfig:
    """The parts of a config that this tool uses."""

    config: ImageConfig
    platform: Platform | None
    """None where the config names no architecture."""
    diff_ids: tuple[str, ...]
    history: tuple[str, ...]
    """`created_by` of each layer's history entry, lowest first; empty where the entries do not match the layers."""


def parse_config(data: bytes, what: str) -> ParsedConfig:
    """The config blob `data`; SourceError naming `what` where it is none."""
    document = parse_document(data, what, CONFIG_FIELDS)
    diff_ids = _diff_ids(document, what)
    return ParsedConfig(
        config=image_config(document.get("config"), what),
        platform=parse_platform(document),
        diff_ids=diff_ids,
        history=_history(document.get("history"), len(diff_ids)),
    )


def image_config(raw: Any, what: str) -> ImageConfig:
    """The `config` object of an image config or of udocker's container.json."""
    if raw is None:
        return ImageConfig()
    if not isinstance(raw, dict):
        raise SourceError(f"{what}: `config` is not an object")
    labels = raw.get("Labels") or {}
    return ImageConfig(
        entrypoint=_words(raw, "Entrypoint", what),
        command=_words(raw, "Cmd", what),
        environment=_words(raw, "Env", what),
        working_directory=text_of(raw.get("WorkingDir")),
        user=text_of(raw.get("User")),
        labels={text_of(k): text_of(v) for k, v in labels.items()} if isinstance(labels, dict) else {},
    )


def _diff_ids(document: dict[str, Any], what: str) -> tuple[str, ...]:
    rootfs = document.get("rootfs")
    found = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if found is None:
        raise SourceError(f"{what} has no rootfs.diff_ids: it is not the config of an image")
    if not isinstance(found, list) or not all(isinstance(one, str) and is_digest(one) for one in found):
        raise SourceError(f"{what}: rootfs.diff_ids holds something that is not a digest")
    return tuple(found)


def _history(raw: Any, layers: int) -> tuple[str, ...]:
    entries = [entry for entry in raw if isinstance(entry, dict)] if isinstance(raw, list) else []
    lines = tuple(text_of(entry.get("created_by")) for entry in entries if entry.get("empty_layer") is not True)
    return lines if len(lines) == layers else ()


def _words(raw: dict[str, Any], key: str, what: str) -> tuple[str, ...]:
    value = raw.get(key)
    if value is None:
        return ()
    if isinstance(value, str):
        return (text_of(value),)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise SourceError(f"{what}: config.{key} is not a list of strings")
    return tuple(text_of(word) for word in value)
