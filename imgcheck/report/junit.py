"""JUnit XML: a suite for each required host, a test case per rule."""

import xml.etree.ElementTree as ET

from imgcheck.documents.report import OF_OUTCOME, CheckResult, FailOn, Finding, Report, Requirement, at_or_above
from imgcheck.report.across import Across, label
from imgcheck.report.location import message
from imgcheck.report.text import safe


def junit(report: Report, fail_on: FailOn) -> str:
    """Failures are rules whose answer fails the gate; others that are waived, undecided or ask nothing are skipped.

    Findings that are less than that stand in a passing case's system-out.
    """
    root = ET.Element("testsuites")
    for requirement in report.required:
        root.append(_suite(requirement, report, fail_on))
    if report.notes:
        ET.SubElement(root[0], "system-out").text = "\n".join(safe(note) for note in report.notes)
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(requirement: Requirement, report: Report, fail_on: FailOn) -> ET.Element:
    host = safe(label(requirement, report))
    suite = ET.Element("testsuite", name=f"imgcheck {safe(report.image.reference)} on {host}")
    # A dot divides packages from classes for the readers of this format; names of hosts may hold some.
    classname = f"{host.replace('.', '_')}.{requirement.runtime}"
    for check in requirement.checks:
        own = [each for each in requirement.findings if each.rule == check.rule]
        suite.append(_case(check, own, classname, fail_on))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    suite.set("errors", "0")
    return suite


def _case(check: CheckResult, findings: list[Finding], classname: str, fail_on: FailOn) -> ET.Element:
    case = ET.Element("testcase", classname=classname, name=check.rule, time="0")
    waived = [finding for finding in findings if finding.waived]
    if at_or_above(OF_OUTCOME[check.outcome], fail_on):
        failing = [finding for finding in findings if finding.severity == check.outcome and not finding.waived]
        failure = ET.SubElement(case, "failure", message=safe(failing[0].title if failing else check.reason))
        failure.text = _words(failing)
    elif check.outcome in ("unknown", "not-applicable"):
        ET.SubElement(case, "skipped", message=safe(check.reason))
    elif waived and check.outcome == "ok":
        ET.SubElement(case, "skipped", message=safe(f"{waived[0].title}; waived: {waived[0].waived}"))
    elif findings:
        ET.SubElement(case, "system-out").text = _words(findings)
    return case


def _words(findings: list[Finding]) -> str:
    return "\n\n".join(message(Across(finding, finding.fingerprint)) for finding in findings)
