"""What several hosts have in common: each finding and each open question once, with the hosts that it concerns."""

from dataclasses import dataclass

from imgcheck.documents.report import SEVERITIES, CheckResult, Finding, Report, Requirement


@dataclass(frozen=True)
class Across:
    """A finding with the hosts where it counts, or where it is waived; its words are those of where it weighs most."""

    finding: Finding
    fingerprint: str
    """The finding's; another one where it is waived on these hosts and counts on others."""
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
    counting: dict[str, list[tuple[Finding, str]]] = {}
    waived: dict[str, list[tuple[Finding, str]]] = {}
    for requirement in report.required:
        for finding in requirement.findings:
            grouped = waived if finding.waived else counting
            grouped.setdefault(finding.fingerprint, []).append((finding, label(requirement, report)))
    required = len(report.requirements)
    merged = [_merged(found, name, required) for name, found in counting.items()]
    for name, found in waived.items():
        merged.append(_merged(found, f"{name}-waived" if name in counting else name, required))
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


def _merged(found: list[tuple[Finding, str]], fingerprint: str, required: int) -> Across:
    worst = min((finding for finding, _ in found), key=_weight)
    if not required:
        return Across(worst, fingerprint)
    hosts = tuple(dict.fromkeys(host for _, host in found))
    return Across(worst, fingerprint, hosts, every=len(hosts) == required)


def _weight(finding: Finding) -> tuple[bool, int]:
    return bool(finding.waived), SEVERITIES.index(finding.severity)
