"""Results written to files: whole or not at all."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from imgcheck.errors import UsageError


def write(path: Path, data: bytes) -> None:
    """Replace `path` by `data` at once: a reader sees the old file or the new one, never a part.

    Raises OSError, which names `path`, where it cannot be written.
    """
    try:
        if _is_written_through(path):
            path.write_bytes(data)
        else:
            _replace(path, data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def refuse_unwritable(option: str, path: Path) -> None:
    """UsageError where `write` could not write to `path`, which the user named by `option`.

    Asked before an analysis, so that nobody waits for one whose result has nowhere to go.
    """
    directory = path.resolve().parent
    if path.is_dir():
        raise UsageError(f"{option}: this is a directory", "name a file in it")
    if not directory.is_dir():
        raise UsageError(f"{option}: there is no directory {directory}", "make it first, or name a file elsewhere")
    opened = path.exists() and _is_written_through(path)
    place, wanted = (path, os.W_OK) if opened else (directory, os.W_OK | os.X_OK)
    if not os.access(place, wanted, effective_ids=True):
        raise UsageError(f"{option}: it may not be written there", "name a file elsewhere")


def write_all(directory: Path, files: Mapping[str, bytes]) -> None:
    """Replace these files in `directory`: all of them, or none where the disk is full or one cannot be written.

    Raises OSError.
    """
    with tempfile.TemporaryDirectory(prefix=".imgcheck.", dir=directory) as staged:
        for name, data in files.items():
            write(Path(staged, name), data)
        for name in files:
            Path(staged, name).replace(directory / name)


def _is_written_through(path: Path) -> bool:
    """Nothing is renamed over a link, a FIFO or a device: /dev/stdout is a link, to a plain file after `> out.json`."""
    return path.is_symlink() or (path.exists() and not path.is_file())


def _replace(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
