"""An udocker repository with a container that runs at once, as udocker's `create` would leave it."""

import json
import os
import re
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from imgcheck.convert.additions import Additions
from imgcheck.convert.launch import Launch, words
from imgcheck.convert.stage import directory
from imgcheck.documents.image import Platform
from imgcheck.errors import ConvertError, UsageError

DIRECTORIES = ("bin", "containers", "doc", "layers", "lib", "repos")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_:@-]*\Z")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_OWN_VARIABLES = {"LOGNAME", "PS1", "USER", "USERNAME"}
_TRANSPORT = re.compile(r"(docker|oci|oci-archive|docker-archive|docker-daemon|dir|sif):")
_SUFFIX = re.compile(r"(\.tar(\.\w+)?|\.sif)?(:[^:@]*)?(@.*)?\Z")
_USER = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]*\Z|[0-9]+(:[0-9]+)?\Z")
NVIDIA_DIRECTORY = "usr/lib64"
"""Where `udocker setup --nvidia` copies the driver to on an image that is not of Debian's kind."""


def container_name(name: str, reference: str) -> str:
    """The name asked for, or one made of the reference's last part.

    Raises UsageError where udocker would not accept it.
    """
    if name:
        if not _NAME.match(name):
            raise UsageError(f"--name {name!r}: udocker takes letters, digits, _ and - only")
        return name
    last = _TRANSPORT.sub("", reference).rstrip("/").rpartition("/")[2]
    return _UNFIT.sub("-", _SUFFIX.sub("", last)).strip("-") or "container"


def add_udocker(additions: Additions) -> None:
    """What udocker needs in the tree besides the common files."""
    if additions.tree.lookup("usr/lib/x86_64-linux-gnu") is None:
        additions.directory(NVIDIA_DIRECTORY)


def container_json(launch: Launch, platform: Platform) -> bytes:
    """The config that udocker reads: the image's, with USER and WORKDIR in forms that it understands, and a PATH."""
    config = _config(launch) | {"Env": _lines(launch.searchable)}
    document: dict[str, Any] = {"architecture": platform.architecture, "os": platform.os, "config": config}
    if platform.variant:
        document["variant"] = platform.variant
    return json.dumps(document, indent=1).encode()


def config_object(launch: Launch) -> bytes:
    """The `config` object alone, keys in order, as a SIF keeps it."""
    return json.dumps(_config(launch), sort_keys=True).encode()


def image_name(reference: str, name: str) -> bytes:
    """imagerepo.name: what `udocker ps` shows as the image."""
    fit = re.match(r"[A-Za-z0-9._/:@-]+\Z", reference)
    return (reference if fit else f"{name}:latest").encode()


def _config(launch: Launch) -> dict[str, Any]:
    return {
        "Cmd": list(launch.command) or (None if launch.entrypoint else list(launch.argv)),
        "Entrypoint": list(launch.entrypoint) or None,
        "Env": _lines(launch.environment),
        "Labels": dict(launch.labels),
        "User": user(launch),
        "WorkingDir": launch.working_directory,
    }


def _lines(environment: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in environment.items()]


def user(launch: Launch) -> str:
    """USER as a plain name, uid, or uid:gid: the forms that udocker parses."""
    if _USER.match(launch.user) or not launch.user:
        return launch.user
    return "" if launch.uid is None else f"{launch.uid}:{launch.gid or 0}"


def is_repository(destination: Path) -> bool:
    """Whether udocker would take `destination` for a repository."""
    return all((destination / name).is_dir() for name in DIRECTORIES if name != "doc")


def notes(launch: Launch) -> list[str]:
    """What udocker makes of some variables, whatever the image says."""
    found = []
    own = sorted(_OWN_VARIABLES & launch.environment.keys())
    if own:
        found.append(f"ENV {', '.join(own)}: udocker sets these itself")
    blank = [name for name, value in launch.environment.items() if value != value.strip()]
    if blank:
        found.append(f"ENV {', '.join(blank)}: udocker strips white space from both ends of a value")
    expanded = [name for name, value in launch.environment.items() if "$" in value or "`" in value]
    if expanded:
        found.append(f"ENV {', '.join(expanded)}: in udocker's S1 mode a shell of Apptainer expands $ and backticks")
    return found


def new_id() -> str:
    return str(uuid.uuid4())


def refuse_taken(repository: Path, name: str, replace: bool) -> None:
    """ConvertError where `name` cannot come to mean another container."""
    place = repository / "containers" / name
    if not os.path.lexists(place):
        return
    if not replace:
        raise name_taken(repository, name)
    if not place.is_symlink():
        raise ConvertError(
            f"the container {name} is a directory, not a name, and is not replaced", "choose another with --name"
        )


def link_name(repository: Path, name: str, identifier: str, replace: bool) -> list[str]:
    """Let `name` mean the container; a former one of that name stays under its id, which a note tells."""
    with directory(repository / "containers") as containers:
        try:
            os.symlink(identifier, name, dir_fd=containers)
        except FileExistsError:
            if not replace:
                raise name_taken(repository, name) from None
            return _replace_link(containers, name, identifier)
    return []


def name_taken(repository: Path, name: str) -> ConvertError:
    return ConvertError(
        f"{repository} already has a container named {name}", "choose another with --name, or replace it with --force"
    )


def _replace_link(containers: int, name: str, identifier: str) -> list[str]:
    former = os.readlink(name, dir_fd=containers)
    temporary = f"{name}-{identifier}"
    os.symlink(identifier, temporary, dir_fd=containers)
    try:
        os.rename(temporary, name, src_dir_fd=containers, dst_dir_fd=containers)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=containers)
        raise
    return [f"the former container {name} is still there under its id: udocker rm {former} removes it"]


def run_command(repository: Path, name: str) -> str:
    """The command that starts it."""
    return words(("udocker", f"--repo={repository}", "run", name))
