"""ARCH001: programs of the image that the host's CPU cannot execute."""

from imgcheck.architectures import goarch_of, machine_of
from imgcheck.check.context import Answers, Context
from imgcheck.documents.image import FileRecord
from imgcheck.documents.report import Evidence, Severity

# A 64-bit kernel runs the 32-bit programs of its predecessor; ARMv8 and later CPUs need not have that mode.
_ALSO_RUNS = {"x86_64": ("i386",), "aarch64": ()}
_MAY_RUN = {"aarch64": ("arm",)}


def check(context: Context) -> Answers:
    """ARCH001 by the programs that the command starts, or the image's platform where it holds none."""
    answers = Answers()
    host = context.host.cpu.architecture
    programs = _programs(context)
    machines = {_machine(context, record) for record in programs} or {platform_machine(context)}
    named = " and ".join(sorted(machines))
    if not host.known or host.value is None:
        answers.answer("ARCH001", "unknown", f"the image is for {named}, and the host's architecture is not known")
        return answers
    runs = _run_by(host.value)
    mixed, certain = bool(machines & runs), True
    if mixed and not programs:
        answers.answer("ARCH001", "not-applicable", f"the image is for {named}, and no program is known to start")
        return answers
    if mixed:
        programs, certain = _foreign(context, programs, runs)
        machines = {_machine(context, record) for record in programs}
    if not machines:
        answers.answer("ARCH001", "ok", f"the image has programs for {host.value}")
        return answers
    may_run = _MAY_RUN.get(host.value, ())
    severity: Severity = "fail" if certain and machines.isdisjoint(may_run) else "risk"
    finding = context.finding(
        "ARCH001",
        severity,
        subject=min(machines),
        evidence=_evidence(context, programs),
        variant=context.variant("ARCH001", context.runtime.family),
        program=programs[0].path if mixed else _program(context, programs),
        image_architecture=" and ".join(sorted(machines)),
        host_architecture=host.value,
        image_platform=goarch_of(min(machines)),
        host_platform=goarch_of(host.value),
    )
    answers.conclude("ARCH001", [finding], f"the image's programs are for {named}, the host is {host.value}")
    return answers


def _foreign(context: Context, programs: list[FileRecord], runs: set[str]) -> tuple[list[FileRecord], bool]:
    """Of an image with programs for several machines those that are started and that the host does not execute, and
    whether one of them comes first.

    Where no command is known most programs decide: those of compilers and tools for other machines are few.
    """
    foreign = [record for record in programs if _machine(context, record) not in runs]
    order = {path: at for at, path in enumerate(context.roots.entries)}
    chosen = order.keys() - set(context.roots.perhaps)  # others a script chooses by the machine
    if not order:
        return (foreign, True) if 2 * len(foreign) > len(programs) else ([], False)
    started = sorted((record for record in foreign if record.path in chosen), key=lambda record: order[record.path])
    return started, bool(started) and order[started[0].path] == min(map(order.__getitem__, chosen))


def may_execute(context: Context, machine: str) -> bool:
    """Whether the host may execute code for `machine`; True where its architecture is not known."""
    host = context.host.cpu.architecture
    if not host.known or host.value is None:
        return True
    return machine in _run_by(host.value) or machine in _MAY_RUN.get(host.value, ())


def _run_by(architecture: str) -> set[str]:
    """The machines whose code a host of that architecture executes."""
    return {architecture, *_ALSO_RUNS.get(architecture, ())}


def platform_machine(context: Context) -> str:
    """The machine that the image's platform names, as Linkage.machine."""
    return machine_of(context.image.platform.architecture)


def _programs(context: Context) -> list[FileRecord]:
    """Executables that the command starts, best known first; other files of the closure are loaded by them."""
    programs = [record for record, linkage in context.linked if linkage.type == "executable"]
    entered = [record for record in programs if context.closure.reach(record.path) == "entry"]
    return sorted(entered, key=lambda record: record.path)


def _machine(context: Context, record: FileRecord) -> str:
    linkage = context.image.facts(record).linkage
    return linkage.machine if linkage else ""


def _evidence(context: Context, programs: list[FileRecord]) -> tuple[Evidence, ...]:
    if not programs:
        return (Evidence(path="", detail=f"the image's platform is {context.image.platform}"),)
    return tuple(context.evidence(record, f"ELF file for {_machine(context, record)}") for record in programs)


def _program(context: Context, programs: list[FileRecord]) -> str:
    command = (*context.image.config.entrypoint, *context.image.config.command)
    return command[0] if command else (programs[0].path if programs else "the program")
