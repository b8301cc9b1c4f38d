"""The engines in processes of their own: they use every core, and a file that crashes one costs that file alone.

One process imports the engines and forks a worker whenever it is asked to, so that the imports are paid for once.
Files are handed over as a memfd, several small ones in one, which the worker maps: their bytes cross no pipe.

To a worker: `<I` number of files, then `<QQ` offset and size of each, with the descriptor; from it, for each in turn,
`<Q` length and a msgpack CodeFacts (or nil); length 0 where it had too little memory to tell. To the process that
forks: `<i` 0 with the socket of a worker to be, which `<i` process id answers (-1: none can be forked); or `<i` id of a
worker that is gone, which `<i` its exit status answers.
"""

import gc
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import accumulate

import msgspec

from imgcheck.documents.facts import CodeFacts

_COUNT = struct.Struct("<I")
_PLACE = struct.Struct("<QQ")
_LENGTH = struct.Struct("<Q")
_PROCESS = struct.Struct("<i")
_FORK = 0
_FAILED = -1
_ALIGNMENT = 64
"""Of files that share a memfd: a cache line, and more than any number in a file wants."""
MOST_FILES = 64
"""That may share a memfd."""
_PATIENCE = 120
_PATIENCE_PER_MIB = 2
"""Seconds after which a worker is given up: some hundred times what any file takes on a loaded machine."""
_PARTING = 5
"""Seconds that the process which forks may take to end itself and its workers."""
_POPULATED = 16 << 20
"""Bytes of a memfd up to which its pages are mapped at once: most of them will be read."""
_COLLECT_AFTER = 100_000
"""Objects made beyond those dropped before Python looks for cycles among them, of which the engines leave few."""
_TUNABLES = ("glibc.malloc.mmap_max=0", "glibc.malloc.trim_threshold=134217728")
"""The C library keeps what numpy gives back, up to so many bytes, for the next array (glibc manual, "Memory Allocation
Tunables"). By itself it returns the engines' arrays to the kernel, which clears them anew: some 0.3 seconds for a
library of 800 MB. Other C libraries, and releases without one of these, ignore it. Huge pages gain nothing: where
memory is in pieces, the kernel makes room for each.
"""

_CODE = "import sys; sys.path[:0] = {!r}; from imgcheck.profile.worker import main; main()"

_decode = msgspec.msgpack.Decoder(CodeFacts | None).decode


