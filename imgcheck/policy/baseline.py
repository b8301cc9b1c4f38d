"""A baseline: the findings that an image had on a day, which it may go on having."""

from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from imgcheck.documents.facts import Document
from imgcheck.documents.report import SEVERITIES, Finding, Report, Severity
from imgcheck.errors import PolicyError


class Accepted(Document, frozen=True):
    """One finding on one host."""

    host: str
    runtime: str
    """Id of the one under which it was found where that was asked for by its name; empty: the best of several."""
    fingerprint: str
    severity: Severity
    rule: str
    title: str
    """For people who read the file; it decides nothing."""

    def is_of(self, host: str, runtime: str, fingerprint: str) -> bool:
        return (self.host, self.fingerprint) == (host, fingerprint) and self.runtime in ("", runtime)


class Baseline(Document, frozen=True, tag_field="kind", tag="baseline"):
    """The findings of one image; `covers` is what a later check asks."""

    schema_version: str
    image: str
    findings: tuple[Accepted, ...] = ()

    def covers(self, host: str, runtime: str, finding: Finding) -> bool:
        """Whether it has this finding on this host under this runtime, at this severity or a worse one."""
        severity = SEVERITIES.index(finding.severity)
        return any(
            each.is_of(host, runtime, finding.fingerprint) and SEVERITIES.index(each.severity) <= severity
            for each in self.findings
        )


def baseline_of(report: Report, stated: Collection[str]) -> Baseline:
    """What `report` found on its hosts and nobody waived, remarks apart.

    `stated` names the hosts whose runtimes were asked for by name: what is found under one of them says nothing of
    the others.
    """
    findings = {
        (name, requirement.runtime if name in stated else "", finding.fingerprint): finding
        for requirement in report.required
        for name in (requirement.host.name,)
        for finding in sorted(requirement.findings, key=lambda each: -SEVERITIES.index(each.severity))
        if finding.severity != "info" and not finding.waived
    }
    accepted = [
        Accepted(host, runtime, each.fingerprint, each.severity, each.rule, each.title)
        for (host, runtime, _), each in findings.items()
    ]
    return Baseline("1.0", report.image.reference, _sorted(accepted))


def joined(first: Baseline, second: Baseline) -> Baseline:
    """What either of two baselines of one image has."""
    return msgspec.structs.replace(first, findings=_sorted((*first.findings, *second.findings)))


def _sorted(accepted: Iterable[Accepted]) -> tuple[Accepted, ...]:
    return tuple(sorted(accepted, key=lambda each: (each.host, each.runtime, each.rule, each.fingerprint)))


def encode_baseline(baseline: Baseline) -> bytes:
    return msgspec.json.format(msgspec.json.encode(baseline), indent=1) + b"\n"


def read_baseline(path: Path) -> Baseline:
    """The baseline at `path`. Raises PolicyError, which names the file and the way out."""
    again = f"write it with: imgcheck image REF --write-baseline {path}"
    try:
        baseline = msgspec.json.decode(path.read_bytes(), type=Baseline)
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror}", again) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: not a baseline of imgcheck: {error}", again) from None
    if baseline.schema_version.partition(".")[0] != "1":
        raise PolicyError(f"{path}: schema version {baseline.schema_version!r} is not read by this imgcheck", again)
    return baseline
