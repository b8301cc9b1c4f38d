"""What several hosts have in common: each finding and each open question once, with the hosts that it concerns."""

from dataclasses import dataclass

from imgcheck.documents.report import CheckResult, Finding, Report, Requirement

_WORST_FIRST = ("fail", "risk", "degraded", "info")


@dataclass(frozen=True)
class Across:
    """A finding with its fingerprint's hosts; its words are those for the host where it weighs most."""

    finding: Finding
    hosts: tuple[str, ...] = ()
    """Labels of the hosts that it concerns; empty where the report knows one alone."""
    every: bool = False
    """These are all that were asked for."""

    @property
    def on(self) -> str:
        # A host that was described has commas in its name.
        return f"every one of the {len(self.hosts)} hosts" if self.every else "; ".join(self.hosts)


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
    several = sum(other.host == requirement.host for other in report.requirements) > 1
    return f"{name} under {requirement.runtime}" if several else name


def findings(report: Report) -> list[Across]:
    """Every finding of any host, by fingerprint: what counts before what is waived, worst first."""
    grouped: dict[str, list[tuple[Finding, str]]] = {}
    for requirement in report.required:
        for finding in requirement.findings:
            grouped.setdefault(finding.fingerprint, []).append((finding, label(requirement, report)))
    merged = [_merged(found, len(report.requirements)) for found in grouped.values()]
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


def _merged(found: list[tuple[Finding, str]], required: int) -> Across:
    worst = min((finding for finding, _ in found), key=_weight)
    if not required:
        return Across(worst)
    hosts = tuple(dict.fromkeys(host for _, host in found))
    return Across(worst, hosts, every=len(hosts) == required)


def _weight(finding: Finding) -> tuple[bool, int]:
    return bool(finding.waived), _WORST_FIRST.index(finding.severity)