class Memory:
    """Anonymous shared memory of `size` bytes, to be written from its start and then handed to a worker.

    MemoryError where there is none.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.places = [(0, size)]
        """Offset and size of each file in it."""
        self.gaps: list[tuple[int, int]] = []
        """Offset and size of what was left out, in order; no two adjoin."""
        try:
            self._fd = os.memfd_create("imgcheck", os.MFD_CLOEXEC)
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise MemoryError(error.strerror) from error

    @classmethod
    def of(cls, files: Sequence[bytes]) -> "Memory":
        """Memory that holds `files`, at most MOST_FILES."""
        padded = [data + bytes(-len(data) % _ALIGNMENT) for data in files]
        ends = list(accumulate(map(len, padded)))
        memory = cls(ends[-1])
        try:
            memory.write(memoryview(b"".join(padded)))
        except MemoryError:
            memory.close()
            raise
        memory.places = [(end - len(part), len(data)) for end, part, data in zip(ends, padded, files, strict=True)]
        return memory

    def write(self, data: memoryview) -> None:
        try:
            # This takes half the time of filling a mapping, which faults on every page.
            while len(data):
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise MemoryError(error.strerror) from error

    def skip(self, size: int) -> None:
        """Leave the next bytes out: they read as zeros, and take no memory until somebody reads them."""
        end = os.lseek(self._fd, size, os.SEEK_CUR)
        start = end - size
        if self.gaps and sum(self.gaps[-1]) == start:
            start, _ = self.gaps.pop()
        self.gaps.append((start, end - start))

    def read(self, size: int, offset: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


class Engines:
    """The process that has imported the engines. Its methods may be called by several threads."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                # -I: neither the directory that the user stands in nor settings of their Python have a part in it.
                [sys.executable, "-I", "-c", _CODE.format(list(filter(None, sys.path))), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def fork(self) -> "Worker":
        """A new worker. Raises OSError where there can be none."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                return Worker(self, ours, self._ask(_FORK, [theirs.fileno()]))
            except BaseException:
                ours.close()
                raise

    def wait(self, worker: int) -> int:
        """Exit status of the worker with this process id, which has been killed or has crashed."""
        try:
            return self._ask(worker, [])
        except OSError:
            return self._process.wait()

    def stop(self) -> None:
        """End it and all of its workers, whatever they are at."""
        self._socket.close()
        try:
            # It waits for its workers, so that the time they took is counted as ours.
            self._process.wait(_PARTING)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its workers find their sockets closed
            self._process.wait()

    def _ask(self, question: int, fds: list[int]) -> int:
        with self._lock:
            socket.send_fds(self._socket, [_PROCESS.pack(question)], fds)
            answer = _PROCESS.unpack(_exactly(self._socket, _PROCESS.size))[0]
        if question == _FORK and answer == _FAILED:
            raise BlockingIOError("no process can be forked")
        return answer


class Worker:
    """One forked process."""

    def __init__(self, engines: Engines, connection: socket.socket, process: int) -> None:
        self._engines = engines
        self._socket = connection
        self._process = process
        self.alive = True

    def analyse(self, memory: Memory) -> Iterator[CodeFacts | None]:
        """For each file in turn as binaries.analyse.analyse; it ends with the one at which the worker died.

        Where it died, did not answer or had too little memory, that is the facts' error.
        """
        places = [_PLACE.pack(*place) for place in memory.places]
        size = 0
        try:
            socket.send_fds(self._socket, [_COUNT.pack(len(places)), *places], [memory.fileno()])
            for _, size in memory.places:
                self._socket.settimeout(_PATIENCE + _PATIENCE_PER_MIB * (size >> 20))
                (length,) = _LENGTH.unpack(_exactly(self._socket, _LENGTH.size))
                if not length:
                    self.stop()  # a new one has all the memory that there is
                    yield CodeFacts(size, error="there was too little memory to analyse it")
                    return
                yield _decode(_exactly(self._socket, length))
        except TimeoutError:
            self.stop()
            yield CodeFacts(size, error="the analysis took too long and was given up")
        except OSError:
            yield CodeFacts(size, error=f"the analysis crashed (exit status {self.stop()})")

    def close(self) -> None:
        """Let it end by itself."""
        self.alive = False
        self._socket.close()

    def stop(self) -> int:
        """Kill it; its exit status, negative for a signal."""
        self.close()
        if self._engines.alive:
            os.kill(self._process, signal.SIGKILL)  # as nobody has waited for it yet, the id is its own
        return self._engines.wait(self._process)


def environment() -> dict[str, str]:
    """That of the processes with the engines."""
    tunables = [*_TUNABLES, os.environ.get("GLIBC_TUNABLES", "")]
    return {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "GLIBC_TUNABLES": ":".join(filter(None, tunables)),
    }


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the process has ended")
        data += part
    return bytes(data)


def _mother(control: socket.socket) -> None:
    from imgcheck.binaries.analyse import load_engines

    load_engines()  # while the parent still reads the first file
    spare_collections()
    workers: set[int] = set()
    while True:
        message, fds, _, _ = socket.recv_fds(control, _PROCESS.size, 1)
        if not message:
            break
        (worker,) = _PROCESS.unpack(message)
        if worker == _FORK:
            answer = _fork(control, socket.socket(fileno=fds[0]))
            workers.add(answer)
        else:
            answer = _status(worker)
            workers.discard(worker)
        control.sendall(_PROCESS.pack(answer))
    for worker in workers - {_FAILED}:
        os.kill(worker, signal.SIGKILL)
        _status(worker)


def spare_collections() -> None:
    """Keep Python from looking for cycles among what stays anyway, and from looking often."""
    gc.set_threshold(_COLLECT_AFTER)
    gc.freeze()


def _fork(control: socket.socket, connection: socket.socket) -> int:
    """The process id of a new worker that serves `connection`, _FAILED where there can be none."""
    with connection:
        try:
            worker = os.fork()
        except OSError:
            return _FAILED
        if worker:
            return worker
        try:
            control.close()
            _serve(connection)
        finally:
            os._exit(0)


def _status(worker: int) -> int:
    """Exit status of a worker that has ended or is about to."""
    return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])


def _serve(connection: socket.socket) -> None:
    while True:
        head, fds, _, _ = socket.recv_fds(connection, _COUNT.size, 1)
        if not head:
            return
        (count,) = _COUNT.unpack(head)
        _answer(connection, fds[0], list(_PLACE.iter_unpack(_exactly(connection, count * _PLACE.size))))


def _answer(connection: socket.socket, fd: int, places: list[tuple[int, int]]) -> None:
    data = _mapped(fd, sum(places[-1]))
    for offset, size in places:
        try:
            answer = msgspec.msgpack.encode(_analyse(data[offset : offset + size]))
        except (MemoryError, OSError):
            answer = b""
        connection.sendall(_LENGTH.pack(len(answer)) + answer)


def _mapped(fd: int, size: int) -> memoryview:
    populate = mmap.MAP_POPULATE if size <= _POPULATED else 0
    try:
        return memoryview(mmap.mmap(fd, size, mmap.MAP_SHARED | populate, mmap.PROT_READ))
    finally:
        os.close(fd)


def _analyse(data: memoryview) -> CodeFacts | None:
    from imgcheck.binaries.analyse import analyse

    try:
        return analyse(data)
    except (MemoryError, OSError):  # of this machine, not of the file
        raise
    except Exception as error:  # a defect of ours: it must not cost the other files
        return CodeFacts(len(data), error=f"the analysis failed ({type(error).__name__}: {error})")


def main() -> None:
    """The process that imports the engines, with the number of its socket as its argument."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Ctrl-C reaches the whole group, and the parent decides. Who kills the group, as preflight does, kills this too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _mother(socket.socket(fileno=int(sys.argv[1])))
