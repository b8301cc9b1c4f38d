"""Results written to files: whole or not at all."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Replace `path` by `data` at once: a reader sees the old file or the new one, never a part.

    Raises OSError, which names `path`, where it cannot be written.
    """
    try:
        # Nothing is renamed over a link, a FIFO or a device: /dev/stdout is a link, to a plain file after `> out.json`.
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_bytes(data)
        else:
            _replace(path, data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_all(directory: Path, files: Mapping[str, bytes]) -> None:
    """Replace these files in `directory`: all of them, or none where the disk is full or one cannot be written.

    Raises OSError.
    """
    with tempfile.TemporaryDirectory(prefix=".imgcheck.", dir=directory) as staged:
        for name, data in files.items():
            write(Path(staged, name), data)
        for name in files:
            Path(staged, name).replace(directory / name)


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
