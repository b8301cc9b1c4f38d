"""One image held against hosts and runtimes: every rule for every cell, and the cell that decides."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec
from msgspec import Struct

from imgcheck import __version__
from imgcheck.check import arch, cpu, gpu, kernel, libraries, mpi, runtime
from imgcheck.check import image as contents
from imgcheck.check.context import Answers, Context, concluded
from imgcheck.documents.host import HostProfile
from imgcheck.documents.image import ImageProfile
from imgcheck.documents.report import (
    OF_OUTCOME,
    OF_SEVERITY,
    SCHEMA_VERSION,
    SEVERITIES,
    VERDICTS,
    Cell,
    CheckResult,
    ChosenBy,
    Finding,
    HostSummary,
    ImageSummary,
    Report,
    Requirement,
    Verdict,
)
from imgcheck.errors import UsageError
from imgcheck.host.summary import summarise
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Runtime
from imgcheck.loader.closure import Roots
from imgcheck.loader.closures import Closures
from imgcheck.loader.hwcaps import hwcaps_of

Family = Callable[[Context], Answers]
Review = Callable[[Finding, HostProfile, str], Finding]
"""What a policy makes of a finding on a host under a runtime, which is named by its id: the same, with another
severity, or marked as waived."""

FAMILIES: tuple[Family, ...] = (
    contents.check,
    cpu.check,
    gpu.check,
    libraries.check,
    kernel.check,
    mpi.check,
    runtime.check,
)
"""The rule families in the order of a report, after the architecture, without which none of them means anything."""

_BY_REACH = (contents.check, cpu.check, mpi.check)
"""Of these, the families that ask of a runtime only how the image's files are reached and loaded."""


class Request(Struct, frozen=True):
    """What the user asked for beyond image and hosts."""

    runtimes: tuple[str, ...] = ()
    """Empty: those found on the host, else all."""
    command: tuple[str, ...] | None = None
    """None: the image's own ENTRYPOINT and CMD."""
    entries: tuple[str, ...] = ()
    require_gpu: bool = False
    required_runtimes: Mapping[str, tuple[str, ...]] = {}
    """Host name to the runtimes under each of which, not just the best of them, the image must work there."""
    review: Review | None = None


class _Judged(Struct, frozen=True):
    host: HostProfile
    runtime: Runtime
    chosen_by: ChosenBy
    verdict: Verdict
    findings: tuple[Finding, ...]
    checks: tuple[CheckResult, ...]

    @property
    def rank(self) -> tuple[int, bool, int]:
        """Best first; among equals what brings the driver of the host's GPU, then what has less to say."""
        without_driver = self.host.gpus.known and not self.runtime.injects_driver
        return VERDICTS.index(self.verdict), without_driver, len(self.findings)

    @property
    def summary(self) -> HostSummary:
        description = "" if self.host.described else summarise(self.host)
        return HostSummary(self.host.name, description, self.host.count)


def check(
    image: ImageProfile,
    hosts: Sequence[HostProfile],
    request: Request,
    knowledge: Knowledge,
    digests: bool = True,
) -> Report:
    """The report on `image` for `hosts`: for each host its best runtime, of these the worst host decides.

    `digests` says whether the report names the knowledge that it rests on, for which every data file is read, and
    whether its findings carry fingerprints.

    Raises UsageError where an entry of the request is no program of the image.
    """
    judged = [_judge_host(image, host, request, knowledge, digests) for host in hosts]
    required = list(_required(judged, request))
    deciding = max(required, key=lambda cell: cell.rank)
    return Report(
        schema_version=SCHEMA_VERSION,
        verdict=deciding.verdict,
        image=_image_summary(image, request, deciding.runtime),
        host=deciding.summary,
        runtime=deciding.runtime.id,
        runtime_chosen_by=deciding.chosen_by,
        findings=deciding.findings,
        checks=deciding.checks,
        cells=tuple(_cell(cell) for cells in judged for cell in cells),
        tool={"imgcheck": __version__, "knowledge": knowledge.digest, **image.engines} if digests else {},
        requirements=tuple(_requirement(cell) for cell in required) if len(required) > 1 else (),
    )


