"""What a program saw when it was started, and conversions in processes of their own."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.peers import UNPRIVILEGED
from tests.tools import CHECKOUT, need


@dataclass(frozen=True)
class Started:
    """What the probe program saw."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    directory: str
    uid: int
    gid: int


def read_probe(output: bytes) -> Started:
    """Parse what the probe printed; lines that a runtime printed before it are skipped."""
    start = output.index(b"arg ")
    rows = [row.split(b" ", 1) for row in output[start:].split(b"\0") if b" " in row]

    def texts(kind: bytes) -> list[str]:
        return [value.decode("utf-8", "surrogateescape") for name, value in rows if name == kind]

    environment = dict(text.split("=", 1) for text in texts(b"env"))
    return Started(tuple(texts(b"arg")), environment, texts(b"cwd")[0], int(texts(b"uid")[0]), int(texts(b"gid")[0]))


def as_ordinary_user(work: Callable[[], object]) -> object:
    """`work` in a child process that has given up root, where the tests run as root; its result must be picklable."""
    if os.getuid():
        return work()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _answer(work, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pickle.load(pipe)
    os.waitpid(child, 0)
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _answer(work: Callable[[], object], writer: int) -> None:
    try:
        os.setgroups([])
        os.setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
        os.setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
        answer = work()
    except BaseException as error:
        answer = error
    try:
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(answer, pipe)
    finally:
        # Whatever went wrong, this copy of the tests must not go on.
        os._exit(0)


def privately(before: str, *command: str) -> subprocess.CompletedProcess[str]:
    """`command` after the shell commands `before`, which mount what they like where the tests run as root.

    An ordinary user's machine must be as `before` would make it.
    """
    if not os.getuid():
        command = (need("unshare"), "--mount", "sh", "-c", f'{before}; exec "$@"', "sh", *command)
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def convert_apart(layout: Path, target: str, destination: Path, *prefix: str) -> subprocess.Popen[bytes]:
    """The conversion of `oci:LAYOUT:test` as a process of its own, started through the words of `prefix`."""
    code = (
        "import sys; from pathlib import Path\n"
        "from imgcheck.convert.run import convert\n"
        "from imgcheck.errors import ImgcheckError\n"
        "from imgcheck.sources.open import open_image\n"
        "try:\n"
        "    with open_image(f'oci:{sys.argv[1]}:test') as image:\n"
        "        convert(image, sys.argv[2], Path(sys.argv[3]))\n"
        "except ImgcheckError as error:\n"
        "    sys.exit(f'{error.message} ({error.hint})')\n"
    )
    command = [*prefix, sys.executable, "-c", code, str(layout), target, str(destination)]
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=_heed_signals
    )


def _heed_signals() -> None:
    """Under nohup, or in the background of a script, these are ignored, and children inherit that, as they should.

    What is tested is a conversion that a user started in a shell.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
