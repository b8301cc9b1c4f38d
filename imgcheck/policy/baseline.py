"""A baseline: the findings that an image had on a day, which it may go on having."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from imgcheck.documents.facts import Document
from imgcheck.documents.report import SEVERITIES, Finding, Report, Severity
from imgcheck.errors import PolicyError


class Accepted(Document, frozen=True):
    """One finding on one host."""

    host: str
    fingerprint: str
    severity: Severity
    rule: str
    title: str
    """For people who read the file; it decides nothing."""


class Baseline(Document, frozen=True, tag_field="kind", tag="baseline"):
    """The findings of one image; `covers` is what a later check asks."""

    schema_version: str
    image: str
    findings: tuple[Accepted, ...] = ()

    def covers(self, host: str, finding: Finding) -> Accepted | None:
        """The entry that has this finding on this host, at this severity or a worse one."""
        for each in self.findings:
            if (each.host, each.fingerprint) == (host, finding.fingerprint):
                at_worst = SEVERITIES.index(finding.severity) >= SEVERITIES.index(each.severity)
                return each if at_worst else None
        return None


def baseline_of(report: Report) -> Baseline:
    """What `report` found on its hosts and nobody waived, remarks apart."""
    findings = {
        (requirement.host.name, finding.fingerprint): finding
        for requirement in report.required
        for finding in sorted(requirement.findings, key=lambda each: -SEVERITIES.index(each.severity))
        if finding.severity != "info" and not finding.waived
    }
    accepted = [
        Accepted(host, each.fingerprint, each.severity, each.rule, each.title) for (host, _), each in findings.items()
    ]
    return Baseline("1.0", report.image.reference, _sorted(accepted))


def joined(first: Baseline, second: Baseline) -> Baseline:
    """What either of two baselines of one image has."""
    return msgspec.structs.replace(first, findings=_sorted((*first.findings, *second.findings)))


def _sorted(accepted: Iterable[Accepted]) -> tuple[Accepted, ...]:
    return tuple(sorted(accepted, key=lambda each: (each.host, each.rule, each.fingerprint)))


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
