"""What several hosts have in common: each finding and each open question once, with the hosts that it concerns."""

from collections.abc import Sequence
from dataclasses import dataclass

from imgcheck.documents.report import SEVERITIES, CheckResult, Finding, HostSummary, Report, Requirement
from imgcheck.report import runtimes


@dataclass(frozen=True)
class Across:
    """A finding with the hosts where it counts, or where it is waived; its words are those of where it weighs most."""

    finding: Finding
    fingerprint: str
    """The finding's; another one where it is waived on these hosts and counts on others."""
    hosts: tuple[str, ...] = ()
    """Labels of the hosts that it concerns; empty where the report knows one alone."""
    every: str = ""
    """Words for all of these together, where they are all that were asked for."""

    @property
    def on(self) -> str:
        # A host that was described has commas in its name.
        return self.every or "; ".join(self.hosts)


@dataclass(frozen=True)
class Undecided:
    """A rule that could not be answered, with its hosts as in Across."""

    check: CheckResult
    hosts: tuple[str, ...]

    @property
    def reason(self) -> str:
        return f"{'; '.join(self.hosts)}: {self.check.reason}" if self.hosts else self.check.reason


def label(requirement: Requirement, report: Report) -> str:
    """The host's name and number; with its runtime where several are required of it."""
    name = requirement.host.label
    return f"{name} under {requirement.runtime}" if _is_one_of_several(requirement, report) else name


def under(requirement: Requirement, report: Report) -> str:
    """The runtimes that its verdict is of: the one that is required, or those of which the best decides."""
    if _is_one_of_several(requirement, report):
        return requirement.runtime
    return runtimes.under(report, requirement.host.name, requirement.runtime)


def asked(report: Report) -> str:
    """What the image was held against where that is more than one host: `6 hosts of 4 kinds`."""
    kinds = _kinds(report.requirements)
    hosts = (
        _hosts(kinds) if len(kinds) == sum(host.count for host in kinds) else f"{_hosts(kinds)} of {len(kinds)} kinds"
    )
    if not _are_cases(report):
        return hosts
    required = len({requirement.runtime for requirement in report.requirements})
    # Else the best runtime decides on some of them, or each has its own, and no number is true of all.
    everywhere = len(kinds) * required == len(report.requirements)
    return f"{hosts} under {required} runtimes" if everywhere else f"{hosts}, some under several runtimes"


def failing(report: Report) -> str:
    """How much of that fails: `on 5 of 6 hosts (3 of 4 kinds)`; empty where nothing does."""
    failed = broken(report)
    if not failed:
        return ""
    if _are_cases(report):
        return f"in {len(failed)} of {len(report.requirements)} cases ({asked(report)})"
    kinds, bad = _kinds(report.requirements), _kinds(failed)
    part = f"on {sum(host.count for host in bad)} of {_hosts(kinds)}"
    return part if len(kinds) == sum(host.count for host in kinds) else f"{part} ({len(bad)} of {len(kinds)} kinds)"


def findings(report: Report) -> list[Across]:
    """Every finding of any host, by fingerprint: what counts before what is waived, worst first."""
    counting: dict[str, list[tuple[Finding, str]]] = {}
    waived: dict[str, list[tuple[Finding, str]]] = {}
    for requirement in report.required:
        for finding in requirement.findings:
            grouped = waived if finding.waived else counting
            grouped.setdefault(finding.fingerprint, []).append((finding, label(requirement, report)))
    merged = [_merged(found, name, report) for name, found in counting.items()]
    for name, found in waived.items():
        merged.append(_merged(found, f"{name}-waived" if name in counting else name, report))
    return sorted(merged, key=lambda each: (*_weight(each.finding), each.finding.rule))


def undecided(report: Report) -> list[Undecided]:
    """Every open question, once for the hosts that have it for the same reason."""
    grouped: dict[CheckResult, list[str]] = {}
    for requirement in report.required:
        for check in requirement.checks:
            if check.outcome == "unknown":
                grouped.setdefault(check, []).append(label(requirement, report))
    return [Undecided(check, tuple(hosts) if report.requirements else ()) for check, hosts in grouped.items()]


def broken(report: Report) -> list[Requirement]:
    """The requirements that the image does not meet."""
    return [requirement for requirement in report.requirements if requirement.verdict == "incompatible"]


def _merged(found: list[tuple[Finding, str]], fingerprint: str, report: Report) -> Across:
    worst = min((finding for finding, _ in found), key=_weight)
    if not report.requirements:
        return Across(worst, fingerprint)
    hosts = tuple(dict.fromkeys(host for _, host in found))
    return Across(worst, fingerprint, hosts, _every(report) if len(hosts) == len(report.requirements) else "")


def _every(report: Report) -> str:
    if _are_cases(report):
        return "every host, under each runtime that is required there"
    return f"every one of the {_hosts(_kinds(report.requirements))}"


def _is_one_of_several(requirement: Requirement, report: Report) -> bool:
    """Whether more than one runtime is required of its host, so that each stands for itself."""
    return sum(other.host == requirement.host for other in report.requirements) > 1


def _are_cases(report: Report) -> bool:
    return any(_is_one_of_several(requirement, report) for requirement in report.requirements)


def _kinds(requirements: Sequence[Requirement]) -> list[HostSummary]:
    return list(dict.fromkeys(requirement.host for requirement in requirements))


def _hosts(kinds: Sequence[HostSummary]) -> str:
    """The machines of these kinds, counted."""
    number = sum(host.count for host in kinds)
    return "1 host" if number == 1 else f"{number} hosts"


def _weight(finding: Finding) -> tuple[bool, int]:
    return bool(finding.waived), SEVERITIES.index(finding.severity)
