"""The private directory of the user on this node, where probes and answers are kept between tasks."""

import os


def private_directory(named: str = "") -> str:
    """`named`, else $XDG_RUNTIME_DIR/imgcheck, else /tmp/imgcheck-UID, made where it is missing; "" where none is safe.

    A directory is safe where it is no link, belongs to this user, and nobody else may enter it: whoever could write
    there could say that any image is fine.
    """
    if named:
        return _made(named)
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    # Jobs often inherit the login node's variable, whose directory the compute node does not have.
    if runtime.startswith("/") and _is_private(runtime) and (found := _made(f"{runtime}/imgcheck")):
        return found
    return _made(f"/tmp/imgcheck-{os.geteuid()}")


def believable(status: os.stat_result) -> bool:
    """A file's `status` says that only this user can have written it."""
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _made(directory: str) -> str:
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return ""
    return directory if _is_private(directory) else ""


def _is_private(directory: str) -> bool:
    try:
        status = os.lstat(directory)
    except OSError:
        return False
    # S_IFDIR, which lstat never says of a link.
    return status.st_mode & 0o170000 == 0o040000 and status.st_uid == os.geteuid() and not status.st_mode & 0o077
