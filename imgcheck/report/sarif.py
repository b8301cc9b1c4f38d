"""SARIF 2.1.0 (OASIS standard), for code scanning."""

import json
from typing import Any
from urllib.parse import quote

from imgcheck import __version__
from imgcheck.documents.report import CheckResult, Finding, Report
from imgcheck.knowledge.types import Catalogued
from imgcheck.report.formats import Rendering
from imgcheck.report.location import location, message
from imgcheck.report.text import safe

_LEVELS = {"fail": "error", "risk": "warning", "degraded": "warning", "info": "note"}


def sarif(report: Report, rendering: Rendering) -> str:
    """One run: a result per finding, and an open result per rule that could not be decided."""
    undecided = [check for check in report.checks if check.outcome == "unknown"]
    used = sorted({each.rule for each in (*report.findings, *undecided)})
    index = {rule: position for position, rule in enumerate(used)}
    results = [_result(finding, index, rendering) for finding in report.findings]
    results += [_open(check, index) for check in undecided]
    run = {
        "tool": {"driver": {"name": "imgcheck", "version": __version__, "rules": [_rule(r, rendering) for r in used]}},
        "results": results,
        "properties": {"verdict": report.verdict, "host": report.host.name, "runtime": report.runtime},
    }
    document = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(document, indent=1) + "\n"


def _rule(rule: str, rendering: Rendering) -> dict[str, Any]:
    entry: Catalogued = rendering.knowledge.catalogue[rule]
    return {
        "id": rule,
        "shortDescription": {"text": entry.title},
        "fullDescription": {"text": entry.description or entry.why},
        "help": {"text": f"{entry.why}\n\nWay out: {entry.remedy}\n\nSources:\n" + "\n".join(entry.sources)},
    }


def _result(finding: Finding, index: dict[str, int], rendering: Rendering) -> dict[str, Any]:
    place = location(finding, rendering)
    region = {"region": {"startLine": place.line}} if rendering.dockerfile else {}
    return {
        "ruleId": finding.rule,
        "ruleIndex": index[finding.rule],
        "level": _LEVELS[finding.severity],
        "message": {"text": message(finding)},
        "partialFingerprints": {"imgcheck/v1": finding.fingerprint},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": quote(place.path)}, **region},
                "logicalLocations": [
                    {"fullyQualifiedName": safe(evidence.path), "kind": "resource"} for evidence in finding.evidence
                ],
            }
        ],
    }


def _open(check: CheckResult, index: dict[str, int]) -> dict[str, Any]:
    # 3.27.9: a result whose kind is not "fail" has level "none".
    return {
        "ruleId": check.rule,
        "ruleIndex": index[check.rule],
        "kind": "open",
        "level": "none",
        "message": {"text": safe(check.reason)},
    }
