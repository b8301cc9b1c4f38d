"""KRN001 to KRN003: what C library and kernel, or the runtime's filter of system calls, must agree on."""

import posixpath
from collections import defaultdict
from typing import Literal

from msgspec import Struct

from imgcheck import versions
from imgcheck.check.context import Answers, Context
from imgcheck.check.loader_rules import LoaderRules, image_glibc, loader_rules
from imgcheck.documents.image import FileRecord
from imgcheck.documents.report import Finding, Severity
from imgcheck.loader.glibc import glibc_version

_LINUX = "linux "


class _Floor(Struct, frozen=True):
    """A file with the lowest kernel that it asks for, and who would enforce it."""

    record: FileRecord
    kernel: str
    role: Literal["libc", "static", "library"]


def check(context: Context) -> Answers:
    """All rules of the family for one cell."""
    answers = Answers()
    _kernel_floor(context, answers)
    _filtered_calls(context, answers)
    _vsyscall(context, answers)
    return answers


def _filtered_calls(context: Context, answers: Answers) -> None:
    """KRN002."""
    program, passing = context.family.filtering_program, context.family.lets_pass_since
    if not program:
        reason = f"no filter of {context.runtime.title} is known that refuses newer system calls"
        answers.answer("KRN002", "not-applicable", reason)
        return
    version = context.host.version_of(program, (program,))
    if not version:
        answers.answer("KRN002", "not-applicable", f"the version of {program} on this host is not known")
        return
    refused = [(call, since) for call, since in passing.items() if not versions.at_least(version, since)]
    glibc, calls = image_glibc(context), loader_rules(context.knowledge).kernel.system_calls
    made = [(call, since) for call, since in refused if glibc and versions.at_least(glibc, calls[call])]
    findings = [_refused_call(context, call, since, glibc, version) for call, since in made]
    fine = f"{program.capitalize()} {version} lets pass what the image's C library calls"
    answers.conclude("KRN002", findings, fine)


def _refused_call(context: Context, call: str, since: str, glibc: str, version: str) -> Finding:
    return context.finding(
        "KRN002",
        "risk",
        call,
        tuple(context.evidence(record, f"glibc {glibc}") for record, _ in context.libcs),
        variant="clone3" if call == "clone3" else "",
        glibc=glibc,
        program=context.family.filtering_program.capitalize(),
        version=version,
        since=since,
    )


def _vsyscall(context: Context, answers: Answers) -> None:
    """KRN003."""
    glibc, until = image_glibc(context), loader_rules(context.knowledge).kernel.vsyscall_until
    if context.image.platform.architecture != "amd64" or not glibc or versions.at_least(glibc, until):
        answers.answer("KRN003", "not-applicable", "the image's C library does not call into the vsyscall page")
    elif context.host.vsyscall.unknown:
        reason = f"glibc {glibc} calls into the vsyscall page, and whether the host's kernel maps it is not known"
        answers.answer("KRN003", "unknown", reason)
    else:
        evidence = tuple(context.evidence(record, f"glibc {glibc}") for record, _ in context.libcs)
        missing = not context.host.vsyscall.value
        findings = [context.finding("KRN003", "fail", "vsyscall", evidence, glibc=glibc)] if missing else []
        answers.conclude("KRN003", findings, "the host's kernel maps the vsyscall page")


def _kernel_floor(context: Context, answers: Answers) -> None:
    """KRN001."""
    floors = _floors(context)
    if not floors:
        answers.answer("KRN001", "not-applicable", "no file of the image names a lowest kernel")
        return
    rules = loader_rules(context.knowledge)
    highest = max((floor.kernel for floor in floors), key=versions.parse)
    if context.host.kernel.known:
        _compare(context, floors, highest, rules, answers)
    elif versions.at_least(rules.kernel.oldest, highest):
        reason = f"no file asks for a newer Linux than {highest}, older than any kernel on which containers run"
        answers.answer("KRN001", "ok", reason)
    elif all(_unchecked(context, floor, rules) for floor in _above(floors, rules.kernel.oldest)):
        answers.answer("KRN001", "ok", "the image's glibc loads files whatever kernel they ask for")
    else:
        reason = (
            f"a file of the image asks for Linux {highest} or newer, and the host's kernel is not known; give --kernel"
        )
        answers.answer("KRN001", "unknown", reason)


