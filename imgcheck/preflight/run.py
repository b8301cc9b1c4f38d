"""One preflight in full: host, profile, check, and the answer for the scheduler, kept for the tasks that follow."""

import _signal as signal  # type: ignore[import-not-found]  # `signal` makes enumerations of it: a 70th of a preflight
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from msgspec import Struct

from imgcheck.documents import HostProfile, ImageProfile
from imgcheck.errors import ImgcheckError
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.schedulers import Outcome, Scheduler
from imgcheck.preflight import image, kept, words
from imgcheck.preflight.host import host_of
from imgcheck.preflight.image import DEFAULT, StorePlace
from imgcheck.preflight.kept import Answer

_RETRY = 0.1
"""Seconds between two looks at a lock that another task holds."""
_GRACE = 2.0
"""Seconds after the time limit for what has a limit of its own to end by itself, with a better message."""


class TimeUpError(ImgcheckError):
    """The time limit passed before there was an answer."""


class Task(Struct, frozen=True):
    """What the user asked for."""

    reference: str
    scheduler: Scheduler
    knowledge: Knowledge
    runtimes: tuple[str, ...] = ()
    command: tuple[str, ...] | None = None
    require_gpu: bool = False
    host: str = ""
    """A file that describes the host; "" is this node."""
    requeue: bool = False
    on_missing: Literal["analyse", "pass", "fail"] = "analyse"
    timeout: float = 60.0
    """Seconds for everything."""
    store: StorePlace = DEFAULT
    attached: str | None = None
    """The digest of a profile attached in the registry to believe; "" any of them, None none."""


class _Case(Struct):
    """What was found out while answering, and what the answer therefore depends on."""

    rules: dict[str, str]
    """The data files of the site, with their fingerprints."""
    inputs: dict[str, str]
    only_for: str | None = ""
    """The job that the answer is good for, "" for every one, None for none: it is not kept."""
    notes: list[str] = []
    """What else the user should know."""


def answer(task: Task, directory: str, asked: str, inputs: dict[str, str]) -> Answer:
    """The answer to `task`, from another task of this node or made now and kept in `directory` (none: "").

    `asked` is the question as `kept.question` has it, `inputs` the files besides image and host that decide. Never
    raises for what may happen on a node: what could not be checked is an answer too.
    """
    case = _Case(inputs, dict(inputs))
    try:
        with _within(task.timeout), _alone(directory, asked):
            # The task that held the lock meanwhile may have answered.
            if directory and (found := kept.find(directory, asked)):
                return found
            outcome, lines = _outcome(task, directory, case)
            lines += [f"imgcheck: note: {note}" for note in case.notes]
    except (ImgcheckError, OSError, MemoryError) as error:
        outcome, lines = unchecked(task.scheduler, error)
        # Another job may fare better; the tasks of this one shall not all wait for the same trouble.
        case.only_for = kept.job() or None
    made = words.answer_for(task.scheduler, outcome, lines)
    if directory and case.only_for is not None:
        kept.keep(directory, asked, made, case.inputs, case.only_for)
    return made


def unchecked(scheduler: Scheduler, error: BaseException) -> tuple[Outcome, list[str]]:
    """The outcome and its words where `error` kept the check from being done."""
    told = error if isinstance(error, ImgcheckError) else ImgcheckError(_message(error))
    return "unchecked", words.trouble_lines(told, words.lets_run(scheduler.unchecked))


def _outcome(task: Task, directory: str, case: _Case) -> tuple[Outcome, list[str]]:
    # First: of an image of several platforms the host says which one is meant.
    late: list[str] = []
    host = host_of(task.host, directory, case.inputs, case.rules, task.knowledge, late)
    if late:
        case.only_for = kept.job() or None
    architecture = host.cpu.architecture.value or ""
    profile, notes = image.find_profile(task.reference, case.inputs, architecture)
    case.notes = [*(f"{each} did not answer in time" for each in late), *notes]
    if profile is None:
        image.refuse_special(task.reference)
        # Before it is read: what is written meanwhile is another image.
        told = image.watch(task.reference, case.inputs)
        if task.attached is not None and not image.is_local(task.reference):
            profile = image.registry_profile(task.reference, task.attached, architecture, task.knowledge)
        elif task.on_missing == "analyse":
            from imgcheck.preflight.analyse import analyse

            profile = analyse(task.reference, task.store, task.timeout, architecture, task.knowledge.sites)
        else:
            profile = image.stored_profile(task.reference, task.store, architecture)
        if profile is None or not told:
            # The store may have it by then, and nothing tells that a root has changed.
            case.only_for = kept.job() or None
        if profile is None:
            return _missing(task)
    return _checked(task, profile, host)


def _checked(task: Task, profile: ImageProfile, host: HostProfile) -> tuple[Outcome, list[str]]:
    from imgcheck.check.run import Request, check, not_installed

    request = Request(runtimes=task.runtimes, command=task.command, require_gpu=task.require_gpu)
    # Who holds its answer wants no digest of the knowledge, for which every data file would be read, nor fingerprints.
    report = check(profile, (host,), request, task.knowledge, digests=False)
    told = not_installed(profile, host, request, task.knowledge)
    lines = words.report_lines(report, task.reference) + ([f"imgcheck: note: {told}"] if told else [])
    return words.outcome_of(report, task.requeue), lines


def _missing(task: Task) -> tuple[Outcome, list[str]]:
    way_out = image.recipe(task.reference) if image.is_local(task.reference) else image.MAKE_ONE
    if task.on_missing == "pass":
        return "compatible", [f"imgcheck: not checked: {task.reference} has no profile", way_out]
    outcome: Outcome = "elsewhere" if task.requeue else "incompatible"
    return outcome, [f"imgcheck: refused: {task.reference} has no profile, and this site asks for one", way_out]


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raises TimeUpError in the block after `seconds`: also where a file system does not answer."""
    up = TimeUpError(f"no answer within {seconds:g} s", "--timeout allows more")
    rung = False

    def ring(_signal: int, _frame: object) -> None:
        nonlocal rung
        rung = True
        raise up

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE)
    try:
        yield
    except Exception as error:
        if rung and error is not up:  # raised in the midst of other code, an error may become another
            raise up from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _alone(directory: str, asked: str) -> Iterator[None]:
    """One task of a node works on a question, the others wait for its answer. Without a lock each works for itself."""
    handle = _opened(kept.named(directory, "locks", asked)) if directory else None
    if handle is None:
        yield
        return
    try:
        while not _locked(handle):
            time.sleep(_RETRY)
        yield
    finally:
        os.close(handle)


def _opened(path: str) -> int | None:
    """The lock at `path`; None where there can be none, as on a full disk or one that is only read."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system that locks nothing holds nobody up
    return True


def _message(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    return f"internal error: {type(error).__name__}: {error}"