def combine(reports: Sequence[Report]) -> Report:
    """One report of several on the same image for different hosts, say on each of its platforms: the worst decides."""
    if len(reports) == 1:
        return reports[0]
    deciding = max(reports, key=lambda report: VERDICTS.index(report.verdict))
    return msgspec.structs.replace(
        deciding,
        cells=tuple(cell for report in reports for cell in report.cells),
        requirements=tuple(each for report in reports for each in report.required),
    )


def not_installed(image: ImageProfile, host: HostProfile, request: Request, knowledge: Knowledge) -> str:
    """That none of the runtimes which take this form of an image was found on the host, in words; "" else."""
    found = [each.id for each in host.runtimes.value or () if each.id in knowledge.runtimes]
    runtimes, chosen_by = _runtimes(image, host, request, knowledge)
    if not found or chosen_by != "best":
        return ""
    which = "none of which starts" if len(found) > 1 else "which does not start"
    return f"{host.name} has {', '.join(found)}, {which} such an image; judged under {runtimes[0].family}'s"


def verdict_of(findings: Sequence[Finding], checks: Sequence[CheckResult]) -> Verdict:
    """The worst of all outcomes, and of all findings that nobody waived."""
    verdicts = [OF_SEVERITY[finding.severity] for finding in findings if not finding.waived]
    verdicts += [OF_OUTCOME[result.outcome] for result in checks]
    return max(verdicts, key=VERDICTS.index, default="compatible")


def _required(judged: Sequence[Sequence[_Judged]], request: Request) -> Iterator[_Judged]:
    """The cells that have a say: of each host the best runtime, or every one of them."""
    for cells in judged:
        if cells[0].host.name in request.required_runtimes:
            yield from cells
        else:
            yield min(cells, key=lambda cell: cell.rank)


def _judge_host(
    image: ImageProfile, host: HostProfile, request: Request, knowledge: Knowledge, fingerprints: bool
) -> list[_Judged]:
    runtimes, chosen_by = _runtimes(image, host, request, knowledge)
    levels = hwcaps_of(host, knowledge)
    # Without words of the user, or an ENTRYPOINT before them, all runtimes start the same.
    starts = [bool(request.command and image.config.entrypoint and each.skips_entrypoint) for each in runtimes]
    works = {bare: Closures(image, request.command, request.entries, levels, bare) for bare in dict.fromkeys(starts)}
    _refuse_absent(image, request, next(iter(works.values())).roots)
    asked = _Asked()
    contexts = (
        Context(image, host, each, knowledge, work.under(each, host), request.require_gpu, work.roots, fingerprints)
        for each, work in zip(runtimes, map(works.__getitem__, starts), strict=True)
    )
    return [_judge(context, chosen_by, request, asked) for context in contexts]


def _refuse_absent(image: ImageProfile, request: Request, roots: Roots) -> None:
    absent = {each.word for each in roots.unstartable if each.reason == "absent" and not each.by}
    for entry in request.entries:
        if entry in absent:
            raise UsageError(f"--entry {entry}: {image.reference} holds no such program", "imgcheck profile lists them")


class _Asked:
    """Answers of one host's cells so far, for runtimes under which the same question would be asked again."""

    def __init__(self) -> None:
        self._known: list[tuple[_Question, dict[Family, Answers]]] = []

    def answers(self, context: Context) -> list[Answers]:
        """What every family answers."""
        known = self._of(context)
        found = []
        for family in FAMILIES:
            if family not in _BY_REACH:
                found.append(family(context))
                continue
            if family not in known:
                known[family] = family(context)
            found.append(known[family])
        return found

    def _of(self, context: Context) -> dict[Family, Answers]:
        asked = _Question(context)
        found = next((answers for other, answers in self._known if other.content == asked.content), None)
        if found is None:
            found = {}
            self._known.append((asked, found))
        return found


