"""Files with code on their way to the engines: hashed, told apart, and analysed in other processes, largest first."""

import hashlib
import heapq
import os
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress

from imgcheck.binaries.gpu.payloads import Payloads
from imgcheck.documents.facts import CodeFacts
from imgcheck.errors import LimitError
from imgcheck.layers.entry import Entry
from imgcheck.layers.model import Content
from imgcheck.layers.tar import Body
from imgcheck.profile.packed import Read
from imgcheck.profile.worker import MOST_FILES, Engines, Memory, Worker
from imgcheck.threads import WAY_OUT, start

_CODE_LIMIT = 4 << 30
"""Larger than any object file that can be loaded in practice; it is held in memory."""
_WAITING_LIMIT = 128 << 20
"""Bytes of files that wait for the engines besides the largest one: what bounds memory."""
_WORKERS = 8
"""Processes at most; each holds the engines (about 100 MB) besides the files."""
_SMALL = 1 << 20
"""Files up to here are handed over together,"""
_TOGETHER = 4 << 20
"""up to this size."""
_STEP = 1 << 20
_GAP = struct.Struct("<QQ")


class _Job:
    """A file that waits: its bytes, or for a large one the memory that it was read into."""

    def __init__(self, key: str, size: int, content: bytes | Memory) -> None:
        self.key = key
        self.size = size
        self.content = content

    def __lt__(self, other: "_Job") -> bool:
        return self.size > other.size


