"""Answers kept on the node: the same question about the same files on the same node is answered by one read.

An answer lies under the SHA-256 of the question: the arguments, the working directory, the state of the node, the
installation. It lists the files that it was made from, and holds only while each of them is what it was.

A file is NUL-separated text: the format's name, the question, the job that the answer is limited to, the exit status
and texts of `Answer`, then path and fingerprint of each input, then `end`. It is written beside its place and renamed.
"""

import os
import sys

from imgcheck import __version__
from imgcheck.preflight import node
from imgcheck.preflight.place import believable

_FORMAT = "imgcheck answer 1"
_END = "end"
_FIELDS = 9
_JOBS = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "JOB_ID")
_READ = 16 << 20
"""Larger files are images: they are told apart by their times, not by their bytes."""
_OLDEST = 7 * 24 * 3600
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120


class Answer:
    """What a preflight prints and exits with."""

    __slots__ = ("message", "message_file", "speaker", "status", "stderr", "stdout")

    def __init__(self, status: int, stdout: str, stderr: str, message_file: str, message: str, speaker: str) -> None:
        self.status = status
        self.stdout = stdout
        self.stderr = stderr
        self.message_file = message_file
        """Written with `message` where it exists: Kubernetes' /dev/termination-log."""
        self.message = message
        self.speaker = speaker
        """Variable that numbers the tasks of a job on a node: where it is set, only number 0 prints."""


def emit(answer: Answer) -> int:
    """Print the answer, write its message, and return its exit status."""
    if os.environ.get(answer.speaker, "0") == "0":
        sys.stdout.write(answer.stdout)
        sys.stderr.write(answer.stderr)
    if answer.message_file and answer.message:
        _leave_message(answer.message_file, answer.message)
    return answer.status


def question(arguments: list[str]) -> str:
    """All that decides the answer, but for the content of the files that it is made from."""
    parts = [*arguments, os.getcwd(), __version__, _installation(), node.state()]  # noqa: PTH109
    return "\n".join(part.replace("\0", "").replace("\n", "\\n") for part in parts)


def find(directory: str, asked: str) -> Answer | None:
    """The answer to the question `asked`, where it is kept in `directory` and still holds."""
    fields = _fields(_path(directory, asked))
    if len(fields) < _FIELDS or fields[0] != _FORMAT or fields[-1] != _END or fields[1] != asked:
        return None
    if fields[2] not in ("", job()) or not fields[3].isdecimal():
        return None
    inputs = fields[_FIELDS:-1]
    if any(fingerprint(path) != was for path, was in zip(inputs[::2], inputs[1::2], strict=False)):
        return None
    return Answer(int(fields[3]), *fields[4:_FIELDS])


def keep(directory: str, asked: str, answer: Answer, inputs: dict[str, str], only_for: str) -> None:
    """Keep `answer`, made from files with these fingerprints; `only_for` limits it to the job of that name.

    A full or read-only directory costs the next task its time, nothing else.
    """
    texts = [answer.stdout, answer.stderr, answer.message_file, answer.message, answer.speaker]
    fields = [_FORMAT, asked, only_for, str(answer.status), *texts]
    for path, was in inputs.items():
        fields += [path, was]
    data = "\0".join([*fields, _END]).encode("utf-8", "surrogateescape")
    path = _path(directory, asked)
    try:
        write_private(path, data)
        for folder in ("answers", "hosts", "locks"):
            _drop_old(f"{directory}/{folder}")
    except OSError:
        pass


def fingerprint(path: str) -> str:
    """SHA-256 of the file at `path`; of large files and directories their identity; "absent" where there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116
        # S_IFREG: opening a FIFO would wait for its writer.
        if status.st_mode & 0o170000 != 0o100000 or status.st_size > _READ:
            return node.identity(path)
        with open(path, "rb") as file:  # noqa: PTH123
            return _sha256(file.read())
    except (OSError, ValueError):
        return "absent"


def write_private(path: str, data: bytes) -> None:
    """Replace the file at `path` at once, readable by this user alone. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
    temporary = f"{path}.{os.getpid()}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)  # noqa: PTH105
    except OSError:
        os.unlink(temporary)  # noqa: PTH108
        raise


def read_private(path: str) -> bytes:
    """Content of a kept file, b"" where there is none or another user may have written it."""
    try:
        with open(path, "rb", opener=_no_links) as file:
            return file.read() if believable(os.fstat(file.fileno())) else b""
    except OSError:
        return b""


def job() -> str:
    """The job that this process belongs to, "" outside of one."""
    return next((f"{name}={os.environ[name]}" for name in _JOBS if os.environ.get(name)), "")


def named(directory: str, folder: str, text: str) -> str:
    """The path in `directory` of what is kept about `text`."""
    return f"{directory}/{folder}/{_sha256(text.encode('utf-8', 'surrogateescape'))}"


def _path(directory: str, asked: str) -> str:
    return named(directory, "answers", asked)


def _fields(path: str) -> list[str]:
    return read_private(path).decode("utf-8", "surrogateescape").split("\0")


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def _no_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def _installation() -> str:
    """Changes when imgcheck is installed again: its metadata's identity, in a checkout that of every directory."""
    metadata = f"{os.path.dirname(_PACKAGE)}/imgcheck-{__version__}.dist-info"  # noqa: PTH120
    found = node.identity(metadata)
    if found != "absent":
        return f"{metadata} {found}"
    roots = (_PACKAGE, f"{os.path.dirname(_PACKAGE)}/rules")  # noqa: PTH120
    places = [place for root in roots for place, _, _ in os.walk(root) if not place.endswith("__pycache__")]
    return " ".join([_PACKAGE, *map(node.identity, places)])


def _leave_message(path: str, message: str) -> None:
    try:
        # Not created: where the file is missing, nobody reads it.
        handle = os.open(path, os.O_WRONLY | os.O_TRUNC)
    except OSError:
        return
    with os.fdopen(handle, "wb") as file:
        file.write(message.encode("utf-8", "backslashreplace"))


def _drop_old(directory: str) -> None:
    import time

    now = time.time()
    with os.scandir(directory) as entries:
        for entry in entries:
            if now - entry.stat(follow_symlinks=False).st_mtime > _OLDEST:
                os.unlink(entry.path)  # noqa: PTH108
