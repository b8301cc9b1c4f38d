"""Results written to files: whole or not at all."""

import os
import tempfile
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Replace `path` by `data` at once: a reader sees the old file or the new one, never a part.

    Raises OSError, which names `path`, where it cannot be written.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(data)  # /dev/stdout, a FIFO: there is nothing to rename over
        return
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o666 & ~_umask())
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
