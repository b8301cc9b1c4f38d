"""The engines in processes of their own: they use every core, and a file that crashes one costs that file alone.

A file's bytes are handed over as a memfd, which parent and worker both map: nothing is copied. The parent sends the
descriptor with `<Q` size over a socket and gets `<Q` length and a msgpack CodeFacts (or nil) back.
"""

import mmap
import os
import resource
import socket
import struct
import subprocess
import sys

import msgspec

from imgcheck.documents.facts import CodeFacts

_SIZE = struct.Struct("<Q")
_PATIENCE = 120
_PATIENCE_PER_MIB = 2
"""Seconds after which a worker is given up: some hundred times what any file takes on a loaded machine."""

_decode = msgspec.msgpack.Decoder(CodeFacts | None).decode


class Memory:
    """Anonymous shared memory of `size` bytes, to be filled through `buffer` and then handed to a worker."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.fd = os.memfd_create("imgcheck", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size)
        self._map = mmap.mmap(self.fd, size)
        self.buffer = memoryview(self._map)

    def unmap(self) -> None:
        """Leave the bytes to whoever has the descriptor."""
        self.buffer.release()
        self._map.close()

    def close(self) -> None:
        if not self._map.closed:
            self.unmap()
        os.close(self.fd)


class Worker:
    """One process with the engines."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                # -P: the directory that the user happens to stand in is no place to import from.
                [sys.executable, "-P", "-m", "imgcheck.profile.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def analyse(self, memory: Memory) -> CodeFacts | None:
        """As binaries.analyse.analyse; where the worker dies or does not answer, that is the facts' error."""
        self._socket.settimeout(_PATIENCE + _PATIENCE_PER_MIB * (memory.size >> 20))
        try:
            socket.send_fds(self._socket, [_SIZE.pack(memory.size)], [memory.fd])
            return _decode(_receive(self._socket))
        except TimeoutError:
            self.stop()
            return CodeFacts(memory.size, error="the analysis took too long and was given up")
        except (OSError, EOFError):
            self.stop()
            return CodeFacts(memory.size, error=f"the analysis crashed (exit status {self._process.returncode})")

    def stop(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _receive(connection: socket.socket) -> bytes:
    (size,) = _SIZE.unpack(_exactly(connection, _SIZE.size))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _serve(connection: socket.socket) -> None:
    from imgcheck.binaries.analyse import analyse, load_engines

    load_engines()  # while the parent still reads the first file
    while True:
        head, fds, _, _ = socket.recv_fds(connection, _SIZE.size, 1)
        if not head:
            return
        (size,) = _SIZE.unpack(head)
        try:
            facts = analyse(memoryview(mmap.mmap(fds[0], size, access=mmap.ACCESS_READ)))
        except Exception as error:  # a defect of ours: it must not cost the other files
            facts = CodeFacts(size, error=f"the analysis failed ({type(error).__name__}: {error})")
        os.close(fds[0])
        answer = msgspec.msgpack.encode(facts)
        connection.sendall(_SIZE.pack(len(answer)) + answer)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _serve(socket.socket(fileno=int(sys.argv[1])))
