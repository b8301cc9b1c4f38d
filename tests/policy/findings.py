"""Findings and hosts for tests of policies."""

from imgcheck.documents import HostProfile
from imgcheck.documents.report import Evidence, Finding, Severity


def finding(
    rule: str = "CPU001", severity: Severity = "fail", paths: tuple[str, ...] = ("/opt/app/run",), reach: str = "entry"
) -> Finding:
    return Finding(
        rule=rule,
        severity=severity,
        title=f"{rule} title",
        predicted_error="",
        why="",
        remedy="",
        subject="avx512f",
        fingerprint=f"{rule}{paths[0] if paths else ''}",
        evidence=tuple(Evidence(path, reach=reach) for path in paths),
    )


def host(name: str = "node1") -> HostProfile:
    return HostProfile(schema_version="1.0", name=name)
