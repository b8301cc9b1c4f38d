"""Answers kept on the node: the same question about the same files on the same node is answered by one read.

An answer lies under a checksum of the question: the arguments, the working directory, the state of the node, the
installation. It lists the files that it was made from, and holds only while each of them is what it was.

A file is NUL-separated text: the format's name, the question, the job that the answer is limited to, the exit status
and texts of `Answer`, then path and fingerprint of each input, then `end`. It is written beside its place and renamed.
"""

import binascii
import os
import sys
import time

from imgcheck import __version__
from imgcheck.preflight import node
from imgcheck.preflight.place import believable
from imgcheck.streams import put

_FORMAT = "imgcheck answer 2"
_END = "end"
_FIELDS = 9
_JOBS = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "JOB_ID")
_READ = 16 << 20
"""Larger files are images: they are told apart by their times alone."""
_SETTLED = 10
"""Seconds after which another write gives a file another time, also by the clock of a file server."""
_BYTES = "bytes: "
_TYPE, _REGULAR = 0o170000, 0o100000
_OLDEST = 7 * 24 * 3600
_SWEEP = 24 * 3600
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Answer:
    """What a preflight prints and exits with."""

    __slots__ = ("message", "message_file", "speaker", "status", "stderr", "stdout")

    def __init__(self, status: int, stdout: str, stderr: str, message_file: str, message: str, speaker: str) -> None:
        self.status = status
        self.stdout = stdout
        self.stderr = stderr
        self.message_file = message_file
        """A regular file, written with `message` where it exists: Kubernetes' /dev/termination-log."""
        self.message = message
        self.speaker = speaker
        """Variable that numbers the tasks of a job on a node: where it is set, only number 0 prints."""


def emit(answer: Answer) -> int:
    """Print the answer, write its message, and return its exit status: another one would drain a node."""
    if os.environ.get(answer.speaker, "0") == "0":
        put(sys.stdout, answer.stdout)
        put(sys.stderr, answer.stderr)
    if answer.message_file and answer.message:
        _leave_message(answer.message_file, answer.message)
    return answer.status


def question(arguments: list[str]) -> str:
    """All that decides the answer, but for the content of the files that it is made from."""
    parts = [*arguments, os.getcwd(), __version__, installation(), node.state()]
    return "\n".join(part.replace("\0", "").replace("\n", "\\n") for part in parts)


def find(directory: str, asked: str) -> Answer | None:
    """The answer to the question `asked`, where it is kept in `directory` and still holds."""
    fields = _fields(_path(directory, asked))
    if len(fields) < _FIELDS or fields[0] != _FORMAT or fields[-1] != _END or fields[1] != asked:
        return None
    if fields[2] not in ("", job()) or not fields[3].isdecimal():
        return None
    inputs = fields[_FIELDS:-1]
    if not all(_same(path, was) for path, was in zip(inputs[::2], inputs[1::2], strict=False)):
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
        _sweep(directory)
    except OSError:
        pass


def fingerprint(path: str) -> str:
    """What changes when the file at `path` does; "absent" where there is none.

    That is its identity (node.identity), which spares the tasks of a job the reading; of a smaller file that was
    written a moment ago, whose times the next write might leave as they are, checksums of its bytes, and who may write.
    """
    return _told(path, False)


def _same(path: str, was: str) -> bool:
    """Whether the file at `path` still has the fingerprint that it had."""
    return _told(path, was.startswith(_BYTES)) == was


def _told(path: str, by_bytes: bool) -> str:
    try:
        status = os.stat(path)
        if status.st_mode & _TYPE != _REGULAR:  # opening a FIFO would wait for its writer
            return node.told(status)
        with open(path, "rb") as file:
            # Asked of the open file: network file systems answer other questions from what they remember.
            status = os.fstat(file.fileno())
            young = status.st_ctime > time.time() - _SETTLED
            if status.st_size <= _READ and (young or by_bytes):
                import zlib

                # Whether another write came is told by checksums as well as by a digest, whose import takes 3 ms.
                data = file.read()
                writers = f"{status.st_uid}:{status.st_gid}:{status.st_mode:o}"
                return f"{_BYTES}{len(data)} {zlib.crc32(data)} {zlib.adler32(data)} {writers}"
            return node.told(status)
    except (OSError, ValueError):
        return "absent"


def write_private(path: str, data: bytes) -> None:
    """Replace the file at `path` at once, readable by this user alone. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
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
    """The path in `directory` of what is kept about `text`.

    Checksums suffice, and hashlib would bring a library of its own: who reads a kept file compares the text as well.
    """
    data = text.encode("utf-8", "surrogateescape")
    return f"{directory}/{folder}/{binascii.crc32(data):08x}{binascii.crc_hqx(data, 0):04x}-{len(data)}"


def _path(directory: str, asked: str) -> str:
    return named(directory, "answers", asked)


def _fields(path: str) -> list[str]:
    return read_private(path).decode("utf-8", "surrogateescape").split("\0")


def _no_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def installation() -> str:
    """Changes when imgcheck is installed again: its metadata's identity, in a checkout that of every directory."""
    metadata = f"{os.path.dirname(_PACKAGE)}/imgcheck-{__version__}.dist-info"
    found = node.identity(metadata)
    if found != "absent":
        return f"{metadata} {found}"
    roots = (_PACKAGE, f"{os.path.dirname(_PACKAGE)}/rules")
    places = [place for root in roots for place, _, _ in os.walk(root) if not place.endswith("__pycache__")]
    return " ".join([_PACKAGE, *map(node.identity, places)])


def _leave_message(path: str, message: str) -> None:
    try:
        # Not created: where the file is missing, nobody reads it. Neither a link's target is written, nor a device.
        handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    with os.fdopen(handle, "wb") as file:
        if os.fstat(handle).st_mode & _TYPE == _REGULAR:
            file.truncate()
            file.write(message.encode("utf-8", "backslashreplace"))


def _sweep(directory: str) -> None:
    """Drop what was not used for long; looked at once a day, since a node with many jobs keeps hundreds of answers."""
    now, swept = time.time(), f"{directory}/swept"
    try:
        if now - os.stat(swept).st_mtime < _SWEEP:
            return
    except FileNotFoundError:
        pass
    write_private(swept, b"")
    for folder in ("answers", "hosts", "locks"):
        _drop_old(f"{directory}/{folder}", now)


def _drop_old(directory: str, now: float) -> None:
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        try:
            if now - os.stat(f"{directory}/{name}", follow_symlinks=False).st_mtime > _OLDEST:
                os.unlink(f"{directory}/{name}")
        except OSError:  # another task was faster, or somebody put a directory there
            continue