class Analysis:
    """The engines at work on files, with a bound on the bytes in memory. To be used as a context manager."""

    def __init__(self) -> None:
        self.unfinished: set[str] = set()
        """Files whose facts something else than their bytes decided: no memory, a lost process, no time."""
        self._facts: dict[str, CodeFacts | None] = {}
        self._taken: set[str] = set()
        self._waiting: list[_Job] = []
        self._sizes: dict[str, int] = {}
        """Of the files that are in memory, by key."""
        self._total = 0
        self._changed = threading.Condition()
        self._all_taken = False
        self._ended = False
        self._engines: Engines | None = None
        self._threads: list[threading.Thread] = []
        self._without_worker = 0
        """Of the threads, those that ended since they got no worker."""
        self._failure: LimitError | None = None
        """Why none of them has one."""
        self._buffer = memoryview(bytearray(_STEP))

    def __enter__(self) -> "Analysis":
        return self

    def __exit__(self, *exception: object) -> None:
        with self._changed:
            self._ended = True
            dropped, self._waiting = self._waiting, []
            self._changed.notify_all()
        for job in dropped:
            _close(job)
        if self._engines:
            # Processes with hundreds of megabytes take a while to go: the report can be written meanwhile.
            try:
                start(threading.Thread(target=self._engines.stop, name="imgcheck-stop"))
            except LimitError:
                self._engines.stop()
        for thread in self._threads:
            thread.join()

    def take(self, entry: Entry, head: bytes, content: Content, look: Callable[[Read], object] = lambda _: None) -> str:
        """Read the file that begins with `head`, and have it analysed unless the same bytes were met before.

        `look` may read it before, and take more from it. Returns the key of its facts.
        """
        if entry.size > _CODE_LIMIT:
            return self.refuse(entry, f"too large to be analysed: {entry.size} bytes, at most {_CODE_LIMIT}")
        self._start()
        self._wait_for(entry.size)
        if entry.size <= _SMALL:
            data = head + content.read(entry.size - len(head))
            look(lambda size, offset: data[offset : offset + size])
            return self._add(_Job(hashlib.sha256(data).hexdigest(), len(data), data))
        with ExitStack() as stack:
            try:
                memory = stack.enter_context(closing(Memory(entry.size)))
                key = self._fill(memory, head, content)
                look(memory.read)
            except MemoryError as error:
                return self.refuse(entry, f"no memory for its {entry.size} bytes ({error})")
            stack.pop_all()
        return self._add(_Job(key, entry.size, memory))

    def results(self) -> dict[str, CodeFacts | None]:
        """The facts of all files taken, once all are there, by key; None where the bytes turned out no code.

        LimitError where no process could be had for them.
        """
        with self._changed:
            self._all_taken = True
            self._changed.notify_all()
            self._wait_until(self._is_done)
            return self._facts

    def _is_done(self) -> bool:
        return self._all_taken and len(self._facts) == len(self._taken)

    def _wait_until(self, so: Callable[[], bool]) -> None:
        """Wait for `so`, with the lock held. LimitError where it never will be, since nobody is at work."""
        self._changed.wait_for(lambda: so() or self._failure)
        if self._failure:
            raise self._failure

    def _start(self) -> None:
        """Start the engines with the first file, so that they are ready when it has been read."""
        if self._threads:
            return
        with suppress(OSError):  # each thread will try again, and say so
            self._engines = Engines()
        for _ in range(min(_WORKERS, len(os.sched_getaffinity(0)))):
            try:
                self._threads.append(start(threading.Thread(target=self._work, name="imgcheck-engines", daemon=True)))
            except LimitError:
                if not self._threads:
                    raise
                return  # fewer do as well

    def _fill(self, memory: Memory, head: bytes, content: Content) -> str:
        """Read the file into memory, but for what no engine reads; its key, as in documents.image.FileRecord."""
        digest = hashlib.sha256()
        payloads = Payloads(memory.size, memory.read)
        piece = memoryview(head)
        while len(piece):
            for part, wanted in payloads.parts(piece):
                if wanted:
                    digest.update(part)
                    memory.write(part)
                else:
                    memory.skip(len(part))
            piece = content.piece() if isinstance(content, Body) else self._buffer[: content.readinto(self._buffer)]
        if memory.gaps:
            digest = hashlib.sha256(digest.digest() + b"".join(_GAP.pack(*gap) for gap in memory.gaps))
        return digest.hexdigest()

    def _add(self, job: _Job) -> str:
        if job.key in self._taken:
            _close(job)
            return job.key
        with self._changed:
            self._taken.add(job.key)
            self._sizes[job.key] = job.size
            self._total += job.size
            heapq.heappush(self._waiting, job)
            self._changed.notify_all()
        return job.key

    def refuse(self, entry: Entry, why: str) -> str:
        """The key of facts that say no more than why the file was not analysed."""
        key = hashlib.sha256(f"{entry.path}\0{entry.size}".encode("utf-8", "surrogateescape")).hexdigest()
        with self._changed:
            self._taken.add(key)
            self.unfinished.add(key)
            self._facts[key] = CodeFacts(entry.size, error=why)
        return key

    def _wait_for(self, size: int) -> None:
        def fits() -> bool:
            total = self._total + size
            return total <= _WAITING_LIMIT or total - max([*self._sizes.values(), size]) <= _WAITING_LIMIT

        with self._changed:
            self._wait_until(fits)

    def _work(self) -> None:
        """A thread with a worker of its own."""
        worker: Worker | None = None
        while jobs := self._next():
            try:
                worker = worker if worker and worker.alive else self._fork()
            except Exception as error:
                self._leave(jobs, error)
                return
            self._analyse(worker, jobs)
        if worker:
            worker.close()

    def _leave(self, jobs: Sequence[_Job], error: Exception) -> None:
        """Leave `jobs` to the threads that have a worker; where this was the last of them nothing more will come."""
        self._put_back(jobs)
        with self._changed:
            self._without_worker += 1
            if self._without_worker == len(self._threads):
                self._failure = LimitError(
                    f"no process could be started to analyse the image's files ({error})", WAY_OUT
                )
            self._changed.notify_all()

    def _analyse(self, worker: Worker, jobs: Sequence[_Job]) -> None:
        done = 0
        try:
            with closing(_memory_of(jobs)) as memory:
                for job, facts in zip(jobs, worker.analyse(memory), strict=False):
                    self._finish(job, facts, decided=worker.alive)
                    done += 1
        except Exception as error:
            # Whatever it was, it must not leave the others waiting for facts that never come.
            for job in jobs[done:]:
                self._finish(job, CodeFacts(job.size, error=f"it could not be analysed ({error})"), decided=False)
        else:
            self._put_back(jobs[done:])

    def _next(self) -> list[_Job]:
        """The largest file that waits, and more with it where it is small, but leaving some to the other workers.

        Empty where no more will come.
        """
        with self._changed:
            # Until all facts are there another thread may leave files, for want of a worker.
            self._changed.wait_for(lambda: self._waiting or self._is_done() or self._ended)
            if self._ended or not self._waiting:
                return []
            jobs = [heapq.heappop(self._waiting)]
            room = _TOGETHER - jobs[0].size if jobs[0].size <= _SMALL else 0
            most = min(MOST_FILES, 1 + len(self._waiting) // (2 * len(self._threads)))
            while len(jobs) < most and self._waiting[0].size <= room:
                jobs.append(heapq.heappop(self._waiting))
                room -= jobs[-1].size
            return jobs

    def _put_back(self, jobs: Sequence[_Job]) -> None:
        with self._changed:
            if self._ended:
                for job in jobs:
                    _close(job)
                return
            for job in jobs:
                heapq.heappush(self._waiting, job)
            self._changed.notify_all()

    def _finish(self, job: _Job, facts: CodeFacts | None, decided: bool) -> None:
        with self._changed:
            if not decided:
                self.unfinished.add(job.key)
            self._facts[job.key] = facts
            self._total -= job.size
            del self._sizes[job.key]
            self._changed.notify_all()

    def _fork(self) -> Worker:
        with self._changed:
            if self._ended:
                raise InterruptedError("it is not wanted any more")
            if not self._engines or not self._engines.alive:
                self._engines = Engines()
            engines = self._engines
        return engines.fork()


def _memory_of(jobs: Sequence[_Job]) -> Memory:
    content = jobs[0].content
    if isinstance(content, Memory):
        return content
    # None of several has a memory of its own: a file that has is a job by itself.
    return Memory.of([job.content for job in jobs if not isinstance(job.content, Memory)])


def _close(job: _Job) -> None:
    if isinstance(job.content, Memory):
        job.content.close()
