"""The profile of a job's image: kept beside it, given itself, or made from a local image within a time limit."""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Literal

from imgcheck.documents import ImageProfile, decode
from imgcheck.documents.codec import kind_of
from imgcheck.errors import ImgcheckError, SourceError
from imgcheck.preflight import kept

SUFFIX = ".imgcheck.json"
"""What is appended to an image's path for its profile: x.sif has x.sif.imgcheck.json beside it."""
_LARGEST = 256 << 20
"""Bytes of a profile, hundreds of times what a large image's has: a prolog runs as root on files of any user."""
_MAKE_ONE = "give a profile: imgcheck profile IMAGE -o FILE.json; or attach one (imgcheck attach) and trust it here"
_LOCAL = ("oci:", "oci-archive:", "docker-archive:", "dir:", "sif:")


class NoProfileError(ImgcheckError):
    """There is no profile, and none was made."""


StorePlace = Path | Literal["default", "none"]
"""The store to ask: a directory, the user's own, or none."""
DEFAULT: StorePlace = "default"


def find_profile(reference: str, inputs: dict[str, str]) -> ImageProfile | None:
    """The profile that `reference` is, or that lies beside the image; None where there is neither.

    The files looked at are added to `inputs`, also those that are absent: one that appears later is an answer.
    Raises DocumentError for a damaged or newer profile.
    """
    path = _path(reference)
    inputs[str(path)] = kept.fingerprint(str(path))
    if (data := _document(path)) is not None:
        return decode(data, ImageProfile, reference)
    beside = path.with_name(path.name + SUFFIX)
    inputs[str(beside)] = kept.fingerprint(str(beside))
    data = _document(beside)
    return None if data is None else decode(data, ImageProfile, str(beside))


def stored_profile(reference: str, place: StorePlace) -> ImageProfile | None:
    """The profile of a local image that the store holds under its config digest; no layer is read for it.

    Raises SourceError where there is no such image.
    """
    if place == "none" or not is_local(reference):
        return None
    from imgcheck.profile.build import engines
    from imgcheck.profile.store import open_store, store_key
    from imgcheck.sources.open import open_image

    store = open_store(None if place == "default" else place, store_key(engines()))
    with open_image(reference) as image:
        return store.profile(image.config_digest)


def registry_profile(reference: str, digest: str) -> ImageProfile:
    """The profile attached to an image in a registry, with `digest` that artifact alone; no layer is fetched.

    Raises SourceError where the registry cannot be asked or no attached profile is of this image and version.
    """
    from imgcheck.attach.profile import attached_profile
    from imgcheck.sources.open import open_image

    with open_image(reference) as image:
        profile, said = attached_profile(image, digest)
    if profile is None:
        raise NoProfileError(f"{reference}: {said.partition('; ')[0]}", _MAKE_ONE)
    return profile


def analyse(reference: str, place: StorePlace, limit: float) -> ImageProfile:
    """The profile of a local image, made within `limit` seconds or not at all, by a process that can be killed.

    Facts that the store at `place` holds are not read again. Raises NoProfileError where the time does not suffice,
    SourceError where the image is not local or cannot be read.
    """
    if not is_local(reference):
        raise SourceError(
            f"{reference}: no profile, and images in registries are not fetched on a node",
            _MAKE_ONE,
        )
    with tempfile.TemporaryDirectory(prefix="imgcheck-") as directory:
        target = Path(directory) / "profile.json"
        _run(["profile", reference, "--quiet", "-o", str(target), *_store_options(place)], reference, limit)
        return decode(target.read_bytes(), ImageProfile, reference)


def _store_options(place: StorePlace) -> list[str]:
    return {"default": [], "none": ["--no-store"]}[place] if isinstance(place, str) else ["--store", str(place)]


def is_local(reference: str) -> bool:
    """Whether the image lies in files of this machine."""
    return reference.startswith(_LOCAL) or _path(reference).exists()


def watch(reference: str, inputs: dict[str, str]) -> bool:
    """Add what tells that the image has changed to `inputs`; False for an unpacked root, where nothing tells."""
    path = _path(reference)
    index = path / "index.json"  # of an OCI layout: it names all else by digest
    if index.is_file():
        inputs[str(index)] = kept.fingerprint(str(index))
        return True
    return path.is_file()


def _path(reference: str) -> Path:
    """Where the image lies, without its transport and the tag behind it."""
    scheme = next((scheme for scheme in _LOCAL if reference.startswith(scheme)), "")
    path = Path(reference.removeprefix(scheme)).absolute()
    if scheme and not path.exists() and ":" in path.name:
        path = path.with_name(path.name.rpartition(":")[0])
    return path


def _document(path: Path) -> bytes | None:
    if not path.is_file() or path.stat().st_size > _LARGEST:
        return None
    with path.open("rb") as file:
        # The file may be an image of many GB; a document of ours begins with its kind.
        if not file.read(64).lstrip().startswith(b"{"):
            return None
        file.seek(0)
        data = file.read()
    return data if kind_of(data) else None


def _run(arguments: list[str], reference: str, limit: float) -> None:
    # -I leaves out the current directory and PYTHONPATH, which on a node may be the user's: sys.path is handed over.
    code = f"import sys; sys.path[:0] = {sys.path!r}; from imgcheck.cli import main; sys.exit(main(sys.argv[1:]))"
    child = subprocess.Popen(
        [sys.executable, "-I", "-B", "-c", code, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        _, said = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise NoProfileError(
            f"{reference}: reading the image takes longer than {limit:.0f} s",
            f"make its profile once: imgcheck profile {reference} -o {_path(reference).name}{SUFFIX}",
        ) from None
    finally:
        _end(child)
    if child.returncode:
        message, _, hint = said.strip().removeprefix("imgcheck: ").partition("\n")
        raise SourceError(message or f"{reference}: cannot be read", hint.strip())


def _end(child: subprocess.Popen[str]) -> None:
    """Kill the child with its workers. Not waited for long: one that hangs in a file system does not die either."""
    if child.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            child.wait(1)
