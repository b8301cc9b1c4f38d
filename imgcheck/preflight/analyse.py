"""The profile of a local image made on the node, within a time limit or not at all."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from imgcheck.documents import ImageProfile, decode
from imgcheck.errors import SourceError
from imgcheck.preflight.image import MAKE_ONE, NoProfileError, StorePlace, as_path, is_local, recipe
from imgcheck.sources.platforms import platform_for

_DIE_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.getppid() == {} or sys.exit(1); "
"""PR_SET_PDEATHSIG and SIGKILL (prctl(2)): nobody keeps the time limit of a child whose parent was killed. Its workers
end when it does. The parent may have gone before this was asked for."""


def analyse(reference: str, place: StorePlace, limit: float, architecture: str, sites: Sequence[str]) -> ImageProfile:
    """The profile of a local image, made within `limit` seconds or not at all, by a process that can be killed.

    Of an image of several platforms that for `architecture` is taken, for this machine's where it is "". It tells of
    what the runtimes ask for that `sites`, directories of --rules, describe. Facts that the store at `place` holds are
    not read again. Raises NoProfileError where the time does not suffice, SourceError where the image is not local or
    cannot be read.
    """
    if not is_local(reference):
        raise SourceError(
            f"{reference}: no such file, and images in registries are not fetched on a node",
            MAKE_ONE,
        )
    with tempfile.TemporaryDirectory(prefix="imgcheck-") as directory:
        target = Path(directory) / "profile.json"
        options = ["--quiet", "-o", str(target), *_store_options(place), *_platform_options(architecture)]
        options += [word for site in sites for word in ("--rules", site)]
        _run(["profile", as_path(reference), *options], reference, limit)
        return decode(target.read_bytes(), ImageProfile, reference)


def _store_options(place: StorePlace) -> list[str]:
    return {"default": [], "none": ["--no-store"]}[place] if isinstance(place, str) else ["--store", str(place)]


def _platform_options(architecture: str) -> list[str]:
    named = platform_for(architecture)
    return ["--platform", named] if named else []


def _run(arguments: list[str], reference: str, limit: float) -> None:
    # -I leaves out the current directory and PYTHONPATH, which on a node may be the user's: sys.path is handed over.
    code = _DIE_WITH_PARENT.format(os.getpid())
    code += f"sys.path[:0] = {sys.path!r}; from imgcheck.cli import main; sys.exit(main(sys.argv[1:]))"
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
            recipe(reference),
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
