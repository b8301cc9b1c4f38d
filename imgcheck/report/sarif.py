"""SARIF 2.1.0 (OASIS standard), for code scanning."""

import json
from typing import Any
from urllib.parse import quote

from imgcheck import __version__
from imgcheck.documents.report import Finding, Report
from imgcheck.knowledge.types import Catalogued
from imgcheck.report import across
from imgcheck.report.formats import Rendering
from imgcheck.report.location import Location, location, message, whole
from imgcheck.report.text import placeholders, safe

_LEVELS = {"fail": "error", "risk": "warning", "degraded": "warning", "info": "note"}


def sarif(report: Report, rendering: Rendering) -> str:
    """One run: a result per finding on whichever host, and an open result per rule that could not be decided."""
    found, open_questions = across.findings(report), across.undecided(report)
    used = sorted({*(each.finding.rule for each in found), *(each.check.rule for each in open_questions)})
    index = {rule: position for position, rule in enumerate(used)}
    results = [_result(each, index, rendering) for each in found]
    results += [_open(each, index, rendering) for each in open_questions]
    run = {
        "tool": {"driver": {"name": "imgcheck", "version": __version__, "rules": [_rule(r, rendering) for r in used]}},
        "invocations": [_invocation(report)],
        "results": results,
        "properties": {
            "image": safe(report.image.reference),
            "verdict": report.verdict,
            "host": safe(report.host.name),
            "runtime": report.runtime,
            "verdicts": {safe(across.label(r, report)): r.verdict for r in report.required},
        },
    }
    document = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(document, indent=1) + "\n"


def _rule(rule: str, rendering: Rendering) -> dict[str, Any]:
    entry: Catalogued = rendering.knowledge.catalogue[rule]
    description = entry.description.strip() or placeholders(entry.title)
    return {
        "id": rule,
        "shortDescription": {"text": placeholders(entry.title)},
        "fullDescription": {"text": description},
        # Why and way out hold placeholders, which each result fills in its own message.
        "help": {"text": f"{description}\n\nSources:\n" + "\n".join(entry.sources)},
    }


def _invocation(report: Report) -> dict[str, Any]:
    notes = [{"level": "warning", "message": {"text": safe(note)}} for note in report.notes]
    return {"executionSuccessful": True} | ({"toolConfigurationNotifications": notes} if notes else {})


def _result(each: across.Across, index: dict[str, int], rendering: Rendering) -> dict[str, Any]:
    finding = each.finding
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index[finding.rule],
        "level": _LEVELS[finding.severity],
        "message": {"text": message(each)},
        "partialFingerprints": {"imgcheck/v1": each.fingerprint},
        "locations": [_place(location(finding, rendering)) | _files(finding)],
    }
    if each.hosts:
        result["properties"] = {"hosts": [safe(host) for host in each.hosts]}
    if finding.waived:
        accepted = {"kind": "external", "status": "accepted", "justification": safe(finding.waived)}
        result["suppressions"] = [accepted]
    return result


def _place(place: Location) -> dict[str, Any]:
    # Code scanning refuses a result without a file and a first line.
    return {
        "physicalLocation": {"artifactLocation": {"uri": _uri(place.path)}, "region": {"startLine": place.line}},
    }


def _uri(path: str) -> str:
    # 3.4.3: relative, or with a scheme.
    return ("file://" if path.startswith("/") else "") + quote(path)


def _files(finding: Finding) -> dict[str, Any]:
    paths = [safe(evidence.path) for evidence in finding.evidence if evidence.path]
    return {"logicalLocations": [{"fullyQualifiedName": path, "kind": "resource"} for path in paths]} if paths else {}


def _open(question: across.Undecided, index: dict[str, int], rendering: Rendering) -> dict[str, Any]:
    # 3.27.9: a result whose kind is not "fail" has level "none".
    return {
        "ruleId": question.check.rule,
        "ruleIndex": index[question.check.rule],
        "kind": "open",
        "level": "none",
        "message": {"text": safe(question.reason)},
        "locations": [_place(whole(rendering))],
    }