def _floors(context: Context) -> list[_Floor]:
    """Floors of what glibc looks at: the C library, static programs, and libraries that something loads."""
    found = []
    loaded = {*context.closure.chosen.values(), *context.closure.libcs}
    for record, linkage in context.linked:
        if not linkage.abi.startswith(_LINUX):
            continue
        kernel = linkage.abi.removeprefix(_LINUX)
        if record.path in context.closure.libcs:
            found.append(_Floor(record, kernel, "libc"))
        elif "static" in linkage.flags and linkage.type == "executable":
            found.append(_Floor(record, kernel, "static"))
        elif linkage.type == "shared" and (record.path in loaded or linkage.soname):
            found.append(_Floor(record, kernel, "library"))
    return found


def _above(floors: list[_Floor], kernel: str) -> list[_Floor]:
    return [floor for floor in floors if versions.compare(floor.kernel, kernel) > 0]


def _compare(context: Context, floors: list[_Floor], highest: str, rules: LoaderRules, answers: Answers) -> None:
    kernel = context.host.kernel.value or ""
    groups: dict[str, list[_Floor]] = defaultdict(list)
    for floor in _above(floors, kernel):
        groups[_subject(context, floor)].append(floor)
    findings = [_finding(context, subject, group, rules) for subject, group in groups.items()]
    fine = f"no file asks for a newer Linux than {highest}, and the host runs {kernel}"
    answers.conclude("KRN001", findings, fine)


def _subject(context: Context, floor: _Floor) -> str:
    linkage = context.image.facts(floor.record).linkage
    return (linkage.soname if linkage else "") or posixpath.basename(floor.record.path)


def _finding(context: Context, subject: str, group: list[_Floor], rules: LoaderRules) -> Finding:
    group = sorted(group, key=lambda floor: versions.parse(floor.kernel), reverse=True)
    first = group[0]
    severity, variant, consequence = _judge(context, first, rules)
    return context.finding(
        "KRN001",
        severity,
        subject,
        tuple(context.evidence(floor.record, f"asks for Linux {floor.kernel}", floor=floor.kernel) for floor in group),
        variant=variant,
        floor=first.kernel,
        path=first.record.path,
        program=_user(context, first.record.path),
        kernel=context.host.kernel.value,
        consequence=consequence,
        remedy=_remedy(first),
    )


def _judge(context: Context, floor: _Floor, rules: LoaderRules) -> tuple[Severity, str, str]:
    if not _unchecked(context, floor, rules):
        if floor.role == "library":
            return "fail", "skipped", "The loader passes over such a file in silence, so it seems missing."
        return "fail", "", "It compares both when it starts, and stops."
    if floor.role == "library":
        return "info", "unchecked", "This glibc loads it all the same; a system call may be missing when it is made."
    return "risk", "unchecked", "It no longer compares them, but takes system calls for granted that may be missing."


def _unchecked(context: Context, floor: _Floor, rules: LoaderRules) -> bool:
    """Whether the glibc that would have to refuse the file is one that no longer does."""
    if floor.role == "static":
        return False  # its glibc is inside it, of a version that nothing tells
    libcs = [(record, linkage) for record, linkage in context.libcs if floor.role != "libc" or record is floor.record]
    known = [number for record, linkage in libcs if (number := glibc_version(record.path, linkage))]
    return bool(known) and all(versions.at_least(number, rules.kernel.glibc_checks_until) for number in known)


def _user(context: Context, path: str) -> str:
    """A program that loads `path`, for the error text; the file itself where none is seen."""
    return context.closure.users.get(path, path)


def _remedy(floor: _Floor) -> str:
    if floor.role == "library":
        return (
            "Strip the note in the Dockerfile (RUN strip --remove-section=.note.ABI-tag "
            f"{floor.record.path}), use an older base image, or a host with Linux {floor.kernel} or newer."
        )
    return f"Use a base image of an older distribution, or a host with Linux {floor.kernel} or newer."