class _Question:
    """What the families of _BY_REACH ask of a closure: compared where a host has several runtimes."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @cached_property
    def content(self) -> tuple:
        closure, linked = self._context.closure, self._context.linked
        reaches = {path: reach for path, reach in closure.reaches.items() if path not in closure.injected}
        needed = {path for root, loaded in closure.loaded.items() for path in loaded if path != root}
        compared_by = {record.path: closure.libc_of(record.path) for record, linkage in linked if linkage.isa_level}
        return self._context.roots, reaches, needed - closure.injected, closure.libcs, compared_by


def _runtimes(
    image: ImageProfile, host: HostProfile, request: Request, knowledge: Knowledge
) -> tuple[list[Runtime], ChosenBy]:
    """Those asked for, else those found on the host, else all that are known; and which of these.

    Of what is found or known those that take the image's form: Docker starts no SIF, whatever is on the host.
    """
    stated = request.required_runtimes.get(host.name) or request.runtimes
    if stated:
        return [knowledge.runtimes[name] for name in dict.fromkeys(stated)], "option"
    suiting = {name: each for name, each in knowledge.runtimes.items() if each.family == image.family}
    suiting = suiting or dict(knowledge.runtimes)
    found = [suiting[r.id] for r in host.runtimes.value or () if r.id in suiting]
    return (found, "host") if found else (list(suiting.values()), "best")


def _judge(context: Context, chosen_by: ChosenBy, request: Request, asked: _Asked) -> _Judged:
    findings, checks = _reviewed([arch.check(context)], context, request)
    # Once that is accepted, say for an emulator, the other rules are all that is left to go by.
    if not any(finding.severity == "fail" and not finding.waived for finding in findings):
        others = _reviewed(asked.answers(context), context, request)
        findings, checks = findings + others[0], checks + others[1]
    findings.sort(key=lambda finding: (SEVERITIES.index(finding.severity), finding.rule))
    return _Judged(
        context.host, context.runtime, chosen_by, verdict_of(findings, checks), tuple(findings), tuple(checks)
    )


def _reviewed(
    answers: Sequence[Answers], context: Context, request: Request
) -> tuple[list[Finding], list[CheckResult]]:
    """All findings and outcomes of `answers`, as the policy has them."""
    findings = [finding for answer in answers for finding in answer.findings]
    checks = [result for answer in answers for result in answer.checks]
    if not request.review:
        return findings, checks
    reviewed = [request.review(finding, context.host, context.runtime.id) for finding in findings]
    return reviewed, [review_result(result, findings, reviewed) for result in checks]


def review_result(result: CheckResult, before: Sequence[Finding], after: Sequence[Finding]) -> CheckResult:
    """A rule's answer after a review, where that has changed one of its findings: by those that still count."""
    changed = any(old != new for old, new in zip(before, after, strict=True) if old.rule == result.rule)
    if not changed:
        return result
    own = [finding for finding in after if finding.rule == result.rule]
    counting = [finding for finding in own if not finding.waived]
    waived = f" ({len(own) - len(counting)} of {len(own)} findings waived)" if len(counting) < len(own) else ""
    open = result.reason if result.outcome == "unknown" else result.open
    found = concluded(result.rule, counting, result.reason, open)
    if found.outcome == "unknown":
        return found
    reason = found.reason
    if found.outcome == "ok":  # the answer names its findings already, and is no word for what is fine if they counted
        reason = f"not decisive: {result.reason}" if counting and result.outcome != "ok" else result.reason
    return msgspec.structs.replace(found, reason=reason + waived)


def _requirement(judged: _Judged) -> Requirement:
    return Requirement(judged.summary, judged.runtime.id, judged.verdict, judged.findings, judged.checks)


def _cell(judged: _Judged) -> Cell:
    return Cell(
        host=judged.host.name,
        runtime=judged.runtime.id,
        verdict=judged.verdict,
        findings=tuple(finding.fingerprint for finding in judged.findings),
        reason=_reason(judged),
    )


def _reason(judged: _Judged) -> str:
    """The findings that make the verdict, in a few words; for an open question the first one."""
    decisive = [
        f"{f.rule} {f.title}" for f in judged.findings if not f.waived and OF_SEVERITY[f.severity] == judged.verdict
    ]
    if judged.verdict == "compatible":
        return ""
    if not decisive:
        decisive = [f"{c.rule} {c.reason}" for c in judged.checks if OF_OUTCOME[c.outcome] == judged.verdict]
    more = f" (and {len(decisive) - 1} more)" if len(decisive) > 1 else ""
    return decisive[0] + more if decisive else ""


def _image_summary(image: ImageProfile, request: Request, runtime: Runtime) -> ImageSummary:
    alone = request.command and runtime.skips_entrypoint
    return ImageSummary(
        reference=image.reference,
        platform=str(image.platform),
        manifest_digest=image.manifest_digest,
        config_digest=image.config_digest,
        components=tuple(component.label for component in image.components),
        command=(*(() if alone else image.config.entrypoint), *(request.command or image.config.command)),
    )
